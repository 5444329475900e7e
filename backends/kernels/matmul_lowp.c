/* SPDX-License-Identifier: Apache-2.0 */
/*
 * K loops of the microkernel in reduced precision. Rows of x were quantized to int8, or rounded to bf16, by
 * the prologue; weights are quants or bf16 in panels.
 *
 * bf16: each accumulator is one chain over pairs of K elements in increasing k, with the arithmetic of kb_dot_bf16 or
 * kb_dot_bf16_odd. int8: a dot block is the K elements that share one scale of x and one of each column. Its
 * multiply-adds are exact in i32; the i32 accumulator is then scaled and added to the f32 one, block by block in
 * increasing k:
 *
 *   y += (sum of (w + z) x  -  z sum of x) (scale_x scale_w)  +  minimum_w (scale_x sum of x)
 *
 * Two dot blocks b that are merged (tile_merges_dot_blocks) have integer scales s and minima o, which are applied
 * first; both sums are exact in i32:
 *
 *   y += (sum of s_b (sum of w x)_b) (scale_x factor_s)  +  (sum of o_b (sum of x)_b) (scale_x factor_o)
 *
 * z: zero point of the stored bytes, less the shift of the block in formats with shifts. The prologue stores
 * - z sum of x (in formats with shifts the sum itself; by magnitude plus |x| of negative x, see nest.dot) and scale_x
 * sum of x with each row. Quants of 4 bits
 * are small enough for pmaddubsw to accumulate a chunk of 32 elements in i16 first, where the target lacks VNNI
 * (tile_accumulates_i16).
 *
 * A word is four bytes, or two bf16, of one column or row, the operand of a dot product. A group of quants is some
 * k-rows (64 bytes: one word of each of 16 columns) that hold full words; words in pieces are combined from several
 * k-rows (quant_group). A super-block is a range of K with the scales of its blocks before its quants. `half`: a group
 * is two dot blocks, and the second one is open. Repacked: x as i16, or B as i16 or bytes, made in scratch for many
 * rows. Registers are scarce: f32 and i32 accumulators are live at once.
 *
 * Targets that multiply by an element of a vector (SDOT, BFDOT) load four words of each row of x at once.
 * Targets with 2x2 matrix multiplies (I8MM, BF16 MMLA) use them for tiles of several rows if K is one dot
 * block: two rows of x times two columns, whose words of two k-rows are interleaved.
 */
#include "backends/kernels/matmul_internal.h"

/* The type of a vector of words: four bytes or two bf16 of each column. */
static struct kb_type word_vector(const struct matmul_lowp_tile *c)
{
	return KB_TYPE(KB_I32, c->l->nest.lanes);
}

/* Loads words x + 4 i .. x + 4 i + 3 of all rows for multiplies by element; nothing if the target broadcasts. bf16 is
 * loaded as f32, for which LLVM selects by-element operands. */
static void load_x_words(struct matmul_lowp_tile *c, struct kb_val x, int i)
{
	const struct reg_tile *p = c->p;
	struct kb_type type = KB_TYPE(c->l->gemm.lowp.to.bf16 ? KB_F32 : KB_I32, MATMUL_X_WORDS);
	for (int m = 0; c->t->x_lanes > 1 && m < p->rows; m++)
		c->x_words[i][m] =
		        kb_load(p->k, type, p->x[m], x, p->x_disp[m] + (int64_t)i * MATMUL_X_WORDS, 0);
}

/* Broadcasts word x + disp of row m. */
static struct kb_val broadcast_x_word(const struct matmul_lowp_tile *c, int m, struct kb_val x, int64_t disp)
{
	return kb_load_splat(c->l->k, word_vector(c), c->p->x[m], x, c->p->x_disp[m] + disp);
}

/* Broadcasts word x + i of row m: an element of the vectors loaded by load_x_words, if the target multiplies
 * by element. */
static struct kb_val x_word_of(const struct matmul_lowp_tile *c, int m, struct kb_val x, int i)
{
	struct kb *k = c->l->k;
	if (c->t->x_lanes == 1)
		return broadcast_x_word(c, m, x, i);
	struct kb_val all = kb_splat(k, kb_lane(k, c->x_words[i / MATMUL_X_WORDS][m], i % MATMUL_X_WORDS),
	                             MATMUL_X_WORDS);
	return c->l->gemm.lowp.to.bf16 ? kb_bitcast(k, all, KB_I32) : all;
}

/* ---- i32 accumulators ---- */

/* True if a chunk is accumulated in i16 (c->acc16) with pmaddubsw. */
static bool accumulates_chunk(const struct matmul_lowp_tile *c)
{
	return c->l->nest.dot.word == KB_DOT_U7S8_I16;
}

/* True if chunks, or a few words, are. */
static bool uses_acc16(const struct matmul_lowp_tile *c)
{
	return accumulates_chunk(c) || c->t->words_i16 > 0;
}

/* Word, in a panel, of the group of quants that belongs to word `first` of x in the dot block. */
static struct kb_val group_word(const struct matmul_lowp_tile *c, struct kb_val first)
{
	return kb_add(c->l->k, c->b_word, kb_mul_const(c->l->k, first, c->b.bytes_per_k));
}

/* True if a dot block prefetches once: its share is under one cache line, and f32 and i32 accumulators
 * leave no register for another address. */
static bool prefetches_once(const struct matmul_lowp_tile *c)
{
	return c->prefetch->row_tile.id && c->l->gemm.lowp.layout.blocks > 1;
}

/* Prefetches for k-row `k_row` of those from word `first` of the dot block on. Nothing if the tile does not prefetch,
 * or k-rows are read from a repacked copy; only for k-row 0 where a dot block prefetches once. */
