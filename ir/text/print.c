/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text of modules, functions and ops, see text.h and the grammar in ir/text.md. Ops are printed by their descriptors;
 * repeat and group have forms of their own. Attributes with their default value are left out. Deterministic: in order
 * of declaration, without addresses.
 */
#include "ir/core/case.h"
#include "ir/core/names.h"
#include "ir/support/strmap.h"
#include "ir/text/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The locations of a text, which follow its functions. Each is called after its line in the model, so that a pass that
 * removes ops does not change the names of the others. */
struct aliases {
	struct buf *out;
	const struct diag_context *cx; /* NULL: the text has no locations */
	const struct ir_module *m;
	struct arena arena;
	struct strmap names; /* "model.yaml":24:7 "encoder.layers" -> loc24 */
	struct strmap used;  /* the names, see unique_name */
	struct {
		const char **items; /* the keys of `names`, in the order of first use */
		size_t n, cap;
	} order;
};

/* The function being printed. */
struct printer {
	struct buf *out;
	struct aliases *locs;
	const struct ir_module *m;
	const struct ir_func *f;
	struct arena arena; /* of the names */
	bool is_plain;      /* numbers in place of names */
	const char **names; /* [f->n_values] without the %; NULL: printed in place or unknown */
};

static void print_region(const struct printer *p, const struct ir_region *r, int indent);

/* Returns the name, or if it is used, the name with the first free suffix `.1`, `.2`. `used` stores the next suffix of
 * each name, so that n values with one name do not each search from .1 again. */
static const char *unique_name(struct arena *a, struct strmap *used, const char *name)
{
	uintptr_t suffix = (uintptr_t)strmap_get(used, name);
	const char *unique = name;
	if (suffix != 0) {
		do
			unique = arena_printf(a, "%s.%zu", name, (size_t)suffix++);
		while (strmap_has(used, unique) && !arena_failed(a));
	}
	/* a counter, not an address: strmap holds pointers; from 1, since 0 is absence */
	strmap_set(used, name, (void *)(suffix == 0 ? 1 : suffix));
	if (unique != name)
		strmap_set(used, unique, (void *)(uintptr_t)1);
	return unique;
}

/* ---- names of values ---- */

/*
 * A value is printed with its name (ir_value_name), made unique by `.1`, `.2`, or with a number. Names are assigned in
 * the order in which the text defines the values, so parsing the text assigns the same ones. Weight references have no
 * name, they are printed where they are used.
 */
struct naming {
	struct printer *p;
	struct strmap used; /* see unique_name */
	unsigned next;      /* next number */
};

/* Names a value; without a name, with one that reads as a number, or with is_plain, by the next number. */
static void name_value(struct naming *n, struct ir_value v)
{
	struct printer *p = n->p;
	if (v.id == 0 || v.id >= p->f->n_values || p->names == NULL)
		return;
	const char *name = p->is_plain ? NULL : ir_value_name(&p->arena, p->f, v);
	if (name == NULL || ir_name_is_number(name))
		p->names[v.id] = arena_printf(&p->arena, "%u", n->next++);
	else
		p->names[v.id] = unique_name(&p->arena, &n->used, name);
}

/* Names the arguments of a region and the results of its ops, in the order of the text. Weight references have
 * no name. */
static void name_region(struct naming *n, const struct ir_region *r)
{
	for (size_t i = 0; i < r->n_args; i++)
		name_value(n, r->args[i]);
	for (size_t i = 0; i < r->n_ops; i++) {
		const struct ir_op *op = r->ops[i];
		if (op->code == OP_weight)
			continue;
		for (size_t k = 0; k < op->n_results; k++)
			name_value(n, op->results[k]);
		if (op->region != NULL)
			name_region(n, op->region);
	}
}

/* Initializes p and names all values of f; printing needs no further state. arena_destroy(&p->arena) ends it. */
static void printer_begin(struct printer *p, struct aliases *locs, const struct ir_func *f, bool is_plain)
{
	*p = (struct printer){.out = locs->out, .locs = locs, .m = locs->m, .f = f, .is_plain = is_plain};
	arena_init(&p->arena);
	p->names = ARENA_ARRAY(&p->arena, const char *, f->n_values);
	struct naming n = {.p = p};
	strmap_init(&n.used, &p->arena);
	if (f->body != NULL)
		name_region(&n, f->body);
}

