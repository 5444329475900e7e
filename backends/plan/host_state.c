/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interface functions that change the state without running a model: reset, trim, fork, reorder, fetch,
 * store, and select, which chooses the sequences that rows of calls stand for. All checks precede the first
 * write. Copies move the tokens that a sequence has, not its unused capacity.
 *
 *   fixed part   64 bytes, lengths i32 [batch_max], with encode marks i32 [batch_max], with rings the least lengths
 *                that trim may restore i32 [batch_max]; always in memory of the process
 *   blocks       one of state_batch_bytes per sequence with all states; on the device if there is one
 *
 * Functions emit code that returns a status when it fails. A sequence's source is its encoder output; rows can share
 * one (select), and then it is not copied with them.
 */
#include "backends/plan/host.h"

#define REORDER_LOCAL_BYTES 16384 /* stack memory of reorder */

/* i32 i of the array at an offset in the fixed part, as i64. */
static struct kb_val load_fixed(struct emit *e, int64_t offset, struct kb_val i)
{
	struct kb *k = e->k;
	struct kb_val array = kb_ptr_add(k, e->state, kb_index(k, 0), offset);
	return kb_cvt(k, kb_load(k, KB_I32_T, array, i, 0, 4), KB_INDEX);
}

static void store_fixed(struct emit *e, struct kb_val v, int64_t offset, struct kb_val i)
{
	struct kb *k = e->k;
	struct kb_val array = kb_ptr_add(k, e->state, kb_index(k, 0), offset);
	kb_store(k, kb_cvt(k, v, KB_I32), array, i, 0, 4);
}

/* Offset in the state of byte `offset` of a sequence's block. */
static struct kb_val block_offset(struct emit *e, struct kb_val sequence, struct kb_val offset)
{
	struct kb_val base = kb_mul_const(e->k, sequence, e->object->states.batch_bytes);
	return kb_add_const(e->k, kb_add(e->k, base, offset), e->object->states.fixed_bytes);
}

static struct kb_val block_address(struct emit *e, struct kb_val sequence, struct kb_val offset)
{
	return kb_ptr_add(e->k, e->state, block_offset(e, sequence, offset), 0);
}

static void require_in_batch(struct emit *e, struct kb_val sequence)
{
	struct kb_val last = kb_add_const(e->k, emit_load_context(e, KB_INDEX, CONTEXT_BATCH), -1);
	emit_require_between(e, sequence, 0, last, TFMC_RT_E_DIM);
}

/* Returns E_STATE unless encode has filled the sequence. */
static void require_encoded(struct emit *e, struct kb_val sequence)
{
	struct kb_val mark = load_fixed(e, e->object->states.encoded_at, sequence);
	emit_require(e, kb_cmp(e->k, KB_NE, mark, kb_index(e->k, 0)), TFMC_RT_E_STATE);
}

/* Opens an if: rows have no shared source, so encoder output and its mark belong to the sequence itself. */
static void if_unshared_source(struct emit *e)
{
	struct kb_val source = emit_load_context(e, KB_INDEX, CONTEXT_SOURCE);
	kb_if(e->k, kb_cmp(e->k, KB_LT, source, kb_index(e->k, 0)));
}

/* Encoder output that is copied along must have been filled. */
static void require_unshared_encoded(struct emit *e, struct kb_val sequence)
{
	if (!e->object->states.encoded_at)
		return;
	if_unshared_source(e);
	require_encoded(e, sequence);
	kb_end_if(e->k);
}

/* ---- select ---- */

/* Sets the sequences that rows of calls stand for: row b is sequence first + b, and reads source sequence `source`, or
 * its own (-1). Base addresses and source_step (0: all rows read one block) are stored, so that calls do not compute
 * them. */
