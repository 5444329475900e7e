/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The evaluator's core: tensors in memory, the cache of emitted values, recursion from a value to its operands, loads
 * and stores, and helpers for sizes, indices and constants.
 *
 * A *point* (struct eval_point) is one index per axis of a value; along its axis vec a vector of e->lanes neighbours
 * is meant, of which e->valid exist; vec -1: a scalar. Its `flat` is the row number, by which rows of a flat tensor
 * are addressed with one multiplication. The cache contains what was emitted in the open scopes (eval_mark,
 * eval_release), so that code dominates its uses. ring: rows of a state that is a ring buffer, where row i is stored
 * at i % ring. A failure sets flags in e and emission goes on with dummies; eval_status tells at the end. A kb_val with
 * id 0 is none.
 *
 * A row offset is the element offset of a point without its axis vec: the same for all vectors of a row, so that it is
 * emitted once, before the loop along vec (eval_hoist). Weights may be matrices in packed panels of 16 columns
 * [ceil(N/16)][K][16] (ENC_PANEL16, ir/target/tile.h). Analyses before emission (eval_vectorizes, eval_hoist) visit
 * shared operands again and stop after BUDGET values, with the safe answer.
 */
#include "backends/kernels/eval.h"
#include "backends/kernels/panel.h"
#include "ir/core/view.h"
#include "ir/support/checked.h"
#include "ir/target/tile.h"

/* ---- values ---- */

#define DEPTH_MAX 256

/* ---- failure ---- */

enum tfmc_status eval_status(const struct eval *e)
{
	if (e->no_memory)
		return TFMC_NO_MEMORY;
	if (!e->failed)
		return TFMC_OK;
	return e->unsupported ? TFMC_INVALID : TFMC_INTERNAL;
}

/* Reports an error at op (NULL: the group), unless the group has one already: later ones follow from dummies. Returns
 * none. */
static struct kb_val report(struct eval *e, const struct ir_op *op, enum diag_code code, const char *prefix,
                            const char *what)
{
	struct loc at = op ? op->loc.at : e->job->group->loc.at;
	if (!e->failed)
		diag_error(e->job->cx, at, code, "%s%s (%s)", prefix, what,
		           op ? ir_op_desc(op->code)->name : "group");
	e->unsupported = e->failed ? e->unsupported : code != DIAG_INTERNAL;
	e->failed = true;
	return (struct kb_val){0};
}

struct kb_val eval_internal(struct eval *e, const struct ir_op *op, const char *what)
{
	return report(e, op, DIAG_INTERNAL, "kernel: ", what);
}

struct kb_val eval_unsupported(struct eval *e, const struct ir_op *op, const char *what)
{
	return report(e, op, DIAG_UNSUPPORTED, "not supported yet: ", what);
}

void eval_reject(struct eval *e, const char *why)
{
	(void)report(e, NULL, DIAG_SCHEDULE, "", why);
}

/* ---- tensors ---- */

bool eval_is_in_group(const struct eval *e, struct ir_value v)
{
	return ir_value_info(e->job->func, v)->region == e->job->group->region;
}

/*
 * True if all axes but the last can be linearized: the stride of each is size * stride of the next, axes of size 1
 * left out. Sets the stride of axis rank - 2 to the row stride; if that axis has size 1, its own stride was arbitrary
 * and its index is always 0.
 */
static bool linearize_rows(const struct eval *e, const struct ir_view *v, struct kb_tensor *t)
{
	int inner = -1; /* the next axis after i of more than one element */
	for (int i = v->rank - 2; i >= 0; i--) {
		if (v->state_axis[i])
			return false;
		if (ir_dim_equals(v->size[i], 1))
			continue;
		if (inner < 0)
			t->stride[v->rank - 2] = t->stride[i];
		else if (v->stride[i] != ir_dim_mul(e->job->module->dims, v->stride[inner], v->size[inner]))
			return false;
		inner = i;
	}
	return v->rank >= 2 && !v->state_axis[v->rank - 1];
}

/* True if v is in memory before the group runs: a value from outside of it, a weight, which an op inside refers to, or
 * a view of one. */
static bool is_from_outside(const struct eval *e, struct ir_value v)
{
	struct ir_value base = ir_view_base(e->job->func, v);
	const struct ir_op *op = ir_def(e->job->func, base);
	return !eval_is_in_group(e, base) || (op && op->code == OP_weight);
}

/* Looks up the memory of v, if it has any, in the binding: values from outside of the group. Leaves rank -1 (not in
 * memory) for values that the group computes; id 0 (an absent operand), states and values that were looked up before
 * are skipped. */
static void resolve_tensor(struct eval *e, struct ir_value v)
{
	const struct kernel_job *job = e->job;
	struct eval_tensor *t = &e->tensors[v.id];
	struct ir_view view;
	if (v.id == 0 || t->t.rank >= 0 || ir_type_of(job->func, v)->kind != IR_TENSOR ||
	    !is_from_outside(e, v))
		return;
	struct kb_tensor found = {0};
	if (!job->bind->tensor(job->bind->user, job->k, v, &found))
		return;
	t->t = found;
	t->is_flat = found.encoding == ENC_ROW && found.ring == 0 &&
	             ir_view_resolve(job->module, job->func, v, &view) && linearize_rows(e, &view, &t->t);
}

