/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The weight map: the entry of a parameter, the errors of its tensors, and the unused tensors and patterns at
 * the end.
 *
 * Parameters without a fitting tensor, collected while a model is lowered and reported by cause: a wrong
 * number of layers, a wrong map entry or a wrong width is one error, which names the first parameter and
 * counts the others.
 * A pattern is the key of an entry with captures, a fault a parameter without a fitting tensor. Suggestions compare
 * names by their common beginning and end (weight_name_similarity). A series is a set of names that differ in an index,
 * as those of layers do.
 */
#include "frontend/weights/map.h"

#include <ctype.h>
#include <string.h>

#include "frontend/syntax/expr.h"
#include "frontend/syntax/files.h"
#include "frontend/weights/entry.h"
#include "frontend/weights/files.h"
#include "frontend/weights/pattern.h"
#include "ir/support/strmap.h"

/* ---- parameters without a fitting tensor ---- */

enum weight_fault_kind {
	FAULT_MISSING,  /* no file has `tensor`, which the map names */
	FAULT_UNMAPPED, /* no map entry matches, and no tensor has the parameter's name */
	FAULT_SHAPE,    /* `source` has a different shape */
	FAULT_INTS,     /* `source` has the integer type `tensor` */
};

/* A parameter without a fitting tensor. */
struct weight_fault {
	enum weight_fault_kind kind;
	struct parameter_request request;
	const char *tensor;
	const char *source; /* "the tensor 'a' of 'b'" */
	const char *hint;   /* FAULT_SHAPE: a way to make it fit, or "" */
	struct loc mapped; /* source of the map entry; unmapped: a pattern that matches except for a dot; else
			   LOC_NONE */
	int rank;
	int64_t dims[IR_RANK_MAX];
	bool is_reported;
};

struct weight_faults {
	struct weight_fault *items;
	size_t n, cap;
};

/* Context of the reports. */
struct weight_fault_context {
	struct arena *arena;
	struct diag_context *cx;
	struct weight_files *files;
	const struct expr_env *env; /* to name the model params that have the wrong value */
	size_t n_parameters;        /* number of requested parameters */
	bool has_map;
};

#define INDEX_MAX    1000000 /* larger integers in names are not indices */
#define NAMED_PARAMS 3

/* ---- series: names that differ in an index ---- */

static bool is_index_at(const char *name, size_t i)
{
	return isdigit((unsigned char)name[i]) && i > 0 && name[i - 1] == '.';
}

/* Index at `text`, which ends at a dot or the end of the name; -1: not an index. Digits beyond INDEX_MAX are not added,
 * so nothing overflows. */
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

/* Series of tensor names: if an index in `name` is beyond all stored ones, returns the common beginning,
 * such as "layers." of "layers.3.w" where the files have layers.0 to layers.2 (*count 3; earlier indices
 * become `*`). The first such index counts. of_used: considers used tensors only. NULL: none. */
static const char *weight_series(const struct weight_fault_context *x, const char *name, bool of_used,
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

/* Index of `name` after the series, or -1. */
static int64_t weight_series_index(struct arena *a, const char *series, const char *name)
{
	for (size_t i = 0; name[i] != '\0'; i++)
		if (is_index_at(name, i) && strcmp(with_stars(a, name, i), series) == 0)
			return read_index(name + i);
	return -1;
}

/* ---- params ---- */

/* "'layers' is 12": the model params with this value; "": none, or more than NAMED_PARAMS, of which none is likelier to
 * be the wrong one. */
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

/* Reports a wrong number of layers, with all faults of absent tensors in the series; false: the name of the tensor is
 * in no series that has an end. The model asks for the largest index + 1, whose param the note names. */
static bool report_series(const struct weight_fault_context *x, struct weight_faults *faults,
                          struct weight_fault *first)
{
	int64_t stored, asked = 0;
	size_t more = 0;
	const char *series = weight_series(x, first->tensor, false, &stored);
	if (series == NULL)
		return false;
	for (struct weight_fault *f = first; f < faults->items + faults->n; f++) {
		int64_t index = f->is_reported || f->kind > FAULT_UNMAPPED /* its tensor exists */
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
		/* one of the common causes */
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

/* True: the first wrong axis of a and some axis of b are wrong by the same factor, stored / requested; fractions are
 * compared by cross products in f64, which cannot overflow. One wrong param makes many shapes wrong by its factor. */
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

/* Reports a wrong shape, with all faults of the same factor (a wrong param of the model) or, where a step of the map
 * would help (hint) or ranks differ, of the same map entry. The note names the params that have the smallest wrong
 * size: a size like 3 D is no param, D is. */
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

/* Reports the faults that are not yet reported, one error for each cause. An absent tensor may be a missing layer: that
 * is looked for first. */
static void weight_faults_report(const struct weight_fault_context *x, struct weight_faults *faults)
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
		case FAULT_INTS:
			diag_error(x->cx, f->request.loc, DIAG_VALUE_TYPE,
			           "the parameter '%.200s' wants floats, %s holds %s%s", f->request.path,
			           f->source, f->tensor,
			           count_suffix(x, mark_same_entry(faults, f), "of this entry"));
			break;
		}
	}
}

