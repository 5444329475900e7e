/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The typed description of a model file: filled by the files of this directory, read by the expansion of steps
 * (frontend/lower/steps.h) and the lowering (frontend/lower/lower.h). Private to frontend/; others use
 * frontend.h.
 *
 * Functions that return false have reported at least one error.
 */
#ifndef TFMC_FRONTEND_MODEL_MODEL_H
#define TFMC_FRONTEND_MODEL_MODEL_H

#include "frontend/syntax/signature.h"
#include "frontend/frontend.h"
#include "frontend/syntax/graph.h"
#include "frontend/model/compose.h"
#include "frontend/weights/adapter.h"
#include "frontend/weights/files.h"
#include "frontend/weights/map.h"
#include "frontend/syntax/yaml_tree.h"
#include "ir/support/strmap.h"

#define MODEL_PARAMS_MAX  1024
#define MODEL_DIMS_MAX    16
#define MODEL_VALUES_MAX  64 /* inputs and outputs, each */
#define MODEL_STEPS_MAX   65536
#define MODEL_REPEAT_MAX  4096
#define MODEL_WEIGHTS_MAX 1000000

enum param_state { PARAM_NEW, PARAM_BUSY, PARAM_DONE, PARAM_FAILED };

struct model_param {
	const char *name;
	struct loc loc;
	const struct yaml_node *node;
	enum param_state state;
	struct value value; /* PARAM_DONE */
};

struct model_output {
	const char *name;
	struct loc loc;
	const char *value; /* value name; first as written, after the expansion its graph name */
	struct loc value_loc;
	const char *lengths; /* input with the lengths of axis 1, or NULL; set by the expansion */
};

struct definition {
	const char *name;
	struct loc loc;
	size_t n_args;
	struct argument *args;
	const struct yaml_node *body; /* a YAML sequence */
	bool function;                /* a function: ends with `return` */
	bool statements;              /* a macro: a body of statements (lower/macro.h) */
};

/* Chain of uses of definitions during expansion, innermost first. */
struct use_chain {
	const struct use_chain *outer;
	const char *name;
	struct loc loc;
};

/* Names visible to expressions of a model. All names share one namespace. */
struct model_scope {
	struct arena *arena;
	struct diag_context *cx;
	struct ir_dims *dims;
	struct strmap params; /* name -> struct model_param * */
	struct strmap names;  /* name -> its kind as text ("a dim"); also inputs, definitions and values */
};

struct model_inputs {
	struct frontend_input *items; /* in file order, as are outputs and definitions */
	size_t n, cap;
};

struct model_outputs {
	struct model_output *items;
	size_t n, cap;
};

struct definitions {
	struct definition *items;
	size_t n, cap;
};

/* dtype.compute, in the order of schema.def: activations of linears stay f32; are quantized to int8 before quantized
 * weights; in addition are rounded to bf16 before bf16 weights. */
enum model_compute { COMPUTE_F32, COMPUTE_INT8, COMPUTE_BF16 };

/* The section dtype. */
struct model_dtypes {
	bool keeps_weights;     /* weights: keep */
	enum ir_format weights; /* else: PLAIN (f32), F16, BF16 */
	enum model_compute compute;
	enum ir_dtype cache; /* of KV caches, unless a step specifies another */
};

/* Rule of `quantize`: the first one whose pattern matches the path of a matrix or table decides its format. */
struct quantize_rule {
	const char *pattern;
	struct loc loc;
	enum ir_format format; /* FORMAT_PLAIN: not quantized */
	bool used;
};

struct model_quantize {
	struct quantize_rule *items;
	size_t n, cap;
	const char *profile;     /* NULL: none */
	const char *profile_dir; /* directory it is relative to; NULL: none */
	struct loc profile_loc;
	/* Set by the lowering: float matrices were quantized; matrices stored as quants of another format were
	 * kept. */
	bool quantizes_floats, keeps_quants;
};

/* Weights, opened by the lowering. */
struct model_weights {
	struct weight_files *files;
	struct weight_map *map;
	struct expr_env env;    /* for expressions of the map */
	struct strmap resolved; /* canonical path -> struct resolved_weight * */
	/* A parameter changes its format within a repeat; repeats have been split there. */
	bool formats_differ, repeats_split;
	bool shapes_only; /* options.shapes, and a weight file is missing: parameters have shapes only */
	struct strmap unquantized; /* weight of the module -> why it is not stored as quants, as text */
	struct {
		size_t first, n; /* range of its tensors in `files` */
		size_t n_quantized,
		        n_unknown;   /* number of quantized matrices, and of those without statistics */
		const char *example; /* path of one without statistics */
	} profile;
};

