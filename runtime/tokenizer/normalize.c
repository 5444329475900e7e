/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Normalizers, one after the other from one buffer into the other. Each is
 * linear in its text.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/tokenizer/tok.h"

/* ---- the precompiled map of characters ---- */

static uint32_t chars_offset(uint32_t unit)
{
	return (unit >> 10) << ((unit & 512) >> 6);
}

/* The longest key at s, or the shortest one, and its value; 0: none. */
static size_t find_chars(const struct tfmc_tokenizer *t, const char *s, size_t n, bool shortest,
                         uint32_t *value)
{
	uint32_t node = chars_offset(t->chars.units[0]);
	size_t longest = 0;
	for (size_t i = 0; i < n; i++) {
		unsigned char byte = (unsigned char)s[i];
		node ^= byte;
		if (!byte || node >= t->chars.n || (t->chars.units[node] & 0x800000ffu) != byte)
			break;
		uint32_t unit = t->chars.units[node];
		node ^= chars_offset(unit);
		if (node >= t->chars.n)
			break;
		if (unit >> 8 & 1) {
			longest = i + 1;
			*value = t->chars.units[node] & 0x7fffffffu;
			if (shortest)
				break;
		}
	}
	return longest;
}

/* Text that is copied up to `kept`. */
struct mapping {
	const struct tfmc_tokenizer *t;
	const char *s;
	size_t kept;
	struct tok_text *out;
};

static void put_instead(struct mapping *m, size_t at, size_t n, const char *text)
{
	tok_put(m->out, m->s + m->kept, at - m->kept);
	tok_put(m->out, text, strlen(text)); /* the last text of the map is ended, open.c */
	m->kept = at + n;
}

/* What begins with a key becomes its text as a whole; false: nothing does. */
static bool map_whole(struct mapping *m, size_t at, size_t n)
{
	uint32_t value;
	if (!find_chars(m->t, m->s + at, n, true, &value) || value >= m->t->chars.n_texts)
		return false;
	put_instead(m, at, n, m->t->chars.texts + value);
	return true;
}

static void map_each(struct mapping *m, size_t at, size_t end)
{
	for (size_t len; at < end; at += len) {
		uint32_t cp;
		len = tok_decode(m->s + at, end - at, &cp);
		if (!map_whole(m, at, len) && cp & TOK_INVALID)
			put_instead(m, at, len, "\xef\xbf\xbd");
	}
}

/* Graphemes below 6 bytes are looked up as a whole, the characters of others one by one. */
static void map_graphemes(const struct tfmc_tokenizer *t, const char *s, size_t n, struct tok_text *out)
{
	struct mapping m = {t, s, 0, out};
	for (size_t at = 0; at < n;) {
		/* Printable ASCII before more of it is alone. */
		bool plain = n - at > 1 && s[at] >= ' ' && s[at] < 127 && s[at + 1] >= ' ' && s[at + 1] < 127;
		size_t len = plain ? 1 : tok_grapheme(s + at, n - at);
		if (!(len < 6 && map_whole(&m, at, len)) && !plain)
			map_each(&m, at, at + len);
		at += len;
	}
	tok_put(out, s + m.kept, n - m.kept);
}

/* ---- SentencePiece ---- */

/* What begins at s and becomes `text` as a whole: a token that stays, a key of the map, a character, or a run
 * of such that nothing begins with. */
struct unit {
	size_t len, n;
	const char *text;
};

static struct unit next_unit(const struct tfmc_tokenizer *t, const char *s, size_t n)
{
	uint32_t value = 0, cp;
	bool may_stay = t->norm.n && t->norm.begins[(unsigned char)s[0]];
	size_t len = may_stay ? tok_longest(&t->norm, s, n, &value) : 0;
	if (len)
		return (struct unit){len, len, s};
	len = t->chars.units ? find_chars(t, s, n, false, &value) : 0;
	if (len && value < t->chars.n_texts)
		return (struct unit){len, strlen(t->chars.texts + value), t->chars.texts + value};
	len = tok_decode(s, n, &cp);
	if (t->chars.units && cp & TOK_INVALID)
		return (struct unit){len, 3, "\xef\xbf\xbd"};
	while (!t->chars.units && s[0] != ' ' && len < n && s[len] != ' ' &&
	       !(t->norm.n && t->norm.begins[(unsigned char)s[len]]))
		len++;
	return (struct unit){len, len, s};
}

static void put_marked(const char *s, size_t n, const char *mark, size_t n_mark, struct tok_text *out)
{
	for (size_t at = 0; at < n;) {
		const char *blank = memchr(s + at, ' ', n - at);
		size_t end = blank ? (size_t)(blank - s) : n;
		tok_put(out, s + at, end - at);
		if (blank)
			tok_put(out, mark, n_mark);
		at = end + (blank != NULL);
	}
}

