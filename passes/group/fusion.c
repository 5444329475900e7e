/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forms the clusters (fusion.h) of a function in three phases:
 * 1. Every root with a specialized kernel takes its epilogue, the elementwise ops after it; a linear also
 *    takes the norm that only it reads as prologue, and column ranges.
 * 2. From the last op to the first, an op becomes a prologue of the cluster that contains all its readers if they
 *    can evaluate it in place; else it begins its own cluster. A cluster that is full is cut where the fewest bytes
 *    are alive.
 * 3. Clusters that can store through strides take the views after them that could not be read as strides.
 */
#include "passes/group/fusion.h"

#include "ir/core/view.h"

/*
 * Buffers that the prologues of a cluster read: each is a pointer and an offset among the arguments of its kernel, for
 * which devices guarantee 1024 bytes, and must stay in memory until the kernel runs.
 */
#define INPUTS_MAX 32
/* Ops of kernels of rows and linears, which emit their elementwise ops for each vector of a row or register tile: code
 * grows with the product of both. */
#define TILE_OPS_MAX 16

size_t fusion_op_index(const struct fusion_plan *g, const struct ir_op *op)
{
	return g->index_of[op->results[0].id] - 1;
}

const struct cluster *fusion_cluster_of(const struct fusion_plan *g, const struct ir_op *op)
{
	size_t at = op->n_results == 0 || op->region != NULL ? 0 : g->cluster_of[fusion_op_index(g, op)];
	return at == 0 ? NULL : &g->clusters.items[at - 1];
}

/* ---- properties of ops ---- */

bool fusion_is_constant(const struct ir_op *op)
{
	return op != NULL && (op->code == OP_full || op->code == OP_iota || op->code == OP_dim_value);
}

/* Ops that are never in a group of their own. */
static bool stays_outside(const struct ir_op *op)
{
	return op->region != NULL || op->code == OP_state_read || op->code == OP_weight ||
	       fusion_is_constant(op) || ir_op_has(op->code, TRAIT_VIEW) ||
	       ir_op_has(op->code, TRAIT_TERMINATOR);
}

bool fusion_is_elementwise(const struct ir_op *op)
{
	return ir_op_has(op->code, TRAIT_ELEMENTWISE);
}

bool fusion_reads_same_element(const struct ir_func *f, const struct ir_op *op, size_t i)
{
	return fusion_is_elementwise(op) &&
	       ir_same_dims(ir_type_of(f, op->operands[i]), ir_type_of(f, op->results[0]));
}

/* Operands of a state write that may be constants are its indices (of layers). */
bool fusion_constant_in_place(const struct ir_func *f, const struct ir_op *op, size_t i)
{
	if (op->code == OP_state_append || op->code == OP_state_write)
		return i >= (op->code == OP_state_append ? 3 : 2);
	return fusion_reads_same_element(f, op, i) ||
	       ((op->code == OP_gather || op->code == OP_select_rows) && i == 1) ||
	       (op->code == OP_rope && i == 2);
}

bool fusion_is_f32(const struct ir_func *f, struct ir_value v)
{
	return v.id == 0 || ir_type_of(f, v)->dtype == DT_F32;
}

struct activation_quant rounding_of(const struct ir_op *op)
{
	const struct attrs_quantize_rows *a = op->attrs;
	return (struct activation_quant){.bf16 = a->to == ROUND_bf16, .block = a->block};
}

/* False also on devices with work-groups, for products of values, and where the format of the weight has no dot
 * products with these quants (quant_dot_block); op then has a kernel of its own. */
bool rounds_inside_linear(const struct pass_context *p, const struct ir_func *f, const struct ir_op *linear,
                          const struct ir_op *op)
{
	const struct target *t = p->options->target;
	int64_t depth;
	if (op == NULL || op->code != OP_quantize_rows ||
	    !ir_same_value(linear->operands[0], op->results[0]) || linear->code == OP_matmul ||
	    fusion_kernel_kind(f, linear) != GROUP_linear || (t != NULL && t->group_size > 1))
		return false;
	const struct ir_type *w = ir_type_of(f, linear->operands[1]);
	struct activation_quant to = rounding_of(op);
	if (to.bf16 && t != NULL && !target_has(t, FEATURE_AVX512BF16) && !target_has(t, FEATURE_BF16))
		return false; /* without bf16 dot products, f32 arithmetic is faster */
	return ir_dim_is_const(w->dims[w->rank - 1], &depth) &&
	       quant_dot_block(ir_weight_of(f, linear->operands[1])->format, to, depth) >= 0;
}

