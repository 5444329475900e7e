/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokenizer.json: typed members, the order of its parts, added tokens. Truncation and padding are not read:
 * they are left to the caller.
 */
#include "frontend/tokenizer/class.h"

#include <stdarg.h>
#include <string.h>

#include "runtime/tokenizer/tfmc_tokenizer.h"

bool tokenizer_reject(struct tokenizer_reader *r, enum tokenizer_rejection why, const char *path,
                      const char *fmt, ...)
{
	va_list ap;
	if (r->failed)
		return false;
	va_start(ap, fmt);
	(void)tokenizer_vreject_file(r->source, why, path, fmt, ap);
	va_end(ap);
	r->failed = true;
	return false;
}

const char *tokenizer_member_path(struct tokenizer_reader *r, const char *path, const char *key)
{
	return arena_printf(r->source->arena, "%s.%s", path, key);
}

const char *tokenizer_item_path(struct tokenizer_reader *r, const char *path, const char *key, size_t i)
{
	return arena_printf(r->source->arena, "%s.%s[%zu]", path, key, i);
}

/* The member; NULL: absent, null, or after a diagnostic for its type. */
static const struct json_node *member(struct tokenizer_reader *r, const struct json_node *o, const char *path,
                                      const char *key, enum json_kind kind)
{
	const struct json_node *n = json_find(o, key);
	if (n == NULL || n->kind == JSON_NODE_NULL)
		return NULL;
	if (n->kind == kind)
		return n;
	tokenizer_reject(r, TOKENIZER_WRONG, tokenizer_member_path(r, path, key), "wrong type of value");
	return NULL;
}

const char *tokenizer_string_member(struct tokenizer_reader *r, const struct json_node *o, const char *path,
                                    const char *key, const char *fallback)
{
	const struct json_node *n = member(r, o, path, key, JSON_NODE_STRING);
	return n != NULL ? n->text : fallback;
}

bool tokenizer_bool_member(struct tokenizer_reader *r, const struct json_node *o, const char *path,
                           const char *key, bool fallback)
{
	const struct json_node *n = member(r, o, path, key, JSON_NODE_BOOL);
	return n != NULL ? n->i != 0 : fallback;
}

int64_t tokenizer_int_member(struct tokenizer_reader *r, const struct json_node *o, const char *path,
                             const char *key, int64_t fallback)
{
	const struct json_node *n = member(r, o, path, key, JSON_NODE_INT);
	return n != NULL ? n->i : fallback;
}

uint32_t tokenizer_id(struct tokenizer_reader *r, const struct json_node *n, const char *path)
{
	if (n != NULL && n->kind == JSON_NODE_INT && n->i >= 0 && (uint64_t)n->i < r->desc->n_tokens)
		return (uint32_t)n->i;
	tokenizer_reject(r, TOKENIZER_WRONG, path, "no id of a token");
	return TFMC_TOK_NONE;
}

/* ---- components ---- */

#define NEST_MAX 8

bool tokenizer_is_type(const struct json_node *n, const char *type)
{
	const struct json_node *type_member = json_find(n, "type");
	return type_member != NULL && type_member->kind == JSON_NODE_STRING &&
	       strcmp(type_member->text, type) == 0;
}

static bool read_sequence(struct tokenizer_reader *r, const struct json_node *n, const char *path,
                          const char *key, tokenizer_read_fn *each)
{
	const struct json_node *list = json_find(n, key);
	size_t depth = 0;
	for (const char *c = path; *c; c++)
		depth += *c == '[';
	if (list == NULL || list->kind != JSON_NODE_ARRAY || depth >= NEST_MAX)
		return tokenizer_reject(r, TOKENIZER_WRONG, tokenizer_member_path(r, path, key), "no list");
	for (size_t i = 0; i < list->n; i++)
		if (!each(r, &list->items[i], tokenizer_item_path(r, path, key, i)))
			return false;
	return true;
}

