/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weight expressions: a weight is a lazy provenance expression over stored tensors and formula tables. It is
 * evaluated in f64 and rounded once, when something needs values (interpreter, packing, folding), so values never
 * become constants of a module or of generated code.
 *
 * Text: tensor "model.safetensors":"h.0.w" f32[96,32]
 *        stack(E, E, ...)   or, when elements differ by one running number in their tensor names,
 *        stack(i in 0..12, E with "{i}" in the names)
 *        concat(0, E, E)  index(0, 3, E)  slice(0, 0, 32, E)  transpose(E)  reshape([8,4], E)
 *        rope_halves_to_interleaved(heads, E)  rope_interleaved_to_halves(heads, E)
 *        mul(E, E)  div(E, E)  offset(1.0, E)  full(0.0, [32])  repeat(1, 4, E)  round(bf16, E)
 *        quantize(q4, E)  or quantize(q4, E, STATS): STATS [2, K] are mean squares and means of the activations that
 *        the matrix multiplies; all zeros mean unknown
 *        columns(E, E)  ranks(E, E, ..)  lowrank(2.0, E, E, E)
 *        sinusoid(rows=64, dim=32, layout=halves, spacing=t2t, start=1, base=10000.0)
 *        rotary(rows=64, scale=1.0, frequencies=[1.0, 0.01])
 * mul and div broadcast the second operand from axis 0: a row scale [N] or [N, 1] fits [N, K]. repeat(axis, n, E)
 * repeats each element of an axis n times. round converts to bf16 or f16, nearest even; overflow to infinity is an
 * error. quantize yields the values of a quantized format, row by row (quants.h); a stored quantized tensor has the
 * name of its format in place of f32. columns(E, P) permutes the last axis: column i of E becomes column P[i]; P [K]
 * must be a permutation of 0 .. K - 1. lowrank(s, W, B, A) is W + s B A for W [N, K], B [N, r], A [r, K]: a matrix with
 * the update of an adapter (Hu et al. 2021). ranks: the part of one of n processes, all of one shape.
 */
#ifndef TFMC_IR_WEIGHTS_WEIGHT_H
#define TFMC_IR_WEIGHTS_WEIGHT_H

#include "ir/support/diag.h"
#include "ir/types/type.h"
#include "ir/weights/quants.h"

enum ir_wexpr_kind {
#define WX(kind, word, moves, fields) WX_##kind,
#include "ir/weights/kinds.def"
#undef WX
};
/* The fields of a kind in the text, a letter for each (kinds.def). */
const char *wexpr_fields(enum ir_wexpr_kind kind);

enum ir_sinusoid_layout { SINUSOID_INTERLEAVED, SINUSOID_HALVES };
enum ir_sinusoid_spacing { SINUSOID_PAPER, SINUSOID_T2T };

#define WEXPR_FREQUENCIES_MAX 65536 /* of WX_ROTARY */
/* Expressions nest at most this deep. */
#define WEXPR_DEPTH_MAX 32

struct ir_wexpr {
	enum ir_wexpr_kind kind;
	int depth; /* height of the tree, 1 for leaves; at most WEXPR_DEPTH_MAX */
	int rank;
	int64_t dims[IR_RANK_MAX];
	size_t n_args;
	const struct ir_wexpr *const *args;
	/* WX_TENSOR */
	const char *file, *tensor; /* file name as written in the model, tensor name in the file */
	enum ir_dtype stored;      /* element type in the file; WX_ROUND: the type rounded to */
	enum ir_format format;     /* WX_QUANTIZE; WX_TENSOR: format of a quantized tensor; else PLAIN */
	/* WX_INDEX, WX_SLICE, WX_CONCAT, WX_REPEAT */
	int axis;
	int64_t begin,
	        end;  /* WX_SINUSOID: begin = start; WX_ROPE_*: begin = heads; WX_REPEAT: begin = times */
	double value; /* WX_FULL, WX_OFFSET, WX_ROTARY, WX_LOWRANK; WX_SINUSOID: base */
	const double *frequencies; /* WX_ROTARY: [dims[1] / 2] */
	enum ir_sinusoid_layout layout;
	enum ir_sinusoid_spacing spacing;
};

/*
 * Constructors. They allocate in `a`, check shapes without overflow, and return NULL without a diagnostic if the
 * arguments do not fit; the caller reports in the user's terms.
 */
const struct ir_wexpr *wexpr_tensor(struct arena *a, const char *file, const char *tensor,
                                    enum ir_dtype stored, int rank, const int64_t *dims);
