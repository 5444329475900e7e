/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reader of serialized plans: access to cells, evaluation of formulas, and the check of a plan, section by
 * section.
 *
 * A plan comes from a file, so that nothing in it is trusted: tfmc_plan_open checks all that later reads rely on. A
 * section is a table of rows of i64 cells. Rows that belong to another row (areas of a kernel, commands of a function)
 * are consecutive and in order, so that each row is claimed exactly once: that bounds the work and rejects rows that
 * two things share.
 */
#include "runtime/opencl/plan_read.h"

#include <string.h>

const int tfmc_plan_columns[PLAN_SECTIONS] = {
        [PLAN_DIMS] = DIM_COLUMNS,           [PLAN_CODE] = CODE_COLUMNS,
        [PLAN_FORMULAS] = FORMULA_COLUMNS,   [PLAN_AREAS] = AREA_C_COLUMNS,
        [PLAN_ARGS] = ARG_COLUMNS,           [PLAN_KERNELS] = KERNEL_COLUMNS,
        [PLAN_OUTPUTS] = OUTPUT_COLUMNS,     [PLAN_COMMANDS] = COMMAND_COLUMNS,
        [PLAN_FUNCTIONS] = FUNCTION_COLUMNS,
};

/* ---- cells ---- */

static int64_t load_i64le(const unsigned char *at)
{
	uint64_t v = 0;
	for (int i = 8; i-- > 0;)
		v = v << 8 | at[i];
	return (int64_t)v;
}

int64_t tfmc_plan_header(const struct tfmc_plan *p, enum plan_header word)
{
	return load_i64le(p->bytes + 8 * (size_t)word);
}

int64_t tfmc_plan_cell(const struct tfmc_plan *p, enum plan_section s, int64_t row, int column)
{
	return load_i64le(p->section[s] + 8 * ((size_t)row * (size_t)tfmc_plan_columns[s] + (size_t)column));
}

const char *tfmc_plan_name(const struct tfmc_plan *p, int64_t name)
{
	return p->names + name;
}

/* ---- formulas ---- */

/* Executes one operation of the stack machine; check_formula has checked depth of the stack, dims and divisors. False:
 * overflow. */
static bool execute_op(int64_t op, int64_t value, const int64_t *dims, int64_t *stack, int *n)
{
	int64_t b = *n > 0 ? stack[*n - 1] : 0;
	switch (op) {
	case PLAN_CONST: stack[(*n)++] = value; return true;
	case PLAN_SYMBOL: stack[(*n)++] = dims[value]; return true;
	case PLAN_ADD: --*n; return !__builtin_add_overflow(stack[*n - 1], b, &stack[*n - 1]);
	case PLAN_MULTIPLY: --*n; return !__builtin_mul_overflow(stack[*n - 1], b, &stack[*n - 1]);
	case PLAN_MAX:
		--*n;
		stack[*n - 1] = b > stack[*n - 1] ? b : stack[*n - 1];
		return true;
	case PLAN_FLOOR_DIV: stack[*n - 1] = b / value - (b % value < 0); return true;
	}
	return false;
}

/* Runs the operations of the formula; false: overflow. */
bool tfmc_plan_eval(const struct tfmc_plan *p, int64_t formula, const int64_t *dims, int64_t *out)
{
	int64_t stack[PLAN_STACK];
	int64_t first = tfmc_plan_cell(p, PLAN_FORMULAS, formula, FORMULA_FIRST);
	int64_t end = first + tfmc_plan_cell(p, PLAN_FORMULAS, formula, FORMULA_N);
	int n = 0;
	for (int64_t i = first; i < end; i++)
		if (!execute_op(tfmc_plan_cell(p, PLAN_CODE, i, CODE_OP),
		                tfmc_plan_cell(p, PLAN_CODE, i, CODE_VALUE), dims, stack, &n))
			return false;
	*out = stack[0];
	return true;
}

/* begin = offset + the strides times the indices of the open repeats. Whether the area is inside its memory is for the
 * caller. */
