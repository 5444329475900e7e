/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A loaded model becomes functions in this process (run, generate, score, attend, verify, bench), and sessions on it.
 *
 * Packed weights are in mappings of their own, never in the object: they are written, while they are packed, to a file
 * of the cache or to anonymous memory (memfd), and then mapped.
 *
 * A session takes its memory within --limit-memory. The arena is counted in full, the state by the tokens it will hold,
 * since its pages take memory only when a token is written: a session opens with the context of the model, or with as
 * many tokens as the limit allows.
 */
#define _GNU_SOURCE /* memfd_create */

#include "frontend/driver/compile/code_cache.h"
#include "frontend/driver/compile/job.h"
#include "frontend/driver/compile/ranks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frontend/syntax/files.h"
#include "ir/support/number.h"
#include "runtime/opencl/model.h"
#include "runtime/opencl/tfmc_cl.h"

/* ---- packed weights ---- */

#define RELEASE_INTERVAL (64u << 20) /* bytes written between two releases of source pages */

/* Counts written bytes, and releases the mapped pages of the source at intervals: otherwise they would stay
 * resident in addition to the packed copy. */
static void release_source_pages(struct packed *p, size_t n)
{
	p->since += n;
	if (p->since < RELEASE_INTERVAL)
		return;
	p->since = 0;
	if (p->read)
		weight_files_release_pages(p->read);
}

/* A file in memory (memfd) in place of one in the cache; fd -1: it cannot be made. */
static struct cache_file create_memory_file(void)
{
	return (struct cache_file){.fd = memfd_create("tfmc-weights", MFD_CLOEXEC)};
}

/* After a failed write to the cache (full disk, for example): copies what was written to memory, where packing goes
 * on. False: memory fails, too. */
static bool move_to_memory(struct packed *p)
{
	struct cache_file to = create_memory_file();
	char block[65536];
	uint64_t at = 0;
	ssize_t n = 1;
	while (to.fd >= 0 && (n = pread(p->file.fd, block, sizeof(block), (off_t)at)) > 0 &&
	       file_write_at(to.fd, block, (size_t)n, at))
		at += (uint64_t)n;
	cache_discard(&p->file);
	p->file = to;
	return to.fd >= 0 && n == 0;
}

/* The backend_sink of weights in this process: opens the file with its first bytes, in the cache or else in memory.
 * *packed has cx, cache, read and arena, and fd -1. False after a diagnostic. */
static bool packed_write(void *packed, uint64_t offset, const void *bytes, size_t n)
{
	struct packed *p = packed;
	if (p->file.fd < 0)
		p->file = cache_create(p->cache, p->arena);
	if (p->file.fd < 0)
		p->file = create_memory_file();
	bool ok = p->file.fd >= 0 && file_write_at(p->file.fd, bytes, n, offset);
	if (!ok && p->file.fd >= 0 && p->file.name)
		ok = move_to_memory(p) && file_write_at(p->file.fd, bytes, n, offset);
	if (ok) {
		release_source_pages(p, n);
		return true;
	}
	diag_environment_error(p->cx, LOC_NONE, DIAG_FILE, "cannot keep packed weights in memory: %s",
	                       strerror(errno));
	return false;
}

bool packed_write_copy(void *packed, uint64_t offset, const void *bytes, size_t n)
{
	struct packed *p = packed;
	if (p->file.fd >= 0 && !file_write_at(p->file.fd, bytes, n, offset))
		cache_discard(&p->file);
	return true;
}

/* Maps the written weights file to p->map; all zero when nothing was written. */
static enum tfmc_status packed_map(struct packed *p)
{
	struct stat st;
	if (p->file.fd < 0)
		return TFMC_OK;
	void *base = MAP_FAILED;
	if (!fstat(p->file.fd, &st))
		base = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, p->file.fd, 0);
	if (base == MAP_FAILED) {
		diag_environment_error(p->cx, LOC_NONE, DIAG_FILE, "cannot map packed weights: %s",
		                       strerror(errno));
		return TFMC_IO;
	}
	p->map = (struct tfmc_mapping){.data = (const char *)base + TFMC_WEIGHTS_DATA,
	                               .bytes = (uint64_t)st.st_size - TFMC_WEIGHTS_DATA,
	                               .base = base,
	                               .base_bytes = (uint64_t)st.st_size};
	if (p->read)
		weight_files_release_pages(p->read);
	return TFMC_OK;
}

