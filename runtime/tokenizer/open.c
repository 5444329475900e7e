/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening a packed tokenizer: validates every offset, size and id once, so that encoding only checks the
 * transitions of double arrays. Functions that open a section return false if it is malformed.
 *
 * A packed tokenizer is a header and sections (arrays), see format.h. `single` is the token of each byte, `raw` and
 * `norm` the tries of added tokens. Its fields refer to sections by offset, so nothing is copied.
 */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/tokenizer/tok.h"

const char *tfmc_tokenizer_status_text(int status)
{
	switch (status) {
	case TFMC_TOKENIZER_OK: return "ok";
	case TFMC_TOKENIZER_E_NULL: return "a required pointer is null";
	case TFMC_TOKENIZER_E_FORMAT: return "the bytes are not a packed tokenizer, or are damaged";
	case TFMC_TOKENIZER_E_VERSION: return "the tokenizer was packed for another version of the library";
	case TFMC_TOKENIZER_E_ALIGN: return "memory is not aligned to 8 bytes";
	case TFMC_TOKENIZER_E_MEMORY: return "no memory";
	case TFMC_TOKENIZER_E_FILE: return "the file cannot be read";
	case TFMC_TOKENIZER_E_ID: return "no token has this id";
	case TFMC_TOKENIZER_E_STOPPED: return "a callback returned nonzero";
	case TFMC_TOKENIZER_E_GROWTH:
		return "normalizers make the text longer than the limit of 32 bytes for each of its bytes, "
		       "and 64 KiB";
	default: return "unknown status";
	}
}

/* ---- sections ---- */

static const void *section(const struct tfmc_tokenizer *t, enum tfmc_tok_section_kind kind, uint64_t *bytes)
{
	*bytes = t->head->sections[kind].bytes;
	return t->data + t->head->sections[kind].offset;
}

/* Checks that all sections are aligned and inside of the data. */
static bool sections_fit(const struct tfmc_tokenizer *t, uint64_t bytes)
{
	for (unsigned i = 0; i < TFMC_TOK_N_SECTIONS; i++) {
		const struct tfmc_tok_section *s = &t->head->sections[i];
		if (s->offset % TFMC_TOK_ALIGN || s->offset < sizeof(*t->head) || s->offset > bytes ||
		    s->bytes > bytes - s->offset)
			return false;
	}
	return true;
}

static bool is_id_or_none(const struct tfmc_tokenizer *t, uint32_t id)
{
	return id == TFMC_TOK_NONE || id < t->head->n_tokens;
}

/* Opens pieces, flags and scores: offsets ascend, sizes agree, so that tfmc_tokenizer_piece needs no check. Only
 * Unigram has scores. */
static bool open_tokens(struct tfmc_tokenizer *t)
{
	uint64_t n = t->head->n_tokens, bytes, n_pieces;
	t->offsets = section(t, TFMC_TOK_OFFSETS, &bytes);
	t->pieces = section(t, TFMC_TOK_PIECES, &n_pieces);
	if (n == 0 || n > TFMC_TOK_TOKENS_MAX || bytes != (n + 1) * 4 || t->offsets[n] != n_pieces)
		return false;
	for (uint64_t i = 0; i < n; i++)
		if (t->offsets[i] > t->offsets[i + 1])
			return false;
	t->flags = section(t, TFMC_TOK_FLAGS, &bytes);
	if (bytes != n)
		return false;
	for (uint64_t i = 0; i < n; i++)
		if (t->flags[i] & TFMC_TOK_F_UNKNOWN && t->head->unknown >= n)
			return false;
	t->scores = section(t, TFMC_TOK_SCORES, &bytes);
	return bytes == (t->head->model == TFMC_TOK_UNIGRAM ? 8 * n : 0);
}

/* Opens a trie and precomputes its first bytes; node indices are checked while walking. */
static bool open_trie(const struct tfmc_tokenizer *t, enum tfmc_tok_section_kind kind, struct tok_trie *out)
{
	uint64_t bytes;
	out->nodes = section(t, kind, &bytes);
	if (bytes % sizeof(*out->nodes) || bytes / sizeof(*out->nodes) >= TFMC_TOK_NONE)
		return false;
	out->n = (uint32_t)(bytes / sizeof(*out->nodes));
	for (unsigned b = 0; out->n && b < 256; b++) {
		uint32_t node = 0;
		out->begins[b] = tok_trie_step(out, &node, (unsigned char)b);
	}
	return true;
}

/* Opens the hash table of merges: a power of two of slots, of which one in four at least must be empty, so that probing
 * terminates soon. An empty section sets pair_mask 0, by which find_pair knows that there are no slots. */