bool tfmc_plan_area(const struct tfmc_plan *p, int64_t area, const int64_t *dims, const int64_t *indices,
                    int64_t *begin, int64_t *bytes)
{
	int64_t end;
	if (!tfmc_plan_eval(p, tfmc_plan_cell(p, PLAN_AREAS, area, AREA_C_OFFSET), dims, begin) ||
	    !tfmc_plan_eval(p, tfmc_plan_cell(p, PLAN_AREAS, area, AREA_C_BYTES), dims, bytes))
		return false;
	for (int i = 0; i < PLAN_REPEATS; i++) {
		int64_t distance, stride = tfmc_plan_cell(p, PLAN_AREAS, area, AREA_C_STRIDE + i);
		if (__builtin_mul_overflow(stride, indices[i], &distance) ||
		    __builtin_add_overflow(*begin, distance, begin))
			return false;
	}
	return *begin >= 0 && *bytes >= 0 && !__builtin_add_overflow(*begin, *bytes, &end);
}

/* ---- checking ---- */

/* State of the traversal of all functions; only the first error is kept. */
struct check {
	const struct tfmc_plan *plan;
	const char *error;
	int64_t next[PLAN_SECTIONS]; /* first row that is not claimed yet */
	int64_t function;
	int open[PLAN_DEPTH]; /* plan_command_kind of the open blocks */
	int depth, repeats;
};

static void require(struct check *c, bool ok, const char *error)
{
	if (!ok && !c->error)
		c->error = error;
}

static int64_t cell(const struct check *c, enum plan_section s, int64_t row, int column)
{
	return tfmc_plan_cell(c->plan, s, row, column);
}

/* Bounds of single cells. hi < 0: the number of names, of formulas, of formulas for an optional one. */
enum { HI_NAME = -1, HI_FORMULA = -2, HI_OPTIONAL = -3 };
static const struct cell_bound {
	enum plan_section section;
	int column;
	int64_t lo, hi;
	const char *error;
} cell_bounds[] = {
        {PLAN_DIMS, DIM_NAME, 0, HI_NAME, "a name is outside the names"},
        {PLAN_DIMS, DIM_LO, 0, INT64_MAX, "a dim has no bounds"},
        {PLAN_AREAS, AREA_C_NAME, 0, HI_NAME, "a name is outside the names"},
        {PLAN_AREAS, AREA_C_MEMORY, AREA_WEIGHTS, AREA_SCRATCH, "there is no such memory"},
        {PLAN_AREAS, AREA_C_STATE, PLAN_STATE_NONE, PLAN_STATE_SOURCE, "there is no such part of a state"},
        {PLAN_AREAS, AREA_C_OFFSET, 0, HI_FORMULA, "there is no such formula"},
        {PLAN_AREAS, AREA_C_BYTES, 0, HI_FORMULA, "there is no such formula"},
        {PLAN_AREAS, AREA_C_SPARE, 0, HI_OPTIONAL, "there is no such formula"},
        {PLAN_KERNELS, KERNEL_NAME, 0, HI_NAME, "a name is outside the names"},
        {PLAN_KERNELS, KERNEL_TASKS, 0, HI_FORMULA, "there is no such formula"},
        {PLAN_KERNELS, KERNEL_ROWS, 0, HI_OPTIONAL, "there is no such formula"},
        {PLAN_KERNELS, KERNEL_WORK_ITEMS, 1, INT64_MAX, "a kernel has no work-items"},
        {PLAN_KERNELS, KERNEL_SCRATCH, 0, INT64_MAX, "scratch is negative"},
        {PLAN_FUNCTIONS, FUNCTION_NAME, 0, HI_NAME, "a name is outside the names"},
        {PLAN_FUNCTIONS, FUNCTION_ARENA, 0, HI_FORMULA, "there is no such formula"},
        {PLAN_FUNCTIONS, FUNCTION_PARAMS, 0, INT64_MAX, "a function has fewer than no tensors"},
        {PLAN_FUNCTIONS, FUNCTION_RESULTS, 0, INT64_MAX, "a function has fewer than no tensors"},
};

