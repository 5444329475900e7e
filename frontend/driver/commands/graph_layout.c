/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layered layout (Sugiyama, Tagawa, Toda 1981) of each box: rows by the longest path, bends where an edge passes rows,
 * order in rows by barycenters, places by the mean of neighbors. Rows and order do not depend on which boxes are
 * open; page/graph.js sets the same places, as boxes open and close.
 * A cell is a place in a row, of a box or of a bend; a link joins cells of neighboring rows; `want` is where its
 * neighbors would have a cell.
 */
#include "frontend/driver/commands/graph.h"

#include <stdlib.h>
#include <string.h>

#include "ir/support/utf8.h"

#define SWEEPS    4
#define SPAN_MAX  32   /* rows that an edge passes with bends; a longer one is a single curve */
#define BEND_MAX  4096 /* in a box */
#define GAP_X     26.0 /* between cells of a row */
#define GAP_Y     40.0 /* between rows */
#define BEND      10.0 /* width */
#define PAD       18.0 /* in an open box */
#define HEAD      34.0 /* its title */
#define LINE      17.0 /* of text in a box */
#define CHARACTER 8.0  /* width, of titles; other lines are smaller */
#define SMALL     6.4
#define FOLD      12.0 /* width of the sign that opens and closes */

/* ---- rows ---- */

static bool is_source(const struct graph_node *n)
{
	return n->n_in == 0 && n->kind != GRAPH_PORT_IN;
}

/*
 * Sets the row of each child by the longest path to it. Edges are in order of the boxes they go to, which are in
 * order of execution, so one pass suffices. Inputs and constants move down, to the row above the first box that
 * reads them. Returns the number of rows.
 */
static size_t set_rows(struct graph_node *box)
{
	size_t last = 0;
	for (size_t i = 0; i < box->edges.n; i++) {
		const struct graph_edge *e = &box->edges.items[i];
		e->to->n_in++;
		e->from->n_out++;
		e->to->row = e->to->row > e->from->row + 1 ? e->to->row : e->from->row + 1;
		last = e->to->row > last ? e->to->row : last;
	}
	for (size_t i = 0; i < box->children.n; i++) {
		struct graph_node *n = box->children.items[i];
		n->row = n->kind == GRAPH_PORT_OUT ? last : is_source(n) ? SIZE_MAX : n->row;
	}
	for (size_t i = 0; i < box->edges.n; i++) {
		const struct graph_edge *e = &box->edges.items[i];
		if (is_source(e->from) && e->from->row > e->to->row - 1)
			e->from->row = e->to->row - 1;
	}
	for (size_t i = 0; i < box->children.n; i++)
		if (box->children.items[i]->row == SIZE_MAX) /* no edge */
			box->children.items[i]->row = 0;
	return last + 1;
}

/* Gives each edge that passes rows a bend in every row; those longer than SPAN_MAX get none and are one curve.
 * Returns the number of bends. */
static size_t set_bends(struct graph_node *box)
{
	size_t n = 0;
	for (size_t i = 0; i < box->edges.n; i++) {
		struct graph_edge *e = &box->edges.items[i];
		size_t passes = e->to->row - e->from->row - 1;
		if (passes == 0 || passes > SPAN_MAX || n + passes > BEND_MAX)
			continue;
		e->first_bend = n + 1;
		e->n_bends = passes;
		n += passes;
	}
	return n;
}

/* Makes the cells of the children, and after them those of the bends: cell_of() finds a bend by its number. */
static void add_cells(struct graph_node *box)
{
	struct graph_rows *r = &box->rows;
	for (size_t i = 0; i < box->children.n; i++) {
		struct graph_node *n = box->children.items[i];
		n->cell = &r->cells[r->n_cells++];
		*n->cell = (struct graph_cell){.node = n, .row = n->row};
	}
	for (size_t i = 0; i < box->edges.n; i++)
		for (size_t k = 0; k < box->edges.items[i].n_bends; k++)
			r->cells[r->n_cells++] =
			        (struct graph_cell){.bend = box->edges.items[i].first_bend + k,
			                            .row = box->edges.items[i].from->row + 1 + k};
}

