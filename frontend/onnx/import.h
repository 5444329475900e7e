/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to frontend/onnx. Nodes are read in their order; each becomes statements, which are lowered at once, so
 * that the lowering infers the types of their values. Values of shape arithmetic are known at import: ints are
 * dims.
 *
 *   import.c     the model file: dims, inputs, statements, outputs, weights
 *   operand.c    operands of a node: attributes, literals, constants and parameters as values of statements
 *   fold.c       nodes whose operands are known
 *   shapes.c     operators that move elements
 *   gathers.c    gathers and scatters
 *   resize.c     interpolation
 *   windows.c    convolutions, pools
 *   layers.c     products, norms
 *   attention.c  attention, rotary positions
 *   fused_attention.c  those of ONNX Runtime
 *   quantized.c  quantized elements and matrices
 *   sdpa.c       attention that is written out
 *   rotary.c     rotary positions that are written out
 *   visible.c    masks as predicates
 *   past.c       caches of decoders as state
 *   ops.def      the operators
 *
 * Errors are sticky: after a diagnostic `failed` is set, texts are "" and every function returns false.
 */
#ifndef TFMC_FRONTEND_ONNX_IMPORT_H
#define TFMC_FRONTEND_ONNX_IMPORT_H

#include "frontend/lower/lower.h"
#include "frontend/weights/onnx.h"

/* An element that is known at import: an int (bools are 0 and 1), or a float. */
struct element {
	const struct ir_dim *dim; /* NULL: a float */
	double f;
};

/* The value of a name of the graph. Floats of 16 and 64 bits are f32 in statements. */
struct operand {
	const char *name; /* in statements; NULL: not there yet */
	const struct frontend_input
	        *ids; /* an input i32 with `below`, which is i64 in the file; NULL: it is none */
	const struct onnx_tensor *stored; /* NULL: no constant of the file */
	const struct element *known;      /* [n]; NULL: not known */
	size_t n;
	enum ir_dtype dtype;
	int rank;
	const struct ir_dim *dims[IR_RANK_MAX]; /* in the table of the lowering's module */
};

/* A statement that is written if another one, or an output, reads it. */
struct statement {
	const char *text, *scope; /* scope: the directory of the name of its node */
	const struct expr_statement *st;
	bool is_live;
};

struct parameter {
	const char *path, *source; /* source: as in weights.map */
	const char *tensor, *also; /* that it is made of; also NULL: none */
};

/* Queries, keys or values [B, heads, S, E]. */
struct heads {
	const char *x;
	const struct ir_dim *dims[4];
};

/* A decoder with a cache (past.c). */
struct past {
	const char *size; /* the name of the size of the past; NULL: the file has none */
	bool is_state;
	size_t n_caches;
	const char *positions;  /* those of the tokens, in statements; NULL: no one has asked for them */
	struct strmap appends;  /* input of the file -> the node that appends to it */
	struct strmap presents; /* output of such a node of ONNX Runtime -> the node */
	struct {
		const char **items;
		size_t n, cap;
	} masks; /* inputs in statements that are ones */
};

/* Rotary positions that are written out, and the statement `rope` in their place (rotary.c). */
struct rotated {
	struct ir_value rope, written;
};
struct rotations {
	struct {
		struct rotated *items;
		size_t n, cap;
	} found;
	struct {
		uint32_t *items;
		size_t n, cap;
	} readers;      /* for each value of the inference: ops that read it */
	size_t counted; /* values whose op is counted there */
	int64_t steps;  /* of all searches */
};

struct importer {
	struct arena *a;
	struct diag_context *cx;
	struct frontend_model *m; /* dims and inputs alone */
	struct lowering *lw;
	struct ir_dims *dims; /* of lw->module */
	const struct onnx_model *onnx;
	struct weight_files *files; /* the file again, and those of its external data */
	const char *file;           /* as written under weights.files */
	const struct onnx_node *node;
	struct loc loc;        /* of the node: its number is the line */
	struct strmap values;  /* name of the file -> struct operand * */
	struct strmap tensors; /* name of the file -> struct onnx_tensor * */
	struct strmap names;   /* names of the model file in use */
	struct strmap paths;   /* paths of parameters -> sources, as text */
	struct strmap uses;    /* name of the file -> number of its uses, as pointer */
	struct strmap readers; /* name of the file -> a node that reads it */
	struct strmap fused;   /* outputs of nodes that are a part of others */
	struct strmap makers;  /* name of the file -> the node whose first output it is */
	struct strmap live;    /* names and paths that statements, outputs and their statements read */
	struct {
		struct statement *items;
		size_t n, cap;
	} statements;
	struct {
		struct parameter *items;
		size_t n, cap;
	} parameters;
	struct past past;
	struct rotations rotations;
	bool keeps_quants; /* a parameter is a quantized matrix of the file */
	bool failed;
};