void emit_set_rows(struct emit *e, struct kb_val first, struct kb_val source)
{
	struct kb *k = e->k;
	struct kb_val zero = kb_index(k, 0), is_own = kb_cmp(k, KB_LT, source, zero);
	struct kb_val from = kb_select(k, is_own, first, source);
	struct kb_val base = kb_mul_const(k, first, 4), from_base = kb_mul_const(k, from, 4);
	emit_store_context(e, first, CONTEXT_FIRST);
	emit_store_context(e, source, CONTEXT_SOURCE);
	emit_store_context(e, kb_ptr_add(k, e->state, base, STATE_PAST), CONTEXT_PAST);
	emit_store_context(e, block_address(e, first, zero), CONTEXT_BLOCKS);
	emit_store_context(e, block_address(e, from, zero), CONTEXT_SOURCES);
	emit_store_context(e, kb_select(k, is_own, kb_index(k, 1), zero), CONTEXT_SOURCE_STEP);
	emit_store_context(e, kb_ptr_add(k, e->state, from_base, e->object->states.encoded_at),
	                   CONTEXT_ENCODED);
}

/* Checks and sets first and source. A source must exist and have been encoded. */
void emit_select(struct emit *e, const struct kb_val *args)
{
	struct kb *k = e->k;
	const struct kb_val first = args[0], source = args[1];
	require_in_batch(e, first);
	emit_require(e, kb_cmp(k, KB_GE, source, kb_index(k, -1)), TFMC_RT_E_DIM);
	kb_if(k, kb_cmp(k, KB_GE, source, kb_index(k, 0)));
	if (e->object->states.encoded_at) {
		require_in_batch(e, source);
		require_encoded(e, source);
	} else {
		kb_return(k, kb_i32(k, TFMC_RT_E_STATE)); /* no encoder, no source */
	}
	kb_end_if(k);
	emit_set_rows(e, first, source);
}

/* ---- reset, trim ---- */

/* Zeroes the state, but for the blocks of a device, whose memory is not in this process: lengths of 0 are enough
 * there. Without a state there is nothing to do. */
void emit_reset(struct emit *e, const struct kb_val *args)
{
	struct kb *k = e->k;
	const struct object *o = e->object;
	(void)args;
	struct kb_val fixed = kb_index(k, o->states.fixed_bytes);
	struct kb_val bytes = block_offset(e, emit_load_context(e, KB_INDEX, CONTEXT_BATCH), kb_index(k, 0));
	if (object_has_device(o))
		bytes = kb_select(k, emit_is_device(e), fixed, bytes);
	kb_if(k, kb_cmp(k, KB_NE, e->state, kb_null(k)));
	emit_zero_words(e, e->state, bytes);
	emit_set_rows(e, kb_index(k, 0), kb_index(k, -1));
	kb_end_if(k);
}

/* Tokens stay in memory: the length alone decides what is read. A sequence that becomes empty has no floor any more.
 */
void emit_trim(struct emit *e, const struct kb_val *args)
{
	struct kb *k = e->k;
	const struct kb_val sequence = args[0], length = args[1];
	int64_t floor_at = e->object->states.floor_at;
	require_in_batch(e, sequence);
	struct kb_val now = load_fixed(e, STATE_PAST, sequence);
	emit_require_between(e, length, 0, now, TFMC_RT_E_LENGTH);
	if (floor_at) { /* a ring does not restore overwritten tokens; an empty sequence reads none */
		struct kb_val floor = load_fixed(e, floor_at, sequence), zero = kb_index(k, 0);
		struct kb_val is_empty = kb_cmp(k, KB_EQ, length, zero);
		struct kb_val is_kept = kb_bin(k, KB_OR, is_empty, kb_cmp(k, KB_GE, length, floor));
		emit_require(e, is_kept, TFMC_RT_E_OVERWRITTEN);
		store_fixed(e, kb_select(k, is_empty, zero, floor), floor_at, sequence);
	}
	store_fixed(e, length, STATE_PAST, sequence);
}

/* ---- copies ---- */

static int64_t const_dim(const struct ir_type *t, int axis)
{
	int64_t d = 1;
	return ir_dim_is_const(t->dims[axis], &d) ? d : 1;
}

