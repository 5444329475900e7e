/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The weight map: patterns and their restrictions, every kind of source, and
 * what is said about entries and tensors that do not fit.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "frontend/weights/safetensors.h"
#include "frontend/weights/map.h"
#include "tests/support/reading.h"

Suite *suite_weight_map(void);

static struct reading r;
static struct weight_files *wf;
static struct weight_map *map;
static struct expr_env env;

static enum expr_lookup lookup(void *user, const char *name, struct loc loc, struct value *out)
{
	(void)user;
	(void)loc;
	*out = value_int(2);
	return strcmp(name, "two") == 0 ? EXPR_FOUND : EXPR_ABSENT;
}

/* name, dtype, shape; element k of every tensor is k. */
static const struct stored {
	const char *name;
	enum ir_dtype dtype;
	int rank;
	int64_t dims[3];
} stored[] = {
        {"h.0.ln.gamma", DT_F32, 1, {4}}, {"h.0.ln.beta", DT_F32, 1, {4}}, {"h.1.ln.gamma", DT_F32, 1, {4}},
        {"h.1.ln.beta", DT_F32, 1, {4}},  {"q", DT_F32, 2, {4, 3}},        {"k", DT_F32, 2, {4, 3}},
        {"v", DT_F32, 2, {2, 3}},         {"fused", DT_F32, 2, {12, 3}},   {"experts", DT_F32, 3, {2, 4, 3}},
        {"scale", DT_F32, 1, {4}},        {"quant", DT_I8, 2, {4, 3}},     {"ids", DT_I32, 1, {3}},
};

static void setup(void)
{
	static float numbers[128];
	struct stored_tensor items[TFMC_COUNT(stored)];
	struct buf out;
	for (size_t i = 0; i < TFMC_COUNT(numbers); i++)
		numbers[i] = (float)i;
	reading_init(&r);
	buf_init(&out);
	for (size_t i = 0; i < TFMC_COUNT(stored); i++) {
		items[i] = (struct stored_tensor){
		        .name = stored[i].name, .dtype = stored[i].dtype, .rank = stored[i].rank};
		int64_t n = ir_dtype_bytes(stored[i].dtype);
		for (int k = 0; k < stored[i].rank; k++) {
			items[i].dims[k] = stored[i].dims[k];
			n *= stored[i].dims[k];
		}
		items[i].bytes = (size_t)n;
		items[i].data = numbers;
	}
	ck_assert(safetensors_write(&out, items, TFMC_COUNT(stored)));
	reading_write(&r, "w.safetensors", out.data, out.len);
	buf_destroy(&out);
	env = (struct expr_env){.arena = &r.arena, .cx = &r.cx, .lookup = lookup};
	wf = weight_files_create(&r.arena, &r.cx, NULL);
	ck_assert_int_eq(weight_files_open_all(wf, r.dir, reading_yaml(&r, "w.safetensors")), TFMC_OK);
	map = weight_map_create(&r.arena, &r.cx, wf, &env);
}

static void teardown(void)
{
	weight_files_destroy(wf);
	reading_destroy(&r);
}

static enum tfmc_status read_map(const char *yaml)
{
	const struct yaml_node *n = reading_yaml(&r, yaml);
	return weight_map_read(map, n, r.dir,
	                       n->kind == YAML_MAPPING && n->n != 0 ? n->pairs[0].key->loc.source : 0);
}

static const struct ir_wexpr *find(const char *path, int rank, int64_t a, int64_t b)
{
	struct parameter_request want = {.path = path, .rank = rank, .dims = {a, b}};
	const struct ir_wexpr *e = weight_map_find(map, &want);
	(void)weight_map_report(map);
	return e;
}

