/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of compiled code and packed weights in the cache, and loading and storing them.
 * Code is stored with the ids of the weights that it runs with; what packed weights are made from names an entry with
 * their id, so that other code finds them, too.
 */
#define _POSIX_C_SOURCE 200809L /* pread */
#include "frontend/driver/compile/code_cache.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ir/support/number.h"
#include "ir/text/text.h"

#define FORMAT_VERSION 3 /* of cached files; increment when their content changes */

/* Identifies the packed weights that code runs with. */
struct weights_id {
	struct cache_key
	        files; /* content of the source files: 64-bit hashes of packed weights alone could be forged */
	uint64_t structure, weights, bytes;
	int64_t rank; /* whose weights they are */
};

/* ---- names ---- */

static void hash_strings(struct blake2b *b, const char *const *words, size_t n)
{
	blake2b_i64(b, (int64_t)n);
	for (size_t i = 0; i < n; i++)
		blake2b_string(b, words[i]);
}

static void hash_ids(struct blake2b *b, const struct backend_ids *ids)
{
	blake2b_i64(b, (int64_t)ids->n);
	for (size_t i = 0; i < ids->n; i++)
		blake2b_i64(b, ids->items[i]);
}

/* Adds every fact of the object's record: they are in the code. */
static void hash_facts(struct blake2b *b, const struct backend_facts *f)
{
	blake2b_i64(b, f->generate_kind);
	hash_ids(b, &f->start);
	hash_ids(b, &f->stop);
	hash_ids(b, &f->suppress);
	hash_ids(b, &f->suppress_first);
	blake2b_i64(b, f->pad);
	blake2b_i64(b, f->max_len);
	blake2b_i64(b, f->prefix);
	blake2b_i64(b, f->long_from);
	blake2b_i64(b, f->reread);
	blake2b_string(b, f->tokens);
	blake2b_string(b, f->source);
	blake2b_string(b, f->logits);
	blake2b_string(b, f->vocabulary);
	blake2b_string(b, f->source_vocabulary);
	blake2b_string(b, f->unknown_token);
	blake2b_item(b, f->tokenizer, f->tokenizer_bytes);
}

/* Adds the IR without source locations: the path that the command was given does not matter. False: no memory. */
static bool hash_module(struct blake2b *b, const struct ir_module *m)
{
	struct buf text;
	buf_init(&text);
	ir_print(&text, NULL, m);
	blake2b_item(b, text.data, text.len);
	bool ok = !buf_failed(&text);
	buf_destroy(&text);
	return ok;
}

/* Ranks compare the hash when they open a session (runtime/lead.c), so that all run the same program; 64 bits of it
 * find mistakes. */
bool code_cache_program_hash(const struct variant_set *set, struct backend_options *o)
{
	struct cache_key key;
	struct blake2b b;
	bool ok = true;
	blake2b_begin(&b);
	cache_hash_build(&b);
	blake2b_i64(&b, o->opt_level);
	hash_strings(&b, o->entries, o->n_entries);
	for (size_t i = 0; i < set->n; i++) {
		blake2b_string(&b, set->items[i].target->name);
		ok = hash_module(&b, set->items[i].planned) && ok;
	}
	blake2b_end(&b, key.bytes);
	memcpy(&o->program_hash, key.bytes, sizeof(o->program_hash));
	return ok;
}

/* Sets d->cache.files to a hash of every file that was read, in order: the list tells which files the tensors
 * "file":"tensor" of the module are in. Directories count by their files. */
static bool hash_files(struct driver *d)
{
	struct blake2b b;
	blake2b_begin(&b);
	for (size_t i = 0; i < d->outputs.inputs.n; i++) {
		const char *path = d->outputs.inputs.items[i], *slash = strrchr(path, '/');
		struct cache_key content;
		if (cache_is_directory(path))
			continue;
		if (!cache_content_key(&d->cache, path, &content)) {
			d->cache.why = arena_printf(&d->arena, "'%s' has just changed", path);
			return false;
		}
		blake2b_string(&b, slash ? slash + 1 : path);
		blake2b_item(&b, content.bytes, sizeof(content.bytes));
	}
	blake2b_end(&b, d->cache.files.bytes);
	return true;
}

