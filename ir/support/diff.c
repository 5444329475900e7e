/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Myers' algorithm in linear space: the middle of a shortest edit path splits both texts, and the parts are compared
 * recursively. Lines that are not on a diagonal of the path are marked as changed; then the hunks follow from the
 * marks. Invariant: the unmarked lines of both texts are equal, in order. A path goes over points (i, k): i lines of
 * the first text and k of the second are behind it. A change moves it to a neighbouring diagonal, equal lines along
 * one.
 */
#include "ir/support/diff.h"

#include <string.h>

#include "ir/support/arena.h"
#include "ir/support/strmap.h"

#define CONTEXT_LINES 3

struct line {
	const char *text;
	size_t len;
	uint64_t hash;
};
struct lines {
	struct line *items;
	size_t n;
	bool *changed; /* [n] */
};

struct differ {
	struct arena arena;
	struct lines a, b;
	ptrdiff_t *down, *up; /* furthest reaching paths by diagonal, from the begin and from the end */
	ptrdiff_t zero;       /* index of diagonal 0 */
};

/* Lines [a0, a1) of the first text against [b0, b1) of the second. */
struct box {
	ptrdiff_t a0, a1, b0, b1;
};

/* Splits t at newlines into hashed lines, none marked as changed. False without memory. */
static bool split_lines(struct arena *arena, const struct diff_text *t, struct lines *out)
{
	size_t n = 0, at = 0;
	for (size_t i = 0; i < t->len; i++)
		n += t->text[i] == '\n' || i + 1 == t->len;
	/* one more than needed: the arena returns NULL for 0 elements */
	*out = (struct lines){.items = ARENA_ARRAY(arena, struct line, n + 1),
	                      .changed = ARENA_ARRAY(arena, bool, n + 1)};
	if (arena_failed(arena))
		return false;
	while (at < t->len) {
		const char *end = memchr(t->text + at, '\n', t->len - at);
		size_t len = end != NULL ? (size_t)(end - (t->text + at)) : t->len - at;
		out->items[out->n++] = (struct line){t->text + at, len, hash_bytes64(1, t->text + at, len)};
		at += len + 1;
	}
	memset(out->changed, 0, (n + 1) * sizeof(bool));
	return true;
}

static bool equal_lines(const struct differ *d, ptrdiff_t i, ptrdiff_t k)
{
	const struct line *x = &d->a.items[i], *y = &d->b.items[k];
	return x->hash == y->hash && x->len == y->len && memcmp(x->text, y->text, x->len) == 0;
}

/* ---- the middle of a shortest path ---- */

#define NEVER PTRDIFF_MAX /* up: no path of this length; -NEVER for down */

static bool inside(const struct box *x, ptrdiff_t i, ptrdiff_t k)
{
	return i >= x->a0 && i <= x->a1 && k >= x->b0 && k <= x->b1;
}

/* The furthest line of the first text that is reached on diagonal k with `depth` changes from the beginning: an
 * added line keeps i and comes from diagonal k + 1, a removed one increases i and comes from k - 1; then equal
 * lines. -NEVER: no such path stays inside of the box. */
static ptrdiff_t step_down(const struct differ *d, const struct box *x, ptrdiff_t k, ptrdiff_t depth)
{
	const ptrdiff_t *v = d->down + d->zero;
	ptrdiff_t shift = x->b0 - x->a0 - k; /* from a line of the first text to one of the second */
	ptrdiff_t i = depth == 0 ? x->a0 : -NEVER;
	if (k < depth && v[k + 1] != -NEVER && inside(x, v[k + 1], v[k + 1] + shift))
		i = v[k + 1];
	if (k > -depth && v[k - 1] != -NEVER && v[k - 1] + 1 > i &&
	    inside(x, v[k - 1] + 1, v[k - 1] + 1 + shift))
		i = v[k - 1] + 1;
	while (i != -NEVER && i < x->a1 && i + shift < x->b1 && equal_lines(d, i, i + shift))
		i++;
	return i;
}

/* The furthest line of the first text that is reached backward on diagonal k with `depth` changes from the end; as
 * step_down with all directions reversed, NEVER if there is none. */