bool packed_commit(struct packed *p, const char *name)
{
	return p->file.name && cache_commit(p->cache, &p->file, name);
}

void packed_close(struct packed *p)
{
	tfmc_weights_unmap(&p->map);
	cache_discard(&p->file);
}

#define DEVICE_WORD        "opencl"
#define DEVICE_WORD_LENGTH (sizeof(DEVICE_WORD) - 1)

/* ---- devices ---- */

/* --device without "opencl:": a number or a part of a name; NULL: the best device. */
static const char *device_selector(const struct driver *d)
{
	const char *text = d->options.device;
	return text && text[DEVICE_WORD_LENGTH] ? text + DEVICE_WORD_LENGTH + 1 : NULL;
}

/* Reports a failure of --device. Always TFMC_IO. */
static enum tfmc_status driver_device_error(struct driver *d, const char *why)
{
	diag_environment_error(&d->diag, LOC_NONE, DIAG_TARGET, "--device=%s: %s", d->options.device, why);
	return TFMC_IO;
}

/* Opens OpenCL and finds the device of --device. TFMC_IO after a diagnostic. The caller closes *cl, also on
 * failure. */
static enum tfmc_status find_device(struct driver *d, struct tfmc_cl **cl, size_t *number)
{
	struct tfmc_cl_error error;
	int status = tfmc_cl_open(driver_opencl_library(), cl, &error);
	if (status == TFMC_CL_OK)
		status = tfmc_cl_choose(*cl, 0, device_selector(d), number, &error);
	return status == TFMC_CL_OK ? TFMC_OK : driver_device_error(d, error.text);
}

/* Checks --device, so that a missing device is reported before compiling; without --target the target becomes
 * OpenCL. */
static enum tfmc_status choose_device_target(struct driver *d)
{
	const char *text = d->options.device;
	struct tfmc_cl *cl;
	size_t number;
	if (!text)
		return TFMC_OK;
	if (strncmp(text, DEVICE_WORD, DEVICE_WORD_LENGTH) ||
	    (text[DEVICE_WORD_LENGTH] && text[DEVICE_WORD_LENGTH] != ':')) {
		diag_error(&d->diag, LOC_NONE, DIAG_OPTION,
		           "--device=%s is not opencl, opencl:NUMBER or opencl:NAME", text);
		return TFMC_INVALID;
	}
	enum tfmc_status st = find_device(d, &cl, &number);
	if (st == TFMC_OK)
		/* Other memory than the processor's is not given page by page. */
		d->state_at_once = tfmc_cl_device(cl, number)->type != TFMC_CL_CPU;
	if (st == TFMC_OK && !d->options.target)
		d->options.target = DEVICE_WORD;
	tfmc_cl_close(cl);
	return st;
}

/* OpenCL kernels multiply bf16 as f32, so they share a peak. */
enum tfmc_status driver_device_peak(struct driver *d, uint64_t bytes, struct backend_peak *out)
{
	struct tfmc_cl_peaks peaks;
	struct tfmc_cl_error error;
	struct tfmc_cl *cl;
	size_t number;
	enum tfmc_status st = find_device(d, &cl, &number);
	if (st == TFMC_OK && tfmc_cl_peaks(cl, number, bytes, &peaks, &error) != TFMC_CL_OK)
		st = driver_device_error(d, error.text);
	if (st == TFMC_OK)
		*out = (struct backend_peak){
		        .flops = {[MAC_F32] = peaks.f32, [MAC_INT8] = peaks.int8, [MAC_BF16] = peaks.f32},
		        .bytes = peaks.bytes};
	tfmc_cl_close(cl);
	return st;
}