enum tfmc_status eval_begin(struct eval *e, const struct kernel_job *job)
{
	const struct ir_region *r = job->group->region;
	*e = (struct eval){.job = job, .k = job->k, .lanes = 1, .valid = 1};
	e->tensors = ARENA_ARRAY(job->arena, struct eval_tensor, job->func->n_values);
	e->proofs = ARENA_ARRAY(job->arena, struct eval_proof, job->func->n_values);
	if (!e->tensors || !e->proofs)
		return TFMC_NO_MEMORY;
	for (size_t i = 0; i < job->func->n_values; i++)
		e->tensors[i].t.rank = -1;
	for (size_t i = 0; i < r->n_ops; i++) {
		for (size_t n = 0; n < r->ops[i]->n_operands; n++)
			resolve_tensor(e, r->ops[i]->operands[n]);
		if (ir_op_has(r->ops[i]->code, TRAIT_VIEW))
			resolve_tensor(e, eval_result(r->ops[i]));
	}
	return TFMC_OK;
}

const struct eval_tensor *eval_tensor(const struct eval *e, struct ir_value v)
{
	return e->tensors[v.id].t.rank >= 0 ? &e->tensors[v.id] : NULL;
}

void eval_set_tensor(struct eval *e, struct ir_value v, const struct eval_tensor *t,
                     const struct eval_bias *bias)
{
	struct eval_bias *copy = bias->v.id ? ARENA_NEW(e->job->arena, struct eval_bias) : NULL;
	if (copy)
		*copy = *bias;
	e->no_memory = e->no_memory || (bias->v.id && !copy);
	e->tensors[v.id] = *t;
	e->tensors[v.id].bias = copy;
}

/* Changes the tensor of a result to the axes of the value it is a view of: sizes, strides and offset (elements) of
 * `view`, the inverse of the view (ir_view_inverse). */
static void address_by_view(struct eval *e, const struct ir_view *view, struct kb_tensor *t)
{
	const struct kernel_binding *b = e->job->bind;
	int64_t bytes = ir_dtype_bytes(t->dtype);
	struct kb_val skip = kb_mul_const(e->k, eval_dim(e, view->offset), bytes);
	t->ptr = kb_ptr_add(e->k, t->ptr, skip, 0);
	t->rank = view->rank;
	for (int i = 0; i < view->rank; i++) {
		t->size[i] = b->dim(b->user, e->k, view->size[i]);
		t->stride[i] = b->dim(b->user, e->k, view->stride[i]);
	}
}

/* Describes result i of the group, which yields y. If y is a view of a value that the group computes, that value is
 * stored through the inverse of the view, so that no copy is needed; a view without inverse is evaluated element by
 * element. False after a diagnostic. */
static bool make_output(struct eval *e, size_t i, struct ir_value y, struct eval_output *out)
{
	const struct kernel_job *job = e->job;
	struct ir_value base = ir_view_base(job->func, y);
	struct ir_view view;
	out->value = y;
	if (!job->bind->tensor(job->bind->user, e->k, job->group->results[i], &out->to.t)) {
		eval_internal(e, NULL, "a result has no memory");
		return false;
	}
	out->to.is_flat = ir_view_resolve(job->module, job->func, job->group->results[i], &view) &&
	                  linearize_rows(e, &view, &out->to.t);
	bool is_view = !ir_same_value(base, y) && eval_is_in_group(e, base) &&
	               ir_view_inverse(job->module, job->func, y,
	                               ir_row_pad(job->func, job->group->results[i]), &view);
	if (is_view) {
		out->value = base;
		address_by_view(e, &view, &out->to.t);
		out->to.is_flat = linearize_rows(e, &view, &out->to.t);
	}
	return true;
}

enum tfmc_status eval_outputs(struct eval *e, struct eval_outputs *out)
{
	const struct kernel_job *job = e->job;
	const struct ir_region *r = job->group->region;
	const struct ir_op *yield = r->ops[r->n_ops - 1];
	out->n = 0;
	out->items = ARENA_ARRAY(job->arena, struct eval_output, yield->n_operands + 1);
	if (!out->items)
		return TFMC_NO_MEMORY;
	for (size_t i = 0; i < yield->n_operands; i++) {
		struct ir_value y = yield->operands[i], base = ir_view_base(job->func, y);
		/* a state slice that this group wrote is in place already; any other one must be copied */
		bool written = eval_is_in_group(e, base) && ir_is_state_slice(job->func, base);
		if (ir_type_of(job->func, y)->kind == IR_STATE || written)
			continue;
		if (!make_output(e, i, y, &out->items[out->n++]))
			return eval_status(e);
	}
	return TFMC_OK;
}

/* ---- cache ---- */

/* The key of v at p. In memory from outside, elements of slices with constant bounds, perhaps of slices again, are of
 * the sliced value, and an axis of stride 0 has one element. */
static struct eval_entry key_of(const struct eval *e, struct ir_value v, const struct eval_point *p,
                                bool is_offset)
{
	struct eval_entry key = {.value = v.id, .point = *p, .lanes = e->lanes, .is_offset = is_offset};
	const struct eval_tensor *t = eval_tensor(e, v);
	int64_t begin;
	for (int i = 0; i < p->rank; i++)
		key.point.index[i] = kb_split_index(e->k, p->index[i], &key.plus[i]);
	if (is_offset || !t || !is_from_outside(e, v))
		return key;
	for (int i = 0; i < p->rank; i++)
		if (i != p->vec && t->t.stride[i].is_const && t->t.stride[i].c == 0) {
			key.point.index[i] = (struct kb_val){0};
			key.plus[i] = 0;
		}
	for (const struct ir_op *op; (op = ir_def(e->job->func, v)) && op->code == OP_slice;) {
		const struct attrs_slice *slice = op->attrs;
		if (!ir_dim_is_const(slice->begin, &begin) ||
		    !checked_add_i64(key.plus[slice->axis], begin, &key.plus[slice->axis]))
			break;
		v = op->operands[0];
		key.value = v.id;
	}
	return key;
}

