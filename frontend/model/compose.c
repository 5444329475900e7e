/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Composition of a model document: bases outermost first, imports of `include`, then the preset as the base
 * of all, with its parameters overridden by a hub configuration. The built-in presets are the files of
 * ../presets, embedded at build time. A function of trees that returns NULL has reported an error, or memory ran out.
 * A preset describes a family by steps, and may name a parent preset; of a decoder's preset (DECODER in presets.def)
 * the head can be replaced by that of a classifier (HEAD). d->root is the document so far, `top` one whose keys win.
 * `types` of a preset are words: the model types that select it, TYPE:ARCHITECTURE for one architecture of a type.
 */
#include "frontend/model/compose.h"

#include <string.h>

#include "frontend/model/hub.h"
#include "frontend/syntax/files.h"
#include "frontend/syntax/yaml_edit.h"
#include "ir/support/strmap.h"

/* ---- presets by name ---- */

#define PRESET(name, types) extern const unsigned char preset_##name[];
#include "frontend/model/presets.def"

static const struct {
	const char *name;
	const unsigned char *text;
	const char *types;
} presets[] = {
#define PRESET(name, types) {#name, preset_##name, types},
#include "frontend/model/presets.def"
};

static const char *const preset_name_list[] = {
#define PRESET(name, types) #name,
#include "frontend/model/presets.def"
};

static const char *const decoders[] = {
#define PRESET(name, types)
#define DECODER(name, types) #name,
#include "frontend/model/presets.def"
};

static const struct {
	const char *name;
	const char *ends; /* suffixes of architectures */
} heads[] = {
#define PRESET(name, types)
#define HEAD(name, ends) {#name, ends},
#include "frontend/model/presets.def"
};

/* Whether a preset is a decoder, whose head may be replaced (presets.def). */
static bool is_decoder(const char *name)
{
	for (size_t i = 0; i < TFMC_COUNT(decoders); i++) {
		if (strcmp(decoders[i], name) == 0)
			return true;
	}
	return false;
}

/* Whether the text ends with one of the words of `ends`. */
static bool ends_with_one(const char *text, const char *ends)
{
	struct word w = {ends, 0};
	size_t n = strlen(text);
	while (list_word_next(&w)) {
		if (w.n <= n && memcmp(text + n - w.n, w.text, w.n) == 0)
			return true;
	}
	return false;
}

/* The YAML text of a preset, or NULL; presets.def is the list. */
static const char *preset_text(const char *name)
{
	for (size_t i = 0; i < TFMC_COUNT(presets); i++) {
		if (strcmp(presets[i].name, name) == 0)
			return (const char *)presets[i].text;
	}
	return NULL;
}

const char *preset_of_type(const char *type)
{
	for (size_t i = 0; i < TFMC_COUNT(presets); i++) {
		if (list_has_word(presets[i].types, type, strlen(type)))
			return presets[i].name;
	}
	return NULL;
}

/* True: the name is a decoder with another head, such as llama_classes: *base llama, *head head_classes, a preset
 * whose key `head` has the steps. */
static bool preset_split_head(struct arena *a, const char *name, const char **base, const char **head)
{
	for (size_t i = 0; i < TFMC_COUNT(heads); i++) {
		const char *end = arena_printf(a, "_%s", heads[i].name);
		if (!ends_with_one(name, end))
			continue;
		*base = arena_strndup(a, name, strlen(name) - strlen(end));
		*head = arena_printf(a, "head%s", end);
		return *base != NULL && is_decoder(*base);
	}
	return false;
}

/* A row TYPE:ARCHITECTURE of presets.def wins; else the decoder of the type, with its own head or that of a HEAD row
 * whose suffix the architecture has. */
const char *preset_of_architecture(struct arena *a, const char *type, const char *architecture)
{
	const char *preset = preset_of_type(arena_printf(a, "%s:%s", type, architecture));
	const char *base = preset_of_type(type);
	if (preset != NULL || base == NULL || !is_decoder(base))
		return preset;
	if (ends_with_one(architecture, "ForCausalLM LMHeadModel")) /* the head of the decoder itself */
		return base;
	/* DoubleHeadsModel ends with Model, too, but has two heads. */
	for (size_t i = 0; i < TFMC_COUNT(heads) && !ends_with_one(architecture, "HeadsModel"); i++) {
		if (ends_with_one(architecture, heads[i].ends))
			return arena_printf(a, "%s_%s", base, heads[i].name);
	}
	return NULL;
}

