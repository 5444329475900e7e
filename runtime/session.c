/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session owns the memory of a context (context, state, arena, mapped weights) and its thread pool, and
 * calls entries with the argument slots of abi.h.
 *
 * Dims of a call are bounded by the record and the options: arena and state are allocated once, for the bounds.
 * call_tokens bounds tokens of a call over all its sequences. Of several ranks (lead.h) rank 0 broadcasts each change
 * as an act first. With a trace the object runs as one thread that hands each group of kernels to run_traced_group,
 * which measures the workers.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* syscall */
#endif
#define _POSIX_C_SOURCE 200809L

#include "runtime/lead.h"
#include "runtime/memory.h"
#include "runtime/spin.h"
#include "tfmc_rt.h"

#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Calls of a run: long enough that filling and draining a pipeline of a few stages costs little, and bounded since it
 * cannot be cancelled. */
#define RUN_CALLS 16

/* ---- processor features ---- */

/*
 * Processor features that only the operating system can report or enable: AMX tiles on x86-64 Linux, HWCAP on
 * aarch64.
 */

#if defined(__linux__) && defined(__aarch64__)

#include <sys/auxv.h>

void tfmc_system_features(const struct tfmc_record *record, uint64_t words[2])
{
	(void)record;
	words[0] = getauxval(AT_HWCAP);
	words[1] = getauxval(AT_HWCAP2);
}

#elif defined(__linux__) && defined(__x86_64__)

#include <sys/syscall.h>
#include <unistd.h>

#define TILE_DATA           18     /* bit of XCR0: AMX tile data */
#define GET_XCOMP_PERMITTED 0x1022 /* ARCH_GET_XCOMP_PERM */
#define REQUEST_XCOMP       0x1023 /* ARCH_REQ_XCOMP_PERM */

/* Requests AMX only if a variant of the object uses it: the permission makes the signal frames of the
 * process larger. */
void tfmc_system_features(const struct tfmc_record *record, uint64_t words[2])
{
	words[0] = words[1] = 0;
	if (!record || !(record->system[0] >> TILE_DATA & 1))
		return;
	if (syscall(SYS_arch_prctl, REQUEST_XCOMP, TILE_DATA) ||
	    syscall(SYS_arch_prctl, GET_XCOMP_PERMITTED, words))
		words[0] = 0;
}

#else

void tfmc_system_features(const struct tfmc_record *record, uint64_t words[2])
{
	(void)record;
	words[0] = words[1] = 0;
}

#endif

/* ---- status codes ---- */

const char *tfmc_rt_status_text(int status)
{
	switch (status) {
#define X(name, value, text) \
	case value: return text;
		TFMC_STATUS_TABLE(X)
#undef X
	case TFMC_RT_E_MEMORY: return "memory could not be allocated";
	case TFMC_RT_E_FILE: return "the file cannot be read, or is not a weights file";
	case TFMC_RT_E_THREAD: return "a thread could not be started";
	case TFMC_RT_E_RECORD: return "the object's record is of another version or damaged";
	case TFMC_RT_E_NAME: return "no entry, tensor or dim has this name";
	case TFMC_RT_E_GENERATE: return "the object was not compiled for generation";
	case TFMC_RT_E_PROMPT: return "the prompt is empty, too long, or has an id outside of the vocabulary";
	case TFMC_RT_E_LOGITS: return "a logit is NaN or infinite, or no token may be chosen";
	case TFMC_RT_E_TEXT: return "the object carries no vocabulary, or the text is not UTF-8";
	case TFMC_RT_E_SAMPLE: return "a sampling option is outside of its range";
	case TFMC_RT_E_BEAM:
		return "a beam option is outside of its range (the beam: 1 to the session's batch)";
	case TFMC_RT_E_CONSTRAINTS:
		return "a constraint is out of its range: an id outside of the vocabulary, or an empty "
		       "sequence or "
		       "text";
	case TFMC_RT_E_SAVED: return "the saved sequence is damaged, cut off, or of another version";
	case TFMC_RT_E_MODEL_MISMATCH:
		return "the saved sequence belongs to another model or to other states";
	case TFMC_RT_E_SLOT: return "no sequence has this slot, it is named twice, or all slots are taken";
	default: return "unknown status code";
	}
}

/* ---- sessions ---- */

