/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Serialization of sequences: gathers the cache rows of one sequence from the layouts that the record
 * describes, and scatters them back. Everything is checked before the first byte is written: a failed restore
 * leaves the sequence unchanged.
 *
 *   struct saved_header, then for each state in the order of the record its elements, row-major: KV caches
 *   [.., tokens, E], of sliding windows the remaining rows, states of `encode` as a whole if it has run
 *
 * The state has a block for each sequence, and in each block the states (tensors) of the record, whose leading axes
 * are matrices [tokens, E]; matrices of reduced-precision caches may be packed in panels of 16 rows. A fixed part has
 * i32 arrays of all sequences (lengths, marks of `encode`, floors). floor: least length above 0 to which a sliding
 * window can be trimmed, since older rows are overwritten.
 */
#include "tfmc_rt.h"

#include <string.h>

#define SAVED_MAGIC   0x3151455343464d54ull /* "TFMCSEQ1" */
#define SAVED_VERSION 1u
#define PANEL         16u

/* Header of a saved sequence; runtime/README.md has the byte offsets. */
struct saved_header {
	uint64_t magic, version;
	uint64_t bytes; /* total, header included */
	uint64_t state_hash, weights_hash;
	uint64_t tokens, encoded;
	uint64_t n_states;
	uint64_t checksum; /* tfmc_weights_hash over the header with checksum = 0, then the payload */
	uint64_t floor;    /* sliding windows: least length > 0 that trim allows; else 0 */
};

/* One state of one sequence, as consecutive matrices [rows, columns]. */
struct state_layout {
	uint64_t n_matrices, rows, columns; /* rows: capacity */
	uint64_t element_bytes;
	uint64_t matrix_bytes; /* in the state: distance of matrices, padding to whole panels included */
	int panels;            /* a matrix is packed, see copy_panel_row() */
	uint64_t ring; /* rows of a ring buffer, position p in row p mod ring; 0: position p in row p */
};

static const struct tfmc_record_state *state_at(const struct tfmc_record *r, uint64_t i)
{
	return (const struct tfmc_record_state *)(const void *)((const char *)r + r->states) + i;
}

/* Layout of a state in the block of one sequence: axis 0 is the batch, the last two are rows and columns, those
 * between count matrices; rank 2 is one row. A window is a ring of all its rows. matrix_bytes: panels pad the rows
 * to a multiple of 16. */
static struct state_layout layout_of(const struct tfmc_record_state *s)
{
	struct state_layout m = {
	        .n_matrices = 1, .rows = 1, .columns = 1, .element_bytes = tfmc_dtype_bytes(s->dtype)};
	m.panels = s->panels != 0;
	if (s->rank >= 2)
		m.columns = (uint64_t)s->dims[s->rank - 1];
	if (s->rank >= 3)
		m.rows = (uint64_t)s->dims[s->rank - 2];
	for (uint64_t i = 1; i + 2 < s->rank; i++)
		m.n_matrices *= (uint64_t)s->dims[i];
	uint64_t rows = m.panels ? (m.rows + PANEL - 1) / PANEL * PANEL : m.rows;
	m.matrix_bytes = rows * m.columns * m.element_bytes;
	m.ring = s->window ? m.rows : 0;
	return m;
}

/* First position that is saved: of a sliding window, the oldest row that a trim to `floor` would still read: the
 * next query is then at position floor, and sees `window` positions up to its own. */
static uint64_t first_saved_position(const struct tfmc_record_state *s, uint64_t floor)
{
	return s->window && floor >= s->window ? floor - s->window + 1 : 0;
}

/* Number of rows of each matrix that are saved: of a growing state one for each saved position, of a state of
 * `encode` all if it has run. */
static uint64_t saved_rows(const struct tfmc_record_state *s, const struct state_layout *m,
                           const struct saved_header *h)
{
	if (s->grows)
		return h->tokens - first_saved_position(s, h->floor);
	return h->encoded ? m->rows : 0;
}

/* Total size of a saved sequence, header included. */
static uint64_t saved_bytes(const struct tfmc_record *r, const struct saved_header *h)
{
	uint64_t sum = sizeof(*h);
	for (uint64_t i = 0; i < r->n_states; i++) {
		struct state_layout m = layout_of(state_at(r, i));
		sum += m.n_matrices * saved_rows(state_at(r, i), &m, h) * m.columns * m.element_bytes;
	}
	return sum;
}

