/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calibration profile written by `tfmc calibrate`: for each matrix the mean squares and means of its input
 * columns, which weight the quantization error of each column. It is opened as one more weight file; none of
 * its tensors is a parameter. A tensor is called PARAMETER.inputs (FRONTEND_INPUTS): row 0 has the mean squares, row 1
 * the means.
 */
#include <math.h>
#include <string.h>

#include "frontend/lower/lower.h"

static bool report_bad_tensor(struct frontend_model *m, const struct stored_tensor *t, const char *what)
{
	diag_error(m->cx, t->loc, DIAG_WEIGHT_FILE, "the profile '%s': tensor '%.200s' %s", t->file, t->name,
	           what);
	return false;
}

static double read_f32(const struct stored_tensor *t, int64_t i)
{
	double v;
	weight_read_elements(DT_F32, t->data, i, 1, &v);
	return v;
}

/* Whether every mean square is 0. */
static bool is_all_zero(const struct stored_tensor *t)
{
	int64_t i = 0;
	while (i < t->dims[1] && read_f32(t, i) == 0)
		i++;
	return i == t->dims[1];
}

/* Checks that the tensor is F32 [2, K]: finite mean squares >= 0, and means. */
static bool check_profile_tensor(struct frontend_model *m, const struct stored_tensor *t)
{
	size_t n = strlen(t->name), end = strlen(FRONTEND_INPUTS);
	if (n <= end || strcmp(t->name + n - end, FRONTEND_INPUTS) != 0)
		return report_bad_tensor(m, t, "is not one that tfmc calibrate writes");
	if (!t->readable || t->dtype != DT_F32 || t->read != NULL || t->reversed || t->rank != 2 ||
	    t->dims[0] != 2)
		return report_bad_tensor(m, t, "is not F32 [2, columns of one matrix]");
	for (int64_t i = 0; i < t->dims[1]; i++) {
		double square = read_f32(t, i);
		if (!(square >= 0) || !isfinite(square) || !isfinite(read_f32(t, t->dims[1] + i)))
			return report_bad_tensor(
			        m, t, "has a number that is infinite or NaN, or a square below zero");
	}
	return true;
}

/* Its tensors are marked as ignored, so that none is reported as unused. A wrong file that the model names makes the
 * model invalid; the status of an option's file is returned as it is. */
enum tfmc_status profile_open(struct frontend_model *m)
{
	const struct model_quantize *q = &m->quantize;
	struct weight_files *files = m->weights.files;
	size_t first = weight_files_count(files);
	bool ok = true;
	if (q->profile == NULL)
		return TFMC_OK;
	enum tfmc_status st = weight_files_open(files, q->profile_dir, q->profile, q->profile_loc);
	if (st != TFMC_OK)
		return q->profile_dir == NULL
		               ? st
		               : TFMC_INVALID; /* the model names a wrong file: an invalid model */
	for (size_t i = first; i < weight_files_count(files); i++) {
		struct stored_tensor *t = weight_files_at(files, i);
		t->ignored = true;
		ok = check_profile_tensor(m, t) && ok;
	}
	m->weights.profile.first = first;
	m->weights.profile.n = weight_files_count(files) - first;
	return ok ? TFMC_OK : TFMC_INVALID;
}

/* A matrix that calibration did not reach is quantized without statistics, and counted for the warning at the end; a
   table is looked up by ids, has no inputs to measure, and is not counted. */
bool profile_find(struct frontend_model *m, const struct parameter_request *want, bool is_table,
                  const struct ir_wexpr **out)
{
	const char *name = arena_printf(&m->arena, "%s" FRONTEND_INPUTS, want->path);
	const struct stored_tensor *t =
	        m->weights.profile.n > 0 ? weight_files_find(m->weights.files, name) : NULL;
	int64_t k = want->dims[want->rank - 1];
	*out = NULL;
	if (m->quantize.profile == NULL)
		return true;
	m->weights.profile.n_quantized++;
	if (t == NULL || is_all_zero(t)) { /* all zero: no calibration input reached the matrix */
		m->weights.profile.n_unknown += !is_table;
		m->weights.profile.example = is_table ? m->weights.profile.example : want->path;
		return true;
	}
	if (t->dims[1] != k)
		return report_bad_tensor(m, t,
		                         arena_printf(&m->arena, "has %lld columns, the parameter %lld",
		                                      (long long)t->dims[1], (long long)k));
	*out = wexpr_tensor(&m->arena, t->file, t->name, DT_F32, 2, t->dims);
	return true;
}

bool profile_finish(struct frontend_model *m)
{
	const struct model_quantize *q = &m->quantize;
	size_t foreign = 0;
	const char *example = NULL;
	for (size_t i = 0; i < m->weights.profile.n; i++) {
		const char *name = weight_files_at(m->weights.files, m->weights.profile.first + i)->name;
		const char *path = arena_strndup(&m->arena, name, strlen(name) - strlen(FRONTEND_INPUTS));
		if (strmap_has(&m->weights.resolved, path))
			continue;
		example = foreign++ == 0 ? path : example;
	}
	if (foreign > 0) {
		diag_error(
		        m->cx, q->profile_loc, DIAG_MISSING,
		        "the profile '%.200s' is that of another model: %zu of its %zu parameters are not in "
		        "this one, such as '%.200s'",
		        q->profile, foreign, m->weights.profile.n, example);
		return false;
	}
	if (m->weights.profile.n_unknown > 0)
		diag_warning(m->cx, q->profile_loc, DIAG_MISSING,
		             "the profile '%.200s' has no statistics of %zu of the %zu quantized matrices, "
		             "such as "
		             "'%.200s': their columns have equal weights",
		             q->profile, m->weights.profile.n_unknown, m->weights.profile.n_quantized,
		             m->weights.profile.example);
	return true;
}