struct tfmc_session {
	struct tfmc_model model;
	struct tfmc_mapping weights;        /* mapped from weights_path; owned */
	struct tfmc_mapping weights_in_use; /* `weights`, or the mapping of the caller; zeros: the
					          weights in the object */
	struct tfmc_pool *pool;             /* NULL: one worker */
	struct memory_block context_block, state, arena;
	void *context;
	enum tfmc_driver driver;
	atomic_int is_cancelled;         /* set by tfmc_session_cancel, consumed by feeder_* */
	int64_t workers, decode_workers; /* upper bounds */
	int64_t current_workers;         /* workers that the context is set to */
	int64_t batch;                   /* sequences of the state */
	int64_t first_sequence;          /* sequence of row 0 */
	int64_t context_tokens;          /* bound of the tokens of a sequence */
	int64_t call_tokens;             /* tokens of one call; 0: no bound */
	int all_workers;
	struct lead lead;
	const struct tfmc_trace *trace; /* NULL: none */
	struct tfmc_span *shares;       /* [most workers] of the group that runs; with a trace */
	bool is_open;                   /* tfmc_session_open has succeeded: followers wait for acts */
	struct tfmc_device device;
	char device_error[512]; /* receives the device's message unless the caller gave a buffer */
	struct session_source source;
	char prompt_error[SESSION_ERROR_BYTES]; /* message about the last prompt that was rejected; "":
						   none */
};

static int32_t yield_to_others(void *user)
{
	(void)user;
	sched_yield();
	return 0;
}

/* Sets config->weights from the options: a file, else a mapping of the caller, else the weights in the object.
 * E_NO_WEIGHTS: the object has none inside. */
static int open_weights(struct tfmc_session *s, const struct tfmc_session_options *o,
                        struct tfmc_config *config)
{
	const char *path = o->weights_path;
	if (!path && o->weights && o->weights->data) {
		config->weights = o->weights->data;
		config->weights_bytes = o->weights->bytes;
		s->weights_in_use = *o->weights;
		return TFMC_RT_OK;
	}
	if (!path)
		return s->model.record->weights_embedded || s->model.record->weights_bytes == 0
		               ? TFMC_RT_OK
		               : TFMC_RT_E_NO_WEIGHTS;
	int status =
	        tfmc_weights_map(path, s->model.record, o->verify_weights ? TFMC_MAP_VERIFY : 0, &s->weights);
	config->weights = s->weights.data;
	config->weights_bytes = s->weights.bytes;
	s->weights_in_use = s->weights;
	return status;
}

/* Index of the batch dim: the first dim of the first entry, or -1. */
static int64_t batch_dim(const struct tfmc_record *r)
{
	const struct tfmc_record_entry *e = tfmc_entry_at(r, 0);
	if (!e || !e->n_dims)
		return -1;
	const uint64_t *dims = (const void *)((const char *)r + e->dims);
	return (int64_t)dims[0];
}

/* Upper bound of the batch dim, 1 without one. */
static int64_t max_batch(const struct tfmc_record *r)
{
	int64_t dim = batch_dim(r);
	return dim < 0 ? 1 : tfmc_record_dim_at(r, (uint64_t)dim)->hi;
}

/* Tokens of each of `batch` sequences in one call: an equal share of call_tokens, but at least the bidirectional
 * prefix, which must come in one call, and 1. */
static int64_t max_call_tokens(const struct tfmc_session *s, int64_t batch)
{
	int64_t rows = s->call_tokens / (batch > 0 ? batch : 1), min = s->model.record->prefix;
	min = min > 1 ? min : 1;
	return rows > min ? rows : min;
}

/* Arena bytes for all dims at their bounds; with call_tokens the maximum over all batch sizes that share these tokens:
 * then dims other than the batch are at most a sequence's share, also those that count no tokens: a call for which the
 * arena is then too small gets E_SIZE. */
static uint64_t arena_bytes(const struct tfmc_session *s, const int64_t *bounds, int64_t workers)
{
	const struct tfmc_record *r = s->model.record;
	int64_t dims[TFMC_DIMS_MAX], batch = batch_dim(r);
	uint64_t max = 0;
	if (s->call_tokens <= 0 || batch < 0)
		return s->model.arena_size(bounds, workers);
	for (int64_t b = tfmc_record_dim_at(r, (uint64_t)batch)->lo; b <= bounds[batch]; b++) {
		int64_t each = max_call_tokens(s, b);
		for (uint64_t i = 0; i < r->n_dims; i++) {
			int64_t lo = tfmc_record_dim_at(r, i)->lo;
			dims[i] = (int64_t)i == batch ? b : each < bounds[i] ? each : bounds[i];
			dims[i] = dims[i] < lo ? lo : dims[i];
		}
		uint64_t bytes = s->model.arena_size(dims, workers);
		max = bytes > max ? bytes : max;
	}
	return max;
}

/* Sets the bound of a sequence's tokens: the context limit of the object, or less if the options say so. Lengths are
 * i32. */
static int set_context_limit(struct tfmc_session *s, int64_t requested)
{
	uint64_t limit = s->model.record->context_limit;
	s->context_tokens = limit && limit < INT32_MAX ? (int64_t)limit : INT32_MAX;
	if (requested < 0 || requested > s->context_tokens)
		return TFMC_RT_E_DIM;
	s->context_tokens = requested ? requested : s->context_tokens;
	return TFMC_RT_OK;
}

