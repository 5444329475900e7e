/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sequences as bytes: what the record says about the state's memory turned into
 * rows, and back. Everything is checked before anything is written: a restore
 * that fails leaves the sequence as it was.
 *
 *   struct saved_head, then for each state in the order of the record its elements, row-major:
 *   states that grow [.., tokens, E], rings the tokens that are left of them, those of encode [..] as a whole
 * and only when it has filled them
 */
#include "tfmc_rt.h"

#include <string.h>

#define SAVED_MAGIC   0x3151455343464d54ull /* "TFMCSEQ1" */
#define SAVED_VERSION 1u
#define PANEL         16u

struct saved_head {
	uint64_t magic, version;
	uint64_t bytes; /* of all */
	uint64_t state_hash, weights_hash;
	uint64_t tokens, encoded;
	uint64_t n_states;
	uint64_t checksum; /* tfmc_weights_hash over the head with 0 here, then the rest */
	uint64_t floor; /* of rings: the least length above 0 that the sequence may be trimmed to; else 0 */
};

/* One state as matrices that follow each other. */
struct matrices {
	uint64_t n, rows, columns; /* rows: all there is room for */
	uint64_t element;          /* bytes */
	uint64_t stored;           /* bytes of a matrix in the block */
	int panels;
	uint64_t ring; /* rows, position p in row p mod ring; 0: p in row p */
};

static const struct tfmc_record_state *state_at(const struct tfmc_record *r, uint64_t i)
{
	return (const struct tfmc_record_state *)(const void *)((const char *)r + r->states) + i;
}

static struct matrices matrices_of(const struct tfmc_record_state *s)
{
	struct matrices m = {.n = 1, .rows = 1, .columns = 1, .element = tfmc_dtype_bytes(s->dtype)};
	m.panels = s->panels != 0;
	if (s->rank >= 2)
		m.columns = (uint64_t)s->dims[s->rank - 1];
	if (s->rank >= 3)
		m.rows = (uint64_t)s->dims[s->rank - 2];
	for (uint64_t i = 1; i + 2 < s->rank; i++)
		m.n *= (uint64_t)s->dims[i];
	uint64_t rows = m.panels ? (m.rows + PANEL - 1) / PANEL * PANEL : m.rows;
	m.stored = rows * m.columns * m.element;
	m.ring = s->window ? m.rows : 0;
	return m;
}

/* The first position of which a ring still has the row, as far as its readers may go back. */
static uint64_t first_of(const struct tfmc_record_state *s, uint64_t floor)
{
	return s->window && floor >= s->window ? floor - s->window + 1 : 0;
}

/* Rows of each matrix that are saved. */
static uint64_t rows_of(const struct tfmc_record_state *s, const struct matrices *m,
                        const struct saved_head *h)
{
	if (s->grows)
		return h->tokens - first_of(s, h->floor);
	return h->encoded ? m->rows : 0;
}

static uint64_t bytes_of(const struct tfmc_record *r, const struct saved_head *h)
{
	uint64_t sum = sizeof(*h);
	for (uint64_t i = 0; i < r->n_states; i++) {
		struct matrices m = matrices_of(state_at(r, i));
		sum += m.n * rows_of(state_at(r, i), &m, h) * m.columns * m.element;
	}
	return sum;
}

/* The least length that trim may give when rings of this object have taken the tokens. */
static uint64_t floor_of(const struct tfmc_record *r, const struct saved_head *h)
{
	uint64_t floor = h->floor;
	for (uint64_t i = 0; i < r->n_states; i++) {
		const struct tfmc_record_state *s = state_at(r, i);
		uint64_t rows = matrices_of(s).rows;
		if (!s->window || h->tokens <= rows)
			continue;
		uint64_t least = h->tokens - rows + s->window - 1;
		floor = least > floor ? least : floor;
	}
	return floor;
}

static uint64_t checksum(const struct saved_head *head, const char *rest)
{
	struct saved_head h = *head;
	struct tfmc_weights_hash hash;
	h.checksum = 0;
	tfmc_weights_hash_begin(&hash);
	tfmc_weights_hash_add(&hash, &h, sizeof(h));
	tfmc_weights_hash_add(&hash, rest, h.bytes - sizeof(h));
	return tfmc_weights_hash_end(&hash);
}

/* ---- moving rows ---- */

/* Between a row of the block, in panels [ceil(rows / 16)][columns][16], and one that is saved. */
static void move_panel_row(const struct matrices *m, uint64_t row, char *block, char *flat, int saves)
{
	for (uint64_t c = 0; c < m->columns; c++) {
		char *at = block + ((row / PANEL * m->columns + c) * PANEL + row % PANEL) * m->element;
		char *to = flat + c * m->element;
		memcpy(saves ? to : at, saves ? at : to, (size_t)m->element);
	}
}

/* Rows of positions [first, first + n); the oldest ones of a ring that has less room are passed over. */
static void move_rows(const struct matrices *m, uint64_t first, uint64_t n, char *block, char *flat,
                      int saves)
{
	uint64_t bytes = m->columns * m->element;
	for (uint64_t i = m->ring && n > m->ring ? n - m->ring : 0; i < n; i++) {
		uint64_t row = m->ring ? (first + i) % m->ring : i;
		char *at = block + row * bytes, *to = flat + i * bytes;
		if (m->panels)
			move_panel_row(m, row, block, to, saves);
		else if (bytes)
			memcpy(saves ? to : at, saves ? at : to, (size_t)bytes);
	}
}

