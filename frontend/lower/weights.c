/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters of graph statements. A path pattern with loop indices becomes one stacked weight with an
 * expression for each index, found in the weight map and resolved once per model. Chooses the storage format of
 * each weight, and where repeats must be split because it changes.
 * The stack of a weight has one level for each loop whose index is in the path, outermost first, then one for
 * experts. A weight has one format: FORMAT_PLAIN is f32. A weight expression is symbolic; values are read when weights
 * are packed. Stored order is that of the columns of a packed matrix whose groups are permuted (GPTQ act-order).
 */
#define _POSIX_C_SOURCE 200809L /* access */
#include <string.h>
#include <unistd.h>

#include "frontend/syntax/files.h"
#include "frontend/lower/lower.h"

#define COLUMNS_MAX (1 << 24) /* column indices are exact in f32 */

struct resolved_weight {
	const struct ir_wexpr *e; /* zeros if the source is invalid (already reported) */
	struct parameter_request want;
};

/* Records the weight files, and the file of the map if `map` names one, as read. */
static void record_read_files(struct frontend_model *m, const struct yaml_node *map)
{
	size_t n;
	const char *const *paths = weight_files_paths(m->weights.files, &n);
	for (size_t i = 0; i < n; i++)
		document_record_file(&m->doc, paths[i]);
	if (map != NULL && map->kind == YAML_SCALAR && !yaml_is(map, "identity"))
		document_record_file(&m->doc, file_join(&m->arena, m->doc.dir, map->text));
}

/* True if the section names files and all of them exist; else commands that need no values see the model with shapes
   alone. */
static bool weights_exist(struct frontend_model *m, const struct yaml_node *section)
{
	const struct yaml_node *files = section == NULL ? NULL : yaml_find(section, "files");
	if (files == NULL)
		return false;
	struct yaml_list list = yaml_as_list(&m->arena, files);
	for (size_t i = 0; i < list.n; i++)
		if (list.items[i]->kind == YAML_SCALAR &&
		    access(file_join(&m->arena, m->doc.dir, list.items[i]->text), F_OK) != 0)
			return false;
	return true;
}

/* ---- ties ---- */

/* Records every linear(.., tie=PATH) in e in the weight map. */
static void record_ties_of_expr(struct frontend_model *m, const struct expr *e)
{
	for (size_t i = 0; i < expr_n_children(e); i++)
		record_ties_of_expr(m, expr_child(e, i));
	if (e->kind != EX_CALL || strcmp(e->text, "linear") != 0)
		return;
	const struct expr *path = call_written(e, "path"), *tie = call_written(e, "tie");
	if (path != NULL && path->text != NULL && tie != NULL && tie->text != NULL)
		weight_map_tie(m->weights.map, arena_printf(&m->arena, "%s.weight", path->text),
		               arena_printf(&m->arena, "%s.weight", tie->text));
}

/* Records the ties of a graph in the weight map, before the first lookup: files may store only the head of two
 * tied parameters, and the table is looked up first. */
static void record_ties(struct frontend_model *m, const struct graph_body *body)
{
	for (size_t i = 0; i < body->n; i++) {
		const struct graph_node *node = body->items[i];
		for (size_t k = 0; node->kind == GRAPH_STATEMENT && k < node->st->n_values; k++)
			record_ties_of_expr(m, node->st->values[k]);
		record_ties(m, &node->body);
	}
}

/* Opens the adapters of weights.adapters, then those of the command line: each changes the tensors that the ones
 * before have changed. A path of the command line is relative to the current directory. */
static enum tfmc_status open_adapters(struct frontend_model *m, const struct yaml_node *section)
{
	const struct yaml_node *adapters = section != NULL ? yaml_find(section, "adapters") : NULL;
	struct yaml_list list = {0};
	if (adapters != NULL)
		list = yaml_as_list(&m->arena, adapters);
	for (size_t i = 0; i < list.n; i++) {
		if (!yaml_expect(m->cx, list.items[i], YAML_SCALAR, "weights.adapters") ||
		    file_path_any(&m->arena, m->cx, m->doc.dir, list.items[i]->text, list.items[i]->loc) ==
		            NULL)
			return TFMC_INVALID;
		TFMC_TRY(weight_adapter_open(m->weights.files, &m->arena, m->cx, m->doc.dir,
		                             list.items[i]->text, list.items[i]->loc));
	}
	for (size_t i = 0; i < m->options.n_adapters; i++)
		TFMC_TRY(weight_adapter_open(m->weights.files, &m->arena, m->cx, NULL, m->options.adapters[i],
		                             LOC_NONE));
	return TFMC_OK;
}

/* Keys are applied in the order packed, unwrap, strip_prefix, ignore, as each names tensors by the names that the
 * ones before leave; adapters come after the files that they change. Ties are recorded before the first lookup. */
