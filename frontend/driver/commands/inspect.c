/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tfmc inspect: tells the kind of a file or directory, and describes files of weights, GGUF files and packed
 * tokenizers.
 */
#include "frontend/driver/commands/inspect.h"

#include <string.h>

#include "frontend/weights/gguf.h"
#include "frontend/weights/files.h"
#include "ir/support/glob.h"
#include "ir/support/number.h"
#include "runtime/tokenizer/format.h"
#include "runtime/tokenizer/tfmc_tokenizer.h"

static void report_tensors(struct report *out, const struct stored_tensors *s)
{
	uint64_t elements = 0, bytes = 0;
	struct buf type;
	buf_init(&type);
	report_open(out, "tensors");
	for (size_t i = 0; i < s->n; i++) {
		const struct stored_tensor *t = &s->items[i];
		uint64_t n = 1;
		buf_clear(&type);
		buf_printf(&type, "%s[", t->type_name);
		for (int k = 0; k < t->rank; k++) {
			buf_printf(&type, "%s%lld", k ? "," : "", (long long)t->dims[k]);
			n *= (uint64_t)t->dims[k];
		}
		buf_char(&type, ']');
		report_row(out, t->name);
		report_text(out, "type", "%s", type.data);
		report_number(out, "bytes", t->bytes);
		report_close(out);
		elements += n;
		bytes += t->bytes;
	}
	report_close(out);
	report_number(out, "tensor_count", s->n);
	report_number(out, "element_count", elements);
	report_number(out, "tensor_bytes", bytes);
	buf_destroy(&type);
}

#define SHOWN 200 /* bytes of a string, at most */

/* SHOWN bytes, cut between characters. */
static int shown_length(const struct gguf_value *v)
{
	int n = v->len < SHOWN ? (int)v->len : SHOWN;
	while (n > 0 && (size_t)n < v->len && ((unsigned char)v->text[n] & 0xc0) == 0x80)
		n--;
	return n;
}

static void report_value(struct report *out, const char *key, const struct gguf_value *v)
{
	char number[NUMBER_TEXT_MAX];
	switch (v->type) {
	case GGUF_STRING: report_text(out, key, "%.*s", shown_length(v), v->text); return;
	case GGUF_ARRAY: report_text(out, key, "%zu of %s", v->n, gguf_type_name(v->element)); return;
	case GGUF_BOOL: report_text(out, key, v->i ? "true" : "false"); return;
	case GGUF_F32:
	case GGUF_F64: report_text(out, key, "%.*s", (int)number_print_f64(number, v->f), number); return;
	case GGUF_U8:
	case GGUF_I8:
	case GGUF_U16:
	case GGUF_I16:
	case GGUF_U32:
	case GGUF_I32:
	case GGUF_U64:
	case GGUF_I64: report_text(out, key, "%lld", (long long)v->i); return;
	}
}

/* The content of the file, then the model. A file that is not a complete model is described before that is
 * reported. */
static enum tfmc_status inspect_gguf(struct driver *d, struct report *out, const struct file_map *map)
{
	struct gguf g;
	bool is_readable = true;
	const struct stored_source src = {&d->arena, &d->diag, d->options.input, LOC_NONE, map->data,
	                                  map->len,  false};
	TFMC_TRY(gguf_read(&src, &g));
	report_text(out, "format", "GGUF, version %u", g.version);
	report_open(out, "metadata");
	for (size_t i = 0; i < g.n_entries; i++)
		report_value(out, g.entries[i].key, &g.entries[i].value);
	report_close(out);
	report_tensors(out, &g.tensors);
	for (size_t i = 0; i < g.tensors.n; i++)
		is_readable = is_readable && g.tensors.items[i].readable;
	if (is_readable && g.tensors.n > 0)
		return inspect_model(d, out);
	report_text(out, "kind",
	            is_readable ? "metadata alone" : "of quantized types that tfmc does not read");
	return TFMC_OK;
}

