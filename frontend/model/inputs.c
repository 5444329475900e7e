/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interface of a model: dims with bounds, inputs, outputs.
 */
#include <math.h>
#include <string.h>

#include "frontend/model/model.h"
#include "frontend/model/schema.h"

/* ---- dims ---- */

static bool read_range(struct frontend_model *m, const struct yaml_node *node, const char *name, int64_t *lo,
                       int64_t *hi)
{
	struct expr_env env = model_env(m, false);
	const struct expr *e_lo, *e_hi;
	struct value v;
	if (node->null) {
		diag_error(m->cx, node->loc, DIAG_DIM_BOUND, "dim '%s' needs bounds, such as 1..512", name);
		return false;
	}
	if (!expr_parse_range(&m->arena, m->cx, expr_source_of(node), &e_lo, &e_hi))
		return false;
	if (!expr_eval(&env, e_lo, &v) || !expr_want_int(&env, node->loc, name, &v, lo))
		return false;
	*hi = *lo;
	if (e_hi == NULL)
		return true;
	return expr_eval(&env, e_hi, &v) && expr_want_int(&env, node->loc, name, &v, hi);
}

static bool read_dim(struct frontend_model *m, const struct yaml_pair *pair)
{
	const char *name = pair->key->text;
	struct expr_env env = model_env(m, false);
	int64_t lo = 0, hi = 0;
	if (!model_declare(m, name, "dim", pair->key->loc))
		return false;
	if (pair->value->kind == YAML_MAPPING) {
		if (!schema_check(&m->arena, m->cx, pair->value, "dim", NULL, "a dim") ||
		    !expr_read_int(&env, yaml_find(pair->value, "min"), "min", &lo) ||
		    !expr_read_int(&env, yaml_find(pair->value, "max"), "max", &hi))
			return false;
	} else if (!yaml_expect(m->cx, pair->value, YAML_SCALAR, name) ||
	           !read_range(m, pair->value, name, &lo, &hi)) {
		return false;
	}
	if (lo < 1 || hi < lo || hi >= INT64_C(1) << 31 || !ir_dims_declare(m->dims, name, lo, hi)) {
		diag_error(m->cx, pair->value->loc, DIAG_DIM_BOUND,
		           "dim '%s' has the bounds %lld..%lld; 1 <= min <= max < 2^31 is needed", name,
		           (long long)lo, (long long)hi);
		return false;
	}
	return true;
}

bool model_read_dims(struct frontend_model *m)
{
	const struct yaml_node *dims = model_section(m, "dims");
	bool ok = true;
	if (dims == NULL)
		return true;
	if (!yaml_expect(m->cx, dims, YAML_MAPPING, "dims"))
		return false;
	if (dims->n > MODEL_DIMS_MAX) {
		diag_error(m->cx, dims->loc, DIAG_LIMIT, "%zu dims, at most %d are possible", dims->n,
		           MODEL_DIMS_MAX);
		return false;
	}
	for (size_t i = 0; i < dims->n; i++) {
		if (read_dim(m, &dims->pairs[i]))
			continue;
		ok = false;
		ir_dims_declare(m->dims, dims->pairs[i].key->text, 1,
		                1); /* it is there: what reads it is not wrong */
	}
	const char **all = ARENA_ARRAY(&m->arena, const char *, m->n_suggestions + dims->n);
	for (size_t i = 0; all != NULL && i < m->n_suggestions; i++)
		all[i] = m->suggestions[i];
	for (size_t i = 0; all != NULL && i < dims->n; i++)
		all[m->n_suggestions + i] = dims->pairs[i].key->text;
	m->suggestions = all;
	m->n_suggestions = all == NULL ? 0 : m->n_suggestions + dims->n;
	return ok;
}

/* ---- inputs ---- */

static bool set_shape_dim(struct frontend_model *m, struct model_input *in, const struct ir_dim *d,
                          struct loc loc)
{
	if (in->pub.rank >= IR_RANK_MAX) {
		diag_error(m->cx, loc, DIAG_LIMIT, "input '%s' has more than %d axes", in->pub.name,
		           IR_RANK_MAX);
		return false;
	}
	if (ir_dim_lo(m->dims, d) < 1) {
		diag_error(m->cx, loc, DIAG_SHAPE, "axis %d of input '%s' may be less than 1", in->pub.rank,
		           in->pub.name);
		return false;
	}
	in->dims[in->pub.rank++] = d;
	return true;
}

static bool read_shape(struct frontend_model *m, struct model_input *in, const struct yaml_node *node)
{
	struct expr_env env = model_env(m, true);
	struct yaml_list list = yaml_as_list(&m->arena, node);
	for (size_t i = 0; i < list.n; i++) {
		const struct ir_dim *d;
		if (!expr_read_dim(&env, list.items[i], "shape", &d) ||
		    !set_shape_dim(m, in, d, list.items[i]->loc))
			return false;
	}
	return true;
}