/* bounds = the upper bounds of the dims of calls, from the options or the record. With call_tokens the batch is at
 * most the session's, since arena_bytes tries each one. */
static int read_bounds(const struct tfmc_session *s, const struct tfmc_session_options *o,
                       int64_t bounds[TFMC_DIMS_MAX])
{
	const struct tfmc_record *r = s->model.record;
	for (uint64_t i = 0; i < r->n_dims; i++) {
		int64_t max = tfmc_record_dim_at(r, i)->hi;
		bounds[i] = o->dims_max ? o->dims_max[i] : max;
		if (bounds[i] < 0 || bounds[i] > max)
			return TFMC_RT_E_DIM;
	}
	if (s->call_tokens > 0 && batch_dim(r) >= 0 && bounds[batch_dim(r)] > s->batch)
		bounds[batch_dim(r)] = s->batch;
	return TFMC_RT_OK;
}

/* Reads batch, workers and token bounds from the options; 0: the object's bound, or one worker. */
static int read_limits(struct tfmc_session *s, const struct tfmc_session_options *o)
{
	const struct tfmc_record *r = s->model.record;
	if (o->batch < 0 || o->batch > max_batch(r) || o->call_tokens < 0)
		return TFMC_RT_E_DIM;
	if (o->workers < 0 || o->decode_workers < 0 || o->workers > MODEL_WORKERS_MAX ||
	    o->decode_workers > MODEL_WORKERS_MAX)
		return TFMC_RT_E_WORKER;
	TRY(set_context_limit(s, o->context));
	s->call_tokens = o->call_tokens;
	s->batch = o->batch ? o->batch : max_batch(r);
	s->workers = o->workers ? o->workers : 1;
	s->decode_workers = o->decode_workers ? o->decode_workers : s->workers;
	s->all_workers = o->all_workers;
	s->trace = o->trace;
	return TFMC_RT_OK;
}

static int64_t max_workers(const struct tfmc_session *s)
{
	return s->workers > s->decode_workers ? s->workers : s->decode_workers;
}

/* Workers that the context is set to for calls by n. With a trace at least two: the object calls no parallel_for for a
 * single one. */
static int64_t context_workers(const struct tfmc_session *s, int64_t n)
{
	return s->trace && n < 2 ? 2 : n;
}

/* Allocates context, arena and state by the options, all zeroed: config->state_is_zero spares the object's reset. The
 * arena is large pages, as all of it is used; the state fills slowly. */
static int open_memory(struct tfmc_session *s, const struct tfmc_session_options *o,
                       struct tfmc_config *config)
{
	const struct tfmc_record *r = s->model.record;
	int64_t bounds[TFMC_DIMS_MAX];
	TRY(read_limits(s, o));
	TRY(read_bounds(s, o, bounds));
	config->batch = s->batch;
	config->workers = context_workers(s, max_workers(s));
	config->arena_bytes = arena_bytes(s, bounds, config->workers);
	config->state_bytes =
	        r->state_batch_bytes || r->state_fixed_bytes ? s->model.state_size(config->batch) : 0;
	TRY(memory_block_alloc(&s->context_block, r->context_bytes, MEMORY_SMALL_PAGES));
	TRY(memory_block_alloc(&s->arena, config->arena_bytes, MEMORY_LARGE_PAGES));
	TRY(memory_block_alloc(&s->state, config->state_bytes, MEMORY_SMALL_PAGES));
	s->context = s->context_block.data;
	config->arena = s->arena.data;
	config->state = s->state.data;
	config->state_is_zero = 1;
	return TFMC_RT_OK;
}

/* ---- traces ---- */

/* The argument of run_share. */
struct traced_task {
	tfmc_task_fn *fn;
	void *arg;
	struct tfmc_span *shares;
};

static void run_share(void *arg, int64_t worker, int64_t n_workers)
{
	const struct traced_task *t = arg;
	int64_t begin = spin_clock();
	t->fn(t->arg, worker, n_workers);
	t->shares[worker] = (struct tfmc_span){begin, spin_clock()};
}

/* The parallel_for of a session with a trace: tasks get the number of workers of the call in place of n, since the
 * context may be set to more (context_workers). Reports the group with the span of each worker. */
static void run_traced_group(void *user, int64_t n, tfmc_task_fn *fn, void *arg)
{
	struct tfmc_session *s = user;
	struct traced_task task = {fn, arg, s->shares};
	struct tfmc_group_run r = {.group = fn, .workers = s->shares, .n_workers = s->current_workers};
	(void)n;
	r.span.begin = spin_clock();
	tfmc_pool_run_some(s->pool, s->current_workers, run_share, &task);
	r.span.end = spin_clock();
	s->trace->group(s->trace->user, &r);
}

