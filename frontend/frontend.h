/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folder's public face: a model file becomes a checked description, the
 * description becomes IR or the next lower language level. Nothing here prints
 * or exits; every failure has been reported to the diagnostic context.
 *
 * Use: frontend_load, then frontend_lower or frontend_expand as often as
 * wanted, frontend_destroy last. The diagnostic context outlives the model.
 */
#ifndef TFMC_FRONTEND_FRONTEND_H
#define TFMC_FRONTEND_FRONTEND_H

#include "frontend/tokenizer/tokenizer.h"
#include "ir/core/module.h"

struct frontend_model;

/* Behind the path of its parameter the name of a tensor of a profile (frontend/driver/quality/profile.h). */
#define FRONTEND_INPUTS ".inputs"

struct frontend_options {
	const char *const *sets; /* "key=value", as given to --set */
	size_t n_sets;
	const char *const
	        *ignored; /* keys of a configuration that count as absent, globs, as given to --ignore-key */
	size_t n_ignored;
	bool allow_unused; /* tensors that are neither used nor ignored: warnings instead of errors */
	bool shapes;       /* where a weight file is missing none is opened: parameters have shapes alone */
	bool score;        /* with generate: also the function score */
	bool unrounded; /* `dtype` and `quantize` of the file are not followed: weights as they are stored, caches f32 */
	const char *quantize; /* in place of the formats of the section: the name of one; NULL: the file's */
	const char *dtype;    /* "key=word,..", in place of keys of the section; NULL: the file's */
	const char *profile;  /* in place of the profile of the section, a path; NULL: the file's */
	int64_t context;      /* tokens of a sequence, at most; 0: as many as the file allows */
	const char *name;     /* instead of the file's, a name for expr_is_name; NULL: the file's */
};

/*
 * Reads and checks a model file: keys, types, parameters, dims, inputs, steps,
 * sections. Weight files are not opened yet. `path` is opened; messages show it
 * as it is. TFMC_INVALID or TFMC_IO after diagnostics (at most cx->max_errors
 * are shown); *out is NULL then.
 */
TFMC_MUST_USE enum tfmc_status frontend_load(struct diag_context *cx, const char *path,
                                             const struct frontend_options *options,
                                             struct frontend_model **out);
void frontend_destroy(struct frontend_model *m); /* closes weight files; NULL is allowed */

/*
 * Opens the weight files, resolves every parameter and builds verified-shape IR
 * of stage graph with the functions
 *   run                      always
 *   decode                   with generate (prefill and step are bindings of it)
 *   encode                   with generate.kind seq2seq
 *   score                    with options.score: decode that yields log p of given tokens, row by row
 * Missing, mis-shaped and unused tensors are errors here. The caller destroys the module.
 */
TFMC_MUST_USE enum tfmc_status frontend_lower(struct frontend_model *m, struct ir_module **out);

/* The model file that stands for a hub folder or a GGUF file, whose directory is `at` as seen from that file
 * ("": it lies there); NULL when the model was loaded from a file. */
const char *frontend_hub_yaml(struct frontend_model *m, const char *at);

/* Appends the model as one YAML document of the next lower level: a preset by its steps, steps by statements. `at`: the
 * model's directory as seen from the document ("": it lies there), for the names of files. */
TFMC_MUST_USE enum tfmc_status frontend_expand(struct frontend_model *m, const char *at, struct buf *out);

/* Appends the JSON Schema of model files. */
void frontend_schema(struct buf *out);

/* Appends the lists of the language reference: keys, parameters, operators, functions, limits. */
void frontend_reference(struct buf *out);

/* The stored tensors that weight expressions of the module name; valid after frontend_lower, until destroy.
 */
struct weight_source frontend_weights(struct frontend_model *m);
/* The files they lie in; valid as long. */
struct weight_files *frontend_weight_files(const struct frontend_model *m);

/* Why a weight of the module is in no format of codes, where `quantize` is given; NULL: it is, or nothing is wanted. */
const char *frontend_unquantized_reason(const struct frontend_model *m, const char *weight);

