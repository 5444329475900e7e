/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tfmc graph: a function of the IR as nested boxes. Each component of a step's path is a box, a repeat and a group
 * (kernel) too; ops are the innermost. graph_tree.c makes the boxes and the edges of each, graph_layout.c their rows
 * and places, graph_draw.c the picture and its data, graph.c the command.
 */
#ifndef TFMC_FRONTEND_DRIVER_COMMANDS_GRAPH_H
#define TFMC_FRONTEND_DRIVER_COMMANDS_GRAPH_H

#include "ir/core/module.h"

enum graph_kind {
	GRAPH_STEP,   /* a step of the model, or a function */
	GRAPH_REPEAT, /* layers: the body once */
	GRAPH_KERNEL, /* a group */
	GRAPH_OP,
	GRAPH_INPUT, /* parameter of the function */
	GRAPH_OUTPUT,
	GRAPH_PORT_IN, /* a value from outside of the box */
	GRAPH_PORT_OUT,
};

/* Values that flow between two boxes of one box. */
struct graph_edge {
	struct graph_node *from, *to;
	const char *type; /* of the first value: f32[B,S,96] */
	uint32_t value;   /* the last one */
	size_t n_values;
	size_t first_bend, n_bends; /* where it passes rows between: bends count from 1 in a box */
};

/* Of one execution; a repeat counts its layers. Bytes of tensors between boxes, and of weights. */
struct graph_cost {
	double flops, weights, read, written;
};

/* A box or a bend in a row. */
struct graph_cell {
	struct graph_node *node; /* NULL: a bend */
	size_t bend, row, at;    /* at: from the left in its row */
	double x, want;          /* center; mean of the cells it is linked with */
	size_t n_want;
};

/* Cells of an edge, in rows that follow each other. */
struct graph_link {
	struct graph_cell *upper, *lower;
};

/* The cells of a box; links are in order of the upper row. Rows [n], first_*: [n + 1] indices by row. */
struct graph_rows {
	struct graph_cell *cells, **order; /* boxes and then bends; from left to right, row by row */
	struct graph_link *links;
	size_t *first_cell, *first_link;
	double *top, *height;
	size_t n, n_cells, n_bends;
};

struct graph_node {
	enum graph_kind kind;
	size_t id;              /* index in the order of creation */
	const char *name;       /* title; path relative to the box around */
	const char *text;       /* second line: ops */
	const char *figures;    /* third line: cost; "" for none */
	const struct ir_op *op; /* NULL for steps, inputs, ports */
	struct ir_loc loc;
	bool is_step;   /* its name is that of a step */
	uint32_t value; /* inputs, outputs, ports: the value's id */
	int64_t count;  /* repeat: layers; else 1 */
	struct graph_cost cost;
	struct graph_node *parent;
	struct {
		struct graph_node **items;
		size_t n, cap;
	} children; /* in order of execution: inputs, boxes, outputs, ports */
	struct {
		struct graph_edge *items;
		size_t n, cap;
	} edges;
	/* graph_layout.c */
	struct graph_rows rows;
	struct graph_cell *cell;        /* in the rows of the parent */
	size_t n_in, n_out, row, depth; /* edges to and from it; depth: boxes around it */
	bool is_open;
	double width, height; /* closed */
	double w, h, x, y;    /* as placed; left upper corner in the box around */
};

struct graph {
	struct arena *arena;
	const struct ir_module *module;
	const struct ir_func *func;
	const int64_t *dims; /* values of the module's symbols */
	struct graph_node *root;
	struct {
		struct graph_node **items;
		size_t n, cap;
	} nodes;
};

/* Makes the boxes and edges of g->func; everything lives in g->arena. */
TFMC_MUST_USE enum tfmc_status graph_build(struct graph *g);

static inline bool graph_has_inside(const struct graph_node *n)
{
	return n->kind == GRAPH_STEP || n->kind == GRAPH_REPEAT || n->kind == GRAPH_KERNEL;
}

/* Assigns rows and their order to the boxes in each box. */
TFMC_MUST_USE enum tfmc_status graph_arrange(struct graph *g);
/* Opens boxes that contain a repeat and, with opens_layers, the repeats; sets sizes and places. */
void graph_place(struct graph *g, bool opens_layers);
/* Points of an edge in its box, for the curve: begin, two for each bend, end. Calls each() in order. */
typedef void graph_point_fn(void *user, double x, double y);
void graph_visit_points(const struct graph_node *box, const struct graph_edge *e, graph_point_fn *each,
                        void *user);

/* Appends the picture as an SVG element. prefix: of the ids of its elements. */
void graph_draw(struct buf *out, const struct graph *g, const char *prefix);
/* Appends the data of the boxes as a JSON array. */
void graph_data(struct buf *out, const struct graph *g);

#endif
