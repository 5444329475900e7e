/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expressions: values of texts, errors with their places, dims, typed reading
 * of scalars, and the forms of graph statements.
 */
#include <check.h>
#include <string.h>

#include "frontend/syntax/expr.h"
#include "tests/support/reading.h"

Suite *suite_expr(void);

static struct reading r;
static struct ir_dims *dims;

/* d 768, heads 12, f 0.5, on true, act 'relu', list [1, 2.5, true]; dims B and S; cycle fails. */
static enum expr_lookup lookup(void *user, const char *name, struct loc loc, struct value *out)
{
	static const struct value items[] = {{.kind = VALUE_INT, .i = 1},
	                                     {.kind = VALUE_FLOAT, .f = 2.5},
	                                     {.kind = VALUE_BOOL, .b = true}};
	(void)loc;
	if (strcmp(name, "d") == 0)
		*out = value_int(768);
	else if (strcmp(name, "heads") == 0)
		*out = value_int(10);
	else if (strcmp(name, "f") == 0)
		*out = value_float(0.5);
	else if (strcmp(name, "flag") == 0)
		*out = value_bool(true);
	else if (strcmp(name, "act") == 0)
		*out = value_string("relu");
	else if (strcmp(name, "list") == 0)
		*out = (struct value){.kind = VALUE_LIST, .n = 3, .items = items};
	else if (strcmp(name, "B") == 0 || strcmp(name, "S") == 0)
		*out = value_dim(ir_dim_sym(user, name));
	else
		return strcmp(name, "cycle") == 0 ? EXPR_FAILED : EXPR_ABSENT;
	return EXPR_FOUND;
}

static const char *const *names(void *user, size_t *n)
{
	static const char *const known[] = {"d", "heads", "f", "flag", "act", "list"};
	(void)user;
	*n = TFMC_COUNT(known);
	return known;
}

static struct expr_env env;

static void setup(void)
{
	reading_init(&r);
	dims = ir_dims_create(&r.arena);
	ck_assert(ir_dims_declare(dims, "B", 1, 8) && ir_dims_declare(dims, "S", 1, 64));
	env = (struct expr_env){&r.arena, &r.cx, dims, lookup, names, dims};
}

static void teardown(void)
{
	reading_destroy(&r);
}

static struct expr_source source(const char *text)
{
	uint32_t number = diag_add_source(&r.cx, "e", text, strlen(text));
	return (struct expr_source){text, strlen(text), {number, 1, 1, 1}, true};
}

static const char *evaluate(const char *text)
{
	struct value v;
	struct buf out;
	const struct expr *e = expr_parse(&r.arena, &r.cx, source(text), EXPR_PLAIN);
	if (e == NULL || !expr_eval(&env, e, &v))
		return r.log.data;
	buf_init(&out);
	value_print(&out, dims, &v);
	const char *printed = arena_strdup(&r.arena, out.data);
	buf_destroy(&out);
	return printed;
}

static const char *const results[][2] = {
        {"1", "1"},
        {"0x1F", "31"},
        {"-9223372036854775808", "-9223372036854775808"},
        {"9223372036854775807", "9223372036854775807"},
        {"1e5", "100000.0"},
        {"1.5e-3", "0.0015"},
        {".inf", ".inf"},
        {"-.inf", "-.inf"},
        {"true", "true"},
        {"~", "null"},
        {"'relu'", "'relu'"},
        {"1 + 2 * 3", "7"},
        {"(1 + 2) * 3", "9"},
        {"2 ** 3 ** 2", "512"},
        {"-2 ** 2", "-4"},
        {"2 ** -1", "0.5"},
        {"(-2) ** 3", "-8"},
        {"d ** -0.5 * d ** 0.5 > 0.999", "true"},
        {"7 // 2", "3"},
        {"-7 // 2", "-4"},
        {"7 // -2", "-4"},
        {"-7 % 3", "2"},
        {"7 % -3", "-2"},
        {"-7.5 % 2", "0.5"},
        {"7.5 // 2", "3.0"},
        {"d / 12", "64"},
        {"1.0 * d / heads", "76.8"},
        {"10 - 3 - 2", "5"},
        {"64 / 4 / 2", "8"},
        {"-9223372036854775808 % -1", "0"},
        {"1 < 2", "true"},
        {"not 1 == 2 and 3 >= 3", "true"},
        {"false and 1 // 0 == 0", "false"},
        {"true or cycle", "true"},
        {"not not flag", "true"},
        {"'a' == 'a'", "true"},
        {"true != false", "true"},
        {"1 == 1.0", "true"},
        {"min(3, 1.5, 2)", "1.5"},
        {"max(3, 1)", "3"},
        {"max(3, 1.0)", "3.0"},
        {"abs(-3)", "3"},
        {"abs(-0.5)", "0.5"},
        {"len(list)", "3"},
        {"floor(2.7) + ceil(2.1)", "5"},
        {"floor(-2.5)", "-3"},
        {"sqrt(16)", "4.0"},
        {"exp(0)", "1.0"},
        {"log(1)", "0.0"},
        {"if(d > 1, 8, 1 // 0)", "8"},
        {"if(false, 1 // 0, 'x')", "'x'"},
        {"list[0] + list[1]", "3.5"},
        {"list[len(list) - 1]", "true"},
        {"contains(list, list[0])", "true"},
        {"contains(list, 77)", "false"},
        {"B * S + 2 * S", "B*S + 2*S"},
        {"S - S", "0"},
        {"(S + 3) // 4", "(S + 3)//4"},
};

