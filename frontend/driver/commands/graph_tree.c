/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Boxes from IR. Ops follow each other in order of execution; those whose paths begin alike are in one box, so boxes
 * are convex and the graph of each is acyclic. A box that contains a single box becomes that box, with both names.
 *
 * A value that leaves a box, or enters it, has an edge in every box between its definition and its use: to and from
 * ports, where it crosses a border. Weights and states have no edges; boxes name them.
 */
#include "frontend/driver/commands/graph.h"

#include <string.h>

#include "frontend/driver/commands/page.h"
#include "ir/core/cost.h"

#define DEPTH_MAX 24 /* boxes in boxes; deeper components of a path are one name */
#define PORTS_MAX 24 /* of a box and a direction; later values share the last one */

struct tree {
	struct graph *g;
	struct graph_node *
	        *node_of; /* [n_values]: the box that computes a value, or around its argument; NULL: none */
};

/* Adds a box to the graph and to `parent` (NULL: the root). NULL: no memory. */
static struct graph_node *add_node(struct graph *g, struct graph_node *parent, enum graph_kind kind,
                                   const char *name)
{
	struct graph_node *n = ARENA_NEW(g->arena, struct graph_node);
	if (!n || !ARENA_ADDED(g->arena, &g->nodes, n))
		return NULL;
	*n = (struct graph_node){
	        .kind = kind, .id = g->nodes.n - 1, .name = name, .text = "", .figures = "", .count = 1};
	n->parent = parent;
	n->depth = parent ? parent->depth + 1 : 0;
	n->is_step = kind == GRAPH_STEP || kind == GRAPH_REPEAT;
	if (parent && !ARENA_ADDED(g->arena, &parent->children, n))
		return NULL;
	return n;
}

/* ---- costs ---- */

/* The bytes of a value at g->dims; 0 for a state and where the size overflows. */
static double tensor_bytes(const struct graph *g, uint32_t value)
{
	const struct ir_type *t = g->func->values[value].type;
	int64_t count;
	if (t->kind != IR_TENSOR || !ir_dim_eval(ir_type_count(g->module->dims, t), g->dims, &count))
		return 0;
	return (double)count * (double)ir_dtype_bytes(t->dtype);
}

static bool is_inside(const struct ir_region *r, const struct ir_region *outer)
{
	while (r && r != outer)
		r = r->parent;
	return r != NULL;
}

/* Returns the bytes of tensors that an op reads from outside of a group (NULL: it is in none) and that are not
 * marked in `seen`, and marks them; with mark false only removes the marks. */
static double bytes_read(const struct graph *g, const struct ir_op *op, const struct ir_region *group,
                         bool *seen, bool mark)
{
	double sum = 0;
	for (size_t i = 0; i < op->n_operands; i++) {
		struct ir_value v = op->operands[i];
		if (!v.id || ir_weight_of(g->func, v) ||
		    (group && is_inside(ir_value_info(g->func, v)->region, group)))
			continue;
		sum += mark && !seen[v.id] ? tensor_bytes(g, v.id) : 0;
		seen[v.id] = mark;
	}
	return sum;
}

/* Returns the bytes that an op or the ops of its region read from outside. A value that several of them read counts
 * once. seen: all false, before and after. */
static double all_bytes_read(const struct graph *g, const struct ir_op *op, bool *seen)
{
	double sum = bytes_read(g, op, NULL, seen, true);
	for (size_t i = 0; op->region && i < op->region->n_ops; i++)
		sum += bytes_read(g, op->region->ops[i], op->region, seen, true);
	(void)bytes_read(g, op, NULL, seen, false);
	for (size_t i = 0; op->region && i < op->region->n_ops; i++)
		(void)bytes_read(g, op->region->ops[i], op->region, seen, false);
	return sum;
}

/* The cost of one execution of an op; that of a group is of all its ops. Views cost nothing: they compute and move
 * nothing. */
