/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model file of an ONNX graph: sizes become dims, nodes statements, initializers entries of the weight map. Names
 * are those of the file, with _ in place of characters that names of the language do not have; comments say in which
 * block of the exporter (the directory of a node's name) the statements after them are.
 * The importer knows a value of the file as an operand (import.h), bound under its name; statements are lowered as
 * soon as they are written, which infers their types and reports what the language refuses. An output whose name is ""
 * is one that no node reads: it gets no value.
 */
#include "frontend/onnx/import.h"

#include <ctype.h>
#include <string.h>

#include "frontend/onnx/onnx.h"
#include "frontend/syntax/files.h"
#include "frontend/syntax/yaml_edit.h"
#include "ir/support/memory.h"
#include "ir/support/utf8.h"

#define NAME_ROOM 8 /* for what makes a name unique */

/* ---- names ---- */

/* A name of the language for one of the file: without `_output_0`, which exporters append, with _ for characters
 * that names do not have, and no more than its end if it is long. */
static const char *language_name(struct arena *a, const char *text)
{
	static const char output[] = "_output_0";
	size_t n = strlen(text), end = strlen(output);
	struct buf out;
	buf_init(&out);
	if (n > end && strcmp(text + n - end, output) == 0)
		n -= end;
	for (size_t i = 0; i < n; i++) {
		bool is_word = isalnum((unsigned char)text[i]) || text[i] == '_';
		if (out.len > 0 || (is_word && text[i] != '_'))
			buf_char(&out, is_word ? text[i] : '_');
	}
	const char *name =
	        out.data + (out.len > EXPR_NAME_MAX - NAME_ROOM ? out.len - (EXPR_NAME_MAX - NAME_ROOM) : 0);
	name += strspn(name, "_");
	name = arena_printf(a, "%s%s", isalpha((unsigned char)name[0]) ? "" : "v", name);
	buf_destroy(&out);
	return name;
}

const char *import_name(struct importer *im, const char *text)
{
	/* words of the language, and the current value x */
	static const char reserved[] = "x and or not true false null none return";
	const char *stem = language_name(im->a, text), *name = stem;
	if (list_has_word(reserved, stem, strlen(stem)))
		name = stem = import_text(im, "%s_in", stem);
	for (int i = 2; strmap_has(&im->names, name); i++)
		name = import_text(im, "%s_%d", stem, i);
	strmap_set(&im->names, name, im);
	return name;
}

const char *import_text(struct importer *im, const char *fmt, ...)
{
	const char *text;
	ARENA_FROM_ARGS(text, im->a, fmt);
	return text;
}

/* The first refusal alone is reported: later ones may be its consequences. */
bool import_refuse(struct importer *im, const char *fmt, ...)
{
	const char *text;
	ARENA_FROM_ARGS(text, im->a, fmt);
	if (!im->failed && im->node != NULL)
		diag_error(im->cx, im->loc, DIAG_ONNX, "%s (node %u, '%.200s')", text, im->loc.line,
		           im->node->name);
	else if (!im->failed)
		diag_error(im->cx, im->loc, DIAG_ONNX, "%s", text);
	im->failed = true;
	return false;
}

/* ---- statements ---- */

/* The block of the exporter that the node belongs to: the directory of its name, "" without one. */
static const char *scope_of(const struct importer *im)
{
	const char *name = im->node != NULL ? im->node->name : "", *slash = strrchr(name, '/');
	return slash == NULL ? "" : arena_strndup(im->a, name, (size_t)(slash - name));
}

/* Appends `targets = value` and lowers it, which infers the types of the targets. A statement that the language rejects
   is the import's own text, so a note says for which node it was written. */
static bool append_statement(struct importer *im, const char *targets, const char *value)
{
	const char *text = import_text(im, "%s = %s", targets, value);
	struct graph_body body = {NULL, 0, 0};
	if (im->failed)
		return false;
	if (strlen(text) > EXPR_TEXT_MAX)
		return import_refuse(im, "%s: its statement has more than %d characters", im->node->op,
		                     EXPR_TEXT_MAX);
	const struct expr_statement *st =
	        expr_parse_statement(im->a, im->cx, (struct expr_source){text, strlen(text), im->loc, false});
	im->failed = st == NULL || !graph_push_statement(im->a, &body, (struct ir_loc){im->loc, NULL}, st) ||
	             !lower_body(im->lw, &body, false) || irb_failed(im->lw->b);
	if (im->failed && im->node != NULL)
		diag_note(im->cx, LOC_NONE, "as `%.300s`, for the node '%.200s' (%s)", text, im->node->name,
		          im->node->op);
	return !im->failed &&
	       ARENA_ADDED(im->a, &im->statements, (struct statement){text, scope_of(im), st, false});
}

bool import_statements(struct importer *im, const char *const *stems, size_t n, const char *value,
                       const char **names)
{
	const char *targets = "";
	for (size_t i = 0; i < n; i++) {
		names[i] = import_name(im, stems[i]);
		targets = import_text(im, "%s%s%s", targets, i > 0 ? ", " : "", names[i]);
	}
	return append_statement(im, targets, value);
}

const char *import_statement(struct importer *im, const char *stem, const char *fmt, ...)
{
	const char *name, *value;
	ARENA_FROM_ARGS(value, im->a, fmt);
	return import_statements(im, &stem, 1, value, &name) ? name : "";
}

const struct ir_type *import_type(struct importer *im, const char *name)
{
	const struct lowered *v = im->failed ? NULL : lower_find(im->lw, name);
	const struct ir_type *t = v != NULL && v->kind == LOWERED_TENSOR ? irb_type(im->lw->b, v->v) : NULL;
	if (t == NULL && !im->failed)
		import_refuse(im, "'%s' is no tensor", name);
	return t;
}

/* ---- values ---- */

/* Makes v the value of a name of the file; false: v is NULL, or the name has a value. */
static bool bind_value(struct importer *im, const char *name, struct operand *v)
{
	if (v == NULL || im->failed)
		return false;
	if (strmap_has(&im->values, name))
		return import_refuse(im, "'%.200s' has two values", name);
	return strmap_set(&im->values, name, v);
}

/* Its type and dims are those that the lowering has inferred. */
struct operand *import_operand(struct importer *im, const char *name)
{
	const struct ir_type *t = import_type(im, name);
	struct operand *v = t == NULL ? NULL : ARENA_NEW(im->a, struct operand);
	if (v == NULL)
		return NULL;
	*v = (struct operand){.name = name, .dtype = t->dtype, .rank = t->rank};
	for (int i = 0; i < t->rank; i++)
		v->dims[i] = t->dims[i];
	return v;
}

bool import_value(struct importer *im, size_t i, const char *name)
{
	return import_alias(im, i, import_operand(im, name));
}

bool import_output(struct importer *im, size_t i, const char *fmt, ...)
{
	const char *value;
	ARENA_FROM_ARGS(value, im->a, fmt);
	if (i >= im->node->outputs.n || im->node->outputs.items[i][0] == '\0')
		return !im->failed;
	return import_value(im, i, import_statement(im, im->node->outputs.items[i], "%s", value));
}

bool import_alias(struct importer *im, size_t i, struct operand *v)
{
	if (i >= im->node->outputs.n || im->node->outputs.items[i][0] == '\0')
		return !im->failed;
	return bind_value(im, im->node->outputs.items[i], v);
}

bool import_known(struct importer *im, size_t i, enum ir_dtype dtype, int rank,
                  const struct ir_dim *const *dims, const struct element *known, size_t n)
{
	struct operand *v = ARENA_NEW(im->a, struct operand);
	if (v == NULL || known == NULL)
		return false;
	*v = (struct operand){.known = known, .n = n, .dtype = dtype, .rank = rank};
	for (int k = 0; k < rank; k++)
		v->dims[k] = dims[k];
	return import_alias(im, i, v);
}

static size_t count_uses(const struct importer *im, const char *name)
{
	return (size_t)(uintptr_t)strmap_get(&im->uses, name);
}

bool import_is_read(const struct importer *im, size_t i)
{
	return i < im->node->outputs.n && count_uses(im, im->node->outputs.items[i]) > 0;
}

const struct onnx_node *import_only_reader(const struct importer *im, const char *name)
{
	return count_uses(im, name) == 1 ? strmap_get(&im->readers, name) : NULL;
}

bool import_fused(struct importer *im, const struct onnx_node *node, const char *value)
{
	const char *name = node->outputs.items[0];
	strmap_set(&im->fused, name, im);
	return bind_value(im, name, import_operand(im, import_statement(im, name, "%s", value)));
}

static void add_use(struct importer *im, const char *name)
{
	strmap_set(&im->uses, name, (void *)(uintptr_t)(count_uses(im, name) + 1));
}

/* Counts the readers of each name, nodes and outputs of all graphs, and keeps a node that reads it. */
static void collect_uses(struct importer *im, const struct onnx_graph *g)
{
	for (size_t i = 0; i < g->nodes.n; i++) {
		struct onnx_node *node = &g->nodes.items[i];
		for (size_t k = 0; k < node->inputs.n; k++) {
			add_use(im, node->inputs.items[k]);
			strmap_set(&im->readers, node->inputs.items[k], node);
		}
		for (size_t k = 0; k < node->attributes.n; k++)
			if (node->attributes.items[k].graph != NULL)
				collect_uses(im, node->attributes.items[k].graph);
	}
	for (size_t i = 0; i < g->outputs.n; i++)
		add_use(im, g->outputs.items[i].name);
}

/* ---- dims ---- */

/* A size of --dim, as the dim of the model; strmap value of its name. */
struct size_bound {
	const struct ir_dim *dim;
	bool used;
};

static enum expr_lookup lookup_bound(void *user, const char *name, struct loc loc, struct value *out)
{
	struct size_bound *b = strmap_get(user, name);
	(void)loc;
	if (b == NULL)
		return EXPR_ABSENT;
	b->used = true;
	*out = value_dim(b->dim);
	return EXPR_FOUND;
}

/* The names of --dim in expressions, also those that stand for one size. */
static struct expr_env size_env(struct importer *im, struct strmap *bounds)
{
	return (struct expr_env){im->a, im->cx, im->m->scope.dims, lookup_bound, NULL, bounds};
}

/* Reads an option --dim: NAME=LO..HI declares a dim, NAME=N and NAME=EXPRESSION of other dims make the name stand for
   them. */
static bool read_bound(struct importer *im, struct strmap *bounds, const char *text)
{
	const char *eq = strchr(text, '=');
	uint32_t source = diag_add_source(im->cx, "--dim", text, strlen(text));
	struct loc loc = {source, 1, 1, 0};
	struct expr_env env = size_env(im, bounds);
	struct size_bound *b = ARENA_NEW(im->a, struct size_bound);
	const struct expr *lo, *hi;
	struct value v, top;
	int64_t least, most;
	if (eq == NULL || eq == text || b == NULL) {
		diag_error(im->cx, loc, DIAG_OPTION,
		           "--dim is NAME=LEAST..MOST, NAME=SIZE or NAME=OTHER, found '%s'", text);
		return false;
	}
	const char *name = language_name(im->a, arena_strndup(im->a, text, (size_t)(eq - text)));
	const struct expr_source src = {eq + 1, strlen(eq + 1), loc, false};
	if (strmap_has(bounds, name)) {
		diag_error(im->cx, loc, DIAG_OPTION, "--dim: '%s' has bounds already", name);
		return false;
	}
	if (!expr_parse_range(im->a, im->cx, src, &lo, &hi) || !expr_eval(&env, lo, &v))
		return false;
	strmap_set(bounds, name, b);
	if (hi == NULL)
		return expr_require_dim(&env, loc, "--dim", &v, &b->dim);
	if (!expr_eval(&env, hi, &top) || !expr_require_int(&env, loc, "--dim", &v, &least) ||
	    !expr_require_int(&env, loc, "--dim", &top, &most))
		return false;
	if (least < 1 || !ir_dims_declare(im->m->scope.dims, name, least, most)) {
		diag_error(im->cx, loc, DIAG_DIM_BOUND,
		           "'%s' cannot be %lld..%lld: bounds are at least 1 and in order", name,
		           (long long)least, (long long)most);
		return false;
	}
	strmap_set(&im->names, name, im);
	b->dim = ir_dim_sym(im->m->scope.dims, name);
	return true;
}

/* A symbol that is an expression of known dims, as "past + seq"; NULL: it is not. Errors of the parser are dropped:
   most symbols are plain names. */
static const struct ir_dim *size_expression(struct importer *im, struct strmap *bounds, const char *symbol)
{
	struct diag_context quiet;
	struct expr_env env = size_env(im, bounds);
	struct value v;
	const struct ir_dim *d = NULL;
	diag_init(&quiet, NULL, NULL);
	env.cx = &quiet;
	const struct expr *e = expr_parse(
	        im->a, &quiet, (struct expr_source){symbol, strlen(symbol), LOC_NONE, false}, EXPR_PLAIN);
	if (e == NULL || !expr_eval(&env, e, &v) || !expr_require_dim(&env, LOC_NONE, "", &v, &d))
		d = NULL;
	diag_destroy(&quiet);
	return d;
}

const char *import_size_name(struct importer *im, const struct onnx_value *v, int axis)
{
	const char *symbol = v->sizes[axis].symbol;
	return language_name(im->a, symbol != NULL ? symbol : import_text(im, "%s_%d", v->name, axis));
}

/* The size past + tokens of axis 1 of a decoder's mask, for files whose symbol does not say so; NULL: v is no such
   mask, or the tokens are not known. */
static const struct ir_dim *past_and_tokens(struct importer *im, const struct onnx_value *v, int axis)
{
	struct ir_dims *t = im->m->scope.dims;
	const struct frontend_input *tokens = im->m->inputs.n > 1 ? &im->m->inputs.items[0] : NULL;
	if (past_role(im, v) != PAST_MASK || axis != 1 || tokens == NULL || tokens->rank != 2)
		return NULL;
	return ir_dim_add(t, ir_dim_sym(t, im->past.size), tokens->dims[1]);
}

/* The dim of an axis of an input: a number of the file, a --dim, an expression of others, or a size that the past
   defines. NULL after a diagnostic: bounds cannot be guessed. */
static const struct ir_dim *input_size(struct importer *im, struct strmap *bounds, const struct onnx_value *v,
                                       int axis)
{
	const struct onnx_size *s = &v->sizes[axis];
	if (s->value > 0)
		return ir_dim_const(im->m->scope.dims, s->value);
	const char *name = import_size_name(im, v, axis);
	struct size_bound *b = strmap_get(bounds, name);
	const struct ir_dim *d = b != NULL           ? b->dim
	                         : s->symbol != NULL ? size_expression(im, bounds, s->symbol)
	                                             : NULL;
	if (b != NULL)
		b->used = true;
	if (d == NULL && im->past.is_state)
		d = past_and_tokens(im, v, axis);
	if (d != NULL)
		return d;
	diag_error(im->cx, im->loc, DIAG_DIM_BOUND,
	           "the size '%s' (axis %d of the input '%.200s') has no bounds", name, axis, v->name);
	diag_note(im->cx, LOC_NONE, "--dim=%s=1..512 says them, --dim=%s=16 one size", name, name);
	return NULL;
}

/* ---- inputs ---- */

/* The element type of an input or output by its number in TensorProto.DataType; false: tensors of the type are not
   supported. */
static bool input_type(int64_t type, enum ir_dtype *out)
{
	return onnx_dtype(type, out) && *out != DT_F64;
}

bool import_dtype(int64_t type, enum ir_dtype *out)
{
	bool is_known = onnx_dtype(type, out);
	if (is_known && ir_dtype_class(*out) == DTCLASS_FLOAT)
		*out = DT_F32;
	return is_known;
}

/* The table that a node looks up ids of operand i in; NULL: it does not. */
static const char *table_of(const struct onnx_node *node, size_t i)
{
	const struct onnx_attribute *axis = onnx_attribute(node, "axis");
	if (strcmp(node->op, "Gather") == 0 && node->inputs.n == 2 && i == 1 &&
	    (axis == NULL || axis->i == 0))
		return node->inputs.items[0];
	if (strcmp(node->op, "EmbedLayerNormalization") == 0 && node->inputs.n > 4 && i < 2)
		return node->inputs.items[i == 0 ? 2 : 4];
	return NULL;
}

/* The least number of rows of the tables that the ids of an input look up, following views and casts of it: the bound
   `below`, which the caller of the model is held to. 0: it looks up none. Nodes come after those that they read, so one
   pass follows all views. */
static int64_t ids_below(const struct importer *im, const char *name)
{
	int64_t below = 0;
	struct strmap same; /* the input, and what views make of it */
	strmap_init(&same, im->a);
	strmap_set(&same, name, (void *)(uintptr_t)im);
	for (size_t i = 0; i < im->onnx->graph.nodes.n; i++) {
		const struct onnx_node *node = &im->onnx->graph.nodes.items[i];
		const struct onnx_attribute *to = onnx_attribute(node, "to");
		bool is_view =
		        strcmp(node->op, "Reshape") == 0 || strcmp(node->op, "Identity") == 0 ||
		        (strcmp(node->op, "Cast") == 0 && to != NULL && (to->i == 6 || to->i == ONNX_INT64));
		if (is_view && node->inputs.n > 0 && node->outputs.n > 0 &&
		    strmap_has(&same, node->inputs.items[0]))
			strmap_set(&same, node->outputs.items[0], (void *)(uintptr_t)im);
		for (size_t k = 0; k < 2 && k < node->inputs.n; k++) {
			const char *table_name = table_of(node, k);
			const struct onnx_tensor *table =
			        table_name != NULL && strmap_has(&same, node->inputs.items[k])
			                ? strmap_get(&im->tensors, table_name)
			                : NULL;
			if (table != NULL && table->stored.rank > 0 &&
			    (below == 0 || table->stored.dims[0] < below))
				below = table->stored.dims[0];
		}
	}
	return below;
}

/* Adds an input of the graph to the model; its type and dims are those of the file, ids of tables are i32 with
   `below`. All sizes without bounds are reported, not only the first. */
static bool add_input(struct importer *im, struct strmap *bounds, const struct onnx_value *v)
{
	struct frontend_input *in = ARENA_PUSH(im->a, &im->m->inputs);
	if (in == NULL)
		return false;
	*in = (struct frontend_input){.name = import_name(im, v->name),
	                              .loc = im->loc,
	                              .rank = v->rank,
	                              .lengths_at = -1,
	                              .measures = -1};
	if (!v->has_shape || !input_type(v->type, &in->dtype))
		return import_refuse(im, "not supported: the input '%.200s', %s%s", v->name,
		                     v->type == 0 ? "no tensor" : onnx_type_name(v->type),
		                     v->has_shape ? "" : " without a rank");
	bool ok = true;
	for (int i = 0; i < v->rank; i++)
		ok = (in->dims[i] = input_size(im, bounds, v, i)) != NULL && ok;
	if (in->dtype == DT_I64 || in->dtype == DT_I32)
		in->below = ids_below(im, v->name);
	if (in->below > 0)
		in->dtype = DT_I32;
	im->failed = im->failed || !ok;
	return ok;
}

/* Reads --dim, declares the past unless --dim bounds it, then adds the inputs of the graph. Initializers of old files
   are listed as inputs, too, and skipped. A --dim that no input uses is an error. */
static bool add_inputs(struct importer *im, const struct frontend_options *options)
{
	struct strmap bounds;
	bool ok = true;
	strmap_init(&bounds, im->a);
	for (size_t i = 0; ok && i < options->n_dims; i++)
		ok = read_bound(im, &bounds, options->dims[i]);
	if (ok && im->past.size != NULL && !strmap_has(&bounds, im->past.size)) {
		struct size_bound *b = ARENA_NEW(im->a, struct size_bound);
		ok = b != NULL && past_declare(im);
		if (ok)
			*b = (struct size_bound){ir_dim_sym(im->m->scope.dims, im->past.size), true};
		strmap_set(&bounds, im->past.size, b);
	}
	for (size_t i = 0; ok && i < im->onnx->graph.inputs.n; i++)
		if (!strmap_has(&im->tensors, im->onnx->graph.inputs.items[i].name))
			add_input(im, &bounds, &im->onnx->graph.inputs.items[i]);
	for (size_t i = 0; ok && !im->failed && i < bounds.n; i++) {
		const struct size_bound *b = bounds.items[i].value;
		if (b->used)
			continue;
		diag_error(im->cx, LOC_NONE, DIAG_OPTION, "--dim=%s: no size of an input is called so",
		           bounds.items[i].key);
		ok = false;
	}
	im->failed = im->failed || !ok;
	return !im->failed &&
	       (im->m->inputs.n > 0 || import_refuse(im, "not supported: a graph without inputs"));
}

/* Inputs as values; floats of 16 bits are f32 from here on. Ids that are checked are i32 in the model; the file reads
   them as i64, so they have no name until a reader other than a table needs the cast. */
static bool bind_inputs(struct importer *im)
{
	size_t at = 0;
	for (size_t i = 0; i < im->onnx->graph.inputs.n && !im->failed; i++) {
		const struct onnx_value *given = &im->onnx->graph.inputs.items[i];
		if (strmap_has(&im->tensors, given->name))
			continue;
		const struct frontend_input *in = &im->m->inputs.items[at++];
		bool is_short = in->dtype == DT_F16 || in->dtype == DT_BF16;
		struct operand *v = import_operand(
		        im, is_short ? import_statement(im, in->name, "cast(%s, f32)", in->name) : in->name);
		if (v != NULL && in->below > 0) {
			v->ids = in;
			v->name = given->type == ONNX_INT64 ? NULL : v->name;
			v->dtype = given->type == ONNX_INT64 ? DT_I64 : v->dtype;
		}
		enum past_role role = past_role(im, given);
		if (role == PAST_MASK)
			(void)ARENA_ADDED(im->a, &im->past.masks, in->name);
		struct operand *positions = role == PAST_POSITIONS ? past_positions(im, v) : NULL;
		bind_value(im, given->name, positions != NULL ? positions : v);
	}
	return !im->failed;
}

/* ---- tensors of the file ---- */

#define KNOWN_INTS_MAX   4096
#define KNOWN_FLOATS_MAX 64

/* Elements of small tensors, for folding and literals; NULL: too many, or not readable. i64 is read exactly, not
   through a double. */
static const struct element *read_elements(struct importer *im, const struct stored_tensor *t, size_t n)
{
	bool is_float = ir_dtype_class(t->dtype) == DTCLASS_FLOAT;
	struct element *out = n <= (is_float ? KNOWN_FLOATS_MAX : KNOWN_INTS_MAX)
	                              ? ARENA_ARRAY(im->a, struct element, n + 1)
	                              : NULL;
	for (size_t i = 0; out != NULL && i < n; i++) {
		if (is_float)
			out[i].f = stored_element(t, i);
		else if (t->dtype == DT_I64)
			out[i].dim = ir_dim_const(
			        im->dims,
			        (int64_t)read_little_endian((const unsigned char *)t->data + 8 * i, 8));
		else
			out[i].dim = ir_dim_const(im->dims, (int64_t)stored_element(t, i));
	}
	return out;
}

/* Initializers as values. Small ones are known, for shape arithmetic and literals. Floats of any width count as f32:
   parameters and literals convert. */
static bool bind_tensors(struct importer *im)
{
	for (size_t i = 0; i < im->onnx->tensors.n && !im->failed; i++) {
		struct onnx_tensor *stored = im->onnx->tensors.items[i];
		const struct stored_tensor *t = weight_files_find(im->files, stored->stored.name);
		struct operand *v = ARENA_NEW(im->a, struct operand);
		if (v == NULL || t == NULL)
			return false;
		stored->stored = *t; /* with its data, where those are in another file */
		*v = (struct operand){.stored = stored, .dtype = t->dtype, .rank = t->rank, .n = 1};
		for (int k = 0; k < t->rank; k++) {
			v->dims[k] = ir_dim_const(im->dims, t->dims[k]);
			v->n *= (size_t)t->dims[k]; /* cannot overflow: the reader has checked the product */
		}
		if (t->readable && t->data != NULL)
			v->known = read_elements(im, t, v->n);
		if (ir_dtype_class(t->dtype) == DTCLASS_FLOAT)
			v->dtype = DT_F32;
		bind_value(im, t->name, v);
	}
	return !im->failed;
}

/* ---- nodes ---- */

struct operator
{
	const char *domain, *op, *text; /* text: of a TEMPLATE */
	import_operator *import;
};

static const struct operator operators[] = {
#define TEMPLATE(op, text)      {"", #op, text, NULL},
#define OPERATOR(op, function)  {"", #op, NULL, import_##function},
#define MICROSOFT(op, function) {"com.microsoft", #op, NULL, import_##function},
#include "frontend/onnx/ops.def"
};

/* An attribute that the import of an operator does not read may change the result: a later opset may have added it. */
static bool check_attributes(struct importer *im)
{
	for (size_t i = 0; i < im->node->attributes.n; i++)
		if (!im->node->attributes.items[i].is_read)
			return import_refuse(im, "not supported: the attribute '%.80s' of %s",
			                     im->node->attributes.items[i].name, im->node->op);
	return true;
}

/* Folds the node, or makes statements of it by its row of ops.def; nothing for one that is a part of another
   (import_fused). Folding is tried first: what is known needs no statement. */
static bool import_node(struct importer *im)
{
	const struct onnx_node *node = im->node;
	bool is_standard = node->domain[0] == '\0' || strcmp(node->domain, "ai.onnx") == 0;
	const char *domain = is_standard ? "" : node->domain;
	if (node->outputs.n == 0)
		return import_refuse(im, "%s without an output", node->op);
	if (strmap_has(&im->fused, node->outputs.items[0]))
		return true;
	for (size_t i = 0; i < node->inputs.n; i++)
		if (node->inputs.items[i][0] != '\0' && !strmap_has(&im->values, node->inputs.items[i]))
			return import_refuse(im, "no value is called '%.200s'", node->inputs.items[i]);
	if (is_standard && import_fold(im))
		return !im->failed && check_attributes(im);
	for (size_t i = 0; i < TFMC_COUNT(operators); i++)
		if (strcmp(operators[i].op, node->op) == 0 && strcmp(operators[i].domain, domain) == 0)
			return (operators[i].text != NULL ? import_template(im, operators[i].text)
			                                  : operators[i].import(im)) &&
			       check_attributes(im);
	return import_refuse(im, "not supported: the operator '%.80s%s%.80s'", node->domain,
	                     is_standard ? "" : ".", node->op);
}

/* Looks for rotary positions that end in the node (rotary.c): exporters end them in one of these operators. */
static void find_rotation(struct importer *im)
{
	static const char *const ops[] = {"Add", "Concat", "Reshape"};
	struct operand *v = strmap_get(&im->values, im->node->outputs.items[0]);
	for (size_t i = 0; v != NULL && i < TFMC_COUNT(ops); i++)
		if (strcmp(im->node->op, ops[i]) == 0 && im->node->domain[0] == '\0')
			import_rotation(im, v);
}

/* The node makes its first output. A value that is operand 0 (Identity, Cast between floats) keeps its maker, so that
 * patterns need not look for such nodes. */
static void add_maker(struct importer *im)
{
	const struct onnx_node *node = im->node;
	const char *in = node->inputs.n > 0 ? node->inputs.items[0] : "", *out = node->outputs.items[0];
	bool is_same =
	        strmap_has(&im->values, in) && strmap_get(&im->values, in) == strmap_get(&im->values, out);
	strmap_set(&im->makers, out, is_same ? strmap_get(&im->makers, in) : (void *)(uintptr_t)node);
	if (is_same && strmap_has(&im->past.presents, in))
		strmap_set(&im->past.presents, out, strmap_get(&im->past.presents, in));
}

/* All nodes in their order. The number of a node is the line of its diagnostics; in a branch it is that of the If. */
static bool import_nodes(struct importer *im, const struct onnx_graph *g)
{
	const struct onnx_node *around = im->node;
	const struct loc loc = im->loc;
	for (size_t i = 0; i < g->nodes.n && !im->failed; i++) {
		im->node = &g->nodes.items[i];
		im->loc.line = around == NULL ? (uint32_t)i + 1 : loc.line;
		im->loc.col = 1;
		if (!import_node(im) || arena_failed(im->a))
			im->failed = true;
		else {
			add_maker(im);
			find_rotation(im);
		}
	}
	im->node = around;
	im->loc = loc;
	return !im->failed;
}

/* The branch of a condition that is known, in place of the node: its nodes read values of the graph around it. */
bool import_if(struct importer *im)
{
	const struct onnx_attribute *then = attribute_of(im, "then_branch"),
	                            *otherwise = attribute_of(im, "else_branch"), *taken;
	int64_t holds;
	if (!operand_int(operand_needed(im, 0), 0, &holds))
		return import_refuse(im, "not supported: If with a condition that is not known at import");
	taken = holds != 0 ? then : otherwise;
	if (taken == NULL || taken->graph == NULL || taken->graph->outputs.n != im->node->outputs.n)
		return import_refuse(im, "If without a branch of %zu outputs", im->node->outputs.n);
	bool ok = import_nodes(im, taken->graph);
	for (size_t i = 0; ok && i < im->node->outputs.n; i++) {
		const char *name = taken->graph->outputs.items[i].name;
		ok = strmap_has(&im->values, name) ? import_alias(im, i, strmap_get(&im->values, name))
		                                   : import_refuse(im, "no value is called '%.200s'", name);
	}
	return ok;
}

/* The nodes of the file, unless it has a property that is refused as a whole. */
static bool import_main(struct importer *im)
{
	if (im->onnx->has_sparse)
		return import_refuse(im, "not supported: sparse initializers");
	if (im->onnx->graph.outputs.n == 0)
		return import_refuse(im, "not supported: a graph without outputs");
	return import_nodes(im, &im->onnx->graph);
}

/* ---- the model file ---- */

/* The value of an output, in the type of the file. */
static const char *output_value(struct importer *im, const struct onnx_value *o)
{
	struct operand *v = strmap_get(&im->values, o->name);
	enum ir_dtype dtype;
	if (v == NULL) {
		import_refuse(im, "no value is called '%.200s', an output", o->name);
		return "";
	}
	const char *name = operand_tensor(im, v);
	if (!input_type(o->type, &dtype) || dtype == v->dtype)
		return name;
	return import_statement(im, o->name, "cast(%s, %s)", name, ir_dtype_name(dtype));
}

/* The section `outputs`, with names of the language that differ from each other; keys and values that the state has
   are no outputs. Returns their number, and the name of the last one in *last. */
static size_t write_outputs(struct importer *im, struct buf *out, const char **last)
{
	struct strmap taken;
	strmap_init(&taken, im->a);
	buf_str(out, "outputs:\n");
	for (size_t i = 0; i < im->onnx->graph.outputs.n; i++) {
		const char *stem = language_name(im->a, im->onnx->graph.outputs.items[i].name), *name = stem,
		           *past = NULL;
		(void)import_past(im, im->onnx->graph.outputs.items[i].name, &past);
		if (past != NULL)
			continue;
		for (int k = 2; strmap_has(&taken, name); k++)
			name = import_text(im, "%s_%d", stem, k);
		strmap_set(&taken, name, im);
		const char *value = output_value(im, &im->onnx->graph.outputs.items[i]);
		strmap_set(&im->live, value, im);
		buf_printf(out, "  %s: %s\n", name, value);
		*last = name;
	}
	return taken.n;
}

/* Marks the names and paths of an expression. */
static void mark_live(struct importer *im, const struct expr *e)
{
	if (e->kind == EX_NAME || e->kind == EX_STRING)
		strmap_set(&im->live, e->text, im);
	for (size_t i = 0; i < expr_n_children(e); i++)
		mark_live(im, expr_child(e, i));
}

/* Marks statements whose results are read, from the outputs back. Others have become a part of later ones, or were
   known. One pass backwards suffices: a statement reads earlier ones alone. */
static void find_live(struct importer *im)
{
	for (size_t i = im->statements.n; i-- > 0;) {
		struct statement *s = &im->statements.items[i];
		for (size_t k = 0; k < s->st->n_targets; k++)
			s->is_live = s->is_live || strmap_has(&im->live, s->st->targets[k].name);
		for (size_t k = 0; s->is_live && k < s->st->n_values; k++)
			mark_live(im, s->st->values[k]);
	}
}

/* The section `graph`: live statements, with a comment where those of another block of the exporter begin; characters
   that do not print are _. */
static void write_statements(const struct importer *im, struct buf *out)
{
	const char *scope = "";
	for (size_t i = 0; i < im->statements.n; i++) {
		const struct statement *s = &im->statements.items[i];
		if (!s->is_live)
			continue;
		buf_str(out, strcmp(s->scope, scope) != 0 && s->scope[0] != '\0' ? "  # " : "");
		for (const char *p = s->scope; strcmp(s->scope, scope) != 0 && *p != '\0'; p++)
			buf_printf(out, "%c%s", isprint((unsigned char)*p) ? *p : '_',
			           p[1] == '\0' ? "\n" : "");
		scope = s->scope;
		buf_printf(out, "  - %s\n", s->text);
	}
}

/* The sections `dims` and `inputs`. With a state, the dim of the past and inputs that nothing reads (past, mask,
   positions) are left out. */
static void write_inputs(struct importer *im, struct buf *out)
{
	const struct ir_dims *dims = im->m->scope.dims;
	const char *head = "dims:\n";
	for (size_t i = 0; i < ir_dims_count(dims); i++) {
		const struct ir_dim_sym *s = ir_dims_sym(dims, i);
		if (im->past.is_state && strcmp(s->name, im->past.size) == 0)
			continue;
		buf_printf(out, "%s  %s: %lld..%lld\n", head, s->name, (long long)s->lo, (long long)s->hi);
		head = "";
	}
	buf_str(out, im->m->inputs.n > 0 ? "inputs:\n" : "inputs: {}\n");
	for (size_t i = 0; i < im->m->inputs.n; i++) {
		const struct frontend_input *in = &im->m->inputs.items[i];
		if (im->past.is_state && !strmap_has(&im->live, in->name))
			continue;
		buf_printf(out, "  %s: {shape: [", in->name);
		for (int k = 0; k < in->rank; k++)
			buf_printf(out, "%s%s", k > 0 ? ", " : "",
			           ir_dim_to_string(im->a, dims, in->dims[k], false));
		buf_printf(out, "], dtype: %s", ir_dtype_name(in->dtype));
		if (in->below > 0)
			buf_printf(out, ", below: %lld", (long long)in->below);
		buf_str(out, "}\n");
	}
}

/* A live statement reads the parameter by its path, or its layer by the path without ".weight" or ".bias". */
static bool is_read(const struct importer *im, const struct parameter *p)
{
	const char *dot = strrchr(p->path, '.');
	return strmap_has(&im->live, p->path) ||
	       (dot != NULL && strmap_has(&im->live, arena_strndup(im->a, p->path, (size_t)(dot - p->path))));
}

/* The section `weights`: the file, the map of paths to sources where they differ, and under `ignore` the tensors that
   shape arithmetic, literals or dead statements leave unread, so that every other one must be used. Without a
   parameter there is no section. */
static void write_weights(struct importer *im, struct buf *out)
{
	const char *separator = "", *head = "  map:\n";
	struct strmap used;
	strmap_init(&used, im->a);
	for (size_t i = 0; i < im->parameters.n; i++)
		if (is_read(im, &im->parameters.items[i])) {
			strmap_set(&used, im->parameters.items[i].tensor, im);
			if (im->parameters.items[i].also != NULL)
				strmap_set(&used, im->parameters.items[i].also, im);
		}
	if (used.n == 0)
		return;
	buf_printf(out, "weights:\n  files: [%s]\n", yaml_quote(im->a, im->file));
	for (size_t i = 0; i < im->parameters.n; i++) {
		const struct parameter *p = &im->parameters.items[i];
		if (!is_read(im, p) || (strcmp(p->path, p->tensor) == 0 && p->source[0] != '{'))
			continue;
		buf_printf(out, "%s    %s: %s\n", head, yaml_quote(im->a, p->path), p->source);
		head = "";
	}
	buf_str(out, "  ignore: [");
	for (size_t i = 0; i < im->onnx->tensors.n; i++) {
		const char *name = im->onnx->tensors.items[i]->stored.name;
		struct buf pattern;
		if (strmap_has(&used, name))
			continue;
		buf_init(&pattern);
		for (const char *p = name; *p != '\0'; p++)
			buf_char(&pattern, strchr("*?{},[]\\", *p) != NULL ? '?' : *p); /* ?: any */
		buf_printf(out, "%s%s", separator, yaml_quote(im->a, pattern.data));
		buf_destroy(&pattern);
		separator = ",\n    ";
	}
	buf_str(out, "]\n");
}

/* Reads the whole graph; the model file as text in `a`, NULL after a diagnostic. Outputs are written first: they mark
   what is live, which decides the other sections. */
static const char *import_graph(struct importer *im, struct arena *a, const char *name,
                                const struct frontend_options *options)
{
	struct buf head, graph, outputs;
	const char *text = NULL, *logits = NULL;
	collect_uses(im, &im->onnx->graph);
	past_find(im);
	for (size_t i = 0; i < im->onnx->tensors.n; i++)
		strmap_set(&im->tensors, im->onnx->tensors.items[i]->stored.name, im->onnx->tensors.items[i]);
	if (!add_inputs(im, options) || (im->lw = lower_begin_inference(im->m)) == NULL)
		return NULL;
	im->dims = im->lw->module->dims;
	buf_init(&head);
	buf_init(&graph);
	buf_init(&outputs);
	if (bind_tensors(im) && bind_inputs(im) && import_main(im)) {
		size_t n_outputs = write_outputs(im, &outputs, &logits);
		find_live(im);
		write_statements(im, &graph);
		past_write(im, logits, n_outputs, &outputs);
		buf_printf(&head, "tfmc: 1\nname: %s\n", name);
		write_inputs(im, &head);
		if (im->keeps_quants)
			buf_str(&head, "dtype: {compute: f32}\n");
		buf_printf(&head, "graph:%s\n%s", graph.len > 0 ? "" : " []",
		           graph.len > 0 ? graph.data : "");
		buf_append(&head, &outputs);
		write_weights(im, &head);
		text = im->failed || buf_failed(&head) ? NULL : arena_strdup(a, head.data);
	}
	buf_destroy(&head);
	buf_destroy(&graph);
	buf_destroy(&outputs);
	return text;
}

/* A model that has dims and inputs alone: the inference of types lowers statements against it. It has no tokens (-1),
   and weights keep the types of the file. NULL: no memory. */
static struct frontend_model *create_scratch(struct diag_context *cx)
{
	struct frontend_model *m = memory_zeroed(1, sizeof(*m));
	if (m == NULL)
		return NULL;
	arena_init(&m->arena);
	m->cx = cx;
	m->name = "onnx";
	m->tokens = -1;
	m->dtypes.keeps_weights = true;
	m->scope = (struct model_scope){.arena = &m->arena, .cx = cx, .dims = ir_dims_create(&m->arena)};
	strmap_init(&m->scope.params, &m->arena);
	strmap_init(&m->scope.names, &m->arena);
	strmap_init(&m->weights.resolved, &m->arena);
	strmap_init(&m->weights.unquantized, &m->arena);
	return m;
}

/* The name of the model: --name, or that of the file. */
static const char *model_name_of(struct arena *a, const char *base, const struct frontend_options *options)
{
	size_t n = strlen(base), end = strlen(".onnx");
	if (options->name != NULL)
		return options->name;
	return language_name(a,
	                     arena_strndup(a, base, n > end && file_ends_with(base, ".onnx") ? n - end : n));
}

/* Reads the graph of the mapped file, and opens it again as a weight file, where the tensors and their external data
   are, and those that its reader makes of quants. im->file is the name of the file under weights.files: its own name in
   `at`, the directory as the model file will see it. The text; NULL, with the reason in *st, after a diagnostic. */
static const char *import_file(struct importer *im, struct arena *a, const char *path, const char *at,
                               const struct frontend_options *options, const struct file_map *map,
                               enum tfmc_status *st)
{
	const struct stored_source src = {im->a, im->cx, path, LOC_NONE, map->data, map->len, false};
	const char *slash = strrchr(path, '/'), *base = slash == NULL ? path : slash + 1;
	struct onnx_model onnx;
	*st = onnx_read_model(&src, &onnx);
	if (*st != TFMC_OK)
		return NULL;
	im->files = weight_files_create(im->a, im->cx, NULL);
	*st = im->files != NULL ? weight_files_open(im->files, NULL, path, LOC_NONE) : TFMC_NO_MEMORY;
	if (*st != TFMC_OK) {
		weight_files_destroy(im->files);
		return NULL;
	}
	im->onnx = &onnx;
	im->file = file_join(im->a, at, base);
	const char *text = import_graph(im, a, model_name_of(im->a, base, options), options);
	lower_end_inference(im->lw);
	weight_files_destroy(im->files);
	*st = text != NULL ? TFMC_OK : arena_failed(im->a) && !im->failed ? TFMC_NO_MEMORY : TFMC_INVALID;
	return text;
}

bool onnx_is_file(struct diag_context *cx, const char *path)
{
	char head[3];
	size_t n = file_head(cx, path, head, sizeof(head));
	return n > 0 && (file_ends_with(path, ".onnx") || onnx_has_magic((const unsigned char *)head, n));
}

/* All of the import is in the arena of a scratch model, which ends with this call; only the text is in `a`. */
const char *onnx_model_text(struct arena *a, struct diag_context *cx, const char *path, const char *at,
                            const struct frontend_options *options, enum tfmc_status *st)
{
	struct file_map map;
	struct importer im = {.cx = cx, .m = create_scratch(cx)};
	const char *text = NULL;
	*st = TFMC_NO_MEMORY;
	if (im.m == NULL)
		return NULL;
	im.a = &im.m->arena;
	im.loc.source = diag_add_source(cx, path, NULL, 0);
	strmap_init(&im.values, im.a);
	strmap_init(&im.names, im.a);
	strmap_init(&im.tensors, im.a);
	strmap_init(&im.paths, im.a);
	strmap_init(&im.live, im.a);
	strmap_init(&im.makers, im.a);
	strmap_init(&im.past.appends, im.a);
	strmap_init(&im.past.presents, im.a);
	strmap_init(&im.uses, im.a);
	strmap_init(&im.readers, im.a);
	strmap_init(&im.fused, im.a);
	*st = file_map_open(cx, path, LOC_NONE, &map);
	if (*st == TFMC_OK) {
		text = import_file(&im, a, path, at, options, &map, st);
		file_map_close(&map);
	}
	arena_destroy(im.a);
	memory_free(im.m);
	return text;
}
