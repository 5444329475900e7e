/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The typed description of a model file, filled in stages by the files of this room, and
 * read by the block expansion (frontend/steps/steps.h) and the lowering (frontend/lower/lower.h). Private to
 * the folder; frontend.h is what others see.
 *
 * Functions that return false have reported at least one error.
 */
#ifndef TFMC_FRONTEND_MODEL_MODEL_H
#define TFMC_FRONTEND_MODEL_MODEL_H

#include "frontend/expr/signature.h"
#include "frontend/frontend.h"
#include "frontend/graph/graph.h"
#include "frontend/model/document.h"
#include "frontend/weights/files.h"
#include "frontend/weights/map.h"
#include "frontend/text/yaml_tree.h"
#include "ir/support/strmap.h"

#define MODEL_PARAMS_MAX  1024
#define MODEL_DIMS_MAX    16
#define MODEL_VALUES_MAX  64 /* inputs, outputs: each */
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
	const char *value; /* as written */
	struct loc value_loc;
	const char *lengths; /* input with the lengths of axis 1, or NULL; by the expansion */
};

struct definition {
	const char *name;
	struct loc loc;
	size_t n_args;
	struct argument *args;
	const struct yaml_node *body; /* sequence */
	bool function;                /* ends with `return` */
	bool statements; /* begins with a statement, or with what only a body of statements has */
	bool busy;       /* being expanded: finds recursion */
};

/* Where an expansion is: the uses that led there, innermost first. */
struct use_chain {
	const struct use_chain *outer;
	const char *name;
	struct loc loc;
};

/* What expressions of a model may name. All names are of one name space. */
struct model_scope {
	struct arena *arena;
	struct diag_context *cx;
	struct ir_dims *dims;
	struct strmap params; /* name -> struct model_param * */
	struct strmap names;  /* name -> what it is, as text; inputs, definitions and values as well */
};

struct model_inputs {
	struct frontend_input *items; /* in the order of the file, as lists of outputs and definitions are */
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

/* What x of a linear is rounded to: nothing; integers for codes; besides, bf16 for weights of bf16. In the order of
 * schema.def. */
enum model_compute { COMPUTE_F32, COMPUTE_INT8, COMPUTE_BF16 };

/* dtype */
struct model_dtypes {
	bool keeps_weights;     /* weights: keep */
	enum ir_format weights; /* else: PLAIN (f32), F16, BF16 */
	enum model_compute compute;
	enum ir_dtype cache; /* of keys and values, where a step says nothing else */
};

/* quantize: the first rule whose pattern matches the path of a matrix or table says what it becomes. */
struct quantize_rule {
	const char *pattern;
	struct loc loc;
	enum ir_format format; /* PLAIN: left as it is */
	bool used;
};

struct model_quantize {
	struct quantize_rule *items;
	size_t n, cap;
	const char *profile;     /* NULL: none */
	const char *profile_dir; /* what it is relative to; NULL: as it is */
	struct loc profile_loc;
	/* By the lowering: it has matrices of floats become codes; matrices stay that files have in other codes. */
	bool quantizes_floats, keeps_quants;
};

/* Opened by the lowering. */
struct model_weights {
	struct weight_files *files;
	struct weight_map *map;
	struct expr_env env;    /* of the map */
	struct strmap resolved; /* canonical path -> struct resolved_weight * */
	/* Lowering has cut repeats where the format of a parameter changes; repeats are divided there. */
	bool formats_differ, repeats_split;
	bool shapes_only;          /* a file is missing, and shapes are enough */
	struct strmap unquantized; /* weight of the module -> why it is not stored as quants, as text */
	struct {
		size_t first, n;        /* its tensors in `files` */
		size_t wanted, unknown; /* quantized matrices, and of those what it says nothing of */
		const char *one;        /* of the latter */
	} profile;
};

struct check_file;

struct model_checks {
	struct frontend_check *items;
	size_t n, cap;
	struct {
		struct check_file *items;
		size_t n, cap;
	} files; /* those that were opened */
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
	struct graph_body graph; /* level 3; the names in it are closed */
	struct frontend_generate generate;
	int tokens; /* generate: index of the input that grows, -1 */
	struct model_dtypes dtypes;
	struct model_quantize quantize;
	struct model_weights weights;
	struct frontend_target target;
	struct frontend_tokenizer tokenizer;
	bool tokenizer_read;
	struct model_checks checks;
};

/* ---- model.c ---- */
/* Enters a name into the one name space; reports a clash or a malformed name. */
bool model_declare(struct model_scope *s, const char *name, const char *what, struct loc loc);
/* Environment of params and, when `dims`, dims. */
struct expr_env model_env(struct model_scope *s, bool dims);
/* Names of params and dims. */
const char *const *model_names(void *scope, size_t *n);
const struct yaml_node *model_section(const struct frontend_model *m, const char *key);
int model_find_input(const struct model_inputs *in, const char *name); /* index or -1 */
int model_find_output(const struct model_outputs *out, const char *name);
const struct definition *model_find_definition(const struct definitions *d, const char *name);
/* Reports that no input has the name that is written at `loc`. */
void model_unknown_input(struct model_scope *s, const struct model_inputs *in, struct loc loc,
                         const char *name, enum diag_code code);

/* ---- params.c ---- */
/* The sections params, set and require, and `--set`. */
bool model_read_params(struct model_scope *s, const struct yaml_node *root,
                       const struct frontend_options *options);
enum expr_lookup model_lookup_param(struct model_scope *s, const char *name, struct loc loc,
                                    struct value *out);

/* ---- inputs.c ---- */
bool model_read_dims(struct model_scope *s, const struct yaml_node *dims);
bool model_read_inputs(struct model_scope *s, const struct yaml_node *inputs, struct model_inputs *out);
bool model_read_outputs(struct model_scope *s, const struct yaml_node *outputs, struct model_outputs *out);

/* ---- define.c ---- */
/* Which argument of the definition has the name, or -1. */
int definition_argument(const struct definition *d, const char *name);
struct signature definition_signature(const struct definition *d);
bool model_read_definitions(struct model_scope *s, const struct yaml_node *define, struct definitions *out);

/* ---- sections.c ---- */
bool model_read_speech(const struct expr_env *env, const struct yaml_node *node, struct frontend_generate *g);
bool model_read_generate(struct frontend_model *m);
/* options.context: bounds of the dims of token ids, max_len. */
bool model_limit_context(struct frontend_model *m);
bool model_read_sections(struct frontend_model *m); /* weights, dtype, tokenizer, target: keys and words */

/* ---- quantize.c ---- */
/* The section, or in place of its formats options.quantize and of its profile options.profile; with options.unrounded
 * none of them. */
bool model_read_quantize(struct frontend_model *m);
/* The rule that decides about a matrix or table, which then counts as used; NULL: none. */
const struct quantize_rule *model_quantize_rule(struct model_quantize *q, const char *path);
/* Reports patterns of the file that decided nothing. */
bool model_quantize_finish(struct frontend_model *m);

/* ---- tokenizer.c ---- */
/* Files of a tokenizer of any kind but chars, packed. */
TFMC_MUST_USE enum tfmc_status model_read_tokenizer(struct model_document *d, const struct yaml_node *node,
                                                    enum frontend_tokenizer_kind kind, bool may_lack,
                                                    struct tokenizer_packed *out);

/* ---- checks.c ---- */
bool model_read_checks(struct frontend_model *m);
void model_close_checks(struct frontend_model *m); /* the files that checks opened */

#endif
