/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measured peaks of this machine for the roofline model: loops of independent fused multiply-adds or dot
 * products in registers, of dot products of AMX tiles, and a loop that only reads memory. They are built and
 * compiled like kernels and run in this process.
 */
#include "backends/backend.h"

#include <string.h>

#include "backends/kb/kb.h"
#include "backends/object/llvm.h"

#define CHAINS      14     /* independent accumulators: more than latency x throughput of any core here */
#define ITERATIONS  100000 /* iterations of a run: short, so that some run is undisturbed */
#define STREAMS     4      /* streams read at once, two vectors of each per iteration */
#define PIECES      64     /* most pieces of a worker's data that are timed separately */
#define PIECE_BYTES (1 << 22)
#define RUNS        5
#define RUNS_MAX    1000
#define SECONDS     0.2 /* total time after which runs end, after at least RUNS */
#define MODULE      "tfmc_peak"
#define TILE_DOTS   4 /* tile dot products per iteration */
#define READ        "tfmc_peak_read"

static const char *const multiply_names[MAC_ALL] = {"tfmc_peak_f32", "tfmc_peak_int8", "tfmc_peak_bf16"};

static bool has_tiles(const struct target *t, enum ir_mac_type kind)
{
	return kind != MAC_F32 && target_has(t, FEATURE_AMX_TILE);
}

/* One operation of that kind, whose result the next one of the chain waits for. */
static struct kb_val accumulate(struct kb *k, enum ir_mac_type kind, struct kb_val sum, struct kb_val x)
{
	switch (kind) {
	case MAC_F32: return kb_fma(k, sum, x, x);
	case MAC_INT8: return kb_dot_u8s8(k, sum, x, x);
	case MAC_BF16: return kb_dot_bf16(k, sum, x, x);
	case MAC_ALL: break;
	}
	return sum;
}

/* Builds n iterations of CHAINS independent accumulators, so that throughput and not latency is measured. x is loaded,
 * so the compiler does not know it, and small, so sums stay finite; the sums are stored, so the loop stays. */
static void build_multiply(struct kb_module *m, int lanes, enum ir_mac_type kind)
{
	struct kb_type t = KB_TYPE(kind == MAC_INT8 ? KB_I32 : KB_F32, lanes);
	struct kb_type operand = KB_TYPE(kind == MAC_F32 ? KB_F32 : KB_I32, lanes);
	struct kb *k = kb_begin(m, multiply_names[kind], KB_EXPORTED, KB_VOID);
	struct kb_var sum[CHAINS];
	struct kb_val data = kb_param(k, "data", KB_PTR_T, 0), n = kb_param(k, "n", KB_INDEX_T, 0);
	struct kb_val zero = kb_index(k, 0), x = kb_load(k, operand, data, zero, 0, 4);
	for (int i = 0; i < CHAINS; i++)
		sum[i] = kb_var(k, "sum", t, kb_load(k, t, data, zero, (int64_t)i * lanes, 4));
	kb_loop(k, "i", zero, n, 1, 0);
	for (int i = 0; i < CHAINS; i++)
		kb_set(k, sum[i], accumulate(k, kind, kb_get(k, sum[i]), x));
	kb_end_loop(k);
	for (int i = 0; i < CHAINS; i++)
		kb_store(k, kb_get(k, sum[i]), data, zero, (int64_t)i * lanes, 4);
	kb_end(k);
}

/* Builds n iterations of 2 x 2 accumulator tiles, full tiles of zeros: the time of AMX does not depend on values. */
static void build_tile_dots(struct kb_module *m, enum ir_mac_type kind)
{
	struct kb *k = kb_begin(m, multiply_names[kind], KB_EXPORTED, KB_VOID);
	struct kb_val data = kb_param(k, "data", KB_PTR_T, 0), n = kb_param(k, "n", KB_INDEX_T, 0);
	kb_tile_config_gemm(k, data, KB_TILE_BYTES);
	kb_loop(k, "i", kb_index(k, 0), n, 1, 0);
	for (int i = 0; i < TILE_DOTS; i++)
		kb_tile_dot(k, kind == MAC_BF16 ? KB_DOT_BF16 : KB_DOT_U8S8, i, KB_TILE_WEIGHTS + i % 2,
		            KB_TILE_X + i / 2);
	kb_end_loop(k);
	kb_tile_release(k);
	kb_end(k);
}

