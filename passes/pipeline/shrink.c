/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies a module in the sizes that shrink_shapes.h finds: the same ops in the same order, built literally, with
 * seeded random weights under the names of the old ones and tables by their formula. The use of a weight
 * determines its magnitude (gammas around 1, small biases, matrices that preserve the variance of their input), so
 * that every error shows in the results. If anything does not fit, the module is not shrunk.
 */
#include "passes/pipeline/shrink.h"

#include <math.h>
#include <string.h>

#include "ir/core/build.h"
#include "ir/core/verify.h"
#include "passes/pipeline/shrink_shapes.h"
#include "passes/pipeline/random.h"

/* ---- weights ---- */

#define FILE_NAME    "shrunk"           /* file name of the tensors in weight expressions */
#define ELEMENTS_MAX ((int64_t)1 << 24) /* of a tensor; a shrunk one has fewer */

enum role { ROLE_OTHER, ROLE_MATRIX, ROLE_TABLE, ROLE_GAMMA, ROLE_OFFSET };

struct stored {
	const char *name;
	struct weight_bytes bytes;
};
struct store {
	struct strmap by_name; /* tensor -> struct weight_bytes */
};

struct maker {
	struct shapes *s;
	struct arena *arena;
	struct store *store;
	const struct ir_func *f;
	enum role *roles; /* [weights] */
};

/* weight_source.read of the shrunk module: a tensor by its name. */
static enum tfmc_status read_tensor(void *user, struct diag_context *cx, const char *file, const char *tensor,
                                    struct weight_bytes *out)
{
	struct store *store = user;
	const struct weight_bytes *found =
	        strcmp(file, FILE_NAME) == 0 ? strmap_get(&store->by_name, tensor) : NULL;
	if (found == NULL) {
		diag_error(cx, LOC_NONE, DIAG_INTERNAL, "the shrunk model has no tensor %s", tensor);
		return TFMC_IO;
	}
	*out = *found;
	return TFMC_OK;
}

/* ---- roles ---- */

/* The role of a weight that is operand `operand` of op. */
static enum role role_at(const struct ir_op *op, size_t operand)
{
	if (ir_is_norm(op->code))
		return operand == OPERAND(layer_norm, gamma) ? ROLE_GAMMA : ROLE_OFFSET;
	if (op->code == OP_linear || op->code == OP_expert_linear)
		return operand == OPERAND(linear, w) ? ROLE_MATRIX : ROLE_OFFSET;
	if (op->code == OP_gather)
		return ROLE_TABLE;
	return ROLE_OTHER;
}

/* Gives the weights that op reads their roles. Of several uses the last in enum role counts, whatever the order of the
 * ops: a tied embedding, a matrix and a table, is a table. Operands that are no weights are skipped. */
static void note_role(struct maker *k, const struct ir_op *op)
{
	for (size_t i = 0; i < op->n_operands; i++) {
		const struct ir_weight *w = ir_weight_of(k->f, op->operands[i]);
		for (size_t at = 0; w != NULL && at < k->s->m->weights.n; at++)
			if (k->s->m->weights.items[at] == w && role_at(op, i) > k->roles[at])
				k->roles[at] = role_at(op, i);
	}
}

/* ---- values ---- */

/* A random value for a weight of this role; row: its elements in a row, so that products keep the variance of
 * their input. */
static double draw_value(struct random *r, enum role role, int64_t row)
{
	double v = random_normal(r);
	switch (role) {
	case ROLE_MATRIX: return 1.2 * v / sqrt((double)(row > 0 ? row : 1));
	case ROLE_TABLE: return 0.8 * v;
	case ROLE_GAMMA: return 1 + 0.2 * v;
	case ROLE_OFFSET: return 0.3 * v;
	case ROLE_OTHER: return 0.7 + 0.3 * v;
	}
	return v;
}

static uint64_t hash_name(const char *name)
{
	uint64_t h = UINT64_C(14695981039346656037); /* FNV-1a */
	for (; *name != '\0'; name++)
		h = (h ^ (unsigned char)*name) * UINT64_C(1099511628211);
	return h;
}

