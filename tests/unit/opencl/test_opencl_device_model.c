/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models of libtfmccl on PoCL: results are those of the interpreter, whatever sequences and sources a call names, and a
 * saved, copied or permuted state goes on as the one that it came from.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "ir/interp/interp.h"
#include "runtime/opencl/model.h"
#include "runtime/opencl/tfmc_cl.h"
#include "tests/support/mini_model.h"
#include "tests/support/mini_session.h"
#include "tests/support/opencl/model_code.h"
#include "tests/support/random/random_ir.h"

#define BATCH     4
#define SYMBOLS   3 /* B, S, T */
#define TOLERANCE 2e-4

static struct model_code code;
static struct tfmc_cl_model *model;
static struct interp_state *meaning;
static int32_t past[BATCH];
static char message[TFMC_CL_TEXT];
static const struct tfmc_device device = {
        .name = "Portable Computing Language", .message = message, .message_bytes = sizeof(message)};

static bool has_pocl(void)
{
	struct tfmc_cl *cl;
	size_t number;
	bool has = tfmc_cl_open(NULL, &cl, NULL) == TFMC_CL_OK &&
	           tfmc_cl_choose(cl, 0, device.name, &number, NULL) == TFMC_CL_OK;
	tfmc_cl_close(cl);
	if (!has)
		(void)fprintf(stderr, "SKIPPED: models on a device: there is no PoCL\n");
	return has;
}

static bool begin(void)
{
	if (!has_pocl())
		return false;
	model_code_make(&code, mini_model, "opencl-gpu", "O2", BATCH);
	int32_t status = tfmc_cl_model_open(&code.device.code, &device, &model);
	ck_assert_msg(status == TFMC_RT_OK, "%s", message);
	meaning = interp_state_create(&code.arena, code.graph.m, BATCH);
	memset(past, 0, sizeof(past));
	return true;
}

static void end(void)
{
	tfmc_cl_model_close(model);
	model_code_destroy(&code);
}

/* ---- calls ---- */

struct mini_call {
	const char *name;
	int64_t batch, tokens, first, source;
	int32_t ids[BATCH * MINI_MAX_T], lengths[BATCH]; /* encode has lengths */
	float out[BATCH * MINI_MAX_T * 20];
};

static bool encodes(const struct mini_call *c)
{
	return strcmp(c->name, "encode") == 0;
}

static void call_dims(const struct mini_call *c, int64_t dims[SYMBOLS])
{
	dims[0] = c->batch;
	dims[1] = encodes(c) ? c->tokens : 1;
	dims[2] = encodes(c) ? 1 : c->tokens;
}

static uint64_t out_count(const struct mini_call *c)
{
	return (uint64_t)(encodes(c) ? c->batch * c->tokens * 16 : c->batch * 20);
}

static int32_t ask(struct mini_call *c)
{
	int64_t dims[SYMBOLS];
	struct tfmc_buffer params[16] = {0}, results[16] = {0};
	size_t function = model_code_function(&code, c->name);
	call_dims(c, dims);
	params[0] = (struct tfmc_buffer){c->ids, (uint64_t)(c->batch * c->tokens) * sizeof(int32_t)};
	if (encodes(c))
		params[1] = (struct tfmc_buffer){c->lengths, (uint64_t)c->batch * sizeof(int32_t)};
	results[0] = (struct tfmc_buffer){c->out, out_count(c) * sizeof(float)};
	const struct tfmc_cl_call call = {function, past + c->first, c->first, c->source,
	                                  dims,     params,          results};
	return tfmc_cl_model_call(model, &call);
}

static void run(struct mini_call *c)
{
	ck_assert_msg(ask(c) == TFMC_RT_OK, "%s", message);
}

static void fill(struct mini_call *c, int32_t by)
{
	for (int64_t i = 0; i < c->batch * c->tokens; i++)
		c->ids[i] = (int32_t)((i * 7 + 3 + by) % 20);
	for (int64_t i = 0; i < c->batch; i++)
		c->lengths[i] = (int32_t)(c->tokens - i % 2);
}

static struct interp_tensor ints(int rank, int64_t rows, int64_t columns, const int32_t *from)
{
	struct interp_tensor t = {.dtype = DT_I32, .rank = rank, .dims = {rows, columns}};
	ck_assert(interp_tensor_alloc(&code.arena, &t));
	for (int64_t i = 0; i < interp_count(&t); i++)
		t.data[i] = from[i];
	return t;
}

/* Meaning of the first result. */
static struct interp_tensor meant(const struct mini_call *c)
{
	int64_t dims[SYMBOLS];
	struct interp_tensor outputs[16];
	call_dims(c, dims);
	const struct interp_tensor in[] = {ints(2, c->batch, c->tokens, c->ids),
	                                   ints(1, c->batch, 0, encodes(c) ? c->lengths : past)};
	const struct interp_args args = {
	        .dims = dims, .inputs = in, .outputs = outputs, .state = meaning, .arena = &code.arena};
	ck_assert_int_eq(interp_run(&code.graph.cx, code.graph.m, ir_find_func(code.graph.m, c->name), &args),
	                 TFMC_OK);
	return outputs[0];
}

