/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several variants in one object: each of them against an object of its own, the
 * same state under all of them, what init chooses and refuses. Processors that this
 * machine is not are told to the kernel interpreter, which runs the choice itself.
 */
#define _POSIX_C_SOURCE 200809L /* posix_memalign */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/kb_interp/interp.h"
#include "backends/plan/host.h"
#include "passes/framework/pass.h"
#include "passes/pipeline/run.h"
#include "runtime/tfmc_rt.h"
#include "tests/support/mini_model.h"
#include "tests/support/effort.h"
#include "tests/support/tir.h"

enum { N = 3, D = 16, V = 20, BATCH = 2, SOURCE = 5, PROMPT = 4 };
static const char *const levels[N] = {"x86-64-v2", "x86-64-v3", "x86-64-v4"};

/* ---- an object of n variants ---- */

struct built {
	struct tir graph;
	struct arena arena;
	struct ir_module *planned[N];
	struct backend_output out;
	struct backend_jit *jit;
	struct tfmc_model model;
};

static struct ir_module *run_passes(struct built *b, const char *text, const struct target *t,
                                    const struct ir_module *in)
{
	struct pipeline p;
	struct pass_options po = {.target = t};
	struct ir_module *out;
	ck_assert_int_eq(pipeline_parse(&b->arena, &b->graph.cx, text, &p), TFMC_OK);
	enum tfmc_status status = passes_run(&b->graph.cx, &p, &po, in, &out, NULL);
	ck_assert_msg(status == TFMC_OK, "%s", b->graph.log.data);
	return out;
}

/* Levels [first, first + n) of x86-64; encode once, the rest for each of them. */
static void build(struct built *b, size_t first, size_t n)
{
	struct backend_options bo = {.opt_level = effort_of_code()};
	struct backend_variant variants[N];
	arena_init(&b->arena);
	tir_init(&b->graph);
	tir_load(&b->graph, mini_model);
	struct ir_module *common = run_passes(
	        b, "canonicalize,fuse-softmax,fuse-attention,merge-linear,encode", NULL, b->graph.m);
	memset(b->planned, 0, sizeof(b->planned));
	for (size_t i = 0; i < n; i++) {
		const struct target *t = target_find(levels[first + i]);
		b->planned[i] = run_passes(b, "specialize,group,select,plan-memory", t, common);
		variants[i] = (struct backend_variant){b->planned[i], t};
	}
	ir_module_destroy(common);
	backend_output_init(&b->out);
	enum tfmc_status status = backend_compile(&b->graph.cx, variants, n, NULL, &bo, &b->out);
	ck_assert_msg(status == TFMC_OK, "%s", b->graph.log.data);
	ck_assert_int_eq(backend_jit_load(&b->graph.cx, &b->out.object, &b->jit), TFMC_OK);
	ck_assert(backend_jit_model(b->jit, "mini", &b->model));
}

static void release(struct built *b)
{
	backend_jit_destroy(b->jit);
	backend_output_destroy(&b->out);
	for (size_t i = 0; i < N; i++)
		if (b->planned[i])
			ir_module_destroy(b->planned[i]);
	tir_destroy(&b->graph);
	arena_destroy(&b->arena);
}

/* ---- calls ---- */

struct answers {
	float memory[BATCH * SOURCE * D], prefill[BATCH * V], step[BATCH * V];
};

/* A context with memory of its own, but for the state. */
struct context {
	struct tfmc_model model;
	_Alignas(64) uint64_t words[1024];
	void *arena;
	struct tfmc_config config;
};

static void *memory(uint64_t bytes)
{
	void *p = NULL;
	ck_assert_int_eq(posix_memalign(&p, 64, (size_t)bytes + 64), 0);
	memset(p, 0, (size_t)bytes);
	return p;
}

static void prepare(struct context *c, const struct built *b, void *state)
{
	const struct tfmc_record *r = b->model.record;
	memset(c, 0, sizeof(*c));
	c->model = b->model;
	uint64_t bytes = r->arena_bytes_max + r->scratch_bytes;
	c->arena = memory(bytes);
	ck_assert_uint_le(r->context_bytes, sizeof(c->words));
	c->config = (struct tfmc_config){.struct_size = sizeof(c->config),
	                                 .state = state,
	                                 .state_bytes = b->model.state_size(BATCH),
	                                 .batch = BATCH,
	                                 .arena = c->arena,
	                                 .arena_bytes = bytes};
}

