/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams of the pass center. A value is pure when nothing but leaves (gathers,
 * parameters, constants) is behind it: an embedding. Values that are not pure
 * and linked form a set; pure values enter a set at cuts. A set is refused when
 * something writes or reads it that does not commute with the subtraction of
 * the mean, or when one of its weights is used elsewhere; since weights are
 * shared, refusing goes on in rounds.
 */
#include "passes/folds/center.h"

#include <stdarg.h>
#include <stdio.h>

#define TREE_DEPTH_MAX 16
#define NORMS_MIN      2 /* fewer do not pay for the center at the beginning */

struct finder {
	struct pass_context *p;
	struct streams *streams;
	struct func_uses *uses;
	const struct ir_func *f;
	bool *pure;          /* [n_values] */
	uint32_t *parent;    /* [n_values] sets of values that are not pure */
	struct stream **set; /* [n_values] by the root of a set: the stream, once a norm reads it */
	int64_t rounds;      /* of the repeats around */
};

bool stream_links(const struct ir_func *f, const struct ir_op *op)
{
	if (op->n_results != 1 || op->n_operands == 0)
		return false;
	const struct ir_type *x = ir_type_of(f, op->operands[0]), *y = ir_type_of(f, op->results[0]);
	if (x->kind != IR_TENSOR || ir_dtype_class(x->dtype) != DTCLASS_FLOAT || x->rank < 1 || y->rank < 1 ||
	    x->dims[x->rank - 1] != y->dims[y->rank - 1])
		return false;
	if (op->code == OP_transpose)
		return ((const struct attrs_transpose *)op->attrs)->perm.items[x->rank - 1] == x->rank - 1;
	if (op->code == OP_slice)
		return ((const struct attrs_slice *)op->attrs)->axis != x->rank - 1;
	if (op->code == OP_take_rows || op->code == OP_mask_rows)
		return x->rank >= 3;
	return op->code == OP_add || op->code == OP_sub || op->code == OP_neg || op->code == OP_scale ||
	       op->code == OP_reshape || op->code == OP_broadcast;
}

/* Operands that carry the stream: the first `n` ones. */
static size_t linked_operands(const struct ir_op *op)
{
	return op->code == OP_add || op->code == OP_sub ? 2 : 1;
}

static bool carries(const struct finder *d, struct ir_value v)
{
	const struct ir_type *t = ir_type_of(d->f, v);
	return t->kind == IR_TENSOR && t->rank > 0 && ir_dtype_class(t->dtype) == DTCLASS_FLOAT;
}

/* --- sets ---------------------------------------------------------------------------------------------- */

static uint32_t root_of(struct finder *d, struct ir_value v)
{
	uint32_t at = v.id;
	while (d->parent[at] != at) {
		d->parent[at] = d->parent[d->parent[at]];
		at = d->parent[at];
	}
	return at;
}

static void join(struct finder *d, struct ir_value a, struct ir_value b)
{
	if (!d->pure[a.id] && !d->pure[b.id])
		d->parent[root_of(d, a)] = root_of(d, b);
}

static void link_repeat(struct finder *d, const struct ir_op *op)
{
	const struct ir_op *yield = op->region->ops[op->region->n_ops - 1];
	for (size_t i = 0; i < op->n_operands; i++) {
		struct ir_value arg = op->region->args[i + 1];
		if (!carries(d, arg))
			continue;
		join(d, op->operands[i], arg);
		join(d, yield->operands[i], arg);
		join(d, op->results[i], arg);
	}
}

/* Purity in program order, then the links of the region. */
static void link_region(struct finder *d, const struct ir_region *region)
{
	for (size_t i = 0; i < region->n_ops; i++) {
		const struct ir_op *op = region->ops[i];
		bool pure = op->code != OP_linear && op->code != OP_repeat;
		for (size_t k = 0; pure && stream_links(d->f, op) && k < linked_operands(op); k++)
			pure = d->pure[op->operands[k].id];
		for (size_t k = 0; k < op->n_results; k++)
			d->pure[op->results[k].id] = pure;
		if (op->region != NULL)
			link_region(d, op->region);
		if (op->code == OP_repeat)
			link_repeat(d, op);
		for (size_t k = 0; stream_links(d->f, op) && k < linked_operands(op); k++)
			join(d, op->operands[k], op->results[0]);
	}
}