struct tfmc_device driver_device(const struct driver *d, struct compiled *c)
{
	return (struct tfmc_device){.name = device_selector(d),
	                            .library = driver_opencl_library(),
	                            .cache = d->cache.dir,
	                            .message = c->device_message,
	                            .message_bytes = sizeof(c->device_message),
	                            .launched = c->launched,
	                            .user = c->launched_user};
}

const char *driver_opencl_library(void)
{
	const char *given = getenv("TFMC_OPENCL");
	return given && *given ? given : NULL;
}

/* Whether this process can run code for the target: OpenCL on the device that --device names. */
static bool runs_here(const struct driver *d, const struct target *t)
{
	return t->arch == ARCH_OPENCL ? d->options.device != NULL : target_runs_on_host(t);
}

/* ---- code ---- */

/* Returns the most demanding variant that this machine runs; NULL after a diagnostic. */
static const struct backend_variant *find_runnable_variant(struct driver *d, const struct variant_set *set)
{
	for (size_t i = set->n; i-- > 0;)
		if (runs_here(d, set->items[i].target))
			return &set->items[i];
	if (set->items[0].target->arch == ARCH_OPENCL) {
		diag_error(&d->diag, LOC_NONE, DIAG_TARGET,
		           "kernels for %s require a device: --device=opencl", set->items[0].target->name);
		return NULL;
	}
	diag_error(&d->diag, LOC_NONE, DIAG_TARGET,
	           "this machine cannot run code for %s; compile it with -o for one that can, or choose "
	           "--target=native",
	           set->items[0].target->name);
	return NULL;
}

/* Plans all variants; out->planned is that of the variant that runs. */
static enum tfmc_status plan(struct driver *d, const struct code_request *q, struct compiled *out)
{
	TFMC_TRY(driver_plan_variants(d, q->loaded->module, q->pipeline, &out->variants));
	out->planned = find_runnable_variant(d, &out->variants)->planned;
	return driver_check_planned(d, out->planned);
}

struct rank_range driver_packed_ranks(const struct driver *d)
{
	if (d->job)
		return (struct rank_range){job_ranks(d->job)->rank, 1};
	return (struct rank_range){0, d->options.one_rank ? 1 : driver_ranks(d)};
}

/* Compiles the model, packing the weights of this process's ranks, or uses packed weights of the cache (of one
 * rank; those of several belong to their program). */
static enum tfmc_status compile_and_pack(struct driver *d, const struct code_request *q, struct compiled *out)
{
	int64_t ranks = driver_ranks(d);
	struct backend_sink *sinks = ARENA_ARRAY(&d->arena, struct backend_sink, (size_t)ranks);
	struct cached_weights before = {0};
	struct backend_options o = {
	        .weights = BACKEND_WEIGHTS_FILE, .facts = q->facts, .weights_sink = sinks};
	const struct rank_range packed = driver_packed_ranks(d);
	for (int64_t i = packed.first; sinks && i < packed.first + packed.n; i++)
		sinks[i] = (struct backend_sink){packed_write, &out->weights[i]};
	if (!sinks)
		return TFMC_NO_MEMORY;
	o.opt_level = q->opt_level;
	o.remarks = d->options.remarks;
	o.progress = &d->progress;
	o.weights_limit = d->limits.weights;
	o.code_limit = d->limits.code;
	o.entries = q->entries.items;
	o.n_entries = q->entries.n;
	TFMC_TRY(plan(d, q, out));
	if (ranks == 1)
		code_cache_find_packed(d, out->variants.items[0].planned, &before);
	else if (!code_cache_program_hash(&out->variants, &o))
		return TFMC_NO_MEMORY;
	o.packed = before.map.base ? &before.packed : NULL;
	o.packed_stays = true;
	enum tfmc_status st = driver_generate_code(d, &out->variants, q->loaded, &o, &out->object);
	driver_end_stage(d, "code generation");
	if (st == TFMC_OK && out->object.packed_taken) {
		out->weights->map = before.map;
		return TFMC_OK;
	}
	tfmc_weights_unmap(&before.map);
	for (int64_t i = 0; i < ranks && st == TFMC_OK; i++) {
		st = packed_map(&out->weights[i]);
		out->weights[i].map.rank = i;
	}
	return st;
}

