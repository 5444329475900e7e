/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Build-time generator: writes the Unicode tables of libtfmctok from libutf8proc, so that none is typed in
 * and the library depends on nothing. Two-stage tables of 256-character blocks: category, record index.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define CODES   0x110000
#define BLOCK   256
#define BLOCKS  (CODES / BLOCK)
#define SEQ_MAX 32

struct record {
	int lower;                            /* 0: unchanged */
	int canon, n_canon, compat, n_compat; /* offsets in the pool; n 0: no decomposition */
	int ccc, flags;
};

struct tables {
	struct record *records;
	int n_records;
	int *pool, n_pool;
	unsigned short *record_of; /* [CODES] */
	int (*pairs)[3];           /* first, second, composed; sorted, for the library's binary search */
	int n_pairs;
};

/* Number of characters of the full decomposition; 0: the character is its own. */
static int decompose(int cp, int compat, utf8proc_int32_t *out)
{
	int last = 0;
	utf8proc_option_t options = UTF8PROC_DECOMPOSE | (compat ? UTF8PROC_COMPAT : 0);
	utf8proc_ssize_t n = utf8proc_decompose_char(cp, out, SEQ_MAX, options, &last);
	if (n < 1 || n > SEQ_MAX)
		exit(1);
	return n == 1 && out[0] == cp ? 0 : (int)n;
}

/* Decomposes (canonically, or by compatibility) and composes n code points; returns the number of code points of the
 * result. `out` has room for the decomposition, which composition never lengthens. */
static int compose(const utf8proc_int32_t *in, int n, int compat, utf8proc_int32_t *out)
{
	utf8proc_int32_t all[4 * SEQ_MAX];
	int at = 0;
	for (int i = 0; i < n; i++) {
		int last = 0;
		at += (int)utf8proc_decompose_char(
		        in[i], all + at, SEQ_MAX, UTF8PROC_DECOMPOSE | (compat ? UTF8PROC_COMPAT : 0), &last);
	}
	at = (int)utf8proc_normalize_utf32(all, at, UTF8PROC_COMPOSE | UTF8PROC_STABLE);
	memcpy(out, all, (size_t)at * sizeof(*out));
	return at;
}

static int is_hangul(int cp)
{
	return cp >= 0xac00 && cp < 0xac00 + 11172;
}

/* Adds the pair of the canonical composition of cp, if that gives cp back (a primary composite). utf8proc decomposes
 * fully, so composing all but the last part yields the first of the pair. */
static void add_pair(struct tables *t, int cp)
{
	utf8proc_int32_t one = cp, whole[SEQ_MAX], parts[SEQ_MAX], first[4 * SEQ_MAX];
	int n = decompose(cp, 0, parts);
	if (n < 2 || is_hangul(cp) || compose(&one, 1, 0, whole) != 1 || whole[0] != cp)
		return;
	if (compose(parts, n - 1, 0, first) != 1)
		exit(1);
	t->pairs[t->n_pairs][0] = first[0];
	t->pairs[t->n_pairs][1] = parts[n - 1];
	t->pairs[t->n_pairs++][2] = cp;
}

/* True: the character may be the second of a composing pair, so that one before it may change it. Hangul is
 * computed. */
static int is_second(const struct tables *t, int cp)
{
	for (int i = 0; i < t->n_pairs; i++)
		if (t->pairs[i][1] == cp)
			return 1;
	return (cp >= 0x1161 && cp <= 0x1175) || (cp >= 0x11a8 && cp <= 0x11c2); /* medial, final Jamo */
}

static int put_sequence(struct tables *t, const utf8proc_int32_t *seq, int n)
{
	int at = t->n_pool;
	for (int i = 0; i < n; i++)
		t->pool[t->n_pool++] = seq[i];
	return at;
}

/* Set of normalization forms (bits of enum tok_form) that never change this character, alone or after others: marks
 * may move, seconds of pairs may vanish. */
static int inert_forms(const struct tables *t, int cp, const struct record *r)
{
	utf8proc_int32_t one = cp, out[4 * SEQ_MAX];
	int moves = r->ccc != 0, second = moves || is_second(t, cp);
	int c = !second && compose(&one, 1, 0, out) == 1 && out[0] == cp;
	int kc = !second && compose(&one, 1, 1, out) == 1 && out[0] == cp;
	int d = !moves && !r->n_canon && !is_hangul(cp), kd = !moves && !r->n_compat && !is_hangul(cp);
	return c | d << 1 | kc << 2 | kd << 3;
}

/* Sets the record of a character. Records without sequences and lower case are shared: they are most, and a record's
 * index has 16 bits. */
static void add_code(struct tables *t, int cp)
{
	utf8proc_int32_t seq[SEQ_MAX];
	struct record r = {0};
	int lower = utf8proc_tolower(cp);
	/* U+0130 is the only character with two characters in lower case. */
	r.lower = cp == 0x130 ? -1 : lower != cp ? lower : 0;
	r.ccc = utf8proc_get_property(cp)->combining_class;
	if (!is_hangul(cp)) {
		r.n_canon = decompose(cp, 0, seq);
		r.canon = r.n_canon ? put_sequence(t, seq, r.n_canon) : 0;
		r.n_compat = decompose(cp, 1, seq);
		r.compat = r.n_compat ? put_sequence(t, seq, r.n_compat) : 0;
	}
	r.flags = inert_forms(t, cp, &r);
	for (int i = 0; i < t->n_records && !r.lower && !r.n_canon && !r.n_compat; i++) {
		if (!memcmp(&t->records[i], &r, sizeof(r))) {
			t->record_of[cp] = (unsigned short)i;
			return;
		}
	}
	t->record_of[cp] = (unsigned short)t->n_records;
	t->records[t->n_records++] = r;
}

