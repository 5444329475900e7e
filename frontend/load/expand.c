/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tfmc expand: prints a model as a YAML document of the next lower language level with params at their final
 * values. A preset becomes its steps; other models become graph statements, with the other sections as written. File
 * names are rewritten for the directory of the document that is printed.
 * A node in flow style is on one line, {key: value, ..}; in block style it has a line for each item, indented. `indent`
 * counts columns. The text must read back as the same document: expanding it again gives the same bytes.
 */
#include <string.h>

#include "frontend/model/compose.h"
#include "frontend/model/model.h"
#include "frontend/syntax/yaml_edit.h"

/* Whether a plain scalar would read back as another node: characters that YAML reserves, or an empty string. Quoted
 * ones stay quoted, as a quoted param is a string. */
static bool needs_quotes(const struct yaml_node *node)
{
	const char *t = node->text;
	if (node->quoted || node->len == 0)
		return !node->null;
	return strpbrk(t, ",[]{}#&*!|>'\"%@`\n") != NULL || strstr(t, ": ") != NULL ||
	       t[node->len - 1] == ':' || strchr("?-: ", t[0]) != NULL;
}

/* Prints a scalar that reads back as the same node. A negative number begins with '-', which needs quotes in other
 * texts, as a dash begins an item of a list. */
static void print_scalar(struct buf *out, const struct yaml_node *node)
{
	bool negative = node->text[0] == '-' && node->len > 1 && node->text[1] >= '0' && node->text[1] <= '9';
	if (needs_quotes(node) && !negative)
		yaml_print_quoted(out, node->text);
	else
		buf_str(out, node->null ? "null" : node->text);
}

/* Prints a node in flow style. */
static void print_flow(struct buf *out, const struct yaml_node *node)
{
	if (node->kind == YAML_SCALAR) {
		print_scalar(out, node);
		return;
	}
	bool map = node->kind == YAML_MAPPING;
	buf_char(out, map ? '{' : '[');
	for (size_t i = 0; i < node->n; i++) {
		buf_str(out, i > 0 ? ", " : "");
		if (map) {
			print_scalar(out, node->pairs[i].key);
			buf_str(out, ": ");
		}
		print_flow(out, map ? node->pairs[i].value : node->items[i]);
	}
	buf_char(out, map ? '}' : ']');
}

/* ---- block style ---- */

#define FLOW_WIDTH 100
#define KEY_WIDTH  16 /* estimated width of the key before a value */

static void print_tree(struct buf *out, const struct yaml_node *node, unsigned indent);

/* Whether a node in flow style fits a line of FLOW_WIDTH columns after its indent and a key of usual width. */
static bool fits_flow_line(const struct yaml_node *node, unsigned indent)
{
	struct buf text;
	buf_init(&text);
	print_flow(&text, node);
	bool fits = indent + KEY_WIDTH + text.len <= FLOW_WIDTH;
	buf_destroy(&text);
	return fits;
}

/* Prints the value after a key or a dash: in flow style if it fits the line, else as a block below. */
static void print_value(struct buf *out, const struct yaml_node *node, unsigned indent)
{
	if (node->kind == YAML_SCALAR || node->n == 0 || fits_flow_line(node, indent)) {
		buf_char(out, ' ');
		print_flow(out, node);
		buf_char(out, '\n');
		return;
	}
	buf_char(out, '\n');
	print_tree(out, node, indent);
}

/* Prints the pairs of a mapping, one on a line. first_in_line: the first follows the dash of a list. */
static void print_pairs(struct buf *out, const struct yaml_node *map, unsigned indent, bool first_in_line)
{
	for (size_t i = 0; i < map->n; i++) {
		if (i > 0 || !first_in_line)
			buf_fill(out, ' ', indent);
		print_scalar(out, map->pairs[i].key);
		buf_char(out, ':');
		print_value(out, map->pairs[i].value, indent + 2);
	}
}

/* Prints a mapping or a sequence in block style. An item that is a mapping of one key, as most steps are, begins
 * after its dash even if it would fit a line: - linear: {out: 8}. */
static void print_tree(struct buf *out, const struct yaml_node *node, unsigned indent)
{
	if (node->kind == YAML_MAPPING) {
		print_pairs(out, node, indent, false);
		return;
	}
	for (size_t i = 0; i < node->n; i++) {
		const struct yaml_node *item = node->items[i];
		buf_fill(out, ' ', indent);
		buf_char(out, '-');
		if (item->kind != YAML_MAPPING || item->n == 0 ||
		    (item->n > 1 && fits_flow_line(item, indent + 2))) {
			print_value(out, item, indent + 2);
			continue;
		}
		buf_char(out, ' ');
		print_pairs(out, item, indent + 2, true);
	}
}

/* Prints params with their final values. A string is a quoted scalar with YAML's escapes, not an expression. */
static void print_params(struct buf *out, const struct frontend_model *m)
{
	if (m->scope.params.n > 0)
		buf_str(out, "params:\n");
	for (size_t i = 0; i < m->scope.params.n; i++) {
		const struct model_param *p = m->scope.params.items[i].value;
		buf_printf(out, "  %s: ", p->name);
		value_print_with(out, m->scope.dims, &p->value, yaml_print_quoted);
		buf_char(out, '\n');
	}
}

/* Prints an input with all of its keys that are given. default_dim is the default of ints and sizes, fill that of
 * other types. */