static bool open_pairs(struct tfmc_tokenizer *t)
{
	uint64_t bytes, n, taken = 0;
	t->pairs = section(t, TFMC_TOK_PAIRS, &bytes);
	n = bytes / sizeof(*t->pairs);
	if (bytes % sizeof(*t->pairs) || n > UINT32_MAX / 2 || (n & (n - 1)))
		return false;
	for (uint64_t i = 0; i < n; i++) {
		const struct tfmc_tok_pair *p = &t->pairs[i];
		if (p->left == TFMC_TOK_NONE)
			continue;
		if (p->left >= t->head->n_tokens || p->right >= t->head->n_tokens ||
		    p->id >= t->head->n_tokens)
			return false;
		taken++;
	}
	t->pair_mask = n ? (uint32_t)(n - 1) : 0;
	return n == 0 || (n >= 4 && taken <= n - n / 4);
}

/* Opens added tokens and single-byte tokens (256 ids, or none); byte-level models need the latter. */
static bool open_added(struct tfmc_tokenizer *t)
{
	uint64_t bytes;
	t->added = section(t, TFMC_TOK_ADDED, &bytes);
	t->n_added = (uint32_t)(bytes / sizeof(*t->added));
	if (bytes % sizeof(*t->added) || bytes > UINT32_MAX)
		return false;
	for (uint32_t i = 0; i < t->n_added; i++)
		if (t->added[i].id >= t->head->n_tokens)
			return false;
	const uint32_t *single = section(t, TFMC_TOK_SINGLE, &bytes);
	if (bytes != 0 && bytes != 1024)
		return false;
	t->single = bytes ? single : NULL;
	for (unsigned i = 0; t->single && i < 256; i++)
		if (!is_id_or_none(t, t->single[i]))
			return false;
	return !(t->head->flags & TFMC_TOK_H_BYTE_LEVEL) || t->single;
}

static bool string_fits(uint64_t at, uint64_t n, uint64_t bytes)
{
	return at <= bytes && n <= bytes - at;
}

/* Checks kind, operands and flags of an operation; texts: bytes of TEXTS. Patterns (automata) are checked as a whole,
 * strings that are searched for are not empty. */
static bool op_fits(const struct tfmc_tokenizer *t, const struct tfmc_tok_op *op, bool is_split,
                    uint64_t text_bytes)
{
	bool is_pattern = op->kind ==
	                  (is_split ? (uint32_t)TFMC_TOK_MATCH_PATTERN : (uint32_t)TFMC_TOK_REPLACE_PATTERN);
	bool needs_a = is_split ? op->kind == TFMC_TOK_MATCH_TEXT || op->kind == TFMC_TOK_METASPACE
	                        : op->kind == TFMC_TOK_REPLACE || op->kind == TFMC_TOK_SENTENCEPIECE;
	bool matches = is_split && op->kind <= TFMC_TOK_MATCH_PATTERN;
	return op->kind < (is_split ? (uint32_t)TFMC_TOK_N_SPLIT : (uint32_t)TFMC_TOK_N_NORMALIZE) &&
	       string_fits(op->a, op->n_a, text_bytes) && string_fits(op->b, op->n_b, text_bytes) &&
	       (!needs_a || op->n_a) &&
	       (!matches || (op->flags & TFMC_TOK_BEHAVIOR_MASK) < TFMC_TOK_N_BEHAVIORS) &&
	       (!is_pattern || tok_automaton_is_valid(t->texts + op->a, op->a, op->n_a));
}

/* Opens the strings and the operations of normalizers and splitters. */
static bool open_ops(struct tfmc_tokenizer *t)
{
	uint64_t bytes, text_bytes;
	t->texts = section(t, TFMC_TOK_TEXTS, &text_bytes);
	for (int is_split = 0; is_split < 2; is_split++) {
		const struct tfmc_tok_op *ops =
		        section(t, is_split ? TFMC_TOK_SPLIT : TFMC_TOK_NORMALIZE, &bytes);
		uint64_t n = bytes / sizeof(*ops);
		if (bytes % sizeof(*ops) || n > TFMC_TOK_OPS_MAX)
			return false;
		for (uint64_t i = 0; i < n; i++)
			if (!op_fits(t, &ops[i], is_split, text_bytes))
				return false;
		*(is_split ? &t->split : &t->normalize) = (struct tok_ops){ops, (uint32_t)n};
	}
	t->mark = t->texts + t->head->mark;
	t->prefix = t->texts + t->head->prefix;
	return string_fits(t->head->mark, t->head->n_mark, text_bytes) &&
	       string_fits(t->head->prefix, t->head->n_prefix, text_bytes);
}