/* ---- the map ---- */

#define UNUSED_LISTED 10 /* unused tensors named in a message */

/* An entry of the map: pattern, source, and whether it was used. */
struct pattern {
	struct weight_template key;
	const struct weight_entry *source;
	struct weight_templates templates;
	enum weight_optional optional;
	struct loc loc, source_loc;
	bool must_match, matched, clash_reported;
};

struct pattern_list {
	struct pattern **items;
	size_t n, cap;
};

/* The map, its patterns and the faults so far. */
struct weight_map {
	struct arena *arena;
	struct diag_context *cx;
	struct weight_files *files;
	const struct expr_env *env;
	struct weight_faults faults;
	bool missing;             /* a parameter has no tensor, or two entries */
	struct pattern_list all;  /* in reading order */
	struct strmap by_text;    /* pattern text -> struct pattern */
	struct strmap parameters; /* set of requested paths */
	struct strmap ties;       /* path of a parameter -> path of the one that is tied to it */
};

struct weight_map *weight_map_create(struct arena *a, struct diag_context *cx, struct weight_files *wf,
                                     const struct expr_env *env)
{
	struct weight_map *m = ARENA_NEW(a, struct weight_map);
	if (m == NULL || arena_failed(a))
		return NULL;
	*m = (struct weight_map){.arena = a, .cx = cx, .files = wf, .env = env};
	strmap_init(&m->by_text, a);
	strmap_init(&m->parameters, a);
	strmap_init(&m->ties, a);
	return m;
}

/* ---- reading ---- */

/* Checks that each capture occurs on both sides: one of the source alone could not be filled, and one of the pattern
 * alone would map several parameters to one tensor. */
static bool check_captures(struct weight_map *m, const struct pattern *p)
{
	for (size_t i = 0; i < p->key.n; i++) {
		const char *capture = p->key.pieces[i].capture;
		bool found = capture == NULL;
		for (size_t k = 0; !found && k < p->templates.n; k++)
			found = weight_template_has(p->templates.items[k], capture);
		if (!found) {
			diag_error(m->cx, p->loc, DIAG_MAP,
			           "'{%s}' of the pattern does not occur in its source", capture);
			return false;
		}
	}
	for (size_t k = 0; k < p->templates.n; k++) {
		const struct weight_template *t = p->templates.items[k];
		for (size_t i = 0; i < t->n; i++) {
			if (t->pieces[i].capture == NULL ||
			    weight_template_has(&p->key, t->pieces[i].capture))
				continue;
			diag_error(m->cx, t->node->loc, DIAG_MAP,
			           "'{%s}' does not occur in the pattern '%.200s'", t->pieces[i].capture,
			           p->key.node->text);
			return false;
		}
	}
	return true;
}

