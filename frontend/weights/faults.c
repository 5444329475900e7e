/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the causes of parameters without a fitting tensor. Interface: faults.h.
 */
#include "frontend/weights/faults.h"

#include <ctype.h>
#include <string.h>

#include "frontend/weights/entry.h"

#define INDEX_MAX    1000000 /* larger integers in names are not indices */
#define NAMED_PARAMS 3

/* ---- series: names that differ in an index ---- */

static bool is_index_at(const char *name, size_t i)
{
	return isdigit((unsigned char)name[i]) && i > 0 && name[i - 1] == '.';
}

/* Index at `text`, which ends at a dot or the end of the name; -1: not an index. */
static int64_t read_index(const char *text)
{
	int64_t value = 0;
	size_t n = 0;
	for (; isdigit((unsigned char)text[n]); n++)
		value = value < INDEX_MAX ? value * 10 + (text[n] - '0') : value;
	return n == 0 || value >= INDEX_MAX || (text[n] != '.' && text[n] != '\0') ? -1 : value;
}

/* The first n bytes of the name, with each index replaced by '*'. */
static const char *with_stars(struct arena *a, const char *name, size_t n)
{
	struct buf out;
	buf_init(&out);
	for (size_t i = 0; i < n; i++) {
		if (!is_index_at(name, i)) {
			buf_char(&out, name[i]);
			continue;
		}
		buf_char(&out, '*');
		while (i + 1 < n && isdigit((unsigned char)name[i + 1]))
			i++;
	}
	const char *text = arena_strdup(a, out.data);
	buf_destroy(&out);
	return text;
}

const char *weight_series(const struct weight_fault_context *x, const char *name, bool of_used,
                          int64_t *count)
{
	for (size_t i = 0; name[i] != '\0'; i++) {
		int64_t stored = 0, index = is_index_at(name, i) ? read_index(name + i) : -1;
		for (size_t t = 0; index >= 0 && t < weight_files_count(x->files); t++) {
			const struct stored_tensor *s = weight_files_at(x->files, t);
			bool is_one = strncmp(s->key, name, i) == 0 && (s->used || !of_used);
			int64_t stored_index = is_one ? read_index(s->key + i) : -1;
			stored = stored_index >= stored ? stored_index + 1 : stored;
		}
		if (stored > 0 && index >= stored) {
			*count = stored;
			return with_stars(x->arena, name, i);
		}
	}
	return NULL;
}

int64_t weight_series_index(struct arena *a, const char *series, const char *name)
{
	for (size_t i = 0; name[i] != '\0'; i++)
		if (is_index_at(name, i) && strcmp(with_stars(a, name, i), series) == 0)
			return read_index(name + i);
	return -1;
}

/* ---- params ---- */

/* "'layers' is 12": the model params with this value; "": none, or more than NAMED_PARAMS. */
static const char *params_with_value(const struct weight_fault_context *x, int64_t value)
{
	size_t n = 0, found = 0;
	const char *const *names =
	        x->env == NULL || x->env->names == NULL ? NULL : x->env->names(x->env->user, &n);
	struct buf out;
	buf_init(&out);
	for (size_t i = 0; i < n; i++) {
		struct value v;
		if (x->env->lookup(x->env->user, names[i], LOC_NONE, &v) != EXPR_FOUND ||
		    v.kind != VALUE_INT || v.i != value)
			continue;
		buf_printf(&out, "%s'%s'", found++ == 0 ? "" : " and ", names[i]);
	}
	const char *text = found == 0 || found > NAMED_PARAMS
	                           ? ""
	                           : arena_printf(x->arena, "%s %s %lld", out.data, found == 1 ? "is" : "are",
	                                          (long long)value);
	buf_destroy(&out);
	return text;
}

/* ---- reports: each marks the faults of its cause as reported ---- */

/* "; 23 more WHAT", or "" for 0. */
static const char *count_suffix(const struct weight_fault_context *x, size_t n, const char *what)
{
	return n == 0 ? "" : arena_printf(x->arena, "; %zu more %s", n, what);
}

