/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The typed calls of the builder, one per row of ir/core/ops.def, and the frequent
 * shapes of calls. Each is irb_op with its operands in table order.
 *
 * The operands of a row become a sequence (x)(w)(b); PARAMETERS and NAMES walk
 * it by two macros that call each other.
 */
#include "ir/builder/builder.h"

#define IN(name, class)  (name)
#define OPT(name, class) (name)

#define PARAMETER_A(name) , struct ir_value name PARAMETER_B
#define PARAMETER_B(name) , struct ir_value name PARAMETER_A
#define PARAMETER_A_END
#define PARAMETER_B_END
#define NAME_A(name) , name NAME_B
#define NAME_B(name) , name NAME_A
#define NAME_A_END
#define NAME_B_END
#define END(...)             END_(__VA_ARGS__)
#define END_(...)            __VA_ARGS__##_END
#define PARAMETERS(sequence) END(PARAMETER_A sequence)
#define NAMES(sequence)      END(NAME_A sequence)

#define OP(name, traits, operands, attributes, results, axes, formula)                 \
	struct ir_value irb_##name(struct ir_builder *irb PARAMETERS(operands),        \
	                           const struct attrs_##name *attrs)                   \
	{                                                                              \
		const struct ir_value list[] = {{0} NAMES(operands)};                  \
		return irb_op1(irb, OP_##name, list + 1, TFMC_COUNT(list) - 1, attrs); \
	}
#include "ir/core/ops.def"

struct ir_value irb_weight_ref(struct ir_builder *b, const struct ir_weight *w, const struct ir_value *index,
                               size_t n)
{
	return irb_op1(b, OP_weight, index, n, &(struct attrs_weight){.weight = w});
}

struct ir_value irb_scale_by(struct ir_builder *b, struct ir_value x, double f)
{
	return irb_scale(b, x, &(struct attrs_scale){.f = f});
}

/* A list of dims for an attribute; copied because the list's items are not const. */
static struct ir_dim_list dim_list(const struct ir_dim **storage, int rank, const struct ir_dim *const *dims)
{
	struct ir_dim_list list = {storage, (size_t)rank};
	for (int i = 0; i < rank; i++)
		storage[i] = dims[i];
	return list;
}

static bool rank_fits(struct ir_builder *b, int rank)
{
	if (rank < 0 || rank > IR_RANK_MAX)
		build_fail(b, DIAG_SHAPE, "a tensor of rank %d: at most %d axes are possible", rank,
		           IR_RANK_MAX);
	return rank >= 0 && rank <= IR_RANK_MAX;
}

struct ir_value irb_reshape_to(struct ir_builder *b, struct ir_value x, int rank,
                               const struct ir_dim *const *dims)
{
	const struct ir_dim *storage[IR_RANK_MAX];
	if (!rank_fits(b, rank))
		return IR_NO_VALUE;
	return irb_reshape(b, x, &(struct attrs_reshape){.dims = dim_list(storage, rank, dims)});
}

struct ir_value irb_transpose_by(struct ir_builder *b, struct ir_value x, int rank, const int64_t *perm)
{
	int64_t storage[IR_RANK_MAX];
	if (!rank_fits(b, rank))
		return IR_NO_VALUE;
	for (int i = 0; i < rank; i++)
		storage[i] = perm[i];
	return irb_transpose(b, x, &(struct attrs_transpose){.perm = {storage, (size_t)rank}});
}

struct ir_value irb_broadcast_to(struct ir_builder *b, struct ir_value x, int rank,
                                 const struct ir_dim *const *dims)
{
	const struct ir_dim *storage[IR_RANK_MAX];
	if (!rank_fits(b, rank))
		return IR_NO_VALUE;
	return irb_broadcast(b, x, &(struct attrs_broadcast){.dims = dim_list(storage, rank, dims)});
}

struct ir_value irb_slice_of(struct ir_builder *b, struct ir_value x, int axis, const struct ir_dim *begin,
                             const struct ir_dim *size)
{
	return irb_slice(b, x, &(struct attrs_slice){.axis = axis, .begin = begin, .size = size});
}

struct ir_value irb_dim_value_of(struct ir_builder *b, const struct ir_dim *dim, int rank,
                                 const struct ir_dim *const *dims)
{
	const struct ir_dim *storage[IR_RANK_MAX];
	if (!rank_fits(b, rank))
		return IR_NO_VALUE;
	return irb_dim_value(b, &(struct attrs_dim_value){.dim = dim, .dims = dim_list(storage, rank, dims)});
}

struct ir_value irb_full_of(struct ir_builder *b, double value, enum ir_dtype dtype, int rank,
                            const struct ir_dim *const *dims)
{
	const struct ir_dim *storage[IR_RANK_MAX];
	if (!rank_fits(b, rank))
		return IR_NO_VALUE;
	return irb_full(b, &(struct attrs_full){
	                           .value = value, .dims = dim_list(storage, rank, dims), .dtype = dtype});
}