/* `f32[B, n, 3]`. */
static bool read_short_input(struct frontend_model *m, struct model_input *in, const struct yaml_node *node)
{
	struct expr_env env = model_env(m, true);
	const struct expr *e = expr_parse(&m->arena, m->cx, expr_source_of(node), EXPR_GRAPH);
	if (e == NULL)
		return false;
	if (e->kind != EX_INDEX || e->args[0]->kind != EX_NAME ||
	    !ir_dtype_parse(e->args[0]->text, strlen(e->args[0]->text), &in->pub.dtype)) {
		diag_error(m->cx, node->loc, DIAG_VALUE_TYPE,
		           "input '%s' wants a type such as f32[B, 3], found '%s'", in->pub.name, node->text);
		return false;
	}
	for (size_t i = 1; i < e->n_args; i++) {
		struct value v;
		const struct ir_dim *d;
		if (!expr_eval(&env, e->args[i], &v) ||
		    !expr_want_dim(&env, e->args[i]->loc, "shape", &v, &d) ||
		    !set_shape_dim(m, in, d, e->args[i]->loc))
			return false;
	}
	return true;
}

/* false, true, 0, 1 */
static bool bool_default(const struct expr_env *env, struct model_input *in, struct loc loc,
                         const struct value *v)
{
	int64_t n = 0;
	if (v->kind == VALUE_BOOL)
		n = v->b;
	else if (!expr_want_int(env, loc, "default", v, &n))
		return false;
	in->pub.fill = (double)n;
	if (n == 0 || n == 1)
		return true;
	diag_error(env->cx, loc, DIAG_VALUE_TYPE, "default of '%s' (bool) is false or true, found %lld",
	           in->pub.name, (long long)n);
	return false;
}

static bool float_default(struct frontend_model *m, struct model_input *in, struct loc loc, double f)
{
	double largest =
	        in->pub.dtype == DT_F16 ? 65504.0 : 3.3895313892515355e38; /* of bf16: f32 has more */
	in->pub.fill = f;
	if (isinf(f) || fabs(f) <= largest)
		return true;
	diag_error(m->cx, loc, DIAG_VALUE_TYPE, "default %g of '%s' does not fit into %s", f, in->pub.name,
	           ir_dtype_name(in->pub.dtype));
	return false;
}

/* Whatever the sizes are. */
static bool int_default(struct frontend_model *m, const struct model_input *in, struct loc loc)
{
	int bits = 8 * (int)ir_dtype_bytes(in->pub.dtype);
	bool is_signed = in->pub.dtype != DT_U8;
	int64_t lo = ir_dim_lo(m->dims, in->pub.default_dim), hi = ir_dim_hi(m->dims, in->pub.default_dim);
	int64_t most = bits == 64 ? INT64_MAX : (INT64_C(1) << (bits - (is_signed ? 1 : 0))) - 1;
	int64_t least = is_signed ? -most - 1 : 0;
	if (in->below > 0 && most >= in->below)
		most = in->below - 1;
	if (in->below > 0)
		least = 0;
	if (lo >= least && hi <= most)
		return true;
	diag_error(m->cx, loc, DIAG_VALUE_TYPE, "default of '%s' is %lld to %lld, not in [%lld, %lld]",
	           in->pub.name, (long long)lo, (long long)hi, (long long)least, (long long)most);
	return false;
}

static bool read_default(struct frontend_model *m, struct model_input *in, const struct yaml_node *node)
{
	struct expr_env env = model_env(m, true);
	const struct expr *e;
	struct value v;
	if (node == NULL)
		return true;
	if (!yaml_expect(m->cx, node, YAML_SCALAR, "default"))
		return false;
	e = expr_parse(&m->arena, m->cx, expr_source_of(node), EXPR_PLAIN);
	if (e == NULL || !expr_eval(&env, e, &v))
		return false;
	in->pub.has_default = true;
	switch (ir_dtype_class(in->pub.dtype)) {
	case DTCLASS_BOOL: return bool_default(&env, in, node->loc, &v);
	case DTCLASS_FLOAT:
		if (v.kind == VALUE_FLOAT)
			return float_default(m, in, node->loc, v.f);
		break;
	case DTCLASS_INT: break;
	}
	return expr_want_dim(&env, node->loc, "default", &v, &in->pub.default_dim) &&
	       (ir_dtype_class(in->pub.dtype) != DTCLASS_INT || int_default(m, in, node->loc));
}

