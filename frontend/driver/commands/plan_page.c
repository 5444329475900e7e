/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data of the page of tfmc plan: buffers as [name, first group, last group, offset, bytes], groups as [name,
 * layers of the repeats around, path of the step], weights as [name, type, format, bytes]. page/plan.js draws them.
 */
#include "frontend/driver/commands/plan_page.h"

#include <string.h>

#include "frontend/driver/commands/page.h"
#include "ir/core/cost.h"
#include "ir/core/lifetime.h"

/* embed.cmake: the files, zero-terminated. */
extern const unsigned char plan_html[], plan_js[];

static double value_of(const struct ir_dim *d, const int64_t *dims)
{
	int64_t v;
	return ir_dim_eval(d, dims, &v) ? (double)v : 0;
}

/* Layers of the repeats around a group; 1: none. */
static int64_t layers_around(const struct ir_func *f, const struct ir_op *group)
{
	int64_t n = 1;
	const struct ir_region *r = group->n_results ? ir_value_info(f, group->results[0])->region : NULL;
	for (; r && r->owner; r = r->parent)
		n *= r->owner->code == OP_repeat ? ((const struct attrs_repeat *)r->owner->attrs)->count : 1;
	return n;
}

/* Prints the groups of a function in order of execution; their indices are the times of its buffers. */
static void print_groups(struct buf *out, const struct diag_context *cx, const struct ir_func *f,
                         const struct ir_lifetimes *life)
{
	struct buf name;
	for (size_t t = 0; t < life->n_times; t++) {
		buf_init(&name);
		ir_op_describe(&name, cx, f, life->groups[t]);
		buf_str(out, t ? ",\n[" : "\n[");
		page_json_string(out, name.data);
		buf_printf(out, ",%lld,", (long long)layers_around(f, life->groups[t]));
		const struct ir_op *root = ir_group_root(life->groups[t]);
		page_json_string(out, root && root->loc.path ? root->loc.path : "");
		buf_char(out, ']');
		buf_destroy(&name);
	}
}

/* Prints the buffers of a plan. Offsets and sizes are polynomials in the dims, printed at `dims`. */
static void print_buffers(struct buf *out, const struct plan_func *plan, const int64_t *dims)
{
	for (size_t i = 0; i < plan->n_buffers; i++) {
		const struct plan_buffer *b = &plan->buffers[i];
		buf_str(out, i ? ",\n[" : "\n[");
		page_json_string(out, b->name);
		buf_printf(out, ",%zu,%zu,%.0f,%.0f]", b->first, b->last, value_of(b->at, dims),
		           (double)b->size * value_of(plan->lanes[b->lane].unit, dims));
	}
}

static void print_weights(struct buf *out, struct arena *a, const struct ir_module *m)
{
	for (size_t i = 0; i < m->weights.n; i++) {
		const struct ir_weight *w = m->weights.items[i];
		enum ir_format stored = ir_weight_stored_format(w);
		buf_str(out, i ? ",\n[" : "\n[");
		page_json_string(out, w->name);
		buf_char(out, ',');
		page_json_string(out, ir_type_to_string(a, m->dims, w->type));
		buf_printf(out, ",\"%s\",%.0f]", stored == FORMAT_PLAIN ? "" : ir_format(stored)->name,
		           ir_weight_bytes(w));
	}
}

/* The lifetimes are computed from the planned function as by the planner, so that the numbers of groups are the
 * times of its buffers. */
enum tfmc_status plan_page(struct arena *a, const struct diag_context *cx, const struct ir_module *planned,
                           const struct pass_report *report, const int64_t *dims, const char *caption,
                           struct buf *out)
{
	struct buf data;
	bool done = true;
	buf_init(&data);
	buf_str(&data, "{\"caption\":");
	page_json_string(&data, caption);
	buf_str(&data, ",\"functions\":[");
	for (size_t i = 0; i < report->plans.n; i++) {
		const struct plan_func *plan = &report->plans.items[i];
		const struct ir_func *f = ir_find_func(planned, plan->name);
		struct ir_lifetimes life = {0};
		done = done && (!f || ir_lifetimes(a, f, &life));
		buf_str(&data, i ? ",\n{\"name\":" : "\n{\"name\":");
		page_json_string(&data, plan->name);
		buf_printf(&data, ",\"bound\":%.0f,\"groups\":[", value_of(plan->lower_bound, dims));
		if (done && f)
			print_groups(&data, cx, f, &life);
		buf_str(&data, "],\"buffers\":[");
		print_buffers(&data, plan, dims);
		buf_str(&data, "]}");
	}
	buf_str(&data, "],\"weights\":[");
	print_weights(&data, a, planned);
	buf_str(&data, "]}\n");
	page_write(out, &(struct page){.name = planned->name,
	                               .title = "memory",
	                               .parts = (const char *)plan_html,
	                               .data = data.data,
	                               .script = (const char *)plan_js});
	done = done && !buf_failed(&data) && !buf_failed(out);
	buf_destroy(&data);
	return done ? TFMC_OK : TFMC_NO_MEMORY;
}