/* A stored quantized tensor of rank >= 2. */
const struct ir_wexpr *wexpr_tensor_quants(struct arena *a, const char *file, const char *tensor,
                                           enum ir_format format, int rank, const int64_t *dims);
const struct ir_wexpr *wexpr_full(struct arena *a, double value, int rank, const int64_t *dims);
/* Position encodings [rows, dim] for positions start .. start + rows; dim is even (t2t: at least 4), base > 0. */
const struct ir_wexpr *wexpr_sinusoid(struct arena *a, int64_t rows, int64_t dim,
                                      enum ir_sinusoid_layout layout, enum ir_sinusoid_spacing spacing,
                                      int64_t start, double base);
/* Cosines and sines [rows, 2 n] of position times frequency[n], times `scale`. */
const struct ir_wexpr *wexpr_rotary(struct arena *a, int64_t rows, double scale, const double *frequencies,
                                    size_t n);
/* The n arguments of one shape along a new axis 0. */
const struct ir_wexpr *wexpr_stack(struct arena *a, size_t n, const struct ir_wexpr *const *args);
/* The argument of the rank (process) that evaluates; all have one shape. */
const struct ir_wexpr *wexpr_ranks(struct arena *a, size_t n, const struct ir_wexpr *const *args);
/* The arguments one after the other along an existing axis. */
const struct ir_wexpr *wexpr_concat(struct arena *a, int axis, size_t n, const struct ir_wexpr *const *args);
/* Element `at` of an axis, which is removed. */
const struct ir_wexpr *wexpr_index(struct arena *a, int axis, int64_t at, const struct ir_wexpr *e);
/* Elements [begin, end) of an axis. */
const struct ir_wexpr *wexpr_slice(struct arena *a, int axis, int64_t begin, int64_t end,
                                   const struct ir_wexpr *e);
/* Exchanges the last two axes; a tensor with fewer axes stays as it is. */
const struct ir_wexpr *wexpr_transpose(struct arena *a, const struct ir_wexpr *e);
/* The elements in row-major order with other dims; their number must agree. */
const struct ir_wexpr *wexpr_reshape(struct arena *a, int rank, const int64_t *dims,
                                     const struct ir_wexpr *e);
/* Permutes the rows of each head between the two layouts of RoPE: WX_ROPE_H2I, WX_ROPE_I2H. Heads have an even
 * number of rows. */
const struct ir_wexpr *wexpr_rope(struct arena *a, enum ir_wexpr_kind kind, int64_t heads,
                                  const struct ir_wexpr *e);
/* x times or by y (WX_MUL, WX_DIV). The axes of y are the first axes of x, and each element of y applies to the
 * axes of x after them. */
const struct ir_wexpr *wexpr_binary(struct arena *a, enum ir_wexpr_kind kind, const struct ir_wexpr *x,
                                    const struct ir_wexpr *y);
const struct ir_wexpr *wexpr_offset(struct arena *a, double value, const struct ir_wexpr *e);
/* w + scale * left right, of matrices [N, K], [N, r] and [r, K]. */
const struct ir_wexpr *wexpr_lowrank(struct arena *a, double scale, const struct ir_wexpr *w,
                                     const struct ir_wexpr *left, const struct ir_wexpr *right);
/* Each index of an axis `times` times in a row. */
const struct ir_wexpr *wexpr_repeat(struct arena *a, int axis, int64_t times, const struct ir_wexpr *e);
/* e rounded to bf16 or f16. The node is pushed below nodes that only move elements, so that those work on 2 bytes; e
 * itself if its values are of the type already. */
const struct ir_wexpr *wexpr_round(struct arena *a, enum ir_dtype dtype, const struct ir_wexpr *e);
/* e (rank >= 2) quantized; inputs: activation statistics [2, K] or NULL. */
const struct ir_wexpr *wexpr_quantize(struct arena *a, enum ir_format format, const struct ir_wexpr *e,
                                      const struct ir_wexpr *inputs);
const struct ir_wexpr *wexpr_columns(struct arena *a, const struct ir_wexpr *e, const struct ir_wexpr *order);
/* e without its `columns` nodes, if all nodes above them only move rows and all have the same permutation; *order
 * receives it (NULL before the first call). NULL otherwise. */
const struct ir_wexpr *wexpr_without_columns(struct arena *a, const struct ir_wexpr *e,
                                             const struct ir_wexpr **order);