/* Emits code for one matrix of a state, at its offset in a block: the first n_i32 i32 of it are in use, a
 * multiple of `lanes`. */
typedef void matrix_fn(struct emit *e, void *user, struct kb_val offset, struct kb_val n_i32, int lanes);

/* Emits fn for the matrices of a state. A state consists of consecutive matrices, and a matrix of units that tokens
 * fill: a row, or a panel of 16 rows. A state that does not grow, or has rows of odd size, is one unit. lanes: the
 * widest vector that divides a unit, so that copies have no remainder. */
static void each_matrix(struct emit *e, const struct state_layout *p, struct kb_val rows, matrix_fn *fn,
                        void *user)
{
	struct kb *k = e->k;
	const struct ir_type *t = p->decl->type;
	int64_t n = 1, bytes = (p->bytes + 3) / 4 * 4, unit_rows = p->decl->encoding == ENC_PANEL16 ? 16 : 1;
	int64_t unit = t->rank < 3 ? 0 : const_dim(t, t->rank - 1) * ir_dtype_bytes(t->dtype) * unit_rows;
	bool is_growing = p->grows && unit > 0 && unit % 4 == 0;
	for (int i = 1; is_growing && i < t->rank - 2; i++)
		n *= const_dim(t, i);
	bytes = is_growing ? p->bytes / n : bytes;
	unit = is_growing ? unit : bytes;
	int lanes = kb_caps(k)->lanes;
	while (lanes > 1 && unit % (4 * lanes) != 0)
		lanes /= 2;
	struct kb_val n_i32 = kb_index(k, bytes / 4);
	if (is_growing) {
		struct kb_val units = kb_add_const(k, rows, unit_rows - 1);
		units = kb_div_const(k, units, unit_rows);
		n_i32 = kb_min(k, n_i32, kb_mul_const(k, units, unit / 4));
	}
	struct kb_val i = kb_loop(k, "matrix", kb_index(k, 0), kb_index(k, n), 1, 0);
	fn(e, user, kb_add_const(k, kb_mul_const(k, i, bytes), p->offset), n_i32, lanes);
	kb_end_loop(k);
}

/* Calls fn for all states of a sequence, or without encoder output that is shared (all false). */
static void each_state(struct emit *e, struct kb_val rows, bool all, matrix_fn *fn, void *user)
{
	for (size_t i = 0; i < e->object->states.n; i++) {
		const struct state_layout *p = &e->object->states.items[i];
		if (p->bytes == 0)
			continue;
		if (!p->grows && !all)
			if_unshared_source(e);
		each_matrix(e, p, rows, fn, user);
		if (!p->grows && !all)
			kb_end_if(e->k);
	}
}

/* The per-sequence arrays of the fixed part that are copied with a sequence. */
static void each_fixed_array(struct emit *e, void (*fn)(struct emit *e, void *user, int64_t offset),
                             void *user)
{
	const struct state_list *l = &e->object->states;
	fn(e, user, STATE_PAST);
	if (l->floor_at)
		fn(e, user, l->floor_at);
	if (!l->encoded_at)
		return;
	if_unshared_source(e);
	fn(e, user, l->encoded_at);
	kb_end_if(e->k);
}

/* Calls the device's function if there is a device; code up to end_if_device is for memory of the process. */
static void if_device(struct emit *e, const char *function, const struct kb_val *args, size_t n)
{
	if (!object_has_device(e->object))
		return;
	kb_if(e->k, emit_is_device(e));
	emit_device_call(e, function, args, n);
	kb_else(e->k);
}

static void end_if_device(struct emit *e)
{
	if (object_has_device(e->object))
		kb_end_if(e->k);
}