static ptrdiff_t step_up(const struct differ *d, const struct box *x, ptrdiff_t k, ptrdiff_t depth)
{
	const ptrdiff_t *v = d->up + d->zero;
	ptrdiff_t shift = x->b1 - x->a1 - k;
	ptrdiff_t i = depth == 0 ? x->a1 : NEVER;
	if (k > -depth && v[k - 1] != NEVER && inside(x, v[k - 1], v[k - 1] + shift))
		i = v[k - 1];
	if (k < depth && v[k + 1] != NEVER && v[k + 1] - 1 < i &&
	    inside(x, v[k + 1] - 1, v[k + 1] - 1 + shift))
		i = v[k + 1] - 1;
	while (i != NEVER && i > x->a0 && i + shift > x->b0 && equal_lines(d, i - 1, i + shift - 1))
		i--;
	return i;
}

/* Searches forward and backward in turn until both reach the same diagonal: a point of a shortest path, lines of the
 * first text in *ai, of the second in *bi. Diagonals are counted from the corner that a search begins at; delta is
 * the distance of the corners. By parity the searches meet in a forward step if delta is odd, else in a backward
 * one. */
static void find_middle(struct differ *d, const struct box *x, ptrdiff_t *ai, ptrdiff_t *bi)
{
	ptrdiff_t delta = (x->a1 - x->a0) - (x->b1 - x->b0), *down = d->down + d->zero, *up = d->up + d->zero;
	for (ptrdiff_t depth = 0;; depth++) {
		for (ptrdiff_t k = -depth; k <= depth; k += 2) {
			down[k] = step_down(d, x, k, depth);
			ptrdiff_t other = k - delta;
			if (delta % 2 == 0 || other <= -depth || other >= depth || down[k] < up[other])
				continue;
			*ai = down[k];
			*bi = *ai - x->a0 - k + x->b0;
			return;
		}
		for (ptrdiff_t k = -depth; k <= depth; k += 2) {
			up[k] = step_up(d, x, k, depth);
			ptrdiff_t other = k + delta;
			if (delta % 2 != 0 || other < -depth || other > depth || down[other] < up[k])
				continue;
			*ai = up[k];
			*bi = *ai - x->a1 - k + x->b1;
			return;
		}
	}
}

/* Marks the lines of the box that are not on the shortest edit path: skips equal lines at both ends, then splits
 * at the middle of the path. Each level halves the number of differences, so the depth of the recursion is
 * logarithmic. */
static void compare(struct differ *d, struct box x)
{
	while (x.a0 < x.a1 && x.b0 < x.b1 && equal_lines(d, x.a0, x.b0)) {
		x.a0++;
		x.b0++;
	}
	while (x.a0 < x.a1 && x.b0 < x.b1 && equal_lines(d, x.a1 - 1, x.b1 - 1)) {
		x.a1--;
		x.b1--;
	}
	if (x.a0 == x.a1 || x.b0 == x.b1) {
		for (ptrdiff_t i = x.a0; i < x.a1; i++)
			d->a.changed[i] = true;
		for (ptrdiff_t i = x.b0; i < x.b1; i++)
			d->b.changed[i] = true;
		return;
	}
	ptrdiff_t i, k;
	find_middle(d, &x, &i, &k);
	compare(d, (struct box){x.a0, i, x.b0, k});
	compare(d, (struct box){i, x.a1, k, x.b1});
}

/* ---- hunks ---- */

/* Lines [a0, a1) and [b0, b1), with context. */
struct hunk {
	size_t a0, a1, b0, b1;
};

/* Advances (i, k) over the change that begins there. */
static void skip_change(const struct differ *d, size_t *i, size_t *k)
{
	while (*i < d->a.n && d->a.changed[*i])
		(*i)++;
	while (*k < d->b.n && d->b.changed[*k])
		(*k)++;
}

/* The hunk of the next change at or after (i, k); false if there is none. A hunk ends after more than twice the
 * context of equal lines, since the context of both changes would touch before; equal lines advance in both texts. */