/* Parameter i of a model that was lowered with `shapes` and has no weights yet, in the order of use; NULL behind the last
 * one, and where there are weights. */
const char *frontend_parameter(const struct frontend_model *m, size_t i, int *rank, const int64_t **dims);

const char *frontend_name(const struct frontend_model *m);   /* `name`: prefix of all symbols */
const char *frontend_preset(const struct frontend_model *m); /* the preset it is made from; NULL: none */
const char *frontend_dir(const struct frontend_model *m); /* directory of the file, "" for the current one */
/*
 * Paths of the files that were read so far, as they were opened: weight files, the file of the weight map,
 * vocabularies; neither the model file itself nor files of checks.
 */
const char *const *frontend_files(const struct frontend_model *m, size_t *n);

/* ---- inputs, in the order of the file ---- */

struct frontend_input {
	const char *name;
	struct loc loc;
	enum ir_dtype dtype;
	int rank;
	const struct ir_dim *dims[IR_RANK_MAX]; /* of the model's table, not of a module */
	int64_t below;                          /* ids satisfy 0 <= id < below; 0: not checked */
	bool has_default;
	const struct ir_dim *default_dim; /* has_default: ir_dim_eval with the module's dim values gives it */
	double fill;                      /* has_default: the value when default_dim is NULL */
	const char *lengths;              /* name of the input with its lengths, or NULL */
	int lengths_at;                   /* index of that input, -1 */
	int measures;                     /* index of the first input whose lengths this is, -1 */
};
const struct frontend_input *frontend_inputs(const struct frontend_model *m, size_t *n);

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

/* Enums are the words of schema.def after a 0. */
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

/* Ids one after another, and what the score of the last one grows by. */
struct frontend_sequence {
	struct frontend_ids ids;
	double by;
};

struct frontend_sequences {
	const struct frontend_sequence *items;
	size_t n;
};

/* factor 0: none */
struct frontend_decay {
	int64_t after;
	double factor;
};

/* Names and ids, in the order of the file. */
struct frontend_names {
	const char *const *names;
	const int64_t *ids;
	size_t n;
};

/* How the decoder of a model of speech begins. */
struct frontend_speech {
	bool given;
	int64_t start;                          /* the first id */
	struct frontend_names languages, tasks; /* <|fr|>, translate */
	const char *language, *task;            /* NULL: not said */
	struct frontend_ids
	        forced; /* ids after the first one where neither is said; SPEECH_DETECTED: the language */
	int64_t no_timestamps; /* the id that says so; those after it are timestamps; -1: none */
	int64_t latest_first;  /* number of the latest timestamp to begin with, -1: any */
	bool timestamps;       /* are written where nobody asks */
	bool english_only;
};

/* What a caller asks for; NULL, false: as the file says. */
struct speech_request {
	const char *language, *task;
	bool timestamps;
};

#define SPEECH_START_MAX 16
#define SPEECH_DETECTED  (-1) /* out[1]: the likeliest language after the first id */
/* The ids that the decoder begins with; gives NULL, or why there are none (in the arena). */
const char *frontend_speech_start(struct arena *a, const struct frontend_speech *s,
                                  const struct speech_request *w, int64_t out[SPEECH_START_MAX], size_t *n);

struct frontend_generate {
	enum frontend_generate_kind kind; /* GENERATE_NONE: no section */
	struct loc loc;
	const char *tokens; /* input that grows */
	const char *source; /* seq2seq: the other input; else NULL */
	const char *logits; /* output */
	struct frontend_ids start, stop, suppress, suppress_first, forced_last;
	struct frontend_sequences banned, bias; /* banned: `by` is 0 */
	int64_t forced;                         /* so many of the last start ids */
	double repetition_penalty, source_repetition_penalty;
	int64_t no_repeat_ngram, source_no_repeat_ngram;
	struct frontend_decay decay;
	bool renormalize;
	int64_t min_new, min_total, max_new, max_total; /* 0: none */
	const char *unsupported;                        /* NULL: all is followed */
	struct frontend_speech speech;                  /* start: with all ids that need no detection */
	int64_t pad;
	int64_t max_len; /* start and prompt included; length of the cache */
	int64_t prefix;  /* positions that all may see (mask: prefix): the first call has to bring them all */
	/* Longer sequences turn by the long factors of longrope; 0: none do. Known once the model is lowered. */
	int64_t long_from;
	bool reread; /* a sequence that grows past long_from is read again from its first token */
	struct frontend_sample sample;
	struct frontend_search search;
};
/* Never NULL. */
const struct frontend_generate *frontend_generate(const struct frontend_model *m);