/* ---- import.c ---- */

/* Reports at the node; returns false. */
bool import_refuse(struct importer *im, const char *fmt, ...) TFMC_PRINTF(2, 3);
/* Formatted text, in the arena. */
const char *import_text(struct importer *im, const char *fmt, ...) TFMC_PRINTF(2, 3);
/* Appends the statement NAME = value, formatted, with an unused name that begins with `stem`; gives the name, "" on
 * failure. */
const char *import_statement(struct importer *im, const char *stem, const char *fmt, ...) TFMC_PRINTF(3, 4);
/* The same for results of a call with several; names[n]. */
bool import_statements(struct importer *im, const char *const *stems, size_t n, const char *value,
                       const char **names);
/* Output i of the node is the value of a statement, formatted. */
bool import_output(struct importer *im, size_t i, const char *fmt, ...) TFMC_PRINTF(3, 4);
/* Output i of the node is a value that a statement has made. */
bool import_value(struct importer *im, size_t i, const char *name);
/* Output i of the node is an operand. */
bool import_alias(struct importer *im, size_t i, struct operand *v);
/* Output i of the node is known: elements in the arena. */
bool import_known(struct importer *im, size_t i, enum ir_dtype dtype, int rank,
                  const struct ir_dim *const *dims, const struct element *known, size_t n);
/* The only node that reads a value of the file; NULL: none, several, or an output reads it. */
const struct onnx_node *import_only_reader(const struct importer *im, const char *name);
/* The value of a statement is that of `node`, a later one, which needs no statement of its own. */
bool import_fused(struct importer *im, const struct onnx_node *node, const char *value);
/* True: another node, or the caller, reads output i. */
bool import_is_read(const struct importer *im, size_t i);
/* A value of statements as an operand; NULL after a failure. */
struct operand *import_operand(struct importer *im, const char *name);
/* The name of a size of an input: its symbol, or made from the input and the axis. */
const char *import_size_name(struct importer *im, const struct onnx_value *v, int axis);
/* The type in statements of a number of TensorProto.DataType: floats of any width are f32. False: there is none. */
bool import_dtype(int64_t type, enum ir_dtype *out);
/* The type of a value of statements. */
const struct ir_type *import_type(struct importer *im, const char *name);
/* A name of the language for a name of the file; unique. */
const char *import_name(struct importer *im, const char *name);

/* A statement by the text of a TEMPLATE. */
bool import_template(struct importer *im, const char *text);

/* ---- operand.c ---- */

/* Operand i of the node; NULL: absent. */
struct operand *operand_at(struct importer *im, size_t i);
/* An operand of the node that must be there; never NULL (an empty one after a diagnostic). */
struct operand *operand_needed(struct importer *im, size_t i);
/* The name of an operand in statements; constants become statements first. */
const char *operand_tensor(struct importer *im, struct operand *v);
/* The same of operand i. */
const char *tensor_at(struct importer *im, size_t i);
/* A literal for a known element: "2", "0.5", "S + 1", "(-1)". */
const char *element_text(struct importer *im, const struct element *e);
const char *float_text(struct importer *im, double f);
const char *dim_text(struct importer *im, const struct ir_dim *d);
/* "[B, S, 8]" */
const char *dims_text(struct importer *im, int rank, const struct ir_dim *const *dims);
const char *ints_text(struct importer *im, const int64_t *items, size_t n);
/* A stored float tensor that can be a parameter. */
bool operand_is_parameter(const struct operand *v);
/* A stored vector of n floats: a bias or a scale. */
bool operand_is_vector(const struct operand *v, int64_t n);
/* The constant size of an axis, refused when it varies. */
int64_t operand_size(struct importer *im, const struct operand *v, int axis);
bool operand_int(const struct operand *v, size_t i, int64_t *out); /* a known constant int */
/*
 * The path of a layer with the parameters weight and bias (NULL: none), quoted: made from their names and that of the
 * node. Each gets an entry of the map that says where it is; `steps` follow in the entry of the weight.
 */
const char *import_layer(struct importer *im, struct operand *weight, const char *steps,
                         struct operand *bias);

/* The parameter of two stored matrices side by side. */
const char *import_joined(struct importer *im, const struct operand *left, const struct operand *right);

/* Attributes of the node; def, or NULL: absent. An attribute that no one asks for is refused after the import. */
int64_t attribute_int(const struct importer *im, const char *name, int64_t def);
double attribute_float(const struct importer *im, const char *name, double def);
const char *attribute_text(const struct importer *im, const char *name, const char *def);
const struct onnx_attribute *attribute_of(const struct importer *im, const char *name);
/* A list that is an attribute of old operators and operand i of new ones (SIZE_MAX: an attribute alone). False:
 * absent, or refused, which sets `failed`. */
