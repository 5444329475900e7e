/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors of the interpreter: sizes, conversion from and to bytes, and the
 * memory of intermediates, which is counted and freed after the last use.
 */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/interp/interp_internal.h"
#include "ir/support/checked.h"

int64_t interp_count(const struct interp_tensor *t)
{
	int64_t n;
	if (t->rank < 0 || t->rank > IR_RANK_MAX || !checked_product_i64(t->dims, (size_t)t->rank, &n))
		return -1;
	return n;
}

void interp_from_bytes(struct interp_tensor *t, const void *bytes)
{
	weight_read_elements(t->dtype, bytes, 0, interp_count(t), t->data);
}

/* Integer of a dtype's width. */
static int64_t int_bits(enum ir_dtype dtype, double v)
{
	return interp_int(ir_round(dtype, v));
}

#define WRITE_LOOP(type, expr)                                      \
	for (int64_t i = 0; i < n; i++) {                           \
		double v = t->data[i];                              \
		type e = (type)(expr);                              \
		memcpy(out + (size_t)i * sizeof(e), &e, sizeof(e)); \
	}                                                           \
	break

void interp_to_bytes(const struct interp_tensor *t, void *bytes)
{
	unsigned char *out = bytes;
	int64_t n = interp_count(t);
	switch (t->dtype) {
	case DT_F32: WRITE_LOOP(float, v);
	case DT_F16: WRITE_LOOP(uint16_t, f64_to_half(v));
	case DT_BF16: WRITE_LOOP(uint16_t, f64_to_bf16(v));
	case DT_F64: WRITE_LOOP(double, v);
	case DT_I8: WRITE_LOOP(int8_t, int_bits(DT_I8, v));
	case DT_U8: WRITE_LOOP(uint8_t, int_bits(DT_U8, v));
	case DT_I32: WRITE_LOOP(int32_t, int_bits(DT_I32, v));
	case DT_I64: WRITE_LOOP(int64_t, int_bits(DT_I64, v));
	case DT_BOOL: WRITE_LOOP(uint8_t, v != 0);
	}
}

int64_t interp_int(double v)
{
	if (isnan(v))
		return 0;
	if (v >= 0x1p63)
		return INT64_MAX;
	return v <= -0x1p63 ? INT64_MIN : (int64_t)v;
}

double interp_wrap(enum ir_dtype dtype, uint64_t v)
{
	switch (dtype) {
	case DT_I8: return (int8_t)(uint8_t)v;
	case DT_U8: return (uint8_t)v;
	case DT_I32: return (int32_t)(uint32_t)v;
	case DT_I64: return (double)(int64_t)v;
	case DT_F32:
	case DT_F16:
	case DT_BF16:
	case DT_F64:
	case DT_BOOL: break;
	}
	return 0;
}

/* Shape of a type under dim values; false when a dim is negative or the bytes do not fit. */
static bool shape_of(const struct ir_type *type, const int64_t *dims, struct interp_tensor *out,
                     size_t *bytes)
{
	*out = (struct interp_tensor){.dtype = type->dtype, .rank = type->rank};
	for (int i = 0; i < type->rank; i++)
		if (!ir_dim_eval(type->dims[i], dims, &out->dims[i]) || out->dims[i] < 0)
			return false;
	int64_t count = interp_count(out);
	return count >= 0 && checked_mul_size((size_t)count, sizeof(double), bytes);
}

bool interp_tensor_make(struct arena *a, const struct ir_type *type, const int64_t *dims,
                        struct interp_tensor *out)
{
	size_t bytes;
	if (type->kind != IR_TENSOR || !shape_of(type, dims, out, &bytes))
		return false;
	/* An empty tensor has an address too. */
	out->data = arena_alloc(a, bytes ? bytes : sizeof(double));
	return out->data && !arena_failed(a);
}

int64_t interp_dim(const struct interp *in, const struct ir_dim *d)
{
	int64_t v;
	return ir_dim_eval(d, in->args->dims, &v) ? v : -1;
}

static enum tfmc_status too_large(struct interp *in, const struct ir_op *op, const char *what)
{
	diag_error(in->cx, op ? op->loc.at : in->f->loc.at, DIAG_LIMIT,
	           "%s of the interpreter's memory limit of %zu bytes", what, in->limit_bytes);
	return TFMC_INVALID;
}

enum tfmc_status interp_slot_make(struct interp *in, const struct ir_op *op, struct ir_value v)
{
	const struct ir_type *type = ir_type_of(in->f, v);
	struct interp_slot *s = &in->slots[v.id];
	size_t bytes = 0, used;
	interp_slot_free(in, v);
	s->live = true;
	if (type->kind == IR_STATE) {
		s->tensor = (struct interp_tensor){0};
		return TFMC_OK;
	}
	if (!shape_of(type, in->args->dims, &s->tensor, &bytes))
		return too_large(in, op, "the size of a value does not fit into 64 bits, let alone");
	if (!checked_add_size(in->used_bytes, bytes, &used) || used > in->limit_bytes)
		return too_large(in, op, "intermediate values need more than all");
	s->tensor.data = calloc(bytes ? bytes : 1, 1);
	if (!s->tensor.data)
		return TFMC_NO_MEMORY;
	in->used_bytes = used;
	return TFMC_OK;
}

enum tfmc_status interp_slot_copy(struct interp *in, const struct ir_op *op, struct ir_value v,
                                  const struct interp_tensor *from)
{
	TFMC_TRY(interp_slot_make(in, op, v));
	struct interp_tensor *to = &in->slots[v.id].tensor;
	if (!to->data)
		return TFMC_OK;
	if (interp_size(to) != interp_size(from))
		return interp_error(in, op, "a value has %lld elements where its type has %lld",
		                    (long long)interp_size(from), (long long)interp_size(to));
	memcpy(to->data, from->data, (size_t)interp_size(from) * sizeof(double));
	return TFMC_OK;
}

void interp_slot_free(struct interp *in, struct ir_value v)
{
	struct interp_slot *s = &in->slots[v.id];
	if (s->live && s->tensor.data)
		in->used_bytes -= (size_t)interp_size(&s->tensor) * sizeof(double);
	free(s->tensor.data);
	s->tensor.data = NULL;
	s->live = false;
}

void interp_unravel(const struct interp_tensor *t, int64_t at, int64_t index[IR_RANK_MAX])
{
	for (int i = t->rank - 1; i >= 0; i--) {
		index[i] = at % t->dims[i];
		at /= t->dims[i];
	}
}

int64_t interp_ravel(const struct interp_tensor *t, const int64_t index[IR_RANK_MAX])
{
	int64_t at = 0;
	for (int i = 0; i < t->rank; i++)
		at = at * t->dims[i] + index[i];
	return at;
}