enum tfmc_status code_cache_open(struct driver *d)
{
	const struct driver_options *o = &d->options;
	const char *text = o->cache_limit ? NULL : getenv("TFMC_CACHE_LIMIT");
	uint64_t limit = o->cache_limit ? *o->cache_limit : CACHE_LIMIT;
	if (text && !number_parse_bytes(text, strlen(text), &limit)) {
		diag_error(&d->diag, LOC_NONE, DIAG_OPTION,
		           "the environment variable TFMC_CACHE_LIMIT is a number of bytes from 1, such as "
		           "500M or "
		           "2G, not '%s'; --cache-limit=BYTES goes before it",
		           text);
		return TFMC_INVALID;
	}
	d->cache.progress = &d->progress;
	d->cache.workers = driver_pack_workers(d);
	/* Options that print about compiling need a compilation. */
	bool prints = o->print_ir_after.n || o->print_ir_before.n || o->diff.n || o->dump_dir || o->remarks ||
	              o->time_passes || o->stats;
	d->cache.why = o->no_cache ? "--no-cache" : prints ? "an option reports how it is compiled" : NULL;
	if (!d->cache.why)
		cache_open(&d->cache, &d->arena, limit);
	return TFMC_OK;
}

/* Hashes all that the code depends on: compiler, pipeline, targets, rules, entries, record, module, ranks, and the
 * content of the files whose tensors the module names. */
const char *code_cache_name(struct driver *d, const struct code_request *q)
{
	struct cache_key key;
	struct blake2b b;
	if (!d->cache.dir)
		return NULL;
	blake2b_begin(&b);
	blake2b_i64(&b, FORMAT_VERSION);
	cache_hash_build(&b);
	blake2b_string(&b, q->pipeline);
	blake2b_i64(&b, q->opt_level);
	blake2b_i64(&b, (int64_t)q->variants->n);
	for (size_t i = 0; i < q->variants->n; i++)
		blake2b_string(&b, q->variants->items[i].target->name);
	hash_strings(&b, d->options.disable_rule.items, d->options.disable_rule.n);
	blake2b_item(&b, d->rules_text, d->rules_len);
	hash_strings(&b, q->entries.items, q->entries.n);
	hash_facts(&b, q->facts);
	blake2b_i64(&b, driver_packed_ranks(d).first); /* the entry lists the weights of these ranks */
	blake2b_i64(&b, driver_packed_ranks(d).n);
	if (!hash_module(&b, q->loaded->module) || !hash_files(d))
		return NULL;
	blake2b_item(&b, d->cache.files.bytes, sizeof(d->cache.files.bytes));
	blake2b_end(&b, key.bytes);
	return cache_entry_name(&d->arena, CACHE_CODE, &key);
}

/* Adds layout and source of a packed weight: the text of its expression contains shapes and source tensors. A dim
 * that is not constant counts as -1; a text for which memory was missing gives another name than a complete one. */
static void hash_weight(struct blake2b *b, const struct ir_weight *w)
{
	struct buf text;
	buf_init(&text);
	if (w->init)
		wexpr_print(&text, w->init);
	blake2b_string(b, w->name);
	blake2b_i64(b, w->format);
	blake2b_i64(b, w->encoding);
	blake2b_i64(b, w->type->dtype);
	blake2b_i64(b, w->type->rank);
	for (int i = 0; i < w->type->rank; i++) {
		int64_t n = -1;
		(void)ir_dim_is_const(w->type->dims[i], &n);
		blake2b_i64(b, n);
	}
	blake2b_item(b, text.data, text.len);
	blake2b_i64(b, buf_failed(&text));
	buf_destroy(&text);
}

