/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights are references: a provenance expression over tensors of weight files
 * and tables with a formula. The expression is evaluated in f64 and rounded
 * once, when something needs numbers (interpreter, packing, folding); it is
 * never copied into a module and never becomes a code-generator constant.
 *
 * Text:  tensor "model.safetensors":"h.0.w" f32[96,32]
 *        stack(E, E, ...)   or, when elements differ by one running number in their tensor names,
 *        stack(i in 0..12, E with "{i}" in the names)
 *        concat(0, E, E)  index(0, 3, E)  slice(0, 0, 32, E)  transpose(E)  reshape([8,4], E)
 *        rope_halves_to_interleaved(heads, E)  rope_interleaved_to_halves(heads, E)
 *        mul(E, E)  div(E, E)  offset(1.0, E)  full(0.0, [32])  repeat(1, 4, E)  round(bf16, E)
 *        quantize(q4, E)  or, with means of squares and means of what it multiplies [2, K], quantize(q4, E, E); all zeros
 *        are as none
 *        columns(E, E)
 *        sinusoid(rows=64, dim=32, layout=halves, spacing=t2t, start=1, base=10000.0)
 *        rotary(rows=64, scale=1.0, frequencies=[1.0, 0.01])
 * mul and div broadcast the second operand from axis 0 (a row scale [N] or [N, 1] fits [N, K]). repeat has
 * every element of an axis n times in a row. round is to the nearest bf16 or f16, ties to even, of the f64: a
 * finite number that becomes infinite is an error. quantize gives the nearest numbers of a format of codes, row by
 * row (codes.h); a tensor of a file that stores codes has the name of the format in place of f32. columns(E, P) permutes the
 * last axis: column i of E is column P[i] of the result; a P [K] that has not each of 0 .. K - 1 once is an error.
 */
#ifndef TFMC_IR_WEIGHTS_WEIGHT_H
#define TFMC_IR_WEIGHTS_WEIGHT_H

#include "ir/diag/diag.h"
#include "ir/types/type.h"
#include "ir/weights/quants.h"

enum ir_wexpr_kind {
#define WX(kind, word, moves, fields) WX_##kind,
#include "ir/weights/kinds.def"
#undef WX
};
/* The word of a kind in the text, and what follows it (kinds.def). */
const char *wexpr_keyword(enum ir_wexpr_kind kind);
const char *wexpr_fields(enum ir_wexpr_kind kind);

enum ir_sinusoid_layout { SINUSOID_INTERLEAVED, SINUSOID_HALVES };
enum ir_sinusoid_spacing { SINUSOID_PAPER, SINUSOID_T2T };

#define WEXPR_FREQUENCIES_MAX 65536 /* of WX_ROTARY */
/* Expressions nest at most this deep. */
#define WEXPR_DEPTH_MAX 32

struct ir_wexpr {
	enum ir_wexpr_kind kind;
	int depth; /* 1 for leaves; at most WEXPR_DEPTH_MAX */
	int rank;
	int64_t dims[IR_RANK_MAX];
	size_t n_args;
	const struct ir_wexpr *const *args;
	/* WX_TENSOR */
	const char *file, *tensor; /* file name as written in the model, tensor name in the file */
	enum ir_dtype stored;      /* stored element type; WX_ROUND: the type */
	enum ir_format format;     /* WX_QUANTIZE; WX_TENSOR: what is stored are codes; else PLAIN */
	/* WX_INDEX, WX_SLICE, WX_CONCAT, WX_REPEAT */
	int axis;
	int64_t begin,
	        end;  /* WX_SINUSOID: begin = start; WX_ROPE_*: begin = heads; WX_REPEAT: begin = times */
	double value; /* WX_FULL, WX_OFFSET, WX_ROTARY; WX_SINUSOID: base */
	const double *frequencies; /* WX_ROTARY: [dims[1] / 2] */
	enum ir_sinusoid_layout layout;
	enum ir_sinusoid_spacing spacing;
};