/* Calls an entry by one thread, which gives each group to run_traced_group. */
static int call_traced(struct tfmc_session *s, int64_t entry, const int64_t *dims, const uint64_t *args)
{
	struct tfmc_call_run r = {.entry = entry, .dims = dims, .span.begin = spin_clock()};
	r.status = s->model.call(s->context, (uint64_t)entry, args, -1);
	r.span.end = spin_clock();
	if (s->trace->call)
		s->trace->call(s->trace->user, &r);
	return r.status;
}

/* Opens weights, memory and pool, then calls init of the object. tfmc_session_close releases what a failure leaves.
 * The device's message goes to the session unless the caller has a buffer for it. */
static int open_object(struct tfmc_session *s, const struct tfmc_session_options *o,
                       struct tfmc_config *config)
{
	const struct tfmc_record *r = s->model.record;
	if (r->magic != TFMC_RECORD_MAGIC || r->abi_version != TFMC_ABI_VERSION || r->n_dims > TFMC_DIMS_MAX)
		return TFMC_RT_E_RECORD;
	*config = (struct tfmc_config){
	        .struct_size = sizeof(*config), .yield = yield_to_others, .ranks = o->ranks};
	int64_t variant = o->variant ? tfmc_variant_find(r, o->variant) : -1;
	if (o->variant && variant < 0)
		return TFMC_RT_E_NAME;
	config->variants = o->variant ? (uint64_t)1 << variant : 0;
	TRY(open_weights(s, o, config));
	TRY(open_memory(s, o, config));
	int64_t workers = max_workers(s);
	if (workers > 1 && o->spin_us == 0)
		TRY(tfmc_pool_create(workers, &s->pool));
	else if (workers > 1)
		TRY(tfmc_pool_create_spinning(workers, o->spin_us < 0 ? 0 : o->spin_us, &s->pool));
	s->driver = o->driver;
	s->current_workers = workers;
	config->user = s->pool;
	if (o->device)
		s->device = *o->device;
	if (!s->device.message || s->device.message_bytes == 0) {
		s->device.message = s->device_error;
		s->device.message_bytes = sizeof(s->device_error);
	}
	config->device = &s->device;
	tfmc_system_features(r, config->system);
	config->parallel_for = s->pool ? tfmc_pool_parallel_for : NULL;
	if (s->trace) {
		s->shares = calloc((size_t)workers, sizeof(*s->shares));
		if (!s->shares)
			return TFMC_RT_E_MEMORY;
		config->parallel_for = run_traced_group;
		config->user = s;
	}
	return s->model.init(s->context, config);
}

/* Opens the object on all ranks or on none. Where their processors run different variants, which may round
 * differently, all take the least demanding of them: those with another one initialize again, and all compare statuses
 * a second time. The caller closes after a failure. Weights in the object, or none, are of this rank. */
static int open_session(struct tfmc_session *s, const struct tfmc_session_options *o)
{
	struct tfmc_config config;
	int64_t lowest, highest;
	TRY(lead_compare(o, s->model.record));
	struct lead_opened opened = {.status = open_object(s, o, &config)};
	const struct tfmc_mapping *weights = &s->weights_in_use;
	opened.variant = opened.status == TFMC_RT_OK ? s->model.variant(s->context) : -1;
	opened.weights_rank = weights->data || !o->ranks ? weights->rank : o->ranks->rank;
	opened.weights_hash = weights->set_hash ? weights->set_hash : s->model.record->weights_hash;
	TRY(lead_collect(o, &opened, &lowest, &highest));
	s->lead.ranks = o->ranks;
	if (lowest == highest)
		return TFMC_RT_OK;
	if (opened.variant != lowest) {
		(void)s->model.close(s->context);
		config.variants = (uint64_t)1 << lowest;
		opened.status = s->model.init(s->context, &config);
	}
	return lead_collect(o, &opened, &lowest, &highest);
}

static bool has_functions(const struct tfmc_model *m)
{
	return m->record && m->init && m->call && m->reset && m->trim && m->fork && m->select && m->reorder &&
	       m->fetch && m->store && m->close && m->variant && m->set_workers && m->arena_size &&
	       m->state_size;
}

/* Copies options of an older or equal struct_size, which had fewer fields (the first version ended before
 * `weights`); missing fields are 0. Every version is a multiple of 8 bytes: another size is no version. */