/* Adds an entry of the map. Equal patterns are an error: both would match the same parameters. */
static bool add_pattern(struct weight_map *m, const struct yaml_pair *pair, bool must_match)
{
	struct pattern *p = ARENA_NEW(m->arena, struct pattern);
	struct weight_entry_reader r = {.arena = m->arena, .cx = m->cx, .env = m->env};
	const struct pattern *before = strmap_get(&m->by_text, pair->key->text);
	if (before != NULL) {
		diag_error(m->cx, pair->key->loc, DIAG_NAME_CLASH, "the pattern '%.200s' is given twice",
		           pair->key->text);
		diag_note(m->cx, before->loc, "the first one is here");
		return false;
	}
	if (m->all.n == WEIGHT_MAP_PATTERNS_MAX) {
		diag_error(m->cx, pair->key->loc, DIAG_LIMIT, "the weight map has more than %d patterns",
		           WEIGHT_MAP_PATTERNS_MAX);
		return false;
	}
	if (p == NULL || !weight_template_parse(m->arena, m->cx, pair->key, true, &p->key))
		return false;
	p->loc = pair->key->loc;
	p->must_match = must_match;
	p->source = weight_entry_read(&r, pair->value);
	p->templates = r.templates;
	p->optional = r.optional;
	p->source_loc = pair->value->loc;
	if (p->source == NULL || !check_captures(m, p))
		return false;
	if (!ARENA_ADDED(m->arena, &m->all, p))
		return false;
	return strmap_set(&m->by_text, pair->key->text, p);
}

/* Adds all entries of a mapping; those written in `main_source` (0: none) must match a parameter. All are read, so that
 * every mistake is reported. */
static enum tfmc_status add_patterns(struct weight_map *m, const struct yaml_node *map, uint32_t main_source)
{
	bool ok = true;
	for (size_t i = 0; i < map->n; i++) {
		uint32_t source = map->pairs[i].key->loc.source;
		ok = add_pattern(m, &map->pairs[i], source != 0 && source == main_source) && ok;
		if (arena_failed(m->arena))
			return TFMC_NO_MEMORY;
	}
	return ok ? TFMC_OK : TFMC_INVALID;
}

enum tfmc_status weight_map_read(struct weight_map *m, const struct yaml_node *map, const char *dir,
                                 uint32_t main_source)
{
	const struct yaml_node *file;
	if (map == NULL || yaml_is(map, "identity"))
		return TFMC_OK;
	if (map->kind == YAML_MAPPING)
		return add_patterns(m, map, main_source);
	if (!yaml_expect(m->cx, map, YAML_SCALAR, "weights.map"))
		return TFMC_INVALID;
	const char *path = file_path_any(m->arena, m->cx, dir, map->text, map->loc);
	if (path == NULL)
		return TFMC_INVALID;
	TFMC_TRY(yaml_read(m->arena, m->cx, path, map->text, map->loc, &file));
	return add_patterns(m, file, 0);
}

/* ---- finding ---- */

/* False beyond the limit on errors: suggestions are expensive and would not be shown. */
static bool may_suggest(const struct weight_map *m)
{
	return !diag_is_full(m->cx);
}

/* Reports two patterns that match one parameter; once for each pattern, as they may match it in every layer. */
static void report_clash(struct weight_map *m, const struct parameter_request *request, struct pattern *a,
                         struct pattern *b)
{
	if (!b->clash_reported) {
		diag_error(m->cx, b->loc, DIAG_TWO_MATCHES, "the parameter '%.200s' fits two patterns",
		           request->path);
		diag_note(m->cx, a->loc, "the other one is here");
		diag_note(m->cx, request->loc, "the parameter belongs to this step");
	}
	a->clash_reported = true;
	b->clash_reported = true;
	m->missing = true;
}

/*
 * The pattern of a path: the literal one (without captures), else the only one that matches; NULL: none. *clash: two
 * match (reported). Patterns that match but yield to a literal one count as matched: they are not reported as unused.
 */
static struct pattern *find_pattern(struct weight_map *m, const struct parameter_request *request,
                                    struct weight_captures *captures, bool *clash)
{
	struct weight_captures trial;
	struct pattern *found = strmap_get(&m->by_text, request->path);
	bool literal = found != NULL && found->key.n_captures == 0;
	*clash = false;
	captures->n = 0;
	if (literal)
		found->matched = true;
	else
		found = NULL;
	for (size_t i = 0; i < m->all.n; i++) {
		struct pattern *p = m->all.items[i];
		if (p->key.n_captures == 0 ||
		    !weight_template_match(&p->key, &p->templates, request->path, false, &trial))
			continue;
		p->matched = true;
		if (literal)
			continue;
		if (found != NULL) {
			report_clash(m, request, found, p);
			*clash = true;
			return NULL;
		}
		found = p;
		*captures = trial;
	}
	return found;
}

