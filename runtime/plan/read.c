/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checks of a plan, section by section, and its numbers.
 */
#include "runtime/plan/read.h"

#include <string.h>

static const int columns[PLAN_SECTIONS] = {
        [PLAN_DIMS] = DIM_COLUMNS,       [PLAN_CODE] = CODE_COLUMNS,  [PLAN_FORMULAS] = FORMULA_COLUMNS,
        [PLAN_AREAS] = AREA_C_COLUMNS,   [PLAN_ARGS] = ARG_COLUMNS,   [PLAN_KERNELS] = KERNEL_COLUMNS,
        [PLAN_OUTPUTS] = OUTPUT_COLUMNS, [PLAN_STEPS] = STEP_COLUMNS, [PLAN_FUNCTIONS] = FUNCTION_COLUMNS,
};

/* ---- numbers ---- */

static int64_t load(const unsigned char *at)
{
	uint64_t v = 0;
	for (int i = 8; i-- > 0;)
		v = v << 8 | at[i];
	return (int64_t)v;
}

int64_t tfmc_plan_header(const struct tfmc_plan *p, enum plan_header word)
{
	return load(p->bytes + 8 * (size_t)word);
}

int64_t tfmc_plan_cell(const struct tfmc_plan *p, enum plan_section s, int64_t row, int column)
{
	return load(p->section[s] + 8 * ((size_t)row * (size_t)columns[s] + (size_t)column));
}

const char *tfmc_plan_name(const struct tfmc_plan *p, int64_t name)
{
	return p->names + name;
}

/* ---- formulas ---- */

static int64_t floor_divide(int64_t a, int64_t by)
{
	return a / by - (a % by < 0);
}

/* One operation on the stack; its room was checked. */
static bool apply(int64_t op, int64_t value, const int64_t *dims, int64_t *stack, int *n)
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
	case PLAN_FLOOR: stack[*n - 1] = floor_divide(b, value); return true;
	}
	return false;
}

bool tfmc_plan_value(const struct tfmc_plan *p, int64_t formula, const int64_t *dims, int64_t *out)
{
	int64_t stack[PLAN_STACK];
	int64_t first = tfmc_plan_cell(p, PLAN_FORMULAS, formula, FORMULA_FIRST);
	int64_t end = first + tfmc_plan_cell(p, PLAN_FORMULAS, formula, FORMULA_N);
	int n = 0;
	for (int64_t i = first; i < end; i++)
		if (!apply(tfmc_plan_cell(p, PLAN_CODE, i, CODE_OP),
		           tfmc_plan_cell(p, PLAN_CODE, i, CODE_VALUE), dims, stack, &n))
			return false;
	*out = stack[0];
	return true;
}

bool tfmc_plan_area(const struct tfmc_plan *p, int64_t area, const int64_t *dims, const int64_t *turns,
                    int64_t *begin, int64_t *bytes)
{
	int64_t end;
	if (!tfmc_plan_value(p, tfmc_plan_cell(p, PLAN_AREAS, area, AREA_C_OFFSET), dims, begin) ||
	    !tfmc_plan_value(p, tfmc_plan_cell(p, PLAN_AREAS, area, AREA_C_BYTES), dims, bytes))
		return false;
	for (int i = 0; i < PLAN_REPEATS; i++) {
		int64_t far, step = tfmc_plan_cell(p, PLAN_AREAS, area, AREA_C_STEP + i);
		if (__builtin_mul_overflow(step, turns[i], &far) ||
		    __builtin_add_overflow(*begin, far, begin))
			return false;
	}
	return *begin >= 0 && *bytes >= 0 && !__builtin_add_overflow(*begin, *bytes, &end);
}

/* ---- checks ---- */

/* The first thing that is wrong stays. */
struct check {
	const struct tfmc_plan *plan;
	const char *wrong;
};

static void require(struct check *c, bool ok, const char *wrong)
{
	if (!ok && !c->wrong)
		c->wrong = wrong;
}

static bool is_row(const struct check *c, enum plan_section s, int64_t row)
{
	return row >= 0 && row < c->plan->rows[s];
}

static void require_name(struct check *c, int64_t name)
{
	require(c, name >= 0 && name < tfmc_plan_header(c->plan, PLAN_H_NAMES),
	        "a name is outside the names");
}

static void require_formula(struct check *c, int64_t row)
{
	require(c, is_row(c, PLAN_FORMULAS, row), "there is no such formula");
}

/* Rows [first, first + n) begin where the last ones ended: *next. */
static void require_rows(struct check *c, enum plan_section s, int64_t first, int64_t n, int64_t *next)
{
	bool ok = first == *next && n >= 0 && n <= c->plan->rows[s] - *next;
	require(c, ok, "rows are not those after the last ones");
	*next += ok ? n : 0;
}

