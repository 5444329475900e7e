/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of the interface that change the state without running a
 * model: reset, trim, fork, reorder, fetch, store, and select, which says where the rows of
 * calls lie. All checks come before the first write. Copies take the tokens a
 * sequence has, not the room it has for more. The fixed part is in memory of the process always, the blocks are on
 * the device when there is one.
 *
 *   fixed part   64 bytes, past i32 [batch_max], with encode marks i32 [batch_max], with rings the least
 *                lengths that trim may give i32 [batch_max]
 *   blocks       one of state_batch_bytes for each sequence, a state after the other
 */
#include "backends/host/host.h"

#define REORDER_LOCAL_BYTES 16384 /* of the stack */

static struct kb_val i32_at(struct emit *e, struct kb_val base, int64_t offset, struct kb_val i)
{
	struct kb *k = e->k;
	return kb_cvt(k, kb_load(k, KB_I32_T, kb_ptr_add(k, base, kb_index(k, 0), offset), i, 0, 4),
	              KB_INDEX);
}

static void set_i32(struct emit *e, struct kb_val v, struct kb_val base, int64_t offset, struct kb_val i)
{
	struct kb *k = e->k;
	struct kb_val at = kb_ptr_add(k, base, kb_index(k, 0), offset);
	kb_store(k, kb_cvt(k, v, KB_I32), at, i, 0, 4);
}

/* The address of a sequence's block. */
static struct kb_val block_of(struct emit *e, struct kb_val state, struct kb_val sequence)
{
	struct kb_val far = kb_mul(e->k, sequence, kb_index(e->k, e->object->states.batch_bytes));
	return kb_ptr_add(e->k, state, far, e->object->states.fixed_bytes);
}

/* The state of a context that is initialised and has one. */
static struct kb_val require_state(struct emit *e)
{
	api_check_magic(e);
	struct kb_val state = emit_context(e, KB_PTR, CONTEXT_STATE);
	api_require(e, kb_cmp(e->k, KB_NE, state, kb_null(e->k)), TFMC_RT_E_STATE);
	return state;
}

static void require_in_batch(struct emit *e, struct kb_val sequence)
{
	struct kb_val last = kb_add_const(e->k, emit_context(e, KB_INDEX, CONTEXT_BATCH), -1);
	emit_require_between(e, sequence, 0, last, TFMC_RT_E_DIM);
}

/* Encode has filled the block. */
static void require_encoded(struct emit *e, struct kb_val state, struct kb_val sequence)
{
	struct kb_val mark = i32_at(e, state, e->object->states.encoded_at, sequence);
	api_require(e, kb_cmp(e->k, KB_NE, mark, kb_index(e->k, 0)), TFMC_RT_E_STATE);
}

/* ---- the window ---- */

void emit_set_window(struct emit *e, struct kb_val state, struct kb_val first, struct kb_val source)
{
	struct kb *k = e->k;
	struct kb_val own = kb_cmp(k, KB_LT, source, kb_index(k, 0));
	struct kb_val from = kb_select(k, own, first, source);
	struct kb_val far = kb_mul(k, first, kb_index(k, 4)), from_far = kb_mul(k, from, kb_index(k, 4));
	emit_set_context(e, first, CONTEXT_FIRST);
	emit_set_context(e, source, CONTEXT_SOURCE);
	emit_set_context(e, kb_ptr_add(k, state, far, STATE_PAST), CONTEXT_PAST);
	emit_set_context(e, block_of(e, state, first), CONTEXT_BLOCKS);
	emit_set_context(e, block_of(e, state, from), CONTEXT_SOURCES);
	emit_set_context(e, kb_select(k, own, kb_index(k, 1), kb_index(k, 0)), CONTEXT_SOURCE_STEP);
	emit_set_context(e, kb_ptr_add(k, state, from_far, e->object->states.encoded_at), CONTEXT_ENCODED);
}