/* Links the object into this process. Kernels for OpenCL call libtfmccl, whose functions are in tfmc. A function of
 * the interface that is missing is an internal error, unless the environment was at fault. */
static enum tfmc_status link_object(struct driver *d, const char *name, struct compiled *out)
{
	static const struct backend_function functions[] = {
#define X(function) {#function, (uintptr_t)function},
	        TFMC_CL_MODEL_FUNCTIONS(X)
#undef X
	};
	TFMC_TRY(
	        backend_jit_link(&d->diag, &out->object.object, functions, TFMC_COUNT(functions), &out->jit));
	if (backend_jit_model(out->jit, name, &out->model))
		return TFMC_OK;
	if (d->diag.n_environment)
		return TFMC_IO;
	diag_error(&d->diag, LOC_NONE, DIAG_INTERNAL,
	           "the object does not define all functions of its interface");
	return TFMC_INTERNAL;
}

/* Takes code and weights from the cache, or compiles and stores them. Code whose compilation had warnings is
 * not stored, so that they are repeated. */
static enum tfmc_status compile_or_load(struct driver *d, const struct code_request *q, struct compiled *out)
{
	size_t warnings_before = d->diag.n_warnings;
	TFMC_TRY(code_cache_open(d));
	const char *name = code_cache_name(d, q), *verb = NULL;
	if (name && code_cache_load(d, name, out))
		verb = "come from";
	driver_end_stage(d, "cache");
	if (!verb)
		TFMC_TRY(compile_and_pack(d, q, out));
	else if (d->options.command == COMMAND_BENCH || d->options.poison)
		/* They read the plan, too. Making it takes a hundredth of the time of code generation. */
		TFMC_TRY(plan(d, q, out));
	TFMC_TRY(link_object(d, q->loaded->module->name, out));
	backend_llvm_release(); /* LLVM is not needed any more: frees its pages */
	if (!verb && name && warnings_before == d->diag.n_warnings && code_cache_store(d, name, out))
		verb = "are stored in";
	if (!d->options.verbose)
		return TFMC_OK;
	if (verb)
		buf_printf(&d->log, "code and packed weights %s the cache %s\n", verb, d->cache.dir);
	else
		buf_printf(&d->log, "the cache is not used: %s\n",
		           d->cache.why ? d->cache.why : "the limit or the disk leaves no room");
	driver_flush_log(d);
	return TFMC_OK;
}

/* out->weights is complete before anything can fail, so that compiled_destroy() can close all. Devices and variants
 * are checked before the followers of a job hear of the entries. */
enum tfmc_status driver_compile_jit(struct driver *d, struct loaded *l, struct entry_names entries,
                                    struct compiled *out)
{
	struct backend_facts facts = {.pad = -1};
	struct code_request q = {l, &out->variants, entries, driver_pipeline(d), &facts, 2};
	if (d->options.opt0 || (d->options.passes && !strcmp(d->options.passes, "O0")))
		q.opt_level = 0;
	backend_output_init(&out->object);
	out->weights = ARENA_ARRAY(&d->arena, struct packed, (size_t)driver_ranks(d));
	out->n_weights = out->weights ? driver_ranks(d) : 0;
	for (int64_t i = 0; i < out->n_weights; i++)
		out->weights[i] = (struct packed){.cx = &d->diag,
		                                  .cache = &d->cache,
		                                  .read = driver_weight_files(l),
		                                  .file.fd = -1,
		                                  .arena = &d->arena};
	if (!out->weights)
		return TFMC_NO_MEMORY;
	TFMC_TRY(choose_device_target(d));
	TFMC_TRY(driver_find_variants(d, &out->variants));
	if (!find_runnable_variant(d, &out->variants))
		return TFMC_IO;
	if (l->model)
		TFMC_TRY(driver_collect_facts(d, l->model, &facts));
	TFMC_TRY(job_send_compile(d, entries));
	return compile_or_load(d, &q, out);
}

/* Later sessions of *c run c->forced, the variant of the turn, with its plan in c->planned. Variants that this
 * machine does not run are warnings. */