static int copy_options(const struct tfmc_session_options *options, struct tfmc_session_options *out)
{
	*out = (struct tfmc_session_options){0};
	if (!options)
		return TFMC_RT_OK;
	uint64_t bytes = options->struct_size;
	if (bytes < offsetof(struct tfmc_session_options, weights) || bytes > sizeof(*out) ||
	    bytes % sizeof(uint64_t))
		return TFMC_RT_E_ABI;
	memcpy(out, options, (size_t)bytes);
	return TFMC_RT_OK;
}

/* A session on the stack with the limits alone: nothing is allocated. */
uint64_t tfmc_session_arena_bytes(const struct tfmc_model *model, const struct tfmc_session_options *options)
{
	struct tfmc_session_options o;
	int64_t bounds[TFMC_DIMS_MAX];
	if (!model || !has_functions(model) || model->record->n_dims > TFMC_DIMS_MAX ||
	    copy_options(options, &o) != TFMC_RT_OK)
		return 0;
	struct tfmc_session s = {.model = *model};
	if (read_limits(&s, &o) != TFMC_RT_OK || read_bounds(&s, &o, bounds) != TFMC_RT_OK)
		return 0;
	return arena_bytes(&s, bounds, context_workers(&s, max_workers(&s)));
}

/* Options are copied first, since the caller's may be of an older size. A session that fails is closed, after the
 * message was made from it: that of the ranks, else the text of the status. */
int tfmc_session_open(const struct tfmc_model *model, const struct tfmc_session_options *options,
                      struct tfmc_session **out)
{
	struct tfmc_session_options given;
	if (!out)
		return TFMC_RT_E_NULL;
	*out = NULL;
	if (!model || !has_functions(model))
		return TFMC_RT_E_NULL;
	TRY(copy_options(options, &given));
	if (given.trace && !given.trace->group)
		return TFMC_RT_E_NULL;
	if (given.message && given.message_bytes)
		*given.message = 0;
	struct tfmc_session *s = calloc(1, sizeof(*s));
	if (!s)
		return TFMC_RT_E_MEMORY;
	s->model = *model;
	int status = open_session(s, &given);
	if (status != TFMC_RT_OK) {
		if (given.message && given.message_bytes && !*given.message)
			(void)snprintf(given.message, (size_t)given.message_bytes, "%s",
			               tfmc_session_status_text(s, status));
		tfmc_session_close(s);
		return status;
	}
	s->is_open = true;
	*out = s;
	return TFMC_RT_OK;
}

/* Also of a session that failed to open: then no follower waits for acts, and fields that were not reached are zero.
 * ACT_CLOSE is sent first, since followers wait for it without a limit. */
void tfmc_session_close(struct tfmc_session *session)
{
	if (!session)
		return;
	if (session->is_open)
		(void)lead_send(&session->lead, &(struct act){.kind = ACT_CLOSE}, NULL);
	lead_close(&session->lead);
	tfmc_pool_destroy(session->pool);
	if (session->context)
		(void)session->model.close(session->context);
	tfmc_weights_unmap(&session->weights);
	memory_block_free(&session->context_block);
	memory_block_free(&session->state);
	memory_block_free(&session->arena);
	free(session->shares);
	free(session);
}

const struct tfmc_record *tfmc_session_record(const struct tfmc_session *session)
{
	return session ? session->model.record : NULL;
}

int session_prompt_error(struct tfmc_session *session, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	(void)vsnprintf(session->prompt_error, sizeof(session->prompt_error), fmt, ap);
	va_end(ap);
	return TFMC_RT_E_PROMPT;
}

void session_clear_prompt_error(struct tfmc_session *session)
{
	session->prompt_error[0] = 0;
}

const char *session_prompt_error_text(const struct tfmc_session *session)
{
	return session->prompt_error;
}

const char *tfmc_session_status_text(const struct tfmc_session *session, int status)
{
	if (session && status == TFMC_RT_E_PROMPT && *session->prompt_error)
		return session->prompt_error;
	if (session && status == TFMC_RT_E_DEVICE && *session->device.message)
		return session->device.message;
	if (session && session->is_open && status == TFMC_RT_E_RANKS)
		return "of several ranks, rank 0 calls the session, the others tfmc_session_follow; none "
		       "saves or "
		       "restores sequences";
	return tfmc_rt_status_text(status);
}

const char *tfmc_session_variant(const struct tfmc_session *session)
{
	return session ? tfmc_variant_name(session->model.record, session->model.variant(session->context))
	               : NULL;
}

/* ---- changes of the state ---- */

/* Resets by returning pages where possible: the object's own reset writes zeros over the whole state,
 * which would commit memory for every token that could come. */
static int reset_state(struct tfmc_session *s)
{
	s->first_sequence = 0;
	if (memory_block_zero(&s->state))
		return s->model.select(s->context, 0, -1);
	return s->model.reset(s->context);
}