/* The name of the entry that refers to the packed weights of a planned module, in the arena. */
static const char *packed_name(struct driver *d, const struct ir_module *planned)
{
	struct cache_key key;
	struct blake2b b;
	blake2b_begin(&b);
	blake2b_i64(&b, FORMAT_VERSION);
	cache_hash_build(&b);
	blake2b_item(&b, d->cache.files.bytes, sizeof(d->cache.files.bytes));
	for (size_t i = 0; i < planned->weights.n; i++)
		hash_weight(&b, planned->weights.items[i]);
	blake2b_end(&b, key.bytes);
	return cache_entry_name(&d->arena, CACHE_PACKED, &key);
}

/* ---- load and store ---- */

/* The name of a file of packed weights, in the arena. */
static const char *weights_name(struct arena *a, const struct weights_id *id)
{
	struct cache_key key;
	struct blake2b b;
	blake2b_begin(&b);
	blake2b_item(&b, id, sizeof(*id));
	blake2b_end(&b, key.bytes);
	return cache_entry_name(a, CACHE_WEIGHTS, &key);
}

/* Maps packed weights and verifies them, unless that was done since the machine was started. False: not there,
 * or other bytes. */
static bool map_weights(struct driver *d, const struct weights_id *id, struct tfmc_mapping *out)
{
	struct tfmc_record expected = {
	        .structure_hash = id->structure, .weights_bytes = id->bytes, .ranks = driver_ranks(d)};
	if (id->bytes == 0)
		return true;
	const char *name = weights_name(&d->arena, id), *path = cache_path(&d->cache, &d->arena, name);
	struct stat st;
	bool is_checked = cache_is_verified(&d->cache, name);
	if (!cache_stat(&d->cache, name, &st) ||
	    tfmc_weights_map(path, &expected, is_checked ? 0 : TFMC_MAP_VERIFY, out) != TFMC_RT_OK)
		return false;
	struct tfmc_weights_header header;
	memcpy(&header, out->base, sizeof(header));
	if (header.weights_hash != id->weights || header.rank != id->rank) {
		tfmc_weights_unmap(out);
		return false;
	}
	cache_touch(&d->cache, name);
	if (!is_checked)
		cache_mark_verified(&d->cache, name);
	return true;
}

/* Two steps: the entry named by the sources and layout of the weights has the id of their file, which map_weights()
 * verifies. */
void code_cache_find_packed(struct driver *d, const struct ir_module *planned, struct cached_weights *out)
{
	struct weights_id id;
	struct buf text;
	*out = (struct cached_weights){0};
	if (!d->cache.dir)
		return;
	out->name = packed_name(d, planned);
	buf_init(&text);
	bool is_there = cache_read(&d->cache, out->name, &text) && text.len == sizeof(id);
	if (is_there)
		memcpy(&id, text.data, sizeof(id));
	if (is_there && id.bytes > 0 && map_weights(d, &id, &out->map))
		out->packed = (struct backend_packed){out->map.data, id.bytes, id.structure, id.weights};
	buf_destroy(&text);
}

/* Whether the expression quantizes: those weights take long to pack. */
static bool has_quantize(const struct ir_wexpr *e)
{
	bool found = e->kind == WX_QUANTIZE;
	for (size_t i = 0; i < e->n_args && !found; i++)
		found = has_quantize(e->args[i]);
	return found;
}

void code_cache_find_quantized(struct driver *d, const struct ir_module *planned, struct cached_weights *out)
{
	bool any = false;
	*out = (struct cached_weights){0};
	for (size_t i = 0; i < planned->weights.n && !any; i++)
		any = planned->weights.items[i]->init && has_quantize(planned->weights.items[i]->init);
	if (any && d->cache.dir && hash_files(d))
		code_cache_find_packed(d, planned, out);
}

/* Maps the weights of the ranks of this process: all, or after a miss none. */
static bool map_ranks(struct driver *d, const struct weights_id *ids, struct compiled *out)
{
	const struct rank_range ranks = driver_packed_ranks(d);
	int64_t n = 0;
	while (n < ranks.n && map_weights(d, &ids[n], &out->weights[ranks.first + n].map))
		n++;
	for (int64_t i = 0; n < ranks.n && i < n; i++)
		tfmc_weights_unmap(&out->weights[ranks.first + i].map);
	return n == ranks.n;
}

