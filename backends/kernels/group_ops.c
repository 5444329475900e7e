/* SPDX-License-Identifier: Apache-2.0 */
/* Facts about the ops of a group that several generators use. */
#include "backends/kernels/generator.h"
#include "backends/kernels/group.h"

/* True for functions of many instructions. */
static bool is_long_function(enum ir_opcode code)
{
	static const bool table[IR_N_OPS] = {
	        [OP_exp] = true,        [OP_log] = true,  [OP_sin] = true,  [OP_cos] = true,
	        [OP_tanh] = true,       [OP_erf] = true,  [OP_gelu] = true, [OP_gelu_tanh] = true,
	        [OP_gelu_quick] = true, [OP_silu] = true, [OP_pow] = true,  [OP_sigmoid] = true,
	        [OP_softcap] = true,
	};
	return table[code];
}

bool kernel_has_functions(const struct kernel *g)
{
	const struct ir_region *r = g->job->group->region;
	for (size_t i = 0; i < r->n_ops; i++)
		if (is_long_function(r->ops[i]->code))
			return true;
	return false;
}
