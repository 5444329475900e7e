/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interface of a model: dims with bounds, inputs, outputs.
 */
#include <math.h>
#include <string.h>

#include "frontend/model/model.h"
#include "frontend/model/schema.h"

/* ---- dims ---- */

static bool read_range(struct model_scope *s, const struct yaml_node *node, const char *name, int64_t *lo,
                       int64_t *hi)
{
	struct expr_env env = model_env(s, false);
	const struct expr *e_lo, *e_hi;
	struct value v;
	if (node->null) {
		diag_error(s->cx, node->loc, DIAG_DIM_BOUND, "dim '%s' needs bounds, such as 1..512", name);
		return false;
	}
	if (!expr_parse_range(s->arena, s->cx, expr_source_of(node), &e_lo, &e_hi))
		return false;
	if (!expr_eval(&env, e_lo, &v) || !expr_require_int(&env, node->loc, name, &v, lo))
		return false;
	*hi = *lo;
	if (e_hi == NULL)
		return true;
	return expr_eval(&env, e_hi, &v) && expr_require_int(&env, node->loc, name, &v, hi);
}

struct bounds {
	int64_t min, max;
};

static bool read_dim(struct model_scope *s, const struct yaml_pair *pair)
{
	static const struct schema_member members[] = {SCHEMA_MEMBER(bounds, min),
	                                               SCHEMA_MEMBER(bounds, max)};
	const char *name = pair->key->text;
	struct expr_env env = model_env(s, false);
	struct bounds b = {0, 0};
	if (!model_declare(s, name, "dim", pair->key->loc))
		return false;
	if (pair->value->kind == YAML_MAPPING) {
		if (!schema_read(&env, pair->value, "dim", "a dim", members, TFMC_COUNT(members), &b))
			return false;
	} else if (!yaml_expect(s->cx, pair->value, YAML_SCALAR, name) ||
	           !read_range(s, pair->value, name, &b.min, &b.max)) {
		return false;
	}
	if (b.min < 1 || b.max < b.min || b.max >= INT64_C(1) << 31 ||
	    !ir_dims_declare(s->dims, name, b.min, b.max)) {
		diag_error(s->cx, pair->value->loc, DIAG_DIM_BOUND,
		           "dim '%s' has the bounds %lld..%lld; 1 <= min <= max < 2^31 is needed", name,
		           (long long)b.min, (long long)b.max);
		return false;
	}
	return true;
}

bool model_read_dims(struct model_scope *s, const struct yaml_node *dims)
{
	bool ok = true;
	if (dims == NULL)
		return true;
	if (!yaml_expect(s->cx, dims, YAML_MAPPING, "dims"))
		return false;
	if (dims->n > MODEL_DIMS_MAX) {
		diag_error(s->cx, dims->loc, DIAG_LIMIT, "%zu dims, at most %d are possible", dims->n,
		           MODEL_DIMS_MAX);
		return false;
	}
	for (size_t i = 0; i < dims->n; i++) {
		if (read_dim(s, &dims->pairs[i]))
			continue;
		ok = false;
		ir_dims_declare(s->dims, dims->pairs[i].key->text, 1,
		                1); /* declare it anyway, so that its uses report nothing */
	}
	return ok;
}

/* ---- inputs ---- */

static bool set_shape_dim(struct model_scope *s, struct frontend_input *in, const struct ir_dim *d,
                          struct loc loc)
{
	if (in->rank >= IR_RANK_MAX) {
		diag_error(s->cx, loc, DIAG_LIMIT, "input '%s' has more than %d axes", in->name, IR_RANK_MAX);
		return false;
	}
	if (ir_dim_lo(s->dims, d) < 1) {
		diag_error(s->cx, loc, DIAG_SHAPE, "axis %d of input '%s' may be less than 1", in->rank,
		           in->name);
		return false;
	}
	in->dims[in->rank++] = d;
	return true;
}

static bool read_shape(struct model_scope *s, struct frontend_input *in, const struct yaml_node *node)
{
	struct expr_env env = model_env(s, true);
	struct yaml_list list = yaml_as_list(s->arena, node);
	for (size_t i = 0; i < list.n; i++) {
		const struct ir_dim *d;
		if (!expr_read_dim(&env, list.items[i], "shape", &d) ||
		    !set_shape_dim(s, in, d, list.items[i]->loc))
			return false;
	}
	return true;
}

