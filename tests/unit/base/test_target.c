/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The target table and the question what this machine runs.
 */
#include <check.h>
#include <string.h>

#include "ir/support/compiler.h"
#include "ir/target/tile.h"

START_TEST(finds_rows)
{
	const struct target *t = target_find("x86-64-v3");
	ck_assert_ptr_nonnull(t);
	ck_assert_int_eq(t->lanes, 8);
	ck_assert(t->has_fma);
	ck_assert_ptr_eq(target_level_at(1), t);
	ck_assert_ptr_null(target_find("x86-64-v9"));
	ck_assert_ptr_null(target_level_at(1000));
}
END_TEST

/* The native row is the last that runs; what a row needs, rows with fewer features need, too. */
START_TEST(native_is_the_last)
{
	const struct target *best = NULL;
	for (size_t i = 0; target_level_at(i); i++) {
		const struct target *t = target_level_at(i);
		if (target_runs_on_host(t))
			best = t;
		for (size_t j = 0; target_level_at(j); j++)
			if (target_level_at(j)->arch == t->arch &&
			    (target_level_at(j)->features & ~t->features) == 0)
				ck_assert(!target_runs_on_host(t) || target_runs_on_host(target_level_at(j)));
	}
	const struct target *native = target_native();
	ck_assert_int_eq(native == NULL, best == NULL);
	ck_assert(!native || native->features == best->features);
}
END_TEST

/* ---- features ---- */

static bool is_above(const char *name, const char *below)
{
	uint64_t more = target_find(name)->features, less = target_find(below)->features;
	return (less & ~more) == 0 && more != less;
}

START_TEST(levels_nest)
{
	static const char *const chains[][5] = {
	        {"x86-64-v2", "x86-64-v3", "x86-64-v3-vnni"},
	        {"x86-64-v3", "x86-64-v4", "x86-64-v4-vnni", "x86-64-v4-bf16", "x86-64-v4-amx"},
	        {"aarch64", "armv8.2-dotprod", "armv8.6"}};
	for (int c = 0; c < 3; c++)
		for (int i = 1; i < 5 && chains[c][i]; i++)
			ck_assert_msg(is_above(chains[c][i], chains[c][i - 1]), "%s", chains[c][i]);
	ck_assert(target_has(target_find("x86-64-v4-amx"), FEATURE_AMX_INT8));
	ck_assert(!target_has(target_find("x86-64-v4-bf16"), FEATURE_AMX_INT8));
}
END_TEST

/* Code that LLVM makes for a row uses what the row says and no more than its cpu has. */
START_TEST(features_as_text)
{
	static const char *const wants[][2] = {
	        {"x86-64-v2", ""},
	        {"x86-64-v4", ""},
	        {"x86-64-v3-vnni", "+avxvnni"},
	        {"x86-64-v4-bf16", "+avx512vbmi,+avx512vnni,+avx512bf16"},
	        {"aarch64", ""},
	        {"armv8.6", "+dotprod,+i8mm,+bf16"},
	};
	char text[TARGET_FEATURES_BYTES];
	for (size_t i = 0; i < TFMC_COUNT(wants); i++) {
		target_features_string(target_find(wants[i][0]), text);
		ck_assert_str_eq(text, wants[i][1]);
	}
	struct target all = *target_find("opencl-gpu");
	all.features = ~(uint64_t)0;
	target_features_string(&all, text);
	ck_assert_uint_lt(strlen(text), TARGET_FEATURES_BYTES);
}
END_TEST

/* Each feature is a question of its own: one bit of cpuid or of a word of the system. */
START_TEST(every_feature_is_asked_for)
{
	for (int i = 0; i < N_FEATURES; i++) {
		const struct target one = {.features = (uint64_t)1 << i};
		const struct target_requirements n = target_requirements(&one);
		uint64_t bits = n.n_words ? n.words[0].bits : n.system[0] | n.system[1];
		ck_assert_int_le(n.n_words, 1);
		ck_assert_uint_ne(bits, 0);
		ck_assert_uint_eq(bits & (bits - 1), 0);
		for (int j = 0; j < i; j++) {
			const struct target other = {.features = (uint64_t)1 << j};
			const struct target_requirements m = target_requirements(&other);
			ck_assert(memcmp(&n.words[0], &m.words[0], sizeof(n.words[0])) ||
			          memcmp(n.system, m.system, sizeof(n.system)));
		}
	}
}
END_TEST