START_TEST(values)
{
	ck_assert_msg(strcmp(evaluate(results[_i][0]), results[_i][1]) == 0, "%s: %s, wanted %s",
	              results[_i][0], evaluate(results[_i][0]), results[_i][1]);
}
END_TEST

static const char *const mistakes[][2] = {
        {"d / heads", "e:1:3: error: d (768) is not a multiple of heads (10)"},
        {"7 / 2", "7 is not a multiple of 2; write a // b to round down or 1.0 * a / b for a float [E108]"},
        {"9223372036854775807 + 1", "9223372036854775807 + 1 does not fit into 64 bits [E112]"},
        {"2 ** 63", "[E112]"},
        {"-(-9223372036854775808)", "[E112]"},
        {"-9223372036854775808 // -1", "[E112]"},
        {"9223372036854775808", "does not fit into 64 bits"},
        {"99999999999999999999", "does not fit into 64 bits"},
        {"0x10000000000000000", "does not fit into 64 bits"},
        {"1e999", "too large for a float"},
        {"1 / 0", "e:1:3: error: division by zero"},
        {"1.0 % 0", "division by zero"},
        {"1e300 * 1e300", "the result of '*' is infinite"},
        {"sqrt(-1)", "the result of 'sqrt' is not a number"},
        {"log(0)", "the result of 'log' is infinite"},
        {"floor(1e300)", "does not fit into 64 bits"},
        {"0 ** -1", "infinite"},
        {"010", "'010' is not a number here; write it without the leading zero [E110]"},
        {"1_000", "write 1000 without '_' [E110]"},
        {"12:30", "'12:30' is not a number"},
        {"yes", "'yes' is only a word here; write true [E110]"},
        {"off", "write false"},
        {"1.", "digits on both sides of the point"},
        {".5", "digits on both sides of the point"},
        {"0o17", "decimal, or hexadecimal"},
        {"2d", "a product needs '*'"},
        {".nan", "[E110]"},
        {"+5", "a number has no '+' sign"},
        {"haeds * 2", "e:1:1: error: there is no 'haeds' here; did you mean 'heads'? [E111]"},
        {"sqr(2)", "there is no function 'sqr'; did you mean 'sqrt'? [E111]"},
        {"1 < 2 < 3", "comparisons do not chain"},
        {"1 and true", "'and' wants bools, found the int 1 [E107]"},
        {"true + 1", "'+' wants numbers, found the bool true"},
        {"'a' < 'b'", "cannot be compared"},
        {"1 == 'a'", "cannot be compared"},
        {"list[3]", "the index 3 is outside of the list of 3 [E113]"},
        {"list[-1]", "[E113]"},
        {"list[1.0]", "an index must be an int"},
        {"d[0]", "only lists have elements"},
        {"len(d)", "'len' wants a list"},
        {"contains(d, 1)", "'contains' wants a list and a value"},
        {"min()", "'min' needs the argument 'a' [E205]"},
        {"if(true, 1)", "'if' needs the argument 'b'"},
        {"if(1, 2, 3)", "'if' wants a bool"},
        {"1 +", "expected a value, found the end [E114]"},
        {"(1", "expected ')', found the end"},
        {"1 2", "expected an operator or the end, found '2'"},
        {"a = 1", "expected an operator or the end, found '='"},
        {"'text", "no closing '"},
        {"\"text\"", "a string in single quotes"},
        {"[1, 2]", "expected a value, found '['"},
        {"min(a=1)", "[E114]"},
        {"1 + $", "e:1:5: error: the character '$' has no meaning"},
        {"\xc3\xa9", "the character '\xc3\xa9' has no meaning"},
        {"", "expected a value, found the end"},
        {"B / 2", "dims allow + - * and //"},
        {"S // B", "dims allow"},
        {"S // 0", "dims allow"},
        {"S * 0.5", "dims allow"},
        {"min(S, 2)", "'min' wants numbers, found the dim S"},
        {"S == 2", "cannot be compared"},
};