/* `f32[B, n, 3]`. */
static bool read_short_input(struct model_scope *s, struct frontend_input *in, const struct yaml_node *node)
{
	struct expr_env env = model_env(s, true);
	const struct expr *e = expr_parse(s->arena, s->cx, expr_source_of(node), EXPR_GRAPH);
	if (e == NULL)
		return false;
	if (e->kind != EX_INDEX || e->args[0]->kind != EX_NAME ||
	    !ir_dtype_parse(e->args[0]->text, strlen(e->args[0]->text), &in->dtype)) {
		diag_error(s->cx, node->loc, DIAG_VALUE_TYPE,
		           "input '%s' wants a type such as f32[B, 3], found '%s'", in->name, node->text);
		return false;
	}
	for (size_t i = 1; i < e->n_args; i++) {
		struct value v;
		const struct ir_dim *d;
		if (!expr_eval(&env, e->args[i], &v) ||
		    !expr_require_dim(&env, e->args[i]->loc, "shape", &v, &d) ||
		    !set_shape_dim(s, in, d, e->args[i]->loc))
			return false;
	}
	return true;
}

/* false, true, 0, 1 */
static bool bool_default(const struct expr_env *env, struct frontend_input *in, struct loc loc,
                         const struct value *v)
{
	int64_t n = 0;
	if (v->kind == VALUE_BOOL)
		n = v->b;
	else if (!expr_require_int(env, loc, "default", v, &n))
		return false;
	in->fill = (double)n;
	if (n == 0 || n == 1)
		return true;
	diag_error(env->cx, loc, DIAG_VALUE_TYPE, "default of '%s' (bool) is false or true, found %lld",
	           in->name, (long long)n);
	return false;
}

static bool float_default(struct model_scope *s, struct frontend_input *in, struct loc loc, double f)
{
	double largest = in->dtype == DT_F16 ? 65504.0
	                                     : 3.3895313892515355e38; /* largest finite bf16; f32 is larger */
	in->fill = f;
	if (isinf(f) || fabs(f) <= largest)
		return true;
	diag_error(s->cx, loc, DIAG_VALUE_TYPE, "default %g of '%s' does not fit into %s", f, in->name,
	           ir_dtype_name(in->dtype));
	return false;
}

/* Checks that an int default fits the dtype and `below` for all values of the dims. */
static bool int_default(struct model_scope *s, const struct frontend_input *in, struct loc loc)
{
	int bits = 8 * (int)ir_dtype_bytes(in->dtype);
	bool is_signed = in->dtype != DT_U8;
	int64_t lo = ir_dim_lo(s->dims, in->default_dim), hi = ir_dim_hi(s->dims, in->default_dim);
	int64_t max = bits == 64 ? INT64_MAX : (INT64_C(1) << (bits - (is_signed ? 1 : 0))) - 1;
	int64_t min = is_signed ? -max - 1 : 0;
	if (in->below > 0 && max >= in->below)
		max = in->below - 1;
	if (in->below > 0)
		min = 0;
	if (lo >= min && hi <= max)
		return true;
	diag_error(s->cx, loc, DIAG_VALUE_TYPE, "default of '%s' is %lld to %lld, not in [%lld, %lld]",
	           in->name, (long long)lo, (long long)hi, (long long)min, (long long)max);
	return false;
}

/* Reads `default`: a bool, a float, or for ints a dim expression. */
static bool read_default(struct model_scope *s, struct frontend_input *in, const struct yaml_node *node)
{
	struct expr_env env = model_env(s, true);
	const struct expr *e;
	struct value v;
	if (node == NULL)
		return true;
	if (!yaml_expect(s->cx, node, YAML_SCALAR, "default"))
		return false;
	e = expr_parse(s->arena, s->cx, expr_source_of(node), EXPR_PLAIN);
	if (e == NULL || !expr_eval(&env, e, &v))
		return false;
	in->has_default = true;
	switch (ir_dtype_class(in->dtype)) {
	case DTCLASS_BOOL: return bool_default(&env, in, node->loc, &v);
	case DTCLASS_FLOAT:
		if (v.kind == VALUE_FLOAT)
			return float_default(s, in, node->loc, v.f);
		break;
	case DTCLASS_INT: break;
	}
	return expr_require_dim(&env, node->loc, "default", &v, &in->default_dim) &&
	       (ir_dtype_class(in->dtype) != DTCLASS_INT || int_default(s, in, node->loc));
}

struct input_words {
	int dtype;
	int64_t below;
	const char *lengths;
};