/* True if both keys surely address the same elements: rank, vec, and all indices but that of axis `without` (-1: none)
 * are equal: one emitted value, or none, plus the same constant. */
static bool same_point(const struct eval_entry *a, const struct eval_entry *b, int without)
{
	if (a->point.rank != b->point.rank || a->point.vec != b->point.vec)
		return false;
	for (int i = 0; i < a->point.rank; i++)
		if (i != without &&
		    (a->point.index[i].id != b->point.index[i].id || a->plus[i] != b->plus[i]))
			return false;
	return true;
}

/* The cached value of key in the current number of lanes, or its row offset, which does not depend on lanes or on the
 * index along vec; NULL: not cached. Newest first, as it is most often the one. */
static const struct eval_entry *find_cached(const struct eval *e, const struct eval_entry *key)
{
	for (size_t i = e->cache.n; i-- > 0;) {
		const struct eval_entry *c = &e->cache.items[i];
		bool width = key->is_offset || c->lanes == key->lanes;
		if (c->value == key->value && c->is_offset == key->is_offset && width &&
		    same_point(c, key, key->is_offset ? key->point.vec : -1))
			return c;
	}
	return NULL;
}

/* Caches result for key in the current scope: newest last, so that eval_release can drop it. */
static void add_cached(struct eval *e, const struct eval_entry *key, struct kb_val result)
{
	struct eval_entry *c = ARENA_PUSH(e->job->arena, &e->cache);
	if (!c) {
		e->no_memory = true;
		return;
	}
	*c = *key;
	c->result = result;
}

void eval_bind(struct eval *e, struct ir_value v, const struct eval_point *p, struct kb_val value)
{
	const struct eval_entry key = key_of(e, v, p, false);
	add_cached(e, &key, value);
}

size_t eval_mark(const struct eval *e)
{
	return e->cache.n;
}

void eval_release(struct eval *e, size_t mark)
{
	e->cache.n = mark;
}

struct eval_width eval_width(struct eval *e, int lanes, int valid)
{
	struct eval_width before = {e->lanes, e->valid};
	e->lanes = lanes;
	e->valid = valid;
	return before;
}

/* eval_offset of t, the tensor of v, at p, cached: emitted only once in a scope. */
static struct kb_val eval_row_offset(struct eval *e, struct ir_value v, const struct eval_tensor *t,
                                     const struct eval_point *p)
{
	const struct eval_entry key = key_of(e, v, p, true), *c = find_cached(e, &key);
	if (c)
		return c->result;
	struct kb_val offset = eval_offset(e, t, p);
	add_cached(e, &key, offset);
	return offset;
}

/* ---- memory ---- */

enum kb_scalar eval_stored_scalar(enum ir_dtype t)
{
	switch (t) {
	case DT_F32: return KB_F32;
	case DT_F16: return KB_F16;
	case DT_BF16: return KB_BF16;
	case DT_F64: return KB_F64;
	case DT_I8: return KB_I8;
	case DT_U8: return KB_U8;
	case DT_I16: return KB_I16;
	case DT_I32: return KB_I32;
	case DT_I64: return KB_I64;
	case DT_BOOL: return KB_U8;
	}
	return KB_F32;
}

/* Converts a loaded value to the type it is computed in; bools are bytes != 0. */
static struct kb_val from_stored(struct eval *e, enum ir_dtype t, struct kb_val v)
{
	if (t != DT_BOOL)
		return kb_cvt(e->k, v, eval_scalar(t));
	struct kb_val zero = kb_bin(e->k, KB_XOR, v, v);
	return kb_cmp(e->k, KB_NE, v, zero);
}

/* The stored index on `axis`: modulo the ring on the axis of a ring buffer, which is the last but one. */
static struct kb_val wrap_in_ring(struct eval *e, const struct kb_tensor *t, int axis, struct kb_val index)
{
	bool is_row = t->ring > 0 && axis == t->rank - 2;
	return is_row ? kb_rem_const(e->k, index, t->ring) : index;
}

/* A flat tensor needs one multiplication for all axes but the last, unless lanes run along one of them. A state in
 * panels: its last two axes are addressed as packed matrices, in addition to the strides of the axes before. */
struct kb_val eval_offset(struct eval *e, const struct eval_tensor *t, const struct eval_point *p)
{
	struct kb *k = e->k;
	struct kb_val sum = t->skip.id ? t->skip : kb_index(k, 0);
	int last = t->t.rank - 1, from = 0;
	if (t->is_flat && p->flat.id && (p->vec < 0 || p->vec == last)) {
		sum = kb_add(k, sum, kb_mul(k, p->flat, t->t.stride[last - 1].v));
		from = last;
	}
	for (int i = from; i <= last; i++)
		if (i != p->vec)
			sum = kb_add(k, sum,
			             kb_mul(k, wrap_in_ring(e, &t->t, i, p->index[i]), t->t.stride[i].v));
	if (t->t.encoding != ENC_PANEL16 || last <= 1)
		return sum;
	/* element [n, 0] of a matrix packed as panels [ceil(N/16)][K][16] is at (n - n % 16) * K + n % 16 */
	struct kb_val n = p->index[last - 1], width = kb_index(k, 16), column = kb_bin(k, KB_REM, n, width);
	struct kb_val panel = kb_mul(k, kb_sub(k, n, column), t->t.size[last].v);
	return kb_add(k, sum, kb_add(k, panel, column));
}