/* A number is printed without quotes, which ir_print_name would add. */
static void print_value_name(const struct printer *p, struct ir_value v)
{
	const char *name = p->names != NULL ? p->names[v.id] : NULL;
	if (name != NULL && ir_name_is_number(name))
		buf_printf(p->out, "%%%s", name);
	else
		ir_print_name(p->out, '%', name != NULL ? name : "?");
}

/* @name[%l] #panel16, the encoding of the weight repeated unless it is row. */
static void print_weight_ref(const struct printer *p, const struct ir_op *op)
{
	const struct ir_weight *w = ((const struct attrs_weight *)op->attrs)->weight;
	ir_print_name(p->out, '@', w->name);
	for (size_t i = 0; i < op->n_operands; i++) {
		buf_char(p->out, i == 0 ? '[' : ',');
		print_value_name(p, op->operands[i]);
	}
	if (op->n_operands > 0)
		buf_char(p->out, ']');
	if (w->encoding != ENC_ROW)
		buf_printf(p->out, " #%s", ir_encoding_name(w->encoding));
}

/* Prints an operand: %name, a weight reference in place, or %"?" for an invalid id, since invalid functions are
 * printed, too. */
static void print_value(const struct printer *p, struct ir_value v)
{
	if (v.id == 0 || v.id >= p->f->n_values)
		buf_str(p->out, "%\"?\"");
	else if (ir_def_as(p->f, v, OP_weight) != NULL)
		print_weight_ref(p, ir_def(p->f, v));
	else
		print_value_name(p, v);
}

static void print_values(const struct printer *p, const struct ir_value *v, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		buf_str(p->out, i > 0 ? ", " : "");
		print_value(p, v[i]);
	}
}

/* ---- locations ---- */

static void aliases_begin(struct aliases *l, struct buf *out, const struct diag_context *cx,
                          const struct ir_module *m)
{
	*l = (struct aliases){.out = out, .cx = cx, .m = m};
	arena_init(&l->arena);
	strmap_init(&l->names, &l->arena);
	strmap_init(&l->used, &l->arena);
}

/* Prints the definitions, `#loc24 = loc("model.yaml":24:7 "encoder.layers")`. Without memory for names the output is
 * marked as failed. */
static void aliases_end(struct aliases *l)
{
	buf_str(l->out, l->order.n > 0 ? "\n" : "");
	for (size_t i = 0; i < l->order.n; i++)
		buf_printf(l->out, "#%s = loc(%s)\n", (const char *)strmap_get(&l->names, l->order.items[i]),
		           l->order.items[i]);
	if (arena_failed(&l->arena))
		l->out->failed = true;
	arena_destroy(&l->arena);
}

/* The alias of a location with the text `key`: loc and its line, made unique; a new one is listed for aliases_end. */
static const char *alias_of(struct aliases *l, const char *key, struct ir_loc loc)
{
	const char *name = strmap_get(&l->names, key);
	if (name != NULL)
		return name;
	name = loc.at.source != 0 ? arena_printf(&l->arena, "loc%" PRIu32, loc.at.line) : "loc";
	name = unique_name(&l->arena, &l->used, name);
	key = arena_strdup(&l->arena, key);
	strmap_set(&l->names, key, (void *)(uintptr_t)name);
	ARENA_ADD(&l->arena, &l->order, key);
	return name;
}

/* ` loc(#loc24)`; nothing for locations in the module's own .tir, which the parser sets anyway, or without cx. */
static void print_loc(struct aliases *l, struct ir_loc loc)
{
	bool place = loc.at.source != 0;
	struct buf key;
	if (l->cx == NULL || (place && loc.at.source == l->m->tir_source) || (!place && loc.path == NULL))
		return;
	buf_init(&key);
	if (place) {
		buf_quoted(&key, diag_source_name(l->cx, loc.at.source));
		buf_printf(&key, ":%" PRIu32 ":%" PRIu32, loc.at.line, loc.at.col);
	}
	if (loc.path != NULL) {
		buf_str(&key, place ? " " : "");
		buf_quoted(&key, loc.path);
	}
	l->out->failed = l->out->failed || buf_failed(&key);
	buf_printf(l->out, " loc(#%s)", alias_of(l, key.data, loc));
	buf_destroy(&key);
}

/* ---- attributes ---- */

