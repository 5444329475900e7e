/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text form: canonical text of every op and stage reads back and prints
 * equal; other spellings become canonical; what is wrong is reported with its
 * place.
 */
#include <check.h>
#include <string.h>

#include "ir/text/text.h"
#include "tests/support/random/random_ir.h"
#include "tests/support/tir.h"

Suite *suite_ir_text(void);

#define HEAD               \
	"module \"m\"\n"   \
	"dim B in [1,8]\n" \
	"dim S in [1,16]\n"
#define GROUPS                        \
	"module \"m\" stage=groups\n" \
	"dim B in [1,8]\n"            \
	"dim S in [1,16]\n"
#define PLAN                        \
	"module \"m\" stage=plan\n" \
	"dim B in [1,8]\n"          \
	"dim S in [1,16]\n"

static const char elementwise[] =
        HEAD "\n"
             "func @f(%x: f32[S,4], %y: f32[S,4], %n: i32[S]) -> (f32[S,4], f16[S,4]) {\n"
             "  %0 = neg %x : f32[S,4]\n"
             "  %1 = abs %0 : f32[S,4]\n"
             "  %2 = exp %1 : f32[S,4]\n"
             "  %3 = log %2 : f32[S,4]\n"
             "  %4 = sqrt %3 : f32[S,4]\n"
             "  %5 = rsqrt %4 : f32[S,4]\n"
             "  %6 = sin %5 : f32[S,4]\n"
             "  %7 = cos %6 : f32[S,4]\n"
             "  %8 = tanh %7 : f32[S,4]\n"
             "  %9 = erf %8 : f32[S,4]\n"
             "  %10 = floor %9 : f32[S,4]\n"
             "  %11 = ceil %10 : f32[S,4]\n"
             "  %12 = sigmoid %11 : f32[S,4]\n"
             "  %13 = relu %12 : f32[S,4]\n"
             "  %14 = relu2 %13 : f32[S,4]\n"
             "  %15 = gelu %14 : f32[S,4]\n"
             "  %16 = gelu_tanh %15 : f32[S,4]\n"
             "  %17 = gelu_quick %16 : f32[S,4]\n"
             "  %18 = silu %17 : f32[S,4]\n"
             "  %19 = scale %18 {f=0.125} : f32[S,4]\n"
             "  %20 = softcap %19 {c=30.0} : f32[S,4]\n"
             "  %21 = add %20, %x : f32[S,4]\n"
             "  %22 = sub %21, %x : f32[S,4]\n"
             "  %23 = mul %22, %x : f32[S,4]\n"
             "  %24 = div %23, %x : f32[S,4]\n"
             "  %25 = pow %24, %x : f32[S,4]\n"
             "  %26 = min %25, %x : f32[S,4]\n"
             "  %27 = max %26, %x : f32[S,4]\n"
             "  %28 = cmp %27, %x : bool[S,4]\n"
             "  %29 = cmp %27, %x {kind=ne} : bool[S,4]\n"
             "  %30 = not %28 : bool[S,4]\n"
             "  %31 = and %30, %29 : bool[S,4]\n"
             "  %32 = or %31, %29 : bool[S,4]\n"
             "  %33 = where %32, %27, %x : f32[S,4]\n"
             "  %34 = mask_rows %33, %n : f32[S,4]\n"
             "  %35 = all_reduce %34 {ranks=3} : f32[S,4]\n"
             "  %all = all_gather %34 {ranks=3} : f32[S,12]\n"
             "  %36 = all_reduce %35 {ranks=3 tag=1} : f32[S,4]\n"
             "  %37 = receive %36 {ranks=2 tag=2 stages=3} : f32[S,4]\n"
             "  %38 = send %37 {tag=3} : f32[S,4]\n"
             "  %half = cast %38 {dtype=f16} : f16[S,4]\n"
             "  return %34, %half\n"
             "}\n";