static int32_t call(struct context *c, const char *entry, const int64_t *dims, size_t n_dims,
                    const struct tfmc_buffer *buffers, size_t n)
{
	uint64_t words[32];
	size_t at = 0;
	for (size_t i = 0; i < n_dims; i++)
		words[at++] = (uint64_t)dims[i];
	for (size_t i = 0; i < n; i++) {
		words[at++] = (uint64_t)(uintptr_t)buffers[i].data;
		words[at++] = buffers[i].count;
	}
	int64_t number = tfmc_entry_find(c->model.record, entry);
	return c->model.call(c->words, (uint64_t)number, words, -1);
}

static void encode(struct context *c, struct answers *a)
{
	int32_t ids[BATCH * SOURCE], len[BATCH] = {SOURCE, SOURCE - 2};
	const int64_t dims[] = {BATCH, SOURCE};
	for (int i = 0; i < BATCH * SOURCE; i++)
		ids[i] = (i * 7 + 3) % V;
	struct tfmc_buffer io[] = {{ids, BATCH * SOURCE}, {len, BATCH}, {a->memory, BATCH * SOURCE * D}};
	ck_assert_int_eq(call(c, "encode", dims, 2, io, 3), TFMC_RT_OK);
}

static void decode(struct context *c, const char *entry, int64_t n, float *logits)
{
	int32_t ids[BATCH * PROMPT];
	const int64_t dims[] = {BATCH, n};
	for (int i = 0; i < BATCH * n; i++)
		ids[i] = (i * 3 + (int)n) % V;
	struct tfmc_buffer io[] = {{ids, (uint64_t)(BATCH * n)}, {logits, BATCH * V}};
	ck_assert_int_eq(call(c, entry, dims, strcmp(entry, "step") ? 2 : 1, io, 2), TFMC_RT_OK);
}

/* The whole conversation by variant `number` of the object. */
static void ask(const struct built *b, int64_t number, struct answers *a)
{
	struct context c;
	void *state = memory(b->model.state_size(BATCH));
	prepare(&c, b, state);
	c.config.variants = (uint64_t)1 << number;
	ck_assert_int_eq(c.model.init(c.words, &c.config), TFMC_RT_OK);
	ck_assert_int_eq(c.model.variant(c.words), number);
	encode(&c, a);
	decode(&c, "prefill", PROMPT, a->prefill);
	decode(&c, "step", 1, a->step);
	free(c.arena);
	free(state);
}

static void close_to(const float *x, const float *y, size_t n)
{
	for (size_t i = 0; i < n; i++)
		ck_assert_msg(fabsf(x[i] - y[i]) <= 2e-4f * (1 + fabsf(y[i])), "element %zu is %g, not %g", i,
		              (double)x[i], (double)y[i]);
}

static void close_answers(const struct answers *x, const struct answers *y)
{
	close_to(x->memory, y->memory, TFMC_COUNT(x->memory));
	close_to(x->prefill, y->prefill, TFMC_COUNT(x->prefill));
	close_to(x->step, y->step, TFMC_COUNT(x->step));
}

static bool runs(size_t level)
{
	return target_runs_on_host(target_find(levels[level]));
}

/* ---- tests ---- */

/* Same bits as the object that holds this variant alone; variants are near each other. */
START_TEST(each_is_what_it_is_alone)
{
	static struct answers first, several, alone;
	struct built b, one;
	build(&b, 0, N);
	ask(&b, 0, &first);
	for (size_t i = 0; i < N && runs(i); i++) {
		build(&one, i, 1);
		ask(&b, (int64_t)i, &several);
		ask(&one, 0, &alone);
		ck_assert_mem_eq(&several, &alone, sizeof(alone));
		close_answers(&several, &first);
		ck_assert_uint_eq(one.model.record->structure_hash, b.model.record->structure_hash);
		ck_assert_uint_eq(one.model.record->weights_hash, b.model.record->weights_hash);
		ck_assert_uint_eq(one.model.record->state_batch_bytes, b.model.record->state_batch_bytes);
		ck_assert_uint_le(one.model.record->arena_bytes_max, b.model.record->arena_bytes_max);
		ck_assert_uint_le(one.model.record->scratch_bytes, b.model.record->scratch_bytes);
		release(&one);
	}
	release(&b);
}
END_TEST