/* Opens the templates for one text (the first n_single items) and for a pair (the others). */
static bool open_template(struct tfmc_tokenizer *t)
{
	uint64_t bytes;
	t->items = section(t, TFMC_TOK_TEMPLATE, &bytes);
	if (bytes % sizeof(*t->items) || bytes / sizeof(*t->items) > TFMC_TOK_ITEMS_MAX)
		return false;
	t->n_items = (uint32_t)(bytes / sizeof(*t->items));
	for (uint32_t i = 0; i < t->n_items; i++)
		if (t->items[i].kind > TFMC_TOK_TOKEN ||
		    (t->items[i].kind == TFMC_TOK_TOKEN && t->items[i].id >= t->head->n_tokens))
			return false;
	return t->head->n_single <= t->n_items;
}

/* Opens the character map of SentencePiece: the bytes of a double array (u32), the array, then strings of which the
 * last one is terminated, so that each offset begins a terminated string. No section: no map. */
static bool open_chars(struct tfmc_tokenizer *t)
{
	uint64_t bytes;
	uint32_t trie;
	const unsigned char *data = section(t, TFMC_TOK_CHARSMAP, &bytes);
	if (bytes == 0)
		return true;
	if (bytes < 4 || bytes > UINT32_MAX)
		return false;
	memcpy(&trie, data, 4);
	if (trie % 4 || trie > bytes - 4 || trie == 0 || data[bytes - 1] != 0 || bytes - 4 - trie == 0)
		return false;
	t->chars.units = (const void *)(data + 4);
	t->chars.n = trie / 4;
	t->chars.texts = (const char *)data + 4 + trie;
	t->chars.n_texts = (uint32_t)(bytes - 4 - trie);
	return true;
}

/* Checks the scalar fields of the header. WordPiece must have an unknown token, since its words may have no pieces. */
static bool head_fits(const struct tfmc_tokenizer *t)
{
	const struct tfmc_tok_header *h = t->head;
	bool ok = h->model <= TFMC_TOK_WORDLEVEL && is_id_or_none(t, h->unknown) &&
	          is_id_or_none(t, h->bos) && is_id_or_none(t, h->eos) && is_id_or_none(t, h->pad) &&
	          is_id_or_none(t, h->mask);
	if (h->model == TFMC_TOK_WORDPIECE)
		ok = ok && h->unknown != TFMC_TOK_NONE && h->word_max >= 1;
	return ok && h->unknown_score == h->unknown_score;
}

/* Validates sections and ids; returns a status. The header comes first, then the checksum, before anything is read by
 * offsets; then the tokens, with whose number all other ids are compared. `bytes` may be more than the header's: a
 * second tokenizer may follow. */
static int tok_open_sections(struct tfmc_tokenizer *t, uint64_t bytes)
{
	const struct tfmc_tok_header *h = t->head;
	uint64_t skip = offsetof(struct tfmc_tok_header, model);
	if (bytes < sizeof(*h) || h->magic != TFMC_TOK_MAGIC)
		return TFMC_TOKENIZER_E_FORMAT;
	if (h->version != TFMC_TOK_VERSION || h->n_sections != TFMC_TOK_N_SECTIONS)
		return TFMC_TOKENIZER_E_VERSION;
	bool ok = h->bytes <= bytes && h->bytes >= sizeof(*h) && h->bytes % TFMC_TOK_ALIGN == 0;
	ok = ok && h->checksum == tfmc_tok_checksum(t->data + skip, h->bytes - skip);
	ok = ok && sections_fit(t, h->bytes) && open_tokens(t) && head_fits(t) && open_ops(t);
	ok = ok && open_trie(t, TFMC_TOK_TRIE, &t->trie) && open_trie(t, TFMC_TOK_RAW_TRIE, &t->raw) &&
	     open_trie(t, TFMC_TOK_NORM_TRIE, &t->norm);
	ok = ok && open_pairs(t) && open_added(t) && open_template(t) && open_chars(t);
	return ok ? TFMC_TOKENIZER_OK : TFMC_TOKENIZER_E_FORMAT;
}

/* ---- opening ---- */

int tfmc_tokenizer_open(const void *data, uint64_t bytes, struct tfmc_tokenizer **out)
{
	if (!data || !out)
		return TFMC_TOKENIZER_E_NULL;
	*out = NULL;
	if ((uintptr_t)data % 8)
		return TFMC_TOKENIZER_E_ALIGN;
	struct tfmc_tokenizer *t = calloc(1, sizeof(*t));
	if (!t)
		return TFMC_TOKENIZER_E_MEMORY;
	t->data = data;
	t->head = data;
	int status = tok_open_sections(t, bytes);
	if (status != TFMC_TOKENIZER_OK)
		tfmc_tokenizer_close(t);
	else
		*out = t;
	return status;
}