/* Between the block of a sequence and the saved rows. */
static void move_all(const struct tfmc_record *r, const struct saved_head *h, char *block, char *flat,
                     int saves)
{
	for (uint64_t i = 0; i < r->n_states; i++) {
		const struct tfmc_record_state *s = state_at(r, i);
		struct matrices m = matrices_of(s);
		uint64_t rows = rows_of(s, &m, h), bytes = rows * m.columns * m.element;
		for (uint64_t k = 0; k < m.n; k++, flat += bytes) {
			char *at = block + s->offset + k * m.stored;
			move_rows(&m, first_of(s, h->floor), rows, at, flat, saves);
		}
	}
}

static int check_sequence(const struct tfmc_record *r, const void *state, int64_t batch, int64_t sequence)
{
	if (r->magic != TFMC_RECORD_MAGIC || r->abi_version != TFMC_ABI_VERSION)
		return TFMC_RT_E_RECORD;
	if (!state || !r->n_states)
		return TFMC_RT_E_STATE;
	return sequence < 0 || sequence >= batch ? TFMC_RT_E_DIM : TFMC_RT_OK;
}

static uint64_t block_at(const struct tfmc_record *r, int64_t sequence)
{
	return r->state_fixed_bytes + (uint64_t)sequence * r->state_batch_bytes;
}

/* Word of a sequence in the fixed part. */
static uint64_t word_at(uint64_t offset, int64_t sequence)
{
	return offset + (uint64_t)sequence * sizeof(int32_t);
}

static uint64_t hash_of(const struct tfmc_record *r, const struct tfmc_mapping *weights)
{
	return weights && weights->hash ? weights->hash : r->weights_hash;
}

int tfmc_state_save(const struct tfmc_record *record, const struct tfmc_mapping *weights, const void *state,
                    int64_t batch, int64_t sequence, void *out, uint64_t cap, uint64_t *n_out)
{
	const struct tfmc_record *r = record;
	const char *from = state;
	int32_t tokens, encoded = 0, floor = 0;
	if (!r || !n_out)
		return TFMC_RT_E_NULL;
	*n_out = 0;
	int status = check_sequence(r, state, batch, sequence);
	if (status != TFMC_RT_OK)
		return status;
	memcpy(&tokens, from + word_at(r->past, sequence), sizeof(tokens));
	if (r->encoded)
		memcpy(&encoded, from + word_at(r->encoded, sequence), sizeof(encoded));
	if (r->floor)
		memcpy(&floor, from + word_at(r->floor, sequence), sizeof(floor));
	struct saved_head h = {.magic = SAVED_MAGIC,
	                       .version = SAVED_VERSION,
	                       .state_hash = r->state_hash,
	                       .weights_hash = hash_of(r, weights),
	                       .tokens = (uint64_t)tokens,
	                       .encoded = encoded != 0,
	                       .floor = (uint64_t)floor,
	                       .n_states = r->n_states};
	*n_out = h.bytes = bytes_of(r, &h);
	if (!out || cap < h.bytes)
		return TFMC_RT_E_SIZE;
	char *rest = (char *)out + sizeof(h);
	move_all(r, &h, (char *)(uintptr_t)from + block_at(r, sequence), rest, 1);
	h.checksum = checksum(&h, rest);
	memcpy(out, &h, sizeof(h));
	return TFMC_RT_OK;
}

static int check_saved(const struct tfmc_record *r, uint64_t weights_hash, const struct saved_head *h,
                       const char *rest, uint64_t n)
{
	if (h->magic != SAVED_MAGIC || h->version != SAVED_VERSION || h->bytes != n ||
	    h->checksum != checksum(h, rest))
		return TFMC_RT_E_SAVED;
	if (h->state_hash != r->state_hash || h->weights_hash != weights_hash || h->n_states != r->n_states)
		return TFMC_RT_E_OTHER;
	if (h->tokens > (r->context_limit ? r->context_limit : (uint64_t)INT32_MAX))
		return TFMC_RT_E_FULL;
	if (h->floor > (r->floor ? h->tokens : 0))
		return TFMC_RT_E_SAVED;
	return h->encoded > (r->encoded != 0) || bytes_of(r, h) != n ? (int)TFMC_RT_E_SAVED : (int)TFMC_RT_OK;
}

int tfmc_state_restore(const struct tfmc_record *record, const struct tfmc_mapping *weights, void *state,
                       int64_t batch, int64_t sequence, const void *data, uint64_t n)
{
	const struct tfmc_record *r = record;
	struct saved_head h;
	char *to = state;
	if (!r)
		return TFMC_RT_E_NULL;
	int status = check_sequence(r, state, batch, sequence);
	if (status != TFMC_RT_OK)
		return status;
	if (!data || n < sizeof(h))
		return TFMC_RT_E_SAVED;
	memcpy(&h, data, sizeof(h));
	const char *rest = (const char *)data + sizeof(h);
	status = check_saved(r, hash_of(r, weights), &h, rest, n);
	if (status != TFMC_RT_OK)
		return status;
	int32_t tokens = (int32_t)h.tokens, encoded = (int32_t)h.encoded, floor = (int32_t)floor_of(r, &h);
	move_all(r, &h, to + block_at(r, sequence), (char *)(uintptr_t)rest, 0);
	memcpy(to + word_at(r->past, sequence), &tokens, sizeof(tokens));
	if (r->encoded)
		memcpy(to + word_at(r->encoded, sequence), &encoded, sizeof(encoded));
	if (r->floor)
		memcpy(to + word_at(r->floor, sequence), &floor, sizeof(floor));
	return TFMC_RT_OK;
}