static void sentencepiece(const struct tfmc_tokenizer *t, const struct tfmc_tok_op *op, const char *s,
                          size_t n, struct tok_text *out)
{
	const char *mark = t->texts + op->a;
	bool strips = op->flags & 1, is_begun = false, was_blank = strips;
	for (size_t at = 0; at < n;) {
		struct unit u = next_unit(t, s + at, n - at);
		at += u.len;
		if (!is_begun && op->flags & 2 && !(strips && u.n == 1 && u.text[0] == ' ')) {
			tok_put(out, mark, op->n_a);
			is_begun = true;
		}
		while (was_blank && u.n && u.text[0] == ' ') {
			u.text++;
			u.n--;
		}
		put_marked(u.text, u.n, mark, op->n_a, out);
		was_blank = strips && (u.n ? u.text[u.n - 1] == ' ' : was_blank);
	}
	while (strips && out->n >= op->n_a && !memcmp(out->data + out->n - op->n_a, mark, op->n_a))
		out->n -= op->n_a;
}

/* ---- characters that go or change ---- */

static bool is_cjk(uint32_t cp)
{
	return (cp >= 0x4e00 && cp <= 0x9fff) || (cp >= 0x3400 && cp <= 0x4dbf) ||
	       (cp >= 0x20000 && cp <= 0x2a6df) || (cp >= 0x2a700 && cp <= 0x2b73f) ||
	       (cp >= 0x2b740 && cp <= 0x2b81f) || (cp >= 0x2b920 && cp <= 0x2ceaf) ||
	       (cp >= 0xf900 && cp <= 0xfaff) || (cp >= 0x2f800 && cp <= 0x2fa1f);
}

/* What one character becomes: kept, dropped, a space, itself between spaces. */
enum change { KEEP, DROP, BLANK, SPACED };

static enum change bert_clean(uint32_t cp)
{
	unsigned c = tok_class(cp);
	if (cp == 0 || cp == 0xfffd)
		return DROP;
	if (c & TOK_SPACE)
		return c & TOK_C && cp != '\t' && cp != '\n' && cp != '\r' ? DROP : BLANK;
	return c & TOK_C ? DROP : KEEP;
}

static enum change nmt(uint32_t cp)
{
	if ((cp >= 1 && cp <= 8) || cp == 0xb || (cp >= 0xe && cp <= 0x1f) || cp == 0x7f || cp == 0x8f ||
	    cp == 0x9f)
		return DROP;
	if (cp == 9 || cp == 0xa || cp == 0xc || cp == 0xd || cp == 0x1680 ||
	    (cp >= 0x200b && cp <= 0x200f) || cp == 0x2028 || cp == 0x2029 || cp == 0x2581 || cp == 0xfeff ||
	    cp == 0xfffd)
		return BLANK;
	return KEEP;
}

static enum change change_of(const struct tfmc_tok_op *op, uint32_t cp)
{
	if (op->kind == TFMC_TOK_STRIP_MARKS)
		return tok_class(cp) & (op->flags ? TOK_MN : TOK_M) ? DROP : KEEP;
	if (op->kind == TFMC_TOK_BERT_CJK)
		return is_cjk(cp) ? SPACED : KEEP;
	return op->kind == TFMC_TOK_NMT ? nmt(cp) : bert_clean(cp);
}

static void change_chars(const struct tfmc_tok_op *op, const char *s, size_t n, struct tok_text *out)
{
	size_t kept = 0; /* where what is kept begins */
	for (size_t at = 0; at < n;) {
		uint32_t cp;
		size_t len = tok_decode(s + at, n - at, &cp);
		enum change c = cp - 0x20 < 0x5f ? KEEP : change_of(op, cp);
		if (c != KEEP) {
			tok_put(out, s + kept, at - kept);
			if (c == SPACED)
				tok_put(out, " ", 1);
			if (c == SPACED)
				tok_put(out, s + at, len);
			if (c != DROP)
				tok_put(out, " ", 1);
			kept = at + len;
		}
		at += len;
	}
	tok_put(out, s + kept, n - kept);
}

/* ---- texts ---- */

static void replace(const char *s, size_t n, const char *from, size_t n_from, const char *to, size_t n_to,
                    struct tok_text *out)
{
	size_t kept = 0, at = 0;
	while (n - at >= n_from) {
		const char *hit = memchr(s + at, from[0], n - at - n_from + 1);
		if (!hit)
			break;
		at = (size_t)(hit - s);
		if (memcmp(hit, from, n_from) != 0) {
			at++;
			continue;
		}
		tok_put(out, s + kept, at - kept);
		tok_put(out, to, n_to);
		at += n_from;
		kept = at;
	}
	tok_put(out, s + kept, n - kept);
}