enum tfmc_status weights_open(struct frontend_model *m)
{
	const struct yaml_node *section = model_section(m, "weights");
	if (m->weights.map != NULL)
		return TFMC_OK;
	m->weights.files = weight_files_create(&m->arena, m->cx, &m->doc.parsed);
	m->weights.env = model_env(&m->scope, false);
	if (m->weights.files == NULL)
		return TFMC_NO_MEMORY;
	m->weights.shapes_only = m->options.shapes && !weights_exist(m, section);
	if (m->weights.shapes_only) { /* parameters are zeros: an empty map serves */
		m->weights.map = weight_map_create(&m->arena, m->cx, m->weights.files, &m->weights.env);
		return m->weights.map == NULL ? TFMC_NO_MEMORY : TFMC_OK;
	}
	if (section != NULL &&
	    (weight_files_open_all(m->weights.files, m->doc.dir, yaml_find(section, "files")) != TFMC_OK ||
	     weight_files_unpack(m->weights.files, &m->arena, m->cx, yaml_find(section, "packed")) !=
	             TFMC_OK ||
	     weight_files_unwrap(m->weights.files, yaml_find(section, "unwrap")) != TFMC_OK ||
	     weight_files_strip(m->weights.files, yaml_find(section, "strip_prefix")) != TFMC_OK ||
	     weight_files_ignore(m->weights.files, yaml_find(section, "ignore")) != TFMC_OK))
		return TFMC_INVALID;
	TFMC_TRY(open_adapters(m, section));
	TFMC_TRY(profile_open(m));
	struct weight_map *map = weight_map_create(&m->arena, m->cx, m->weights.files, &m->weights.env);
	/* Patterns of presets and bases serve several models and may match nothing; those of the model's own
	 * file must match. */
	uint32_t must_match = yaml_is(yaml_find(section, "unmatched"), "allow") ? 0 : m->doc.root->loc.source;
	if (map == NULL || weight_map_read(map, yaml_find(section, "map"), m->doc.dir, must_match) != TFMC_OK)
		return TFMC_INVALID;
	record_read_files(m, yaml_find(section, "map"));
	m->weights.map = map;
	record_ties(m, &m->graph);
	return TFMC_OK;
}

const char *frontend_parameter(const struct frontend_model *m, size_t i, int *rank, const int64_t **dims)
{
	if (!m->weights.shapes_only || i >= m->weights.resolved.n)
		return NULL;
	const struct resolved_weight *r = m->weights.resolved.items[i].value;
	*rank = r->want.rank;
	*dims = r->want.dims;
	return r->want.path;
}

/* ---- one parameter ---- */

/* False after a report if the parameter was requested with another shape before: its expression is cached by path. */
static bool check_same_shape(struct lowering *lw, const struct resolved_weight *r,
                             const struct weight_request *need, const char *path)
{
	if (r->want.rank == need->rank &&
	    memcmp(r->want.dims, need->dims, (size_t)need->rank * sizeof(*need->dims)) == 0)
		return true;
	lower_fail(lw, LOC_NONE, DIAG_SHAPE, "the parameter '%s' is used with two shapes", path);
	diag_note(lw->cx, r->want.loc, "the other use is here");
	return false;
}

/* Applies `quantize` and dtype.weights to a parameter, as if its file stored it so: quants if a rule of
 * `quantize` matches and it is not quantized already, else floats of dtype.weights. NULL after a report. */
static const struct ir_wexpr *apply_conversions(struct lowering *lw, const struct weight_request *need,
                                                const struct parameter_request *want,
                                                const struct ir_wexpr *e)
{
	struct frontend_model *m = lw->m;
	if (e == NULL || want->rank < 2) /* vectors are neither quantized nor rounded */
		return e;
	const struct quantize_rule *rule =
	        need->is_quantizable ? model_quantize_rule(&m->quantize, want->path) : NULL;
	enum ir_format target = rule != NULL ? rule->format : FORMAT_PLAIN;
	const struct ir_wexpr *converted = e, *inputs = NULL;
	const struct ir_wexpr *order = NULL, *stored = wexpr_without_columns(&m->arena, e, &order);
	enum ir_format source = wexpr_format(stored != NULL ? stored : e);
	if (target != FORMAT_PLAIN && ir_format_is_quantized(source))
		m->quantize.keeps_quants = m->quantize.keeps_quants || source != target;
	else if (target != FORMAT_PLAIN) {
		m->quantize.quantizes_floats = true;
		if (!profile_find(m, want, need->is_table, &inputs))
			return NULL;
		converted = wexpr_quantize(&m->arena, target, e, inputs);
	} else if (target == FORMAT_PLAIN && !m->dtypes.keeps_weights && m->dtypes.weights != FORMAT_PLAIN)
		converted = wexpr_round(&m->arena, ir_format(m->dtypes.weights)->dtype, e);
	if (converted == NULL)
		lower_fail(lw, LOC_NONE, DIAG_LIMIT, "the source of the parameter '%s' has too many steps",
		           want->path);
	return converted;
}

/* True for a parameter with a vocabulary axis of a hub model: hub files pad it to a multiple of 64 rows beyond the
 * configured size, which the map then drops with a warning. */
static bool is_vocabulary(const struct frontend_model *m, const struct weight_request *need)
{
	const struct model_param *vocab = strmap_get(&m->scope.params, "vocab");
	return m->doc.hub_path != NULL && vocab != NULL && vocab->state == PARAM_DONE &&
	       vocab->value.kind == VALUE_INT && vocab->value.i == need->dims[0] && need->groups <= 1;
}

