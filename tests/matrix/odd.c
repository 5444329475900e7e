/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The odd shapes: the functions of odd.tir at sizes around vectors, tiles and
 * panels, and with nothing at all.
 */
#include <string.h>

#include "ir/text/text.h"
#include "ir/core/verify.h"
#include "tests/matrix/matrix.h"

/* N, M: one of both is 0, 1, a prime, a power of two beside one; 97 x 113 are several tiles and a rest. */
static const int64_t sizes[][2] = {{0, 5},   {1, 1},   {7, 0},    {2, 3},  {13, 31},
                                   {17, 16}, {64, 65}, {97, 113}, {5, 257}};

/* Without a length left, and for ops of one element with what is no usual number. */
static bool add_other(struct suite *s, size_t batch, const struct ir_func *f, const char *row)
{
	enum ir_opcode code = OP_return;
	struct matrix_case *c = suite_add_call(s, batch, f, sizes[4], 1, FILL_EMPTY);
	if (c)
		c->row = row;
	if (!c || !ir_op_find(row, strlen(row), &code) || !ir_op_has(code, TRAIT_ELEMENTWISE))
		return c != NULL;
	c = suite_add_call(s, batch, f, sizes[4], 1, FILL_SPECIAL);
	if (c)
		c->row = row;
	return c != NULL;
}

static bool add_function(struct suite *s, size_t batch, const struct ir_func *f)
{
	const char *row = arena_strndup(s->arena, f->name, (size_t)(strrchr(f->name, '_') - f->name));
	for (size_t i = 0; i < TFMC_COUNT(sizes); i++) {
		struct matrix_case *c = suite_add_call(s, batch, f, sizes[i], i + 1, FILL_RANDOM);
		if (!c)
			return false;
		c->row = row;
	}
	return add_other(s, batch, f, row);
}

bool suite_add_odd(struct suite *s)
{
	const char *path = arena_printf(s->arena, "%s/tests/matrix/odd.tir", s->source), *text;
	struct batch *b = ARENA_PUSH(s->arena, &s->batches);
	size_t n, at = s->batches.n - 1;
	if (!b || !file_get(s->arena, path, &text, &n))
		return false;
	*b = (struct batch){.name = "mx_odd", .pipeline = "O2", .few = true};
	if (ir_parse(s->cx, "odd.tir", text, n, &b->graph) != TFMC_OK ||
	    ir_verify(b->graph, s->cx) != TFMC_OK)
		return false;
	const struct ir_module *m = b->graph;
	for (size_t i = 0; i < m->funcs.n; i++)
		if (!add_function(s, at, m->funcs.items[i]))
			return false;
	return true;
}
