/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs both sides of a rule in the interpreter (check.h). An instance is made twice from one seed, in f64 (the
 * reference) and in the reduced type; both get the same inputs, rounded to the reduced type. A run is compared
 * only if the rule was applied to exactly this instance.
 */
#include "tests/rules/check.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "ir/support/number.h"
#include "ir/text/text.h"

/* Kinds of inputs. */
enum style {
	STYLE_PLAIN,
	STYLE_ZEROS,
	STYLE_MASKED,
	STYLE_INFINITE,
	STYLE_LARGE,
	STYLE_SMALL,
	STYLE_NAN,
	N_STYLES
};
static const char *const style_names[] = {"plain", "zeros", "masked rows", "infinities",
                                          "large", "small", "NaN"};

#define F64_TOLERANCE 1e-9
#define ULPS          4.0

/* One side of an instance and its result. */
struct side {
	struct ir_module *m;
	const struct ir_func *f;
	struct interp_tensor out;
	double magnitude; /* largest finite magnitude of all intermediate values */
	bool overflowed;
};

/* An instance in one element type. */
struct pair {
	struct side left, right;
};

struct checker {
	struct diag_context *cx; /* of the caller */
	struct diag_context mute;
	struct arena *arena;
	struct arena scratch; /* of one seed */
	const struct rule *rule;
	struct rule_set set; /* contains only the rule */
	struct rule_check *out;
	bool tried;
};

/* ---- building and rewriting ---- */

static bool rule_match_hook(struct rebuild *r, const struct ir_op *op)
{
	return rewriter_match(r->rewrite->user, r, op);
}

static void rule_emit_hook(struct rebuild *r, const struct ir_op *op)
{
	rewriter_emit(r->rewrite->user, r, op);
}

/* Applies the rule once to m. Returns NULL if it does not match, or with *wrong if the replacement is ill-typed. */
static struct ir_module *rewrite(struct checker *c, const struct ir_module *m, bool *wrong)
{
	const struct pipeline_step step = {.pass = pass_at(0)};
	const struct pass_options options = {.target = NULL};
	struct pass_report report;
	struct rewriter w = {.set = &c->set, .fuel = 1, .nonempty = true};
	const struct rewrite hooks = {.match = rule_match_hook, .emit = rule_emit_hook, .user = &w};
	struct ir_module *out = ir_module_create_like(m);
	if (out == NULL)
		return NULL;
	pass_report_init(&report);
	struct pass_context p = {.cx = &c->mute,
	                         .arena = &c->scratch,
	                         .options = &options,
	                         .report = &report,
	                         .step = &step,
	                         .fuel = INT64_MAX};
	enum tfmc_status st = rebuild_module(&p, m, out, &hooks, NULL);
	*wrong = w.applied > 0 && (st != TFMC_OK || w.wrong != NULL);
	bool ok = st == TFMC_OK && w.applied == 1 && !*wrong;
	pass_report_destroy(&report);
	if (ok)
		return out;
	ir_module_destroy(out);
	return NULL;
}

static void destroy_pair(struct pair *p)
{
	ir_module_destroy(p->left.m);
	ir_module_destroy(p->right.m);
	*p = (struct pair){0};
}

/* Makes an instance of both sides. False: this draw is not possible, or the rule does not match it. */
static bool make_pair(struct checker *c, uint64_t seed, enum ir_dtype floats, struct pair *out)
{
	bool wrong = false;
	*out = (struct pair){0};
	out->left.m = rule_instance(c->rule, seed, floats);
	if (out->left.m == NULL)
		return false;
	out->right.m = rewrite(c, out->left.m, &wrong);
	if (wrong)
		c->out->wrong = "the right side does not fit together, or has another type than the left";
	if (out->right.m == NULL) {
		destroy_pair(out);
		return false;
	}
	out->left.f = out->left.m->funcs.items[0];
	out->right.f = out->right.m->funcs.items[0];
	return true;
}

/* ---- numbers ---- */