static enum tfmc_status inspect_weights(struct report *out, const struct file_map *map)
{
	struct tfmc_weights_header h;
	memcpy(&h, map->data, sizeof(h));
	report_text(out, "kind", "tfmc weights");
	report_text(out, "structure", "%016llx", (unsigned long long)h.structure_hash);
	report_text(out, "weights", "%016llx", (unsigned long long)h.weights_hash);
	report_number(out, "bytes", h.bytes);
	return TFMC_OK;
}

static enum tfmc_status inspect_tokenizer(struct driver *d, struct report *out, const struct file_map *map)
{
	static const char *const models[] = {[TFMC_TOK_BPE] = "bpe",
	                                     [TFMC_TOK_UNIGRAM] = "unigram",
	                                     [TFMC_TOK_WORDPIECE] = "wordpiece",
	                                     [TFMC_TOK_WORDLEVEL] = "words"};
	struct tfmc_tokenizer *t;
	const struct tfmc_tok_header *h = (const void *)map->data;
	int status = tfmc_tokenizer_open(map->data, map->len, &t);
	if (status != TFMC_TOKENIZER_OK) {
		diag_error(&d->diag, LOC_NONE, DIAG_FILE, "%s: %s", d->options.input,
		           tfmc_tokenizer_status_text(status));
		return status == TFMC_TOKENIZER_E_MEMORY ? TFMC_NO_MEMORY : TFMC_INVALID;
	}
	report_text(out, "kind", "packed tokenizer");
	report_text(out, "model", "%s", h->model < TFMC_COUNT(models) ? models[h->model] : "?");
	report_number(out, "tokens", (uint64_t)tfmc_tokenizer_size(t));
	report_number(out, "bytes", h->bytes);
	report_flag(out, "second_tokenizer", h->bytes < map->len);
	tfmc_tokenizer_close(t);
	return TFMC_OK;
}

/* Kinds by their first bytes. Everything else is read as a model, whose errors tell what it is not. */
enum kind { KIND_MODEL, KIND_OBJECT, KIND_GGUF, KIND_WEIGHTS, KIND_TOKENIZER, KIND_TENSORS };

static enum kind detect_kind(struct diag_context *cx, const char *path)
{
	static const struct {
		enum kind kind;
		const char *magic;
		size_t n;
	} kinds[] = {{KIND_OBJECT, "\177ELF", 4},
	             {KIND_GGUF, "GGUF", 4},
	             {KIND_WEIGHTS, "WIGHTS1", 8},
	             {KIND_TOKENIZER, "TFMCTOK1", 8}};
	char head[16];
	size_t n = file_head(cx, path, head, sizeof(head));
	for (size_t i = 0; i < TFMC_COUNT(kinds); i++)
		if (n >= kinds[i].n && !memcmp(head, kinds[i].magic, kinds[i].n))
			return kinds[i].kind;
	bool tensors = weight_file_format((const unsigned char *)head, n) != NULL;
	return tensors || file_ends_with(path, ".safetensors") ? KIND_TENSORS : KIND_MODEL;
}

static enum tfmc_status inspect_tensors(struct driver *d, struct report *out, const struct file_map *map)
{
	const char *format = weight_file_format(map->data, map->len);
	struct stored_tensors s;
	const struct stored_source src = {&d->arena, &d->diag, d->options.input,    LOC_NONE,
	                                  map->data, map->len, .headers_only = true};
	TFMC_TRY(weight_file_read(&src, &s));
	report_text(out, "kind", "%s", format != NULL ? format : "safetensors");
	report_tensors(out, &s);
	return TFMC_OK;
}

static enum tfmc_status inspect_file(struct driver *d, struct report *out, enum kind kind,
                                     const struct file_map *map)
{
	switch (kind) {
	case KIND_MODEL: break;
	case KIND_OBJECT: return inspect_object(d, out, map);
	case KIND_GGUF: return inspect_gguf(d, out, map);
	case KIND_WEIGHTS:
		if (map->len >= sizeof(struct tfmc_weights_header))
			return inspect_weights(out, map);
		break;
	case KIND_TOKENIZER: return inspect_tokenizer(d, out, map);
	case KIND_TENSORS: return inspect_tensors(d, out, map);
	}
	diag_error(&d->diag, LOC_NONE, DIAG_FILE, "%s ends too early", d->options.input);
	return TFMC_INVALID;
}

