/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A loaded model becomes functions in this process (run, generate, score, attend, verify, bench). Packed weights are
 * in mappings of their own (packed.h), never in the object.
 */
#include "frontend/driver/compile/code_cache.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/opencl/model.h"
#include "runtime/opencl/tfmc_cl.h"

#define DEVICE_WORD        "opencl"
#define DEVICE_WORD_LENGTH (sizeof(DEVICE_WORD) - 1)

/* ---- devices ---- */

/* --device without "opencl:": a number or a part of a name; NULL: the best device. */
static const char *device_selector(const struct driver *d)
{
	const char *text = d->options.device;
	return text && text[DEVICE_WORD_LENGTH] ? text + DEVICE_WORD_LENGTH + 1 : NULL;
}

static const struct target *target_family(const struct tfmc_cl_device *device)
{
	bool is_cpu = device->type == TFMC_CL_CPU;
	return target_find(!is_cpu                      ? "opencl-gpu"
	                   : device->vector_width >= 16 ? "opencl-cpu512"
	                                                : "opencl-cpu");
}

enum tfmc_status driver_device_error(struct driver *d, const char *why)
{
	diag_environment_error(&d->diag, LOC_NONE, DIAG_TARGET, "--device=%s: %s", d->options.device, why);
	return TFMC_IO;
}

/* The caller closes *cl, also on failure. */
static enum tfmc_status find_device(struct driver *d, struct tfmc_cl **cl, size_t *number)
{
	struct tfmc_cl_error error;
	int status = tfmc_cl_open(driver_opencl_library(), cl, &error);
	if (status == TFMC_CL_OK)
		status = tfmc_cl_choose(*cl, 0, device_selector(d), number, &error);
	return status == TFMC_CL_OK ? TFMC_OK : driver_device_error(d, error.text);
}

/* Checks --device; without --target the target becomes the family of the device. */
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
	if (st == TFMC_OK && !d->options.target)
		d->options.target = target_family(tfmc_cl_device(cl, number))->name;
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
	                            .message_bytes = sizeof(c->device_message)};
}

const char *driver_opencl_library(void)
{
	const char *given = getenv("TFMC_OPENCL");
	return given && *given ? given : NULL;
}

static bool runs_here(const struct driver *d, const struct target *t)
{
	return t->arch == ARCH_OPENCL ? d->options.device != NULL : target_runs_on_host(t);
}

/* ---- code ---- */

/* The most demanding variant that this machine runs; NULL after a diagnostic. */
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

/* Commands that read the plan, too: with cached code it is made again, in about a hundredth of the time of code
 * generation. */
static bool needs_plan(const struct driver *d)
{
	return d->options.command == COMMAND_BENCH || d->options.poison;
}

static enum tfmc_status plan(struct driver *d, const struct code_request *q, struct compiled *out)
{
	TFMC_TRY(driver_plan_variants(d, q->loaded->module, q->pipeline, &out->variants));
	out->planned = find_runnable_variant(d, &out->variants)->planned;
	return driver_check_planned(d, out->planned);
}

static enum tfmc_status compile_and_pack(struct driver *d, const struct code_request *q, struct compiled *out)
{
	struct backend_sink sink = {packed_write, &out->weights};
	struct cached_weights before;
	struct backend_options o = {
	        .weights = BACKEND_WEIGHTS_FILE, .facts = q->facts, .weights_sink = &sink};
	o.opt_level = q->opt_level;
	o.progress = &d->progress;
	o.weights_limit = d->limits.weights;
	o.code_limit = d->limits.code;
	o.entries = q->entries.items;
	o.n_entries = q->entries.n;
	TFMC_TRY(plan(d, q, out));
	code_cache_find_packed(d, out->variants.items[0].planned, &before);
	o.packed = before.map.base ? &before.packed : NULL;
	o.packed_stays = true;
	enum tfmc_status st = driver_generate_code(d, &out->variants, q->loaded, &o, &out->object);
	driver_end_stage(d, "code generation");
	if (st == TFMC_OK && out->object.packed_taken) {
		out->weights.map = before.map;
		return TFMC_OK;
	}
	tfmc_weights_unmap(&before.map);
	return st == TFMC_OK ? packed_map(&out->weights) : st;
}

static enum tfmc_status link_object(struct driver *d, const char *name, struct compiled *out)
{
	static const struct backend_function functions[] = {
	        {"tfmc_cl_model_open", (uintptr_t)tfmc_cl_model_open},
	        {"tfmc_cl_model_close", (uintptr_t)tfmc_cl_model_close},
	        {"tfmc_cl_model_call", (uintptr_t)tfmc_cl_model_call},
	        {"tfmc_cl_model_copy", (uintptr_t)tfmc_cl_model_copy},
	        {"tfmc_cl_model_permute", (uintptr_t)tfmc_cl_model_permute},
	        {"tfmc_cl_model_fetch", (uintptr_t)tfmc_cl_model_fetch},
	        {"tfmc_cl_model_store", (uintptr_t)tfmc_cl_model_store}};
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

/* -v. verb: "come from" or "are stored in"; NULL: the cache is not used. */
static void report_cache(struct driver *d, const char *verb)
{
	if (!d->options.verbose)
		return;
	if (verb)
		buf_printf(&d->log, "code and packed weights %s the cache %s\n", verb, d->cache.dir);
	else
		buf_printf(&d->log, "the cache is not used: %s\n",
		           d->cache.why ? d->cache.why : "the limit or the disk leaves no room");
	driver_flush_log(d);
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
	else if (needs_plan(d))
		TFMC_TRY(plan(d, q, out));
	TFMC_TRY(link_object(d, q->loaded->module->name, out));
	backend_llvm_release(); /* LLVM is not needed any more: frees its pages */
	if (!verb && name && warnings_before == d->diag.n_warnings && code_cache_store(d, name, out))
		verb = "are stored in";
	report_cache(d, verb);
	return TFMC_OK;
}

enum tfmc_status driver_compile_jit(struct driver *d, struct loaded *l, struct entry_names entries,
                                    struct compiled *out)
{
	struct backend_facts facts = {.pad = -1};
	struct code_request q = {l, &out->variants, entries, driver_pipeline(d), &facts, 2};
	if (d->options.opt0 || !strcmp(q.pipeline, "O0"))
		q.opt_level = 0;
	backend_output_init(&out->object);
	out->weights = (struct packed){.cx = &d->diag, .cache = &d->cache, .file.fd = -1, .arena = &d->arena};
	out->weights.read = driver_weight_files(l);
	TFMC_TRY(choose_device_target(d));
	TFMC_TRY(driver_find_variants(d, &out->variants));
	if (!find_runnable_variant(d, &out->variants))
		return TFMC_IO;
	if (l->model)
		TFMC_TRY(driver_collect_facts(d, l->model, &facts));
	return compile_or_load(d, &q, out);
}

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

void compiled_destroy(struct compiled *c)
{
	tfmc_session_close(c->session);
	backend_jit_destroy(c->jit);
	if (c->variants.n > 0) {
		backend_output_destroy(&c->object);
		packed_close(&c->weights);
	}
	variant_set_destroy(&c->variants);
	*c = (struct compiled){0};
}