/* A value of the given style. */
static double draw_value(struct rule_rng *r, enum style style, bool masked)
{
	double x = 4 * rule_real(r) - 2;
	switch (style) {
	case STYLE_PLAIN: return x;
	case STYLE_ZEROS: return rule_below(r, 2) ? x : rule_below(r, 2) ? 0.0 : -0.0;
	case STYLE_MASKED: return masked || rule_below(r, 4) == 0 ? (double)-INFINITY : x;
	case STYLE_INFINITE:
		return rule_below(r, 5) ? x : rule_below(r, 2) ? (double)INFINITY : (double)-INFINITY;
	case STYLE_LARGE: return x * 1e30;
	case STYLE_SMALL: return x * 1e-30;
	case STYLE_NAN: return rule_below(r, 6) ? x : (double)NAN;
	case N_STYLES: break;
	}
	return x;
}

/* Fills an input; floating values are rounded to the reduced type. */
static void fill_input(struct interp_tensor *t, struct rule_rng *r, enum style style, enum ir_dtype lowp)
{
	int64_t n = interp_count(t), row = t->rank > 0 ? t->dims[t->rank - 1] : 1;
	bool masked = false;
	for (int64_t i = 0; i < n; i++) {
		if (row > 0 && i % row == 0)
			masked = rule_below(r, 3) == 0;
		double x = draw_value(r, style, masked);
		switch (ir_dtype_class(t->dtype)) {
		case DTCLASS_FLOAT: t->data[i] = ir_round(lowp, x); break;
		case DTCLASS_INT: t->data[i] = rule_below(r, 6); break;
		case DTCLASS_BOOL: t->data[i] = rule_below(r, 2); break;
		}
	}
}

/* ---- running ---- */

struct watch {
	bool *infinite; /* [values] not all finite */
	double magnitude;
	bool overflowed;
};

/* Largest finite magnitude. */
static double largest(const struct interp_tensor *t)
{
	double m = 0;
	for (int64_t i = 0; i < interp_count(t); i++)
		if (isfinite(t->data[i]))
			m = fmax(m, fabs(t->data[i]));
	return m;
}

static bool all_finite(const struct interp_tensor *t)
{
	for (int64_t i = 0; i < interp_count(t); i++)
		if (!isfinite(t->data[i]))
			return false;
	return true;
}

/* Trace callback: records magnitudes, and ops that compute an infinity or NaN from finite operands. */
static void trace_op(void *user, const struct ir_func *f, const struct ir_op *op,
                     const struct interp_tensor *const *results)
{
	struct watch *w = user;
	bool operands_finite = true;
	(void)f;
	if (op->n_results != 1 || results[0] == NULL || results[0]->data == NULL)
		return;
	for (size_t i = 0; i < op->n_operands; i++)
		operands_finite &= !w->infinite[op->operands[i].id];
	bool finite = all_finite(results[0]);
	w->magnitude = fmax(w->magnitude, largest(results[0]));
	w->infinite[op->results[0].id] = !finite;
	w->overflowed |= !finite && operands_finite && op->code != OP_full && op->code != OP_mask;
}

/* Runs a side. Inputs are drawn from the seed, so all sides get the same ones. */
static bool run_side(struct checker *c, struct side *s, uint64_t seed, enum style style, enum ir_dtype lowp)
{
	struct rule_rng rng = {seed ^ UINT64_C(0x5851f42d4c957f2d)};
	struct interp_tensor *inputs = ARENA_ARRAY(&c->scratch, struct interp_tensor, s->f->n_params + 1);
	int64_t no_dims[1] = {0};
	struct watch w = {.infinite = ARENA_ARRAY(&c->scratch, bool, s->f->n_values)};
	if (inputs == NULL || w.infinite == NULL)
		return false;
	for (size_t i = 0; i < s->f->n_params; i++) {
		struct ir_value v = s->f->params[i].value;
		if (!interp_tensor_make(&c->scratch, ir_type_of(s->f, v), no_dims, &inputs[i]))
			return false;
		fill_input(&inputs[i], &rng, style, lowp);
		w.infinite[v.id] = !all_finite(&inputs[i]);
		w.magnitude = fmax(w.magnitude, largest(&inputs[i]));
	}
	const struct interp_args args = {.dims = no_dims,
	                                 .inputs = inputs,
	                                 .outputs = &s->out,
	                                 .arena = &c->scratch,
	                                 .trace = trace_op,
	                                 .trace_user = &w};
	bool ok = interp_run(&c->mute, s->m, s->f, &args) == TFMC_OK;
	s->overflowed = w.overflowed;
	s->magnitude = w.magnitude;
	return ok;
}