/* The printed expression of a parameter, or the diagnostics. */
static const char *show(const char *path, int rank, int64_t a, int64_t b)
{
	const struct ir_wexpr *e = find(path, rank, a, b);
	struct buf out;
	if (e == NULL)
		return r.log.data;
	buf_init(&out);
	wexpr_print(&out, e);
	const char *text = arena_strdup(&r.arena, out.data);
	buf_destroy(&out);
	return text;
}

static void check_tensor(const char *path, int rank, int64_t a, int64_t b, const char *tensor)
{
	const struct ir_wexpr *e = find(path, rank, a, b);
	ck_assert_msg(e != NULL && e->kind == WX_TENSOR, "%s", r.log.data);
	ck_assert_str_eq(e->tensor, tensor);
	ck_assert_str_eq(e->file, "w.safetensors");
}

START_TEST(identity)
{
	ck_assert_int_eq(read_map("identity"), TFMC_OK);
	check_tensor("q", 2, 4, 3, "q");
	ck_assert_ptr_null(find("qq", 2, 4, 3));
	ck_assert(reading_says(
	        &r, "the parameter 'qq' [4, 3] has no tensor: no file has one of this name [E400]"));
}
END_TEST

START_TEST(patterns)
{
	ck_assert_int_eq(read_map("'layers.{i}.norm.{w}': 'h.{i}.ln.{w:gamma_beta}'\n"
	                          "'{m}.weight': '{m:q,k}'\n"
	                          "'special.weight': v\n"
	                          "'x.{a}.{b:0}': q\n"),
	                 TFMC_INVALID);
	ck_assert(reading_says(&r, "a list of choices belongs into the source"));
	map = weight_map_create(&r.arena, &r.cx, wf, &env);
	ck_assert_int_eq(read_map("'layers.{i}.norm.{w}': 'h.{i}.ln.{w:gamma_beta}'\n"
	                          "'{m}.weight': '{m:q,k,special=k}'\n"
	                          "'special.weight': v\n"),
	                 TFMC_OK);
	check_tensor("layers.1.norm.bias", 1, 4, 0, "h.1.ln.beta");
	check_tensor("layers.0.norm.weight", 1, 4, 0, "h.0.ln.gamma");
	check_tensor("q.weight", 2, 4, 3, "q");
	check_tensor("special.weight", 2, 2, 3, "v");
	ck_assert_ptr_null(find("v.weight", 2, 2, 3));
	ck_assert(reading_says(&r, "no entry of weights.map fits the parameter 'v.weight' [2, 3], and no "
	                           "tensor is called so [E400]"));
	ck_assert_ptr_null(find("layers.0.x.norm.bias", 1, 4, 0));
	ck_assert_ptr_null(find("layers..norm.bias", 1, 4, 0));
}
END_TEST

START_TEST(unmapped_is_identity)
{
	ck_assert_int_eq(read_map("p: q\n"), TFMC_OK);
	check_tensor("p", 2, 4, 3, "q");
	check_tensor("k", 2, 4, 3, "k");
	check_tensor("h.1.ln.beta", 1, 4, 0, "h.1.ln.beta");
	ck_assert_ptr_null(find("scale.weight", 1, 4, 0));
	ck_assert(reading_says(&r, "note: nearest tensors: scale"));
	ck_assert_uint_eq(r.cx.n_errors, 1);
}
END_TEST

