/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of the values of a function. The ops are traversed in order of execution, iteration by iteration, so names
 * come in that order. The last value below a path has the name of the step with this path. A repeat that was split
 * into several loops has their iterations in its path (ir_path_range), which names do not contain.
 */
#include "passes/graph/probe.h"

#include <stdlib.h>
#include <string.h>

#include "ir/core/cost.h"

#define MAX_REPEATS 32 /* regions are at most 16 deep */

/* Paths of the repeats around a region, outermost first. Returns their number. */
static size_t repeat_paths(const struct ir_region *r, const char *paths[MAX_REPEATS])
{
	size_t n = 0;
	for (; r && n < MAX_REPEATS; r = r->parent)
		if (r->owner && r->owner->code == OP_repeat)
			paths[n++] = r->owner->loc.path;
	for (size_t i = 0; i < n / 2; i++) {
		const char *inner = paths[i];
		paths[i] = paths[n - 1 - i];
		paths[n - 1 - i] = inner;
	}
	return n;
}

/* Inserts `.iteration` after the path of each repeat that is a prefix of `path`, in place of the range of its
 * loop. done: bytes of `path` that are copied already. A repeat whose path is no prefix appends its iteration
 * at the end. */
static const char *insert_iterations(struct arena *arena, const char *path, const char *const *paths,
                                     const int64_t *at, size_t n)
{
	const char *text = "";
	size_t total = strlen(path), done = 0;
	for (size_t i = 0; i < n; i++) {
		int64_t first, step;
		size_t k = paths[i] ? strlen(paths[i]) : 0;
		bool inside = k && k >= done && k < total && path[k] == '.' && !strncmp(path, paths[i], k);
		size_t to = inside ? k : total, range = ir_path_range(path + to, &first, &step);
		text = arena_printf(arena, "%s%.*s.%lld", text, (int)(to - done), path + done,
		                    (long long)(first + step * at[i]));
		done = to + range;
	}
	return arena_printf(arena, "%s%.*s", text, done < total ? (int)(total - done) : 0, path + done);
}

const char *probe_path(struct arena *arena, const char *path, const struct ir_region *region,
                       const int64_t *at, size_t n_at)
{
	const char *paths[MAX_REPEATS];
	size_t n = repeat_paths(region, paths);
	return insert_iterations(arena, path, paths, at, n < n_at ? n : n_at);
}

/* ---- weights ---- */

/* An operand of the weight op is the index of the repeat, argument REPEAT_INDEX of its region: the weight is one of
 * a stack, selected by iteration. */
static bool is_selected_by(const struct ir_func *f, const struct ir_op *weight, const struct ir_op *repeat)
{
	for (size_t i = 0; i < weight->n_operands; i++) {
		struct ir_value v = weight->operands[i];
		const struct ir_region *r = ir_value_info(f, v)->region;
		if (!ir_def(f, v) && r && r->owner == repeat && ir_value_info(f, v)->index == REPEAT_INDEX)
			return true;
	}
	return false;
}

/* Length of a name without ".rows0_63". */
static size_t parameter_length(const char *name)
{
	const char *rows = strstr(name, ".rows");
	return rows && strspn(rows + 5, "0123456789") > 0 ? (size_t)(rows - name) : strlen(name);
}

/* Collects the selecting repeats from the innermost region outward, then reverses them: paths are outermost
 * first. */
