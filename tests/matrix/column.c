/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The columns of the matrix, and the files of those that are compiled and run
 * outside this process. A new back end that makes objects or C is one row here
 * and its compiler in matrix.sh.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ir/core/build.h"
#include "passes/framework/pass.h"
#include "passes/pipeline/run.h"
#include "tests/matrix/column.h"

static const struct column columns[] = {
        {"v2", "x86-64-v2", COLUMN_OBJECT, "object of LLVM, SSE4.2", false},
        {"v3", "x86-64-v3", COLUMN_OBJECT, "object of LLVM, AVX2 and FMA", false},
        {"v4", "x86-64-v4", COLUMN_OBJECT, "object of LLVM, AVX-512", false},
        {"gcc", "x86-64-v2", COLUMN_C, "portable C for x86-64-v2, gcc -O2", false},
        {"clang", "x86-64-v3", COLUMN_C, "portable C for x86-64-v3, clang-19 -O2", false},
        {"ocl", "opencl-gpu", COLUMN_OPENCL, "OpenCL C (work-groups of 64), on PoCL without its optimizer",
         true},
        {"aarch64", "aarch64", COLUMN_OBJECT, "object of LLVM, NEON, under qemu", false},
};

const struct column *column_at(size_t i)
{
	return i < TFMC_COUNT(columns) ? &columns[i] : NULL;
}

const struct column *column_find(const char *name)
{
	for (size_t i = 0; i < TFMC_COUNT(columns); i++)
		if (!strcmp(columns[i].name, name))
			return &columns[i];
	return NULL;
}

const char *column_kind_name(enum column_kind kind)
{
	switch (kind) {
	case COLUMN_OBJECT: return "object";
	case COLUMN_C: return "c";
	case COLUMN_OPENCL: return "opencl";
	}
	return "";
}

/* The function "ROW_NUMBER" is number NUMBER of the op of rank RANK. */
struct turn {
	size_t rank, number;
};

static struct turn turn_of(const struct ir_module *m, const struct ir_func *f)
{
	size_t rank = 0;
	for (size_t i = 0; m->funcs.items[i] != f; i++) {
		const char *name = m->funcs.items[i]->name, *next = m->funcs.items[i + 1]->name;
		size_t row = (size_t)(strrchr(name, '_') - name) + 1;
		rank += strncmp(name, next, row) != 0;
	}
	return (struct turn){rank, strtoul(strrchr(f->name, '_') + 1, NULL, 10)};
}

/* The numbers of an op go through the columns of a kind, and ops that are next to each other begin with different ones.
 * The compiler of a device is slow: it has number 1, which every op has, and some of every fourth. */
static bool is_turn(const struct column *column, struct turn t)
{
	size_t place = 0;
	for (const struct column *c = columns; c < column; c++)
		place += c->kind == column->kind;
	if (getenv("TFMC_ALL"))
		return true;
	switch (column->kind) {
	case COLUMN_OBJECT: return (t.rank + t.number) % 4 == place;
	case COLUMN_C: return (t.rank + t.number) % 2 == place;
	case COLUMN_OPENCL: return t.number == 1 || (t.number % 4 == 1 && t.rank % 2 == 0);
	}
	return false;
}

bool column_has(const struct column *column, const struct batch *b)
{
	return (column->kind == COLUMN_OBJECT || b->few) &&
	       (!b->model || column->kind == COLUMN_OPENCL || is_turn(column, (struct turn){0, b->turn}));
}

bool column_takes(const struct column *column, const struct batch *b, const struct ir_func *f)
{
	return column_has(column, b) && (b->model || is_turn(column, turn_of(b->graph, f)));
}

/* ---- plans ---- */

struct ir_module *column_plan(struct diag_context *cx, const struct ir_module *graph, const char *pipeline,
                              const struct target *target)
{
	const struct pass_options options = {.target = target};
	struct ir_module *planned = NULL;
	struct pipeline p;
	struct arena a;
	arena_init(&a);
	if (pipeline_parse(&a, cx, pipeline, &p) != TFMC_OK ||
	    passes_run(cx, &p, &options, graph, &planned, NULL) != TFMC_OK)
		planned = NULL;
	arena_destroy(&a);
	return planned;
}

