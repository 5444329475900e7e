/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Public interface of the front end: loads a model file into a checked description and lowers it to IR or
 * prints it one language level lower. Nothing here prints or exits; every failure has been reported to the
 * diagnostic context.
 *
 * Use: frontend_load, then frontend_lower and frontend_expand any number of times, frontend_destroy last. The
 * diagnostic context must outlive the model.
 */
#ifndef TFMC_FRONTEND_FRONTEND_H
#define TFMC_FRONTEND_FRONTEND_H

#include "frontend/tokenizer/tokenizer.h"
#include "ir/core/module.h"

struct frontend_model;

/* Suffix of tensor names in a calibration profile: PARAMETER.inputs (frontend/driver/commands/calibrate.c). */
#define FRONTEND_INPUTS ".inputs"

struct frontend_options {
	const char *const *sets; /* "key=value", as given to --set */
	size_t n_sets;
	const char *const *ignored; /* globs of configuration keys to treat as absent, from --ignore-key */
	size_t n_ignored;
	const char *const *
	        dims; /* "NAME=LEAST..MOST": bounds of sizes of an ONNX model, from --dim; unused for others */
	size_t n_dims;
	const char *const *adapters; /* folders of adapters, from --adapter; after those of the file */
	size_t n_adapters;
	bool allow_unused; /* unused tensors are warnings instead of errors */
	bool shapes;       /* if a weight file is missing, open none: parameters have shapes without data */
	bool score;        /* with generate: also lower the function score */
	bool unrounded; /* ignore the sections `dtype` and `quantize`: weights as stored in the files, f32 caches */
	const char *quantize; /* format name that overrides the section `quantize`; NULL: the file's */
	const char *dtype;    /* "key=word,..": overrides keys of the section `dtype`; NULL: none */
	const char *profile;  /* path that overrides quantize.profile; NULL: the file's */
	int64_t context;      /* upper bound for tokens of a sequence; 0: the bound of the file */
	const char *name;     /* overrides `name`, must satisfy expr_is_name; NULL: the file's */
	/* Called with the path, as opened, of each file that is read, or will be: weight files, the weight map,
	 * vocabularies, documents that others include; also of models that are rejected. Files of checks when
	 * frontend_check_tensor opens them; the model file itself is not included. May be NULL. */
	void (*file_read)(void *user, const char *path);
	void *file_user;
};

/*
 * Reads and checks a model file, a hub directory or a GGUF file: keys, types, parameters, dims, inputs, steps,
 * sections. Weight files are not opened yet. `path` is opened and shown in messages as given. Returns
 * TFMC_INVALID or TFMC_IO after diagnostics (at most cx->max_errors are shown) with *out NULL.
 */
TFMC_MUST_USE enum tfmc_status frontend_load(struct diag_context *cx, const char *path,
                                             const struct frontend_options *options,
                                             struct frontend_model **out);
/* True if `path` is an ONNX file, whose sizes options->dims has. */
bool frontend_is_onnx(struct diag_context *cx, const char *path);
void frontend_destroy(struct frontend_model *m); /* closes weight files; m may be NULL */

/*
 * Opens the weight files, resolves every parameter and builds an IR module of stage `graph`, whose shapes have
 * been inferred and checked, with the functions
 *   run      always
 *   decode   with generate (the entries prefill and step are specializations of it)
 *   encode   with generate.kind seq2seq
 *   score    with options.score: decode that returns log p of given tokens, one for each row
 * Missing, wrongly shaped and unused tensors are errors. The caller destroys the module.
 */
TFMC_MUST_USE enum tfmc_status frontend_lower(struct frontend_model *m, struct ir_module **out);

/* The YAML text generated for a hub directory, a GGUF or an ONNX file. `at`: path of that directory as seen from the
 * text ("": the same directory); adapters: those of a directory, seen from there. NULL when the model was loaded from a
 * model file. */
const char *frontend_hub_yaml(struct frontend_model *m, const char *at, const char *const *adapters,
                              size_t n_adapters);

/*
 * Appends the model as one YAML document of the next lower language level: a preset as its steps, steps as
 * graph statements. `at`: the model's directory as seen from that document ("": the same), prefixed to file
 * names.
 */
TFMC_MUST_USE enum tfmc_status frontend_expand(struct frontend_model *m, const char *at, struct buf *out);

/* Appends the JSON Schema of model files. */
void frontend_schema(struct buf *out);

/* Appends the lists of the language reference: keys, parameters, operators, functions, limits. */
void frontend_reference(struct buf *out);

/* The stored tensors named by weight expressions of the module; valid from frontend_lower until
 * frontend_destroy. */
struct weight_source frontend_weights(struct frontend_model *m);
/* The files that contain these tensors; same lifetime. */
struct weight_files *frontend_weight_files(const struct frontend_model *m);

/* Why a weight of the module is not quantized although `quantize` is given; NULL: it is quantized, or
 * quantization is not requested for it. */
const char *frontend_unquantized_reason(const struct frontend_model *m, const char *weight);