/* Finds a parameter in the weight map and converts it; results are cached by path in the arena of the model, as several
 * weights may be made of one: the first request decides the conversions, later ones must have its shape. After a report
 * zeros of its shape; NULL after a report of another shape or of too many parameters, or without memory. */
static const struct ir_wexpr *resolve_parameter(struct lowering *lw, const struct weight_request *need,
                                                const char *path)
{
	struct frontend_model *m = lw->m;
	struct resolved_weight *r = strmap_get(&m->weights.resolved, path);
	if (lw->mode == LOWER_INFER) /* only its type counts */
		return wexpr_full(lw->arena, 0.0, need->rank, need->dims);
	if (r != NULL)
		return check_same_shape(lw, r, need, path) ? r->e : NULL;
	if (m->weights.resolved.n >= MODEL_WEIGHTS_MAX) {
		lower_fail(lw, LOC_NONE, DIAG_LIMIT, "more than %d parameters", MODEL_WEIGHTS_MAX);
		return NULL;
	}
	r = ARENA_NEW(&m->arena, struct resolved_weight);
	if (r == NULL)
		return NULL;
	r->want = (struct parameter_request){.path = path, .loc = lw->loc.at, .rank = need->rank};
	memcpy(r->want.dims, need->dims, sizeof(need->dims));
	r->want.is_vocabulary = is_vocabulary(m, need);
	if (!m->weights.shapes_only && model_section(m, "weights") != NULL)
		r->e = apply_conversions(lw, need, &r->want, weight_map_find(m->weights.map, &r->want));
	else if (!m->weights.shapes_only && m->weights.resolved.n == 0) /* once, for all parameters */
		lower_fail(lw, LOC_NONE, DIAG_MISSING, "the model has parameters ('%s') but no 'weights'",
		           path);
	if (r->e ==
	    NULL) /* shapes only, or continue, so that all mistakes of a map are reported in one run */
		r->e = wexpr_full(&m->arena, 0.0, need->rank, need->dims);
	strmap_set(&m->weights.resolved, path, r);
	return r->e;
}

static int64_t group_count(const struct weight_request *need)
{
	return need->groups > 1 ? need->groups : 1;
}

/* Reshapes the parameter to the requested form (enum weight_form): a convolution multiplies rows of C channels for
   each tap, so that its weight has the channels innermost. */
static const struct ir_wexpr *apply_form(struct arena *a, const struct weight_request *need,
                                         const struct ir_wexpr *e)
{
	int64_t n_taps = 1;
	for (int i = 2; i < e->rank; i++)
		n_taps *= e->dims[i]; /* cannot overflow: the number of elements has been checked */
	const int64_t taps[] = {e->dims[0], e->rank > 1 ? e->dims[1] : 1, n_taps};
	const int64_t matrix[] = {taps[0], taps[1] * taps[2]};
	switch (need->form) {
	case WEIGHT_PLAIN: return e;
	case WEIGHT_MATRIX: return wexpr_reshape(a, 2, matrix, e);
	case WEIGHT_TAPS_FIRST:
		if (n_taps > 1)
			e = wexpr_transpose(a, wexpr_reshape(a, 3, taps, e));
		return wexpr_reshape(a, 2, matrix, e);
	case WEIGHT_TAPS_OUTERMOST: return wexpr_transpose(a, wexpr_reshape(a, 2, matrix, e));
	case WEIGHT_DERIVED: return need->make(need->user, e);
	}
	return e;
}

/* Selects rows [first, first + rows / groups) of the parameter, or of each of its groups, for which it is a tensor
 * [groups, rows of a group, ..] meanwhile. rows_exist() has checked the bounds. */
static const struct ir_wexpr *select_rows(struct arena *a, const struct weight_request *need,
                                          const struct ir_wexpr *e)
{
	int64_t dims[IR_RANK_MAX + 1], one = need->rows / group_count(need);
	if (group_count(need) == 1)
		return wexpr_slice(a, 0, need->first, need->first + need->rows, e);
	dims[0] = need->groups;
	dims[1] = need->dims[0] / need->groups;
	memcpy(dims + 2, need->dims + 1, (size_t)(need->rank - 1) * sizeof(*dims));
	e = wexpr_slice(a, 1, need->first, need->first + one, wexpr_reshape(a, need->rank + 1, dims, e));
	memcpy(dims, need->dims, (size_t)need->rank * sizeof(*dims));
	dims[0] = need->rows;
	return wexpr_reshape(a, need->rank, dims, e);
}

/* Suffix of a weight's name for its form, since one parameter in two forms is two weights. */
static const char *form_suffix(const struct weight_request *need)
{
	switch (need->form) {
	case WEIGHT_PLAIN: return "";
	case WEIGHT_MATRIX: return ".matrix";
	case WEIGHT_TAPS_FIRST: return ".taps";
	case WEIGHT_TAPS_OUTERMOST: return ".by_tap";
	case WEIGHT_DERIVED: return need->derived_suffix;
	}
	return "";
}

static const struct ir_wexpr *stack_iterations(struct lowering *lw, const struct weight_request *need,
                                               const char *path, const struct lower_loop *const *loops,
                                               size_t n, size_t level);

/* Stacks the matrices of the requested experts; `path` still has LOWER_EXPERT. NULL after a report; the other
 * experts are resolved anyway, so that all mistakes are reported in one run. */
