/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of values: paths with the indices of repeats, and patterns. A repeat that was
 * cut into several loops has the rounds of each in its path ("layers.0_3"), which
 * are no part of a name.
 */
#include <string.h>

#include "ir/support/number.h"
#include "passes/probe/probe.h"

#define MAX_ROUNDS 32 /* regions are at most 16 deep */

/* Paths of the repeats around a region, the outermost first; their number. */
static size_t repeat_paths(const struct ir_region *r, const char *paths[MAX_ROUNDS])
{
	size_t n = 0;
	for (; r && n < MAX_ROUNDS; r = r->parent)
		if (r->owner && r->owner->code == OP_repeat)
			paths[n++] = r->owner->loc.path;
	for (size_t i = 0; i < n / 2; i++) {
		const char *inner = paths[i];
		paths[i] = paths[n - 1 - i];
		paths[n - 1 - i] = inner;
	}
	return n;
}

/* Bytes of ".3_5" at the begin of a path: the rounds of a loop that is a part of a repeat; 0: none.
 * *first: 3. */
static size_t label_length(const char *path, int64_t *first)
{
	size_t low = path[0] == '.' ? strspn(path + 1, "0123456789") : 0;
	size_t high = low && path[1 + low] == '_' ? strspn(path + 2 + low, "0123456789") : 0;
	char end = high ? path[2 + low + high] : 'x';
	*first = 0;
	if ((end != '.' && end) || !number_parse_i64(path + 1, low, first))
		return 0;
	return 2 + low + high;
}

static const char *with_indices(struct arena *arena, const char *path, const char *const *paths,
                                const int64_t *at, size_t n)
{
	const char *text = "";
	size_t total = strlen(path), done = 0;
	for (size_t i = 0; i < n; i++) {
		int64_t first;
		size_t k = paths[i] ? strlen(paths[i]) : 0;
		bool inside = k && k >= done && k < total && path[k] == '.' && !strncmp(path, paths[i], k);
		size_t to = inside ? k : total, label = label_length(path + to, &first);
		text = arena_printf(arena, "%s%.*s.%lld", text, (int)(to - done), path + done,
		                    (long long)(at[i] + (label ? first : 0)));
		done = to + label;
	}
	return arena_printf(arena, "%s%.*s", text, done < total ? (int)(total - done) : 0, path + done);
}

const char *probe_path(struct arena *arena, const char *path, const struct ir_region *region,
                       const int64_t *at, size_t n_at)
{
	const char *paths[MAX_ROUNDS];
	size_t n = repeat_paths(region, paths);
	return with_indices(arena, path, paths, at, n < n_at ? n : n_at);
}

/* ---- weights ---- */

/* Whether the weight is chosen by the index of the repeat. */
static bool uses_index(const struct ir_func *f, const struct ir_op *weight, const struct ir_op *repeat)
{
	for (size_t i = 0; i < weight->n_operands; i++) {
		struct ir_value v = weight->operands[i];
		const struct ir_region *r = ir_value_info(f, v)->region;
		if (!ir_def(f, v) && r && r->owner == repeat && ir_value_info(f, v)->index == REPEAT_INDEX)
			return true;
	}
	return false;
}

/* Bytes of a name before ".rows0_63". */
static size_t parameter_length(const char *name)
{
	const char *rows = strstr(name, ".rows");
	return rows && strspn(rows + 5, "0123456789") > 0 ? (size_t)(rows - name) : strlen(name);
}

const char *probe_weight_path(struct arena *arena, const struct ir_func *f, const struct ir_op *weight,
                              const struct ir_region *region, const int64_t *at, size_t n_at)
{
	const char *paths[MAX_ROUNDS], *used[MAX_ROUNDS];
	const char *name = ((const struct attrs_weight *)weight->attrs)->weight->name;
	int64_t indices[MAX_ROUNDS];
	size_t n = repeat_paths(region, paths), k = 0, i = n;
	for (const struct ir_region *r = region; r && i > 0; r = r->parent) {
		if (!r->owner || r->owner->code != OP_repeat)
			continue;
		i--;
		if (i < n_at && uses_index(f, weight, r->owner)) {
			used[k] = paths[i];
			indices[k++] = at[i];
		}
	}
	for (i = 0; i < k / 2; i++) {
		const char *path = used[i];
		int64_t index = indices[i];
		used[i] = used[k - 1 - i];
		indices[i] = indices[k - 1 - i];
		used[k - 1 - i] = path;
		indices[k - 1 - i] = index;
	}
	name = arena_strndup(arena, name, parameter_length(name));
	return name ? with_indices(arena, name, used, indices, k) : NULL;
}