START_TEST(errors)
{
	const char *log = evaluate(mistakes[_i][0]);
	ck_assert_msg(strstr(log, mistakes[_i][1]) != NULL, "%s: %s", mistakes[_i][0], log);
	ck_assert_uint_eq(r.cx.n_errors, 1);
}
END_TEST

START_TEST(failed_lookups_are_not_reported_again)
{
	ck_assert_str_eq(evaluate("cycle + 1"), "");
	ck_assert_uint_eq(r.cx.n_errors, 0);
	env.dims = NULL;
	ck_assert_ptr_nonnull(strstr(evaluate("S + 1"), "the dim 'S' is not known at compile time"));
}
END_TEST

START_TEST(depth_and_length)
{
	char text[EXPR_TEXT_MAX + 2];
	memset(text, '(', 63);
	text[63] = '1';
	memset(text + 64, ')', 63);
	text[127] = '\0';
	ck_assert_str_eq(evaluate(text), "1");
	memset(text, '(', 200);
	ck_assert_ptr_nonnull(strstr(evaluate(text), "nested deeper than 64 levels [E106]"));
	reading_clear(&r);
	memset(text, '-', 100);
	text[100] = '\0';
	ck_assert_ptr_nonnull(strstr(evaluate(text), "[E106]"));
	reading_clear(&r);
	for (size_t i = 0; i < EXPR_TEXT_MAX; i++)
		text[i] = i % 2 == 0 ? '1' : '+';
	text[EXPR_TEXT_MAX - 1] = '\0';
	ck_assert_str_eq(evaluate(text), "2048");
	text[EXPR_TEXT_MAX - 1] = '0';
	text[EXPR_TEXT_MAX] = '0';
	text[EXPR_TEXT_MAX + 1] = '\0';
	ck_assert_ptr_nonnull(strstr(evaluate(text), "more than 4096 characters [E106]"));
}
END_TEST

START_TEST(typed_reading)
{
	static const char *const words[] = {"none", "relu", "causal"};
	const struct yaml_node *n =
	        reading_yaml(&r, "{i: d // 3, q: \"12\", f: 8, b: flag, w: causal, e: act, x: 8.5, c: "
	                         "causel, l: [1, 'a', d], n: ~, "
	                         "s: \"d\", dim: S * 2, k: if(flag), y: \"if(flag, 'relu', 'none')\", z: f}");
	int64_t i;
	double f;
	bool b;
	size_t w;
	struct value v;
	const struct ir_dim *dim;
	ck_assert(expr_read_int(&env, yaml_find(n, "i"), "i", &i) && i == 256);
	ck_assert(expr_read_int(&env, yaml_find(n, "q"), "q", &i) && i == 12);
	ck_assert(expr_read_float(&env, yaml_find(n, "f"), "f", &f) && f == 8.0);
	ck_assert(expr_read_bool(&env, yaml_find(n, "b"), "b", &b) && b);
	ck_assert(expr_read_word(&env, yaml_find(n, "w"), "w", words, 3, &w) && w == 2);
	ck_assert(expr_read_word(&env, yaml_find(n, "e"), "e", words, 3, &w) && w == 1);
	ck_assert(expr_read_word(&env, yaml_find(n, "y"), "y", words, 3, &w) && w == 1);
	ck_assert(expr_read_dim(&env, yaml_find(n, "dim"), "dim", &dim) && !ir_dim_is_const(dim, NULL));
	ck_assert(expr_read_value(&env, yaml_find(n, "s"), "s", &v) && v.kind == VALUE_STRING);
	ck_assert(expr_read_value(&env, yaml_find(n, "l"), "l", &v) && v.n == 3 &&
	          v.items[1].kind == VALUE_STRING);
	ck_assert_uint_eq(r.cx.n_errors, 0);
	ck_assert(!expr_read_int(&env, yaml_find(n, "x"), "heads", &i));
	ck_assert(reading_says(
	        &r, "'heads' wants an int, found the float 8.5; write floor(...) or ceil(...) [E107]"));
	ck_assert(!expr_read_word(&env, yaml_find(n, "c"), "mask", words, 3, &w));
	ck_assert(reading_says(
	        &r, "'causel' is not a word of 'mask' (none, relu, causal); did you mean 'causal'? [E109]"));
	ck_assert(!expr_read_int(&env, yaml_find(n, "n"), "heads", &i));
	ck_assert(reading_says(
	        &r, "'heads' wants a single value, found null; give a value or remove the key [E115]"));
	ck_assert(!expr_read_int(&env, yaml_find(n, "l"), "heads", &i));
	ck_assert(!expr_read_bool(&env, yaml_find(n, "f"), "bias", &b));
	ck_assert(reading_says(&r, "'bias' wants a bool, found the int 8; write true or false"));
	ck_assert(!expr_read_word(&env, yaml_find(n, "z"), "act", words, 3, &w));
	ck_assert(reading_says(&r, "'act' wants a word, found the float 0.5"));
}
END_TEST