static void prefetch_k_row(const struct matmul_lowp_tile *c, struct kb_val first, struct kb_val k_row)
{
	struct kb *k = c->l->k;
	int64_t n;
	if (!c->prefetch->base.id || c->repacked_w.id ||
	    (prefetches_once(c) && (!kb_const_index(k, k_row, &n) || n > 0)))
		return;
	struct kb_val i = kb_mul_const(k, kb_add(k, c->x_word, first), 4), at = group_word(c, first);
	i = kb_add(k, i, kb_mul_const(k, k_row, c->b.k_per_line));
	at = kb_add(k, at, kb_mul_const(k, k_row, MATMUL_PANEL));
	matmul_prefetch_line(c->l, c->prefetch, i, c->w, at);
}

/*
 * Addresses of the panels: opaque ones where loads (NEON) have no room for the displacement of a panel;
 * another opaque copy where the table of a codebook or the words of x need the register of a k-row that would
 * be kept for further words.
 */
static void find_panel_addresses(struct matmul_lowp_tile *c)
{
	struct kb *k = c->l->k;
	int panels = c->p->vectors * c->l->nest.lanes / MATMUL_PANEL;
	struct kb_val w = c->repacked_w.id ? c->repacked_w : c->w;
	for (int i = 0; i < panels; i++) {
		struct kb_val at = kb_ptr_add(k, w, kb_index(k, 0), i * c->b.bytes);
		c->panel[i] = c->t->x_lanes > 1 && i > 0 ? kb_ptr_opaque(k, at) : at;
		c->reload[i] = c->t->reloads ? kb_ptr_opaque(k, at) : c->panel[i];
	}
}

/* Vector v of the words of k-row at + k_row. */
static struct kb_val load_panel_words(const struct matmul_lowp_tile *c, struct kb_val at, int k_row, int v)
{
	int per_panel = MATMUL_PANEL / c->l->nest.lanes;
	int64_t disp = (int64_t)k_row * MATMUL_PANEL + v % per_panel * c->l->nest.lanes;
	return kb_load(c->l->k, word_vector(c), c->panel[v / per_panel], at, disp, 0);
}

/* Vector v of word i of the group at 4-byte word `group` + disp, as bytes that can be multiplied: u8, which become
 * s8 by - 128 where the dot product takes signed ones (flips_sign). With several rows, where registers are scarce,
 * codebook indices are masked although the lookup ignores high bits: without a mask the load is folded into the lookup
 * right before its use, and its latency shows. */
static struct kb_val load_quants(const struct matmul_lowp_tile *c, struct kb_val group, int64_t disp, int i,
                                 int v)
{
	struct kb *k = c->l->k;
	int lanes = c->l->nest.lanes, per_panel = MATMUL_PANEL / lanes;
	const struct panel_word w = {.from = c->panel[v / per_panel],
	                             .again = c->reload[v / per_panel],
	                             .group = group,
	                             .disp = disp + (int64_t)(v % per_panel) * lanes,
	                             .i = i,
	                             .zero = c->l->nest.dot.zero,
	                             .shifts_bytes = c->t->x_lanes > 1,
	                             .is_unmasked = c->t->is_unmasked};
	struct kb_val words = panel_load_word(k, &c->b, &w, lanes);
	if (!c->l->nest.dot.flips_sign || c->l->nest.dot.by_magnitude)
		return words;
	return kb_bin(k, KB_XOR, words, kb_splat(k, kb_i32(k, KB_SIGN_BITS), lanes));
}

/* A word of x by magnitude: *magnitude is |x|, and bytes of B are multiplied after an XOR with the result, which
 * complements them where x is negative and flips their sign bit where they are stored as unsigned ones. */
static struct kb_val split_sign(const struct matmul_lowp_tile *c, struct kb_val x, struct kb_val *magnitude)
{
	struct kb *k = c->l->k;
	int lanes = c->l->nest.lanes;
	struct kb_val bytes = kb_bitcast(k, x, KB_I8);
	struct kb_val sign = kb_bin(k, KB_SAR, bytes, kb_splat(k, kb_cvt(k, kb_i32(k, 7), KB_I8), 4 * lanes));
	*magnitude = kb_bitcast(k, kb_sub(k, kb_bin(k, KB_XOR, bytes, sign), sign), KB_I32);
	sign = kb_bitcast(k, sign, KB_I32);
	if (!c->l->nest.dot.flips_sign)
		return sign;
	return kb_bin(k, KB_XOR, sign, kb_splat(k, kb_i32(k, KB_SIGN_BITS), lanes));
}

/* Clears the i16 accumulators. */
static void zero_acc16(const struct matmul_lowp_tile *c)
{
	struct kb *k = c->l->k;
	for (int i = 0; i < c->p->rows * c->p->vectors; i++)
		kb_set(k, c->acc16[i], kb_splat(k, kb_i32(k, 0), c->l->nest.lanes));
}

/* Adds the i16 accumulators to the i32 ones: one pmaddwd by ones, which adds pairs of i16. */
static void flush_acc16(const struct matmul_lowp_tile *c)
{
	struct kb *k = c->l->k;
	struct kb_val ones = kb_splat(k, kb_i32(k, 0x00010001), c->l->nest.lanes);
	for (int i = 0; i < c->p->rows * c->p->vectors; i++) {
		struct kb_val sum = kb_get(k, c->acc[i]), sum16 = kb_get(k, c->acc16[i]);
		kb_set(k, c->acc[i], kb_dot_s16s16(k, sum, sum16, ones));
	}
}

/* A group of quants: its first word in the dot block, `from` words after word `first`; row: the k-row that has word 0
 * where k-rows are not unrolled, or none. */
struct group_at {
	struct kb_val first, row;
	int from;
};