static struct kb_val load_panel(struct eval *e, const struct eval_tensor *t, const struct eval_point *p);

/* Lanes along K are not neighbours in panels, whose rows are 16 columns: one element after the other. */
static struct kb_val load_panel_per_lane(struct eval *e, const struct eval_tensor *t,
                                         const struct eval_point *p)
{
	struct kb_val lane[KB_LANES_MAX];
	for (int l = 0; l < e->valid; l++) {
		struct eval_point at = *p;
		at.vec = -1;
		at.index[p->vec] = kb_add_const(e->k, p->index[p->vec], l);
		lane[l] = load_panel(e, t, &at);
	}
	return eval_build_vector(e, lane);
}

/* Element (.., n, i) of quantized matrices in panels, dequantized; lanes are columns n. The layout depends on K, so a
 * row of unknown length is an error. */
static struct kb_val load_quantized(struct eval *e, const struct eval_tensor *t, const struct eval_point *p)
{
	struct kb *k = e->k;
	int row = t->t.rank - 2;
	struct kb_val width = kb_index(k, PANEL_COLUMNS), n = p->index[row];
	if (!t->t.size[row + 1].is_const)
		return eval_internal(e, NULL, "quantized rows of an unknown length");
	const struct panel panel = panel_of(t->t.format, t->t.size[row + 1].c);
	struct kb_val bytes = kb_mul_const(k, kb_bin(k, KB_DIV, n, width), panel.bytes);
	for (int a = 0; a < row; a++) {
		struct kb_val skip = kb_mul(k, p->index[a], t->t.stride[a].v);
		bytes = kb_add(k, bytes, kb_mul_const(k, skip, ir_dtype_bytes(t->t.dtype)));
	}
	struct kb_val at = kb_ptr_add(k, t->t.ptr, bytes, 0), column = kb_bin(k, KB_REM, n, width);
	return panel_dequantize(k, &panel, at, column, p->index[row + 1], p->vec == row ? e->lanes : 1);
}

/* Element (.., n, i) of matrices packed as panels [ceil(N/16)][K][16], as f32; f16, bf16 and quantized layouts are in
 * tile.h. bf16: offsets count u32 pairs of K elements. Lanes are columns n; those along K are loaded one by one. */
static struct kb_val load_panel(struct eval *e, const struct eval_tensor *t, const struct eval_point *p)
{
	struct kb *k = e->k;
	int row = t->t.rank - 2;
	if (p->vec >= 0 && p->vec != row && e->lanes > 1)
		return load_panel_per_lane(e, t, p);
	struct kb_val n = p->index[row], i = p->index[row + 1], width = kb_index(k, 16);
	if (ir_format_is_quantized(t->t.format))
		return load_quantized(e, t, p);
	struct kb_val depth = t->t.size[row + 1].v, row_k = kb_index(k, panel_row_k(t->t.dtype));
	if (t->t.dtype != DT_F32) /* K is padded to an even number */
		depth = kb_mul(k, kb_bin(k, KB_DIV, kb_add_const(k, depth, 1), row_k), row_k);
	bool pairs = t->t.dtype == DT_BF16; /* offsets count u32 of two elements, otherwise elements */
	struct kb_val panel = kb_mul(k, kb_bin(k, KB_DIV, n, width), depth), at = kb_add(k, panel, i);
	at = kb_mul(k, pairs ? kb_bin(k, KB_DIV, at, row_k) : at, width);
	at = kb_add(k, at, kb_bin(k, KB_REM, n, width));
	for (int a = 0; a < row; a++) {
		struct kb_val skip = kb_mul(k, p->index[a], t->t.stride[a].v);
		at = kb_add(k, at, pairs ? kb_bin(k, KB_DIV, skip, row_k) : skip);
	}
	int lanes = p->vec == row ? e->lanes : 1;
	if (pairs)
		return panel_load_bf16(k, t->t.ptr, at, i, lanes);
	struct kb_val raw = kb_load(k, KB_TYPE(eval_stored_scalar(t->t.dtype), lanes), t->t.ptr, at, 0, 0);
	return from_stored(e, t->t.dtype, raw);
}

/* A gather of elements that are not neighbours in memory: one load per valid lane along `axis`, from index `first` on
 * (each index modulo a ring). row: offset of all other axes. */
static struct kb_val load_lanes(struct eval *e, const struct eval_tensor *t, struct kb_val row, int axis,
                                struct kb_val first)
{
	struct kb_val stride = t->t.stride[axis].v;
	struct kb_val lane[KB_LANES_MAX];
	enum kb_scalar s = eval_stored_scalar(t->t.dtype);
	for (int l = 0; l < e->valid; l++) {
		struct kb_val index = wrap_in_ring(e, &t->t, axis, kb_add_const(e->k, first, l));
		struct kb_val at = kb_add(e->k, row, kb_mul(e->k, index, stride));
		struct kb_val raw = kb_load(e->k, KB_TYPE(s, 1), t->t.ptr, at, 0, 0);
		lane[l] = from_stored(e, t->t.dtype, raw);
	}
	return eval_build_vector(e, lane);
}

