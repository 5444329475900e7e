/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gathers and scatters. The language has those of one axis; where the ids name single elements, or several axes, the
 * tensor is one of fewer axes, and the ids are places in it.
 * A place is the flat row-major index of an element, or of a row, in that tensor. Ids are i32 in statements, i64 in the
 * file. Refusals are sticky (im->failed): after one, helpers return "", 1, axis 0 or an empty operand.
 */
#include "frontend/onnx/import.h"

#include <string.h>

/* Ids of an axis of n: negative ones count from the end; i32. */
static const char *ids_from_end(struct importer *im, const char *x, enum ir_dtype dtype,
                                const struct ir_dim *n)
{
	const char *size = dim_text(im, n), *id = dtype == DT_I32 ? x : import_text(im, "cast(%s, i32)", x);
	return import_text(im, "where(%s < 0, %s + (%s), %s)", x, id, size, id);
}

/* Ids of an input with a checked bound (below; 0 of positions of a state, which past.c has made), and known ones that
   are not negative, need no correction; all others have the size added where they are negative, as ONNX counts. */
const char *import_ids(struct importer *im, struct operand *ids, const struct ir_dim *rows)
{
	bool known = ids->known != NULL, is_negative = false;
	int64_t n_rows;
	if (ids->ids != NULL && ir_dim_is_const(rows, &n_rows) && ids->ids->below <= n_rows)
		return ids->ids->name; /* checked at every call */
	for (size_t i = 0; known && i < ids->n; i++) {
		int64_t id;
		known = operand_int(ids, i, &id);
		is_negative = is_negative || id < 0;
	}
	const char *x = operand_tensor(im, ids);
	if (!known || is_negative)
		return ids_from_end(im, x, ids->dtype, rows);
	return ids->dtype == DT_I32 ? x : import_text(im, "cast(%s, i32)", x);
}

/* ---- an axis ---- */

/* One known element of an axis, as a slice and a reshape: the axis goes away. Refused if it is not within the axis
   for every size. */
static bool gather_one(struct importer *im, const struct operand *v, int axis, int64_t id)
{
	const struct ir_dim *dims[IR_RANK_MAX], *at = ir_dim_const(im->dims, id),
	                                        *one = ir_dim_const(im->dims, 1);
	int rank = 0;
	if (id < 0)
		at = ir_dim_add(im->dims, at, v->dims[axis]);
	if (ir_dim_lo(im->dims, at) < 0 || !ir_dim_le(im->dims, ir_dim_add(im->dims, at, one), v->dims[axis]))
		return import_refuse(im, "Gather of element %lld of %s", (long long)id,
		                     dim_text(im, v->dims[axis]));
	for (int i = 0; i < v->rank; i++)
		if (i != axis)
			dims[rank++] = v->dims[i];
	return import_output(im, 0, "reshape(slice(%s, axis=%d, begin=%s, end=%s), %s)", tensor_at(im, 0),
	                     axis, dim_text(im, at), dim_text(im, ir_dim_add(im->dims, at, one)),
	                     dims_text(im, rank, dims));
}

/* The positions of the tokens of a state, in place of ids of `axis` that count them for all sequences at once, if the
   looked-up rows are only added to something of each token [B, S, D]: of a state each sequence has its own position.
   Else the ids. */
static struct operand *tokens_counted(struct importer *im, struct operand *ids)
{
	const char *row = im->node->outputs.items[0];
	const struct onnx_node *add = import_only_reader(im, row);
	if (add != NULL && strcmp(add->op, "Cast") == 0 && add->outputs.n == 1) { /* between floats */
		row = add->outputs.items[0];
		add = import_only_reader(im, row);
	}
	const int axes[] = {ids->rank == 1 ? 1 : -1, 1};
	const struct ir_dim *first;
	if (!im->past.is_state || ids->rank < 1 || ids->rank > 2 || ids->known != NULL || add == NULL ||
	    strcmp(add->op, "Add") != 0 || add->inputs.n != 2 ||
	    (ids->rank == 2 && !ir_dim_equals(ids->dims[0], 1)))
		return ids;
	bool is_first = strcmp(add->inputs.items[0], row) == 0;
	const struct operand *token = strmap_get(&im->values, add->inputs.items[is_first]);
	const struct lowered *v = lower_find(im->lw, operand_tensor(im, ids));
	const char *name = token != NULL && token->rank == 3 && v != NULL && v->kind == LOWERED_TENSOR &&
	                                   import_counts(im, v->v, axes, 1, &first)
	                           ? past_positions_name(im, first, token->dims[0], token->dims[1])
	                           : NULL;
	struct operand *at = name != NULL ? import_operand(im, name) : NULL;
	return at != NULL ? at : ids;
}

const char *import_embedding(struct importer *im, const char *ids, struct operand *table)
{
	return import_text(im, "embed(%s, %s, vocab=%s, dim=%s)", ids, import_layer(im, table, "", NULL),
	                   dim_text(im, table->dims[0]), dim_text(im, table->dims[1]));
}