/* Element i of what is written is the element of the stored tensor that numpy.transpose moves there. */
START_TEST(axes_in_any_order)
{
	static const struct {
		const char *source;
		int64_t dims[3], strides[3];
	} cases[] = {
	        {"{from: experts, transpose: [0, 2, 1]}", {2, 3, 4}, {12, 1, 3}},
	        {"{from: experts, transpose: [1, 0, 2]}", {4, 2, 3}, {3, 12, 1}},
	        {"{from: experts, transpose: [1, 2, 0]}", {4, 3, 2}, {3, 1, 12}},
	        {"{from: experts, transpose: [2, 0, 1]}", {3, 2, 4}, {1, 12, 3}},
	        {"{from: experts, transpose: [2, 1, 0]}", {3, 4, 2}, {1, 3, 12}},
	        {"{from: experts, transpose: [0, 1, 2]}", {2, 4, 3}, {12, 3, 1}},
	};
	const struct weight_source source = weight_files_source(wf);
	for (size_t c = 0; c < TFMC_COUNT(cases); c++) {
		struct parameter_request want = {.path = arena_printf(&r.arena, "p%zu", c), .rank = 3};
		double got[24];
		memcpy(want.dims, cases[c].dims, sizeof(cases[c].dims));
		ck_assert_int_eq(read_map(arena_printf(&r.arena, "%s: %s\n", want.path, cases[c].source)),
		                 TFMC_OK);
		const struct ir_wexpr *e = weight_map_find(map, &want);
		ck_assert_msg(e != NULL, "%s", r.log.data);
		ck_assert_int_eq(wexpr_eval(&r.cx, e, &source, 0, 24, got), TFMC_OK);
		for (int64_t i = 0; i < 24; i++) {
			const int64_t *d = cases[c].dims, *s = cases[c].strides;
			int64_t at = i / (d[1] * d[2]) * s[0] + i / d[2] % d[1] * s[1] + i % d[2] * s[2];
			ck_assert_double_eq(got[i], (double)at);
		}
	}
}
END_TEST

START_TEST(repeated_captures)
{
	ck_assert_int_eq(read_map("'{a}.{a}': '{a}'\n'{a}_{b}_x': 'h.{a}.ln.{b:y=gamma,z_z=beta}'\n"),
	                 TFMC_OK);
	check_tensor("q.q", 2, 4, 3, "q");
	ck_assert_ptr_null(find("q.k", 2, 4, 3));
	check_tensor("0_z_z_x", 1, 4, 0, "h.0.ln.beta");
}
END_TEST

START_TEST(two_matches)
{
	ck_assert_int_eq(read_map("'{a}.w': '{a}'\n'q.{w}': 'q{w:w=}'\n"), TFMC_OK);
	ck_assert_ptr_null(find("q.w", 2, 4, 3));
	ck_assert(reading_says(&r, "t.yaml:2:1: error: the parameter 'q.w' fits two patterns [E404]"));
	ck_assert(reading_says(&r, "t.yaml:1:1: note: the other one is here"));
}
END_TEST

static const struct source_case {
	const char *source;
	int rank;
	int64_t a, b;
	const char *printed;
} sources[] = {
        {"{from: q, transpose: true}", 2, 3, 4, "transpose("},
        {"{any: [nope, {from: k}]}", 2, 4, 3, "\"k\""},
        {"{concat: {axis: 0, of: [q, k, v]}}", 2, 10, 3, "concat(0, "},
        {"{stack: [h.0.ln.gamma, h.1.ln.gamma]}", 2, 2, 4, "stack("},
        {"{from: experts, index: {axis: 0, at: 1}, slice: {axis: 0, begin: 0, end: two}}", 2, 2, 3,
         "slice(0, 0, 2, index(0, 1, "},
        {"{from: fused, split: {axis: 0, part: 2, of: 3}}", 2, 4, 3, "slice(0, 8, 12, "},
        {"{from: q, reshape: [two * 3, 2]}", 2, 6, 2, "reshape([6,2], "},
        {"{transpose: true, reshape: [4, 3], from: q}", 2, 4, 3, "reshape([4,3], transpose(tensor"},
        {"{reshape: [4, 3], transpose: true, from: q}", 2, 3, 4, "transpose(reshape([4,3], tensor"},
        {"[q, reshape: [2, 6], transpose: [1, 0], reshape: [3, 4]]", 2, 3, 4, "reshape([3,4], "},
        {"[{from: q, transpose: true}, {add: 1, mul: ids}, transpose: true]", 2, 4, 3,
         "transpose(mul(offset(1.0, transpose("},
        {"[experts, {index: {axis: 0, at: 1}}, {optional: zeros}]", 2, 4, 3, "index(0, 1, "},
        {"{from: experts, transpose: [1, 0, 2], reshape: [8, 3]}", 2, 8, 3, "reshape([8,3], "},
        {"{from: q, transpose: [0, 1]}", 2, 4, 3, "reshape([4,3], tensor"},
        {"{from: q, transpose: false}", 2, 4, 3, "tensor"},
        {"{from: q, permute: rope_halves_to_interleaved(two)}", 2, 4, 3, "rope_halves_to_interleaved(2, "},
        {"{from: q, permute: rope_interleaved_to_halves(1)}", 2, 4, 3, "rope_interleaved_to_halves(1, "},
        {"{from: quant, div: scale}", 2, 4, 3, "div("},
        {"{from: q, mul: scale, add: 1}", 2, 4, 3, "offset(1.0, mul("},
        {"{from: nope, optional: zeros}", 2, 4, 3, "full(0.0, [4,3])"},
        {"{from: nope, optional: ones}", 1, 7, 0, "full(1.0, [7])"},
        {"{from: q, optional: ones}", 2, 4, 3, "\"q\""},
};