/* ---- probed values ---- */

static void print_probe(struct driver *d, const struct ir_module *m, const struct ir_func *f,
                        const struct probe_site *site, const char *name)
{
	const struct ir_type *t = ir_type_of(f, site->op->results[site->result]);
	const struct loc at = site->op->loc.at;
	buf_printf(&d->out, "%-48s %s[", name, ir_dtype_name(t->dtype));
	for (int i = 0; i < t->rank; i++) {
		bool is_keys = site->part == PROBE_PROBABILITIES &&
		               i == 3; /* attention weights are [B, H, S, T], not [B, H, S, E] */
		buf_str(&d->out, i ? "," : "");
		ir_dim_print(&d->out, m->dims,
		             is_keys ? ir_type_of(f, site->op->operands[1])->dims[2] : t->dims[i], false);
	}
	buf_char(&d->out, ']');
	if (at.source)
		buf_printf(&d->out, "  %s:%u", diag_source_name(&d->diag, at.source), at.line);
	buf_char(&d->out, '\n');
}

/* matched[patterns]: set for those that a name matches. */
static enum tfmc_status print_names(struct driver *d, const struct ir_module *m, const char *function,
                                    bool *matched)
{
	const struct ir_func *f = ir_find_func(m, function);
	struct probe_request q = {.cx = &d->diag, .arena = &d->arena};
	struct probe_sites sites = {0};
	struct probe_names names = {0};
	if (!f)
		return TFMC_OK;
	TFMC_TRY(probe_list(&q, f, &sites, &names));
	buf_printf(&d->out, "%s:\n", function);
	for (size_t i = 0; i < names.n; i++) {
		bool found = false;
		for (size_t k = 0; k < d->options.probe.n; k++) {
			bool fits = glob_match(d->options.probe.items[k], names.items[i].name);
			matched[k] = matched[k] || fits;
			found = found || fits;
		}
		if (found)
			print_probe(d, m, f, &sites.items[names.items[i].site], names.items[i].name);
	}
	return TFMC_OK;
}

/* --probe: names, types and locations of the values of run and encode that match. */
static enum exit_code inspect_probes(struct driver *d)
{
	struct loaded l;
	bool *matched = ARENA_ARRAY(&d->arena, bool, d->options.probe.n + 1);
	enum tfmc_status st = driver_load(d, &l);
	if (st == TFMC_OK && !matched)
		st = TFMC_NO_MEMORY;
	if (st == TFMC_OK)
		st = print_names(d, l.module, "run", matched);
	if (st == TFMC_OK)
		st = print_names(d, l.module, "encode", matched);
	for (size_t k = 0; st == TFMC_OK && k < d->options.probe.n; k++) {
		if (matched[k])
			continue;
		diag_error(&d->diag, LOC_NONE, DIAG_OPTION, "no value of the model matches '%s'",
		           d->options.probe.items[k]);
		st = TFMC_INVALID;
	}
	loaded_destroy(&l);
	return exit_code_of(st);
}

enum exit_code command_inspect(struct driver *d)
{
	const char *path = d->options.input;
	struct file_map map = {0};
	struct report report;
	enum tfmc_status st;
	if (d->options.probe.n)
		return inspect_probes(d);
	enum kind kind = detect_kind(&d->diag, path);
	report_begin(&report, &d->out, d->options.json);
	if (kind == KIND_MODEL) {
		st = inspect_model(d, &report);
	} else {
		st = file_map_open(&d->diag, path, LOC_NONE, &map);
		if (st == TFMC_OK)
			st = inspect_file(d, &report, kind, &map);
		file_map_close(&map);
	}
	report_end(&report);
	if (st != TFMC_OK && d->options.json && kind != KIND_GGUF)
		buf_clear(&d->out);
	return exit_code_of(st);
}