static void check_dims(struct check *c)
{
	for (int64_t i = 0; i < c->plan->rows[PLAN_DIMS]; i++) {
		int64_t lo = tfmc_plan_cell(c->plan, PLAN_DIMS, i, DIM_LO);
		int64_t hi = tfmc_plan_cell(c->plan, PLAN_DIMS, i, DIM_HI);
		require_name(c, tfmc_plan_cell(c->plan, PLAN_DIMS, i, DIM_NAME));
		require(c, lo >= 0 && lo <= hi, "a dim has no bounds");
	}
}

/* What the operation takes from the stack and leaves; 0, 0 when it is wrong. */
static void effect(const struct check *c, int64_t op, int64_t value, int *takes, int *leaves)
{
	*takes = op == PLAN_FLOOR ? 1 : op == PLAN_ADD || op == PLAN_MULTIPLY || op == PLAN_MAX ? 2 : 0;
	bool ok = op == PLAN_CONST || (op == PLAN_SYMBOL && is_row(c, PLAN_DIMS, value)) ||
	          (op == PLAN_FLOOR && value >= 1) || *takes == 2;
	*leaves = ok;
}

static void check_formulas(struct check *c)
{
	const struct tfmc_plan *p = c->plan;
	int64_t next = 0;
	for (int64_t i = 0; i < p->rows[PLAN_FORMULAS] && !c->wrong; i++) {
		int64_t at = next, n = 0;
		require_rows(c, PLAN_CODE, tfmc_plan_cell(p, PLAN_FORMULAS, i, FORMULA_FIRST),
		             tfmc_plan_cell(p, PLAN_FORMULAS, i, FORMULA_N), &next);
		for (; at < next && !c->wrong; at++) {
			int takes, leaves;
			effect(c, tfmc_plan_cell(p, PLAN_CODE, at, CODE_OP),
			       tfmc_plan_cell(p, PLAN_CODE, at, CODE_VALUE), &takes, &leaves);
			require(c, leaves == 1 && n >= takes, "a formula has a wrong operation");
			n += leaves - takes;
			require(c, n <= PLAN_STACK, "a formula is too deep");
		}
		require(c, n == 1, "a formula is not one number");
	}
}

static void check_area(struct check *c, int64_t i)
{
	const struct tfmc_plan *p = c->plan;
	int64_t memory = tfmc_plan_cell(p, PLAN_AREAS, i, AREA_C_MEMORY);
	int64_t state = tfmc_plan_cell(p, PLAN_AREAS, i, AREA_C_STATE);
	int64_t spare = tfmc_plan_cell(p, PLAN_AREAS, i, AREA_C_SPARE);
	require_name(c, tfmc_plan_cell(p, PLAN_AREAS, i, AREA_C_NAME));
	require(c, memory >= AREA_WEIGHTS && memory <= AREA_SCRATCH, "there is no such memory");
	require(c, state >= PLAN_STATE_NONE && state <= PLAN_STATE_SOURCE,
	        "there is no such part of a state");
	require_formula(c, tfmc_plan_cell(p, PLAN_AREAS, i, AREA_C_OFFSET));
	require_formula(c, tfmc_plan_cell(p, PLAN_AREAS, i, AREA_C_BYTES));
	require(c, spare >= 0 && spare <= c->plan->rows[PLAN_FORMULAS], "there is no such formula");
}

/* ---- kernels ---- */

/* Where a walk over the steps is. */
struct walk {
	struct check *check;
	int64_t function;
	int64_t next_step, next_kernel, next_area, next_arg, next_output; /* rows */
	int open[PLAN_DEPTH];                                             /* plan_step_kind */
	int depth, repeats;
};

static bool is_tensor(const struct walk *w, int64_t memory, int64_t number)
{
	const struct tfmc_plan *p = w->check->plan;
	int column = memory == AREA_INPUT ? FUNCTION_PARAMS : FUNCTION_RESULTS;
	bool is_callers = memory == AREA_INPUT || memory == AREA_OUTPUT;
	return !is_callers ||
	       (number >= 0 && number < tfmc_plan_cell(p, PLAN_FUNCTIONS, w->function, column));
}

/* In this function and within the repeats that are open. */
static void require_area(struct walk *w, int64_t i)
{
	const struct tfmc_plan *p = w->check->plan;
	require(w->check,
	        is_tensor(w, tfmc_plan_cell(p, PLAN_AREAS, i, AREA_C_MEMORY),
	                  tfmc_plan_cell(p, PLAN_AREAS, i, AREA_C_NUMBER)),
	        "the function has no such parameter or result");
	for (int d = w->repeats; d < PLAN_REPEATS; d++)
		require(w->check, tfmc_plan_cell(p, PLAN_AREAS, i, AREA_C_STEP + d) == 0,
		        "an area depends on a repeat that is not open");
}

