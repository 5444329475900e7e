/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tfmc plan: memory and work of a model without generating code. Sizes are those of the object's layout; formulas
 * hold for all dims, values for the largest dims or those of --dim.
 * A buffer has a place in the arena while its groups run; a lane has the buffers whose sizes are multiples of one
 * unit, such as B*S. Of several ranks, each computes a part of a stage, and stages compute one after the other.
 */
#include "frontend/driver/commands/page.h"
#include "frontend/driver/commands/plan_page.h"
#include "frontend/driver/compile/ranks.h"

#include <string.h>

#include "ir/core/case.h"
#include "ir/core/cost.h"

#define LARGEST 5 /* buffers listed for a function */

struct plan {
	struct driver *d;
	const struct loaded *loaded;
	const struct ir_module *in, *planned;
	const struct ir_module *whole; /* with --shards: planned for one process; else NULL */
	struct pass_report *report;
	const struct target *target;
	struct backend_sizes sizes;
	int64_t *dims; /* values for the module's symbols */
};

/* ---- numbers ---- */

/* The value at the chosen dims. False: it overflows; *out is 0. */
static bool evaluate(const struct plan *p, const struct ir_dim *d, double *out)
{
	int64_t v;
	bool ok = ir_dim_eval(d, p->dims, &v);
	*out = ok ? (double)v : 0;
	return ok;
}

/* Prints "formula = value" of a size; of a constant only the value, where it overflows only the formula. */
static void print_formula(struct plan *p, const struct ir_dim *d, void (*unit)(struct buf *, double))
{
	double v;
	bool is_const = ir_dim_is_const(d, NULL);
	if (!is_const)
		ir_dim_print(&p->d->out, p->planned->dims, d, false);
	if (!evaluate(p, d, &v))
		return;
	buf_str(&p->d->out, is_const ? "" : " = ");
	unit(&p->d->out, v);
}

/* Sets p->dims to the largest values, or those of --dim. One element more is allocated: an array of none is NULL, which
 * would be lack of memory. */
static enum tfmc_status choose_plan_dims(struct plan *p)
{
	size_t n = ir_dims_count(p->planned->dims);
	p->dims = ARENA_ARRAY(&p->d->arena, int64_t, n + 1);
	if (!p->dims)
		return TFMC_NO_MEMORY;
	for (size_t i = 0; i < n; i++)
		p->dims[i] = ir_dims_sym(p->planned->dims, i)->hi;
	return driver_apply_dim_options(p->d, p->planned->dims, p->dims);
}

/* ---- functions ---- */

/* Bytes of a buffer at the chosen dims; 0 where its unit overflows (evaluate). */
static double buffer_bytes(const struct plan *p, const struct plan_func *f, const struct plan_buffer *b)
{
	double unit;
	(void)evaluate(p, f->lanes[b->lane].unit, &unit);
	return unit * (double)b->size;
}

/* Returns the largest buffer after `last` (NULL: of all) in the order of descending bytes, then of the list; NULL:
 * none is left. */
static const struct plan_buffer *next_largest(const struct plan *p, const struct plan_func *f,
                                              const struct plan_buffer *last)
{
	const struct plan_buffer *best = NULL;
	for (size_t i = 0; i < f->n_buffers; i++) {
		const struct plan_buffer *b = &f->buffers[i];
		double bytes = buffer_bytes(p, f, b), limit = last ? buffer_bytes(p, f, last) : bytes;
		bool shown = last && (bytes > limit || (bytes == limit && b <= last));
		if (!shown && (!best || bytes > buffer_bytes(p, f, best)))
			best = b;
	}
	return best;
}

