/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which rows of a padded batch are read: each case names the values of a function whose padding is not, and those of
 * which all rows are.
 */
#include <check.h>
#include <string.h>

#include "ir/core/real_rows.h"
#include "tests/support/tir.h"

#define HEAD                                                                           \
	"module \"m\"\ndim B in [1,4]\ndim S in [1,9]\nstate @s : f32[B,1,9,8] #row\n" \
	"weight @w : f32[8,8] = sinusoid(rows=8, dim=8, layout=halves, spacing=t2t, start=1, base=10.0)\n"
#define FUNC(more, results) \
	HEAD "func @f(%x: f32[B,S,8], %n: i32[B], %k: i32[B]" more ") -> (" results ") {\n"

/* The rows of %h become keys of a state. */
#define APPEND                                                                         \
	"%h = gelu %x : f32[B,S,8]\n%v = reshape %h {dims=[B,1,S,8]} : f32[B,1,S,8]\n" \
	"%t, %u = state_append %s, %v, %p : f32[B,1,9,8], state @s\n"

struct sample {
	const char *name, *text;
	const char *real;    /* names of values that are read at real rows only, by %n, each before a blank */
	const char *in_full; /* names of values of which all rows are read */
};

static const struct sample samples[] = {
        {"the mask hands real rows to the ops before it",
         FUNC("", "f32[B,S,8]") "%h = linear %x, @w : f32[B,S,8]\n%g = gelu %h : f32[B,S,8]\n"
                                "%a = add %x, %g : f32[B,S,8]\n%l = layer_norm %a : f32[B,S,8]\n"
                                "%y = mask_rows %l, %n : f32[B,S,8]\nreturn %y\n}\n",
         "x h g a l ", "y n "},
        {"a result without a mask is read in full",
         FUNC("", "f32[B,S,8]") "%h = linear %x, @w : f32[B,S,8]\n%y = gelu %h : f32[B,S,8]\nreturn %y\n}\n",
         "", "x h y "},
        {"keys and values end with the length, whatever else is read",
         FUNC("",
              "f32[B,2,S,4]") "%r = reshape %x {dims=[B,S,2,4]} : f32[B,S,2,4]\n"
                              "%q = transpose %r {perm=[0,2,1,3]} : f32[B,2,S,4]\n"
                              "%e = exp %q : f32[B,2,S,4]\n%v = abs %q : f32[B,2,S,4]\n"
                              "%y = attention %q, %e, %v, len=%n {scale=0.5} : f32[B,2,S,4]\nreturn %y\n}\n",
         "e v ", "q r x y "},
        {"queries are read where the result is",
         FUNC("", "f32[B,S,8]") "%r = reshape %x {dims=[B,S,2,4]} : f32[B,S,2,4]\n"
                                "%q = transpose %r {perm=[0,2,1,3]} : f32[B,2,S,4]\n"
                                "%a = attention %q, %q, %q, len=%n {scale=0.5} : f32[B,2,S,4]\n"
                                "%t = transpose %a {perm=[0,2,1,3]} : f32[B,S,2,4]\n"
                                "%u = reshape %t {dims=[B,S,8]} : f32[B,S,8]\n"
                                "%y = mask_rows %u, %n : f32[B,S,8]\nreturn %y\n}\n",
         "x r q a t u ", "y "},
        {"without lengths all keys are visible",
         FUNC("", "f32[B,S,8]") "%r = reshape %x {dims=[B,1,S,8]} : f32[B,1,S,8]\n"
                                "%k1 = exp %r : f32[B,1,S,8]\n"
                                "%a = attention %r, %k1, %k1 {scale=0.5} : f32[B,1,S,8]\n"
                                "%u = reshape %a {dims=[B,S,8]} : f32[B,S,8]\n"
                                "%y = mask_rows %u, %n : f32[B,S,8]\nreturn %y\n}\n",
         "a u ", "k1 r x "},
        {"a sum over positions reads padding",
         FUNC("", "f32[B,S,8], f32[B,8]") "%h = gelu %x : f32[B,S,8]\n%y = mask_rows %h, %n : f32[B,S,8]\n"
                                          "%z = reduce_sum %h {axes=[1]} : f32[B,8]\nreturn %y, %z\n}\n",
         "", "h x "},
        {"a masked sum does not",
         FUNC("", "f32[B,8]") "%h = gelu %x : f32[B,S,8]\n%y = mask_rows %h, %n : f32[B,S,8]\n"
                              "%z = reduce_sum %y {axes=[1]} : f32[B,8]\nreturn %z\n}\n",
         "h x ", "y "},
        {"lengths that differ",
         FUNC("", "f32[B,S,8], f32[B,S,8]") "%h = gelu %x : f32[B,S,8]\n%a = exp %h : f32[B,S,8]\n"
                                            "%y = mask_rows %a, %n : f32[B,S,8]\n"
                                            "%z = mask_rows %h, %k : f32[B,S,8]\nreturn %y, %z\n}\n",
         "a ", "h x "},
        {"lengths that are computed",
         FUNC("", "f32[B,S,8]") "%h = gelu %x : f32[B,S,8]\n%m = add %n, %k : i32[B]\n"
                                "%y = mask_rows %h, %m : f32[B,S,8]\nreturn %y\n}\n",
         "", "h x "},
        {"the first and the last row are real, of an empty sequence, too",
         FUNC("",
              "f32[B,S,8], f32[B,1,8], f32[B,8]") "%h = gelu %x : f32[B,S,8]\n%y = mask_rows %h, %n : "
                                                  "f32[B,S,8]\n"
                                                  "%c = slice %h {axis=1 begin=0 size=1} : f32[B,1,8]\n"
                                                  "%one = full {value=1.0 dims=[B] dtype=i32} : i32[B]\n"
                                                  "%zero = full {value=0.0 dims=[B] dtype=i32} : i32[B]\n"
                                                  "%e = sub %n, %one : i32[B]\n%at = max %e, %zero : i32[B]\n"
                                                  "%l = select_rows %h, %at : f32[B,8]\nreturn %y, %c, "
                                                  "%l\n}\n",
         "h x ", "y c l "},
        {"the second row may be padding",
         FUNC("", "f32[B,S,8], f32[B,1,8]") "%h = gelu %x : f32[B,S,8]\n%y = mask_rows %h, %n : f32[B,S,8]\n"
                                            "%c = slice %h {axis=1 begin=S-1 size=1} : f32[B,1,8]\n"
                                            "return %y, %c\n}\n",
         "", "h x "},
        {"a row at the length itself may be padding",
         FUNC("", "f32[B,S,8], f32[B,8]") "%h = gelu %x : f32[B,S,8]\n%y = mask_rows %h, %n : f32[B,S,8]\n"
                                          "%l = select_rows %h, %n : f32[B,8]\nreturn %y, %l\n}\n",
         "", "h x "},
        {"a carry is read in the next iteration and as the result",
         FUNC("", "f32[B,S,8]") "%r = repeat %i = 0 to 3 carry (%c = %x) {\n"
                                "%h = linear %c, @w : f32[B,S,8]\nyield %h\n} : f32[B,S,8]\n"
                                "%y = mask_rows %r, %n : f32[B,S,8]\nreturn %y\n}\n",
         "x c h r ", "y "},
        {"one reader of a carry that reads padding",
         FUNC("", "f32[B,S,8]") "%r, %t = repeat %i = 0 to 3 carry (%c = %x, %d = %x) {\n"
                                "%h = linear %c, @w : f32[B,S,8]\n"
                                "%m = cumsum %d : f32[B,S,8]\n"
                                "%o = reduce_sum %c {axes=[1] keep} : f32[B,1,8]\n"
                                "%b = broadcast %o {dims=[B,S,8]} : f32[B,S,8]\n"
                                "%g = add %m, %b : f32[B,S,8]\nyield %h, %g\n} : f32[B,S,8], f32[B,S,8]\n"
                                "%a = add %r, %t : f32[B,S,8]\n"
                                "%y = mask_rows %a, %n : f32[B,S,8]\nreturn %y\n}\n",
         "a r t d m g ", "c h x y "},
        {"a state keeps all rows",
         FUNC(", %p: i32[B], %s: state @s",
              "f32[B,S,8], state @s") "%h = gelu %x : f32[B,S,8]\n%v = reshape %h {dims=[B,1,S,8]} : "
                                      "f32[B,1,S,8]\n"
                                      "%t, %u = state_append %s, %v, %p : f32[B,1,9,8], state @s\n"
                                      "%y = mask_rows %h, %n : f32[B,S,8]\nreturn %y, %u\n}\n",
         "", "h x v "},
        {"a state takes the rows that the call adds to the past",
         HEAD "func @f(%x: f32[B,S,8], %n: i32[B], %p: i32[B] {role=past}, %s: state @s) -> (f32[B,S,8], "
              "state @s, "
              "i32[B] {role=past}) {\n" APPEND
              "%a = attention %v, %t, %t, past=%p {scale=0.5 mask=causal} : f32[B,1,S,8]\n"
              "%b = reshape %a {dims=[B,S,8]} : f32[B,S,8]\n"
              "%y = mask_rows %b, %n : f32[B,S,8]\n%z = add %p, %n : i32[B]\nreturn %y, %u, %z\n}\n",
         "h x v a b ", "y "},
        {"one row at the end sees them, too",
         HEAD
         "func @f(%x: f32[B,S,8], %n: i32[B], %p: i32[B] {role=past}, %s: state @s) -> (f32[B,1,1,8], state "
         "@s, "
         "i32[B] {role=past}) {\n" APPEND
         "%one = full {value=1.0 dims=[B] dtype=i32} : i32[B]\n%zero = full {value=0.0 dims=[B] dtype=i32} : "
         "i32[B]\n%e = sub %n, %one : i32[B]\n%f = max %e, %zero : i32[B]\n%g = add %p, %f : i32[B]\n"
         "%q = slice %v {axis=2 begin=0 size=1} : f32[B,1,1,8]\n"
         "%y = attention %q, %t, %t, past=%g {scale=0.5 mask=causal} : f32[B,1,1,8]\n"
         "%z = add %n, %p : i32[B]\nreturn %y, %u, %z\n}\n",
         "h x v ", "y q "},
        {"a mask that is not causal sees all rows of a state",
         HEAD "func @f(%x: f32[B,S,8], %n: i32[B], %p: i32[B] {role=past}, %s: state @s) -> (f32[B,S,8], "
              "state @s, "
              "i32[B] {role=past}) {\n" APPEND
              "%a = attention %v, %t, %t, past=%p {scale=0.5} : f32[B,1,S,8]\n"
              "%b = reshape %a {dims=[B,S,8]} : f32[B,S,8]\n"
              "%y = mask_rows %b, %n : f32[B,S,8]\n%z = add %p, %n : i32[B]\nreturn %y, %u, %z\n}\n",
         "a b ", "v h x "},
        {"rows that are read in full see what they append",
         HEAD "func @f(%x: f32[B,S,8], %n: i32[B], %p: i32[B] {role=past}, %s: state @s) -> (f32[B,1,S,8], "
              "state @s, "
              "i32[B] {role=past}) {\n" APPEND
              "%y = attention %v, %t, %t, past=%p {scale=0.5 mask=causal} : f32[B,1,S,8]\n"
              "%z = add %p, %n : i32[B]\nreturn %y, %u, %z\n}\n",
         "", "v h x y "},
        {"a past that grows by something else",
         HEAD "func @f(%x: f32[B,S,8], %n: i32[B], %p: i32[B] {role=past}, %s: state @s) -> (f32[B,S,8], "
              "state @s, "
              "i32[B] {role=past}) {\n" APPEND
              "%a = attention %v, %t, %t, past=%p {scale=0.5 mask=causal} : f32[B,1,S,8]\n"
              "%b = reshape %a {dims=[B,S,8]} : f32[B,S,8]\n%y = mask_rows %b, %n : f32[B,S,8]\n"
              "%d = dim_value {dim=S dims=[B]} : i32[B]\n%z = add %p, %d : i32[B]\nreturn %y, %u, %z\n}\n",
         "a b ", "v h x "},
        {"groups are seen through",
         "module \"m\" stage=groups\ndim B in [1,4]\ndim S in [1,9]\n"
         "func @f(%x: f32[B,S,8], %n: i32[B], %k: i32[B]) -> (f32[B,S,8]) {\n"
         "%o = group rowwise {\npre %p = exp %x : f32[B,S,8]\nroot %h = layer_norm %p : f32[B,S,8]\nyield "
         "%h\n"
         "} : f32[B,S,8]\n"
         "%y = group loops {\nroot %m = mask_rows %o, %n : f32[B,S,8]\nyield %m\n} : f32[B,S,8]\n"
         "return %y\n}\n",
         "x p h o ", "m y "},
};