/* The cell of point k of an edge: 0 is where it begins, n_bends + 1 where it ends. */
static struct graph_cell *cell_of(const struct graph_node *box, const struct graph_edge *e, size_t k)
{
	if (k == 0)
		return e->from->cell;
	return k > e->n_bends ? e->to->cell : &box->rows.cells[box->children.n + e->first_bend + k - 2];
}

/* Begins of rows from counts: first[row + 1] holds the count of the row. */
static void sum_counts(size_t *first, size_t n)
{
	for (size_t i = 0; i < n; i++)
		first[i + 1] += first[i];
}

/* Makes the links between neighboring rows, sorted by the upper row: the first pass counts them, the second stores
 * them. An edge without bends that passes rows has none. filled: [rows], zeroed. */
static void add_links(struct graph_node *box, size_t *filled)
{
	struct graph_rows *r = &box->rows;
	for (int pass = 0; pass < 2; pass++) {
		for (size_t i = 0; i < box->edges.n; i++) {
			const struct graph_edge *e = &box->edges.items[i];
			bool is_single = e->n_bends == 0 && e->to->row != e->from->row + 1;
			for (size_t k = 0; k <= e->n_bends && !is_single; k++) {
				struct graph_link l = {cell_of(box, e, k), cell_of(box, e, k + 1)};
				if (pass == 0)
					r->first_link[l.upper->row + 1]++;
				else
					r->links[r->first_link[l.upper->row] + filled[l.upper->row]++] = l;
			}
		}
		if (pass == 0)
			sum_counts(r->first_link, r->n);
	}
}

/* Sorts the cells by row (a counting sort) in their first order, which the sweeps improve. filled: [rows], zeroed. */
static void order_cells(struct graph_rows *r, size_t *filled)
{
	for (size_t c = 0; c < r->n_cells; c++)
		r->first_cell[r->cells[c].row + 1]++;
	sum_counts(r->first_cell, r->n);
	for (size_t c = 0; c < r->n_cells; c++) {
		struct graph_cell *cell = &r->cells[c];
		cell->at = filled[cell->row]++;
		r->order[r->first_cell[cell->row] + cell->at] = cell;
	}
}

/* ---- sweeps ---- */

/* By the mean of the neighbors; equal ones keep their order, so that qsort is stable. */
static int compare_cells(const void *a, const void *b)
{
	const struct graph_cell *x = *(struct graph_cell *const *)a, *y = *(struct graph_cell *const *)b;
	if (x->want != y->want)
		return x->want < y->want ? -1 : 1;
	return (x->at > y->at) - (x->at < y->at);
}

/* Places the cells of a row by their `want`. */
typedef void settle_fn(struct graph_rows *r, size_t row);

/* settle_fn: orders a row by barycenters; x is the rank, counted from the middle. */
static void sort_row(struct graph_rows *r, size_t row)
{
	struct graph_cell **cells = r->order + r->first_cell[row];
	size_t n = r->first_cell[row + 1] - r->first_cell[row];
	qsort(cells, n, sizeof(struct graph_cell *), compare_cells);
	for (size_t i = 0; i < n; i++) {
		cells[i]->at = i;
		cells[i]->x = (double)i - (double)(n - 1) / 2;
	}
}

static double half_width(const struct graph_cell *c)
{
	return (c->node ? c->node->w : BEND) / 2;
}

static double distance(const struct graph_cell *left, const struct graph_cell *right)
{
	return half_width(left) + GAP_X + half_width(right);
}

/* settle_fn: places cells, in their order, as near as possible to the means of their neighbors without overlap: the
 * mean of packing from the left and from the right. */
static void place_row(struct graph_rows *r, size_t row)
{
	struct graph_cell **cells = r->order + r->first_cell[row];
	size_t n = r->first_cell[row + 1] - r->first_cell[row];
	for (size_t i = 0; i < n; i++) {
		double least = i ? cells[i - 1]->x + distance(cells[i - 1], cells[i]) : cells[i]->want;
		cells[i]->x = cells[i]->want > least ? cells[i]->want : least;
	}
	for (size_t i = n, begun = 0; i-- > 0; begun = 1) {
		double most = begun ? cells[i + 1]->want - distance(cells[i], cells[i + 1]) : cells[i]->want;
		cells[i]->want = cells[i]->want < most ? cells[i]->want : most;
	}
	for (size_t i = 0; i < n; i++)
		cells[i]->x = (cells[i]->x + cells[i]->want) / 2;
}