/* Returns the supported architectures of a type, for messages: of decoders patterns, of others those that
 * presets.def lists as TYPE:ARCHITECTURE. */
static const char *preset_architectures(struct arena *a, const char *type)
{
	const char *base = preset_of_type(type), *before = arena_printf(a, "%s:", type), *list = "";
	if (base != NULL && is_decoder(base))
		return "..ForCausalLM, ..ForSequenceClassification, ..ForTokenClassification, ..Model";
	for (size_t i = 0; i < TFMC_COUNT(presets); i++) {
		struct word w = {presets[i].types, 0};
		while (list_word_next(&w)) {
			size_t n = strlen(before);
			if (w.n > n && memcmp(w.text, before, n) == 0 && w.text[n] >= 'A' && w.text[n] <= 'Z')
				list = arena_printf(a, "%s%s%.*s", list, *list ? ", " : "", (int)(w.n - n),
				                    w.text + n);
		}
	}
	return list;
}

/* The kind is that of the first preset with `generate.kind`, from the architecture's own up to its parents; decoders
   with another head generate nothing. */
bool preset_generate_kind(struct arena *a, struct diag_context *cx, const char *type,
                          const char *architecture, const char **kind)
{
	const char *name = preset_of_architecture(a, type, architecture), *decoder, *head;
	*kind = NULL;
	if (name != NULL && preset_split_head(a, name, &decoder, &head))
		return true; /* classifiers, taggers, hidden states */
	for (name = name != NULL ? name : preset_of_type(type); name != NULL;) {
		const char *text = preset_text(name);
		const struct yaml_node *root, *generate, *below;
		if (yaml_parse(a, cx, name, text, strlen(text), false, &root) != TFMC_OK)
			return false;
		generate = yaml_find(root, "generate");
		if (generate != NULL && generate->kind != YAML_MAPPING)
			return true;
		if (generate != NULL && yaml_find(generate, "kind") != NULL)
			*kind = yaml_find(generate, "kind")->text;
		below = *kind == NULL ? yaml_find(root, "preset") : NULL;
		name = below != NULL ? below->text : NULL;
	}
	return true;
}

/* Model types with a prefix, for messages: "bert, bloom, ...". A row whose types begin with the prefix has one type. */
static const char *preset_types(struct arena *a, const char *prefix)
{
	const char *list = "";
	for (size_t i = 0; i < TFMC_COUNT(presets); i++) {
		if (strncmp(presets[i].types, prefix, strlen(prefix)) == 0)
			list = arena_printf(a, "%s%s%s", list, *list ? ", " : "",
			                    presets[i].types + strlen(prefix));
	}
	return list;
}

/* ---- documents ---- */

void document_record_file(struct model_document *d, const char *path)
{
	if (d->file_read != NULL)
		d->file_read(d->file_user, path);
}

/* Chain of documents that led here, innermost first. */
struct compose_chain {
	const struct compose_chain *outer;
	const char *path;
	struct loc loc;
	const char *key; /* base, include */
};

/* Reads the document `name`, relative to `dir`; its path and location go to link, whose key is `base` or `include`. A
 * document in its own chain would never end. NULL after a diagnostic. */
static const struct yaml_node *read_document(struct model_document *d, const char *dir,
                                             const struct yaml_node *name, struct compose_chain *link)
{
	const struct yaml_node *root;
	int depth = 0;
	if (!yaml_expect(d->cx, name, YAML_SCALAR, link->key))
		return NULL;
	const char *relative = file_path_any(d->arena, d->cx, dir, name->text, name->loc);
	if (relative == NULL)
		return NULL;
	link->path = file_join(d->arena, d->dir, relative);
	link->loc = name->loc;
	for (const struct compose_chain *c = link->outer; c != NULL; c = c->outer, depth++) {
		if (strcmp(c->path, link->path) == 0) {
			diag_error(d->cx, name->loc, DIAG_CYCLE, "'%s' is its own base", name->text);
			return NULL;
		}
	}
	if (depth > COMPOSE_DEPTH_MAX) {
		diag_error(d->cx, name->loc, DIAG_LIMIT, "more than %d documents on top of each other",
		           COMPOSE_DEPTH_MAX);
		return NULL;
	}
	document_record_file(d, link->path);
	if (yaml_read(d->arena, d->cx, link->path, link->path, name->loc, &root) != TFMC_OK) {
		for (const struct compose_chain *c = link; c != NULL && c->key != NULL; c = c->outer)
			diag_note(d->cx, c->loc, "in the %s named here", c->key);
		return NULL;
	}
	return root;
}