/* Parameters and what is defined before are pure; carries of repeats are not. */
static bool prepare(struct finder *d)
{
	struct arena *a = d->p->arena;
	d->f = d->uses->f;
	d->pure = ARENA_ARRAY(a, bool, d->f->n_values);
	d->parent = ARENA_ARRAY(a, uint32_t, d->f->n_values);
	d->set = ARENA_ARRAY(a, struct stream *, d->f->n_values);
	if (d->pure == NULL || d->parent == NULL || d->set == NULL)
		return false;
	for (uint32_t v = 1; v < d->f->n_values; v++) {
		d->parent[v] = v;
		d->pure[v] = d->f->values[v].def == NULL && d->f->values[v].region == d->f->body;
	}
	link_region(d, d->f->body);
	return true;
}

static struct stream *stream_of(struct finder *d, struct ir_value v)
{
	return v.id == 0 || d->pure[v.id] ? NULL : d->set[root_of(d, v)];
}

static void find_norms(struct finder *d, const struct ir_region *region, int64_t rounds)
{
	for (size_t i = 0; i < region->n_ops; i++) {
		const struct ir_op *op = region->ops[i];
		if (op->code == OP_repeat) {
			int64_t count = ((const struct attrs_repeat *)op->attrs)->count;
			find_norms(d, op->region, count > 0 && rounds < NORMS_MIN ? rounds * count : rounds);
		}
		if (op->code != OP_layer_norm || d->pure[op->operands[0].id])
			continue;
		struct stream **s = &d->set[root_of(d, op->operands[0])];
		if (*s == NULL)
			*s = ARENA_NEW(d->p->arena, struct stream);
		if (*s == NULL)
			return;
		if ((*s)->first_norm == NULL)
			**s = (struct stream){.f = d->f, .first_norm = op};
		(*s)->n_norms += rounds;
	}
}

/* --- what writes and reads a set -------------------------------------------------------------------------
 */

static void refuse(struct pass_context *p, struct stream *s, const char *fmt, ...) TFMC_PRINTF(3, 4);

static void refuse(struct pass_context *p, struct stream *s, const char *fmt, ...)
{
	char why[256];
	va_list args;
	if (s->refused)
		return;
	va_start(args, fmt);
	vsnprintf(why, sizeof(why), fmt, args);
	va_end(args);
	s->refused = true;
	pass_missed(p, s->first_norm->loc, "not centered: the stream that layer_norm reads here: %s", why);
}

static void add_member(struct finder *d, struct stream *s, const struct ir_op *op, unsigned role)
{
	struct stream_member *m = ARENA_PUSH(d->p->arena, &d->streams->members);
	if (m != NULL)
		*m = (struct stream_member){s, op, role};
}

static void see_writer(struct finder *d, struct stream *s, const struct ir_op *op)
{
	const struct ir_weight *w = uses_weight(d->f, op->operands[1]),
	                       *b = uses_weight(d->f, op->operands[2]);
	if (w == NULL || !uses_changeable(w))
		refuse(d->p, s, "a linear writes it whose matrix is no f32 weight");
	else if (op->operands[2].id != 0 && (b == NULL || !uses_foldable(b)))
		refuse(d->p, s, "a linear writes it whose bias is no f32 weight");
	else {
		s->writer = s->writer != NULL ? s->writer : w;
		add_member(d, s, op, CENTER_WRITER);
	}
}

