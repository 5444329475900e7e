/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The test host's face: a program with its packed weights, and the frame of a
 * call: memory for its inputs and outputs before, results after it.
 */
#include "tests/opencl/run.h"

#include <stdlib.h>
#include <string.h>

#include "backends/backend.h"
#include "backends/plan/object.h"
#include "tests/opencl/run_internal.h"
#include "tests/support/planned.h"

#define CAP_DEFAULT 64
#define POISON      0xff /* NaN for every float type */

double opencl_tolerance(enum ir_dtype t, double base)
{
	double narrow = t == DT_F16 ? 2e-3 : t == DT_BF16 ? 1.6e-2 : 0;
	return base > narrow ? base : narrow;
}

/* ---- opening ---- */

static bool store_packed(void *user, uint64_t offset, const void *bytes, size_t n)
{
	struct opencl_host *h = user;
	for (size_t i = 0; i < n; i++) {
		uint64_t at = offset + i;
		if (at >= TFMC_WEIGHTS_DATA &&
		    at - TFMC_WEIGHTS_DATA < (uint64_t)h->program.object->weights.bytes)
			h->packed[at - TFMC_WEIGHTS_DATA] = ((const unsigned char *)bytes)[i];
	}
	return true;
}

static enum tfmc_status pack(struct opencl_host *h)
{
	struct backend_sink sink = {store_packed, h};
	h->packed = arena_calloc(&h->arena, (size_t)h->program.object->weights.bytes + 1, 1);
	if (!h->packed)
		return TFMC_NO_MEMORY;
	return planned_pack(h->cx, h->planned, NULL, &sink);
}

static enum tfmc_status compile(struct opencl_host *h)
{
	const struct buf *source = &h->program.source;
	h->tells_unknown = strstr(opencl_device_name(h->device), "Oclgrind") != NULL;
	if (opencl_device_build(h->device, source->data, source->len, "-cl-std=CL1.2"))
		return TFMC_OK;
	diag_error(h->cx, LOC_NONE, DIAG_INTERNAL, "%s", opencl_device_error(h->device));
	return TFMC_INVALID;
}

struct opencl_host *opencl_host_open(struct diag_context *cx, struct opencl_device *device,
                                     const struct ir_module *planned, const struct target *target)
{
	struct opencl_host *h = calloc(1, sizeof(*h));
	if (!h)
		return NULL;
	arena_init(&h->arena);
	h->cx = cx;
	h->device = device;
	h->planned = planned;
	enum tfmc_status status = opencl_build(cx, planned, target, NULL, &h->arena, &h->program);
	if (status == TFMC_OK)
		status = pack(h);
	if (status == TFMC_OK)
		status = compile(h);
	if (status == TFMC_OK)
		return h;
	opencl_host_close(h);
	return NULL;
}

void opencl_host_close(struct opencl_host *h)
{
	if (!h)
		return;
	opencl_program_destroy(&h->program);
	arena_destroy(&h->arena);
	free(h);
}

const char *opencl_host_source(const struct opencl_host *h)
{
	return h->program.source.data ? h->program.source.data : "";
}

/* ---- errors ---- */

enum tfmc_status run_fail(struct run *r, const struct plan_kernel *l, const char *fmt, ...)
{
	struct arena *a = r->call->arena;
	va_list ap;
	va_start(ap, fmt);
	const char *text = arena_vprintf(a, fmt, ap);
	va_end(ap);
	if (!l) {
		diag_error(r->host->cx, LOC_NONE, DIAG_INTERNAL, "%s: %s", r->call->function, text);
		return TFMC_INVALID;
	}
	diag_error(r->host->cx, l->groups[0]->loc.at, DIAG_INTERNAL, "%s: kernel '%s' of %s: %s",
	           r->call->function, l->name, l->groups[0]->loc.path ? l->groups[0]->loc.path : "its group",
	           text);
	return TFMC_INVALID;
}

enum tfmc_status run_device_failed(struct run *r, const struct plan_kernel *l)
{
	return run_fail(r, l, "%s", opencl_device_error(r->host->device));
}

/* ---- memory of a call ---- */

static bool is_tensor(const struct ir_func *f, struct ir_value v)
{
	return ir_type_of(f, v)->kind == IR_TENSOR;
}

static bool make_poisoned(struct arena *a, size_t n, struct region *out)
{
	*out = (struct region){.bytes = arena_alloc(a, n + 1), .known = arena_calloc(a, n + 1, 1), .n = n};
	if (!out->bytes || !out->known)
		return false;
	memset(out->bytes, POISON, n);
	return true;
}