/* Merges `top` over `base`; a null deletes a key of the base, which must exist. NULL after a diagnostic. */
static const struct yaml_node *merge(struct model_document *d, const struct yaml_node *base,
                                     const struct yaml_node *top)
{
	const struct yaml_pair *unused_null = NULL;
	if (!yaml_expect(d->cx, base, YAML_MAPPING, "the document") ||
	    !yaml_expect(d->cx, top, YAML_MAPPING, "the document"))
		return NULL;
	const struct yaml_node *merged = yaml_merge(d->arena, base, top, &unused_null);
	if (unused_null == NULL)
		return merged;
	diag_error(d->cx, unused_null->value->loc, DIAG_NULL_VALUE,
	           "null deletes a key of the document below, which has no '%s'", unused_null->key->text);
	return NULL;
}

/* ---- include ---- */

/* Merges a mapping of an included file (`from`, NULL: none) into one of this file (`to`, NULL: none); a name that
 * both have is an error, since an include adds and does not override. */
static const struct yaml_node *merge_imported(struct model_document *d, const struct yaml_node *from,
                                              const struct yaml_node *to, const char *what)
{
	if (from == NULL)
		return to;
	if (from->kind != YAML_MAPPING || (to != NULL && to->kind != YAML_MAPPING)) {
		diag_error(d->cx, from->kind != YAML_MAPPING ? from->loc : to->loc, DIAG_REFUSED,
		           "%s of an included file and of this one must be mappings", what);
		return NULL;
	}
	for (size_t i = 0; to != NULL && i < from->n; i++) {
		const struct yaml_pair *old = yaml_find_pair(to, from->pairs[i].key->text);
		if (old == NULL)
			continue;
		diag_error(d->cx, from->pairs[i].key->loc, DIAG_NAME_CLASH, "'%s' of %s is there already",
		           from->pairs[i].key->text, what);
		diag_note(d->cx, old->key->loc, "it is here");
		return NULL;
	}
	return to == NULL ? from : merge(d, from, to);
}

static const struct yaml_node *import_files(struct model_document *d, const struct yaml_node *root,
                                            const char *dir, const struct compose_chain *chain);

/* Imports `define` and weights.map of an included file, and of the files that it includes, relative to its own
 * directory; other sections are rejected, as they would replace those of the model. A map without weights here has no
 * files. */
static const struct yaml_node *import_file(struct model_document *d, const struct yaml_node *root,
                                           const char *dir, const struct yaml_node *name,
                                           const struct compose_chain *chain)
{
	static const char *const allowed[] = {"define", "include", "weights"}, *const only_map[] = {"map"};
	struct compose_chain link = {.outer = chain, .key = "include"};
	const struct yaml_node *doc = read_document(d, dir, name, &link);
	if (doc == NULL)
		return NULL;
	const char *inner = file_dir(d->arena, file_join(d->arena, dir, name->text));
	const struct yaml_node *weights = yaml_find(doc, "weights");
	if (!yaml_check_keys(d->cx, doc, allowed, TFMC_COUNT(allowed), "an included file") ||
	    (weights != NULL &&
	     (!yaml_expect(d->cx, weights, YAML_MAPPING, "weights") ||
	      !yaml_check_keys(d->cx, weights, only_map, 1, "weights of an included file"))))
		return NULL;
	doc = import_files(d, doc, inner, &link);
	if (doc == NULL)
		return NULL;
	const struct yaml_node *define = yaml_find(doc, "define"),
	                       *map = yaml_find(yaml_find(doc, "weights"), "map");
	if (define != NULL) {
		define = merge_imported(d, define, yaml_find(root, "define"), "define");
		root = define == NULL ? NULL : yaml_with(d->arena, root, "define", define);
	}
	if (root == NULL || map == NULL)
		return root;
	const struct yaml_node *own = yaml_find(root, "weights");
	map = merge_imported(d, map, yaml_find(own, "map"), "weights.map");
	if (map == NULL)
		return NULL;
	if (own == NULL) {
		diag_error(d->cx, name->loc, DIAG_MISSING,
		           "the included file has a map, this one has no 'weights'");
		return NULL;
	}
	return yaml_with(d->arena, root, "weights", yaml_with(d->arena, own, "map", map));
}