/* Parameter i, in the order of use, of a model lowered with options.shapes without weight files. NULL: i is
 * past the last one, or the model has weights. */
const char *frontend_parameter(const struct frontend_model *m, size_t i, int *rank, const int64_t **dims);

const char *frontend_name(const struct frontend_model *m); /* `name`: prefix of all symbols of the object */
const char *
frontend_preset(const struct frontend_model *m);          /* name of the preset it is based on; NULL: none */
const char *frontend_dir(const struct frontend_model *m); /* directory of the file, "" for the current one */

/* ---- inputs, in the order of the file ---- */

struct frontend_input {
	const char *name;
	struct loc loc;
	enum ir_dtype dtype;
	int rank;
	const struct ir_dim *dims[IR_RANK_MAX]; /* in the dim table of the model, not of a module */
	int64_t below;                          /* ids satisfy 0 <= id < below; 0: not checked */
	bool has_default;
	const struct ir_dim *
	        default_dim; /* default as a dim, for ir_dim_eval with the dim values of a call; NULL: `fill` */
	double fill;         /* default value, used if default_dim is NULL */
	const char *lengths; /* name of the input that holds its lengths, or NULL */
	int lengths_at;      /* index of that input, -1 */
	int measures;        /* if this input holds lengths: index of the first input they measure; -1 */
};
const struct frontend_input *frontend_inputs(const struct frontend_model *m, size_t *n);
/* The input `name`; NULL: the first required one of type i32. NULL if there is none. */
const struct frontend_input *frontend_find_input(const struct frontend_model *m, const char *name);

/* ---- generate ---- */

struct frontend_ids {
	const int64_t *items;
	size_t n;
};

enum frontend_generate_kind { GENERATE_NONE, GENERATE_CAUSAL, GENERATE_SEQ2SEQ };

struct frontend_sample {
	bool given; /* false: greedy */
	double temperature, top_p, min_p;
	int64_t top_k, seed;
};

/* Enumerators are 0 (absent), then the words of the row in schema.def in their order (schema_read). */
enum frontend_penalty { PENALTY_NONE, PENALTY_POWER, PENALTY_GNMT };
enum frontend_early { EARLY_NONE, EARLY_TRUE, EARLY_FALSE, EARLY_NEVER };

struct frontend_search {
	bool given; /* false: greedy (beam 1) */
	struct loc loc;
	int64_t beam;
	double length_penalty;
	enum frontend_penalty penalty;
	enum frontend_early early_stopping;
};

/* A sequence of ids; `by` is added to the score of its last id after the others. */
struct frontend_sequence {
	struct frontend_ids ids;
	double by;
};

struct frontend_sequences {
	const struct frontend_sequence *items;
	size_t n;
};

/* factor 0: no decay */
struct frontend_decay {
	int64_t after;
	double factor;
};

/* Parallel arrays of names and ids, in file order. */
struct frontend_names {
	const char *const *names;
	const int64_t *ids;
	size_t n;
};

/* Speech models (Whisper): how the decoder prompt begins. */
struct frontend_speech {
	bool given;
	int64_t start;                          /* the first id */
	struct frontend_names languages, tasks; /* <|fr|>, translate */
	const char *language, *task;            /* NULL: not specified */
	/* Ids after the first one if neither language nor task is specified; SPEECH_DETECTED: the detected language. */
	struct frontend_ids forced;
	int64_t no_timestamps; /* id of <|notimestamps|>; larger ids are timestamps; -1: none */
	int64_t latest_first;  /* index of the latest timestamp allowed first, -1: any */
	bool timestamps;       /* timestamps are written by default */
	bool english_only;
};

/* Settings of a caller; NULL, false: the defaults of the model. */
struct speech_request {
	const char *language, *task;
	bool timestamps;
};

#define SPEECH_START_MAX 16
#define SPEECH_DETECTED  (-1) /* in out[1]: language to be detected from the logits after the first id */
/* Writes the decoder prompt. Returns NULL, or an error message (in the arena). */
const char *frontend_speech_start(struct arena *a, const struct frontend_speech *s,
                                  const struct speech_request *w, int64_t out[SPEECH_START_MAX], size_t *n);

struct frontend_generate {
	enum frontend_generate_kind kind; /* GENERATE_NONE: no section */
	struct loc loc;
	const char *tokens; /* input that grows by generated tokens */
	const char *source; /* seq2seq: the encoder input; else NULL */
	const char *logits; /* output */
	struct frontend_ids start, stop, suppress, suppress_first, forced_last;
	struct frontend_sequences banned, bias; /* banned: `by` is unused */
	int64_t forced;                         /* how many of the last start ids are forced tokens */
	double repetition_penalty, source_repetition_penalty;
	int64_t no_repeat_ngram, source_no_repeat_ngram;
	struct frontend_decay decay;
	bool renormalize;
	int64_t min_new, min_total, max_new, max_total; /* 0: no bound */
	const char
	        *unsupported; /* a setting of the hub directory that generation cannot follow; NULL: none */
	struct frontend_speech speech; /* its ids that need no language detection are in `start` */
	int64_t pad;
	int64_t max_len; /* start and prompt included; capacity of the KV cache */
	int64_t prefix;  /* mask: prefix: positions visible to all; the first call must contain all of them */
	/* Sequences longer than this use the long factors of longrope; 0: not used. Set by frontend_lower. */
	int64_t long_from;
	bool reread; /* a sequence that grows past long_from is prefilled again from its first token */
	struct frontend_sample sample;
	struct frontend_search search;
};
/* Never NULL. */
const struct frontend_generate *frontend_generate(const struct frontend_model *m);