static bool read_long_input(struct frontend_model *m, struct model_input *in, const struct yaml_node *node)
{
	struct expr_env env = model_env(m, false);
	const struct schema_key *key = schema_find_key("input", "dtype");
	const struct yaml_node *below = yaml_find(node, "below"), *lengths = yaml_find(node, "lengths");
	size_t n, word;
	if (!schema_check(&m->arena, m->cx, node, "input", NULL, "an input"))
		return false;
	const char *const *words = schema_words(&m->arena, key, &n);
	if (!expr_read_word(&env, yaml_find(node, "dtype"), "dtype", words, n, &word) ||
	    !ir_dtype_parse(words[word], strlen(words[word]), &in->pub.dtype))
		return false;
	if (below != NULL && !expr_read_int(&env, below, "below", &in->below))
		return false;
	if (below != NULL && in->below < 1) {
		diag_error(m->cx, below->loc, DIAG_VALUE_TYPE, "below is %lld, it must be at least 1",
		           (long long)in->below);
		return false;
	}
	if (lengths != NULL) {
		if (!yaml_expect(m->cx, lengths, YAML_SCALAR, "lengths"))
			return false;
		in->pub.lengths = lengths->text;
	}
	return read_shape(m, in, yaml_find(node, "shape")) && read_default(m, in, yaml_find(node, "default"));
}

static bool read_input(struct frontend_model *m, const struct yaml_pair *pair)
{
	struct model_input *in = ARENA_PUSH(&m->arena, &m->inputs);
	if (in == NULL || !model_declare(m, pair->key->text, "input", pair->key->loc))
		return false;
	in->pub.name = pair->key->text;
	in->pub.loc = pair->key->loc;
	in->lengths = -1;
	in->measures = -1;
	if (strcmp(in->pub.name, "x") == 0) {
		diag_error(m->cx, pair->key->loc, DIAG_NAME_CLASH,
		           "'x' is the current value; an input needs another name");
		return false;
	}
	if (pair->value->kind == YAML_SCALAR)
		return read_short_input(m, in, pair->value);
	return yaml_expect(m->cx, pair->value, YAML_MAPPING, "an input") &&
	       read_long_input(m, in, pair->value);
}

/* Lengths name an input i32[B] with the batch dim of what they measure. */
static bool link_lengths(struct frontend_model *m, struct model_input *in, size_t index)
{
	if (in->pub.lengths == NULL)
		return true;
	struct loc loc = yaml_find(yaml_find(model_section(m, "inputs"), in->pub.name), "lengths")->loc;
	int at = model_find_input(m, in->pub.lengths);
	if (at < 0) {
		size_t n;
		const char **names = ARENA_ARRAY(&m->arena, const char *, m->inputs.n);
		for (n = 0; names != NULL && n < m->inputs.n; n++)
			names[n] = m->inputs.items[n].pub.name;
		diag_error(m->cx, loc, DIAG_UNKNOWN_VALUE, "no input is called '%s'%s", in->pub.lengths,
		           did_you_mean(&m->arena, in->pub.lengths, names, names == NULL ? 0 : n));
		return false;
	}
	struct model_input *len = &m->inputs.items[at];
	if (len->pub.dtype != DT_I32 || len->pub.rank != 1 || in->pub.rank < 2 ||
	    len->dims[0] != in->dims[0]) {
		diag_error(m->cx, loc, DIAG_SHAPE,
		           "lengths '%s' of '%s' must be i32 with one axis, the batch", in->pub.lengths,
		           in->pub.name);
		return false;
	}
	in->lengths = at;
	if (len->measures < 0)
		len->measures = (int)index;
	return true;
}

bool model_read_inputs(struct frontend_model *m)
{
	const struct yaml_node *inputs = model_section(m, "inputs");
	bool ok = yaml_expect(m->cx, inputs, YAML_MAPPING, "inputs");
	if (!ok)
		return false;
	if (inputs->n == 0 || inputs->n > MODEL_VALUES_MAX) {
		diag_error(m->cx, inputs->loc, DIAG_LIMIT, "%zu inputs, 1 to %d are possible", inputs->n,
		           MODEL_VALUES_MAX);
		return false;
	}
	for (size_t i = 0; i < inputs->n; i++)
		ok = read_input(m, &inputs->pairs[i]) && ok;
	for (size_t i = 0; ok && i < m->inputs.n; i++)
		ok = link_lengths(m, &m->inputs.items[i], i);
	return ok;
}

/* ---- outputs ---- */

bool model_read_outputs(struct frontend_model *m)
{
	const struct yaml_node *outputs = model_section(m, "outputs");
	if (!yaml_expect(m->cx, outputs, YAML_MAPPING, "outputs"))
		return false;
	if (outputs->n == 0 || outputs->n > MODEL_VALUES_MAX) {
		diag_error(m->cx, outputs->loc, DIAG_LIMIT, "%zu outputs, 1 to %d are possible", outputs->n,
		           MODEL_VALUES_MAX);
		return false;
	}
	for (size_t i = 0; i < outputs->n; i++) {
		const struct yaml_pair *pair = &outputs->pairs[i];
		struct model_output *o = ARENA_PUSH(&m->arena, &m->outputs);
		if (o == NULL || !yaml_expect(m->cx, pair->value, YAML_SCALAR, "an output"))
			return false;
		if (!expr_is_name(pair->key->text)) {
			diag_error(m->cx, pair->key->loc, DIAG_NAME, "'%s' is not a name", pair->key->text);
			return false;
		}
		*o = (struct model_output){pair->key->text, pair->key->loc, pair->value->text,
		                           pair->value->loc, NULL};
	}
	return true;
}
