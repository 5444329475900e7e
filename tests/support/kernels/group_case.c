/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs one group in three ways, see group_case.h. The kernel is called with one
 * array of words: parameters, result, scratch, then the values of the dims.
 */
#include "tests/support/kernels/group_case.h"

#include <check.h>
#include <math.h>
#include <string.h>

#include "tests/kb_interp/interp.h"
#include "backends/object/llvm.h"
#include "ir/interp/interp.h"
#include "ir/core/view.h"
#include "tests/support/effort.h"
#include "tests/support/bounds/bound.h"
#include "tests/support/kernels/padded.h"
#include "tests/support/random/rng.h"

enum { WORD_OUT = GROUP_CASE_PARAMS, WORD_SCRATCH, WORD_DIMS, N_WORDS = WORD_DIMS + GROUP_CASE_DIMS };

typedef void kernel_function(void *const *words, int64_t worker, int64_t n_workers);

/* ---- binding ---- */

struct binding {
	const struct group_case *c;
	struct kb_val words;
	struct kb_val dims[GROUP_CASE_DIMS];
};

static struct kb_val word(const struct binding *b, struct kb *k, struct kb_type type, int at)
{
	return kb_load(k, type, b->words, kb_index(k, at), 0, 0);
}

static struct kb_size bind_dim(void *user, struct kb *k, const struct ir_dim *d)
{
	const struct binding *b = user;
	struct kb_size s = {.v = kb_index(k, 0)};
	s.is_const = ir_dim_is_const(d, &s.c);
	for (size_t i = 0; i < d->n_terms; i++) {
		struct kb_val product = kb_index(k, d->terms[i].coeff);
		for (size_t a = 0; a < d->terms[i].n_atoms; a++) {
			ck_assert_int_ge(d->terms[i].atoms[a]->sym, 0);
			product = kb_mul(k, product, b->dims[d->terms[i].atoms[a]->sym]);
		}
		s.v = kb_add(k, s.v, product);
	}
	return s;
}

static int word_of(const struct group_case *c, struct ir_value base)
{
	for (size_t i = 0; i < c->f->n_params; i++)
		if (ir_same_value(c->f->params[i].value, base))
			return (int)i;
	return ir_same_value(c->group->results[0], base) ? WORD_OUT : -1;
}

static bool bind_tensor(void *user, struct kb *k, struct ir_value v, struct kb_tensor *out)
{
	const struct binding *b = user;
	struct ir_view view;
	if (!ir_view_resolve(b->c->tir.m, b->c->f, v, &view) || word_of(b->c, view.base) < 0)
		return false;
	*out = (struct kb_tensor){.dtype = ir_type_of(b->c->f, v)->dtype, .rank = view.rank};
	struct kb_val skip = bind_dim(user, k, view.offset).v;
	skip = kb_mul_const(k, skip, ir_dtype_bytes(out->dtype));
	out->ptr = kb_ptr_add(k, word(b, k, KB_PTR_T, word_of(b->c, view.base)), skip, 0);
	for (int i = 0; i < view.rank; i++) {
		out->size[i] = bind_dim(user, k, view.size[i]);
		out->stride[i] = bind_dim(user, k, view.stride[i]);
	}
	return true;
}

static struct kb_val bind_index(void *user, struct kb *k, struct ir_value v)
{
	(void)user;
	(void)k;
	(void)v;
	return (struct kb_val){0};
}

/* ---- kernel ---- */

static int64_t scratch_bytes(const struct group_case *c)
{
	return ((const struct attrs_group *)c->group->attrs)->scratch;
}

static void emit_kernel(struct group_case *c, const struct target *target, group_case_template *emit)
{
	c->caps = kb_caps_of(target);
	c->kernels = kb_module_create(&c->arena, &c->caps);
	struct kb *k = kb_begin(c->kernels, "kernel", c->items > 1 ? KB_KERNEL : KB_EXPORTED, KB_VOID);
	struct binding b = {.c = c, .words = kb_param(k, "words", KB_PTR_T, 0)};
	const struct kernel_binding bind = {
	        .tensor = bind_tensor, .dim = bind_dim, .index = bind_index, .user = &b};
	struct kernel_job job = {.k = k,
	                         .module = c->tir.m,
	                         .func = c->f,
	                         .group = c->group,
	                         .target = target,
	                         .bind = &bind,
	                         .items = c->items,
	                         .lengths = padded_lengths(c->f),
	                         .cx = &c->tir.cx,
	                         .arena = &c->arena};
	if (c->items > 1) {
		kb_group_size(k, c->items);
		job.worker = kb_group_id(k);
		job.n_workers = kb_group_count(k);
	} else {
		job.worker = kb_param(k, "worker", KB_INDEX_T, 0);
		job.n_workers = kb_param(k, "n_workers", KB_INDEX_T, 0);
	}
	for (int i = 0; i < GROUP_CASE_DIMS; i++)
		b.dims[i] = word(&b, k, KB_INDEX_T, WORD_DIMS + i);
	job.scratch = word(&b, k, KB_PTR_T, WORD_SCRATCH);
	if (c->items > 1) {
		struct kb_val bytes = kb_index(k, scratch_bytes(c));
		job.scratch = kb_ptr_add(k, job.scratch, kb_mul(k, job.worker, bytes), 0);
	}
	ck_assert_msg(emit(&job) == TFMC_OK, "not emitted:\n%s", c->tir.log.data);
	kb_return(k, (struct kb_val){0});
	kb_end(k);
	ck_assert_msg(kb_verify(c->kernels, &c->tir.cx) == TFMC_OK, "%s", c->tir.log.data);
}