/* v is read by a set, it is pure: all its readers must belong to the set. */
static void see_cut(struct finder *d, struct stream *s, struct ir_value v)
{
	const struct ir_op *def = ir_def(d->f, v);
	size_t n;
	const struct value_use *u = uses_of(d->uses, v, &n);
	if (def == NULL || def->n_results != 1 || ir_info(d->f, v)->region != d->f->body) {
		refuse(d->p, s, "%s writes it", def != NULL ? ir_op_desc(def->code)->name : "a parameter");
		return;
	}
	for (size_t i = 0; i < n; i++) {
		const struct ir_op *op = u[i].op;
		struct ir_value in = op->code == OP_repeat    ? op->region->args[u[i].operand + 1]
		                     : stream_links(d->f, op) ? op->results[0]
		                                              : IR_NO_VALUE;
		bool norm = op->code == OP_layer_norm && u[i].operand == 0;
		if (!norm && stream_of(d, in) != s) {
			refuse(d->p, s, "%s also reads what enters it", ir_op_desc(op->code)->name);
			return;
		}
		if (norm)
			add_member(d, s, op, CENTER_NORM);
	}
	add_member(d, s, def, CENTER_CUT);
}

static void see_readers(struct finder *d, struct stream *s, struct ir_value v)
{
	size_t n;
	const struct value_use *u = uses_of(d->uses, v, &n);
	for (size_t i = 0; i < n && !s->refused; i++) {
		const struct ir_op *op = u[i].op;
		if (op->code == OP_layer_norm && u[i].operand == 0)
			add_member(d, s, op, CENTER_NORM);
		else if (op->code == OP_return)
			refuse(d->p, s, "it is a result of the function");
		else if (op->code != OP_repeat && op->code != OP_yield && !stream_links(d->f, op))
			refuse(d->p, s, "%s reads it too", ir_op_desc(op->code)->name);
	}
}

/* The pure operands of an op that links, or of a repeat, are cuts; each is seen once. */
static void see_operands(struct finder *d, struct stream *s, const struct ir_op *op, struct stream **seen)
{
	const struct ir_op *last = op->region != NULL ? op->region->ops[op->region->n_ops - 1] : NULL;
	for (size_t i = 0; i < op->n_operands; i++) {
		struct ir_value in[2] = {op->operands[i], last != NULL ? last->operands[i] : IR_NO_VALUE};
		if (last != NULL ? stream_of(d, op->results[i]) != s : i >= linked_operands(op))
			continue;
		for (size_t k = 0; k < 2; k++) {
			if (in[k].id == 0 || !d->pure[in[k].id] || seen[in[k].id] == s)
				continue;
			seen[in[k].id] = s;
			see_cut(d, s, in[k]);
		}
	}
}

static void see_value(struct finder *d, struct ir_value v, struct stream **seen)
{
	struct stream *s = stream_of(d, v);
	const struct ir_op *def = ir_def(d->f, v);
	if (s == NULL || s->refused)
		return;
	see_readers(d, s, v);
	if (def != NULL && def->code == OP_linear)
		see_writer(d, s, def);
	else if (def != NULL)
		see_operands(d, s, def, seen);
}

static void find_streams(struct finder *d)
{
	struct stream **seen = ARENA_ARRAY(d->p->arena, struct stream *, d->uses->f->n_values);
	if (seen == NULL || !prepare(d))
		return;
	find_norms(d, d->f->body, 1);
	for (uint32_t v = 1; v < d->f->n_values; v++)
		see_value(d, (struct ir_value){v}, seen);
	for (uint32_t v = 1; v < d->f->n_values; v++)
		if (d->set[v] != NULL && d->set[v]->n_norms < NORMS_MIN)
			refuse(d->p, d->set[v], "one norm alone is not worth a center");
}

/* --- weights ------------------------------------------------------------------------------------------- */

struct weight_count {
	size_t matrix, bias; /* uses by writers of streams that remain */
};

static void count_weight(struct streams *s, const struct ir_func *f, struct ir_value v, bool matrix)
{
	const struct ir_weight *w = uses_weight(f, v);
	struct weight_count *n = w != NULL ? module_uses_weight(s->uses, w)->user : NULL;
	if (n == NULL)
		return;
	n->matrix += matrix;
	n->bias += !matrix;
}

static void count_writers(struct streams *s, const struct ir_module *m)
{
	for (size_t i = 0; i < m->weights.n; i++)
		*(struct weight_count *)s->uses->weights[i].user = (struct weight_count){0};
	for (size_t i = 0; i < s->members.n; i++) {
		const struct stream_member *w = &s->members.items[i];
		if (w->role != CENTER_WRITER || w->stream->refused)
			continue;
		count_weight(s, w->stream->f, w->op->operands[1], true);
		count_weight(s, w->stream->f, w->op->operands[2], false);
	}
}

