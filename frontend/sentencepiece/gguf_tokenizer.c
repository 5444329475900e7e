/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys tokenizer.ggml.* of GGUF into the form that the packing of tokenizers takes. Types of values are
 * checked here, their meaning there.
 */
#include "frontend/sentencepiece/gguf_tokenizer.h"

#include <string.h>

#define PREFIX     "tokenizer.ggml."
#define TOKENS_MAX ((size_t)1 << 24)

struct reader {
	const struct tokenizer_source *s;
	const struct gguf *g;
};

static enum tfmc_status wrong(const struct reader *r, const char *key, const char *what)
{
	diag_error(r->s->cx, r->s->loc, DIAG_FILE, "'%s': the key '" PREFIX "%s' %s", r->s->name, key, what);
	return TFMC_INVALID;
}

static const struct gguf_value *find(const struct reader *r, const char *key)
{
	return gguf_find(r->g, arena_printf(r->s->arena, PREFIX "%s", key));
}

static enum tfmc_status read_text(const struct reader *r, const char *key, const char *absent,
                                  struct tokenizer_string *out)
{
	const struct gguf_value *v = find(r, key);
	*out = (struct tokenizer_string){absent, strlen(absent)};
	if (v == NULL)
		return TFMC_OK;
	if (v->type != GGUF_STRING)
		return wrong(r, key, "is no string");
	*out = (struct tokenizer_string){v->text, v->len};
	return TFMC_OK;
}

/* An id, or -1. */
static enum tfmc_status read_id(const struct reader *r, const char *key, int64_t *out)
{
	const struct gguf_value *v = find(r, key);
	*out = -1;
	if (v == NULL)
		return TFMC_OK;
	if (!gguf_is_whole(v->type) || v->i < -1)
		return wrong(r, key, "is no id");
	*out = v->i == UINT32_MAX ? -1 : v->i;
	return TFMC_OK;
}

static enum tfmc_status read_flag(const struct reader *r, const char *key, int *out)
{
	const struct gguf_value *v = find(r, key);
	*out = v == NULL ? -1 : v->i != 0;
	return v == NULL || v->type == GGUF_BOOL ? TFMC_OK : wrong(r, key, "is no bool");
}

/* A list with elements of one kind, or NULL; *st tells what is wrong. n 0: of any length. */
static const struct gguf_value *read_list(const struct reader *r, const char *key, bool strings, size_t n,
                                          enum tfmc_status *st)
{
	const struct gguf_value *v = find(r, key);
	if (v == NULL || *st != TFMC_OK)
		return NULL;
	bool kind = v->type == GGUF_ARRAY && (strings ? v->element == GGUF_STRING
	                                              : v->element != GGUF_STRING && v->element != GGUF_BOOL);
	if (!kind)
		*st = wrong(r, key, strings ? "is no list of strings" : "is no list of numbers");
	else if (v->n > TOKENS_MAX)
		*st = wrong(r, key, "is too long");
	else if (n != 0 && v->n != n)
		*st = wrong(r, key, "does not have one element for each token");
	return *st == TFMC_OK ? v : NULL;
}

static const struct tokenizer_string *read_strings(const struct reader *r, const char *key, size_t *n,
                                                   enum tfmc_status *st)
{
	const struct gguf_value *list = read_list(r, key, true, 0, st);
	struct gguf_value v;
	size_t at = 0, i = 0;
	*n = 0;
	if (list == NULL)
		return NULL;
	struct tokenizer_string *out = ARENA_ARRAY(r->s->arena, struct tokenizer_string, list->n + 1);
	if (out == NULL || arena_failed(r->s->arena)) {
		*st = TFMC_NO_MEMORY;
		return NULL;
	}
	for (; gguf_next(list, &at, &v); i++)
		out[i] = (struct tokenizer_string){v.text, v.len};
	*n = list->n;
	return out;
}

static enum tfmc_status read_scores(const struct reader *r, struct tokenizer_gguf *out)
{
	enum tfmc_status st = TFMC_OK;
	const struct gguf_value *list = read_list(r, "scores", false, out->n_tokens, &st);
	struct gguf_value v;
	size_t at = 0, i = 0;
	if (list == NULL)
		return st;
	float *scores = ARENA_ARRAY(r->s->arena, float, list->n + 1);
	if (scores == NULL || arena_failed(r->s->arena))
		return TFMC_NO_MEMORY;
	for (; gguf_next(list, &at, &v); i++)
		scores[i] = gguf_is_whole(v.type) ? (float)v.i : (float)v.f;
	out->scores = scores;
	return TFMC_OK;
}

