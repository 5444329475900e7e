/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tfmc graph: the model as a picture, before and after the passes. A page (.html) has every function, opens and
 * closes boxes, and shows the lines of the model that a box was made from; a picture (.svg) has one function; .json
 * has the data of the page.
 */
#include "frontend/driver/commands/graph.h"

#include <string.h>

#include "frontend/driver/commands/page.h"
#include "frontend/driver/compile/compile.h"

/* embed.cmake: the files, zero-terminated. */
extern const unsigned char graph_html[], graph_js[], graph_css[];

#define MARGIN  16.0
#define CAPTION 30.0

enum stage { BEFORE, AFTER };
static const char *const stage_names[] = {"before", "after"};
static const char *const stage_titles[] = {"as written", "after the passes"};

/* The graph of a function before or after the passes. */
struct view {
	enum stage stage;
	struct graph graph;
};

struct views {
	struct driver *d;
	const char *name; /* of the model */
	struct {
		struct view *items;
		size_t n, cap;
	} list;
};

/* Makes a graph of each function of a module, with costs at the largest dims or those of --dim. Layers begin closed:
 * the page opens them, print_svg() places the boxes again. */
static enum tfmc_status add_module(struct views *v, const struct ir_module *m, enum stage stage)
{
	struct arena *a = &v->d->arena;
	size_t n = ir_dims_count(m->dims);
	int64_t *dims = ARENA_ARRAY(a, int64_t, n + 1);
	if (!dims)
		return TFMC_NO_MEMORY;
	for (size_t i = 0; i < n; i++)
		dims[i] = ir_dims_sym(m->dims, i)->hi;
	TFMC_TRY(driver_apply_dim_options(v->d, m->dims, dims));
	for (size_t i = 0; i < m->funcs.n; i++) {
		struct view view = {
		        .stage = stage,
		        .graph = {.arena = a, .module = m, .func = m->funcs.items[i], .dims = dims}};
		TFMC_TRY(graph_build(&view.graph));
		TFMC_TRY(graph_arrange(&view.graph));
		graph_place(&view.graph, false);
		if (!ARENA_ADDED(a, &v->list, view))
			return TFMC_NO_MEMORY;
	}
	return TFMC_OK;
}

/* "B=4, S=64": the values of the costs. */
static void print_dims(struct buf *out, const struct graph *g)
{
	for (size_t i = 0; i < ir_dims_count(g->module->dims); i++)
		buf_printf(out, "%s%s=%lld", i ? ", " : "", ir_dims_sym(g->module->dims, i)->name,
		           (long long)g->dims[i]);
}

/* ---- data ---- */

/* Whether a box of any graph was made from a line of this source. */
static bool is_used(const struct views *v, uint32_t source)
{
	for (size_t i = 0; i < v->list.n; i++)
		for (size_t k = 0; k < v->list.items[i].graph.nodes.n; k++)
			if (v->list.items[i].graph.nodes.items[k]->loc.at.source == source)
				return true;
	return false;
}

/* Prints the sources that boxes come from: number, name and text. */
static void print_sources(struct buf *out, const struct views *v)
{
	const struct diag_context *cx = &v->d->diag;
	const char *separator = "\n";
	for (size_t i = 0; i < cx->n_sources; i++) {
		if (!is_used(v, (uint32_t)i + 1) || !cx->sources[i].text)
			continue;
		buf_printf(out, "%s\"%zu\":{\"name\":", separator, i + 1);
		page_json_string(out, cx->sources[i].name);
		buf_str(out, ",\"text\":");
		page_json_string(out, cx->sources[i].text);
		buf_char(out, '}');
		separator = ",\n";
	}
}

/* Prints all graphs as one JSON object, the data of the page's script. Costs of all are at the same dims. */
static void print_data(struct buf *out, const struct views *v)
{
	struct buf dims;
	buf_init(&dims);
	print_dims(&dims, &v->list.items[0].graph);
	buf_str(out, "{\"model\":");
	page_json_string(out, v->name);
	buf_str(out, ",\"dims\":");
	page_json_string(out, dims.data);
	buf_str(out, ",\"sources\":{");
	print_sources(out, v);
	buf_str(out, "},\"graphs\":[");
	for (size_t i = 0; i < v->list.n; i++) {
		const struct view *view = &v->list.items[i];
		buf_printf(out, "%s{\"id\":\"g%zu\",\"stage\":\"%s\",\"title\":", i ? ",\n" : "\n", i,
		           stage_names[view->stage]);
		page_json_string(out, view->graph.func->name);
		buf_str(out, ",\"root\":");
		graph_data(out, &view->graph);
		buf_char(out, '}');
	}
	buf_str(out, "]}\n");
	buf_destroy(&dims);
}

