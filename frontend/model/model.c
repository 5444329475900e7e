/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names of a model, which share one namespace, and the environment of its expressions: params, dims, inputs,
 * outputs, definitions.
 *
 * Params are overridden by `set` and --set and evaluated on demand, so that derived ones follow overrides; `require`
 * checks conditions on them. A definition has a signature such as `gau(x, eps=1e-5)` and is a list of steps, a macro of
 * statements or a function; bodies are read where they are used. A function that returns false has reported an error;
 * callers go on with the other entries, so that one run reports every mistake. env is the environment of expressions,
 * with dims where a size is meant.
 */
#include "frontend/model/model.h"

#include <math.h>
#include <string.h>

#include "frontend/model/schema.h"
#include "ir/support/strmap.h"

/* A name may be of one thing only, as expressions, values and steps look it up in one namespace. */
bool model_declare(struct model_scope *s, const char *name, const char *what, struct loc loc)
{
	if (!expr_is_name(name)) {
		diag_error(s->cx, loc, DIAG_NAME, "'%s' is not a name (letters, digits, _; at most 63)",
		           name);
		return false;
	}
	const char *old = strmap_get(&s->names, name);
	if (old != NULL) {
		diag_error(s->cx, loc, DIAG_NAME_CLASH, "%s '%s' has the name of %s", what, name, old);
		return false;
	}
	return strmap_set(&s->names, name, (char *)(uintptr_t)arena_printf(s->arena, "a %s", what));
}

const struct yaml_node *model_section(const struct frontend_model *m, const char *key)
{
	return yaml_find(m->doc.root, key);
}

/* The lookup of model_env(). Dims come first; the namespace is one, so no param has the name of a dim. */
static enum expr_lookup lookup_dim_or_param(void *user, const char *name, struct loc loc, struct value *out)
{
	struct model_scope *s = user;
	const struct ir_dim *d = ir_dim_sym(s->dims, name);
	if (d != NULL) {
		*out = value_dim(d);
		return EXPR_FOUND;
	}
	return model_lookup_param(s, name, loc, out);
}

const char *const *model_names(void *scope, size_t *n)
{
	struct model_scope *s = scope;
	size_t n_params = s->params.n, capacity = n_params + ir_dims_count(s->dims);
	const char **names = ARENA_ARRAY(s->arena, const char *, capacity);
	*n = names == NULL ? 0 : capacity;
	for (size_t i = 0; i < *n; i++)
		names[i] = i < n_params ? s->params.items[i].key : ir_dims_sym(s->dims, i - n_params)->name;
	return names;
}

struct expr_env model_env(struct model_scope *s, bool dims)
{
	return (struct expr_env){s->arena, s->cx, dims ? s->dims : NULL, lookup_dim_or_param, model_names, s};
}

bool model_is_param_or_dim(const struct model_scope *s, const char *name)
{
	return strmap_has(&s->params, name) || ir_dims_find(s->dims, name) >= 0;
}

int model_find_input(const struct model_inputs *in, const char *name)
{
	for (size_t i = 0; i < in->n; i++) {
		if (strcmp(in->items[i].name, name) == 0)
			return (int)i;
	}
	return -1;
}

void model_unknown_input(struct model_scope *s, const struct model_inputs *in, struct loc loc,
                         const char *name, enum diag_code code)
{
	const char **names = ARENA_ARRAY(s->arena, const char *, in->n);
	for (size_t i = 0; names != NULL && i < in->n; i++)
		names[i] = in->items[i].name;
	diag_error(s->cx, loc, code, "no input is called '%s'%s", name,
	           did_you_mean_or_known(s->arena, name, names, names == NULL ? 0 : in->n));
}

int model_find_output(const struct model_outputs *out, const char *name)
{
	for (size_t i = 0; i < out->n; i++) {
		if (strcmp(out->items[i].name, name) == 0)
			return (int)i;
	}
	return -1;
}

const struct definition *model_find_definition(const struct definitions *d, const char *name)
{
	for (size_t i = 0; i < d->n; i++) {
		if (strcmp(d->items[i].name, name) == 0)
			return &d->items[i];
	}
	return NULL;
}

/* ---- params ---- */

