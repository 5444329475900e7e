/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects of one model, the first with caches for all positions, the others with
 * rings (ring.sh): whatever is done to the sequences of two of them, by calls,
 * trim, fork, reorder and saving, logits are the same bytes, and trim is refused
 * exactly where a ring has lost what would be read.
 *
 *	ring [SEED [TURNS]]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tfmc_rt.h"
#include "models.h" /* made by ring.sh: ring_models[] */

enum { ROWS = 3, MAX_VOCAB = 512, MAX_CALL = 64, MAX_STATES = 16, SAVED = 1 << 20 };

struct pair {
	uint64_t random;
	struct tfmc_session *full, *ring, *other; /* other: a ring, too, for what is saved */
	const char *name;
	int64_t vocab, room, most; /* tokens of a sequence, of a call */
	int64_t length[ROWS],
	        written[ROWS]; /* positions that were ever written since the sequence was empty */
	uint64_t calls, trims, refused, copies, saves;
};

/* SplitMix64 */
static uint64_t draw(struct pair *p, uint64_t below)
{
	uint64_t z = p->random += 0x9e3779b97f4a7c15ull;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return (z ^ z >> 31) % below;
}

static void fail(const struct pair *p, const char *what, int status)
{
	fprintf(stderr, "ring: %s: %s (%s)\n", p->name, what, tfmc_rt_status_text(status));
	exit(1);
}

static void expect(const struct pair *p, const char *what, int status, int wanted)
{
	if (status != wanted)
		fail(p, what, status);
}

/* ---- calls ---- */

struct rows {
	int32_t ids[ROWS * MAX_CALL], lengths[ROWS];
	int64_t n, width;
};

static void call(const struct pair *p, struct tfmc_session *session, const struct rows *c, float *logits)
{
	const struct tfmc_record *r = tfmc_session_record(session);
	int64_t entry = tfmc_entry_find(r, c->width == 1 ? "step" : "prefill"), dims[16];
	struct tfmc_buffer in[4] = {{0}}, out[4] = {{0}};
	for (uint64_t i = 0; i < r->n_dims; i++)
		dims[i] = i == 0 ? c->n : c->width;
	for (uint64_t i = 0; i < tfmc_entry_at(r, entry)->n_inputs; i++) {
		const struct tfmc_record_tensor *t = tfmc_entry_input(r, entry, i);
		if (t->below <= 0)
			continue;
		in[i] = (struct tfmc_buffer){(void *)(uintptr_t)c->ids, (uint64_t)(c->n * c->width)};
		in[t->lengths] = (struct tfmc_buffer){(void *)(uintptr_t)c->lengths, (uint64_t)c->n};
	}
	out[0] = (struct tfmc_buffer){logits, (uint64_t)(c->n * p->vocab)};
	expect(p, "call", tfmc_session_call(session, entry, dims, in, out), TFMC_RT_OK);
}

/* Rows of unequal lengths, none among them, from a random sequence on. */
static void grow(struct pair *p)
{
	static float want[ROWS * MAX_VOCAB], got[ROWS * MAX_VOCAB];
	struct rows c = {.n = 1 + (int64_t)draw(p, ROWS)};
	int64_t first = (int64_t)draw(p, (uint64_t)(ROWS - c.n + 1));
	c.width = draw(p, 3) ? 1 + (int64_t)draw(p, (uint64_t)p->most) : 1;
	for (int64_t i = 0; i < c.n * c.width; i++)
		c.ids[i] = (int32_t)draw(p, (uint64_t)p->vocab);
	for (int64_t i = 0; i < c.n; i++) {
		int64_t b = first + i, n = draw(p, 4) ? (int64_t)draw(p, (uint64_t)c.width + 1) : c.width;
		n = n < p->room - p->length[b] ? n : p->room - p->length[b];
		c.lengths[i] = (int32_t)n;
		int64_t end = p->length[b] + c.width;
		p->written[b] = end > p->written[b] ? end : p->written[b];
		p->length[b] += n;
	}
	expect(p, "select", tfmc_session_select(p->full, first, -1), TFMC_RT_OK);
	expect(p, "select", tfmc_session_select(p->ring, first, -1), TFMC_RT_OK);
	call(p, p->full, &c, want);
	call(p, p->ring, &c, got);
	for (int64_t i = 0; i < c.n; i++)
		if (c.lengths[i] &&
		    memcmp(want + i * p->vocab, got + i * p->vocab, (size_t)p->vocab * sizeof(*got)) != 0)
			fail(p, "logits differ from those of whole caches", TFMC_RT_OK);
	p->calls++;
}