static void run_as_meant(struct mini_call *c)
{
	struct interp_tensor want = meant(c), have;
	int32_t before = past[0];
	ck_assert(interp_tensor_copy(&code.arena, &want, &have));
	run(c);
	interp_from_bytes(&have, c->out);
	const char *why = random_compare(&code.arena, &have, &want, TOLERANCE);
	ck_assert_msg(!why, "%s: %s", c->name, why);
	for (int64_t i = 0; i < c->batch; i++)
		ck_assert_int_eq(past[i], encodes(c) ? before : before + c->tokens);
}

/* ---- tests ---- */

START_TEST(as_meant)
{
	static const int64_t pieces[] = {3, 1, 1, 2, 1};
	if (!begin())
		return;
	struct mini_call c = {.name = "encode", .batch = BATCH, .tokens = 7, .source = -1};
	fill(&c, 0);
	run_as_meant(&c);
	c.name = "decode";
	for (size_t i = 0; i < TFMC_COUNT(pieces); i++) {
		c.tokens = pieces[i];
		fill(&c, (int32_t)i);
		run_as_meant(&c);
	}
	end();
}
END_TEST

static void encode(int64_t first, int64_t batch)
{
	struct mini_call c = {.name = "encode", .batch = batch, .tokens = 5, .first = first, .source = -1};
	fill(&c, 0);
	run(&c);
}

/* Logits of 3 tokens, then of 1, of one sequence. */
static void decode(int64_t first, int64_t source, float logits[20])
{
	struct mini_call c = {.name = "decode", .batch = 1, .tokens = 3, .first = first, .source = source};
	fill(&c, 1);
	run(&c);
	c.tokens = 1;
	fill(&c, 2);
	run(&c);
	memcpy(logits, c.out, 20 * sizeof(float));
}

static void step(int64_t first, float logits[20])
{
	struct mini_call c = {.name = "decode", .batch = 1, .tokens = 1, .first = first, .source = -1};
	fill(&c, 3);
	run(&c);
	memcpy(logits, c.out, 20 * sizeof(float));
}

START_TEST(any_sequence)
{
	float a[20], b[20];
	if (!begin())
		return;
	encode(0, 1);
	encode(3, 1);
	decode(0, -1, a);
	decode(3, -1, b);
	ck_assert_int_eq(memcmp(a, b, sizeof(a)), 0);
	decode(1, 0, b); /* nothing is encoded there */
	ck_assert_int_eq(memcmp(a, b, sizeof(a)), 0);
	ck_assert(past[0] == 4 && past[1] == 4 && past[2] == 0 && past[3] == 4);
	end();
}
END_TEST

START_TEST(state_moves)
{
	static const int64_t from[] = {0, 3, 1, 2}; /* of blocks */
	static char saved[1 << 16];
	float logits[20], want[20];
	if (!begin())
		return;
	int64_t fixed = code.device.program.object->states.fixed_bytes,
	        block = code.device.program.object->states.batch_bytes;
	ck_assert_int_lt(block, (int64_t)sizeof(saved));
	encode(1, 1);
	decode(1, -1, logits);
	ck_assert_int_eq(tfmc_cl_model_fetch(model, fixed + block, saved, block), TFMC_RT_OK);
	step(1, want);
	past[1] = 4;
	ck_assert_int_eq(tfmc_cl_model_store(model, fixed + 3 * block, saved, block), TFMC_RT_OK);
	ck_assert_int_eq(tfmc_cl_model_copy(model, fixed + 3 * block, fixed, block), TFMC_RT_OK);
	past[3] = past[0] = 4;
	step(3, logits);
	ck_assert_int_eq(memcmp(logits, want, sizeof(want)), 0);
	step(0, logits);
	ck_assert_int_eq(memcmp(logits, want, sizeof(want)), 0);
	ck_assert_int_eq(tfmc_cl_model_store(model, fixed + 3 * block, saved, block), TFMC_RT_OK);
	ck_assert_int_eq(tfmc_cl_model_permute(model, from, BATCH, 0, block), TFMC_RT_OK);
	past[1] = 4;
	step(1, logits);
	ck_assert_int_eq(memcmp(logits, want, sizeof(want)), 0);
	end();
}
END_TEST

Suite *suite_opencl_device_model(void);
Suite *suite_opencl_device_model(void)
{
	Suite *s = suite_create("opencl_device_model");
	TCase *t = tcase_create("models on PoCL");
	tcase_set_timeout(t, 120);
	tcase_add_test(t, as_meant);
	tcase_add_test(t, any_sequence);
	tcase_add_test(t, state_moves);
	suite_add_tcase(s, t);
	return s;
}
