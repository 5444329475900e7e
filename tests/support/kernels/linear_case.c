/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Emits and runs linear groups, see linear_case.h. The kernel is called with one
 * array of words: the parameters, the result, scratch, then B and S.
 */
#include "tests/support/kernels/linear_case.h"

#include <check.h>
#include <math.h>
#include <string.h>

#include "tests/kb_interp/interp.h"
#include "backends/kernels/generator.h"
#include "backends/object/llvm.h"
#include "ir/interp/interp.h"
#include "ir/target/tile.h"
#include "ir/core/view.h"
#include "tests/support/effort.h"
#include "tests/support/bounds/bound.h"
#include "tests/support/kernels/padded.h"
#include "tests/support/random/rng.h"

enum { WORD_OUT = LINEAR_PARAMS_MAX, WORD_SCRATCH, WORD_DIMS, N_WORDS = WORD_DIMS + 2 };

typedef void kernel_function(void *const *words, int64_t worker, int64_t n_workers);

/* ---- the kernel ---- */

struct binding {
	const struct linear_case *c;
	const struct ir_op *group;
	struct kb_val words, dims[2];
};

static struct kb_size bind_dim(void *user, struct kb *k, const struct ir_dim *d)
{
	const struct binding *b = user;
	struct kb_size size = {.v = kb_index(k, 0)};
	for (size_t i = 0; i < d->n_terms; i++) {
		struct kb_val product = kb_index(k, d->terms[i].coeff);
		for (size_t a = 0; a < d->terms[i].n_atoms; a++)
			product = kb_mul(k, product, b->dims[d->terms[i].atoms[a]->sym]);
		size.v = kb_add(k, size.v, product);
	}
	size.is_const = ir_dim_is_const(d, &size.c);
	return size;
}

static int param_of(const struct linear_case *c, struct ir_value v)
{
	for (size_t i = 0; i < c->f->n_params; i++)
		if (ir_same_value(c->f->params[i].value, v))
			return (int)i;
	return -1;
}

static bool bind_tensor(void *user, struct kb *k, struct ir_value v, struct kb_tensor *out)
{
	const struct binding *b = user;
	struct ir_view view;
	if (!ir_view_resolve(b->c->tir.m, b->c->f, v, &view))
		return false;
	int param = param_of(b->c, view.base);
	bool is_w = param >= 0 && strcmp(b->c->f->params[param].name, "w") == 0;
	*out = (struct kb_tensor){.dtype = ir_type_of(b->c->f, v)->dtype, .rank = view.rank};
	out->encoding = is_w && !b->c->is_row_major ? ENC_PANEL16 : ENC_ROW;
	if (is_w) {
		out->bytes_after = b->c->bytes_after;
		out->dtype = b->c->kept;
		out->format = ir_format_is_quantized(b->c->format) && !b->c->is_wide
		                      ? b->c->format
		                      : ir_format_from_dtype(b->c->kept);
	}
	struct kb_val word = kb_index(k, param >= 0 ? param : WORD_OUT);
	struct kb_val skip = bind_dim(user, k, view.offset).v;
	skip = kb_mul_const(k, skip, ir_dtype_bytes(out->dtype));
	out->ptr = kb_ptr_add(k, kb_load(k, KB_PTR_T, b->words, word, 0, 0), skip, 0);
	for (int i = 0; i < view.rank; i++) {
		out->size[i] = bind_dim(user, k, view.size[i]);
		out->stride[i] = bind_dim(user, k, view.stride[i]);
	}
	int64_t panel;
	if (out->encoding == ENC_PANEL16 &&
	    out->rank == 3) { /* from one matrix to the next, as they are packed */
		ck_assert(panel_bytes(out->format, out->size[2].c, &panel));
		int64_t elements = out->size[1].c / 16 * panel / ir_dtype_bytes(out->dtype);
		out->stride[0] = (struct kb_size){true, elements, kb_index(k, elements)};
	}
	return true;
}

static struct kb_val bind_index(void *user, struct kb *k, struct ir_value v)
{
	(void)user;
	(void)k;
	(void)v;
	return (struct kb_val){0};
}

