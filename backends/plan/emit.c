/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code that all emitted functions of an object share: fields of the context, argument slots, and the values
 * of dim expressions.
 *
 * struct emit is the function that is being emitted, with what its code has loaded: context, argument slots, dims,
 * memories, repeat indices.
 */
#include "backends/plan/emit.h"
#include "ir/support/chars.h"

const char *emit_api_symbol(const struct object *o, const char *name)
{
	return arena_printf(o->arena, "%s_%s", o->name, name);
}

const char *emit_variant_symbol(const struct object *o, const char *name)
{
	return arena_printf(o->arena, "%s.%s", o->prefix, name);
}

const char *emit_function_symbol(const struct object *o, const struct function *f, const char *suffix)
{
	return arena_printf(o->arena, "%s.%s", f->symbol, suffix);
}

struct emit emit_begin(const struct object *o, const struct function *f, const char *name,
                       enum kb_linkage linkage)
{
	struct emit e = {.object = o, .function = f, .k = kb_begin(o->kb, name, linkage, KB_I32)};
	e.context = kb_param(e.k, "context", KB_PTR_T, 0);
	e.args = kb_param(e.k, "args", KB_PTR_T, KB_READONLY);
	return e;
}

struct kb_val emit_load(struct kb *k, enum kb_scalar type, struct kb_val ptr, int64_t offset)
{
	struct kb_val at = kb_ptr_add(k, ptr, kb_index(k, 0), offset);
	return kb_load(k, KB_TYPE(type, 1), at, kb_index(k, 0), 0, 0);
}

void emit_store(struct kb *k, struct kb_val v, struct kb_val ptr, int64_t offset)
{
	kb_store(k, v, kb_ptr_add(k, ptr, kb_index(k, 0), offset), kb_index(k, 0), 0, 0);
}

struct kb_val emit_load_context(struct emit *e, enum kb_scalar type, int64_t offset)
{
	return emit_load(e->k, type, e->context, offset);
}

void emit_store_context(struct emit *e, struct kb_val v, int64_t offset)
{
	emit_store(e->k, v, e->context, offset);
}

struct kb_val emit_load_arg(struct emit *e, enum kb_scalar type, size_t slot)
{
	return emit_load(e->k, type, e->args, (int64_t)slot * 8);
}

struct kb_val emit_has_arg(struct emit *e, size_t slot)
{
	return kb_cmp(e->k, KB_NE, emit_load_arg(e, KB_PTR, slot), kb_null(e->k));
}

void emit_return_if(struct emit *e, struct kb_val cond, enum tfmc_rt_status status)
{
	kb_if(e->k, cond);
	kb_return(e->k, kb_i32(e->k, (int32_t)status));
	kb_end_if(e->k);
}

void emit_require_between(struct emit *e, struct kb_val v, int64_t least, struct kb_val most,
                          enum tfmc_rt_status status)
{
	struct kb_val low = kb_cmp(e->k, KB_LT, v, kb_index(e->k, least));
	struct kb_val high = kb_cmp(e->k, KB_GT, v, most);
	emit_return_if(e, kb_bin(e->k, KB_OR, low, high), status);
}

void emit_end(struct emit *e, enum tfmc_rt_status status)
{
	kb_return(e->k, kb_i32(e->k, (int32_t)status));
	kb_end(e->k);
}

/* ---- dims ---- */

/* A dim that is no argument keeps id 0: no value of the function or of its cases has it (assign_slots). */
void emit_load_dims(struct emit *e)
{
	size_t n = ir_dims_count(e->object->module->dims);
	struct kb_val *dims = ARENA_ARRAY(e->object->arena, struct kb_val, n + 1);
	for (size_t i = 0; dims && i < n; i++)
		if (e->function->has_dim[i])
			dims[i] = emit_load_arg(e, KB_INDEX, e->function->dim_slot[i]);
	e->dims = dims;
}

/* Loads the dims and the base addresses of a call, so that code after it need not know where they are stored. past,
 * blocks and sources point to row 0 of the call (emit_set_rows). A function without state, or of a state without
 * batch, has none of the latter; without encoder output no sources. */
void emit_load_call(struct emit *e)
{
	emit_load_dims(e);
	e->buffers = emit_load_context(e, KB_PTR, CONTEXT_BUFFERS);
	e->weights = emit_load_context(e, KB_PTR, CONTEXT_WEIGHTS);
	e->state = emit_load_context(e, KB_PTR, CONTEXT_STATE);
	if (!e->function->has_state || e->object->states.batch_dim < 0)
		return;
	e->past = emit_load_context(e, KB_PTR, CONTEXT_PAST);
	e->blocks = emit_load_context(e, KB_PTR, CONTEXT_BLOCKS);
	if (!function_has_source(e->object, e->function))
		return;
	e->sources = emit_load_context(e, KB_PTR, CONTEXT_SOURCES);
	e->source_step = emit_load_context(e, KB_INDEX, CONTEXT_SOURCE_STEP);
}

/* An atom is a dim symbol, a maximum of two dims, or a floor division by a constant. */
static struct kb_val atom_value(struct emit *e, const struct ir_dim_atom *atom)
{
	if (atom->sym >= 0)
		return e->dims[atom->sym];
	if (atom->other) {
		struct kb_val other = emit_dim(e, atom->other);
		return kb_max(e->k, emit_dim(e, atom->of), other);
	}
	/* floor(x / by): kb division truncates, so negative x is moved down first. */
	struct kb_val x = emit_dim(e, atom->of), by = kb_index(e->k, atom->by);
	if (ir_dim_lo(e->object->module->dims, atom->of) < 0) {
		struct kb_val below = kb_cmp(e->k, KB_LT, x, kb_index(e->k, 0));
		struct kb_val down = kb_sub(e->k, x, kb_index(e->k, atom->by - 1));
		x = kb_select(e->k, below, down, x);
	}
	return kb_bin(e->k, KB_DIV, x, by);
}