/* ---- tokenizer: packed; kind chars is two lists (one token per line of a file, one per code point) ---- */

struct frontend_vocab {
	const char *const *tokens; /* id = index; strict UTF-8; n = 0: none */
	size_t n;
	int64_t unknown; /* id of what is not in the list, -1: an error */
};

enum frontend_tokenizer_kind {
	TOKENIZER_BY_KEYS, /* hf, or with `merges` bpe */
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
	struct frontend_vocab source, target; /* `file`: both are the same */
	bool embed, optional;
};
/* What the section says, without its files. Never NULL. */
const struct frontend_tokenizer *frontend_tokenizer_head(const struct frontend_model *m);
/*
 * Reads the files on first use. Never NULL when TFMC_OK; given is false without the section. When it is
 * optional and not needed, one that is not supported is a warning and has no packed data.
 */
TFMC_MUST_USE enum tfmc_status frontend_tokenizer(struct frontend_model *m, bool needed,
                                                  const struct frontend_tokenizer **out);

/* ---- target: what the file wants to be compiled for, where nobody says otherwise ---- */

struct frontend_target {
	struct loc loc;              /* of the section */
	const char *triple, *cpu;    /* NULL: not said */
	const char *const *variants; /* levels, in the order of the file */
	struct loc variants_loc;
	size_t n_variants;
	int64_t opt; /* 0 .. 2 */
};
/* Never NULL; without the section all is as by default. */
const struct frontend_target *frontend_target(const struct frontend_model *m);

/* ---- checks ---- */

/* A nested list of numbers written in the file. */
struct frontend_tensor {
	const char *name;
	struct loc loc;
	int rank;
	int64_t dims[IR_RANK_MAX];
	const double *values; /* row-major; ids are exact */
};

/* Tensors given in place, or by file and prefix (`tensor NAME` is called prefix + NAME); none: both absent.
 */
struct frontend_tensors {
	const struct frontend_tensor *items;
	size_t n;
	const char *file; /* as written, relative to frontend_dir; NULL: in place */
	const char *prefix;
	struct loc loc;
};

struct frontend_rename {
	const char *from, *to; /* name in the model or result, name in the file */
};

enum frontend_check_search { CHECK_SEARCH_OF_MODEL, CHECK_SEARCH_GREEDY };

/*
 * One run of a check; the short form {file, cases} has become one entry for
 * each case C with with/expect = {file, prefix "C."} and `short_form` set (inputs and
 * outputs are those tensors that exist, at least one output).
 */
struct frontend_check {
	const char *name; /* case name or number */
	struct loc loc;
	const char *call;        /* entry name, "generate" */
	const char *only_output; /* not NULL: compare this output alone (call is then "run") */
	bool short_form;
	struct frontend_tensors with, expect;
	const struct frontend_rename *rename;
	size_t n_rename;
	struct frontend_ids rows; /* positions of axis 1 which the expected tensors hold; items NULL: all */
	double rtol, atol;
	int64_t steps; /* generate; -1: as many as expected */
	bool ignore_stop;
	enum frontend_check_search search;
};
const struct frontend_check *frontend_checks(const struct frontend_model *m, size_t *n);
/* Opens a file of a check (once; later calls return the same). The tensor keeps valid until frontend_destroy.
 */
struct stored_tensor;
TFMC_MUST_USE enum tfmc_status frontend_check_tensor(struct frontend_model *m, const char *file,
                                                     struct loc loc, const char *name,
                                                     const struct stored_tensor **out);

#endif