static const struct ir_op *group_of(const struct linear_case *c)
{
	for (size_t i = 0; i < c->f->body->n_ops; i++)
		if (c->f->body->ops[i]->code == OP_group)
			return c->f->body->ops[i];
	return NULL;
}

static void emit_group(struct linear_case *c, const struct kernel_job *job)
{
	struct eval e;
	const struct attrs_group *attrs = job->group->attrs;
	struct kernel g = {.e = &e,
	                   .k = job->k,
	                   .job = job,
	                   .attrs = attrs,
	                   .root = job->group->region->ops[attrs->root]};
	ck_assert_int_eq(eval_begin(&e, job), TFMC_OK);
	ck_assert_int_eq(eval_outputs(&e, &g.out), TFMC_OK);
	if (g.root->code == OP_expert_linear)
		ck_assert(kernel_expert_linear(&g));
	else
		ck_assert_msg(job->items > 1 ? kernel_workgroup_linear(&g) : kernel_linear(&g), "%s",
		              c->tir.log.data);
	ck_assert_msg(eval_status(&e) == TFMC_OK, "%s", c->tir.log.data);
}

static void emit_kernel(struct linear_case *c, const struct target *target)
{
	c->caps = kb_caps_of(target);
	c->kernels = kb_module_create(&c->arena, &c->caps);
	struct kb *k = kb_begin(c->kernels, "linear", c->is_shared ? KB_KERNEL : KB_EXPORTED, KB_VOID);
	struct binding b = {.c = c, .group = group_of(c), .words = kb_param(k, "words", KB_PTR_T, 0)};
	struct kb_val worker, n_workers;
	if (c->is_shared) {
		kb_group_size(k, GPU_ITEMS);
		worker = kb_group_id(k);
		n_workers = kb_group_count(k);
	} else {
		worker = kb_param(k, "worker", KB_INDEX_T, 0);
		n_workers = kb_param(k, "n_workers", KB_INDEX_T, 0);
	}
	for (int i = 0; i < 2; i++)
		b.dims[i] = kb_load(k, KB_INDEX_T, b.words, kb_index(k, WORD_DIMS + i), 0, 0);
	struct kernel_binding bind = {
	        .tensor = bind_tensor, .dim = bind_dim, .index = bind_index, .user = &b};
	struct kernel_job job = {.k = k,
	                         .module = c->tir.m,
	                         .func = c->f,
	                         .group = b.group,
	                         .target = target,
	                         .bind = &bind,
	                         .worker = worker,
	                         .n_workers = n_workers,
	                         .items = c->is_shared ? GPU_ITEMS : 1,
	                         .lengths = padded_lengths(c->f),
	                         .scratch = kb_load(k, KB_PTR_T, b.words, kb_index(k, WORD_SCRATCH), 0, 0),
	                         .cx = &c->tir.cx,
	                         .arena = &c->arena};
	emit_group(c, &job);
	kb_return(k, (struct kb_val){0});
	kb_end(k);
	ck_assert_msg(kb_verify(c->kernels, &c->tir.cx) == TFMC_OK, "%s", c->tir.log.data);
}

static void compile_kernel(struct linear_case *c, const struct target *target)
{
	struct llvm_options options = {.target = target, .opt_level = effort_of_code()};
	struct buf object;
	buf_init(&object);
	struct llvm_output out = {.object = &object};
	enum tfmc_status status = llvm_compile(&c->tir.cx, c->kernels, "m", &options, &out);
	ck_assert_msg(status == TFMC_OK, "%s", c->tir.log.data);
	ck_assert_msg(backend_jit_load(&c->tir.cx, &object, &c->jit) == TFMC_OK, "%s", c->tir.log.data);
	buf_destroy(&object);
}

static void init(struct linear_case *c, const char *text, const struct target *t,
                 const struct linear_weights *w)
{
	*c = (struct linear_case){.is_shared = w->is_shared,
	                          .rounded = w->rounded,
	                          .kept = w->kept,
	                          .format = w->format,
	                          .is_wide = w->is_wide,
	                          .is_row_major = w->is_row_major,
	                          .bytes_after = w->bytes_after};
	tir_init(&c->tir);
	arena_init(&c->arena);
	tir_load(&c->tir, text);
	c->f = c->tir.m->funcs.items[0];
	emit_kernel(c, t);
	if (target_runs_on_host(t) && !w->is_interpreted)
		compile_kernel(c, t);
}

