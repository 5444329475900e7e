/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses the schedule of rowwise groups (rowwise_nest.h), in the order: lanes, where elements are between passes, the
 * loops of each pass.
 */
#include "backends/kernels/rowwise_nest.h"

#include <inttypes.h>

#include "ir/support/checked.h"

#define REGISTERS_FOR_FOUR_EXP 32 /* with fewer, four interleaved exponentials spill constants and sums */
#define PADDED_BYTES           64 /* scratch of full vectors: a masked tail may read all of the last one */

static bool has_mask(const struct rowwise_shape *s)
{
	return s->root == OP_mask || s->root == OP_masked_softmax;
}

/* True for roots whose exponentials are read by a later pass; log_softmax reads the scores again. */
static bool reads_exponentials(const struct rowwise_shape *s)
{
	return s->root == OP_softmax || s->root == OP_masked_softmax;
}

/* Lanes of a vector: those of the group, or of the target; at most what a row fills; 1 if work-items share rows. */
static int choose_lanes(const struct rowwise_shape *s)
{
	int64_t planned = s->attrs->lanes;
	int lanes = s->caps.lanes;
	if (s->items > 1)
		return 1;
	if (planned > 0 && planned <= KB_LANES_MAX && (planned & (planned - 1)) == 0)
		lanes = (int)planned;
	while (lanes > 1 && s->width >= 0 && lanes / 2 >= s->width)
		lanes /= 2;
	return lanes;
}

/* ---- elements between passes ---- */

/* True for short rows of constant length, of which all elements are read, in one block and with equal vectors in all
 * passes: at most half of the registers. */
static bool fits_registers(const struct rowwise_shape *s, const struct rowwise_nest *n)
{
	int64_t vectors = ceil_div(s->width, n->reduce.lanes);
	return s->items == 1 && !has_mask(s) && n->quant_block == 0 && s->width >= 0 &&
	       vectors <= ROWWISE_REGISTER_VECTORS && 2 * vectors <= s->caps.registers && !n->is_staged &&
	       n->store.lanes == n->reduce.lanes;
}

/* True if later passes can read x from memory again: the first pass does not change it. Exponentials of rows of unknown
 * length are computed in the buffer instead, whose tail is a masked vector. */
static bool can_reread_x(const struct rowwise_shape *s, const struct rowwise_nest *n)
{
	return s->x_is_stored && !s->scales_x && !n->is_staged && !(reads_exponentials(s) && s->width < 0);
}

/*
 * Where elements of a row are between two passes: the first of registers, local memory of the work-group, scratch, and
 * the row of the result that can hold a row. A single pass needs a buffer for staging only; several need none if
 * each reads x from memory. Where one is needed and none can hold a row, each pass computes x again, element by
 * element if x does not vectorize, since it cannot be staged.
 */
static void choose_buffer(const struct rowwise_shape *s, struct rowwise_nest *n)
{
	bool rereads_x = can_reread_x(s, n);
	bool is_needed = s->has_one_pass ? n->is_staged : reads_exponentials(s) || !rereads_x;
	if (fits_registers(s, n))
		n->buffer = ROWWISE_REGISTERS;
	else if (!is_needed)
		n->buffer = ROWWISE_NO_BUFFER;
	else if (s->is_producer)
		n->buffer = ROWWISE_CALLER;
	else if (s->items > 1 && s->longest <= ROWWISE_SHARED)
		n->buffer = ROWWISE_LOCAL_MEMORY;
	else if (s->attrs->scratch / 4 >= s->longest)
		n->buffer = ROWWISE_SCRATCH;
	else
		n->buffer = s->fits_result ? ROWWISE_RESULT : ROWWISE_NO_BUFFER;
	if (n->buffer == ROWWISE_LOCAL_MEMORY)
		n->local_elements = s->longest > 0 ? s->longest : 1;
	bool has_buffer = n->buffer != ROWWISE_NO_BUFFER;
	n->keeps_x = n->buffer == ROWWISE_REGISTERS || (has_buffer && !rereads_x);
	n->keeps_exp = has_buffer && reads_exponentials(s);
	bool is_const = s->width >= 0 && s->root != OP_masked_softmax;
	n->exp.masks_tail = !is_const && n->keeps_exp && n->keeps_x && n->buffer == ROWWISE_SCRATCH &&
	                    s->attrs->scratch % PADDED_BYTES == 0 && n->reduce.lanes * 4 <= PADDED_BYTES;
	if (n->is_staged && !has_buffer) {
		n->reduce.lanes = n->store.lanes = 1;
		n->is_staged = false;
	}
}

/* ---- the nest ---- */

/* log_softmax unrolls two vectors of exponentials where there are few registers: four would spill. Rows in registers
 * must be unrolled, and short ones are. */
static void choose_loops(const struct rowwise_shape *s, struct rowwise_nest *n)
{
	bool spills = s->root == OP_log_softmax && s->caps.registers < REGISTERS_FOR_FOUR_EXP;
	struct rowwise_pass *const passes[] = {&n->copy, &n->reduce, &n->exp, &n->store};
	n->copy.lanes = 1;
	n->exp.lanes = n->reduce.lanes;
	for (size_t i = 0; i < TFMC_COUNT(passes); i++) {
		passes[i]->vectors = passes[i] == &n->exp && spills ? 2 : ROWWISE_UNROLL;
		passes[i]->looped_min = n->buffer == ROWWISE_REGISTERS ? INT64_MAX : 2 * ROWWISE_UNROLL;
	}
	int64_t vectors = s->width < 0 ? ROWWISE_UNROLL : ceil_div(s->width, n->reduce.lanes);
	n->accumulators = s->items > 1 ? 1 : (int)(vectors < ROWWISE_UNROLL ? vectors : ROWWISE_UNROLL);
}

