/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of a tokenizer.json as a packed tokenizer. tfmc parses the file itself, for it knows other files of the
 * folder.
 */
#ifndef TFMC_TESTS_SUPPORT_TOKENIZER_JSON_H
#define TFMC_TESTS_SUPPORT_TOKENIZER_JSON_H

#include "frontend/syntax/json.h"
#include "frontend/tokenizer/tokenizer.h"

TFMC_MUST_USE static inline enum tfmc_status tokenizer_from_json(const struct tokenizer_source *s,
                                                                 const char *text, size_t len,
                                                                 struct tokenizer_packed *out)
{
	const struct json_source src = {s->name, s->loc, DIAG_TOKENIZER, 0};
	const struct json_node *root = json_parse(s->arena, s->cx, &src, text, len);
	return root != NULL ? tokenizer_from_tree(s, root, NULL, out) : TFMC_INVALID;
}

#endif