/* Records a parameter without a fitting tensor; returns NULL. Where one has no tensor at all, unused tensors and
 * patterns may be its consequence, and are not reported (m->missing). */
static const struct ir_wexpr *record_fault(struct weight_map *m, const struct parameter_request *request,
                                           const struct pattern *p, struct weight_fault fault)
{
	fault.request = *request;
	fault.mapped = p != NULL ? p->source_loc : LOC_NONE;
	m->missing = m->missing || fault.kind <= FAULT_UNMAPPED;
	(void)ARENA_ADDED(m->arena, &m->faults, fault);
	return NULL;
}

/* Finds a permutation of the axes of x that has the requested shape: axis i is from[i]. False: none. The first free
 * axis of the size is taken: axes of one size are exchangeable here. */
static bool find_axes(const struct parameter_request *request, const struct ir_wexpr *x, int64_t *from)
{
	unsigned taken = 0;
	for (int i = 0; i < request->rank; i++) {
		int k = 0;
		while (k < x->rank && ((taken >> k & 1) != 0 || x->dims[k] != request->dims[i]))
			k++;
		if (k == x->rank)
			return false;
		taken |= 1U << k;
		from[i] = k;
	}
	return x->rank == request->rank;
}

/* True: the expression and the parameter have the same number of elements. Divides, as the product of the requested
 * sizes may overflow. */
static bool has_same_count(const struct parameter_request *request, const struct ir_wexpr *x)
{
	int64_t n = wexpr_count(x);
	for (int i = 0; i < request->rank; i++) {
		if (request->dims[i] == 0 || n % request->dims[i] != 0)
			return false;
		n /= request->dims[i];
	}
	return n == 1;
}

/* Suggests a step of the map that makes a source of another shape fit; "": none. p NULL: the source is the tensor of
 * the parameter's name, without an entry. A matrix whose last step is a transpose fits without it. */
static const char *shape_hint(struct weight_map *m, const struct parameter_request *request,
                              const struct pattern *p, const struct ir_wexpr *x)
{
	const struct weight_entry *e = p == NULL ? NULL : p->source;
	int64_t from[IR_RANK_MAX];
	if (!find_axes(request, x, from))
		return !has_same_count(request, x)
		               ? ""
		               : arena_printf(m->arena,
		                              "; the same number of elements: reshape: %s would fit",
		                              weight_shape_text(m->arena, request->rank, request->dims));
	const char *axes = request->rank == 2 ? "true" : weight_shape_text(m->arena, request->rank, from);
	if (e != NULL && request->rank == 2 && e->kind == WX_TRANSPOSE)
		return "; it would fit without 'transpose'";
	if (e != NULL && e->n_of != 0)
		return arena_printf(m->arena, "; transposed? 'transpose: %s' as the last step would fit",
		                    axes);
	return arena_printf(m->arena, "; transposed? write {from: ..., transpose: %s} in the map", axes);
}

/* Describes the source of an expression for messages. */
static const char *describe_source(struct weight_map *m, const struct ir_wexpr *x)
{
	if (x->kind == WX_TENSOR)
		return arena_printf(m->arena, "the tensor '%.200s' of '%s'", x->tensor, x->file);
	return "its source in weights.map";
}

/* Checks the shape of a source; a longer vocabulary is sliced (files pad it to a multiple), another shape is recorded
 * as a fault. */
static const struct ir_wexpr *check_shape(struct weight_map *m, const struct parameter_request *request,
                                          const struct pattern *p, const struct ir_wexpr *x)
{
	bool same = x->rank == request->rank &&
	            memcmp(x->dims, request->dims, (size_t)request->rank * sizeof(int64_t)) == 0;
	if (same)
		return x;
	bool longer =
	        request->is_vocabulary && x->rank == request->rank && x->dims[0] > request->dims[0] &&
	        memcmp(x->dims + 1, request->dims + 1, (size_t)(request->rank - 1) * sizeof(int64_t)) == 0;
	if (longer) {
		diag_warning(m->cx, request->loc, DIAG_WEIGHT_SHAPE,
		             "the vocabulary has %lld ids, %s has rows for %lld: the first ones are used",
		             (long long)request->dims[0], describe_source(m, x), (long long)x->dims[0]);
		return wexpr_slice(m->arena, 0, 0, request->dims[0], x);
	}
	const char *hint = shape_hint(m, request, p, x);
	struct weight_fault fault = {
	        .kind = FAULT_SHAPE, .source = describe_source(m, x), .hint = hint, .rank = x->rank};
	memcpy(fault.dims, x->dims, sizeof(x->dims));
	return record_fault(m, request, p, fault);
}

