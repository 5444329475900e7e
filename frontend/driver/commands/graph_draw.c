/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The picture of a graph as SVG, and its data as JSON for the page's script, which draws the same elements. Ids of
 * elements: PREFIX, then n and the box's id; in it e and l with the index of an edge: its line and label.
 * A port is the place where an edge crosses the border of its box; a bend is a point of an edge in a row that it
 * passes.
 */
#include "frontend/driver/commands/graph.h"

#include <string.h>

#include "frontend/driver/commands/page.h"

#define TEXT_X 18.0
#define TEXT_Y 21.0
#define LINE   17.0
#define RADIUS 7
#define LABEL  0.3 /* of a segment, from the end where the label is */

static const char *const kinds[] = {"step", "repeat", "kernel", "op", "input", "output", "port", "port"};

struct picture {
	struct buf *out;
	const char *prefix;
};

/* Draws a line of text, escaped; nothing for an empty one. */
static void put_text(struct picture *p, const char *class, double x, double y, const char *text)
{
	if (!*text)
		return;
	buf_printf(p->out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", class, x, y);
	page_text(p->out, text, strlen(text));
	buf_str(p->out, "</text>");
}

/* ---- edges ---- */

struct curve {
	struct buf *out;
	double x, y; /* of the last point */
	double label_x, label_y;
	double share; /* of the segment that has the label, where it is */
	size_t label; /* its point */
	size_t n;
};

/* graph_point_fn: continues a path. Points alternate: a curve to the next row, a line through it. Remembers where
 * the label is. */
static void put_point(void *user, double x, double y)
{
	struct curve *c = user;
	double bend = (y - c->y) / 2;
	if (c->n == 0) {
		buf_printf(c->out, "M%.1f %.1f", x, y);
	} else if (c->n % 2) {
		buf_printf(c->out, "C%.1f %.1f %.1f %.1f %.1f %.1f", c->x, c->y + bend, x, y - bend, x, y);
	} else {
		buf_printf(c->out, "L%.1f %.1f", x, y);
	}
	if (c->n == c->label) {
		c->label_x = c->x + c->share * (x - c->x);
		c->label_y = c->y + c->share * (y - c->y);
	}
	c->x = x;
	c->y = y;
	c->n++;
}

/* Prints the label of an edge: the type of its first value, and the number of values. */
static void put_label(struct buf *out, const struct graph_edge *e, void (*put)(struct buf *, const char *))
{
	struct buf text;
	buf_init(&text);
	buf_str(&text, e->type);
	if (e->n_values > 1)
		buf_printf(&text, " \u00d7%zu", e->n_values);
	put(out, text.data);
	buf_destroy(&text);
}

static void put_svg_text(struct buf *out, const char *text)
{
	page_text(out, text, strlen(text));
}

/* Draws the edges in a box. Lines are drawn before labels, so that no line crosses a label. */
static void put_edges_of(struct picture *p, const struct graph_node *box)
{
	struct buf labels;
	buf_init(&labels);
	for (size_t i = 0; i < box->edges.n; i++) {
		const struct graph_edge *e = &box->edges.items[i];
		/* Labels are at the end where fewer edges meet. */
		bool at_end = e->from->n_out > e->to->n_in;
		struct curve c = {.out = p->out,
		                  .share = at_end ? 1 - LABEL : LABEL,
		                  .label = at_end ? 1 + 2 * e->n_bends : 1};
		buf_printf(p->out, "<path class=\"e\" id=\"%sn%zue%zu\" d=\"", p->prefix, box->id, i);
		graph_visit_points(box, e, put_point, &c);
		buf_printf(p->out, "\" marker-end=\"url(#%sarrow)\"/>\n", p->prefix);
		buf_printf(&labels, "<text class=\"l\" id=\"%sn%zul%zu\" x=\"%.1f\" y=\"%.1f\">", p->prefix,
		           box->id, i, c.label_x, c.label_y + 4);
		put_label(&labels, e, put_svg_text);
		buf_str(&labels, "</text>\n");
	}
	buf_append(p->out, &labels);
	buf_destroy(&labels);
}

/* ---- boxes ---- */

/* The class of a box of an op or a kernel by what most of its time goes to, which colors it; "": none. */
static const char *work_of(const struct graph_node *n)
{
	const struct ir_op *op =
	        n->kind == GRAPH_KERNEL && ir_group_root(n->op) ? ir_group_root(n->op) : n->op;
	if (!op || n->kind == GRAPH_REPEAT)
		return "";
	if (op->code == OP_attention)
		return " attention";
	return ir_op_has(op->code, TRAIT_CONTRACT) ? " contraction" : ir_is_norm(op->code) ? " norm" : "";
}

/* Draws a box: a port is a name alone, an input or output has round ends, a repeat a second card behind it. An open
 * box has its edges and children inside. */
static void put_box(struct picture *p, const struct graph_node *n)
{
	double radius = n->kind == GRAPH_INPUT || n->kind == GRAPH_OUTPUT ? n->h / 2 : RADIUS;
	buf_printf(p->out, "<g class=\"n %s%s %s\" id=\"%sn%zu\" transform=\"translate(%.1f,%.1f)\">",
	           kinds[n->kind], work_of(n), graph_has_inside(n) ? n->is_open ? "open" : "closed" : "leaf",
	           p->prefix, n->id, n->x, n->y);
	if (n->kind == GRAPH_REPEAT) /* a second card behind the first */
		buf_printf(p->out,
		           "<rect class=\"card\" x=\"5\" y=\"5\" width=\"%.1f\" height=\"%.1f\" rx=\"%d\"/>",
		           n->w, n->h, RADIUS);
	if (n->kind < GRAPH_PORT_IN)
		buf_printf(p->out, "<rect width=\"%.1f\" height=\"%.1f\" rx=\"%.1f\"/>", n->w, n->h, radius);
	if (n->kind >= GRAPH_PORT_IN)
		put_text(p, "text", n->width / 2, LINE - 5, n->name);
	else if (n->kind == GRAPH_INPUT || n->kind == GRAPH_OUTPUT)
		put_text(p, "name", n->width / 2, TEXT_Y - 1, n->name);
	else
		put_text(p, "name", TEXT_X, TEXT_Y, n->name);
	put_text(p, "text", TEXT_X, TEXT_Y + LINE, n->text);
	put_text(p, "figures", TEXT_X, TEXT_Y + LINE * (*n->text ? 2 : 1), n->figures);
	if (graph_has_inside(n) && n->is_open) {
		buf_str(p->out, "<g class=\"in\">\n");
		put_edges_of(p, n);
		for (size_t i = 0; i < n->children.n; i++)
			put_box(p, n->children.items[i]);
		buf_str(p->out, "</g>");
	}
	buf_str(p->out, "</g>\n");
}

void graph_draw(struct buf *out, const struct graph *g, const char *prefix)
{
	struct picture p = {out, prefix};
	buf_printf(out,
	           "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"graph\" id=\"%s\" width=\"%.0f\" "
	           "height=\"%.0f\">\n"
	           "<defs><marker id=\"%sarrow\" class=\"a\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" "
	           "markerWidth=\"8\" "
	           "markerHeight=\"8\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\"/></marker></defs>\n",
	           prefix, g->root->w + 2, g->root->h + 2, prefix);
	put_box(&p, g->root);
	buf_str(out, "</svg>\n");
}

/* ---- data ---- */

/* Appends a pair [label, text] to a JSON array that begins with '['. */
static void put_fact(struct buf *out, const char *label, const char *text)
{
	buf_str(out, out->data[out->len - 1] == '[' ? "[" : ",[");
	page_json_string(out, label);
	buf_char(out, ',');
	page_json_string(out, text);
	buf_char(out, ']');
}

/* Appends a fact of a number as `print` formats it; 0 is left out. */
static void put_number(struct buf *out, const char *label, double value, void (*print)(struct buf *, double))
{
	struct buf text;
	buf_init(&text);
	print(&text, value);
	if (value > 0)
		put_fact(out, label, text.data);
	buf_destroy(&text);
}

/* Appends name and type of each result of an op: "k: f32[B,4,S,24]". */
static void put_results(struct buf *out, const struct graph *g, const struct ir_op *op)
{
	struct buf text;
	for (size_t i = 0; i < op->n_results; i++) {
		const struct ir_value_info *v = ir_value_info(g->func, op->results[i]);
		buf_init(&text);
		buf_printf(&text, "%s%s", v->name ? v->name : "", v->name ? ": " : "");
		ir_type_print(&text, g->module->dims, v->type);
		put_fact(out, "result", text.data);
		buf_destroy(&text);
	}
}

/* Appends name, type and format of each weight that an op reads. */
static void put_weights(struct buf *out, const struct graph *g, const struct ir_op *op)
{
	struct buf text;
	for (size_t i = 0; i < op->n_operands; i++) {
		const struct ir_weight *w = ir_weight_of(g->func, op->operands[i]);
		if (!w)
			continue;
		buf_init(&text);
		buf_printf(&text, "%s: ", w->name);
		ir_type_print(&text, g->module->dims, w->type);
		if (w->format != FORMAT_PLAIN)
			buf_printf(&text, " as %s", ir_format(w->format)->name);
		put_fact(out, "weight", text.data);
		buf_destroy(&text);
	}
}

/* Appends the kind of a kernel, and the tile sizes of GEMM (rows x columns x K) or attention (rows x keys). */
static void put_kernel(struct buf *out, const struct ir_op *op)
{
	const struct attrs_group *a = op->attrs;
	struct buf text;
	buf_init(&text);
	buf_str(&text, ir_keyword(KEYWORDS_GROUP, a->kind));
	if (a->mr > 0)
		buf_printf(&text, " %lld\u00d7%lld\u00d7%lld", (long long)a->mr, (long long)a->nr,
		           (long long)a->kc);
	if (a->br > 0)
		buf_printf(&text, " %lld\u00d7%lld", (long long)a->br, (long long)a->bc);
	put_fact(out, "kernel", text.data);
	buf_destroy(&text);
}

/* Appends the pairs that the page shows for a selected box, in order. */
static void put_facts(struct buf *out, const struct graph *g, const struct graph_node *n)
{
	buf_char(out, '[');
	if (n->loc.path && *n->loc.path)
		put_fact(out, "step", n->loc.path);
	if (n->kind == GRAPH_KERNEL)
		put_kernel(out, n->op);
	if (*n->text)
		put_fact(out, "ops", n->text);
	if (n->value)
		put_fact(out, "type",
		         ir_type_to_string(g->arena, g->module->dims, g->func->values[n->value].type));
	put_number(out, "arithmetic", n->cost.flops, print_flops);
	put_number(out, "weights", n->cost.weights, print_bytes);
	put_number(out, "reads", n->cost.read, print_bytes);
	put_number(out, "writes", n->cost.written, print_bytes);
	if (n->op && n->kind != GRAPH_REPEAT)
		put_results(out, g, n->op);
	if (n->op)
		put_weights(out, g, n->op);
	buf_char(out, ']');
}

/* Appends the rows of a box: ids of boxes from the left to the right, bends as their negative number. */
static void put_rows(struct buf *out, const struct graph_rows *r)
{
	for (size_t row = 0; row < r->n; row++) {
		buf_str(out, row ? ",[" : "[");
		for (size_t c = r->first_cell[row]; c < r->first_cell[row + 1]; c++) {
			const struct graph_cell *cell = r->order[c];
			buf_printf(out, "%s%s%zu", c > r->first_cell[row] ? "," : "", cell->node ? "" : "-",
			           cell->node ? cell->node->id : cell->bend);
		}
		buf_char(out, ']');
	}
}

/* Edges of a box as [id from, id to, first bend, number of bends, label]. */
static void put_edges(struct buf *out, const struct graph_node *box)
{
	for (size_t i = 0; i < box->edges.n; i++) {
		const struct graph_edge *e = &box->edges.items[i];
		buf_printf(out, "%s[%zu,%zu,%zu,%zu,", i ? "," : "", e->from->id, e->to->id, e->first_bend,
		           e->n_bends);
		put_label(out, e, page_json_string);
		buf_char(out, ']');
	}
}

/* Appends the object of a box, with those of its children: the fields that page/graph.js reads. */
static void put_data(struct buf *out, const struct graph *g, const struct graph_node *n)
{
	buf_printf(out, "{\"id\":%zu,\"kind\":\"%s\",\"depth\":%zu,\"name\":", n->id, kinds[n->kind],
	           n->depth);
	page_json_string(out, n->name);
	buf_str(out, ",\"text\":");
	page_json_string(out, n->text);
	buf_str(out, ",\"figures\":");
	page_json_string(out, n->figures);
	buf_printf(out, ",\"work\":\"%s\",\"w\":%.1f,\"h\":%.1f,\"at\":[%u,%u],\"facts\":", work_of(n),
	           n->width, n->height, (unsigned)n->loc.at.source, (unsigned)n->loc.at.line);
	put_facts(out, g, n);
	if (graph_has_inside(n)) {
		buf_printf(out, ",\"open\":%s,\"rows\":[", n->is_open ? "true" : "false");
		put_rows(out, &n->rows);
		buf_str(out, "],\"edges\":[");
		put_edges(out, n);
		buf_str(out, "],\"children\":[");
		for (size_t i = 0; i < n->children.n; i++) {
			buf_str(out, i ? ",\n" : "\n");
			put_data(out, g, n->children.items[i]);
		}
		buf_char(out, ']');
	}
	buf_char(out, '}');
}

void graph_data(struct buf *out, const struct graph *g)
{
	put_data(out, g, g->root);
}
