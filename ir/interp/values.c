/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of the interpreter: sizes, conversion from and to bytes, and counted memory of intermediates. */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "ir/interp/interp_internal.h"
#include "ir/support/checked.h"
#include "ir/support/memory.h"

int64_t interp_count(const struct interp_tensor *t)
{
	int64_t n;
	if (t->rank < 0 || t->rank > IR_RANK_MAX || !checked_product_i64(t->dims, (size_t)t->rank, &n))
		return -1;
	return n;
}

void interp_from_bytes(struct interp_tensor *t, const void *bytes)
{
	int64_t n = interp_count(t);
	weight_read_elements(t->dtype, bytes, 0, n, t->data);
	if (t->exact && n > 0)
		memcpy(t->exact, bytes, (size_t)n * sizeof(*t->exact));
}

/* v rounded and saturated to an integer dtype. */
static int64_t saturate_int(enum ir_dtype dtype, double v)
{
	return interp_to_int(ir_round(dtype, v));
}

#define WRITE_LOOP(type, expr)                                      \
	for (int64_t i = 0; i < n; i++) {                           \
		type e = (type)(expr);                              \
		memcpy(out + (size_t)i * sizeof(e), &e, sizeof(e)); \
	}                                                           \
	break

void interp_to_bytes(const struct interp_tensor *t, void *bytes)
{
	unsigned char *out = bytes;
	int64_t n = interp_count(t);
	switch (t->dtype) {
	case DT_F32:
	case DT_F16:
	case DT_BF16:
	case DT_F64: weight_write_floats(t->dtype, t->data, n, bytes); break;
	case DT_I8: WRITE_LOOP(int8_t, saturate_int(DT_I8, t->data[i]));
	case DT_U8: WRITE_LOOP(uint8_t, saturate_int(DT_U8, t->data[i]));
	case DT_I16: WRITE_LOOP(int16_t, saturate_int(DT_I16, t->data[i]));
	case DT_I32: WRITE_LOOP(int32_t, saturate_int(DT_I32, t->data[i]));
	case DT_I64: WRITE_LOOP(int64_t, interp_get_int(t, i));
	case DT_BOOL: WRITE_LOOP(uint8_t, t->data[i] != 0);
	}
}

int64_t interp_get_int(const struct interp_tensor *t, int64_t i)
{
	bool is_known = t->exact && (double)t->exact[i] == t->data[i];
	return is_known ? t->exact[i] : interp_to_int(t->data[i]);
}

double interp_abs_diff(const struct interp_tensor *a, const struct interp_tensor *b, int64_t i)
{
	double x = a->data[i], y = b->data[i];
	if (ir_dtype_class(a->dtype) != DTCLASS_INT)
		return x == y || (isnan(x) && isnan(y)) ? 0 : fabs(x - y);
	int64_t n = interp_get_int(a, i), m = interp_get_int(b, i);
	return (double)(n > m ? (uint64_t)n - (uint64_t)m : (uint64_t)m - (uint64_t)n);
}

int64_t interp_to_int(double v)
{
	if (isnan(v))
		return 0;
	if (v >= 0x1p63)
		return INT64_MAX;
	return v <= -0x1p63 ? INT64_MIN : (int64_t)v;
}

int64_t interp_wrap(enum ir_dtype dtype, uint64_t v)
{
	switch (dtype) {
	case DT_I8: return (int8_t)(uint8_t)v;
	case DT_U8: return (uint8_t)v;
	case DT_I16: return (int16_t)(uint16_t)v;
	case DT_I32: return (int32_t)(uint32_t)v;
	case DT_I64: return (int64_t)v;
	case DT_F32:
	case DT_F16:
	case DT_BF16:
	case DT_F64:
	case DT_BOOL: break;
	}
	return 0;
}

/* Allocated bytes of an element: a double, and for i64 the exact value. */
static size_t element_bytes(enum ir_dtype dtype)
{
	return sizeof(double) + (dtype == DT_I64 ? sizeof(int64_t) : 0);
}

static bool bytes_of(const struct interp_tensor *t, size_t *bytes)
{
	int64_t n = interp_count(t);
	return n >= 0 && checked_mul_size((size_t)n, element_bytes(t->dtype), bytes);
}

/* The exact values, which follow the doubles in one allocation. */
static int64_t *exact_of(const struct interp_tensor *t)
{
	return t->dtype == DT_I64 && t->data ? (int64_t *)(t->data + interp_size(t)) : NULL;
}

bool interp_tensor_alloc(struct arena *a, struct interp_tensor *t)
{
	size_t bytes;
	if (!bytes_of(t, &bytes))
		return false;
	/* not NULL for an empty tensor */
	t->data = arena_alloc(a, bytes ? bytes : element_bytes(t->dtype));
	t->exact = exact_of(t);
	return t->data && !arena_failed(a);
}

bool interp_tensor_copy(struct arena *a, const struct interp_tensor *t, struct interp_tensor *out)
{
	struct interp_tensor copy = *t;
	if (!interp_tensor_alloc(a, &copy))
		return false;
	interp_copy(&copy, 0, t, 0, interp_size(t));
	*out = copy;
	return true;
}

/* Concrete shape and bytes of a type for dim values; false if a dim is negative or on overflow. */
static bool shape_of(const struct ir_type *type, const int64_t *dims, struct interp_tensor *out,
                     size_t *bytes)
{
	*out = (struct interp_tensor){.dtype = type->dtype, .rank = type->rank};
	for (int i = 0; i < type->rank; i++)
		if (!ir_dim_eval(type->dims[i], dims, &out->dims[i]) || out->dims[i] < 0)
			return false;
	return bytes_of(out, bytes);
}

bool interp_tensor_make(struct arena *a, const struct ir_type *type, const int64_t *dims,
                        struct interp_tensor *out)
{
	size_t bytes;
	return type->kind == IR_TENSOR && shape_of(type, dims, out, &bytes) && interp_tensor_alloc(a, out);
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
	s->tensor.data = memory_zeroed(bytes ? bytes : 1, 1);
	s->tensor.exact = exact_of(&s->tensor);
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
	interp_copy(to, 0, from, 0, interp_size(from));
	return TFMC_OK;
}

void interp_slot_free(struct interp *in, struct ir_value v)
{
	struct interp_slot *s = &in->slots[v.id];
	if (s->live && s->tensor.data)
		in->used_bytes -= (size_t)interp_size(&s->tensor) * element_bytes(s->tensor.dtype);
	memory_free(s->tensor.data);
	s->tensor.data = NULL;
	s->tensor.exact = NULL;
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