/* Imports all included files, in list order. */
static const struct yaml_node *import_files(struct model_document *d, const struct yaml_node *root,
                                            const char *dir, const struct compose_chain *chain)
{
	const struct yaml_node *list = yaml_find(root, "include");
	if (list == NULL)
		return root;
	struct yaml_list names = yaml_as_list(d->arena, list);
	for (size_t i = 0; root != NULL && i < names.n; i++)
		root = import_file(d, root, dir, names.items[i], chain);
	return root == NULL ? NULL : yaml_without(d->arena, root, "include");
}

/* ---- file names of documents in other directories ---- */

/* A copy of a file name with `dir` in front; other nodes stay as they are. Its text is no longer that of the source
 * (exact). */
static const struct yaml_node *rebase_name(struct arena *a, const struct yaml_node *node, const char *dir)
{
	if (node == NULL || node->kind != YAML_SCALAR || node->null)
		return node;
	struct yaml_node *copy = ARENA_NEW(a, struct yaml_node);
	if (copy == NULL)
		return NULL;
	*copy = *node;
	copy->text = file_join(a, dir, node->text);
	copy->len = strlen(copy->text);
	copy->exact = false;
	return copy;
}

/* rebase_name() of a scalar or of each item of a list. */
static const struct yaml_node *rebase_names(struct arena *a, const struct yaml_node *node, const char *dir)
{
	if (node == NULL || node->kind != YAML_SEQUENCE)
		return rebase_name(a, node, dir);
	struct yaml_node *copy = ARENA_NEW(a, struct yaml_node);
	if (copy == NULL)
		return NULL;
	*copy = *node;
	copy->items = ARENA_ARRAY(a, const struct yaml_node *, node->n + 1);
	for (size_t i = 0; copy->items != NULL && i < node->n; i++)
		copy->items[i] = rebase_name(a, node->items[i], dir);
	return copy;
}

/* Rebases the file names that are values of some keys of a mapping; absent keys are skipped, as are maps that are no
 * mappings, which are rejected later. */
static const struct yaml_node *rebase_keys(struct arena *a, const struct yaml_node *map,
                                           const char *const *keys, size_t n, const char *dir)
{
	for (size_t i = 0; map != NULL && map->kind == YAML_MAPPING && i < n; i++) {
		const struct yaml_node *value = yaml_find(map, keys[i]);
		if (value != NULL)
			map = yaml_with(a, map, keys[i], rebase_names(a, value, dir));
	}
	return map;
}

/* Rebases the file names of one check: `file` of the check, and of its `with` and `expect`. */
static const struct yaml_node *rebase_check(struct arena *a, const struct yaml_node *check, const char *dir)
{
	static const char *const file[] = {"file"}, *const parts[] = {"with", "expect"};
	check = rebase_keys(a, check, file, 1, dir);
	for (size_t i = 0; i < TFMC_COUNT(parts); i++) {
		const struct yaml_node *part = yaml_find(check, parts[i]);
		if (yaml_find(part, "file") != NULL)
			check = yaml_with(a, check, parts[i], rebase_keys(a, part, file, 1, dir));
	}
	return check;
}

/* Every key of a model file that names a file, or a list of files, is listed here. weights.map is a file name unless
 * it is `identity` or a mapping. */
