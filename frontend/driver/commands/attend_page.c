/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The page of tfmc attend: attend.html (embedded, embed.cmake) with the model's name, the data as JSON, and the
 * scripts in place of its marks.
 */
#include <math.h>
#include <string.h>

#include "frontend/driver/commands/attend.h"
#include "frontend/driver/commands/page.h"
#include "runtime/tokenizer/tfmc_tokenizer.h"

/* embed.cmake: the files, zero-terminated. */
extern const unsigned char attend_html[], attend_state_js[], attend_plot_js[];

/* Probabilities are stored as u16 multiples of 1 / SCALE; 65535 is NaN. */
#define SCALE        60000
#define NOT_A_NUMBER 65535

static const char *const stack_names[] = {"encoder", "decoder", "cross", "attention"};

/* ---- JSON ---- */

static const char base64_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* Collects up to three bytes, written as four digits. */
struct base64 {
	struct buf *out;
	uint32_t bits;
	int n;
};

/* Writes the collected bytes as four digits; missing bytes become '=' (RFC 4648). */
static void base64_flush(struct base64 *b)
{
	if (!b->n)
		return;
	b->bits <<= 8 * (3 - b->n);
	for (int i = 0; i < 4; i++)
		buf_char(b->out, i <= b->n ? base64_digits[b->bits >> (18 - 6 * i) & 63] : '=');
	b->n = 0;
	b->bits = 0;
}

static void base64_byte(struct base64 *b, unsigned byte)
{
	b->bits = b->bits << 8 | byte;
	if (++b->n == 3)
		base64_flush(b);
}

/* Prints the probabilities of a map as a JSON string: u16 multiples of 1 / SCALE, little-endian, in base64, which
 * is shorter than decimal numbers. */
static void print_weights(struct buf *out, const struct attend_map *m)
{
	struct base64 b = {.out = out};
	int64_t n = m->heads * m->rows * m->columns;
	buf_char(out, '"');
	for (int64_t i = 0; i < n; i++) {
		double v = m->p[i];
		unsigned k = isnan(v) ? NOT_A_NUMBER : (unsigned)lround(v * SCALE);
		base64_byte(&b, k & 255);
		base64_byte(&b, k >> 8);
	}
	base64_flush(&b);
	buf_char(out, '"');
}

/* A token stream's sink: invalid UTF-8 arrives replaced. */
static int put_label(void *user, const char *text, uint64_t bytes)
{
	buf_bytes(user, text, (size_t)bytes);
	return 0;
}

/* Prints the text of one token as a JSON string, as it is inside a text: special tokens and the leading blank
 * are kept. */
static void print_label(struct buf *out, const struct tfmc_tokenizer *t, int32_t id)
{
	struct tfmc_token_stream stream;
	struct buf text;
	buf_init(&text);
	tfmc_token_stream_begin(&stream, t, TFMC_DETOKENIZE_KEEP | TFMC_DETOKENIZE_AFTER, put_label, &text);
	(void)tfmc_token_stream_add(&stream, id); /* an id that has no text has an empty label */
	(void)tfmc_token_stream_end(&stream);
	page_json_string(out, text.data);
	buf_destroy(&text);
}

/* Prints the ids of a sequence and the label of each: from the model's vocabulary or its tokenizer (at most
 * one exists); without either "tokens" is empty. */
static void print_sequence(struct buf *out, const struct attend_sequence *s, const struct tfmc_tokenizer *t)
{
	buf_str(out, "{\"name\":");
	page_json_string(out, s->name);
	buf_str(out, ",\"ids\":[");
	for (size_t i = 0; i < s->ids.n; i++)
		buf_printf(out, "%s%d", i ? "," : "", s->ids.items[i]);
	buf_str(out, "],\"tokens\":[");
	for (size_t i = 0; i < s->ids.n && s->vocab->n; i++) {
		size_t id = (size_t)s->ids.items[i];
		buf_str(out, i ? "," : "");
		page_json_string(out, id < s->vocab->n ? s->vocab->tokens[id] : "");
	}
	for (size_t i = 0; i < s->ids.n && t; i++) {
		buf_str(out, i ? "," : "");
		print_label(out, t, s->ids.items[i]);
	}
	buf_str(out, "]}");
}

/* Prints one attention: its sizes, the model's numbers of the heads that are shown, and the probabilities. */
static void print_map(struct buf *out, const struct attend *a, const struct attend_map *m)
{
	buf_str(out, "{\"path\":");
	page_json_string(out, m->path);
	buf_printf(out, ",\"stack\":\"%s\",\"queries\":%d,\"keys\":%d", stack_names[m->stack], m->queries,
	           m->keys);
	buf_printf(out, ",\"heads\":%lld,\"rows\":%lld,\"columns\":%lld,\"numbers\":[", (long long)m->heads,
	           (long long)m->rows, (long long)m->columns);
	for (int64_t h = 0; h < m->heads; h++)
		buf_printf(out, "%s%lld", h ? "," : "", (long long)attend_head(a, h));
	buf_printf(out, "],\"of\":%lld,\"weights\":", (long long)m->all_heads);
	print_weights(out, m);
	buf_char(out, '}');
}

/* The object that the scripts of the page (page/) read: sequences with their tokens, then the maps, whose queries
 * and keys are indices of sequences (-1: no tokens). */
static void print_data(struct buf *out, const struct attend *a)
{
	buf_str(out, "{\"model\":");
	page_json_string(out, frontend_name(a->l->model));
	buf_str(out, ",\"left_out\":");
	page_json_string(out, a->left_out ? a->left_out : "");
	buf_printf(out, ",\"scale\":%d,\n\"sequences\":[", SCALE);
	for (size_t i = 0; i < a->n_sequences; i++) {
		buf_str(out, i ? ",\n" : "\n");
		print_sequence(out, &a->sequences[i],
		               a->sequences[i].is_source ? a->d->tokenizer : a->d->target_tokenizer);
	}
	buf_str(out, "],\n\"maps\":[");
	for (size_t i = 0; i < a->maps.n; i++) {
		buf_str(out, i ? ",\n" : "\n");
		print_map(out, a, &a->maps.items[i]);
	}
	buf_str(out, "]}");
}

/* ---- the page ---- */

enum tfmc_status attend_page(const struct attend *a, struct buf *out)
{
	struct buf data, script;
	buf_init(&data);
	buf_init(&script);
	print_data(&data, a);
	buf_printf(&script, "%s%s", (const char *)attend_state_js, (const char *)attend_plot_js);
	page_write(out, &(struct page){.name = frontend_name(a->l->model),
	                               .title = "which token attends to which",
	                               .parts = (const char *)attend_html,
	                               .data = data.data,
	                               .script = script.data});
	bool failed = buf_failed(&data) || buf_failed(&script) || buf_failed(out);
	buf_destroy(&data);
	buf_destroy(&script);
	return failed ? TFMC_NO_MEMORY : TFMC_OK;
}
