/* SPDX-License-Identifier: Apache-2.0 */
/*
 * First phase of plan-memory: which values share memory. The values of a carry do. In addition a group may write
 * its result over a value that it reads (in-place operation), if its kernel allows that (ir/core/inplace.h)
 * and nothing reads the value later.
 *
 * A class is a set of values that share memory: class_of is its representative, next a circular list of its members.
 * Times are positions of groups in program order (ir/core/lifetime.h). Invariant: no two values of a class are live at
 * the same time, except the operand and the result of the group that writes the one over the other.
 *
 * Example    %y = group linear { %l = linear %f, @w  post %y = add %x, %l }  ->  %y is stored at the offset of %x
 * Skips      with a remark for every value of the arena that the group reads: it is read later, it has another
 *            number of elements, it is read through a gather, other tasks read it, ..
 */
#include "ir/core/cost.h"
#include "ir/core/inplace.h"
#include "ir/core/view.h"
#include "passes/plan/plan.h"

#define READS_MAX 256 /* operands in the arena of one group */

/* ---- classes ---- */

/* Merges the classes of a and b: concatenates their circular lists. */
static void merge_classes(struct plan_classes *c, uint32_t a, uint32_t b)
{
	uint32_t from = c->class_of[a], to = c->class_of[b], v = from;
	if (from == to)
		return;
	do {
		c->class_of[v] = to;
		v = c->next[v];
	} while (v != from);
	v = c->next[from];
	c->next[from] = c->next[to];
	c->next[to] = v;
}

/* a ends at the group that defines b, and that group may write b over a. t >= n_times: b is not defined by a group.
 */
static bool is_written_over(const struct plan_classes *c, struct ir_value a, struct ir_value b)
{
	size_t t = c->life.first[b.id];
	if (c->life.last[a.id] != t || t >= c->life.n_times)
		return false;
	const struct ir_op *group = c->life.groups[t];
	return ir_def(c->f, b) == group && ir_group_reads(c->f, group, a) &&
	       ir_inplace_conflict(c->m, c->f, group, a) == NULL;
}

/* Finds members *v of a's class and *w of b's class that interfere: they are live at the same time, and neither is
 * written over the other by the group that ends one and defines the other. False: the classes may be merged. */
static bool find_interference(const struct plan_classes *c, struct ir_value a, struct ir_value b,
                              struct ir_value *v, struct ir_value *w)
{
	uint32_t x = a.id;
	do {
		uint32_t y = b.id;
		do {
			*v = (struct ir_value){x};
			*w = (struct ir_value){y};
			if (ir_lifetimes_overlap(&c->life, *v, *w) && !is_written_over(c, *v, *w) &&
			    !is_written_over(c, *w, *v))
				return true;
			y = c->next[y];
		} while (y != b.id);
		x = c->next[x];
	} while (x != a.id);
	return false;
}

/* ---- one group ---- */

/* The op stands for its result; a value without op (an argument) is described by the repeat that owns its region.
 * Without paths (IR text), or an owner, the name alone. */
const char *plan_value_text(struct pass_context *p, const struct ir_func *f, struct ir_value v)
{
	const struct ir_value_info *info = ir_value_info(f, v);
	const struct ir_op *op = info->def != NULL ? info->def : info->region->owner;
	const char *name = info->name != NULL ? arena_printf(p->arena, "%%%s", info->name) : "a value";
	if (op == NULL || op->loc.path == NULL)
		return name;
	struct buf text;
	buf_init(&text);
	ir_op_describe(&text, p->cx, f, op);
	if (op->n_results > 1 && info->name != NULL)
		buf_printf(&text, ", %s", name);
	name = arena_strdup(p->arena, text.data);
	buf_destroy(&text);
	return name;
}

/* Whether an op of the group reads a member of the class, directly or through views. */
static bool reads_class(const struct plan_classes *c, const struct ir_op *group, uint32_t class)
{
	for (size_t k = 0; k < group->region->n_ops; k++)
		for (size_t i = 0; i < group->region->ops[k]->n_operands; i++) {
			struct ir_value v = group->region->ops[k]->operands[i];
			if (v.id != 0 && c->class_of[ir_view_base(c->f, v).id] == class)
				return true;
		}
	return false;
}

/* The first group after position t that reads a member of the class, or NULL. */
static const struct ir_op *later_reader(const struct plan_classes *c, size_t t, uint32_t class)
{
	for (size_t i = t + 1; i < c->life.n_times; i++)
		if (reads_class(c, c->life.groups[i], class))
			return c->life.groups[i];
	return NULL;
}

/* Reason why the result of group t cannot share the memory of its operand x: v of the class of x interferes with w.
 * If x itself is read later, the reader is named by its location, where it has one. */
static const char *explain_interference(struct pass_context *p, const struct plan_classes *c,
                                        struct ir_value x, struct ir_value v, struct ir_value w, size_t t)
{
	bool is_self = ir_same_value(v, x) && c->life.last[x.id] > t;
	const struct ir_op *reader = is_self ? later_reader(c, t, c->class_of[x.id]) : NULL;
	if (reader != NULL && reader->loc.at.line > 0)
		return arena_printf(p->arena, "it is read later, at %u:%u%s%s", reader->loc.at.line,
		                    reader->loc.at.col, reader->loc.path != NULL ? " in " : "",
		                    reader->loc.path != NULL ? reader->loc.path : "");
	if (is_self)
		return "it is read later";
	return arena_printf(p->arena, "%s, which shares its memory, is alive together with %s",
	                    plan_value_text(p, c->f, v), plan_value_text(p, c->f, w));
}