/* Prints a table as an index of distinct blocks of 256 characters. */
static void print_two_stage_table(const char *name, const char *type,
                                  int (*value)(const struct tables *, int), const struct tables *t)
{
	static int blocks[BLOCKS][BLOCK];
	int n = 0, index[BLOCKS];
	for (int b = 0; b < BLOCKS; b++) {
		int now[BLOCK], at = 0;
		for (int i = 0; i < BLOCK; i++)
			now[i] = value(t, b * BLOCK + i);
		while (at < n && memcmp(blocks[at], now, sizeof(now)) != 0)
			at++;
		if (at == n)
			memcpy(blocks[n++], now, sizeof(now));
		index[b] = at;
	}
	printf("const uint16_t tok_%s_index[%d] = {", name, BLOCKS);
	for (int b = 0; b < BLOCKS; b++)
		printf("%d,", index[b]);
	printf("};\nconst %s tok_%s_blocks[] = {\n", type, name);
	for (int b = 0; b < n; b++) {
		for (int i = 0; i < BLOCK; i++)
			printf("%d,", blocks[b][i]);
		printf("\n");
	}
	printf("};\n");
}

/* Categories as in utf8proc, and 30 for control characters that are white space. */
static int value_category(const struct tables *t, int cp)
{
	(void)t;
	return (cp >= 9 && cp <= 13) || cp == 0x85 ? 30 : (int)utf8proc_category(cp);
}

/* Grapheme cluster break class, by utf8proc's values. */
static int value_break_class(const struct tables *t, int cp)
{
	(void)t;
	return (int)utf8proc_get_property(cp)->boundclass;
}

static int value_record(const struct tables *t, int cp)
{
	return t->record_of[cp];
}

static int compare_pairs(const void *a, const void *b)
{
	const int *x = a, *y = b;
	if (x[0] != y[0])
		return x[0] < y[0] ? -1 : 1;
	return x[1] < y[1] ? -1 : x[1] > y[1];
}

/* Prints the records, the pool of sequences, and the composing pairs. A record has room for one character in lower
 * case: U+0130 (lower < 0) gets i here, and tok_append_lower appends its second one, U+0307. */
static void print_records(const struct tables *t)
{
	printf("const struct tok_record tok_records[] = {\n");
	for (int i = 0; i < t->n_records; i++) {
		const struct record *r = &t->records[i];
		printf("{%d,%d,%d,%d,%d,%d,%d},\n", r->lower < 0 ? 0x69 : r->lower, r->canon, r->compat,
		       r->n_canon, r->n_compat, r->ccc, r->flags);
	}
	printf("};\nconst uint32_t tok_pool[] = {");
	for (int i = 0; i < t->n_pool; i++)
		printf("%d,", t->pool[i]);
	printf("0};\nconst struct tok_compose tok_composes[] = {\n");
	for (int i = 0; i < t->n_pairs; i++)
		printf("{%d,%d,%d},\n", t->pairs[i][0], t->pairs[i][1], t->pairs[i][2]);
	printf("};\nconst uint32_t tok_n_composes = %d;\n", t->n_pairs);
}

/* Fills all tables; 0: no memory, or more records than a u16 index can address. */
static int fill_tables(struct tables *t)
{
	t->records = calloc(CODES, sizeof(*t->records));
	t->pool = calloc((size_t)4 * CODES, sizeof(*t->pool)); /* ample: few characters decompose */
	t->record_of = calloc(CODES, sizeof(*t->record_of));
	t->pairs = calloc(CODES, sizeof(*t->pairs));
	if (!t->records || !t->pool || !t->record_of || !t->pairs)
		return 0;
	for (int cp = 0; cp < CODES; cp++)
		if (cp < 0xd800 || cp > 0xdfff) /* surrogates are no characters */
			add_pair(t, cp);
	qsort(t->pairs, (size_t)t->n_pairs, sizeof(*t->pairs), compare_pairs);
	/* after all pairs: a record tells whether its character is the second of any */
	for (int cp = 0; cp < CODES; cp++)
		if (cp < 0xd800 || cp > 0xdfff)
			add_code(t, cp);
	return t->n_records <= 65535;
}

static void print_all(const struct tables *t)
{
	printf("/* Written by unicode_gen from libutf8proc %s, Unicode %s. */\n", utf8proc_version(),
	       utf8proc_unicode_version());
	printf("#include \"runtime/tokenizer/unicode.h\"\n");
	print_two_stage_table("category", "uint8_t", value_category, t);
	print_two_stage_table("bound", "uint8_t", value_break_class, t);
	print_two_stage_table("record", "uint16_t", value_record, t);
	print_records(t);
}

int main(void)
{
	struct tables t = {0};
	int ok = fill_tables(&t);
	if (ok)
		print_all(&t);
	free(t.records);
	free(t.pool);
	free(t.record_of);
	free(t.pairs);
	return !ok || ferror(stdout) || fflush(stdout) != 0;
}
