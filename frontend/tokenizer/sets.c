/* SPDX-License-Identifier: Apache-2.0 */
/* Character sets as sorted ranges; named sets by Unicode properties. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "frontend/tokenizer/pattern.h"

bool pattern_set_add(struct arena *a, struct pattern_set *s, uint32_t from, uint32_t to)
{
	return ARENA_ADDED(a, s, (struct pattern_range){from, to});
}

bool pattern_set_union(struct arena *a, struct pattern_set *s, const struct pattern_set *other)
{
	for (size_t i = 0; i < other->n; i++)
		if (!pattern_set_add(a, s, other->items[i].from, other->items[i].to))
			return false;
	return true;
}

static int compare(const void *pa, const void *pb)
{
	const struct pattern_range *a = pa, *b = pb;
	return a->from < b->from ? -1 : a->from > b->from;
}

void pattern_set_normalize(struct pattern_set *s)
{
	size_t n = 0;
	if (s->n > 1)
		qsort(s->items, s->n, sizeof(*s->items), compare);
	for (size_t i = 0; i < s->n; i++) {
		struct pattern_range r = s->items[i];
		if (n == 0 || r.from > s->items[n - 1].to + 1)
			s->items[n++] = r;
		else if (r.to > s->items[n - 1].to)
			s->items[n - 1].to = r.to;
	}
	s->n = n;
}

bool pattern_set_complement(struct arena *a, struct pattern_set *s)
{
	struct pattern_set out = {0};
	uint32_t from = 0;
	for (size_t i = 0; i < s->n; i++) {
		if (s->items[i].from > from && !pattern_set_add(a, &out, from, s->items[i].from - 1))
			return false;
		from = s->items[i].to + 1;
	}
	if (from <= PATTERN_CHAR_LAST && !pattern_set_add(a, &out, from, PATTERN_CHAR_LAST))
		return false;
	*s = out;
	return true;
}

bool pattern_set_intersect(struct arena *a, struct pattern_set *s, const struct pattern_set *other)
{
	struct pattern_set out = {0};
	for (size_t i = 0, k = 0; i < s->n && k < other->n;) {
		struct pattern_range x = s->items[i], y = other->items[k];
		uint32_t from = x.from > y.from ? x.from : y.from, to = x.to < y.to ? x.to : y.to;
		if (from <= to && !pattern_set_add(a, &out, from, to))
			return false;
		if (x.to < y.to)
			i++;
		else
			k++;
	}
	*s = out;
	return true;
}

bool pattern_set_has(const struct pattern_set *s, uint32_t cp)
{
	size_t low = 0, high = s->n;
	while (low < high) {
		size_t mid = (low + high) / 2;
		if (s->items[mid].to < cp)
			low = mid + 1;
		else
			high = mid;
	}
	return low < s->n && s->items[low].from <= cp;
}

bool pattern_set_fold(struct arena *a, struct pattern_set *s)
{
	static const uint32_t folds[][2] = {{'s', 0x17f}, {'k', 0x212a}};
	if (s->n && s->items[s->n - 1].to > 0x7f)
		return false;
	struct pattern_set old = *s;
	*s = (struct pattern_set){0};
	bool ok = pattern_set_union(a, s, &old);
	for (uint32_t c = 'a'; ok && c <= 'z'; c++) {
		uint32_t upper = c - 32;
		if (!pattern_set_has(&old, c) && !pattern_set_has(&old, upper))
			continue;
		ok = pattern_set_add(a, s, c, c) && pattern_set_add(a, s, upper, upper);
		for (size_t i = 0; ok && i < TFMC_COUNT(folds); i++)
			ok = folds[i][0] != c || pattern_set_add(a, s, folds[i][1], folds[i][1]);
	}
	pattern_set_normalize(s);
	return ok;
}

/* ---- names ---- */

