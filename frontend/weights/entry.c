/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sources of the weight map: read from YAML, where numbers are expressions over the parameters of the model
 * that are evaluated once, and built for each parameter.
 */
#include "frontend/weights/entry.h"

#include <string.h>

#define ENTRY_DEPTH_MAX 16 /* nested any, concat, stack */
#define ENTRY_CHAIN_MAX 64 /* a source and its steps in a list */

bool weight_fail(const struct weight_entry_reader *r, struct loc loc, const char *what)
{
	diag_error(r->cx, loc, DIAG_MAP, "%s", what);
	return false;
}

const struct weight_template *weight_read_name(struct weight_entry_reader *r, const struct yaml_node *node,
                                               const char *what)
{
	struct weight_template *t = ARENA_NEW(r->arena, struct weight_template);
	if (!yaml_expect(r->cx, node, YAML_SCALAR, what) || t == NULL ||
	    !weight_template_parse(r->arena, r->cx, node, false, t))
		return NULL;
	if (!ARENA_ADDED(r->arena, &r->templates, t))
		return NULL;
	return t;
}

/* ---- integers in mappings ---- */

/* A mapping with exactly these integer keys. */
bool weight_read_ints(const struct weight_entry_reader *r, const struct yaml_node *node, const char *what,
                      const struct weight_int *members, size_t n)
{
	const char *keys[4];
	bool ok = true;
	if (!yaml_expect(r->cx, node, YAML_MAPPING, what))
		return false;
	for (size_t i = 0; i < n; i++)
		keys[i] = members[i].key;
	ok = yaml_check_keys(r->cx, node, keys, n, what);
	for (size_t i = 0; i < n; i++) {
		const struct yaml_node *value = yaml_find(node, members[i].key);
		if (value == NULL) {
			diag_error(r->cx, node->loc, DIAG_MISSING, "'%s' wants '%s'", what, members[i].key);
			ok = false;
		} else if (members[i].out != NULL) {
			ok = expr_read_int(r->env, value, members[i].key, members[i].out) && ok;
		}
	}
	return ok;
}

static bool read_optional(struct weight_entry_reader *r, const struct yaml_node *node)
{
	static const char *const words[] = {"zeros", "ones"};
	size_t word;
	if (r->depth != 1)
		return weight_fail(r, node->loc, "'optional' belongs to the outermost mapping of an entry");
	if (!expr_read_word(r->env, node, "optional", words, 2, &word))
		return false;
	r->optional = word == 0 ? OPTIONAL_ZEROS : OPTIONAL_ONES;
	return true;
}

/* ---- what the numbers are made of ---- */

static bool read_list(struct weight_entry_reader *r, const struct yaml_node *node, const char *what,
                      struct weight_entry *e)
{
	if (!yaml_expect(r->cx, node, YAML_SEQUENCE, what))
		return false;
	if (node->n == 0)
		return weight_fail(r, node->loc, "the list of sources is empty");
	e->of = ARENA_ARRAY(r->arena, const struct weight_entry *, node->n);
	if (e->of == NULL || arena_failed(r->arena))
		return false;
	e->n_of = node->n;
	for (size_t i = 0; i < node->n; i++) {
		e->of[i] = weight_entry_read(r, node->items[i]);
		if (e->of[i] == NULL)
			return false;
	}
	return true;
}

static bool read_from(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_entry *e)
{
	e->name = weight_read_name(r, node, "from");
	return e->name != NULL;
}

static bool read_sources(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_entry *e)
{
	return read_list(r, node, e->op->key, e);
}

static bool read_concat(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_entry *e)
{
	const struct weight_int members[] = {{"axis", &e->axis}, {"of", NULL}};
	return weight_read_ints(r, node, "concat", members, 2) &&
	       read_list(r, yaml_find(node, "of"), "concat", e);
}

/* ---- building ---- */