static const struct target *find(const char *name)
{
	const struct target *t = target_find(name);
	ck_assert_ptr_nonnull(t);
	return t;
}

void linear_case_init(struct linear_case *c, const char *text, const char *target)
{
	linear_case_init_kept(c, text, target, &(struct linear_weights){.kept = DT_F32});
}

void linear_case_init_streamed(struct linear_case *c, const char *text, const char *target)
{
	linear_case_init_kept(c, text, target, &(struct linear_weights){.is_streamed = true});
}

void linear_case_init_kept(struct linear_case *c, const char *text, const char *target,
                           const struct linear_weights *w)
{
	struct target t = *find(target);
	t.l2_bytes = w->is_streamed ? 1 : t.l2_bytes;
	init(c, text, w->is_streamed ? &t : find(target), w);
}

void linear_case_init_shared(struct linear_case *c, const char *text, const char *target)
{
	linear_case_init_kept(c, text, target, &(struct linear_weights){.is_shared = true});
}

void linear_case_destroy(struct linear_case *c)
{
	backend_jit_destroy(c->jit);
	arena_destroy(&c->arena);
	tir_destroy(&c->tir);
}

/* ---- calls ---- */

static int64_t count_of(const struct linear_case *c, const int64_t *dims, struct ir_value v)
{
	int64_t n = 0;
	const struct ir_type *t = ir_type_of(c->f, v);
	ck_assert(ir_dim_eval(ir_type_count(c->tir.m->dims, t), dims, &n));
	return n;
}

static void *aligned(struct linear_case *c, int64_t elements)
{
	char *p = arena_alloc(&c->arena, (size_t)elements * 4 + 128);
	ck_assert_ptr_nonnull(p);
	return p + (-(uintptr_t)p & 63);
}

static void fill_param(struct linear_case *c, struct linear_call *call, size_t i)
{
	struct rng rng = rng_seed(i + 77);
	bool is_int = ir_type_of(c->f, c->f->params[i].value)->dtype == DT_I32;
	call->count[i] = count_of(c, call->dims, c->f->params[i].value);
	call->param[i] = aligned(c, call->count[i]);
	bool is_w = strcmp(c->f->params[i].name, "w") == 0;
	for (int64_t n = 0; n < call->count[i]; n++) {
		if (is_int)
			((int32_t *)call->param[i])[n] = (int32_t)rng_between(&rng, 0, call->dims[1]);
		else
			((float *)call->param[i])[n] =
			        (float)ir_round(is_w ? c->rounded : DT_F32, rng_real(&rng, -1, 1));
	}
}

/* The place of element (row, k) of a panelled matrix in bytes, from ir/target/tile.h: bf16 in pairs along K.
 */
static int64_t place_of(enum ir_dtype t, int64_t row, int64_t k, int64_t depth)
{
	int64_t panel = row / 16 * panel_row_count(t, depth) * PANEL_ROW_BYTES, column = row % 16;
	if (t == DT_BF16)
		return panel + (k / 2 * 16 + column) * 4 + k % 2 * 2;
	return panel + (k * 16 + column) * ir_dtype_bytes(t);
}

