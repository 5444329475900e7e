/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The launches of a call. Every launch gets buffers of exactly the
 * bytes of its places, so that Oclgrind sees what lies outside, and gives its
 * results back at once, to be compared with the interpreter's values of the same
 * group. Places of one launch that overlap share a buffer.
 */
#include <string.h>

#include "tests/opencl/run_internal.h"
#include "tests/support/random/random_ir.h"

#define TOLERANCE 2e-4

/* ---- the interpreter's values ---- */

static void keep(void *user, const struct ir_func *f, const struct ir_op *op,
                 const struct interp_tensor *const *results)
{
	struct run *r = user;
	struct arena *a = r->call->arena;
	(void)f;
	if (op->code != OP_group)
		return;
	struct group_value *v = ARENA_PUSH(a, &r->expected);
	struct interp_tensor *copies = ARENA_ARRAY(a, struct interp_tensor, op->n_results + 1);
	if (!v || !copies)
		return; /* the arena says so */
	*v = (struct group_value){op, copies};
	for (size_t i = 0; i < op->n_results; i++)
		(void)interp_tensor_copy(a, results[i], &copies[i]);
}

static enum tfmc_status interpret(struct run *r)
{
	const struct opencl_call *c = r->call;
	struct interp_tensor *outputs =
	        ARENA_ARRAY(c->arena, struct interp_tensor, r->f->func->n_results + 1);
	struct interp_args args = {.dims = c->dims,
	                           .inputs = c->inputs,
	                           .outputs = outputs,
	                           .arena = c->arena,
	                           .trace = keep,
	                           .trace_user = r};
	if (!outputs)
		return TFMC_NO_MEMORY;
	TFMC_TRY(interp_run(r->host->cx, r->host->planned, r->f->func, &args));
	return arena_failed(c->arena) ? TFMC_NO_MEMORY : TFMC_OK;
}

/* ---- results of a launch ---- */

static bool is_result(const struct area *p)
{
	return p->is_written && (p->memory == AREA_ARENA || p->memory == AREA_OUTPUT);
}

/* The place of result i of a group: planned results by their offset, the caller's in their order. -1: nowhere. */
static int place_of_result(struct run *r, const struct plan_kernel *l, const struct ir_op *g, size_t i,
                           const bool *taken)
{
	const struct ir_dim_list *at = &((const struct attrs_group *)g->attrs)->at;
	const struct ir_type *t = ir_type_of(r->f->func, g->results[i]);
	int64_t c, bytes, count;
	if (t->kind != IR_TENSOR || i >= at->n || !ir_dim_eval(at->items[i], r->call->dims, &c))
		return -1;
	bool planned = !ir_dim_is_const(at->items[i], NULL) || c >= 0;
	for (size_t k = 0; k < l->areas.n; k++) {
		const struct area *p = &l->areas.items[k];
		if (taken[k] || !is_result(p) || !ir_dim_eval(p->bytes, r->call->dims, &bytes))
			continue;
		if (planned && p->memory == AREA_ARENA && p->offset == at->items[i])
			return (int)k;
		count = bytes / ir_dtype_bytes(t->dtype);
		int64_t want = 1, dim;
		for (int axis = 0; axis < t->rank; axis++)
			want *= ir_dim_eval(t->dims[axis], r->call->dims, &dim) ? dim : 0;
		if (!planned && count == want)
			return (int)k;
	}
	return -1;
}

static enum tfmc_status compare_result(struct run *r, const struct plan_kernel *l, size_t i,
                                       const struct interp_tensor *want, const struct piece *piece)
{
	struct arena *a = r->call->arena;
	struct arena_mark mark = arena_mark(a);
	struct interp_tensor have = *want;
	double base = r->call->tolerance > 0 ? r->call->tolerance : TOLERANCE;
	if (!interp_tensor_alloc(a, &have))
		return TFMC_NO_MEMORY;
	interp_from_bytes(&have, piece->region->bytes + piece->begin);
	const char *why = random_compare(a, &have, want, opencl_tolerance(want->dtype, base));
	enum tfmc_status status = TFMC_OK;
	if (why)
		status = run_fail(r, l, "result %zu: %s", i, why);
	arena_release(a, mark);
	return status;
}