/* op needs no kernel: all its readers are linears that round their rows inside. */
static bool is_computed_by_readers(const struct fuser *s, const struct ir_op *op)
{
	const struct user_list *u = &s->users[op->results[0].id];
	for (size_t i = 0; i < u->n; i++)
		if (!rounds_inside_linear(s->p, s->f, u->items[i], op))
			return false;
	return u->n > 0;
}

static bool packed_linear(const struct ir_func *f, const struct ir_op *op)
{
	const struct ir_weight *w = ir_weight_of(f, op->operands[1]);
	struct ir_value bias = op->operands[op->code == OP_expert_linear ? 3 : 2];
	return w != NULL && w->encoding == ENC_PANEL16 && fusion_is_f32(f, op->operands[0]) &&
	       fusion_is_f32(f, op->operands[1]) && fusion_is_f32(f, bias);
}

/* A product of two f32 values in memory: the kernel of a linear packs the right one when it runs. */
static bool is_product_of_values(const struct ir_func *f, const struct ir_op *op)
{
	const struct ir_weight *w = op->code == OP_matmul ? ir_weight_of(f, op->operands[1]) : NULL;
	return op->code == OP_matmul && fusion_is_f32(f, op->operands[0]) &&
	       fusion_is_f32(f, op->operands[1]) &&
	       (w == NULL || (!ir_format_is_quantized(w->format) && w->encoding == ENC_ROW));
}

int fusion_kernel_kind(const struct ir_func *f, const struct ir_op *op)
{
	if (is_product_of_values(f, op))
		return GROUP_linear;
	if ((op->code == OP_linear || op->code == OP_expert_linear) && packed_linear(f, op))
		return GROUP_linear;
	if (op->code == OP_attention)
		return GROUP_attention;
	if (ir_op_has(op->code, TRAIT_EXCHANGE))
		return GROUP_exchange;
	if (ir_op_has(op->code, TRAIT_ROWWISE) && fusion_is_f32(f, op->operands[0]))
		return GROUP_rowwise;
	return GROUP_loops;
}

size_t fusion_ops_max(const struct fuser *s, int kind)
{
	return kind == GROUP_loops || s->max_ops < TILE_OPS_MAX ? s->max_ops : TILE_OPS_MAX;
}

/* ---- operations on clusters ---- */

static size_t index_of(const struct fuser *s, const struct ir_op *op)
{
	return fusion_op_index(s->g, op);
}

bool fusion_is_unassigned(const struct fuser *s, const struct ir_op *op)
{
	return !stays_outside(op) && !is_computed_by_readers(s, op) && s->g->cluster_of[index_of(s, op)] == 0;
}

void fusion_assign(struct fuser *s, const struct ir_op *op, size_t cluster, enum member_role role)
{
	s->g->cluster_of[index_of(s, op)] = cluster + 1;
	s->g->role_of[index_of(s, op)] = role;
	s->g->clusters.items[cluster].n_ops++;
}

/* Begins a cluster with op as its root; returns its index. Without memory s->failed, and 0. */
static size_t begin_cluster(struct fuser *s, const struct ir_op *op)
{
	struct cluster *c = ARENA_PUSH(s->p->arena, &s->g->clusters);
	if (c == NULL) {
		s->failed = true;
		return 0;
	}
	*c = (struct cluster){.kind = fusion_kernel_kind(s->f, op), .root = op, .last = op, .emit_at = op};
	fusion_assign(s, op, s->g->clusters.n - 1, MEMBER_ROOT);
	return s->g->clusters.n - 1;
}

static const struct ir_region *fusion_region_of(const struct fuser *s, const struct ir_op *op)
{
	return ir_value_info(s->f, op->results[0])->region;
}

/* NULL also if the reader has no results (a terminator) or is in another region, where it is executed more often. */
const struct ir_op *fusion_single_reader(const struct fuser *s, struct ir_value v)
{
	const struct user_list *u = &s->users[v.id];
	if (u->n == 0)
		return NULL;
	for (size_t i = 1; i < u->n; i++)
		if (u->items[i] != u->items[0])
			return NULL;
	const struct ir_op *op = u->items[0];
	return op->n_results > 0 && fusion_region_of(s, op) == ir_value_info(s->f, v)->region ? op : NULL;
}

/* The op writes the state `state`; any state if NULL. */
static bool writes_state(const struct fuser *s, const struct ir_op *op, const struct ir_state_decl *state)
{
	return (op->code == OP_state_append || op->code == OP_state_write) &&
	       (state == NULL || ir_type_of(s->f, op->operands[0])->state == state);
}

