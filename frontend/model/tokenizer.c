/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Section `tokenizer`: reads the files of its kind on first use and packs them, or reads a vocabulary of characters.
 * Without `kind`, the keys decide: `merges` means byte-level BPE, else `file` is a tokenizer.json. s->name is the file
 * that messages of the packer name.
 */
#include "frontend/model/model.h"

#include <string.h>

#include "frontend/syntax/files.h"
#include "frontend/tokenizer/config.h"
#include "frontend/tokenizer/tokenizer.h"
#include "frontend/weights/gguf.h"
#include "ir/support/utf8.h"

#define TOKENIZER_FILE_MAX ((size_t)256 << 20)
#define VOCAB_FILE_MAX     ((size_t)64 << 20)

struct file_bytes {
	const char *data;
	size_t len;
};

/* Path and location of the file that a key names, which is recorded as read, so that no output overwrites it; NULL
 * after a diagnostic. */
static const char *tokenizer_file_path(struct model_document *d, const struct yaml_node *node,
                                       const char *key, struct loc *loc)
{
	const struct yaml_node *value = yaml_find(node, key);
	if (value == NULL) {
		diag_error(d->cx, node->loc, DIAG_MISSING, "a tokenizer of this kind wants '%s'", key);
		return NULL;
	}
	if (!yaml_expect(d->cx, value, YAML_SCALAR, key))
		return NULL;
	const char *path = file_path_any(d->arena, d->cx, d->dir, value->text, value->loc);
	if (path != NULL)
		document_record_file(d, path);
	*loc = value->loc;
	return path;
}

/* Reads the file that a key names; *name is its path, for messages. */
static enum tfmc_status read_key_file(struct model_document *d, const struct yaml_node *node, const char *key,
                                      struct file_bytes *out, const char **name)
{
	struct loc loc;
	*name = tokenizer_file_path(d, node, key, &loc);
	return *name != NULL
	               ? file_read(d->arena, d->cx, *name, TOKENIZER_FILE_MAX, loc, &out->data, &out->len)
	               : TFMC_INVALID;
}

/* Packs the tokenizer in the metadata of a GGUF file, or a tokenizer.json. */
static enum tfmc_status read_parsed(struct model_document *d, const struct yaml_node *node, bool is_gguf,
                                    struct tokenizer_source *s, struct tokenizer_packed *out)
{
	const struct parsed_file *file;
	struct loc loc;
	s->name = tokenizer_file_path(d, node, "file", &loc);
	if (s->name == NULL)
		return TFMC_INVALID;
	TFMC_TRY(is_gguf ? parsed_gguf(&d->parsed, s->name, loc, &file)
	                 : parsed_json(&d->parsed, s->name, loc, false, &file));
	return is_gguf ? gguf_tokenizer(s, &file->gguf, out) : tokenizer_from_tree(s, file->root, NULL, out);
}

/* Packs two tokenizers, of the source and of the target, one after the other (tfmc_tokenizer_open_target finds the
 * second). Each has its SentencePiece model; they share a vocabulary unless the target has one of its own
 * (target_vocab). */