struct check_file;

struct model_checks {
	struct frontend_check *items;
	size_t n, cap;
	struct {
		struct check_file *items;
		size_t n, cap;
	} files; /* files opened by checks */
};

struct frontend_model {
	struct arena arena;
	struct diag_context *cx;
	struct frontend_options options;
	const char *name;
	struct model_document doc;
	struct model_scope scope;
	struct model_inputs inputs;
	struct model_outputs outputs;
	struct definitions definitions;
	struct graph_body graph; /* the computation as graph statements */
	struct frontend_generate generate;
	int tokens; /* generate: index of the input that grows by generated tokens, -1 */
	struct model_dtypes dtypes;
	struct model_quantize quantize;
	struct model_weights weights;
	struct frontend_target target;
	struct frontend_tokenizer tokenizer;
	bool tokenizer_read;
	struct model_checks checks;
};

/* ---- model.c ---- */
/* Enters a name into the namespace; reports a clash or a malformed name. `what`: its kind, as "dim". */
bool model_declare(struct model_scope *s, const char *name, const char *what, struct loc loc);
/* Environment of expressions: params and, with `dims`, dims. */
struct expr_env model_env(struct model_scope *s, bool dims);
/* True for a param or a dim, whose values are known when the model is compiled or called. */
bool model_is_param_or_dim(const struct model_scope *s, const char *name);
/* Names of params and dims, for suggestions. */
const char *const *model_names(void *scope, size_t *n);
const struct yaml_node *model_section(const struct frontend_model *m, const char *key);
int model_find_input(const struct model_inputs *in, const char *name); /* index, or -1 */
int model_find_output(const struct model_outputs *out, const char *name);
const struct definition *model_find_definition(const struct definitions *d, const char *name);
/* Reports that no input has this name, which is written at `loc`. */
void model_unknown_input(struct model_scope *s, const struct model_inputs *in, struct loc loc,
                         const char *name, enum diag_code code);

/* Reads the sections params, set and require, and applies `--set`. */
bool model_read_params(struct model_scope *s, const struct yaml_node *root,
                       const struct frontend_options *options);
/* The value of a param, evaluated on first use, at which a cycle is reported at loc. */
enum expr_lookup model_lookup_param(struct model_scope *s, const char *name, struct loc loc,
                                    struct value *out);

/* Reads the section of that name: declares its names and, of dims, their bounds. NULL: the model has no such section,
 * which is an error for inputs and outputs. */
bool model_read_dims(struct model_scope *s, const struct yaml_node *dims);
bool model_read_inputs(struct model_scope *s, const struct yaml_node *inputs, struct model_inputs *out);
bool model_read_outputs(struct model_scope *s, const struct yaml_node *outputs, struct model_outputs *out);

/* Index of the argument, or -1. */
int definition_argument(const struct definition *d, const char *name);
/* The signature for matching arguments; it refers to d. */
struct signature definition_signature(const struct definition *d);
/* Reads the section `define`; bodies are read where they are used. NULL: the model has none. */
bool model_read_definitions(struct model_scope *s, const struct yaml_node *define, struct definitions *out);

/* ---- sections.c ---- */
/* Reads the section `generate` into m->generate, and finds the input that grows by generated tokens. */
bool model_read_generate(struct frontend_model *m);
/* Applies options.context to the bounds of sequence dims and to max_len. */
bool model_limit_context(struct frontend_model *m);
bool model_read_sections(
        struct frontend_model *m); /* keys and words of weights, dtype, quantize, tokenizer, target */

/* The first matching rule for a parameter path, which is marked as used; NULL: none. */
const struct quantize_rule *model_quantize_rule(struct model_quantize *q, const char *path);
/* Reports patterns that matched no matrix or table, and a section without effect. */
bool model_quantize_finish(struct frontend_model *m);

/* ---- checks.c ---- */
/* Reads the section `checks` into m->checks; the model is not called. */
bool model_read_checks(struct frontend_model *m);
void model_close_checks(struct frontend_model *m); /* closes the files opened by checks */

#endif