const struct yaml_node *compose_rebase_files(struct arena *a, const struct yaml_node *root, const char *dir)
{
	static const char *const top[] = {"hf"}, *const files[] = {"files", "adapters"},
	                         *const map[] = {"map"}, *const profile[] = {"profile"};
	static const char *const tokenizer[] = {"file",  "vocab",  "merges", "config",      "special",
	                                        "added", "source", "target", "target_vocab"};
	const struct yaml_node *weights = yaml_find(root, "weights"), *tok = yaml_find(root, "tokenizer");
	const struct yaml_node *checks = yaml_find(root, "checks"), *rows = yaml_find(weights, "map");
	const struct yaml_node *quantize = yaml_find(root, "quantize");
	root = rebase_keys(a, root, top, 1, dir);
	if (quantize != NULL)
		root = yaml_with(a, root, "quantize", rebase_keys(a, quantize, profile, 1, dir));
	weights = rebase_keys(a, weights, files, 2, dir);
	if (rows != NULL && rows->kind == YAML_SCALAR && !yaml_is(rows, "identity"))
		weights = rebase_keys(a, weights, map, 1, dir);
	if (weights != NULL)
		root = yaml_with(a, root, "weights", weights);
	if (tok != NULL)
		root = yaml_with(a, root, "tokenizer",
		                 rebase_keys(a, tok, tokenizer, TFMC_COUNT(tokenizer), dir));
	if (checks == NULL || checks->kind != YAML_SEQUENCE)
		return root;
	struct yaml_node *list = ARENA_NEW(a, struct yaml_node);
	if (list == NULL)
		return NULL;
	*list = *checks;
	list->items = ARENA_ARRAY(a, const struct yaml_node *, checks->n + 1);
	for (size_t i = 0; list->items != NULL && i < checks->n; i++)
		list->items[i] = rebase_check(a, checks->items[i], dir);
	return yaml_with(a, root, "checks", list);
}

/* ---- base ---- */

/* Merges a document over its base, which may have a base. Included files come first: they are part of the document.
 * dir: that of the document, relative to the model; file names of a base become relative to it: `inner` is the base's
 * directory as the model sees it, of which the part after dir is prefixed. */
static const struct yaml_node *add_base(struct model_document *d, const struct yaml_node *root,
                                        const char *dir, const struct compose_chain *chain)
{
	const struct yaml_node *name = yaml_find(root, "base");
	root = import_files(d, root, dir, chain);
	if (root == NULL || name == NULL)
		return root;
	struct compose_chain link = {.outer = chain, .key = "base"};
	const struct yaml_node *base = read_document(d, dir, name, &link);
	if (base == NULL)
		return NULL;
	const char *inner = file_dir(d->arena, file_join(d->arena, dir, name->text));
	base = add_base(d, base, inner, &link);
	bool is_absolute = dir[0] == '\0' || name->text[0] == '/';
	if (base != NULL && strcmp(inner, dir) != 0)
		base = compose_rebase_files(d->arena, base, inner + (is_absolute ? 0 : strlen(dir) + 1));
	return base == NULL ? NULL : merge(d, base, yaml_without(d->arena, root, "base"));
}

/* ---- presets ---- */

/* True for `hub: {weights: own}`: tensor names differ from those of the parent preset, as in GGUF files. */
static bool has_own_weights(const struct yaml_node *root)
{
	const struct yaml_node *hub = yaml_find(root, "hub");
	const struct yaml_node *weights = hub == NULL ? NULL : yaml_find(hub, "weights");
	return weights != NULL && yaml_is(weights, "own");
}

/* True: the step has the id `head`. */
static bool is_head(const struct yaml_node *step)
{
	const struct yaml_node *arguments =
	        step->kind == YAML_MAPPING && step->n == 1 ? step->pairs[0].value : NULL;
	const struct yaml_node *id =
	        arguments != NULL && arguments->kind == YAML_MAPPING ? yaml_find(arguments, "id") : NULL;
	return id != NULL && yaml_is(id, "head");
}

/* Removes the map entries of head parameters: the new head has others, and a stored head is ignored, as in
 * transformers. */
static const struct yaml_node *remove_head_entries(struct model_document *d, const struct yaml_node *decoder)
{
	const struct yaml_node *weights = yaml_find(decoder, "weights"), *map = yaml_find(weights, "map");
	const struct yaml_node *remaining = map;
	for (size_t i = 0; map != NULL && i < map->n; i++) {
		const char *path = map->pairs[i].key->text;
		if (strncmp(path, "head.", strlen("head.")) == 0)
			remaining = yaml_without(d->arena, remaining, path);
	}
	return map == NULL ? decoder
	                   : yaml_with(d->arena, decoder, "weights",
	                               yaml_with(d->arena, weights, "map", remaining));
}

