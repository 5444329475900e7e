/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is around the ids, and how ids become text again: the members
 * post_processor and decoder of tokenizer.json. Decoders that files combine are
 * recognised as what they do together.
 */
#include <string.h>

#include "frontend/tokenizer_files/json.h"

/* ---- templates ---- */

static bool put_item(struct tokenizer_reader *r, const char *path, enum tfmc_tok_item_kind kind, uint32_t id,
                     int64_t type)
{
	struct tokenizer_desc *d = r->desc;
	if (d->n_items == TFMC_TOK_ITEMS_MAX || type < 0 || type > 255)
		return tokenizer_reject(r, TOKENIZER_WRONG, path, "the template is too long");
	d->items[d->n_items++] = (struct tfmc_tok_item){(uint32_t)kind, id, (uint32_t)type};
	return true;
}

static bool put_special(struct tokenizer_reader *r, const struct json_node *root, const struct json_node *n,
                        const char *path)
{
	const char *name = tokenizer_text(r, n, path, "id", "");
	int64_t type = tokenizer_int(r, n, path, "type_id", 0);
	const struct json_node *ids = json_find(json_find(json_find(root, "special_tokens"), name), "ids");
	if (ids == NULL || ids->kind != JSON_NODE_ARRAY)
		return tokenizer_reject(r, TOKENIZER_WRONG, path, "special_tokens has no ids for '%s'", name);
	for (size_t i = 0; i < ids->n; i++) {
		uint32_t id = tokenizer_id(r, &ids->items[i], path);
		if (r->failed || !put_item(r, path, TFMC_TOK_TOKEN, id, type))
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
		const char *at = tokenizer_item(r, path, key, i);
		if (special != NULL && !put_special(r, root, special, at))
			return false;
		if (sequence == NULL)
			continue;
		bool is_b = !strcmp(tokenizer_text(r, sequence, at, "id", "A"), "B");
		if (!put_item(r, at, is_b ? TFMC_TOK_TEXT_B : TFMC_TOK_TEXT_A, 0,
		              tokenizer_int(r, sequence, at, "type_id", 0)))
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

/* ["text", id] */
static uint32_t named_id(struct tokenizer_reader *r, const struct json_node *n, const char *path,
                         const char *key)
{
	const struct json_node *pair = json_find(n, key);
	bool ok = pair != NULL && pair->kind == JSON_NODE_ARRAY && pair->n == 2;
	return tokenizer_id(r, ok ? &pair->items[1] : NULL, tokenizer_path(r, path, key));
}

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
	static const struct tokenizer_part parts[] = {
	        {"TemplateProcessing", read_processing},
	        {"BertProcessing", read_cls_sep},
	        {"RobertaProcessing", read_cls_sep},
	        {"ByteLevel", NULL}, /* trims offsets, which nobody asks for */
	        {NULL, NULL},
	};
	return tokenizer_read_part(r, n, path, parts, "processors", tokenizer_read_template);
}

/* ---- decoders ---- */

static bool read_wordpiece(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	bool cleanup = tokenizer_bool(r, n, path, "cleanup", true);
	r->desc->flags |= TFMC_TOK_H_DECODE_WORDS | (cleanup ? TFMC_TOK_H_DECODE_CLEAN : 0u);
	return true;
}

static bool read_metaspace(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	const char *scheme =
	        tokenizer_text(r, n, path, "prepend_scheme",
	                       tokenizer_bool(r, n, path, "add_prefix_space", true) ? "always" : "never");
	r->desc->mark = tokenizer_string(tokenizer_text(r, n, path, "replacement", TOKENIZER_MARK));
	if (strcmp(scheme, "never") != 0)
		r->desc->flags |= TFMC_TOK_H_DECODE_STRIP;
	return true;
}

static bool read_replace(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	const char *text = tokenizer_text(r, json_find(n, "pattern"), path, "String", NULL);
	const char *content = tokenizer_text(r, n, path, "content", "");
	if (text == NULL || !*text || strcmp(content, " ") != 0)
		return tokenizer_reject(r, TOKENIZER_UNSUPPORTED, path,
		                        "another replacement than by a space");
	r->desc->mark = tokenizer_string(text);
	return true;
}

static bool read_strip(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	if (strcmp(tokenizer_text(r, n, path, "content", " "), " ") != 0 ||
	    tokenizer_int(r, n, path, "start", 0) > 1 || tokenizer_int(r, n, path, "stop", 0) != 0)
		return tokenizer_reject(r, TOKENIZER_UNSUPPORTED, path,
		                        "other than one space at the beginning");
	if (tokenizer_int(r, n, path, "start", 0) == 1)
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
	static const struct tokenizer_part parts[] = {
	        {"ByteLevel", NULL}, /* these follow from the pieces */
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
	return tokenizer_read_part(r, n, path, parts, "decoders", tokenizer_read_decoder);
}

/* ---- base64 ---- */

static int base64_digit(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

struct tokenizer_string tokenizer_base64(struct tokenizer_reader *r, const char *path, const char *text)
{
	size_t len = strlen(text), n = 0;
	char *out = arena_alloc(r->source->arena, len + 1);
	uint32_t bits = 0;
	unsigned have = 0;
	while (len && text[len - 1] == '=')
		len--;
	for (size_t i = 0; out != NULL && i < len; i++) {
		int digit = base64_digit(text[i]);
		if (digit < 0) {
			tokenizer_reject(r, TOKENIZER_WRONG, path, "no base64");
			return (struct tokenizer_string){"", 0};
		}
		bits = (bits << 6 | (uint32_t)digit) & 0xffffff;
		have += 6;
		if (have >= 8) {
			have -= 8;
			out[n++] = (char)(bits >> have & 0xff);
		}
	}
	if (out == NULL)
		r->no_memory = r->failed = true;
	return (struct tokenizer_string){out, n};
}