static const char rows_and_moves[] =
        HEAD "weight @g : f32[8]\n"
             "weight @table : f32[16,8] = tensor \"a b.safetensors\":\"t\\\"1\" f16[16,8]\n"
             "weight @\"odd name\" : f32[3,8]\n"
             "weight @experts : f32[4,5,8]\n"
             "weight @offsets : f32[4,5]\n"
             "\n"
             "func @f(%ids: i32[B,S] {below=16}, %at: i32[B]) -> (rows: f32[B,8], \"the best\": i32[B,S]) {\n"
             "  %x = gather @table, %ids : f32[B,S,8]\n"
             "  %x.1 = softmax %x : f32[B,S,8]\n"
             "  %x.2 = log_softmax %x.1 : f32[B,S,8]\n"
             "  %x.3 = layer_norm %x.2, @g, @g {eps=1e-06} : f32[B,S,8]\n"
             "  %x.4 = layer_norm %x.3, beta=@g : f32[B,S,8]\n"
             "  %x.5 = rms_norm %x.4, @g : f32[B,S,8]\n  %r = quantize_rows %x.5 {block=0} : f32[B,S,8]\n"
             "  %x.6 = rope %x.5, @table, %ids : f32[B,S,8]\n"
             "  %x.7 = rope %x.6, @table, %ids {layout=interleaved} : f32[B,S,8]\n"
             "  %s = reduce_sum %x.5 {axes=[2]} : f32[B,S]\n"
             "  %m = reduce_mean %x.5 {axes=[1,2] keep} : f32[B,1,1]\n"
             "  %a = reduce_max %x.5 {axes=[]} : f32[B,S,8]\n"
             "  %i = reduce_min %x.5 {axes=[0]} : f32[S,8]\n"
             "  %best = argmax %x.5 : i32[B,S]\n"
             "  %blocks = block_argmax %x.5 {width=3} : f32[B,S,2,3]\n"
             "  %scores = block_log_softmax %x.5, %best : f32[B,S,3,1]\n"
             "  %first = argmax %x.5 {axis=1} : i32[B,8]\n"
             "  %down = floor_div %best, %ids : i32[B,S]\n"
             "  %left = mod %best, %ids : i32[B,S]\n"
             "  %sums = cumsum %x.5 : f32[B,S,8]\n"
             "  %most = topk %x.5 {k=3} : f32[B,S,2,3]\n"
             "  %writer = last_index %at {size=S} : i32[S]\n"
             "  %flat = reshape %x.5 {dims=[8*B*S]} : f32[8*B*S]\n"
             "  %t = transpose %x.5 {perm=[2,0,1]} : f32[8,B,S]\n"
             "  %wide = broadcast %m {dims=[B,S,8]} : f32[B,S,8]\n"
             "  %part = slice %x.5 {axis=1 begin=S-1 size=1} : f32[B,1,8]\n"
             "  %both = concat %x.5, %part, %wide {axis=1} : f32[B,2*S+1,8]\n"
             "  %border = pad %i {axis=1 before=1 after=2 value=-inf} : f32[S,11]\n"
             "  %row = select_rows %both, %at : f32[B,8]\n"
             "  %c = full {value=nan dtype=f64} : f64[]\n"
             "  %j = iota {dims=[S] start=-3} : i32[S]\n"
             "  %d = dim_value {dim=(S+3)//4} : i32[]\n"
             "  %odd = select_rows %both, %at : f32[B,8]\n"
             "  %line = linear %row, @\"odd name\" : f32[B,3]\n"
             "  %chosen = expert_linear %x.5, @experts, %ids, @offsets : f32[B,S,5]\n"
             "  %plain = expert_linear %x.5, @experts, %ids : f32[B,S,5]\n"
             "  return %row, %best\n"
             "}\n";

static const char contractions[] = HEAD
        "\n"
        "func @f(%q: f32[B,6,S,8], %k: f32[B,2,16,8], %bias: f32[B,6,S,16], %len: i32[B] {default=S max=S},"
        " %past: i32[B] {role=past}) -> (y: f32[B,6,S,8] {lengths=%len}, i32[B] {role=past}) {\n"
        "  %h = broadcast %k {dims=[B,2,16,8]} : f32[B,2,16,8]\n"
        "  %a = attention %q, %k, %h {scale=0.5} : f32[B,6,S,8]\n"
        "  %a.1 = attention %a, %k, %h, %bias, %len, %past {softcap=50.0 mask=causal} : f32[B,6,S,8]\n"
        "  %a.2 = attention %a.1, %k, %h, past=%past {mask=causal} : f32[B,6,S,8]\n"
        "  %k6 = slice %bias {axis=3 begin=0 size=8} : f32[B,6,S,8]\n"
        "  %s = matmul %a.2, %k6 {tb} : f32[B,6,S,S]\n"
        "  %m = mask %s, %len : f32[B,6,S,S]\n"
        "  %p = masked_softmax %m, past=%past {scale=0.25 mask=causal} : f32[B,6,S,S]\n"
        "  %y = matmul %p, %a.2 : f32[B,6,S,8]\n"
        "  %z = matmul %y, %p {ta tb} : f32[B,6,8,S]\n"
        "  return %y, %past\n"
        "}\n";

static const char states[] =
        HEAD "state @kv : f32[B,3,2,16,8] #row\n"
             "state @keys : f32[B,3,2,16,8] #panel16\n"
             "state @memory : f32[B,16,8] #row loc(#loc4)\n"
             "\n"
             "func @f(%x: f32[B,2,S,8], %past: i32[B], %kv: state @kv, %mem: state @memory)"
             " -> (f32[B,2,16,8], state @kv, state @memory) loc(#loc1) {\n"
             "  %decoder.y, %decoder.kv = repeat %l = 0 to 3 carry (%h = %x, %c = %kv) {\n"
             "    %slice, %c.1 = state_append %c, %h, %past, %l : f32[B,2,16,8], state @kv\n"
             "    %c.2 = state_write %c.1, %h, %l : state @kv\n"
             "    %part = slice %slice {axis=2 begin=0 size=S} : f32[B,2,S,8]\n"
             "    yield %part, %c.2\n"
             "  } : f32[B,2,S,8], state @kv loc(#loc9)\n"
             "  %zero = full {dtype=i32} : i32[]\n"
             "  %all, %kv.1 = state_read %decoder.kv, %zero : f32[B,2,16,8], state @kv\n"
             "  repeat %l.1 = 0 to 2 carry () {\n"
             "    yield\n"
             "  }\n"
             "  return %all, %kv.1, %mem\n"
             "}\n"
             "\n"
             "func @g() -> () {\n"
             "  return\n"
             "}\n"
             "\n"
             "#loc4 = loc(\"model.yaml\":4:1)\n"
             "#loc1 = loc(\"model.yaml\":1:1 \"decode\")\n"
             "#loc9 = loc(\"model.yaml\":9:3 \"decoder\")\n";

