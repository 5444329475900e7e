/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Comparison and table. A cell is the largest error of a row's calls as a
 * fraction of its bound, or `bits` when all results are the interpreter's.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/matrix/files.h"
#include "tests/matrix/table.h"

#define REL_L2_MAX   1e-5 /* of models: the bound of tfmc verify (frontend/driver/commands/differential.c) */
#define FAILURES_MAX 24

/* Cases that back ends may reject, with the reason. Any other rejection is a failure. */
struct allowed {
	bool opencl_only;
	const char *says, *why;
};
static const struct allowed allowed[] = {
        {false, "this function of f64", "elementary functions are polynomials for f32 (kernel/math.c)"},
        {false, "rows of f64", "norms and softmaxes of whole rows are those of f32 (kernel/rowwise.h)"},
        {true, "f64 values in OpenCL kernels", "f64 is an extension of OpenCL C 1.2, which devices may lack"},
};

/* ---- one case ---- */

static bool same(double have, double want)
{
	return have == want || (isnan(have) && isnan(want));
}

static void note_difference(struct comparison *r, struct arena *a, size_t output, int64_t i, double have,
                            double want, double bound)
{
	if (!r->why)
		r->why = arena_printf(a, "output %zu, element %" PRId64 " is %.9g, expected %.9g, bound %.3g",
		                      output, i, have, want, bound);
}

static void compare_elements(struct comparison *r, struct arena *a, size_t output,
                             const struct interp_tensor *have, const struct interp_tensor *want,
                             const double *bounds)
{
	for (int64_t i = 0; i < interp_count(want); i++) {
		double h = have->data[i], w = want->data[i], e = interp_abs_diff(have, want, i),
		       b = bounds[i];
		if (e == 0)
			continue;
		r->differs = true;
		bool ok = isfinite(e) && isfinite(b) && e <= b;
		r->worst = ok ? fmax(r->worst, e / b) : HUGE_VAL;
		if (!ok)
			note_difference(r, a, output, i, h, w, b);
	}
}

/* ||have - want|| / ||want||; what is no finite number must be equal. */
static void compare_norms(struct comparison *r, struct arena *a, size_t output,
                          const struct interp_tensor *have, const struct interp_tensor *want)
{
	double difference = 0, norm = 0;
	for (int64_t i = 0; i < interp_count(want); i++) {
		double h = have->data[i], w = want->data[i];
		norm += isfinite(w) ? w * w : 0;
		if (same(h, w))
			continue;
		r->differs = true;
		difference += (h - w) * (h - w);
	}
	double error = difference == 0 ? 0 : sqrt(difference / norm) / REL_L2_MAX;
	bool ok = error <= 1;
	r->worst = ok ? fmax(r->worst, error) : HUGE_VAL;
	if (!ok && !r->why)
		r->why = arena_printf(a, "output %zu: relative L2 error %.3g, bound %.3g", output,
		                      error * REL_L2_MAX, REL_L2_MAX);
}

struct comparison compare_case(struct arena *a, const struct matrix_case *c, const char *data)
{
	struct comparison r = {0};
	for (size_t i = 0; i < c->n_outputs; i++) {
		struct interp_tensor have = c->outputs[i];
		if (!output_is_caller(c->f, i))
			continue;
		size_t n = (size_t)interp_count(&have) * (size_t)ir_dtype_bytes(have.dtype);
		if (!interp_tensor_alloc(a, &have))
			break;
		interp_from_bytes(&have, data);
		data += (n + 7) / 8 * 8;
		if (c->bounds)
			compare_elements(&r, a, i, &have, &c->outputs[i], c->bounds[i]);
		else
			compare_norms(&r, a, i, &have, &c->outputs[i]);
	}
	return r;
}

/* ---- rows ---- */

static struct row *add_row(struct table *t, const char *name, int code)
{
	struct row *r = ARENA_PUSH(t->s->arena, &t->rows);
	if (r)
		*r = (struct row){.name = name, .code = code};
	return r;
}

/* Ops in the order of ir/core/ops.def, then what else cases name. */
static bool make_rows(struct table *t)
{
	for (int i = 0; i < IR_N_OPS; i++)
		if (!add_row(t, ir_op_desc((enum ir_opcode)i)->name, i))
			return false;
	for (size_t i = 0; i < t->s->cases.n; i++) {
		const char *name = t->s->cases.items[i].row;
		size_t k = 0;
		while (k < t->rows.n && strcmp(t->rows.items[k].name, name) != 0)
			k++;
		if (k == t->rows.n && !add_row(t, name, -1))
			return false;
		t->rows.items[k].has_own = true;
	}
	return true;
}