/* Replaces the steps of a decoder, from the one with id `head` on, by the steps `head` of another document; its other
 * keys, such as outputs, win over those of the decoder. */
static const struct yaml_node *replace_head(struct model_document *d, const struct yaml_node *decoder,
                                            const struct yaml_node *top)
{
	const struct yaml_node *steps = yaml_find(decoder, "model"), *head = yaml_find(top, "head");
	struct yaml_node *all = ARENA_NEW(d->arena, struct yaml_node);
	size_t n = 0;
	if (all == NULL || !yaml_expect(d->cx, steps, YAML_SEQUENCE, "model") ||
	    !yaml_expect(d->cx, head, YAML_SEQUENCE, "head"))
		return NULL;
	while (n < steps->n && !is_head(steps->items[n]))
		n++;
	*all = (struct yaml_node){.kind = YAML_SEQUENCE, .loc = steps->loc, .n = n + head->n};
	all->items = ARENA_ARRAY(d->arena, const struct yaml_node *, all->n + 1);
	for (size_t i = 0; all->items != NULL && i < all->n; i++)
		all->items[i] = i < n ? steps->items[i] : head->items[i - n];
	decoder = remove_head_entries(d, yaml_with(d->arena, decoder, "model", all));
	return decoder == NULL ? NULL : merge(d, decoder, yaml_without(d->arena, top, "head"));
}

/* Reads a preset merged with its parents; the table `hub` is part of it. A name such as llama_classes is made of two
 * presets: the decoder and the head. depth: presets that led here; a cycle among the built-in files would exceed the
 * limit. */
static const struct yaml_node *read_preset(struct model_document *d, const struct yaml_node *name, int depth)
{
	const struct yaml_node *root;
	const char *decoder, *head;
	if (!yaml_expect(d->cx, name, YAML_SCALAR, "preset"))
		return NULL;
	const char *text = preset_text(name->text), *shown = arena_printf(d->arena, "preset %s", name->text);
	if (text == NULL && preset_split_head(d->arena, name->text, &decoder, &head)) {
		const struct yaml_node *parent =
		        read_preset(d, yaml_scalar(d->arena, name->loc, decoder, false), depth + 1);
		const struct yaml_node *top =
		        read_preset(d, yaml_scalar(d->arena, name->loc, head, false), depth + 1);
		return parent == NULL || top == NULL ? NULL : replace_head(d, parent, top);
	}
	if (text == NULL || depth > COMPOSE_DEPTH_MAX) {
		diag_error(
		        d->cx, name->loc, DIAG_UNKNOWN_NAME, "no preset is called '%s'%s", name->text,
		        did_you_mean(d->arena, name->text, preset_name_list, TFMC_COUNT(preset_name_list)));
		return NULL;
	}
	if (yaml_parse(d->arena, d->cx, shown, text, strlen(text), false, &root) != TFMC_OK)
		return NULL;
	const struct yaml_node *parent = yaml_find(root, "preset");
	if (parent == NULL)
		return root;
	parent = read_preset(d, parent, depth + 1);
	if (parent != NULL && has_own_weights(root))
		parent = yaml_without(d->arena, parent, "weights");
	return parent == NULL ? NULL : merge(d, parent, yaml_without(d->arena, root, "preset"));
}

/* Returns the name of the preset as a scalar: the one that the document names, else by type and architecture of the
 * configuration, where an architecture that no preset computes is an error; without one the type decides. NULL after
 * a diagnostic. */
static const struct yaml_node *choose_preset(struct model_document *d, const struct yaml_node *name,
                                             const struct hub_config *config, const struct yaml_node *hf)
{
	if (name != NULL)
		return name;
	const char *type = hub_type(config), *architecture = hub_architecture(config);
	const char *preset = type == NULL           ? NULL
	                     : architecture == NULL ? preset_of_type(type)
	                                            : preset_of_architecture(d->arena, type, architecture);
	if (preset != NULL)
		return yaml_scalar(d->arena, hf->loc, preset, false);
	if (type != NULL && architecture != NULL && preset_of_type(type) != NULL)
		diag_error(d->cx, hub_key_loc(config, "architectures"), DIAG_UNSUPPORTED,
		           "not supported yet: the architecture '%s' of models of type '%s' (known are %s)",
		           architecture, type, preset_architectures(d->arena, type));
	else if (type == NULL)
		diag_error(d->cx, hf->loc, DIAG_MISSING,
		           "the configuration has no 'model_type'; name a preset");
	else if (hub_is_gguf(config))
		diag_error(d->cx, hf->loc, DIAG_UNSUPPORTED,
		           "not supported yet: GGUF files of the architecture '%s' (known are %s)",
		           type + strlen("gguf:"), preset_types(d->arena, "gguf:"));
	else
		diag_error(d->cx, hf->loc, DIAG_UNSUPPORTED,
		           "not supported yet: models of type '%s'; describe the model by steps", type);
	return NULL;
}