/* Attributes of group that its form shows elsewhere: after the word `group`, before the line of the root, and after
 * the body. */
static bool is_printed_elsewhere(const struct ir_op *op, const char *name)
{
	return op->code == OP_group &&
	       (strcmp(name, "kind") == 0 || strcmp(name, "root") == 0 || strcmp(name, "at") == 0);
}

/* ` {name=value ...}`; nothing if all attributes have their defaults. */
static void print_attrs(const struct printer *p, const struct ir_op *op)
{
	bool any = false;
	if (op->attrs == NULL)
		return;
	for (const struct ir_attr_desc *d = ir_op_desc(op->code)->attrs; d->name != NULL; d++) {
		const void *a = (const char *)op->attrs + d->offset;
		if (ir_attr_is_default(d, a) || is_printed_elsewhere(op, d->name))
			continue;
		buf_str(p->out, any ? " " : " {");
		ir_attr_print(p->out, p->m->dims, d, a);
		any = true;
	}
	if (any)
		buf_char(p->out, '}');
}

/* ---- ops ---- */

/* `%a, name=%b`: operands after an absent one are named, as their position no longer tells. d stays at a variadic
 * operand. */
static void print_operands(const struct printer *p, const struct ir_op *op)
{
	const struct ir_operand_desc *d = ir_op_desc(op->code)->operands;
	bool gap = false, any = false;
	for (size_t i = 0; i < op->n_operands; i++) {
		if (op->operands[i].id != 0) {
			buf_str(p->out, any ? ", " : " ");
			if (gap)
				buf_printf(p->out, "%s=", d->name);
			print_value(p, op->operands[i]);
			any = true;
		} else {
			gap = true;
		}
		if (d->name != NULL && d->kind != OPERAND_VARIADIC)
			d++;
	}
}

/* ` %l = 0 to 6 carry (%x = %x0)` */
static void print_repeat_head(const struct printer *p, const struct ir_op *op)
{
	const struct attrs_repeat *a = op->attrs;
	const struct ir_region *r = op->region;
	buf_char(p->out, ' ');
	print_value(p, r->args[REPEAT_INDEX]);
	buf_printf(p->out, " = 0 to %" PRId64 " carry (", a->count);
	for (size_t i = 0; i < op->n_operands; i++) {
		buf_str(p->out, i > 0 ? ", " : "");
		print_value(p, r->args[i + 1]);
		buf_str(p->out, " = ");
		print_value(p, op->operands[i]);
	}
	buf_char(p->out, ')');
}

/* ` { ... }` with the ops of the region indented by two; after that of a group its offsets, ` at [0]`, where the
 * parser reads them. */
static void print_body(const struct printer *p, const struct ir_op *op, int indent)
{
	buf_str(p->out, " {\n");
	print_region(p, op->region, indent + 2);
	buf_fill(p->out, ' ', (size_t)indent);
	buf_char(p->out, '}');
	if (op->code != OP_group)
		return;
	const struct attrs_group *a = op->attrs;
	if (a->at.n > 0) {
		buf_str(p->out, " at ");
		ir_dims_print(p->out, p->m->dims, &a->at, ", ");
	}
}

/* The op with its region, ending in a newline. `prefix`: pre, root or post in groups. A terminator has the location
 * of its owner, so it prints none. */
static void print_op(const struct printer *p, const struct ir_op *op, int indent, const char *prefix)
{
	buf_fill(p->out, ' ', (size_t)indent);
	buf_str(p->out, prefix);
	print_values(p, op->results, op->n_results);
	buf_str(p->out, op->n_results > 0 ? " = " : "");
	buf_str(p->out, ir_op_desc(op->code)->name);
	if (op->code == OP_repeat) {
		print_repeat_head(p, op);
	} else if (op->code == OP_group) {
		buf_printf(p->out, " %s",
		           ir_keyword(KEYWORDS_GROUP, ((const struct attrs_group *)op->attrs)->kind));
		print_attrs(p, op);
	} else {
		print_operands(p, op);
		print_attrs(p, op);
	}
	if (op->region != NULL)
		print_body(p, op, indent);
	for (size_t i = 0; i < op->n_results; i++) {
		buf_str(p->out, i == 0 ? " : " : ", ");
		ir_type_print(p->out, p->m->dims, ir_type_of(p->f, op->results[i]));
	}
	if (!ir_op_has(op->code, TRAIT_TERMINATOR))
		print_loc(p->locs, op->loc);
	buf_char(p->out, '\n');
}