/* w becomes numbers of the format; of 8 bits with some of -128, which quantization never makes but files may have. */
static void find_codes(struct linear_case *c, struct linear_call *call, float *w, int64_t n, int64_t depth)
{
	struct weight_quants *codes = &call->codes;
	double *row = ARENA_ARRAY(&c->arena, double, (size_t)depth + 1), worst;
	const struct weight_quantizer z = weight_quantizer(c->format);
	int64_t blocks = ir_format_blocks(c->format, depth) * n,
	        supers = ir_format_super_blocks(c->format, depth) * n;
	*codes = (struct weight_quants){.format = c->format, .k = depth};
	codes->quants = aligned(c, n * depth / 4 + 1);
	codes->scales = aligned(c, blocks);
	codes->offsets = ir_format(c->format)->has_offset ? aligned(c, blocks) : NULL;
	codes->super_scales = supers > 0 ? aligned(c, supers) : NULL;
	codes->super_offsets = supers > 0 && codes->offsets ? aligned(c, supers) : NULL;
	for (int64_t i = 0; i < n; i++) {
		struct weight_quants one = weight_quants_from_row(codes, i);
		for (int64_t k = 0; k < depth; k++)
			row[k] = (double)w[i * depth + k];
		ck_assert(weight_quantize(&z, &one, 1, row, NULL, &worst));
		for (int64_t k = i % 7; ir_format(c->format)->bits == 8 && k < depth; k += 11)
			one.quants[k] = -128;
		weight_dequantize(&one, 1, row);
		for (int64_t k = 0; k < depth; k++)
			w[i * depth + k] = (float)row[k];
	}
}

/* One number of a block, and one code, where tile.h says. */
static void put_number(char *to, enum ir_dtype t, int64_t i, float v)
{
	uint16_t half = t == DT_F16 ? f64_to_f16((double)v) : f64_to_bf16((double)v);
	int8_t byte = t == DT_I8 ? (int8_t)v : 0;
	memcpy(to + i * ir_dtype_bytes(t),
	       t == DT_F32  ? (void *)&v
	       : t == DT_I8 ? (void *)&byte
	                    : (void *)&half,
	       (size_t)ir_dtype_bytes(t));
}

/* Words of four elements of a group, and its lines; where the bits of a word are, lowest first: {line, bit of its
 * bytes, bits}, ends with 0 bits. */
struct place_of_bits {
	int line, bit, bits;
};
static const struct {
	int words, lines;
	struct place_of_bits at[8][3];
} groups_of_bits[] = {
        [2] = {4, 1, {{{0, 0, 2}}, {{0, 2, 2}}, {{0, 4, 2}}, {{0, 6, 2}}}},
        [3] = {8,
               3,
               {{{0, 0, 3}},
                {{1, 0, 3}},
                {{2, 0, 3}},
                {{0, 3, 3}},
                {{1, 3, 3}},
                {{2, 3, 3}},
                {{0, 6, 2}, {1, 6, 1}},
                {{2, 6, 2}, {1, 7, 1}}}},
        [4] = {8,
               4,
               {{{0, 0, 4}},
                {{1, 0, 4}},
                {{2, 0, 4}},
                {{3, 0, 4}},
                {{0, 4, 4}},
                {{1, 4, 4}},
                {{2, 4, 4}},
                {{3, 4, 4}}}},
        [5] = {8,
               5,
               {{{0, 0, 5}},
                {{1, 0, 5}},
                {{2, 0, 5}},
                {{3, 0, 5}},
                {{4, 0, 5}},
                {{0, 5, 3}, {1, 5, 2}},
                {{2, 5, 3}, {3, 5, 2}},
                {{4, 5, 3}, {1, 7, 1}, {3, 7, 1}}}},
        [6] = {4, 3, {{{0, 0, 6}}, {{1, 0, 6}}, {{2, 0, 6}}, {{0, 6, 2}, {1, 6, 2}, {2, 6, 2}}}},
        [8] = {1, 1, {{{0, 0, 8}}}}};

static void put_code(unsigned char *to, const struct ir_format_desc *d, int64_t k, int64_t column, int code)
{
	int bits = code + d->zero, elements = 4 * groups_of_bits[d->bits].words;
	for (int i = 0; d->codebook && i < 16; i++)
		bits = d->codebook[i] == code ? i : bits;
	unsigned char *group = to + k / elements * groups_of_bits[d->bits].lines * 64;
	const struct place_of_bits *at = groups_of_bits[d->bits].at[k % elements / 4];
	for (int i = 0; i < 3; i++) {
		group[at[i].line * 64 + 4 * column + k % 4] |=
		        (unsigned char)((bits & ((1 << at[i].bits) - 1)) << at[i].bit);
		bits >>= at[i].bits;
	}
}

