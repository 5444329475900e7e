/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operands of a node. A constant of the file is a literal where a number may stand next to a tensor, else a
 * statement: floats are parameters; ints and bools, which parameters cannot be, are written as what they are: one
 * value, steps (positions), the rows of a triangle (causal masks), or a list of numbers. Texts are those of
 * expressions, "" after a diagnostic.
 * A known element that is a dim varies with the sizes of a call; all other constants are numbers. Refusals are sticky:
 * im->failed is set, and what a function returns is harmless ("", 1, axis 0, an empty operand), so that callers test it
 * once.
 */
#include "frontend/onnx/import.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#include "frontend/syntax/yaml_edit.h"
#include "ir/support/number.h"

#define LIST_MAX  128 /* numbers of one const */
#define LISTS_MAX 64  /* lists of a constant */

/* ---- attributes ---- */

/* The attribute of the node by name, marked as read: check_attributes() (import.c) refuses the node for any other.
   NULL: absent. */
const struct onnx_attribute *attribute_of(const struct importer *im, const char *name)
{
	const struct onnx_attribute *a = onnx_attribute(im->node, name);
	if (a != NULL)
		((struct onnx_attribute *)(uintptr_t)a)->is_read = true;
	return a;
}

int64_t attribute_int(const struct importer *im, const char *name, int64_t def)
{
	const struct onnx_attribute *a = attribute_of(im, name);
	return a != NULL ? a->i : def;
}

double attribute_float(const struct importer *im, const char *name, double def)
{
	const struct onnx_attribute *a = attribute_of(im, name);
	return a != NULL ? a->f : def;
}

const char *attribute_text(const struct importer *im, const char *name, const char *def)
{
	const struct onnx_attribute *a = attribute_of(im, name);
	return a != NULL ? a->text : def;
}

/* The list of an attribute wins over the operand. Refused if it is not known at import, or has floats. */
bool list_dims(struct importer *im, const char *name, size_t i, const struct ir_dim *const **out, size_t *n)
{
	const struct onnx_attribute *a = attribute_of(im, name);
	const struct operand *v = i == SIZE_MAX ? NULL : operand_at(im, i);
	*n = a != NULL ? a->ints.n : v != NULL ? v->n : 0;
	const struct ir_dim **list = ARENA_ARRAY(im->a, const struct ir_dim *, *n + 1);
	if ((a == NULL && v == NULL) || list == NULL)
		return false;
	if (a == NULL && (v->known == NULL || v->rank > 1))
		return import_refuse(im, "not supported: %s of %s is not known before the model runs", name,
		                     im->node->op);
	for (size_t k = 0; k < *n; k++) {
		list[k] = a != NULL ? ir_dim_const(im->dims, a->ints.items[k]) : v->known[k].dim;
		if (list[k] == NULL)
			return import_refuse(im, "%s of %s is a float", name, im->node->op);
	}
	*out = list;
	return true;
}

bool list_ints(struct importer *im, const char *name, size_t i, const int64_t **out, size_t *n)
{
	const struct ir_dim *const *dims;
	if (!list_dims(im, name, i, &dims, n))
		return false;
	int64_t *list = ARENA_ARRAY(im->a, int64_t, *n + 1);
	*out = list;
	for (size_t k = 0; list != NULL && k < *n; k++)
		if (!ir_dim_is_const(dims[k], &list[k]))
			return import_refuse(im, "not supported: %s of %s depends on a dim", name,
			                     im->node->op);
	return list != NULL;
}

int axis_of(struct importer *im, int64_t axis, int rank)
{
	axis += axis < 0 ? rank : 0;
	if (axis >= 0 && axis < rank)
		return (int)axis;
	import_refuse(im, "%s: axis %lld of %d", im->node->op, (long long)axis, rank);
	return 0;
}

/* ---- operands ---- */

struct operand *operand_at(struct importer *im, size_t i)
{
	const char *name = i < im->node->inputs.n ? im->node->inputs.items[i] : "";
	return name[0] == '\0' ? NULL : strmap_get(&im->values, name);
}

/* A missing operand is a refusal and an empty operand, so that callers need no check of NULL. */
struct operand *operand_needed(struct importer *im, size_t i)
{
	struct operand *v = operand_at(im, i);
	if (v != NULL)
		return v;
	import_refuse(im, "%s has no input %zu", im->node->op, i);
	v = ARENA_NEW(im->a, struct operand); /* never NULL: an arena that has failed has scratch memory */
	v->name = "";
	return v;
}