/* Stores v as element i of the given type; integers are 4 v, of types used for indices its magnitude. */
static void store_value(enum ir_dtype dtype, double v, void *data, int64_t i)
{
	switch (dtype) {
	case DT_F32: ((float *)data)[i] = (float)v; return;
	case DT_F64: ((double *)data)[i] = v; return;
	case DT_F16: ((uint16_t *)data)[i] = f64_to_f16(v); return;
	case DT_BF16: ((uint16_t *)data)[i] = f64_to_bf16(v); return;
	case DT_I8: ((int8_t *)data)[i] = (int8_t)(v * 4); return;
	case DT_U8: ((uint8_t *)data)[i] = (uint8_t)fabs(v * 4); return;
	case DT_I16: ((int16_t *)data)[i] = (int16_t)(v * 4); return;
	case DT_I32: ((int32_t *)data)[i] = (int32_t)fabs(v * 4); return;
	case DT_I64: ((int64_t *)data)[i] = (int64_t)fabs(v * 4); return;
	case DT_BOOL: ((uint8_t *)data)[i] = v > 0; return;
	}
}

/* Creates a tensor with random values and returns an expression that reads it; NULL: memory, or it is too large. The
 * name is the seed: a tensor has the same values wherever and in whatever order it is made. */
static const struct ir_wexpr *make_tensor(struct maker *k, const char *name, enum ir_dtype dtype,
                                          enum role role, int rank, const int64_t *dims)
{
	const struct ir_wexpr *e = wexpr_tensor(k->arena, FILE_NAME, name, dtype, rank, dims);
	struct weight_bytes *bytes = ARENA_NEW(k->arena, struct weight_bytes);
	int64_t n = e != NULL ? wexpr_count(e) : 0;
	if (e == NULL || bytes == NULL || n > ELEMENTS_MAX)
		return NULL;
	/* double: as large as the largest element type */
	void *data = arena_alloc(k->arena, ((size_t)n + 1) * sizeof(double));
	struct random r = random_seed(hash_name(name));
	for (int64_t i = 0; i < n && data != NULL; i++)
		store_value(dtype, draw_value(&r, role, rank > 0 ? dims[rank - 1] : 1), data, i);
	*bytes = (struct weight_bytes){.data = data, .dtype = dtype, .rank = rank};
	memcpy(bytes->dims, dims, (size_t)rank * sizeof(*dims));
	strmap_set(&k->store->by_name, e->tensor, bytes);
	return data != NULL ? e : NULL;
}

/* ---- expressions ---- */

/* Element type of the tensor in the file. */
static enum ir_dtype stored_type(const struct ir_weight *w)
{
	return w->format != FORMAT_PLAIN ? ir_format(w->format)->dtype : w->type->dtype;
}

/* One tensor for each layer: passes see the same kind of expression as in models. */
static const struct ir_wexpr *make_stack(struct maker *k, const struct ir_weight *w, enum role role, int rank,
                                         const int64_t *dims)
{
	const struct ir_wexpr **layers = ARENA_ARRAY(k->arena, const struct ir_wexpr *, dims[0] + 1);
	for (int64_t i = 0; i < dims[0] && layers != NULL; i++) {
		const char *name = arena_printf(k->arena, "%s.%lld", w->name, (long long)i);
		layers[i] = make_tensor(k, name, stored_type(w), role, rank - 1, dims + 1);
		if (layers[i] == NULL)
			return NULL;
	}
	return layers != NULL ? wexpr_stack(k->arena, (size_t)dims[0], layers) : NULL;
}

/* The expression of a weight in its new size: the same formula of a table (positions, rotary angles, a constant),
 * whose values mean something; else stored tensors. A stack keeps one tensor for each layer. */
static const struct ir_wexpr *make_init(struct maker *k, const struct ir_weight *w, enum role role, int rank,
                                        const int64_t *dims)
{
	const struct ir_wexpr *e = w->init;
	if (e != NULL && e->kind == WX_SINUSOID)
		return wexpr_sinusoid(k->arena, dims[0], dims[1], e->layout, e->spacing, e->begin, e->value);
	if (e != NULL && e->kind == WX_ROTARY)
		return wexpr_rotary(k->arena, dims[0], e->value, e->frequencies, (size_t)dims[1] / 2);
	if (e != NULL && e->kind == WX_FULL)
		return wexpr_full(k->arena, e->value, rank, dims);
	if (e != NULL && e->kind == WX_STACK && dims[0] > 0)
		return make_stack(k, w, role, rank, dims);
	return make_tensor(k, w->name, stored_type(w), role, rank, dims);
}