static void compile_kernel(struct group_case *c, const struct target *target)
{
	struct llvm_options options = {.target = target, .opt_level = effort_of_code()};
	struct buf object;
	buf_init(&object);
	struct llvm_output out = {.object = &object};
	enum tfmc_status compiled = llvm_compile(&c->tir.cx, c->kernels, "m", &options, &out);
	ck_assert_msg(compiled == TFMC_OK, "%s", c->tir.log.data);
	ck_assert_msg(backend_jit_load(&c->tir.cx, &object, &c->jit) == TFMC_OK, "%s", c->tir.log.data);
	buf_destroy(&object);
}

void group_case_init(struct group_case *c, const char *text, const char *target_name,
                     group_case_template *emit)
{
	group_case_init_shared(c, text, target_name, emit, 1);
}

void group_case_init_shared(struct group_case *c, const char *text, const char *target_name,
                            group_case_template *emit, int64_t items)
{
	const struct target *target = target_find(target_name);
	ck_assert_ptr_nonnull(target);
	*c = (struct group_case){.items = items};
	arena_init(&c->arena);
	tir_init(&c->tir);
	tir_load(&c->tir, text);
	c->f = ir_find_func(c->tir.m, "f");
	ck_assert_ptr_nonnull(c->f);
	ck_assert_uint_le(c->f->n_params, GROUP_CASE_PARAMS);
	for (size_t i = 0; i < c->f->body->n_ops; i++)
		if (c->f->body->ops[i]->code == OP_group)
			c->group = c->f->body->ops[i];
	ck_assert_ptr_nonnull(c->group);
	emit_kernel(c, target, emit);
	if (target_runs_on_host(target))
		compile_kernel(c, target);
}

void group_case_destroy(struct group_case *c)
{
	backend_jit_destroy(c->jit);
	tir_destroy(&c->tir);
	arena_destroy(&c->arena);
}

/* ---- calls ---- */

static void *memory(struct group_case *c, int64_t bytes)
{
	char *p = arena_alloc(&c->arena, (size_t)bytes + 64);
	ck_assert_ptr_nonnull(p);
	return p + (-(uintptr_t)p & 63);
}

/* Random bytes of a tensor of the type. */
static void *fill(struct group_case *c, struct rng *rng, const struct ir_type *type, const int64_t *dims,
                  int64_t *count)
{
	struct interp_tensor t;
	ck_assert(interp_tensor_make(&c->arena, type, dims, &t));
	*count = interp_count(&t);
	for (int64_t i = 0; i < *count; i++)
		t.data[i] = ir_dtype_class(type->dtype) == DTCLASS_FLOAT ? rng_real(rng, -2, 2) : 0;
	void *bytes = memory(c, *count * ir_dtype_bytes(type->dtype));
	interp_to_bytes(&t, bytes);
	return bytes;
}

void group_call_init(struct group_case *c, struct group_call *call, const int64_t *dims)
{
	struct rng rng = rng_seed(17);
	*call = (struct group_call){.out = NULL};
	ck_assert_uint_le(ir_dims_count(c->tir.m->dims), GROUP_CASE_DIMS);
	memcpy(call->dims, dims, ir_dims_count(c->tir.m->dims) * sizeof *dims);
	for (size_t i = 0; i < c->f->n_params; i++)
		call->in[i] =
		        fill(c, &rng, ir_type_of(c->f, c->f->params[i].value), call->dims, &call->n_in[i]);
	call->out = fill(c, &rng, ir_type_of(c->f, c->group->results[0]), call->dims, &call->n_out);
}

static int64_t bytes_of(const struct group_case *c, size_t param, const struct group_call *call)
{
	enum ir_dtype t = ir_type_of(c->f, c->f->params[param].value)->dtype;
	return call->n_in[param] * ir_dtype_bytes(t);
}

static int64_t out_bytes(const struct group_case *c, const struct group_call *call)
{
	return call->n_out * ir_dtype_bytes(ir_type_of(c->f, c->group->results[0])->dtype);
}