START_TEST(source_kinds)
{
	const struct source_case *c = &sources[_i];
	ck_assert_int_eq(read_map(arena_printf(&r.arena, "p: %s\n", c->source)), TFMC_OK);
	ck_assert_msg(strstr(show("p", c->rank, c->a, c->b), c->printed) != NULL, "%s",
	              show("p", c->rank, c->a, c->b));
	ck_assert_uint_eq(r.cx.n_errors, 0);
}
END_TEST

START_TEST(index_by_capture)
{
	ck_assert_int_eq(read_map("'e.{n}.w': {from: experts, index: {axis: 0, at: '{n}'}}\n"), TFMC_OK);
	ck_assert_ptr_nonnull(strstr(show("e.1.w", 2, 4, 3), "index(0, 1, "));
	ck_assert_ptr_null(find("e.x.w", 2, 4, 3));
	ck_assert(reading_says(&r, "the index 'x' is not an int"));
	ck_assert_ptr_null(find("e.2.w", 2, 4, 3));
	ck_assert(reading_says(&r, "'index' does not fit the shape [2, 4, 3]"));
}
END_TEST

static const char *const wrong_maps[][2] = {
        {"p: [q, k]", "a list is one source and steps like 'transpose: true'; several sources are any"},
        {"p: []", "the list wants a source and its steps"},
        {"p: [[q, transpose: true], reshape: [4]]", "E10"},
        {"p: [q, {from: k}]", "unknown key 'from' in a step of a source"},
        {"p: [{transpose: true}, transpose: true]", "exactly one of"},
        {"p: {from: q, transpose: [0, 0]}", "'transpose' wants true or every axis once"},
        {"p: {from: q, transpose: [1, 2]}", "'transpose' wants true or every axis once"},
        {"p: {from: q, transpose: []}", "'transpose' wants true or every axis once"},
        {"p: {from: q, transpose: [0, 1, 2, 3, 4, 5, 6, 7, 8]}", "'transpose' wants at most 8 dims"},
        {"p: {from: q, any: [k]}", "exactly one of"},
        {"p: {transpose: true}", "exactly one of"},
        {"p: {form: q}", "unknown key 'form'"},
        {"p: {from: q, slice: {axis: 0, begin: 0}}", "'slice' wants 'end'"},
        {"p: {from: q, slice: {axis: 0, begin: 0, end: nope}}", "there is no 'nope' here"},
        {"p: {from: q, split: {axis: 0, part: 3, of: 3}}", "part from 0 to of - 1"},
        {"p: {from: q, permute: shuffle(2)}", "'permute' wants"},
        {"p: {any: []}", "the list of sources is empty"},
        {"p: {any: [{from: nope, optional: zeros}]}", "'optional' belongs to the outermost"},
        {"p: {from: q, optional: twos}", "is not a word of 'optional'"},
        {"'p.{i}': q", "'{i}' of the pattern does not occur in its source"},
        {"p: 'q{i}'", "'{i}' does not occur in the pattern"},
        {"'p.{i': q", "a '{' has no '}'"},
        {"'p.i}': q", "a '}' has no '{'"},
        {"'p.{1}': q", "braces hold a name"},
        {"'p.{i}': '{i:}'", "a choice is empty"},
        {"'p.{i}': '{i:a,}'", "a choice is empty"},
        {"'p.{i}': '{i:a,a}'", "a choice is given twice"},
        {"p:", "[E115]"},
        {"'': q", "a name is empty"},
};