bool fusion_state_is_written_between(const struct fuser *s, const struct ir_op *op, const struct ir_op *at)
{
	for (size_t i = 0; i < op->n_operands; i++) {
		struct ir_value base = ir_view_base(s->f, op->operands[i]);
		const struct ir_op *read = base.id != 0 ? ir_state_slice_op(s->f, base) : NULL;
		for (size_t k = index_of(s, op) + 1; read != NULL && k < index_of(s, at); k++)
			if (writes_state(s, s->g->ops[k], ir_type_of(s->f, read->operands[0])->state))
				return true;
	}
	return false;
}

/* ---- phase 1: epilogues ---- */

/* v is x or the result of one of the n ops. */
static bool is_among(struct ir_value v, struct ir_value x, const struct ir_op *const *ops, size_t n)
{
	bool found = ir_same_value(v, x);
	for (size_t i = 0; i < n && !found; i++)
		found = ir_same_value(v, ops[i]->results[0]);
	return found;
}

/* op is an elementwise epilogue op: f32 at the elements of v and of the n ops before it; masks, lengths and conditions
 * may have other types. */
static bool can_be_epilogue(const struct fuser *s, const struct ir_op *op, struct ir_value v,
                            const struct ir_op *const *ops, size_t n)
{
	if (!fusion_is_elementwise(op) || !fusion_is_unassigned(s, op) ||
	    !fusion_is_f32(s->f, op->results[0]) ||
	    !ir_same_dims(ir_type_of(s->f, op->results[0]), ir_type_of(s->f, v)))
		return false;
	for (size_t i = 0; i < op->n_operands; i++) {
		bool reads_element = fusion_reads_same_element(s->f, op, i);
		bool is_condition = op->code == OP_where && i == 0;
		if ((!reads_element || is_condition) && is_among(op->operands[i], v, ops, n))
			return false;
		if (reads_element && !is_condition && !fusion_is_f32(s->f, op->operands[i]))
			return false;
	}
	return true;
}

/* Index of the first op that reads v and is none of the n ops. g->n_ops: an op that has no index reads v, a terminator
 * or one with a region, or an op of another region; SIZE_MAX: no other reader. */
static size_t first_other_reader(const struct fuser *s, struct ir_value v, const struct ir_op *const *ops,
                                 size_t n)
{
	size_t first = SIZE_MAX;
	for (size_t i = 0; i < s->users[v.id].n; i++) {
		const struct ir_op *op = s->users[v.id].items[i];
		bool is_outside = op->n_results == 0 || op->region != NULL ||
		                  fusion_region_of(s, op) != ir_value_info(s->f, v)->region;
		size_t at = is_outside ? s->g->n_ops : index_of(s, op);
		for (size_t k = 0; k < n; k++)
			at = op == ops[k] ? SIZE_MAX : at;
		first = at < first ? at : first;
	}
	return first;
}

/*
 * The next ops of an epilogue after v: the fewest elementwise ops, in program order, of which only the last is read by
 * others, and which alone read v. That is v's single reader, or of v relu6(v + 3) / 6 (hardswish) all ops. Returns
 * their number, at most max; 0: none, or one that no epilogue computes.
 */
static size_t next_epilogue_ops(const struct fuser *s, struct ir_value v, const struct ir_op **ops,
                                size_t max)
{
	for (size_t n = 0;; n++) {
		size_t next = first_other_reader(s, v, ops, n);
		for (size_t i = 0; i + 1 < n; i++) {
			size_t at = first_other_reader(s, ops[i]->results[0], ops, n);
			next = at < next ? at : next;
		}
		if (next == SIZE_MAX && n > 0)
			return n;
		size_t of_last = n > 0 ? first_other_reader(s, ops[n - 1]->results[0], ops, n) : SIZE_MAX;
		next = of_last < next ? of_last : next;
		if (n == max || next >= s->g->n_ops || !can_be_epilogue(s, s->g->ops[next], v, ops, n))
			return 0;
		ops[n] = s->g->ops[next];
	}
}

/* op is a reduction of logits by blocks of columns (block_argmax, block_log_softmax): it ends the kernel of a
 * linear. */
static bool can_reduce_logits(const struct fuser *s, const struct cluster *c, const struct ir_op *op,
                              struct ir_value v)
{
	return c->kind == GROUP_linear && c->root->code == OP_linear && !c->has_norm_epilogue &&
	       (op->code == OP_block_argmax || op->code == OP_block_log_softmax) &&
	       fusion_is_unassigned(s, op) && ir_same_value(op->operands[0], v) && fusion_is_f32(s->f, v);
}