static struct graph_cost op_cost(const struct graph *g, const struct ir_op *op, bool *seen)
{
	int64_t flops;
	if (ir_op_has(op->code, TRAIT_VIEW))
		return (struct graph_cost){0};
	if (!ir_dim_eval(ir_op_flops(g->module, g->func, op, MAC_ALL), g->dims, &flops))
		flops = 0;
	struct graph_cost c = {.flops = (double)flops,
	                       .weights = ir_op_weight_bytes(g->func, op, g->dims),
	                       .read = all_bytes_read(g, op, seen)};
	for (size_t i = 0; i < op->n_results; i++)
		c.written += tensor_bytes(g, op->results[i].id);
	return c;
}

/* Sets the cost of steps and repeats to the sum of their children, times the layers of a repeat. */
static void sum_costs(struct graph_node *n)
{
	if (n->kind != GRAPH_STEP && n->kind != GRAPH_REPEAT)
		return;
	struct graph_cost sum = {0};
	for (size_t i = 0; i < n->children.n; i++) {
		struct graph_node *child = n->children.items[i];
		sum_costs(child);
		sum.flops += child->cost.flops;
		sum.weights += child->cost.weights;
		sum.read += child->cost.read;
		sum.written += child->cost.written;
	}
	double times = (double)n->count;
	n->cost = (struct graph_cost){sum.flops * times, sum.weights * times, sum.read * times,
	                              sum.written * times};
}

/* The line of costs in a box: "1.2 GFLOP · weights 3.0 MiB", for kernels with bytes read and written. */
static const char *figures_text(struct graph *g, const struct graph_node *n)
{
	struct buf text;
	buf_init(&text);
	if (n->cost.flops > 0)
		print_flops(&text, n->cost.flops);
	if (n->cost.weights > 0) {
		buf_str(&text, text.len ? " \u00b7 weights " : "weights ");
		print_bytes(&text, n->cost.weights);
	}
	if (n->kind == GRAPH_KERNEL && n->cost.read + n->cost.written > 0) {
		buf_str(&text, text.len ? " \u00b7 in " : "in ");
		print_bytes(&text, n->cost.read);
		buf_str(&text, " \u00b7 out ");
		print_bytes(&text, n->cost.written);
	}
	const char *copy = buf_failed(&text) ? "" : arena_strdup(g->arena, text.data);
	buf_destroy(&text);
	return copy;
}

/* ---- names ---- */

/* The name of the op's weight in its step, after a blank: " q_k_v" of layers.self.attention.q_k_v.weight; "" where
 * there is none. */
static const char *weight_role(struct graph *g, const struct ir_op *op)
{
	for (size_t i = 0; i < op->n_operands; i++) {
		const struct ir_weight *w = ir_weight_of(g->func, op->operands[i]);
		size_t n = w && op->loc.path ? strlen(op->loc.path) : 0;
		if (!w || strncmp(w->name, op->loc.path ? op->loc.path : "", n) || w->name[n] != '.')
			continue;
		const char *role = w->name + n + 1, *end = strchr(role, '.');
		return end ? arena_printf(g->arena, " %.*s", (int)(end - role), role) : "";
	}
	return "";
}

/* "linear q_k_v" */
static const char *op_title(struct graph *g, const struct ir_op *op)
{
	return arena_printf(g->arena, "%s%s", ir_op_desc(op->code)->name, weight_role(g, op));
}

/* Returns the names of the ops of a group that compute, "linear + add + layer_norm"; views and constants are left
 * out. */
static const char *group_text(struct graph *g, const struct ir_op *group)
{
	struct buf text;
	buf_init(&text);
	for (size_t i = 0; i < group->region->n_ops; i++) {
		enum ir_opcode code = group->region->ops[i]->code;
		unsigned traits = ir_op_desc(code)->traits;
		if (traits & (TRAIT_VIEW | TRAIT_CONST | TRAIT_TERMINATOR) || code == OP_transpose ||
		    code == OP_slice)
			continue;
		buf_printf(&text, "%s%s", text.len ? " + " : "", ir_op_desc(code)->name);
	}
	const char *copy = buf_failed(&text) ? "" : arena_strdup(g->arena, text.data);
	buf_destroy(&text);
	return copy;
}

/* ---- boxes ---- */

/* The part of a path after `base`, without the point; "" where there is none. */
static const char *relative_path(const char *path, const char *base)
{
	size_t n = base ? strlen(base) : 0;
	if (!path || strncmp(path, base ? base : "", n))
		return "";
	return n == 0 ? path : path[n] == '.' ? path + n + 1 : "";
}