/* Adds word i of the group times the same word of all rows of x, to i16 or i32 accumulators. Quants of all vectors are
 * live at once, or, where words of x fill the registers (x_lanes > 1), of one vector after the other. */
static void add_word(struct matmul_lowp_tile *c, const struct group_at *g, int i)
{
	const struct reg_tile *p = c->p;
	const struct quant_group *q = &c->b.group;
	struct kb_val x = kb_add(p->k, c->x_word, g->first), group = group_word(c, g->first),
	              w[MATMUL_ACC_MAX];
	int64_t disp = (int64_t)g->from / q->words * q->k_rows * MATMUL_PANEL;
	if (g->row.id) {
		x = kb_add(p->k, x, g->row);
		group = kb_add(p->k, group, kb_mul_const(p->k, g->row, MATMUL_PANEL));
	}
	int in_x = g->from + i - c->half * q->words / 2, n = c->t->x_lanes > 1 ? 1 : p->vectors;
	for (int first_vector = 0; first_vector < p->vectors; first_vector += n) {
		for (int v = 0; v < n; v++)
			w[v] = load_quants(c, group, disp, i, first_vector + v);
		for (int m = 0; m < p->rows; m++) {
			struct kb_val word = x_word_of(c, m, x, in_x), magnitude = {0};
			if (c->l->nest.dot.by_magnitude)
				word = split_sign(c, word, &magnitude);
			for (int v = 0; v < n; v++) {
				int i_acc = m * p->vectors + first_vector + v;
				struct kb_var sum = uses_acc16(c) ? c->acc16[i_acc] : c->acc[i_acc];
				enum kb_dot dot = uses_acc16(c) ? KB_DOT_U7S8_I16 : c->l->nest.dot.word;
				struct kb_val a = w[v], b = word, before = kb_get(p->k, sum);
				if (magnitude.id) {
					a = magnitude;
					b = kb_bin(p->k, KB_XOR, w[v], word);
				}
				kb_set(p->k, sum, kb_dot(p->k, dot, before, a, b));
			}
		}
	}
}

/* A word with i16 operands (repacked): even bytes, then odd bytes; one pmaddwd each, as x86 without VNNI has no exact
 * product of full bytes. The odd halves of a panel, and of a row of x, are stored after all even ones. */
static void add_k_row_i16(const struct matmul_lowp_tile *c, struct kb_val first, int k_row)
{
	const struct reg_tile *p = c->p;
	struct kb *k = p->k;
	struct kb_val w[MATMUL_ACC_MAX], at = group_word(c, first), x = kb_add(k, c->x_word, first);
	int64_t words = c->l->gemm.lowp.layout.corrections / 4;
	for (int odd = 0; odd < 2; odd++) {
		struct kb_val first_vector = kb_add_const(k, at, odd * c->l->gemm.panel.bytes / 4);
		for (int v = 0; v < p->vectors; v++)
			w[v] = load_panel_words(c, first_vector, k_row, v);
		for (int m = 0; m < p->rows; m++) {
			struct kb_val word = kb_load_splat(k, word_vector(c), c->repacked_x, x,
			                                   (2 * m + odd) * words + k_row);
			for (int v = 0; v < p->vectors; v++) {
				struct kb_var sum = c->acc[m * p->vectors + v];
				kb_set(k, sum, kb_dot_s16s16(k, kb_get(k, sum), w[v], word));
			}
		}
	}
}

/* A group whose words are in one piece each, one k-row per iteration: unrolled, LLVM would hoist loads of the others
 * and spill. Each k-row has several words (i, i + k_rows, ..). */
static void add_group_looped(struct matmul_lowp_tile *c, struct kb_val first)
{
	struct kb *k = c->l->k;
	const struct quant_group *q = &c->b.group;
	if (prefetches_once(c))
		prefetch_k_row(c, first, kb_index(k, 0));
	const struct group_at g = {
	        .first = first,
	        .row = kb_loop(k, "line", kb_index(k, 0), kb_index(k, q->k_rows), 1, KB_NONEMPTY)};
	prefetch_k_row(c, first, g.row);
	for (int i = 0; i < q->words; i += q->k_rows)
		add_word(c, &g, i);
	kb_end_loop(k);
}

/* Loads the vectors of x that begin in words [from, from + n) of the chunk. */
static void load_x_range(struct matmul_lowp_tile *c, struct kb_val first, int from, int n)
{
	for (int word = from; word < from + n; word++)
		if (word % MATMUL_X_WORDS == 0)
			load_x_words(c, kb_add(c->l->k, c->x_word, first), word / MATMUL_X_WORDS);
}

/* n words of a group (from its half on), unrolled over its k-rows, each prefetched once: words as soon as their last
 * k-row is loaded, so that it is loaded once; in_order (registers for x are scarce): one word for each k-row, all
 * others with the last one, each with its x only. */
static void add_group(struct matmul_lowp_tile *c, const struct group_at *g, int n)
{
	const struct quant_group *q = &c->b.group;
	bool in_order = c->t->in_x_order;
	int in_i16 = 0; /* words that the i16 accumulators hold, if not a chunk */
	int begin = c->half * q->words / 2, before = g->from / q->words * q->k_rows;
	if (!in_order)
		load_x_range(c, g->first, g->from, n);
	for (int i = 0; i < q->k_rows; i++) {
		if (c->half == 0)
			prefetch_k_row(c, g->first, kb_index(c->l->k, before + i));
		for (int word = begin; word < begin + n; word++) {
			if (in_order ? word - begin < i || (word - begin > i && i < q->k_rows - 1)
			             : q->word[word].last_k_row != i)
				continue;
			if (in_order)
				load_x_range(c, g->first, g->from + word - begin, 1);
			if (c->t->words_i16 > 0 && in_i16++ == 0)
				zero_acc16(c);
			add_word(c, g, word);
			if (in_i16 > 0 && in_i16 == c->t->words_i16) {
				flush_acc16(c);
				in_i16 = 0;
			}
		}
	}
	if (in_i16 > 0)
		flush_acc16(c);
}

