/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a weight is used for decides its magnitude: gammas lie around 1 and
 * differ, biases are smaller, a matrix keeps the variance of its input, so that
 * every mistake shows in the results.
 */
#include "passes/shrink/shrink_weights.h"

#include <math.h>
#include <string.h>

#include "passes/validate/random.h"

#define FILE_NAME    "shrunk"           /* of the tensors, in their expressions */
#define ELEMENTS_MAX ((int64_t)1 << 24) /* of a tensor; more is no shrunk one */

enum role { ROLE_OTHER, ROLE_MATRIX, ROLE_TABLE, ROLE_GAMMA, ROLE_OFFSET };

struct stored {
	const char *name;
	struct weight_bytes bytes;
};
struct store {
	struct strmap by_name;
};

struct maker {
	struct shapes *s;
	struct arena *arena;
	struct store *store;
	const struct ir_func *f;
	enum role *roles; /* [weights] */
};

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

static void see_role(struct maker *k, const struct ir_op *op)
{
	for (size_t i = 0; i < op->n_operands; i++) {
		const struct ir_weight *w = ir_weight_of(k->f, op->operands[i]);
		for (size_t at = 0; w != NULL && at < k->s->m->weights.n; at++)
			if (k->s->m->weights.items[at] == w && role_at(op, i) > k->roles[at])
				k->roles[at] = role_at(op, i);
	}
}

/* ---- numbers ---- */

static double number(struct random *r, enum role role, int64_t row)
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

static uint64_t seed_of(const char *name)
{
	uint64_t h = UINT64_C(14695981039346656037); /* FNV-1a */
	for (; *name != '\0'; name++)
		h = (h ^ (unsigned char)*name) * UINT64_C(1099511628211);
	return h;
}

static void put(enum ir_dtype dtype, double v, void *data, int64_t i)
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

/* A stored tensor of that name, filled. */
static const struct ir_wexpr *make_tensor(struct maker *k, const char *name, enum ir_dtype dtype,
                                          enum role role, int rank, const int64_t *dims)
{
	const struct ir_wexpr *e = wexpr_tensor(k->arena, FILE_NAME, name, dtype, rank, dims);
	struct weight_bytes *bytes = ARENA_NEW(k->arena, struct weight_bytes);
	int64_t n = e != NULL ? wexpr_count(e) : 0;
	if (e == NULL || bytes == NULL || n > ELEMENTS_MAX)
		return NULL;
	void *data = arena_alloc(k->arena, ((size_t)n + 1) * sizeof(double));
	struct random r = random_seed(seed_of(name));
	for (int64_t i = 0; i < n && data != NULL; i++)
		put(dtype, number(&r, role, rank > 0 ? dims[rank - 1] : 1), data, i);
	*bytes = (struct weight_bytes){.data = data, .dtype = dtype, .rank = rank};
	memcpy(bytes->dims, dims, (size_t)rank * sizeof(*dims));
	strmap_set(&k->store->by_name, e->tensor, bytes);
	return data != NULL ? e : NULL;
}

/* ---- expressions ---- */

/* What the files of the shrunk model hold. */
static enum ir_dtype stored_type(const struct ir_weight *w)
{
	return w->format != FORMAT_PLAIN ? ir_format(w->format)->dtype : w->type->dtype;
}

/* One tensor for each layer, so that passes find the expressions that models have. */
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

bool shrink_weights(struct shapes *s, struct arena *arena, struct weight_source *source)
{
	struct maker k = {.s = s, .arena = arena, .store = ARENA_NEW(arena, struct store)};
	k.roles = ARENA_ARRAY(arena, enum role, s->m->weights.n + 1);
	if (k.store == NULL || k.roles == NULL)
		return false;
	strmap_init(&k.store->by_name, arena);
	for (size_t i = 0; i < s->m->funcs.n; i++) {
		k.f = s->m->funcs.items[i];
		for (struct ir_iter it = ir_iter_begin(k.f->body); it.op != NULL; ir_iter_next(&it))
			see_role(&k, it.op);
	}
	for (size_t i = 0; i < s->m->weights.n; i++)
		if (!make_weight(&k, i))
			return false;
	*source = (struct weight_source){read_tensor, k.store};
	return !arena_failed(arena);
}