/* ---- comparing ---- */

static void report_wrong(struct checker *c, const struct pair *p, enum style style, const char *what)
{
	struct buf text;
	if (c->out->wrong != NULL)
		return;
	buf_init(&text);
	ir_print_func(&text, &c->mute, p->left.m, p->left.f);
	c->out->wrong = arena_printf(c->arena, "%s, on inputs of the kind '%s'", what, style_names[style]);
	c->out->instance = arena_strdup(c->arena, text.data);
	buf_destroy(&text);
}

static bool same_bits(double a, double b)
{
	return isnan(a) ? isnan(b) : a == b && signbit(a) == signbit(b);
}

static const char *describe(struct checker *c, int64_t i, double right, double left, double allowed)
{
	char r[NUMBER_TEXT_MAX], l[NUMBER_TEXT_MAX], a[NUMBER_TEXT_MAX];
	number_print_f64(r, right);
	number_print_f64(l, left);
	number_print_f64(a, allowed);
	return arena_printf(c->arena,
	                    "element %lld is %s, the left side gives %s, allowed is a distance of %s",
	                    (long long)i, r, l, a);
}

static void compare_bits(struct checker *c, const struct pair *p, enum style style)
{
	const struct interp_tensor *l = &p->left.out, *r = &p->right.out;
	for (int64_t i = 0; i < interp_count(l); i++) {
		bool is_same = same_bits(l->data[i], r->data[i]) && interp_abs_diff(l, r, i) == 0;
		if (is_same || (c->rule->except_nan && isnan(l->data[i])))
			continue;
		report_wrong(c, p, style, describe(c, i, r->data[i], l->data[i], 0));
	}
	c->out->compared++;
}

/* The row (last axis) of element i contains a NaN. */
static bool row_has_nan(const struct interp_tensor *t, int64_t i)
{
	int64_t n = t->rank > 0 ? t->dims[t->rank - 1] : 1;
	for (int64_t k = i - i % n; k < i - i % n + n; k++)
		if (isnan(t->data[k]))
			return true;
	return false;
}

/* The row of element i is all 0: a row of scores without a visible key. */
static bool row_is_empty(const struct interp_tensor *t, int64_t i)
{
	int64_t n = t->rank > 0 ? t->dims[t->rank - 1] : 1;
	for (int64_t k = i - i % n; k < i - i % n + n; k++)
		if (t->data[k] != 0)
			return false;
	return true;
}

/* Compares NaN and infinities, as far as the rule defines them. True: the element needs no further comparison. */
static bool compare_special(struct checker *c, const struct interp_tensor *l, int64_t i, double right,
                            bool *differs)
{
	double left = l->data[i];
	*differs = false;
	if (isfinite(left) && isfinite(right))
		return false;
	if ((c->rule->except_nan && row_has_nan(l, i)) || (isinf(left) && c->rule->except_inf))
		return true;
	*differs = isnan(left) ? !isnan(right) : left != right;
	return true;
}

/* Compares the right side with `expected`, element by element, with the absolute bound `allowed`. */
static void compare_near(struct checker *c, const struct pair *p, const struct interp_tensor *expected,
                         double allowed, enum style style)
{
	const struct interp_tensor *r = &p->right.out;
	for (int64_t i = 0; i < interp_count(r); i++) {
		bool differs;
		double error = fabs(r->data[i] - expected->data[i]);
		if (c->rule->except_empty && row_is_empty(r, i))
			continue;
		if (compare_special(c, &p->left.out, i, r->data[i], &differs)) {
			if (differs)
				report_wrong(c, p, style,
				             describe(c, i, r->data[i], p->left.out.data[i], allowed));
			continue;
		}
		if (!isfinite(expected->data[i]))
			continue;
		c->out->worst = fmax(c->out->worst, allowed > 0 ? error / allowed : error > 0);
		if (!(error <= allowed))
			report_wrong(c, p, style, describe(c, i, r->data[i], expected->data[i], allowed));
	}
	c->out->compared++;
}