/* v at p, loaded from t and converted to the type it is computed in: a scalar, or a vector by the stride along p->vec
 * (0: one element for all lanes, 1: vector load; else, and along a ring, a gather). Of panels only weights
 * are loaded by element: attention reads those of states itself. */
static struct kb_val load(struct eval *e, struct ir_value v, const struct eval_tensor *t,
                          const struct eval_point *p)
{
	struct kb *k = e->k;
	enum kb_scalar s = eval_stored_scalar(t->t.dtype);
	const struct ir_op *def = ir_def(e->job->func, v);
	if (t->t.encoding == ENC_PANEL16 && t->t.rank > 2 && !(def && def->code == OP_weight))
		return eval_internal(e, NULL, "an element of a state in panels");
	if (t->t.encoding == ENC_PANEL16)
		return load_panel(e, t, p);
	struct kb_val row = eval_row_offset(e, v, t, p);
	if (p->vec < 0)
		return from_stored(e, t->t.dtype, kb_load(k, KB_TYPE(s, 1), t->t.ptr, row, 0, 0));
	struct kb_size stride = t->t.stride[p->vec];
	struct kb_val first = p->index[p->vec];
	if (e->lanes == 1) {
		first = wrap_in_ring(e, &t->t, p->vec, first);
		struct kb_val at = kb_add(k, row, kb_mul(k, first, stride.v));
		return from_stored(e, t->t.dtype, kb_load(k, KB_TYPE(s, 1), t->t.ptr, at, 0, 0));
	}
	struct kb_type type = KB_TYPE(s, e->lanes);
	if (stride.is_const && stride.c == 0)
		return from_stored(e, t->t.dtype, kb_load_splat(k, type, t->t.ptr, row, 0));
	if (!stride.is_const || stride.c != 1 || (t->t.ring > 0 && p->vec == t->t.rank - 2))
		return load_lanes(e, t, row, p->vec, first);
	struct kb_val raw = kb_load_part(k, type, e->valid, t->t.ptr, kb_add(k, row, first), 0);
	return from_stored(e, t->t.dtype, raw);
}

/* A scatter: stores the valid lanes, which are not neighbours in memory, one by one; row: offset of all other axes. */
static void store_lanes(struct eval *e, const struct eval_tensor *t, struct kb_val row,
                        const struct eval_point *p, struct kb_val value)
{
	for (int l = 0; l < e->valid; l++) {
		struct kb_val i = kb_add_const(e->k, p->index[p->vec], l);
		struct kb_val at = kb_add(e->k, row, kb_mul(e->k, i, t->t.stride[p->vec].v));
		kb_store(e->k, kb_lane(e->k, value, l), t->t.ptr, at, 0, 0);
	}
}

/* Rounds to the stored type. A vector store of the valid lanes where they are neighbours in memory, else a scatter. */
void eval_store(struct eval *e, const struct eval_tensor *t, const struct eval_point *p, struct kb_val value)
{
	struct kb *k = e->k;
	struct kb_val row = eval_offset(e, t, p);
	value = kb_cvt(k, value, eval_stored_scalar(t->t.dtype));
	if (p->vec < 0) {
		kb_store(k, value, t->t.ptr, row, 0, 0);
		return;
	}
	value = kb_splat(k, value, e->lanes);
	struct kb_size stride = t->t.stride[p->vec];
	if (e->lanes > 1 && stride.is_const && stride.c == 1)
		kb_store_part(k, value, e->valid, t->t.ptr, kb_add(k, row, p->index[p->vec]), 0);
	else
		store_lanes(e, t, row, p, value);
}

void eval_store_output(struct eval *e, const struct eval_output *o, const struct eval_point *p)
{
	struct kb_val v = eval_value(e, o->value, p);
	eval_store(e, &o->to, p, v);
}

/* ---- values ---- */

/* full, iota, dim_value */
static struct kb_val constant_value(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	const struct attrs_full *full = op->attrs;
	const struct attrs_iota *iota = op->attrs;
	const struct attrs_dim_value *dim = op->attrs;
	if (op->code == OP_full)
		return eval_const(e, p, eval_scalar(full->dtype), full->value);
	if (op->code == OP_iota) {
		struct kb_val i = eval_index_i32(e, p, (int)iota->axis);
		return kb_add(e->k, i, eval_const(e, p, KB_I32, (double)iota->start));
	}
	struct kb_val v = kb_cvt(e->k, eval_dim(e, dim->dim), KB_I32);
	return p->vec < 0 ? v : kb_splat(e->k, v, e->lanes);
}

/* The result of an op, which is not in memory, from its operands, by the kind of the op. Views forward to another
 * point of the operand. */
static struct kb_val op_value(struct eval *e, const struct ir_op *op, const struct eval_point *p)
{
	if (op->code == OP_full || op->code == OP_iota || op->code == OP_dim_value)
		return constant_value(e, op, p);
	if (ir_op_has(op->code, TRAIT_ELEMENTWISE))
		return eval_elementwise(e, op, p);
	if (ir_op_has(op->code, TRAIT_VIEW) || ir_op_has(op->code, TRAIT_MOVE))
		return eval_movement(e, op, p);
	return eval_by_loops(e, op, p);
}