static void emit_select(struct object *o)
{
	struct emit e;
	if (!api_begin_context(&e, o, "select", KB_I32))
		return;
	struct kb *k = e.k;
	struct kb_val first = kb_param(k, "first", KB_INDEX_T, 0);
	struct kb_val source = kb_param(k, "source", KB_INDEX_T, 0);
	struct kb_val state = require_state(&e);
	require_in_batch(&e, first);
	api_require(&e, kb_cmp(k, KB_GE, source, kb_index(k, -1)), TFMC_RT_E_DIM);
	kb_if(k, kb_cmp(k, KB_GE, source, kb_index(k, 0)));
	if (o->states.encoded_at) {
		require_in_batch(&e, source);
		require_encoded(&e, state, source);
	} else {
		kb_return(k, kb_i32(k, TFMC_RT_E_STATE));
	}
	kb_end_if(k);
	emit_set_window(&e, state, first, source);
	emit_end(&e, TFMC_RT_OK);
}

/* ---- reset, trim ---- */

static void emit_reset(struct object *o)
{
	struct emit e;
	if (!api_begin_context(&e, o, "reset", KB_I32))
		return;
	struct kb *k = e.k;
	api_check_magic(&e);
	struct kb_val state = emit_context(&e, KB_PTR, CONTEXT_STATE);
	struct kb_val blocks =
	        kb_mul(k, emit_context(&e, KB_INDEX, CONTEXT_BATCH), kb_index(k, o->states.batch_bytes));
	struct kb_val bytes = kb_add_const(k, blocks, o->states.fixed_bytes);
	if (object_has_device(o))
		bytes = kb_select(k, emit_is_device(&e), kb_index(k, o->states.fixed_bytes), bytes);
	kb_if(k, kb_cmp(k, KB_NE, state, kb_null(k)));
	api_zero_words(&e, state, bytes);
	emit_set_window(&e, state, kb_index(k, 0), kb_index(k, -1));
	kb_end_if(k);
	emit_end(&e, TFMC_RT_OK);
}

/* What a ring has overwritten does not come back; an empty sequence needs nothing of it. */
static void trim_rings(struct emit *e, struct kb_val state, struct kb_val sequence, struct kb_val length)
{
	struct kb *k = e->k;
	const struct object *o = e->object;
	if (!o->states.floor_at)
		return;
	struct kb_val floor = i32_at(e, state, o->states.floor_at, sequence), zero = kb_index(k, 0);
	struct kb_val is_empty = kb_cmp(k, KB_EQ, length, zero);
	struct kb_val is_kept = kb_bin(k, KB_OR, is_empty, kb_cmp(k, KB_GE, length, floor));
	api_require(e, is_kept, TFMC_RT_E_OVERWRITTEN);
	set_i32(e, kb_select(k, is_empty, zero, floor), state, o->states.floor_at, sequence);
}

static void emit_trim(struct object *o)
{
	struct emit e;
	if (!api_begin_context(&e, o, "trim", KB_I32))
		return;
	struct kb *k = e.k;
	struct kb_val sequence = kb_param(k, "sequence", KB_INDEX_T, 0);
	struct kb_val length = kb_param(k, "length", KB_INDEX_T, 0);
	struct kb_val state = require_state(&e);
	require_in_batch(&e, sequence);
	struct kb_val now = i32_at(&e, state, STATE_PAST, sequence);
	emit_require_between(&e, length, 0, now, TFMC_RT_E_LENGTH);
	trim_rings(&e, state, sequence, length);
	set_i32(&e, length, state, STATE_PAST, sequence);
	emit_end(&e, TFMC_RT_OK);
}

/* ---- copies ---- */

/* A state as matrices that follow each other, of units that tokens fill: a row, or a panel of 16. What does
 * not grow, or has rows of odd bytes, is one unit. */
struct matrices {
	int64_t n, bytes; /* of one */
	int64_t unit_bytes, unit_rows;
	int lanes; /* i32 in a vector, so that a unit is whole vectors */
};

static int64_t const_dim(const struct ir_type *t, int axis)
{
	int64_t d = 1;
	return ir_dim_is_const(t->dims[axis], &d) ? d : 1;
}