/* Every variant goes on where another one stopped. */
START_TEST(share_the_state)
{
	static struct answers want, got;
	struct built b;
	build(&b, 0, N);
	ask(&b, 0, &want);
	for (size_t i = 0; i < N && runs(i); i++)
		for (size_t k = 0; k < N && runs(k); k++) {
			struct context writer, reader;
			uint64_t bytes = b.model.state_size(BATCH);
			void *state = memory(bytes), *other = memory(bytes);
			prepare(&writer, &b, state);
			prepare(&reader, &b, other);
			writer.config.variants = (uint64_t)1 << i;
			reader.config.variants = (uint64_t)1 << k;
			ck_assert_int_eq(b.model.init(writer.words, &writer.config), TFMC_RT_OK);
			ck_assert_int_eq(b.model.init(reader.words, &reader.config), TFMC_RT_OK);
			encode(&writer, &got);
			decode(&writer, "prefill", PROMPT, got.prefill);
			memcpy(other, state, (size_t)bytes);
			decode(&reader, "step", 1, got.step);
			close_answers(&got, &want);
			free(writer.arena);
			free(reader.arena);
			free(state);
			free(other);
		}
	release(&b);
}
END_TEST

START_TEST(init_takes_the_best_that_is_allowed)
{
	struct built b;
	struct context c;
	int64_t best = -1;
	build(&b, 0, N);
	void *state = memory(b.model.state_size(BATCH));
	prepare(&c, &b, state);
	ck_assert_int_eq(b.model.variant(c.words), -1);
	ck_assert_int_eq(b.model.variant(NULL), -1);
	for (uint64_t allowed = 0; allowed < 8; allowed++) {
		best = -1;
		for (size_t i = 0; i < N; i++)
			if (runs(i) && (!allowed || allowed >> i & 1))
				best = (int64_t)i;
		c.config.variants = allowed;
		memset(c.words, 0, sizeof(c.words));
		int32_t status = b.model.init(c.words, &c.config);
		ck_assert_int_eq(status, best < 0 ? TFMC_RT_E_CPU : TFMC_RT_OK);
		ck_assert_int_eq(b.model.variant(c.words), best);
	}
	for (uint64_t allowed = 8; allowed; allowed <<= 1) {
		c.config.variants = allowed | 1;
		memset(c.words, 0, sizeof(c.words));
		ck_assert_int_eq(b.model.init(c.words, &c.config), TFMC_RT_E_VARIANT);
		ck_assert_int_eq(b.model.variant(c.words), -1); /* nothing was written */
	}
	free(c.arena);
	free(state);
	release(&b);
}
END_TEST

START_TEST(sessions_name_them)
{
	struct built b;
	struct tfmc_session *s;
	struct tfmc_session_options o = {.struct_size = sizeof(o)};
	build(&b, 0, N);
	ck_assert_str_eq(tfmc_record_text(b.model.record, b.model.record->target),
	                 "x86-64-v2,x86-64-v3,x86-64-v4");
	ck_assert_int_eq(tfmc_variant_find(b.model.record, "x86-64-v3"), 1);
	ck_assert_int_eq(tfmc_variant_find(b.model.record, "v3"), -1);
	ck_assert_ptr_null(tfmc_variant_name(b.model.record, 3));
	for (size_t i = 0; i < N && runs(i); i++) {
		o.variant = levels[i];
		ck_assert_int_eq(tfmc_session_open(&b.model, &o, &s), TFMC_RT_OK);
		ck_assert_str_eq(tfmc_session_variant(s), levels[i]);
		tfmc_session_close(s);
	}
	o.variant = "x86-64-v5";
	ck_assert_int_eq(tfmc_session_open(&b.model, &o, &s), TFMC_RT_E_NAME);
	o.variant = NULL;
	ck_assert_int_eq(tfmc_session_open(&b.model, &o, &s), TFMC_RT_OK);
	size_t best = N;
	while (best > 1 && !runs(best - 1))
		best--;
	ck_assert_str_eq(tfmc_session_variant(s), levels[best - 1]);
	tfmc_session_close(s);
	release(&b);
}
END_TEST

