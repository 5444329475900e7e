/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text to ids and back with a vocabulary of one token per Unicode code point, stored in the record as lines;
 * the id is the line number.
 */
#include "runtime/constraints.h"

#include <stdlib.h>
#include <string.h>

#include "ir/support/utf8.h"
#include "runtime/feed.h"

/* The id of a token, or -1. */
static int32_t find_line_token(const char *vocabulary, const char *token, size_t n)
{
	int32_t id = 0;
	for (const char *line = vocabulary; *line; id++) {
		size_t len = strcspn(line, "\n");
		if (len == n && !memcmp(line, token, n))
			return id;
		line += len + (line[len] == '\n');
	}
	return -1;
}

/* Line number id with its length, or NULL: there are fewer. */
static const char *token_line(const char *vocabulary, int32_t id, size_t *n)
{
	const char *line = vocabulary;
	for (; id > 0 && *line; id--) {
		size_t len = strcspn(line, "\n");
		line += len + (line[len] == '\n');
	}
	*n = strcspn(line, "\n");
	return id == 0 && *line ? line : NULL;
}

/* Encodes text with the vocabulary of the source or of the output (one vocabulary may serve both); a character without
 * a token gets the id of the unknown token, or is E_PROMPT. *n_out counts all ids, also those beyond cap. */
static int encode_chars(const struct tfmc_record *record, int of_source, const char *text, int32_t *out,
                        uint64_t cap, uint64_t *n_out)
{
	if (!n_out)
		return TFMC_RT_E_NULL;
	*n_out = 0;
	if (!record || !text || (!out && cap))
		return TFMC_RT_E_NULL;
	int64_t offset =
	        of_source && record->source_vocabulary ? record->source_vocabulary : record->vocabulary;
	if (!offset)
		return TFMC_RT_E_TEXT;
	const char *vocabulary = tfmc_record_text(record, (uint64_t)offset);
	const char *unknown =
	        record->unknown_token ? tfmc_record_text(record, (uint64_t)record->unknown_token) : "";
	int32_t unknown_id = *unknown ? find_line_token(vocabulary, unknown, strlen(unknown)) : -1;
	for (const char *s = text; *s;) {
		uint32_t cp;
		size_t n = utf8_decode(s, 4, &cp); /* 4: the longest code point; stops at the zero */
		if (!n)
			return TFMC_RT_E_TEXT;
		int32_t id = find_line_token(vocabulary, s, n);
		id = id < 0 ? unknown_id : id;
		if (id < 0)
			return TFMC_RT_E_PROMPT;
		if (*n_out < cap)
			out[*n_out] = id;
		++*n_out;
		s += n;
	}
	return TFMC_RT_OK;
}

int tfmc_text_encode(const struct tfmc_record *record, const char *text, int32_t *out, uint64_t cap,
                     uint64_t *n_out)
{
	return encode_chars(record, 1, text, out, cap, n_out);
}

int tfmc_text_encode_target(const struct tfmc_record *record, const char *text, int32_t *out, uint64_t cap,
                            uint64_t *n_out)
{
	return encode_chars(record, 0, text, out, cap, n_out);
}

bool token_is_start_or_stop(const struct tfmc_record *r, int32_t id)
{
	const int64_t *start = (const void *)((const char *)r + r->start);
	const int64_t *stop = (const void *)((const char *)r + r->stop);
	for (int64_t i = 0; i < r->n_start; i++)
		if (start[i] == id)
			return true;
	for (int64_t i = 0; i < r->n_stop; i++)
		if (stop[i] == id)
			return true;
	return false;
}

/* Start, stop and pad ids are tokens without text. */
const char *token_string(const struct tfmc_record *record, int32_t id, size_t *bytes)
{
	const char *token =
	        record->vocabulary
	                ? token_line(tfmc_record_text(record, (uint64_t)record->vocabulary), id, bytes)
	                : NULL;
	if (token && (token_is_start_or_stop(record, id) || id == record->pad))
		*bytes = 0;
	return token;
}

/* The last byte of cap is for the terminator; *n_out counts bytes beyond cap, too. */
int tfmc_text_decode(const struct tfmc_record *record, const int32_t *ids, uint64_t n, char *out,
                     uint64_t cap, uint64_t *n_out)
{
	if (!n_out)
		return TFMC_RT_E_NULL;
	*n_out = 0;
	if (!record || (!ids && n) || (!out && cap))
		return TFMC_RT_E_NULL;
	if (!record->vocabulary)
		return TFMC_RT_E_TEXT;
	for (uint64_t i = 0; i < n; i++) {
		size_t len;
		const char *token = token_string(record, ids[i], &len);
		if (!token)
			return TFMC_RT_E_TEXT;
		for (size_t k = 0; k < len && *n_out + k + 1 < cap; k++)
			out[*n_out + k] = token[k];
		*n_out += len;
	}
	if (cap)
		out[*n_out < cap ? *n_out : cap - 1] = 0;
	return TFMC_RT_OK;
}

/* One buffer has the prompt's ids and, after them, room for max_len new ones. E_SIZE: the text is cut off, with a
 * zero at its end. */
int tfmc_generate_text(struct tfmc_session *session, const char *prompt, char *out, uint64_t cap)
{
	const struct tfmc_record *r = tfmc_session_record(session);
	uint64_t n_prompt, n_ids = 0, n_bytes = 0;
	if (!r || !prompt || (!out && cap))
		return TFMC_RT_E_NULL;
	session_clear_prompt_error(session);
	uint64_t max_ids = r->max_len > 0 ? (uint64_t)r->max_len : 0;
	/* A causal model continues start ids and prompt. An empty prompt stays empty: tfmc_generate() then begins
	 * with the start ids, and so does the target of a sequence-to-sequence model, whose prompt is the source. */
	bool is_causal = r->generate_kind == 1;
	uint64_t n_start = is_causal && *prompt ? (uint64_t)r->n_start : 0;
	const int64_t *start = (const void *)((const char *)r + r->start);
	int status = tfmc_text_encode(r, prompt, NULL, 0, &n_prompt);
	if (status != TFMC_RT_OK)
		return status;
	int32_t *ids = malloc((size_t)(n_start + n_prompt + max_ids + 1) * sizeof(*ids));
	if (!ids)
		return TFMC_RT_E_MEMORY;
	for (uint64_t i = 0; i < n_start; i++)
		ids[i] = (int32_t)start[i];
	status = tfmc_text_encode(r, prompt, ids + n_start, n_prompt, &n_prompt);
	n_prompt += n_start;
	if (status == TFMC_RT_OK)
		status =
		        tfmc_generate(session, NULL, ids, n_prompt, NULL, 0, ids + n_prompt, max_ids, &n_ids);
	if (status == TFMC_RT_OK)
		status = tfmc_text_decode(r, ids + n_prompt, n_ids, out, cap, &n_bytes);
	if (status == TFMC_RT_OK && n_bytes >= cap)
		status = TFMC_RT_E_SIZE;
	free(ids);
	return status;
}