/* Adds a weight with its new size and expression. Random values of a quantized format go through a quantize
 * expression: the format cannot represent them otherwise. False: an axis is symbolic, or the expression cannot be
 * made. */
static bool make_weight(struct maker *k, size_t at)
{
	struct ir_weight w = *k->s->m->weights.items[at];
	int64_t dims[IR_RANK_MAX];
	const struct ir_type *type = shapes_type(k->s, &k->s->weights[at], w.type);
	for (int i = 0; type != NULL && i < type->rank; i++)
		if (!ir_dim_is_const(type->dims[i], &dims[i]))
			return false;
	if (type == NULL)
		return false;
	w.init = make_init(k, &w, k->roles[at], type->rank, dims);
	if (w.init != NULL && ir_format_is_quantized(w.format))
		w.init = wexpr_quantize(k->arena, w.format, w.init, NULL);
	w.type = type;
	w.loc = ir_import_loc(k->s->out, w.loc);
	return w.init != NULL && ir_add_weight(k->s->out, &w) != NULL;
}

/* Adds the weights of s->m to s->out in their new sizes. False: memory ran out or a table cannot be made. */
static bool shrink_weights(struct shapes *s, struct arena *arena, struct weight_source *source)
{
	struct maker k = {.s = s, .arena = arena, .store = ARENA_NEW(arena, struct store)};
	k.roles = ARENA_ARRAY(arena, enum role, s->m->weights.n + 1);
	if (k.store == NULL || k.roles == NULL)
		return false;
	strmap_init(&k.store->by_name, arena);
	for (size_t i = 0; i < s->m->funcs.n; i++) {
		k.f = s->m->funcs.items[i];
		for (struct ir_iter it = ir_iter_begin(k.f->body); it.op != NULL; ir_iter_next(&it))
			note_role(&k, it.op);
	}
	for (size_t i = 0; i < s->m->weights.n; i++)
		if (!make_weight(&k, i))
			return false;
	*source = (struct weight_source){.read = read_tensor, .user = k.store};
	return !arena_failed(arena);
}

#define BOUND_MAX 12 /* of a symbolic size */

struct copier {
	struct shapes shapes;
	struct ir_module *out;
	struct diag_context mute;
	struct buf log; /* the first error, as a reason */
	struct arena *arena;
	struct axes *axes;   /* of the values of the function */
	struct ir_copy copy; /* of the function */
};

/* ---- ops ---- */

static const struct ir_type *new_type(struct copier *c, struct ir_value old)
{
	const struct ir_type *t = ir_type_of(c->copy.from, old);
	return t->kind == IR_TENSOR ? shapes_type(&c->shapes, &c->axes[old.id], t)
	                            : ir_import_type(c->out, t);
}

/* The dims of the result, for attributes. */
static struct ir_dim_list result_dims(struct copier *c, const struct ir_op *op)
{
	const struct ir_type *t = new_type(c, op->results[0]);
	struct ir_dim_list list = {ARENA_ARRAY(c->arena, const struct ir_dim *, IR_RANK_MAX), 0};
	for (int i = 0; t != NULL && list.items != NULL && i < t->rank; i++)
		list.items[list.n++] = t->dims[i];
	return list;
}

/* Attributes of a slice in the new sizes: the pieces of its cut, or the same bounds. Without a cut the new size is
 * that of the result type, which may be symbolic. */
static struct attrs_slice slice_attrs(struct copier *c, const struct ir_op *op)
{
	struct attrs_slice a = *(const struct attrs_slice *)op->attrs;
	const struct cut *cut = shapes_cut(&c->shapes, op);
	const struct ir_type *t = new_type(c, op->results[0]);
	int64_t begin = cut != NULL ? shapes_pieces(&c->shapes, cut, 0, cut->first) : 0;
	a.begin = cut != NULL ? ir_dim_const(c->out->dims, begin) : ir_import_dim(c->out, a.begin);
	a.size = t != NULL ? t->dims[a.axis] : NULL;
	return a;
}