/* A scalar known id is a slice, rows of a stored matrix are an embedding, which keeps the file's type and quants. */
bool import_gather(struct importer *im)
{
	struct operand *v = operand_needed(im, 0), *ids = operand_needed(im, 1);
	int axis = axis_of(im, attribute_int(im, "axis", 0), v->rank);
	int64_t id;
	if (im->failed)
		return false;
	if (ids->rank == 0 && operand_int(ids, 0, &id))
		return gather_one(im, v, axis, id);
	ids = axis == 0 ? tokens_counted(im, ids) : ids;
	const char *at = ids->name != NULL && im->past.positions == ids->name
	                         ? ids->name
	                         : import_ids(im, ids, v->dims[axis]);
	if (v->stored != NULL && v->dtype != DT_F32 && v->rank == 2 && axis == 0 &&
	    import_lookup_of_quants(im, at))
		return true;
	if (operand_is_parameter(v) && v->rank == 2 && axis == 0)
		return import_output(im, 0, "%s", import_embedding(im, at, v));
	return import_output(im, 0, "gather(%s, %s, axis=%d)", operand_tensor(im, v), at, axis);
}

/* ---- ids of elements ---- */

/* The product of the sizes of axes [from, to); refused where an i32 cannot count them. */
static const struct ir_dim *count_of(struct importer *im, const struct operand *v, int from, int to)
{
	const struct ir_dim *n = ir_dim_const(im->dims, 1);
	for (int i = from; i < to; i++)
		n = ir_dim_mul(im->dims, n, v->dims[i]);
	if (ir_dim_hi(im->dims, n) > INT32_MAX)
		import_refuse(im, "not supported: %s of %s elements", im->node->op, dim_text(im, n));
	return n;
}

/* The expression sum + x * stride; sum "": none yet. */
static const char *add_term(struct importer *im, const char *sum, const char *x, const struct ir_dim *stride)
{
	const char *term =
	        ir_dim_equals(stride, 1) ? x : import_text(im, "(%s) * (%s)", x, dim_text(im, stride));
	return sum[0] == '\0' ? term : import_text(im, "%s + %s", sum, term);
}

/* 0, 1, .. along one of `rank` axes, the others 1. */
static const char *places_text(struct importer *im, const struct ir_dim *n, int axis, int rank)
{
	const struct ir_dim *dims[IR_RANK_MAX];
	for (int i = 0; i < rank; i++)
		dims[i] = i == axis ? n : ir_dim_const(im->dims, 1);
	const char *all = import_text(im, "iota([%s])", dim_text(im, n));
	return rank == 1 ? all : import_text(im, "reshape(%s, %s)", all, dims_text(im, rank, dims));
}

/* The place of each element of operand 1 in v: its own index along all axes but `axis`, and along that the id; sum of
   index times stride. */
static const char *element_places(struct importer *im, const struct operand *v, int axis)
{
	struct operand *ids = operand_needed(im, 1);
	const char *sum = "";
	if (ids->rank != v->rank || v->rank == 0) {
		import_refuse(im, "%s of %d axes at ids of %d", im->node->op, v->rank, ids->rank);
		return "";
	}
	for (int i = 0; i < v->rank && !im->failed; i++) {
		const char *at = i == axis ? import_ids(im, ids, v->dims[i])
		                           : places_text(im, ids->dims[i], i, v->rank);
		sum = add_term(im, sum, at, count_of(im, v, i + 1, v->rank));
	}
	return import_statement(im, "places", "%s", sum);
}

/* The tensor with its first `to` axes merged to one, which places index. */
static const char *flat_text(struct importer *im, struct operand *v, int to)
{
	const struct ir_dim *dims[IR_RANK_MAX] = {count_of(im, v, 0, to)};
	for (int i = to; i < v->rank; i++)
		dims[1 + i - to] = v->dims[i];
	const char *x = operand_tensor(im, v);
	return to == 1 ? x : import_text(im, "reshape(%s, %s)", x, dims_text(im, 1 + v->rank - to, dims));
}

/* The result has the shape of the ids, each of which names an element along `axis`. */
bool import_gather_elements(struct importer *im)
{
	struct operand *v = operand_needed(im, 0);
	int axis = axis_of(im, attribute_int(im, "axis", 0), v->rank);
	const char *places = element_places(im, v, axis);
	if (im->failed)
		return false;
	return import_output(im, 0, "gather(%s, %s, axis=0)", flat_text(im, v, v->rank), places);
}

/* A bound of the work of a scatter that reduces: rows times ids times elements of a row. */
#define PAIRS_MAX (1 << 30)

/* Scatter that adds, or keeps the maximum or minimum: x [R, rest] with the rows of y [M, rest] at M ids, of which
   equal ones all count. Each row compares itself with all ids and reduces the hits: scatter of the language keeps the
   last alone. */
