/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Software prefetch of weights (B). While the row tiles of an M block pass over an N block, each K element
 * prefetches some bytes of the weights that are read next: the next K block, or the next N block. Each row
 * tile prefetches an equal share, so that the first one of the next block finds its weights in the cache.
 * After the last N block that is whatever follows the matrix in memory, as a rule the next matrix of the
 * model. Prefetches never fault and change no result.
 */
#include "backends/kernels/matmul_internal.h"

/* OpenCL has no prefetch that all devices implement; a dequantized B buffer is in the cache anyway. */
static bool has_prefetch(const struct linear *l)
{
	return l->rows_hi > l->mr && !l->b_buf.at.id && l->job->target->arch != ARCH_OPENCL;
}

struct matmul_prefetch matmul_prefetch_begin(const struct linear *l, struct kb_val rows, int height,
                                             int panels)
{
	struct kb *k = l->k;
	struct matmul_prefetch a = {.row_tile = {0}};
	if (!has_prefetch(l))
		return a;
	struct kb_val tiles = kb_div_const(k, kb_add_const(k, rows, height - 1), height);
	int64_t step = matmul_bytes_per_k(l);
	struct kb_val bytes = kb_add_const(k, tiles, panels * step - 1);
	a.stride = kb_min(k, kb_bin(k, KB_DIV, bytes, tiles), kb_index(k, step));
	a.row_tile = kb_var(k, "turn", KB_INDEX_T, kb_index(k, 0));
	return a;
}

void matmul_prefetch_next_row_tile(const struct linear *l, const struct matmul_prefetch *a)
{
	if (a->row_tile.id)
		kb_set(l->k, a->row_tile, kb_add_const(l->k, kb_get(l->k, a->row_tile), 1));
}

/* All of K: panels are contiguous, and so are the shares. */
static struct kb_val base_full_k(const struct linear *l, const struct matmul_block *s,
                                 const struct matmul_prefetch *a, struct kb_val w)
{
	struct kb *k = l->k;
	struct kb_val share = kb_mul_const(k, a->stride, l->depth);
	struct kb_val first = kb_mul(k, share, kb_get(k, a->row_tile));
	return kb_ptr_add(k, w, first, (s->is_repacked ? l->repack.group : l->columns.nc) * l->panel.bytes);
}

/* A K block is strided by panels: a share that ends in a panel of the block goes on in the next panel. */
static struct kb_val base_k_block(const struct linear *l, const struct matmul_block *s,
                                  const struct matmul_prefetch *a, struct kb_val w)
{
	struct kb *k = l->k;
	struct kb_val bytes_per_k = kb_index(k, matmul_bytes_per_k(l)),
	              panel_bytes = kb_index(k, l->panel.bytes);
	struct kb_val block_bytes = kb_mul(k, kb_sub(k, s->k_hi, s->k_lo), bytes_per_k),
	              k_offset = kb_mul(k, s->k_hi, bytes_per_k);
	struct kb_val k_elements = kb_sub(k, s->k_hi, s->k_lo);
	struct kb_val share = kb_mul(k, kb_mul(k, a->stride, kb_get(k, a->row_tile)), k_elements);
	struct kb_val panel = kb_bin(k, KB_DIV, share, block_bytes),
	              in_panel = kb_bin(k, KB_REM, share, block_bytes);
	struct kb_val next = kb_select(k, kb_cmp(k, KB_LT, s->k_hi, kb_index(k, l->depth)), k_offset,
	                               kb_index(k, l->columns.nc * l->panel.bytes));
	struct kb_val before = kb_mul(k, panel, panel_bytes);
	struct kb_val at = kb_add(k, kb_add(k, next, in_panel), before);
	/* matmul_prefetch_k counts k from 0 */
	return kb_ptr_add(k, w, kb_sub(k, at, kb_mul(k, s->k_lo, a->stride)), 0);
}

/* Only tiles that the shares count prefetch: at least half the main height, and its full width. */
struct kb_val matmul_prefetch_base(const struct linear *l, const struct matmul_block *s,
                                   const struct matmul_tile *t, struct kb_val w)
{
	const struct matmul_prefetch *a = &t->prefetch;
	bool is_main = matmul_block_uses_amx(l, s) || (2 * t->rows >= l->mr && t->panels == l->nr);
	if (a->base.id || !a->row_tile.id || !is_main)
		return a->base;
	return l->c_buf.kc ? base_k_block(l, s, a, w) : base_full_k(l, s, a, w);
}

void matmul_prefetch_line(const struct linear *l, const struct matmul_prefetch *a, struct kb_val at,
                          struct kb_val section, struct kb_val word)
{
	if (!a->distance) {
		matmul_prefetch_k(l, a, at);
		return;
	}
	struct kb_val bytes = kb_mul_const(l->k, word, 4);
	for (int i = 0; i < a->panels; i++)
		kb_prefetch(l->k, section, bytes, a->distance + i * l->panel.bytes);
}

void matmul_prefetch_k_range(const struct linear *l, const struct matmul_prefetch *a, struct kb_val at,
                             int64_t n)
{
	struct kb *k = l->k;
	if (!a->base.id)
		return;
	struct kb_val begin = kb_mul(k, at, a->stride), end = kb_add(k, begin, kb_mul_const(k, a->stride, n));
	kb_prefetch_l2(k, a->base, kb_loop(k, "ahead", begin, end, PANEL_ROW_BYTES, KB_NONEMPTY), 0);
	kb_end_loop(k);
}

void matmul_prefetch_k(const struct linear *l, const struct matmul_prefetch *a, struct kb_val at)
{
	struct kb_val from = kb_mul(l->k, at, a->stride);
	for (int i = 0; i < a->panels || i == 0; i++)
		kb_prefetch(l->k, a->base, from, i * l->panel.bytes);
}
