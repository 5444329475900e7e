/* SPDX-License-Identifier: Apache-2.0 */
/*
 * specialize: adds copies of functions with bound or bounded dims (function multiversioning), so that the kernels
 * of a decode step are compiled for one row.
 *
 * Requires   the final graph and final weights: base and copies share all decisions made before.
 * Ensures    each function is followed by its cases. step=1: a case for calls with one token for each sequence
 *            (the dim of the rows that are appended to the state is 1). buckets=N: a case for calls with at most N
 *            tokens (the element count of the first input of ids). A bound symbol does not occur in the case; a
 *            transpose that only moves axes of size 1 becomes a reshape, select_rows of one row a reshape, constant
 *            dims become constants. The base functions are unchanged: they are right for every call.
 * Example    func @decode(%t: i32[B,S] ..
 *        ->  and func @decode.step(%t: i32[B,1] .. case of @decode when S = 1
 * Skips      functions that have cases; a dim that is never or always 1; OpenCL targets, whose programs are
 *            launched function by function.
 * Benefit    13 % of D2 on Sapphire Rapids, nothing measurable on Zen 5; costs a fifth more code
 *            (tests/perf/passes.md).
 */
#include "ir/core/case.h"
#include "passes/framework/rebuild.h"

#define CONDITIONS_MAX 2

/* ---- simplification ---- */

/* The transpose keeps the order of all axes whose size is not 1, so the elements stay where they are. */
static bool is_reshape_like(const struct ir_type *t, const struct attrs_transpose *a)
{
	int64_t last = -1;
	for (size_t i = 0; i < a->perm.n; i++) {
		int64_t axis = a->perm.items[i];
		if (ir_dim_equals(t->dims[axis], 1))
			continue;
		if (axis < last)
			return false;
		last = axis;
	}
	return true;
}

/* op computes nothing now that its dims are bound: it becomes a reshape or a constant. select_rows and iota of size
 * 1 have one row; dim_value and iota become constants. */
static bool can_simplify(const struct rebuild *r, const struct ir_op *op)
{
	if (op->code == OP_transpose)
		return is_reshape_like(ir_type_of(r->f, op->operands[0]), op->attrs);
	if (op->code == OP_select_rows)
		return ir_dim_equals(ir_type_of(r->f, op->operands[0])->dims[1], 1);
	if (op->code == OP_iota) {
		const struct attrs_iota *a = op->attrs;
		return ir_dim_equals(a->dims.items[a->axis], 1);
	}
	if (op->code == OP_dim_value)
		return ir_dim_is_const(((const struct attrs_dim_value *)op->attrs)->dim, NULL);
	return false;
}

static bool match(struct rebuild *r, const struct ir_op *op)
{
	if (r->f->when == NULL || !can_simplify(r, op))
		return false;
	if (op->code == OP_transpose || op->code == OP_select_rows)
		rebuild_need(r, op->operands[0]);
	return true;
}

static int64_t constant_of(const struct ir_op *op)
{
	int64_t v = 0;
	if (op->code == OP_iota)
		return ((const struct attrs_iota *)op->attrs)->start;
	(void)ir_dim_is_const(((const struct attrs_dim_value *)op->attrs)->dim, &v);
	return v;
}

/* Replaces op by a reshape of its operand, or by a constant. */
static void emit(struct rebuild *r, const struct ir_op *op)
{
	const struct ir_type *t = ir_type_of(r->f, op->results[0]);
	const struct ir_dim *dims[IR_RANK_MAX];
	for (int i = 0; i < t->rank; i++)
		dims[i] = ir_import_dim(r->out, t->dims[i]);
	bool moves = op->code == OP_transpose || op->code == OP_select_rows;
	struct ir_value v = moves ? irb_reshape_to(r->b, rebuild_get(r, op->operands[0]), t->rank, dims)
	                          : irb_full_of(r->b, (double)constant_of(op), DT_I32, t->rank, dims);
	rebuild_set(r, op->results[0], v);
}

/* ---- cases ---- */

struct specializer {
	struct pass_context *p;
	const struct ir_module *in;
	struct ir_module *specialized; /* functions and cases before simplification */
	const struct ir_func *f;
};

/* Copies s->f into s->specialized under `name`; as a case if c is not NULL. */
static enum tfmc_status copy_function(struct specializer *s, const char *name, const struct ir_case *c)
{
	const struct ir_func *f = s->f;
	struct ir_value *map = ARENA_ARRAY(s->p->arena, struct ir_value, f->n_values);
	struct ir_builder *b = irb_begin(s->specialized, s->p->cx, name, f->loc);
	if (map == NULL || b == NULL)
		return TFMC_NO_MEMORY;
	if (c != NULL)
		irb_case(b, c);
	irb_clone_params(b, f, map);
	struct ir_copy copy = {.b = b, .from = f, .map = map};
	ir_copy_region(&copy, f->body);
	return ir_copy_finish(&copy, NULL);
}

/*
 * Adds the case NAME.suffix of s->f for calls that satisfy n conditions, unless the name is taken or fuel is
 * spent.
 */
static enum tfmc_status add_case(struct specializer *s, const char *suffix,
                                 const struct ir_condition *conditions, size_t n)
{
	struct pass_context *p = s->p;
	const struct ir_case c = {s->f->name, conditions, n};
	const char *name = arena_printf(p->arena, "%s.%s", s->f->name, suffix);
	struct buf text;
	if (ir_find_func(s->in, name) != NULL) {
		pass_missed(p, s->f->loc, "not specialized: there is a function @%s", name);
		return TFMC_OK;
	}
	int64_t number = pass_consume_fuel(p);
	if (number == 0)
		return TFMC_OK;
	TFMC_TRY(copy_function(s, name, &c));
	pass_applied(p, number, arena_printf(p->arena, "case @%s", name), s->f->loc);
	buf_init(&text);
	ir_case_print(&text, s->in, &c);
	pass_remark(p, s->f->loc, "specialized: @%s is a %s", name, text.data);
	buf_destroy(&text);
	pass_count(p, "cases", 1);
	return TFMC_OK;
}

