/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The typed description of a model file, filled in stages by model_*.c, and
 * read by the block expansion (frontend/steps/blocks.h) and the lowering (frontend/lower/lower.h). Private to
 * the folder; frontend.h is what others see.
 *
 * Functions that return false have reported at least one error.
 */
#ifndef TFMC_FRONTEND_MODEL_MODEL_H
#define TFMC_FRONTEND_MODEL_MODEL_H

#include "frontend/expr/signature.h"
#include "frontend/formats/parsed.h"
#include "frontend/text/files.h"
#include "frontend/frontend.h"
#include "frontend/graph/graph.h"
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

struct model_input {
	struct frontend_input pub;
	const struct ir_dim *dims[IR_RANK_MAX];
	int64_t below; /* 0: not checked */
	int lengths;   /* index of its lengths, -1 */
	int measures;  /* index of the first input whose lengths this is, -1 */
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

struct check_file;
struct resolved_weight;

struct frontend_model {
	struct arena arena;
	struct diag_context *cx;
	struct frontend_options options;
	const char *path, *dir;
	const char *preset;              /* name of the one it is made from; NULL: none */
	const struct yaml_node *written; /* the file as it is */
	const struct yaml_node *root;    /* with what it is based on: base, include, preset */
	const char *name;
	struct ir_dims *dims;
	struct strmap names;       /* one name space: name -> what it is, as text */
	struct strmap param_index; /* name -> struct model_param * */
	const char **suggestions;  /* names of params and dims */
	size_t n_suggestions;
	struct {
		struct model_param **items;
		size_t n, cap;
	} params;
	struct {
		struct model_input *items;
		size_t n, cap;
	} inputs;
	struct {
		struct model_output *items;
		size_t n, cap;
	} outputs;
	struct {
		struct definition *items;
		size_t n, cap;
	} defines;
	struct {
		struct frontend_check *items;
		size_t n, cap;
	} checks;
	struct {
		struct check_file *items;
		size_t n, cap;
	} check_files;
	struct frontend_input *input_list; /* what frontend.h shows, in the order of the file */
	const char **output_list;
	struct frontend_generate generate;
	enum ir_dtype cache_dtype; /* of keys and values, where a step says nothing else */
	int tokens;                /* generate: index of the input that grows, -1 */
	struct frontend_target target;
	struct frontend_tokenizer tokenizer;
	bool tokenizer_read;
	bool keeps_weights;         /* dtype.weights: keep */
	enum ir_dtype weights_type; /* else: f32, f16, bf16 */
	struct graph_body graph;    /* level 3; the names in it are closed */
	struct weight_files *files;
	struct weight_map *map;
	struct expr_env map_env;
	const char *hub_path;   /* configuration that parameters of the preset come from, or NULL */
	struct strmap resolved; /* canonical path -> struct resolved_weight * */
	struct {
		const char **items;
		size_t n, cap;
	} read;                     /* paths of the files that were read for the object */
	struct parsed_files parsed; /* JSON and GGUF files */
};

/* ---- model.c ---- */
/* Enters a name into the one name space; reports a clash or a malformed name. */
bool model_declare(struct frontend_model *m, const char *name, const char *what, struct loc loc);
/* Environment of params and, when `dims`, dims. */
struct expr_env model_env(struct frontend_model *m, bool dims);
/* Remembers that the file was read (frontend_files). */
void model_note_file(struct frontend_model *m, const char *path);
const struct yaml_node *model_section(const struct frontend_model *m, const char *key);
int model_find_input(const struct frontend_model *m, const char *name); /* index or -1 */
int model_find_output(const struct frontend_model *m, const char *name);
const struct definition *model_find_definition(const struct frontend_model *m, const char *name);

/* ---- params.c ---- */
bool model_read_params(struct frontend_model *m);
enum expr_lookup model_lookup_param(struct frontend_model *m, const char *name, struct loc loc,
                                    struct value *out);

/* ---- inputs.c ---- */
bool model_read_dims(struct frontend_model *m);
bool model_read_inputs(struct frontend_model *m);
bool model_read_outputs(struct frontend_model *m);

/* ---- define.c ---- */
/* Which argument of the definition has the name, or -1. */
int definition_argument(const struct definition *d, const char *name);
struct signature definition_signature(const struct definition *d);
bool model_read_defines(struct frontend_model *m);

/* ---- sections.c ---- */
bool model_read_generate(struct frontend_model *m);
/* Files of a tokenizer of any kind but chars, packed; in tokenizer.c. */
TFMC_MUST_USE enum tfmc_status model_read_tokenizer(struct frontend_model *m, const struct yaml_node *node,
                                                    bool may_lack, struct tokenizer_packed *out);
bool model_check_sections(struct frontend_model *m); /* weights, dtype, tokenizer, target: keys and words */
bool model_read_ids(struct frontend_model *m, const struct yaml_node *node, const char *what,
                    struct frontend_ids *out);

/* ---- checks.c ---- */
bool model_read_checks(struct frontend_model *m);
void model_close_checks(struct frontend_model *m); /* the files that checks opened */

#endif