static int select_sequences(struct tfmc_session *s, int64_t first, int64_t source)
{
	TRY(s->model.select(s->context, first, source));
	s->first_sequence = first;
	return TFMC_RT_OK;
}

/* Does an act on this rank. Calls have buffers of the rank: call_with_buffers does them. */
static int do_act(struct tfmc_session *s, const struct act *act, const void *payload)
{
	switch ((enum act_kind)act->kind) {
	case ACT_RESET: return reset_state(s);
	case ACT_TRIM: return s->model.trim(s->context, act->a, act->b);
	case ACT_FORK: return s->model.fork(s->context, act->a, act->b);
	case ACT_SELECT: return select_sequences(s, act->a, act->b);
	case ACT_REORDER: return s->model.reorder(s->context, payload, act->a);
	case ACT_CALLS:
	case ACT_CLOSE: break;
	}
	return TFMC_RT_OK;
}

/* Broadcasts an act, then does it on this rank. */
static int lead_act(struct tfmc_session *s, struct act act, const void *payload)
{
	TRY(lead_send(&s->lead, &act, payload));
	return do_act(s, &act, payload);
}

int tfmc_session_reset(struct tfmc_session *session)
{
	return session ? lead_act(session, (struct act){.kind = ACT_RESET}, NULL) : (int)TFMC_RT_E_NULL;
}

int tfmc_session_set_source(struct tfmc_session *session, const void *data, const int64_t *sizes,
                            uint64_t rank)
{
	struct session_source s = {.data = data, .rank = rank, .n = 1};
	if (!session || (data && !sizes))
		return TFMC_RT_E_NULL;
	if (data && (rank < 1 || rank > TFMC_SOURCE_RANK_MAX))
		return session_prompt_error(session, "the source has %llu axes; 1 to %d are possible",
		                            (unsigned long long)rank, TFMC_SOURCE_RANK_MAX);
	for (uint64_t i = 0; data && i < rank; i++) {
		if (sizes[i] < 0 || (sizes[i] && s.n > UINT64_MAX / (uint64_t)sizes[i]))
			return session_prompt_error(session, "axis %d of the source is %lld", (int)i,
			                            (long long)sizes[i]);
		s.sizes[i] = sizes[i];
		s.n *= (uint64_t)sizes[i];
	}
	session->source = s;
	return TFMC_RT_OK;
}

const struct session_source *session_source(const struct tfmc_session *session)
{
	return &session->source;
}

void tfmc_session_cancel(struct tfmc_session *session)
{
	if (session)
		atomic_store(&session->is_cancelled, 1);
}

int session_consume_cancel(struct tfmc_session *session)
{
	return atomic_exchange(&session->is_cancelled, 0);
}

int session_trim(struct tfmc_session *session, int64_t sequence, int64_t length)
{
	return lead_act(session, (struct act){.kind = ACT_TRIM, .a = sequence, .b = length}, NULL);
}

/* Length 0 empties the sequence, which is always possible. */
int tfmc_session_trim(struct tfmc_session *session, int64_t sequence, int64_t length)
{
	if (!session)
		return TFMC_RT_E_NULL;
	if (length > 0 && length < session->model.record->prefix &&
	    length < tfmc_session_length(session, sequence))
		return TFMC_RT_E_OVERWRITTEN; /* the remaining tokens attend to the removed ones */
	return session_trim(session, sequence, length);
}

/* record->encoded: offset of i32 marks of the sequences in the state, 0: the model has no source. */
int session_has_source(const struct tfmc_session *session, int64_t sequence)
{
	const struct tfmc_record *r = session->model.record;
	int32_t mark = 1;
	if (r->encoded)
		memcpy(&mark, (const char *)session->state.data + r->encoded + 4 * (uint64_t)sequence,
		       sizeof(mark));
	return mark != 0;
}

int tfmc_session_fork(struct tfmc_session *session, int64_t from, int64_t to)
{
	return session ? lead_act(session, (struct act){.kind = ACT_FORK, .a = from, .b = to}, NULL)
	               : (int)TFMC_RT_E_NULL;
}

int tfmc_session_select(struct tfmc_session *session, int64_t first_sequence, int64_t source)
{
	return session ? lead_act(session, (struct act){.kind = ACT_SELECT, .a = first_sequence, .b = source},
	                          NULL)
	               : (int)TFMC_RT_E_NULL;
}

/* n < 0 is left to the object, which rejects it; n = 0 changes nothing. */
int tfmc_session_reorder(struct tfmc_session *session, const int64_t *from, int64_t n)
{
	if (!session || (!from && n > 0))
		return TFMC_RT_E_NULL;
	if (n == 0)
		return TFMC_RT_OK;
	if (n > session->batch)
		return TFMC_RT_E_DIM;
	uint64_t bytes = n > 0 ? (uint64_t)n * sizeof(*from) : 0;
	return lead_act(session, (struct act){.kind = ACT_REORDER, .a = n, .bytes = bytes}, from);
}