static const struct ir_wexpr *stack_experts(struct lowering *lw, const struct weight_request *need,
                                            const char *path)
{
	struct arena *a = &lw->m->arena;
	const struct ir_wexpr **parts = ARENA_ARRAY(a, const struct ir_wexpr *, need->experts);
	size_t n = 0;
	bool ok = parts != NULL;
	for (int64_t k = 0; parts != NULL && k < need->experts; k++) {
		if (need->subset != NULL && !need->subset[k])
			continue;
		const char *one = replace_placeholder(a, path, "*", arena_printf(a, "%lld", (long long)k));
		parts[n] = stack_iterations(lw, need, one, NULL, 0, 0);
		ok = parts[n++] != NULL && ok;
	}
	return ok ? wexpr_stack(a, n, parts) : NULL;
}

/* Stacks the iterations of the loops from `level` on; indices of outer loops are filled into `path`. NULL after a
 * report, as in stack_experts. */
static const struct ir_wexpr *stack_iterations(struct lowering *lw, const struct weight_request *need,
                                               const char *path, const struct lower_loop *const *loops,
                                               size_t n, size_t level)
{
	struct arena *a = &lw->m->arena;
	if (level == n && need->experts > 0 && strstr(path, LOWER_EXPERT) != NULL)
		return stack_experts(lw, need, path);
	if (level == n) {
		const struct ir_wexpr *e = resolve_parameter(lw, need, path);
		if (e != NULL && need->rows > 0)
			e = select_rows(a, need, e);
		return e == NULL ? NULL : apply_form(a, need, e);
	}
	const struct graph_node *node = loops[level]->node;
	const struct ir_wexpr **parts = ARENA_ARRAY(a, const struct ir_wexpr *, node->count);
	bool ok = parts != NULL;
	for (int64_t k = 0; parts != NULL && k < node->count; k++) {
		const char *one = substitute_index(a, path, node->as, (struct index_map){0, node->start + k});
		parts[k] = stack_iterations(lw, need, one, loops, n, level + 1);
		ok = parts[k] != NULL && ok;
	}
	return ok ? wexpr_stack(a, (size_t)node->count, parts) : NULL;
}

/* ---- formats ---- */

/* Storage format of a parameter. Vectors stay f32: they are small, and passes fold them. dtype.weights: keep takes
 * the format of the files; with `quantize` quants stay quants; any other format only if it holds every value exactly,
 * as after the rounding of apply_conversions(). */
static enum ir_format storage_format(const struct lowering *lw, int rank, const struct ir_wexpr *e)
{
	if (rank < 2)
		return FORMAT_PLAIN;
	if (lw->m->dtypes.keeps_weights || (lw->m->quantize.n > 0 && ir_format_is_quantized(wexpr_format(e))))
		return wexpr_format(e);
	return wexpr_fits_format(e, lw->m->dtypes.weights) ? lw->m->dtypes.weights : FORMAT_PLAIN;
}

/* For a stack of n levels: the expression with columns in stored order, and in *order a stack of the column orders
 * [.., K]. NULL: some part is in logical order or mixes orders, or its column numbers exceed COLUMNS_MAX. */
static const struct ir_wexpr *stored_columns(const struct lowering *lw, const struct ir_wexpr *e, size_t n,
                                             const struct ir_wexpr **order)
{
	struct arena *a = &lw->m->arena;
	*order = NULL;
	if (n == 0 && e->dims[e->rank - 1] > COLUMNS_MAX)
		return NULL;
	if (n == 0)
		return wexpr_without_columns(a, e, order);
	const struct ir_wexpr **parts = ARENA_ARRAY(a, const struct ir_wexpr *, e->n_args),
	                      **orders = ARENA_ARRAY(a, const struct ir_wexpr *, e->n_args);
	for (size_t i = 0; parts != NULL && orders != NULL && i < e->n_args; i++) {
		parts[i] = stored_columns(lw, e->args[i], n - 1, &orders[i]);
		if (parts[i] == NULL)
			return NULL;
	}
	if (parts == NULL || orders == NULL)
		return NULL;
	*order = wexpr_stack(a, e->n_args, orders);
	return wexpr_stack(a, e->n_args, parts);
}

/* One byte that identifies how a part of a weight is stored: its format, and whether its columns are in stored
 * order. */
static unsigned char storage_form(const struct lowering *lw, const struct weight_request *need,
                                  const struct ir_wexpr *e)
{
	const struct ir_wexpr *order,
	        *stored = need->column_order != NULL ? stored_columns(lw, e, 0, &order) : NULL;
	enum ir_format format = storage_format(lw, e->rank, stored != NULL ? stored : e);
	return (unsigned char)(stored != NULL ? IR_N_FORMATS + format : format);
}

/* Writes the storage forms of all parts of a stack of n levels; returns the end of the output. */
static unsigned char *collect_forms(const struct lowering *lw, const struct weight_request *need,
                                    const struct ir_wexpr *e, size_t n, unsigned char *out)
{
	if (n == 0)
		*out++ = storage_form(lw, need, e);
	for (size_t i = 0; n > 0 && i < e->n_args; i++)
		out = collect_forms(lw, need, e->args[i], n - 1, out);
	return out;
}