/* Declares a param; it is evaluated when it is first used. NULL after a diagnostic. */
static struct model_param *add_param(struct model_scope *s, const struct yaml_pair *pair)
{
	if (s->params.n >= MODEL_PARAMS_MAX) {
		diag_error(s->cx, pair->key->loc, DIAG_LIMIT, "more than %d params", MODEL_PARAMS_MAX);
		return NULL;
	}
	if (!model_declare(s, pair->key->text, "param", pair->key->loc))
		return NULL;
	struct model_param *p = ARENA_NEW(s->arena, struct model_param);
	if (p == NULL)
		return NULL;
	p->name = pair->key->text;
	p->loc = pair->key->loc;
	p->node = pair->value;
	strmap_set(&s->params, p->name, p);
	return p;
}

/* Replaces the value of an existing param; a new one is rejected, as no expression could read it. */
static bool override_param(struct model_scope *s, const char *name, struct loc loc,
                           const struct yaml_node *value)
{
	struct model_param *p = strmap_get(&s->params, name);
	if (p == NULL) {
		size_t n;
		const char *const *names = model_names(s, &n);
		diag_error(s->cx, loc, DIAG_UNKNOWN_NAME,
		           "no param is called '%s'; only existing params can be set%s", name,
		           did_you_mean_or_known(s->arena, name, names, n));
		return false;
	}
	p->node = value;
	return true;
}

/* Applies the section `set`. */
static bool apply_set(struct model_scope *s, const struct yaml_node *set)
{
	bool ok = true;
	if (set == NULL)
		return true;
	if (!yaml_expect(s->cx, set, YAML_MAPPING, "set"))
		return false;
	for (size_t i = 0; i < set->n; i++)
		ok = override_param(s, set->pairs[i].key->text, set->pairs[i].key->loc,
		                    set->pairs[i].value) &&
		     ok;
	return ok;
}

/* Applies one --set key=value; the value is typed as in params. Text and value are sources of their own, so that
 * messages point into the option. */
static bool apply_set_option(struct model_scope *s, const char *text)
{
	const char *eq = strchr(text, '=');
	uint32_t source = diag_add_source(s->cx, "--set", text, strlen(text));
	struct loc loc = {source, 1, 1, 0};
	if (eq == NULL || eq == text) {
		diag_error(s->cx, loc, DIAG_OPTION, "--set wants key=value, found '%s'", text);
		return false;
	}
	const char *key = arena_strndup(s->arena, text, (size_t)(eq - text));
	const char *shown = arena_printf(s->arena, "--set %s", key);
	const struct yaml_node *value;
	loc.len = (uint32_t)(eq - text);
	if (yaml_parse(s->arena, s->cx, shown, eq + 1, strlen(eq + 1), true, &value) != TFMC_OK)
		return false;
	return override_param(s, key, loc, value);
}

/* A param that failed has been reported: its users fail without a further report. */
enum expr_lookup model_lookup_param(struct model_scope *s, const char *name, struct loc loc,
                                    struct value *out)
{
	struct model_param *p = strmap_get(&s->params, name);
	if (p == NULL)
		return EXPR_ABSENT;
	/* Evaluation of p has led here again. */
	if (p->state == PARAM_BUSY) {
		diag_error(s->cx, loc, DIAG_CYCLE, "param '%s' depends on itself", name);
		return EXPR_FAILED;
	}
	if (p->state == PARAM_NEW) {
		struct expr_env env = model_env(s, false);
		p->state = PARAM_BUSY;
		bool ok = expr_read_value(&env, p->node, p->name, &p->value);
		p->state = ok ? PARAM_DONE : PARAM_FAILED;
	}
	*out = p->value;
	return p->state == PARAM_DONE ? EXPR_FOUND : EXPR_FAILED;
}

/* Prints the params used in an expression with their values: "d = 30, heads = 4". */
static void print_param_values(struct model_scope *s, const struct expr *e, struct buf *out)
{
	const struct model_param *p = e->kind == EX_NAME ? strmap_get(&s->params, e->text) : NULL;
	if (p != NULL && p->state == PARAM_DONE) {
		buf_printf(out, "%s%s = ", out->len > 0 ? ", " : "", p->name);
		value_print(out, NULL, &p->value);
	}
	for (size_t i = 0; i < e->n_args; i++)
		print_param_values(s, e->args[i], out);
}

/* Checks a condition of `require`; the message has the values of its params, as the condition is usually in a preset
 * and the values are the user's. */