/* The words of a call; results and scratch hold NaN, as memory may. */
static void **words_of(struct group_case *c, struct group_call *call, int64_t workers)
{
	int64_t scratch = scratch_bytes(c) * workers;
	void **words = ARENA_ARRAY(&c->arena, void *, N_WORDS);
	ck_assert_ptr_nonnull(words);
	memcpy(words, call->in, sizeof call->in);
	words[WORD_OUT] = call->out;
	words[WORD_SCRATCH] = memory(c, scratch);
	memcpy(words + WORD_DIMS, call->dims, sizeof call->dims);
	memset(words[WORD_SCRATCH], 0xff, (size_t)scratch);
	memset(call->out, 0xff, (size_t)out_bytes(c, call));
	return words;
}

void group_case_run(struct group_case *c, struct group_call *call, int64_t n_workers)
{
	if (!c->jit) {
		group_case_run_checked(c, call, n_workers);
		return;
	}
	void **words = words_of(c, call, 1), *at = backend_jit_symbol(c->jit, "kernel");
	kernel_function *kernel;
	memcpy(&kernel, &at, sizeof at);
	for (int64_t w = 0; w < n_workers; w++)
		kernel(words, w, n_workers);
}

/* The memory that a call may touch; gives the number of ranges. */
static size_t ranges_of(struct group_case *c, struct group_call *call, void **words, int64_t workers,
                        struct kb_range ranges[3 + GROUP_CASE_PARAMS])
{
	int64_t scratch = scratch_bytes(c) * workers;
	ranges[0] = (struct kb_range){words, N_WORDS * sizeof(void *), false};
	ranges[1] = (struct kb_range){call->out, (size_t)out_bytes(c, call), true};
	ranges[2] = (struct kb_range){words[WORD_SCRATCH], (size_t)scratch, true};
	for (size_t i = 0; i < c->f->n_params; i++)
		ranges[3 + i] = (struct kb_range){call->in[i], (size_t)bytes_of(c, i, call), false};
	return 3 + c->f->n_params;
}

/* NULL, or the complaint of the kernel interpreter. */
static const char *interpret(struct group_case *c, struct group_call *call, int64_t n_workers)
{
	void **words = words_of(c, call, 1);
	struct kb_range ranges[3 + GROUP_CASE_PARAMS];
	struct kb_interp in = {.module = c->kernels, .ranges = ranges};
	in.n_ranges = ranges_of(c, call, words, 1, ranges);
	for (int64_t w = 0; w < n_workers; w++) {
		const union kb_cell args[] = {{.p = words}, {.i = w}, {.i = n_workers}};
		if (!kb_interp_call(&in, "kernel", args, 3, NULL))
			return arena_strdup(&c->arena, in.error);
	}
	return NULL;
}

void group_case_run_checked(struct group_case *c, struct group_call *call, int64_t n_workers)
{
	const char *why = interpret(c, call, n_workers);
	ck_assert_msg(why == NULL, "%s", why);
}

void group_case_launch(struct group_case *c, struct group_call *call, int64_t groups)
{
	void **words = words_of(c, call, groups);
	struct kb_range ranges[3 + GROUP_CASE_PARAMS];
	struct kb_interp in = {.module = c->kernels, .ranges = ranges};
	const union kb_cell args[] = {{.p = words}};
	in.n_ranges = ranges_of(c, call, words, groups, ranges);
	ck_assert_msg(kb_interp_launch(&in, "kernel", args, 1, groups), "%s", in.error);
}

/* ---- reference ---- */

static const char *difference(struct group_case *c, const struct group_call *call)
{
	struct interp_tensor in[GROUP_CASE_PARAMS];
	struct arena a;
	arena_init(&a);
	for (size_t i = 0; i < c->f->n_params; i++) {
		const struct ir_type *type = ir_type_of(c->f, c->f->params[i].value);
		ck_assert(interp_tensor_make(&a, type, call->dims, &in[i]));
		interp_from_bytes(&in[i], call->in[i]);
	}
	const struct interp_args args = {.dims = call->dims, .inputs = in};
	const char *why = bound_complaint(&c->tir.cx, c->tir.m, c->f, &args, call->out, &a);
	if (why != NULL)
		why = arena_printf(&c->arena, "%s%s", why, c->tir.log.data);
	arena_destroy(&a);
	return why;
}

void group_case_expect(struct group_case *c, const struct group_call *call)
{
	const char *why = difference(c, call);
	ck_assert_msg(why == NULL, "%s", why);
}

const char *group_case_complaint(struct group_case *c, struct group_call *call, int64_t n_workers)
{
	const char *why = interpret(c, call, n_workers);
	return why != NULL ? why : difference(c, call);
}