/* Finds an integer tensor whose elements would be used as they are: quants without scales, or a wrong
 * tensor. Below arithmetic integers are allowed: it dequantizes them. NULL: none. */
static const struct ir_wexpr *find_plain_ints(const struct ir_wexpr *e)
{
	const struct ir_wexpr *found = NULL;
	bool moves = e->kind != WX_MUL && e->kind != WX_DIV && e->kind != WX_OFFSET && e->kind != WX_LOWRANK;
	size_t n = e->kind == WX_COLUMNS ? 1 : e->n_args; /* the column order is integers */
	if (e->kind == WX_TENSOR)
		return e->format == FORMAT_PLAIN && ir_dtype_class(e->stored) != DTCLASS_FLOAT ? e : NULL;
	for (size_t i = 0; moves && found == NULL && i < n; i++)
		found = find_plain_ints(e->args[i]);
	return found;
}

/* ---- tied parameters ---- */

/* The entry of a parameter; NULL: none. *tensor: the stored tensor if the entry names exactly one without steps, or of
 * the parameter's name where there is no entry; else NULL. *b can then be used with the entry. */
static const struct weight_entry *find_entry(struct weight_map *m, const char *path, struct weight_build *b,
                                             struct weight_captures *captures, struct stored_tensor **tensor)
{
	const struct parameter_request request = {.path = path};
	bool clash;
	const struct pattern *p = find_pattern(m, &request, captures, &clash);
	*b = (struct weight_build){m->arena, m->cx, m->files, captures, NULL, NULL};
	*tensor = p != NULL ? weight_entry_tensor(b, p->source) : weight_files_find(m->files, path);
	return p == NULL ? NULL : p->source;
}

/* True: the parameter has an entry whose tensors are stored. */
static bool has_stored_entry(struct weight_map *m, const char *path)
{
	struct weight_captures captures;
	struct weight_build b;
	struct stored_tensor *tensor;
	const struct weight_entry *e = find_entry(m, path, &b, &captures, &tensor);
	return e != NULL && weight_entry_exists(&b, e);
}

/* The map is keyed by the tied parameter: weight_map_find() asks for the other one when it has no tensor. */
void weight_map_tie(struct weight_map *m, const char *path, const char *tied)
{
	strmap_set(&m->ties, tied, (void *)(uintptr_t)path);
}

/* The first of these: the entry's tensors (without an entry, the tensor of the parameter's name), those of the
 * parameter that it is tied to, the constant of `optional`; else a fault. The shape is checked after building, as steps
 * change it. */
const struct ir_wexpr *weight_map_find(struct weight_map *m, const struct parameter_request *request)
{
	struct weight_captures captures;
	bool clash;
	strmap_set(&m->parameters, request->path, m);
	struct pattern *p = find_pattern(m, request, &captures, &clash);
	if (clash)
		return NULL;
	struct weight_build b = {m->arena, m->cx, m->files, &captures, request, NULL};
	const struct weight_entry *e = p == NULL ? NULL : p->source;
	bool exists =
	        e != NULL ? weight_entry_exists(&b, e) : weight_files_find(m->files, request->path) != NULL;
	const char *other = exists ? NULL : strmap_get(&m->ties, request->path);
	if (arena_failed(m->arena))
		return NULL;
	/* only the tied one is stored: read it in place of this one; its entry exists, so this recursion ends */
	if (other != NULL && has_stored_entry(m, other)) {
		struct parameter_request of_other = *request;
		of_other.path = other;
		return weight_map_find(m, &of_other);
	}
	if (!exists && e == NULL)
		return record_fault(m, request, p,
		                    (struct weight_fault){.kind = FAULT_UNMAPPED, .tensor = request->path});
	if (!exists && p->optional == OPTIONAL_NONE)
		return record_fault(
		        m, request, p,
		        (struct weight_fault){.kind = FAULT_MISSING,
		                              .tensor = b.missing == NULL ? request->path : b.missing});
	if (!exists)
		return wexpr_full(m->arena, p->optional == OPTIONAL_ONES ? 1.0 : 0.0, request->rank,
		                  request->dims);
	const struct ir_wexpr *x =
	        e != NULL ? weight_entry_build(&b, e) : weight_tensor(&b, request->path, request->loc);
	x = x == NULL ? NULL : check_shape(m, request, p, x);
	const struct ir_wexpr *ints = x == NULL ? NULL : find_plain_ints(x);
	if (ints == NULL)
		return x;
	return record_fault(m, request, p,
	                    (struct weight_fault){.kind = FAULT_INTS,
	                                          .tensor = ir_dtype_name(ints->stored),
	                                          .source = describe_source(m, ints)});
}