void rowwise_nest_choose(const struct rowwise_shape *s, struct rowwise_nest *n)
{
	int lanes = choose_lanes(s);
	*n = (struct rowwise_nest){.items = s->items, .reduce.lanes = lanes};
	n->store.lanes = s->results_vectorize ? lanes : 1;
	n->is_staged = lanes > 1 && !s->x_vectorizes;
	n->quant_block = s->width < 0 || s->quant_block < s->width ? s->quant_block : 0;
	n->has_partial_block = n->quant_block > 0 && (s->width < 0 || s->width % n->quant_block != 0);
	choose_buffer(s, n);
	choose_loops(s, n);
}

struct rowwise_vectors rowwise_divide(const struct rowwise_pass *p, int64_t n)
{
	struct rowwise_vectors v = {.unrolled = n / p->lanes, .tail = (int)(n % p->lanes)};
	if (v.unrolled >= p->looped_min)
		v.looped = v.unrolled - v.unrolled % p->vectors;
	v.unrolled -= v.looped;
	return v;
}

/* ---- in words ---- */

void rowwise_nest_print(const struct rowwise_shape *s, const struct rowwise_nest *n, struct buf *out)
{
	static const char *const buffers[] = {[ROWWISE_REGISTERS] = "registers",
	                                      [ROWWISE_LOCAL_MEMORY] = "local memory",
	                                      [ROWWISE_SCRATCH] = "scratch",
	                                      [ROWWISE_RESULT] = "the result",
	                                      [ROWWISE_CALLER] = "the buffer of the caller"};
	const char *buffer = buffers[n->buffer];
	if (n->items > 1)
		buf_printf(out, "rows of %" PRId64 " work-items", n->items);
	else if (n->reduce.lanes > 1)
		buf_printf(out, "%d vectors of %d at once", n->reduce.vectors, n->reduce.lanes);
	else
		buf_printf(out, "%d elements at once", n->reduce.vectors);
	if (n->exp.vectors < n->reduce.vectors)
		buf_printf(out, ", %d of exponentials", n->exp.vectors);
	if (n->store.lanes < n->reduce.lanes)
		buf_str(out, ", results one by one");
	if (n->quant_block > 0)
		buf_printf(out, "; quant blocks of %" PRId64, n->quant_block);
	if (n->is_staged)
		buf_printf(out, "; x copied to %s one by one", buffer);
	else if (n->keeps_x && !s->has_one_pass)
		buf_printf(out, "; x in %s", buffer);
	else if (!s->has_one_pass)
		buf_str(out, s->x_is_stored ? "; x read in each pass" : "; x computed in each pass");
	if (n->keeps_exp)
		buf_printf(out, ", exponentials in %s%s", buffer, n->exp.masks_tail ? ", tail masked" : "");
	else if (reads_exponentials(s))
		buf_str(out, ", exponentials computed twice");
	if (n->items > 1)
		buf_printf(out, "; local memory of %" PRId64 " bytes", 4 * (n->local_elements + n->items));
}

/* ---- element by element ---- */

#define PIECE       1024
#define SMALL_PIECE 16 /* of work-items */

/* Chains of fewer dependent ops gain nothing by more than one vector at once. */
#define CHAIN_MIN 8
/* Loads of an iteration; of more, those that miss L1 at once are too many for its queues. */
#define LOADS_MAX 64

int64_t loops_piece(const struct target *t)
{
	return t->group_size > 1 ? SMALL_PIECE : PIECE;
}

/*
 * Vectors that an iteration computes at once, op by op. More than one if the group is a chain: elementwise ops of one
 * instruction each, more than half of them on one path of dependent ops. There each op waits for the one before it,
 * and the instructions of one vector fill the window of the processor before it sees the next vector; the ops of
 * several vectors do not wait for each other, and share what is the same in all lanes. Values that several ops read,
 * and two more, must fit the registers. A device hides latency by other work-items.
 */
static int choose_vectors(const struct loops_shape *s, int lanes)
{
	bool is_device = s->target->group_size > 1 || s->target->arch == ARCH_OPENCL;
	bool is_chain = !s->has_functions && s->depth >= CHAIN_MIN && 2 * s->depth > s->ops;
	int vectors = lanes > 1 && is_chain && !is_device ? LOOPS_VECTORS_MAX : 1;
	while (vectors > 1 && (vectors * (2 + s->shared) > s->caps.registers ||
	                       (vectors > 2 && vectors * s->loads > LOADS_MAX)))
		vectors /= 2;
	return vectors;
}

bool loops_is_one_piece(const struct target *t, int64_t width)
{
	return width >= 0 && width <= loops_piece(t);
}

void loops_nest_choose(const struct loops_shape *s, struct loops_nest *n)
{
	*n = (struct loops_nest){.piece = loops_piece(s->target)};
	n->is_one_piece = loops_is_one_piece(s->target, s->width);
	n->lanes = s->vectorizes ? s->caps.lanes : 1;
	n->vectors = choose_vectors(s, n->lanes);
}

void loops_nest_print(const struct loops_nest *n, struct buf *out)
{
	if (n->is_one_piece)
		buf_str(out, "tasks of a row");
	else
		buf_printf(out, "tasks of %" PRId64 " elements of a row", n->piece);
	if (n->lanes == 1)
		buf_str(out, ", one by one");
	else if (n->vectors == 1)
		buf_printf(out, ", vectors of %d", n->lanes);
	else
		buf_printf(out, ", %d vectors of %d at once", n->vectors, n->lanes);
}