/* Adds `weights.packed` as the configuration says, to the preset, so that the model file may override it. NULL after
 * a diagnostic. */
static const struct yaml_node *add_packing(struct model_document *d, const struct yaml_node *preset,
                                           const struct hub_config *config, struct loc loc)
{
	const char *packed = hub_weight_packing(d, config);
	if (packed == NULL || strcmp(packed, "none") == 0)
		return packed == NULL ? NULL : preset;
	const struct yaml_node *weights = yaml_find(preset, "weights");
	if (weights == NULL)
		weights = yaml_new_map(d->arena, loc, 0);
	weights = yaml_with(d->arena, weights, "packed", yaml_scalar(d->arena, loc, packed, false));
	return yaml_with(d->arena, preset, "weights", weights);
}

/* Merges a document over its preset, with the parameters of the hub configuration. Order of precedence, from the top:
 * the document, the configuration, the preset, and for GGUF files the keys common to all. `preset`, `hf` and `hub`
 * are consumed. */
static const struct yaml_node *add_preset(struct model_document *d, const struct yaml_node *root)
{
	const struct yaml_node *name = yaml_find(root, "preset"), *hf = yaml_find(root, "hf");
	const struct hub_config *config = NULL;
	const struct yaml_node *own = yaml_find(root, "hub");
	if (own != NULL && hf == NULL) {
		diag_error(d->cx, own->loc, DIAG_MISSING,
		           "'hub' is about a configuration and 'hf' names none");
		return NULL;
	}
	if (d->n_ignored > 0 && hf == NULL) {
		diag_error(d->cx, LOC_NONE, DIAG_OPTION,
		           "--ignore-key is about a configuration and 'hf' names none");
		return NULL;
	}
	if (name == NULL && hf == NULL)
		return root;
	if (hf != NULL && (config = hub_read(d, hf)) == NULL)
		return NULL;
	name = choose_preset(d, name, config, hf);
	d->preset = name == NULL ? NULL : name->text;
	const struct yaml_node *preset = name == NULL ? NULL : read_preset(d, name, 0);
	if (preset != NULL && config != NULL &&
	    hub_is_gguf(config)) { /* `gguf`: keys common to all GGUF files */
		const struct yaml_node *gguf =
		        read_preset(d, yaml_scalar(d->arena, hf->loc, "gguf", false), 0);
		preset = gguf == NULL ? NULL : merge(d, gguf, preset);
	}
	if (preset == NULL)
		return NULL;
	if (config != NULL) {
		const struct yaml_node *table = yaml_find(preset, "hub"), *params = NULL;
		table = own == NULL ? table : merge(d, table, own);
		if (table != NULL)
			params = hub_apply(d, config, table, hub_ignored_lists(d, own, hf->loc),
			                   yaml_find(preset, "params"));
		if (params == NULL)
			return NULL;
		preset = add_packing(d, yaml_with(d->arena, preset, "params", params), config, hf->loc);
		if (preset == NULL)
			return NULL;
	}
	root = yaml_without(d->arena, yaml_without(d->arena, yaml_without(d->arena, root, "preset"), "hf"),
	                    "hub");
	return merge(d, yaml_without(d->arena, preset, "hub"), root);
}

/* The chain begins with the model file itself, which must not be its own base. */
bool document_compose(struct model_document *d)
{
	const struct compose_chain first = {.path = d->path};
	const struct yaml_node *root = add_base(d, d->root, "", &first);
	root = root == NULL ? NULL : add_preset(d, root);
	if (root == NULL)
		return false;
	d->root = root;
	return true;
}
