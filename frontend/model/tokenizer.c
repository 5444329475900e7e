/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The section tokenizer: which files its kind reads, and the packed form they
 * become. Without a kind the keys say it: file is a tokenizer.json, vocab and
 * merges are byte-level BPE.
 */
#include <string.h>

#include "frontend/sentencepiece/gguf_tokenizer.h"
#include "frontend/model/model.h"
#include "frontend/text/files.h"
#include "frontend/tokenizer_files/config.h"

#define TOKENIZER_FILE_MAX ((size_t)256 << 20)

struct text {
	const char *data;
	size_t len;
};

/* The file that a key names; NULL after a diagnostic. */
static const char *file_of(struct model_document *d, const struct yaml_node *node, const char *key,
                           struct loc *loc)
{
	const struct yaml_node *value = yaml_find(node, key);
	if (value == NULL) {
		diag_error(d->cx, node->loc, DIAG_MISSING, "a tokenizer of this kind wants '%s'", key);
		return NULL;
	}
	if (!yaml_expect(d->cx, value, YAML_SCALAR, key))
		return NULL;
	const char *path = file_named(d->arena, d->cx, d->dir, value->text, value->loc);
	if (path != NULL)
		document_note_file(d, path);
	*loc = value->loc;
	return path;
}

static enum tfmc_status read_key(struct model_document *d, const struct yaml_node *node, const char *key,
                                 struct text *out, const char **name)
{
	struct loc loc;
	*name = file_of(d, node, key, &loc);
	return *name != NULL
	               ? file_read(d->arena, d->cx, *name, TOKENIZER_FILE_MAX, loc, &out->data, &out->len)
	               : TFMC_INVALID;
}

static enum tfmc_status read_gguf(struct model_document *d, const struct yaml_node *node,
                                  struct tokenizer_source *s, struct tokenizer_packed *out)
{
	const struct parsed_file *file;
	struct loc loc;
	s->name = file_of(d, node, "file", &loc);
	if (s->name == NULL)
		return TFMC_INVALID;
	TFMC_TRY(parsed_gguf(&d->parsed, s->name, loc, &file));
	return gguf_tokenizer(s, &file->gguf, out);
}

/* tokenizer.json */
static enum tfmc_status read_json(struct model_document *d, const struct yaml_node *node,
                                  struct tokenizer_source *s, struct tokenizer_packed *out)
{
	const struct parsed_file *file;
	struct loc loc;
	s->name = file_of(d, node, "file", &loc);
	if (s->name == NULL)
		return TFMC_INVALID;
	TFMC_TRY(parsed_json(&d->parsed, s->name, loc, false, &file));
	return tokenizer_from_tree(s, file->root, NULL, out);
}

/* One tokenizer after the other: of the source, of the target. */
static enum tfmc_status read_marian(struct model_document *d, const struct yaml_node *node,
                                    struct tokenizer_source *s, struct tokenizer_packed *out)
{
	static const char *const sides[] = {"source", "target"};
	struct tokenizer_packed packed[TFMC_COUNT(sides)];
	const char *ignored;
	for (size_t i = 0; i < TFMC_COUNT(sides); i++) {
		bool own = i == 1 && yaml_find(node, "target_vocab") != NULL;
		struct text spm = {0}, vocab = {0};
		TFMC_TRY(read_key(d, node, own ? "target_vocab" : "vocab", &vocab, &ignored));
		TFMC_TRY(read_key(d, node, sides[i], &spm, &s->name));
		TFMC_TRY(tokenizer_from_marian(s, (const unsigned char *)spm.data, spm.len, vocab.data,
		                               vocab.len, &packed[i]));
	}
	unsigned char *both = arena_alloc(d->arena, packed[0].bytes + packed[1].bytes);
	if (both == NULL)
		return TFMC_NO_MEMORY;
	memcpy(both, packed[0].data, packed[0].bytes);
	memcpy(both + packed[0].bytes, packed[1].data, packed[1].bytes);
	*out = (struct tokenizer_packed){both, packed[0].bytes + packed[1].bytes};
	return TFMC_OK;
}

