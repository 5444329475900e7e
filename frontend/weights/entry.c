/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the sources of the weight map from YAML. Numbers are expressions over
 * the parameters of the model and are evaluated here, once.
 */
#include "frontend/weights/entry.h"

#include <string.h>

#define ENTRY_DEPTH_MAX 16 /* nested any, concat, stack */

static bool fail(const struct weight_entry_reader *r, struct loc loc, const char *what)
{
	diag_error(r->cx, loc, DIAG_MAP, "%s", what);
	return false;
}

static struct weight_template *read_name(struct weight_entry_reader *r, const struct yaml_node *node,
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

struct int_member {
	const char *key;
	int64_t *out;
};

/* A mapping with exactly these integer keys. */
static bool read_ints(const struct weight_entry_reader *r, const struct yaml_node *node, const char *what,
                      const struct int_member *members, size_t n)
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

/* ---- steps ---- */

static bool read_index(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_step *s)
{
	const struct yaml_node *at = yaml_find(node, "at");
	bool filled = at != NULL && at->kind == YAML_SCALAR && strchr(at->text, '{') != NULL;
	const struct int_member members[] = {{"axis", &s->axis}, {"at", filled ? NULL : &s->begin}};
	if (!read_ints(r, node, "index", members, 2))
		return false;
	if (filled)
		s->name = read_name(r, at, "at");
	return !filled || s->name != NULL;
}

static bool read_slice(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_step *s)
{
	const struct int_member members[] = {{"axis", &s->axis}, {"begin", &s->begin}, {"end", &s->end}};
	return read_ints(r, node, "slice", members, 3);
}

static bool read_split(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_step *s)
{
	const struct int_member members[] = {{"axis", &s->axis}, {"part", &s->begin}, {"of", &s->end}};
	if (!read_ints(r, node, "split", members, 3))
		return false;
	if (s->end < 1 || s->begin < 0 || s->begin >= s->end)
		return fail(r, node->loc, "'split' wants part from 0 to of - 1");
	return true;
}

static bool read_dims(struct weight_entry_reader *r, const struct yaml_node *node, const char *what,
                      struct weight_step *s)
{
	bool ok = true;
	if (!yaml_expect(r->cx, node, YAML_SEQUENCE, what))
		return false;
	if (node->n > IR_RANK_MAX)
		return fail(r, node->loc,
		            arena_printf(r->arena, "'%s' wants at most %d dims", what, IR_RANK_MAX));
	s->rank = (int)node->n;
	for (size_t i = 0; i < node->n; i++)
		ok = expr_read_int(r->env, node->items[i], what, &s->dims[i]) && ok;
	return ok;
}

/* A list of axes in their new order; true: the last two change places, false: nothing does. */
static bool read_transpose(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_step *s)
{
	unsigned seen = 0;
	bool swap = false;
	if (node->kind != YAML_SEQUENCE) {
		if (!expr_read_bool(r->env, node, "transpose", &swap))
			return false;
		s->rank = swap ? 0 : -1;
		return true;
	}
	if (!read_dims(r, node, "transpose", s))
		return false;
	for (int i = 0; i < s->rank; i++)
		seen |= s->dims[i] >= 0 && s->dims[i] < s->rank ? 1U << s->dims[i] : 0;
	if (s->rank == 0 || seen != (1U << s->rank) - 1)
		return fail(r, node->loc, "'transpose' wants true or every axis once, as in [0, 2, 1]");
	return true;
}

static bool read_reshape(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_step *s)
{
	return read_dims(r, node, "reshape", s);
}

/* rope_halves_to_interleaved(heads) or rope_interleaved_to_halves(heads). */
static bool read_permute(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_step *s)
{
	struct value heads;
	if (!yaml_expect(r->cx, node, YAML_SCALAR, "permute"))
		return false;
	const struct expr *call = expr_parse(r->arena, r->cx, expr_source_of(node), EXPR_GRAPH);
	if (call == NULL)
		return false;
	bool to_halves = call->kind == EX_CALL && strcmp(call->text, "rope_interleaved_to_halves") == 0;
	bool known =
	        to_halves || (call->kind == EX_CALL && strcmp(call->text, "rope_halves_to_interleaved") == 0);
	if (to_halves)
		s->kind = WEIGHT_INTERLEAVED_TO_HALVES;
	if (!known || call->n_args != 1 || call->n_keywords != 0)
		return fail(r, node->loc,
		            "'permute' wants rope_halves_to_interleaved(heads) or "
		            "rope_interleaved_to_halves(heads); axes change places with 'transpose'");
	return expr_eval(r->env, call->args[0], &heads) &&
	       expr_want_int(r->env, call->args[0]->loc, "permute", &heads, &s->heads);
}

static bool read_factor(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_step *s)
{
	s->name = read_name(r, node, s->kind == WEIGHT_MUL ? "mul" : "div");
	return s->name != NULL;
}

static bool read_add(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_step *s)
{
	return expr_read_float(r->env, node, "add", &s->add);
}

static const struct {
	const char *key;
	enum weight_step_kind kind;
	bool (*read)(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_step *s);
} step_members[] = {
        {"index", WEIGHT_INDEX, read_index},
        {"slice", WEIGHT_SLICE, read_slice},
        {"split", WEIGHT_SPLIT, read_split},
        {"transpose", WEIGHT_TRANSPOSE, read_transpose},
        {"reshape", WEIGHT_RESHAPE, read_reshape},
        {"permute", WEIGHT_HALVES_TO_INTERLEAVED, read_permute},
        {"mul", WEIGHT_MUL, read_factor},
        {"div", WEIGHT_DIV, read_factor},
        {"add", WEIGHT_ADD, read_add},
};

static bool read_step(struct weight_entry_reader *r, const struct yaml_pair *pair, struct weight_entry *e)
{
	for (size_t i = 0; i < TFMC_COUNT(step_members); i++) {
		if (strcmp(step_members[i].key, pair->key->text) != 0)
			continue;
		struct weight_step step = {.kind = step_members[i].kind, .loc = pair->key->loc};
		if (!step_members[i].read(r, pair->value, &step))
			return false;
		struct weight_step *slot = ARENA_PUSH(r->arena, &e->steps);
		if (slot != NULL)
			*slot = step;
		return slot != NULL;
	}
	return true; /* where the numbers come from, or `optional` */
}

static bool read_optional(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_entry *e)
{
	static const char *const words[] = {"zeros", "ones"};
	size_t word;
	if (r->depth != 1)
		return fail(r, node->loc, "'optional' belongs to the outermost mapping of an entry");
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
		return fail(r, node->loc, "the list of sources is empty");
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
	e->name = read_name(r, node, "from");
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
	const struct int_member members[] = {{"axis", &e->axis}, {"of", NULL}};
	e->kind = ENTRY_CONCAT;
	return read_ints(r, node, "concat", members, 2) && read_list(r, yaml_find(node, "of"), "concat", e);
}

static const struct {
	const char *key;
	bool (*read)(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_entry *e);
} origins[] = {
        {"from", read_from},
        {"any", read_any},
        {"concat", read_concat},
        {"stack", read_stack},
};

/* Keys of a mapping: steps and, unless they belong to a source before them, where the numbers come from. */
static bool check_members(struct weight_entry_reader *r, const struct yaml_node *node, bool is_source)
{
	const char *keys[TFMC_COUNT(origins) + TFMC_COUNT(step_members) + 1];
	size_t n = 0, found = 0;
	keys[n++] = "optional";
	for (size_t i = 0; i < TFMC_COUNT(step_members); i++)
		keys[n++] = step_members[i].key;
	for (size_t i = 0; is_source && i < TFMC_COUNT(origins); i++) {
		keys[n++] = origins[i].key;
		found += yaml_find(node, origins[i].key) != NULL;
	}
	if (!yaml_check_keys(r->cx, node, keys, n,
	                     is_source ? "the source of a weight" : "a step of a source"))
		return false;
	return !is_source || found == 1 ||
	       fail(r, node->loc, "a source wants exactly one of 'from', 'any', 'concat', 'stack'");
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
		ok = read_step(r, &node->pairs[i], e);
	return ok;
}

static bool read_source(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_entry *e)
{
	return node->kind == YAML_MAPPING ? read_members(r, node, true, e) : read_from(r, node, e);
}

/* A source and its steps, which a mapping could not hold twice: [stft, reshape: [..], transpose: [..]]. */
static bool read_chain(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_entry *e)
{
	bool ok = node->n != 0 || fail(r, node->loc, "the list wants a source and its steps");
	for (size_t i = 1; ok && i < node->n; i++) {
		if (node->items[i]->kind != YAML_MAPPING)
			ok = fail(r, node->items[i]->loc,
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
		fail(r, node->loc, "the source is nested too deeply");
	else
		ok = node->kind == YAML_SEQUENCE ? read_chain(r, node, e) : read_source(r, node, e);
	r->depth--;
	return ok && !arena_failed(r->arena) ? e : NULL;
}