static bool is_adapted(const struct stored_tensor *t)
{
	return t->updates != NULL || t->replaced_by != NULL;
}

/* True: same type, shape and bytes. An adapter changes one of two tensors, so that they differ. */
static bool is_copy(const struct stored_tensor *a, const struct stored_tensor *b)
{
	return a == b || (!is_adapted(a) && !is_adapted(b) && a->bytes == b->bytes && a->rank == b->rank &&
	                  strcmp(a->type_name, b->type_name) == 0 &&
	                  memcmp(a->dims, b->dims, (size_t)a->rank * sizeof(*a->dims)) == 0 &&
	                  (a->bytes == 0 || memcmp(a->data, b->data, a->bytes) == 0));
}

/* find_entry() is asked for both: e is that of `path`, of_tied that of `tied`, *tensor the stored tensors where the
 * entries are single ones. Without both stored, or with equal bytes, one tensor serves both. An adapter of the only one
 * that is stored would change both, unlike in PEFT: an error. */
bool weight_map_unties(struct weight_map *m, const char *path, const char *tied)
{
	struct weight_captures captures;
	struct weight_build b;
	struct stored_tensor *tensor, *tied_tensor;
	const struct weight_entry *e = find_entry(m, path, &b, &captures, &tensor);
	bool is_stored = e != NULL && weight_entry_exists(&b, e);
	const struct weight_entry *of_tied = find_entry(m, tied, &b, &captures, &tied_tensor);
	if (!is_stored || (tied_tensor == NULL && (of_tied == NULL || !weight_entry_exists(&b, of_tied)))) {
		/* only one is stored, and both read it */
		const struct stored_tensor *shared = is_stored ? tensor : tied_tensor;
		if (shared != NULL && is_adapted(shared))
			diag_error(m->cx, shared->loc, DIAG_UNSUPPORTED,
			           "not supported yet: an adapter changes '%.200s', which is read as "
			           "'%.200s' and, tied, as "
			           "'%.200s'",
			           shared->key, tied, path);
		return false;
	}
	if (tensor == NULL || tied_tensor == NULL || !is_copy(tensor, tied_tensor))
		return true;
	tensor->used = true; /* a copy that no parameter reads is not reported as unused */
	return false;
}

/* ---- leftovers ---- */

/* The most similar parameter path with more than `min_common` common bytes, or NULL. */
static const char *nearest_parameter(const struct weight_map *m, const char *name, size_t min_common)
{
	const char *best = NULL;
	size_t best_score = min_common;
	for (size_t i = 0; i < m->parameters.n; i++) {
		size_t score = weight_name_similarity(name, m->parameters.items[i].key);
		if (score > best_score) {
			best_score = score;
			best = m->parameters.items[i].key;
		}
	}
	return best;
}

/* A parameter that the pattern would match if captures could cross dots, or NULL. */
static const char *match_across_dots(const struct weight_map *m, const struct pattern *p)
{
	struct weight_captures captures;
	for (size_t i = 0; i < m->parameters.n && p->key.n_captures > 0; i++)
		if (weight_template_match(&p->key, &p->templates, m->parameters.items[i].key, true,
		                          &captures))
			return m->parameters.items[i].key;
	return NULL;
}

/* Attributes unmapped parameters to the pattern that would match if captures could cross dots; the pattern
 * then counts as matched, as its mistake is reported with the parameters. */