static const char groups[] = GROUPS
        "weight @w : f32[2,24,8] #panel16 = stack(i in 0..2, transpose(tensor \"m\":\"l.{i}.w\" f32[8,24]))\n"
        "weight @b : f32[2,24] loc(#loc)\n"
        "\n"
        "func @f(%x: f32[B,S,8]) -> (f32[B,S,8]) {\n"
        "  %layers.y = repeat %l = 0 to 2 carry (%c = %x) {\n"
        "    %q, %k = group linear {mr=14 nr=32 scratch=4096} {\n"
        "      pre  %h = layer_norm %c {eps=1e-06} : f32[B,S,8]\n"
        "      root %self.t = linear %h, @w[%l] #panel16, @b[%l] : f32[B,S,24] loc(#loc24)\n"
        "      post %u = slice %self.t {axis=2 begin=0 size=8} : f32[B,S,8]\n"
        "      post %w = slice %self.t {axis=2 begin=8 size=8} : f32[B,S,8]\n"
        "      yield %u, %w\n"
        "    } : f32[B,S,8], f32[B,S,8] loc(#loc24)\n"
        "    %r = group loops {\n"
        "      root %0 = mul %q, %k : f32[B,S,8]\n"
        "      yield %0\n"
        "    } : f32[B,S,8]\n"
        "    yield %r\n"
        "  } : f32[B,S,8] loc(#loc23)\n"
        "  return %layers.y\n"
        "}\n"
        "\n"
        "#loc = loc(\"w\")\n"
        "#loc24 = loc(\"model.yaml\":24:13 \"layers.self\")\n"
        "#loc23 = loc(\"model.yaml\":23:7 \"layers\")\n";

static const char plan[] =
        PLAN "\n"
             "func @f(%x: f32[B,S,8]) -> (f32[B,S,8]) arena=256*B*S*((S+3)//4)+288*B*S+64 {\n"
             "  %q, %k = group rowwise {lanes=16} {\n"
             "      root %h = softmax %x : f32[B,S,8]\n"
             "      post %t = exp %h : f32[B,S,8]\n"
             "      yield %h, %t\n"
             "  } at [0, 256*B*S+64] : f32[B,S,8], f32[B,S,8]\n"
             "  return %k\n"
             "}\n";

static const char weights[] =
        "module \"w\"\n"
        "weight @a : f32[2,4] = stack(tensor \"f\":\"x\" f32[4], full(1.5, [4]))\n"
        "weight @b : f32[4,4] = concat(0, slice(0, 1, 3, tensor \"f\":\"y\" bf16[4,4]), "
        "reshape([2,4], tensor \"f\":\"z\" f16[8]))\n"
        "weight @c : f32[4] = index(0, 1, transpose(tensor \"f\":\"y\" f32[4,4]))\n"
        "weight @d : f32[8,3] = rope_halves_to_interleaved(2, rope_interleaved_to_halves(2, tensor "
        "\"f\":\"r\" f32[8,3]))\n"
        "weight @e : f32[4] = mul(div(tensor \"f\":\"a\" f32[4], tensor \"f\":\"b\" f32[4]), "
        "offset(-1.0, tensor \"f\":\"d\" f32[4]))\n"
        "weight @n : f32[8,3] = repeat(0, 2, tensor \"f\":\"a\" f32[4,3])\n"
        "weight @p : f32[64,32] = sinusoid(rows=64, dim=32, layout=halves, spacing=t2t, start=1, "
        "base=10000.0)\n"
        "weight @r : f32[64,4] = rotary(rows=64, scale=1.25, frequencies=[1.0, 0.01])\n"
        "weight @q : f32[3,4] = stack(i in 1..4, tensor \"f\":\"l.{i}\" f32[4])\n";

static const char cases[] = "module \"m\"\n"
                            "dim B in [1,8]\n"
                            "dim S in [1,16]\n"
                            "\n"
                            "func @f(%x: f32[B,S]) -> (y: f32[B,S]) {\n"
                            "  %y = relu %x : f32[B,S]\n"
                            "  return %y\n"
                            "}\n"
                            "\n"
                            "func @f.one(%x: f32[B,1]) -> (y: f32[B,1]) case of @f when S = 1, B <= 2 {\n"
                            "  %y = relu %x : f32[B,1]\n"
                            "  return %y\n"
                            "}\n"
                            "\n"
                            "func @\"f few\"(%x: f32[B,S]) -> (y: f32[B,S]) case of @f when B*S <= 14 {\n"
                            "  %y = relu %x : f32[B,S]\n"
                            "  return %y\n"
                            "}\n";

static const char *const canonical[] = {elementwise, rows_and_moves, contractions, states,
                                        groups,      weights,        cases};

static void see(void *user, const struct ir_op *op)
{
	bool *seen = user;
	seen[op->code] = true;
	for (size_t i = 0; op->region != NULL && i < op->region->n_ops; i++)
		seen[op->region->ops[i]->code] = true;
}

START_TEST(canonical_text_prints_equal)
{
	struct tir t;
	tir_init(&t);
	tir_load(&t, canonical[_i]);
	tir_expect(&t, canonical[_i]);
	tir_destroy(&t);
}
END_TEST