const char *weight_shape_text(struct arena *a, int rank, const int64_t *dims)
{
	struct buf out;
	buf_init(&out);
	buf_char(&out, '[');
	for (int i = 0; i < rank; i++)
		buf_printf(&out, "%s%lld", i == 0 ? "" : ", ", (long long)dims[i]);
	buf_char(&out, ']');
	const char *text = arena_strdup(a, out.data);
	buf_destroy(&out);
	return text;
}

/* ---- existence ---- */

static bool name_exists(struct weight_build *b, const struct weight_template *t)
{
	const char *name = t == NULL ? NULL : weight_template_fill(b->arena, t, b->captures);
	if (name == NULL || weight_files_find(b->files, name) != NULL)
		return true;
	if (b->missing == NULL)
		b->missing = name;
	return false;
}

static const struct weight_entry *first_existing(struct weight_build *b, const struct weight_entry *e)
{
	for (size_t i = 0; i < e->n_of; i++) {
		if (weight_entry_exists(b, e->of[i]))
			return e->of[i];
	}
	return NULL;
}

static const struct ir_wexpr *apply_any(struct weight_build *b, const struct weight_entry *e,
                                        const struct ir_wexpr *x)
{
	(void)x;
	return weight_entry_build(b, first_existing(b, e));
}

bool weight_entry_exists(struct weight_build *b, const struct weight_entry *e)
{
	bool ok = true;
	if (e->op->apply == apply_any)
		return first_existing(b, e) != NULL;
	for (size_t i = 0; ok && i < e->n_of; i++)
		ok = weight_entry_exists(b, e->of[i]);
	return (e->kind == WX_INDEX || name_exists(b, e->name)) && ok;
}

struct stored_tensor *weight_entry_tensor(struct weight_build *b, const struct weight_entry *e)
{
	while (e != NULL && e->op->apply == apply_any)
		e = first_existing(b, e);
	bool is_one = e != NULL && e->kind == WX_TENSOR && e->name != NULL && e->n_of == 0;
	const char *name = is_one ? weight_template_fill(b->arena, e->name, b->captures) : NULL;
	return name == NULL ? NULL : weight_files_find(b->files, name);
}

static const struct ir_wexpr *reverse_axes(struct arena *a, const struct ir_wexpr *x)
{
	int64_t from[IR_RANK_MAX];
	for (int i = 0; i < x->rank; i++)
		from[i] = x->rank - 1 - i;
	return weight_permute_axes(a, x, from);
}

const struct ir_wexpr *weight_tensor(struct weight_build *b, const char *name, struct loc loc)
{
	struct stored_tensor *w = weight_files_find(b->files, name);
	struct weight_bytes bytes;
	if (w == NULL)
		return NULL;
	w->used = true;
	if (!w->readable) {
		diag_error(b->cx, loc, DIAG_STORED_TYPE,
		           "the tensor '%.200s' of '%s' is stored as %s, which is not supported yet", w->key,
		           w->file, w->type_name);
		return NULL;
	}
	weight_tensor_bytes(w, &bytes);
	const struct ir_wexpr *x =
	        bytes.format != FORMAT_PLAIN
	                ? wexpr_tensor_quants(b->arena, w->file, w->name, bytes.format, bytes.rank,
	                                      bytes.dims)
	                : wexpr_tensor(b->arena, w->file, w->name, bytes.dtype, bytes.rank, bytes.dims);
	if (x != NULL && w->order != NULL)
		return wexpr_columns(
		        b->arena, x,
		        wexpr_tensor(b->arena, w->order->file, w->order->name, DT_I32, 1, w->order->dims));
	return x == NULL || !w->reversed ? x : reverse_axes(b->arena, x);
}

const struct ir_wexpr *weight_leaf(struct weight_build *b, const struct weight_template *t)
{
	return weight_tensor(b, weight_template_fill(b->arena, t, b->captures), t->node->loc);
}