static bool next_hunk(const struct differ *d, size_t i, size_t k, struct hunk *out)
{
	while (i < d->a.n && k < d->b.n && !d->a.changed[i] && !d->b.changed[k]) {
		i++;
		k++;
	}
	if (i >= d->a.n && k >= d->b.n)
		return false;
	size_t before = i < CONTEXT_LINES ? i : CONTEXT_LINES;
	*out = (struct hunk){.a0 = i - before, .b0 = k - before};
	for (size_t equal = 0; equal <= 2 * CONTEXT_LINES;) {
		size_t from_i = i, from_k = k;
		skip_change(d, &i, &k);
		if (i != from_i || k != from_k) {
			equal = 0;
			out->a1 = i;
			out->b1 = k;
		}
		if (i >= d->a.n || k >= d->b.n)
			break;
		i++;
		k++;
		equal++;
	}
	size_t after = d->a.n - out->a1 < CONTEXT_LINES ? d->a.n - out->a1 : CONTEXT_LINES;
	out->a1 += after;
	out->b1 += after;
	return true;
}

static void put_line(struct buf *out, char sign, const struct line *l)
{
	buf_char(out, sign);
	buf_bytes(out, l->text, l->len);
	buf_char(out, '\n');
}

/* The last line before the hunk that is not indented, empty or a closing brace, as diff -p shows the function. */
static void put_section(struct buf *out, const struct lines *l, size_t at)
{
	while (at > 0 && (l->items[at - 1].len == 0 || strchr(" \t}", l->items[at - 1].text[0]) != NULL))
		at--;
	if (at > 0) {
		buf_char(out, ' ');
		buf_bytes(out, l->items[at - 1].text, l->items[at - 1].len);
	}
}

/* Appends the header `@@ -from,count +from,count @@ section` and the lines of a hunk, in a run of changes the
 * removed ones first. */
static void put_hunk(struct buf *out, const struct differ *d, const struct hunk *h)
{
	size_t i = h->a0, k = h->b0, n = h->a1 - h->a0, m = h->b1 - h->b0;
	/* lines count from 1; an empty range is named by the line before it */
	buf_printf(out, "@@ -%zu,%zu +%zu,%zu @@", n > 0 ? i + 1 : i, n, m > 0 ? k + 1 : k, m);
	put_section(out, &d->a, h->a0);
	buf_char(out, '\n');
	while (i < h->a1 || k < h->b1) {
		if (i < h->a1 && d->a.changed[i]) {
			put_line(out, '-', &d->a.items[i++]);
		} else if (k < h->b1 && d->b.changed[k]) {
			put_line(out, '+', &d->b.items[k++]);
		} else {
			put_line(out, ' ', &d->a.items[i++]);
			k++;
		}
	}
}

/* Paths have at most a.n + b.n changes, so diagonals reach from -(a.n + b.n) to a.n + b.n, and steps look at one
 * more on each side. */
bool diff_unified(struct buf *out, const struct diff_text *before, const struct diff_text *after)
{
	struct differ d = {0};
	struct hunk h;
	bool any = false;

	arena_init(&d.arena);
	bool ok = split_lines(&d.arena, before, &d.a) && split_lines(&d.arena, after, &d.b);
	size_t diagonals = 2 * (d.a.n + d.b.n) + 5;
	d.zero = (ptrdiff_t)(d.a.n + d.b.n + 2);
	d.down = ARENA_ARRAY(&d.arena, ptrdiff_t, diagonals);
	d.up = ARENA_ARRAY(&d.arena, ptrdiff_t, diagonals);
	ok = ok && !arena_failed(&d.arena);
	if (ok)
		compare(&d, (struct box){0, (ptrdiff_t)d.a.n, 0, (ptrdiff_t)d.b.n});
	for (size_t i = 0, k = 0; ok && next_hunk(&d, i, k, &h); i = h.a1, k = h.b1) {
		if (!any)
			buf_printf(out, "--- %s\n+++ %s\n", before->name, after->name);
		any = true;
		put_hunk(out, &d, &h);
	}
	arena_destroy(&d.arena);
	return ok;
}