/* Element count of the largest value: a bound of the length of sums. */
static double sum_length(const struct ir_func *f)
{
	int64_t most = 1, n;
	for (size_t i = 1; i < f->n_values; i++) {
		const struct ir_type *t = f->values[i].type;
		int64_t count = 1;
		for (int k = 0; k < t->rank; k++)
			count *= ir_dim_is_const(t->dims[k], &n) ? n : 1;
		most = count > most ? count : most;
	}
	return (double)most;
}

static double epsilon(enum ir_dtype t)
{
	return t == DT_F64 ? DBL_EPSILON : t == DT_F32 ? (double)FLT_EPSILON : t == DT_F16 ? 0x1p-10 : 0x1p-7;
}

/* Error of f64 from cancellation of large intermediate values. */
static double cancellation_error(const struct pair *reference)
{
	return 4 * ULPS * DBL_EPSILON * reference->left.magnitude;
}

/* Allowed distance of the right side in the reduced type from the f64 result. */
static double allowed_lowp(struct checker *c, const struct pair *reference, const struct pair *lowp,
                           enum ir_dtype t)
{
	const struct interp_tensor *exact = &reference->left.out, *left = &lowp->left.out;
	double worst = 0, ulps = ULPS;
	for (int64_t i = 0; i < interp_count(left); i++)
		if (isfinite(left->data[i]) && isfinite(exact->data[i]))
			worst = fmax(worst, fabs(left->data[i] - exact->data[i]));
	if (c->rule->class == RULE_REASSOCIATE)
		ulps *= sum_length(lowp->left.f);
	double bound = 2 * worst + ulps * epsilon(t) * largest(exact) + 8 * (double)FLT_TRUE_MIN +
	               cancellation_error(reference);
	if (c->rule->class == RULE_APPROXIMATE)
		bound += c->rule->tolerance * largest(exact);
	return bound;
}

/* ---- one seed ---- */

static bool allows_style(const struct rule *rule, enum style style)
{
	if (rule->class == RULE_APPROXIMATE)
		return style == STYLE_PLAIN || style == STYLE_ZEROS;
	return style != STYLE_NAN || !rule->except_nan;
}

static void check_bits(struct checker *c, uint64_t seed, enum ir_dtype t)
{
	struct pair p;
	if (!make_pair(c, seed, t, &p))
		return;
	for (int s = 0; s < N_STYLES; s++)
		if (allows_style(c->rule, (enum style)s) && run_side(c, &p.left, seed, (enum style)s, t) &&
		    run_side(c, &p.right, seed, (enum style)s, t))
			compare_bits(c, &p, (enum style)s);
	destroy_pair(&p);
}

/* Compares both sides in f64, and in f32 against the f64 result of the left side. */
static void check_style(struct checker *c, struct pair *reference, struct pair *lowp, uint64_t seed,
                        enum style style)
{
	bool ran = run_side(c, &reference->left, seed, style, DT_F32) &&
	           run_side(c, &reference->right, seed, style, DT_F32) &&
	           run_side(c, &lowp->left, seed, style, DT_F32) &&
	           run_side(c, &lowp->right, seed, style, DT_F32);
	if (!ran)
		return;
	if (reference->left.overflowed || lowp->left.overflowed) {
		c->out->skipped++;
		return;
	}
	double rel = c->rule->class == RULE_APPROXIMATE ? c->rule->tolerance : F64_TOLERANCE;
	double allowed = rel * largest(&reference->left.out) + 8 * DBL_MIN + cancellation_error(reference);
	compare_near(c, reference, &reference->left.out, allowed, style);
	compare_near(c, lowp, &reference->left.out, allowed_lowp(c, reference, lowp, DT_F32), style);
}