/* Prints the largest buffers of a function with their lifetimes. */
static void print_largest(struct plan *p, const struct plan_func *f)
{
	struct buf *out = &p->d->out;
	const struct plan_buffer *b = NULL;
	for (int i = 0; i < LARGEST && (b = next_largest(p, f, b)); i++) {
		buf_printf(out, "  %s", i ? "           " : "largest    ");
		buf_printf(out, "%s: %lld", b->name, (long long)b->size);
		if (!ir_dim_equals(f->lanes[b->lane].unit, 1)) {
			buf_str(out, " x ");
			ir_dim_print(out, f->dims, f->lanes[b->lane].unit, false);
		}
		buf_str(out, " = ");
		print_bytes(out, buffer_bytes(p, f, b));
		buf_printf(out, ", alive in groups %zu to %zu of %zu\n", b->first, b->last, f->n_times);
	}
}

/* Prints the bytes of a function's arena and how near they are to the lower bound of any plan. f NULL: it has no
 * plan. */
static void print_arena(struct plan *p, const struct backend_function_sizes *s, const struct plan_func *f)
{
	struct buf *out = &p->d->out;
	buf_str(out, "  arena      ");
	print_formula(p, s->arena, print_bytes);
	if (p->sizes.scratch)
		buf_printf(out, ", and %llu bytes for each worker", (unsigned long long)p->sizes.scratch);
	buf_char(out, '\n');
	if (!f)
		return;
	double arena, bound;
	buf_str(out, "  bound      ");
	print_formula(p, f->lower_bound, print_bytes);
	if (evaluate(p, f->arena, &arena) && evaluate(p, f->lower_bound, &bound))
		buf_printf(out, ", the plan is %.1f %% above it",
		           bound > 0 ? 100 * (arena - bound) / bound : 0.0);
	bool any_gap = false; /* above the lower bound, at the planner's sample points */
	for (int i = 0; i < PLAN_POINTS; i++)
		any_gap = any_gap || f->gap[i] > 0;
	buf_printf(
	        out,
	        "\n  gap        %.1f %% at the largest dims, %.1f, %.1f and %.1f %% at three other points; "
	        "%s\n",
	        100 * f->gap[0], 100 * f->gap[1], 100 * f->gap[2], 100 * f->gap[3],
	        any_gap ? "a smaller packing may exist" : "no plan is smaller");
	print_largest(p, f);
}

/* Whether a tensor that the caller passes has the dim, also inside of a quotient. print_head() leaves out the others,
 * those of other functions and of states alone. */
static bool has_input_dim(const struct ir_func *f, int sym)
{
	for (size_t i = 0; i < f->n_params; i++) {
		const struct ir_type *t = ir_type_of(f, f->params[i].value);
		for (int axis = 0; t->kind == IR_TENSOR && axis < t->rank; axis++)
			if (ir_dim_has_symbol(t->dims[axis], sym))
				return true;
	}
	return false;
}

/* Prints the name of a function, its entries, the case it is for, and the dims that its inputs have. */
static void print_head(struct plan *p, const struct ir_func *f)
{
	struct buf *out = &p->d->out;
	bool is_decode = !strcmp(f->name, "decode");
	const struct ir_dims *dims = p->planned->dims;
	const char *separator = " at ";
	buf_printf(out, "\n%s%s", f->name, is_decode ? " (entries prefill, step)" : "");
	if (f->when) {
		buf_str(out, ", ");
		ir_case_print(out, p->planned, f->when);
	}
	for (size_t i = 0; i < ir_dims_count(dims); i++) {
		const struct ir_dim_sym *s = ir_dims_sym(dims, i);
		if (!has_input_dim(f, (int)i))
			continue;
		buf_printf(out, "%s%s=%lld of %lld..%lld", separator, s->name, (long long)p->dims[i],
		           (long long)s->lo, (long long)s->hi);
		separator = ", ";
	}
	buf_char(out, '\n');
}

/* Prints the FLOP of the module before any pass, if passes removed some. */
static void print_flops_before_passes(struct plan *p, const struct ir_func *planned)
{
	const struct ir_func *f = ir_find_func(p->in, planned->name);
	double before, after;
	if (!f || !evaluate(p, ir_func_flops(p->in, f, MAC_ALL), &before) ||
	    !evaluate(p, ir_func_flops(p->planned, planned, MAC_ALL), &after) || after >= before)
		return;
	buf_str(&p->d->out, "\n  as written ");
	ir_dim_print(&p->d->out, p->in->dims, ir_func_flops(p->in, f, MAC_ALL), false);
	buf_str(&p->d->out, " = ");
	print_flops(&p->d->out, before);
	buf_printf(&p->d->out, ", the passes left %.1f %%", before > 0 ? 100 * after / before : 0.0);
}