static const struct ir_wexpr *apply_from(struct weight_build *b, const struct weight_entry *e,
                                         const struct ir_wexpr *x)
{
	(void)x;
	return weight_leaf(b, e->name);
}

static const struct ir_wexpr *apply_join(struct weight_build *b, const struct weight_entry *e,
                                         const struct ir_wexpr *x)
{
	const struct ir_wexpr **args = ARENA_ARRAY(b->arena, const struct ir_wexpr *, e->n_of);
	for (size_t i = 0; args != NULL && i < e->n_of; i++) {
		args[i] = weight_entry_build(b, e->of[i]);
		if (args[i] == NULL)
			return NULL;
	}
	if (args == NULL || arena_failed(b->arena))
		return NULL;
	if (e->kind == WX_STACK)
		x = wexpr_stack(b->arena, e->n_of, args);
	else if (e->axis >= 0 && e->axis < IR_RANK_MAX)
		x = wexpr_concat(b->arena, (int)e->axis, e->n_of, args);
	if (x != NULL || arena_failed(b->arena))
		return x;
	diag_error(b->cx, e->loc, DIAG_WEIGHT_SHAPE,
	           "the sources of '%s' do not fit together (for parameter '%.200s')", e->op->key,
	           b->want->path);
	for (size_t i = 0; i < e->n_of; i++)
		diag_note(b->cx, e->of[i]->loc, "this part is %s",
		          weight_shape_text(b->arena, args[i]->rank, args[i]->dims));
	return NULL;
}

const struct ir_wexpr *weight_entry_build(struct weight_build *b, const struct weight_entry *e)
{
	const struct ir_wexpr *x = NULL;
	if (e->op->is_step && (x = weight_entry_build(b, e->of[0])) == NULL)
		return NULL;
	size_t errors = b->cx->n_errors;
	const struct ir_wexpr *y = e->op->apply(b, e, x);
	/* The constructors refuse what is nested too deeply without a word. */
	if (y == NULL && !arena_failed(b->arena) && b->cx->n_errors == errors)
		diag_error(b->cx, e->loc, DIAG_LIMIT,
		           "the source of the parameter '%.200s' has too many steps", b->want->path);
	return y;
}

/* ---- reading ---- */

static const struct weight_op origins[] = {
        {"from", "the name of a tensor", WX_TENSOR, false, read_from, apply_from},
        {"any", "a list of sources: the first one whose tensors exist", WX_TENSOR, false, read_sources,
         apply_any},
        {"concat", "`{axis: A, of: [..]}`: sources one after another along an axis", WX_CONCAT, false,
         read_concat, apply_join},
        {"stack", "a list of sources of one shape, along a new first axis", WX_STACK, false, read_sources,
         apply_join},
};

const char *weight_source_key(size_t i)
{
	if (i == 0)
		return "optional";
	if (i <= WEIGHT_N_STEPS)
		return weight_steps[i - 1].key;
	i -= 1 + WEIGHT_N_STEPS;
	return i < TFMC_COUNT(origins) ? origins[i].key : NULL;
}

const char *weight_source_doc(size_t i)
{
	if (i == 0)
		return "`zeros` or `ones`: what the parameter is when the tensors are absent; outermost "
		       "mapping only";
	return i <= WEIGHT_N_STEPS ? weight_steps[i - 1].doc : origins[i - 1 - WEIGHT_N_STEPS].doc;
}

/* Keys of a mapping: steps and, unless they belong to a source before them, where the numbers come from. */
static bool check_members(struct weight_entry_reader *r, const struct yaml_node *node, bool is_source)
{
	const char *keys[TFMC_COUNT(origins) + WEIGHT_N_STEPS + 1];
	size_t n = 0, found = 0;
	while (weight_source_key(n) != NULL && (is_source || n < 1 + WEIGHT_N_STEPS)) {
		keys[n] = weight_source_key(n);
		n++;
	}
	for (size_t i = 1 + WEIGHT_N_STEPS; i < n; i++)
		found += yaml_find(node, keys[i]) != NULL;
	if (!yaml_check_keys(r->cx, node, keys, n,
	                     is_source ? "the source of a weight" : "a step of a source"))
		return false;
	return !is_source || found == 1 ||
	       weight_fail(r, node->loc, "a source wants exactly one of 'from', 'any', 'concat', 'stack'");
}