enum tfmc_status driver_for_each_variant(struct driver *d, struct compiled *c, variant_fn *each, void *user)
{
	for (size_t i = 0; i < c->variants.n; i++) {
		const struct backend_variant *v = &c->variants.items[i];
		if (!runs_here(d, v->target)) {
			diag_warning(&d->diag, LOC_NONE, DIAG_TARGET, "this machine does not run variant %s",
			             v->target->name);
			continue;
		}
		c->planned = v->planned;
		c->forced = v->target->name;
		TFMC_TRY(each(user, c, v->target));
	}
	return TFMC_OK;
}

void compiled_close_session(struct compiled *c)
{
	tfmc_session_close(c->session); /* ends the sessions that follow it */
	rank_threads_end(c->ranks);
	c->session = NULL;
	c->ranks = NULL;
}

/* Without variants nothing was compiled, and c->object may not even be initialised. The session goes first: it uses
 * code and weights. */
void compiled_destroy(struct compiled *c)
{
	compiled_close_session(c);
	backend_jit_destroy(c->jit);
	if (c->variants.n > 0) {
		backend_output_destroy(&c->object);
	}
	for (int64_t i = 0; i < c->n_weights; i++)
		packed_close(&c->weights[i]);
	variant_set_destroy(&c->variants);
	*c = (struct compiled){0};
}

/* ---- sessions ---- */

/* Longer prompts are read in several prefill calls, which changes no bit of the result. */
#define CALL_TOKENS 4096
/* Of a pipeline, whose stages work at different calls: few, though enough that arithmetic bounds a call. */
#define STAGE_CALL_TOKENS 128
#define PAGE              4096
#define WORKERS_MAX       4096 /* that an object accepts */

/* A session to be opened. */
struct session_request {
	int64_t batch;        /* sequences of the state; 0: the bound */
	const int64_t *dims;  /* largest dims of its calls; NULL: the bounds */
	bool chunked_prefill; /* long prompts are read in several calls */
	int64_t tokens;       /* the smallest context that is of use */
};

/* The index of the batch dim: the first one of the first entry; -1: none. */
static int64_t batch_dim(const struct tfmc_record *r)
{
	const struct tfmc_record_entry *e = tfmc_entry_at(r, 0);
	return e && e->n_dims ? (int64_t) * (const uint64_t *)(const void *)((const char *)r + e->dims) : -1;
}

/* ---- memory ---- */

/* Bytes of the pages that `tokens` tokens of a sequence touch in one state, a row of matrices [rows, columns] with
 * a row for each token; states that do not grow with tokens count in full. */
static uint64_t touched_state_bytes(const struct tfmc_record_state *s, int64_t tokens)
{
	uint64_t matrices = 1, rows = 1, columns = 1, bytes = tfmc_dtype_bytes(s->dtype);
	if (s->rank >= 2)
		columns = (uint64_t)s->dims[s->rank - 1];
	if (s->rank >= 3)
		rows = (uint64_t)s->dims[s->rank - 2];
	for (uint64_t i = 1; i + 2 < s->rank; i++)
		matrices *= (uint64_t)s->dims[i];
	uint64_t all = rows * columns * bytes, used = (uint64_t)tokens < rows ? (uint64_t)tokens : rows;
	uint64_t touched = (used * columns * bytes + PAGE - 1) / PAGE * PAGE;
	return matrices * (s->grows && touched < all ? touched : all);
}

/* Bytes of all states for `batch` sequences of `tokens` tokens; saturates at UINT64_MAX. */
static uint64_t session_state_bytes(const struct tfmc_record *r, int64_t batch, int64_t tokens)
{
	const struct tfmc_record_state *states = (const void *)((const char *)r + r->states);
	uint64_t sum = 0;
	for (uint64_t i = 0; i < r->n_states; i++)
		sum += touched_state_bytes(&states[i], tokens);
	bool is_far = batch > 0 && sum > (UINT64_MAX - r->state_fixed_bytes) / (uint64_t)batch;
	return is_far ? UINT64_MAX : sum * (uint64_t)batch + r->state_fixed_bytes;
}