START_TEST(places_inside_scalars)
{
	const struct yaml_node *n = reading_yaml(&r, "a: \"1 + nope\"\nb: 'x' \n");
	int64_t i;
	ck_assert(!expr_read_int(&env, yaml_find(n, "a"), "a", &i));
	ck_assert(reading_says(&r, "t.yaml:1:9: error: there is no 'nope' here"));
}
END_TEST

START_TEST(ranges)
{
	const struct expr *lo, *hi;
	ck_assert(expr_parse_range(&r.arena, &r.cx, source("1..2*d"), &lo, &hi));
	ck_assert_int_eq(lo->i, 1);
	ck_assert_int_eq(hi->kind, EX_BINARY);
	ck_assert(expr_parse_range(&r.arena, &r.cx, source("64"), &lo, &hi) && hi == NULL);
	ck_assert(!expr_parse_range(&r.arena, &r.cx, source("1..2..3"), &lo, &hi));
	ck_assert(!expr_parse_range(&r.arena, &r.cx, source("1.."), &lo, &hi));
}
END_TEST

START_TEST(graph_forms)
{
	const struct expr_statement *st =
	        expr_parse_statement(&r.arena, &r.cx,
	                             source("u, v = split(silu(linear(y, \"{pre}.p\", out=2*d)), axis=-1, "
	                                    "sizes=[d, d])"));
	ck_assert_ptr_nonnull(st);
	ck_assert_uint_eq(st->n_targets, 2);
	ck_assert_str_eq(st->targets[1].name, "v");
	const struct expr *call = st->values[0];
	ck_assert_int_eq(call->kind, EX_CALL);
	ck_assert_uint_eq(call->n_args, 1);
	ck_assert_uint_eq(call->n_keywords, 2);
	ck_assert_str_eq(call->keywords[1].name, "sizes");
	ck_assert_int_eq(call->keywords[1].value->kind, EX_LIST);
	ck_assert_str_eq(call->args[0]->args[0]->args[1]->text, "{pre}.p");
	st = expr_parse_statement(&r.arena, &r.cx, source("return a, g[0] * 2"));
	ck_assert(st != NULL && st->is_return && st->n_values == 2 && st->n_targets == 0);
	const struct expr *type = expr_parse(&r.arena, &r.cx, source("f32[B, n, 3]"), EXPR_GRAPH);
	ck_assert(type != NULL && type->kind == EX_INDEX && type->n_args == 4);
	type = expr_parse(&r.arena, &r.cx, source("f32[]"), EXPR_GRAPH);
	ck_assert(type != NULL && type->kind == EX_INDEX && type->n_args == 1);
	ck_assert_uint_eq(r.cx.n_errors, 0);
}
END_TEST

static const char *const bad_statements[] = {
        "x",      "x +",    "= 1",     "x = ",    "a, = 1", "1 = x", "x = f(a=1, a=2)", "x = f(a=1, 2)",
        "return", "x == 1", "x = 1 y", "x = f(1",
};

START_TEST(graph_mistakes)
{
	ck_assert_ptr_null(expr_parse_statement(&r.arena, &r.cx, source(bad_statements[_i])));
	ck_assert_uint_eq(r.cx.n_errors, 1);
}
END_TEST

START_TEST(names_of_the_language)
{
	ck_assert(expr_is_name("_a1"));
	ck_assert(!expr_is_name("1a") && !expr_is_name("") && !expr_is_name("a-b"));
	ck_assert(expr_is_name("a23456789012345678901234567890123456789012345678901234567890123"));
	ck_assert(!expr_is_name("a234567890123456789012345678901234567890123456789012345678901234"));
}
END_TEST

Suite *suite_expr(void)
{
	Suite *s = suite_create("expr");
	TCase *t = tcase_create("expr");
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, values, 0, (int)TFMC_COUNT(results));
	tcase_add_loop_test(t, errors, 0, (int)TFMC_COUNT(mistakes));
	tcase_add_test(t, failed_lookups_are_not_reported_again);
	tcase_add_test(t, depth_and_length);
	tcase_add_test(t, typed_reading);
	tcase_add_test(t, places_inside_scalars);
	tcase_add_test(t, ranges);
	tcase_add_test(t, graph_forms);
	tcase_add_loop_test(t, graph_mistakes, 0, (int)TFMC_COUNT(bad_statements));
	tcase_add_test(t, names_of_the_language);
	suite_add_tcase(s, t);
	return s;
}