static struct matrices matrices_of(const struct emit *e, const struct state_place *p)
{
	const struct ir_type *t = p->decl->type;
	int64_t whole = (p->bytes + 3) / 4 * 4;
	struct matrices m = {.n = 1, .bytes = whole, .unit_bytes = whole};
	int64_t rows = p->decl->encoding == ENC_PANEL16 ? 16 : 1;
	int64_t unit = t->rank < 3 ? 0 : const_dim(t, t->rank - 1) * ir_dtype_bytes(t->dtype) * rows;
	if (p->grows && unit > 0 && unit % 4 == 0) {
		for (int i = 1; i < t->rank - 2; i++)
			m.n *= const_dim(t, i);
		m.bytes = p->bytes / m.n;
		m.unit_bytes = unit;
		m.unit_rows = rows;
	}
	m.lanes = kb_caps(e->k)->lanes;
	while (m.lanes > 1 && m.unit_bytes % (4 * m.lanes) != 0)
		m.lanes /= 2;
	return m;
}

/* Called for each matrix of a state, at its offset in a block: i32 words that `rows` tokens fill, in vectors
 * of so many lanes. */
typedef void part_fn(struct emit *e, void *user, struct kb_val offset, struct kb_val words, int lanes);

static void each_matrix(struct emit *e, const struct state_place *p, struct kb_val rows, part_fn *fn,
                        void *user)
{
	struct kb *k = e->k;
	struct matrices m = matrices_of(e, p);
	struct kb_val words = kb_index(k, m.bytes / 4);
	if (m.unit_rows > 0) {
		struct kb_val up = kb_add_const(k, rows, m.unit_rows - 1);
		struct kb_val units = kb_bin(k, KB_DIV, up, kb_index(k, m.unit_rows));
		words = kb_min(k, words, kb_mul(k, units, kb_index(k, m.unit_bytes / 4)));
	}
	struct kb_val i = kb_loop(k, "matrix", kb_index(k, 0), kb_index(k, m.n), 1, 0);
	fn(e, user, kb_add_const(k, kb_mul(k, i, kb_index(k, m.bytes)), p->offset), words, m.lanes);
	kb_end_loop(k);
}

/* Without a shared source what encode has left, and its mark, are the sequence's own. */
static void if_own_source(struct emit *e)
{
	struct kb_val source = emit_context(e, KB_INDEX, CONTEXT_SOURCE);
	kb_if(e->k, kb_cmp(e->k, KB_LT, source, kb_index(e->k, 0)));
}

/* The states of a sequence: all, or those that are its own. */
static void each_state(struct emit *e, struct kb_val rows, bool all, part_fn *fn, void *user)
{
	for (size_t i = 0; i < e->object->states.n; i++) {
		const struct state_place *p = &e->object->states.items[i];
		if (p->bytes == 0)
			continue;
		if (!p->grows && !all)
			if_own_source(e);
		each_matrix(e, p, rows, fn, user);
		if (!p->grows && !all)
			kb_end_if(e->k);
	}
}

/* Offset of a place in the state. */
static struct kb_val state_offset(struct emit *e, struct kb_val sequence, struct kb_val offset)
{
	struct kb_val far = kb_mul(e->k, sequence, kb_index(e->k, e->object->states.batch_bytes));
	return kb_add_const(e->k, kb_add(e->k, far, offset), e->object->states.fixed_bytes);
}

struct copy {
	struct kb_val from_sequence, to_sequence;
	struct kb_val from, to; /* blocks */
};

static void copy_part(struct emit *e, void *user, struct kb_val offset, struct kb_val words, int lanes)
{
	struct kb *k = e->k;
	const struct copy *c = user;
	if (object_has_device(e->object)) {
		struct kb_val from = state_offset(e, c->from_sequence, offset);
		struct kb_val into = state_offset(e, c->to_sequence, offset);
		struct kb_val args[] = {from, into, kb_mul(k, words, kb_index(k, 4))};
		kb_if(k, emit_is_device(e));
		emit_device_call(e, "tfmc_cl_model_copy", args, 3);
		kb_else(k);
	}
	struct kb_val source = kb_ptr_add(k, c->from, offset, 0), to = kb_ptr_add(k, c->to, offset, 0);
	struct kb_val i = kb_loop(k, "i", kb_index(k, 0), words, lanes, 0);
	kb_store(k, kb_load(k, KB_TYPE(KB_I32, lanes), source, i, 0, 0), to, i, 0, 0);
	kb_end_loop(k);
	if (object_has_device(e->object))
		kb_end_if(k);
}