/* Calls the constructor of e->kind with the fields of e. */
const struct ir_wexpr *wexpr_make(struct arena *a, const struct ir_wexpr *e);
/* Number of elements; cannot overflow, as the constructors checked. */
int64_t wexpr_count(const struct ir_wexpr *e);
/* Whether both are one expression: equal kinds, fields and arguments; values are not compared. */
bool wexpr_equal(const struct ir_wexpr *a, const struct ir_wexpr *b);
/* True if every value is represented exactly by the format: leaves of the format, moved only by elements (plain
 * formats), or by whole rows or blocks of rows (quantized formats). */
bool wexpr_fits_format(const struct ir_wexpr *e, enum ir_format format);
/* The format that wexpr_fits_format is true for; PLAIN if there is none, or several (constants). */
enum ir_format wexpr_format(const struct ir_wexpr *e);
void wexpr_print(struct buf *out, const struct ir_wexpr *e);

/* Elements [begin, begin + n) of row-major bytes (any alignment) as f64. */
typedef void weight_elements(const void *data, int64_t begin, int64_t n, double *out);

/* Rows [row, row + n) of a stored quantized matrix. */
typedef void weight_rows(const void *data, int64_t row, int64_t n, const struct weight_quants *out);

/* A stored tensor; `data` stays valid as long as the source. */
struct weight_bytes {
	const void *data;
	enum ir_dtype dtype;
	int rank;
	int64_t dims[IR_RANK_MAX];
	/* Converter for stored types without an ir_dtype; dtype is then one that represents every value, not f32. NULL:
	 * elements are stored as dtype. */
	weight_elements *read;
	enum ir_format format; /* quantized: dtype is f32, `read` dequantizes; else PLAIN */
	weight_rows *read_quants;
};

/* Source of stored tensors; the frontend implements it over its weight files. */
struct weight_source {
	/* TFMC_IO with a diagnostic if the file or tensor is missing. */
	enum tfmc_status (*read)(void *user, struct diag_context *cx, const char *file, const char *tensor,
	                         struct weight_bytes *out);
	void *user;
	int64_t rank; /* which argument of `ranks` is evaluated */
};

/*
 * Evaluates elements [begin, begin + n) (row-major) of `e` in f64. Stored tensors must have the dtype and shape the
 * expression was made with, else TFMC_INVALID with a diagnostic. Efficient for blocks: scratch memory is bounded, and
 * each stored tensor is looked up about once per call.
 */
enum tfmc_status wexpr_eval(struct diag_context *cx, const struct ir_wexpr *e,
                            const struct weight_source *source, int64_t begin, int64_t n, double *out);

/* Destination of an evaluation: elements of a float dtype at `at`; or quants, for whole rows of an expression that fits
 * their format. */
struct wexpr_out {
	void *at; /* NULL: quants */
	enum ir_dtype dtype;
	struct weight_quants quants;
};
/* As wexpr_eval, rounded once to the destination's type; stored elements of this type that are only moved keep their
 * bits. */
enum tfmc_status wexpr_eval_to(struct diag_context *cx, const struct ir_wexpr *e,
                               const struct weight_source *source, int64_t begin, int64_t n,
                               struct wexpr_out out);

/* Quantization error summed over rows: squared errors and squares of the elements and, where activation statistics are
 * known, of the dot products with activations (quants.h). */
struct wexpr_quant_errors {
	double elements, of_elements, products, of_products;
};
/* Adds the errors of all `quantize` nodes of e; quantizes each matrix again. */
enum tfmc_status wexpr_add_quant_errors(struct diag_context *cx, const struct ir_wexpr *e,
                                        const struct weight_source *source, struct wexpr_quant_errors *out);

/* Elements [begin, begin + n) of row-major bytes of a dtype (any alignment) as f64; bool bytes as 0 or 1. */
void weight_read_elements(enum ir_dtype dtype, const void *data, int64_t begin, int64_t n, double *out);

/* n values as elements of a dtype (any alignment): floats rounded to nearest even, ints as by ir_round, i64 truncated;
 * bool bytes 0 or 1. */
void weight_write_elements(enum ir_dtype dtype, const double *values, int64_t n, void *bytes);

/* Conversions of f16 and bf16 bits: exact to f64, nearest even from f64. */
double f16_to_f64(uint16_t bits);
double bf16_to_f64(uint16_t bits);
uint16_t f64_to_f16(double v);
uint16_t f64_to_bf16(double v);
/* v truncated to an integer; saturates, NaN is 0. */
int64_t f64_to_i64(double v);
/* v rounded to the nearest value of the dtype, as a double; ints saturate, NaN becomes 0. */
double ir_round(enum ir_dtype dtype, double v);

#endif