static const struct ir_weight *shared_weight(const struct streams *s, const struct stream_member *m)
{
	for (size_t i = 1; i < 3; i++) {
		const struct ir_weight *w = uses_weight(m->stream->f, m->op->operands[i]);
		const struct weight_uses *u = w != NULL ? module_uses_weight(s->uses, w) : NULL;
		const struct weight_count *n = u != NULL ? u->user : NULL;
		if (n != NULL && (n->matrix != u->linear || n->bias != u->other))
			return w;
	}
	return NULL;
}

static bool refuse_shared(struct pass_context *p, struct streams *s, const struct ir_module *m)
{
	bool any = false;
	count_writers(s, m);
	for (size_t i = 0; i < s->members.n; i++) {
		const struct stream_member *w = &s->members.items[i];
		const struct ir_weight *shared =
		        w->role == CENTER_WRITER && !w->stream->refused ? shared_weight(s, w) : NULL;
		if (shared == NULL)
			continue;
		refuse(p, w->stream, "@%s is also used elsewhere", shared->name);
		any = true;
	}
	return any;
}

/* --- tables: a cut that only sums gathers needs nothing at run time ----------------------------------------
 */

struct tree {
	const struct streams *s;
	const struct func_uses *uses;
	const struct ir_op *tables[TREE_DEPTH_MAX];
	size_t n;
};

/* v is a sum of rows of tables, every part of it used here only. */
static bool sums_tables(struct tree *t, struct ir_value v, int depth)
{
	const struct ir_op *op = ir_def(t->uses->f, v);
	size_t n_uses;
	uses_of(t->uses, v, &n_uses);
	if (op == NULL || depth > TREE_DEPTH_MAX || t->n >= TREE_DEPTH_MAX || (depth > 0 && n_uses != 1))
		return false;
	if (op->code == OP_gather) {
		const struct ir_weight *w = uses_weight(t->uses->f, op->operands[0]);
		if (w == NULL || !uses_changeable(w) || w->type->rank != 2)
			return false;
		t->tables[t->n++] = op;
		return true;
	}
	if (!stream_links(t->uses->f, op))
		return false;
	for (size_t i = 0; i < linked_operands(op); i++)
		if (!sums_tables(t, op->operands[i], depth + 1))
			return false;
	return true;
}

static bool reads_tables(struct streams *s, const struct stream_member *cut, struct tree *t)
{
	*t = (struct tree){.s = s, .uses = module_uses_func(s->uses, cut->stream->f)};
	return cut->role == CENTER_CUT && !cut->stream->refused && sums_tables(t, cut->op->results[0], 0);
}

static void set_role(struct streams *s, const struct ir_func *f, const struct ir_op *op, unsigned role)
{
	for (size_t i = 0; i < s->uses->m->funcs.n; i++)
		if (s->uses->funcs[i].f == f)
			s->roles[i][op->results[0].id] |= (unsigned char)role;
}

/* Every reader of the rows of the tables is a cut that may be one of tables too, and no linear reads them:
 * the table would be stored twice. */
static bool tables_free(const struct streams *s, const struct tree *t)
{
	for (size_t i = 0; i < t->n; i++) {
		const struct weight_uses *u =
		        module_uses_weight(s->uses, uses_weight(t->uses->f, t->tables[i]->operands[0]));
		if (u->linear > 0 || ((const struct weight_count *)u->user)->bias != u->other)
			return false;
	}
	return true;
}

/* Counts, in `bias`, how often tables are read by cuts in `by_table`; gives up cuts until all agree. */
static void choose_tables(struct streams *s, const struct ir_module *m, bool *by_table)
{
	struct tree t;
	bool again = true;
	for (size_t i = 0; i < s->members.n; i++)
		by_table[i] = reads_tables(s, &s->members.items[i], &t);
	while (again) {
		again = false;
		for (size_t i = 0; i < m->weights.n; i++)
			*(struct weight_count *)s->uses->weights[i].user = (struct weight_count){0};
		for (size_t i = 0; i < s->members.n; i++)
			if (by_table[i] && reads_tables(s, &s->members.items[i], &t))
				for (size_t k = 0; k < t.n; k++)
					count_weight(s, t.uses->f, t.tables[k]->operands[0], false);
		for (size_t i = 0; i < s->members.n; i++) {
			if (!by_table[i] || !reads_tables(s, &s->members.items[i], &t) || tables_free(s, &t))
				continue;
			by_table[i] = false;
			again = true;
		}
	}
}