/* The target's tokenizer follows the source's in the same bytes; a model with one has it for both. */
int tfmc_tokenizer_open_target(const void *data, uint64_t bytes, struct tfmc_tokenizer **out)
{
	const struct tfmc_tok_header *first = data;
	int status = tfmc_tokenizer_open(data, bytes, out);
	if (status != TFMC_TOKENIZER_OK || first->bytes == bytes)
		return status;
	tfmc_tokenizer_close(*out);
	return tfmc_tokenizer_open((const char *)data + first->bytes, bytes - first->bytes, out);
}

/* E_FILE: no regular file that can be read. O_NONBLOCK: does not wait at a FIFO. */
int tfmc_tokenizer_open_file(const char *path, struct tfmc_tokenizer **out)
{
	struct stat st;
	void *data = MAP_FAILED;
	if (!path || !out)
		return TFMC_TOKENIZER_E_NULL;
	*out = NULL;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0)
		data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (fd >= 0)
		close(fd);
	if (data == MAP_FAILED)
		return TFMC_TOKENIZER_E_FILE;
	int status = tfmc_tokenizer_open(data, (uint64_t)st.st_size, out);
	if (status != TFMC_TOKENIZER_OK) {
		munmap(data, (size_t)st.st_size);
		return status;
	}
	(*out)->mapped = data;
	(*out)->mapped_bytes = (uint64_t)st.st_size;
	return status;
}

void tfmc_tokenizer_close(struct tfmc_tokenizer *t)
{
	if (t && t->mapped)
		munmap(t->mapped, (size_t)t->mapped_bytes);
	free(t);
}

/* ---- queries ---- */

int32_t tfmc_tokenizer_size(const struct tfmc_tokenizer *t)
{
	return t ? (int32_t)t->head->n_tokens : 0;
}

int tfmc_tokenizer_is_bare(const struct tfmc_tokenizer *t)
{
	return t && (t->head->flags & TFMC_TOK_H_BARE) != 0;
}

const char *tfmc_tokenizer_piece(const struct tfmc_tokenizer *t, int32_t id, uint64_t *bytes)
{
	if (!t || !bytes || id < 0 || (uint32_t)id >= t->head->n_tokens)
		return NULL;
	*bytes = t->offsets[id + 1] - t->offsets[id];
	return t->pieces + t->offsets[id];
}

int tfmc_tokenizer_is_special(const struct tfmc_tokenizer *t, int32_t id)
{
	return t && id >= 0 && (uint32_t)id < t->head->n_tokens && (t->flags[id] & TFMC_TOK_F_SPECIAL) != 0;
}

/* *value is that of the longest key that s begins with, or unset where 0 is returned. */
size_t tok_trie_longest(const struct tok_trie *t, const char *s, size_t n, uint32_t *value)
{
	uint32_t node = 0;
	size_t longest = 0;
	for (size_t i = 0; t->n && i < n && tok_trie_step(t, &node, (unsigned char)s[i]); i++)
		if (tok_trie_value(t, node, value))
			longest = i + 1;
	return longest;
}

/* Value of exactly this key; false: no such key. */
static bool trie_find(const struct tok_trie *t, const char *s, uint64_t n, uint32_t *value)
{
	uint32_t node = 0;
	for (uint64_t i = 0; i < n; i++)
		if (!t->n || !tok_trie_step(t, &node, (unsigned char)s[i]))
			return false;
	return t->n && tok_trie_value(t, node, value);
}

/* A run for the normalizers alone: it has no cache and no ids, and only its two buffers are freed. */
int tfmc_tokenizer_normalize(const struct tfmc_tokenizer *t, const char *text, uint64_t bytes, char *out,
                             uint64_t cap, uint64_t *n)
{
	struct tok_run r = {.t = t};
	size_t len;
	if (!t || (!text && bytes) || (!out && cap) || !n)
		return TFMC_TOKENIZER_E_NULL;
	tok_set_output_limits(&r, bytes);
	const char *s = tok_normalize(&r, text, (size_t)bytes, &len);
	*n = len;
	if (!r.failed && len && cap)
		memcpy(out, s, len < cap ? len : (size_t)cap);
	free(r.normal[0].data);
	free(r.normal[1].data);
	return tok_status(&r);
}

/* Added tokens come first, as in encoding. */
int32_t tfmc_tokenizer_find(const struct tfmc_tokenizer *t, const char *piece, uint64_t bytes)
{
	uint32_t value;
	if (!t || (!piece && bytes))
		return -1;
	if (trie_find(&t->raw, piece, bytes, &value) || trie_find(&t->norm, piece, bytes, &value))
		return value < t->n_added ? (int32_t)t->added[value].id : -1;
	if (trie_find(&t->trie, piece, bytes, &value))
		return value < t->head->n_tokens ? (int32_t)value : -1;
	return -1;
}