/* The text of random modules, built with folding and merging, reads back. */
START_TEST(random_modules_read_back)
{
	struct tir t;
	struct buf text;
	tir_init(&t);
	buf_init(&text);
	for (uint64_t seed = 0; seed < 200; seed++) {
		struct random_options options = {.all_dtypes = seed % 2 == 0};
		struct ir_module *m = random_module(&t.cx, seed, &options);
		ck_assert_msg(m != NULL, "seed %d:\n%s", (int)seed, t.log.data);
		buf_clear(&text);
		ir_print(&text, &t.cx, m);
		tir_load(&t, text.data);
		tir_expect(&t, text.data);
		ir_module_destroy(m);
	}
	buf_destroy(&text);
	tir_destroy(&t);
}
END_TEST

START_TEST(plan_text)
{
	struct tir t;
	struct buf once;
	tir_init(&t);
	buf_init(&once);
	tir_load(&t, plan);
	ir_print(&once, &t.cx, t.m);
	ck_assert_ptr_nonnull(strstr(once.data, ") arena=256*B*S*((S+3)//4)+288*B*S+64 {\n"));
	ck_assert_ptr_nonnull(strstr(once.data, "\n    root %h = softmax %x : f32[B,S,8]\n"));
	ck_assert_ptr_nonnull(strstr(once.data, "\n  } at [0, 256*B*S+64] : f32[B,S,8], f32[B,S,8]\n"));
	struct tir again;
	tir_init(&again);
	tir_load(&again, once.data);
	tir_expect(&again, once.data);
	tir_destroy(&again);
	buf_destroy(&once);
	tir_destroy(&t);
}
END_TEST

START_TEST(every_op_is_covered)
{
	struct tir t;
	bool seen[IR_N_OPS] = {false};
	tir_init(&t);
	for (size_t i = 0; i < TFMC_COUNT(canonical); i++) {
		tir_load(&t, canonical[i]);
		for (size_t k = 0; k < t.m->funcs.n; k++)
			ir_visit_ops(t.m->funcs.items[k]->body, see, seen);
	}
	for (int i = 0; i < IR_N_OPS; i++)
		ck_assert_msg(seen[i], "no canonical text has the op %s",
		              ir_op_desc((enum ir_opcode)i)->name);
	tir_destroy(&t);
}
END_TEST

START_TEST(other_spellings)
{
	struct tir t;
	tir_init(&t);
	/* No header, comments, blanks, defaults written out, %names used again in another region. */
	tir_load(&t, "; a comment\n"
	             "dim S in [1, 0x10]\n"
	             "func @f(%a: f32[S , 4]) -> (f32[S,4]) { ; more\n"
	             "  %b = layer_norm x=%a {eps=0.00001}:f32[S,2*2] %c = relu %b : f32[(S), 4]\n"
	             "  %d = repeat %l=0 to 2 carry (%x=%c) { %y = exp %x : f32[S,4] yield %y } : f32[S,4]\n"
	             "  %e = repeat %l=0 to 2 carry (%x=%d) { %y = exp %x : f32[S,4] yield %y } : f32[S,4]\n"
	             "  return %e }\n");
	tir_expect(&t, "module \"module\"\n"
	               "dim S in [1,16]\n"
	               "\n"
	               "func @f(%a: f32[S,4]) -> (f32[S,4]) {\n"
	               "  %b = layer_norm %a : f32[S,4]\n"
	               "  %c = relu %b : f32[S,4]\n"
	               "  %d = repeat %l = 0 to 2 carry (%x = %c) {\n"
	               "    %y = exp %x : f32[S,4]\n"
	               "    yield %y\n"
	               "  } : f32[S,4]\n"
	               "  %e = repeat %l.1 = 0 to 2 carry (%x.1 = %d) {\n"
	               "    %y.1 = exp %x.1 : f32[S,4]\n"
	               "    yield %y.1\n"
	               "  } : f32[S,4]\n"
	               "  return %e\n"
	               "}\n");
	tir_destroy(&t);
}
END_TEST

START_TEST(locations)
{
	struct tir t;
	tir_init(&t);
	tir_load(&t, HEAD "func @f(%x: f32[S]) -> (f32[S]) {\n"
	                  "  %y = relu %x : f32[S] loc(\"model.yaml\":24:7 \"encoder.layers\")\n"
	                  "  %z = relu %y : f32[S]\n"
	                  "  return %z\n"
	                  "}\n");
	const struct ir_region *r = ir_find_func(t.m, "f")->body;
	ck_assert_str_eq(diag_source_name(&t.cx, r->ops[0]->loc.at.source), "model.yaml");
	ck_assert_uint_eq(r->ops[0]->loc.at.line, 24);
	ck_assert_uint_eq(r->ops[0]->loc.at.col, 7);
	ck_assert_str_eq(r->ops[0]->loc.path, "encoder.layers");
	ck_assert_uint_eq(r->ops[1]->loc.at.source, t.m->tir_source);
	ck_assert_uint_eq(r->ops[1]->loc.at.line, 6);
	struct buf out;
	buf_init(&out);
	ir_print_func(&out, NULL, t.m, ir_find_func(t.m, "f"));
	ck_assert_ptr_nonnull(strstr(out.data, "%z = relu %encoder.layers.y : f32[S]\n"));
	buf_destroy(&out);
	tir_destroy(&t);
}
END_TEST