/* Emits the polynomial term by term; kb folds arithmetic on constants. */
struct kb_val emit_dim(struct emit *e, const struct ir_dim *d)
{
	struct kb_val sum = kb_index(e->k, 0);
	for (size_t i = 0; i < d->n_terms; i++) {
		struct kb_val product = kb_index(e->k, d->terms[i].coeff);
		for (size_t a = 0; a < d->terms[i].n_atoms; a++)
			product = kb_mul(e->k, product, atom_value(e, d->terms[i].atoms[a]));
		sum = kb_add(e->k, sum, product);
	}
	return sum;
}

/* True if all conditions of a case hold, for the present dims; id 0: a case without conditions. */
struct kb_val emit_conditions(struct emit *e, const struct ir_case *c)
{
	struct kb_val all = {0};
	for (size_t i = 0; i < c->n; i++) {
		const struct ir_condition *x = &c->conditions[i];
		enum kb_cmp kind = x->relation == IR_EQUAL ? KB_EQ : KB_LE;
		struct kb_val one = kb_cmp(e->k, kind, emit_dim(e, x->dim), kb_index(e->k, x->value));
		all = all.id ? kb_bin(e->k, KB_AND, all, one) : one;
	}
	return all;
}

struct kb_size emit_size(struct emit *e, const struct ir_dim *d)
{
	struct kb_size s = {0};
	s.is_const = ir_dim_is_const(d, &s.c);
	s.v = s.is_const ? kb_index(e->k, s.c) : emit_dim(e, d);
	return s;
}

/* ---- groups ---- */

/* A C identifier of the last two parts of a path (or "x"): enough to recognize a step, short enough for code. */
const char *emit_short_name(struct arena *a, const char *path)
{
	size_t n = path ? strlen(path) : 0, dots = 0, from = n;
	while (from > 0 && (path[from - 1] != '.' || ++dots < 2))
		from--;
	if (from == n)
		return "x";
	bool is_digit = char_is_digit(path[from]);
	char *out = ARENA_ARRAY(a, char, n - from + 2);
	if (!out)
		return "x";
	if (is_digit) /* no identifier begins with one */
		out[0] = 'x';
	for (size_t i = from; i < n; i++)
		out[i - from + is_digit] = char_is_word(path[i]) ? path[i] : '_';
	return out;
}

/* The struct emit of a group's kernel, with the repeats around it, outermost first. No code is begun. */
struct emit emit_for_group(const struct object *o, const struct function *f, const struct ir_op *group)
{
	struct emit e = {.object = o, .function = f, .group = group};
	struct ir_value inner[OBJECT_REPEAT_MAX]; /* innermost first; plan_make rejects deeper nests */
	const struct ir_region *r = ir_value_info(f->func, group->results[0])->region;
	for (; r->owner && e.n_repeats < OBJECT_REPEAT_MAX;
	     r = ir_value_info(f->func, r->owner->results[0])->region)
		if (r->owner->code == OP_repeat)
			inner[e.n_repeats++] = r->args[REPEAT_INDEX];
	for (size_t i = 0; i < e.n_repeats; i++)
		e.repeat_index[i] = inner[e.n_repeats - 1 - i];
	return e;
}

/* Rows of the results of the group that are no real ones of these lengths are not read, either: a mask after the root
 * would have to store zeros there. */
static bool results_are_real(const struct emit *e, struct ir_value lengths)
{
	const struct ir_func *f = e->function->func;
	for (size_t i = 0; i < e->group->n_results; i++) {
		struct ir_value v = e->group->results[i];
		const struct ir_real_rows *rows = &e->function->real_rows[v.id];
		if (ir_type_of(f, v)->kind == IR_STATE || ir_is_state_slice(f, v))
			continue; /* the root's rows that are appended are real ones */
		if (rows->axis == 0 || !ir_same_value(rows->lengths, lengths))
			return false;
	}
	return true;
}

/* The lengths of the sequences by which the group's kernel may skip padding, or none: only where nothing reads what it
 * would have stored there. Devices compute all rows, and other kinds of kernels do not know rows. */
struct ir_value emit_group_lengths(const struct emit *e)
{
	const struct attrs_group *a = e->group->attrs;
	const struct ir_op *root = ir_group_root(e->group);
	if (object_is_device(e->object) || root == NULL || root->n_results != 1 ||
	    (a->kind != GROUP_linear && a->kind != GROUP_rowwise && a->kind != GROUP_attention))
		return IR_NO_VALUE;
	const struct ir_type *y = ir_type_of(e->function->func, root->results[0]);
	int axis = a->kind == GROUP_attention ? 2 : 1; /* [B, H, S, E], else [B, S, ..] */
	const struct ir_real_rows rows = e->function->real_rows[root->results[0].id];
	bool has_padding = rows.axis == axis && ir_dim_hi(e->object->module->dims, y->dims[axis]) > 1;
	return has_padding && results_are_real(e, rows.lengths) ? rows.lengths : IR_NO_VALUE;
}

void emit_group_comment(struct emit *e)
{
	struct kb_loc at = kernel_loc(e->object->cx, e->group->loc);
	if (at.file)
		kb_source_loc(e->k, &at);
	else
		kb_comment(e->k, "%s", at.path);
}