/* Messages of one call: their number, elements of a rank, and seconds. */
struct exchanges {
	struct plan *p;
	struct tfmc_link link;
	int64_t n_sums, n_gathers, n_messages;
	const struct ir_dim *count;
	bool is_in_turn; /* between a receive and a send: of layers, which the stages run one after the other */
	double seconds;
};

/*
 * ir_exchange_fn: adds the number, elements and time of one exchange (or of all of a repeat). Layers are split
 * among the stages, which compute one after the other: what is between a receive and a send takes its time once for
 * each stage.
 */
static void add_exchange(void *user, const struct ir_exchange *x)
{
	struct exchanges *e = user;
	struct ir_dims *dims = e->p->planned->dims;
	const struct driver *d = e->p->d;
	double count, ns;
	(void)evaluate(e->p, x->count, &count);
	if (x->code == OP_receive || x->code == OP_send)
		e->is_in_turn = x->code == OP_receive;
	if (x->code == OP_receive) /* counted where it is sent */
		return;
	if (x->code == OP_all_gather) {
		e->n_gathers += x->times;
		ns = tfmc_link_gather_ns(&e->link, d->ranks, (uint64_t)count);
	} else if (x->code == OP_send) { /* from stage to stage, one after the other */
		e->n_messages += x->times;
		ns = (double)(d->stages - 1) * tfmc_link_message_ns(&e->link, (uint64_t)count);
	} else {
		e->n_sums += x->times;
		ns = tfmc_link_sum_ns(&e->link, d->ranks, (uint64_t)count);
	}
	e->count = ir_dim_add(dims, e->count, ir_dim_mul(dims, x->count, ir_dim_const(dims, x->times)));
	e->seconds += (double)x->times * 1e-9 * ns * (double)(e->is_in_turn ? d->stages : 1);
}

/* Counts the exchanges of a call, and the message by which rank 0 starts it; the inputs in that are taken to be
 * small. */
static struct exchanges count_exchanges(struct plan *p, const struct ir_func *f)
{
	struct exchanges e = {.p = p, .link = driver_link(p->d), .count = ir_dim_const(p->planned->dims, 0)};
	ir_visit_exchanges(p->planned, f, add_exchange, &e);
	e.seconds += 1e-9 * tfmc_link_broadcast_ns(&e.link, driver_ranks(p->d), 0);
	return e;
}

/* Whether an op is of this kind, or a group has one. */
static bool contains(const struct ir_op *op, enum ir_opcode code)
{
	bool found = op->code == code;
	for (size_t i = 0; op->code == OP_group && i < op->region->n_ops; i++)
		found = found || op->region->ops[i]->code == code;
	return found;
}

/* Returns the bytes of weights that a call reads one after the other: those of a rank, and the layers of the stages
 * before it. */
static double weights_in_turn(const struct plan *p, const struct ir_func *planned)
{
	double bytes = ir_func_weight_bytes(planned, p->dims);
	bool is_in_turn = false;
	for (size_t i = 0; i < planned->body->n_ops; i++) {
		const struct ir_op *op = planned->body->ops[i];
		if (op->code == OP_repeat && is_in_turn)
			bytes += (double)(p->d->stages - 1) * ir_op_weight_bytes(planned, op, p->dims);
		is_in_turn = contains(op, OP_receive) || (is_in_turn && !contains(op, OP_send));
	}
	return bytes;
}