bool tokenizer_read_component(struct tokenizer_reader *r, const struct json_node *n, const char *path,
                              const struct tokenizer_component *parts, const char *sequence,
                              tokenizer_read_fn *each)
{
	if (n == NULL || n->kind == JSON_NODE_NULL)
		return true;
	const char *type = tokenizer_string_member(r, n, path, "type", "");
	for (; parts->type != NULL; parts++)
		if (!strcmp(parts->type, type))
			return (parts->read == NULL || parts->read(r, n, path)) && !r->failed;
	return strcmp(type, "Sequence") == 0
	               ? read_sequence(r, n, path, sequence, each)
	               : tokenizer_reject(r, TOKENIZER_UNSUPPORTED, path, "a component of type '%s'", type);
}

/* ---- the file ---- */

/* Sets what follows from all parts: byte tokens, and decoding of WordLevel. */
static void finish_flags(struct tokenizer_reader *r)
{
	struct tokenizer_desc *d = r->desc;
	if (d->flags & (TFMC_TOK_H_BYTE_LEVEL | TFMC_TOK_H_FALLBACK))
		tokenizer_find_byte_tokens(d);
	if (d->model == TFMC_TOK_WORDLEVEL && !r->has_decoder)
		d->flags |= TFMC_TOK_H_DECODE_WORDS; /* words separated by spaces */
}

/* Warns where a flag contradicts the template, which current transformers follows. */
static void warn_if_contradicted(struct tokenizer_reader *r, const char *key, int flag, uint32_t id)
{
	bool has = false;
	for (size_t i = 0; i < r->desc->n_single; i++)
		has = has || (r->desc->items[i].kind == TFMC_TOK_TOKEN && r->desc->items[i].id == id);
	if (flag >= 0 && id != TFMC_TOK_NONE && has != (flag == 1))
		diag_warning(r->source->cx, r->source->loc, DIAG_TOKENIZER,
		             "'%s': %s is %s, but post_processor of '%s' %s the token, and is followed",
		             r->config->name, key, flag ? "true" : "false", r->source->name,
		             has ? "adds" : "does not add");
}

/* Reads ids of special tokens that lists have in addition. */
static bool read_roles(struct tokenizer_reader *r, const struct json_node *root)
{
	struct tokenizer_desc *d = r->desc;
	const struct {
		const char *key;
		uint32_t *out;
	} roles[] = {{"bos_token_id", &d->bos},
	             {"eos_token_id", &d->eos},
	             {"pad_token_id", &d->pad},
	             {"mask_token_id", &d->mask}};
	for (size_t i = 0; i < TFMC_COUNT(roles); i++)
		if (json_find(root, roles[i].key) != NULL)
			*roles[i].out = tokenizer_id(r, json_find(root, roles[i].key), roles[i].key);
	return !r->failed;
}

/* Reads the template: of the file, or of the class. */
static bool read_template_of_file_or_class(struct tokenizer_reader *r, const struct json_node *root)
{
	const struct json_node *n = json_find(root, "post_processor");
	bool has_template = r->lists == NULL && n != NULL && n->kind != JSON_NODE_NULL;
	if (!tokenizer_read_template(r, n, "post_processor"))
		return false;
	if (r->config == NULL)
		return r->lists == NULL || read_roles(r, root);
	tokenizer_class_set_special_ids(r);
	if (has_template && r->config->class != NULL &&
	    r->config->class->template_kind == TOKENIZER_T_FLAGS) {
		warn_if_contradicted(r, "add_bos_token", r->config->add_bos, r->desc->bos);
		warn_if_contradicted(r, "add_eos_token", r->config->add_eos, r->desc->eos);
	}
	return has_template ? tokenizer_class_override_template(r) : tokenizer_class_set_template(r);
}

/* Reads the members in the order of their dependencies. */
static bool read_parts(struct tokenizer_reader *r, const struct json_node *root)
{
	return tokenizer_read_normalizer(r, json_find(root, "normalizer"), "normalizer") &&
	       tokenizer_read_splitter(r, json_find(root, "pre_tokenizer"), "pre_tokenizer") &&
	       tokenizer_read_decoder(r, json_find(root, "decoder"), "decoder") &&
	       tokenizer_read_model(r, json_find(root, "model")) &&
	       tokenizer_read_added(r, json_find(root, "added_tokens")) && tokenizer_add_configured(r) &&
	       read_template_of_file_or_class(r, root) && !r->failed;
}