/* Value of the function with this name; names are unique in the samples. */
static struct ir_value value_named(const struct ir_func *f, const char *name, size_t n)
{
	for (uint32_t v = 1; v < f->n_values; v++)
		if (f->values[v].name && strlen(f->values[v].name) == n &&
		    !memcmp(f->values[v].name, name, n))
			return (struct ir_value){v};
	ck_abort_msg("no value %.*s", (int)n, name);
	return IR_NO_VALUE;
}

static void check_names(const struct ir_module *m, const struct ir_func *f, const struct ir_real_rows *rows,
                        const char *names, bool is_real)
{
	struct ir_value lengths = f->params[1].value;
	for (const char *end; (end = strchr(names, ' ')) != NULL; names = end + 1) {
		struct ir_value v = value_named(f, names, (size_t)(end - names));
		int n = (int)(end - names);
		ck_assert_msg((rows[v.id].axis > 0) == is_real, "%%%.*s: axis %d", n, names, rows[v.id].axis);
		if (!is_real)
			continue;
		ck_assert(ir_same_value(rows[v.id].lengths, lengths));
		ck_assert_ptr_eq(ir_type_of(f, v)->dims[rows[v.id].axis], ir_dim_sym(m->dims, "S"));
	}
}

START_TEST(readers_decide)
{
	const struct sample *s = &samples[_i];
	struct tir t;
	struct arena a;
	arena_init(&a);
	tir_init(&t);
	tir_load(&t, s->text);
	const struct ir_func *f = ir_find_func(t.m, "f");
	const struct ir_real_rows *rows = ir_real_rows(&a, t.m, f);
	ck_assert_ptr_nonnull(rows);
	check_names(t.m, f, rows, s->real, true);
	check_names(t.m, f, rows, s->in_full, false);
	tir_destroy(&t);
	arena_destroy(&a);
}
END_TEST

Suite *suite_real_rows(void);

Suite *suite_real_rows(void)
{
	Suite *s = suite_create("real_rows");
	TCase *t = tcase_create("all");
	tcase_add_loop_test(t, readers_decide, 0, (int)TFMC_COUNT(samples));
	suite_add_tcase(s, t);
	return s;
}