/*
 * Constructors: allocate in `arena`, check shapes with checked arithmetic and
 * return NULL when they do not fit (the caller reports, it knows the words of
 * the user).
 */
const struct ir_wexpr *wexpr_tensor(struct arena *a, const char *file, const char *tensor,
                                    enum ir_dtype stored, int rank, const int64_t *dims);
/* A matrix or more, stored as codes. */
const struct ir_wexpr *wexpr_tensor_quants(struct arena *a, const char *file, const char *tensor,
                                           enum ir_format format, int rank, const int64_t *dims);
const struct ir_wexpr *wexpr_full(struct arena *a, double value, int rank, const int64_t *dims);
const struct ir_wexpr *wexpr_sinusoid(struct arena *a, int64_t rows, int64_t dim,
                                      enum ir_sinusoid_layout layout, enum ir_sinusoid_spacing spacing,
                                      int64_t start, double base);
const struct ir_wexpr *wexpr_rotary(struct arena *a, int64_t rows, double scale, const double *frequencies,
                                    size_t n);
const struct ir_wexpr *wexpr_stack(struct arena *a, size_t n, const struct ir_wexpr *const *args);
const struct ir_wexpr *wexpr_concat(struct arena *a, int axis, size_t n, const struct ir_wexpr *const *args);
const struct ir_wexpr *wexpr_index(struct arena *a, int axis, int64_t at, const struct ir_wexpr *e);
const struct ir_wexpr *wexpr_slice(struct arena *a, int axis, int64_t begin, int64_t end,
                                   const struct ir_wexpr *e);
const struct ir_wexpr *wexpr_transpose(struct arena *a, const struct ir_wexpr *e);
const struct ir_wexpr *wexpr_reshape(struct arena *a, int rank, const int64_t *dims,
                                     const struct ir_wexpr *e);
const struct ir_wexpr *wexpr_rope(struct arena *a, enum ir_wexpr_kind kind, int64_t heads,
                                  const struct ir_wexpr *e);
const struct ir_wexpr *wexpr_binary(struct arena *a, enum ir_wexpr_kind kind, const struct ir_wexpr *x,
                                    const struct ir_wexpr *y);
const struct ir_wexpr *wexpr_offset(struct arena *a, double value, const struct ir_wexpr *e);
const struct ir_wexpr *wexpr_repeat(struct arena *a, int axis, int64_t times, const struct ir_wexpr *e);
/* Numbers of bf16 or f16. Stands at what is stored or computed, below what only moves elements; nothing where
 * they are numbers of the type already. */
const struct ir_wexpr *wexpr_round(struct arena *a, enum ir_dtype dtype, const struct ir_wexpr *e);
/* Numbers of a format of codes, of a matrix or more; inputs [2, K] or NULL. */
const struct ir_wexpr *wexpr_quantize(struct arena *a, enum ir_format format, const struct ir_wexpr *e,
                                      const struct ir_wexpr *inputs);
const struct ir_wexpr *wexpr_columns(struct arena *a, const struct ir_wexpr *e, const struct ir_wexpr *order);
/* The expression below columns, of which those above only move rows, and *order [K], one for all; NULL: there is none. */
const struct ir_wexpr *wexpr_without_columns(struct arena *a, const struct ir_wexpr *e,
                                             const struct ir_wexpr **order);
/* The constructor of e->kind, with what e has of its arguments. */
const struct ir_wexpr *wexpr_make(struct arena *a, const struct ir_wexpr *e);
/* Number of elements; the constructors guarantee that it fits. */
int64_t wexpr_count(const struct ir_wexpr *e);
bool wexpr_equal(const struct ir_wexpr *a, const struct ir_wexpr *b);
/* The same, but for the arguments and the name of the tensor. */
bool wexpr_same_node(const struct ir_wexpr *a, const struct ir_wexpr *b);
/* Every element is a number of the format, as tensors of it are whose elements, of codes whose rows, are only moved.
 */