/* Number of tokens of a call: elements of the first input of ids. NULL: the function has none. */
static const struct ir_dim *token_count(const struct specializer *s)
{
	for (size_t i = 0; i < s->f->n_params; i++)
		if (s->f->params[i].below > 0)
			return ir_type_count(s->in->dims, ir_type_of(s->f, s->f->params[i].value));
	return NULL;
}

/* Some calls have a count of at most limit, and some do not. */
static bool splits_calls(const struct specializer *s, const struct ir_dim *count, int64_t limit)
{
	return ir_dim_lo(s->in->dims, count) <= limit && ir_dim_hi(s->in->dims, count) > limit;
}

/* Index of the dim symbol that the decode step binds to 1; -1 after a remark: none. */
static int step_symbol(struct specializer *s)
{
	int sym = ir_func_token_dim(s->f);
	if (s->p->step->settings[SETTING_specialize_step] == 0)
		return -1;
	if (sym < 0) {
		pass_missed(s->p, s->f->loc, "not specialized: @%s appends no rows whose number is a dim",
		            s->f->name);
		return -1;
	}
	const struct ir_dim_sym *d = ir_dims_sym(s->in->dims, (size_t)sym);
	if (d->lo <= 1 && d->hi > 1)
		return sym;
	pass_missed(s->p, s->f->loc, "not specialized: %s is in [%lld,%lld], %s 1", d->name, (long long)d->lo,
	            (long long)d->hi, d->lo > 1 || d->hi < 1 ? "never" : "always");
	return -1;
}

/* Adds cases of the open function: for the decode step with few sequences, for the step, and for few tokens. The
 * most specific is first, since a call is served by the first whose conditions hold. */
static enum tfmc_status add_cases(struct specializer *s)
{
	struct ir_dims *dims = s->in->dims;
	int64_t limit = s->p->step->settings[SETTING_specialize_buckets];
	const struct ir_dim *count = limit > 0 ? token_count(s) : NULL;
	int sym = step_symbol(s);
	struct ir_condition c[CONDITIONS_MAX] = {{.relation = IR_EQUAL, .value = 1}, {0}};
	if (sym >= 0) {
		c[0].dim = ir_dim_sym(dims, ir_dims_sym(dims, (size_t)sym)->name);
		const struct ir_dim *remaining =
		        count ? ir_dim_substitute(dims, count, sym, ir_dim_const(dims, 1)) : NULL;
		if (remaining != NULL && splits_calls(s, remaining, limit)) {
			c[1] = (struct ir_condition){remaining, IR_AT_MOST, limit};
			const char *name = arena_printf(s->p->arena, "step_%lld", (long long)limit);
			TFMC_TRY(add_case(s, name, c, 2));
		}
		TFMC_TRY(add_case(s, "step", c, 1));
	}
	if (count == NULL || !splits_calls(s, count, limit))
		return TFMC_OK;
	c[0] = (struct ir_condition){count, IR_AT_MOST, limit};
	return add_case(s, arena_printf(s->p->arena, "tokens_%lld", (long long)limit), c, 1);
}

static bool has_cases(const struct ir_module *m, const struct ir_func *f)
{
	for (size_t i = 0; i < m->funcs.n; i++)
		if (m->funcs.items[i]->when != NULL && ir_case_base(m, m->funcs.items[i]) == f)
			return true;
	return f->when != NULL;
}

/* Copies every function, and adds cases of those that have none. */
static enum tfmc_status specialize_functions(struct specializer *s)
{
	for (size_t i = 0; i < s->in->funcs.n; i++) {
		s->f = s->in->funcs.items[i];
		s->p->function = s->f->name;
		TFMC_TRY(copy_function(s, s->f->name, NULL));
		if (!has_cases(s->in, s->f))
			TFMC_TRY(add_cases(s));
		else if (s->f->when == NULL)
			pass_missed(s->p, s->f->loc, "not specialized: @%s has cases", s->f->name);
	}
	s->p->function = NULL;
	return TFMC_OK;
}

/* Simplifies the ops of cases into out, through a module between: the second traversal drops ops that folding
 * left dead. */
static enum tfmc_status simplify(struct specializer *s, struct ir_module *out)
{
	const struct rewrite rewrite = {.match = match, .emit = emit}, drop = {0};
	int64_t changes = 0;
	struct ir_module *simple = ir_module_create_like(s->in);
	if (simple == NULL)
		return TFMC_NO_MEMORY;
	enum tfmc_status status = rebuild_module(s->p, s->specialized, simple, &rewrite, &changes);
	if (status == TFMC_OK)
		status = rebuild_module(s->p, simple, out, &drop, NULL);
	ir_module_destroy(simple);
	pass_count(s->p, "simplified", changes);
	return status;
}

/* For OpenCL an unchanged copy: programs are launched function by function. */
enum tfmc_status pass_specialize(struct pass_context *p, const struct ir_module *in, struct ir_module *out)
{
	struct specializer s = {.p = p, .in = in};

	if (p->options->target != NULL && p->options->target->arch == ARCH_OPENCL)
		return rebuild_module(p, in, out, NULL, NULL);
	s.specialized = ir_module_create_like(in);
	if (s.specialized == NULL)
		return TFMC_NO_MEMORY;
	enum tfmc_status status = specialize_functions(&s);
	if (status == TFMC_OK)
		status = simplify(&s, out);
	ir_module_destroy(s.specialized);
	return status;
}