/* Least length that trim will allow after a restore: the saved one, raised by windows of this object that are too
 * small for all tokens: only the last `rows` positions are there, and a window before them would read overwritten
 * ones. */
static uint64_t restored_floor(const struct tfmc_record *r, const struct saved_header *h)
{
	uint64_t floor = h->floor;
	for (uint64_t i = 0; i < r->n_states; i++) {
		const struct tfmc_record_state *s = state_at(r, i);
		uint64_t rows = layout_of(s).rows;
		if (!s->window || h->tokens <= rows)
			continue;
		uint64_t min = h->tokens - rows + s->window - 1;
		floor = min > floor ? min : floor;
	}
	return floor;
}

/* Checksum of the header, with 0 in its own field, and the payload. */
static uint64_t compute_checksum(const struct saved_header *head, const char *payload)
{
	struct saved_header h = *head;
	struct tfmc_weights_hash hash;
	h.checksum = 0;
	tfmc_weights_hash_begin(&hash);
	tfmc_weights_hash_add(&hash, &h, sizeof(h));
	tfmc_weights_hash_add(&hash, payload, h.bytes - sizeof(h));
	return tfmc_weights_hash_end(&hash);
}

/* ---- copying rows ---- */

/* Copies between one row of packed panels [ceil(rows / 16)][columns][16] and a flat row. */
static void copy_panel_row(const struct state_layout *m, uint64_t row, char *block, char *flat, int is_save)
{
	for (uint64_t c = 0; c < m->columns; c++) {
		char *at = block + ((row / PANEL * m->columns + c) * PANEL + row % PANEL) * m->element_bytes;
		char *to = flat + c * m->element_bytes;
		memcpy(is_save ? to : at, is_save ? at : to, (size_t)m->element_bytes);
	}
}

/* Copies the rows of positions [first, first + n) of one matrix to `flat` if is_save, else from it; a restore into a
 * smaller ring skips the oldest ones. */
static void copy_rows(const struct state_layout *m, uint64_t first, uint64_t n, char *block, char *flat,
                      int is_save)
{
	uint64_t bytes = m->columns * m->element_bytes;
	for (uint64_t i = m->ring && n > m->ring ? n - m->ring : 0; i < n; i++) {
		uint64_t row = m->ring ? (first + i) % m->ring : i;
		char *at = block + row * bytes, *to = flat + i * bytes;
		if (m->panels)
			copy_panel_row(m, row, block, to, is_save);
		else if (bytes)
			memcpy(is_save ? to : at, is_save ? at : to, (size_t)bytes);
	}
}

/*
 * Copies the saved rows of all states of a sequence: from its part of the state (`block`) to the payload (`flat`) if
 * is_save, else back. Saving and restoring share the loops, so that both have one order of rows.
 */
static void copy_states(const struct tfmc_record *r, const struct saved_header *h, char *block, char *flat,
                        int is_save)
{
	for (uint64_t i = 0; i < r->n_states; i++) {
		const struct tfmc_record_state *s = state_at(r, i);
		struct state_layout m = layout_of(s);
		uint64_t rows = saved_rows(s, &m, h), bytes = rows * m.columns * m.element_bytes;
		for (uint64_t k = 0; k < m.n_matrices; k++, flat += bytes) {
			char *at = block + s->offset + k * m.matrix_bytes;
			copy_rows(&m, first_saved_position(s, h->floor), rows, at, flat, is_save);
		}
	}
}

/* Checks record version, existence of the state, and sequence number. */
static int check_sequence(const struct tfmc_record *r, const void *state, int64_t batch, int64_t sequence)
{
	if (r->magic != TFMC_RECORD_MAGIC || r->abi_version != TFMC_ABI_VERSION)
		return TFMC_RT_E_RECORD;
	if (!state || !r->n_states)
		return TFMC_RT_E_STATE;
	return sequence < 0 || sequence >= batch ? TFMC_RT_E_DIM : TFMC_RT_OK;
}

/* Byte offset of a sequence in the state. */
static uint64_t block_offset(const struct tfmc_record *r, int64_t sequence)
{
	return r->state_fixed_bytes + (uint64_t)sequence * r->state_batch_bytes;
}

/* Byte offset of the i32 of a sequence in an array of the fixed part. */
static uint64_t i32_offset(uint64_t offset, int64_t sequence)
{
	return offset + (uint64_t)sequence * sizeof(int32_t);
}