/* Claims the next n rows of a section; they must begin at `first`. Returns the row after them. */
static int64_t claim_rows(struct check *c, enum plan_section s, int64_t first, int64_t n)
{
	bool ok = first == c->next[s] && n >= 0 && n <= c->plan->rows[s] - c->next[s];
	require(c, ok, "rows do not follow the ones before");
	c->next[s] += ok ? n : 0;
	return c->next[s];
}

/* ---- formulas ---- */

/* A formula applies operations of the stack machine to constants and existing dims, and leaves one value. Divisors are
 * constants >= 1 (in the operation's value), so that nothing can divide by 0. */
static void check_formula(struct check *c, int64_t i)
{
	int64_t at = c->next[PLAN_CODE], depth = 0;
	int64_t end = claim_rows(c, PLAN_CODE, cell(c, PLAN_FORMULAS, i, FORMULA_FIRST),
	                         cell(c, PLAN_FORMULAS, i, FORMULA_N));
	for (; at < end && !c->error; at++) {
		int64_t op = cell(c, PLAN_CODE, at, CODE_OP), value = cell(c, PLAN_CODE, at, CODE_VALUE);
		bool is_dim = op == PLAN_SYMBOL && value >= 0 && value < c->plan->rows[PLAN_DIMS];
		int n_operands = op == PLAN_ADD || op == PLAN_MULTIPLY || op == PLAN_MAX ? 2
		                 : op == PLAN_FLOOR_DIV && value >= 1                    ? 1
		                                                                         : 0;
		require(c, (n_operands > 0 || is_dim || op == PLAN_CONST) && depth >= n_operands,
		        "a formula has a wrong operation");
		depth += 1 - n_operands;
		require(c, depth <= PLAN_STACK, "a formula is too deep");
	}
	require(c, depth == 1, "a formula does not leave one value");
}

/* ---- kernels ---- */

static bool is_tensor(const struct check *c, int64_t memory, int64_t number)
{
	int column = memory == AREA_INPUT ? FUNCTION_PARAMS : FUNCTION_RESULTS;
	bool is_callers = memory == AREA_INPUT || memory == AREA_OUTPUT;
	return !is_callers || (number >= 0 && number < cell(c, PLAN_FUNCTIONS, c->function, column));
}

/* The area is valid in this function and depends on open repeats only: unrolling has no index for others. */
static void check_area(struct check *c, int64_t i)
{
	require(c, is_tensor(c, cell(c, PLAN_AREAS, i, AREA_C_MEMORY), cell(c, PLAN_AREAS, i, AREA_C_NUMBER)),
	        "the function has no such parameter or result");
	for (int d = c->repeats; d < PLAN_REPEATS; d++)
		require(c, cell(c, PLAN_AREAS, i, AREA_C_STRIDE + d) == 0,
		        "an area depends on a repeat that is not open");
}

/* An argument of a kernel refers to one of its areas, a dim, or the index of an open repeat: hi bounds its number, 0
 * rejects the kind. PLAN_SOURCE_STEP has no number but 0. */
static void check_arg(struct check *c, int64_t i, int64_t n_areas)
{
	int64_t number = cell(c, PLAN_ARGS, i, ARG_NUMBER), hi = 0;
	switch (cell(c, PLAN_ARGS, i, ARG_KIND)) {
	case PLAN_BUFFER:
	case PLAN_OFFSET: hi = n_areas; break;
	case PLAN_DIM: hi = c->plan->rows[PLAN_DIMS]; break;
	case PLAN_INDEX: hi = c->repeats; break;
	case PLAN_SOURCE_STEP: hi = 1; break;
	case PLAN_RANKS: break; /* of objects */
	}
	require(c, number >= 0 && number < hi, "an argument is nothing that the kernel may have");
}

/* A kernel claims the areas and arguments after those of the one before. Its workers for scratch are either
 * work-groups (1) or all their work-items. */