/* Locations at their ops, as texts of earlier releases have them, and names that do not begin with the step. */
START_TEST(names_and_aliases_of_steps)
{
	struct tir t;
	tir_init(&t);
	tir_load(&t, HEAD
	         "func @f(%x: f32[S], %q: f32[S]) -> (f32[S]) {\n"
	         "  %x.1 = relu %x : f32[S] loc(\"model.yaml\":24:7 \"encoder.norm\")\n"
	         "  %x.2 = repeat %i = 0 to 2 carry (%r = %x.1) {\n"
	         "    %q.1 = relu %r : f32[S] loc(\"model.yaml\":26:3 \"encoder.layers.self.attention\")\n"
	         "    %s = repeat %j = 0 to 2 carry (%t = %q.1) {\n"
	         "      %3 = neg %t : f32[S] loc(\"model.yaml\":26:3 \"encoder.layers.inner.ff\")\n"
	         "      %x.3 = exp %3 : f32[S] loc(\"model.yaml\":26:3 \"encoder.layers.inner.ff\")\n"
	         "      yield %x.3\n"
	         "    } : f32[S] loc(\"model.yaml\":27:3 \"encoder.layers.inner\")\n"
	         "    yield %s\n"
	         "  } : f32[S] loc(\"model.yaml\":25:3 \"encoder.layers\")\n"
	         "  %x.4 = add %x.2, %q : f32[S] loc(\"end\")\n"
	         "  %x.5 = exp %x.4 : f32[S] loc(\"preset llama\":24:9 \"end\")\n"
	         "  return %x.5\n"
	         "}\n");
	tir_expect(&t, HEAD
	           "\n"
	           "func @f(%x: f32[S], %q: f32[S]) -> (f32[S]) {\n"
	           "  %encoder.norm.1 = relu %x : f32[S] loc(#loc24)\n"
	           "  %encoder.layers.2 = repeat %i = 0 to 2 carry (%r = %encoder.norm.1) {\n"
	           "    %encoder.self.attention.q.1 = relu %r : f32[S] loc(#loc26)\n"
	           "    %encoder.inner.s = repeat %j = 0 to 2 carry (%t = %encoder.self.attention.q.1) {\n"
	           "      %0 = neg %t : f32[S] loc(#loc26.1)\n"
	           "      %encoder.ff.3 = exp %0 : f32[S] loc(#loc26.1)\n"
	           "      yield %encoder.ff.3\n"
	           "    } : f32[S] loc(#loc27)\n"
	           "    yield %encoder.inner.s\n"
	           "  } : f32[S] loc(#loc25)\n"
	           "  %end.4 = add %encoder.layers.2, %q : f32[S] loc(#loc)\n"
	           "  %end.5 = exp %end.4 : f32[S] loc(#loc24.1)\n"
	           "  return %end.5\n"
	           "}\n"
	           "\n"
	           "#loc24 = loc(\"model.yaml\":24:7 \"encoder.norm\")\n"
	           "#loc26 = loc(\"model.yaml\":26:3 \"encoder.layers.self.attention\")\n"
	           "#loc26.1 = loc(\"model.yaml\":26:3 \"encoder.layers.inner.ff\")\n"
	           "#loc27 = loc(\"model.yaml\":27:3 \"encoder.layers.inner\")\n"
	           "#loc25 = loc(\"model.yaml\":25:3 \"encoder.layers\")\n"
	           "#loc = loc(\"end\")\n"
	           "#loc24.1 = loc(\"preset llama\":24:9 \"end\")\n");
	tir_destroy(&t);
}
END_TEST

/* The name of a value in its step is not that of the text: passes give it the step that it moves to. */
START_TEST(own_names_of_values)
{
	struct tir t;
	tir_init(&t);
	tir_load(&t, HEAD "func @f(%x: f32[S]) -> (f32[S]) {\n"
	                  "  %a.b.q = relu %x : f32[S] loc(#loc1)\n"
	                  "  %a.b = exp %a.b.q : f32[S] loc(#loc1)\n"
	                  "  %a.b.1 = exp %a.b : f32[S] loc(#loc1)\n"
	                  "  %a.bc = exp %a.b.1 : f32[S] loc(#loc1)\n"
	                  "  return %a.bc\n"
	                  "}\n"
	                  "#loc1 = loc(\"a.b\")\n");
	static const char *const own[] = {"q", "x", "x.1", "a.bc"};
	const struct ir_func *f = ir_find_func(t.m, "f");
	for (size_t i = 0; i < TFMC_COUNT(own); i++)
		ck_assert_str_eq(ir_value_info(f, f->body->ops[i]->results[0])->name, own[i]);
	tir_destroy(&t);
}
END_TEST

/* ---- errors ---- */

struct refusal {
	const char *text; /* inside a function with %x: f32[B,S,8], or a whole text */
	const char *says;
};