/* A member of the cluster, or one of the n ops, would read a state after it is written if the last op emitted them. */
static bool is_emitted_after_write(const struct fuser *s, size_t cluster, const struct ir_op *const *ops,
                                   size_t n)
{
	const struct ir_op *last = ops[n - 1];
	bool is_written = false;
	for (size_t i = index_of(s, s->g->clusters.items[cluster].emit_at); i < index_of(s, last); i++)
		is_written |= writes_state(s, s->g->ops[i], NULL);
	for (size_t i = 0; is_written && i < index_of(s, last); i++)
		if (s->g->cluster_of[i] == cluster + 1 &&
		    fusion_state_is_written_between(s, s->g->ops[i], last))
			return true;
	for (size_t i = 0; is_written && i + 1 < n; i++)
		if (fusion_state_is_written_between(s, ops[i], last))
			return true;
	return false;
}

/* Adds the ops that alone read the result of the last op to the cluster, as far as its kernel can compute them. */
static void fuse_epilogue(struct fuser *s, size_t cluster)
{
	for (;;) {
		struct cluster *c = &s->g->clusters.items[cluster];
		const struct ir_op *ops[TILE_OPS_MAX];
		struct ir_value v = c->last->results[0];
		size_t max = fusion_ops_max(s, c->kind);
		const struct ir_op *op = fusion_single_reader(s, v);
		if (c->n_ops >= max)
			return;
		bool ends_in_reduction = op != NULL && can_reduce_logits(s, c, op, v);
		size_t n = ends_in_reduction ? 0 : next_epilogue_ops(s, v, ops, max - c->n_ops);
		bool is_norm = n == 0 && !ends_in_reduction && op != NULL && can_fuse_norm_epilogue(s, c, op);
		if (ends_in_reduction || is_norm)
			ops[n++] = op;
		if (n == 0 || is_emitted_after_write(s, cluster, ops, n))
			return;
		for (size_t i = 0; i < n; i++) {
			fusion_assign(s, ops[i], cluster, MEMBER_POST);
			c->last = c->emit_at = ops[i];
		}
		if (ends_in_reduction)
			return;
		if (!is_norm)
			continue;
		c->has_norm_epilogue = true;
		pass_count(s->p, "norm_epilogues", 1);
		pass_remark(s->p, op->loc, "fused: %s into the linear before it", ir_op_desc(op->code)->name);
	}
}

/* im2col: the kernel of a linear makes the concat along K that nothing else reads in its scratch, by blocks of rows.
 * Not on devices with work-groups. */
static void fuse_concat_prologue(struct fuser *s, size_t cluster)
{
	const struct ir_op *linear = s->g->clusters.items[cluster].root;
	const struct ir_op *op = ir_def_as(s->f, unrounded_input(s, linear), OP_concat);
	const struct target *t = s->p->options->target;
	if (op == NULL || linear->code != OP_linear || s->max_ops < 2 || (t != NULL && t->group_size > 1) ||
	    !fusion_is_unassigned(s, op) || reader_through_rounding(s, op->results[0]) != linear ||
	    fusion_state_is_written_between(s, op, linear) ||
	    ((const struct attrs_concat *)op->attrs)->axis != ir_type_of(s->f, op->results[0])->rank - 1)
		return;
	fusion_assign(s, op, cluster, MEMBER_PRE);
	pass_count(s->p, "concat_prologues", 1);
}

/* Phase 1. A norm that is a prologue of its linear begins no cluster; column ranges exclude another epilogue.
 * Kernels of attention and exchanges store their results as they are. */
static void form_root_clusters(struct fuser *s)
{
	for (size_t i = 0; i < s->g->n_ops && !s->failed; i++) {
		const struct ir_op *op = s->g->ops[i];
		if (!fusion_is_unassigned(s, op) || fusion_kernel_kind(s->f, op) == GROUP_loops)
			continue;
		if (ir_is_norm(op->code) && fusion_kernel_kind(s->f, op) == GROUP_rowwise &&
		    norm_prologue_linear(s, op) != NULL)
			continue;
		size_t cluster = begin_cluster(s, op);
		if (s->failed)
			return;
		int kind = s->g->clusters.items[cluster].kind;
		if (kind == GROUP_linear) {
			fuse_norm_prologue(s, cluster);
			fuse_concat_prologue(s, cluster);
		}
		if (kind == GROUP_linear && s->max_ops > 1 && fuse_column_ranges(s, cluster))
			continue;
		if (kind != GROUP_attention && kind != GROUP_exchange)
			fuse_epilogue(s, cluster);
	}
}

/* ---- phase 2: prologues ---- */

bool fusion_is_index_arithmetic(const struct ir_func *f, const struct ir_op *op)
{
	return fusion_is_elementwise(op) && ir_type_of(f, op->results[0])->dtype == DT_I32;
}

/*
 * A linear's prologue is a norm, which several workers recompute for their rows. So only a lookup of rows (gather,
 * select_rows) and its index arithmetic may be moved into it.
 */