static void check_kernel(struct check *c, int64_t row)
{
	int64_t area = c->next[PLAN_AREAS], arg = c->next[PLAN_ARGS];
	(void)claim_rows(c, PLAN_KERNELS, row, 1);
	if (c->error)
		return;
	int64_t n_areas = cell(c, PLAN_KERNELS, row, KERNEL_AREAS_N);
	int64_t workers = cell(c, PLAN_KERNELS, row, KERNEL_WORKERS);
	require(c, workers == 1 || workers == cell(c, PLAN_KERNELS, row, KERNEL_WORK_ITEMS),
	        "a kernel has no work-items");
	int64_t end = claim_rows(c, PLAN_AREAS, cell(c, PLAN_KERNELS, row, KERNEL_AREAS_FIRST), n_areas);
	for (; area < end; area++)
		check_area(c, area);
	end = claim_rows(c, PLAN_ARGS, cell(c, PLAN_KERNELS, row, KERNEL_ARGS_FIRST),
	                 cell(c, PLAN_KERNELS, row, KERNEL_ARGS_N));
	for (; arg < end; arg++)
		check_arg(c, arg, n_areas);
}

/* ---- commands ---- */

/* Commands are nested properly and refer to existing rows; the innermost open block is c->open[depth - 1]. */
static void check_command(struct check *c, int64_t i)
{
	int64_t kind = cell(c, PLAN_COMMANDS, i, COMMAND_KIND), at;
	int64_t a = cell(c, PLAN_COMMANDS, i, COMMAND_A), b = cell(c, PLAN_COMMANDS, i, COMMAND_B);
	switch (kind) {
	case PLAN_DISPATCH: check_kernel(c, a); return;
	case PLAN_REPEAT:
		require(c, b >= 0, "a repeat has no count");
		c->repeats++;
		break;
	case PLAN_IF_REQUESTED:
		at = c->next[PLAN_OUTPUTS];
		for (int64_t end = claim_rows(c, PLAN_OUTPUTS, a, b); at < end; at++)
			require(c, is_tensor(c, AREA_OUTPUT, cell(c, PLAN_OUTPUTS, at, OUTPUT_NUMBER)),
			        "the function has no such result");
		break;
	case PLAN_END:
		require(c, c->depth > 0, "an end without a repeat or condition");
		if (c->depth > 0)
			c->repeats -= c->open[--c->depth] == PLAN_REPEAT;
		return;
	case PLAN_BARRIER: return;
	case PLAN_LENGTHS:
		require(c, c->depth == 0, "the lengths are inside a repeat or condition");
		at = c->next[PLAN_AREAS];
		if (claim_rows(c, PLAN_AREAS, a, 1) > at)
			check_area(c, at);
		return;
	default: require(c, false, "there is no such command"); return;
	}
	require(c, c->depth < PLAN_DEPTH && c->repeats <= PLAN_REPEATS,
	        "repeats and conditions are nested too deeply");
	if (c->depth < PLAN_DEPTH)
		c->open[c->depth++] = (int)kind;
}

/* The commands of a function follow those of the one before, and all its blocks end, so that no state is left for the
 * next. */
static void check_function(struct check *c, int64_t i)
{
	int64_t at = c->next[PLAN_COMMANDS];
	int64_t end = claim_rows(c, PLAN_COMMANDS, cell(c, PLAN_FUNCTIONS, i, FUNCTION_COMMANDS_FIRST),
	                         cell(c, PLAN_FUNCTIONS, i, FUNCTION_COMMANDS_N));
	c->function = i;
	for (; at < end && !c->error; at++)
		check_command(c, at);
	require(c, c->depth == 0, "a repeat or condition does not end");
}

/* Checks the bounds of single cells, the formulas, then the functions, which must claim every row of the other
 * sections. */