/* True if the parts of iterations i and j of a loop have the same storage forms in each of the `outer` iterations of
 * the loops around it; forms: [outer, count, inner]. */
static bool have_same_forms(const unsigned char *forms, size_t outer, size_t count, size_t inner, size_t i,
                            size_t j)
{
	bool same = true;
	for (size_t o = 0; same && o < outer; o++)
		same = memcmp(forms + (o * count + i) * inner, forms + (o * count + j) * inner, inner) == 0;
	return same;
}

/* Requests loop splits between iterations whose parts of e differ in storage form: a weight has one format, and
 * activations are quantized to suit it. like[i] is the first iteration that iteration i may share its body with, also
 * by the requests of other weights (`before`). lower.c then lowers again. */
static bool split_at_format_changes(struct lowering *lw, const struct weight_request *need,
                                    const struct ir_wexpr *e, const struct lower_loop *const *loops, size_t n)
{
	size_t inner = need->experts > 0 ? (size_t)e->dims[n] : 1, parts = inner;
	for (size_t l = 0; l < n; l++)
		parts *= (size_t)loops[l]->node->count;
	/* [counts of the loops.., experts] */
	unsigned char *forms = ARENA_ARRAY(lw->arena, unsigned char, parts);
	if (forms == NULL)
		return false;
	(void)collect_forms(lw, need, e, n + (need->experts > 0), forms);
	for (size_t l = n; l-- > 0;) { /* from the innermost loop on; inner: parts of one iteration */
		size_t count = (size_t)loops[l]->node->count, outer = parts / (count * inner);
		int64_t *like = ARENA_ARRAY(&lw->m->arena, int64_t, count),
		        *before = loops[l]->node->split_points->like;
		bool differ = false;
		for (size_t i = 0; like != NULL && i < count; i++) {
			size_t j = 0;
			while (j < i &&
			       (like[j] != (int64_t)j || (before != NULL && before[j] != before[i]) ||
			        !have_same_forms(forms, outer, count, inner, i, j)))
				j++;
			like[i] = (int64_t)j;
			differ = differ || !have_same_forms(forms, outer, count, inner, i, 0);
		}
		if (like == NULL)
			return false;
		if (differ) {
			loops[l]->node->split_points->like = like;
			lw->m->weights.formats_differ = true;
		}
		inner *= count;
	}
	return true;
}

/* The storage format of the tensors in e, the first that is not f32 (rounded values count as stored so);
 * FORMAT_PLAIN: all are f32. */
static enum ir_format file_format(const struct ir_wexpr *e)
{
	enum ir_format f = e->format;
	if (f != FORMAT_PLAIN)
		return f;
	if (e->kind == WX_TENSOR || e->kind == WX_ROUND)
		return ir_format_from_dtype(e->stored);
	for (size_t i = 0; f == FORMAT_PLAIN && i < e->n_args; i++)
		f = file_format(e->args[i]);
	return f;
}

/* True if all tensors in e have the format; the order of WX_COLUMNS does not count. */
static bool all_in_format(const struct ir_wexpr *e, enum ir_format f)
{
	size_t n = e->kind == WX_COLUMNS ? 1 : e->n_args;
	bool all = true;
	if (e->format != FORMAT_PLAIN || e->kind == WX_TENSOR || e->kind == WX_ROUND)
		return file_format(e) == f;
	for (size_t i = 0; all && i < n; i++)
		all = all_in_format(e->args[i], f);
	return all;
}

/* True if values are computed (mul, div, offset, lowrank), so that no stored format holds the result. */
static bool is_computed(const struct ir_wexpr *e)
{
	bool computed =
	        e->kind == WX_MUL || e->kind == WX_DIV || e->kind == WX_OFFSET || e->kind == WX_LOWRANK;
	for (size_t i = 0; !computed && i < e->n_args; i++)
		computed = is_computed(e->args[i]);
	return computed;
}

/* True if the columns of some tensor are in stored order (WX_COLUMNS). */
static bool has_columns(const struct ir_wexpr *e)
{
	bool has = e->kind == WX_COLUMNS;
	for (size_t i = 0; !has && i < e->n_args; i++)
		has = has_columns(e->args[i]);
	return has;
}

/* The first tensor in e that is packed into u32 words with a group layout that no format represents; NULL:
 * none. */
static const struct stored_tensor *find_unrepresentable_groups(const struct lowering *lw,
                                                               const struct ir_wexpr *e)
{
	const struct stored_tensor *found =
	        e->kind == WX_TENSOR && e->format == FORMAT_PLAIN
	                ? weight_files_stored(lw->m->weights.files, e->file, e->tensor)
	                : NULL;
	if (found != NULL && found->packed_as == NULL)
		found = NULL;
	for (size_t i = 0; found == NULL && i < e->n_args; i++)
		found = find_unrepresentable_groups(lw, e->args[i]);
	return found;
}

/* Why a weight is stored as f32 although its tensors have fewer bits and f32 was not requested; NULL: it is
 * not. A result computed from floats is f32 without a reason. */