/* ---- modules without the functions that a back end refuses ---- */

static bool copy_function(struct ir_module *to, struct diag_context *cx, const struct ir_func *f,
                          struct arena *a)
{
	struct ir_builder *b = irb_begin(to, cx, f->name, f->loc);
	struct ir_value *map = ARENA_ARRAY(a, struct ir_value, f->n_values);
	const struct ir_op *ret = f->body->ops[f->body->n_ops - 1];
	struct ir_value *values = ARENA_ARRAY(a, struct ir_value, ret->n_operands + 1);
	if (arena_failed(a) || !b)
		return false;
	irb_set_literal(b, true);
	irb_clone_params(b, f, map);
	for (size_t i = 0; i + 1 < f->body->n_ops; i++)
		irb_clone(b, f, f->body->ops[i], map);
	for (size_t i = 0; i < ret->n_operands; i++)
		values[i] = map[ret->operands[i].id];
	return irb_finish(b, values, f->results, ret->n_operands, NULL) == TFMC_OK;
}

static struct ir_module *copy_functions(struct column_job *j, const struct ir_module *m, const bool *keep)
{
	struct ir_module *to = ir_module_create_like(m);
	for (size_t i = 0; to && i < m->funcs.n; i++)
		if (keep[i] && !copy_function(to, j->cx, m->funcs.items[i], &j->arena)) {
			ir_module_destroy(to);
			return NULL;
		}
	return to;
}

/* True when the back end makes the function; j->log says why not. */
static bool is_accepted(struct column_job *j, const struct batch *b, size_t function, column_try *attempt)
{
	bool *keep = ARENA_ARRAY(&j->arena, bool, b->graph->funcs.n);
	keep[function] = true;
	buf_clear(&j->log);
	struct ir_module *one = copy_functions(j, b->graph, keep);
	struct ir_module *planned = one ? column_plan(j->cx, one, b->pipeline, j->target) : NULL;
	bool ok = planned && attempt(j, planned);
	ir_module_destroy(planned);
	ir_module_destroy(one);
	return ok;
}

static void note_refusal(struct column_job *j, const struct batch *b, size_t function)
{
	const char *why = strstr(j->log.data, "not supported yet");
	size_t n = why ? strcspn(why, "\n") : 0;
	buf_printf(&j->refused, "%s\t%s\t%.*s\n", b->name, b->graph->funcs.items[function]->name, (int)n,
	           why ? why : "");
}

struct ir_module *column_graph(struct column_job *j, const struct batch *b, column_try *attempt)
{
	bool *keep = ARENA_ARRAY(&j->arena, bool, b->graph->funcs.n + 1), all = !b->may_be_refused;
	for (size_t i = 0; keep && i < b->graph->funcs.n; i++) {
		keep[i] = column_takes(j->column, b, b->graph->funcs.items[i]);
		all = all && keep[i];
	}
	if (!keep || all)
		return NULL;
	for (size_t i = 0; b->may_be_refused && i < b->graph->funcs.n; i++) {
		if (!keep[i])
			continue;
		keep[i] = is_accepted(j, b, i, attempt);
		if (keep[i])
			continue;
		if (!strstr(j->log.data, "not supported yet"))
			return NULL;
		note_refusal(j, b, i);
	}
	buf_clear(&j->log);
	return copy_functions(j, b->graph, keep);
}

/* ---- jobs ---- */

bool column_job_begin(struct column_job *j, const struct column *column)
{
	*j = (struct column_job){.column = column, .target = target_find(column->target)};
	arena_init(&j->arena);
	buf_init(&j->log);
	buf_init(&j->refused);
	diag_init(&j->own, diag_render_text, &j->log);
	j->cx = &j->own;
	return j->target != NULL;
}

void column_job_end(struct column_job *j)
{
	diag_destroy(&j->own);
	buf_destroy(&j->log);
	buf_destroy(&j->refused);
	arena_destroy(&j->arena);
}