/* Prints the messages of a rank, and whether they take longer than reading the weights that other ranks have. */
static void print_exchanges(struct plan *p, const struct ir_func *planned)
{
	struct buf *out = &p->d->out;
	const struct exchanges x = count_exchanges(p, planned);
	const struct ir_func *whole = p->whole ? ir_find_func(p->whole, planned->name) : NULL;
	struct ir_dims *dims = p->planned->dims;
	double memory = option_real(p->d->options.memory_rate, 20) * 1e9;
	if (x.n_sums + x.n_gathers + x.n_messages == 0)
		return;
	buf_printf(out, "  exchanges  %lld sums, %lld gathers", (long long)x.n_sums, (long long)x.n_gathers);
	if (x.n_messages > 0)
		buf_printf(out, ", %lld message%s to the next stage", (long long)x.n_messages,
		           x.n_messages > 1 ? "s" : "");
	buf_str(out, " of a call, ");
	print_formula(p, ir_dim_mul(dims, x.count, ir_dim_const(dims, (int64_t)sizeof(float))), print_bytes);
	buf_printf(out, " of a rank; %.4g ms with the call from rank 0\n", x.seconds * 1e3);
	if (!whole)
		return;
	double part = ir_func_weight_bytes(planned, p->dims), one = ir_func_weight_bytes(whole, p->dims);
	double saved = (one - weights_in_turn(p, planned)) / memory;
	buf_printf(out, "  weights    a call of a rank reads ");
	print_bytes(out, part);
	buf_str(out, " of ");
	print_bytes(out, one);
	buf_printf(out, ", which saves %.3g ms: %s\n", saved > 0 ? saved * 1e3 : 0,
	           saved > x.seconds ? "ranks pay" : "ranks do not pay where memory bounds the call");
}

/* Prints the section of a function: work, weights, exchanges, arena. */
static void print_function(struct plan *p, const struct backend_function_sizes *s)
{
	struct buf *out = &p->d->out;
	print_head(p, s->func);
	buf_str(out, "  products   ");
	print_formula(p, ir_func_flops(p->planned, s->func, MAC_ALL), print_flops);
	print_flops_before_passes(p, s->func);
	buf_str(out, "\n  weights    ");
	print_bytes(out, (double)s->weights);
	buf_str(out, " are read\n");
	print_exchanges(p, s->func);
	const struct plan_func *plan = NULL;
	for (size_t i = 0; plan == NULL && i < p->report->plans.n; i++)
		if (!strcmp(p->report->plans.items[i].name, s->func->name))
			plan = &p->report->plans.items[i];
	print_arena(p, s, plan);
}

/* Prints the report: sizes of the whole model, then of each function. */
static void print_all(struct plan *p)
{
	struct buf *out = &p->d->out;
	buf_printf(out, "%s for %s, pipeline %s\n", p->planned->name, p->target->name, driver_pipeline(p->d));
	if (driver_ranks(p->d) > 1)
		buf_printf(out, "ranks        %lld", (long long)driver_ranks(p->d));
	if (p->d->stages > 1)
		buf_printf(out, " in %lld stages", (long long)p->d->stages);
	if (driver_ranks(p->d) > 1)
		buf_str(out, "; all sizes are those of one rank\n");
	buf_printf(out, "weights      %llu bytes, packed (", (unsigned long long)p->sizes.weights);
	print_bytes(out, (double)p->sizes.weights);
	buf_str(out, ")\n");
	if (p->sizes.state_batch) {
		buf_printf(out, "state        %llu + %llu x sequences bytes",
		           (unsigned long long)p->sizes.state_fixed,
		           (unsigned long long)p->sizes.state_batch);
		if (p->sizes.context_limit)
			buf_printf(out, ", up to %llu tokens each",
			           (unsigned long long)p->sizes.context_limit);
		buf_char(out, '\n');
	}
	buf_printf(out, "sizes        %s_arena_size(", p->planned->name);
	for (size_t i = 0; i < ir_dims_count(p->planned->dims); i++)
		buf_printf(out, "%s, ", ir_dims_sym(p->planned->dims, i)->name);
	buf_printf(out, "workers), %s_weights_size(), %s_state_size(batch) of the header\n", p->planned->name,
	           p->planned->name);
	for (size_t i = 0; i < p->sizes.n_functions; i++)
		print_function(p, &p->sizes.functions[i]);
}