/* Returns the longest context, up to the model's, whose state fits into `bytes`, by binary search; 0: none. */
static int64_t max_tokens_within(const struct tfmc_record *r, int64_t batch, uint64_t bytes)
{
	int64_t fits = 0, most = r->context_limit && r->context_limit < INT32_MAX ? (int64_t)r->context_limit
	                                                                          : INT32_MAX;
	while (fits < most) {
		int64_t middle = fits + (most - fits + 1) / 2;
		if (session_state_bytes(r, batch, middle) <= bytes)
			fits = middle;
		else
			most = middle - 1;
	}
	return fits;
}

int64_t driver_batch_max(const struct tfmc_record *r)
{
	int64_t at = batch_dim(r);
	return at < 0 ? 1 : tfmc_record_dim_at(r, (uint64_t)at)->hi;
}

/* Sequences of the state of a session: the request's, its dims', or the bound. */
static int64_t count_sequences(const struct tfmc_record *r, const struct session_request *w)
{
	int64_t at = batch_dim(r), bound = driver_batch_max(r);
	int64_t used = at >= 0 && w->dims ? w->dims[at] : bound;
	return w->batch && w->batch < used ? w->batch : used;
}

/* Sets *tokens to the context that --limit-memory allows; 0: that of the model. TFMC_INVALID after a diagnostic
 * when not even w->tokens fit. A device whose state takes memory at once must hold the full context. */
static enum tfmc_status fit_to_memory(struct driver *d, const struct compiled *c,
                                      const struct session_request *w, const struct tfmc_session_options *o,
                                      int64_t *tokens)
{
	const struct tfmc_record *r = c->model.record;
	uint64_t limit = d->limits.memory, arena = tfmc_session_arena_bytes(&c->model, o);
	int64_t sequences = count_sequences(r, w), least = d->state_at_once ? INT32_MAX : w->tokens;
	if (r->context_limit && (uint64_t)least > r->context_limit)
		least = (int64_t)r->context_limit;
	bool has_state = r->state_batch_bytes || r->state_fixed_bytes;
	uint64_t state = has_state ? session_state_bytes(r, sequences, least) : 0;
	TFMC_TRY(limits_session(&d->limits, &d->diag, arena, state));
	int64_t fits = has_state ? max_tokens_within(r, sequences, limit - arena) : 0;
	*tokens = fits < INT32_MAX && (uint64_t)fits != r->context_limit ? fits : 0;
	return TFMC_OK;
}

int64_t driver_batch_size(struct driver *d, const struct compiled *c, int64_t most)
{
	const struct tfmc_record *r = c->model.record;
	while (most > 1 && r->context_limit &&
	       session_state_bytes(r, most, (int64_t)r->context_limit) > d->limits.memory / 2)
		most /= 2;
	return most;
}

void driver_note_context_limit(struct driver *d)
{
	char limit[NUMBER_TEXT_MAX];
	if (!d->session_tokens)
		return;
	number_print_bytes(limit, d->limits.memory);
	diag_note(&d->diag, LOC_NONE,
	          "%s of memory are enough for %lld tokens of a sequence; --limit-memory=BYTES for more",
	          limit, (long long)d->session_tokens);
}

/* ---- workers ---- */

/* Commands that generate or evaluate text take all processors; those that measure or compare take one. */
int64_t driver_session_workers(const struct driver *d)
{
	const unsigned texts =
	        COMMAND_GENERATE | COMMAND_SCORE | COMMAND_QUALITY | COMMAND_CALIBRATE | COMMAND_ATTEND;
	if (d->options.threads || !(d->options.command & texts) || d->options.device)
		return option_int(d->options.threads, 1);
	int64_t n = limits_processors() / (d->job ? job_ranks_on_host(d->job) : driver_ranks(d));
	return n < 1 ? 1 : n < WORKERS_MAX ? n : WORKERS_MAX;
}

int64_t driver_pack_workers(const struct driver *d)
{
	int64_t all = limits_processors(), asked = option_int(d->options.threads, all);
	return asked < all ? asked : all;
}

