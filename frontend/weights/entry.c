/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sources of the weight map: read from YAML, where numbers are expressions over the parameters of the model
 * that are evaluated once, and built for each parameter.
 */
#include "frontend/weights/entry.h"

#include <string.h>

#define ENTRY_DEPTH_MAX 16 /* nested any, concat, stack */

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
	const struct weight_template **slot = ARENA_PUSH(r->arena, &r->templates);
	if (slot == NULL)
		return NULL;
	*slot = t;
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

static bool read_optional(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_entry *e)
{
	static const char *const words[] = {"zeros", "ones"};
	size_t word;
	if (r->depth != 1)
		return weight_fail(r, node->loc, "'optional' belongs to the outermost mapping of an entry");
	if (!expr_read_word(r->env, node, "optional", words, 2, &word))
		return false;
	e->optional = word == 0 ? OPTIONAL_ZEROS : OPTIONAL_ONES;
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
	e->kind = ENTRY_FROM;
	e->name = weight_read_name(r, node, "from");
	return e->name != NULL;
}

static bool read_any(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_entry *e)
{
	e->kind = ENTRY_ANY;
	return read_list(r, node, "any", e);
}

static bool read_stack(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_entry *e)
{
	e->kind = ENTRY_STACK;
	return read_list(r, node, "stack", e);
}

static bool read_concat(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_entry *e)
{
	const struct weight_int members[] = {{"axis", &e->axis}, {"of", NULL}};
	e->kind = ENTRY_CONCAT;
	return weight_read_ints(r, node, "concat", members, 2) &&
	       read_list(r, yaml_find(node, "of"), "concat", e);
}