static bool output_reduced(struct importer *im, const char *op, struct operand *v, int n, const char *places)
{
	struct ir_dims *t = im->dims;
	const struct operand *ids = import_operand(im, places);
	const struct ir_dim *one = ir_dim_const(t, 1), *rows = count_of(im, v, 0, n),
	                    *width = count_of(im, v, n, v->rank);
	bool is_sum = strcmp(op, "add") == 0, is_max = strcmp(op, "max") == 0;
	if (!is_sum && !is_max && strcmp(op, "min") != 0)
		return import_refuse(im, "not supported: %s with the reduction '%.20s'", im->node->op, op);
	if (ids == NULL || im->failed)
		return false;
	const struct ir_dim *m = count_of(im, ids, 0, ids->rank),
	                    *pairs = ir_dim_mul(t, ir_dim_mul(t, rows, m), width);
	if (im->failed || ir_dim_hi(t, pairs) > PAIRS_MAX)
		return import_refuse(im,
		                     "not supported: %s with the reduction '%.20s' of %s elements at %s ids",
		                     im->node->op, op, dim_text(im, rows), dim_text(im, m));
	const struct ir_dim *row[] = {rows, one, width}, *column[] = {rows, one, one}, *at[] = {one, m, one},
	                    *added[] = {one, m, width}, *flat[] = {rows, width};
	const char *x = import_text(im, "reshape(%s, %s)", operand_tensor(im, v), dims_text(im, 3, row));
	const char *hit = import_text(im, "reshape(iota([%s]), %s) == reshape(%s, %s)", dim_text(im, rows),
	                              dims_text(im, 3, column), places, dims_text(im, 3, at));
	const char *all = import_text(im, "where(%s, reshape(%s, %s), %s)", hit, tensor_at(im, 2),
	                              dims_text(im, 3, added), is_sum ? "0" : x);
	const char *best = import_text(im, "%s(%s, axis=1)", is_sum ? "sum" : op, all);
	const char *old = import_text(im, "reshape(%s, %s)", operand_tensor(im, v), dims_text(im, 2, flat));
	const char *whole = is_sum ? import_text(im, "%s + %s", old, best)
	                           : import_text(im, "%simum(%s, %s)", op, old, best);
	return import_output(im, 0, "reshape(%s, %s)", whole, dims_text(im, v->rank, v->dims));
}

/*
 * Operand 0, whose first n axes are those that places count, with operand 2 at them: the last of equal places
 * counts, or all in a reduction.
 */
static bool output_scattered(struct importer *im, struct operand *v, int n, const char *places)
{
	const char *op = attribute_text(im, "reduction", "none"), *y = tensor_at(im, 2);
	if (im->failed)
		return false;
	if (strcmp(op, "none") != 0)
		return output_reduced(im, op, v, n, places);
	return import_output(im, 0, "reshape(scatter(%s, %s, %s), %s)", flat_text(im, v, n), places, y,
	                     dims_text(im, v->rank, v->dims));
}

/* Operand 0 with the elements of operand 2 at the ids along `axis`. */
bool import_scatter_elements(struct importer *im)
{
	struct operand *v = operand_needed(im, 0);
	int axis = axis_of(im, attribute_int(im, "axis", 0), v->rank);
	return !im->failed && output_scattered(im, v, v->rank, element_places(im, v, axis));
}

/* ---- ids of several axes ---- */

/* The places of the rows of v that operand 1, [.., k], names: the k ids index axes batch .. batch + k - 1, and axes
   before these have their own index. *n: batch + k, the axes that places count. */
static const char *row_places(struct importer *im, const struct operand *v, int64_t batch, int *n)
{
	struct operand *ids = operand_needed(im, 1);
	const char *sum = "", *x = operand_tensor(im, ids);
	int rank = ids->rank - 1;
	int64_t k = rank < 0 ? 0 : operand_size(im, ids, rank);
	if (k < 1 || batch < 0 || batch > rank || k > v->rank - batch || im->failed) {
		import_refuse(im, "%s: ids of %lld axes of %d", im->node->op, (long long)k, v->rank);
		return "";
	}
	*n = (int)(batch + k);
	for (int i = 0; i < *n; i++) {
		const char *at;
		if (i < batch)
			at = places_text(im, v->dims[i], i, rank);
		else
			at = ids_from_end(im,
			                  import_statement(im, "ids",
			                                   "reshape(slice(%s, axis=-1, begin=%d, "
			                                   "end=%d), %s)",
			                                   x, i - (int)batch, i - (int)batch + 1,
			                                   dims_text(im, rank, ids->dims)),
			                  ids->dtype, v->dims[i]);
		sum = add_term(im, sum, at, count_of(im, v, i + 1, *n));
	}
	return import_statement(im, "places", "%s", sum);
}

/* Ids [.., k] name rows by their first k axes, or the k after batch_dims. */
bool import_gather_nd(struct importer *im)
{
	struct operand *v = operand_needed(im, 0);
	int n = 0;
	const char *places = row_places(im, v, attribute_int(im, "batch_dims", 0), &n);
	if (im->failed)
		return false;
	return import_output(im, 0, "gather(%s, %s, axis=0)", flat_text(im, v, n), places);
}

/* Operand 0 with the rows of operand 2 at the ids [.., k]. */
bool import_scatter_nd(struct importer *im)
{
	struct operand *v = operand_needed(im, 0);
	int n = 0;
	const char *places = row_places(im, v, 0, &n);
	return !im->failed && output_scattered(im, v, n, places);
}