/* n numbers of a row, of `each` elements (0: all), byte `at` of a super-block on. */
static void put_numbers(const struct quant_panel_layout *codes, char *to, int64_t at, enum ir_dtype t,
                        const float *from, int64_t row, int64_t n, int64_t each)
{
	int64_t in_super_block = each > 0 ? codes->super_block / each : 1;
	for (int64_t i = 0; from && i < n; i++) {
		char *super_block = to + i / in_super_block * codes->super_block_bytes;
		put_number(super_block + at, t, i % in_super_block * 16 + row % 16, from[row * n + i]);
	}
}

/* Integer scales and minima of 4 bits of the n blocks of a row: both of a block are in a byte. */
static void put_integers(const struct quant_panel_layout *at, const struct weight_quants *codes, char *to,
                         int64_t row, int64_t n)
{
	int64_t in_super_block = at->super_block / 16;
	for (int64_t b = 0; b < n; b++) {
		unsigned char *from =
		        (unsigned char *)to + b / in_super_block * at->super_block_bytes + row % 16;
		from[at->scales + b % in_super_block * 16] =
		        (unsigned char)((int)codes->scales[row * n + b] +
		                        16 * (int)codes->offsets[row * n + b]);
	}
}

/* The five lowest bits of the f16 that is 256 times the scale, less 16. */
static int shift_of(const struct weight_quants *codes, int64_t first, int64_t k)
{
	const struct ir_format_desc *d = ir_format(codes->format);
	return d->shift > 0 ? (f64_to_f16((double)codes->scales[first + k / d->block] * 256) & 31) - 16 : 0;
}

/* Codes beyond K multiply zeros: any will do. */
static void pack_codes(struct linear_case *c, struct linear_call *call, int64_t n, int64_t depth)
{
	const struct quant_panel_layout at = quant_panel_layout(c->format, depth);
	const struct ir_format_desc *d = ir_format(c->format);
	const struct weight_quants *codes = &call->codes;
	enum ir_dtype t = d->super > 1 ? DT_I8 : d->scale;
	int64_t block = d->block, super = block * d->super;
	int64_t n_scales = n * ir_format_blocks(c->format, depth);
	float *scales = aligned(c, n_scales);
	for (int64_t i = 0; i < n_scales; i++)
		scales[i] = codes->scales[i] * (float)(d->shift > 0 ? 256 : 1);
	call->packed_bytes = (size_t)((n + 15) / 16 * at.bytes);
	char *out = aligned(c, ((int64_t)call->packed_bytes + c->bytes_after) / 4);
	memset(out, 0, call->packed_bytes);
	for (int64_t row = 0; row < n; row++) {
		char *to = out + row / 16 * at.bytes;
		int64_t blocks = ir_format_blocks(c->format, depth),
		        supers = ir_format_super_blocks(c->format, depth);
		for (int64_t k = 0; k < depth; k++)
			put_code((unsigned char *)to + k / at.super_block * at.super_block_bytes + at.quants,
			         d, k % at.super_block, row % 16,
			         codes->quants[row * depth + k] - shift_of(codes, row * blocks, k));
		if (d->sub == 4) {
			put_integers(&at, codes, to, row, blocks);
		} else {
			put_numbers(&at, to, at.scales, t, scales, row, blocks, block);
			put_numbers(&at, to, at.offsets, t, codes->offsets, row, blocks, block);
		}
		put_numbers(&at, to, at.super_scales, d->scale, codes->super_scales, row, supers, super);
		put_numbers(&at, to, at.super_offsets, d->scale, codes->super_offsets, row, supers, super);
	}
	call->packed = out;
}

/* Rows of all matrices. */
static int64_t find_rows(const struct ir_type *t, int64_t *depth, int64_t *of_matrix)
{
	int64_t n = 1;
	for (int i = 0; i < t->rank - 1; i++) {
		ck_assert(ir_dim_is_const(t->dims[i], of_matrix));
		n *= *of_matrix;
	}
	ck_assert(ir_dim_is_const(t->dims[t->rank - 1], depth));
	return n;
}