/* pre, root or post, for the op at position i of a group; all of one length, so that lines are aligned. Terminators
 * have none. */
static const char *group_prefix(const struct ir_region *r, size_t i)
{
	if (r->owner == NULL || r->owner->code != OP_group || ir_op_has(r->ops[i]->code, TRAIT_TERMINATOR))
		return "";
	const struct attrs_group *a = r->owner->attrs;
	if ((int64_t)i == a->root)
		return "root ";
	return (int64_t)i < a->root ? "pre  " : "post ";
}

static void print_region(const struct printer *p, const struct ir_region *r, int indent)
{
	for (size_t i = 0; i < r->n_ops; i++)
		if (r->ops[i]->code != OP_weight)
			print_op(p, r->ops[i], indent, group_prefix(r, i));
}

/* ---- declarations ---- */

/* The first stage is the default of the parser. */
static const char *stage_suffix(enum ir_stage stage)
{
	switch (stage) {
	case STAGE_GRAPH: return "";
	case STAGE_GROUPS: return " stage=groups";
	case STAGE_PLAN: return " stage=plan";
	}
	return "";
}

/* `weight @w : f32[2,3] #panel16 as q8 = expression loc(#loc24)`, what is default left out. */
static void print_weight(struct aliases *l, const struct ir_weight *w)
{
	struct buf *out = l->out;
	buf_str(out, "weight ");
	ir_print_name(out, '@', w->name);
	buf_str(out, " : ");
	ir_type_print(out, l->m->dims, w->type);
	if (w->encoding != ENC_ROW)
		buf_printf(out, " #%s", ir_encoding_name(w->encoding));
	if (w->format != FORMAT_PLAIN)
		buf_printf(out, " as %s", ir_format(w->format)->name);
	if (w->init != NULL) {
		buf_str(out, " = ");
		wexpr_print(out, w->init);
	}
	print_loc(l, w->loc);
	buf_char(out, '\n');
}

/* The line of the module and the declarations of dims, weights and states. The encoding of a state is always
 * printed. */
static void print_header(struct aliases *l)
{
	const struct ir_module *m = l->m;
	struct buf *out = l->out;
	buf_str(out, "module ");
	buf_quoted(out, m->name);
	buf_printf(out, "%s\n", stage_suffix(m->stage));
	for (size_t i = 0; i < ir_dims_count(m->dims); i++) {
		const struct ir_dim_sym *s = ir_dims_sym(m->dims, i);
		buf_printf(out, "dim %s in [%" PRId64 ",%" PRId64 "]\n", s->name, s->lo, s->hi);
	}
	for (size_t i = 0; i < m->weights.n; i++)
		print_weight(l, m->weights.items[i]);
	for (size_t i = 0; i < m->states.n; i++) {
		const struct ir_state_decl *s = m->states.items[i];
		buf_str(out, "state ");
		ir_print_name(out, '@', s->name);
		buf_str(out, " : ");
		ir_type_print(out, m->dims, s->type);
		buf_printf(out, " #%s", ir_encoding_name(s->encoding));
		print_loc(l, s->loc);
		buf_char(out, '\n');
	}
}

/* ---- functions ---- */

/* ` {` before the first property, ` ` before the others. */
static void begin_property(struct buf *out, bool *any)
{
	buf_str(out, *any ? " " : " {");
	*any = true;
}

static void print_lengths(const struct printer *p, int lengths, bool *any)
{
	if (lengths < 0 || (size_t)lengths >= p->f->n_params)
		return;
	begin_property(p->out, any);
	buf_str(p->out, "lengths=");
	print_value(p, p->f->params[lengths].value);
}

/* The role of an input is the default. */
static void print_role(const struct printer *p, enum ir_param_role role, bool *any)
{
	switch (role) {
	case ROLE_INPUT: break;
	case ROLE_PAST:
		begin_property(p->out, any);
		buf_str(p->out, "role=past");
		break;
	}
}

/* `%x: i32[B,S] {below=51 lengths=%n}`; begin_property writes the brace before the first property. A default is a
 * dim or, without default_value, a float `fill`. */