static void print_input(struct buf *out, const struct frontend_model *m, const struct frontend_input *in)
{
	buf_printf(out, "  %s: {shape: [", in->name);
	for (int i = 0; i < in->rank; i++) {
		buf_str(out, i > 0 ? ", " : "");
		ir_dim_print(out, m->scope.dims, in->dims[i], false);
	}
	buf_printf(out, "], dtype: %s", ir_dtype_name(in->dtype));
	if (in->below > 0)
		buf_printf(out, ", below: %lld", (long long)in->below);
	if (in->has_default) {
		buf_str(out, ", default: ");
		if (in->default_dim != NULL)
			ir_dim_print(out, m->scope.dims, in->default_dim, false);
		else if (in->dtype == DT_BOOL)
			buf_str(out, in->fill != 0.0 ? "true" : "false");
		else
			value_print_float(out, in->fill);
	}
	if (in->lengths != NULL)
		buf_printf(out, ", lengths: %s", in->lengths);
	buf_str(out, "}\n");
}

/* Prints the dims with their bounds, and the inputs, as they are after --set and --context. */
static void print_interface(struct buf *out, const struct frontend_model *m)
{
	size_t n = ir_dims_count(m->scope.dims);
	if (n > 0)
		buf_str(out, "dims:\n");
	for (size_t i = 0; i < n; i++) {
		const struct ir_dim_sym *s = ir_dims_sym(m->scope.dims, i);
		buf_printf(out, "  %s: %lld..%lld\n", s->name, (long long)s->lo, (long long)s->hi);
	}
	buf_str(out, "inputs:\n");
	for (size_t i = 0; i < m->inputs.n; i++)
		print_input(out, m, &m->inputs.items[i]);
}

/* The merged document for another directory, from which the model's directory is the path `at`: `at` is prefixed to
 * relative file names. Patterns of a preset or base may match no parameter, but in the printed document they are its
 * own and would have to: then `unmatched: allow` is added. NULL without memory. */
static const struct yaml_node *document_seen_from(struct frontend_model *m, const char *at)
{
	const struct yaml_node *root = m->doc.root, *weights = yaml_find(root, "weights"),
	                       *map = yaml_find(weights, "map");
	bool is_foreign = false;
	for (size_t i = 0; map != NULL && map->kind == YAML_MAPPING && i < map->n; i++)
		is_foreign = is_foreign || map->pairs[i].key->loc.source != root->loc.source;
	if (is_foreign) {
		const struct yaml_node *allow = yaml_scalar(&m->arena, weights->loc, "allow", false);
		weights = allow != NULL ? yaml_with(&m->arena, weights, "unmatched", allow) : NULL;
		root = weights != NULL ? yaml_with(&m->arena, root, "weights", weights) : NULL;
	}
	return root != NULL && at[0] != '\0' ? compose_rebase_files(&m->arena, root, at) : root;
}

/* Prints the merged document, in which the steps of a preset are written out, without the sections that have been
 * printed, and without `set`, whose values the params have. */
static void print_steps(struct buf *out, const struct frontend_model *m)
{
	static const char *const printed[] = {"tfmc", "name", "params", "set"};
	for (size_t i = 0; i < m->doc.root->n; i++) {
		const struct yaml_pair *p = &m->doc.root->pairs[i];
		bool is_printed = false;
		for (size_t k = 0; k < TFMC_COUNT(printed); k++)
			is_printed = is_printed || strcmp(p->key->text, printed[k]) == 0;
		if (is_printed)
			continue;
		buf_printf(out, "%s:", p->key->text);
		print_value(out, p->value, 2);
	}
}

/* Models of a preset, named by `preset` or chosen by the config.json or GGUF file of `hf`, are printed as steps;
 * models written as steps or as a graph are printed as a graph, with the sections that the graph does not replace.
 * `at`: as in document_seen_from(), whose result replaces the document. */
enum tfmc_status frontend_expand(struct frontend_model *m, const char *at, struct buf *out)
{
	m->doc.root = document_seen_from(m, at);
	if (m->doc.root == NULL)
		return TFMC_NO_MEMORY;
	buf_printf(out, "tfmc: 1\nname: %s\n", m->name);
	print_params(out, m);
	if (yaml_find(m->doc.written, "preset") != NULL || yaml_find(m->doc.written, "hf") != NULL) {
		print_steps(out, m);
		return buf_failed(out) ? TFMC_NO_MEMORY : TFMC_OK;
	}
	print_interface(out, m);
	buf_str(out, "graph:\n");
	graph_print(out, m->scope.dims, &m->graph, 2);
	buf_str(out, "outputs:\n");
	for (size_t i = 0; i < m->outputs.n; i++)
		buf_printf(out, "  %s: %s\n", m->outputs.items[i].name, m->outputs.items[i].value);
	static const char *const sections[] = {"generate",  "weights", "dtype", "quantize",
	                                       "tokenizer", "checks",  "target"};
	for (size_t i = 0; i < TFMC_COUNT(sections); i++) {
		const struct yaml_node *node = model_section(m, sections[i]);
		if (node == NULL)
			continue;
		buf_printf(out, "%s:", sections[i]);
		print_value(out, node, 2);
	}
	return buf_failed(out) ? TFMC_NO_MEMORY : TFMC_OK;
}