/* Attributes of a pad in the new sizes: the pieces of its cut before and after the operand. */
static struct attrs_pad pad_attrs(struct copier *c, const struct ir_op *op)
{
	struct attrs_pad a = *(const struct attrs_pad *)op->attrs;
	const struct cut *cut = shapes_cut(&c->shapes, op);
	if (cut != NULL) {
		a.before = shapes_pieces(&c->shapes, cut, 0, cut->first);
		a.after = shapes_pieces(&c->shapes, cut, cut->last, cut->n_pieces);
	}
	return a;
}

/* Builds op with these attributes from the new operands and records its results. Ops have at most two, except for
 * repeat, which copy_op handles. */
static void build(struct copier *c, const struct ir_op *op, const void *attrs)
{
	struct ir_value operands[BUILD_LIST_MAX], results[2] = {{0}, {0}};
	ir_copy_values(&c->copy, op->operands, op->n_operands, operands);
	irb_op(c->copy.b, op->code, operands, op->n_operands, attrs, results, op->n_results);
	for (size_t i = 0; i < op->n_results; i++)
		ir_copy_set(&c->copy, op->results[i], results[i]);
}

/* Builds an op whose attributes hold sizes or weights, which are replaced by the new ones; false: op is not such an
 * op. */
static bool build_sized(struct copier *c, const struct ir_op *op)
{
	if (op->code == OP_weight) {
		const char *name = ((const struct attrs_weight *)op->attrs)->weight->name;
		build(c, op, &(struct attrs_weight){.weight = ir_find_weight(c->out, name)});
	} else if (op->code == OP_full) {
		struct attrs_full a = *(const struct attrs_full *)op->attrs;
		a.dims = result_dims(c, op);
		build(c, op, &a);
	} else if (op->code == OP_iota) {
		struct attrs_iota a = *(const struct attrs_iota *)op->attrs;
		a.dims = result_dims(c, op);
		build(c, op, &a);
	} else if (op->code == OP_reshape) {
		build(c, op, &(struct attrs_reshape){.dims = result_dims(c, op)});
	} else if (op->code == OP_broadcast) {
		build(c, op, &(struct attrs_broadcast){.dims = result_dims(c, op)});
	} else if (op->code == OP_last_index) {
		struct ir_dim_list dims = result_dims(c, op);
		build(c, op, &(struct attrs_last_index){.size = dims.n > 0 ? dims.items[0] : NULL});
	} else if (op->code == OP_slice) {
		struct attrs_slice a = slice_attrs(c, op);
		build(c, op, &a);
	} else if (op->code == OP_pad) {
		struct attrs_pad a = pad_attrs(c, op);
		build(c, op, &a);
	} else if (op->code == OP_dim_value) {
		const struct ir_dim *d = ((const struct attrs_dim_value *)op->attrs)->dim;
		build(c, op,
		      &(struct attrs_dim_value){.dim = ir_import_dim(c->out, d), .dims = result_dims(c, op)});
	} else {
		return false;
	}
	return true;
}

/* Hook of ir_copy_region: copies op in the new sizes. Shapes of other ops follow from their operands. */
static bool copy_op(struct ir_copy *copy, const struct ir_op *op)
{
	struct copier *c = copy->user;
	if (op->code == OP_repeat) {
		size_var count = c->shapes.counts[c->shapes.func][op->region->args[REPEAT_INDEX].id];
		ir_copy_repeat(copy, op, size_of(&c->shapes.sizes, count)->now);
	} else if (!build_sized(c, op)) {
		build(c, op, op->attrs);
	}
	return true;
}

/* ---- functions ---- */

/* Adds the parameters in their new types; a bound of ids that became smaller is the new one. */
static void copy_params(struct copier *c)
{
	const struct ir_func *f = c->copy.from;
	for (size_t i = 0; i < f->n_params; i++) {
		struct ir_param p = f->params[i];
		size_var below = c->shapes.below[c->shapes.func][i];
		p.default_value = ir_import_dim(c->out, p.default_value);
		p.max = ir_import_dim(c->out, p.max);
		p.loc = ir_import_loc(c->out, p.loc);
		if (below != 0)
			p.below = size_of(&c->shapes.sizes, below)->now;
		c->copy.map[p.value.id] = irb_param(c->copy.b, &p, new_type(c, p.value));
	}
}

