/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches of random functions. Modules of the generator are merged through their
 * text: the declarations of symbols are the same in all of them, functions and
 * weights get names of their own.
 */
#include <inttypes.h>
#include <string.h>

#include "ir/text/text.h"
#include "ir/core/verify.h"
#include "tests/matrix/matrix.h"
#include "tests/support/random/random_ir.h"

#define SEEDS    3
#define PROGRAMS 24

struct merge {
	struct suite *s;
	struct buf header, weights, functions;
};

/* Copies text, with every @w as @NAME.w. */
static void rename_weights(struct buf *out, const char *text, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++) {
		buf_char(out, text[i]);
		if (text[i] == '@' && i + 1 < n && text[i + 1] == 'w')
			buf_printf(out, "%s.", name);
	}
}

/* The lines of one module; false when it has no function "f". */
static bool add_text(struct merge *g, const char *text, const char *name)
{
	const char *f = strstr(text, "func @f("), *line = text, *next;
	bool is_first = g->header.len == 0;
	if (!f)
		return false;
	for (; line < f; line = next) {
		next = strchr(line, '\n') + 1;
		if (strncmp(line, "weight", 6) == 0)
			rename_weights(&g->weights, line, (size_t)(next - line), name);
		else if (is_first && strncmp(line, "dim", 3) == 0)
			buf_bytes(&g->header, line, (size_t)(next - line));
	}
	buf_printf(&g->functions, "\nfunc @%s(", name);
	f += strlen("func @f(");
	rename_weights(&g->functions, f, strlen(f), name);
	return true;
}

static bool add_module(struct merge *g, struct ir_module *m, const char *name)
{
	struct buf text;
	if (!m)
		return false;
	buf_init(&text);
	ir_print(&text, g->s->cx, m);
	bool ok = add_text(g, text.data, name);
	buf_destroy(&text);
	ir_module_destroy(m);
	return ok;
}

static void begin(struct merge *g, struct suite *s)
{
	*g = (struct merge){.s = s};
	buf_init(&g->header);
	buf_init(&g->weights);
	buf_init(&g->functions);
}

/* Reads what was merged as a new batch. */
static bool end(struct merge *g, const struct batch *like)
{
	struct buf text;
	struct batch *b = ARENA_PUSH(g->s->arena, &g->s->batches);
	buf_init(&text);
	buf_printf(&text, "module \"%s\"\n%s%s%s", like->name, g->header.data, g->weights.data,
	           g->functions.data);
	bool ok = b != NULL;
	if (ok) {
		*b = *like;
		ok = ir_parse(g->s->cx, like->name, text.data, text.len, &b->graph) == TFMC_OK &&
		     ir_verify(b->graph, g->s->cx) == TFMC_OK;
	}
	buf_destroy(&text);
	buf_destroy(&g->header);
	buf_destroy(&g->weights);
	buf_destroy(&g->functions);
	return ok;
}

/* ---- ops ---- */

/* State belongs to models, exchanges to ranks; weights are indexed by repeats only, which programs have. */
static bool is_alone(enum ir_opcode code)
{
	return !ir_op_has(code, TRAIT_STATEFUL) && !ir_op_has(code, TRAIT_EXCHANGE) &&
	       !ir_op_has(code, TRAIT_TERMINATOR) && code != OP_weight && code != OP_group;
}

static bool merge_ops(struct merge *g, uint64_t first, uint64_t last, bool all_dtypes)
{
	const struct random_options options = {.all_dtypes = all_dtypes};
	for (int code = 0; code < IR_N_OPS; code++)
		for (uint64_t seed = first; is_alone((enum ir_opcode)code) && seed <= last; seed++) {
			const char *name = arena_printf(g->s->arena, "%s_%" PRIu64,
			                                ir_op_desc((enum ir_opcode)code)->name, seed);
			struct ir_module *m =
			        random_module_for_op(g->s->cx, (enum ir_opcode)code, seed, &options);
			if (!add_module(g, m, name))
				return false;
		}
	return true;
}

static bool merge_programs(struct merge *g)
{
	for (uint64_t i = 1; i <= PROGRAMS; i++) {
		const struct random_options options = {.n_ops = 8 + (size_t)i % 24, .smooth = true};
		const char *name = arena_printf(g->s->arena, "program_%" PRIu64, i);
		if (!add_module(g, random_module(g->s->cx, i, &options), name))
			return false;
	}
	return true;
}

/* "layer_norm_3" -> "layer_norm" */
static const char *row_of(struct suite *s, const char *name)
{
	return arena_strndup(s->arena, name, (size_t)(strrchr(name, '_') - name));
}

static bool is_elementwise_float(const struct ir_func *f, enum ir_opcode code)
{
	return (ir_op_has(code, TRAIT_ELEMENTWISE) || ir_op_has(code, TRAIT_REDUCE)) &&
	       code != OP_reduce_sum && code != OP_reduce_mean && f->n_params > 0;
}

static bool has_counts(const struct ir_func *f)
{
	for (size_t i = 0; i < f->n_params; i++)
		if (f->params[i].max)
			return true;
	return false;
}

/* Two random calls; special values for ops of one element; empty rows where rows have lengths. */
static bool add_calls(struct suite *s, bool is_program, bool special)
{
	size_t batch = s->batches.n - 1;
	const struct ir_module *m = s->batches.items[batch].graph;
	for (size_t i = 0; i < m->funcs.n; i++) {
		const struct ir_func *f = m->funcs.items[i];
		const char *row = is_program ? "programs" : row_of(s, f->name);
		enum ir_opcode code = OP_return;
		size_t first = s->cases.n;
		bool is_op = ir_op_find(row, strlen(row), &code);
		bool ok = suite_add_call(s, batch, f, NULL, i * 2 + 1, FILL_RANDOM) != NULL &&
		          suite_add_call(s, batch, f, NULL, i * 2 + 2, FILL_RANDOM) != NULL;
		if (ok && special && is_op && is_elementwise_float(f, code))
			ok = suite_add_call(s, batch, f, NULL, i * 2 + 1, FILL_SPECIAL) != NULL;
		if (ok && has_counts(f))
			ok = suite_add_call(s, batch, f, NULL, i * 2 + 1, FILL_EMPTY) != NULL;
		if (!ok)
			return false;
		for (size_t k = first; k < s->cases.n; k++)
			s->cases.items[k].row = row;
	}
	return true;
}

bool suite_add_random(struct suite *s)
{
	struct merge g;
	begin(&g, s);
	if (!merge_ops(&g, 1, 1, false) ||
	    !end(&g, &(struct batch){.name = "mx_ops", .pipeline = "O2", .few = true}) ||
	    !add_calls(s, false, true))
		return false;
	begin(&g, s);
	if (!merge_ops(&g, 2, SEEDS, false) ||
	    !end(&g, &(struct batch){.name = "mx_more", .pipeline = "O2"}) || !add_calls(s, false, true))
		return false;
	begin(&g, s);
	if (!merge_ops(&g, 4, 4, false) || !end(&g, &(struct batch){.name = "mx_plain", .pipeline = "O0"}) ||
	    !add_calls(s, false, false))
		return false;
	begin(&g, s);
	if (!merge_ops(&g, 5, 5, true) ||
	    !end(&g,
	         &(struct batch){
	                 .name = "mx_types", .pipeline = "O2", .few = true, .may_be_refused = true}) ||
	    !add_calls(s, false, false))
		return false;
	begin(&g, s);
	return merge_programs(&g) &&
	       end(&g, &(struct batch){.name = "mx_programs", .pipeline = "O2", .few = true}) &&
	       add_calls(s, true, false);
}