const char *tensor_at(struct importer *im, size_t i)
{
	return operand_tensor(im, operand_needed(im, i));
}

/* 1 after a refusal, so that callers may divide by it. */
int64_t operand_size(struct importer *im, const struct operand *v, int axis)
{
	int64_t size = 1;
	if (axis < 0 || axis >= v->rank)
		import_refuse(im, "%s: a tensor of %d axes", im->node->op, v->rank);
	else if (!ir_dim_is_const(v->dims[axis], &size))
		import_refuse(im, "not supported: %s along an axis of the size %s", im->node->op,
		              dim_text(im, v->dims[axis]));
	return size;
}

bool operand_int(const struct operand *v, size_t i, int64_t *out)
{
	return v != NULL && v->known != NULL && i < v->n && v->known[i].dim != NULL &&
	       ir_dim_is_const(v->known[i].dim, out);
}

/* A single number is a literal and no parameter. */
bool operand_is_parameter(const struct operand *v)
{
	return v->stored != NULL && v->n > 1 && ir_dtype_class(v->dtype) == DTCLASS_FLOAT;
}

bool operand_is_vector(const struct operand *v, int64_t n)
{
	return v != NULL && v->stored != NULL && v->stored->stored.readable && v->dtype == DT_F32 &&
	       v->rank == 1 && ir_dim_equals(v->dims[0], n);
}

/* ---- text ---- */

/* The shortest decimal that reads back as the same number, of f32 if it is one; a negative one in parentheses, since
   it may stand behind an operator. NaN has no literal and is refused. */
const char *float_text(struct importer *im, double f)
{
	char text[NUMBER_TEXT_MAX];
	if (isnan(f)) {
		import_refuse(im, "not supported: a constant that is NaN");
		return "";
	}
	if (isinf(f))
		return f > 0 ? ".inf" : "(-.inf)";
	if ((double)(float)f == f)
		number_print_f32(text, (float)f);
	else
		number_print_f64(text, f);
	return signbit(f) ? import_text(im, "(%s)", text) : arena_strdup(im->a, text);
}

/* A dim of several terms is in parentheses, since it may stand behind an operator. */
const char *element_text(struct importer *im, const struct element *e)
{
	if (e->dim == NULL)
		return float_text(im, e->f);
	const char *text = dim_text(im, e->dim);
	return strpbrk(text, " -*/") != NULL ? import_text(im, "(%s)", text) : text;
}

const char *dim_text(struct importer *im, const struct ir_dim *d)
{
	return ir_dim_to_string(im->a, im->dims, d, false);
}

const char *dims_text(struct importer *im, int rank, const struct ir_dim *const *dims)
{
	const char *text = "[";
	for (int i = 0; i < rank; i++)
		text = import_text(im, "%s%s%s", text, i > 0 ? ", " : "", dim_text(im, dims[i]));
	return import_text(im, "%s]", text);
}

const char *ints_text(struct importer *im, const int64_t *items, size_t n)
{
	const char *text = "[";
	for (size_t i = 0; i < n; i++)
		text = import_text(im, "%s%s%lld", text, i > 0 ? ", " : "", (long long)items[i]);
	return import_text(im, "%s]", text);
}

/* ---- constants that are no parameters ---- */

/* Elements of a constant as doubles: known ones without dims, or stored ones. */
struct constant {
	struct importer *im;
	const struct operand *v;
};

/* Element i of a constant; false: it is a dim that varies. */
static bool constant_at(const struct constant *c, size_t i, double *out)
{
	const struct operand *v = c->v;
	int64_t number;
	if (v->known != NULL && v->known[i].dim == NULL)
		*out = v->known[i].f;
	else if (v->known != NULL) {
		if (!ir_dim_is_const(v->known[i].dim, &number))
			return false;
		*out = (double)number;
	} else
		*out = stored_element(&v->stored->stored, i);
	return true;
}

/* True: all elements are first + i step along the last axis, the same in all rows; step 0: all are one value. Exact
   in f64. */
static bool is_steps(const struct constant *c, double *first, double *step)
{
	int64_t row = 1;
	double v;
	if (c->v->rank > 0)
		(void)ir_dim_is_const(c->v->dims[c->v->rank - 1], &row);
	*step = 0;
	if (c->v->n == 0 || !constant_at(c, 0, first) || (row > 1 && !constant_at(c, 1, step)))
		return false;
	*step -= row > 1 ? *first : 0;
	for (size_t i = 0; i < c->v->n; i++)
		if (!constant_at(c, i, &v) || v != *first + *step * (double)(i % (size_t)row))
			return false;
	return true;
}

