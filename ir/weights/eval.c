/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Evaluation of weight expressions, range by range. Every node maps a contiguous range of its elements to a few
 * contiguous ranges of its arguments; only transpose and the RoPE permutations have short ranges. Nodes that move
 * elements do so in the type of the destination; nodes that compute use f64 and round once. Each level of the
 * expression needs one scratch buffer of WEVAL_CHUNK doubles.
 *
 * A destination (struct wexpr_out) is elements of a float type, or with `at` NULL the quants and scales of whole rows.
 * [begin, begin + n) are row-major elements of the node e; `run` is a part of them that one range of an argument has.
 * e->begin is the first element of index and slice, the number of heads of RoPE, how often repeat repeats.
 */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "ir/support/memory.h"
#include "ir/weights/weight.h"

#define WEVAL_CHUNK    1024
#define WEVAL_RECENT   8
#define TILE_COLUMNS   8
#define TILE_ROWS      128
#define QUANTIZE_DAMP  0.01  /* added to mean squares of inputs, times their average */
#define QUANTIZE_BLOCK 65536 /* elements of rows that are quantized or cut at once, at least a row */

/* State of one evaluation: a cache of the last stored tensors, so that short ranges do not look names up again. */
struct weval {
	struct diag_context *cx;
	const struct weight_source *source;
	const struct ir_wexpr *leaf[WEVAL_RECENT];
	struct weight_bytes bytes[WEVAL_RECENT];
	size_t next;
};

/* Writes elements [begin, begin + n) of e to out. */
static enum tfmc_status weval_to(struct weval *ev, const struct ir_wexpr *e, int64_t begin, int64_t n,
                                 struct wexpr_out out);

/* Writes elements [begin, begin + n) of e to out in f64. */
static enum tfmc_status weval(struct weval *ev, const struct ir_wexpr *e, int64_t begin, int64_t n,
                              double *out)
{
	return weval_to(ev, e, begin, n, (struct wexpr_out){.at = out, .dtype = DT_F64});
}

/* The destination n elements further. */
static struct wexpr_out advance(struct wexpr_out out, int64_t n)
{
	if (!out.at)
		return (struct wexpr_out){.quants = weight_quants_from_row(&out.quants, n / out.quants.k)};
	return (struct wexpr_out){.at = (char *)out.at + n * ir_dtype_bytes(out.dtype), .dtype = out.dtype};
}