/* Collects the distinct operands of a group that are in the arena, views resolved to their base; returns their
 * number. Values inside the group do not count. Those beyond READS_MAX are only not tried. */
static size_t collect_reads(const struct plan_classes *c, const struct ir_op *group, struct ir_value *out)
{
	size_t n = 0;
	for (size_t k = 0; k < group->region->n_ops; k++)
		for (size_t i = 0; i < group->region->ops[k]->n_operands; i++) {
			struct ir_value v = group->region->ops[k]->operands[i];
			bool seen = v.id == 0 || !ir_is_tensor(c->f, v);
			v = seen ? v : ir_view_base(c->f, v);
			seen = seen || ir_value_info(c->f, v)->region == group->region || !c->in_arena[v.id];
			for (size_t j = 0; j < n; j++)
				seen = seen || ir_same_value(out[j], v);
			if (!seen && n < READS_MAX)
				out[n++] = v;
		}
	return n;
}

/* Puts the result of group t into the memory of its operand x. False if they already share it, or after a remark if
 * that is not possible. Texts are made only for --remarks: they cost a search for the later reader. */
static bool try_in_place(struct pass_context *p, struct plan_classes *c, size_t t, struct ir_value x)
{
	const struct ir_op *group = c->life.groups[t];
	struct ir_value y = group->results[0], v, w;
	const char *why = ir_inplace_conflict(c->m, c->f, group, x);
	if (c->class_of[x.id] == c->class_of[y.id])
		return false;
	if (why == NULL && find_interference(c, x, y, &v, &w))
		why = p->options->remarks ? explain_interference(p, c, x, v, w, t) : "";
	if (why != NULL) {
		if (p->options->remarks)
			pass_missed(p, group->loc, "not written over %s: %s", plan_value_text(p, c->f, x),
			            why);
		return false;
	}
	merge_classes(c, y.id, x.id);
	pass_count(p, "in place", 1);
	if (p->options->remarks)
		pass_remark(p, group->loc, "written over %s", plan_value_text(p, c->f, x));
	return true;
}

/* Puts the result of group t into the memory of the first of its operands for which that is possible. Only the first
 * result is tried: groups with several may not write in place (ir_inplace_conflict). */
static void find_in_place(struct pass_context *p, struct plan_classes *c, size_t t)
{
	const struct ir_op *group = c->life.groups[t];
	struct ir_value reads[READS_MAX];
	if (group->n_results == 0 || !ir_is_tensor(c->f, group->results[0]) ||
	    !c->in_arena[group->results[0].id])
		return;
	size_t n = collect_reads(c, group, reads);
	for (size_t i = 0; i < n; i++)
		if (try_in_place(p, c, t, reads[i]))
			return;
}

/* ---- functions ---- */

/* Marks the results of groups that are neither returned nor in a state (those are in memory of the caller), then
 * spreads the mark over each class: an argument or result of a repeat is in the arena if its carry is. */
static void mark_arena_values(struct plan_classes *c)
{
	const struct ir_op *ret = c->f->body->ops[c->f->body->n_ops - 1];
	for (size_t t = 0; t < c->life.n_times; t++)
		for (size_t i = 0; i < c->life.groups[t]->n_results; i++) {
			struct ir_value v = c->life.groups[t]->results[i];
			c->in_arena[v.id] = ir_is_tensor(c->f, v) && !ir_is_state_slice(c->f, v);
		}
	for (size_t i = 0; i < ret->n_operands; i++)
		c->in_arena[ret->operands[i].id] = false;
	for (uint32_t v = 1; v < c->f->n_values; v++) {
		bool any = false;
		uint32_t w = v;
		do {
			any = any || c->in_arena[w];
			w = c->next[w];
		} while (w != v);
		c->in_arena[v] = any;
	}
}

enum tfmc_status plan_classes(struct pass_context *p, const struct ir_module *m, const struct ir_func *f,
                              bool in_place, struct plan_classes *out)
{
	*out = (struct plan_classes){.m = m,
	                             .f = f,
	                             .class_of = ARENA_ARRAY(p->arena, uint32_t, f->n_values),
	                             .next = ARENA_ARRAY(p->arena, uint32_t, f->n_values),
	                             .in_arena = ARENA_ARRAY(p->arena, bool, f->n_values)};
	if (!ir_lifetimes(p->arena, f, &out->life)) /* or an array above is NULL: the arena has failed */
		return TFMC_NO_MEMORY;
	/* Each value is a class of its own; then each carry becomes one. */
	for (uint32_t v = 0; v < f->n_values; v++)
		out->class_of[v] = out->next[v] = v;
	for (uint32_t v = 1; v < f->n_values; v++)
		merge_classes(out, v, out->life.carry[v]);
	mark_arena_values(out);
	for (size_t t = 0; in_place && t < out->life.n_times; t++)
		find_in_place(p, out, t);
	return TFMC_OK;
}
