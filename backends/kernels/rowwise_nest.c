/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses the schedule of rowwise groups (rowwise_nest.h), in the order: lanes, where elements are between passes, the
 * loops of each pass.
 */
#include "backends/kernels/rowwise_nest.h"

#include <inttypes.h>

#include "ir/support/checked.h"

#define REGISTERS_FOR_FOUR_EXP 32 /* with fewer, four interleaved exponentials spill */
#define PADDED_BYTES           64 /* scratch of full vectors: a masked tail may read all of the last one */

/* Lanes of a vector: at most what a row fills; 1 if work-items share rows. */
static int choose_lanes(const struct rowwise_shape *s)
{
	int lanes = s->items > 1 ? 1 : rowwise_lanes(s->attrs, &s->caps);
	while (lanes > 1 && s->width >= 0 && lanes / 2 >= s->width)
		lanes /= 2;
	return lanes;
}

/* ---- elements between passes ---- */

/* True for short rows of constant length, of which all elements are read, in one block and with equal vectors in all
 * passes: at most half of the registers. */
static bool fits_registers(const struct rowwise_shape *s, const struct rowwise_nest *n)
{
	int64_t vectors = ceil_div(s->width, n->lanes);
	return s->items == 1 && !rowwise_has_mask(s->root) && s->quant_block == 0 && s->width >= 0 &&
	       vectors <= ROWWISE_REGISTER_VECTORS && 2 * vectors <= s->caps.registers && !n->is_staged &&
	       n->store_lanes == n->lanes;
}

/* True if later passes can read x from memory again: the first pass does not change it. Exponentials of rows of unknown
 * length are computed in the buffer instead, whose tail is a masked vector. */
static bool can_reread_x(const struct rowwise_shape *s, const struct rowwise_nest *n)
{
	return s->x_is_stored && !s->scales_x && !n->is_staged &&
	       !(rowwise_reads_exponentials(s->root) && s->width < 0);
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
	bool is_needed = s->has_one_pass ? n->is_staged : rowwise_reads_exponentials(s->root) || !rereads_x;
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
	bool has_buffer = n->buffer != ROWWISE_NO_BUFFER;
	n->keeps_x = n->buffer == ROWWISE_REGISTERS || (has_buffer && !rereads_x);
	n->keeps_exp = has_buffer && rowwise_reads_exponentials(s->root);
	bool is_const = s->width >= 0 && s->root != OP_masked_softmax;
	n->masks_tail = !is_const && n->keeps_exp && n->keeps_x && n->buffer == ROWWISE_SCRATCH &&
	                s->attrs->scratch % PADDED_BYTES == 0;
	if (n->is_staged && !has_buffer) {
		n->lanes = n->store_lanes = 1;
		n->is_staged = false;
	}
}

/* ---- the nest ---- */

/* log_softmax unrolls two vectors of exponentials where there are few registers: four would spill. */
void rowwise_nest_choose(const struct rowwise_shape *s, struct rowwise_nest *n)
{
	bool spills = s->root == OP_log_softmax && s->caps.registers < REGISTERS_FOR_FOUR_EXP;
	int lanes = choose_lanes(s);
	*n = (struct rowwise_nest){.lanes = lanes, .exp_vectors = spills ? 2 : ROWWISE_UNROLL};
	n->store_lanes = s->results_vectorize ? lanes : 1;
	n->is_staged = lanes > 1 && !s->x_vectorizes;
	choose_buffer(s, n);
	int64_t vectors = s->width < 0 ? ROWWISE_UNROLL : ceil_div(s->width, n->lanes);
	n->accumulators = s->items > 1 ? 1 : (int)(vectors < ROWWISE_UNROLL ? vectors : ROWWISE_UNROLL);
}

/* Of constant length: a loop, of rows that are long and not in registers; the vectors after it, unrolled; the remainder
 * as one partial vector. Else full iterations of several vectors, single vectors, and the remainder: a masked vector,
 * or one by one. */