static bool may_move_into_linear(const struct fuser *s, const struct ir_op *reader, size_t i,
                                 const struct ir_op *op)
{
	if (ir_is_norm(reader->code))
		return i == 0 && (op->code == OP_gather || op->code == OP_select_rows) &&
		       fusion_is_f32(s->f, op->results[0]);
	if (fusion_is_elementwise(reader))
		return fusion_is_index_arithmetic(s->f, reader) && fusion_is_index_arithmetic(s->f, op) &&
		       fusion_reads_same_element(s->f, reader, i);
	return i == 1 && fusion_is_index_arithmetic(s->f, op);
}

/* The reader, a member of some cluster, may evaluate op, its operand i, in place. Kernels of attention and
 * exchanges read memory only, and so does an epilogue. */
static bool may_evaluate_in_place(const struct fuser *s, const struct ir_op *reader, size_t i,
                                  const struct ir_op *op)
{
	const struct cluster *c = fusion_cluster_of(s->g, reader);
	enum member_role role = s->g->role_of[index_of(s, reader)];

	if (c->kind == GROUP_attention || c->kind == GROUP_exchange || role == MEMBER_POST)
		return false;
	if (c->kind == GROUP_linear)
		return role == MEMBER_PRE && may_move_into_linear(s, reader, i, op);
	if (fusion_is_elementwise(reader))
		return fusion_reads_same_element(s->f, reader, i);
	if (reader->code == OP_pad)
		return op->code == OP_pad;
	if (reader->code == OP_gather || reader->code == OP_select_rows)
		return i == 1 && fusion_is_index_arithmetic(s->f, op);
	if (reader->code == OP_rope)
		return i == 2 && fusion_is_index_arithmetic(s->f, op);
	if (c->kind == GROUP_rowwise)
		return i == 0 && fusion_is_f32(s->f, op->results[0]);
	return ir_op_has(reader->code, TRAIT_REDUCE) && i == 0;
}

/* 1 + the cluster that contains all readers of op, if all of them may evaluate it in place; else 0. */
static size_t common_cluster(const struct fuser *s, const struct ir_op *op)
{
	const struct user_list *u = &s->users[op->results[0].id];
	size_t common = 0;

	for (size_t i = 0; i < u->n; i++) {
		const struct ir_op *reader = u->items[i];
		const struct cluster *c = fusion_cluster_of(s->g, reader);
		if (c == NULL || fusion_region_of(s, reader) != fusion_region_of(s, op))
			return 0;
		size_t at = s->g->cluster_of[index_of(s, reader)];
		if (common != 0 && common != at)
			return 0;
		common = at;
		for (size_t k = 0; k < reader->n_operands; k++)
			if (ir_same_value(reader->operands[k], op->results[0]) &&
			    !may_evaluate_in_place(s, reader, k, op))
				return 0;
	}
	return common;
}

/* op is a reduction and its only reader the elementwise root: it is computed once for each element. */
static bool is_reduced_once(const struct fuser *s, const struct ir_op *op, size_t cluster)
{
	const struct ir_op *root = s->g->clusters.items[cluster - 1].root;
	return ir_op_has(op->code, TRAIT_REDUCE) && fusion_is_elementwise(root) &&
	       fusion_single_reader(s, op->results[0]) == root;
}

/* op is a pad that only the root reads, a pad of another axis; op leaves the last axis, so that vectors along it are
 * copied. */
static bool is_padded_again(const struct fuser *s, const struct ir_op *op, size_t cluster)
{
	const struct ir_op *root = s->g->clusters.items[cluster - 1].root;
	const struct attrs_pad *inner = op->attrs, *outer = root->attrs;
	int64_t last = ir_type_of(s->f, op->results[0])->rank - 1;
	return op->code == OP_pad && root->code == OP_pad && s->max_ops > 1 && outer->axis != inner->axis &&
	       inner->axis != last && fusion_single_reader(s, op->results[0]) == root;
}

static bool can_be_prologue(const struct fuser *s, const struct ir_op *op, size_t cluster)
{
	bool is_kind = fusion_is_elementwise(op) || op->code == OP_gather || op->code == OP_select_rows ||
	               is_reduced_once(s, op, cluster) || is_padded_again(s, op, cluster);
	return is_kind && !fusion_state_is_written_between(s, op, s->g->clusters.items[cluster - 1].emit_at);
}

/* op would become a prologue of the cluster (its index + 1) if that were not full. */
static bool may_join(const struct fuser *s, const struct ir_op *op, size_t cluster)
{
	return fusion_is_unassigned(s, op) && common_cluster(s, op) == cluster &&
	       can_be_prologue(s, op, cluster);
}