static enum tfmc_status read_beside(struct model_document *d, const struct yaml_node *node, const char *key,
                                    struct tokenizer_config_file *out)
{
	const struct parsed_file *file;
	struct loc loc;
	if (yaml_find(node, key) == NULL)
		return TFMC_OK;
	out->name = file_of(d, node, key, &loc);
	if (out->name == NULL)
		return TFMC_INVALID;
	TFMC_TRY(parsed_json(&d->parsed, out->name, loc, true, &file));
	out->root = file->root;
	return TFMC_OK;
}

/* What a hub folder has beside the vocabulary; the source has none when it has nothing. */
static enum tfmc_status read_config(struct model_document *d, const struct yaml_node *node, const char *kind,
                                    struct tokenizer_source *s)
{
	const struct yaml_node *class = yaml_find(node, "class");
	struct tokenizer_config_files files = {.class_name = class != NULL ? class->text : NULL};
	TFMC_TRY(read_beside(d, node, "config", &files.config));
	TFMC_TRY(read_beside(d, node, "special", &files.special));
	TFMC_TRY(read_beside(d, node, "added", &files.added));
	if (files.class_name == NULL && files.config.root == NULL && files.special.root == NULL &&
	    files.added.root == NULL)
		return TFMC_OK;
	if (files.class_name == NULL && strcmp(kind, "hf") != 0)
		files.class_name = !strcmp(kind, "bpe")         ? "GPT2Tokenizer"
		                   : !strcmp(kind, "wordpiece") ? "BertTokenizer"
		                                                : "LlamaTokenizer";
	struct tokenizer_config *c = ARENA_NEW(d->arena, struct tokenizer_config);
	if (c == NULL)
		return TFMC_NO_MEMORY;
	TFMC_TRY(tokenizer_config_read(s, &files, c));
	s->config = c;
	return TFMC_OK;
}

enum tfmc_status model_read_tokenizer(struct model_document *d, const struct yaml_node *node, bool may_lack,
                                      struct tokenizer_packed *out)
{
	const struct yaml_node *given = yaml_find(node, "kind");
	const char *kind = given != NULL ? given->text : yaml_find(node, "merges") != NULL ? "bpe" : "hf";
	bool has_vocab = !strcmp(kind, "bpe") || !strcmp(kind, "wordpiece");
	struct tokenizer_source s = {d->arena, d->cx, "", node->loc, may_lack, NULL};
	struct text file = {0}, merges = {0};
	const char *ignored;
	if (!strcmp(kind, "gguf"))
		return read_gguf(d, node, &s, out);
	if (!strcmp(kind, "marian"))
		return read_marian(d, node, &s, out);
	if (has_vocab || !strcmp(kind, "hf") || !strcmp(kind, "sentencepiece"))
		TFMC_TRY(read_config(d, node, kind, &s));
	if (!strcmp(kind, "hf"))
		return read_json(d, node, &s, out);
	TFMC_TRY(read_key(d, node, has_vocab ? "vocab" : "file", &file, &s.name));
	const unsigned char *bytes = (const unsigned char *)file.data;
	if (!strcmp(kind, "bpe")) {
		TFMC_TRY(read_key(d, node, "merges", &merges, &ignored));
		return tokenizer_from_bpe(&s, file.data, file.len, merges.data, merges.len, out);
	}
	if (!strcmp(kind, "wordpiece"))
		return tokenizer_from_wordpiece(&s, file.data, file.len, out);
	if (!strcmp(kind, "sentencepiece"))
		return tokenizer_from_spm(&s, bytes, file.len, out);
	if (!strcmp(kind, "scored"))
		return tokenizer_from_scored(&s, file.data, file.len, out);
	return tokenizer_from_llama2c(&s, bytes, file.len, out);
}