START_TEST(mistakes_in_maps)
{
	ck_assert_int_eq(read_map(wrong_maps[_i][0]), TFMC_INVALID);
	ck_assert_msg(reading_says(&r, wrong_maps[_i][1]), "%s", r.log.data);
	ck_assert_uint_eq(r.cx.n_errors, 1);
}
END_TEST

static const char *const wrong_shapes[][2] = {
        {"q",
         "the parameter 'p' wants [3, 4], the tensor 'q' of 'w.safetensors' is [4, 3]; transposed? write"},
        {"fused", "wants [3, 4], the tensor 'fused' of 'w.safetensors' is [12, 3] [E401]"},
        {"{from: q, reshape: [12]}",
         "its source in weights.map is [12]; the same number of elements: reshape: [3, 4]"},
        {"{from: q, reshape: [5]}", "[4, 3] cannot be reshaped to [5]"},
        {"{concat: {axis: 1, of: [q, v]}}", "the sources of 'concat' do not fit together"},
        {"{stack: [q, v]}", "this part is [2, 3]"},
        {"{from: q, slice: {axis: 0, begin: 2, end: 9}}", "'slice' does not fit the shape [4, 3]"},
        {"{from: q, slice: {axis: 5, begin: 0, end: 1}}", "'slice' does not fit"},
        {"{from: q, split: {axis: 0, part: 0, of: 3}}", "'split' does not fit"},
        {"{from: q, transpose: [2, 0, 1]}", "'transpose' does not fit the shape [4, 3]"},
        {"[q, transpose: true, transpose: true]", "wants [3, 4], the tensor 'q' of 'w.safetensors' is [4, "
                                                  "3]; it would fit without 'transpose' [E401]"},
        {"[q, add: 1]", "; transposed? 'transpose: true' as the last step would fit [E401]"},
        {"{from: q, mul: v}", "'mul' by a tensor of shape [2, 3] does not fit [4, 3]"},
        {"{from: q, permute: rope_halves_to_interleaved(3)}", "'permute' does not fit"},
        {"ids", "the parameter 'p' wants [3, 4], the tensor 'ids' of 'w.safetensors' is [3]"},
        {"qx", "no weight file has the tensor 'qx' for parameter 'p' [E400]"},
};

START_TEST(shapes_that_do_not_fit)
{
	ck_assert_int_eq(read_map(arena_printf(&r.arena, "p: %s\n", wrong_shapes[_i][0])), TFMC_OK);
	ck_assert_ptr_null(find("p", 2, 3, 4));
	ck_assert_msg(reading_says(&r, wrong_shapes[_i][1]), "%s", r.log.data);
	ck_assert_uint_eq(r.cx.n_errors, 1);
}
END_TEST