/* Removes the prologue that was added last, which is the earliest, from the cluster. */
static void remove_first_prologue(struct fuser *s, struct cluster *c)
{
	size_t at = c->first_prologue - 1;
	s->g->cluster_of[at] = 0;
	c->n_ops--;
	c->first_prologue = s->next_prologue[at];
}

/* Enters the buffers that op, a member of the cluster, reads into the list of the cluster: no operand that may join it,
 * and no constant in place. False: there are more than the list can have. */
static bool add_inputs(const struct fuser *s, size_t cluster, const struct ir_op *op)
{
	struct cluster *c = &s->g->clusters.items[cluster];
	for (size_t i = 0; i < op->n_operands; i++) {
		const struct ir_op *def = ir_def(s->f, op->operands[i]);
		uint32_t base = ir_view_base(s->f, op->operands[i]).id;
		bool joins =
		        def != NULL && !stays_outside(def) &&
		        (s->g->cluster_of[index_of(s, def)] == cluster + 1 || may_join(s, def, cluster + 1));
		size_t k = 0;
		if (base == 0 || joins || (fusion_is_constant(def) && fusion_constant_in_place(s->f, op, i)))
			continue;
		while (k < c->n_inputs && c->inputs[k] != base)
			k++;
		if (k == INPUTS_MAX)
			return false;
		c->inputs[k] = base;
		c->n_inputs += k == c->n_inputs;
	}
	return true;
}

/* Makes op a prologue of the cluster. False: the cluster is full. */
static bool add_prologue(struct fuser *s, const struct ir_op *op, size_t cluster)
{
	struct cluster *c = &s->g->clusters.items[cluster];
	size_t at = index_of(s, op);
	if (c->inputs == NULL) {
		c->inputs = ARENA_ARRAY(s->p->arena, uint32_t, INPUTS_MAX);
		s->failed = c->inputs == NULL;
		if (s->failed || !add_inputs(s, cluster, c->root))
			return s->failed;
	}
	if (c->n_ops >= fusion_ops_max(s, c->kind))
		return false;
	fusion_assign(s, op, cluster, MEMBER_PRE);
	s->next_prologue[at] = c->first_prologue;
	c->first_prologue = at + 1;
	if (add_inputs(s, cluster, op))
		return true;
	remove_first_prologue(s, c);
	return false;
}

/* Bytes that `reader`, the last reader of some values, adds to those that a cut of the cluster before op `at` stores:
 * the results of prologues before it and of ops that may join. */
static double bytes_cut_at(const struct fuser *s, size_t cluster, size_t at, const struct ir_op *reader)
{
	double bytes = 0;
	for (size_t i = 0; i < reader->n_operands; i++) {
		struct ir_value v = reader->operands[i];
		const struct ir_op *def = ir_def(s->f, v);
		const struct user_list *u = &s->users[v.id];
		if (def == NULL || stays_outside(def) || u->items[u->n - 1] != reader ||
		    (i > 0 && ir_same_value(v, reader->operands[i - 1])))
			continue;
		if ((s->g->cluster_of[index_of(s, def)] == cluster + 1 && index_of(s, def) < at) ||
		    may_join(s, def, cluster + 1))
			bytes += (double)ir_dim_hi(s->m->dims, ir_value_bytes(s->m, s->f, v));
	}
	return bytes;
}

/* Bytes that a cut of the cluster before prologue `at` stores. */
static double bytes_of_cut(const struct fuser *s, size_t cluster, size_t at)
{
	double bytes = bytes_cut_at(s, cluster, at, s->g->clusters.items[cluster].root);
	for (size_t i = at + 1; i != 0; i = s->next_prologue[i - 1])
		bytes += bytes_cut_at(s, cluster, at, s->g->ops[i - 1]);
	return bytes;
}

/*
 * Ends a cluster that is full: of the cuts in its earlier half the one that stores the fewest bytes, of several the
 * earliest. Of sums of products, a chain of multiply and add, a cut after an add stores one tensor, any other cut two.
 * The prologues before the cut leave the cluster. Returns 1 + the index of the last of them, or of `op`, which did not
 * become a prologue.
 */
static size_t cut_cluster(struct fuser *s, size_t cluster, size_t op)
{
	struct cluster *c = &s->g->clusters.items[cluster];
	size_t best = c->first_prologue, n = 0;
	double fewest = 0;
	c->is_full = true;
	for (size_t at = best; at != 0 && 2 * n < c->n_ops; at = s->next_prologue[at - 1], n++) {
		double bytes = bytes_of_cut(s, cluster, at - 1);
		best = n == 0 || bytes < fewest ? at : best;
		fewest = best == at ? bytes : fewest;
	}
	while (c->first_prologue != best) {
		op = c->first_prologue - 1;
		remove_first_prologue(s, c);
	}
	return op + 1;
}

