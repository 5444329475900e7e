/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Union-find and backtracking search (shrink_sizes.h). Each connected component of constraints is searched
 * separately: the smallest unassigned size first, small values first, with constraint propagation. If the search
 * fails or exceeds its steps, the component keeps its old sizes.
 */
#include "passes/pipeline/shrink_sizes.h"

#include <string.h>

#include "ir/support/checked.h"

#define SEARCH_STEPS   8000 /* assignments of a component; also bounds the recursion */
#define CANDIDATES_MAX 24
#define FREE_LEAST     5 /* of an unconstrained size */

void sizes_init(struct sizes *s, struct arena *arena)
{
	*s = (struct sizes){.arena = arena};
	ARENA_ADD(arena, &s->vars, (struct size_info){.fixed = true});
}

size_var size_new(struct sizes *s, int64_t old)
{
	struct size_info *v = ARENA_PUSH(s->arena, &s->vars);
	if (v == NULL)
		return 0;
	size_var at = (size_var)(s->vars.n - 1);
	*v = (struct size_info){.parent = at, .old = old, .fixed = old <= 1};
	return at;
}

size_var size_find(const struct sizes *s, size_var v)
{
	while (s->vars.items[v].parent != v)
		v = s->vars.items[v].parent;
	return v;
}

struct size_info *size_of(struct sizes *s, size_var v)
{
	return &s->vars.items[size_find(s, v)];
}

void size_fix(struct sizes *s, size_var v)
{
	size_of(s, v)->fixed = true;
}

/* Sizes that were not equal cannot be merged: both stay. The merged variable has the constraints of both. */
void size_merge(struct sizes *s, size_var a, size_var b)
{
	size_var x = size_find(s, a), y = size_find(s, b);
	struct size_info *p = &s->vars.items[x], *q = &s->vars.items[y];
	if (x == y)
		return;
	if (x == 0 || y == 0 || p->old != q->old) {
		p->fixed = q->fixed = true;
		return;
	}
	q->parent = x;
	p->fixed = p->fixed || q->fixed;
	p->even = p->even || q->even;
	p->least = p->least > q->least ? p->least : q->least;
	p->want = p->want > q->want ? p->want : q->want;
}

static const size_var *copy_list(struct sizes *s, const size_var *from, size_t n)
{
	size_var *list = ARENA_ARRAY(s->arena, size_var, n + 1);
	if (list != NULL && n > 0)
		memcpy(list, from, n * sizeof(*from));
	return list;
}

/* Adds a constraint between the variables of both sides. Without memory there is none, and the arena has
 * failed. */
void size_relate(struct sizes *s, enum size_relation r, const size_var *left, size_t n_left,
                 const size_var *right, size_t n_right)
{
	struct size_constraint *c = ARENA_PUSH(s->arena, &s->constraints);
	if (c == NULL)
		return;
	*c = (struct size_constraint){r, copy_list(s, left, n_left), copy_list(s, right, n_right), n_left,
	                              n_right};
	if (c->left == NULL || c->right == NULL)
		s->constraints.n--;
}

/* ---- propagation ---- */

/* Product or sum of the assigned variables of a side; number of unassigned ones, and the last of them. */
struct side {
	int64_t value;
	size_t n_open;
	size_var last;
};

/* The left or right side of a constraint as far as it is assigned (now != 0, or a size that is 0); a product
 * saturates at INT64_MAX. */
static struct side side_of(struct sizes *s, const struct size_constraint *c, bool left)
{
	struct side side = {c->relation == SIZE_PRODUCT ? 1 : 0, 0, 0};
	const size_var *list = left ? c->left : c->right;
	for (size_t i = 0; i < (left ? c->n_left : c->n_right); i++) {
		int64_t now = size_of(s, list[i])->now;
		if (now == 0 && size_of(s, list[i])->old != 0) {
			side.n_open++;
			side.last = size_find(s, list[i]);
		} else if (c->relation == SIZE_PRODUCT) {
			if (!checked_mul_i64(side.value, now, &side.value))
				side.value = INT64_MAX;
		} else {
			side.value += now;
		}
	}
	return side;
}