/* The value of v, which is not in memory, with the source location of its op; a value without an op is the index of a
 * repeat, which the binding knows. */
static struct kb_val computed_value(struct eval *e, struct ir_value v, const struct eval_point *p)
{
	const struct kernel_binding *b = e->job->bind;
	const struct ir_op *op = ir_def(e->job->func, v);
	if (op) {
		uint32_t before = kernel_set_loc(e->k, e->job->cx, op->loc);
		struct kb_val result = op_value(e, op, p);
		kb_reset_loc(e->k, before);
		return result;
	}
	struct kb_val index = b->index(b->user, e->k, v);
	if (!index.id)
		return eval_internal(e, NULL, "a value has no memory");
	return kb_cvt(e->k, index, KB_I32);
}

/* x + bias; x was loaded at p from a buffer whose bias is not yet added. The column of the bias is a linear function
 * of p (begin and step), perhaps no multiple of the lanes (shifted). Lanes along another axis share one element. */
static struct kb_val add_bias(struct eval *e, const struct eval_bias *b, const struct eval_point *p,
                              struct kb_val x)
{
	int last = b->expert.id ? 1 : 0;
	struct eval_point at = {.rank = last + 1, .index = {b->expert}, .shifted = true};
	at.vec = p->vec == p->rank - 1 ? last : -1;
	struct kb_val column = kb_index(e->k, b->begin);
	for (int i = 0; i < p->rank; i++)
		column = kb_add(e->k, column, kb_mul_const(e->k, p->index[i], b->step[i]));
	at.index[last] = column;
	return kb_add(e->k, x, eval_value(e, b->v, &at));
}

/* Looked up in the cache, loaded, or computed. After a failure, a constant of the right type, so that callers need no
 * checks; DEPTH_MAX bounds the recursion. */
struct kb_val eval_value(struct eval *e, struct ir_value v, const struct eval_point *p)
{
	const struct eval_entry key = key_of(e, v, p, false), *c = find_cached(e, &key);
	if (c)
		return c->result;
	if (e->depth > DEPTH_MAX)
		(void)eval_unsupported(e, ir_def(e->job->func, v), "an expression this deep");
	if (e->failed)
		return eval_const(e, p, eval_scalar(eval_type(e, v)->dtype), 0);
	e->depth++;
	const struct eval_tensor *t = eval_tensor(e, v);
	struct kb_val result = t ? load(e, v, t, p) : computed_value(e, v, p);
	if (t && t->bias)
		result = add_bias(e, t->bias, p, result);
	e->depth--;
	if (!result.id)
		return eval_const(e, p, eval_scalar(eval_type(e, v)->dtype), 0);
	add_cached(e, &key, result);
	return result;
}

/* ---- sizes, indices, constants, tasks ---- */

enum kb_scalar eval_scalar(enum ir_dtype t)
{
	switch (t) {
	case DT_F32:
	case DT_F16:
	case DT_BF16: return KB_F32;
	case DT_F64: return KB_F64;
	case DT_I8:
	case DT_U8:
	case DT_I16:
	case DT_I32: return KB_I32;
	case DT_I64: return KB_I64;
	case DT_BOOL: return KB_BOOL;
	}
	return KB_F32;
}

struct kb_val eval_dim(struct eval *e, const struct ir_dim *d)
{
	return e->job->bind->dim(e->job->bind->user, e->k, d).v;
}

void eval_sizes(struct eval *e, struct ir_value v, struct kb_val size[IR_RANK_MAX])
{
	const struct ir_type *t = eval_type(e, v);
	for (int i = 0; i < t->rank; i++)
		size[i] = eval_dim(e, t->dims[i]);
}

struct kb_val eval_dim_product(struct eval *e, const struct kb_val *size, int from, int to)
{
	struct kb_val n = kb_index(e->k, 1);
	for (int i = from; i < to; i++)
		n = kb_mul(e->k, n, size[i]);
	return n;
}

/* The last axis varies fastest; the first one needs no remainder, since `at` is below the product of the sizes. */
void eval_unravel(struct eval *e, struct kb_val at, const struct kb_val *size, int n, struct kb_val *index)
{
	for (int i = n - 1; i > 0; i--) {
		index[i] = kb_bin(e->k, KB_REM, at, size[i]);
		at = kb_bin(e->k, KB_DIV, at, size[i]);
	}
	if (n > 0)
		index[0] = at;
}

/* The first total % n_workers workers get one more. Not worker * total / n_workers, which may overflow a 32-bit
 * index. */
struct kb_val eval_worker_range(struct eval *e, struct kb_val total, struct kb_val *hi)
{
	struct kb *k = e->k;
	struct kb_val worker = e->job->worker, n = e->job->n_workers;
	struct kb_val each = kb_bin(k, KB_DIV, total, n), more = kb_bin(k, KB_REM, total, n);
	struct kb_val extra = kb_min(k, worker, more);
	struct kb_val lo = kb_add(k, kb_mul(k, worker, each), extra);
	struct kb_val one = kb_index(k, 1), zero = kb_index(k, 0);
	struct kb_val longer = kb_select(k, kb_cmp(k, KB_LT, worker, more), one, zero);
	*hi = kb_add(k, kb_add(k, lo, each), longer);
	return lo;
}

