/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Added tokens of tokenizer.json, overridden by those of the configuration files. A token without an id gets
 * that of its piece, or the next one.
 */
#include <string.h>

#include "frontend/tokenizer/config.h"
#include "frontend/tokenizer/json.h"

static bool no_memory(struct tokenizer_reader *r)
{
	r->no_memory = r->failed = true;
	return false;
}

/* Grows the token array to `want` ids. */
static bool grow_tokens(struct tokenizer_reader *r, size_t n_ids)
{
	if (n_ids <= r->desc->n_tokens)
		return true;
	struct tokenizer_token *grown = ARENA_ARRAY(r->source->arena, struct tokenizer_token, n_ids);
	if (grown == NULL)
		return no_memory(r);
	if (r->desc->n_tokens)
		memcpy(grown, r->desc->tokens, r->desc->n_tokens * sizeof(*grown));
	r->desc->tokens = grown;
	r->desc->n_tokens = n_ids;
	return true;
}

/* Grows the token array for the ids of the list. */
static bool reserve_ids(struct tokenizer_reader *r, const struct json_node *list)
{
	size_t n_ids = r->desc->n_tokens;
	for (size_t i = 0; i < list->n; i++) {
		int64_t id = tokenizer_int_member(r, &list->items[i],
		                                  tokenizer_item_path(r, "", "added_tokens", i), "id", -1);
		if (id < 0 || id >= TFMC_TOK_TOKENS_MAX)
			return tokenizer_reject(r, TOKENIZER_WRONG,
			                        tokenizer_item_path(r, "", "added_tokens", i),
			                        "no usable id");
		n_ids = (size_t)id >= n_ids ? (size_t)id + 1 : n_ids;
	}
	return grow_tokens(r, n_ids);
}

/* Sets piece and flags of the token of an added one. */
static void set_added_token(struct tokenizer_reader *r, const struct tokenizer_added *a)
{
	struct tokenizer_token *t = &r->desc->tokens[a->id];
	/* Decoders map letters to bytes in any token, so an added one may become bytes, too; <0x41>
	 * already is. */
	if (!(t->flags & TFMC_TOK_F_BYTE))
		tokenizer_set_piece(t, r->byte_level ? tokenizer_letters_to_bytes(r->source->arena, a->text)
		                                     : a->text);
	t->is_written = true;
	t->flags = (t->flags & ~(uint32_t)TFMC_TOK_F_SPECIAL) | TFMC_TOK_F_ADDED |
	           (a->flags & TFMC_TOK_A_SPECIAL ? TFMC_TOK_F_SPECIAL : 0u);
}

static void add_token(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	struct tokenizer_added *a = &r->desc->added[r->desc->n_added++];
	bool special = tokenizer_bool_member(r, n, path, "special", false);
	a->text = tokenizer_string(tokenizer_string_member(r, n, path, "content", ""));
	a->id = tokenizer_id(r, json_find(n, "id"), path);
	a->flags = (tokenizer_bool_member(r, n, path, "lstrip", false) ? TFMC_TOK_A_LSTRIP : 0u) |
	           (tokenizer_bool_member(r, n, path, "rstrip", false) ? TFMC_TOK_A_RSTRIP : 0u) |
	           (tokenizer_bool_member(r, n, path, "single_word", false) ? TFMC_TOK_A_WORD : 0u) |
	           (special ? TFMC_TOK_A_SPECIAL : 0u);
	a->in_normalized = tokenizer_bool_member(r, n, path, "normalized", !special);
	if (!r->failed)
		set_added_token(r, a);
}

static struct tokenizer_added *find_added(const struct tokenizer_desc *d, const char *text)
{
	for (size_t i = 0; i < d->n_added; i++) {
		struct tokenizer_added *a = &d->added[i];
		if (tokenizer_string_equals(a->text.text != NULL ? a->text : d->tokens[a->id].piece, text))
			return a;
	}
	return NULL;
}

uint32_t tokenizer_added_id(const struct tokenizer_reader *r, const char *text)
{
	const struct tokenizer_added *a = find_added(r->desc, text);
	if (a != NULL)
		return a->id;
	for (size_t i = 0; i < r->desc->n_tokens; i++)
		if (r->desc->tokens[i].is_written && tokenizer_string_equals(r->desc->tokens[i].piece, text))
			return (uint32_t)i;
	return TFMC_TOK_NONE;
}

/* Adds a token of the configuration files: it names a token of the vocabulary, replaces an added one, or
 * gets a new id. */
static bool add_named(struct tokenizer_reader *r, const struct tokenizer_named *t,
                      const struct tokenizer_index *pieces)
{
	struct tokenizer_desc *d = r->desc;
	struct tokenizer_added *a = find_added(d, t->text);
	if (a == NULL) {
		uint32_t known = tokenizer_index_find(pieces, t->text, strlen(t->text));
		int64_t id = known != TFMC_TOK_NONE ? (int64_t)known : t->id;
		if (id < 0 && t->is_implied)
			return true;
		id = id < 0 ? (int64_t)d->n_tokens : id;
		if (id >= TFMC_TOK_TOKENS_MAX)
			return tokenizer_reject(r, TOKENIZER_WRONG, t->text, "no usable id");
		if (!grow_tokens(r, (size_t)id + 1))
			return false;
		a = &d->added[d->n_added++];
		*a = (struct tokenizer_added){.id = (uint32_t)id, .text = tokenizer_string(t->text)};
		a->flags = t->flags;
		a->in_normalized = t->normalized;
	} else if (t->is_listed) {
		a->flags = t->flags;
		a->in_normalized = t->normalized;
	} else {
		a->flags |= t->flags & TFMC_TOK_A_SPECIAL;
	}
	a->text = tokenizer_string(t->text);
	set_added_token(r, a);
	return true;
}

bool tokenizer_add_configured(struct tokenizer_reader *r)
{
	const struct tokenizer_config *c = r->config;
	struct tokenizer_desc *d = r->desc;
	if (c == NULL || c->n_tokens == 0)
		return true;
	struct tokenizer_index *pieces = tokenizer_index_new(r->source->arena, d);
	struct tokenizer_added *all =
	        ARENA_ARRAY(r->source->arena, struct tokenizer_added, d->n_added + c->n_tokens);
	if (pieces == NULL || all == NULL)
		return no_memory(r);
	if (d->n_added)
		memcpy(all, d->added, d->n_added * sizeof(*all));
	d->added = all;
	for (size_t i = 0; i < c->n_tokens; i++)
		if (!add_named(r, &c->tokens[i], pieces))
			return false;
	return true;
}

bool tokenizer_read_added(struct tokenizer_reader *r, const struct json_node *list)
{
	if (list == NULL || list->kind == JSON_NODE_NULL || list->n == 0)
		return !r->failed;
	if (list->kind != JSON_NODE_ARRAY)
		return tokenizer_reject(r, TOKENIZER_WRONG, "added_tokens", "wrong type of value");
	if (!reserve_ids(r, list))
		return false;
	r->desc->added = ARENA_ARRAY(r->source->arena, struct tokenizer_added, list->n);
	if (r->desc->added == NULL)
		return no_memory(r);
	for (size_t i = 0; i < list->n && !r->failed; i++)
		add_token(r, &list->items[i], tokenizer_item_path(r, "", "added_tokens", i));
	return !r->failed;
}