START_TEST(code_is_counted_by_name)
{
	struct built b;
	build(&b, 0, N);
	const void *object = b.out.object.data;
	size_t n = b.out.object.len;
	uint64_t all = backend_code_bytes(object, n, "mini"), sum = backend_code_bytes(object, n, "mini_");
	for (size_t i = 0; i < N; i++) {
		uint64_t code = backend_code_bytes(
		        object, n,
		        arena_printf(&b.arena, "mini.%s.", target_level_name(target_find(levels[i]))));
		ck_assert_uint_gt(code, 1000);
		sum += code;
	}
	ck_assert_uint_eq(sum, all);
	ck_assert_uint_eq(backend_code_bytes(object, n, "maxi"), 0);
	for (size_t cut = 0; cut < n;
	     cut += 1 + n / 97) /* pieces of an object are no reason to read elsewhere */
		(void)backend_code_bytes(object, cut, "mini");
	release(&b);
}
END_TEST

/* One of them packs its weights, the other does not: no object. */
START_TEST(layouts_must_agree)
{
	struct built b;
	struct backend_options bo = {.opt_level = effort_of_code()};
	arena_init(&b.arena);
	tir_init(&b.graph);
	tir_load(&b.graph, mini_model);
	const struct target *v2 = target_find(levels[0]), *v3 = target_find(levels[1]);
	struct backend_variant variants[] = {
	        {run_passes(&b, "encode,group,select,plan-memory", v2, b.graph.m), v2},
	        {run_passes(&b, "group,select,plan-memory", v3, b.graph.m), v3}};
	backend_output_init(&b.out);
	ck_assert_int_eq(backend_compile(&b.graph.cx, variants, 2, NULL, &bo, &b.out), TFMC_INTERNAL);
	tir_says(&b.graph, "in two layouts");
	backend_output_destroy(&b.out);
	for (size_t i = 0; i < 2; i++)
		ir_module_destroy((struct ir_module *)(uintptr_t)variants[i].planned);
	tir_destroy(&b.graph);
	arena_destroy(&b.arena);
}
END_TEST

#define NEGATIVE(most, name)                                 \
	"module \"m\"\ndim S in [1," #most "]\nfunc @" #name \
	"(%x: f32[S]) -> (y: f32[S]) {\n  %y = neg %x : f32[S]\n  return %y\n}\n"

/* Reports differences between the first variant and another one. */
START_TEST(interfaces_must_agree)
{
	static const struct {
		const char *text, *says;
	} others[] = {{NEGATIVE(5, run), "x86-64-v2 and x86-64-v3 differ in their dims"},
	              {NEGATIVE(4, turn), "x86-64-v2 and x86-64-v3 differ in their entries"}};
	struct built b[2];
	struct backend_options bo = {.opt_level = effort_of_code()};
	struct backend_variant variants[2];
	for (size_t i = 0; i < 2; i++) {
		const struct target *t = target_find(levels[i]);
		arena_init(&b[i].arena);
		tir_init(&b[i].graph);
		tir_load(&b[i].graph, i == 0 ? NEGATIVE(4, run) : others[_i].text);
		variants[i] = (struct backend_variant){
		        run_passes(&b[i], "group,select,plan-memory", t, b[i].graph.m), t};
	}
	backend_output_init(&b->out);
	ck_assert_int_eq(backend_compile(&b->graph.cx, variants, 2, NULL, &bo, &b->out), TFMC_INTERNAL);
	tir_says(&b->graph, others[_i].says);
	backend_output_destroy(&b->out);
	for (size_t i = 0; i < 2; i++) {
		ir_module_destroy((struct ir_module *)(uintptr_t)variants[i].planned);
		tir_destroy(&b[i].graph);
		arena_destroy(&b[i].arena);
	}
}
END_TEST

/* ---- processors that this machine is not ---- */