/* Copies the matrix of sequence user[0] to user[1] (kb_val [2]), on the device, or here. */
static void copy_matrix(struct emit *e, void *user, struct kb_val offset, struct kb_val n_i32, int lanes)
{
	struct kb *k = e->k;
	const struct kb_val *args = user;
	struct kb_val from = block_offset(e, args[0], offset), to = block_offset(e, args[1], offset);
	struct kb_val bytes = kb_mul_const(k, n_i32, 4);
	if_device(e, "tfmc_cl_model_copy", (const struct kb_val[]){from, to, bytes}, 3);
	from = kb_ptr_add(k, e->state, from, 0);
	to = kb_ptr_add(k, e->state, to, 0);
	struct kb_val i = kb_loop(k, "i", kb_index(k, 0), n_i32, lanes, 0);
	kb_store(k, kb_load(k, KB_TYPE(KB_I32, lanes), from, i, 0, 0), to, i, 0, 0);
	kb_end_loop(k);
	end_if_device(e);
}

static void copy_fixed(struct emit *e, void *user, int64_t offset)
{
	const struct kb_val *args = user;
	store_fixed(e, load_fixed(e, offset, args[0]), offset, args[1]);
}

/* Copies the blocks only if the sequences differ, as nothing is to be copied onto itself; the encoder output that
 * would be copied must have been filled. */
void emit_fork(struct emit *e, const struct kb_val *args)
{
	struct kb_val both[] = {args[0], args[1]};
	require_in_batch(e, both[0]);
	require_in_batch(e, both[1]);
	require_unshared_encoded(e, both[0]);
	kb_if(e->k, kb_cmp(e->k, KB_NE, both[0], both[1]));
	each_state(e, load_fixed(e, STATE_PAST, both[0]), false, copy_matrix, both);
	kb_end_if(e->k);
	each_fixed_array(e, copy_fixed, both);
}

/* ---- fetch, store ---- */

struct transfer {
	const char *function; /* of libtfmccl */
	struct kb_val sequence;
};

/* A matrix_fn: passes the matrix to libtfmccl: its offset in the state, its address in this process, its bytes. lanes,
 * of copies by this process, is not needed. */
static void transfer_matrix(struct emit *e, void *user, struct kb_val offset, struct kb_val n_i32, int lanes)
{
	struct kb *k = e->k;
	const struct transfer *x = user;
	(void)lanes;
	struct kb_val at = block_offset(e, x->sequence, offset), memory = kb_ptr_add(k, e->state, at, 0);
	struct kb_val bytes = kb_mul_const(k, n_i32, 4);
	emit_device_call(e, x->function, (const struct kb_val[]){at, memory, bytes}, 3);
}

/* fetch and store include encoder output, shared or not. Without a device the state is in memory already. */
static void emit_transfer(struct emit *e, struct transfer x)
{
	require_in_batch(e, x.sequence);
	if (!object_has_device(e->object))
		return;
	kb_if(e->k, emit_is_device(e));
	each_state(e, load_fixed(e, STATE_PAST, x.sequence), true, transfer_matrix, &x);
	kb_end_if(e->k);
}

void emit_fetch(struct emit *e, const struct kb_val *args)
{
	emit_transfer(e, (struct transfer){"tfmc_cl_model_fetch", args[0]});
}

void emit_store_state(struct emit *e, const struct kb_val *args)
{
	emit_transfer(e, (struct transfer){"tfmc_cl_model_store", args[0]});
}

/* ---- reorder ---- */

struct reorder {
	struct kb_val from, n; /* from: i64 [n] */
	struct kb_val local;   /* i32 [n, lanes] */
	int lanes;             /* at most */
};

static struct kb_val source_at(struct emit *e, const struct reorder *r, struct kb_val b)
{
	return kb_load(e->k, KB_INDEX_T, r->from, b, 0, 8);
}

/* Reads vector i of every sequence before writing any, so `from` may be any mapping, with cycles and
 * duplicates. */