/* Normalizes the string of an added token that is matched in normalized text. */
static enum tfmc_status normalize_one(struct tokenizer_reader *r, const struct tfmc_tokenizer *t,
                                      struct tokenizer_added *a)
{
	struct arena *arena = r->source->arena;
	uint64_t n;
	int status = tfmc_tokenizer_normalize(t, a->text.text, a->text.n, NULL, 0, &n);
	if (status == TFMC_TOKENIZER_E_GROWTH)
		return tokenizer_reject_file(r->source, TOKENIZER_WRONG, "added_tokens", "of '%.*s' %s",
		                             (int)(a->text.n < 40 ? a->text.n : 40), a->text.text,
		                             tfmc_tokenizer_status_text(status));
	char *text = status == TFMC_TOKENIZER_OK ? arena_alloc(arena, (size_t)n + 1) : NULL;
	if (text == NULL || tfmc_tokenizer_normalize(t, a->text.text, a->text.n, text, n, &n) != 0)
		return TFMC_NO_MEMORY;
	a->text = (struct tokenizer_string){text, (size_t)n};
	tokenizer_set_piece(&r->desc->tokens[a->id],
	                    r->byte_level ? tokenizer_letters_to_bytes(arena, a->text) : a->text);
	return TFMC_OK;
}

/* Normalizes added tokens by the library, which opens the tokenizer without them. */
static enum tfmc_status normalize_added(struct tokenizer_reader *r)
{
	struct tokenizer_desc *d = r->desc, plain = *d;
	struct tokenizer_packed packed;
	struct tfmc_tokenizer *t;
	size_t n = 0;
	for (size_t i = 0; i < d->n_added; i++)
		n += d->added[i].in_normalized;
	if (n == 0 || d->normalize.n == 0)
		return TFMC_OK;
	plain.n_added = 0;
	TFMC_TRY(tokenizer_pack(r->source, &plain, &packed));
	if (tfmc_tokenizer_open(packed.data, packed.bytes, &t) != TFMC_TOKENIZER_OK)
		return TFMC_NO_MEMORY;
	enum tfmc_status st = TFMC_OK;
	for (size_t i = 0; st == TFMC_OK && i < d->n_added; i++)
		if (d->added[i].in_normalized)
			st = normalize_one(r, t, &d->added[i]);
	tfmc_tokenizer_close(t);
	return st;
}

enum tfmc_status tokenizer_from_tree(const struct tokenizer_source *s, const struct json_node *root,
                                     const struct tokenizer_lists *lists, struct tokenizer_packed *out)
{
	struct tokenizer_desc *d = ARENA_NEW(s->arena, struct tokenizer_desc);
	struct tokenizer_reader r = {.source = s, .desc = d, .config = s->config, .lists = lists};
	if (d == NULL)
		return TFMC_NO_MEMORY;
	tokenizer_desc_init(d);
	if (root->kind != JSON_NODE_OBJECT)
		return tokenizer_reject_file(s, TOKENIZER_WRONG, NULL, "no object");
	if (!read_parts(&r, root))
		return r.no_memory || arena_failed(s->arena) ? TFMC_NO_MEMORY : TFMC_INVALID;
	finish_flags(&r);
	TFMC_TRY(normalize_added(&r));
	return tokenizer_pack(s, d, out);
}

enum tfmc_status tokenizer_from_json(const struct tokenizer_source *s, const char *text, size_t len,
                                     struct tokenizer_packed *out)
{
	const struct json_source src = {s->name, s->loc, DIAG_TOKENIZER, 0};
	const struct json_node *root = json_parse(s->arena, s->cx, &src, text, len);
	return root != NULL ? tokenizer_from_tree(s, root, NULL, out) : TFMC_INVALID;
}