static void check_sections(struct check *c)
{
	static const enum plan_section claimed[] = {PLAN_CODE,    PLAN_AREAS,   PLAN_ARGS,
	                                            PLAN_KERNELS, PLAN_OUTPUTS, PLAN_COMMANDS};
	const struct tfmc_plan *p = c->plan;
	for (size_t i = 0; i < sizeof(cell_bounds) / sizeof(cell_bounds[0]); i++) {
		const struct cell_bound *b = &cell_bounds[i];
		int64_t hi = b->hi == HI_NAME       ? tfmc_plan_header(p, PLAN_H_NAMES) - 1
		             : b->hi == HI_FORMULA  ? p->rows[PLAN_FORMULAS] - 1
		             : b->hi == HI_OPTIONAL ? p->rows[PLAN_FORMULAS]
		                                    : b->hi;
		for (int64_t k = 0; k < p->rows[b->section]; k++) {
			int64_t v = cell(c, b->section, k, b->column);
			require(c, v >= b->lo && v <= hi, b->error);
		}
	}
	for (int64_t i = 0; i < p->rows[PLAN_DIMS]; i++)
		require(c, cell(c, PLAN_DIMS, i, DIM_LO) <= cell(c, PLAN_DIMS, i, DIM_HI),
		        "a dim has no bounds");
	for (int64_t i = 0; i < p->rows[PLAN_FORMULAS] && !c->error; i++)
		check_formula(c, i);
	for (int64_t i = 0; i < p->rows[PLAN_FUNCTIONS] && !c->error; i++)
		check_function(c, i);
	for (size_t i = 0; i < sizeof(claimed) / sizeof(claimed[0]); i++)
		require(c, c->next[claimed[i]] == p->rows[claimed[i]],
		        "there are rows that nothing refers to");
}

/* ---- the file ---- */

/* Finds the sections, whose row counts are in the header; with the names (zero-terminated, at the end) they must fill
 * the file exactly. */
static bool locate_sections(struct tfmc_plan *p, size_t n)
{
	size_t at = 8 * PLAN_HEADER;
	for (int s = 0; s < PLAN_SECTIONS; s++) {
		size_t row = 8 * (size_t)tfmc_plan_columns[s];
		int64_t rows = tfmc_plan_header(p, (enum plan_header)(PLAN_H_ROWS + s));
		if (rows < 0 || (uint64_t)rows > (n - at) / row)
			return false;
		p->rows[s] = rows;
		p->section[s] = p->bytes + at;
		at += (size_t)rows * row;
	}
	p->names = (const char *)p->bytes + at;
	return n - at > 0 && (uint64_t)tfmc_plan_header(p, PLAN_H_NAMES) == n - at &&
	       p->names[n - at - 1] == 0;
}

/* Checks in the order in which each reading relies on the one before. NULL, or what is wrong. The checksum is FNV-1a
 * of all that follows it; it detects accidents, the other checks hostile files. */
const char *tfmc_plan_open(const void *bytes, size_t n, struct tfmc_plan *out)
{
	uint64_t checksum = 0xcbf29ce484222325u;
	struct check c = {.plan = out};
	*out = (struct tfmc_plan){.bytes = bytes};
	if (n < 8 * PLAN_HEADER)
		return "it is too short";
	if ((uint64_t)tfmc_plan_header(out, PLAN_H_MAGIC) != PLAN_MAGIC)
		return "it is no plan";
	if (tfmc_plan_header(out, PLAN_H_VERSION) != PLAN_VERSION)
		return "another version of tfmc has written it";
	if ((uint64_t)tfmc_plan_header(out, PLAN_H_BYTES) != n)
		return "its size is not that of its header";
	for (size_t i = 8 * (PLAN_H_CHECKSUM + 1); i < n; i++)
		checksum = (checksum ^ out->bytes[i]) * 0x100000001b3u;
	if ((uint64_t)tfmc_plan_header(out, PLAN_H_CHECKSUM) != checksum)
		return "its bytes were changed";
	if (!locate_sections(out, n))
		return "sections do not fill it";
	int64_t bits = tfmc_plan_header(out, PLAN_H_INDEX_BITS);
	require(&c, bits == 32 || bits == 64, "indices have neither 32 nor 64 bits");
	for (int word = PLAN_H_WEIGHTS; word <= PLAN_H_STATE_BATCH; word++)
		require(&c, tfmc_plan_header(out, (enum plan_header)word) >= 0, "a size is negative");
	if (!c.error)
		check_sections(&c);
	return c.error;
}