START_TEST(what_is_left_over)
{
	ck_assert_int_eq(read_map("'p.{w}': '{w:q,k}'\nnothing: v\n"), TFMC_OK);
	ck_assert_int_eq(weight_files_ignore(wf, reading_yaml(&r, "['h.**', fused, scale, quant, ids]")),
	                 TFMC_OK);
	check_tensor("p.q", 2, 4, 3, "q");
	check_tensor("p.k", 2, 4, 3, "k");
	ck_assert(!weight_map_finish(map, false));
	ck_assert(reading_says(&r, "t.yaml:2:1: error: the pattern 'nothing' fits no parameter"));
	ck_assert(reading_says(&r, "stored but neither used nor ignored: v, experts; map them"));
	ck_assert_uint_eq(r.cx.n_errors, 2);
	ck_assert(!weight_map_finish(map, true));
	ck_assert_uint_eq(r.cx.n_warnings, 1);
}
END_TEST

static const char *const likely[][2] = {{"as", NULL}, {"expert", "; the nearest parameter is 'expert'"}};

START_TEST(only_near_parameters_are_suggested)
{
	ck_assert_int_eq(read_map(arena_printf(&r.arena, "%s: q\n", likely[_i][0])), TFMC_OK);
	ck_assert_int_eq(
	        weight_files_ignore(wf, reading_yaml(&r, "['h.**', k, v, fused, scale, quant, ids]")),
	        TFMC_OK);
	check_tensor(likely[_i][0], 2, 4, 3, "q");
	ck_assert(!weight_map_finish(map, false));
	ck_assert(reading_says(&r, "stored but neither used nor ignored: experts; map them"));
	if (likely[_i][1])
		ck_assert(reading_says(&r, likely[_i][1]));
	else
		ck_assert(!reading_says(&r, "nearest parameter"));
}
END_TEST

START_TEST(map_files_need_not_match)
{
	static const char text[] = "q.weight: q\nunused.weight: k\n";
	reading_write(&r, "map.yaml", text, sizeof(text) - 1);
	ck_assert_int_eq(read_map("map.yaml"), TFMC_OK);
	check_tensor("q.weight", 2, 4, 3, "q");
	ck_assert_int_eq(weight_files_ignore(wf, reading_yaml(&r, "'**'")), TFMC_OK);
	ck_assert(weight_map_finish(map, false));
	ck_assert_int_eq(read_map("../map.yaml"), TFMC_IO);
	ck_assert_int_eq(read_map("none.yaml"), TFMC_IO);
	ck_assert_int_eq(read_map("q.weight: k\n"), TFMC_INVALID);
	ck_assert(reading_says(&r, "the pattern 'q.weight' is given twice [E207]"));
}
END_TEST

START_TEST(hostile_patterns_end)
{
	char path[200];
	memset(path, 'a', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	ck_assert_int_eq(read_map("'{a}{b}{c}{d}{e}{f}{g}{h}!': 'x{a}{b}{c}{d}{e}{f}{g}{h}'\n"), TFMC_OK);
	ck_assert_ptr_null(find(path, 1, 1, 0));
}
END_TEST

Suite *suite_weight_map(void)
{
	Suite *s = suite_create("weight_map");
	TCase *t = tcase_create("weight_map");
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, identity);
	tcase_add_test(t, patterns);
	tcase_add_test(t, unmapped_is_identity);
	tcase_add_test(t, axes_in_any_order);
	tcase_add_test(t, repeated_captures);
	tcase_add_test(t, two_matches);
	tcase_add_loop_test(t, source_kinds, 0, (int)TFMC_COUNT(sources));
	tcase_add_test(t, index_by_capture);
	tcase_add_loop_test(t, mistakes_in_maps, 0, (int)TFMC_COUNT(wrong_maps));
	tcase_add_loop_test(t, shapes_that_do_not_fit, 0, (int)TFMC_COUNT(wrong_shapes));
	tcase_add_test(t, what_is_left_over);
	tcase_add_loop_test(t, only_near_parameters_are_suggested, 0, TFMC_COUNT(likely));
	tcase_add_test(t, map_files_need_not_match);
	tcase_add_test(t, hostile_patterns_end);
	suite_add_tcase(s, t);
	return s;
}