static void attribute_to_dots(struct weight_map *m)
{
	struct weight_captures captures;
	for (size_t i = 0; i < m->all.n; i++) {
		struct pattern *p = m->all.items[i];
		for (size_t k = 0; k < m->faults.n && !p->matched && p->key.n_captures > 0; k++) {
			struct weight_fault *f = &m->faults.items[k];
			if (f->kind != FAULT_UNMAPPED || f->mapped.source != 0 ||
			    !weight_template_match(&p->key, &p->templates, f->request.path, true, &captures))
				continue;
			f->mapped = p->loc;
			p->matched = true;
		}
	}
}

static bool is_unmatched(const struct pattern *p)
{
	return p->must_match && !p->matched;
}

/* Reports patterns that match no parameter: each one, but a single error, which counts the others, if there are
 * parameters without entry: a renamed parameter is the other side of the same mistake. */
static bool check_patterns(struct weight_map *m)
{
	bool ok = true, renamed = false;
	size_t idle = 0;
	for (size_t i = 0; i < m->faults.n; i++)
		renamed = renamed || m->faults.items[i].kind == FAULT_UNMAPPED;
	for (size_t i = 0; i < m->all.n; i++)
		idle += is_unmatched(m->all.items[i]);
	for (size_t i = 0; i < m->all.n && (ok || !renamed); i++) {
		const struct pattern *p = m->all.items[i];
		if (!is_unmatched(p))
			continue;
		const char *dotted = may_suggest(m) ? match_across_dots(m, p) : NULL;
		const char *near = may_suggest(m) ? nearest_parameter(m, p->key.node->text, 0) : NULL;
		const char *hint = "";
		if (dotted != NULL)
			hint = arena_printf(m->arena, "; captures end at dots, else it would fit '%.200s'",
			                    dotted);
		else if (renamed && idle > 1)
			hint = arena_printf(m->arena, "; %zu more fit none", idle - 1);
		else if (near != NULL)
			hint = arena_printf(m->arena, "; the nearest is '%.200s'", near);
		diag_error(m->cx, p->loc, DIAG_NO_MATCH, "the pattern '%.200s' fits no parameter%s",
		           p->key.node->text, hint);
		ok = false;
	}
	return ok;
}

static bool is_unused(const struct stored_tensor *t)
{
	return !t->used && !t->ignored;
}

static struct weight_fault_context fault_context(const struct weight_map *m)
{
	return (struct weight_fault_context){.arena = m->arena,
	                                     .cx = m->cx,
	                                     .files = m->files,
	                                     .env = m->env,
	                                     .n_parameters = m->parameters.n,
	                                     .has_map = m->all.n > 0};
}

/* Notes the nearest parameters of the first few unused tensors; a parameter must share half of the name. */
static void note_unused(struct weight_map *m)
{
	size_t n = weight_files_count(m->files), listed = 0;
	for (size_t i = 0; i < n && listed < UNUSED_LISTED && may_suggest(m); i++) {
		const struct stored_tensor *t = weight_files_at(m->files, i);
		const char *near = is_unused(t) ? nearest_parameter(m, t->key, strlen(t->key) / 2) : NULL;
		if (near == NULL)
			continue;
		diag_note(m->cx, LOC_NONE, "'%.200s' %s %s; the nearest parameter is '%.200s'", t->key,
		          t->type_name, weight_shape_text(m->arena, t->rank, t->dims), near);
		listed++;
	}
}

/* "the files have 3 of 'layers.*', the model asks for 2" if all unused tensors are beyond the indices in
 * use, of the series of the first one; NULL: otherwise. */
static const char *series_of_unused(struct weight_map *m)
{
	const struct weight_fault_context x = fault_context(m);
	const char *series = NULL;
	int64_t asked = 0, stored = 0;
	for (size_t i = 0; i < weight_files_count(m->files); i++) {
		const struct stored_tensor *t = weight_files_at(m->files, i);
		if (!is_unused(t))
			continue;
		series = series != NULL ? series : weight_series(&x, t->key, true, &asked);
		int64_t index = series == NULL ? -1 : weight_series_index(m->arena, series, t->key);
		if (index < asked)
			return NULL;
		stored = index >= stored ? index + 1 : stored;
	}
	return series == NULL
	               ? NULL
	               : arena_printf(m->arena, "the files have %lld of '%s*', the model asks for %lld",
	                              (long long)stored, series, (long long)asked);
}

