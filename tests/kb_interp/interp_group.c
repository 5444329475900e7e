/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches of the kernel interpreter: work-groups one after the other, the work-items of a group in turn from barrier
 * to barrier. Race detection by shadow memory, as ThreadSanitizer: every byte that may be written stores its last
 * accesses, so that accesses without a barrier in between fail, whatever this order of execution happens to compute.
 */
#include "tests/kb_interp/interp_internal.h"

#include <stdio.h>
#include <string.h>

/* ---- shadow memory ---- */

struct kb_watched *kb_work_find(struct kb_work *w, const char *p, size_t bytes)
{
	for (size_t i = 0; i < w->n_memory; i++) {
		const struct kb_range *r = &w->memory[i].range;
		const char *base = r->base;
		if (p >= base && bytes <= r->bytes && (size_t)(p - base) <= r->bytes - bytes)
			return &w->memory[i];
	}
	return NULL;
}

static uint32_t this_item(const struct kb_work *w)
{
	return (uint32_t)(w->group * w->n_items + w->item + 1);
}

static bool in_this_group(const struct kb_work *w, uint32_t item)
{
	return (int64_t)(item - 1) / w->n_items == w->group;
}

/* True if another work-item's access in `phase` is not separated from now by a barrier of its group. */
static bool is_unordered(const struct kb_work *w, uint32_t item, uint32_t phase)
{
	return item != 0 && item != this_item(w) && (!in_this_group(w, item) || phase == w->phase);
}

static void note_read(const struct kb_work *w, struct kb_shadow *s)
{
	if (s->reader && !in_this_group(w, s->reader))
		s->several_groups = true;
	else if (s->reader && s->reader_phase == w->phase)
		s->several_items |= s->reader != this_item(w);
	else
		s->several_items = false;
	s->reader = this_item(w);
	s->reader_phase = w->phase;
}

static bool is_read_by_others(const struct kb_work *w, const struct kb_shadow *s)
{
	bool here = s->reader && in_this_group(w, s->reader) && s->reader_phase == w->phase;
	return s->several_groups || is_unordered(w, s->reader, s->reader_phase) || (here && s->several_items);
}

bool kb_work_touch(struct kb_frame *fr, struct kb_watched *m, const char *p, size_t bytes, bool write)
{
	const struct kb_work *w = fr->work;
	struct kb_shadow *s = m->bytes + (p - (const char *)m->range.base);
	for (size_t i = 0; i < bytes; i++) {
		if (is_unordered(w, s[i].writer, s[i].writer_phase) || (write && is_read_by_others(w, &s[i])))
			return kb_frame_fail(fr, "a race: another work-item touches the same memory");
		if (!write && m->is_shared && !s[i].writer)
			return kb_frame_fail(fr, "reads shared memory that nobody has written");
		if (!write) {
			note_read(w, &s[i]);
			continue;
		}
		s[i].writer = this_item(w);
		s[i].writer_phase = w->phase;
	}
	return true;
}

bool kb_work_shared(struct kb_frame *fr, union kb_cell *out)
{
	for (size_t i = 0; i < fr->work->n_memory; i++) {
		if (!fr->work->memory[i].is_shared || fr->work->memory[i].pc != fr->pc)
			continue;
		out->p = fr->work->memory[i].range.base;
		return true;
	}
	return kb_frame_fail(fr, "a shared array without memory");
}

/* ---- memory of a launch ---- */

struct launch {
	struct kb_interp *in;
	const struct kb_func *f;
	const union kb_cell *args;
	size_t n_args;
	struct arena arena;
	struct kb_work work;
	struct kb_frame *items; /* [work.n_items] */
	int64_t n_entered;
};

static bool watch(struct launch *l, struct kb_range range, size_t pc, bool is_shared)
{
	struct kb_watched *m = &l->work.memory[l->work.n_memory++];
	*m = (struct kb_watched){.range = range, .pc = pc, .is_shared = is_shared};
	m->bytes = ARENA_ARRAY(&l->arena, struct kb_shadow, range.bytes + 1);
	return m->bytes != NULL;
}

static bool make_shared(struct launch *l, size_t pc)
{
	const struct kb_inst *inst = &l->f->insts[pc];
	size_t bytes = (size_t)inst->imm * (size_t)kb_scalar_bytes(inst->element);
	char *p = arena_alloc(&l->arena, bytes + 64);
	if (!p)
		return false;
	p += 63 - ((uintptr_t)p + 63) % 64;
	return watch(l, (struct kb_range){p, bytes, true}, pc, true);
}