static void require_arg(struct walk *w, int64_t i, int64_t n_areas)
{
	const struct tfmc_plan *p = w->check->plan;
	int64_t kind = tfmc_plan_cell(p, PLAN_ARGS, i, ARG_KIND);
	int64_t number = tfmc_plan_cell(p, PLAN_ARGS, i, ARG_NUMBER), most = 0;
	if (kind == PLAN_BUFFER || kind == PLAN_OFFSET)
		most = n_areas;
	if (kind == PLAN_DIM)
		most = p->rows[PLAN_DIMS];
	if (kind == PLAN_INDEX)
		most = w->repeats;
	if (kind == PLAN_SOURCE_STEP)
		most = 1;
	require(w->check, number >= 0 && number < most, "an argument is nothing that the kernel may have");
}

static void check_kernel(struct walk *w, int64_t row)
{
	struct check *c = w->check;
	const struct tfmc_plan *p = c->plan;
	require(c, row == w->next_kernel && is_row(c, PLAN_KERNELS, row),
	        "kernels are not in the order of steps");
	if (c->wrong)
		return;
	w->next_kernel++;
	int64_t n_areas = tfmc_plan_cell(p, PLAN_KERNELS, row, KERNEL_AREAS_N);
	int64_t area = w->next_area, arg = w->next_arg;
	int64_t items = tfmc_plan_cell(p, PLAN_KERNELS, row, KERNEL_ITEMS);
	int64_t workers = tfmc_plan_cell(p, PLAN_KERNELS, row, KERNEL_WORKERS);
	require_name(c, tfmc_plan_cell(p, PLAN_KERNELS, row, KERNEL_NAME));
	require_formula(c, tfmc_plan_cell(p, PLAN_KERNELS, row, KERNEL_TASKS));
	require(c, items >= 1 && (workers == 1 || workers == items), "a kernel has no work-items");
	require(c, tfmc_plan_cell(p, PLAN_KERNELS, row, KERNEL_SCRATCH) >= 0, "scratch is negative");
	require_rows(c, PLAN_AREAS, tfmc_plan_cell(p, PLAN_KERNELS, row, KERNEL_AREAS_FIRST), n_areas,
	             &w->next_area);
	require_rows(c, PLAN_ARGS, tfmc_plan_cell(p, PLAN_KERNELS, row, KERNEL_ARGS_FIRST),
	             tfmc_plan_cell(p, PLAN_KERNELS, row, KERNEL_ARGS_N), &w->next_arg);
	for (; area < w->next_area; area++)
		require_area(w, area);
	for (; arg < w->next_arg; arg++)
		require_arg(w, arg, n_areas);
}

/* ---- steps ---- */

static void open_step(struct walk *w, int kind)
{
	w->repeats += kind == PLAN_REPEAT;
	require(w->check, w->depth < PLAN_DEPTH && w->repeats <= PLAN_REPEATS, "steps are too deep");
	if (w->depth < PLAN_DEPTH)
		w->open[w->depth++] = kind;
}

static void close_step(struct walk *w)
{
	require(w->check, w->depth > 0, "a step ends that has not begun");
	if (w->depth > 0)
		w->repeats -= w->open[--w->depth] == PLAN_REPEAT;
}

static void check_outputs(struct walk *w, int64_t first, int64_t n)
{
	int64_t at = w->next_output;
	require_rows(w->check, PLAN_OUTPUTS, first, n, &w->next_output);
	for (; at < w->next_output; at++)
		require(w->check,
		        is_tensor(w, AREA_OUTPUT,
		                  tfmc_plan_cell(w->check->plan, PLAN_OUTPUTS, at, OUTPUT_NUMBER)),
		        "the function has no such result");
}

static void check_step(struct walk *w, int64_t i)
{
	struct check *c = w->check;
	int64_t kind = tfmc_plan_cell(c->plan, PLAN_STEPS, i, STEP_KIND);
	int64_t a = tfmc_plan_cell(c->plan, PLAN_STEPS, i, STEP_A);
	int64_t b = tfmc_plan_cell(c->plan, PLAN_STEPS, i, STEP_B);
	int64_t next = w->next_area;
	switch (kind) {
	case PLAN_KERNEL: check_kernel(w, a); return;
	case PLAN_REPEAT: require(c, b >= 0, "a repeat has no count"); break;
	case PLAN_WANTED: check_outputs(w, a, b); break;
	case PLAN_SPLIT: require_formula(c, a); break;
	case PLAN_END: close_step(w); return;
	case PLAN_BARRIER: require(c, b >= 1, "a barrier has no parts"); return;
	case PLAN_LENGTHS:
		require(c, w->depth == 0, "a step of the whole call is inside another one");
		require_rows(c, PLAN_AREAS, a, 1, &w->next_area);
		if (w->next_area > next)
			require_area(w, next);
		return;
	default: require(c, false, "there is no such step"); return;
	}
	open_step(w, (int)kind);
}

