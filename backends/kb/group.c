/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recording: work-groups. Only kernels have them; a printer that knows none
 * refuses the function.
 */
#include "backends/kb/internal.h"

#define GROUP_SIZE_MAX 1024

static struct kb_val ask(struct kb *k, enum kb_opcode op)
{
	kb_require(k, k->func->linkage == KB_KERNEL, "only kernels have work-groups");
	struct kb_inst inst = {.op = op, .type = KB_INDEX_T};
	return kb_emit(k, inst, NULL, 0, true);
}

void kb_group_size(struct kb *k, int64_t items)
{
	kb_require(k, k->func->linkage == KB_KERNEL, "only kernels have work-groups");
	kb_require(k, items >= 1 && items <= GROUP_SIZE_MAX, "size of a work-group");
	k->func->group_size = items;
}

struct kb_val kb_group_id(struct kb *k)
{
	return ask(k, KBO_GROUP_ID);
}

struct kb_val kb_group_count(struct kb *k)
{
	return ask(k, KBO_GROUP_COUNT);
}

struct kb_val kb_item_id(struct kb *k)
{
	return ask(k, KBO_ITEM_ID);
}

struct kb_val kb_shared(struct kb *k, const char *name, enum kb_scalar type, int64_t count)
{
	kb_require(k, k->func->linkage == KB_KERNEL, "only kernels have work-groups");
	kb_require(k, k->open.n == 0, "shared arrays stand at function level");
	kb_require(k, count > 0 && count <= 65536 && kb_scalar_bytes(type) > 0, "size of a shared array");
	struct kb_inst inst = {.op = KBO_SHARED,
	                       .type = KB_PTR_T,
	                       .imm = count,
	                       .element = type,
	                       .align = 64,
	                       .name = arena_strdup(k->module->arena, name)};
	return kb_emit(k, inst, NULL, 0, true);
}

void kb_barrier(struct kb *k)
{
	kb_require(k, k->func->linkage == KB_KERNEL, "only kernels have work-groups");
	struct kb_inst inst = {.op = KBO_BARRIER};
	kb_emit(k, inst, NULL, 0, false);
}