/* Tests one seed of a rule that is not of class bits. */
static void check_near(struct checker *c, uint64_t seed)
{
	struct pair reference, lowp;
	if (!make_pair(c, seed, DT_F64, &reference))
		return;
	if (make_pair(c, seed, DT_F32, &lowp)) {
		for (int s = 0; s < N_STYLES; s++)
			if (allows_style(c->rule, (enum style)s))
				check_style(c, &reference, &lowp, seed, (enum style)s);
		destroy_pair(&lowp);
	}
	destroy_pair(&reference);
}

static void check_seed(struct checker *c, uint64_t seed)
{
	static const enum ir_dtype exact[] = {DT_F32, DT_BF16, DT_I32, DT_BOOL};
	if (c->rule->class != RULE_BITS) {
		check_near(c, seed);
		return;
	}
	for (size_t i = 0; i < TFMC_COUNT(exact); i++)
		check_bits(c, seed, exact[i]);
}

/* ---- one rule, all rules ---- */

static bool add_rule(struct checker *c)
{
	struct rule_bucket *b = &c->set.by_root[c->rule->match[c->rule->n_match - 1].code];
	return ARENA_ADDED(&c->set.arena, b, c->rule);
}

/* Tests one rule. TFMC_OK also if the rule is wrong (out->wrong). */
static enum tfmc_status rule_check_run(struct diag_context *cx, struct arena *a, const struct rule *rule,
                                       int seeds, struct rule_check *out)
{
	struct checker c = {.cx = cx, .arena = a, .rule = rule, .out = out};
	*out = (struct rule_check){.rule = rule};
	diag_init(&c.mute, NULL, NULL);
	rule_set_init(&c.set);
	bool ok = add_rule(&c);
	uint64_t seed = hash_bytes64(HASH64_SEED, rule->name, strlen(rule->name));
	/* Draws that violate the predicates are cheap: allow many. */
	for (int i = 0; ok && i < 50 * seeds && out->compared < 4 * (int64_t)seeds && out->wrong == NULL;
	     i++) {
		arena_init(&c.scratch);
		check_seed(&c, seed + (uint64_t)i);
		ok = !arena_failed(&c.scratch);
		arena_destroy(&c.scratch);
	}
	if (out->compared == 0 && out->wrong == NULL)
		out->wrong = "no instance of the left side could be made and compared";
	rule_set_destroy(&c.set);
	diag_destroy(&c.mute);
	return ok && !arena_failed(a) ? TFMC_OK : TFMC_NO_MEMORY;
}

static void print_row(struct buf *table, const struct rule_check *c)
{
	if (table == NULL)
		return;
	buf_printf(table, "%-32s %-11s %5lld compared %4lld skipped  %5.2f of the bound  %s\n", c->rule->name,
	           rule_class_name(c->rule->class), (long long)c->compared, (long long)c->skipped, c->worst,
	           c->wrong == NULL ? "ok" : "FAILED");
}

enum tfmc_status rule_check_all(struct diag_context *cx, const struct rule_set *set, int seeds,
                                struct buf *table)
{
	enum tfmc_status st = TFMC_OK;
	size_t wrong = 0;
	for (size_t i = 0; i < set->rules.n && st == TFMC_OK; i++) {
		struct rule_check check;
		struct arena a;
		arena_init(&a);
		st = rule_check_run(cx, &a, set->rules.items[i], seeds, &check);
		if (st == TFMC_OK)
			print_row(table, &check);
		if (st == TFMC_OK && check.wrong != NULL) {
			wrong++;
			diag_error(cx, check.rule->loc, DIAG_CHECK_FAILED, "the rule %s (%s) is wrong: %s",
			           check.rule->name, rule_class_name(check.rule->class), check.wrong);
			if (check.instance != NULL)
				diag_note(cx, LOC_NONE, "%s", check.instance);
		}
		arena_destroy(&a);
	}
	return st != TFMC_OK ? st : wrong > 0 ? TFMC_INVALID : TFMC_OK;
}