static const struct refusal declarations[] = {
        {"modul \"x\"\n", "test.tir:1:1: error: unknown declaration 'modul' [E601]"},
        {"dim S in [2,1]\n", "test.tir:1:5: error: bounds [2,1] of dim S"},
        {"dim S in [1,2]\ndim S in [1,2]\n", "test.tir:2:5: error: the dim S is declared twice"},
        {"dim Seq in [1,2]\nweight @w : f32[Sq]\n", "unknown dim 'Sq'; did you mean 'Seq'?"},
        {"weight @w : ff32[2]\n", "unknown element type 'ff32'; did you mean 'f32'?"},
        {"weight @w : f32[2\n", "expected ',', the text ends here"},
        {"weight @w : f32[1-2]\n", "a dim of the type may be negative"},
        {"weight @w : f32[9223372036854775807*2]\n", "does not fit into 64 bits"},
        {"weight @w : f32[1,1,1,1,1,1,1,1,1]\n", "at most 8 axes"},
        {"weight @w : f32[2] #pannel16\n", "unknown encoding 'pannel16'; did you mean 'panel16'?"},
        {"weight @w : f32[2] = tensr \"a\":\"b\" f32[2]\n",
         "unknown weight expression 'tensr'; did you mean 'tensor'?"},
        {"weight @w : f32[2,2] = rotary(rows=2, scale=1.0, frequencies=[])\n", "expected a number"},
        {"weight @w : f32[2,2] = rotary(rows=2, scale=inf, frequencies=[1.0])\n",
         "the arguments of rotary do not fit"},
        {"weight @w : f32[2] = index(0, 5, full(0.0, [2]))\n", "the arguments of index do not fit"},
        {"weight @w : f32[2] = stack(i in 0..100000, full(0.0, [2]))\n", "1 to 65536 elements"},
        {"weight @w : f32[2]\nweight @w : f32[2]\n", "declared twice"},
        {"state @s : f32[2] #panel16\n", "not supported yet"},
        {"module \"a\" stage=grops\n", "unknown stage 'grops'; did you mean 'groups'?"},
        {"module \"a\nb\"\n", "test.tir:1:8: error: the quoted text does not end in its line"},
        {"module \"a\\q\"\n", "a backslash must be followed by"},
        {"dim S in [1,2] $\n", "test.tir:1:16: error: a character that has no meaning here"},
        {"dim S in [1,2x]\n", "a letter follows the number"},
        {"dim \xff in [1,2]\n", "not UTF-8"},
        {"func @f(%a: f32[], %a: f32[]) -> () {\n return\n}\n", "%a is defined twice"},
        {"func @f(%a: i32[2] {lengths=%b}) -> () {\n return\n}\n", "unknown parameter 'b'"},
        {"func @f(%a: i32[2] {belw=3}) -> () {\n return\n}\n",
         "unknown property 'belw'; did you mean 'below'?"},
        {"func @f(%a: f32[2]) -> (f32[3]) {\n return %a\n}\n", "result 0 is f32[3], returned is f32[2]"},
        {"func @f(%a: f32[2]) -> () {\n return %a\n}\n", "the function has 0 results, 1 are returned"},
        {"func @f() -> () {\n return\n}\nfunc @f() -> () {\n return\n}\n", "already a function @f"},
        {"dim S in [1,2]\nfunc @f() -> () case @g when S = 1 {\n return\n}\n",
         "test.tir:2:22: error: expected 'of', found 'g'"},
        {"dim S in [1,2]\nfunc @f() -> () case of @g {\n return\n}\n", "expected 'when', found '{'"},
        {"dim S in [1,2]\nfunc @f() -> () case of @g when {\n return\n}\n", "expected a dim, found '{'"},
        {"dim S in [1,2]\nfunc @f() -> () case of @g when S 1 {\n return\n}\n",
         "expected '=' or '<=', found '1'"},
        {"dim S in [1,2]\nfunc @f() -> () case of @g when S < 1 {\n return\n}\n",
         "a character that has no meaning here"},
        {"dim S in [1,2]\nfunc @f() -> () case of @g when T = 1 {\n return\n}\n", "unknown dim 'T'"},
        {"func @f(%a: state @kw) -> () {\n return\n}\n", "unknown state 'kw'"},
        {"module \"a\" stage=groups\nfunc @f(%a: f32[2]) -> (f32[2]) {\n %y = group loops {\n root %b = exp "
         "%a : f32[2]\n"
         " root %c = exp %b : f32[2]\n yield %c\n } : f32[2]\n return %y\n}\n",
         "test.tir:5:2: error: a group has one root"},
};

/* A kilobyte that is read for each of 65536 numbers. */
START_TEST(refused_counted_stack)
{
	struct tir t;
	struct buf text;
	tir_init(&t);
	buf_init(&text);
	buf_printf(&text, "weight @w : f32[9] = stack(i in 0..65536, full(0.0,%*s[]))\n", 1024, "");
	ck_assert(tir_parse(&t, text.data) == TFMC_INVALID);
	tir_says(&t, "test.tir:1:28: error: counted stacks read more than 67108864 bytes [E106]");
	buf_destroy(&text);
	tir_destroy(&t);
}
END_TEST

START_TEST(refused_declarations)
{
	struct tir t;
	tir_init(&t);
	ck_assert(tir_parse(&t, declarations[_i].text) == TFMC_INVALID);
	ck_assert_ptr_null(t.m);
	tir_says(&t, declarations[_i].says);
	ck_assert_uint_eq(t.cx.n_errors, 1);
	tir_destroy(&t);
}
END_TEST