static const char categories[][3] = {"Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd",
                                     "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm",
                                     "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};

/* Computes the runs of equal categories over all characters. */
static bool compute_runs(struct arena *a, struct pattern_runs *runs)
{
	for (uint32_t cp = 0; runs->n == 0 || cp < PATTERN_CHAR_LAST; cp++) {
		unsigned category = (unsigned)utf8proc_category((utf8proc_int32_t)cp);
		struct pattern_run *r = runs->n ? &runs->items[runs->n - 1] : NULL;
		if (r == NULL || r->category != category) {
			r = ARENA_PUSH(a, runs);
			if (r == NULL)
				return false;
			*r = (struct pattern_run){cp, cp, category};
		}
		r->to = cp;
	}
	return true;
}

/* Adds characters whose category has its bit in the mask. */
static bool add_categories(struct arena *a, struct pattern_runs *runs, struct pattern_set *s, uint32_t mask)
{
	bool ok = runs->n || compute_runs(a, runs);
	for (size_t i = 0; ok && i < runs->n; i++)
		if (mask >> runs->items[i].category & 1)
			ok = pattern_set_add(a, s, runs->items[i].from, runs->items[i].to);
	return ok;
}

/* Bits of the categories whose name begins with `name` (L, Lu, ..); 0: none. */
static uint32_t category_mask(const char *name, size_t n)
{
	uint32_t mask = 0;
	for (uint32_t i = 0; n && n <= 2 && i < TFMC_COUNT(categories); i++)
		mask |= memcmp(categories[i], name, n) == 0 ? 1u << i : 0u;
	return mask;
}

/* Script Han. */
static const struct pattern_range han[] = {
        {0x2e80, 0x2e99},   {0x2e9b, 0x2ef3},   {0x2f00, 0x2fd5},   {0x3005, 0x3005},   {0x3007, 0x3007},
        {0x3021, 0x3029},   {0x3038, 0x303b},   {0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfa6d},
        {0xfa70, 0xfad9},   {0x16fe2, 0x16fe3}, {0x16ff0, 0x16ff1}, {0x20000, 0x2a6df}, {0x2a700, 0x2b739},
        {0x2b740, 0x2b81d}, {0x2b820, 0x2cea1}, {0x2ceb0, 0x2ebe0}, {0x2ebf0, 0x2ee5d}, {0x2f800, 0x2fa1d},
        {0x30000, 0x3134a}, {0x31350, 0x323af},
};

bool pattern_set_property(struct arena *a, struct pattern_runs *runs, struct pattern_set *s, const char *name,
                          size_t n)
{
	uint32_t mask = category_mask(name, n);
	bool ok = true;
	if (mask)
		return add_categories(a, runs, s, mask);
	if (n != 3 || memcmp(name, "Han", 3) != 0)
		return false;
	for (size_t i = 0; ok && i < TFMC_COUNT(han); i++)
		ok = pattern_set_add(a, s, han[i].from, han[i].to);
	return ok;
}

bool pattern_set_class(struct arena *a, struct pattern_runs *runs, struct pattern_set *s, char name)
{
	static const struct pattern_range space[] = {{9, 13}, {0x85, 0x85}};
	static const struct pattern_range word[] = {{0xb2, 0xb3},      {0xb9, 0xb9},       {0xbc, 0xbe},
	                                            {0x24b6, 0x24e9},  {0x1f130, 0x1f149}, {0x1f150, 0x1f169},
	                                            {0x1f170, 0x1f189}};
	static const struct pattern_range hex[] = {{'0', '9'}, {'A', 'F'}, {'a', 'f'}};
	const struct pattern_range *more = name == 's' ? space : name == 'w' ? word : hex;
	size_t n = name == 's'   ? TFMC_COUNT(space)
	           : name == 'w' ? TFMC_COUNT(word)
	           : name == 'h' ? TFMC_COUNT(hex)
	                         : 0;
	uint32_t mask = name == 's'   ? category_mask("Z", 1)
	                : name == 'd' ? category_mask("Nd", 2)
	                : name == 'w'
	                        ? category_mask("L", 1) | category_mask("M", 1) | category_mask("Nd", 2) |
	                                  category_mask("Nl", 2) | category_mask("Pc", 2)
	                        : 0;
	bool ok = name == 'h' || (mask && add_categories(a, runs, s, mask));
	for (size_t i = 0; ok && i < n; i++)
		ok = pattern_set_add(a, s, more[i].from, more[i].to);
	if (ok)
		pattern_set_normalize(s);
	return ok;
}