static bool check_condition(struct model_scope *s, const struct yaml_node *node)
{
	struct expr_env env = model_env(s, false);
	bool holds;
	if (!yaml_expect(s->cx, node, YAML_SCALAR, "require") ||
	    !expr_read_bool(&env, node, "require", &holds))
		return false;
	if (holds)
		return true;
	const struct expr *e = expr_parse(s->arena, s->cx, expr_source_of(node), EXPR_PLAIN);
	struct buf names;
	buf_init(&names);
	if (e != NULL)
		print_param_values(s, e, &names);
	diag_error(s->cx, node->loc, DIAG_REFUSED, "required condition does not hold%s%s",
	           names.len > 0 ? ": " : "", names.data);
	buf_destroy(&names);
	return false;
}

/* All overrides are applied before the first evaluation. Then every param is evaluated, also unused ones, for its
 * errors; conditions are checked only if all params are valid. */
bool model_read_params(struct model_scope *s, const struct yaml_node *root,
                       const struct frontend_options *options)
{
	const struct yaml_node *params = yaml_find(root, "params");
	bool ok = params == NULL || yaml_expect(s->cx, params, YAML_MAPPING, "params");
	for (size_t i = 0; params != NULL && params->kind == YAML_MAPPING && i < params->n; i++)
		ok = add_param(s, &params->pairs[i]) != NULL && ok;
	ok = apply_set(s, yaml_find(root, "set")) && ok;
	for (size_t i = 0; i < options->n_sets; i++)
		ok = apply_set_option(s, options->sets[i]) && ok;
	if (!ok)
		return false;
	for (size_t i = 0; i < s->params.n; i++) {
		struct value v;
		const struct model_param *p = s->params.items[i].value;
		ok = model_lookup_param(s, p->name, p->loc, &v) == EXPR_FOUND && ok;
	}
	const struct yaml_node *require = yaml_find(root, "require");
	if (!ok || require == NULL)
		return ok;
	struct yaml_list conditions = yaml_as_list(s->arena, require);
	for (size_t i = 0; i < conditions.n; i++)
		ok = check_condition(s, conditions.items[i]) && ok;
	return ok;
}

/* ---- definitions ---- */

struct signature definition_signature(const struct definition *d)
{
	return (struct signature){.name = d->name, .args = d->args, .loc = d->loc};
}

int definition_argument(const struct definition *d, const char *name)
{
	const struct signature s = definition_signature(d);
	return signature_find(&s, name);
}

/* Adds an argument of a definition; def NULL: it is required. It may not hide a param or dim, of which a body could
 * mean either. d->args has room. */
static bool add_arg(struct model_scope *s, struct definition *d, const char *name, struct loc loc,
                    const struct expr *def)
{
	if (definition_argument(d, name) >= 0) {
		diag_error(s->cx, loc, DIAG_ARGUMENTS, "'%s' declares the argument '%s' twice", d->name,
		           name);
		return false;
	}
	if (model_is_param_or_dim(s, name)) {
		diag_error(s->cx, loc, DIAG_NAME_CLASH, "argument '%s' of '%s' has the name of %s", name,
		           d->name, strmap_has(&s->params, name) ? "a param" : "a dim");
		return false;
	}
	d->args[d->n_args++] = (struct argument){name, ARGUMENT_VALUE, def};
	return true;
}

/* Reads the key of a definition, NAME or NAME(a, b=1), into d, and declares its name. The text is parsed as an
 * expression: a name or a call, whose keywords are the arguments with defaults. */
static bool read_signature(struct model_scope *s, struct definition *d, const struct yaml_node *key)
{
	const struct expr *e = expr_parse(s->arena, s->cx, expr_source_of(key), EXPR_GRAPH);
	if (e == NULL)
		return false;
	if (e->kind != EX_NAME && e->kind != EX_CALL) {
		diag_error(s->cx, key->loc, DIAG_ARGUMENTS,
		           "a definition is written NAME or NAME(a, b=1), found '%s'", key->text);
		return false;
	}
	d->name = e->text;
	d->args = ARENA_ARRAY(s->arena, struct argument, e->n_args + e->n_keywords + 1);
	for (size_t i = 0; i < e->n_args; i++) {
		if (e->args[i]->kind != EX_NAME) {
			diag_error(s->cx, e->args[i]->loc, DIAG_ARGUMENTS, "arguments of '%s' are names",
			           d->name);
			return false;
		}
		if (!add_arg(s, d, e->args[i]->text, e->args[i]->loc, NULL))
			return false;
	}
	for (size_t i = 0; i < e->n_keywords; i++) {
		if (!add_arg(s, d, e->keywords[i].name, e->keywords[i].loc, e->keywords[i].value))
			return false;
	}
	return model_declare(s, d->name, "definition", key->loc);
}