static const struct refusal lines[] = {
        {"  %y = rellu %x : f32[B,S,8]\n",
         "test.tir:6:8: error: unknown op 'rellu'; did you mean 'relu'? [E601]"},
        {"  %y = round_rows %x : f32[B,S,8]\n",
         "test.tir:6:8: error: the op 'round_rows' is now called 'quantize_rows' [E601]"},
        {"  %y = strip_score %x, %x : f32[B,S,8]\n", "is now called 'block_log_softmax'"},
        {"  %y = relu %z : f32[B,S,8]\n", "test.tir:6:13: error: unknown value 'z'"},
        {"  %y = relu @v : f32[B,S,8]\n", "unknown weight 'v'"},
        {"  %y = relu %x : f32[B,8]\n", "the text says f32[B,8], the op gives f32[B,S,8] [E602]"},
        {"  %y = relu %x\n", "expected ':'"},
        {"  %y, %z = relu %x : f32[B,S,8]\n", "relu gives 1 values, 2 are named"},
        {"  %y = scale %x {g=2.0} : f32[B,S,8]\n", "unknown attribute of scale 'g'"},
        {"  %y = layer_norm %x {esp=2.0} : f32[B,S,8]\n",
         "unknown attribute of layer_norm 'esp'; did you mean 'eps'?"},
        {"  %y = scale %x {f=2.0 f=2.0} : f32[B,S,8]\n", "f is given twice"},
        {"  %y = scale %x {f=two} : f32[B,S,8]\n", "expected a number, found 'two'"},
        {"  %y = reduce_sum %x : f32[B,S]\n", "reduce_sum needs {axes=...}"},
        {"  %y = reduce_sum %x {axes=[3]} : f32[B,S]\n", "axis 3 of a tensor with 3 axes"},
        {"  %y = mask %x {mask=causl} : f32[B,S,8]\n", "unknown word 'causl'; did you mean 'causal'?"},
        {"  %y = layer_norm %x, gama=@g : f32[B,S,8]\n", "layer_norm has no operand 'gama'"},
        {"  %y = layer_norm %x, @g #panel16 : f32[B,S,8]\n", "the weight @g is #row, here it is #panel16"},
        {"  %y = layer_norm %x, @w : f32[B,S,8]\n", "gamma is f32[2,8,8], it needs 1 axes"},
        {"  %y = layer_norm %x, @g[%x] : f32[B,S,8]\n", "index is f32[B,S,8], it must be a tensor of i32"},
        {"  %p = iota {dims=[B,S] axis=1} : i32[B,S]\n  %y = rope %x, @g, %p : f32[B,S,8]\n",
         "rope: table is f32[8], it needs 2 axes"},
        {"  %p = iota {dims=[B,8] axis=1} : i32[B,8]\n"
         "  %t = full {value=1.0 dims=[4,8] dtype=f32} : f32[4,8]\n"
         "  %y = rope %x, %t, %p : f32[B,S,8]\n",
         "axis 1 of x (S) and axis 1 of at (8) differ"},
        {"  %p = iota {dims=[B,S] axis=1} : i32[B,S]\n"
         "  %t = full {value=1.0 dims=[4,10] dtype=f32} : f32[4,10]\n"
         "  %y = rope %x, %t, %p : f32[B,S,8]\n",
         "the rows of the table have an even width, at most that of x"},
        {"  %i = iota {dims=[B] axis=0} : i32[B]\n"
         "  %t = full {value=1.0 dims=[0,8] dtype=f32} : f32[0,8]\n"
         "  %y = gather %t, %i : f32[B,8]\n",
         "gather: table is f32[0,8]: axis 0 may have no rows"},
        {"  %i = iota {dims=[B] axis=0} : i32[B]\n"
         "  %t = full {value=1.0 dims=[B,0,8] dtype=f32} : f32[B,0,8]\n"
         "  %y = select_rows %t, %i : f32[B,8]\n",
         "select_rows: x is f32[B,0,8]: axis 1 may have no rows"},
        {"  %i = iota {dims=[B,S] axis=1} : i32[B,S]\n"
         "  %t = full {value=1.0 dims=[0,5,8] dtype=f32} : f32[0,5,8]\n"
         "  %y = expert_linear %x, %t, %i : f32[B,S,5]\n",
         "expert_linear: w is f32[0,5,8]: axis 0 may have no experts"},
        {"  %y = reshape %x {dims=[B,S,9]} : f32[B,S,9]\n", "8*B*S and 9*B*S elements"},
        {"  %y = slice %x {axis=1 begin=1 size=S} : f32[B,S,8]\n",
         "[1, S + 1) is not always inside axis 1 of f32[B,S,8]"},
        {"  %y = cast %x {dtype=f31} : f32[B,S,8]\n", "unknown element type 'f31'"},
        {"  %y = add %x : f32[B,S,8]\n", "add: operand b is missing"},
        {"  %y = not %x : f32[B,S,8]\n", "not: x is f32[B,S,8], it must be a tensor of bool [E303]"},
        {"  %y = transpose %x {perm=[0,1,1]} : f32[B,S,8]\n", "perm names axis 1 twice"},
        {"  %y = weight @w : f32[B,S,8]\n", "unknown op 'weight'"},
        {"  yield %x\n", "yield does not belong here"},
        {"  %x = relu %x : f32[B,S,8]\n", "%x is defined twice"},
        {"  %y = repeat %l = 1 to 6 carry (%c = %x) {\n    yield %c\n  } : f32[B,S,8]\n",
         "a repeat begins at 0"},
        {"  %y = repeat %l = 0 to 6 carry (%c = %x) {\n    yield %l\n  } : f32[B,S,8]\n",
         "carried value 0 of repeat is f32[B,S,8], the body yields i32[]"},
        {"  %y = repeat %l = 0 to 6 carry (%c = %x) {\n    yield\n  } : f32[B,S,8]\n",
         "repeat carries 1 values, its body yields 0"},
        {"  %y = repeat %l = 0 to 6 carry (%c = %x) {\n    yield %c\n  } : f32[B,S,8]\n  %z = relu %c : "
         "f32[B,S,8]\n",
         "unknown value 'c'"},
        {"  %y = group liner {\n", "unknown kind of group 'liner'; did you mean 'linear'?"},
        {"  %y = group loops {\n    yield %x\n  } : f32[B,S,8]\n", "the group has no root"},
        {"  %y = group loops {\n    %z = relu %x : f32[B,S,8]\n",
         "expected 'pre', 'root', 'post' or 'yield'"},
        {"  %y = group loops {\n    post %z = relu %x : f32[B,S,8]\n", "'post' before the root"},
        {"  %y = relu %x : f32[B,S,8] loc(\"a\":x:1)\n", "expected an integer, found 'x'"},
        {"  %y = relu %x : f32[B,S,8] loc(#loc1)\n", "test.tir:6:33: error: unknown location 'loc1'"},
        {"  return %x\n}\n#loc1 = loc(\"a\")\n#loc2 = loc(#loc1)\n#loc1 = loc(\"b\")\n",
         "test.tir:10:1: error: #loc1 is defined twice"},
        {"  return %x\n}\n#loc1 = \"a\":1:1\n", "test.tir:8:9: error: expected 'loc', found 'a'"},
        {"  return %x\n}\n#loc1 = loc(\"a\")\n",
         "test.tir:9:3: error: expected #name of a location, found 'return'"},
        {"  %y = relu %\"\" : f32[B,S,8]\n", "unknown value ''"},
        {"  %y = relu % x : f32[B,S,8]\n", "test.tir:6:13: error: a name is missing here"},
        {"}\n", "the body does not end in 'return'"},
};