/* Bits of leaf 1 ecx (V2, V3) and leaf 7 ebx. */
#define V2     0x00982201u
#define V3     (V2 | 0x38401000u)
#define AVX2   0x128u
#define AVX512 0xd0030000u

#define VNNI     0x802u     /* leaf 7 ecx */
#define TILES    0x3400000u /* leaf 7 edx */
#define AVX_VNNI (1u << 4)
#define BF16     (1u << 5) /* both: subleaf 1 of leaf 7, eax */
#define ASK      (1u << 18)

struct processor {
	const char *what;
	uint32_t leaves, extended; /* the highest of each range */
	uint32_t leaf1, leaf7, leaf80000001, xcr0;
	int64_t best; /* of v2, v3 and v4; NO_CPU: none */
	uint32_t leaf7_ecx, leaf7_edx, leaf7_1;
	uint64_t system;
	int64_t best_of_all; /* of all levels */
};

enum { L2, L3, L3_VNNI, L4, L4_VNNI, L4_BF16, L4_AMX, N_ALL };
static const char *const all_levels[N_ALL] = {"x86-64-v2",    "x86-64-v3",      "x86-64-v3-vnni",
                                              "x86-64-v4",    "x86-64-v4-vnni", "x86-64-v4-bf16",
                                              "x86-64-v4-amx"};

/* A variant, or minus the status. */
enum { NO_CPU = -TFMC_RT_E_CPU, NO_VARIANT = -TFMC_RT_E_VARIANT };

static const struct processor processors[] = {
        {"all", 0x1f, 0x80000008, V3, AVX2 | AVX512, 0x21, 0xe7, 2, .best_of_all = L4},
        {"no AVX-512", 0x16, 0x80000008, V3, AVX2, 0x21, 0x7, 1, .best_of_all = L3},
        {"one bit of AVX-512 missing", 0x16, 0x80000008, V3, AVX2 | (AVX512 & ~0x10000u), 0x21, 0xe7, 1,
         .best_of_all = L3},
        {"the system does not save ZMM", 0x1f, 0x80000008, V3, AVX2 | AVX512, 0x21, 0x7, 1, VNNI, 0,
         AVX_VNNI | BF16, .best_of_all = L3_VNNI},
        {"the system does not save YMM", 0x1f, 0x80000008, V3, AVX2 | AVX512, 0x21, 0x3, 0,
         .best_of_all = L2},
        {"no OSXSAVE", 0x1f, 0x80000008, V3 & ~0x08000000u, AVX2 | AVX512, 0x21, 0xe7, 0, VNNI, TILES,
         AVX_VNNI, .best_of_all = L2},
        {"no FMA", 0x1f, 0x80000008, V3 & ~0x1000u, AVX2 | AVX512, 0x21, 0xe7, 0, .best_of_all = L2},
        {"no leaf 7", 6, 0x80000008, V3, AVX2 | AVX512, 0x21, 0xe7, 0, .best_of_all = L2},
        {"no extended leaves", 0x1f, 0x80000000, V3, AVX2 | AVX512, 0x21, 0xe7, 0, .best_of_all = L2},
        {"SSE4.2 only", 0xb, 0x80000008, V2, 0, 1, 0, 0, .best_of_all = L2},
        {"SSE2 only", 5, 0x80000008, 0x1, 0, 0, 0, NO_CPU, .best_of_all = NO_CPU},
        {"nothing", 0, 0, V3, AVX2 | AVX512, 0x21, 0xe7, NO_CPU, .best_of_all = NO_CPU},
        {"VNNI of 256 bits", 0x1f, 0x80000008, V3, AVX2, 0x21, 0x7, 1, 0, 0, AVX_VNNI,
         .best_of_all = L3_VNNI},
        {"VNNI of 512 bits", 0x1f, 0x80000008, V3, AVX2 | AVX512, 0x21, 0xe7, 2, VNNI,
         .best_of_all = L4_VNNI},
        {"VNNI without VBMI", 0x1f, 0x80000008, V3, AVX2 | AVX512, 0x21, 0xe7, 2, 0x800, .best_of_all = L4},
        {"bf16", 0x1f, 0x80000008, V3, AVX2 | AVX512, 0x21, 0xe7, 2, VNNI, 0, AVX_VNNI | BF16,
         .best_of_all = L4_BF16},
        {"bf16 without VNNI", 0x1f, 0x80000008, V3, AVX2 | AVX512, 0x21, 0xe7, 2, 0, 0, BF16,
         .best_of_all = L4},
        {"tiles", 0x1f, 0x80000008, V3, AVX2 | AVX512, 0x21, 0x600e7, 2, VNNI, TILES, AVX_VNNI | BF16,
         0x600e7, .best_of_all = L4_AMX},
        {"tiles that nobody asked for", 0x1f, 0x80000008, V3, AVX2 | AVX512, 0x21, 0x600e7, 2, VNNI, TILES,
         AVX_VNNI | BF16, 0x200e7, .best_of_all = L4_BF16},
        {"the system does not save tiles", 0x1f, 0x80000008, V3, AVX2 | AVX512, 0x21, 0xe7, 2, VNNI, TILES,
         AVX_VNNI | BF16, ASK, .best_of_all = L4_BF16},
};

