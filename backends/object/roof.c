/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The multiply-add roof of one core: a loop of independent fused multiply-adds in
 * registers, made by the same builder and printer as kernels, run in this process.
 */
#include "backends/backend.h"

#include <string.h>

#include "backends/kb/kb.h"
#include "backends/llvm/llvm.h"

#define ROOF_CHAINS  10 /* independent: more than latency x throughput of any core here */
#define ROOF_REPEATS 5
#define ROOF_STEPS   1000000
#define SYMBOL       "tfmc_roof"

/* out[lane] = sums of n steps; x is 1 so that values stay small and unknown to the compiler. */
static void record_roof(struct kb_module *m, int lanes)
{
	struct kb_type t = KB_TYPE(KB_F32, lanes);
	struct kb *k = kb_begin(m, SYMBOL, KB_EXPORTED, KB_VOID);
	struct kb_var sum[ROOF_CHAINS];
	if (!k)
		return;
	struct kb_val data = kb_param(k, "data", KB_PTR_T, 0), n = kb_param(k, "n", KB_INDEX_T, 0);
	struct kb_val zero = kb_index(k, 0), x = kb_load(k, t, data, zero, 0, 4);
	for (int i = 0; i < ROOF_CHAINS; i++)
		sum[i] = kb_var(k, "sum", t, kb_load(k, t, data, zero, (int64_t)i * lanes, 4));
	kb_loop(k, "i", zero, n, 1, 0);
	for (int i = 0; i < ROOF_CHAINS; i++)
		kb_set(k, sum[i], kb_fma(k, kb_get(k, sum[i]), x, x));
	kb_end_loop(k);
	for (int i = 0; i < ROOF_CHAINS; i++)
		kb_store(k, kb_get(k, sum[i]), data, zero, (int64_t)i * lanes, 4);
	kb_end(k);
}

static double best_rate(void (*roof)(float *, int64_t), int lanes, double (*clock)(void *), void *user)
{
	float data[ROOF_CHAINS * KB_LANES_MAX];
	double best = 0;
	for (int r = 0; r < ROOF_REPEATS; r++) {
		for (int i = 0; i < ROOF_CHAINS * lanes; i++)
			data[i] = 0.5f;
		double start = clock(user);
		roof(data, ROOF_STEPS);
		double seconds = clock(user) - start, flops = 2.0 * ROOF_STEPS * ROOF_CHAINS * lanes;
		if (seconds > 0 && flops / seconds > best)
			best = flops / seconds;
	}
	return best;
}

enum tfmc_status backend_roof(struct diag_context *cx, const struct target *target,
                              double (*clock)(void *user), void *clock_user, double *out)
{
	struct arena arena;
	struct buf object;
	struct backend_jit *jit = NULL;
	struct kb_caps caps = {target->lanes, target->registers, target->has_fma};
	struct llvm_options options = {.target = target, .opt_level = 2};
	struct llvm_output result = {.object = &object};
	arena_init(&arena);
	buf_init(&object);
	struct kb_module *m = kb_module_create(&arena, &caps);
	if (m)
		record_roof(m, target->lanes);
	enum tfmc_status st = m ? kb_verify(m, cx) : TFMC_NO_MEMORY;
	if (st == TFMC_OK)
		st = llvm_compile(cx, m, SYMBOL, &options, &result);
	if (st == TFMC_OK)
		st = backend_jit_load(cx, &object, &jit);
	if (st == TFMC_OK) {
		void *at = backend_jit_symbol(jit, SYMBOL);
		void (*roof)(float *, int64_t);
		memcpy(&roof, &at, sizeof(roof));
		*out = at ? best_rate(roof, target->lanes, clock, clock_user) : 0;
	}
	backend_jit_destroy(jit);
	buf_destroy(&object);
	arena_destroy(&arena);
	return st;
}