/* Hash of the mapped weights, else of those in the record. */
static uint64_t weights_hash_in_use(const struct tfmc_record *r, const struct tfmc_mapping *weights)
{
	return weights && weights->hash ? weights->hash : r->weights_hash;
}

/* *n_out is the size needed, also when `out` is NULL or too small (E_SIZE). The header comes last, since its
 * checksum is over the payload, too. */
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
	memcpy(&tokens, from + i32_offset(r->past, sequence), sizeof(tokens));
	if (r->encoded)
		memcpy(&encoded, from + i32_offset(r->encoded, sequence), sizeof(encoded));
	if (r->floor)
		memcpy(&floor, from + i32_offset(r->floor, sequence), sizeof(floor));
	struct saved_header h = {.magic = SAVED_MAGIC,
	                         .version = SAVED_VERSION,
	                         .state_hash = r->state_hash,
	                         .weights_hash = weights_hash_in_use(r, weights),
	                         .tokens = (uint64_t)tokens,
	                         .encoded = encoded != 0,
	                         .floor = (uint64_t)floor,
	                         .n_states = r->n_states};
	*n_out = h.bytes = saved_bytes(r, &h);
	if (!out || cap < h.bytes)
		return TFMC_RT_E_SIZE;
	char *payload = (char *)out + sizeof(h);
	copy_states(r, &h, (char *)(uintptr_t)from + block_offset(r, sequence), payload, 1);
	h.checksum = compute_checksum(&h, payload);
	memcpy(out, &h, sizeof(h));
	return TFMC_RT_OK;
}

/* Checks header, checksum, hashes and sizes of a saved sequence of n bytes: E_SAVED damaged or another version,
 * E_MODEL_MISMATCH other states or weights, E_FULL too many tokens for this object. Sizes of states follow from the
 * header, so their sum must be n. */
static int check_saved(const struct tfmc_record *r, uint64_t weights_hash, const struct saved_header *h,
                       const char *payload, uint64_t n)
{
	if (h->magic != SAVED_MAGIC || h->version != SAVED_VERSION || h->bytes != n ||
	    h->checksum != compute_checksum(h, payload))
		return TFMC_RT_E_SAVED;
	if (h->state_hash != r->state_hash || h->weights_hash != weights_hash || h->n_states != r->n_states)
		return TFMC_RT_E_MODEL_MISMATCH;
	if (h->tokens > (r->context_limit ? r->context_limit : (uint64_t)INT32_MAX))
		return TFMC_RT_E_FULL;
	if (h->floor > (r->floor ? h->tokens : 0))
		return TFMC_RT_E_SAVED;
	return h->encoded > (r->encoded != 0) || saved_bytes(r, h) != n ? (int)TFMC_RT_E_SAVED
	                                                                : (int)TFMC_RT_OK;
}

/* Restores what tfmc_state_save() has written. All checks come before the first write (check_saved). The floor may
 * rise: windows of this object may have fewer rows than those of the one that saved. */
int tfmc_state_restore(const struct tfmc_record *record, const struct tfmc_mapping *weights, void *state,
                       int64_t batch, int64_t sequence, const void *data, uint64_t n)
{
	const struct tfmc_record *r = record;
	struct saved_header h;
	char *to = state;
	if (!r)
		return TFMC_RT_E_NULL;
	int status = check_sequence(r, state, batch, sequence);
	if (status != TFMC_RT_OK)
		return status;
	if (!data || n < sizeof(h))
		return TFMC_RT_E_SAVED;
	memcpy(&h, data, sizeof(h));
	const char *payload = (const char *)data + sizeof(h);
	status = check_saved(r, weights_hash_in_use(r, weights), &h, payload, n);
	if (status != TFMC_RT_OK)
		return status;
	int32_t tokens = (int32_t)h.tokens, encoded = (int32_t)h.encoded,
	        floor = (int32_t)restored_floor(r, &h);
	copy_states(r, &h, to + block_offset(r, sequence), (char *)(uintptr_t)payload, 0);
	memcpy(to + i32_offset(r->past, sequence), &tokens, sizeof(tokens));
	if (r->encoded)
		memcpy(to + i32_offset(r->encoded, sequence), &encoded, sizeof(encoded));
	if (r->floor)
		memcpy(to + i32_offset(r->floor, sequence), &floor, sizeof(floor));
	return TFMC_RT_OK;
}