int64_t tfmc_session_batch(const struct tfmc_session *session)
{
	return session && session->state.data ? session->batch : 0;
}

/* record->past: byte offset in the state of the i32 lengths of all sequences. They are in host memory for devices,
 * too. */
int64_t tfmc_session_length(const struct tfmc_session *session, int64_t sequence)
{
	int32_t n;
	if (sequence < 0 || sequence >= tfmc_session_batch(session))
		return -1;
	const char *past = (const char *)session->state.data + session->model.record->past;
	memcpy(&n, past + (uint64_t)sequence * sizeof(n), sizeof(n));
	return n;
}

int64_t session_first_length(const struct tfmc_session *session)
{
	return tfmc_session_length(session, session->first_sequence);
}

/* fetch copies the sequence from the device, if there is one; the size alone (out NULL) needs the lengths only,
 * which are in host memory. Of several ranks each has only a share of the state: E_RANKS. */
int tfmc_session_save(const struct tfmc_session *session, int64_t sequence, void *out, uint64_t cap,
                      uint64_t *n_out)
{
	if (!session)
		return TFMC_RT_E_NULL;
	if (session->lead.ranks)
		return TFMC_RT_E_RANKS;
	int status = out ? session->model.fetch(session->context, sequence) : (int)TFMC_RT_OK;
	if (status != TFMC_RT_OK && n_out)
		*n_out = 0;
	if (status != TFMC_RT_OK)
		return status;
	return tfmc_state_save(session->model.record, &session->weights_in_use, session->state.data,
	                       tfmc_session_batch(session), sequence, out, cap, n_out);
}

/* Restores into host memory, then stores it to the device, if there is one. */
int tfmc_session_restore(struct tfmc_session *session, int64_t sequence, const void *data, uint64_t n)
{
	if (!session)
		return TFMC_RT_E_NULL;
	if (session->lead.ranks)
		return TFMC_RT_E_RANKS;
	int status = tfmc_state_restore(session->model.record, &session->weights_in_use, session->state.data,
	                                tfmc_session_batch(session), sequence, data, n);
	if (status == TFMC_RT_OK)
		status = session->model.store(session->context, sequence);
	if (status == TFMC_RT_E_DEVICE) /* the sequence may be half written: empty it */
		(void)session->model.trim(session->context, sequence, 0);
	return status;
}

uint64_t session_context(const struct tfmc_session *session)
{
	return (uint64_t)session->context_tokens;
}

int64_t session_max_len(const struct tfmc_session *session)
{
	int64_t max = session->model.record->max_len;
	return max < session->context_tokens ? max : session->context_tokens;
}

uint64_t session_max_call_tokens(const struct tfmc_session *session, int64_t batch)
{
	if (session->call_tokens <= 0)
		return UINT64_MAX;
	return (uint64_t)max_call_tokens(session, batch);
}

/* A call in SPMD form: every worker enters the object. */
struct spmd_call {
	struct tfmc_session *session;
	uint64_t entry;
	const uint64_t *args;
	int32_t status; /* written by worker 0; the same for all workers */
};

static void spmd_worker(void *arg, int64_t worker, int64_t n_workers)
{
	struct spmd_call *c = arg;
	(void)n_workers;
	int32_t status = c->session->model.call(c->session->context, c->entry, c->args, worker);
	if (worker == 0)
		c->status = status;
}

/* Sets the number of workers that suits the size of the call: more than its work is worth only wait for each other.
 * Decode steps have a bound of their own. The context is told only when the number changes. */
static int choose_workers(struct tfmc_session *s, int64_t entry, const int64_t *dims)
{
	const struct tfmc_record_entry *e = tfmc_entry_at(s->model.record, entry);
	int64_t n = e->kind == TFMC_ENTRY_STEP ? s->decode_workers : s->workers;
	if (!s->all_workers)
		n = tfmc_entry_workers(s->model.record, entry, dims, n);
	if (n == s->current_workers)
		return TFMC_RT_OK;
	TRY(s->model.set_workers(s->context, context_workers(s, n)));
	s->current_workers = n;
	return TFMC_RT_OK;
}

/* Calls an entry with its argument slots: on one worker, with parallel_for, or in SPMD form. dims, by the record's
 * index, choose the number of workers. */
static int call_entry(struct tfmc_session *s, int64_t entry, const int64_t *dims, const uint64_t *args)
{
	if (s->pool)
		TRY(choose_workers(s, entry, dims));
	if (s->trace)
		return call_traced(s, entry, dims, args);
	if (!s->pool || s->current_workers == 1 || s->driver == TFMC_DRIVER_PARALLEL_FOR)
		return s->model.call(s->context, (uint64_t)entry, args, -1);
	struct spmd_call call = {.session = s, .entry = (uint64_t)entry, .args = args};
	tfmc_pool_run_some(s->pool, s->current_workers, spmd_worker, &call);
	return call.status;
}