/* ---- the state ---- */

/* Every ring still has what token `length` reads. */
static int is_kept(const struct pair *p, int64_t b, int64_t length)
{
	const struct tfmc_record *r = tfmc_session_record(p->ring);
	const struct tfmc_record_state *s = (const void *)((const char *)r + r->states);
	for (uint64_t i = 0; i < r->n_states; i++) {
		int64_t rows = s[i].dims[s[i].rank - 2], window = (int64_t)s[i].window;
		int64_t oldest = p->written[b] - rows, needed = length - window + 1;
		if (window && oldest > 0 && needed < oldest)
			return 0;
	}
	return 1;
}

static void trim(struct pair *p)
{
	int64_t b = (int64_t)draw(p, ROWS), back = (int64_t)draw(p, draw(p, 2) ? 24 : 8);
	int64_t length = draw(p, 16) ? p->length[b] - back : 0;
	length = length < 0 ? 0 : length;
	int status = tfmc_session_trim(p->ring, b, length);
	expect(p, "trim", status, length == 0 || is_kept(p, b, length) ? TFMC_RT_OK : TFMC_RT_E_OVERWRITTEN);
	if (tfmc_session_length(p->ring, b) != (status ? p->length[b] : length))
		fail(p, "trim leaves another length", status);
	p->trims++;
	p->refused += status != TFMC_RT_OK;
	if (status != TFMC_RT_OK)
		return;
	expect(p, "trim", tfmc_session_trim(p->full, b, length), TFMC_RT_OK);
	p->length[b] = length;
	p->written[b] = length ? p->written[b] : 0;
}

static void copy(struct pair *p)
{
	int64_t from[ROWS], length[ROWS], written[ROWS], a = (int64_t)draw(p, ROWS),
	                                                 b = (int64_t)draw(p, ROWS);
	for (int i = 0; i < ROWS; i++)
		from[i] = i;
	from[b] = a;
	if (draw(p, 2)) {
		for (int i = 0; i < ROWS; i++)
			from[i] = (int64_t)draw(p, ROWS);
		expect(p, "reorder", tfmc_session_reorder(p->full, from, ROWS), TFMC_RT_OK);
		expect(p, "reorder", tfmc_session_reorder(p->ring, from, ROWS), TFMC_RT_OK);
	} else {
		expect(p, "fork", tfmc_session_fork(p->full, a, b), TFMC_RT_OK);
		expect(p, "fork", tfmc_session_fork(p->ring, a, b), TFMC_RT_OK);
	}
	for (int i = 0; i < ROWS; i++) {
		length[i] = p->length[from[i]];
		written[i] = p->written[from[i]];
	}
	memcpy(p->length, length, sizeof(length));
	memcpy(p->written, written, sizeof(written));
	p->copies++;
}

/* One more token of sequence b; sequence 0 of `other` is a copy of it. */
static void step_all(struct pair *p, int64_t b)
{
	static float want[MAX_VOCAB], got[MAX_VOCAB];
	struct tfmc_session *const those[] = {p->ring, p->other};
	struct rows c = {.n = 1, .width = 1, .lengths = {1}};
	if (p->length[b] == p->room)
		return;
	c.ids[0] = (int32_t)draw(p, (uint64_t)p->vocab);
	expect(p, "select", tfmc_session_select(p->full, b, -1), TFMC_RT_OK);
	expect(p, "select", tfmc_session_select(p->ring, b, -1), TFMC_RT_OK);
	expect(p, "select", tfmc_session_select(p->other, 0, -1), TFMC_RT_OK);
	call(p, p->full, &c, want);
	for (int i = 0; i < 2; i++) {
		call(p, those[i], &c, got);
		if (memcmp(want, got, (size_t)p->vocab * sizeof(*got)) != 0)
			fail(p, i ? "what was restored goes on in another way" : "what was saved is changed",
			     TFMC_RT_OK);
	}
	p->length[b]++;
	p->written[b] = p->length[b] > p->written[b] ? p->length[b] : p->written[b];
}

