/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tfmc attend: attention probabilities of every layer and head for given tokens. Reads or generates the tokens, runs
 * the model on them (maps.c) and writes one offline page, and a NumPy file for each attention.
 */
#define _POSIX_C_SOURCE 200809L
#include "frontend/driver/commands/attend.h"
#include "frontend/driver/commands/generation_config.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ir/support/utf8.h"
#include "runtime/tokenizer/tfmc_tokenizer.h"

/* ---- tokens ---- */

/* The id of a token's text, or that of the unknown token; -1: neither. */
static int64_t find_token(const struct frontend_vocab *v, const char *text, size_t n)
{
	for (size_t i = 0; i < v->n; i++)
		if (strlen(v->tokens[i]) == n && !memcmp(v->tokens[i], text, n))
			return (int64_t)i;
	return v->unknown;
}

/* One token for each code point (tokenizer of kind chars). */
static enum tfmc_status append_characters(struct driver *d, struct attend_sequence *s, const char *text)
{
	size_t len = strlen(text), bad = utf8_check(text, len);
	if (!s->vocab->n) {
		diag_error(&d->diag, LOC_NONE, DIAG_INPUT,
		           "the model has no vocabulary for the %s; give it as ids", s->name);
		return TFMC_INVALID;
	}
	if (bad < len) {
		diag_error(&d->diag, LOC_NONE, DIAG_ENCODING, "the %s is not UTF-8 from byte %zu", s->name,
		           bad);
		return TFMC_INVALID;
	}
	for (size_t n; *text; text += n) {
		uint32_t cp;
		n = utf8_decode(text, strlen(text), &cp);
		int64_t id = find_token(s->vocab, text, n);
		if (id < 0) {
			diag_error(&d->diag, LOC_NONE, DIAG_INPUT,
			           "U+%04X of the %s is not in the vocabulary", (unsigned)cp, s->name);
			return TFMC_INVALID;
		}
		TFMC_TRY(prompt_append_ids(d, &(int32_t){(int32_t)id}, 1, &s->ids));
	}
	return TFMC_OK;
}

/* A source gets the tokenizer's special tokens, which replace the model's start ids. */
static enum tfmc_status append_tokens(struct attend *a, struct attend_sequence *s, const char *text)
{
	int32_t *ids;
	uint64_t n;
	if (s->is_source && !tfmc_tokenizer_is_bare(a->d->tokenizer))
		s->ids.n = 0;
	TFMC_TRY(driver_tokenize(a->d, s->is_source ? PROMPT_SOURCE : PROMPT_TARGET, text, &ids, &n));
	return prompt_append_ids(a->d, ids, n, &s->ids);
}

/* Ids as they are, or a text, after the model's start ids when it is generated text (`appended`). */
static enum tfmc_status read_sequence(struct attend *a, struct attend_sequence *s, const char *text,
                                      const char *ids, bool appended)
{
	const struct frontend_ids *start = &frontend_generate(a->l->model)->start;
	if (ids)
		return prompt_append_list(a->d, "attend", ids, &s->ids);
	for (size_t i = 0; appended && i < start->n; i++)
		TFMC_TRY(prompt_append_ids(a->d, &(int32_t){(int32_t)start->items[i]}, 1, &s->ids));
	return !text             ? TFMC_OK
	       : a->d->tokenizer ? append_tokens(a, s, text)
	                         : append_characters(a->d, s, text);
}

/* The target as an i32[1, S] tensor of --inputs. */
static enum tfmc_status append_given_target(struct attend *a, struct attend_sequence *s)
{
	struct named_tensor *v = tensors_find(&a->given, s->input);
	if (v->dtype != DT_I32 || v->rank != 2 || v->dims[0] != 1) {
		diag_error(&a->d->diag, LOC_NONE, DIAG_INPUT, "input %s is not i32[1, S]", s->input);
		return TFMC_INVALID;
	}
	v->used = true;
	TFMC_TRY(prompt_append_ids(a->d, v->data, (uint64_t)v->count, &s->ids));
	a->sequences[a->n_sequences++] = *s;
	return TFMC_OK;
}