static int64_t number_before(const struct streams *s, size_t n, const struct ir_weight *writer)
{
	for (size_t i = 0; i < n; i++) {
		const struct stream *before = s->members.items[i].stream;
		if (before->writer == writer && before->number > 0)
			return before->number;
	}
	return 0;
}

/* Streams with one writer are one application. False when there was no fuel for some. */
static bool number_streams(struct pass_context *p, struct streams *s)
{
	bool all = true;
	for (size_t i = 0; i < s->members.n; i++) {
		struct stream *t = s->members.items[i].stream;
		if (t->refused || t->number > 0)
			continue;
		t->number = number_before(s, i, t->writer);
		if (t->number == 0)
			t->number = pass_take_fuel(p);
		t->refused = t->number == 0;
		all = all && !t->refused;
	}
	return all;
}

static void set_roles(struct streams *s, const struct ir_module *m, bool *by_table)
{
	struct tree t;
	choose_tables(s, m, by_table);
	for (size_t i = 0; i < s->members.n; i++) {
		const struct stream_member *e = &s->members.items[i];
		if (e->stream->refused)
			continue;
		if (!by_table[i]) {
			set_role(s, e->stream->f, e->op, e->role);
			continue;
		}
		reads_tables(s, e, &t);
		for (size_t k = 0; k < t.n; k++)
			set_role(s, e->stream->f, t.tables[k], CENTER_TABLE);
	}
}

/* --- the module ---------------------------------------------------------------------------------------- */

unsigned streams_role(const struct streams *s, const struct ir_func *f, const struct ir_op *op)
{
	for (size_t i = 0; op->n_results > 0 && i < s->uses->m->funcs.n; i++)
		if (s->uses->funcs[i].f == f)
			return s->roles[i][op->results[0].id];
	return CENTER_NONE;
}

int64_t streams_number(const struct streams *s, const struct ir_func *f, const struct ir_op *op)
{
	for (size_t i = 0; i < s->members.n; i++) {
		const struct stream_member *m = &s->members.items[i];
		if (m->stream->f == f && m->op == op && !m->stream->refused)
			return m->stream->number;
	}
	return 0;
}

static bool allocate(struct pass_context *p, struct streams *s, const struct ir_module *m)
{
	s->uses = module_uses_collect(p->arena, m);
	s->roles = ARENA_ARRAY(p->arena, unsigned char *, m->funcs.n + 1);
	if (s->uses == NULL || s->roles == NULL)
		return false;
	for (size_t i = 0; i < m->funcs.n; i++)
		s->roles[i] = ARENA_ARRAY(p->arena, unsigned char, m->funcs.items[i]->n_values);
	for (size_t i = 0; i < m->weights.n; i++)
		s->uses->weights[i].user = ARENA_NEW(p->arena, struct weight_count);
	return !arena_failed(p->arena);
}

struct streams *streams_collect(struct pass_context *p, const struct ir_module *m)
{
	struct streams *s = ARENA_NEW(p->arena, struct streams);
	struct finder d = {.p = p, .streams = s};

	if (s == NULL || !allocate(p, s, m))
		return NULL;
	for (size_t i = 0; i < m->funcs.n; i++) {
		d.uses = &s->uses->funcs[i];
		find_streams(&d);
	}
	while (!arena_failed(p->arena) && refuse_shared(p, s, m))
		;
	if (!number_streams(p, s))
		while (refuse_shared(p, s, m))
			;
	bool *by_table = ARENA_ARRAY(p->arena, bool, s->members.n + 1);
	if (by_table == NULL || arena_failed(p->arena))
		return NULL;
	set_roles(s, m, by_table);
	return arena_failed(p->arena) ? NULL : s;
}