bool wexpr_fits_format(const struct ir_wexpr *e, enum ir_format format);
/* The format that the expression has numbers of; PLAIN: none, or constants. */
enum ir_format wexpr_format(const struct ir_wexpr *e);
void wexpr_print(struct buf *out, const struct ir_wexpr *e);

/* Elements [begin, begin + n) of row-major bytes (any alignment) as f64. */
typedef void weight_elements(const void *data, int64_t begin, int64_t n, double *out);

/* Rows [row, row + n) of row-major codes. */
typedef void weight_rows(const void *data, int64_t row, int64_t n, const struct weight_quants *out);

/*
 * What a stored tensor is; `data` stays valid as long as the source. `read` serves stored types that have no
 * name here: it is NULL when elements are dtype, else dtype is a type that holds every value, not f32.
 */
struct weight_bytes {
	const void *data;
	enum ir_dtype dtype;
	int rank;
	int64_t dims[IR_RANK_MAX];
	weight_elements *read;
	enum ir_format
	        format; /* of codes: dtype is f32, `read` gives elements and read_quants rows; else PLAIN */
	weight_rows *read_quants;
};

/* Where stored tensors come from: the frontend implements it on its weight files. */
struct weight_source {
	/* TFMC_IO with a diagnostic when file or tensor is missing. */
	enum tfmc_status (*read)(void *user, struct diag_context *cx, const char *file, const char *tensor,
	                         struct weight_bytes *out);
	void *user;
};

/*
 * Evaluates elements [begin, begin + n) (row-major) of `e` in f64. The stored
 * tensor must have the dtype and shape the expression was made with. Cheap for
 * blocks: scratch is bounded, each stored tensor is asked for about once a call.
 */
enum tfmc_status wexpr_eval(struct diag_context *cx, const struct ir_wexpr *e,
                            const struct weight_source *source, int64_t begin, int64_t n, double *out);

/* Where elements go, and as what: f64, f32, f16 or bf16; or as codes, whole rows of an expression that holds numbers
 * of their format. */
struct wexpr_out {
	void *at; /* NULL: codes */
	enum ir_dtype dtype;
	struct weight_quants codes;
};
/* The same, rounded once to a type; stored elements of this type that are only moved keep their bits. */
enum tfmc_status wexpr_eval_to(struct diag_context *cx, const struct ir_wexpr *e,
                               const struct weight_source *source, int64_t begin, int64_t n,
                               struct wexpr_out out);

/* Sums over rows that were quantized: of squared errors and of squares, of elements and, where inputs are known, of the
 * products with them (codes.h). */
struct wexpr_quant_errors {
	double elements, of_elements, products, of_products;
};
/* Adds those of all quantize of the expression; each matrix is quantized again. */
enum tfmc_status wexpr_add_quant_errors(struct diag_context *cx, const struct ir_wexpr *e,
                                        const struct weight_source *source, struct wexpr_quant_errors *out);

/* Elements [begin, begin + n) of row-major bytes of a dtype (any alignment) as f64; bool bytes as 0 or 1. */
void weight_read_elements(enum ir_dtype dtype, const void *data, int64_t begin, int64_t n, double *out);

/* n numbers as elements of a float dtype, rounded to the nearest. */
void weight_write_floats(enum ir_dtype dtype, const double *values, int64_t n, void *bytes);

/* f16 and bf16 bits, round to nearest even; exact back. */
double f16_to_f64(uint16_t bits);
double bf16_to_f64(uint16_t bits);
uint16_t f64_to_f16(double v);
uint16_t f64_to_bf16(double v);
/* Rounds to the nearest value of the dtype (ints saturate, NaN gives 0); kept as a double. */
double ir_round(enum ir_dtype dtype, double v);

#endif