/* True: bools that hold where the column is at most the row plus *shift (upper: at least), the same in all matrices.
   The first row decides *shift, then all elements are compared. */
static bool is_triangle(const struct constant *c, bool upper, int64_t *shift)
{
	const struct operand *v = c->v;
	int64_t rows, columns;
	double x;
	if (v->dtype != DT_BOOL || v->rank < 2 || !ir_dim_is_const(v->dims[v->rank - 2], &rows) ||
	    !ir_dim_is_const(v->dims[v->rank - 1], &columns) || v->n == 0)
		return false;
	for (*shift = 0; *shift < columns && constant_at(c, (size_t)*shift, &x) && (x != 0) != upper;
	     ++*shift)
		continue;
	*shift -= upper ? 0 : 1;
	for (size_t i = 0; i < v->n; i++) {
		int64_t column = (int64_t)i % columns, row = (int64_t)i / columns % rows;
		bool holds = upper ? column >= row + *shift : column <= row + *shift;
		if (!constant_at(c, i, &x) || (x != 0) != holds)
			return false;
	}
	return true;
}

/* The constant that is_triangle() has found: columns compared with rows plus the shift. */
static const char *triangle_text(struct importer *im, const struct operand *v, bool upper, int64_t shift)
{
	const char *rows = dim_text(im, v->dims[v->rank - 2]), *columns = dim_text(im, v->dims[v->rank - 1]);
	return import_text(
	        im, "broadcast(reshape(iota([%s]), [1, %s]) %s reshape(iota([%s]), [%s, 1]) + (%lld), %s)",
	        columns, columns, upper ? ">=" : "<=", rows, rows, (long long)shift,
	        dims_text(im, v->rank, v->dims));
}

/* One value (as text) in all places. const() is f32 alone, so ints are zeros, cast, plus the value, which is then
   exact; a bool is 0 or 1. */
static const char *splat_text(struct importer *im, const struct operand *v, const char *value)
{
	const char *shape = dims_text(im, v->rank, v->dims), *type = ir_dtype_name(v->dtype);
	if (v->dtype == DT_F32)
		return import_text(im, "broadcast(const(%s), %s)", value, shape);
	if (v->dtype == DT_BOOL)
		return import_text(im, "cast(broadcast(const(%s.0), %s), bool)", value, shape);
	return import_text(im, "cast(broadcast(const(0.0), %s), %s) + %s", shape, type, value);
}

/* A list of numbers as const() of at most LIST_MAX each, joined. Ints pass through f32, so those above 2^24 are
   refused, as are more than LIST_MAX * LISTS_MAX: a model file is no weight file. */
static const char *list_text(struct importer *im, const struct operand *v)
{
	const struct constant c = {im, v};
	const char *pieces = "", *shape = dims_text(im, v->rank, v->dims);
	for (size_t i = 0; i < v->n; i += LIST_MAX) {
		const char *list = "";
		for (size_t k = i; k < v->n && k < i + LIST_MAX; k++) {
			double x;
			if (!constant_at(&c, k, &x) || fabs(x) > 0x1p24 ||
			    k >= (size_t)LIST_MAX * LISTS_MAX) {
				import_refuse(im, "not supported: a constant of %zu ints without a pattern",
				              v->n);
				return "";
			}
			list = import_text(im, "%s%s%s", list, k > i ? ", " : "", float_text(im, x));
		}
		const char *piece = import_statement(im, "numbers", "const([%s])", list);
		pieces = import_text(im, "%s%s%s", pieces, i > 0 ? ", " : "", piece);
	}
	const char *all = v->n > LIST_MAX ? import_text(im, "concat([%s], axis=0)", pieces) : pieces;
	return v->dtype == DT_F32
	               ? import_text(im, "reshape(%s, %s)", all, shape)
	               : import_text(im, "cast(reshape(%s, %s), %s)", all, shape, ir_dtype_name(v->dtype));
}

/* Elements that are dims, one after another: iota([1]) * 0 is [0], to which a dim is added. */
static const char *dims_value(struct importer *im, const struct operand *v)
{
	const char *list = "";
	for (size_t i = 0; i < v->n; i++)
		list = import_text(im, "%s%siota([1]) * 0 + %s", list, i > 0 ? ", " : "",
		                   element_text(im, &v->known[i]));
	return import_text(im, "cast(reshape(concat([%s], axis=0), %s), %s)", list,
	                   dims_text(im, v->rank, v->dims), ir_dtype_name(v->dtype));
}