/* A case counts for its row, and for ops that have no cases of their own when it contains them. */
static bool belongs(const struct row *r, const struct matrix_case *c)
{
	if (!strcmp(r->name, c->row))
		return true;
	return r->code >= 0 && !r->has_own &&
	       (r->code == OP_group || ops_has(&c->ops, (enum ir_opcode)r->code));
}

/* ---- columns ---- */

static const char *status_text(uint64_t status, struct arena *a)
{
	switch (status) {
	case MATRIX_ABSENT: return "the object has no such model or entry";
	case MATRIX_GUARD: return "memory beside a buffer was written";
	case MATRIX_INPUT: return "an input was written";
	case MATRIX_MISMATCH: return "the record has other inputs or outputs than the module";
	default: return arena_printf(a, "status %" PRIu64, status);
	}
}

static void fail(struct table *t, const struct column *column, const struct matrix_case *c, const char *why)
{
	if (t->n_failed++ < FAILURES_MAX)
		buf_printf(&t->failures, "FAIL %s %s: %s: %s\n", column->name, c->row, c->what, why);
}

static void count(struct table *t, size_t column, const struct matrix_case *c, enum outcome outcome,
                  const struct comparison *r)
{
	for (size_t i = 0; i < t->rows.n; i++) {
		struct cell *cell = &t->rows.items[i].cells[column];
		if (!belongs(&t->rows.items[i], c))
			continue;
		cell->n[outcome]++;
		cell->differs = cell->differs || (r && r->differs);
		cell->worst = r && r->worst > cell->worst ? r->worst : cell->worst;
	}
	t->n[outcome]++;
}

/* The line of a function in the column's list of refusals, or NULL. */
static const char *refusal(struct table *t, const char *refused, const struct matrix_case *c)
{
	const struct batch *b = &t->s->batches.items[c->batch];
	const char *key = arena_printf(t->s->arena, "%s\t%s\t", b->name, c->f->name);
	const char *at = strstr(refused, key);
	return at ? arena_strndup(t->s->arena, at + strlen(key), strcspn(at + strlen(key), "\n")) : NULL;
}

static bool is_allowed(const struct column *column, const char *message)
{
	for (size_t i = 0; i < TFMC_COUNT(allowed); i++)
		if ((!allowed[i].opencl_only || column->kind == COLUMN_OPENCL) &&
		    strstr(message, allowed[i].says))
			return true;
	return false;
}

static size_t output_bytes(const struct matrix_case *c)
{
	size_t all = 0;
	for (size_t i = 0; i < c->n_outputs; i++)
		if (output_is_caller(c->f, i))
			all += ((size_t)interp_count(&c->outputs[i]) *
			                (size_t)ir_dtype_bytes(c->outputs[i].dtype) +
			        7) /
			       8 * 8;
	return all;
}

/* Returns how many bytes of the column's file belong to the case, after its status. */
static size_t judge(struct table *t, size_t column, const struct matrix_case *c, uint64_t status,
                    const char *data, const char *refused)
{
	const struct column *col = column_at(column);
	const char *says = status == MATRIX_ABSENT ? refusal(t, refused, c) : NULL;
	if (status == MATRIX_ABSENT && !column_takes(col, &t->s->batches.items[c->batch], c->f))
		return 0;
	if (says && is_allowed(col, says)) {
		count(t, column, c, OUTCOME_REFUSED, NULL);
		return 0;
	}
	if (status) {
		count(t, column, c, OUTCOME_FAILED, NULL);
		fail(t, col, c, says ? says : status_text(status, t->s->arena));
		return 0;
	}
	struct comparison r = compare_case(t->s->arena, c, data);
	count(t, column, c, r.why ? OUTCOME_FAILED : OUTCOME_OK, &r);
	if (r.why)
		fail(t, col, c, r.why);
	return output_bytes(c);
}