static uint32_t told(void *user, uint32_t leaf, uint32_t subleaf, int reg)
{
	const struct processor *p = user;
	ck_assert_uint_le(subleaf, leaf == 7);
	switch (leaf) {
	case 0: return reg == 0 ? p->leaves : 0;
	case 0x80000000u: return reg == 0 ? p->extended : 0;
	case 1: return reg == 2 ? p->leaf1 : 0;
	case 7: {
		const uint32_t first[] = {1, p->leaf7, p->leaf7_ecx, p->leaf7_edx},
		               second[] = {p->leaf7_1, 0, 0, 0};
		return subleaf ? second[reg] : first[reg];
	}
	case 0x80000001u: return reg == 2 ? p->leaf80000001 : 0;
	default: ck_abort_msg("leaf %x was asked for", leaf); return 0;
	}
}

static int64_t chosen(struct kb_module *m, const struct processor *p, uint64_t allowed)
{
	struct tfmc_config config = {
	        .struct_size = sizeof(config), .variants = allowed, .system = {p->system}};
	const struct kb_interp_cpu cpu = {told, p->xcr0, (void *)(uintptr_t)p};
	int64_t start[INIT_SLOTS] = {0};
	const struct kb_range ranges[] = {{&config, sizeof(config), false}, {start, sizeof(start), true}};
	struct kb_interp in = {.module = m, .ranges = ranges, .n_ranges = 2, .cpu = &cpu};
	union kb_cell args[] = {{.p = &config}, {.p = start}}, result = {.i = 99};
	bool ok = kb_interp_call(&in, "m.choose", args, 2, &result);
	ck_assert_msg(ok, "%s: %s", p->what, in.error);
	return result.i < 0 ? -1 - result.i : -result.i;
}

/* m.choose gives a status, or -1 - the variant. */
static void record_choose(struct object *o)
{
	struct emit e = {.object = o, .k = kb_begin(o->kb, "m.choose", KB_INTERNAL, KB_I32)};
	struct kb_val config = kb_param(e.k, "config", KB_PTR_T, KB_READONLY);
	struct kb_val start = kb_param(e.k, "start", KB_PTR_T, 0);
	struct kb_val variant = emit_choose_variant(&e, config, start);
	kb_return(e.k, kb_cvt(e.k, kb_sub(e.k, kb_index(e.k, -1), variant), KB_I32));
	kb_end(e.k);
}

/* The choice among n variants, and their checks; with_tiles: those that have tiles use them. */
static struct kb_module *record_choice(struct arena *a, struct object *all, const char *const *names,
                                       size_t n, bool with_tiles)
{
	static const struct kb_caps caps = {.lanes = 4, .registers = 16};
	struct kb_module *m = kb_module_create(a, &caps);
	for (size_t i = 0; i < n; i++) {
		struct kb_caps own = kb_caps_of(target_find(names[i]));
		kb_module_set_variant(m, (int)i, &own);
		struct kb *k = kb_begin(m, arena_printf(a, "code%zu", i), KB_INTERNAL, KB_VOID);
		if (own.has_tiles && with_tiles)
			kb_tile_config(k, kb_local(k, "config", KB_I32, KB_TILE_CONFIG / 4));
		kb_end(k);
		kb_module_set_variant(m, KB_BASELINE, &caps);
		all[i] = (struct object){.arena = a, .target = target_find(names[i]), .kb = m, .name = "m"};
		all[i].prefix = arena_printf(a, "m.%s", names[i]);
		all[i].all = all;
		all[i].n_all = n;
		emit_variant_check(&all[i]);
	}
	record_choose(&all[0]);
	return m;
}