static const char *dequantized_reason(const struct lowering *lw, const struct ir_wexpr *e, int rank)
{
	enum ir_format f = file_format(e);
	bool is_quantized = ir_format_is_quantized(f);
	bool keeps_format = lw->m->dtypes.keeps_weights || (lw->m->quantize.n > 0 && is_quantized);
	const struct stored_tensor *unrepresentable =
	        rank < 2 || !lw->m->dtypes.keeps_weights ? NULL : find_unrepresentable_groups(lw, e);
	if (unrepresentable != NULL)
		return arena_printf(&lw->m->arena, "no format has %s", unrepresentable->packed_as);
	if (rank < 2 || f == FORMAT_PLAIN || !keeps_format)
		return NULL;
	if (is_computed(e))
		return is_quantized ? "its values are computed from them" : NULL;
	if (!all_in_format(e, f))
		return "its parts have different formats";
	if (has_columns(e))
		return "its columns are stored in the order of groups, and only linears of one matrix gather";
	return is_quantized ? "its rows are divided" : NULL;
}

/* ---- names ---- */

struct range_writer {
	struct arena *arena;
	const struct graph_node *node;
};

/* placeholder_fn: "0_3", the first and the last value of the index, or with another step than 1 "0_2_6", the first two
 * and the last. */
static const char *range_of_index(void *user, const char *text)
{
	const struct range_writer *w = user;
	int64_t first = w->node->start, last = first + w->node->count - 1;
	struct index_map map;
	if (!index_map_read(text, w->node->as, &map))
		return NULL;
	const char *second =
	        map.factor == 1 ? ""
	                        : arena_printf(w->arena, "_%lld", (long long)index_map_at(map, first + 1));
	return arena_printf(w->arena, "%lld%s_%lld", (long long)index_map_at(map, first), second,
	                    (long long)index_map_at(map, last));
}

/* Replaces the index of a loop in a path: with label, and functions of it, by the range of its iterations, else by
 * nothing, its dot included. */
static const char *replace_index(struct arena *a, const char *text, const struct graph_node *node, bool label)
{
	const char *index = arena_printf(a, ".{%s}", node->as);
	for (const char *at; !label && (at = strstr(text, index)) != NULL;)
		text = arena_printf(a, "%.*s%s", (int)(at - text), text, at + strlen(index));
	if (!label)
		text = replace_placeholder(a, text, node->as, "");
	return fill_placeholders(a, text, range_of_index, &(struct range_writer){a, node});
}

/* Implements lower_stacked_name; with label, indices are replaced by the range of the loop instead of removed (second
 * use of a parameter in a split loop). Loops are found from the innermost on and returned outermost first. */
static const char *stacked_name(struct lowering *lw, const char *pattern, const struct lower_loop **loops,
                                size_t *n, bool label)
{
	const struct lower_loop *found[IR_RANK_MAX];
	size_t count = 0;
	const char *name = pattern;
	for (const struct lower_loop *l = lw->loop; l != NULL; l = l->outer) {
		if (!has_index(lw->arena, pattern, l->node->as))
			continue;
		if (count + 1 >= IR_RANK_MAX) {
			lower_fail(lw, LOC_NONE, DIAG_LIMIT, "more than %d indices in '%s'", IR_RANK_MAX - 1,
			           pattern);
			return NULL;
		}
		found[count++] = l;
		name = replace_index(lw->arena, name, l->node, label || l->node->is_part);
	}
	for (size_t i = 0; i < count; i++)
		loops[i] = found[count - 1 - i];
	*n = count;
	return name;
}

const char *lower_stacked_name(struct lowering *lw, const char *pattern, const struct lower_loop **loops,
                               size_t *n)
{
	return stacked_name(lw, pattern, loops, n, false);
}

/* ---- references ---- */

/* A path with an index names several parameters, for which the map has no single answer: false. */
bool lower_is_untied(struct lowering *lw, const char *path, const char *tie)
{
	struct arena *a = &lw->m->arena;
	if (lw->m->weights.map == NULL || strchr(path, '{') != NULL)
		return false;
	return weight_map_unties(lw->m->weights.map, arena_printf(a, "%s.weight", path),
	                         arena_printf(a, "%s.weight", tie));
}

/* Adds a weight with the value e, stored row by row in `format`; NULL if the name is that of a different weight, or
 * without memory. An equal weight of this name is shared. */
static const struct ir_weight *add_weight(struct lowering *lw, const char *name, const struct ir_wexpr *e,
                                          enum ir_format format)
{
	const struct ir_dim *dims[IR_RANK_MAX];
	for (int i = 0; i < e->rank; i++)
		dims[i] = ir_dim_const(lw->module->dims, e->dims[i]);
	const struct ir_type *type = ir_type_tensor(lw->module->types, DT_F32, e->rank, dims);
	/* the paths of two steps may differ only in indices that are not known here */
	if (lw->mode == LOWER_INFER)
		name = arena_printf(lw->arena, "%s.%zu", name, lw->module->weights.n);
	struct ir_weight w = {
	        .name = name, .type = type, .encoding = ENC_ROW, .format = format, .init = e, .loc = lw->loc};
	return type == NULL ? NULL : ir_add_weight(lw->module, &w);
}