/* Sizes 0 and 1 stay what they are (size_new), and no other becomes one: broadcasts depend on them. */
static bool is_allowed(const struct size_info *v, int64_t now)
{
	return now >= 2 && now <= v->old && now >= v->least && (!v->even || now % 2 == 0);
}

/* Assigns a size and pushes it on the trail (for undo). False: not allowed. */
static bool assign(struct sizes *s, size_var v, int64_t now, size_var *trail, size_t *n)
{
	struct size_info *info = size_of(s, v);
	if (!is_allowed(info, now))
		return false;
	info->now = now;
	trail[(*n)++] = size_find(s, v);
	return true;
}

/* Propagates one constraint: if only one variable is unassigned, solves for it (*changed); SIZE_AT_MOST is only
 * checked. False: it is violated, or the solution is not allowed. `known`: the assigned side, `remaining`: product
 * or sum of the assigned variables of the other. */
static bool propagate(struct sizes *s, const struct size_constraint *c, size_var *trail, size_t *n,
                      bool *changed)
{
	struct side l = side_of(s, c, true), r = side_of(s, c, false);
	if (c->relation == SIZE_AT_MOST)
		return l.n_open + r.n_open > 0 || l.value <= r.value;
	if (l.n_open + r.n_open == 0)
		return l.value == r.value;
	if (l.n_open + r.n_open > 1)
		return true;
	int64_t known = l.n_open == 0 ? l.value : r.value, remaining = l.n_open == 0 ? r.value : l.value;
	size_var v = l.n_open == 0 ? r.last : l.last;
	if (c->relation == SIZE_PRODUCT && (remaining == 0 || known % remaining != 0))
		return false;
	*changed = true;
	return assign(s, v, c->relation == SIZE_PRODUCT ? known / remaining : known - remaining, trail, n);
}

/* Propagates all constraints of a component to a fixpoint. False: one is violated. */
static bool propagate_all(struct sizes *s, uint32_t component, size_var *trail, size_t *n)
{
	bool changed = true;
	while (changed) {
		changed = false;
		for (size_t i = 0; i < s->constraints.n; i++) {
			const struct size_constraint *c = &s->constraints.items[i];
			if (size_of(s, c->left[0])->component == component &&
			    !propagate(s, c, trail, n, &changed))
				return false;
		}
	}
	return true;
}

/* ---- the search ---- */

/* New size of another variable with this old size; 0: none. */
static int64_t size_of_equal(const struct sizes *s, int64_t old)
{
	for (size_t i = 1; i < s->vars.n; i++)
		if (s->vars.items[i].parent == i && s->vars.items[i].old == old && s->vars.items[i].now != 0)
			return s->vars.items[i].now;
	return 0;
}

/* Another old size was assigned this new size. */
static bool is_used(const struct sizes *s, int64_t old, int64_t now)
{
	for (size_t i = 1; i < s->vars.n; i++)
		if (s->vars.items[i].parent == i && s->vars.items[i].old != old &&
		    s->vars.items[i].now == now)
			return true;
	return false;
}

/* Candidates for v, best first: its preferred size, the new size of others with its old size, 12 small sizes from
 * `from` (first those that no other old size became, so that different sizes stay different), the old size, which
 * always has a slot. Returns their number. */
static size_t candidates(const struct sizes *s, const struct size_info *v, int64_t from, int64_t *out)
{
	size_t n = 0;
	int64_t equal = size_of_equal(s, v->old), first = v->least > from ? v->least : from;
	if (v->want != 0)
		out[n++] = v->want < v->old ? v->want : v->old;
	if (equal != 0)
		out[n++] = equal;
	for (int taken = 0; taken < 2; taken++)
		for (int64_t c = first; c <= v->old && c < first + 12 && n + 1 < CANDIDATES_MAX; c++)
			if (is_used(s, v->old, c) == (taken == 1))
				out[n++] = c;
	out[n++] = v->old;
	return n;
}

/* The unassigned variable of the component with the smallest old size; 0: none. */
static size_var next_unassigned(const struct sizes *s, uint32_t component)
{
	size_var best = 0;
	for (size_var i = 1; i < s->vars.n; i++) {
		const struct size_info *v = &s->vars.items[i];
		if (v->parent == i && v->component == component && v->now == 0 &&
		    (best == 0 || v->old < s->vars.items[best].old))
			best = i;
	}
	return best;
}