/* ---- tokenizer ---- */

/* The lists of kind chars: one token per line of a file, one token per code point. Other kinds are packed. */
struct frontend_vocab {
	const char *const *tokens; /* index = id; strict UTF-8; n 0: no list */
	size_t n;
	int64_t unknown; /* id for characters that are not in the list, -1: they are an error */
};

enum frontend_tokenizer_kind {
	TOKENIZER_BY_KEYS, /* no kind given: bpe if `merges` is present, else hf */
	TOKENIZER_HF,
	TOKENIZER_BPE,
	TOKENIZER_WORDPIECE,
	TOKENIZER_SENTENCEPIECE,
	TOKENIZER_MARIAN,
	TOKENIZER_SCORED,
	TOKENIZER_GGUF,
	TOKENIZER_LLAMA2C,
	TOKENIZER_CHARS,
};

struct frontend_tokenizer {
	bool given;
	enum frontend_tokenizer_kind kind;
	struct tokenizer_packed packed; /* data NULL: kind chars */
	struct loc loc;
	struct frontend_vocab source, target; /* equal if given as `file` */
	bool embed, optional;
};
/* The section without reading its files. Never NULL. */
const struct frontend_tokenizer *frontend_tokenizer_head(const struct frontend_model *m);
/*
 * Reads the tokenizer files on first use. *out is never NULL when TFMC_OK is returned; its `given` is false
 * without the section. If the section is optional and !needed, an unsupported tokenizer is only a warning and
 * has no packed data.
 */
TFMC_MUST_USE enum tfmc_status frontend_tokenizer(struct frontend_model *m, bool needed,
                                                  const struct frontend_tokenizer **out);

/* ---- target: defaults of --target, --mcpu, --variants and -O ---- */

struct frontend_target {
	struct loc loc;              /* of the section */
	const char *triple, *cpu;    /* NULL: not specified */
	const char *const *variants; /* CPU levels, in file order */
	struct loc variants_loc;
	size_t n_variants;
	int64_t opt; /* 0 .. 2 */
};
/* Never NULL; all defaults without the section. */
const struct frontend_target *frontend_target(const struct frontend_model *m);

/* ---- checks ---- */

/* A nested list of values written in the file. */
struct frontend_tensor {
	const char *name;
	struct loc loc;
	int rank;
	int64_t dims[IR_RANK_MAX];
	const double *values; /* row-major; ids are exact in double */
};

/* Tensors written in the model file, or in a tensor file with a name prefix (tensor NAME is stored as prefix +
 * NAME). Without either, both are empty. */
struct frontend_tensors {
	const struct frontend_tensor *items;
	size_t n;
	const char *file; /* as written, relative to frontend_dir; NULL: values are in the model file */
	const char *prefix;
	struct loc loc;
};

struct frontend_rename {
	const char *from, *to; /* name of the input or result, name in the file */
};

enum frontend_check_search { CHECK_SEARCH_OF_MODEL, CHECK_SEARCH_GREEDY };

/*
 * One call to check. The short form {file, cases} is expanded to one entry for each case C with with/expect =
 * {file, prefix "C."} and `short_form` set: inputs and outputs are the tensors that exist in the file, at least
 * one output.
 */
struct frontend_check {
	const char *name; /* case name or number */
	struct loc loc;
	const char *call;        /* entry name, "generate" */
	const char *only_output; /* not NULL: compare only this output (call is then "run") */
	bool short_form;
	struct frontend_tensors with, expect;
	const struct frontend_rename *rename;
	size_t n_rename;
	struct frontend_ids rows; /* positions of axis 1 contained in the expected tensors; items NULL: all */
	double rtol, atol;
	int64_t steps; /* decode steps of generate; -1: as many as expected */
	bool ignore_stop;
	enum frontend_check_search search;
};
const struct frontend_check *frontend_checks(const struct frontend_model *m, size_t *n);
/* Finds a tensor in a file of a check; the file is opened once. *out is NULL if the tensor does not exist and
 * stays valid until frontend_destroy. An unsupported storage type is an error. */
struct stored_tensor;
TFMC_MUST_USE enum tfmc_status frontend_check_tensor(struct frontend_model *m, const char *file,
                                                     struct loc loc, const char *name,
                                                     const struct stored_tensor **out);

#endif