/* Whether the body of a definition ends with `return`. */
static bool is_function(const struct yaml_node *body)
{
	const struct yaml_node *last = body->n > 0 ? body->items[body->n - 1] : NULL;
	return last != NULL && last->kind == YAML_SCALAR && strncmp(last->text, "return ", 7) == 0;
}

/* True for a body of statements (macro): it begins with an assignment, require, let or if. Steps are names of kinds
 * or mappings with another first key. */
static bool has_statements(const struct yaml_node *body)
{
	static const char *const entries[] = {"require", "let", "if"};
	const struct yaml_node *first = body->n > 0 ? body->items[0] : NULL;
	if (first == NULL || first->kind == YAML_SCALAR)
		return first != NULL && strchr(first->text, '=') != NULL;
	for (size_t i = 0; i < TFMC_COUNT(entries); i++) {
		if (yaml_find(first, entries[i]) != NULL)
			return true;
	}
	return false;
}

/* Functions are called in statements and may have the name of a step; macros and lists of steps may not, as a step
 * looks built-in kinds up first. */
bool model_read_definitions(struct model_scope *s, const struct yaml_node *define, struct definitions *out)
{
	bool ok = true;
	if (define == NULL)
		return true;
	if (!yaml_expect(s->cx, define, YAML_MAPPING, "define"))
		return false;
	for (size_t i = 0; i < define->n; i++) {
		struct definition *d = ARENA_PUSH(s->arena, out);
		if (d == NULL)
			return false;
		d->name = "";
		if (!yaml_expect(s->cx, define->pairs[i].value, YAML_SEQUENCE, "a definition"))
			return false;
		d->loc = define->pairs[i].key->loc;
		d->body = define->pairs[i].value;
		d->function = is_function(d->body);
		d->statements = !d->function && has_statements(d->body);
		ok = read_signature(s, d, define->pairs[i].key) && ok;
		if (!d->function && schema_find_step(d->name)) {
			diag_error(s->cx, d->loc, DIAG_NAME_CLASH,
			           "'%s' is a built-in step; give the definition another name", d->name);
			ok = false;
		}
	}
	return ok;
}

/* ---- dims ---- */

/* Reads the bounds of a dim, `E..E`, or one value for both. Bounds may read params, no dims. */
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

/* Reads one entry of `dims` and declares it. Bounds are below 2^31, since ops read sizes as i32 (dim_value). */
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

/* Appends an axis to the shape of an input. Axes have one element at least for all values of the dims. */
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

/* Reads the key `shape` of an input. */
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

/* Reads an input written as a type: `f32[B, n, 3]`. */
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

/* Reads the default of a bool input: false, true, 0 or 1, into in->fill. */
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

/* Sets the default of a float input; infinities are allowed, for masks. */
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

/* Checks that an int default, which may depend on dims, fits the dtype and `below` for all values of the dims. */
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

/* Reads `default`: a bool, a float, or for ints a dim expression; an int or a size is a default of a float input, too
 * (default_dim). NULL: the input has none. */
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

/* Reads an input written as a mapping. The type comes before the default, which must fit it. */
static bool read_long_input(struct model_scope *s, struct frontend_input *in, const struct yaml_node *node)
{
	static const struct schema_member members[] = {SCHEMA_MEMBER(input_words, dtype),
	                                               SCHEMA_MEMBER(input_words, below),
	                                               SCHEMA_MEMBER(input_words, lengths)};
	/* [0]: the key is absent; the words from 1 on, in the order of schema.def. */
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

/* Reads one entry of `inputs` and declares its name. lengths_at and measures are linked when all inputs are known
 * (link_lengths). */
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

/* Checks that `lengths` names an input i32[B] with the batch dim of this input, and links both. Several inputs may
 * share their lengths; `measures` is the first of them, whose rows bound the lengths. */
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

/* Checks that a section is a mapping with 1 to MODEL_VALUES_MAX entries. */
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

/* `lengths` are linked when all inputs are valid, as they name other inputs. */
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

/* Reads name of output: name of value. An output has no part in the namespace: it may have the name of a value. The
 * value is looked up after the expansion. */
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