bool lower_const_table(struct lowering *lw, const char *name, const struct ir_wexpr *e, struct ir_value *out)
{
	const struct ir_weight *w = add_weight(lw, name, e, FORMAT_PLAIN);
	if (w == NULL)
		return lower_fail(lw, LOC_NONE, DIAG_INTERNAL, "two tables are called '%s'", name);
	*out = irb_weight_ref(lw->b, w, NULL, 0);
	return !irb_failed(lw->b);
}

void lower_index_operands(const struct lower_loop *const *loops, size_t n, struct ir_value *out)
{
	for (size_t i = 0; i < n; i++)
		out[i] = loops[i]->index;
}

/* Checks first, rows and groups of a request against the shape of the parameter. False after a report. */
static bool rows_exist(struct lowering *lw, const struct weight_request *need)
{
	int64_t groups = group_count(need);
	bool even = need->groups == 0 ||
	            (need->groups >= 1 && need->dims[0] % groups == 0 && need->rows % groups == 0);
	if (need->rows == 0 && need->groups > 1)
		return lower_fail(lw, LOC_NONE, DIAG_ARGUMENTS, "'groups' of linear needs 'of'");
	if (need->rows == 0)
		return true;
	if (!even)
		return lower_fail(lw, LOC_NONE, DIAG_NOT_DIVISIBLE,
		                  "%lld of %lld rows are not the same number of each of %lld groups",
		                  (long long)need->rows, (long long)need->dims[0], (long long)need->groups);
	if (need->first >= 0 && need->first <= need->dims[0] / groups - need->rows / groups)
		return true;
	return lower_fail(lw, LOC_NONE, DIAG_SHAPE, "rows %lld to %lld of a parameter with %lld rows%s",
	                  (long long)need->first, (long long)(need->first + need->rows / groups),
	                  (long long)(need->dims[0] / groups), groups > 1 ? " in each group" : "");
}

/* Suffix of a weight's name for all that it takes of its parameter: rows, groups, 1 + values, and form. Different
 * requests for one parameter are different weights. */
static const char *name_suffix(struct lowering *lw, const struct weight_request *need)
{
	int64_t groups = group_count(need), last = need->first + need->rows / groups - 1;
	const char *rows = "", *of_groups = "";
	if (need->rows != 0)
		rows = arena_printf(lw->arena, ".rows%lld_%lld", (long long)need->first, (long long)last);
	if (need->rows != 0 && groups > 1)
		of_groups = arena_printf(lw->arena, ".of%lld", (long long)groups);
	return arena_printf(lw->arena, "%s%s%s%s", rows, of_groups, need->plus_one ? ".plus_one" : "",
	                    form_suffix(need));
}

/* The path of a pattern in the first iteration of the loops. */
static const char *first_iteration_path(struct lowering *lw, const char *pattern,
                                        const struct lower_loop *const *loops, size_t n)
{
	for (size_t i = 0; i < n; i++)
		pattern = substitute_index(lw->arena, pattern, loops[i]->node->as,
		                           (struct index_map){0, loops[i]->node->start});
	return pattern;
}

/* Why the weight is not stored in the format that `quantize` names, or not quantized although others are; decided by
 * the rule of its first parameter (first iteration, expert 0). reason: dequantized_reason. NULL: nothing to explain,
 * also for f32 weights of a model that neither requests nor stores quants. */
static const char *unquantized_reason(struct lowering *lw, const struct weight_request *need,
                                      const char *reason, enum ir_format format,
                                      const struct lower_loop *const *loops, size_t n)
{
	struct model_quantize *q = &lw->m->quantize;
	struct arena *a = &lw->m->arena;
	bool is_reported = q->n > 0 || reason != NULL || (lw->m->weights.repeats_split && need->rank > 1);
	if (!is_reported || (q->n == 0 && format != FORMAT_PLAIN))
		return NULL;
	if (reason == NULL && q->n == 0)
		return "its values are f32";
	if (need->rank < 2)
		return "it is a vector";
	if (!need->is_quantizable)
		return ir_format_is_quantized(format) ? NULL
		                                      : "it is neither the matrix of a linear nor a table";
	if (reason != NULL)
		return reason;
	const struct quantize_rule *rule = model_quantize_rule(
	        q, first_iteration_path(lw, replace_placeholder(a, need->pattern, "*", "0"), loops, n));
	bool is_quantized = ir_format_is_quantized(format);
	if (is_quantized && (rule == NULL || rule->format == FORMAT_PLAIN || rule->format == format))
		return NULL;
	if (is_quantized)
		return arena_printf(a, "quantized values of files stay, also where '%s' says %s",
		                    rule->pattern, ir_format(rule->format)->name);
	return rule == NULL ? "no pattern matches it" : arena_printf(a, "'%s' keeps it", rule->pattern);
}

/* The caller makes one weight of the experts of one format, so formats are found before weights: need->subset is NULL,
 * and argument k of the stack is expert k. The first iteration decides: split_at_format_changes() splits loops whose
 * iterations differ. False after a report. */
bool lower_expert_formats(struct lowering *lw, const struct weight_request *need, enum ir_format *out)
{
	const struct lower_loop *loops[IR_RANK_MAX];
	size_t n;
	if (stacked_name(lw, need->pattern, loops, &n, false) == NULL)
		return false;
	const char *path = first_iteration_path(lw, need->pattern, loops, n);
	const struct ir_wexpr *e = stack_experts(lw, need, path);
	for (size_t k = 0; e != NULL && k < e->n_args; k++)
		out[k] = storage_format(lw, e->args[k]->rank, e->args[k]);
	return e != NULL;
}