/* Adds n K elements, at most a chunk, from word `first` of the dot block on: group by group, or word by word if
 * operands are i16. Looped over k-rows where i16 accumulators leave few registers and the chunk is one group of words
 * in one piece. */
static void add_chunk(struct matmul_lowp_tile *c, struct kb_val first, int64_t n)
{
	const struct quant_group *q = &c->b.group;
	int words = (int)(n + 3) / 4;
	if (accumulates_chunk(c) && q->k_rows > 1 && q->n_unsplit == words && q->words == words) {
		add_group_looped(c, first);
		return;
	}
	for (int from = 0; from < words; from += c->repacked_x.id ? 1 : q->words) {
		const struct group_at g = {.first = first, .from = from};
		if (c->repacked_x.id)
			add_k_row_i16(c, first, from);
		else
			add_group(c, &g, words - from < q->words ? words - from : q->words);
	}
}

/* Zero-point correction of vector v in formats with shifts, whose weights are quant + shift: shift - zero point, i32,
 * to be multiplied by the sum of x; else none. If pairs of i16 are multiplied, the high half is cleared, so that one
 * pmaddwd replaces pmulld. */
static struct kb_val zero_point_correction(const struct linear *l, struct kb_val super_block,
                                           struct kb_val block, int v)
{
	struct kb *k = l->k;
	if (ir_format(l->gemm.panel.format)->shift == 0)
		return (struct kb_val){0};
	struct kb_val zero = kb_splat(k, kb_cvt(k, kb_i32(k, l->nest.dot.zero), KB_I16), l->nest.lanes);
	struct kb_val v16 =
	        kb_sub(k, panel_block_shift(k, &l->gemm.panel, super_block, block, v, l->nest.lanes), zero);
	struct kb_val correction = kb_cvt(k, v16, KB_I32);
	if (!l->nest.dot.corrects_by_pairs)
		return correction;
	return kb_bin(k, KB_AND, correction, kb_splat(k, kb_i32(k, 0xffff), l->nest.lanes));
}

/* Initial value of an accumulator, which corrects the zero point: - z sum of x as the prologue stored it for row m, or
 * correction * sum of x in formats with shifts. */
static struct kb_val initial_acc(const struct matmul_lowp_tile *c, struct kb_val dot_block, int m,
                                 struct kb_val correction)
{
	struct kb *k = c->l->k;
	struct kb_val zero = kb_splat(k, kb_i32(k, 0), c->l->nest.lanes);
	if (!correction.id && c->l->nest.dot.zero == 0 && !c->l->nest.dot.by_magnitude)
		return zero;
	struct kb_val word = broadcast_x_word(c, m, dot_block, c->l->gemm.lowp.layout.corrections / 4);
	if (!correction.id)
		return word;
	return c->l->nest.dot.corrects_by_pairs ? kb_dot_s16s16(k, zero, correction, word)
	                                        : kb_mul(k, correction, word);
}

/* Sets the i32 accumulators of a dot block to their zero-point corrections. */
static void begin_acc(struct matmul_lowp_tile *c, struct kb_val dot_block, struct kb_val block)
{
	const struct reg_tile *p = c->p;
	for (int v = 0; v < p->vectors; v++) {
		struct kb_val correction = zero_point_correction(c->l, c->super_block, block, v);
		for (int m = 0; m < p->rows; m++)
			kb_set(p->k, c->acc[m * p->vectors + v], initial_acc(c, dot_block, m, correction));
	}
}

/* ---- 2x2 matrix multiplies (MMLA) ---- */

/* The 2 x 2 operand of x: words x + i and x + i + 1 of rows m and m + 1 (of m twice if it is the last one; the result
 * of the second is not used). */
static struct kb_val load_row_pair(const struct matmul_lowp_tile *c, int m, struct kb_val x, int i)
{
	static const int pair[] = {0, 1, 2, 3};
	const struct reg_tile *p = c->p;
	struct kb_val row[2];
	for (int r = 0; r < 2; r++) {
		int at = m + r < p->rows ? m + r : m;
		row[r] = kb_load(p->k, KB_TYPE(KB_I32, 2), p->x[at], x, p->x_disp[at] + i, 0);
	}
	return kb_shuffle(p->k, row[0], row[1], pair, MATMUL_X_WORDS);
}

/* Adds k-rows x + i and x + i + 1, whose words are interleaved to 2 x 2 operands of two columns. sum: accumulators
 * [rows / 2][vectors][2], each two rows x two columns. */
static void add_mmla_k_row_pair(const struct matmul_lowp_tile *c, const struct kb_var *sum, struct kb_val x,
                                int i)
{
	static const int columns[2][MATMUL_X_WORDS] = {{0, 4, 1, 5}, {2, 6, 3, 7}};
	const struct reg_tile *p = c->p;
	struct kb *k = p->k;
	struct kb_val rows[MATMUL_ROWS_MAX], k_row[2];
	struct kb_val at = kb_add_const(k, kb_mul_const(k, x, MATMUL_PANEL), c->l->gemm.panel.header / 4),
	              per_word = kb_index(k, c->l->gemm.panel.k_per_line);
	for (int r = 0; c->prefetch->base.id && r < 2; r++)
		matmul_prefetch_k(c->l, c->prefetch, kb_mul(k, kb_add_const(k, x, i + r), per_word));
	for (int m = 0; m < p->rows; m += 2)
		rows[m] = load_row_pair(c, m, x, i);
	for (int v = 0; v < 2 * p->vectors; v++) {
		for (int r = 0; v % 2 == 0 && r < 2; r++)
			k_row[r] = load_panel_words(c, at, i + r, v / 2);
		struct kb_val w = kb_shuffle(k, k_row[0], k_row[1], columns[v % 2], MATMUL_X_WORDS);
		for (int m = 0; m < p->rows; m += 2) {
			struct kb_var to = sum[m * p->vectors + v];
			struct kb_val before = kb_get(k, to);
			kb_set(k, to, kb_dot(k, c->l->nest.dot.square, before, w, rows[m]));
		}
	}
}