/* The last group first: it may have written over what an earlier one left to it. */
static enum tfmc_status compare(struct run *r, const struct plan_kernel *l, const struct piece *pieces)
{
	bool taken[PLACES_MAX] = {0};
	for (size_t n = l->n_groups; n-- > 0;) {
		const struct ir_op *g = l->groups[n];
		if (r->next + n >= r->expected.n || r->expected.items[r->next + n].group != g)
			return run_fail(r, l, "the interpreter ran another group at this point");
		const struct group_value *v = &r->expected.items[r->next + n];
		for (size_t i = 0; i < g->n_results; i++) {
			int k = place_of_result(r, l, g, i, taken);
			if (k < 0 && n + 1 < l->n_groups)
				continue;
			if (k < 0)
				return run_fail(r, l, "nothing says where result %zu lies", i);
			taken[k] = true;
			TFMC_TRY(compare_result(r, l, i, &v->results[i], &pieces[k]));
		}
	}
	r->next += l->n_groups;
	return TFMC_OK;
}

/* ---- buffers of a launch ---- */

/* Places that overlap, as one buffer. */
struct clusters {
	struct piece pieces[PLACES_MAX];                /* of the places */
	size_t of[PLACES_MAX];                          /* cluster of a place: the first place in it */
	struct piece whole[PLACES_MAX];                 /* of the cluster, at its first place */
	struct opencl_device_buffer buffer[PLACES_MAX]; /* the same */
	bool is_written[PLACES_MAX];                    /* the same */
};

static bool overlap(const struct piece *a, const struct piece *b)
{
	return a->region == b->region && a->begin < b->end && b->begin < a->end;
}

static void join(struct clusters *c, size_t n, size_t into, size_t from)
{
	struct piece *w = &c->whole[into], *x = &c->whole[from];
	w->begin = x->begin < w->begin ? x->begin : w->begin;
	w->end = x->end > w->end ? x->end : w->end;
	c->is_written[into] = c->is_written[into] || c->is_written[from];
	for (size_t i = 0; i < n; i++)
		if (c->of[i] == from)
			c->of[i] = into;
}

/* Joins two clusters that overlap; false when there are none. */
static bool join_some(struct clusters *c, size_t n)
{
	for (size_t a = 0; a < n; a++)
		for (size_t b = a + 1; b < n; b++)
			if (c->of[a] != c->of[b] && overlap(&c->whole[c->of[a]], &c->whole[c->of[b]])) {
				join(c, n, c->of[a], c->of[b]);
				return true;
			}
	return false;
}

static bool make_clusters(struct run *r, const struct plan_kernel *l, struct clusters *c)
{
	for (size_t i = 0; i < l->areas.n; i++) {
		if (!run_piece(r, l, &l->areas.items[i], &c->pieces[i]))
			return false;
		c->of[i] = i;
		c->whole[i] = c->pieces[i];
		c->is_written[i] = l->areas.items[i].is_written;
		c->buffer[i] = (struct opencl_device_buffer){0};
	}
	while (join_some(c, l->areas.n))
		;
	return true;
}

/* Where reads of unwritten memory are reported, such bytes are not written to the device either. */
static void fill(struct run *r, const struct piece *p, const struct opencl_device_buffer *b)
{
	const struct region *g = p->region;
	struct opencl_device *d = r->host->device;
	if (!r->host->tells_unknown || !g->known) {
		(void)opencl_device_write(d, b, 0, g->bytes + p->begin, p->end - p->begin);
		return;
	}
	for (size_t i = p->begin, to; i < p->end; i = to) {
		for (to = i; to < p->end && g->known[to] == g->known[i]; to++)
			;
		if (g->known[i])
			(void)opencl_device_write(d, b, i - p->begin, g->bytes + i, to - i);
	}
}

static void make_buffers(struct run *r, const struct plan_kernel *l, struct clusters *c)
{
	for (size_t i = 0; i < l->areas.n; i++) {
		if (c->of[i] != i)
			continue;
		c->buffer[i] =
		        opencl_device_alloc(r->host->device, c->whole[i].end - c->whole[i].begin, NULL);
		fill(r, &c->whole[i], &c->buffer[i]);
	}
}