bool list_dims(struct importer *im, const char *name, size_t i, const struct ir_dim *const **out, size_t *n);
bool list_ints(struct importer *im, const char *name, size_t i, const int64_t **out, size_t *n);
/* An axis in [0, rank); refused otherwise. */
int axis_of(struct importer *im, int64_t axis, int rank);

/* ---- sdpa.c, rotary.c, visible.c, past.c ---- */

/* True: the product of the node is the end of attention, which is one statement now, or a failure. */
bool import_sdpa(struct importer *im);

/* Gives the value of a node another statement where it is that of rotated features. */
void import_rotation(struct importer *im, struct operand *v);

enum visibility { VISIBLE_UNKNOWN, VISIBLE_ALL, VISIBLE_CAUSAL };

/* The keys that a mask of scores [B, H, S, T] shows, a bool, or a float that is added. Causal: key j to query i where
 * j <= i + T - S. */
enum visibility import_visibility(struct importer *im, const struct operand *mask,
                                  const struct operand *scores);

/*
 * True: element i along an axis is *first + i, an int. axes: for each axis of v the axis of a result whose index
 * it has, of which `axis` is the one that is counted, or -1: always 0.
 */
bool import_counts(struct importer *im, struct ir_value v, const int *axes, int axis,
                   const struct ir_dim **first);

/* Finds the past of a decoder: im->past.size. */
void past_find(struct importer *im);
/* The past is to become state: declares its size. */
bool past_declare(struct importer *im);

enum past_role { PAST_NONE, PAST_KEYS, PAST_MASK, PAST_POSITIONS };

/* The role of an input for the state. */
enum past_role past_role(const struct importer *im, const struct onnx_value *v);
/* Positions of the tokens, in place of an input; NULL: there are no tokens, or a failure. */
struct operand *past_positions(struct importer *im, const struct operand *input);
/* Positions i32 [batch, tokens] of the tokens of a state as a name, if `first` is the position of the first one;
 * else NULL. */
const char *past_positions_name(struct importer *im, const struct ir_dim *first, const struct ir_dim *batch,
                                const struct ir_dim *tokens);
/* Keys or values of this call where `name` has those of a past before them, which *past becomes; past NULL:
 * `name`. */
const char *import_past(const struct importer *im, const char *name, const char **past);
/* Writes the section of a model whose past is state; false: it cannot be. */
bool past_write(struct importer *im, const char *logits, size_t n_outputs, struct buf *out);

/* ---- fold.c ---- */

/* True: the node was folded, or failed. */
bool import_fold(struct importer *im);
/* Dims as known elements; NULL: no memory. */
const struct element *elements_of_dims(struct importer *im, const struct ir_dim *const *dims, size_t n);

/* ---- operators ---- */

/* Heads [B, H, S, E] rotated by a table at positions, i32 [S] or [B, S] as text. */
const char *import_rope(struct importer *im, const char *x, const char *at, const char *table,
                        bool interleaved);
/* A value [B, S, heads E], or [B, heads, S, E], as heads. */
bool import_heads(struct importer *im, struct operand *v, int64_t heads, struct heads *out);
/* The table of `rope` that stored cosines and sines, operands of the node, make; NULL: they are no matrices of one
 * shape. */
const char *import_rotary_table(struct importer *im, size_t cosines, size_t sines);
/* i32 ids of an axis of `rows` elements as text; negative ones count from the end. */
const char *import_ids(struct importer *im, struct operand *ids, const struct ir_dim *rows);
typedef bool import_operator(struct importer *im);
#define TEMPLATE(op, text)
#define OPERATOR(op, function)  import_operator import_##function;
#define MICROSOFT(op, function) OPERATOR(op, function)
#include "frontend/onnx/ops.def"
/* A Gather of quants whose only reader makes floats of them, at i32 ids as text, is a lookup of floats. False: it
 * is not so, or failed. */
bool import_lookup_of_quants(struct importer *im, const char *ids);
/* Rows of a stored table at i32 ids as text. */
const char *import_embedding(struct importer *im, const char *ids, struct operand *table);
/* x, of these dims, with an axis `times` as long: each of its elements is there as often in a row, or all of them
 * (`is_whole`). Updates dims. */
const char *import_repeated(struct importer *im, const char *x, int rank, const struct ir_dim **dims,
                            int axis, const struct ir_dim *times, bool is_whole);
/* A constant border of the axes from `first_axis` on: pads[2 n_axes] before, then after. */
const char *import_padded(struct importer *im, const char *x, int first_axis, const int64_t *pads,
                          size_t n_axes, const char *value);

#endif