static void check_function(struct walk *w, int64_t i)
{
	struct check *c = w->check;
	const struct tfmc_plan *p = c->plan;
	int64_t at = w->next_step;
	w->function = i;
	require_name(c, tfmc_plan_cell(p, PLAN_FUNCTIONS, i, FUNCTION_NAME));
	require(c,
	        tfmc_plan_cell(p, PLAN_FUNCTIONS, i, FUNCTION_PARAMS) >= 0 &&
	                tfmc_plan_cell(p, PLAN_FUNCTIONS, i, FUNCTION_RESULTS) >= 0,
	        "a function has fewer than no tensors");
	require_formula(c, tfmc_plan_cell(p, PLAN_FUNCTIONS, i, FUNCTION_ARENA));
	require_rows(c, PLAN_STEPS, tfmc_plan_cell(p, PLAN_FUNCTIONS, i, FUNCTION_STEPS_FIRST),
	             tfmc_plan_cell(p, PLAN_FUNCTIONS, i, FUNCTION_STEPS_N), &w->next_step);
	for (; at < w->next_step && !c->wrong; at++)
		check_step(w, at);
	require(c, w->depth == 0, "a step does not end");
}

static void check_sections(struct check *c)
{
	struct walk w = {.check = c};
	check_dims(c);
	check_formulas(c);
	for (int64_t i = 0; i < c->plan->rows[PLAN_AREAS] && !c->wrong; i++)
		check_area(c, i);
	for (int64_t i = 0; i < c->plan->rows[PLAN_FUNCTIONS] && !c->wrong; i++)
		check_function(&w, i);
	require(c,
	        w.next_step == c->plan->rows[PLAN_STEPS] && w.next_kernel == c->plan->rows[PLAN_KERNELS] &&
	                w.next_area == c->plan->rows[PLAN_AREAS] && w.next_arg == c->plan->rows[PLAN_ARGS] &&
	                w.next_output == c->plan->rows[PLAN_OUTPUTS],
	        "there are rows that no step needs");
}

/* ---- the whole ---- */

static uint64_t checksum(const unsigned char *bytes, size_t n)
{
	uint64_t h = 0xcbf29ce484222325u;
	for (size_t i = 0; i < n; i++)
		h = (h ^ bytes[i]) * 0x100000001b3u;
	return h;
}

/* Sections and names fill the file. */
static bool find_sections(struct tfmc_plan *p, size_t n)
{
	size_t at = 8 * PLAN_HEADER;
	for (int s = 0; s < PLAN_SECTIONS; s++) {
		size_t row = 8 * (size_t)columns[s];
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

const char *tfmc_plan_open(const void *bytes, size_t n, struct tfmc_plan *out)
{
	const size_t summed = 8 * (PLAN_H_CHECKSUM + 1);
	struct check c = {.plan = out};
	*out = (struct tfmc_plan){.bytes = bytes};
	if (n < 8 * PLAN_HEADER)
		return "it is too short";
	if ((uint64_t)tfmc_plan_header(out, PLAN_H_MAGIC) != PLAN_MAGIC)
		return "it is no plan";
	if (tfmc_plan_header(out, PLAN_H_VERSION) != PLAN_VERSION)
		return "another version of tfmc has written it";
	if ((uint64_t)tfmc_plan_header(out, PLAN_H_BYTES) != n)
		return "it is not whole";
	if ((uint64_t)tfmc_plan_header(out, PLAN_H_CHECKSUM) != checksum(out->bytes + summed, n - summed))
		return "its bytes were changed";
	if (!find_sections(out, n))
		return "sections do not fill it";
	int64_t bits = tfmc_plan_header(out, PLAN_H_INDEX_BITS);
	require(&c, bits == 32 || bits == 64, "indices have neither 32 nor 64 bits");
	for (int word = PLAN_H_WEIGHTS; word <= PLAN_H_STATE_BATCH; word++)
		require(&c, tfmc_plan_header(out, (enum plan_header)word) >= 0, "a size is negative");
	if (!c.wrong)
		check_sections(&c);
	return c.wrong;
}