/* The constant v of a type that values are computed in, or an index. */
static struct kb_val scalar_const(struct eval *e, enum kb_scalar s, double v)
{
	switch (s) {
	case KB_F32: return kb_f32(e->k, (float)v);
	case KB_F64: return kb_f64(e->k, v);
	case KB_I32: return kb_i32(e->k, (int32_t)v);
	case KB_I64: return kb_i64(e->k, f64_to_i64(v));
	case KB_INDEX: return kb_index(e->k, (int64_t)v);
	case KB_BOOL: return kb_bool(e->k, v != 0);
	case KB_VOID:
	case KB_I8:
	case KB_U8:
	case KB_I16:
	case KB_U16:
	case KB_F16:
	case KB_BF16:
	case KB_PTR: break;
	}
	return kb_f32(e->k, (float)v);
}

struct kb_val eval_const(struct eval *e, const struct eval_point *p, enum kb_scalar s, double v)
{
	struct kb_val c = scalar_const(e, s, v);
	return p->vec < 0 ? c : kb_splat(e->k, c, e->lanes);
}

struct kb_val eval_index_i32(struct eval *e, const struct eval_point *p, int axis)
{
	struct kb_val i = kb_cvt(e->k, p->index[axis], KB_I32);
	if (p->vec < 0 || e->lanes == 1)
		return i;
	i = kb_splat(e->k, i, e->lanes);
	return p->vec == axis ? kb_add(e->k, i, kb_lane_ids(e->k, e->lanes)) : i;
}

/* By selects on the lane number: the kernel IR cannot insert a lane. Lanes beyond the valid ones repeat lane 0. */
struct kb_val eval_build_vector(struct eval *e, const struct kb_val *lane)
{
	if (e->lanes == 1)
		return lane[0];
	struct kb_val all = kb_splat(e->k, lane[0], e->lanes);
	struct kb_val ids = kb_lane_ids(e->k, e->lanes);
	for (int l = 1; l < e->valid; l++) {
		struct kb_val here = kb_cmp(e->k, KB_EQ, ids, kb_splat(e->k, kb_i32(e->k, l), e->lanes));
		all = kb_select(e->k, here, kb_splat(e->k, lane[l], e->lanes), all);
	}
	return all;
}

/* ---- analyses ---- */

/*
 * The evaluator: analyses before code is emitted. eval_vectorizes: are lanes along an axis neighbours in every
 * operand, down to memory. eval_hoist: which row offsets are invariant in a loop along an axis.
 */

/* Values visited by one analysis; beyond it the answer is no. */
#define BUDGET 4096

struct analysis {
	struct eval *e;
	int budget;
};

#define NO_AXIS (-2) /* lanes would not be neighbours */

/* True if lanes along the axis are neighbours in memory, or one element (axis -1, stride 0). Panels: neighbouring
 * columns are, for vectors of at most a panel; elements along K are loaded one by one, which loads allow, too. A ring:
 * a vector may wrap. */
static bool tensor_vectorizes(const struct analysis *q, const struct eval_tensor *t, int axis)
{
	if (axis < 0)
		return true;
	if (t->t.encoding == ENC_PANEL16)
		return axis == t->t.rank - 1 || (axis == t->t.rank - 2 && kb_caps(q->e->k)->lanes <= 16);
	if (t->t.ring > 0 && axis == t->t.rank - 2)
		return false;
	return t->t.stride[axis].is_const && (t->t.stride[axis].c == 0 || t->t.stride[axis].c == 1);
}

/* True if op, a reduction or argmax of an operand of that rank, reduces the axis. */
static bool is_reduced(const struct ir_op *op, int rank, int axis)
{
	const struct attrs_reduce_sum *a = op->attrs;
	const struct attrs_argmax *arg = op->attrs;
	if (op->code == OP_argmax)
		return (arg->axis < 0 ? arg->axis + rank : arg->axis) == axis;
	for (size_t i = 0; i < a->axes.n; i++)
		if ((a->axes.items[i] < 0 ? a->axes.items[i] + rank : a->axes.items[i]) == axis)
			return true;
	return false;
}

/* The axis of a reduction's operand that becomes `axis` of the result; -1: none (a reduced axis kept with size 1: one
 * element for all lanes). */
static int reduced_axis(const struct analysis *q, const struct ir_op *op, int axis)
{
	int rank = eval_type(q->e, op->operands[0])->rank, at = 0;
	bool keep = op->code != OP_argmax && ((const struct attrs_reduce_sum *)op->attrs)->keep;
	if (keep)
		return is_reduced(op, rank, axis) ? -1 : axis;
	for (int i = 0; i < rank; i++)
		if (!is_reduced(op, rank, i) && at++ == axis)
			return i;
	return -1;
}

/* The axis of operand i along which lanes run if they run along `axis` of the result; -1: the operand is the same for
 * all lanes; NO_AXIS: lanes would not be neighbours there, or the evaluator computes this op for single elements only.
 * Contractions have lanes along N, the last axis. Elementwise ops: the axis itself. */