/* Arithmetic operations of an iteration. */
static double iteration_flops(const struct target *t, enum ir_mac_type kind)
{
	static const int per_lane[MAC_ALL] = {1, 4, 2};
	int tile = KB_TILE_ROWS * KB_TILE_ROWS * (KB_TILE_BYTES / 4);
	return 2.0 * per_lane[kind] * (has_tiles(t, kind) ? TILE_DOTS * tile : CHAINS * t->lanes);
}

/* Builds a function that reads STREAMS consecutive parts of n i32 each from data, two vectors of each per iteration; n
 * is a multiple of the i32 of an iteration. Each load has an accumulator of its own, and the result depends on all
 * loads, so none is removed. */
static void build_read(struct kb_module *m, int lanes)
{
	struct kb_type t = KB_TYPE(KB_I32, lanes);
	struct kb *k = kb_begin(m, READ, KB_EXPORTED, KB_INDEX);
	struct kb_var all[2 * STREAMS];
	struct kb_val data = kb_param(k, "data", KB_PTR_T, 0), n = kb_param(k, "n", KB_INDEX_T, 0);
	struct kb_val zero = kb_index(k, 0), sum = kb_splat(k, kb_i32(k, 0), lanes);
	for (int i = 0; i < 2 * STREAMS; i++)
		all[i] = kb_var(k, "all", t, sum);
	struct kb_val at = kb_loop(k, "i", zero, n, 2 * (int64_t)lanes, 0);
	for (int i = 0; i < 2 * STREAMS; i++) {
		struct kb_val place = kb_add(k, at, kb_mul_const(k, n, i / 2));
		struct kb_val x = kb_load(k, t, data, place, (int64_t)(i % 2) * lanes, 4);
		kb_set(k, all[i], kb_bin(k, KB_OR, kb_get(k, all[i]), x));
	}
	kb_end_loop(k);
	for (int i = 0; i < 2 * STREAMS; i++)
		sum = kb_bin(k, KB_ADD, sum, kb_get(k, all[i]));
	kb_return(k, kb_cvt(k, kb_reduce(k, KB_ADD, sum), KB_INDEX));
	kb_end(k);
}

struct work {
	void (*multiply)(float *data, int64_t n);
	int64_t (*read)(const void *data, int64_t n);
	const char *data;
	int64_t piece_bytes; /* of one worker; the pieces of all workers are adjacent */
	int64_t times;       /* how often a worker reads a piece in a run */
	int64_t piece;       /* of this run */
};

/* A parallel_for task: one run of the multiply loop, on values that stay finite. */
static void multiply_task(void *arg, int64_t worker, int64_t n_workers)
{
	const struct work *w = arg;
	float data[CHAINS * KB_LANES_MAX];
	(void)worker, (void)n_workers;
	for (int i = 0; i < CHAINS * KB_LANES_MAX; i++)
		data[i] = 0.5f;
	w->multiply(data, ITERATIONS);
}

static void read_task(void *arg, int64_t worker, int64_t n_workers)
{
	const struct work *w = arg;
	const char *piece = w->data + (w->piece * n_workers + worker) * w->piece_bytes;
	for (int64_t i = 0; i < w->times; i++)
		(void)w->read(piece, w->piece_bytes / (4 * STREAMS));
}

/* Sum over the pieces of the shortest time of any run: each piece may be disturbed in another run. Between two runs of
 * a piece all other pieces are read, so that it is not in the cache. */
