/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Members post_processor and decoder of tokenizer.json: templates, and how ids become text. Combinations of
 * decoders are mapped to the flags that have the same effect.
 */
#include <string.h>

#include "frontend/tokenizer/json.h"

/* ---- templates ---- */

static bool add_template_item(struct tokenizer_reader *r, const char *path, enum tfmc_tok_item_kind kind,
                              uint32_t id, int64_t type)
{
	struct tokenizer_desc *d = r->desc;
	if (d->n_items == TFMC_TOK_ITEMS_MAX || type < 0 || type > 255)
		return tokenizer_reject(r, TOKENIZER_WRONG, path, "the template is too long");
	d->items[d->n_items++] = (struct tfmc_tok_item){(uint32_t)kind, id, (uint32_t)type};
	return true;
}

/* Adds the ids of a special token of TemplateProcessing. */
static bool add_special_items(struct tokenizer_reader *r, const struct json_node *root,
                              const struct json_node *n, const char *path)
{
	const char *name = tokenizer_string_member(r, n, path, "id", "");
	int64_t type = tokenizer_int_member(r, n, path, "type_id", 0);
	const struct json_node *ids = json_find(json_find(json_find(root, "special_tokens"), name), "ids");
	if (ids == NULL || ids->kind != JSON_NODE_ARRAY)
		return tokenizer_reject(r, TOKENIZER_WRONG, path, "special_tokens has no ids for '%s'", name);
	for (size_t i = 0; i < ids->n; i++) {
		uint32_t id = tokenizer_id(r, &ids->items[i], path);
		if (r->failed || !add_template_item(r, path, TFMC_TOK_TOKEN, id, type))
			return false;
	}
	return true;
}

static bool read_items(struct tokenizer_reader *r, const struct json_node *root, const char *key,
                       const char *path)
{
	const struct json_node *list = json_find(root, key);
	for (size_t i = 0; list != NULL && i < list->n; i++) {
		const struct json_node *sequence = json_find(&list->items[i], "Sequence");
		const struct json_node *special = json_find(&list->items[i], "SpecialToken");
		const char *at = tokenizer_item_path(r, path, key, i);
		if (special != NULL && !add_special_items(r, root, special, at))
			return false;
		if (sequence == NULL)
			continue;
		bool is_b = !strcmp(tokenizer_string_member(r, sequence, at, "id", "A"), "B");
		if (!add_template_item(r, at, is_b ? TFMC_TOK_TEXT_B : TFMC_TOK_TEXT_A, 0,
		                       tokenizer_int_member(r, sequence, at, "type_id", 0)))
			return false;
	}
	return true;
}

static bool read_processing(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	r->desc->n_items = 0;
	if (!read_items(r, n, "single", path))
		return false;
	r->desc->n_single = r->desc->n_items;
	return read_items(r, n, "pair", path) && !r->failed;
}

/* Id of ["text", id]. */
static uint32_t named_id(struct tokenizer_reader *r, const struct json_node *n, const char *path,
                         const char *key)
{
	const struct json_node *pair = json_find(n, key);
	bool ok = pair != NULL && pair->kind == JSON_NODE_ARRAY && pair->n == 2;
	return tokenizer_id(r, ok ? &pair->items[1] : NULL, tokenizer_member_path(r, path, key));
}

/* Reads BertProcessing or RobertaProcessing. */
static bool read_cls_sep(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	const struct tokenizer_named_id names[] = {{"cls_token", named_id(r, n, path, "cls")},
	                                           {"sep_token", named_id(r, n, path, "sep")},
	                                           {NULL, 0}};
	if (tokenizer_is_type(n, "RobertaProcessing"))
		tokenizer_set_template(r->desc, TOKENIZER_TEMPLATE_ROBERTA, names);
	else
		tokenizer_set_template(r->desc, TOKENIZER_TEMPLATE_BERT, names);
	return !r->failed;
}

bool tokenizer_read_template(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	static const struct tokenizer_component parts[] = {
	        {"TemplateProcessing", read_processing},
	        {"BertProcessing", read_cls_sep},
	        {"RobertaProcessing", read_cls_sep},
	        {"ByteLevel", NULL}, /* trims offsets only */
	        {NULL, NULL},
	};
	return tokenizer_read_component(r, n, path, parts, "processors", tokenizer_read_template);
}

/* ---- decoders ---- */

static bool read_wordpiece(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	bool cleanup = tokenizer_bool_member(r, n, path, "cleanup", true);
	r->desc->flags |= TFMC_TOK_H_DECODE_WORDS | (cleanup ? TFMC_TOK_H_DECODE_CLEAN : 0u);
	return true;
}

static bool read_metaspace(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	const char *scheme = tokenizer_string_member(
	        r, n, path, "prepend_scheme",
	        tokenizer_bool_member(r, n, path, "add_prefix_space", true) ? "always" : "never");
	r->desc->mark = tokenizer_string(tokenizer_string_member(r, n, path, "replacement", TOKENIZER_MARK));
	if (strcmp(scheme, "never") != 0)
		r->desc->flags |= TFMC_TOK_H_DECODE_STRIP;
	return true;
}

static bool read_replace(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	const char *text = tokenizer_string_member(r, json_find(n, "pattern"), path, "String", NULL);
	const char *content = tokenizer_string_member(r, n, path, "content", "");
	if (text == NULL || !*text || strcmp(content, " ") != 0)
		return tokenizer_reject(r, TOKENIZER_UNSUPPORTED, path,
		                        "another replacement than by a space");
	r->desc->mark = tokenizer_string(text);
	return true;
}

static bool read_strip(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	if (strcmp(tokenizer_string_member(r, n, path, "content", " "), " ") != 0 ||
	    tokenizer_int_member(r, n, path, "start", 0) > 1 ||
	    tokenizer_int_member(r, n, path, "stop", 0) != 0)
		return tokenizer_reject(r, TOKENIZER_UNSUPPORTED, path,
		                        "other than one space at the beginning");
	if (tokenizer_int_member(r, n, path, "start", 0) == 1)
		r->desc->flags |= TFMC_TOK_H_DECODE_STRIP;
	return true;
}

static bool read_suffix(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	(void)n, (void)path;
	r->desc->flags |= TFMC_TOK_H_DECODE_SUFFIX;
	return true;
}

bool tokenizer_read_decoder(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	static const struct tokenizer_component parts[] = {
	        {"ByteLevel", NULL}, /* implied by the pieces */
	        {"Fuse", NULL},
	        {"ByteFallback", NULL},
	        {"WordPiece", read_wordpiece},
	        {"Metaspace", read_metaspace},
	        {"Replace", read_replace},
	        {"Strip", read_strip},
	        {"BPEDecoder", read_suffix},
	        {NULL, NULL},
	};
	r->has_decoder = r->has_decoder || (n != NULL && n->kind != JSON_NODE_NULL);
	return tokenizer_read_component(r, n, path, parts, "decoders", tokenizer_read_decoder);
}