static const struct {
	const char *key;
	const char *doc;
	bool (*read)(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_entry *e);
} origins[] = {
        {"from", "the name of a tensor", read_from},
        {"any", "a list of sources: the first one whose tensors exist", read_any},
        {"concat", "`{axis: A, of: [..]}`: sources one after another along an axis", read_concat},
        {"stack", "a list of sources of one shape, along a new first axis", read_stack},
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

static bool read_members(struct weight_entry_reader *r, const struct yaml_node *node, bool is_source,
                         struct weight_entry *e)
{
	const struct yaml_node *optional = yaml_find(node, "optional");
	bool ok = check_members(r, node, is_source) && (optional == NULL || read_optional(r, optional, e));
	for (size_t i = 0; ok && is_source && i < TFMC_COUNT(origins); i++) {
		const struct yaml_node *value = yaml_find(node, origins[i].key);
		ok = value == NULL || origins[i].read(r, value, e);
	}
	for (size_t i = 0; ok && i < node->n; i++)
		ok = weight_step_read(r, &node->pairs[i], e);
	return ok;
}

static bool read_source(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_entry *e)
{
	return node->kind == YAML_MAPPING ? read_members(r, node, true, e) : read_from(r, node, e);
}

/* A source and its steps, which a mapping could not hold twice: [stft, reshape: [..], transpose: [..]]. */
static bool read_chain(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_entry *e)
{
	bool ok = node->n != 0 || weight_fail(r, node->loc, "the list wants a source and its steps");
	for (size_t i = 1; ok && i < node->n; i++) {
		if (node->items[i]->kind != YAML_MAPPING)
			ok = weight_fail(
			        r, node->items[i]->loc,
			        "a list is one source and steps like 'transpose: true'; several sources "
			        "are any, stack or concat");
	}
	ok = ok && read_source(r, node->items[0], e);
	for (size_t i = 1; ok && i < node->n; i++)
		ok = read_members(r, node->items[i], false, e);
	return ok;
}

const struct weight_entry *weight_entry_read(struct weight_entry_reader *r, const struct yaml_node *node)
{
	struct weight_entry *e = ARENA_NEW(r->arena, struct weight_entry);
	bool ok = false;
	if (e == NULL)
		return NULL;
	e->loc = node->loc;
	if (++r->depth > ENTRY_DEPTH_MAX)
		weight_fail(r, node->loc, "the source is nested too deeply");
	else
		ok = node->kind == YAML_SEQUENCE ? read_chain(r, node, e) : read_source(r, node, e);
	r->depth--;
	return ok && !arena_failed(r->arena) ? e : NULL;
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

static bool all_exist(struct weight_build *b, const struct weight_entry *e)
{
	for (size_t i = 0; i < e->n_of; i++) {
		if (!weight_entry_exists(b, e->of[i]))
			return false;
	}
	return true;
}

static const struct weight_entry *first_existing(struct weight_build *b, const struct weight_entry *e)
{
	for (size_t i = 0; i < e->n_of; i++) {
		if (weight_entry_exists(b, e->of[i]))
			return e->of[i];
	}
	return NULL;
}

bool weight_entry_exists(struct weight_build *b, const struct weight_entry *e)
{
	bool ok = true;
	for (size_t i = 0; i < e->steps.n; i++) {
		const struct weight_step *s = &e->steps.items[i];
		ok = (s->kind == WX_INDEX || name_exists(b, s->name)) && ok;
	}
	switch (e->kind) {
	case ENTRY_FROM: return name_exists(b, e->name) && ok;
	case ENTRY_ANY: return first_existing(b, e) != NULL && ok;
	case ENTRY_CONCAT:
	case ENTRY_STACK: return all_exist(b, e) && ok;
	}
	return false;
}

static const struct ir_wexpr *reverse_axes(struct arena *a, const struct ir_wexpr *x)
{
	int64_t from[IR_RANK_MAX];
	for (int i = 0; i < x->rank; i++)
		from[i] = x->rank - 1 - i;
	return weight_permute_axes(a, x, from);
}

static const char *const block_types[] = {
#define PLAIN(number, name, bytes, dtype)
#define WIDER(number, name, bytes, read)
#define BLOCKS(number, name, block, bytes) #name,
#include "frontend/formats/gguf_types.def"
};

static void refuse_type(struct weight_build *b, struct loc loc, const struct stored_tensor *w)
{
	bool blocks = false;
	for (size_t i = 0; i < TFMC_COUNT(block_types); i++)
		blocks = blocks || strcmp(block_types[i], w->type_name) == 0;
	if (blocks)
		diag_error(b->cx, loc, DIAG_STORED_TYPE,
		           "the tensor '%.200s' of '%s' has type %s: not supported yet", w->key, w->file,
		           w->type_name);
	else
		diag_error(b->cx, loc, DIAG_STORED_TYPE,
		           "the tensor '%.200s' of '%s' is stored as %s; weights are numbers of 8 to 64 bits",
		           w->key, w->file, w->type_name);
}

const struct ir_wexpr *weight_tensor(struct weight_build *b, const char *name, struct loc loc)
{
	struct stored_tensor *w = weight_files_find(b->files, name);
	struct weight_bytes bytes;
	if (w == NULL)
		return NULL;
	w->used = true;
	if (!w->readable) {
		refuse_type(b, loc, w);
		return NULL;
	}
	weight_tensor_bytes(w, &bytes);
	const struct ir_wexpr *x =
	        wexpr_tensor(b->arena, w->file, w->name, bytes.dtype, bytes.rank, bytes.dims);
	return x == NULL || !w->reversed ? x : reverse_axes(b->arena, x);
}

const struct ir_wexpr *weight_leaf(struct weight_build *b, const struct weight_template *t)
{
	return weight_tensor(b, weight_template_fill(b->arena, t, b->captures), t->node->loc);
}

static const struct ir_wexpr *join(struct weight_build *b, const struct weight_entry *e)
{
	const struct ir_wexpr **args = ARENA_ARRAY(b->arena, const struct ir_wexpr *, e->n_of);
	for (size_t i = 0; args != NULL && i < e->n_of; i++) {
		args[i] = weight_entry_build(b, e->of[i]);
		if (args[i] == NULL)
			return NULL;
	}
	if (args == NULL || arena_failed(b->arena))
		return NULL;
	const struct ir_wexpr *x = NULL;
	if (e->kind == ENTRY_STACK)
		x = wexpr_stack(b->arena, e->n_of, args);
	else if (e->axis >= 0 && e->axis < IR_RANK_MAX)
		x = wexpr_concat(b->arena, (int)e->axis, e->n_of, args);
	if (x != NULL || arena_failed(b->arena))
		return x;
	diag_error(b->cx, e->loc, DIAG_WEIGHT_SHAPE,
	           "the sources of '%s' do not fit together (for parameter '%.200s')",
	           e->kind == ENTRY_STACK ? "stack" : "concat", b->want->path);
	for (size_t i = 0; i < e->n_of; i++)
		diag_note(b->cx, e->of[i]->loc, "this part is %s",
		          weight_shape_text(b->arena, args[i]->rank, args[i]->dims));
	return NULL;
}

static const struct ir_wexpr *origin(struct weight_build *b, const struct weight_entry *e)
{
	const struct weight_entry *first;
	switch (e->kind) {
	case ENTRY_FROM: return weight_leaf(b, e->name);
	case ENTRY_ANY:
		first = first_existing(b, e);
		return first == NULL ? NULL : weight_entry_build(b, first);
	case ENTRY_CONCAT:
	case ENTRY_STACK: return join(b, e);
	}
	return NULL;
}

const struct ir_wexpr *weight_entry_build(struct weight_build *b, const struct weight_entry *e)
{
	return weight_steps_apply(b, e, origin(b, e));
}