static void read_column(struct table *t, size_t column, const char *dir)
{
	const struct column *col = column_at(column);
	const char *bytes, *refused = "";
	size_t n, at = 0, n_refused;
	t->has_column[column] =
	        file_get(t->s->arena, arena_printf(t->s->arena, "%s/%s.out", dir, col->name), &bytes, &n);
	if (!t->has_column[column])
		return;
	if (!file_get(t->s->arena, arena_printf(t->s->arena, "%s/%s.refused", dir, col->name), &refused,
	              &n_refused))
		refused = "";
	for (size_t i = 0; i < t->s->cases.n; i++) {
		const struct matrix_case *c = &t->s->cases.items[i];
		uint64_t status = MATRIX_ABSENT;
		if (at + 8 > n) {
			count(t, column, c, OUTCOME_FAILED, NULL);
			fail(t, col, c, "the runner ended before this call");
			break;
		}
		memcpy(&status, bytes + at, 8);
		at += 8;
		if (status == 0 && at + output_bytes(c) > n)
			status = MATRIX_MISMATCH;
		at += judge(t, column, c, status, bytes + at, refused);
	}
}

/* When functions take turns, every row still meets every kind of back end. */
static void check_coverage(struct table *t, const struct row *r)
{
	size_t n[COLUMN_OPENCL + 1] = {0};
	bool is_run[COLUMN_OPENCL + 1] = {true, true, true};
	for (size_t k = 0; column_at(k); k++) {
		enum column_kind kind = column_at(k)->kind;
		is_run[kind] = is_run[kind] && t->has_column[k];
		for (size_t i = 0; i < N_OUTCOMES; i++)
			n[kind] += r->cells[k].n[i];
	}
	for (size_t k = 0; k <= COLUMN_OPENCL; k++)
		if (r->has_own && is_run[k] && n[k] == 0 && t->n_failed++ < FAILURES_MAX)
			buf_printf(&t->failures, "FAIL %s: no column of the kind '%s' has it\n", r->name,
			           column_kind_name((enum column_kind)k));
}

/* ---- text ---- */

static const char *cell_text(struct arena *a, const struct cell *c)
{
	if (c->n[OUTCOME_FAILED] > 0)
		return "FAIL";
	if (c->n[OUTCOME_OK] == 0)
		return c->n[OUTCOME_REFUSED] > 0 ? "refused" : "-";
	const char *mark = c->n[OUTCOME_REFUSED] > 0 ? "r" : "";
	return c->differs ? arena_printf(a, "%.2g%s", c->worst, mark) : arena_printf(a, "bits%s", mark);
}

static void print(struct table *t, struct buf *out)
{
	buf_printf(out, "%-22s", "");
	for (size_t k = 0; column_at(k); k++)
		buf_printf(out, " %9s", column_at(k)->name);
	for (size_t i = 0; i < t->rows.n; i++) {
		buf_printf(out, "\n%-22s", t->rows.items[i].name);
		for (size_t k = 0; column_at(k); k++)
			buf_printf(out, " %9s",
			           t->has_column[k] ? cell_text(t->s->arena, &t->rows.items[i].cells[k])
			                            : "-");
	}
	buf_str(out, "\n\nlargest error as a fraction of its bound; bits: equal to the interpreter's; r: "
	             "some element types "
	             "refused; -: not run\n");
	for (size_t k = 0; column_at(k); k++)
		buf_printf(out, "  %-9s %s%s\n", column_at(k)->name, column_at(k)->how,
		           t->has_column[k] ? "" : ": SKIPPED");
	for (size_t i = 0; i < TFMC_COUNT(allowed) && t->n[OUTCOME_REFUSED] > 0; i++)
		buf_printf(out, "  refused: %s: %s\n", allowed[i].says, allowed[i].why);
	buf_str(out, t->failures.data);
	if (t->n_failed > FAILURES_MAX)
		buf_printf(out, "and %zu more\n", t->n_failed - FAILURES_MAX);
	buf_printf(out, "%zu cases, %zu comparisons, %zu refused, %zu failed\n", t->s->cases.n,
	           t->n[OUTCOME_OK], t->n[OUTCOME_REFUSED], t->n[OUTCOME_FAILED]);
}

bool table_print(struct suite *s, const char *dir, size_t *n_failed)
{
	struct table t = {.s = s};
	struct buf out;
	buf_init(&out);
	buf_init(&t.failures);
	bool ok = make_rows(&t);
	for (size_t k = 0; ok && column_at(k); k++)
		read_column(&t, k, dir);
	for (size_t i = 0; ok && i < t.rows.n; i++)
		check_coverage(&t, &t.rows.items[i]);
	print(&t, &out);
	fputs(out.data, stdout);
	ok = ok && file_put(arena_printf(s->arena, "%s/table.txt", dir), out.data, out.len);
	*n_failed = t.n_failed;
	buf_destroy(&out);
	buf_destroy(&t.failures);
	return ok;
}
