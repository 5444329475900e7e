/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The section tokenizer: which files its kind reads, and the packed form they
 * become. Without a kind the keys say it: file is a tokenizer.json, vocab and
 * merges are byte-level BPE.
 */
#include <string.h>

#include "frontend/files.h"
#include "frontend/model.h"
#include "frontend/tokenizer.h"

#define TOKENIZER_FILE_MAX ((size_t)256 << 20)

struct text {
	const char *data;
	size_t len;
};

static enum tfmc_status read_key(struct frontend_model *m, const struct yaml_node *node, const char *key,
                                 struct text *out, const char **name)
{
	const struct yaml_node *value = yaml_find(node, key);
	if (value == NULL) {
		diag_error(m->cx, node->loc, DIAG_MISSING, "a tokenizer of this kind wants '%s'", key);
		return TFMC_INVALID;
	}
	if (!yaml_expect(m->cx, value, YAML_SCALAR, key))
		return TFMC_INVALID;
	const char *path = file_beneath(&m->arena, m->cx, m->dir, value->text, value->loc);
	if (path == NULL)
		return TFMC_INVALID;
	model_note_file(m, path);
	*name = path;
	return file_read(&m->arena, m->cx, path, TOKENIZER_FILE_MAX, value->loc, &out->data, &out->len);
}

enum tfmc_status model_read_tokenizer(struct frontend_model *m, const struct yaml_node *node,
                                      struct tokenizer_packed *out)
{
	const struct yaml_node *given = yaml_find(node, "kind");
	const char *kind = given != NULL ? given->text : yaml_find(node, "merges") != NULL ? "bpe" : "hf";
	bool has_vocab = !strcmp(kind, "bpe") || !strcmp(kind, "wordpiece");
	struct tokenizer_source s = {&m->arena, m->cx, "", node->loc};
	struct text file = {0}, merges = {0};
	const char *ignored;
	TFMC_TRY(read_key(m, node, has_vocab ? "vocab" : "file", &file, &s.name));
	const unsigned char *bytes = (const unsigned char *)file.data;
	if (!strcmp(kind, "bpe")) {
		TFMC_TRY(read_key(m, node, "merges", &merges, &ignored));
		return tokenizer_from_bpe(&s, file.data, file.len, merges.data, merges.len, out);
	}
	if (!strcmp(kind, "wordpiece"))
		return tokenizer_from_wordpiece(&s, file.data, file.len, out);
	if (!strcmp(kind, "sentencepiece"))
		return tokenizer_from_spm(&s, bytes, file.len, out);
	if (!strcmp(kind, "scored"))
		return tokenizer_from_scored(&s, file.data, file.len, out);
	if (!strcmp(kind, "llama2c"))
		return tokenizer_from_llama2c(&s, bytes, file.len, out);
	if (!strcmp(kind, "hf"))
		return tokenizer_from_json(&s, file.data, file.len, out);
	diag_error(m->cx, given->loc, DIAG_UNSUPPORTED, "not supported yet: a tokenizer of kind %s", kind);
	return TFMC_INVALID;
}