/* The recorded choice itself, told about one processor after another and asked for every set of variants. */
START_TEST(processors_choose)
{
	struct object some[N], all[N_ALL];
	struct arena a;
	int n_x86 = 0;
	for (size_t i = 0; target_level_at(i); i++)
		n_x86 += target_level_at(i)->arch == ARCH_X86_64;
	ck_assert_int_eq(n_x86, N_ALL);
	arena_init(&a);
	struct kb_module *m = record_choice(&a, some, levels, N, true),
	                 *of_all = record_choice(&a, all, all_levels, N_ALL, true);
	for (const struct processor *p = processors; p < processors + TFMC_COUNT(processors); p++) {
		ck_assert_int_eq(chosen(m, p, 0), p->best);
		ck_assert_int_eq(chosen(of_all, p, 0), p->best_of_all);
		for (uint64_t allowed = 1; allowed < 8; allowed++) {
			int64_t want = p->best;
			while (want >= 0 && !(allowed >> want & 1))
				want--;
			ck_assert_int_eq(chosen(m, p, allowed), want < 0 ? NO_CPU : want);
		}
		ck_assert_int_eq(chosen(m, p, 8), NO_VARIANT);
		ck_assert_int_eq(chosen(m, p, 9), NO_VARIANT);
	}
	arena_destroy(&a);
}
END_TEST

/* Code without tiles needs no permission for them. */
START_TEST(tiles_that_are_not_used)
{
	struct object object;
	struct arena a;
	arena_init(&a);
	struct kb_module *m = record_choice(&a, &object, &all_levels[L4_AMX], 1, _i);
	for (const struct processor *p = processors; p < processors + TFMC_COUNT(processors); p++)
		ck_assert_int_eq(chosen(m, p, 0), p->best_of_all >= (_i ? L4_AMX : L4_BF16) ? 0 : NO_CPU);
	arena_destroy(&a);
}
END_TEST

/* aarch64 has nothing but the words of the system. */
START_TEST(the_system_tells)
{
	static const char *const names[] = {"aarch64", "armv8.2-dotprod", "armv8.6"};
	struct processor p = {.what = "aarch64"};
	struct object all[3];
	struct arena a;
	arena_init(&a);
	struct kb_module *m = record_choice(&a, all, names, 3, true);
	ck_assert_int_eq(chosen(m, &p, 0), 0);
	p.system = 1u << 20;
	ck_assert_int_eq(chosen(m, &p, 0), 1);
	ck_assert_int_eq(chosen(m, &p, 4), NO_CPU);
	arena_destroy(&a);
}
END_TEST

Suite *suite_variants(void);
Suite *suite_variants(void)
{
	Suite *s = suite_create("variants");
	TCase *here = tcase_create("here");
	TCase *elsewhere = tcase_create("elsewhere");
	tcase_add_test(elsewhere, processors_choose);
	tcase_add_loop_test(elsewhere, tiles_that_are_not_used, 0, 2);
	tcase_add_test(elsewhere, the_system_tells);
	tcase_add_test(elsewhere, layouts_must_agree);
	tcase_add_loop_test(elsewhere, interfaces_must_agree, 0, 2);
	suite_add_tcase(s, elsewhere);
	tcase_set_timeout(here, 120);
	tcase_add_test(here, each_is_what_it_is_alone);
	tcase_add_test(here, share_the_state);
	tcase_add_test(here, init_takes_the_best_that_is_allowed);
	tcase_add_test(here, sessions_name_them);
	tcase_add_test(here, code_is_counted_by_name);
	if (target_native())
		suite_add_tcase(s, here);
	return s;
}