/* ---- machines that this one is not ---- */

struct machine {
	uint64_t has; /* features */
	const char *vendor;
	uint32_t signature; /* leaf 1 eax */
	uint32_t xcr0;
	uint64_t system[2];
	int asked; /* how often the system was */
};

static uint32_t told_cpuid(void *user, uint32_t leaf, uint32_t subleaf, uint32_t reg)
{
	static const int place[] = {0, 0, 8, 4}; /* of the vendor's letters */
	const struct machine *m = user;
	const struct target t = {.features = m->has};
	const struct target_requirements n = target_requirements(&t);
	uint32_t letters = 0;
	if (leaf == 0 && reg > 0 && m->vendor)
		memcpy(&letters, m->vendor + place[reg], sizeof(letters));
	if (leaf == 0)
		return letters;
	if (leaf == 1 && reg == 0)
		return m->signature;
	for (int i = 0; i < n.n_words; i++)
		if (n.words[i].leaf == leaf && n.words[i].subleaf == subleaf && n.words[i].reg == reg)
			return n.words[i].bits;
	return 0;
}

static uint32_t told_xcr0(void *user)
{
	return ((const struct machine *)user)->xcr0;
}

static uint64_t told_system(void *user, int word)
{
	struct machine *m = user;
	m->asked++;
	return m->system[word];
}

static const char *best(enum target_arch arch, struct machine *machine)
{
	const struct target_machine m = {arch, told_cpuid, told_xcr0, told_system, machine};
	const struct target *t = target_level_for_machine(&m);
	return t ? t->name : "none";
}

START_TEST(machines_have_a_best_row)
{
	const uint64_t amx = target_find("x86-64-v4-amx")->features;
	const uint64_t vbmi = (uint64_t)1 << FEATURE_AVX512VBMI, v4 = target_find("x86-64-v4")->features;
	struct machine m = {.has = amx, .xcr0 = 0x600e7, .system = {0x60000}};
	ck_assert_str_eq(best(ARCH_X86_64, &m), "x86-64-v4-amx");
	m.system[0] = 0x20000; /* refused */
	ck_assert_str_eq(best(ARCH_X86_64, &m), "x86-64-v4-bf16");
	m.system[0] = 0x60000;
	m.xcr0 = 0xe7; /* a system that does not know tiles is not asked for them */
	m.asked = 0;
	ck_assert_str_eq(best(ARCH_X86_64, &m), "x86-64-v4-bf16");
	ck_assert_int_eq(m.asked, 0);
	m.xcr0 = 0x7;
	ck_assert_str_eq(best(ARCH_X86_64, &m), "x86-64-v3");
	m.has |= (uint64_t)1 << FEATURE_AVXVNNI;
	ck_assert_str_eq(best(ARCH_X86_64, &m), "x86-64-v3-vnni");
	m = (struct machine){.has = v4, .xcr0 = 0xe7};
	ck_assert_str_eq(best(ARCH_X86_64, &m), "x86-64-v4");
	m.has |= (uint64_t)1 << FEATURE_AVX512VNNI;
	ck_assert_str_eq(best(ARCH_X86_64, &m), "x86-64-v4");
	m.has |= vbmi;
	ck_assert_str_eq(best(ARCH_X86_64, &m), "x86-64-v4-vnni");
	m = (struct machine){0};
	ck_assert_str_eq(best(ARCH_X86_64, &m), "none");
	ck_assert_str_eq(best(ARCH_AARCH64, &m), "aarch64");
	m.system[0] = 1u << 20;
	ck_assert_str_eq(best(ARCH_AARCH64, &m), "armv8.2-dotprod");
	m.system[1] = 1u << 13 | 1u << 14;
	ck_assert_str_eq(best(ARCH_AARCH64, &m), "armv8.6");
	m.system[0] = 0;
	ck_assert_str_eq(best(ARCH_AARCH64, &m), "aarch64");
}
END_TEST