/* Multiplies n k-rows (even) by MMLA, into accumulators of 2 x 2 results; at the end these are shuffled to sum[m][v],
 * the results of row m in vector v. */
static void emit_mmla_loop(const struct matmul_lowp_tile *c, int64_t n, struct kb_val *sum)
{
	static const int of_row[2][MATMUL_X_WORDS] = {{0, 2, 4, 6}, {1, 3, 5, 7}};
	const struct reg_tile *p = c->p;
	struct kb *k = p->k;
	struct kb_var tile[2 * MATMUL_ACC_MAX];
	enum kb_scalar s = c->l->gemm.lowp.to.bf16 ? KB_F32 : KB_I32;
	struct kb_val zero = kb_splat(k, kb_cvt(k, kb_i32(k, 0), s), MATMUL_X_WORDS);
	for (int i = 0; i < (p->rows + 1) / 2 * 2 * p->vectors; i++)
		tile[i] = kb_var(k, "square", KB_TYPE(s, MATMUL_X_WORDS), zero);
	if (n > 0) {
		struct kb_val x = kb_loop(k, "k", kb_index(k, 0), kb_index(k, n), 2, KB_NONEMPTY);
		add_mmla_k_row_pair(c, tile, x, 0);
		kb_end_loop(k);
	}
	for (int m = 0; m < p->rows; m++)
		for (int v = 0; v < p->vectors; v++) {
			const struct kb_var *of = &tile[m / 2 * 2 * p->vectors + 2 * v];
			struct kb_val left = kb_get(k, of[0]);
			sum[m * p->vectors + v] =
			        kb_shuffle(k, left, kb_get(k, of[1]), of_row[m % 2], MATMUL_X_WORDS);
		}
}

/* Multiplies pairs of k-rows of the only dot block by MMLA, and adds the results to the corrected i32 accumulators.
 * Returns the K elements done; the caller adds an odd k-row by words. */
static int64_t add_mmla_k_rows(struct matmul_lowp_tile *c, int64_t n)
{
	struct kb *k = c->l->k;
	struct kb_val sum[MATMUL_ACC_MAX];
	int64_t k_rows = (n + 3) / 4 / 2 * 2;
	emit_mmla_loop(c, k_rows, sum);
	begin_acc(c, kb_index(k, 0), kb_index(k, 0));
	for (int i = 0; i < c->p->rows * c->p->vectors; i++)
		kb_set(k, c->acc[i], kb_add(k, kb_get(k, c->acc[i]), sum[i]));
	return 4 * k_rows;
}

/* ---- scales ---- */

/* Index, in its super-block, of the weights' block that contains dot block `dot_block` of the super-block: a block may
 * be several dot blocks, where blocks of x are shorter; 0 if one scale serves all of K. */
static struct kb_val scale_block_of(const struct linear *l, struct kb_val dot_block)
{
	int64_t block = ir_format(l->gemm.panel.format)->block;
	if (block == 0 || block >= l->gemm.depth)
		return kb_index(l->k, 0);
	int64_t dot_blocks_per_super_block = block / l->gemm.lowp.layout.block;
	return dot_blocks_per_super_block == 1 ? dot_block
	                                       : kb_div_const(l->k, dot_block, dot_blocks_per_super_block);
}

/* Scales and minima of vector v; no minimum in formats with shifts, which the integers contain. */
static struct panel_block load_scales(const struct matmul_lowp_tile *c, struct kb_val super_block,
                                      struct kb_val block, int v)
{
	const struct panel *p = &c->l->gemm.panel;
	struct kb *k = c->l->k;
	int lanes = c->l->nest.lanes;
	struct panel_block s = {
	        .scale = panel_block_scale(k, p, super_block, block, v, c->factors[v].scale, lanes)};
	if (ir_format(p->format)->has_offset)
		s.offset = panel_block_offset(k, p, super_block, block, v, c->factors[v].offset, lanes);
	return s;
}

struct kb_val matmul_add_scaled(const struct matmul_lowp_tile *c, struct kb_val dot_block, int m,
                                const struct panel_block *s, struct kb_val integers, struct kb_val sum)
{
	struct kb *k = c->l->k;
	const struct reg_tile *p = c->p;
	const struct activation_row_layout *row = &c->l->gemm.lowp.layout;
	struct kb_type type = KB_TYPE(KB_F32, c->l->nest.lanes);
	struct kb_val d = kb_load_splat(k, type, p->x[m], dot_block, p->x_disp[m] + row->scales / 4);
	struct kb_val scale = kb_mul(k, d, s->scale);
	sum = kb_fma(k, kb_cvt(k, integers, KB_F32), scale, sum);
	if (!s->offset.id)
		return sum;
	struct kb_val x_sum = kb_load_splat(k, type, p->x[m], dot_block, p->x_disp[m] + row->offset_sums / 4);
	return kb_fma(k, s->offset, x_sum, sum);
}

/* Scales the i32 accumulators of a dot block and adds them to vector v of the f32 accumulators of all rows; the scales
 * of the weights are loaded once. */
