/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the sources of the weight map from YAML. Numbers are expressions over
 * the parameters of the model and are evaluated here, once.
 */
#include "frontend/weight_entry.h"

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

static bool read_index(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_entry *e)
{
	const struct yaml_node *at = yaml_find(node, "at");
	bool filled = at != NULL && at->kind == YAML_SCALAR && strchr(at->text, '{') != NULL;
	const struct int_member members[] = {{"axis", &e->index_axis}, {"at", filled ? NULL : &e->index_at}};
	e->has_index = true;
	if (!read_ints(r, node, "index", members, 2))
		return false;
	if (filled)
		e->index_template = read_name(r, at, "at");
	return !filled || e->index_template != NULL;
}

static bool read_slice(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_entry *e)
{
	const struct int_member members[] = {
	        {"axis", &e->slice_axis}, {"begin", &e->slice_begin}, {"end", &e->slice_end}};
	e->has_slice = true;
	return read_ints(r, node, "slice", members, 3);
}

static bool read_split(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_entry *e)
{
	const struct int_member members[] = {
	        {"axis", &e->split_axis}, {"part", &e->split_part}, {"of", &e->split_of}};
	e->has_split = true;
	if (!read_ints(r, node, "split", members, 3))
		return false;
	if (e->split_of < 1 || e->split_part < 0 || e->split_part >= e->split_of)
		return fail(r, node->loc, "'split' wants part from 0 to of - 1");
	return true;
}

static bool read_transpose(struct weight_entry_reader *r, const struct yaml_node *node,
                           struct weight_entry *e)
{
	return expr_read_bool(r->env, node, "transpose", &e->transpose);
}

static bool read_reshape(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_entry *e)
{
	bool ok = true;
	if (!yaml_expect(r->cx, node, YAML_SEQUENCE, "reshape"))
		return false;
	if (node->n > IR_RANK_MAX)
		return fail(r, node->loc, "'reshape' wants at most 8 dims");
	e->has_reshape = true;
	e->reshape_rank = (int)node->n;
	for (size_t i = 0; i < node->n; i++)
		ok = expr_read_int(r->env, node->items[i], "reshape", &e->reshape_dims[i]) && ok;
	return ok;
}

/* rope_halves_to_interleaved(heads) or rope_interleaved_to_halves(heads). */
static bool read_permute(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_entry *e)
{
	struct value heads;
	if (!yaml_expect(r->cx, node, YAML_SCALAR, "permute"))
		return false;
	const struct expr *call = expr_parse(r->arena, r->cx, expr_source_of(node), EXPR_GRAPH);
	if (call == NULL)
		return false;
	if (call->kind == EX_CALL && strcmp(call->text, "rope_halves_to_interleaved") == 0)
		e->permute = PERMUTE_HALVES_TO_INTERLEAVED;
	else if (call->kind == EX_CALL && strcmp(call->text, "rope_interleaved_to_halves") == 0)
		e->permute = PERMUTE_INTERLEAVED_TO_HALVES;
	if (e->permute == PERMUTE_NONE || call->n_args != 1 || call->n_keywords != 0)
		return fail(r, node->loc,
		            "'permute' wants rope_halves_to_interleaved(heads) or "
		            "rope_interleaved_to_halves(heads)");
	return expr_eval(r->env, call->args[0], &heads) &&
	       expr_want_int(r->env, call->args[0]->loc, "permute", &heads, &e->permute_heads);
}

static bool read_mul(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_entry *e)
{
	e->mul = read_name(r, node, "mul");
	return e->mul != NULL;
}

static bool read_div(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_entry *e)
{
	e->div = read_name(r, node, "div");
	return e->div != NULL;
}

static bool read_add(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_entry *e)
{
	e->has_add = true;
	return expr_read_float(r->env, node, "add", &e->add);
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

static const struct member {
	const char *key;
	bool is_origin; /* exactly one of these */
	bool (*read)(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_entry *e);
} members[] = {
        {"from", true, read_from},        {"any", true, read_any},
        {"concat", true, read_concat},    {"stack", true, read_stack},
        {"index", false, read_index},     {"slice", false, read_slice},
        {"split", false, read_split},     {"transpose", false, read_transpose},
        {"reshape", false, read_reshape}, {"permute", false, read_permute},
        {"mul", false, read_mul},         {"div", false, read_div},
        {"add", false, read_add},         {"optional", false, read_optional},
};

static bool read_members(struct weight_entry_reader *r, const struct yaml_node *node, struct weight_entry *e)
{
	const char *keys[TFMC_COUNT(members)];
	unsigned origins = 0;
	bool ok;
	for (size_t i = 0; i < TFMC_COUNT(members); i++) {
		keys[i] = members[i].key;
		origins += members[i].is_origin && yaml_find(node, keys[i]) != NULL;
	}
	ok = yaml_check_keys(r->cx, node, keys, TFMC_COUNT(keys), "the source of a weight");
	if (ok && origins != 1)
		return fail(r, node->loc, "a source wants exactly one of 'from', 'any', 'concat', 'stack'");
	for (size_t i = 0; ok && i < TFMC_COUNT(members); i++) {
		const struct yaml_node *value = yaml_find(node, members[i].key);
		ok = value == NULL || members[i].read(r, value, e);
	}
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
	else if (node->kind == YAML_SEQUENCE)
		fail(r, node->loc, "a list is no source; write any, stack or concat");
	else if (node->kind == YAML_MAPPING)
		ok = read_members(r, node, e);
	else
		ok = read_from(r, node, e);
	r->depth--;
	return ok && !arena_failed(r->arena) ? e : NULL;
}