/* Of a step of one sequence: all dims at their lower bounds. */
int64_t driver_decode_workers(struct driver *d, const struct tfmc_record *r)
{
	int64_t most = option_int(d->options.decode_threads, driver_session_workers(d));
	int64_t step = tfmc_entry_find(r, "step"), *dims = ARENA_ARRAY(&d->arena, int64_t, r->n_dims + 1);
	for (uint64_t i = 0; dims && i < r->n_dims; i++)
		dims[i] = tfmc_record_dim_at(r, i)->lo;
	return step < 0 || !dims ? 1 : tfmc_entry_workers(r, step, dims, most);
}

/* ---- opening ---- */

/* Starts or notifies the other ranks, and sets *out to the table of this process: of a job, of threads that follow
 * it, of one rank alone; NULL: one process. A status of tfmc_rt.h. */
static int begin_ranks(const struct driver *d, struct compiled *c, const struct tfmc_session_options *o,
                       const struct tfmc_ranks **out)
{
	const struct driver_options *options = &d->options;
	const struct tfmc_link link = driver_link(d),
	                       *given = options->latency || options->link_rate ? &link : NULL;
	int status = TFMC_RT_OK;
	*out = NULL;
	if (d->job) {
		*out = job_ranks(d->job);
		return job_send_open(d->job, o, c->model.record->n_dims);
	}
	if (c->model.record->ranks <= 1)
		return TFMC_RT_OK;
	status = options->one_rank ? rank_threads_begin_alone(&c->model, given, &c->ranks)
	                           : rank_threads_begin(&c->model, o, c->weights, given, &c->ranks);
	if (status == TFMC_RT_OK)
		*out = rank_threads_leader(c->ranks);
	return status;
}

/* Opens c->session in place of an earlier one, and with several ranks those that follow it. */
static int open_ranks(const struct driver *d, struct compiled *c, struct tfmc_session_options o)
{
	const struct tfmc_ranks *ranks;
	compiled_close_session(c);
	int status = begin_ranks(d, c, &o, &ranks);
	if (status != TFMC_RT_OK)
		return status;
	if (ranks) {
		timed_ranks_init(&c->exchanges, ranks);
		o.ranks = &c->exchanges.ranks;
	}
	return tfmc_session_open(&c->model, &o, &c->session);
}

enum tfmc_status driver_check_session_limits(struct driver *d, const struct tfmc_record *r)
{
	if (r->n_dims > TFMC_DIMS_MAX) {
		diag_error(&d->diag, LOC_NONE, DIAG_LIMIT, "the model has %llu dims; a session takes %d",
		           (unsigned long long)r->n_dims, TFMC_DIMS_MAX);
		return TFMC_INVALID;
	}
	for (uint64_t i = 0; i < r->n_entries; i++) {
		const struct tfmc_record_entry *e = tfmc_entry_at(r, (int64_t)i);
		if (e->n_inputs + e->n_outputs <= TFMC_TENSORS_MAX)
			continue;
		diag_error(&d->diag, LOC_NONE, DIAG_LIMIT,
		           "entry %s has %llu inputs and %llu outputs; a session takes %d tensors",
		           tfmc_record_text(r, e->name), (unsigned long long)e->n_inputs,
		           (unsigned long long)e->n_outputs, TFMC_TENSORS_MAX);
		return TFMC_INVALID;
	}
	return TFMC_OK;
}

/* Opens the requested session within --limit-memory: the tokens of a call are halved until its arena takes at most a
 * quarter, the context gets what is left (fit_to_memory). Without --threads one worker serves where no thread can be
 * started. TFMC_INVALID or TFMC_IO after a diagnostic. */