static double least_seconds(const struct backend_peak_options *o, int64_t workers, tfmc_task_fn *task,
                            struct work *w, int64_t pieces)
{
	double least[PIECES], total = 0, sum = 0;
	for (int run = 0; run < RUNS || (run < RUNS_MAX && total < SECONDS); run++) {
		for (w->piece = 0; w->piece < pieces; w->piece++) {
			double start = o->clock(NULL);
			o->parallel_for(o->user, workers, task, w);
			double seconds = o->clock(NULL) - start;
			if (run == 0 || seconds < least[w->piece])
				least[w->piece] = seconds;
			total += seconds;
		}
	}
	for (int64_t i = 0; i < pieces; i++)
		sum += least[i];
	return sum;
}

static double rate(double amount, double seconds)
{
	return seconds > 0 ? amount / seconds : 0;
}

/* Runs the loops that were built: multiplication on one worker, times the number of workers in flops; reading on
 * all workers, each its own part of the data in pieces, as memory is shared. A piece is full iterations of all streams,
 * and is read as often as a run needs to last: half of PIECE_BYTES at least. */
static void measure(const struct backend_peak_options *o, struct backend_jit *jit, struct backend_peak *out)
{
	struct work w = {.data = o->data};
	double workers = (double)o->workers;
	int64_t step = 2 * (int64_t)o->target->lanes * 4 * STREAMS;
	int64_t part = (int64_t)(o->n_bytes / (uint64_t)o->workers), pieces = part / PIECE_BYTES + 1;
	pieces = pieces > PIECES ? PIECES : pieces;
	w.piece_bytes = part / pieces / step * step;
	w.times = w.piece_bytes ? (PIECE_BYTES / 2 + w.piece_bytes - 1) / w.piece_bytes : 0;
	void *read = backend_jit_symbol(jit, READ);
	memcpy(&w.read, &read, sizeof(read));
	*out = (struct backend_peak){0};
	for (enum ir_mac_type kind = 0; kind < MAC_ALL; kind++) {
		void *multiply = backend_jit_symbol(jit, multiply_names[kind]);
		memcpy(&w.multiply, &multiply, sizeof(multiply));
		if (multiply)
			out->flops[kind] = rate(ITERATIONS * iteration_flops(o->target, kind) * workers,
			                        least_seconds(o, 1, multiply_task, &w, 1));
	}
	if (read && w.piece_bytes)
		out->bytes = rate((double)(w.piece_bytes * w.times * pieces) * workers,
		                  least_seconds(o, o->workers, read_task, &w, pieces));
}

enum tfmc_status backend_peak(struct diag_context *cx, const struct backend_peak_options *o,
                              struct backend_peak *out)
{
	const struct target *target = o->target;
	struct arena arena;
	struct buf object;
	struct backend_jit *jit = NULL;
	struct kb_caps caps = kb_caps_of(target);
	struct llvm_options options = {.target = target, .opt_level = 2};
	struct llvm_output result = {.object = &object};
	arena_init(&arena);
	buf_init(&object);
	struct kb_module *m = kb_module_create(&arena, &caps);
	if (m) {
		for (enum ir_mac_type kind = 0; kind < MAC_ALL; kind++) {
			if (o->mac_types[kind] && has_tiles(target, kind))
				build_tile_dots(m, kind);
			else if (o->mac_types[kind])
				build_multiply(m, target->lanes, kind);
		}
		build_read(m, target->lanes);
	}
	enum tfmc_status st = m ? kb_verify(m, cx) : TFMC_NO_MEMORY;
	if (st == TFMC_OK)
		st = llvm_compile(cx, m, MODULE, &options, &result);
	if (st == TFMC_OK)
		st = backend_jit_load(cx, &object, &jit);
	if (st == TFMC_OK)
		measure(o, jit, out);
	backend_jit_destroy(jit);
	buf_destroy(&object);
	arena_destroy(&arena);
	return st;
}