/* A constant that is no parameter as the shortest of its forms: one value, dims, steps, a triangle, else all numbers.
   Floats have no steps: their sums would round. */
static const char *constant_text(struct importer *im, const struct operand *v)
{
	const struct constant c = {im, v};
	double first, step;
	int64_t shift;
	if (v->n == 1 && v->known != NULL)
		return splat_text(im, v, element_text(im, &v->known[0]));
	for (size_t i = 0; v->known != NULL && i < v->n; i++)
		if (v->known[i].dim != NULL && !ir_dim_is_const(v->known[i].dim, NULL))
			return dims_value(im, v);
	if (v->dtype != DT_F32 && is_steps(&c, &first, &step) && fabs(first) < 0x1p53 &&
	    fabs(step) < 0x1p31) {
		if (step == 0)
			return splat_text(im, v, import_text(im, "%.0f", first));
		const char *columns = dim_text(im, v->dims[v->rank - 1]), *type = ir_dtype_name(v->dtype);
		/* a step may not be a value of a type of 8 or 16 bits */
		if (v->dtype != DT_BOOL && ir_dtype_bytes(v->dtype) < 4)
			return import_text(im, "cast(broadcast(iota([%s]) * (%.0f) + (%.0f), %s), %s)",
			                   columns, step, first, dims_text(im, v->rank, v->dims), type);
		if (v->dtype != DT_BOOL)
			return import_text(im, "broadcast(cast(iota([%s]), %s) * (%.0f) + (%.0f), %s)",
			                   columns, type, step, first, dims_text(im, v->rank, v->dims));
	}
	if (is_triangle(&c, false, &shift))
		return triangle_text(im, v, false, shift);
	if (is_triangle(&c, true, &shift))
		return triangle_text(im, v, true, shift);
	return list_text(im, v);
}

/* ---- parameters ---- */

/* A name of a tensor as a path of parameters: `/` becomes a dot, and what is no letter, digit or dot becomes _. */
static const char *path_text(struct importer *im, const char *name)
{
	struct buf out;
	buf_init(&out);
	for (const char *p = name + strspn(name, "/."); *p != '\0'; p++)
		buf_char(&out, *p == '/' ? '.' : isalnum((unsigned char)*p) || *p == '.' ? *p : '_');
	const char *text = arena_strdup(im->a, out.len > 0 ? out.data : "v");
	buf_destroy(&out);
	return text;
}

/* True: no parameter has this path yet, or the one that has it is made of the same source, and is shared. */
static bool path_is_free(const struct importer *im, const char *path, const char *source)
{
	const char *before = strmap_get(&im->paths, path);
	return before == NULL || strcmp(before, source) == 0;
}

/* The source of a parameter as in weights.map: the tensor's name, or with `steps` after it (as "transpose: true"). */
static const char *source_text(struct importer *im, const struct operand *v, const char *steps)
{
	const char *name = yaml_quote(im->a, v->stored->stored.name);
	return steps[0] == '\0' ? name : import_text(im, "{from: %s, %s}", name, steps);
}

/* Declares that the parameter `path` is made of the source, whose tensors are v and `also` (NULL: one alone). A path
   declared before is the same parameter. Braces are patterns in the map, so names that have them are refused. */
static void add_parameter(struct importer *im, const char *path, const struct operand *v,
                          const struct operand *also, const char *source)
{
	const char *const names[] = {v->stored->stored.name, also != NULL ? also->stored->stored.name : NULL};
	if (strmap_has(&im->paths, path))
		return;
	strmap_set(&im->paths, path, (char *)(uintptr_t)source);
	(void)ARENA_ADDED(im->a, &im->parameters, (struct parameter){path, source, names[0], names[1]});
	for (size_t i = 0; i < 2; i++)
		if (names[i] != NULL && strpbrk(names[i], "{}") != NULL)
			import_refuse(im, "not supported: braces in the name of the tensor '%.200s'",
			              names[i]);
}

/* The beginning of a name that ends so; NULL: it does not. */
static const char *without_end(struct importer *im, const struct operand *v, const char *end)
{
	size_t n = v != NULL ? strlen(v->stored->stored.name) : 0, tail = strlen(end);
	return n > tail && strcmp(v->stored->stored.name + n - tail, end) == 0
	               ? path_text(im, arena_strndup(im->a, v->stored->stored.name, n - tail))
	               : NULL;
}