static enum tfmc_status open_session(struct driver *d, struct compiled *c, const struct session_request *w)
{
	char why[256] = "";
	TFMC_TRY(driver_check_session_limits(d, c->model.record));
	struct tfmc_session_options o = {.struct_size = sizeof(o),
	                                 .batch = w->batch,
	                                 .workers = driver_session_workers(d),
	                                 .decode_workers = option_int(d->options.decode_threads, 0),
	                                 .all_workers = c->all_workers,
	                                 .variant = c->forced,
	                                 .dims_max = w->dims,
	                                 .weights = &c->weights->map,
	                                 .message = why,
	                                 .message_bytes = sizeof(why),
	                                 .trace = c->trace};
	struct tfmc_device device = driver_device(d, c);
	if (d->options.device)
		o.device = &device;
	/* Tokens of a prefill call whose arena takes at most a quarter of the limit: where attention scores are
	 * materialized, a token takes memory in proportion to the context. */
	if (w->chunked_prefill)
		for (o.call_tokens = d->stages > 1 ? STAGE_CALL_TOKENS : CALL_TOKENS; o.call_tokens > 1;
		     o.call_tokens /= 2)
			if (tfmc_session_arena_bytes(&c->model, &o) <= d->limits.memory / 4)
				break;
	TFMC_TRY(fit_to_memory(d, c, w, &o, &o.context));
	d->session_tokens = o.context;
	int status = open_ranks(d, c, o);
	if (status == TFMC_RT_E_THREAD && !d->options.threads &&
	    !d->job) { /* all processors is only the default */
		o.workers = 1;
		status = open_ranks(d, c, o);
	}
	if (status == TFMC_RT_OK)
		return TFMC_OK;
	if (status == TFMC_RT_E_DEVICE)
		return driver_device_error(d, *c->device_message ? c->device_message
		                                                 : tfmc_rt_status_text(status));
	enum tfmc_status st =
	        driver_runtime_error(d, LOC_NONE, DIAG_INPUT, status, "cannot open a session: %s",
	                             *why ? why : tfmc_rt_status_text(status));
	if (status == TFMC_RT_E_MEMORY)
		diag_note(
		        &d->diag, LOC_NONE,
		        "addresses for %llu bytes of state are reserved; --context=N makes sequences shorter",
		        (unsigned long long)c->model.state_size(count_sequences(c->model.record, w)));
	return st;
}

/* The context must hold the largest of the dims but the batch: any of them may count the tokens of a call. */
enum tfmc_status driver_open_session_for(struct driver *d, struct compiled *c, int64_t *dims)
{
	const struct tfmc_record *r = c->model.record;
	int64_t batch = batch_dim(r), tokens = 1;
	for (uint64_t i = 0; dims && i < r->n_dims; i++) {
		const struct tfmc_record_dim *dim = tfmc_record_dim_at(r, i);
		dims[i] = dims[i] < dim->lo ? dim->lo : dims[i] > dim->hi ? dim->hi : dims[i];
		tokens = (int64_t)i != batch && dims[i] > tokens ? dims[i] : tokens;
	}
	return open_session(d, c, &(struct session_request){.dims = dims, .tokens = tokens});
}

/* Batch 0: the bounds of all dims. Else the batch dim is the given batch, and causal models read long prompts in
 * several calls. */
enum tfmc_status driver_open_session(struct driver *d, struct compiled *c, int64_t batch)
{
	struct session_request w = {.tokens = 1};
	if (batch == 0)
		return open_session(d, c, &w);
	const struct tfmc_record *r = c->model.record;
	int64_t *dims = ARENA_ARRAY(&d->arena, int64_t, (size_t)r->n_dims + 1), at = batch_dim(r);
	if (!dims)
		return TFMC_NO_MEMORY;
	for (uint64_t i = 0; i < r->n_dims; i++)
		dims[i] = tfmc_record_dim_at(r, i)->hi;
	if (at >= 0 && batch < dims[at])
		dims[at] = batch;
	w.dims = dims;
	w.batch = at >= 0 ? dims[at] : batch;
	w.chunked_prefill = r->generate_kind == GENERATE_CAUSAL;
	return open_session(d, c, &w);
}

enum tfmc_status driver_compile_and_open(struct driver *d, struct loaded *l, struct entry_names entries,
                                         int64_t batch, struct compiled *out)
{
	TFMC_TRY(driver_compile_jit(d, l, entries, out));
	return driver_open_session(d, out, batch);
}