static void print_param(const struct printer *p, const struct ir_param *param)
{
	bool any = false;
	print_value(p, param->value);
	buf_str(p->out, ": ");
	ir_type_print(p->out, p->m->dims, ir_type_of(p->f, param->value));
	print_role(p, param->role, &any);
	if (param->below > 0) {
		begin_property(p->out, &any);
		buf_printf(p->out, "below=%" PRId64, param->below);
	}
	print_lengths(p, param->lengths, &any);
	if (param->has_default && param->default_value != NULL) {
		begin_property(p->out, &any);
		buf_str(p->out, "default=");
		ir_dim_print(p->out, p->m->dims, param->default_value, true);
	}
	if (param->has_default && param->default_value == NULL) {
		begin_property(p->out, &any);
		buf_str(p->out, "fill=");
		buf_f64(p->out, param->fill);
	}
	if (param->max != NULL) {
		begin_property(p->out, &any);
		buf_str(p->out, "max=");
		ir_dim_print(p->out, p->m->dims, param->max, true);
	}
	buf_str(p->out, any ? "}" : "");
}

/* True if the text form can have s as a name without quotes: ir_print_name does not quote it. */
static bool is_unquoted(const char *s)
{
	struct buf text;
	buf_init(&text);
	ir_print_name(&text, '%', s);
	bool plain = text.len > 1 && text.data[1] != '"';
	buf_destroy(&text);
	return plain;
}

/* `y: f32[B,S,8] {lengths=%n}` of result i, whose type is that of the operand of `return`. The name is a word for
 * the parser if it needs no quotes as %name. */
static void print_result(const struct printer *p, size_t i)
{
	const struct ir_result *r = &p->f->results[i];
	const struct ir_op *last = p->f->body->ops[p->f->body->n_ops - 1];
	bool any = false;
	if (r->name != NULL) {
		if (is_unquoted(r->name))
			buf_str(p->out, r->name);
		else
			buf_quoted(p->out, r->name);
		buf_str(p->out, ": ");
	}
	ir_type_print(p->out, p->m->dims, ir_type_of(p->f, last->operands[i]));
	print_role(p, r->role, &any);
	print_lengths(p, r->lengths, &any);
	buf_str(p->out, any ? "}" : "");
}

/* `func @f(..) -> (..) case .. arena=.. loc(#loc1)` */
static void print_signature(const struct printer *p)
{
	const struct ir_func *f = p->f;
	buf_str(p->out, "func ");
	ir_print_name(p->out, '@', f->name);
	buf_char(p->out, '(');
	for (size_t i = 0; i < f->n_params; i++) {
		buf_str(p->out, i > 0 ? ", " : "");
		print_param(p, &f->params[i]);
	}
	buf_str(p->out, ") -> (");
	for (size_t i = 0; i < f->n_results; i++) {
		buf_str(p->out, i > 0 ? ", " : "");
		print_result(p, i);
	}
	buf_char(p->out, ')');
	if (f->when != NULL) {
		buf_char(p->out, ' ');
		ir_case_print(p->out, p->m, f->when);
	}
	if (f->arena != NULL) {
		buf_str(p->out, " arena=");
		ir_dim_print(p->out, p->m->dims, f->arena, true);
	}
	print_loc(p->locs, f->loc);
}

/* Prints a function; is_plain: values get numbers and not names. Without memory for names the output is marked
 * as failed. */
static void print_func(struct aliases *l, const struct ir_func *f, bool is_plain)
{
	struct printer p;
	printer_begin(&p, l, f, is_plain);
	print_signature(&p);
	buf_str(p.out, " {\n");
	print_region(&p, f->body, 2);
	buf_str(p.out, "}\n");
	if (arena_failed(&p.arena))
		p.out->failed = true;
	arena_destroy(&p.arena);
}

void ir_print_func(struct buf *out, const struct diag_context *cx, const struct ir_module *m,
                   const struct ir_func *f)
{
	struct aliases l;
	aliases_begin(&l, out, cx, m);
	print_func(&l, f, false);
	aliases_end(&l);
}

/* Declarations, then functions after a blank line, then the locations that they used. */
static void print_module(struct buf *out, const struct diag_context *cx, const struct ir_module *m,
                         bool is_plain)
{
	struct aliases l;
	aliases_begin(&l, out, cx, m);
	print_header(&l);
	for (size_t i = 0; i < m->funcs.n; i++) {
		buf_char(out, '\n');
		print_func(&l, m->funcs.items[i], is_plain);
	}
	aliases_end(&l);
}