static int operand_axis(const struct analysis *q, const struct ir_op *op, size_t i, int axis)
{
	int last = eval_type(q->e, eval_result(op))->rank - 1, ids;
	const struct attrs_matmul *matmul = op->attrs;
	const struct attrs_pad *pad = op->attrs;
	const struct attrs_concat *concat = op->attrs;
	if (axis < 0)
		return -1;
	switch ((int)op->code) {
	case OP_mask_rows: return i == 0 ? axis : axis == 0 ? 0 : -1;
	case OP_mask: return axis != last ? NO_AXIS : i == 0 ? axis : -1;
	case OP_block_argmax:
	case OP_block_log_softmax:
	case OP_cumsum:
	case OP_topk:
	case OP_last_index: return NO_AXIS;
	case OP_matmul:
		if (axis != last)
			return NO_AXIS;
		return i == 0 ? -1 : matmul->tb ? last - 1 : last;
	case OP_linear: return axis != last ? NO_AXIS : i == 0 ? -1 : 0;
	case OP_expert_linear: return axis != last ? NO_AXIS : i % 2 == 0 ? -1 : 1;
	case OP_rope: /* a vector stays in one half, in x and in the table */
		if (axis != last || !eval_rope_vectorizes(q->e, op, kb_caps(q->e->k)->lanes))
			return NO_AXIS;
		return i == 0 ? last : i == 1 ? 1 : -1;
	case OP_gather:
	case OP_select_rows:
		ids = op->code == OP_gather ? eval_type(q->e, op->operands[1])->rank : 1;
		if (axis < ids)
			return NO_AXIS;
		return i > 0 ? -1 : op->code == OP_gather ? axis - ids + 1 : axis + 1;
	case OP_pad: return axis == (int)pad->axis ? NO_AXIS : axis;
	case OP_concat: return axis == (int)concat->axis ? NO_AXIS : axis;
	}
	if (ir_op_has(op->code, TRAIT_REDUCE))
		return reduced_axis(q, op, axis);
	return ir_op_has(op->code, TRAIT_VIEW) ? eval_view_axis(q->e, op, axis) : axis;
}

/* Ops that the evaluator computes from their operands; the results of others are bound by generators. */
static bool is_computed_from_operands(enum ir_opcode code)
{
	return ir_op_has(code, TRAIT_ELEMENTWISE) || ir_op_has(code, TRAIT_REDUCE) ||
	       ir_op_has(code, TRAIT_VIEW) || ir_op_has(code, TRAIT_MOVE) || code == OP_mask ||
	       code == OP_matmul || code == OP_linear || code == OP_expert_linear || code == OP_rope;
}

/* True if v can be evaluated with lanes along the axis, down to memory; -1: all lanes read one element. Results of ops
 * that generators bind need no look at their operands. A value that several ops read is visited once: x = x * x,
 * repeated, has 2^n paths. Out of budget: false, which is safe. */
static bool value_vectorizes(struct analysis *q, struct ir_value v, int axis)
{
	const struct eval_tensor *t = eval_tensor(q->e, v);
	const struct ir_op *op = ir_def(q->e->job->func, v);
	struct eval_proof *proof = &q->e->proofs[v.id];
	if (proof->analysis == q->e->n_analyses && proof->axis == axis)
		return true;
	if (--q->budget < 0)
		return false;
	if (t)
		return tensor_vectorizes(q, t, axis);
	for (size_t i = 0; op && i < op->n_operands; i++) {
		int of = operand_axis(q, op, i, axis);
		if (of == NO_AXIS)
			return false;
		if (is_computed_from_operands(op->code) && op->operands[i].id &&
		    !value_vectorizes(q, op->operands[i], of))
			return false;
	}
	*proof = (struct eval_proof){q->e->n_analyses, axis};
	return true;
}

bool eval_vectorizes(struct eval *e, struct ir_value v, int axis)
{
	struct analysis q = {e, BUDGET};
	e->n_analyses++;
	return value_vectorizes(&q, v, axis);
}

/* ---- row offsets ---- */

static void hoist(struct analysis *q, struct ir_value v, const struct eval_point *p);

/* Hoists the offsets of the operands that op reads along its own row: elementwise ops, and views at the point that they
 * show. Not through reshapes, which may have no single row in their operand; other ops are left to the loop. */
static void hoist_op(struct analysis *q, const struct ir_op *op, const struct eval_point *p)
{
	if (op->code == OP_mask_rows || op->code == OP_rope) {
		hoist(q, op->operands[0], p);
	} else if (ir_op_has(op->code, TRAIT_ELEMENTWISE)) {
		for (size_t i = 0; i < op->n_operands; i++)
			hoist(q, op->operands[i], p);
	} else if (op->code == OP_transpose || op->code == OP_broadcast || op->code == OP_slice) {
		struct eval_point at;
		if (eval_view_point(q->e, op, p, &at))
			hoist(q, op->operands[0], &at);
	}
}

/* Emits the row offset of v at p if it is in memory, else those of its operands. They stay in the cache, where loads
 * in the loop find them; a computed value has an entry without a result there, since other ops may read it, too. */
static void hoist(struct analysis *q, struct ir_value v, const struct eval_point *p)
{
	const struct eval_tensor *t = eval_tensor(q->e, v);
	const struct ir_op *op = ir_def(q->e->job->func, v);
	if (--q->budget < 0 || !v.id)
		return;
	const struct eval_entry key = key_of(q->e, v, p, true);
	if (t && t->t.encoding == ENC_ROW) {
		(void)eval_row_offset(q->e, v, t, p);
	} else if (!t && op && !find_cached(q->e, &key)) {
		hoist_op(q, op, p);
		add_cached(q->e, &key, (struct kb_val){0});
	}
}

void eval_hoist(struct eval *e, struct ir_value v, const struct eval_point *p)
{
	struct analysis q = {e, BUDGET};
	if (p->vec >= 0)
		hoist(&q, v, p);
}