/* Runs of at least `least` spaces, or of white space for 0. */
static void replace_blanks(const char *s, size_t n, uint32_t least, const char *to, size_t n_to,
                           struct tok_text *out)
{
	for (size_t at = 0; at < n;) {
		size_t end = at, count = 0;
		uint32_t cp;
		while (end < n) {
			size_t len = tok_decode(s + end, n - end, &cp);
			if (least ? cp != ' ' : !(tok_class(cp) & TOK_SPACE))
				break;
			end += len;
			count++;
		}
		if (count && count >= least)
			tok_put(out, to, n_to);
		else
			tok_put(out, s + at, end - at);
		at = end;
		size_t from = at;
		while (at < n) {
			size_t len = tok_decode(s + at, n - at, &cp);
			if (least ? cp == ' ' : tok_class(cp) & TOK_SPACE)
				break;
			at += len;
		}
		tok_put(out, s + from, at - from);
	}
}

static void replace_matches(const struct tfmc_tokenizer *t, const struct tfmc_tok_op *op, const char *s,
                            size_t n, struct tok_text *out)
{
	struct tok_ahead ahead = {0};
	size_t kept = 0, at = 0, len;
	while ((at = tok_automaton(t, op, &ahead, s, n, at, &len)) < n) {
		tok_put(out, s + kept, at - kept);
		tok_put(out, t->texts + op->b, op->n_b);
		at += len;
		kept = at;
	}
	tok_put(out, s + kept, n - kept);
	out->failed = out->failed || ahead.failed;
	tok_ahead_end(&ahead);
}

static void strip(const char *s, size_t n, uint32_t sides, struct tok_text *out)
{
	size_t from = 0;
	uint32_t cp;
	while (sides & 1 && from < n) {
		size_t len = tok_decode(s + from, n - from, &cp);
		if (!(tok_class(cp) & TOK_SPACE))
			break;
		from += len;
	}
	while (sides & 2 && n > from) {
		size_t last = tok_before(s + from, n - from);
		tok_decode(s + from + last, n - from - last, &cp);
		if (!(tok_class(cp) & TOK_SPACE))
			break;
		n = from + last;
	}
	tok_put(out, s + from, n - from);
}

static void apply(const struct tfmc_tokenizer *t, const struct tfmc_tok_op *op, const char *s, size_t n,
                  struct tok_text *out)
{
	const char *a = t->texts + op->a, *b = t->texts + op->b;
	switch ((enum tfmc_tok_normalize)op->kind) {
	case TFMC_TOK_NFC: tok_normal_form(TOK_NFC, s, n, out); break;
	case TFMC_TOK_NFD: tok_normal_form(TOK_NFD, s, n, out); break;
	case TFMC_TOK_NFKC: tok_normal_form(TOK_NFKC, s, n, out); break;
	case TFMC_TOK_NFKD: tok_normal_form(TOK_NFKD, s, n, out); break;
	case TFMC_TOK_LOWER: tok_lower(s, n, out); break;
	case TFMC_TOK_REPLACE: replace(s, n, a, op->n_a, b, op->n_b, out); break;
	case TFMC_TOK_REPLACE_BLANKS: replace_blanks(s, n, op->flags, a, op->n_a, out); break;
	case TFMC_TOK_PREPEND:
		if (n)
			tok_put(out, a, op->n_a);
		tok_put(out, s, n);
		break;
	case TFMC_TOK_SENTENCEPIECE: sentencepiece(t, op, s, n, out); break;
	case TFMC_TOK_REPLACE_PATTERN: replace_matches(t, op, s, n, out); break;
	case TFMC_TOK_STRIP: strip(s, n, op->flags, out); break;
	case TFMC_TOK_CHARS:
		if (t->chars.units)
			map_graphemes(t, s, n, out);
		else
			tok_put(out, s, n);
		break;
	case TFMC_TOK_STRIP_MARKS:
	case TFMC_TOK_BERT_CLEAN:
	case TFMC_TOK_BERT_CJK:
	case TFMC_TOK_NMT: change_chars(op, s, n, out); break;
	case TFMC_TOK_N_NORMALIZE: break;
	}
}

const char *tok_normalize(struct tok_run *r, const char *s, size_t n, size_t *out_n)
{
	for (uint32_t i = 0; i < r->t->normalize.n; i++) {
		struct tok_text *out = &r->normal[i % 2];
		size_t most = r->normal_most;
		tok_begin_text(out, most);
		apply(r->t, &r->t->normalize.items[i], s, n, out);
		tok_end_text(r, out, i + 1 == r->t->normalize.n ? &r->normal_most : &most);
		s = out->data ? out->data : "";
		n = out->n;
	}
	*out_n = n;
	return s;
}