static enum tfmc_status read_types(const struct reader *r, struct tokenizer_gguf *out)
{
	enum tfmc_status st = TFMC_OK;
	const struct gguf_value *list = read_list(r, "token_type", false, out->n_tokens, &st);
	struct gguf_value v;
	size_t at = 0, i = 0;
	if (list == NULL)
		return st;
	int32_t *types = ARENA_ARRAY(r->s->arena, int32_t, list->n + 1);
	if (types == NULL || arena_failed(r->s->arena))
		return TFMC_NO_MEMORY;
	for (; gguf_next(list, &at, &v); i++) {
		if (!gguf_is_whole(v.type) || v.i < 0 || v.i > 6)
			return wrong(r, "token_type", "has a type that is unknown");
		types[i] = (int32_t)v.i;
	}
	out->types = types;
	return TFMC_OK;
}

static enum tfmc_status read_charsmap(const struct reader *r, struct tokenizer_gguf *out)
{
	const struct gguf_value *v = find(r, "precompiled_charsmap");
	if (v == NULL)
		return TFMC_OK;
	if (v->type != GGUF_ARRAY || (v->element != GGUF_U8 && v->element != GGUF_I8))
		return wrong(r, "precompiled_charsmap", "is no list of bytes");
	out->charsmap = v->bytes;
	out->n_charsmap = v->n_bytes;
	return TFMC_OK;
}

static enum tfmc_status read_ids(const struct reader *r, struct tokenizer_gguf *out)
{
	int64_t separator;
	const struct {
		const char *key;
		int64_t *out;
	} ids[] = {{"bos_token_id", &out->bos},       {"eos_token_id", &out->eos},
	           {"unknown_token_id", &out->unk},   {"separator_token_id", &separator},
	           {"seperator_token_id", &out->sep}, {"padding_token_id", &out->pad},
	           {"cls_token_id", &out->cls},       {"mask_token_id", &out->mask}};
	const struct {
		const char *key;
		int *out;
	} flags[] = {{"add_bos_token", &out->add_bos},
	             {"add_eos_token", &out->add_eos},
	             {"add_space_prefix", &out->add_space_prefix},
	             {"remove_extra_whitespaces", &out->remove_extra_whitespaces}};
	for (size_t i = 0; i < TFMC_COUNT(ids); i++)
		TFMC_TRY(read_id(r, ids[i].key, ids[i].out));
	for (size_t i = 0; i < TFMC_COUNT(flags); i++)
		TFMC_TRY(read_flag(r, flags[i].key, flags[i].out));
	out->sep = out->sep < 0 ? separator : out->sep;
	return TFMC_OK;
}

bool gguf_has_tokenizer(const struct gguf *g)
{
	return gguf_find(g, PREFIX "model") != NULL;
}

enum tfmc_status gguf_tokenizer_read(const struct tokenizer_source *s, const struct gguf *g,
                                     struct tokenizer_gguf *out)
{
	const struct reader r = {s, g};
	enum tfmc_status st = TFMC_OK;
	*out = (struct tokenizer_gguf){0};
	if (!gguf_has_tokenizer(g))
		return wrong(&r, "model", "is missing: the file has no tokenizer");
	TFMC_TRY(read_text(&r, "model", "", &out->model));
	TFMC_TRY(read_text(&r, "pre", "default", &out->pre));
	out->tokens = read_strings(&r, "tokens", &out->n_tokens, &st);
	TFMC_TRY(st);
	if (out->n_tokens == 0)
		return wrong(&r, "tokens", "is missing or empty");
	out->merges = read_strings(&r, "merges", &out->n_merges, &st);
	TFMC_TRY(st);
	TFMC_TRY(read_scores(&r, out));
	TFMC_TRY(read_types(&r, out));
	TFMC_TRY(read_charsmap(&r, out));
	return read_ids(&r, out);
}

enum tfmc_status gguf_tokenizer(const struct tokenizer_source *s, const struct gguf *g,
                                struct tokenizer_packed *out)
{
	struct tokenizer_gguf t;
	TFMC_TRY(gguf_tokenizer_read(s, g, &t));
	return tokenizer_from_gguf(s, &t, out);
}