START_TEST(refused_lines)
{
	struct tir t;
	struct buf text;
	tir_init(&t);
	buf_init(&text);
	buf_printf(&text, "%s",
	           "dim B in [1,8]\ndim S in [1,16]\nweight @g : f32[8]\nweight @w : f32[2,8,8]\n"
	           "func @f(%x: f32[B,S,8]) -> (f32[B,S,8]) {\n");
	buf_printf(&text, "%s  return %%x\n}\n", lines[_i].text);
	ck_assert(tir_parse(&t, text.data) == TFMC_INVALID);
	tir_says(&t, lines[_i].says);
	ck_assert_uint_eq(t.cx.n_errors, 1);
	buf_destroy(&text);
	tir_destroy(&t);
}
END_TEST

/* n times `open`, then `middle`. */
static void nest(struct buf *text, const char *open, size_t n, const char *middle)
{
	for (size_t i = 0; i < n; i++)
		buf_str(text, open);
	buf_str(text, middle);
}

START_TEST(depth_is_limited)
{
	struct tir t;
	struct buf text;
	tir_init(&t);
	buf_init(&text);
	nest(&text, "weight @w : f32[", 1, "");
	nest(&text, "(", 100000, "1]");
	ck_assert(tir_parse(&t, text.data) == TFMC_INVALID);
	tir_says(&t, "nested deeper than");
	buf_clear(&text);
	nest(&text, "weight @w : f32[2] = ", 1, "");
	nest(&text, "offset(1.0, ", 100000, "");
	ck_assert(tir_parse(&t, text.data) == TFMC_INVALID);
	buf_clear(&text);
	buf_str(&text, "func @f() -> () {\n");
	nest(&text, "repeat %l = 0 to 1 carry () {\n", 1, "");
	for (int i = 0; i < 100; i++)
		buf_printf(&text, "repeat %%l%d = 0 to 1 carry () {\n", i);
	ck_assert(tir_parse(&t, text.data) == TFMC_INVALID);
	tir_says(&t, "regions are nested deeper than 16");
	buf_destroy(&text);
	tir_destroy(&t);
}
END_TEST

/* Every prefix of a text, and every text with one byte replaced, ends without harm. */
START_TEST(damaged_texts_are_refused_quietly)
{
	struct buf text;
	const char *whole = canonical[_i];
	size_t len = strlen(whole);
	buf_init(&text);
	for (size_t i = 0; i < len; i += 3) {
		struct tir t;
		tir_init(&t);
		buf_clear(&text);
		buf_bytes(&text, whole, i);
		enum tfmc_status cut = tir_parse(&t, text.data);
		ck_assert(cut == TFMC_OK || cut == TFMC_INVALID);
		buf_clear(&text);
		buf_str(&text, whole);
		text.data[i] = "%@{]9- x\"("[i % 10];
		enum tfmc_status changed = tir_parse(&t, text.data);
		ck_assert(changed == TFMC_OK || changed == TFMC_INVALID);
		tir_destroy(&t);
	}
	buf_destroy(&text);
}
END_TEST

Suite *suite_ir_text(void)
{
	Suite *s = suite_create("ir_text");
	TCase *c = tcase_create("text");
	tcase_set_timeout(c, 60);
	tcase_add_loop_test(c, canonical_text_prints_equal, 0, (int)TFMC_COUNT(canonical));
	tcase_add_test(c, random_modules_read_back);
	tcase_add_test(c, plan_text);
	tcase_add_test(c, every_op_is_covered);
	tcase_add_test(c, other_spellings);
	tcase_add_test(c, locations);
	tcase_add_test(c, names_and_aliases_of_steps);
	tcase_add_test(c, own_names_of_values);
	tcase_add_test(c, refused_counted_stack);
	tcase_add_loop_test(c, refused_declarations, 0, (int)TFMC_COUNT(declarations));
	tcase_add_loop_test(c, refused_lines, 0, (int)TFMC_COUNT(lines));
	tcase_add_test(c, depth_is_limited);
	tcase_add_loop_test(c, damaged_texts_are_refused_quietly, 0, (int)TFMC_COUNT(canonical));
	suite_add_tcase(s, c);
	return s;
}