static void scale_acc(const struct matmul_lowp_tile *c, struct kb_val dot_block, struct kb_val block, int v)
{
	struct kb *k = c->l->k;
	const struct panel_block s = load_scales(c, c->super_block, block, v);
	for (int m = 0; m < c->p->rows; m++) {
		int at = m * c->p->vectors + v;
		struct kb_val integers = kb_get(k, c->acc[at]);
		kb_set(k, c->p->sum[at],
		       matmul_add_scaled(c, dot_block, m, &s, integers, kb_get(k, c->p->sum[at])));
	}
}

struct kb_val matmul_dequantize_acc(const struct matmul_lowp_tile *c, int m, int v, struct kb_val integers)
{
	struct kb *k = c->l->k;
	struct kb_val dot_block = kb_index(k, 0), zero = kb_splat(k, kb_f32(k, 0), c->l->nest.lanes);
	const struct panel_block s = load_scales(c, c->w, dot_block, v);
	struct kb_val initial = initial_acc(c, dot_block, m, zero_point_correction(c->l, c->w, dot_block, v));
	return matmul_add_scaled(c, dot_block, m, &s, kb_add(k, integers, initial), zero);
}

/* ---- the int8 loop ---- */

/* Prefetches the header (scales) of the super-block at distance, an equal part in each dot block of this one: k-rows
 * prefetch quants only. The part is that of the last super-block, whose dot blocks may be fewest. */
static void prefetch_header(const struct matmul_lowp_tile *c, struct kb_val in_super_block)
{
	struct kb *k = c->l->k;
	int64_t dot_block_k = c->l->gemm.lowp.layout.block, tail = c->l->gemm.depth % c->layout.super_block;
	int64_t dot_blocks = ((tail > 0 ? tail : c->layout.super_block) + dot_block_k - 1) / dot_block_k;
	int64_t words = (c->layout.quants / 4 + dot_blocks - 1) / dot_blocks;
	if (!c->prefetch->distance)
		return;
	struct kb_val zero = kb_index(k, 0), at = kb_mul_const(k, in_super_block, words);
	for (int64_t i = 0; i < words; i += MATMUL_PANEL)
		matmul_prefetch_line(c->l, c->prefetch, zero, c->super_block, kb_add_const(k, at, i));
}

/* Opens the super-block of dot block `dot_block`: its address, and the word of its quants. Returns the index of the dot
 * block in it. */
static struct kb_val open_super_block(struct matmul_lowp_tile *c, struct kb_val dot_block)
{
	struct kb *k = c->l->k;
	int64_t dot_blocks = c->layout.super_block / c->l->gemm.lowp.layout.block;
	c->super_block = c->w;
	c->quants_word = kb_index(k, c->layout.quants / 4);
	if (c->l->gemm.depth <= c->layout.super_block)
		return dot_block;
	struct kb_val super_block = kb_div_const(k, dot_block, dot_blocks);
	struct kb_val bytes = kb_mul_const(k, super_block, c->layout.super_block_bytes);
	c->super_block = kb_ptr_add(k, c->w, bytes, 0);
	struct kb_val words = kb_mul_const(k, super_block, c->layout.super_block_bytes / 4);
	c->quants_word = kb_add(k, c->quants_word, words);
	return kb_sub(k, dot_block, kb_mul_const(k, super_block, dot_blocks));
}

/* Opens dot block `dot_block`, number `in_super_block` of the open super-block: its first words of x and B (at the
 * begin of its group, if it is the second half of one; bytes repacked for B have no headers, so all dot blocks are
 * adjacent). Returns the index of its scales in the super-block. */
static struct kb_val open_dot_block(struct matmul_lowp_tile *c, struct kb_val dot_block,
                                    struct kb_val in_super_block)
{
	struct kb *k = c->l->k;
	int64_t dot_block_k = c->l->gemm.lowp.layout.block;
	c->x_word = kb_mul_const(k, dot_block, dot_block_k / 4);
	int64_t words = dot_block_k * c->b.bytes_per_k / 4; /* of a dot block */
	if (c->repacked_w.id && !c->repacked_x.id) {
		c->b_word = kb_mul_const(k, dot_block, words);
	} else {
		struct kb_val group = kb_add_const(k, in_super_block, -c->half);
		c->b_word = kb_add(k, c->quants_word, kb_mul_const(k, group, words));
	}
	prefetch_header(c, in_super_block);
	return scale_block_of(c->l, in_super_block);
}

/* A chunk, with i16 accumulators flushed to i32. */
static void add_chunk_i32(struct matmul_lowp_tile *c, struct kb_val first, int64_t n)
{
	if (accumulates_chunk(c))
		zero_acc16(c);
	add_chunk(c, first, n);
	if (accumulates_chunk(c))
		flush_acc16(c);
}

/* Adds the n elements of a merged dot block to the i32 accumulators, or sets them if it is the first of two: i16
 * accumulators, which begin with the correction of the zero point, times the integer scales of the block. */
static void add_merged_block(struct matmul_lowp_tile *c, struct kb_val dot_block, struct kb_val block,
                             int64_t n)
{
	const struct reg_tile *p = c->p;
	struct kb *k = p->k;
	const struct kb_val none = {0};
	struct kb_val zero = kb_splat(k, kb_i32(k, 0), p->lanes);
	for (int m = 0; m < p->rows; m++) {
		struct kb_val first = initial_acc(c, dot_block, m, none);
		for (int v = 0; v < p->vectors; v++)
			kb_set(k, c->acc16[m * p->vectors + v], first);
	}
	add_chunk(c, kb_index(k, 0), n);
	for (int v = 0; v < p->vectors; v++) {
		struct kb_val scales = panel_integer_pairs(k, &c->l->gemm.panel, false, c->super_block, block,
		                                           block, v, p->lanes);
		for (int i = v; i < p->rows * p->vectors; i += p->vectors) {
			struct kb_val sum = c->part > 0 ? kb_get(k, c->acc[i]) : zero;
			struct kb_val sum16 = kb_get(k, c->acc16[i]);
			kb_set(k, c->acc[i], kb_dot_s16s16(k, sum, sum16, scales));
		}
	}
}