static enum tfmc_status read_sequences(struct attend *a)
{
	const struct driver_options *o = &a->d->options;
	const struct frontend_generate *g = frontend_generate(a->l->model);
	const struct frontend_tokenizer *t = frontend_tokenizer_head(a->l->model);
	if (t->kind == TOKENIZER_CHARS)
		TFMC_TRY(frontend_tokenizer(a->l->model, true, &t));
	else
		TFMC_TRY(driver_open_tokenizer(a->d, a->l->model, o->prompt || o->target_text));
	struct attend_sequence source = {.name = g->kind == GENERATE_SEQ2SEQ ? "source" : "tokens",
	                                 .vocab = t->source.n ? &t->source : &t->target,
	                                 .is_source = true};
	struct attend_sequence target = {.name = "target", .vocab = &t->target, .input = g->tokens};
	bool is_pair = g->kind == GENERATE_SEQ2SEQ;
	size_t n;
	const struct frontend_input *in = frontend_inputs(a->l->model, &n);
	source.input = is_pair ? g->source : g->kind == GENERATE_CAUSAL ? g->tokens : in[0].name;
	if (!is_pair && (o->target_text || o->target_tokens)) {
		diag_error(&a->d->diag, LOC_NONE, DIAG_OPTION, "the model has no target, only tokens");
		return TFMC_INVALID;
	}
	if (o->prompt || o->tokens) {
		TFMC_TRY(read_sequence(a, &source, o->prompt, o->tokens, g->kind == GENERATE_CAUSAL));
		TFMC_TRY(attend_check_length(a, &source));
		a->sequences[a->n_sequences++] = source;
	}
	if (!is_pair)
		return TFMC_OK;
	bool is_given = !o->target_text && !o->target_tokens && tensors_find(&a->given, g->tokens);
	if (is_given)
		return append_given_target(a, &target);
	if (a->n_sequences == 0 && !o->target_text && !o->target_tokens) {
		diag_error(&a->d->diag, LOC_NONE, DIAG_OPTION,
		           "with a source of --inputs attend requires --target-text or --target-tokens, too");
		return TFMC_INVALID;
	}
	TFMC_TRY(read_sequence(a, &target, o->target_text, o->target_tokens, true));
	a->sequences[a->n_sequences++] = target;
	return TFMC_OK;
}

/* ---- generated tokens ---- */

static bool is_stop(const struct frontend_generate *g, int32_t id)
{
	for (size_t i = 0; i < g->stop.n; i++)
		if (g->stop.items[i] == id)
			return true;
	return false;
}

/* Appends greedily generated tokens, without a stop id. */
static enum tfmc_status continue_tokens(struct attend *a, struct tfmc_session *s, int64_t steps)
{
	const struct frontend_generate *g = frontend_generate(a->l->model);
	const struct attend_sequence *prompt = &a->sequences[0];
	struct attend_sequence *appended = &a->sequences[a->n_sequences - 1];
	struct tfmc_constraints rules;
	if (!generation_rules(a->d, g, tfmc_session_record(s), &rules))
		return TFMC_INVALID;
	struct tfmc_generate_options o = {
	        .struct_size = sizeof(o), .max_new_tokens = steps ? steps : g->max_new, .rules = &rules};
	uint64_t n, cap = (uint64_t)g->max_len;
	int32_t *out = ARENA_ARRAY(&a->d->arena, int32_t, cap + 1);
	if (!out)
		return TFMC_NO_MEMORY;
	int status = tfmc_generate(s, &o, prompt->ids.items, prompt->ids.n, NULL, 0, out, cap, &n);
	TFMC_TRY(prompt_check_status(a->d, s, "attend", status));
	for (uint64_t i = 0; i < n && !is_stop(g, out[i]); i++)
		if ((int64_t)appended->ids.n < g->max_len)
			TFMC_TRY(prompt_append_ids(a->d, &out[i], 1, &appended->ids));
	return TFMC_OK;
}

/* Generates the target of a sequence-to-sequence model that was not given, or `steps` tokens after a prompt. */
static enum tfmc_status generate_tokens(struct attend *a, int64_t steps)
{
	const struct driver_options *o = &a->d->options;
	const struct frontend_generate *g = frontend_generate(a->l->model);
	bool needs_target = g->kind == GENERATE_SEQ2SEQ && !o->target_text && !o->target_tokens &&
	                    a->n_sequences == 2 && !a->given.n;
	if (!needs_target && !(g->kind == GENERATE_CAUSAL && steps && a->n_sequences))
		return TFMC_OK;
	static const char *const entries[] = {"prefill", "step", "encode"};
	struct compiled c = {0};
	const struct entry_names called = {entries, g->kind == GENERATE_SEQ2SEQ ? 3 : 2};
	enum tfmc_status st = driver_compile_and_open(a->d, a->l, called, 1, &c);
	if (st == TFMC_OK)
		st = continue_tokens(a, c.session, steps);
	compiled_destroy(&c);
	return st;
}

/* ---- files ---- */

static enum tfmc_status write_page(struct attend *a)
{
	struct buf text;
	buf_init(&text);
	enum tfmc_status st = attend_page(a, &text);
	if (st == TFMC_OK)
		st = driver_write_output(a->d, a->d->options.html, &text);
	buf_destroy(&text);
	return st;
}

/* A NumPy array file, version 1.0: magic, header length, the header (a Python dictionary, padded so that the
 * data are 64-byte aligned), and the elements as f32, little-endian, row-major. */