/* Reports a wrong number of layers; false: the name is in no series. */
static bool report_series(const struct weight_fault_context *x, struct weight_faults *faults,
                          struct weight_fault *first)
{
	int64_t stored, asked = 0;
	size_t more = 0;
	const char *series = weight_series(x, first->tensor, false, &stored);
	if (series == NULL)
		return false;
	for (struct weight_fault *f = first; f < faults->items + faults->n; f++) {
		int64_t index = f->is_reported || f->kind > FAULT_UNMAPPED
		                        ? -1
		                        : weight_series_index(x->arena, series, f->tensor);
		if (index < stored)
			continue;
		f->is_reported = true;
		more += f != first;
		asked = index >= asked ? index + 1 : asked;
	}
	diag_error(
	        x->cx, first->request.loc, DIAG_MISSING_TENSOR,
	        "the files have %lld of '%s*', the model asks for %lld: no tensor '%.200s' for the parameter "
	        "'%.200s'%s",
	        (long long)stored, series, (long long)asked, first->tensor, first->request.path,
	        count_suffix(x, more, more == 1 ? "is missing" : "are missing"));
	const char *params = params_with_value(x, asked);
	if (params[0] != '\0')
		diag_note(x->cx, LOC_NONE, "%s", params);
	return true;
}

static void note_nearest(const struct weight_fault_context *x, const char *name)
{
	const char *near = diag_is_full(x->cx) ? "" : weight_files_nearest(x->files, name);
	if (near[0] != '\0')
		diag_note(x->cx, LOC_NONE, "nearest tensors: %s", near);
}

static bool is_same_loc(struct loc a, struct loc b)
{
	return a.source == b.source && a.line == b.line && a.col == b.col;
}

static bool is_same_entry(const struct weight_fault *a, const struct weight_fault *b)
{
	return a->kind == b->kind && is_same_loc(a->mapped, b->mapped);
}

/* Marks the faults of the same map entry as reported; returns how many in addition to the first. */
static size_t mark_same_entry(struct weight_faults *faults, struct weight_fault *first)
{
	size_t more = 0;
	for (struct weight_fault *f = first; f < faults->items + faults->n; f++) {
		if (f->is_reported || !is_same_entry(first, f))
			continue;
		f->is_reported = true;
		more += f != first;
	}
	return more;
}

/* Reports a tensor that the map names and no file has. */
static void report_missing(const struct weight_fault_context *x, struct weight_faults *faults,
                           struct weight_fault *first)
{
	diag_error(x->cx, first->request.loc, DIAG_MISSING_TENSOR,
	           "no weight file has the tensor '%.200s' for parameter '%.200s'%s", first->tensor,
	           first->request.path, count_suffix(x, mark_same_entry(faults, first), "of this entry"));
	diag_note(x->cx, first->mapped, "the map names it here");
	note_nearest(x, first->tensor);
}

/* Prefix, with its dot, of a tensor name that ends with the parameter's name; NULL: none. */
static const char *find_prefix(const struct weight_fault_context *x, const char *path)
{
	size_t n = strlen(path);
	for (size_t t = 0; t < weight_files_count(x->files); t++) {
		const char *key = weight_files_at(x->files, t)->key;
		size_t all = strlen(key);
		if (all > n && key[all - n - 1] == '.' && strcmp(key + all - n, path) == 0)
			return arena_strndup(x->arena, key, all - n);
	}
	return NULL;
}

/* Reports parameters without tensor and map entry. Common causes: parameters of the same step; all, if at
 * least half of the model has no tensor; those whose tensors exist with the same prefix. */
static void report_unmapped(const struct weight_fault_context *x, struct weight_faults *faults,
                            struct weight_fault *first)
{
	size_t unmapped = 0, more = 0;
	const char *prefix = find_prefix(x, first->request.path);
	for (size_t i = 0; i < faults->n; i++)
		unmapped += faults->items[i].kind == FAULT_UNMAPPED;
	bool is_most = unmapped > 1 && 2 * unmapped >= x->n_parameters;
	for (struct weight_fault *f = first; f < faults->items + faults->n; f++) {
		if (f->is_reported || f->kind != FAULT_UNMAPPED)
			continue;
		bool joins =
		        is_most || f == first || is_same_loc(f->request.loc, first->request.loc) ||
		        (prefix != NULL && weight_files_find(x->files, arena_printf(x->arena, "%s%s", prefix,
		                                                                    f->request.path)));
		f->is_reported = joins;
		more += joins && f != first;
	}
	const char *shape = weight_shape_text(x->arena, first->request.rank, first->request.dims);
	const char *tail = count_suffix(x, more, more == 1 ? "has none" : "have none");
	if (x->has_map)
		diag_error(x->cx, first->request.loc, DIAG_MISSING_TENSOR,
		           "no entry of weights.map fits the parameter '%.200s' %s, and no tensor is called "
		           "so%s",
		           first->request.path, shape, tail);
	else
		diag_error(x->cx, first->request.loc, DIAG_MISSING_TENSOR,
		           "the parameter '%.200s' %s has no tensor: no file has one of this name%s",
		           first->request.path, shape, tail);
	if (first->mapped.source != 0)
		diag_note(x->cx, first->mapped, "this pattern would fit, but captures end at dots");
	else if (prefix != NULL)
		diag_note(x->cx, LOC_NONE, "with `strip_prefix: %s` in weights it has", prefix);
	else if (!x->has_map)
		diag_note(x->cx, LOC_NONE,
		          "weights.map says which tensor it is when the file has another name for it");
	note_nearest(x, first->request.path);
}