/* Sets `want` of the cells of a row to the mean x of their neighbors in the row above (down) or below; without
 * neighbors to its own x. Then calls settle(), which orders or places the row. */
static void settle_row(struct graph_rows *r, size_t row, bool down, settle_fn *settle)
{
	for (size_t c = r->first_cell[row]; c < r->first_cell[row + 1]; c++) {
		r->order[c]->want = 0;
		r->order[c]->n_want = 0;
	}
	size_t upper = down ? row - 1 : row;
	for (size_t l = r->first_link[upper]; l < r->first_link[upper + 1]; l++) {
		struct graph_cell *to = down ? r->links[l].lower : r->links[l].upper;
		to->want += down ? r->links[l].upper->x : r->links[l].lower->x;
		to->n_want++;
	}
	for (size_t c = r->first_cell[row]; c < r->first_cell[row + 1]; c++) {
		struct graph_cell *cell = r->order[c];
		cell->want = cell->n_want ? cell->want / (double)cell->n_want : cell->x;
	}
	settle(r, row);
}

/* One sweep of the layout: rows from the top by those above, then back from the bottom by those below. */
static void sweep(struct graph_rows *r, settle_fn *settle)
{
	for (size_t row = 1; row < r->n; row++)
		settle_row(r, row, true, settle);
	for (size_t row = r->n - 1; row-- > 0;)
		settle_row(r, row, false, settle);
}

/* ---- boxes ---- */

/* Allocates the arrays of a box's layout, at most as many links as edges and bends. False: no memory. */
static bool allocate_rows(struct arena *a, struct graph_node *box, size_t n_bends)
{
	struct graph_rows *r = &box->rows;
	size_t n_links = box->edges.n + n_bends, n_cells = box->children.n + n_bends;
	r->cells = ARENA_ARRAY(a, struct graph_cell, n_cells);
	r->order = ARENA_ARRAY(a, struct graph_cell *, n_cells);
	r->links = ARENA_ARRAY(a, struct graph_link, n_links);
	r->first_cell = ARENA_ARRAY(a, size_t, r->n + 1);
	r->first_link = ARENA_ARRAY(a, size_t, r->n + 1);
	r->top = ARENA_ARRAY(a, double, r->n);
	r->height = ARENA_ARRAY(a, double, r->n);
	return r->cells && r->order && r->links && r->first_cell && r->first_link && r->top && r->height;
}

/* Assigns rows, bends and order to the children of a box, after those of the boxes in it. */
static enum tfmc_status arrange(struct arena *a, struct graph_node *box)
{
	struct graph_rows *r = &box->rows;
	for (size_t i = 0; i < box->children.n; i++)
		if (graph_has_inside(box->children.items[i]))
			TFMC_TRY(arrange(a, box->children.items[i]));
	r->n = set_rows(box);
	r->n_bends = set_bends(box);
	size_t *filled = ARENA_ARRAY(a, size_t, 2 * r->n);
	if (!filled || !allocate_rows(a, box, r->n_bends))
		return TFMC_NO_MEMORY;
	add_cells(box);
	add_links(box, filled);
	order_cells(r, filled + r->n);
	for (size_t row = 0; row < r->n; row++)
		settle_row(r, row, false, sort_row);
	for (int i = 0; i < SWEEPS; i++)
		sweep(r, sort_row);
	return TFMC_OK;
}

static double text_width(const char *text, double character)
{
	return character * (double)utf8_count(text, strlen(text));
}

static double larger(double a, double b)
{
	return a > b ? a : b;
}

/* Sets the size of a box that is closed: its lines of text. Widths of characters are estimates. Beside the lines the
   height has a margin of 13. */
static void set_closed_size(struct graph_node *n)
{
	bool is_port = n->kind >= GRAPH_PORT_IN;
	double title = text_width(n->name, is_port ? SMALL : CHARACTER),
	       lines = larger(text_width(n->text, SMALL), text_width(n->figures, SMALL));
	n->width = is_port ? title : larger(title, lines) + 2 * PAD + (graph_has_inside(n) ? FOLD : 0);
	n->height = is_port ? LINE : LINE * (1.0 + (*n->text != 0) + (*n->figures != 0)) + 13;
}

