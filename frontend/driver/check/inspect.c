/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tfmc inspect: what a file or folder is.
 */
#include "frontend/driver/run/probes.h"

#include <string.h>

#include "frontend/text/files.h"
#include "frontend/formats/gguf.h"
#include "frontend/weights/files.h"
#include "ir/support/checked.h"
#include "ir/support/number.h"

static void inspect_tensors(struct driver *d, const struct stored_tensors *s)
{
	for (size_t i = 0; i < s->n; i++) {
		const struct stored_tensor *t = &s->items[i];
		buf_printf(&d->out, "%-64s %s[", t->name, t->type_name);
		for (int k = 0; k < t->rank; k++)
			buf_printf(&d->out, "%s%lld", k ? "," : "", (long long)t->dims[k]);
		buf_printf(&d->out, "] %zu bytes\n", t->bytes);
	}
}

/* Texts may hold any bytes: control characters are shown as dots. */
static void print_value(struct driver *d, const struct gguf_value *v)
{
	char number[NUMBER_TEXT_MAX];
	switch (v->type) {
	case GGUF_STRING:
		for (size_t i = 0; i < v->len && i < 200; i++)
			buf_char(&d->out,
			         (unsigned char)v->text[i] < 0x20 || v->text[i] == 0x7f ? '.' : v->text[i]);
		return;
	case GGUF_ARRAY: buf_printf(&d->out, "%zu of %s", v->n, gguf_type_name(v->element)); return;
	case GGUF_BOOL: buf_str(&d->out, v->i ? "true" : "false"); return;
	case GGUF_F32:
	case GGUF_F64: buf_printf(&d->out, "%.*s", (int)number_print_f64(number, v->f), number); return;
	case GGUF_U8:
	case GGUF_I8:
	case GGUF_U16:
	case GGUF_I16:
	case GGUF_U32:
	case GGUF_I32:
	case GGUF_U64:
	case GGUF_I64: buf_printf(&d->out, "%lld", (long long)v->i); return;
	}
}

static enum tfmc_status inspect_gguf(struct driver *d, const struct file_map *map)
{
	struct gguf g;
	TFMC_TRY(gguf_read(&d->arena, &d->diag, d->options.input, LOC_NONE, map->data, map->len, &g));
	buf_printf(&d->out, "GGUF, version %u\n", g.version);
	for (size_t i = 0; i < g.n_entries; i++) {
		buf_printf(&d->out, "%-48s = ", g.entries[i].key);
		print_value(d, &g.entries[i].value);
		buf_char(&d->out, '\n');
	}
	inspect_tensors(d, &g.tensors);
	return TFMC_OK;
}

/* ---- models ---- */
static void print_dims(struct buf *out, const struct ir_dims *dims)
{
	for (size_t i = 0; i < ir_dims_count(dims); i++) {
		const struct ir_dim_sym *s = ir_dims_sym(dims, i);
		buf_printf(out, "%s%s %lld..%lld", i ? ", " : "dims   ", s->name, (long long)s->lo,
		           (long long)s->hi);
	}
	buf_str(out, ir_dims_count(dims) ? "\n" : "");
}

static void print_interface(struct buf *out, const struct ir_module *m, const struct ir_func *f)
{
	for (size_t i = 0; i < f->n_params; i++) {
		const struct ir_param *p = &f->params[i];
		if (p->role != ROLE_INPUT || ir_type_of(f, p->value)->kind != IR_TENSOR)
			continue;
		buf_printf(out, "input  %s ", p->name);
		ir_type_print(out, m->dims, ir_type_of(f, p->value));
		buf_str(out, p->has_default ? ", may be left out\n" : "\n");
	}
	const struct ir_op *end = f->body->ops[f->body->n_ops - 1];
	for (size_t i = 0; i < f->n_results; i++) {
		if (!f->results[i].name)
			continue;
		buf_printf(out, "output %s ", f->results[i].name);
		ir_type_print(out, m->dims, ir_type_of(f, end->operands[i]));
		buf_char(out, '\n');
	}
}

/* Values of a file, not a table that is computed. */
static bool is_stored(const struct ir_wexpr *e)
{
	for (size_t i = 0; e && i < e->n_args; i++)
		if (is_stored(e->args[i]))
			return true;
	return e && e->kind == WX_TENSOR;
}