static struct graph_node *last_child(const struct graph_node *n)
{
	return n->children.n ? n->children.items[n->children.n - 1] : NULL;
}

/* Returns the box for an op with this path in `box`, making boxes of its components; the last box is used again if
 * the path begins alike. keep: components at the end that are no boxes. NULL: no memory. */
static struct graph_node *open_steps(struct graph *g, struct graph_node *box, const char *path, size_t keep)
{
	size_t left = *path != 0;
	for (const char *s = path; *s; s++)
		left += *s == '.';
	while (box && left > keep) {
		size_t n = box->depth + 2 < DEPTH_MAX ? strcspn(path, ".") : strlen(path);
		struct graph_node *last = last_child(box);
		if (!last || last->kind != GRAPH_STEP || strncmp(last->name, path, n) || last->name[n])
			last = add_node(g, box, GRAPH_STEP, arena_strndup(g->arena, path, n));
		box = last;
		left = path[n] ? left - 1 : keep; /* at DEPTH_MAX n is the whole remaining path */
		path += n + (path[n] == '.');
	}
	return box;
}

static enum tfmc_status add_region(struct tree *t, struct graph_node *box, const struct ir_region *r,
                                   bool *seen);

/* Adds the box of an op in the boxes of its step, and those of the ops in its region. node_of gets its results, and
 * of a repeat the loop-carried arguments (those after the iteration index), whose edges come from its border. */
static enum tfmc_status add_op(struct tree *t, struct graph_node *box, const struct ir_op *op, bool *seen)
{
	struct graph *g = t->g;
	const char *path = relative_path(op->loc.path, box->loc.path);
	bool is_repeat = op->code == OP_repeat, is_kernel = op->code == OP_group;
	const char *last = strrchr(path, '.');
	/* Ops of a kernel are in one box, whatever steps they are of. */
	struct graph_node *step =
	        box->kind == GRAPH_KERNEL ? box : open_steps(g, box, path, is_repeat ? 1 : 0);
	enum graph_kind kind = is_repeat ? GRAPH_REPEAT : is_kernel ? GRAPH_KERNEL : GRAPH_OP;
	const char *name = is_repeat && *path
	                           ? last ? last + 1 : path
	                           : op_title(g, is_kernel && ir_group_root(op) ? ir_group_root(op) : op);
	struct graph_node *n = step ? add_node(g, step, kind, name) : NULL;
	if (!n)
		return TFMC_NO_MEMORY;
	n->op = op;
	n->loc = op->loc;
	n->text = is_kernel ? group_text(g, op) : "";
	if (is_repeat) {
		n->count = ((const struct attrs_repeat *)op->attrs)->count;
		n->name = arena_printf(g->arena, "%s \u00d7%lld", name, (long long)n->count);
	}
	n->cost = is_repeat ? (struct graph_cost){0} : op_cost(g, op, seen);
	for (size_t i = 0; i < op->n_results; i++)
		t->node_of[op->results[i].id] = n;
	for (size_t i = REPEAT_INDEX + 1; is_repeat && i < op->region->n_args; i++)
		t->node_of[op->region->args[i].id] = n;
	return op->region ? add_region(t, n, op->region, seen) : TFMC_OK;
}

/* Adds the ops of a region in order. Weights and terminators are no boxes. */
static enum tfmc_status add_region(struct tree *t, struct graph_node *box, const struct ir_region *r,
                                   bool *seen)
{
	for (size_t i = 0; i < r->n_ops; i++)
		if (r->ops[i]->code != OP_weight && !ir_op_has(r->ops[i]->code, TRAIT_TERMINATOR))
			TFMC_TRY(add_op(t, box, r->ops[i], seen));
	return TFMC_OK;
}

/* Replaces steps with one child by that child, with both names (of an op or kernel, its own name becomes the second
 * line), and gives every step the location of its first child. */