/* ---- page and picture ---- */

/* Prints the page. It has no pictures: its script draws a box when it is opened, since a browser takes seconds to read
 * all boxes of many layers. */
static void print_page(struct buf *out, const struct views *v)
{
	struct buf data;
	buf_init(&data);
	print_data(&data, v);
	page_write(out, &(struct page){.name = v->name,
	                               .title = "graph",
	                               .parts = (const char *)graph_html,
	                               .marks = {{"@GRAPHSTYLE@", (const char *)graph_css}},
	                               .data = data.data,
	                               .script = (const char *)graph_js});
	out->failed = out->failed || buf_failed(&data);
	buf_destroy(&data);
}

/* Prints the first function as a picture, before and after the passes, side by side. Layers are open, since a
 * picture cannot open them. */
static void print_svg(struct buf *out, const struct views *v)
{
	struct buf pictures;
	double x = MARGIN, height = 0;
	buf_init(&pictures);
	for (size_t i = 0; i < v->list.n; i++) {
		struct view *view = &v->list.items[i];
		if (i > 0 && view->stage == view[-1].stage) /* another function */
			continue;
		graph_place(&view->graph, true);
		buf_printf(&pictures, "<text class=\"caption\" x=\"%.1f\" y=\"%.1f\">", x,
		           MARGIN + CAPTION / 2);
		page_text(&pictures, v->name, strlen(v->name));
		buf_printf(&pictures, ", %s (", stage_titles[view->stage]);
		print_dims(&pictures, &view->graph);
		buf_printf(&pictures, ")</text>\n<g transform=\"translate(%.1f,%.1f)\">", x,
		           MARGIN + CAPTION);
		graph_draw(&pictures, &view->graph, stage_names[view->stage]);
		buf_str(&pictures, "</g>\n");
		x += view->graph.root->w + MARGIN;
		height = view->graph.root->h > height ? view->graph.root->h : height;
	}
	height += CAPTION + 2 * MARGIN;
	buf_printf(out,
	           "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 "
	           "%.0f %.0f\">\n",
	           x, height, x, height);
	page_svg_style(out, (const char *)graph_css);
	buf_printf(out, "<rect class=\"ground\" width=\"%.0f\" height=\"%.0f\"/>\n", x, height);
	buf_append(out, &pictures);
	buf_str(out, "</svg>\n");
	buf_destroy(&pictures);
}

/* Writes to -o (or stdout) what its ending selects: .svg a picture, .json the data, anything else the page. */
static enum tfmc_status write_views(struct views *v)
{
	const char *path = v->d->options.output ? v->d->options.output : "-";
	struct buf out;
	buf_init(&out);
	if (file_ends_with(path, ".svg"))
		print_svg(&out, v);
	else if (file_ends_with(path, ".json"))
		print_data(&out, v);
	else
		print_page(&out, v);
	enum tfmc_status st = buf_failed(&out) ? TFMC_NO_MEMORY : driver_write_main_output(v->d, &out);
	buf_destroy(&out);
	return st;
}

/* Runs the pipeline and writes the module before and after it. */
static enum tfmc_status draw_module(struct views *v, const struct ir_module *in, const struct target *target)
{
	struct pass_report report;
	struct ir_module *planned = NULL;
	pass_report_init(&report);
	enum tfmc_status st = driver_run_pipeline(v->d, in, driver_pipeline(v->d), target, &planned, &report);
	if (st == TFMC_OK)
		st = add_module(v, in, BEFORE);
	if (st == TFMC_OK)
		st = add_module(v, planned, AFTER);
	if (st == TFMC_OK)
		st = write_views(v);
	ir_module_destroy(planned);
	pass_report_destroy(&report);
	return st;
}

enum exit_code command_graph(struct driver *d)
{
	struct loaded l;
	struct views v = {.d = d};
	const struct target *target = NULL;
	enum tfmc_status st = driver_load(d, &l);
	if (st == TFMC_OK && !(target = driver_best_target(d, d->options.mcpu)))
		st = TFMC_INVALID;
	if (st == TFMC_OK) {
		v.name = l.module->name;
		st = draw_module(&v, l.module, target);
	}
	loaded_destroy(&l);
	return exit_code_of(st);
}