bool code_cache_load(struct driver *d, const char *name, struct compiled *out)
{
	size_t bytes = (size_t)driver_packed_ranks(d).n * sizeof(struct weights_id);
	struct weights_id *ids = arena_alloc(&d->arena, bytes);
	struct buf *code = &out->object.object;
	if (!ids || !cache_read(&d->cache, name, code) || code->len <= bytes)
		return false;
	code->len -= bytes; /* the ids follow the object */
	memcpy(ids, code->data + code->len, bytes);
	if (map_ranks(d, ids, out))
		return true;
	buf_clear(code);
	return false;
}

/* Since cache_begin. */
static bool inputs_are_unchanged(const struct driver *d)
{
	for (size_t i = 0; i < d->outputs.inputs.n; i++)
		if (!cache_is_unchanged(&d->cache, d->outputs.inputs.items[i]))
			return false;
	return true;
}

/* Gives the written weights their name in the cache. True also when they are there already, from this or another
 * command. */
static bool store_weights(struct driver *d, const struct weights_id *id, struct packed *weights)
{
	const char *name = weights_name(&d->arena, id);
	struct stat st;
	if (id->bytes == 0 || cache_is_verified(&d->cache, name))
		return true;
	if (weights->file.fd < 0) /* they come from the cache */
		return cache_stat(&d->cache, name, &st);
	if (!packed_commit(weights, name))
		return false;
	cache_mark_verified(&d->cache, name);
	return true;
}

/* Stores the id of packed weights under the name of what they were made from. */
static bool store_weights_reference(struct driver *d, const char *name, const struct weights_id *id)
{
	return name && cache_write(&d->cache, name, id, sizeof(*id));
}

/* Not if an input changed since it was read: the name would stand for its new content. The entry is written after
 * the file that it refers to. */
bool code_cache_store_packed(struct driver *d, const char *name, struct packed *weights)
{
	struct tfmc_weights_header h;
	if (weights->file.fd < 0 || pread(weights->file.fd, &h, sizeof(h), 0) != (ssize_t)sizeof(h))
		return false;
	struct weights_id id = {d->cache.files, h.structure_hash, h.weights_hash, h.bytes, h.rank};
	return inputs_are_unchanged(d) && store_weights(d, &id, weights) &&
	       store_weights_reference(d, name, &id);
}

/* Identifies the weights of a rank of a loaded model. Zero bytes: it has none. */
static struct weights_id id_of_rank(const struct driver *d, const struct compiled *c, int64_t rank)
{
	const struct tfmc_record *r = c->model.record;
	struct tfmc_weights_header h = {0};
	if (c->weights[rank].map.base)
		memcpy(&h, c->weights[rank].map.base, sizeof(h));
	return (struct weights_id){d->cache.files, r->structure_hash, h.weights_hash, r->weights_bytes, rank};
}

/* Weights are stored before the code, which refers to them by the ids at its end. Not if an input changed since it
 * was read: the name would stand for its new content. */
bool code_cache_store(struct driver *d, const char *name, struct compiled *c)
{
	const struct rank_range ranks = driver_packed_ranks(d);
	struct buf code;
	bool ok = inputs_are_unchanged(d);
	buf_init(&code);
	buf_append(&code, &c->object.object);
	for (int64_t i = ranks.first; ok && i < ranks.first + ranks.n; i++) {
		const struct weights_id id = id_of_rank(d, c, i);
		ok = store_weights(d, &id, &c->weights[i]);
		if (ok && driver_ranks(d) == 1) /* of several ranks weights belong to their program */
			(void)store_weights_reference(d, packed_name(d, c->variants.items[0].planned), &id);
		buf_bytes(&code, &id, sizeof(id));
	}
	ok = ok && !buf_failed(&code) && cache_write(&d->cache, name, code.data, code.len);
	buf_destroy(&code);
	return ok;
}