static size_t tensor_bytes(const struct interp_tensor *t)
{
	return (size_t)interp_count(t) * (size_t)ir_dtype_bytes(t->dtype);
}

/* Absent fields become their defaults. */
static bool take_input(struct run *r, const struct ir_param *p, const struct interp_tensor *given,
                       struct interp_tensor *out)
{
	int64_t count = 0;
	*out = *given;
	if (given->data)
		return true;
	if (!interp_tensor_make(r->call->arena, ir_type_of(r->f->func, p->value), r->call->dims, out) ||
	    (p->default_value && !ir_dim_eval(p->default_value, r->call->dims, &count)))
		return false;
	for (int64_t i = 0; i < interp_count(out); i++)
		out->data[i] = p->default_value ? (double)count : p->fill;
	return true;
}

static enum tfmc_status place_inputs(struct run *r)
{
	const struct ir_func *f = r->f->func;
	for (size_t i = 0, next = 0; i < f->n_params; i++) {
		struct interp_tensor t;
		struct region *to = &r->inputs[i];
		if (!is_tensor(f, f->params[i].value))
			continue;
		if (!take_input(r, &f->params[i], &r->call->inputs[next++], &t) ||
		    !make_poisoned(r->call->arena, tensor_bytes(&t), to))
			return TFMC_NO_MEMORY;
		to->known = NULL;
		interp_to_bytes(&t, to->bytes);
	}
	return TFMC_OK;
}

static struct ir_value returned(const struct ir_func *f, size_t i)
{
	return f->body->ops[f->body->n_ops - 1]->operands[i];
}

static enum tfmc_status place_outputs(struct run *r)
{
	const struct ir_func *f = r->f->func;
	for (size_t i = 0, next = 0; i < f->n_results; i++) {
		if (!is_tensor(f, returned(f, i)))
			continue;
		struct interp_tensor *t = &r->call->outputs[next++];
		if (!interp_tensor_make(r->call->arena, ir_type_of(f, returned(f, i)), r->call->dims, t) ||
		    !make_poisoned(r->call->arena, tensor_bytes(t), &r->outputs[i]))
			return TFMC_NO_MEMORY;
	}
	return TFMC_OK;
}

static size_t scratch_bytes(const struct run *r)
{
	int64_t most = 0;
	for (size_t i = 0; i < r->f->n; i++) {
		const struct plan_kernel *l = r->f->items[i].kernel;
		int64_t n = l ? l->scratch * l->workers * run_groups(r, l) : 0;
		most = n > most ? n : most;
	}
	return (size_t)most;
}

static enum tfmc_status place_memory(struct run *r)
{
	struct arena *a = r->call->arena;
	struct opencl_host *h = r->host;
	int64_t arena_bytes;
	r->inputs = ARENA_ARRAY(a, struct region, r->f->func->n_params + 1);
	r->outputs = ARENA_ARRAY(a, struct region, r->f->func->n_results + 1);
	if (!r->inputs || !r->outputs || !ir_dim_eval(r->f->arena_bytes, r->call->dims, &arena_bytes) ||
	    !make_poisoned(a, (size_t)arena_bytes, &r->arena) ||
	    !make_poisoned(a, scratch_bytes(r), &r->scratch))
		return TFMC_NO_MEMORY;
	r->weights = (struct region){.bytes = h->packed, .n = (size_t)h->program.object->weights.bytes};
	TFMC_TRY(place_inputs(r));
	return place_outputs(r);
}

/* ---- results ---- */

static void take_outputs(struct run *r)
{
	const struct ir_func *f = r->f->func;
	for (size_t i = 0, next = 0; i < f->n_results; i++) {
		if (!is_tensor(f, returned(f, i)))
			continue;
		interp_from_bytes(&r->call->outputs[next++], r->outputs[i].bytes);
	}
}

/* ---- calls ---- */

static const struct plan *find_function(const struct opencl_program *p, const char *name)
{
	for (size_t i = 0; i < p->n_functions; i++)
		if (!strcmp(p->functions[i]->func->name, name))
			return p->functions[i];
	return NULL;
}

enum tfmc_status opencl_run_function(struct opencl_host *h, const struct opencl_call *call)
{
	struct run r = {.host = h, .call = call, .cap = call->cap > 0 ? call->cap : CAP_DEFAULT};
	r.f = find_function(&h->program, call->function);
	if (!r.f)
		return run_fail(&r, NULL, "the module has no such function");
	TFMC_TRY(place_memory(&r));
	TFMC_TRY(run_checked(&r));
	take_outputs(&r);
	return TFMC_OK;
}