const char *probe_weight_path(struct arena *arena, const struct ir_func *f, const struct ir_op *weight,
                              const struct ir_region *region, const int64_t *at, size_t n_at)
{
	const char *paths[MAX_REPEATS], *used[MAX_REPEATS];
	const char *name = ((const struct attrs_weight *)weight->attrs)->weight->name;
	int64_t indices[MAX_REPEATS];
	size_t n = repeat_paths(region, paths), k = 0, i = n;
	for (const struct ir_region *r = region; r && i > 0; r = r->parent) {
		if (!r->owner || r->owner->code != OP_repeat)
			continue;
		i--;
		if (i < n_at && is_selected_by(f, weight, r->owner)) {
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
	return name ? insert_iterations(arena, name, used, indices, k) : NULL;
}

#define MAX_MOMENTS ((size_t)1 << 19)
#define MAX_DEPTH   32

/* The execution of a site in one iteration. */
struct moment {
	size_t site;
	int64_t iteration;
	const char *path; /* with iterations; "" if the op has none */
};

struct name_lister {
	const struct probe_request *q;
	const struct ir_func *f;
	struct probe_sites *sites;
	struct probe_names *names;
	size_t *first_site; /* [n_values] first site of the op with this first result, plus 1 */
	struct {
		struct moment *items;
		size_t n, cap;
	} moments;
	struct strmap steps;      /* path -> its last moment, plus 1 */
	struct strmap attentions; /* name of an attention -> the number of the last one of that name */
	int64_t at[MAX_DEPTH];
};

/* ---- sites ---- */

/* The result of op can be probed: one float tensor that the op computes, no constant; a view only if it has a
 * name. */
static bool has_value(const struct ir_func *f, const struct ir_op *op)
{
	if (op->n_results != 1 || op->region || ir_op_has(op->code, TRAIT_CONST) ||
	    ir_op_has(op->code, TRAIT_STATEFUL))
		return false;
	const struct ir_type *t = ir_type_of(f, op->results[0]);
	bool is_float =
	        t->kind == IR_TENSOR && (t->dtype == DT_F32 || t->dtype == DT_F16 || t->dtype == DT_BF16);
	return is_float && (!ir_op_has(op->code, TRAIT_VIEW) || ir_value_info(f, op->results[0])->name);
}

/*
 * Name of a value within its step: its own, or that of its op. "x" is the residual stream of all steps, not a
 * name.
 */
static const char *local_name(const struct ir_func *f, const struct ir_op *op)
{
	const char *name = ir_value_info(f, op->results[0])->name;
	return name && *name && strcmp(name, "x") ? name : ir_op_desc(op->code)->name;
}

/* Adds a site; a second one of the same path and name becomes NAME.2. */
static void add_site(struct name_lister *l, struct strmap *counts, struct probe_site site)
{
	struct arena *a = l->q->arena;
	const char *path = site.op->loc.path ? site.op->loc.path : "";
	const char *key = arena_printf(a, "%s\n%s", path, site.name);
	size_t *count = strmap_get(counts, key);
	if (!count) {
		count = ARENA_NEW(a, size_t);
		if (!count || !strmap_set(counts, key, count))
			return;
	}
	if (++*count > 1)
		site.name = arena_printf(a, "%s.%zu", site.name, *count);
	struct probe_site *slot = ARENA_PUSH(a, l->sites);
	if (!slot)
		return;
	*slot = site;
	size_t *first = &l->first_site[site.op->results[0].id];
	*first = *first ? *first : l->sites->n;
}

/* Lists the sites of a region and of the repeats in it; an attention has two, its weights and its result. */
static void find_sites(struct name_lister *l, const struct ir_region *r, size_t depth)
{
	struct strmap counts;
	strmap_init(&counts, l->q->arena);
	for (size_t i = 0; i < r->n_ops; i++) {
		const struct ir_op *op = r->ops[i];
		struct probe_site site = {.op = op, .depth = depth};
		if (op->code == OP_repeat)
			find_sites(l, op->region, depth + 1);
		if (op->code == OP_attention) {
			site.part = PROBE_PROBABILITIES;
			site.name = "weights";
			add_site(l, &counts, site);
			site.part = PROBE_RESULT;
		}
		if (l->q->attentions || !has_value(l->f, op))
			continue;
		site.name = local_name(l->f, op);
		add_site(l, &counts, site);
	}
}

/* ---- moments ---- */

/* Makes this moment the last one of its step and of all enclosing steps: h.0.attn, h.0, h. */
static void note_steps(struct name_lister *l, const char *path, size_t moment)
{
	struct arena *a = l->q->arena;
	for (size_t n = strlen(path); n > 0; n--)
		if ((path[n] == 0 || path[n] == '.') &&
		    !strmap_set(&l->steps, arena_strndup(a, path, n), (void *)(uintptr_t)(moment + 1)))
			return;
}

/* Records the execution of a site in the current iteration. Probabilities do not end a step: they are not its
 * result. */
static void note_moment(struct name_lister *l, size_t number, int64_t iteration)
{
	const struct probe_site *site = &l->sites->items[number];
	const struct ir_region *region = ir_value_info(l->f, site->op->results[0])->region;
	const char *path = site->op->loc.path;
	struct moment *m = ARENA_PUSH(l->q->arena, &l->moments);
	if (!m)
		return;
	*m = (struct moment){.site = number, .iteration = iteration, .path = ""};
	if (path && *path)
		m->path = probe_path(l->q->arena, path, region, l->at, site->depth);
	if (site->part == PROBE_RESULT && *m->path)
		note_steps(l, m->path, l->moments.n - 1);
}

/* Traverses a region in order of execution and records its sites. False: too many. Regions are less deep than
 * MAX_DEPTH. */
static bool trace_region(struct name_lister *l, const struct ir_region *r, size_t depth, int64_t iteration)
{
	for (size_t i = 0; i < r->n_ops; i++) {
		const struct ir_op *op = r->ops[i];
		size_t n = op->n_results ? l->first_site[op->results[0].id] : 0;
		for (; n && n <= l->sites->n && l->sites->items[n - 1].op == op; n++)
			note_moment(l, n - 1, iteration);
		if (l->moments.n > MAX_MOMENTS)
			return false;
		int64_t count = op->code == OP_repeat ? ((const struct attrs_repeat *)op->attrs)->count : 0;
		for (int64_t k = 0; k < count && depth < MAX_DEPTH; k++) {
			size_t before = l->moments.n;
			l->at[depth] = k;
			if (!trace_region(l, op->region, depth + 1, iteration * count + k))
				return false;
			if (l->moments.n == before)
				break; /* no sites inside: skip the other iterations */
		}
	}
	return true;
}

/* ---- names ---- */

static void add_name(struct name_lister *l, const char *name, size_t moment)
{
	ARENA_ADD(l->q->arena, l->names,
	          (struct probe_name){.name = name,
	                              .site = l->moments.items[moment].site,
	                              .moment = moment,
	                              .iteration = l->moments.items[moment].iteration});
}

/* Adds the name of an attention: its step's path, or that of its value in text without paths; a further one of the same
 * name becomes NAME.2. */
static void name_attention(struct name_lister *l, size_t moment)
{
	const struct moment *m = &l->moments.items[moment];
	const struct probe_site *site = &l->sites->items[m->site];
	const char *plain = *m->path ? m->path : local_name(l->f, site->op), *name = plain;
	if (!*m->path && site->depth)
		name = plain = arena_printf(l->q->arena, "%s.%lld", plain, (long long)m->iteration);
	size_t number = (size_t)(uintptr_t)strmap_get(&l->attentions, plain) + 1; /* 1: the first */
	for (; strmap_has(&l->attentions, name) && !arena_failed(l->q->arena); number++)
		name = arena_printf(l->q->arena, "%s.%zu", plain, number);
	(void)strmap_set(&l->attentions, name, (void *)(uintptr_t)1);
	(void)strmap_set(&l->attentions, plain, (void *)(uintptr_t)(number > 1 ? number - 1 : 1));
	add_name(l, name, moment);
}

/* Adds the name of a moment: PATH.NAME, or NAME alone in text without paths. The last moment of a step has the name
 * of the step, which probe_list adds from l->steps. Without paths a value in a repeat gets the flattened iteration.
 */
static void name_moment(struct name_lister *l, size_t moment)
{
	const struct moment *m = &l->moments.items[moment];
	const struct probe_site *site = &l->sites->items[m->site];
	if (l->q->attentions)
		name_attention(l, moment);
	else if (*m->path && strmap_get(&l->steps, m->path) != (void *)(uintptr_t)(moment + 1))
		add_name(l, arena_printf(l->q->arena, "%s.%s", m->path, site->name), moment);
	else if (!*m->path && !site->depth)
		add_name(l, site->name, moment);
	else if (!*m->path)
		add_name(l, arena_printf(l->q->arena, "%s.%lld", site->name, (long long)m->iteration),
		         moment);
}

/* Order of execution; names of one value: longest first (the step itself, then the steps that end with it). */
static int by_moment(const void *a, const void *b)
{
	const struct probe_name *x = a, *y = b;
	if (x->moment != y->moment)
		return x->moment < y->moment ? -1 : 1;
	size_t n = strlen(x->name), k = strlen(y->name);
	return n != k ? (n > k ? -1 : 1) : strcmp(x->name, y->name);
}

/* The names of steps are added from the last moments of l.steps, then those of the other values; sorting brings both
 * into the order of execution. */
enum tfmc_status probe_list(const struct probe_request *q, const struct ir_func *f, struct probe_sites *sites,
                            struct probe_names *names)
{
	struct name_lister l = {.q = q, .f = f, .sites = sites, .names = names};
	l.first_site = ARENA_ARRAY(q->arena, size_t, f->n_values + 1);
	strmap_init(&l.steps, q->arena);
	strmap_init(&l.attentions, q->arena);
	if (!l.first_site)
		return TFMC_NO_MEMORY;
	find_sites(&l, f->body, 0);
	if (!trace_region(&l, f->body, 0, 0)) {
		diag_error(q->cx, f->loc.at, DIAG_UNSUPPORTED,
		           "not supported yet: probes of function %s, which computes more than %zu values",
		           f->name, MAX_MOMENTS);
		return TFMC_INVALID;
	}
	for (size_t i = 0; !q->attentions && i < l.steps.n; i++)
		add_name(&l, l.steps.items[i].key, (size_t)(uintptr_t)l.steps.items[i].value - 1);
	for (size_t i = 0; i < l.moments.n; i++)
		name_moment(&l, i);
	if (arena_failed(q->arena))
		return TFMC_NO_MEMORY;
	if (names->n)
		qsort(names->items, names->n, sizeof(*names->items), by_moment);
	return TFMC_OK;
}