/* Phase 2. Backward, so that the clusters of all readers of an op are known. */
static void assign_prologues(struct fuser *s)
{
	for (size_t i = s->g->n_ops; i-- > 0 && !s->failed;) {
		const struct ir_op *op = s->g->ops[i];
		if (!fusion_is_unassigned(s, op))
			continue;
		size_t cluster = common_cluster(s, op);
		if (cluster == 0 || !can_be_prologue(s, op, cluster) ||
		    s->g->clusters.items[cluster - 1].is_full)
			begin_cluster(s, op);
		else if (!add_prologue(s, op, cluster - 1))
			i = cut_cluster(s, cluster - 1, i);
	}
}

/* ---- phase 3: stored views, and constants in memory ---- */

static bool is_layout_op(const struct ir_op *op)
{
	return op != NULL && (op->code == OP_reshape || op->code == OP_transpose);
}

/*
 * Lets the cluster store through the reshapes and transposes after it, up to the first that cannot be read as
 * strides. The cluster is still emitted at its old place, since a group between it and the view may read the view.
 */
static void fuse_stored_views(struct fuser *s, size_t cluster)
{
	struct cluster *c = &s->g->clusters.items[cluster];
	const struct ir_op *chain[IR_VIEW_CHAIN_MAX];
	struct ir_view view;
	size_t n = 0;

	const struct ir_op *op =
	        c->last->n_results == 1 ? fusion_single_reader(s, c->last->results[0]) : NULL;
	for (; is_layout_op(op) && n < IR_VIEW_CHAIN_MAX; op = fusion_single_reader(s, op->results[0])) {
		chain[n++] = op;
		if (ir_view_resolve(s->m, s->f, op->results[0], &view))
			continue;
		if (!ir_view_inverse(s->m, s->f, op->results[0], 0, &view))
			return;
		for (size_t i = 0; i < n; i++)
			fusion_assign(s, chain[i], cluster, MEMBER_POST);
		c->last = op;
		return;
	}
}

/* The only use of v is as a result of the function or of a region, or as the initial value of a carry. */
static bool is_region_result(const struct fuser *s, struct ir_value v)
{
	const struct user_list *u = &s->users[v.id];
	return u->n == 1 &&
	       (ir_op_has(u->items[0]->code, TRAIT_TERMINATOR) || u->items[0]->code == OP_repeat);
}

/* A value that is returned, yielded or carried must be the result of a group: take the reshapes before it. */
static void fuse_trailing_reshapes(struct fuser *s, size_t cluster)
{
	struct cluster *c = &s->g->clusters.items[cluster];
	const struct ir_op *chain[IR_VIEW_CHAIN_MAX];
	size_t n = 0;

	const struct ir_op *op =
	        c->last->n_results == 1 ? fusion_single_reader(s, c->last->results[0]) : NULL;
	for (; op != NULL && op->code == OP_reshape && n < IR_VIEW_CHAIN_MAX;
	     op = fusion_single_reader(s, op->results[0]))
		chain[n++] = op;
	if (n == 0 || !is_region_result(s, chain[n - 1]->results[0]))
		return;
	for (size_t i = 0; i < n; i++)
		fusion_assign(s, chain[i], cluster, MEMBER_POST);
	c->last = chain[n - 1];
}

/* Phase 3, for clusters with one result. Only the kernels of attention, of loops and of matmuls can store through
 * strides; an exchange sends one array. */
static void fuse_views(struct fuser *s)
{
	for (size_t i = 0; i < s->g->clusters.n && s->max_ops > 1; i++) {
		int kind = s->g->clusters.items[i].kind;
		if (s->g->clusters.items[i].n_outputs > 0 || kind == GROUP_exchange)
			continue;
		bool is_matmul = s->g->clusters.items[i].root->code == OP_matmul;
		if (kind == GROUP_attention || kind == GROUP_loops || is_matmul)
			fuse_stored_views(s, i);
		fuse_trailing_reshapes(s, i);
	}
}

/* The reader needs the constant in memory: a view, a repeat, or a kernel that does not evaluate it in place. An
 * index of a weight or state is cloned next to its reader (emit_with_indices). */
static bool reads_memory(const struct fuser *s, const struct ir_op *reader, struct ir_value constant)
{
	if (reader->code == OP_weight || reader->code == OP_state_read)
		return false;
	if (fusion_cluster_of(s->g, reader) == NULL || ir_op_has(reader->code, TRAIT_VIEW))
		return true;
	for (size_t i = 0; i < reader->n_operands; i++)
		if (ir_same_value(reader->operands[i], constant) &&
		    !fusion_constant_in_place(s->f, reader, i))
			return true;
	return false;
}