/* Scales the i32 accumulators of merged dot blocks, of which `block` and `dot_block` are the last one: adds those of
 * vector v, and the minima times sums of x, to the f32 accumulators of all rows. */
static void scale_merged(const struct matmul_lowp_tile *c, struct kb_val dot_block, struct kb_val block,
                         int v)
{
	const struct reg_tile *p = c->p;
	struct kb *k = p->k;
	const struct panel *panel = &c->l->gemm.panel;
	const struct activation_row_layout *row = &c->l->gemm.lowp.layout;
	struct panel_block factors = c->factors[v];
	struct kb_val minima = {0}, zero = kb_splat(k, kb_i32(k, 0), p->lanes);
	if (!factors.scale.id)
		factors = panel_block_factors(k, panel, c->super_block, block, v, p->lanes);
	if (factors.offset.id) {
		struct kb_val first = kb_add_const(k, block, -c->part), second = kb_add_const(k, first, 1);
		minima = panel_integer_pairs(k, panel, true, c->super_block, first, second, v, p->lanes);
	}
	for (int m = 0; m < p->rows; m++) {
		struct kb_var to = p->sum[m * p->vectors + v];
		struct kb_val d = kb_load_splat(k, KB_TYPE(KB_F32, p->lanes), p->x[m], dot_block,
		                                p->x_disp[m] + row->scales / 4);
		struct kb_val integers = kb_cvt(k, kb_get(k, c->acc[m * p->vectors + v]), KB_F32);
		struct kb_val scale = kb_mul(k, d, factors.scale);
		kb_set(k, to, kb_fma(k, integers, scale, kb_get(k, to)));
		if (!minima.id)
			continue;
		struct kb_val pair =
		        broadcast_x_word(c, m, kb_div_const(k, dot_block, 2), row->offset_sums / 4);
		integers = kb_cvt(k, kb_dot_s16s16(k, zero, minima, pair), KB_F32);
		scale = kb_mul(k, d, factors.offset);
		kb_set(k, to, kb_fma(k, integers, scale, kb_get(k, to)));
	}
}

/*
 * Adds dot block `dot_block` of n elements, number `in_super_block` of the open super-block. The i32 accumulators must
 * hold the zero-point correction and the dot products at the end; begin_acc sets the correction, at one of three times:
 *   MMLA     after the products of all row pairs, which have accumulators of their own and are then added
 *   i16      after the only chunk of a short block, so that i16 and i32 accumulators are not live at once
 *   else     first; dot products accumulate on top of it
 */
static void add_dot_block(struct matmul_lowp_tile *c, struct kb_val dot_block, struct kb_val in_super_block,
                          int64_t n)
{
	struct kb *k = c->l->k;
	c->half = c->t->splits_groups ? c->part : 0;
	struct kb_val block = open_dot_block(c, dot_block, in_super_block), zero = kb_index(k, 0);
	int64_t done = 0, unroll = c->t->unroll;
	if (c->l->nest.dot.merges) {
		int64_t at;
		add_merged_block(c, dot_block, block, n);
		bool is_last = kb_const_index(k, dot_block, &at) && at == c->l->gemm.lowp.layout.blocks - 1;
		for (int v = 0; (c->part > 0 || is_last) && v < c->p->vectors; v++)
			scale_merged(c, dot_block, block, v);
		return;
	}
	if (c->t->is_square) {
		done = add_mmla_k_rows(c, n);
	} else if (accumulates_chunk(c) &&
	           n <= MATMUL_CHUNK) { /* the i32 accumulators are live after the chunk only */
		zero_acc16(c);
		add_chunk(c, zero, n);
		begin_acc(c, dot_block, block);
		flush_acc16(c);
		done = n;
	} else {
		begin_acc(c, dot_block, block);
	}
	if (done == 0 && n >= c->t->loop_min) {
		done = n / unroll * unroll;
		struct kb_val at = kb_loop(k, "k", zero, kb_index(k, done / 4), unroll / 4, KB_NONEMPTY);
		add_chunk_i32(c, at, unroll);
		kb_end_loop(k);
	}
	for (; done < n; done += MATMUL_CHUNK)
		add_chunk_i32(c, kb_index(k, done / 4), n - done < MATMUL_CHUNK ? n - done : MATMUL_CHUNK);
	for (int v = 0; v < c->p->vectors; v++)
		scale_acc(c, dot_block, block, v);
}

/* Dot blocks by the blocks that share factors, while there are full ones: these are loaded once. Returns the number of
 * dot blocks done; 0: the tile does not keep factors, or there is one such range at most. */
static int64_t add_shared_factors(struct matmul_lowp_tile *c)
{
	struct kb *k = c->l->k;
	const struct ir_format_desc *d = ir_format(c->l->gemm.panel.format);
	if (!c->t->keeps_factors)
		return 0;
	int64_t dot_block_k = c->l->gemm.lowp.layout.block, shared = (int64_t)d->super * d->block,
	        full = c->l->gemm.depth / shared;
	if (full < 2)
		return 0;
	struct kb_val range = kb_loop(k, "super", kb_index(k, 0), kb_index(k, full), 1, KB_NONEMPTY);
	struct kb_val first = kb_mul_const(k, range, shared / dot_block_k);
	struct kb_val in_super_block = open_super_block(c, first);
	struct kb_val block = scale_block_of(c->l, in_super_block);
	for (int v = 0; v < c->p->vectors; v++)
		c->factors[v] =
		        panel_block_factors(k, &c->l->gemm.panel, c->super_block, block, v, c->l->nest.lanes);
	struct kb_val step = kb_loop(k, "step", kb_index(k, 0), kb_index(k, shared / dot_block_k),
	                             c->t->dot_blocks, KB_NONEMPTY);
	for (c->part = 0; c->part < c->t->dot_blocks; c->part++) {
		struct kb_val i = kb_add_const(k, step, c->part);
		struct kb_val dot_block = kb_add(k, first, i);
		add_dot_block(c, dot_block, kb_add(k, in_super_block, i), dot_block_k);
	}
	kb_end_loop(k);
	kb_end_loop(k);
	for (int v = 0; v < c->p->vectors; v++)
		c->factors[v] = (struct panel_block){0};
	return full * (shared / dot_block_k);
}