static void emit_fork(struct object *o)
{
	struct emit e;
	if (!api_begin_context(&e, o, "fork", KB_I32))
		return;
	struct kb *k = e.k;
	struct kb_val from = kb_param(k, "from", KB_INDEX_T, 0);
	struct kb_val to = kb_param(k, "to", KB_INDEX_T, 0);
	struct kb_val state = require_state(&e);
	require_in_batch(&e, from);
	require_in_batch(&e, to);
	if (o->states.encoded_at) {
		if_own_source(&e);
		require_encoded(&e, state, from);
		kb_end_if(k);
	}
	struct kb_val rows = i32_at(&e, state, STATE_PAST, from);
	struct copy c = {.from_sequence = from, .to_sequence = to};
	c.from = block_of(&e, state, from);
	c.to = block_of(&e, state, to);
	kb_if(k, kb_cmp(k, KB_NE, from, to));
	each_state(&e, rows, false, copy_part, &c);
	kb_end_if(k);
	if (o->states.encoded_at) {
		if_own_source(&e);
		set_i32(&e, kb_index(k, 1), state, o->states.encoded_at, to);
		kb_end_if(k);
	}
	set_i32(&e, rows, state, STATE_PAST, to);
	if (o->states.floor_at)
		set_i32(&e, i32_at(&e, state, o->states.floor_at, from), state, o->states.floor_at, to);
	emit_end(&e, TFMC_RT_OK);
}

/* ---- fetch, store ---- */

struct exchange {
	const char *function; /* of libtfmccl */
	struct kb_val sequence, block;
};

static void exchange_part(struct emit *e, void *user, struct kb_val offset, struct kb_val words, int lanes)
{
	struct kb *k = e->k;
	const struct exchange *x = user;
	(void)lanes;
	struct kb_val at = state_offset(e, x->sequence, offset), memory = kb_ptr_add(k, x->block, offset, 0);
	struct kb_val args[] = {at, memory, kb_mul(k, words, kb_index(k, 4))};
	emit_device_call(e, x->function, args, 3);
}

/* What encode has left as well, whatever the rows read. */
static void emit_exchange(struct object *o, const char *suffix, const char *function)
{
	struct emit e;
	if (!api_begin_context(&e, o, suffix, KB_I32))
		return;
	struct kb *k = e.k;
	struct exchange x = {.function = function, .sequence = kb_param(k, "sequence", KB_INDEX_T, 0)};
	struct kb_val state = require_state(&e);
	require_in_batch(&e, x.sequence);
	if (object_has_device(o)) {
		struct kb_val rows = i32_at(&e, state, STATE_PAST, x.sequence);
		x.block = block_of(&e, state, x.sequence);
		kb_if(k, emit_is_device(&e));
		each_state(&e, rows, true, exchange_part, &x);
		kb_end_if(k);
	}
	emit_end(&e, TFMC_RT_OK);
}

/* ---- reorder ---- */

struct reorder {
	struct kb_val state, from, n; /* from: i64 [n] */
	struct kb_val local;          /* i32 [n, lanes] */
	int lanes;                    /* at most */
};

static struct kb_val source_at(struct emit *e, const struct reorder *r, struct kb_val b)
{
	return kb_load(e->k, KB_INDEX_T, r->from, b, 0, 8);
}

/* Vector i of every sequence is read before any is written, so that the order may be any. */
static void reorder_part(struct emit *e, void *user, struct kb_val offset, struct kb_val words, int most)
{
	struct kb *k = e->k;
	const struct reorder *r = user;
	if (object_has_device(e->object)) {
		struct kb_val args[] = {r->from, r->n, offset, kb_mul(k, words, kb_index(k, 4))};
		kb_if(k, emit_is_device(e));
		emit_device_call(e, "tfmc_cl_model_permute", args, 4);
		kb_else(k);
	}
	int lanes = most < r->lanes ? most : r->lanes;
	struct kb_type type = KB_TYPE(KB_I32, lanes);
	struct kb_val i = kb_loop(k, "i", kb_index(k, 0), words, lanes, 0);
	struct kb_val b = kb_loop(k, "b", kb_index(k, 0), r->n, 1, 0);
	struct kb_val at = kb_ptr_add(k, block_of(e, r->state, source_at(e, r, b)), offset, 0);
	struct kb_val slot = kb_mul(k, b, kb_index(k, lanes));
	kb_store(k, kb_load(k, type, at, i, 0, 0), r->local, slot, 0, 0);
	kb_end_loop(k);
	struct kb_val c = kb_loop(k, "c", kb_index(k, 0), r->n, 1, 0);
	struct kb_val to = kb_ptr_add(k, block_of(e, r->state, c), offset, 0);
	kb_if(k, kb_cmp(k, KB_NE, source_at(e, r, c), c));
	kb_store(k, kb_load(k, type, r->local, kb_mul(k, c, kb_index(k, lanes)), 0, 0), to, i, 0, 0);
	kb_end_if(k);
	kb_end_loop(k);
	kb_end_loop(k);
	if (object_has_device(e->object))
		kb_end_if(k);
}