static bool make_memory(struct launch *l)
{
	bool ok = true;
	l->work.memory = ARENA_ARRAY(&l->arena, struct kb_watched, l->in->n_ranges + l->f->n_insts + 1);
	l->items = ARENA_ARRAY(&l->arena, struct kb_frame, l->work.n_items);
	if (!l->work.memory || !l->items)
		return false;
	for (size_t i = 0; ok && i < l->in->n_ranges; i++)
		if (l->in->ranges[i].writable)
			ok = watch(l, l->in->ranges[i], 0, false);
	for (size_t i = 0; ok && i < l->f->n_insts; i++)
		if (l->f->insts[i].op == KBO_SHARED)
			ok = make_shared(l, i);
	return ok;
}

/* Before each group: shared arrays are filled with NaN and marked uninitialized. */
static void clear_shared(struct launch *l)
{
	for (size_t i = 0; i < l->work.n_memory; i++) {
		struct kb_watched *m = &l->work.memory[i];
		if (!m->is_shared)
			continue;
		memset(m->range.base, 0xff, m->range.bytes);
		memset(m->bytes, 0, m->range.bytes * sizeof *m->bytes);
	}
}

static bool make_items(struct launch *l)
{
	for (; l->n_entered < l->work.n_items; l->n_entered++) {
		struct kb_frame *fr = &l->items[l->n_entered];
		*fr = (struct kb_frame){.in = l->in,
		                        .f = l->f,
		                        .jump = l->items[0].jump,
		                        .args = l->args,
		                        .n_args = l->n_args,
		                        .work = &l->work};
		if (!kb_frame_enter(fr)) {
			arena_destroy(&fr->arena);
			return false;
		}
	}
	return true;
}

/* ---- barriers ---- */

/* The current iteration of the loop that begins with `begin`. */
static int64_t iteration(const struct kb_frame *fr, const struct kb_inst *begin)
{
	return (fr->values[begin->result]->i - fr->values[begin->args[0].id]->i) / begin->imm;
}

/* True if the work-item waits at the same barrier as the first one, in the same iteration of all enclosing loops. */
static bool is_at_same_barrier(const struct kb_frame *first, const struct kb_frame *fr)
{
	if (!fr->is_waiting || !first->is_waiting)
		return fr->is_waiting == first->is_waiting;
	if (fr->pc != first->pc)
		return false;
	for (size_t i = 0; i < fr->pc; i++) {
		const struct kb_inst *inst = &fr->f->insts[i];
		if (inst->op == KBO_LOOP && fr->jump[i] >= fr->pc &&
		    iteration(fr, inst) != iteration(first, inst))
			return false;
	}
	return true;
}

/* Runs all work-items to the next barrier, or to the end. */
static bool run_phase(struct launch *l)
{
	l->work.phase++;
	for (int64_t i = 0; i < l->work.n_items; i++) {
		l->work.item = i;
		l->items[i].is_waiting = false;
		if (!kb_frame_run(&l->items[i]))
			return false;
		if (!is_at_same_barrier(&l->items[0], &l->items[i]))
			return kb_frame_fail(&l->items[i], "work-items of a group part before a barrier");
	}
	return true;
}

static bool run_group(struct launch *l)
{
	clear_shared(l);
	for (int64_t i = 0; i < l->work.n_items; i++) {
		l->items[i].pc = 0;
		l->items[i].n_locals = 0;
	}
	do {
		if (!run_phase(l))
			return false;
	} while (l->items[0].is_waiting);
	return true;
}

static bool run_groups(struct launch *l)
{
	if (!make_memory(l))
		return snprintf(l->in->error, sizeof l->in->error, "no memory") < 0;
	if (!make_items(l))
		return false;
	for (l->work.group = 0; l->work.group < l->work.n_groups; l->work.group++)
		if (!run_group(l))
			return false;
	return true;
}

bool kb_interp_launch(struct kb_interp *in, const char *name, const union kb_cell *args, size_t n_args,
                      int64_t groups)
{
	const struct kb_func *f = kb_interp_begin(in, name);
	if (!f)
		return false;
	if (f->linkage != KB_KERNEL) {
		(void)snprintf(in->error, sizeof in->error, "%s is no kernel", name);
		return false;
	}
	struct launch l = {.in = in, .f = f, .args = args, .n_args = n_args};
	l.work.n_groups = groups;
	l.work.n_items = f->group_size;
	arena_init(&l.arena);
	bool ok = run_groups(&l);
	for (int64_t i = 0; i < l.n_entered; i++)
		arena_destroy(&l.items[i].arena);
	arena_destroy(&l.arena);
	return ok;
}