/* First axis >= from whose size differs, or the rank. */
static int first_differing_axis(const struct weight_fault *f, int from)
{
	while (from < f->rank && f->dims[from] == f->request.dims[from])
		from++;
	return from;
}

/* True: both have an axis that is wrong by the same factor. */
static bool have_same_factor(const struct weight_fault *a, const struct weight_fault *b)
{
	if (a->rank != a->request.rank || b->rank != b->request.rank)
		return false;
	int i = first_differing_axis(a, 0);
	for (int k = first_differing_axis(b, 0); k < b->rank; k = first_differing_axis(b, k + 1))
		if ((double)a->dims[i] * (double)b->request.dims[k] ==
		    (double)b->dims[k] * (double)a->request.dims[i])
			return true;
	return false;
}

/* Reports a wrong shape, with all faults of the same factor or of the same map entry. */
static void report_shape(const struct weight_fault_context *x, struct weight_faults *faults,
                         struct weight_fault *first)
{
	const struct weight_fault *smallest = first;
	size_t more = 0;
	int axis = first_differing_axis(first, 0);
	bool by_factor = first->hint[0] == '\0' && first->rank == first->request.rank;
	for (struct weight_fault *f = first; f < faults->items + faults->n; f++) {
		if (f->is_reported || f->kind != FAULT_SHAPE ||
		    !(by_factor ? f->hint[0] == '\0' && have_same_factor(first, f)
		                : is_same_entry(first, f) && strcmp(first->hint, f->hint) == 0))
			continue;
		f->is_reported = true;
		more += f != first;
		int k = first_differing_axis(f, 0);
		if (by_factor && f->request.dims[k] < smallest->request.dims[axis]) {
			smallest = f;
			axis = k;
		}
	}
	diag_error(x->cx, first->request.loc, DIAG_WEIGHT_SHAPE,
	           "the parameter '%.200s' wants %s, %s is %s%s%s", first->request.path,
	           weight_shape_text(x->arena, first->request.rank, first->request.dims), first->source,
	           weight_shape_text(x->arena, first->rank, first->dims), first->hint,
	           count_suffix(x, more, by_factor ? "differ by the same factor" : "of this entry"));
	const char *params = by_factor ? params_with_value(x, smallest->request.dims[axis]) : "";
	if (params[0] != '\0')
		diag_note(x->cx, LOC_NONE, "%s, the files have %lld", params,
		          (long long)smallest->dims[axis]);
	if (first->mapped.source != 0)
		diag_note(x->cx, first->mapped, "mapped here");
}

static void report_ints(const struct weight_fault_context *x, struct weight_faults *faults,
                        struct weight_fault *first)
{
	diag_error(x->cx, first->request.loc, DIAG_VALUE_TYPE,
	           "the parameter '%.200s' wants floats, %s holds %s%s", first->request.path, first->source,
	           first->tensor, count_suffix(x, mark_same_entry(faults, first), "of this entry"));
}

void weight_faults_report(const struct weight_fault_context *x, struct weight_faults *faults)
{
	for (struct weight_fault *f = faults->items; f < faults->items + faults->n; f++) {
		if (f->is_reported)
			continue;
		switch (f->kind) {
		case FAULT_MISSING:
			if (!report_series(x, faults, f))
				report_missing(x, faults, f);
			break;
		case FAULT_UNMAPPED:
			if (!report_series(x, faults, f))
				report_unmapped(x, faults, f);
			break;
		case FAULT_SHAPE: report_shape(x, faults, f); break;
		case FAULT_INTS: report_ints(x, faults, f); break;
		}
	}
}