/* Checks the buffers that a launch wrote. */
static bool take_written(struct run *r, const struct plan_kernel *l, const struct clusters *c)
{
	for (size_t i = 0; i < l->areas.n; i++) {
		const struct piece *p = &c->pieces[i];
		if (!l->areas.items[i].is_written)
			continue;
		size_t at = p->begin - c->whole[c->of[i]].begin;
		if (!opencl_device_read(r->host->device, &c->buffer[c->of[i]], at,
		                        p->region->bytes + p->begin, p->end - p->begin))
			return false;
		if (p->region->known && l->areas.items[i].memory != AREA_SCRATCH)
			memset(p->region->known + p->begin, 1, p->end - p->begin);
	}
	return true;
}

/* Buffers that a launch only reads are unchanged; scratch has no owner. */
static enum tfmc_status check_unchanged(struct run *r, const struct plan_kernel *l, const struct clusters *c)
{
	struct arena *a = r->call->arena;
	for (size_t i = 0; i < l->areas.n; i++) {
		const struct piece *w = &c->whole[i];
		if (c->of[i] != i || c->is_written[i] || (w->region->known && r->host->tells_unknown))
			continue;
		struct arena_mark mark = arena_mark(a);
		unsigned char *bytes = arena_alloc(a, w->end - w->begin + 1);
		if (!bytes)
			return TFMC_NO_MEMORY;
		if (!opencl_device_read(r->host->device, &c->buffer[i], 0, bytes, w->end - w->begin))
			return run_device_failed(r, l);
		bool same = !memcmp(bytes, w->region->bytes + w->begin, w->end - w->begin);
		arena_release(a, mark);
		if (!same)
			return run_fail(r, l, "writes '%s', which it may only read", l->areas.items[i].name);
	}
	return TFMC_OK;
}

/* ---- launches ---- */

static enum tfmc_status launch_on(struct run *r, const struct plan_kernel *l, struct clusters *c)
{
	struct opencl_device_arg args[ARGS_MAX];
	const struct opencl_device_buffer *buffers[PLACES_MAX] = {0};
	size_t base[PLACES_MAX] = {0};
	for (size_t i = 0; i < l->areas.n; i++) {
		buffers[i] = &c->buffer[c->of[i]];
		base[i] = c->whole[c->of[i]].begin;
	}
	if (!run_args(r, l, c->pieces, base, buffers, args))
		return run_fail(r, l, "an argument is the turn of a repeat that is not open");
	if (!opencl_device_launch(r->host->device, l->name, args, l->n_args, run_groups(r, l), l->items) ||
	    !opencl_device_finish(r->host->device) || !take_written(r, l, c))
		return run_device_failed(r, l);
	return check_unchanged(r, l, c);
}

/* Another kernel joins what this one leaves: only then the results are there. */
static bool is_joined(const struct run *r, const struct plan_kernel *l)
{
	const struct plan *p = r->f;
	for (size_t i = 0; !l->is_combine && i < p->n; i++)
		if (p->items[i].kind == PLAN_DISPATCH && p->items[i].kernel->is_combine &&
		    p->items[i].kernel->number == l->number)
			return true;
	return false;
}

static enum tfmc_status launch_checked(struct run *r, const struct plan_kernel *l)
{
	struct clusters *c = ARENA_NEW(r->call->arena, struct clusters);
	if (!c)
		return TFMC_NO_MEMORY;
	if (!make_clusters(r, l, c))
		return TFMC_INVALID;
	make_buffers(r, l, c);
	enum tfmc_status status = launch_on(r, l, c);
	/* Oclgrind 21.10 gives released memory out again with what it knew about the one before. */
	for (size_t i = 0; i < l->areas.n && !r->host->tells_unknown; i++)
		opencl_device_free(r->host->device, &c->buffer[i]);
	return status == TFMC_OK && !is_joined(r, l) ? compare(r, l, c->pieces) : status;
}

enum tfmc_status run_checked(struct run *r)
{
	TFMC_TRY(interpret(r));
	return run_steps(r, launch_checked);
}