/* Elements of all weights that come from files, and their bytes as they lie in memory. */
static void print_parameters(struct buf *out, const struct ir_module *m)
{
	int64_t elements = 0, bytes = 0;
	for (size_t i = 0; i < m->weights.n; i++) {
		const struct ir_weight *w = m->weights.items[i];
		int64_t n = 1, size;
		for (int k = 0; k < w->type->rank; k++)
			if (!ir_dim_is_const(w->type->dims[k], &size) || !checked_mul_i64(n, size, &n))
				return;
		if (!is_stored(w->init))
			continue;
		elements += n;
		bytes += n * ir_dtype_bytes(ir_weight_dtype(w));
	}
	buf_printf(out, "parameters %lld, %lld bytes\n", (long long)elements, (long long)bytes);
}

static void print_entries(struct buf *out, const struct ir_module *m)
{
	static const char *const entries[] = {"run", "encode", "prefill", "step"};
	bool first = true;
	for (size_t i = 0; i < TFMC_COUNT(entries); i++) {
		if (!ir_find_func(m, entry_function(entries[i])))
			continue;
		buf_printf(out, "%s%s", first ? "entries " : ", ", entries[i]);
		first = false;
	}
	buf_char(out, '\n');
}

static void print_generation(struct buf *out, const struct frontend_model *m)
{
	const struct frontend_generate *g = frontend_generate(m);
	if (g->kind != GENERATE_NONE)
		buf_printf(out, "generates %s, at most %lld tokens\n",
		           g->kind == GENERATE_SEQ2SEQ ? "from a source" : "after a prompt",
		           (long long)g->max_len);
	const struct frontend_tokenizer *t = frontend_tokenizer_head(m);
	buf_printf(out, "tokenizer %s\n",
	           !t->given                    ? "none"
	           : t->kind == TOKENIZER_CHARS ? "of characters"
	                                        : "yes");
}

/* A model file, a hub folder, or IR text. */
static enum tfmc_status inspect_model(struct driver *d)
{
	struct loaded l;
	enum tfmc_status st = driver_load(d, &l);
	if (st == TFMC_OK) {
		const char *preset = l.model ? frontend_preset(l.model) : NULL;
		buf_printf(&d->out, "%s, name %s%s%s\n", l.model ? "model" : "IR text", l.module->name,
		           preset ? ", family " : "", preset ? preset : "");
		print_dims(&d->out, l.module->dims);
		if (ir_find_func(l.module, "run"))
			print_interface(&d->out, l.module, ir_find_func(l.module, "run"));
		print_parameters(&d->out, l.module);
		print_entries(&d->out, l.module);
	}
	if (st == TFMC_OK && l.model)
		print_generation(&d->out, l.model);
	driver_unload(&l);
	return st;
}

/* ---- objects ---- */
/* The record of an object is found by its magic in the bytes: an object need not be loadable here. */
static const struct tfmc_record *find_record(const unsigned char *bytes, size_t n)
{
	for (size_t i = 0; i + sizeof(struct tfmc_record) <= n; i += 8) {
		const struct tfmc_record *r = (const void *)(bytes + i);
		if (r->magic == TFMC_RECORD_MAGIC && r->abi_version == TFMC_ABI_VERSION &&
		    r->bytes <= n - i && r->bytes >= sizeof(*r) && r->name < r->bytes && r->target < r->bytes)
			return r;
	}
	return NULL;
}

/* A damaged object's text may lack its end: nothing is read beyond the record. */
static int text_limit(const struct tfmc_record *r, uint64_t offset)
{
	uint64_t n = r->bytes - offset;
	return n < 256 ? (int)n : 256;
}

/* Names and code of the variants, as far as they lie in the record. */
static void inspect_variants(struct driver *d, const struct file_map *map, const struct tfmc_record *r)
{
	const char *targets[BACKEND_VARIANTS_MAX];
	struct code_names names = {.targets = targets};
	uint64_t n = r->n_variants;
	if (n > BACKEND_VARIANTS_MAX || r->variants > r->bytes ||
	    r->bytes - r->variants < n * sizeof(uint64_t))
		return;
	names.model = arena_printf(&d->arena, "%.*s", text_limit(r, r->name), tfmc_record_text(r, r->name));
	for (uint64_t i = 0; i < n; i++) {
		uint64_t at;
		memcpy(&at, (const char *)r + r->variants + i * sizeof(at), sizeof(at));
		if (at >= r->bytes)
			return;
		targets[names.n++] =
		        arena_printf(&d->arena, "%.*s", text_limit(r, at), tfmc_record_text(r, at));
	}
	driver_print_code(d, &d->out, &names, map->data, map->len);
}