/* "dates for x86-64-v3 at B=8, S=48" */
static void print_caption(struct buf *out, const struct plan *p)
{
	const struct ir_dims *dims = p->planned->dims;
	buf_printf(out, "%s for %s", p->planned->name, p->target->name);
	for (size_t i = 0; i < ir_dims_count(dims); i++)
		buf_printf(out, "%s%s=%lld", i > 0 ? ", " : " at ", ir_dims_sym(dims, i)->name,
		           (long long)p->dims[i]);
}

/* Writes the plan as the picture of --svg and the page of --html. */
static enum tfmc_status write_pictures(struct plan *p)
{
	struct buf text, caption;
	enum tfmc_status st = TFMC_OK;
	buf_init(&text);
	buf_init(&caption);
	print_caption(&caption, p);
	if (p->d->options.svg) {
		plan_print_svg(&text, caption.data, p->report->plans.items, p->report->plans.n, p->dims);
		text.failed = text.failed || buf_failed(&caption);
		st = driver_write_output(p->d, p->d->options.svg, &text);
	}
	buf_clear(&text);
	if (st == TFMC_OK && p->d->options.html) {
		st = plan_page(&p->d->arena, &p->d->diag, p->planned, p->report, p->dims, caption.data,
		               &text);
		st = st == TFMC_OK ? driver_write_output(p->d, p->d->options.html, &text) : st;
	}
	buf_destroy(&text);
	buf_destroy(&caption);
	return st;
}

static enum tfmc_status print_planned(struct plan *p)
{
	struct driver *d = p->d;
	TFMC_TRY(driver_check_planned(d, p->planned));
	TFMC_TRY(choose_plan_dims(p));
	TFMC_TRY(backend_measure(&d->diag, p->planned, p->target, &d->arena, &p->sizes));
	print_all(p);
	TFMC_TRY(driver_print_formats(d, p->loaded, false, &d->out));
	return write_pictures(p);
}

/* Plans the module for one process, which print_exchanges() compares with; *out NULL: it is planned for one. */
static enum tfmc_status plan_whole(struct plan *p, struct ir_module **out)
{
	const int64_t ranks = p->d->ranks, stages = p->d->stages;
	struct pass_report report;
	*out = NULL;
	if (driver_ranks(p->d) == 1)
		return TFMC_OK;
	pass_report_init(&report);
	p->d->ranks = p->d->stages = 1;
	enum tfmc_status st =
	        driver_run_pipeline(p->d, p->in, driver_pipeline(p->d), p->target, out, &report);
	p->d->ranks = ranks;
	p->d->stages = stages;
	pass_report_destroy(&report);
	return st;
}

/* Plans a module and prints the plan. */
static enum tfmc_status plan_module(struct plan *p, const struct ir_module *in)
{
	struct ir_module *planned = NULL, *whole = NULL;
	p->in = in;
	enum tfmc_status st =
	        driver_run_pipeline(p->d, in, driver_pipeline(p->d), p->target, &planned, p->report);
	p->planned = planned;
	if (st == TFMC_OK)
		st = plan_whole(p, &whole);
	p->whole = whole;
	if (st == TFMC_OK)
		st = print_planned(p);
	ir_module_destroy(planned);
	ir_module_destroy(whole);
	return st;
}

enum exit_code command_plan(struct driver *d)
{
	struct loaded l;
	struct pass_report report;
	struct plan p = {.d = d, .loaded = &l, .report = &report};
	pass_report_init(&report);
	enum tfmc_status st = driver_load(d, &l);
	if (st == TFMC_OK && !(p.target = driver_best_target(d, d->options.mcpu)))
		st = TFMC_INVALID;
	if (st == TFMC_OK)
		st = plan_module(&p, l.module);
	loaded_destroy(&l);
	pass_report_destroy(&report);
	return exit_code_of(st);
}