/* Panels are zero padded; the rows of several matrices fill theirs. */
static void pack(struct linear_case *c, struct linear_call *call, size_t i)
{
	const struct ir_type *t = ir_type_of(c->f, c->f->params[i].value);
	float *w = call->param[i];
	int64_t depth, of_matrix = 0, n = find_rows(t, &depth, &of_matrix);
	if (ir_format_is_quantized(c->format)) {
		find_codes(c, call, w, n, depth);
		if (!c->is_wide) {
			pack_codes(c, call, n, depth);
			return;
		}
	}
	int64_t panels = (n + 15) / 16, bytes = ir_dtype_bytes(c->kept);
	ck_assert(t->rank == 2 || of_matrix % 16 == 0 || c->is_row_major);
	call->packed_bytes =
	        (size_t)(c->is_row_major ? n * depth * bytes
	                                 : panels * panel_row_count(c->kept, depth) * PANEL_ROW_BYTES);
	char *out = aligned(c, ((int64_t)call->packed_bytes + c->bytes_after) / 4);
	memset(out, 0, call->packed_bytes);
	for (int64_t at = 0; at < n * depth; at++) {
		uint16_t bits = c->kept == DT_BF16 ? f64_to_bf16((double)w[at]) : f64_to_f16((double)w[at]);
		const void *from = c->kept == DT_F32 ? (const void *)&w[at] : &bits;
		int64_t to = c->is_row_major ? at * bytes : place_of(c->kept, at / depth, at % depth, depth);
		memcpy(out + to, from, (size_t)bytes);
	}
	call->packed = out;
}

void linear_call_init(struct linear_case *c, struct linear_call *call, int64_t b, int64_t s)
{
	const struct ir_op *ret = c->f->body->ops[c->f->body->n_ops - 1];
	*call = (struct linear_call){.dims = {b, s}};
	ck_assert_uint_le(c->f->n_params, LINEAR_PARAMS_MAX);
	for (size_t i = 0; i < c->f->n_params; i++) {
		fill_param(c, call, i);
		if (strcmp(c->f->params[i].name, "w") == 0)
			pack(c, call, i);
	}
	call->n_out = count_of(c, call->dims, ret->operands[0]);
	call->out = aligned(c, call->n_out);
}

static int64_t scratch_bytes(const struct linear_case *c)
{
	return ((const struct attrs_group *)group_of(c)->attrs)->scratch;
}

static void **words_of(struct linear_case *c, struct linear_call *call)
{
	void **words = ARENA_ARRAY(&c->arena, void *, N_WORDS);
	memset(call->out, 0xff, (size_t)call->n_out * 4);
	for (size_t i = 0; i < c->f->n_params; i++) {
		bool is_w = call->packed && strcmp(c->f->params[i].name, "w") == 0;
		words[i] = is_w ? call->packed : call->param[i];
	}
	words[WORD_OUT] = call->out;
	words[WORD_SCRATCH] = aligned(c, scratch_bytes(c) / 4);
	memset(words[WORD_SCRATCH], 0xff, (size_t)scratch_bytes(c));
	memcpy(words + WORD_DIMS, call->dims, sizeof(call->dims));
	return words;
}

void linear_run(struct linear_case *c, struct linear_call *call, int64_t n_workers)
{
	if (!c->jit) {
		linear_run_checked(c, call, n_workers);
		return;
	}
	void **words = words_of(c, call);
	void *at = backend_jit_symbol(c->jit, "linear");
	kernel_function *linear;
	memcpy(&linear, &at, sizeof(at));
	for (int64_t w = 0; w < n_workers; w++)
		linear(words, w, n_workers);
}