/* One word of each sequence in the fixed part. */
static void reorder_words(struct emit *e, const struct reorder *r, int64_t offset)
{
	struct kb *k = e->k;
	struct kb_val b = kb_loop(k, "b", kb_index(k, 0), r->n, 1, 0);
	kb_store(k, kb_cvt(k, i32_at(e, r->state, offset, source_at(e, r, b)), KB_I32), r->local, b, 0, 4);
	kb_end_loop(k);
	struct kb_val c = kb_loop(k, "c", kb_index(k, 0), r->n, 1, 0);
	set_i32(e, i32_at(e, r->local, 0, c), r->state, offset, c);
	kb_end_loop(k);
}

/* Gives the most tokens that any sequence of the order has. */
static struct kb_val reorder_check(struct emit *e, const struct reorder *r)
{
	struct kb *k = e->k;
	struct kb_var most = kb_var(k, "most", KB_INDEX_T, kb_index(k, 0));
	struct kb_val b = kb_loop(k, "b", kb_index(k, 0), r->n, 1, 0);
	struct kb_val from = source_at(e, r, b);
	require_in_batch(e, from);
	if (e->object->states.encoded_at) {
		if_own_source(e);
		require_encoded(e, r->state, from);
		kb_end_if(k);
	}
	struct kb_val past = i32_at(e, r->state, STATE_PAST, from);
	kb_set(k, most, kb_max(k, kb_get(k, most), past));
	kb_end_loop(k);
	return kb_get(k, most);
}

static void emit_reorder(struct object *o)
{
	struct emit e;
	if (!api_begin_context(&e, o, "reorder", KB_I32))
		return;
	struct kb *k = e.k;
	struct reorder r = {.from = kb_param(k, "from", KB_PTR_T, KB_READONLY)};
	r.n = kb_param(k, "n", KB_INDEX_T, 0);
	int64_t most = o->states.batch_max > 0 ? o->states.batch_max : 1;
	most = most < REORDER_LOCAL_BYTES / 4 ? most : REORDER_LOCAL_BYTES / 4;
	r.lanes = kb_caps(k)->lanes;
	while (r.lanes > 1 && most * r.lanes * 4 > REORDER_LOCAL_BYTES)
		r.lanes /= 2;
	r.local = kb_local(k, "local", KB_I32, most * r.lanes);
	r.state = require_state(&e);
	emit_return_if(&e, kb_cmp(k, KB_EQ, r.from, kb_null(k)), TFMC_RT_E_NULL);
	struct kb_val batch = emit_context(&e, KB_INDEX, CONTEXT_BATCH);
	emit_require_between(&e, r.n, 0, kb_min(k, batch, kb_index(k, most)), TFMC_RT_E_DIM);
	struct kb_val rows = reorder_check(&e, &r);
	each_state(&e, rows, false, reorder_part, &r);
	reorder_words(&e, &r, STATE_PAST);
	if (o->states.floor_at)
		reorder_words(&e, &r, o->states.floor_at);
	if (o->states.encoded_at) {
		if_own_source(&e);
		reorder_words(&e, &r, o->states.encoded_at);
		kb_end_if(k);
	}
	emit_end(&e, TFMC_RT_OK);
}

void emit_state_api(struct object *o)
{
	emit_reset(o);
	emit_trim(o);
	emit_fork(o);
	emit_select(o);
	emit_reorder(o);
	emit_exchange(o, "fetch", "tfmc_cl_model_fetch");
	emit_exchange(o, "store", "tfmc_cl_model_store");
}