static enum tfmc_status read_marian(struct model_document *d, const struct yaml_node *node,
                                    struct tokenizer_source *s, struct tokenizer_packed *out)
{
	static const char *const sides[] = {"source", "target"};
	struct tokenizer_packed packed[TFMC_COUNT(sides)];
	const char *ignored;
	for (size_t i = 0; i < TFMC_COUNT(sides); i++) {
		bool has_target_vocab = i == 1 && yaml_find(node, "target_vocab") != NULL;
		struct file_bytes spm = {0}, vocab = {0};
		TFMC_TRY(read_key_file(d, node, has_target_vocab ? "target_vocab" : "vocab", &vocab,
		                       &ignored));
		TFMC_TRY(read_key_file(d, node, sides[i], &spm, &s->name));
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

/* Reads the JSON file that a key names, in which ints beyond int64 are truncated (json_truncate_long_ints); *out
 * stays empty without the key. */
static enum tfmc_status read_optional_json(struct model_document *d, const struct yaml_node *node,
                                           const char *key, struct tokenizer_config_file *out)
{
	const struct parsed_file *file;
	struct loc loc;
	if (yaml_find(node, key) == NULL)
		return TFMC_OK;
	out->name = tokenizer_file_path(d, node, key, &loc);
	if (out->name == NULL)
		return TFMC_INVALID;
	TFMC_TRY(parsed_json(&d->parsed, out->name, loc, true, &file));
	out->root = file->root;
	return TFMC_OK;
}

/* Reads the configuration files that a hub directory has in addition to the vocabulary, for the class of transformers
 * that the section names, else default_class; s->config stays NULL without any of them. */
static enum tfmc_status read_config(struct model_document *d, const struct yaml_node *node,
                                    const char *default_class, struct tokenizer_source *s)
{
	const struct yaml_node *class = yaml_find(node, "class");
	struct tokenizer_config_files files = {.class_name = class != NULL ? class->text : NULL};
	TFMC_TRY(read_optional_json(d, node, "config", &files.config));
	TFMC_TRY(read_optional_json(d, node, "special", &files.special));
	TFMC_TRY(read_optional_json(d, node, "added", &files.added));
	if (files.class_name == NULL && files.config.root == NULL && files.special.root == NULL &&
	    files.added.root == NULL)
		return TFMC_OK;
	if (files.class_name == NULL)
		files.class_name = default_class;
	struct tokenizer_config *c = ARENA_NEW(d->arena, struct tokenizer_config);
	if (c == NULL)
		return TFMC_NO_MEMORY;
	TFMC_TRY(tokenizer_config_read(s, &files, c));
	s->config = c;
	return TFMC_OK;
}

/* Reads and packs the files of a tokenizer of any kind except chars, the configuration first, as the packers need it.
 * is_optional: an unsupported one is no error. */
static enum tfmc_status model_read_tokenizer(struct model_document *d, const struct yaml_node *node,
                                             enum frontend_tokenizer_kind kind, bool is_optional,
                                             struct tokenizer_packed *out)
{
	struct tokenizer_source s = {d->arena, d->cx, "", node->loc, is_optional, NULL};
	struct file_bytes file = {0}, merges = {0};
	const char *ignored;
	if (kind == TOKENIZER_BY_KEYS)
		kind = yaml_find(node, "merges") != NULL ? TOKENIZER_BPE : TOKENIZER_HF;
	switch (kind) {
	case TOKENIZER_BY_KEYS:
	case TOKENIZER_CHARS: break;
	case TOKENIZER_HF:
		TFMC_TRY(read_config(d, node, NULL, &s));
		return read_parsed(d, node, false, &s, out);
	case TOKENIZER_BPE:
		TFMC_TRY(read_config(d, node, "GPT2Tokenizer", &s));
		TFMC_TRY(read_key_file(d, node, "vocab", &file, &s.name));
		TFMC_TRY(read_key_file(d, node, "merges", &merges, &ignored));
		return tokenizer_from_bpe(&s, file.data, file.len, merges.data, merges.len, out);
	case TOKENIZER_WORDPIECE:
		TFMC_TRY(read_config(d, node, "BertTokenizer", &s));
		TFMC_TRY(read_key_file(d, node, "vocab", &file, &s.name));
		return tokenizer_from_wordpiece(&s, file.data, file.len, out);
	case TOKENIZER_SENTENCEPIECE:
		TFMC_TRY(read_config(d, node, "LlamaTokenizer", &s));
		TFMC_TRY(read_key_file(d, node, "file", &file, &s.name));
		return tokenizer_from_spm(&s, (const unsigned char *)file.data, file.len, out);
	case TOKENIZER_MARIAN: return read_marian(d, node, &s, out);
	case TOKENIZER_SCORED:
		TFMC_TRY(read_key_file(d, node, "file", &file, &s.name));
		return tokenizer_from_scored(&s, file.data, file.len, out);
	case TOKENIZER_GGUF: return read_parsed(d, node, true, &s, out);
	case TOKENIZER_LLAMA2C:
		TFMC_TRY(read_key_file(d, node, "file", &file, &s.name));
		return tokenizer_from_llama2c(&s, (const unsigned char *)file.data, file.len, out);
	}
	return TFMC_INVALID;
}

/* ---- vocabularies of characters ---- */

/* Reads a vocabulary of one token on each line, whose number from 0 is the id. A token is compared with characters of
 * texts, so it is UTF-8. */
static enum tfmc_status read_vocab(struct frontend_model *m, const struct yaml_node *name,
                                   struct frontend_vocab *v)
{
	const char *path, *text;
	size_t len, lines = 1;
	if (!yaml_expect(m->cx, name, YAML_SCALAR, "a vocabulary"))
		return TFMC_INVALID;
	path = file_path_any(&m->arena, m->cx, m->doc.dir, name->text, name->loc);
	if (path == NULL)
		return TFMC_INVALID;
	document_record_file(&m->doc, path);
	TFMC_TRY(file_read(&m->arena, m->cx, path, VOCAB_FILE_MAX, name->loc, &text, &len));
	for (size_t i = 0; i < len; i++)
		lines += text[i] == '\n';
	*v = (struct frontend_vocab){ARENA_ARRAY(&m->arena, const char *, lines), 0, -1};
	if (v->tokens == NULL)
		return TFMC_NO_MEMORY;
	for (const char *line = text, *next; line < text + len; line = next) {
		size_t n = utf8_line(line, text + len, &next);
		if (utf8_check(line, n) != n) {
			diag_error(m->cx, name->loc, DIAG_ENCODING,
			           "line %zu of the vocabulary is not valid UTF-8", v->n + 1);
			return TFMC_INVALID;
		}
		((const char **)(uintptr_t)v->tokens)[v->n++] = arena_strndup(&m->arena, line, n);
	}
	return TFMC_OK;
}

/* Sets the token for characters that the vocabulary does not have. False after a diagnostic: there is no such
 * token. */
static bool find_unknown(struct frontend_model *m, const struct yaml_node *unknown, struct frontend_vocab *v)
{
	if (unknown == NULL || v->n == 0)
		return true;
	for (size_t i = 0; i < v->n; i++) {
		if (unknown->kind == YAML_SCALAR && strcmp(v->tokens[i], unknown->text) == 0) {
			v->unknown = (int64_t)i;
			return true;
		}
	}
	diag_error(m->cx, unknown->loc, DIAG_UNKNOWN_NAME, "the vocabulary has no token '%s'",
	           unknown->kind == YAML_SCALAR ? unknown->text : "");
	return false;
}

/* Reads the vocabularies of a tokenizer of kind chars; one file serves source and target. An unknown token must be in
 * both. */
static enum tfmc_status read_chars(struct frontend_model *m, const struct yaml_node *node)
{
	struct frontend_tokenizer *t = &m->tokenizer;
	const struct yaml_node *file = yaml_find(node, "file");
	const struct yaml_node *source = yaml_find(node, "source"), *target = yaml_find(node, "target");
	if ((file == NULL) == (source == NULL) || (source == NULL) != (target == NULL)) {
		diag_error(m->cx, node->loc, DIAG_MISSING,
		           "a tokenizer of kind chars wants 'file', or 'source' and 'target'");
		return TFMC_INVALID;
	}
	TFMC_TRY(read_vocab(m, file != NULL ? file : source, &t->source));
	t->target = t->source;
	if (target != NULL)
		TFMC_TRY(read_vocab(m, target, &t->target));
	const struct yaml_node *unknown = yaml_find(node, "unknown");
	bool ok = find_unknown(m, unknown, &t->source) && find_unknown(m, unknown, &t->target);
	return ok ? TFMC_OK : TFMC_INVALID;
}

const struct frontend_tokenizer *frontend_tokenizer_head(const struct frontend_model *m)
{
	return &m->tokenizer;
}

/* An optional tokenizer that is not supported has been warned of; it is tried again when it is needed, to report the
 * error. */
enum tfmc_status frontend_tokenizer(struct frontend_model *m, bool needed,
                                    const struct frontend_tokenizer **out)
{
	const struct yaml_node *node = model_section(m, "tokenizer");
	*out = &m->tokenizer;
	if (!m->tokenizer.given || m->tokenizer_read)
		return TFMC_OK;
	if (m->tokenizer.kind != TOKENIZER_CHARS) {
		bool is_optional = m->tokenizer.optional && !needed;
		size_t errors = m->cx->n_errors;
		enum tfmc_status st = model_read_tokenizer(&m->doc, node, m->tokenizer.kind, is_optional,
		                                           &m->tokenizer.packed);
		m->tokenizer_read = st == TFMC_OK;
		return is_optional && st == TFMC_INVALID && m->cx->n_errors == errors ? TFMC_OK : st;
	}
	TFMC_TRY(read_chars(m, node));
	m->tokenizer_read = true;
	return TFMC_OK;
}
