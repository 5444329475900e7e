/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Globs over dotted names (weight_files.h): `*` stays within a part, `**`
 * does not, `{a,b}` is either. Braces are tried one alternative after the
 * other with a budget; stars need no recursion, because only the last `*`
 * behind the last `**` can still be moved to gain anything.
 */
#include <string.h>

#include "frontend/weight_files.h"

#define GLOB_BYTES_MAX 1024
#define BUDGET         4096 /* alternatives that are tried */

/* A place to go back to: pattern behind the star, and the text it would eat up to. */
struct retry {
	const char *glob, *text;
};

/* `**`, or a `*` that ends the glob as `.*`. */
static bool is_deep_star(const char *start, const char *g)
{
	return g[1] == '*' || (g[1] == '\0' && g > start && g[-1] == '.');
}

/* Moves a star one character on; false when it cannot eat that character. */
static bool take_more(struct retry *r, bool deep)
{
	if (r->glob == NULL || *r->text == '\0' || (!deep && *r->text == '.'))
		return false;
	r->text++;
	return true;
}

static bool match_stars(const char *glob, const char *text)
{
	struct retry star = {NULL, NULL}, deep = {NULL, NULL};
	const char *g = glob, *t = text;
	for (;;) {
		if (*g == '*' && is_deep_star(glob, g)) {
			g += g[1] == '*' ? 2 : 1;
			deep = (struct retry){g, t};
			star.glob = NULL;
		} else if (*g == '*') {
			g++;
			star = (struct retry){g, t};
		} else if (*g == *t && *g != '\0') {
			g++;
			t++;
		} else if (*g == '\0' && *t == '\0') {
			return true;
		} else if (take_more(&star, false)) {
			g = star.glob;
			t = star.text;
		} else if (take_more(&deep, true)) {
			g = deep.glob;
			t = deep.text;
			star.glob = NULL;
		} else {
			return false;
		}
	}
}

/* Replaces the first braces by each alternative in turn. */
static bool match_braces(const char *glob, const char *text, unsigned *budget)
{
	const char *open = strchr(glob, '{');
	const char *close = open == NULL ? NULL : strchr(open, '}');
	if (close == NULL)
		return match_stars(glob, text);
	for (const char *alt = open + 1; alt <= close; alt++) {
		char plain[GLOB_BYTES_MAX + 1];
		size_t head = (size_t)(open - glob), n = strcspn(alt, ",}"), tail = strlen(close + 1);
		if (*budget == 0 || head + n + tail > GLOB_BYTES_MAX)
			return false;
		--*budget;
		memcpy(plain, glob, head);
		memcpy(plain + head, alt, n);
		memcpy(plain + head + n, close + 1, tail + 1);
		if (match_braces(plain, text, budget))
			return true;
		alt += n;
	}
	return false;
}

bool weight_glob_match(const char *glob, const char *text)
{
	unsigned budget = BUDGET;
	return strlen(glob) <= GLOB_BYTES_MAX && match_braces(glob, text, &budget);
}