static int64_t weval_min(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* Product of dims [from, rank): elements that are contiguous for one index of the axes before. */
static int64_t weval_inner(const struct ir_wexpr *e, int from)
{
	int64_t n = 1;
	for (int i = from; i < e->rank; i++)
		n *= e->dims[i];
	return n;
}

/* ---- stored tensors ---- */

static void shape_to_string(struct buf *out, enum ir_dtype dtype, enum ir_format format, int rank,
                            const int64_t *dims)
{
	buf_printf(out, "%s[", format != FORMAT_PLAIN ? ir_format(format)->name : ir_dtype_name(dtype));
	for (int i = 0; i < rank; i++)
		buf_printf(out, "%s%" PRId64, i ? "," : "", dims[i]);
	buf_char(out, ']');
}

/* Checks that the stored tensor b has the type and shape of the leaf e: the file may have changed since the model
 * was made. Data may be absent only of an empty tensor. */
static enum tfmc_status check_leaf(struct weval *ev, const struct ir_wexpr *e, const struct weight_bytes *b)
{
	bool same = b->rank == e->rank && b->dtype == e->stored && b->format == e->format;
	for (int i = 0; same && i < e->rank; i++)
		same = b->dims[i] == e->dims[i];
	if (same && (b->data || wexpr_count(e) == 0))
		return TFMC_OK;
	if (same) {
		diag_error(ev->cx, LOC_NONE, DIAG_WEIGHT_FILE, "tensor '%s' of '%s' has no data", e->tensor,
		           e->file);
		return TFMC_INVALID;
	}
	struct buf expected, found;
	buf_init(&expected);
	buf_init(&found);
	shape_to_string(&expected, e->stored, e->format, e->rank, e->dims);
	shape_to_string(&found, b->dtype, b->format, b->rank, b->dims);
	diag_error(ev->cx, LOC_NONE, DIAG_WEIGHT_SHAPE,
	           "tensor '%s' of '%s' is %s, the model was made with %s", e->tensor, e->file, found.data,
	           expected.data);
	buf_destroy(&expected);
	buf_destroy(&found);
	return TFMC_INVALID;
}

/* The stored tensor of leaf e, from the cache or the source; the oldest entry is replaced. The address of the leaf
 * is the key. */
static enum tfmc_status find_leaf(struct weval *ev, const struct ir_wexpr *e, const struct weight_bytes **out)
{
	for (size_t i = 0; i < WEVAL_RECENT; i++) {
		if (ev->leaf[i] == e) {
			*out = &ev->bytes[i];
			return TFMC_OK;
		}
	}
	if (!ev->source || !ev->source->read) {
		diag_error(ev->cx, LOC_NONE, DIAG_WEIGHT_FILE,
		           "tensor '%s' is needed, but there are no weight files", e->tensor);
		return TFMC_INVALID;
	}
	struct weight_bytes b = {0};
	TFMC_TRY(ev->source->read(ev->source->user, ev->cx, e->file, e->tensor, &b));
	TFMC_TRY(check_leaf(ev, e, &b));
	size_t slot = ev->next++ % WEVAL_RECENT;
	ev->leaf[slot] = e;
	ev->bytes[slot] = b;
	*out = &ev->bytes[slot];
	return TFMC_OK;
}

/* Reads stored elements as f64. */
static void read_elements(const struct ir_wexpr *e, const struct weight_bytes *b, int64_t begin, int64_t n,
                          double *out)
{
	if (b->read)
		b->read(b->data, begin, n, out);
	else
		weight_read_elements(e->stored, b->data, begin, n, out);
}

/* Elements of a stored tensor: quants as they are; copied if the type is that of the destination, else converted
 * through f64. */
static enum tfmc_status eval_tensor(struct weval *ev, const struct ir_wexpr *e, int64_t begin, int64_t n,
                                    struct wexpr_out out)
{
	double scratch[WEVAL_CHUNK];
	const struct weight_bytes *b;
	TFMC_TRY(find_leaf(ev, e, &b));
	if (!out.at) {
		b->read_quants(b->data, begin / out.quants.k, n / out.quants.k, &out.quants);
		return TFMC_OK;
	}
	if (out.dtype == e->stored && !b->read) {
		int64_t size = ir_dtype_bytes(e->stored);
		memcpy(out.at, (const char *)b->data + begin * size, (size_t)(n * size));
		return TFMC_OK;
	}
	if (out.dtype == DT_F64) {
		read_elements(e, b, begin, n, out.at);
		return TFMC_OK;
	}
	for (int64_t i = 0; i < n; i += WEVAL_CHUNK) {
		int64_t some = weval_min(n - i, WEVAL_CHUNK);
		read_elements(e, b, begin + i, some, scratch);
		weight_write_elements(out.dtype, scratch, some, advance(out, i).at);
	}
	return TFMC_OK;
}

/* ---- nodes that move elements ---- */

/* Number of rows of k elements to process at once, at most `rows`. */
static int64_t rows_per_block(int64_t k, int64_t rows)
{
	int64_t some = k > 0 && k < QUANTIZE_BLOCK ? QUANTIZE_BLOCK / k : 1;
	return weval_min(rows, some);
}

/* The arguments follow each other along the new axis 0, `block` elements each. */
static enum tfmc_status eval_stack(struct weval *ev, const struct ir_wexpr *e, int64_t begin, int64_t n,
                                   struct wexpr_out out)
{
	int64_t block = weval_inner(e, 1);
	while (n > 0) {
		int64_t in = begin % block;
		int64_t run = weval_min(n, block - in);
		TFMC_TRY(weval_to(ev, e->args[begin / block], in, run, out));
		begin += run;
		out = advance(out, run);
		n -= run;
	}
	return TFMC_OK;
}

/* The argument of the rank that evaluates; without a source, of rank 0. */
static enum tfmc_status eval_ranks(struct weval *ev, const struct ir_wexpr *e, int64_t begin, int64_t n,
                                   struct wexpr_out out)
{
	int64_t rank = ev->source ? ev->source->rank : 0;
	if (rank < 0 || (size_t)rank >= e->n_args) {
		diag_error(ev->cx, LOC_NONE, DIAG_WEIGHT_RANGE, "there is no rank %" PRId64 " of %zu", rank,
		           e->n_args);
		return TFMC_INVALID;
	}
	return weval_to(ev, e->args[rank], begin, n, out);
}

/* Copies k elements of each of `rows` rows, from column `begin` to column `at`; all are ends of blocks and
 * super-blocks, as moves_blocks (weight.c) guarantees. */
static void copy_blocks(const struct weight_quants *from, int64_t begin, const struct weight_quants *to,
                        int64_t at, int64_t k, int64_t rows)
{
	const struct ir_format_desc *f = ir_format(from->format);
	int64_t x_block = begin / f->block, x_super = x_block / f->super;
	int64_t y_block = at / f->block, y_super = y_block / f->super;
	size_t bytes = (size_t)ir_format_blocks(to->format, k) * sizeof(float),
	       super_bytes = (size_t)ir_format_super_blocks(to->format, k) * sizeof(float);
	for (int64_t i = 0; i < rows; i++) {
		const struct weight_quants x = weight_quants_from_row(from, i),
		                           y = weight_quants_from_row(to, i);
		memcpy(y.quants + at, x.quants + begin, (size_t)k);
		memcpy(y.scales + y_block, x.scales + x_block, bytes);
		if (y.offsets)
			memcpy(y.offsets + y_block, x.offsets + x_block, bytes);
		if (y.super_scales)
			memcpy(y.super_scales + y_super, x.super_scales + x_super, super_bytes);
		if (y.super_offsets)
			memcpy(y.super_offsets + y_super, x.super_offsets + x_super, super_bytes);
	}
}

/* concat of the last axis, of quants: full rows of each argument are evaluated, and their blocks are copied. */
static enum tfmc_status eval_concat_blocks(struct weval *ev, const struct ir_wexpr *e, int64_t row, int64_t n,
                                           const struct weight_quants *out)
{
	int64_t at = 0;
	for (size_t arg = 0; arg < e->n_args; arg++) {
		int64_t k = e->args[arg]->dims[e->axis], some = rows_per_block(k, n);
		struct weight_quants quants;
		enum tfmc_status st =
		        weight_quants_alloc(&quants, out->format, k, some) ? TFMC_OK : TFMC_NO_MEMORY;
		for (int64_t i = 0; st == TFMC_OK && i < n; i += some) {
			const struct weight_quants to = weight_quants_from_row(out, i);
			some = weval_min(n - i, some);
			st = weval_to(ev, e->args[arg], (row + i) * k, some * k,
			              (struct wexpr_out){.quants = quants});
			if (st == TFMC_OK)
				copy_blocks(&quants, 0, &to, at, k, some);
		}
		weight_quants_free(&quants);
		TFMC_TRY(st);
		at += k;
	}
	return TFMC_OK;
}

/* For each index of the axes before `axis`, the blocks of the arguments follow each other. Quants along the last
 * axis have scales, too, so they are copied block by block. */
static enum tfmc_status eval_concat(struct weval *ev, const struct ir_wexpr *e, int64_t begin, int64_t n,
                                    struct wexpr_out out)
{
	if (!out.at && e->axis == e->rank - 1)
		return eval_concat_blocks(ev, e, begin / out.quants.k, n / out.quants.k, &out.quants);
	int64_t row = weval_inner(e, e->axis);
	while (n > 0) {
		int64_t outer = begin / row, in = begin % row;
		size_t arg = 0;
		int64_t block = weval_inner(e->args[0], e->axis);
		while (in >= block) {
			in -= block;
			block = weval_inner(e->args[++arg], e->axis);
		}
		int64_t run = weval_min(n, block - in);
		TFMC_TRY(weval_to(ev, e->args[arg], outer * block + in, run, out));
		begin += run;
		out = advance(out, run);
		n -= run;
	}
	return TFMC_OK;
}

/* slice of the last axis, of quants: full rows of the argument are evaluated, and the blocks of the slice are
 * copied. */
static enum tfmc_status eval_slice_blocks(struct weval *ev, const struct ir_wexpr *e, int64_t row, int64_t n,
                                          const struct weight_quants *out)
{
	int64_t k = e->args[0]->dims[e->axis], some = rows_per_block(k, n);
	struct weight_quants quants;
	enum tfmc_status st = weight_quants_alloc(&quants, out->format, k, some) ? TFMC_OK : TFMC_NO_MEMORY;
	for (int64_t i = 0; st == TFMC_OK && i < n; i += some) {
		const struct weight_quants to = weight_quants_from_row(out, i);
		some = weval_min(n - i, some);
		st = weval_to(ev, e->args[0], (row + i) * k, some * k, (struct wexpr_out){.quants = quants});
		if (st == TFMC_OK)
			copy_blocks(&quants, e->begin, &to, 0, to.k, some);
	}
	weight_quants_free(&quants);
	return st;
}

/* index and slice: for each index of the axes before `axis`, `keep` contiguous elements of the argument's block. */
static enum tfmc_status eval_slice(struct weval *ev, const struct ir_wexpr *e, int64_t begin, int64_t n,
                                   struct wexpr_out out)
{
	const struct ir_wexpr *x = e->args[0];
	if (!out.at && e->axis == e->rank - 1 && e->kind == WX_SLICE)
		return eval_slice_blocks(ev, e, begin / out.quants.k, n / out.quants.k, &out.quants);
	int64_t inner = weval_inner(x, e->axis + 1);
	int64_t block = inner * x->dims[e->axis];
	int64_t keep = inner * (e->kind == WX_INDEX ? 1 : e->end - e->begin);
	while (n > 0) {
		int64_t in = begin % keep;
		int64_t run = weval_min(n, keep - in);
		TFMC_TRY(weval_to(ev, x, begin / keep * block + e->begin * inner + in, run, out));
		begin += run;
		out = advance(out, run);
		n -= run;
	}
	return TFMC_OK;
}

/*
 * Rows [r0, r1) and columns [c0, c1) of one matrix of the transposed result e [R, C]: each column is one contiguous
 * run of the argument x [C, R]. at: element of the argument at which the matrix begins.
 */
struct tile {
	int64_t at, r0, r1, c0, c1;
};

#define GATHER(size)                                                                                      \
	for (int64_t i = 0; i < n; i++)                                                                   \
		for (int64_t k = 0; k < m; k++)                                                           \
			memcpy(to + (i * pitch + k) * (size), from + (k * TILE_ROWS + i) * (size), size); \
	break

/* Writes n rows of m elements, `pitch` elements apart, from m columns that are TILE_ROWS elements apart. */
static void interleave_columns(char *to, int64_t pitch, const char *from, int64_t n, int64_t m, int64_t size)
{
	switch (size) {
	case 2: GATHER(2);
	case 4: GATHER(4);
	case 8: GATHER(8);
	}
}

/* Elements of a tile of the transposed matrix, TILE_COLUMNS columns at a time, so that those written to a row are in
 * one cache line; a column of TILE_ROWS elements is one range of the argument. */
static enum tfmc_status transpose_tile(struct weval *ev, const struct ir_wexpr *e, struct tile t,
                                       struct wexpr_out out)
{
	double scratch[TILE_COLUMNS * TILE_ROWS];
	const struct wexpr_out column = {.at = scratch, .dtype = out.dtype};
	int64_t rows = e->dims[e->rank - 2], cols = e->dims[e->rank - 1], size = ir_dtype_bytes(out.dtype);
	for (int64_t r = t.r0; r < t.r1; r += TILE_ROWS) {
		int64_t n = weval_min(t.r1 - r, TILE_ROWS);
		for (int64_t c = t.c0; c < t.c1; c += TILE_COLUMNS) {
			int64_t m = weval_min(t.c1 - c, TILE_COLUMNS);
			for (int64_t k = 0; k < m; k++)
				TFMC_TRY(weval_to(ev, e->args[0], t.at + (c + k) * rows + r, n,
				                  advance(column, k * TILE_ROWS)));
			struct wexpr_out to = advance(out, (r - t.r0) * cols + c - t.c0);
			interleave_columns(to.at, cols, (const char *)scratch, n, m, size);
		}
	}
	return TFMC_OK;
}

/* Splits the range into tiles: the end of a row, full rows, the beginning of a row. Fewer than two axes stay as they
 * are. */
static enum tfmc_status eval_transpose(struct weval *ev, const struct ir_wexpr *e, int64_t begin, int64_t n,
                                       struct wexpr_out out)
{
	if (e->rank < 2)
		return weval_to(ev, e->args[0], begin, n, out);
	int64_t rows = e->dims[e->rank - 2], cols = e->dims[e->rank - 1];
	while (n > 0) {
		int64_t in = begin % (rows * cols);
		struct tile t = {.at = begin - in, .r0 = in / cols, .c0 = in % cols};
		bool whole = t.c0 == 0 && n >= cols;
		t.r1 = whole ? weval_min(rows, t.r0 + n / cols) : t.r0 + 1;
		t.c1 = whole ? cols : weval_min(cols, t.c0 + n);
		TFMC_TRY(transpose_tile(ev, e, t, out));
		int64_t done = (t.r1 - t.r0) * (t.c1 - t.c0);
		begin += done;
		out = advance(out, done);
		n -= done;
	}
	return TFMC_OK;
}

/* The row of the argument that becomes row `row` in the other RoPE layout. A pair is rows (i, i + half) of a head in
 * one layout, rows (2i, 2i + 1) in the other. */
static int64_t rope_source_row(const struct ir_wexpr *e, int64_t row)
{
	int64_t size = e->dims[0] / e->begin, half = size / 2;
	int64_t at = row % size, head = row - at;
	if (e->kind == WX_ROPE_H2I)
		return head + at / 2 + (at % 2) * half;
	return head + (at < half ? 2 * at : 2 * (at - half) + 1);
}

/* Rows of the argument in the order of the other RoPE layout. */
static enum tfmc_status eval_rope(struct weval *ev, const struct ir_wexpr *e, int64_t begin, int64_t n,
                                  struct wexpr_out out)
{
	int64_t inner = weval_inner(e, 1);
	while (n > 0) {
		int64_t in = begin % inner, run = weval_min(n, inner - in);
		int64_t source = rope_source_row(e, begin / inner);
		TFMC_TRY(weval_to(ev, e->args[0], source * inner + in, run, out));
		begin += run;
		out = advance(out, run);
		n -= run;
	}
	return TFMC_OK;
}

/* repeat of the last axis: each element e->begin times. Elements [first, last] of the argument, at most WEVAL_CHUNK,
 * are evaluated for `run` elements of the result. */
static enum tfmc_status eval_repeat_elements(struct weval *ev, const struct ir_wexpr *e, int64_t begin,
                                             int64_t n, double *out)
{
	double scratch[WEVAL_CHUNK];
	while (n > 0) {
		int64_t first = begin / e->begin;
		int64_t last = weval_min((begin + n - 1) / e->begin, first + WEVAL_CHUNK - 1);
		int64_t run = last == (begin + n - 1) / e->begin ? n : (last + 1) * e->begin - begin;
		TFMC_TRY(weval(ev, e->args[0], first, last - first + 1, scratch));
		for (int64_t i = 0; i < run; i++)
			out[i] = scratch[(begin + i) / e->begin - first];
		begin += run;
		out += run;
		n -= run;
	}
	return TFMC_OK;
}

/* repeat of another axis: contiguous rows, each e->begin times. */
static enum tfmc_status eval_repeat_rows(struct weval *ev, const struct ir_wexpr *e, int64_t begin, int64_t n,
                                         struct wexpr_out out)
{
	int64_t inner = weval_inner(e, e->axis + 1);
	while (n > 0) {
		int64_t in = begin % inner, run = weval_min(n, inner - in);
		TFMC_TRY(weval_to(ev, e->args[0], begin / inner / e->begin * inner + in, run, out));
		begin += run;
		out = advance(out, run);
		n -= run;
	}
	return TFMC_OK;
}

/* ---- tables with a formula ---- */

/* Sinusoidal position encoding (Vaswani et al. 2017, 3.5), or with the frequencies of tensor2tensor. j: the pair of
 * sine and cosine. */
static double sinusoid_at(const struct ir_wexpr *e, int64_t row, int64_t col)
{
	int64_t half = e->dims[1] / 2;
	bool halves = e->layout == SINUSOID_HALVES;
	int64_t j = halves ? col % half : col / 2;
	bool cosine = halves ? col >= half : col % 2 == 1;
	double exponent = e->spacing == SINUSOID_T2T ? -(double)j / ((double)half - 1)
	                                             : -2.0 * (double)j / (double)e->dims[1];
	double angle = (double)(row + e->begin) * pow(e->value, exponent);
	return cosine ? cos(angle) : sin(angle);
}

static void table_sinusoid(const struct ir_wexpr *e, int64_t begin, int64_t n, double *out)
{
	for (int64_t i = 0; i < n; i++)
		out[i] = sinusoid_at(e, (begin + i) / e->dims[1], (begin + i) % e->dims[1]);
}

/* Cosines, then sines, of the RoPE angles of a position. */
static void table_rotary(const struct ir_wexpr *e, int64_t begin, int64_t n, double *out)
{
	int64_t half = e->dims[1] / 2;
	for (int64_t i = begin; i < begin + n; i++) {
		int64_t row = i / e->dims[1], column = i % e->dims[1];
		double angle = (double)row * e->frequencies[column % half];
		out[i - begin] = e->value * (column < half ? cos(angle) : sin(angle));
	}
}

/* ---- arithmetic ---- */

/* out[i] *= y for WX_MUL, else out[i] /= y. */
static void combine_scalar(enum ir_wexpr_kind kind, double *out, int64_t n, double y)
{
	if (kind == WX_MUL)
		for (int64_t i = 0; i < n; i++)
			out[i] *= y;
	else
		for (int64_t i = 0; i < n; i++)
			out[i] /= y;
}

/* out[i] op= y[i] */
static void combine_vector(enum ir_wexpr_kind kind, double *restrict out, int64_t n, const double *restrict y)
{
	if (kind == WX_MUL)
		for (int64_t i = 0; i < n; i++)
			out[i] *= y[i];
	else
		for (int64_t i = 0; i < n; i++)
			out[i] /= y[i];
}

/* Combines elements [begin, begin + n) with y, of which `below` neighbours share one; y[0] belongs to the first
 * element. */
static void combine_broadcast(enum ir_wexpr_kind kind, double *out, int64_t begin, int64_t n, int64_t below,
                              const double *y)
{
	if (below == 1) {
		combine_vector(kind, out, n, y);
		return;
	}
	for (int64_t left = below - begin % below; n > 0; left = below) {
		int64_t run = weval_min(n, left);
		combine_scalar(kind, out, run, *y++);
		out += run;
		n -= run;
	}
}

/* mul and div: element i with element i / below of the second argument, whose axes are the first of the result. */
static enum tfmc_status eval_binary(struct weval *ev, const struct ir_wexpr *e, int64_t begin, int64_t n,
                                    double *out)
{
	double scratch[WEVAL_CHUNK];
	int64_t below = wexpr_count(e) / wexpr_count(e->args[1]);
	TFMC_TRY(weval(ev, e->args[0], begin, n, out));
	while (n > 0) {
		int64_t first = begin / below;
		int64_t run = weval_min(n, (first + WEVAL_CHUNK) * below - begin);
		TFMC_TRY(weval(ev, e->args[1], first, (begin + run - 1) / below - first + 1, scratch));
		combine_broadcast(e->kind, out, begin, run, below, scratch);
		begin += run;
		out += run;
		n -= run;
	}
	return TFMC_OK;
}

static enum tfmc_status eval_offset(struct weval *ev, const struct ir_wexpr *e, int64_t begin, int64_t n,
                                    double *out)
{
	TFMC_TRY(weval(ev, e->args[0], begin, n, out));
	for (int64_t i = 0; i < n; i++)
		out[i] += e->value;
	return TFMC_OK;
}

/* Adds rank after rank: a row of the right factor, times one element of the left one. No row of the product spans
 * two runs. */
static enum tfmc_status eval_lowrank(struct weval *ev, const struct ir_wexpr *e, int64_t begin, int64_t n,
                                     double *out)
{
	const struct ir_wexpr *left = e->args[1], *right = e->args[2];
	double scratch[WEVAL_CHUNK], factor;
	int64_t k = e->dims[1], r = left->dims[1];
	TFMC_TRY(weval(ev, e->args[0], begin, n, out));
	while (n > 0) {
		int64_t row = begin / k, at = begin % k, run = weval_min(weval_min(n, k - at), WEVAL_CHUNK);
		for (int64_t i = 0; i < r; i++) {
			TFMC_TRY(weval(ev, left, row * r + i, 1, &factor));
			TFMC_TRY(weval(ev, right, i * k + at, run, scratch));
			factor *= e->value;
			for (int64_t j = 0; j < run; j++)
				out[j] += factor * scratch[j];
		}
		begin += run;
		out += run;
		n -= run;
	}
	return TFMC_OK;
}

/* Reports that v is NaN or too large for `type`, naming the first tensor below e: the user knows tensors, not
 * expressions. */
static enum tfmc_status too_large(struct weval *ev, const struct ir_wexpr *e, double v, const char *type)
{
	const struct ir_wexpr *t = e;
	while (t->n_args > 0)
		t = t->args[0];
	const char *is = isnan(v) ? "cannot be" : "is too large for";
	v = isnan(v) ? fabs(v) : v; /* printed without a sign */
	if (t->kind == WX_TENSOR)
		diag_error(ev->cx, LOC_NONE, DIAG_WEIGHT_RANGE, "%.9g in tensor '%s' of '%s' %s %s", v,
		           t->tensor, t->file, is, type);
	else
		diag_error(ev->cx, LOC_NONE, DIAG_WEIGHT_RANGE, "the weight %.9g %s %s", v, is, type);
	return TFMC_INVALID;
}

/* The argument rounded to 16 bits; reports a finite value that becomes infinite. */
static enum tfmc_status eval_round(struct weval *ev, const struct ir_wexpr *e, int64_t begin, int64_t n,
                                   double *out)
{
	TFMC_TRY(weval(ev, e->args[0], begin, n, out));
	for (int64_t i = 0; i < n; i++) {
		double v = out[i];
		out[i] = ir_round(e->stored, v);
		if (isinf(out[i]) && !isinf(v))
			return too_large(ev, e, v, ir_dtype_name(e->stored));
	}
	return TFMC_OK;
}

/* source[c]: the column of the argument that becomes column c. Reports an order that is no permutation: -1 marks
 * columns that no index has named. order: scratch for K values. */
static enum tfmc_status invert_order(struct weval *ev, const struct ir_wexpr *e, double *order,
                                     int64_t *source)
{
	int64_t k = e->dims[e->rank - 1];
	TFMC_TRY(weval(ev, e->args[1], 0, k, order));
	for (int64_t i = 0; i < k; i++)
		source[i] = -1;
	for (int64_t i = 0; i < k; i++) {
		bool is_column = order[i] >= 0 && order[i] < (double)k && order[i] == floor(order[i]);
		if (!is_column || source[(int64_t)order[i]] >= 0) {
			diag_error(
			        ev->cx, LOC_NONE, DIAG_WEIGHT_RANGE,
			        "%.9g is not a column, or occurs twice: the order must be a permutation of "
			        "%lld columns",
			        order[i], (long long)k);
			return TFMC_INVALID;
		}
		source[(int64_t)order[i]] = i;
	}
	return TFMC_OK;
}

/* Evaluates full rows of the argument, one at a time, since the columns of a range are anywhere in it. */
static enum tfmc_status eval_columns(struct weval *ev, const struct ir_wexpr *e, int64_t begin, int64_t n,
                                     double *out)
{
	int64_t k = e->dims[e->rank - 1];
	double *row = memory_alloc((size_t)k * sizeof(*row) + 1);
	int64_t *source = memory_alloc((size_t)k * sizeof(*source) + 1);
	enum tfmc_status st = row && source ? invert_order(ev, e, row, source) : TFMC_NO_MEMORY;
	for (int64_t i = 0; st == TFMC_OK && i < n; i++) {
		int64_t column = (begin + i) % k;
		if (i == 0 || column == 0)
			st = weval(ev, e->args[0], begin + i - column, k, row);
		out[i] = row[source[column]];
	}
	memory_free(source);
	memory_free(row);
	return st;
}

/* ---- quantization ---- */

/* Statistics of the activations that the matrix multiplies, in `values` [2 k]; out->squares NULL if they are absent
 * or all zero, which means unknown (weight.h). */
static enum tfmc_status eval_input_stats(struct weval *ev, const struct ir_wexpr *e, double *values,
                                         struct weight_input_stats *out)
{
	int64_t k = e->dims[e->rank - 1];
	double sum = 0;
	if (e->n_args > 1)
		TFMC_TRY(weval(ev, e->args[1], 0, 2 * k, values));
	for (int64_t i = 0; e->n_args > 1 && i < k; i++)
		sum += values[i];
	/* dampening, as in GPTQ (Frantar et al. 2022): inputs that calibration never saw still count */
	for (int64_t i = 0; sum > 0 && i < k; i++)
		values[i] += QUANTIZE_DAMP * sum / (double)k;
	*out = sum > 0 ? (struct weight_input_stats){values, values + k} : (struct weight_input_stats){0};
	return TFMC_OK;
}

/* Quantizes rows [row, row + n) of the argument, some at a time, which bounds memory; rows are independent. */
static enum tfmc_status quantize_rows(struct weval *ev, const struct ir_wexpr *e, int64_t row, int64_t n,
                                      const struct weight_quants *out)
{
	const struct weight_quantizer z = weight_quantizer(e->format);
	int64_t k = out->k, some = rows_per_block(k, n);
	/* some rows, and behind them the statistics, [2 k] */
	double *x = memory_alloc((size_t)((some + 2) * k) * sizeof(*x) + 1), worst;
	struct weight_input_stats in;
	enum tfmc_status st = x ? eval_input_stats(ev, e, x + some * k, &in) : TFMC_NO_MEMORY;
	for (int64_t i = 0; st == TFMC_OK && i < n; i += some) {
		const struct weight_quants to = weight_quants_from_row(out, i);
		some = weval_min(n - i, some);
		st = weval(ev, e->args[0], (row + i) * k, some * k, x);
		if (st == TFMC_OK && !weight_quantize(&z, &to, some, x, in.squares ? &in : NULL, &worst))
			st = too_large(ev, e, worst, ir_format(e->format)->name);
	}
	memory_free(x);
	return st;
}

/* Elements [begin, begin + n) of the dequantized matrix; the range need not begin or end at a row, but full rows are
 * quantized. */
static enum tfmc_status eval_quantize(struct weval *ev, const struct ir_wexpr *e, int64_t begin, int64_t n,
                                      double *out)
{
	int64_t k = e->dims[e->rank - 1], some = rows_per_block(k, n / k + 2);
	struct weight_quants quants;
	double *values = memory_alloc((size_t)(some * k) * sizeof(*values) + 1);
	bool ok = weight_quants_alloc(&quants, e->format, k, some) && values;
	enum tfmc_status st = ok ? TFMC_OK : TFMC_NO_MEMORY;
	while (st == TFMC_OK && n > 0) {
		int64_t in = begin % k, rows = weval_min(some, (in + n + k - 1) / k),
		        run = weval_min(n, rows * k - in);
		st = quantize_rows(ev, e, begin / k, rows, &quants);
		if (st == TFMC_OK) {
			weight_dequantize(&quants, rows, values);
			memcpy(out, values + in, (size_t)run * sizeof(*values));
		}
		begin += run;
		out += run;
		n -= run;
	}
	weight_quants_free(&quants);
	memory_free(values);
	return st;
}

/* Nodes that compute, in f64. Others are dispatched before (weval_to). */
static enum tfmc_status compute(struct weval *ev, const struct ir_wexpr *e, int64_t begin, int64_t n,
                                double *out)
{
	switch (e->kind) {
	case WX_FULL:
		for (int64_t i = 0; i < n; i++)
			out[i] = e->value;
		return TFMC_OK;
	case WX_SINUSOID: table_sinusoid(e, begin, n, out); return TFMC_OK;
	case WX_ROTARY: table_rotary(e, begin, n, out); return TFMC_OK;
	case WX_MUL:
	case WX_DIV: return eval_binary(ev, e, begin, n, out);
	case WX_OFFSET: return eval_offset(ev, e, begin, n, out);
	case WX_LOWRANK: return eval_lowrank(ev, e, begin, n, out);
	case WX_REPEAT: return eval_repeat_elements(ev, e, begin, n, out);
	case WX_COLUMNS: return eval_columns(ev, e, begin, n, out);
	case WX_ROUND: return eval_round(ev, e, begin, n, out);
	case WX_QUANTIZE: return eval_quantize(ev, e, begin, n, out);
	case WX_TENSOR:
	case WX_STACK:
	case WX_RANKS:
	case WX_CONCAT:
	case WX_INDEX:
	case WX_SLICE:
	case WX_RESHAPE:
	case WX_TRANSPOSE:
	case WX_ROPE_H2I:
	case WX_ROPE_I2H: break;
	}
	return TFMC_INTERNAL;
}

/* Rows of zeros in a quantized format: scales and offsets are 0; quants are any that the format can store, with the
 * shift that a scale of 0 encodes. */
static void zero_quants(const struct weight_quants *out, int64_t rows)
{
	const struct ir_format_desc *f = ir_format(out->format);
	int64_t blocks = ir_format_blocks(out->format, out->k),
	        super = ir_format_super_blocks(out->format, out->k);
	for (int64_t i = 0; i < rows; i++) {
		const struct weight_quants row = weight_quants_from_row(out, i);
		memset(row.scales, 0, (size_t)blocks * sizeof(float));
		if (row.offsets)
			memset(row.offsets, 0, (size_t)blocks * sizeof(float));
		if (row.super_scales)
			memset(row.super_scales, 0, (size_t)super * sizeof(float));
		if (row.super_offsets)
			memset(row.super_offsets, 0, (size_t)super * sizeof(float));
		int quant = (f->codebook ? f->codebook[0] : 0) + weight_block_shift(&row, 0);
		memset(row.quants, (unsigned char)quant, (size_t)row.k);
	}
}

/* Nodes that compute, converted to the type of the destination. Only full and quantize have quants
 * (wexpr_fits_format). */
static enum tfmc_status compute_to(struct weval *ev, const struct ir_wexpr *e, int64_t begin, int64_t n,
                                   struct wexpr_out out)
{
	double scratch[WEVAL_CHUNK];
	if (!out.at && e->kind == WX_FULL) {
		zero_quants(&out.quants, n / out.quants.k);
		return TFMC_OK;
	}
	if (!out.at)
		return quantize_rows(ev, e, begin / out.quants.k, n / out.quants.k, &out.quants);
	if (out.dtype == DT_F64)
		return compute(ev, e, begin, n, out.at);
	for (int64_t i = 0; i < n; i += WEVAL_CHUNK) {
		int64_t some = weval_min(n - i, WEVAL_CHUNK);
		TFMC_TRY(compute(ev, e, begin + i, some, scratch));
		weight_write_elements(out.dtype, scratch, some, advance(out, i).at);
	}
	return TFMC_OK;
}

/* Dispatches on the kind: nodes that move elements pass the destination on, the others compute in f64
 * (compute_to). */
static enum tfmc_status weval_to(struct weval *ev, const struct ir_wexpr *e, int64_t begin, int64_t n,
                                 struct wexpr_out out)
{
	if (n == 0)
		return TFMC_OK;
	switch (e->kind) {
	case WX_TENSOR: return eval_tensor(ev, e, begin, n, out);
	case WX_STACK: return eval_stack(ev, e, begin, n, out);
	case WX_RANKS: return eval_ranks(ev, e, begin, n, out);
	case WX_CONCAT: return eval_concat(ev, e, begin, n, out);
	case WX_INDEX:
	case WX_SLICE: return eval_slice(ev, e, begin, n, out);
	case WX_RESHAPE: return weval_to(ev, e->args[0], begin, n, out);
	case WX_ROPE_H2I:
	case WX_ROPE_I2H: return eval_rope(ev, e, begin, n, out);
	case WX_REPEAT:
		return weval_inner(e, e->axis + 1) == 1 ? compute_to(ev, e, begin, n, out)
		                                        : eval_repeat_rows(ev, e, begin, n, out);
	case WX_TRANSPOSE: return eval_transpose(ev, e, begin, n, out);
	case WX_FULL:
	case WX_SINUSOID:
	case WX_ROTARY:
	case WX_MUL:
	case WX_DIV:
	case WX_OFFSET:
	case WX_LOWRANK:
	case WX_QUANTIZE:
	case WX_COLUMNS:
	case WX_ROUND: return compute_to(ev, e, begin, n, out);
	}
	return TFMC_INTERNAL;
}

enum tfmc_status wexpr_eval_to(struct diag_context *cx, const struct ir_wexpr *e,
                               const struct weight_source *source, int64_t begin, int64_t n,
                               struct wexpr_out out)
{
	assert(begin >= 0 && n >= 0 && begin + n <= wexpr_count(e));
	assert(n == 0 || out.at ||
	       (wexpr_fits_format(e, out.quants.format) && begin % out.quants.k == 0 &&
	        n % out.quants.k == 0));
	struct weval ev = {.cx = cx, .source = source};
	return weval_to(&ev, e, begin, n, out);
}

enum tfmc_status wexpr_eval(struct diag_context *cx, const struct ir_wexpr *e,
                            const struct weight_source *source, int64_t begin, int64_t n, double *out)
{
	return wexpr_eval_to(cx, e, source, begin, n, (struct wexpr_out){.at = out, .dtype = DT_F64});
}