struct rowwise_range rowwise_divide(const struct rowwise_nest *n, enum rowwise_pass pass, int64_t length)
{
	int lanes = pass == ROWWISE_COPY    ? 1
	            : pass == ROWWISE_STORE ? n->store_lanes
	                                    : n->lanes,
	    vectors = pass == ROWWISE_EXP ? n->exp_vectors : ROWWISE_UNROLL;
	if (length < 0) {
		bool masks = pass == ROWWISE_EXP && n->masks_tail;
		int after = masks ? lanes : 1;
		return (struct rowwise_range){
		        vectors,
		        {{lanes, lanes, .vectors = vectors},
		         {lanes, lanes, .vectors = 1},
		         {after, after, .vectors = lanes > 1, .is_masked = masks, .is_tail = !masks}}};
	}
	int tail = (int)(length % lanes);
	int64_t all = length / lanes;
	bool is_looped = n->buffer != ROWWISE_REGISTERS && all >= 2 * ROWWISE_UNROLL;
	int64_t unrolled = is_looped ? all % vectors : all;
	return (struct rowwise_range){
	        vectors,
	        {{lanes, lanes, .vectors = is_looped ? vectors : 0, .iterations = all / vectors},
	         {lanes, lanes, .vectors = unrolled, .iterations = 1},
	         {lanes, tail, .vectors = tail > 0, .iterations = 1, .first = unrolled, .is_masked = true}}};
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
	if (s->items > 1)
		buf_printf(out, "rows of %" PRId64 " work-items", s->items);
	else if (n->lanes > 1)
		buf_printf(out, "%d vectors of %d at once", ROWWISE_UNROLL, n->lanes);
	else
		buf_printf(out, "%d elements at once", ROWWISE_UNROLL);
	if (n->exp_vectors < ROWWISE_UNROLL)
		buf_printf(out, ", %d of exponentials", n->exp_vectors);
	if (n->store_lanes < n->lanes)
		buf_str(out, ", results one by one");
	if (s->quant_block > 0)
		buf_printf(out, "; quant blocks of %" PRId64, s->quant_block);
	if (n->is_staged)
		buf_printf(out, "; x copied to %s one by one", buffer);
	else if (n->keeps_x && !s->has_one_pass)
		buf_printf(out, "; x in %s", buffer);
	else if (!s->has_one_pass)
		buf_str(out, s->x_is_stored ? "; x read in each pass" : "; x computed in each pass");
	if (n->keeps_exp)
		buf_printf(out, ", exponentials in %s%s", buffer, n->masks_tail ? ", tail masked" : "");
	else if (rowwise_reads_exponentials(s->root))
		buf_str(out, ", exponentials computed twice");
	if (s->items > 1)
		buf_printf(out, "; local memory of %" PRId64 " bytes",
		           4 * (s->items + (n->buffer == ROWWISE_LOCAL_MEMORY ? s->longest : 0)));
}

/* ---- element by element ---- */

#define PIECE       1024
#define SMALL_PIECE 16 /* of work-items */

/* Chains of fewer dependent ops gain nothing by more than one vector at once. */
#define CHAIN_MIN 8
/* Loads of an iteration; of more, those that miss L1 at once are too many for its queues. */
#define LOADS_MAX 64
/* Fewer loads that rows share save less than the loop over single rows that it takes. */
#define ROW_LOADS_MIN 4

int64_t loops_piece(const struct target *t)
{
	return t->group_size > 1 ? SMALL_PIECE : PIECE;
}

/*
 * Vectors that an iteration computes at once, op by op. More than one if the group is a chain: elementwise ops of one
 * instruction each, more than half of them on one path of dependent ops. There each op waits for the one before it,
 * and the instructions of one vector fill the window of the processor before it sees the next vector; the ops of
 * several vectors do not wait for each other, and share what is the same in all lanes. Values that several ops read,
 * and two more, must fit the registers.
 */
static int choose_vectors(const struct loops_shape *s)
{
	int vectors = s->depth >= CHAIN_MIN && 2 * s->depth > s->ops ? LOOPS_VECTORS_MAX : 1;
	while (vectors > 1 && (vectors * (2 + s->shared) > s->caps.registers ||
	                       (vectors > 2 && vectors * s->loads > LOADS_MAX)))
		vectors /= 2;
	return vectors;
}

/*
 * Rows that an iteration computes, op by op. More than one if half of the vectors that it loads are equal in
 * neighbouring rows: the taps of a depthwise convolution with channels last, whose columns are rows here. A tap is
 * loaded once for all of them, so that a product takes little more than one load in place of two.
 */
static int choose_rows(const struct loops_shape *s)
{
	int rows = s->row_loads >= ROW_LOADS_MIN && 2 * s->row_loads >= s->loads ? LOOPS_VECTORS_MAX : 1;
	while (rows > 1 && (s->rows < rows || s->rows % rows != 0))
		rows /= 2;
	return rows;
}

bool loops_is_one_piece(const struct target *t, int64_t width)
{
	return width >= 0 && width <= loops_piece(t);
}

void loops_nest_choose(const struct loops_shape *s, struct loops_nest *n)
{
	bool is_device = s->target->group_size > 1 || s->target->arch == ARCH_OPENCL;
	*n = (struct loops_nest){s->vectorizes ? rowwise_lanes(s->attrs, &s->caps) : 1, .vectors = 1,
	                         .rows = 1};
	if (n->lanes == 1 || s->has_functions || is_device) /* a device hides latency by other work-items */
		return;
	n->rows = choose_rows(s);
	n->vectors = n->rows > 1 ? 1 : choose_vectors(s);
}

void loops_nest_print(const struct loops_nest *n, struct buf *out)
{
	if (n->lanes == 1)
		buf_str(out, "one by one");
	else if (n->rows > 1)
		buf_printf(out, "vectors of %d of %d rows at once", n->lanes, n->rows);
	else if (n->vectors == 1)
		buf_printf(out, "vectors of %d", n->lanes);
	else
		buf_printf(out, "%d vectors of %d at once", n->vectors, n->lanes);
}