/* Reports tensors that are neither used nor ignored: the first UNUSED_LISTED of them or, where a wrong number of layers
 * explains all, one. True: there is none, or they are allowed. */
static bool check_unused(struct weight_map *m, bool allow_unused)
{
	size_t n = weight_files_count(m->files), unused = 0;
	const char *series = series_of_unused(m);
	struct loc loc = LOC_NONE;
	struct buf names;
	buf_init(&names);
	for (size_t i = 0; i < n; i++) {
		const struct stored_tensor *t = weight_files_at(m->files, i);
		if (!is_unused(t))
			continue;
		if (unused < (series != NULL ? 1 : UNUSED_LISTED))
			buf_printf(&names, "%s%.200s", unused == 0 ? "" : ", ", t->key);
		loc = unused == 0 ? t->loc : loc;
		unused++;
	}
	size_t listed = series != NULL ? 1 : UNUSED_LISTED;
	if (unused > listed)
		buf_printf(&names, " and %zu more", unused - listed);
	if (unused != 0 && allow_unused)
		diag_warning(m->cx, loc, DIAG_UNUSED_TENSOR, "stored but neither used nor ignored: %s",
		             names.data);
	else if (unused != 0)
		diag_error(m->cx, loc, DIAG_UNUSED_TENSOR,
		           "stored but neither used nor ignored: %s; map them or list them in weights.ignore",
		           names.data);
	buf_destroy(&names);
	if (unused != 0 && series != NULL)
		diag_note(m->cx, LOC_NONE, "%s", series);
	else if (unused != 0)
		note_unused(m);
	return unused == 0 || allow_unused;
}

/* Checks an ignored tensor with a map entry that no parameter matches: it must be a copy of a used one (a
 * table that two embeddings share). With values of its own it belongs to a part that the model lacks, and results would
 * be wrong. */
static bool check_ignored(const struct weight_map *m, const struct pattern *p)
{
	struct weight_captures none = {.n = 0};
	struct weight_build b = {m->arena, m->cx, m->files, &none, NULL, NULL};
	bool may = p->key.n_captures == 0 && !p->matched;
	const struct stored_tensor *t = may ? weight_entry_tensor(&b, p->source) : NULL;
	if (t == NULL || t->used || !t->ignored)
		return true;
	for (size_t i = 0; i < weight_files_count(m->files); i++) {
		const struct stored_tensor *tied_tensor = weight_files_at(m->files, i);
		if (tied_tensor->used && is_copy(t, tied_tensor))
			return true;
	}
	diag_error(
	        m->cx, t->loc, DIAG_UNUSED_TENSOR,
	        "not supported yet: '%.200s' is stored with values of its own, no parameter reads it and it "
	        "is not a copy of a tensor that is read",
	        t->key);
	diag_note(m->cx, p->source_loc, "the map names it here");
	return false;
}

/* Reports tensors that an adapter changes and no parameter reads: a part of it would be without effect. */
static bool check_adapted(const struct weight_map *m)
{
	bool ok = true;
	for (size_t i = 0; i < weight_files_count(m->files); i++) {
		const struct stored_tensor *t = weight_files_at(m->files, i);
		if (!is_adapted(t) || t->used)
			continue;
		diag_error(m->cx, t->loc, DIAG_UNUSED_TENSOR,
		           "an adapter changes '%.200s', which no parameter of the model reads", t->key);
		ok = false;
	}
	return ok;
}

bool weight_map_report(struct weight_map *m)
{
	const struct weight_fault_context x = fault_context(m);
	attribute_to_dots(m);
	weight_faults_report(&x, &m->faults);
	return m->faults.n == 0;
}

/* All checks run, so that every mistake is reported, except those that may be consequences of a missing tensor. */
bool weight_map_finish(struct weight_map *m, bool allow_unused)
{
	bool matched = weight_map_report(m);
	matched = check_patterns(m) && matched;
	for (size_t i = 0; i < m->all.n && !m->missing; i++)
		matched = check_ignored(m, m->all.items[i]) && matched;
	/* Unused tensors may be consequences of a missing one: not reported then. */
	bool used = m->missing || (check_adapted(m) && check_unused(m, allow_unused));
	return matched && used;
}