static void print_npy(struct buf *out, const float *data, size_t rank, const int64_t *dims)
{
	struct buf header;
	size_t count = 1;
	buf_init(&header);
	buf_str(&header, "{'descr': '<f4', 'fortran_order': False, 'shape': (");
	for (size_t i = 0; i < rank; i++) {
		buf_printf(&header, "%lld, ", (long long)dims[i]);
		count *= (size_t)dims[i];
	}
	buf_str(&header, "), }");
	size_t prefix = 10 + header.len + 1; /* magic, version, length; the newline at the end */
	buf_fill(&header, ' ', (64 - prefix % 64) % 64);
	buf_char(&header, '\n');
	buf_bytes(out, "\x93NUMPY\x01", 7);
	buf_char(out, 0);
	buf_char(out, (char)(header.len & 255));
	buf_char(out, (char)(header.len >> 8));
	buf_append(out, &header);
	for (size_t i = 0; i < count; i++) {
		uint32_t bits;
		memcpy(&bits, &data[i], sizeof(bits));
		buf_u32le(out, bits);
	}
	if (buf_failed(&header))
		out->failed = true;
	buf_destroy(&header);
}

static enum tfmc_status write_array(struct attend *a, const struct attend_map *m)
{
	const char *path = arena_printf(&a->d->arena, "%s/%s.npy", a->d->options.npy, m->path);
	const int64_t dims[] = {m->heads, m->rows, m->columns};
	struct buf bytes;
	buf_init(&bytes);
	print_npy(&bytes, m->p, TFMC_COUNT(dims), dims);
	enum tfmc_status st = driver_write_output(a->d, path, &bytes);
	buf_destroy(&bytes);
	return st;
}

/* *made: the directory of --npy was created. */
static enum tfmc_status write_files(struct attend *a, bool *made)
{
	const struct driver_options *o = &a->d->options;
	if (o->html)
		TFMC_TRY(write_page(a));
	if (o->npy) {
		*made = !mkdir(o->npy, 0777);
		if (!*made && errno != EEXIST) {
			diag_environment_error(&a->d->diag, LOC_NONE, DIAG_FILE,
			                       "cannot make the directory %s: %s", o->npy, strerror(errno));
			return TFMC_IO;
		}
	}
	for (size_t i = 0; o->npy && i < a->maps.n; i++)
		TFMC_TRY(write_array(a, &a->maps.items[i]));
	return outputs_commit(&a->d->outputs);
}

/* On failure a directory that was created is removed. */
static enum tfmc_status write_outputs(struct attend *a)
{
	bool made = false;
	enum tfmc_status st = write_files(a, &made);
	outputs_discard(&a->d->outputs);
	if (st != TFMC_OK && made)
		(void)rmdir(a->d->options.npy);
	return st;
}

/* ---- the command ---- */

static enum exit_code check_attend_options(struct driver *d)
{
	const struct driver_options *o = &d->options;
	const char *const lists[] = {o->tokens, o->target_tokens};
	int32_t *ids;
	size_t n;
	if (!o->html && !o->npy)
		return driver_usage_error(d, "attend requires --html=FILE or --npy=DIR");
	if (o->inputs ? o->tokens && o->prompt : !o->tokens == !o->prompt)
		return driver_usage_error(d, "one of --prompt, --tokens is required, or --inputs");
	if (o->target_text && o->target_tokens)
		return driver_usage_error(d, "only one of --target-text, --target-tokens");
	for (size_t i = 0; i < TFMC_COUNT(lists); i++)
		if (lists[i] && !parse_id_list(d, lists[i], &ids, &n))
			return driver_usage_error(d, "a list of ids is such as 1,2,3, not %s", lists[i]);
	return EXIT_OK;
}

enum exit_code command_attend(struct driver *d)
{
	struct loaded l;
	struct attend_selection choice = {0};
	enum exit_code code = check_attend_options(d);
	if (code == EXIT_OK)
		code = attend_parse_selection(d, &choice);
	if (code != EXIT_OK)
		return code;
	if (file_ends_with(d->options.input, ".tir"))
		return driver_usage_error(d, "attend requires a model file, not IR text");
	enum tfmc_status st = driver_load(d, &l);
	struct attend a = {.d = d, .l = &l, .choice = choice};
	if (st == TFMC_OK && d->options.inputs)
		st = tensors_read(d, d->options.inputs, d->options.prefix, &a.given);
	if (st == TFMC_OK)
		st = read_sequences(&a);
	if (st == TFMC_OK)
		st = generate_tokens(&a, option_int(d->options.max_tokens, 0));
	for (size_t i = 0; st == TFMC_OK && i < a.n_sequences; i++)
		st = attend_check_length(&a, &a.sequences[i]);
	if (st == TFMC_OK)
		st = attend_run(&a);
	if (st == TFMC_OK)
		st = write_outputs(&a);
	loaded_destroy(&l);
	return exit_code_of(st);
}