static enum tfmc_status inspect_object(struct driver *d, const struct file_map *map)
{
	const struct tfmc_record *r = find_record(map->data, map->len);
	if (!r) {
		diag_error(&d->diag, LOC_NONE, DIAG_FILE, "%s is an object without a tfmc record",
		           d->options.input);
		return TFMC_INVALID;
	}
	buf_printf(&d->out, "tfmc object, name %.*s, target %.*s, interface version %u\n",
	           text_limit(r, r->name), tfmc_record_text(r, r->name), text_limit(r, r->target),
	           tfmc_record_text(r, r->target), r->abi_version);
	buf_printf(&d->out, "structure %016llx, weights %016llx, %llu bytes %s\n",
	           (unsigned long long)r->structure_hash, (unsigned long long)r->weights_hash,
	           (unsigned long long)r->weights_bytes, r->weights_embedded ? "embedded" : "in a file");
	inspect_variants(d, map, r);
	buf_printf(
	        &d->out,
	        "arena at the bounds %llu bytes, %llu for each worker; state %llu bytes for each sequence\n",
	        (unsigned long long)r->arena_bytes_max, (unsigned long long)r->scratch_bytes,
	        (unsigned long long)r->state_batch_bytes);
	return TFMC_OK;
}

static enum tfmc_status inspect_weights(struct driver *d, const struct file_map *map)
{
	struct tfmc_weights_header h;
	memcpy(&h, map->data, sizeof(h));
	buf_printf(&d->out, "tfmc weights, structure %016llx, weights %016llx, %llu bytes\n",
	           (unsigned long long)h.structure_hash, (unsigned long long)h.weights_hash,
	           (unsigned long long)h.bytes);
	return TFMC_OK;
}

static enum tfmc_status inspect_binary(struct driver *d, const struct file_map *map)
{
	struct tfmc_weights_header h;
	if (map->len >= 4 && !memcmp(map->data, "\177ELF", 4))
		return inspect_object(d, map);
	if (map->len >= sizeof(h)) {
		memcpy(&h, map->data, sizeof(h));
		if (h.magic == TFMC_WEIGHTS_MAGIC)
			return inspect_weights(d, map);
	}
	struct stored_tensors s;
	if (gguf_is(map->data, map->len))
		return inspect_gguf(d, map);
	TFMC_TRY(weight_file_read(&d->arena, &d->diag, d->options.input, LOC_NONE, map->data, map->len, &s));
	inspect_tensors(d, &s);
	return TFMC_OK;
}

/* Objects, weights and arrays by their first bytes; everything else is read as a model, which says what it is
 * not. */
static bool is_binary(const char *path)
{
	static const struct {
		const char *magic;
		size_t at, n;
	} kinds[] = {{"\177ELF", 0, 4},   {"GGUF", 0, 4}, {"WIGHTS1", 0, 8},
	             {"\x93NUMPY", 0, 6}, {"PK", 0, 2},   {"\0{", 7, 2}};
	char head[16];
	size_t n = file_head(path, head, sizeof(head));
	for (size_t i = 0; i < TFMC_COUNT(kinds); i++)
		if (n >= kinds[i].at + kinds[i].n && !memcmp(head + kinds[i].at, kinds[i].magic, kinds[i].n))
			return true;
	return path_ends_with(path, ".safetensors");
}

enum exit_code command_inspect(struct driver *d)
{
	const char *path = d->options.input;
	if (d->options.probe.n)
		return inspect_probes(d);
	if (!is_binary(path))
		return exit_code_of(inspect_model(d));
	struct file_map map;
	enum tfmc_status st = file_map_open(&d->diag, path, LOC_NONE, &map);
	if (st != TFMC_OK)
		return exit_code_of(st);
	st = inspect_binary(d, &map);
	file_map_close(&map);
	return exit_code_of(st);
}