/* A source or a step of the one before. */
static struct weight_entry *read_op(struct weight_entry_reader *r, const struct weight_op *op, struct loc loc,
                                    const struct yaml_node *value, const struct weight_entry *before)
{
	struct weight_entry *e = ARENA_NEW(r->arena, struct weight_entry);
	const struct weight_entry **of = ARENA_NEW(r->arena, const struct weight_entry *);
	if (e == NULL || of == NULL || arena_failed(r->arena))
		return NULL;
	*of = before;
	*e = (struct weight_entry){.op = op, .kind = op->kind, .loc = loc, .of = of, .n_of = before != NULL};
	return op->read(r, value, e) ? e : NULL;
}

/* The source of a mapping with its steps, or further steps of the source before it. */
static const struct weight_entry *read_members(struct weight_entry_reader *r, const struct yaml_node *node,
                                               const struct weight_entry *before)
{
	const struct yaml_node *optional = yaml_find(node, "optional");
	const struct weight_entry *e = before;
	if (!check_members(r, node, before == NULL) || (optional != NULL && !read_optional(r, optional)))
		return NULL;
	for (size_t i = 0; before == NULL && i < TFMC_COUNT(origins); i++) {
		const struct yaml_node *value = yaml_find(node, origins[i].key);
		if (value != NULL)
			e = read_op(r, &origins[i], node->loc, value, NULL);
	}
	for (size_t i = 0; i < node->n; i++) {
		const struct yaml_pair *pair = &node->pairs[i];
		for (size_t k = 0; e != NULL && k < WEIGHT_N_STEPS; k++)
			if (strcmp(weight_steps[k].key, pair->key->text) == 0)
				e = read_op(r, &weight_steps[k], pair->key->loc, pair->value, e);
	}
	return e;
}

static const struct weight_entry *read_source(struct weight_entry_reader *r, const struct yaml_node *node)
{
	return node->kind == YAML_MAPPING ? read_members(r, node, NULL)
	                                  : read_op(r, &origins[0], node->loc, node, NULL);
}

/* A source and its steps, which a mapping could not hold twice: [stft, reshape: [..], transpose: [..]]. */
static const struct weight_entry *read_chain(struct weight_entry_reader *r, const struct yaml_node *node)
{
	bool ok = (node->n != 0 || weight_fail(r, node->loc, "the list wants a source and its steps")) &&
	          (node->n <= ENTRY_CHAIN_MAX || weight_fail(r, node->loc, "the list has too many steps"));
	for (size_t i = 1; ok && i < node->n; i++) {
		if (node->items[i]->kind != YAML_MAPPING)
			ok = weight_fail(
			        r, node->items[i]->loc,
			        "a list is one source and steps like 'transpose: true'; several sources "
			        "are any, stack or concat");
	}
	const struct weight_entry *e = ok ? read_source(r, node->items[0]) : NULL;
	for (size_t i = 1; e != NULL && i < node->n; i++)
		e = read_members(r, node->items[i], e);
	return e;
}

const struct weight_entry *weight_entry_read(struct weight_entry_reader *r, const struct yaml_node *node)
{
	const struct weight_entry *e = NULL;
	if (++r->depth > ENTRY_DEPTH_MAX)
		weight_fail(r, node->loc, "the source is nested too deeply");
	else
		e = node->kind == YAML_SEQUENCE ? read_chain(r, node) : read_source(r, node);
	r->depth--;
	return arena_failed(r->arena) ? NULL : e;
}