/* Copies function number `at`, without folding: the copy has the same ops. False: an op does not fit in the new
 * sizes, or no memory. */
static bool copy_func(struct copier *c, size_t at)
{
	const struct ir_func *f = c->shapes.m->funcs.items[at];
	c->shapes.func = at;
	c->axes = c->shapes.values[at];
	c->copy = (struct ir_copy){irb_begin(c->out, &c->mute, f->name, f->loc), f,
	                           ARENA_ARRAY(c->arena, struct ir_value, f->n_values + 1), copy_op, c};
	if (c->copy.b == NULL || arena_failed(c->arena))
		return false;
	irb_set_literal(c->copy.b, true);
	copy_params(c);
	ir_copy_region(&c->copy, f->body);
	return ir_copy_finish(&c->copy, NULL) == TFMC_OK;
}

/* ---- modules ---- */

/* Declares the dims of m in out, with upper bounds of at most BOUND_MAX. False: not possible. tir_source: locations
 * in that text are not printed. */
static bool declare_dims(const struct ir_module *m, struct ir_module *out)
{
	out->tir_source = m->tir_source;
	for (size_t i = 0; i < ir_dims_count(m->dims); i++) {
		const struct ir_dim_sym *s = ir_dims_sym(m->dims, i);
		int64_t most = s->lo > BOUND_MAX ? s->lo : BOUND_MAX;
		if (!ir_dims_declare(out->dims, s->name, s->lo, s->hi < most ? s->hi : most))
			return false;
	}
	return true;
}

/* Declares the states in their new types. Keeps each encoding (row-major or packed panels), which fits any size, so
 * that the copy stores caches in the same layout. */
static bool add_states(struct copier *c)
{
	const struct ir_module *m = c->shapes.m;
	for (size_t i = 0; i < m->states.n; i++) {
		const struct ir_state_decl *s = m->states.items[i];
		const struct ir_type *t = shapes_type(&c->shapes, &c->shapes.states[i], s->type);
		if (t == NULL || ir_add_state(c->out, s->name, t, ir_import_loc(c->out, s->loc)) == NULL ||
		    !ir_set_state_encoding(c->out, s->name, s->encoding))
			return false;
	}
	return true;
}

/* The order: types need the solved sizes, weights and states come before the functions that refer to them. */
static bool copy_module(struct copier *c, const struct ir_module *m, struct weight_source *weights)
{
	bool ok = declare_dims(m, c->out) && shapes_solve(&c->shapes, m, c->out, c->arena) && add_states(c) &&
	          shrink_weights(&c->shapes, c->arena, weights);
	for (size_t i = 0; i < m->funcs.n && ok; i++)
		ok = copy_func(c, i);
	return ok && ir_verify(c->out, &c->mute) == TFMC_OK;
}

/* Diagnostics of the builder and the verifier go to a log, since a module that cannot be shrunk is not an error: its
 * first message becomes the reason. */
enum tfmc_status module_shrink(const struct ir_module *m, struct arena *arena, struct shrunk *out)
{
	struct copier c = {.arena = arena};
	*out = (struct shrunk){.why = m->stage != STAGE_GRAPH ? "it has kernels already" : NULL};
	if (out->why != NULL)
		return TFMC_OK;
	c.out = ir_module_create(m->name);
	if (c.out == NULL)
		return TFMC_NO_MEMORY;
	buf_init(&c.log);
	diag_init(&c.mute, diag_render_text, &c.log);
	bool ok = copy_module(&c, m, &out->weights);
	if (ok)
		out->module = c.out;
	else
		out->why =
		        c.log.len > 0 ? arena_strdup(arena, c.log.data) : "its sizes do not fit each other";
	if (!ok)
		ir_module_destroy(c.out);
	diag_destroy(&c.mute);
	buf_destroy(&c.log);
	return arena_failed(arena) ? TFMC_NO_MEMORY : TFMC_OK;
}