/* All dot blocks: those that share factors; a loop over full groups (`per` dot blocks each, 2 where a scale belongs to
 * half of one, or two are merged), if there is more than one; then the others, of which the last may be shorter, with
 * constant indices. */
void matmul_int8_loop(struct matmul_lowp_tile *c)
{
	struct kb *k = c->l->k;
	const struct activation_row_layout *row = &c->l->gemm.lowp.layout;
	int64_t full = c->l->gemm.depth / row->block, tail = c->l->gemm.depth % row->block;
	if (c->repacked_w.id) /* the k-rows read are repacked ones: the next quants are prefetched at once */
		matmul_prefetch_k_range(c->l, c->prefetch, kb_index(k, 0), c->l->gemm.depth);
	c->b = c->repacked_w.id ? c->l->nest.repack.panel : c->l->gemm.panel;
	find_panel_addresses(c);
	c->layout = quant_panel_layout(c->l->gemm.panel.format, c->l->gemm.depth);
	for (int i = 0; i < c->p->rows * c->p->vectors; i++)
		c->acc[i] = kb_var(k, "dot", word_vector(c), (struct kb_val){0});
	for (int i = 0; uses_acc16(c) && i < c->p->rows * c->p->vectors; i++)
		c->acc16[i] = kb_var(k, "acc16", word_vector(c), kb_splat(k, kb_i32(k, 0), c->l->nest.lanes));
	int64_t per = c->t->dot_blocks, looped = full / per * per, done = add_shared_factors(c);
	if (looped > done + per) {
		struct kb_val first =
		        kb_loop(k, "step", kb_index(k, done), kb_index(k, looped), per, KB_NONEMPTY);
		for (c->part = 0; c->part < per; c->part++) {
			struct kb_val dot_block = kb_add_const(k, first, c->part);
			add_dot_block(c, dot_block, open_super_block(c, dot_block), row->block);
		}
		kb_end_loop(k);
		done = looped;
	}
	for (; done * row->block < c->l->gemm.depth; done++) {
		struct kb_val dot_block = kb_index(k, done);
		c->part = (int)(done % per);
		add_dot_block(c, dot_block, open_super_block(c, dot_block), done < full ? row->block : tail);
	}
}

/* ---- the bf16 loop ---- */

/* Adds k-row at + i of the panels (a pair of K elements of each column, the operand of a bf16 dot product) times the
 * same word of all rows of x. As in add_word, vectors are loaded all at once or one after the other. */
static void add_k_row_bf16(struct matmul_lowp_tile *c, struct kb_val at, int i)
{
	struct kb *k = c->l->k;
	const struct reg_tile *p = c->p;
	struct kb_val words = kb_mul_const(k, at, MATMUL_PANEL), w[MATMUL_ACC_MAX];
	int n = c->t->x_lanes > 1 ? 1 : p->vectors;
	if (c->prefetch->base.id)
		matmul_prefetch_k(c->l, c->prefetch, kb_mul_const(k, kb_add_const(k, at, i), 2));
	if (i % MATMUL_X_WORDS == 0)
		load_x_words(c, at, i / MATMUL_X_WORDS);
	for (int first_vector = 0; first_vector < p->vectors; first_vector += n) {
		for (int v = 0; v < n; v++)
			w[v] = load_panel_words(c, words, i, first_vector + v);
		for (int m = 0; m < p->rows; m++) {
			struct kb_val x = x_word_of(c, m, at, i);
			for (int v = 0; v < n; v++) {
				struct kb_var sum = p->sum[m * p->vectors + first_vector + v];
				kb_set(k, sum, kb_dot(k, c->l->nest.dot.word, kb_get(k, sum), w[v], x));
			}
		}
	}
}

/* All k-rows, each a pair of K elements: by MMLA in pairs of k-rows, or unrolled in a loop; the remainder one by
 * one. */
void matmul_bf16_loop(struct matmul_lowp_tile *c)
{
	struct kb *k = c->l->k;
	int64_t k_rows = panel_row_count(DT_BF16, c->l->gemm.depth);
	int unroll = c->t->unroll;
	int64_t full = k_rows / unroll * unroll;
	c->b = c->l->gemm.panel;
	find_panel_addresses(c);
	if (c->t->is_square) {
		full = k_rows / 2 * 2;
		struct kb_val sum[MATMUL_ACC_MAX];
		emit_mmla_loop(c, full, sum);
		for (int i = 0; i < c->p->rows * c->p->vectors; i++)
			kb_set(k, c->p->sum[i], sum[i]);
	} else if (full > 0) {
		struct kb_val at = kb_loop(k, "k", kb_index(k, 0), kb_index(k, full), unroll, KB_NONEMPTY);
		for (int i = 0; i < unroll; i++)
			add_k_row_bf16(c, at, i);
		kb_end_loop(k);
	}
	for (int i = 0; i < k_rows - full; i++)
		add_k_row_bf16(c, kb_index(k, full), i);
}