/* A processor is a level with caches and ports of its own. */
START_TEST(processors_are_tuned_levels)
{
	for (size_t i = 0; target_processor_at(i); i++) {
		const struct target *t = target_processor_at(i), *level = NULL;
		for (size_t j = 0; target_level_at(j); j++)
			if (target_level_at(j)->arch == t->arch &&
			    target_level_at(j)->features == t->features)
				level = target_level_at(j);
		ck_assert_msg(level != NULL, "%s", t->name);
		ck_assert_str_eq(t->llvm_cpu, level->llvm_cpu);
		ck_assert_int_eq(t->lanes, level->lanes);
		ck_assert_int_eq(t->registers, level->registers);
		ck_assert_int_eq(t->k_lanes, level->k_lanes);
		const struct register_tile mine = target_register_tile(t), its = target_register_tile(level);
		ck_assert_msg(mine.mr == its.mr && mine.nr == its.nr, "%s", t->name);
	}
}
END_TEST

static const char *tuned(struct machine *machine)
{
	const struct target_machine m = {ARCH_X86_64, told_cpuid, told_xcr0, told_system, machine};
	return target_for_machine(&m)->name;
}

START_TEST(processors_are_known_by_cpuid)
{
	const uint64_t bf16 = target_find("x86-64-v4-bf16")->features;
	const uint64_t amx = target_find("x86-64-v4-amx")->features;
	struct machine m = {bf16, "AuthenticAMD", 0x00b00f21, 0xe7, {0}, 0};
	ck_assert_str_eq(tuned(&m), "znver5");
	m.signature = 0x00a10f11;
	ck_assert_str_eq(tuned(&m), "znver4");
	m.signature = 0x00c00f21; /* a family that is not known */
	ck_assert_str_eq(tuned(&m), "x86-64-v4-bf16");
	m.signature = 0x00b00f21;
	m.xcr0 = 7; /* without its instructions it is another machine */
	ck_assert_str_eq(tuned(&m), "x86-64-v3");
	m = (struct machine){amx, "GenuineIntel", 0x000806f8, 0x600e7, {0x60000}, 0};
	ck_assert_str_eq(tuned(&m), "sapphirerapids");
	m.system[0] = 0;
	ck_assert_str_eq(tuned(&m), "x86-64-v4-bf16");
	m = (struct machine){target_find("x86-64-v3")->features, "GenuineIntel", 0x000306f2, 7, {0}, 0};
	ck_assert_str_eq(tuned(&m), "haswell");
	m.vendor = "AuthenticAMD";
	ck_assert_str_eq(tuned(&m), "x86-64-v3");
	m.signature = 0x00a20f10;
	ck_assert_str_eq(tuned(&m), "znver3");
	m.signature = 0x00830f10;
	ck_assert_str_eq(tuned(&m), "znver2");
	m.signature = 0x00800f12;
	ck_assert_str_eq(tuned(&m), "znver1");
	m.signature = 0x00820f01; /* models 0x20 to 0x2f are of the first generation, too */
	ck_assert_str_eq(tuned(&m), "znver1");
}
END_TEST

/* ---- names ---- */

static const char *chosen(const char *triple, const char *cpu)
{
	const struct target *t;
	switch (target_choose(triple, cpu, &t)) {
	case TARGET_CHOSEN: return t->name;
	case TARGET_NO_TRIPLE: return "no triple";
	case TARGET_NO_CPU: return "no processor";
	case TARGET_NO_NATIVE: return "no native";
	}
	return "";
}

