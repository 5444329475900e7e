/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Selection of the variant by init. It runs before anything else, so it is compiled for the baseline of the
 * architecture.
 *
 *   NAME.cpu(config, start) -> status    (NAME.LEVEL.cpu with several variants) TFMC_RT_OK if this processor and its
 *                                        operating system support the features that the variant uses; of a device
 *                                        variant it opens the device
 */
#include "backends/plan/host.h"

static void require_bits(struct emit *e, struct kb_val word, struct kb_val bits)
{
	emit_require(e, kb_cmp(e->k, KB_EQ, kb_bin(e->k, KB_AND, word, bits), bits), TFMC_RT_E_CPU);
}

struct target_requirements object_needs(const struct object *o)
{
	const uint64_t tiles = UINT64_C(1) << FEATURE_AMX_TILE | UINT64_C(1) << FEATURE_AMX_INT8 |
	                       UINT64_C(1) << FEATURE_AMX_BF16;
	struct target used = *o->target;
	if (!kb_module_has_tiles(o->kb, (int)(o - o->all)))
		used.features &= ~tiles;
	return target_requirements(&used);
}

void emit_variant_check(struct object *o)
{
	struct emit e = {.object = o};
	struct target_requirements needs = {0};
	e.k = kb_begin(o->kb, emit_variant_symbol(o, "cpu"), KB_INTERNAL, KB_I32);
	struct kb_val config = kb_param(e.k, "config", KB_PTR_T, KB_READONLY);
	struct kb_val slots = kb_param(e.k, "start", KB_PTR_T, 0);
	if (object_is_device(o)) {
		emit_device_open(&e, config, slots);
		kb_end(e.k);
		return;
	}
	if (!o->emits_c)
		needs = object_needs(o);
	for (int i = 0; i < needs.n_words; i++) {
		const struct cpuid_requirement *w = &needs.words[i];
		/* cpuid leaves above the highest one of their range are invalid; the distance from the
		 * range's base compares as unsigned. */
		uint32_t base = w->leaf & 0x80000000u;
		struct kb_val highest = kb_cpuid(e.k, base, 0, 0);
		struct kb_val distance = kb_bin(e.k, KB_SUB, highest, kb_i32(e.k, (int32_t)base));
		emit_require(&e, kb_cmp(e.k, KB_GE, distance, kb_i32(e.k, (int32_t)(w->leaf - base))),
		             TFMC_RT_E_CPU);
		struct kb_val word = kb_cpuid(e.k, w->leaf, (int)w->subleaf, (int)w->reg);
		require_bits(&e, word, kb_i32(e.k, (int32_t)w->bits));
	}
	if (needs.xcr0) {
		struct kb_val saved = kb_xgetbv(e.k);
		require_bits(&e, saved, kb_i32(e.k, (int32_t)needs.xcr0));
	}
	for (int i = 0; i < TARGET_SYSTEM_WORDS; i++) {
		if (!needs.system[i])
			continue;
		struct kb_val granted = emit_load(e.k, KB_INDEX, config, CONFIG(system) + 8 * i);
		require_bits(&e, granted, kb_index(e.k, (int64_t)needs.system[i]));
	}
	emit_end(&e, TFMC_RT_OK);
}

/* (bits & mask) != 0 */
static struct kb_val has_any(struct kb *k, struct kb_val bits, int64_t mask)
{
	return kb_cmp(k, KB_NE, kb_bin(k, KB_AND, bits, kb_index(k, mask)), kb_index(k, 0));
}

struct kb_val emit_choose_variant(struct emit *e, struct kb_val config, struct kb_val slots)
{
	struct kb *k = e->k;
	const struct object *all = e->object->all;
	size_t n = e->object->n_all;
	int64_t all_bits = ((int64_t)1 << n) - 1, devices = 0;
	struct kb_val args[] = {config, slots}, zero = kb_index(k, 0);
	struct kb_val allowed = emit_load(k, KB_INDEX, config, CONFIG(variants));
	emit_return_if(e, has_any(k, allowed, ~all_bits), TFMC_RT_E_VARIANT);
	struct kb_val is_any = kb_cmp(k, KB_EQ, allowed, zero);
	struct kb_val use = kb_select(k, is_any, kb_index(k, all_bits), allowed);
	struct kb_var chosen = kb_var(k, "variant", KB_INDEX_T, kb_index(k, -1));
	for (size_t i = n; i-- > 0;) {
		struct kb_val is_open = kb_cmp(k, KB_LT, kb_get(k, chosen), zero);
		kb_if(k, kb_bin(k, KB_AND, is_open, has_any(k, use, (int64_t)1 << i)));
		struct kb_val status = kb_call(k, emit_variant_symbol(&all[i], "cpu"), KB_I32, args, 2);
		kb_if(k, kb_cmp(k, KB_EQ, status, kb_i32(k, TFMC_RT_OK)));
		kb_set(k, chosen, kb_index(k, (int64_t)i));
		kb_end_if(k);
		kb_end_if(k);
		devices |= object_is_device(&all[i]) ? (int64_t)1 << i : 0;
	}
	kb_if(k, kb_cmp(k, KB_LT, kb_get(k, chosen), zero));
	if (devices)
		emit_return_if(e, has_any(k, use, devices), TFMC_RT_E_DEVICE);
	kb_return(k, kb_i32(k, TFMC_RT_E_CPU));
	kb_end_if(k);
	return kb_get(k, chosen);
}