/* Marks the constants that a reader needs in memory; all others are evaluated where they are read. */
static void find_constants_in_memory(struct fuser *s)
{
	for (size_t i = 0; i < s->g->n_ops; i++) {
		const struct ir_op *op = s->g->ops[i];
		const struct user_list *u = &s->users[op->results[0].id];
		for (size_t k = 0; fusion_is_constant(op) && k < u->n; k++)
			s->g->needs_memory[i] =
			        s->g->needs_memory[i] || reads_memory(s, u->items[k], op->results[0]);
	}
}

/* ---- functions ---- */

/* Enters op into the lists of readers, and into plan->ops if it has results and no region. index_of has the
 * index + 1, so that 0 is no such op. */
static void add_op(struct fuser *s, const struct ir_op *op)
{
	for (size_t i = 0; i < op->n_operands; i++)
		ARENA_ADD(s->p->arena, &s->users[op->operands[i].id], op);
	if (op->region != NULL || op->n_results == 0)
		return;
	s->g->ops[s->g->n_ops++] = op;
	for (size_t i = 0; i < op->n_results; i++)
		s->g->index_of[op->results[i].id] = s->g->n_ops;
}

/* A linear that rounds rows inside its kernel reads the operand of that op. */
static void add_indirect_readers(struct fuser *s, const struct ir_op *op)
{
	const struct user_list *u = &s->users[op->results[0].id];
	for (size_t i = 0; i < u->n; i++)
		if (rounds_inside_linear(s->p, s->f, u->items[i], op))
			ARENA_ADD(s->p->arena, &s->users[op->operands[0].id], u->items[i]);
}

/* Builds the linked lists of members, in program order. */
static void link_members(struct fuser *s)
{
	struct fusion_plan *g = s->g;
	g->first_member = ARENA_ARRAY(s->p->arena, size_t, g->clusters.n + 1);
	g->next_member = ARENA_ARRAY(s->p->arena, size_t, g->n_ops + 1);
	for (size_t i = 0; g->first_member != NULL && i < g->clusters.n; i++)
		g->first_member[i] = g->n_ops;
	for (size_t i = g->n_ops; g->first_member != NULL && g->next_member != NULL && i-- > 0;) {
		if (g->cluster_of[i] == 0)
			continue;
		g->next_member[i] = g->first_member[g->cluster_of[i] - 1];
		g->first_member[g->cluster_of[i] - 1] = i;
	}
}

/* Readers are entered before the phases, which ask for single ones. A linear that rounds rows inside its kernel then
 * counts as a reader of the rows before the rounding, in addition to an op that rounds them for other readers. */
bool form_clusters(struct pass_context *p, const struct ir_module *m, const struct ir_func *f,
                   struct fusion_plan *out)
{
	struct fuser s = {.p = p,
	                  .m = m,
	                  .f = f,
	                  .g = out,
	                  .max_ops = (size_t)p->step->settings[SETTING_group_max_ops],
	                  .norms = p->step->settings[SETTING_group_norms] != 0};

	*out = (struct fusion_plan){0};
	out->uses = ir_count_uses(p->arena, f);
	out->ops = ARENA_ARRAY(p->arena, const struct ir_op *, f->n_values); /* each defines a value */
	out->index_of = ARENA_ARRAY(p->arena, size_t, f->n_values);
	s.users = ARENA_ARRAY(p->arena, struct user_list, f->n_values);
	if (arena_failed(p->arena))
		return false;
	for (struct ir_iter it = ir_iter_begin(f->body); it.op != NULL; ir_iter_next(&it))
		add_op(&s, it.op);
	for (size_t i = 0; i < out->n_ops; i++)
		if (out->ops[i]->code == OP_quantize_rows && !is_computed_by_readers(&s, out->ops[i]))
			add_indirect_readers(&s, out->ops[i]);
	out->cluster_of = ARENA_ARRAY(p->arena, size_t, out->n_ops + 1);
	out->role_of = ARENA_ARRAY(p->arena, enum member_role, out->n_ops + 1);
	out->needs_memory = ARENA_ARRAY(p->arena, bool, out->n_ops + 1);
	s.next_prologue = ARENA_ARRAY(p->arena, size_t, out->n_ops + 1);
	if (arena_failed(p->arena))
		return false;
	form_root_clusters(&s);
	assign_prologues(&s);
	fuse_views(&s);
	find_constants_in_memory(&s);
	link_members(&s);
	return !s.failed && !arena_failed(p->arena);
}