/* The memory that a call may touch; gives the number of ranges. */
static size_t ranges_of(struct linear_case *c, struct linear_call *call, void **words,
                        struct kb_range ranges[LINEAR_PARAMS_MAX + 3])
{
	size_t n = 0;
	ranges[n++] = (struct kb_range){words, N_WORDS * sizeof(void *), false};
	ranges[n++] = (struct kb_range){words[WORD_SCRATCH], (size_t)scratch_bytes(c), true};
	ranges[n++] = (struct kb_range){call->out, (size_t)call->n_out * 4, true};
	for (size_t i = 0; i < c->f->n_params; i++) {
		size_t bytes = (size_t)call->count[i] * 4;
		if (words[i] == call->packed)
			bytes = call->packed_bytes + (size_t)c->bytes_after;
		ranges[n++] = (struct kb_range){words[i], bytes, false};
	}
	return n;
}

/* By the kernel interpreter, workers or groups. NULL, or its complaint. */
static const char *interpret(struct linear_case *c, struct linear_call *call, int64_t n)
{
	void **words = words_of(c, call);
	struct kb_range ranges[LINEAR_PARAMS_MAX + 3];
	struct kb_interp in = {.module = c->kernels, .ranges = ranges, .checks_prefetches = true};
	bool ok = true;
	in.n_ranges = ranges_of(c, call, words, ranges);
	for (int64_t w = 0; !c->is_shared && w < n && ok; w++) {
		const union kb_cell args[] = {{.p = words}, {.i = w}, {.i = n}};
		ok = kb_interp_call(&in, "linear", args, 3, NULL);
	}
	if (c->is_shared)
		ok = kb_interp_launch(&in, "linear", &(const union kb_cell){.p = words}, 1, n);
	return ok ? NULL : arena_strdup(&c->arena, in.error);
}

void linear_run_checked(struct linear_case *c, struct linear_call *call, int64_t n_workers)
{
	const char *why = interpret(c, call, n_workers);
	ck_assert_msg(why == NULL, "%s", why);
}

void linear_launch(struct linear_case *c, struct linear_call *call, int64_t groups)
{
	linear_run_checked(c, call, groups);
}

/* ---- the reference ---- */

static const char *difference(struct linear_case *c, const struct linear_call *call)
{
	struct interp_tensor in[LINEAR_PARAMS_MAX];
	struct arena a;
	arena_init(&a);
	for (size_t i = 0; i < c->f->n_params; i++) {
		const struct ir_type *t = ir_type_of(c->f, c->f->params[i].value);
		ck_assert(interp_tensor_make(&a, t, call->dims, &in[i]));
		interp_from_bytes(&in[i], call->param[i]);
	}
	const struct interp_args args = {.dims = call->dims, .inputs = in};
	const char *why = bound_complaint(&c->tir.cx, c->tir.m, c->f, &args, call->out, &a);
	if (why != NULL)
		why = arena_printf(&c->arena, "B %d S %d: %s%s", (int)call->dims[0], (int)call->dims[1], why,
		                   c->tir.log.data);
	arena_destroy(&a);
	return why;
}

void linear_expect(struct linear_case *c, const struct linear_call *call)
{
	const char *why = difference(c, call);
	ck_assert_msg(why == NULL, "%s", why);
}

const char *linear_complaint(struct linear_case *c, struct linear_call *call, int64_t n)
{
	const char *why = interpret(c, call, n);
	return why != NULL ? why : difference(c, call);
}

void linear_expect_padded(struct linear_case *some, struct linear_case *all, int64_t b, int64_t s)
{
	struct linear_call got, expected;
	linear_call_init(some, &got, b, s);
	linear_call_init(all, &expected, b, s);
	int32_t *lengths = got.param[some->f->n_params - 1];
	padded_fill(lengths, b, s);
	bool is_checked =
	        s == 16; /* both, since the kernel interpreter rounds a multiply-add once on every target */
	if (is_checked)
		linear_run_checked(all, &expected, 1);
	else
		linear_run(all, &expected, 1);
	const struct ir_op *ret = some->f->body->ops[some->f->body->n_ops - 1];
	const struct ir_type *y = ir_type_of(some->f, ret->operands[0]);
	for (int64_t workers = 1; workers <= (some->jit && !is_checked ? 5 : 3); workers += 2) {
		if (is_checked)
			linear_run_checked(some, &got, workers);
		else
			linear_run(some, &got, workers);
		padded_expect(some->tir.m, y, got.dims, lengths, got.out, expected.out);
	}
}