/* True: the layer `path` is free, or has the same parameters. */
static bool layer_is_free(struct importer *im, const char *path, const char *weight, const char *bias)
{
	return path_is_free(im, import_text(im, "%s.weight", path), weight) &&
	       (bias == NULL || path_is_free(im, import_text(im, "%s.bias", path), bias));
}

/* Candidates for the path, the first that is free wins: the weight's name without ".weight", the directory of the
   node's name, the bias's without ".bias", the weight's whole name, then that with a number. */
const char *import_layer(struct importer *im, struct operand *weight, const char *steps, struct operand *bias)
{
	const char *slash = strrchr(im->node->name, '/');
	const char *source = source_text(im, weight, steps),
	           *bias_source = bias != NULL ? source_text(im, bias, "") : NULL;
	const char *const stems[] = {without_end(im, weight, ".weight"),
	                             slash != NULL && slash != im->node->name
	                                     ? path_text(im, arena_strndup(im->a, im->node->name,
	                                                                   (size_t)(slash - im->node->name)))
	                                     : NULL,
	                             without_end(im, bias, ".bias"),
	                             path_text(im, weight->stored->stored.name)};
	const char *path = NULL;
	for (size_t i = 0; i < TFMC_COUNT(stems) && path == NULL; i++)
		if (stems[i] != NULL && layer_is_free(im, stems[i], source, bias_source))
			path = stems[i];
	for (int i = 2; path == NULL; i++) {
		const char *next = import_text(im, "%s_%d", stems[TFMC_COUNT(stems) - 1], i);
		path = layer_is_free(im, next, source, bias_source) ? next : NULL;
	}
	add_parameter(im, import_text(im, "%s.weight", path), weight, NULL, source);
	if (bias != NULL)
		add_parameter(im, import_text(im, "%s.bias", path), bias, NULL, bias_source);
	return import_text(im, "\"%s\"", path);
}

/* A parameter of a source whose first tensor is v, from which its path is made. */
static const char *parameter_of(struct importer *im, const struct operand *v, const struct operand *also,
                                const char *source, const char *shape)
{
	const char *stem = path_text(im, v->stored->stored.name), *path = stem;
	for (int i = 2; !path_is_free(im, path, source); i++)
		path = import_text(im, "%s_%d", stem, i);
	add_parameter(im, path, v, also, source);
	return import_text(im, "param(\"%s\", %s)", path, shape);
}

static const char *parameter_text(struct importer *im, const struct operand *v)
{
	return parameter_of(im, v, NULL, source_text(im, v, ""), dims_text(im, v->rank, v->dims));
}

const char *import_joined(struct importer *im, const struct operand *left, const struct operand *right)
{
	const struct ir_dim *dims[] = {left->dims[0], ir_dim_add(im->dims, left->dims[1], right->dims[1])};
	const char *source = import_text(im, "{concat: {axis: 1, of: [%s, %s]}}", source_text(im, left, ""),
	                                 source_text(im, right, ""));
	return import_statement(im, "table", "%s",
	                        parameter_of(im, left, right, source, dims_text(im, 2, dims)));
}

/* Names v on its first use, by a statement that makes it: ids are cast, constants become a parameter or are written
   out. A computed value has a name already. */
const char *operand_tensor(struct importer *im, struct operand *v)
{
	if (im->failed || v->name != NULL)
		return im->failed ? "" : v->name;
	const struct stored_tensor *t = v->stored != NULL ? &v->stored->stored : NULL;
	if (t != NULL && (!t->readable || v->n == 0))
		import_refuse(im, "not supported: the tensor '%.200s', %s of %zu elements", t->name,
		              onnx_type_name(v->stored->type), v->n);
	if (t == NULL && v->known != NULL && v->n == 0)
		import_refuse(im, "not supported: a tensor without elements");
	const char *stem = v->ids != NULL                    ? v->ids->name
	                   : t != NULL && t->name[0] != '\0' ? t->name
	                                                     : "constant";
	const char *text = im->failed                ? ""
	                   : v->ids != NULL          ? import_text(im, "cast(%s, i64)", v->ids->name)
	                   : operand_is_parameter(v) ? parameter_text(im, v)
	                                             : constant_text(im, v);
	v->name = import_statement(im, stem, "%s", text);
	return v->name;
}