/* Makes inputs and ports as wide as the labels of their edges, which would overlap otherwise. */
static void fit_labels(const struct graph_node *box)
{
	for (size_t i = 0; i < box->edges.n; i++) {
		struct graph_node *n = box->edges.items[i].from;
		if (n->kind == GRAPH_INPUT || n->kind == GRAPH_PORT_IN)
			n->width = larger(n->width, text_width(box->edges.items[i].type, SMALL));
	}
}

enum tfmc_status graph_arrange(struct graph *g)
{
	for (size_t i = 0; i < g->nodes.n; i++)
		set_closed_size(g->nodes.items[i]);
	for (size_t i = 0; i < g->nodes.n; i++)
		fit_labels(g->nodes.items[i]);
	return arrange(g->arena, g->root);
}

/* Whether a box contains the layers of a model: such boxes begin open. */
static bool has_repeat(const struct graph_node *n)
{
	for (size_t i = 0; i < n->children.n; i++)
		if (n->children.items[i]->kind == GRAPH_REPEAT || has_repeat(n->children.items[i]))
			return true;
	return false;
}

/* Sets the size of a box and, if it is open, the positions of its children, sized first: x by two sweeps, y by
 * rows. page/graph.js computes the same. */
static void place(struct graph_node *n, bool opens_layers)
{
	struct graph_rows *r = &n->rows;
	n->is_open = !n->parent || has_repeat(n) || (n->kind == GRAPH_REPEAT && opens_layers);
	n->w = n->width;
	n->h = n->height;
	if (!n->is_open)
		return;
	for (size_t row = 0; row < r->n; row++)
		r->height[row] = 0;
	for (size_t i = 0; i < n->children.n; i++) {
		struct graph_node *child = n->children.items[i];
		place(child, opens_layers);
		r->height[child->row] = child->h > r->height[child->row] ? child->h : r->height[child->row];
	}
	for (size_t c = 0; c < r->n_cells; c++)
		r->cells[c].x = 0;
	for (size_t row = 0; row < r->n; row++)
		settle_row(r, row, false, place_row);
	sweep(r, place_row);
	sweep(r, place_row);
	double left = 0, right = 0, y = HEAD;
	for (size_t c = 0; c < r->n_cells; c++) {
		double half = half_width(&r->cells[c]), x = r->cells[c].x;
		left = c == 0 || x - half < left ? x - half : left;
		right = c == 0 || x + half > right ? x + half : right;
	}
	double title = n->width - 2 * PAD;
	double extra = right - left < title ? (title - (right - left)) / 2 : 0;
	for (size_t row = 0; row < r->n; row++) {
		r->top[row] = y;
		y += r->height[row] + GAP_Y;
	}
	for (size_t c = 0; c < r->n_cells; c++)
		r->cells[c].x += PAD + extra - left;
	for (size_t i = 0; i < n->children.n; i++) {
		struct graph_node *child = n->children.items[i];
		child->x = child->cell->x - child->w / 2;
		child->y = r->top[child->row] + (r->height[child->row] - child->h) / 2;
	}
	n->w = right - left + 2 * extra + 2 * PAD;
	n->h = y - GAP_Y + PAD;
}

void graph_place(struct graph *g, bool opens_layers)
{
	place(g->root, opens_layers);
}

/* Calls each() for the points of an edge: the lower edge of its first box, the top and the bottom of each row that
 * it passes, the upper edge of its last box. */
void graph_visit_points(const struct graph_node *box, const struct graph_edge *e, graph_point_fn *each,
                        void *user)
{
	const struct graph_rows *r = &box->rows;
	each(user, e->from->cell->x, e->from->y + e->from->h);
	for (size_t k = 1; k <= e->n_bends; k++) {
		const struct graph_cell *bend = cell_of(box, e, k);
		each(user, bend->x, r->top[bend->row]);
		each(user, bend->x, r->top[bend->row] + r->height[bend->row]);
	}
	each(user, e->to->cell->x, e->to->y);
}
