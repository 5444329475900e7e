/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recording: what an x86 processor says about itself. Used only by the check
 * that init makes before any other code of the object runs.
 */
#include "backends/kb/internal.h"

struct kb_val kb_cpuid(struct kb *k, int64_t leaf, int subleaf, int reg)
{
	kb_require(k, reg >= 0 && reg < 4, "cpuid gives four registers");
	struct kb_inst inst = {.op = KBO_CPUID, .type = KB_I32_T, .imm = leaf, .align = subleaf, .sub = reg};
	return kb_emit(k, inst, NULL, 0, true);
}

struct kb_val kb_xgetbv(struct kb *k)
{
	struct kb_inst inst = {.op = KBO_XGETBV, .type = KB_I32_T};
	return kb_emit(k, inst, NULL, 0, true);
}