/* Calls an entry on this rank with its argument slots: the dims of the entry, then pointer and number of elements of
 * each input and output. The creator of the call has checked the numbers of dims and tensors. */
static int call_with_buffers(struct tfmc_session *s, const struct session_call *c)
{
	const struct tfmc_record *r = s->model.record;
	const struct tfmc_record_entry *e = tfmc_entry_at(r, c->entry);
	const uint64_t *dim_indices = (const void *)((const char *)r + e->dims);
	uint64_t args[TFMC_DIMS_MAX + 2 * TFMC_TENSORS_MAX], n = 0;
	for (uint64_t i = 0; i < e->n_dims; i++)
		args[n++] = (uint64_t)c->dims[dim_indices[i]];
	for (uint64_t i = 0; i < e->n_inputs + e->n_outputs; i++) {
		const struct tfmc_buffer *b = i < e->n_inputs ? &c->inputs[i] : &c->outputs[i - e->n_inputs];
		args[n++] = (uint64_t)(uintptr_t)b->data;
		args[n++] = b->count;
	}
	return call_entry(s, c->entry, c->dims, args);
}

int session_run(struct tfmc_session *session, const struct session_call *calls, uint64_t n)
{
	TRY(lead_send_calls(&session->lead, session->model.record, calls, n));
	for (uint64_t i = 0; i < n; i++)
		TRY(call_with_buffers(session, &calls[i]));
	return TFMC_RT_OK;
}

uint64_t session_run_calls(const struct tfmc_session *session)
{
	return session->lead.ranks ? RUN_CALLS : 1;
}

/* Copies the arrays, to have unused dims 0 and the layout of session_run. `used` has indices of the record's dims,
 * whose number open_object has bounded. E_RECORD: more dims or tensors than this library has room for. */
int tfmc_session_call(struct tfmc_session *session, int64_t entry, const int64_t *dims,
                      const struct tfmc_buffer *inputs, const struct tfmc_buffer *outputs)
{
	const struct tfmc_record *r = tfmc_session_record(session);
	const struct tfmc_record_entry *e = tfmc_entry_at(r, entry);
	if (!session)
		return TFMC_RT_E_NULL;
	if (!e)
		return TFMC_RT_E_NAME;
	if ((e->n_dims && !dims) || (e->n_inputs && !inputs) || (e->n_outputs && !outputs))
		return TFMC_RT_E_NULL;
	if (e->n_dims > TFMC_DIMS_MAX || e->n_inputs + e->n_outputs > TFMC_TENSORS_MAX)
		return TFMC_RT_E_RECORD;
	struct session_call c = {.entry = entry};
	const uint64_t *used = (const void *)((const char *)r + e->dims);
	for (uint64_t i = 0; i < e->n_dims; i++) /* others may be unset */
		c.dims[used[i]] = dims[used[i]];
	for (uint64_t i = 0; i < e->n_inputs; i++)
		c.inputs[i] = inputs[i];
	for (uint64_t i = 0; i < e->n_outputs; i++)
		c.outputs[i] = outputs[i];
	return session_run(session, &c, 1);
}

/* ---- followers ---- */

/* Runs the calls of an act without outputs, since only rank 0 needs the logits. Ends at a call that fails, as
 * session_run of rank 0 does. Drops its status, which is that of all ranks: the caller of rank 0 decides what
 * follows. */
static int follow_calls(struct tfmc_session *s, const struct act *act)
{
	struct session_call call;
	uint64_t at = 0;
	int status = TFMC_RT_OK;
	for (int64_t i = 0; status == TFMC_RT_OK && i < act->a; i++) {
		TRY(lead_read_call(&s->lead, s->model.record, act, i, &at, &call));
		status = call_with_buffers(s, &call);
	}
	return TFMC_RT_OK;
}

/* The status of an act is dropped: rank 0 gets the same one, and its application decides how to go on. */
int tfmc_session_follow(struct tfmc_session *session)
{
	struct act act = {0};
	if (!session)
		return TFMC_RT_E_NULL;
	if (!session->lead.ranks || session->lead.ranks->rank == 0)
		return TFMC_RT_E_RANKS;
	while (act.kind != ACT_CLOSE) {
		TRY(lead_receive(&session->lead, &act));
		if (act.kind == ACT_CALLS)
			TRY(follow_calls(session, &act));
		else
			(void)do_act(session, &act, session->lead.payload); /* as that of a call */
	}
	return TFMC_RT_OK;
}
