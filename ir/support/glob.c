/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Glob matching. Brace alternatives are expanded one after the other, with a budget against exponential patterns.
 * Stars need no recursion: on a mismatch it suffices to extend the last star.
 */
#include "ir/support/glob.h"

#include <string.h>

#define BUDGET 4096 /* alternatives that are tried */

/* Matches all of the text against a pattern without braces. `star` is the last star, `from` the text after what it
 * matches so far: on a mismatch it takes one character more. Earlier stars stay: what they could take, the last one
 * can take. */
static bool match_stars(const char *glob, const char *text)
{
	const char *star = NULL, *from = NULL;
	while (*text != '\0') {
		if (*glob == '*') {
			star = glob++;
			from = text;
		} else if (*glob == '?' || *glob == *text) {
			glob++;
			text++;
		} else if (star != NULL) {
			glob = star + 1;
			text = ++from;
		} else {
			return false;
		}
	}
	return glob[strspn(glob, "*")] == '\0';
}

/* Matches with the first braces replaced by each alternative in turn (`alt` runs over them, the comma or brace after
 * it is skipped by the loop), recursively. False, too, when the budget is used up or the expanded pattern is too
 * long. */
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

bool glob_match(const char *glob, const char *text)
{
	unsigned budget = BUDGET;
	return strlen(glob) <= GLOB_BYTES_MAX && match_braces(glob, text, &budget);
}