static void merge_single(struct graph *g, struct graph_node *n)
{
	for (size_t i = 0; i < n->children.n; i++) {
		struct graph_node *child = n->children.items[i];
		merge_single(g, child);
		if (child->kind != GRAPH_STEP || child->children.n == 0)
			continue;
		struct graph_node *only = child->children.items[0];
		if (!child->loc.path)
			child->loc = only->loc;
		if (child->children.n > 1)
			continue;
		if (!only->is_step && !*only->text)
			only->text = only->name;
		only->name = only->is_step ? arena_printf(g->arena, "%s.%s", child->name, only->name)
		                           : child->name;
		only->is_step = true;
		only->parent = n;
		n->children.items[i] = only;
	}
}

/* Sets the depths again, after boxes were merged. */
static void set_depths(struct graph_node *n)
{
	for (size_t i = 0; i < n->children.n; i++) {
		n->children.items[i]->depth = n->depth + 1;
		set_depths(n->children.items[i]);
	}
}

/* ---- edges ---- */

/* The child of `box` that is n or contains it. */
static struct graph_node *child_toward(const struct graph_node *box, struct graph_node *n)
{
	while (n->parent != box)
		n = n->parent;
	return n;
}

static bool contains(const struct graph_node *box, const struct graph_node *n)
{
	while (n && n != box)
		n = n->parent;
	return n != NULL;
}

static const char *value_name(const struct graph *g, uint32_t value)
{
	const char *name = g->func->values[value].name;
	return name ? name : "";
}

/* Returns the port of a box for a value, made if there is none; beyond PORTS_MAX the last one is shared. Ports are
 * the last children. NULL: no memory. */
static struct graph_node *find_port(struct graph *g, struct graph_node *box, enum graph_kind kind,
                                    uint32_t value)
{
	size_t n = 0;
	struct graph_node *last = NULL;
	for (size_t i = box->children.n; i-- > 0 && box->children.items[i]->kind >= GRAPH_PORT_IN;) {
		struct graph_node *p = box->children.items[i];
		if (p->kind == kind && p->value == value)
			return p;
		last = p->kind == kind && !last ? p : last;
		n += p->kind == kind;
	}
	if (n >= PORTS_MAX)
		return last;
	const char *name = value_name(g, value);
	struct graph_node *p = add_node(g, box, kind, *name ? name : kind == GRAPH_PORT_IN ? "in" : "out");
	if (p)
		p->value = value;
	return p;
}

/* Adds an edge in a box, or counts the value in the edge that both boxes have. from or to NULL, as after a failed
 * allocation: false. */
static bool add_edge(struct graph *g, struct graph_node *box, struct graph_node *from, struct graph_node *to,
                     uint32_t value)
{
	if (!from || !to)
		return false;
	if (from == to)
		return true;
	/* Edges to one box follow each other, but for those to ports. */
	for (size_t i = box->edges.n; i-- > 0;) {
		struct graph_edge *e = &box->edges.items[i];
		if (e->to != to && to->kind < GRAPH_OUTPUT)
			break;
		if (e->to != to || e->from != from)
			continue;
		e->n_values += e->value != value;
		e->value = value;
		return true;
	}
	const char *type = ir_type_to_string(g->arena, g->module->dims, g->func->values[value].type);
	return ARENA_ADDED(g->arena, &box->edges, (struct graph_edge){from, to, type, value, 1, 0, 0});
}

/* Adds the edges of a value from the box that computes it, or contains it as an argument, to the box that reads it,
 * or yields it: in each box on the way up to their common box and down again. TFMC_NO_MEMORY if an edge failed. */
static enum tfmc_status connect(struct graph *g, struct graph_node *from, struct graph_node *to,
                                uint32_t value)
{
	struct graph_node *both = from;
	bool done = true;
	while (!contains(both, to))
		both = both->parent;
	if (both == from && from == to) /* an argument that is yielded as it is */
		return TFMC_OK;
	if (both != from)
		for (struct graph_node *box = from->parent; box != both; box = box->parent)
			done &= add_edge(g, box, child_toward(box, from),
			                 find_port(g, box, GRAPH_PORT_OUT, value), value);
	struct graph_node *begin =
	        both == from ? find_port(g, both, GRAPH_PORT_IN, value) : child_toward(both, from);
	struct graph_node *end =
	        both == to ? find_port(g, both, GRAPH_PORT_OUT, value) : child_toward(both, to);
	done &= add_edge(g, both, begin, end, value);
	if (both != to)
		for (struct graph_node *box = to->parent; box != both; box = box->parent)
			done &= add_edge(g, box, find_port(g, box, GRAPH_PORT_IN, value),
			                 child_toward(box, to), value);
	return done ? TFMC_OK : TFMC_NO_MEMORY;
}