void ir_print(struct buf *out, const struct diag_context *cx, const struct ir_module *m)
{
	print_module(out, cx, m, false);
}
/* Without cx no locations are printed. */
uint64_t ir_structure_hash(const struct ir_module *m)
{
	struct buf text;
	buf_init(&text);
	print_module(&text, NULL, m, true);
	uint64_t hash = hash_bytes64(HASH64_SEED, text.data, text.len);
	buf_destroy(&text);
	return hash;
}

/* ---- the op reference ---- */

/* The op reference as a Markdown table, generated from ir/core/ops.def: the file ir/ops.md. */

/* As the reference writes operand classes. */
static const char *class_name(enum ir_operand_class class)
{
	switch (class) {
	case CLASS_ANY: return "any";
	case CLASS_FLOAT: return "float";
	case CLASS_INT: return "int";
	case CLASS_I32: return "i32";
	case CLASS_BOOL: return "bool";
	case CLASS_NUMBER: return "number";
	case CLASS_STATE: return "state";
	}
	return "";
}

static void print_operand_descs(struct buf *out, const struct ir_operand_desc *d)
{
	for (size_t i = 0; d[i].name != NULL; i++)
		buf_printf(out, "%s%s%s: %s%s", i > 0 ? ", " : "", d[i].name,
		           d[i].kind == OPERAND_OPTIONAL ? "?" : "", class_name(d[i].class),
		           d[i].kind == OPERAND_VARIADIC ? " ..." : "");
}

/* `none* causal`, the default with a star. */
static void print_keywords(struct buf *out, const struct ir_attr_desc *d)
{
	for (int i = 0; i < ir_keyword_count(d->words); i++)
		buf_printf(out, "%s%s%s", i > 0 ? " " : "", ir_keyword(d->words, i),
		           i == (int)d->int_default ? "*" : "");
}

/* An attribute as in the text: with its default if it has one, else with its kind. */
static void print_attribute(struct buf *out, const struct ir_attr_desc *d)
{
	buf_printf(out, "%s", d->name);
	switch (d->kind) {
	case ATTR_FLOAT:
		buf_str(out, "=");
		buf_f64(out, d->float_default);
		break;
	case ATTR_INT: buf_printf(out, "=%" PRId64, d->int_default); break;
	case ATTR_FLAG: buf_str(out, " (flag)"); break;
	case ATTR_DIM: buf_str(out, ": dim"); break;
	case ATTR_DIMS: buf_str(out, "=[]"); break;
	case ATTR_INTS: buf_str(out, ": ints"); break;
	case ATTR_DTYPE: buf_str(out, ": dtype"); break;
	case ATTR_KEYWORD:
		buf_str(out, ": ");
		print_keywords(out, d);
		break;
	case ATTR_WEIGHT: buf_str(out, ": weight"); break;
	}
}

/* A table cell, with the characters escaped that Markdown interprets. */
static void print_cell(struct buf *out, const char *s)
{
	for (; *s != '\0'; s++) {
		if (*s == '|' || *s == '<' || *s == '*' || *s == '_')
			buf_char(out, '\\');
		buf_char(out, *s);
	}
}

/* Names of the traits of the set (enum ir_traits). */
static void print_traits(struct buf *out, unsigned set)
{
	const char *between = "";
#define X(NAME, bit, name)                               \
	if (set & TRAIT_##NAME) {                        \
		buf_printf(out, "%s%s", between, #name); \
		between = " ";                           \
	}
	IR_TRAITS(X)
#undef X
}

void ir_print_op_reference(struct buf *out)
{
	buf_str(out, "| op | operands | attributes | traits | meaning |\n|---|---|---|---|---|\n");
	for (int i = 0; i < IR_N_OPS; i++) {
		const struct ir_op_desc *op = ir_op_desc((enum ir_opcode)i);
		buf_printf(out, "| `%s` | ", op->name);
		print_operand_descs(out, op->operands);
		buf_str(out, " | ");
		for (size_t k = 0; op->attrs[k].name != NULL; k++) {
			buf_str(out, k > 0 ? ", " : "");
			print_attribute(out, &op->attrs[k]);
		}
		buf_str(out, " | ");
		print_traits(out, op->traits);
		buf_str(out, " | ");
		print_cell(out, op->formula);
		buf_str(out, " |\n");
	}
}