static void reorder_matrix(struct emit *e, void *user, struct kb_val offset, struct kb_val n_i32, int most)
{
	struct kb *k = e->k;
	const struct reorder *r = user;
	struct kb_val bytes = kb_mul_const(k, n_i32, 4);
	if_device(e, "tfmc_cl_model_permute", (const struct kb_val[]){r->from, r->n, offset, bytes}, 4);
	int lanes = most < r->lanes ? most : r->lanes;
	struct kb_type type = KB_TYPE(KB_I32, lanes);
	struct kb_val i = kb_loop(k, "i", kb_index(k, 0), n_i32, lanes, 0);
	struct kb_val b = kb_loop(k, "b", kb_index(k, 0), r->n, 1, 0);
	struct kb_val at = block_address(e, source_at(e, r, b), offset);
	struct kb_val slot = kb_mul_const(k, b, lanes);
	kb_store(k, kb_load(k, type, at, i, 0, 0), r->local, slot, 0, 0);
	kb_end_loop(k);
	struct kb_val c = kb_loop(k, "c", kb_index(k, 0), r->n, 1, 0);
	kb_if(k, kb_cmp(k, KB_NE, source_at(e, r, c), c));
	struct kb_val saved = kb_load(k, type, r->local, kb_mul_const(k, c, lanes), 0, 0);
	kb_store(k, saved, block_address(e, c, offset), i, 0, 0);
	kb_end_if(k);
	kb_end_loop(k);
	kb_end_loop(k);
	end_if_device(e);
}

/* reorder_matrix for an array of one i32 per sequence, in memory of the process: reads all, then writes. */
static void reorder_fixed(struct emit *e, void *user, int64_t offset)
{
	struct kb *k = e->k;
	const struct reorder *r = user;
	struct kb_val b = kb_loop(k, "b", kb_index(k, 0), r->n, 1, 0);
	kb_store(k, kb_cvt(k, load_fixed(e, offset, source_at(e, r, b)), KB_I32), r->local, b, 0, 4);
	kb_end_loop(k);
	struct kb_val c = kb_loop(k, "c", kb_index(k, 0), r->n, 1, 0);
	store_fixed(e, kb_cvt(k, kb_load(k, KB_I32_T, r->local, c, 0, 4), KB_INDEX), offset, c);
	kb_end_loop(k);
}

/* r.local has one vector of each sequence: lanes are halved until REORDER_LOCAL_BYTES suffice, and more sequences than
 * i32 fit are rejected. All are copied up to the longest source, since one loop serves all. */
void emit_reorder(struct emit *e, const struct kb_val *args)
{
	struct kb *k = e->k;
	struct reorder r = {.from = args[0], .n = args[1], .lanes = kb_caps(k)->lanes};
	int64_t most = e->object->states.batch_max > 0 ? e->object->states.batch_max : 1;
	most = most < REORDER_LOCAL_BYTES / 4 ? most : REORDER_LOCAL_BYTES / 4;
	while (r.lanes > 1 && most * r.lanes * 4 > REORDER_LOCAL_BYTES)
		r.lanes /= 2;
	r.local = kb_local(k, "local", KB_I32, most * r.lanes);
	emit_return_if(e, kb_cmp(k, KB_EQ, r.from, kb_null(k)), TFMC_RT_E_NULL);
	struct kb_val batch = emit_load_context(e, KB_INDEX, CONTEXT_BATCH);
	emit_require_between(e, r.n, 0, kb_min(k, batch, kb_index(k, most)), TFMC_RT_E_DIM);
	/* tokens of the longest source sequence */
	struct kb_var rows = kb_var(k, "most", KB_INDEX_T, kb_index(k, 0));
	struct kb_val b = kb_loop(k, "b", kb_index(k, 0), r.n, 1, 0);
	struct kb_val from = source_at(e, &r, b);
	require_in_batch(e, from);
	require_unshared_encoded(e, from);
	struct kb_val past = load_fixed(e, STATE_PAST, from);
	kb_set(k, rows, kb_max(k, kb_get(k, rows), past));
	kb_end_loop(k);
	each_state(e, kb_get(k, rows), false, reorder_matrix, &r);
	each_fixed_array(e, reorder_fixed, &r);
}