/* Through the object whose rings have another length, and back. */
static void save(struct pair *p)
{
	static char bytes[SAVED], again[SAVED];
	int64_t b = (int64_t)draw(p, ROWS);
	uint64_t n, k;
	expect(p, "save", tfmc_session_save(p->ring, b, bytes, SAVED, &n), TFMC_RT_OK);
	expect(p, "restore into whole caches", tfmc_session_restore(p->full, b, bytes, n),
	       TFMC_RT_E_MODEL_MISMATCH);
	expect(p, "restore", tfmc_session_restore(p->other, 0, bytes, n), TFMC_RT_OK);
	expect(p, "save", tfmc_session_save(p->other, 0, again, SAVED, &k), TFMC_RT_OK);
	expect(p, "restore", tfmc_session_restore(p->ring, b, again, k), TFMC_RT_OK);
	step_all(p, b);
	expect(p, "save", tfmc_session_save(p->full, b, again, SAVED, &k), TFMC_RT_OK);
	expect(p, "restore of whole caches", tfmc_session_restore(p->ring, b, again, k),
	       TFMC_RT_E_MODEL_MISMATCH);
	bytes[draw(p, n)] ^= 1;
	expect(p, "damaged", tfmc_session_restore(p->ring, b, bytes, n), TFMC_RT_E_SAVED);
	p->saves++;
}

/* ---- rounds ---- */

static struct tfmc_session *open_session(const struct pair *p, const struct ring_model *m, int64_t workers)
{
	struct tfmc_session *session;
	struct tfmc_model model = m->model();
	struct tfmc_session_options o = {
	        .struct_size = sizeof(o), .batch = ROWS, .workers = workers, .all_workers = 1, .spin_us = -1};
	expect(p, "open", tfmc_session_open(&model, &o, &session), TFMC_RT_OK);
	return session;
}

static int64_t call_bound(const struct tfmc_record *r)
{
	const struct tfmc_record_entry *e = tfmc_entry_at(r, tfmc_entry_find(r, "prefill"));
	const uint64_t *dims = (const void *)((const char *)r + e->dims);
	int64_t most = tfmc_record_dim_at(r, dims[e->n_dims - 1])->hi;
	return most < MAX_CALL ? most : MAX_CALL;
}

static void empty_all(struct pair *p)
{
	expect(p, "reset", tfmc_session_reset(p->full), TFMC_RT_OK);
	expect(p, "reset", tfmc_session_reset(p->ring), TFMC_RT_OK);
	memset(p->length, 0, sizeof(p->length));
	memset(p->written, 0, sizeof(p->written));
}

static void run_round(struct pair *p, int turns, int saves)
{
	empty_all(p);
	for (int turn = 0; turn < turns; turn++) {
		uint64_t what = draw(p, 16);
		if (what < 10)
			grow(p);
		else if (what < 14 && !saves)
			trim(p);
		else if (what < 14)
			save(p);
		else
			copy(p);
		int full = 0;
		for (int b = 0; b < ROWS; b++)
			full += p->length[b] == p->room;
		if (full == ROWS)
			empty_all(p);
	}
}

static void run_pair(const struct ring_model *ring, const struct ring_model *other, uint64_t seed,
                     int64_t workers, int turns)
{
	struct pair p = {.random = seed, .name = ring->name};
	p.full = open_session(&p, &ring_models[0], 1);
	p.ring = open_session(&p, ring, workers);
	p.other = open_session(&p, other, 1);
	const struct tfmc_record *r = tfmc_session_record(p.ring);
	p.vocab = tfmc_entry_input(r, tfmc_entry_find(r, "step"), 0)->below;
	p.room = (int64_t)r->context_limit;
	p.most = call_bound(r);
	if (r->state_batch_bytes >= tfmc_session_record(p.full)->state_batch_bytes)
		fail(&p, "a state with rings is as large as without", TFMC_RT_OK);
	if (p.room != (int64_t)tfmc_session_record(p.full)->context_limit || p.vocab > MAX_VOCAB)
		fail(&p, "the models differ", TFMC_RT_OK);
	run_round(&p, turns, 0);
	run_round(&p, turns, 1);
	printf("%s, %lld workers: %llu calls, %llu trims (%llu refused), %llu copies, %llu saves\n", p.name,
	       (long long)workers, (unsigned long long)p.calls, (unsigned long long)p.trims,
	       (unsigned long long)p.refused, (unsigned long long)p.copies, (unsigned long long)p.saves);
	tfmc_session_close(p.full);
	tfmc_session_close(p.ring);
	tfmc_session_close(p.other);
}

int main(int argc, char **argv)
{
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1, n = N_MODELS - 1;
	int turns = argc > 2 ? atoi(argv[2]) : 400;
	for (uint64_t i = 0; i < n; i++)
		for (int64_t workers = 1; workers <= 3; workers += 2)
			run_pair(&ring_models[1 + i], &ring_models[1 + (i + 1) % n], seed + i, workers,
			         turns);
	return 0;
}