/* Warns of a new weight that is stored in a format and becomes f32, and records why a weight is not quantized, for
 * `tfmc inspect`. No warning while formats differ within a repeat: it is split and lowered again. */
static void explain_format(struct lowering *lw, const struct weight_request *need, const struct ir_weight *w,
                           bool is_new, const struct lower_loop *const *loops, size_t n)
{
	const char *reason = w->format == FORMAT_PLAIN ? dequantized_reason(lw, w->init, need->rank) : NULL;
	enum ir_format source = file_format(w->init);
	if (reason != NULL && is_new && !lw->m->weights.formats_differ)
		diag_warning(lw->cx, lw->loc.at, DIAG_UNSUPPORTED, "the weight '%s'%s%s becomes f32: %s",
		             w->name, source != FORMAT_PLAIN ? " of " : "",
		             source != FORMAT_PLAIN ? ir_format(source)->name : "", reason);
	const char *why =
	        lw->mode != LOWER_INFER ? unquantized_reason(lw, need, reason, w->format, loops, n) : NULL;
	if (why != NULL && !strmap_has(&lw->m->weights.unquantized, w->name))
		strmap_set(&lw->m->weights.unquantized, w->name, (void *)(uintptr_t)why);
}

/* The column order of w, i32 [.., K], as a weight. Weights with equal orders share it, so that their input is
 * gathered once. */
static bool add_column_order(struct lowering *lw, const struct ir_weight *w, const struct ir_wexpr *order,
                             const struct ir_value *index, size_t n, struct ir_value *out)
{
	const struct ir_weight *found = NULL;
	for (size_t i = 0; found == NULL && i < lw->module->weights.n; i++)
		if (wexpr_equal(lw->module->weights.items[i]->init, order))
			found = lw->module->weights.items[i];
	if (found == NULL)
		found = add_weight(lw, arena_printf(lw->arena, "%s.order", w->name), order, FORMAT_PLAIN);
	if (found == NULL)
		return lower_fail(lw, LOC_NONE, DIAG_SHAPE, "a parameter is called '%s.order'", w->name);
	*out = irb_cast(lw->b, irb_weight_ref(lw->b, found, index, n), &(struct attrs_cast){.dtype = DT_I32});
	return !irb_failed(lw->b);
}

/* In order: the name, the stack of expressions, the format, and where parts differ the request to split the loops
 * around. */
bool lower_weight(struct lowering *lw, const struct weight_request *need, struct ir_value *out)
{
	const struct lower_loop *loops[IR_RANK_MAX];
	struct ir_value index[IR_RANK_MAX];
	size_t n;
	const char *pattern = need->pattern;
	for (int i = 0; i < need->rank; i++)
		if (need->dims[i] < 0)
			return lower_fail(lw, LOC_NONE, DIAG_SHAPE,
			                  "the parameter '%s' has an axis of size %lld", pattern,
			                  (long long)need->dims[i]);
	if (need->experts > 0)
		pattern = replace_placeholder(lw->arena, arena_printf(lw->arena, "%s", pattern), "*",
		                              need->subset_name != NULL ? need->subset_name : "all");
	const char *name = stacked_name(lw, pattern, loops, &n, false);
	if (name == NULL || !rows_exist(lw, need))
		return false;
	const struct ir_wexpr *e = stack_iterations(lw, need, need->pattern, loops, n, 0);
	if (e != NULL && need->plus_one)
		e = wexpr_offset(lw->arena, 1.0, e);
	if (e == NULL)
		return false;
	int rank = e->rank - (int)n - (need->experts > 0);
	const struct ir_wexpr *order = NULL,
	                      *stored = need->column_order != NULL ? stored_columns(lw, e, n, &order) : NULL;
	bool is_stored = stored != NULL && storage_format(lw, rank, stored) != FORMAT_PLAIN;
	if (is_stored)
		e = stored;
	enum ir_format format = storage_format(lw, rank, e);
	if (format == FORMAT_PLAIN && !need->plus_one && !split_at_format_changes(lw, need, e, loops, n))
		return false;
	const char *suffix = name_suffix(lw, need);
	size_t n_before = lw->module->weights.n;
	const struct ir_weight *w = add_weight(lw, arena_printf(lw->arena, "%s%s", name, suffix), e, format);
	if (w == NULL) { /* another repeat has used the name for other iterations */
		name = stacked_name(lw, pattern, loops, &n, true);
		w = add_weight(lw, arena_printf(lw->arena, "%s%s", name, suffix), e, format);
	}
	if (w == NULL)
		return lower_fail(lw, LOC_NONE, DIAG_SHAPE, "the parameter '%s' is used in two ways",
		                  need->pattern);
	explain_format(lw, need, w, lw->module->weights.n > n_before, loops, n);
	lower_index_operands(loops, n, index);
	*out = irb_weight_ref(lw->b, w, index, n);
	return !irb_failed(lw->b) &&
	       (!is_stored || add_column_order(lw, w, order, index, n, need->column_order));
}