/* A name on the command line is a row, or it is known why not. */
START_TEST(chooses_by_names)
{
	const char *native = target_native() ? target_native()->name : "no native";
	ck_assert_str_eq(chosen("aarch64-linux-gnu", NULL), "aarch64");
	ck_assert_str_eq(chosen("aarch64-unknown-linux-gnu", "aarch64"), "aarch64");
	ck_assert_str_eq(chosen("aarch64-linux-gnu", "x86-64-v2"), "no processor");
	ck_assert_str_eq(chosen("x86_64-linux-gnu", "x86-64-v3"), "x86-64-v3");
	ck_assert_str_eq(chosen("opencl", NULL), "opencl-gpu");
	ck_assert_str_eq(chosen("opencl", "opencl-gpu"), "opencl-gpu");
	ck_assert_str_eq(chosen("opencl-gpu", NULL), "opencl-gpu");
	ck_assert_str_eq(chosen("opencl-gpu", "native"), "no processor");
	ck_assert_str_eq(chosen("opencl-cpu512", NULL), "no triple");
	ck_assert_ptr_nonnull(target_replacement("opencl-cpu512"));
	ck_assert_ptr_null(target_replacement("opencl-gpu"));
	ck_assert_str_eq(chosen("aarch64", NULL), "no triple");
	ck_assert_str_eq(chosen("riscv64-linux-gnu", NULL), "no triple");
	ck_assert_str_eq(chosen(NULL, "x86-64-v9"), "no processor");
	ck_assert_str_eq(chosen(NULL, "aarch64"), "aarch64");
	ck_assert_str_eq(chosen(NULL, "znver5"), "znver5");
	ck_assert_str_eq(chosen("aarch64-linux-gnu", "neoverse-v2"), "neoverse-v2");
	ck_assert_str_eq(chosen("aarch64-linux-gnu", "znver5"), "no processor");
	ck_assert_str_eq(chosen(NULL, NULL), native);
	ck_assert_str_eq(chosen("native", "native"), native);
}
END_TEST

/* Every name that is listed can be chosen. */
START_TEST(lists_are_known_names)
{
	struct buf triples, cpus;
	buf_init(&triples);
	buf_init(&cpus);
	target_print_triples(&triples);
	for (char *name = strtok(triples.data, ", "); name; name = strtok(NULL, ", "))
		ck_assert_msg(strncmp(chosen(name, NULL), "no ", 3) || !target_native(), "%s", name);
	target_print_cpus(&cpus, "aarch64-linux-gnu");
	if (!target_native() || target_native()->arch != ARCH_AARCH64)
		ck_assert_str_eq(cpus.data,
		                 "aarch64, armv8.2-dotprod, armv8.6, cortex-a76, neoverse-n1, neoverse-v1, "
		                 "neoverse-n2, neoverse-v2");
	buf_destroy(&triples);
	buf_destroy(&cpus);
}
END_TEST

#if defined(__x86_64__)
START_TEST(agrees_with_the_compiler)
{
	__builtin_cpu_init();
	ck_assert_int_eq(target_runs_on_host(target_find("x86-64-v3")),
	                 __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
	                         __builtin_cpu_supports("bmi2"));
	ck_assert_int_eq(target_runs_on_host(target_find("x86-64-v4-vnni")),
	                 target_runs_on_host(target_find("x86-64-v4")) &&
	                         __builtin_cpu_supports("avx512vbmi") &&
	                         __builtin_cpu_supports("avx512vnni"));
	ck_assert_int_eq(target_runs_on_host(target_find("x86-64-v4-bf16")),
	                 target_runs_on_host(target_find("x86-64-v4-vnni")) &&
	                         __builtin_cpu_supports("avx512bf16"));
	ck_assert_int_eq(target_runs_on_host(target_find("x86-64-v4")),
	                 __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
	                         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512cd"));
}
END_TEST
#endif

Suite *suite_target(void)
{
	Suite *s = suite_create("target");
	TCase *t = tcase_create("all");
	tcase_add_test(t, finds_rows);
	tcase_add_test(t, native_is_the_last);
	tcase_add_test(t, levels_nest);
	tcase_add_test(t, features_as_text);
	tcase_add_test(t, every_feature_is_asked_for);
	tcase_add_test(t, machines_have_a_best_row);
	tcase_add_test(t, processors_are_tuned_levels);
	tcase_add_test(t, processors_are_known_by_cpuid);
	tcase_add_test(t, chooses_by_names);
	tcase_add_test(t, lists_are_known_names);
#if defined(__x86_64__)
	tcase_add_test(t, agrees_with_the_compiler);
#endif
	suite_add_tcase(s, t);
	return s;
}