static bool read_long_input(struct model_scope *s, struct frontend_input *in, const struct yaml_node *node)
{
	static const struct schema_member members[] = {SCHEMA_MEMBER(input_words, dtype),
	                                               SCHEMA_MEMBER(input_words, below),
	                                               SCHEMA_MEMBER(input_words, lengths)};
	static const enum ir_dtype types[] = {DT_F32, DT_F32, DT_F16, DT_BF16, DT_I8,
	                                      DT_U8,  DT_I16, DT_I32, DT_I64,  DT_BOOL};
	struct expr_env env = model_env(s, false);
	struct input_words words = {0};
	if (!schema_read(&env, node, "input", "an input", members, TFMC_COUNT(members), &words))
		return false;
	in->dtype = types[words.dtype];
	in->below = words.below;
	in->lengths = words.lengths;
	return read_shape(s, in, yaml_find(node, "shape")) && read_default(s, in, yaml_find(node, "default"));
}

static bool read_input(struct model_scope *s, const struct yaml_pair *pair, struct model_inputs *out)
{
	struct frontend_input *in = ARENA_PUSH(s->arena, out);
	if (in == NULL || !model_declare(s, pair->key->text, "input", pair->key->loc))
		return false;
	in->name = pair->key->text;
	in->loc = pair->key->loc;
	in->lengths_at = -1;
	in->measures = -1;
	if (strcmp(in->name, "x") == 0) {
		diag_error(s->cx, pair->key->loc, DIAG_NAME_CLASH,
		           "'x' is the current value; an input needs another name");
		return false;
	}
	if (pair->value->kind == YAML_SCALAR)
		return read_short_input(s, in, pair->value);
	return yaml_expect(s->cx, pair->value, YAML_MAPPING, "an input") &&
	       read_long_input(s, in, pair->value);
}

/* Checks that `lengths` names an input i32[B] with the batch dim of this input, and links both. */
static bool link_lengths(struct model_scope *s, const struct yaml_node *node, struct model_inputs *all,
                         size_t index)
{
	struct frontend_input *in = &all->items[index];
	if (in->lengths == NULL)
		return true;
	struct loc loc = yaml_find(node, "lengths")->loc;
	in->lengths_at = model_find_input(all, in->lengths);
	if (in->lengths_at < 0) {
		model_unknown_input(s, all, loc, in->lengths, DIAG_UNKNOWN_VALUE);
		return false;
	}
	struct frontend_input *len = &all->items[in->lengths_at];
	if (len->dtype != DT_I32 || len->rank != 1 || in->rank < 2 || len->dims[0] != in->dims[0]) {
		diag_error(s->cx, loc, DIAG_SHAPE,
		           "lengths '%s' of '%s' must be i32 with one axis, the batch", in->lengths,
		           in->name);
		return false;
	}
	if (len->measures < 0)
		len->measures = (int)index;
	return true;
}

static bool check_entry_count(struct model_scope *s, const struct yaml_node *map, const char *what)
{
	if (!yaml_expect(s->cx, map, YAML_MAPPING, what))
		return false;
	if (map->n != 0 && map->n <= MODEL_VALUES_MAX)
		return true;
	diag_error(s->cx, map->loc, DIAG_LIMIT, "%zu %s, 1 to %d are possible", map->n, what,
	           MODEL_VALUES_MAX);
	return false;
}

bool model_read_inputs(struct model_scope *s, const struct yaml_node *inputs, struct model_inputs *out)
{
	bool ok = true;
	if (!check_entry_count(s, inputs, "inputs"))
		return false;
	for (size_t i = 0; i < inputs->n; i++)
		ok = read_input(s, &inputs->pairs[i], out) && ok;
	for (size_t i = 0; ok && i < out->n; i++)
		ok = link_lengths(s, inputs->pairs[i].value, out, i);
	return ok;
}

/* ---- outputs ---- */

bool model_read_outputs(struct model_scope *s, const struct yaml_node *outputs, struct model_outputs *out)
{
	if (!check_entry_count(s, outputs, "outputs"))
		return false;
	for (size_t i = 0; i < outputs->n; i++) {
		const struct yaml_pair *pair = &outputs->pairs[i];
		struct model_output *o = ARENA_PUSH(s->arena, out);
		if (o == NULL || !yaml_expect(s->cx, pair->value, YAML_SCALAR, "an output"))
			return false;
		if (!expr_is_name(pair->key->text)) {
			diag_error(s->cx, pair->key->loc, DIAG_NAME, "'%s' is not a name", pair->key->text);
			return false;
		}
		*o = (struct model_output){pair->key->text, pair->key->loc, pair->value->text,
		                           pair->value->loc, NULL};
	}
	return true;
}