static void undo(struct sizes *s, const size_var *trail, size_t from, size_t *n)
{
	while (*n > from)
		s->vars.items[trail[--*n]].now = 0;
}

/* Assigns all variables of a component by depth-first search, the smallest old size first, with propagation after
 * each assignment. False: no solution within the steps; the trail is undone. */
static bool search(struct sizes *s, uint32_t component, size_var *trail, size_t *n)
{
	int64_t values[CANDIDATES_MAX];
	size_var v = next_unassigned(s, component);
	size_t from = *n;
	if (v == 0)
		return true;
	size_t count = candidates(s, &s->vars.items[v], 2, values);
	for (size_t i = 0; i < count && s->steps > 0; i++) {
		s->steps--;
		if (assign(s, v, values[i], trail, n) && propagate_all(s, component, trail, n) &&
		    search(s, component, trail, n))
			return true;
		undo(s, trail, from, n);
	}
	return false;
}

/* ---- components ---- */

/* Labels all variables of a constraint with the smallest of their labels, found in a first pass; *changed: one
 * was another. */
static void merge_components(struct sizes *s, const struct size_constraint *c, bool *changed)
{
	uint32_t least = UINT32_MAX;
	for (int pass = 0; pass < 2; pass++)
		for (size_t i = 0; i < c->n_left + c->n_right; i++) {
			struct size_info *v =
			        size_of(s, i < c->n_left ? c->left[i] : c->right[i - c->n_left]);
			if (pass == 0) {
				least = v->component < least ? v->component : least;
			} else if (v->component != least) {
				v->component = least;
				*changed = true;
			}
		}
}

/* Labels connected components. Fixed sizes connect, too, which only makes components larger than necessary. */
static void find_components(struct sizes *s)
{
	bool changed = true;
	for (size_var i = 0; i < s->vars.n; i++)
		s->vars.items[i].component = i;
	while (changed) {
		changed = false;
		for (size_t i = 0; i < s->constraints.n; i++)
			merge_components(s, &s->constraints.items[i], &changed);
	}
}

static void keep_old_sizes(struct sizes *s, uint32_t component)
{
	for (size_var i = 1; i < s->vars.n; i++)
		if (s->vars.items[i].parent == i && s->vars.items[i].component == component)
			s->vars.items[i].now = s->vars.items[i].old;
}

static bool is_constrained(struct sizes *s, uint32_t component)
{
	for (size_t i = 0; i < s->constraints.n; i++)
		if (size_of(s, s->constraints.items[i].left[0])->component == component)
			return true;
	return false;
}

/* Assigns the first allowed candidate; no other size depends on it, so no search is needed. */
static void assign_unconstrained(struct sizes *s, size_var v)
{
	int64_t values[CANDIDATES_MAX];
	struct size_info *info = &s->vars.items[v];
	size_t n = candidates(s, info, FREE_LEAST, values);
	for (size_t i = 0; i < n && info->now == 0; i++)
		if (is_allowed(info, values[i]))
			info->now = values[i];
}

/* Fixed sizes first. Then each component once, at its first unassigned variable: if propagation or the search fails,
 * it keeps its old sizes, which are a solution. */
void sizes_solve(struct sizes *s)
{
	size_var *trail = ARENA_ARRAY(s->arena, size_var, s->vars.n + 1);
	find_components(s);
	for (size_var i = 1; i < s->vars.n; i++)
		if (s->vars.items[i].parent == i && s->vars.items[i].fixed)
			s->vars.items[i].now = s->vars.items[i].old;
	for (size_var i = 1; i < s->vars.n && trail != NULL; i++) {
		struct size_info *v = &s->vars.items[i];
		size_t n = 0;
		if (v->parent != i || v->now != 0 || v->old == 0)
			continue;
		if (!is_constrained(s, v->component)) {
			assign_unconstrained(s, i);
			continue;
		}
		s->steps = SEARCH_STEPS;
		if (!propagate_all(s, v->component, trail, &n) || !search(s, v->component, trail, &n))
			keep_old_sizes(s, v->component);
	}
}