/* Connects box n with the boxes of the values that the op reads; weights and states have no edges. */
static enum tfmc_status connect_operands(struct tree *t, struct graph_node *n, const struct ir_op *op)
{
	for (size_t i = 0; i < op->n_operands; i++) {
		struct ir_value v = op->operands[i];
		if (!v.id || !t->node_of[v.id] || ir_type_of(t->g->func, v)->kind == IR_STATE)
			continue;
		TFMC_TRY(connect(t->g, t->node_of[v.id], n, v.id));
	}
	return TFMC_OK;
}

/* Connects an op's operands, then its children, then what its region yields, so that edges are in order of
 * execution. */
static enum tfmc_status connect_all(struct tree *t, struct graph_node *n)
{
	size_t n_children = n->children.n; /* without ports, which are added behind them */
	if (n->op)
		TFMC_TRY(connect_operands(t, n, n->op));
	for (size_t i = 0; i < n_children; i++)
		TFMC_TRY(connect_all(t, n->children.items[i]));
	if (n->op && n->op->region)
		TFMC_TRY(connect_operands(t, n, n->op->region->ops[n->op->region->n_ops - 1]));
	return TFMC_OK;
}

/* ---- functions ---- */

/* Adds a box for each tensor parameter; states are not shown. */
static enum tfmc_status add_inputs(struct tree *t)
{
	const struct ir_func *f = t->g->func;
	for (size_t i = 0; i < f->n_params; i++) {
		if (ir_type_of(f, f->params[i].value)->kind == IR_STATE)
			continue;
		struct graph_node *n = add_node(t->g, t->g->root, GRAPH_INPUT, f->params[i].name);
		if (!n)
			return TFMC_NO_MEMORY;
		n->loc = f->params[i].loc;
		n->value = f->params[i].value.id;
		t->node_of[n->value] = n;
	}
	return TFMC_OK;
}

/* Adds an output box for each operand of return that is a tensor, and its edges. */
static enum tfmc_status add_outputs(struct tree *t)
{
	const struct ir_func *f = t->g->func;
	const struct ir_op *end = f->body->ops[f->body->n_ops - 1];
	for (size_t i = 0; i < end->n_operands; i++) {
		if (ir_type_of(f, end->operands[i])->kind == IR_STATE)
			continue;
		const char *name =
		        f->results[i].name ? f->results[i].name : value_name(t->g, end->operands[i].id);
		struct graph_node *n = add_node(t->g, t->g->root, GRAPH_OUTPUT, name);
		if (!n)
			return TFMC_NO_MEMORY;
		n->value = end->operands[i].id;
		if (t->node_of[n->value])
			TFMC_TRY(connect(t->g, t->node_of[n->value], n, n->value));
	}
	return TFMC_OK;
}

/* Boxes are merged before depths, costs and edges, which are of the final boxes; edges come last, since they add
 * ports to the children. */
enum tfmc_status graph_build(struct graph *g)
{
	struct tree t = {g, ARENA_ARRAY(g->arena, struct graph_node *, g->func->n_values)};
	bool *seen = ARENA_ARRAY(g->arena, bool, g->func->n_values);
	g->root = add_node(g, NULL, GRAPH_STEP, g->func->name);
	if (!t.node_of || !seen || !g->root)
		return TFMC_NO_MEMORY;
	TFMC_TRY(add_inputs(&t));
	TFMC_TRY(add_region(&t, g->root, g->func->body, seen));
	merge_single(g, g->root);
	set_depths(g->root);
	sum_costs(g->root);
	for (size_t i = 0; i < g->nodes.n; i++)
		g->nodes.items[i]->figures = figures_text(g, g->nodes.items[i]);
	TFMC_TRY(connect_all(&t, g->root));
	TFMC_TRY(add_outputs(&t));
	return arena_failed(g->arena) ? TFMC_NO_MEMORY : TFMC_OK;
}
