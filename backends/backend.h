/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folder's public face: a module of stage plan becomes the bytes of an
 * object file, its C header and its packed weights; object bytes become
 * callable functions in this process. Nothing here prints, exits or opens
 * files. What the object exports is described in object/README.md.
 */
#ifndef TFMC_BACKENDS_BACKEND_H
#define TFMC_BACKENDS_BACKEND_H

#include "ir/analysis/cost.h"
#include "ir/core/module.h"
#include "ir/diag/progress.h"
#include "ir/target/target.h"
#include "runtime/abi.h"

/* AUTO: embedded up to BACKEND_EMBED_AUTO bytes, else in a file. */
enum backend_weights { BACKEND_WEIGHTS_AUTO, BACKEND_WEIGHTS_EMBED, BACKEND_WEIGHTS_FILE };
#define BACKEND_EMBED_AUTO  (64u << 20)
#define BACKEND_C_EMBED_MAX (64u << 20)  /* the same for weights inside C text */
#define BACKEND_EMBED_MAX   (1ull << 30) /* larger blobs are refused with a diagnostic: use a file */

/* Narrow elements widened, tables in two layouts, padded: packed weights have at most about so many times the
 * bytes of what is stored; more is computed. */
#define BACKEND_WEIGHTS_FACTOR 8

/* Receives the bytes of a file. Positions are written once each, not always in order. */
struct backend_sink {
	/* False after a diagnostic with the path and the reason; the compilation then ends with TFMC_IO. */
	bool (*write_at)(void *user, uint64_t offset, const void *bytes, size_t n);
	void *user;
};

struct backend_ids {
	const int64_t *items;
	size_t n;
};

/* Facts about the model for the record; zero-initialised: a model that does not generate. */
struct backend_facts {
	int64_t generate_kind; /* 0 none, 1 causal, 2 seq2seq */
	struct backend_ids start, stop, suppress, suppress_first;
	int64_t pad;       /* -1: none */
	int64_t max_len;   /* 0: none */
	int64_t prefix;    /* first positions that see each other: one call has to bring them all */
	int64_t long_from; /* longer sequences have other rotary frequencies; 0: none have */
	bool reread;       /* one that grows past long_from is read again */
	const char *tokens, *source, *logits; /* names of generate's tensors, NULL: none */
	const char *vocabulary;               /* newline-separated tokens, one for each id; NULL: none */
	const char *source_vocabulary;
	const char *unknown_token; /* spelling, NULL: none */
	const void *tokenizer;     /* packed; NULL: none */
	size_t tokenizer_bytes;
};

/* Weights that were packed before: the data of a weights file. */
struct backend_packed {
	const void *data;
	uint64_t bytes, structure_hash, weights_hash;
};

struct backend_options {
	enum backend_weights weights;
	/* Entries to export, by name (run, encode, prefill, step); n_entries 0: all the module has. */
	const char *const *entries;
	size_t n_entries;
	const struct backend_facts *facts; /* NULL: none */
	const struct backend_sink
	        *weights_sink; /* for weights that are not embedded; NULL: they are only hashed */
	/* Taken instead of packing where the structure is that of the module; NULL: none. */
	const struct backend_packed *packed;
	bool packed_stays; /* then nothing is written to weights_sink: whoever gave them has them */
	/* Takes the weights as a file, too, embedded or not, when they are packed; NULL: nobody. */
	const struct backend_sink *packed_sink;
	/* Takes the object, with its weights as they are packed; NULL: it is put together in backend_output.
	 */
	const struct backend_sink *object_sink;
	bool want_llvm, want_assembly, want_kernels; /* text forms to produce beside the object */
	bool want_c;                                 /* the same program as portable C */
	/* Bytes of packed weights beyond BACKEND_WEIGHTS_FACTOR times the stored tensors they are made of,
	 * and of machine code, about: more is TFMC_INVALID, before anything is written. 0: no limit. */
	uint64_t weights_limit, code_limit;
	bool no_object; /* only the text forms in `c` and `kernels`, and the header */
	int opt_level;  /* effort of LLVM's code generation: 0 none, made in a third of the time, 1 and 2 full
	                 */
	const struct progress *progress; /* told while weights are packed and code is made; NULL: nobody */
	/* Workers that pack weights; the bytes are the same for any number. NULL: the caller alone. */
	tfmc_parallel_for_fn *parallel_for;
	void *parallel_user;
	int64_t workers;             /* >= 1 */
	double (*clock)(void *user); /* seconds; NULL: nothing is timed */
	void *clock_user;
};

/* Filled by backend_compile; buf_destroy each through backend_output_destroy. */
struct backend_output {
	struct buf object;   /* ELF relocatable; with a sink only its code, as LLVM writes it */
	struct buf header;   /* NAME.h */
	struct buf llvm;     /* LLVM IR, when wanted */
	struct buf assembly; /* when wanted; without the embedded weights */
	struct buf kernels;  /* text of the kernel builder's record, when wanted */
	struct buf c;        /* NAME.c, when wanted: the object's functions, and its weights when embedded */
	uint64_t weights_bytes;
	double pack_seconds; /* part of the call that packed weights; 0 without a clock */
	bool packed_taken;   /* the weights are those of options.packed */
	bool embedded;       /* true: the weights are in the object, the sink was not used */
};

void backend_output_init(struct backend_output *out);
void backend_output_destroy(struct backend_output *out);

/*
 * Compiles a verified module of stage plan. TFMC_INVALID after diagnostics for
 * what is not supported, TFMC_IO when weights cannot be read or written.
 */
TFMC_MUST_USE enum tfmc_status backend_compile(struct diag_context *cx, const struct ir_module *planned,
                                               const struct target *target,
                                               const struct weight_source *source,
                                               const struct backend_options *options,
                                               struct backend_output *out);

#define BACKEND_VARIANTS_MAX 8
/* Code for one machine, in an object that holds several. */
struct backend_variant {
	const struct ir_module *planned;
	const struct target *target;
};
/*
 * One object for several targets of x86-64, from the least to the most demanding: modules that came from one
 * module after `encode`, so that weights, state and entries are the same. init chooses (object/README.md,
 * section "Variants"). Text in C is refused. variants[0 .. n), n from 1 to BACKEND_VARIANTS_MAX.
 */
TFMC_MUST_USE enum tfmc_status backend_compile_variants(struct diag_context *cx,
                                                        const struct backend_variant *variants, size_t n,
                                                        const struct weight_source *source,
                                                        const struct backend_options *options,
                                                        struct backend_output *out);
/* Bytes of the functions of an object (ELF) whose names begin with `prefix`; 0: none, or no such object. */
uint64_t backend_code_bytes(const void *object, size_t bytes, const char *prefix);

/*
 * The module as one file of OpenCL C: all kernels, then the launches of its functions as a comment. For
 * people and for hosts of their own; `target` is one of ARCH_OPENCL. TFMC_INVALID after diagnostics.
 */
TFMC_MUST_USE enum tfmc_status backend_opencl(struct diag_context *cx, const struct ir_module *planned,
                                              const struct target *target, struct buf *out);

/* Only the weights file of a module (`tfmc pack`): header and packed bytes to the sink. */
TFMC_MUST_USE enum tfmc_status backend_pack(struct diag_context *cx, const struct ir_module *planned,
                                            const struct weight_source *source,
                                            const struct backend_sink *sink);

/* ---- sizes, before code generation ---- */
struct backend_function_sizes {
	const struct ir_func *func;
	const struct ir_dim *arena; /* bytes, beside the scratch */
	uint64_t weights;           /* packed bytes that a call reads */
};

struct backend_sizes {
	uint64_t weights;                  /* packed bytes */
	uint64_t state_fixed, state_batch; /* a state: fixed + sequences x batch; 0, 0: none */
	uint64_t scratch;                  /* bytes for each worker at the beginning of the arena */
	uint64_t context_limit;            /* tokens of a sequence; 0: none */
	struct backend_function_sizes *functions;
	size_t n_functions;
};

/* The exact sizes that the object of a module of stage plan will have; lists live in `arena`. */
TFMC_MUST_USE enum tfmc_status backend_measure(struct diag_context *cx, const struct ir_module *planned,
                                               const struct target *target, struct arena *arena,
                                               struct backend_sizes *out);

/* ---- object bytes in this process ---- */
struct backend_jit;
/* Loads an object made for this machine through LLJIT. `object` is copied. */
TFMC_MUST_USE enum tfmc_status backend_jit_load(struct diag_context *cx, const struct buf *object,
                                                struct backend_jit **out);
/* A function of this process that an object calls. */
struct backend_function {
	const char *name;
	uintptr_t address;
};
/* The same for an object that calls some. */
TFMC_MUST_USE enum tfmc_status backend_jit_link(struct diag_context *cx, const struct buf *object,
                                                const struct backend_function *functions, size_t n_functions,
                                                struct backend_jit **out);
void backend_jit_destroy(struct backend_jit *jit); /* NULL is allowed */
/* Address of an exported symbol, or NULL; after a diagnostic (diag_environment_error) when there is no memory for the code. */
void *backend_jit_symbol(struct backend_jit *jit, const char *symbol);
/* The functions of the model `name`, as the header's NAME_model() gives them. False when one is absent. */
bool backend_jit_model(struct backend_jit *jit, const char *name, struct tfmc_model *out);

/* What so many workers can do at best in a second, all together. */
struct backend_peak {
	/* Multiply-adds of f32, int8 or bf16 with the target's vectors or matrix tiles, two operations each: one core times
	 * workers. Those of options.products; else 0. */
	double flops[MAC_ALL];
	double bytes; /* read from `data` by all at once, again and again; 0: there is less than a step of the loop */
};
struct backend_peak_options {
	const struct target *target;
	bool products[MAC_ALL];
	const void *data; /* [n_bytes], aligned to 64 bytes */
	uint64_t n_bytes;
	int64_t workers; /* >= 1 */
	tfmc_parallel_for_fn *parallel_for;
	void *user; /* of parallel_for */
	double (*clock)(void *user);
	void *clock_user;
};
/* Measures by code made for it. */
TFMC_MUST_USE enum tfmc_status backend_peak(struct diag_context *cx, const struct backend_peak_options *o,
                                            struct backend_peak *out);

/* Pages of the LLVM library that were only read go back to the system; those that are needed again are read again. */
void backend_llvm_release(void);
/* Version of the LLVM library, for --version. */
const char *backend_llvm_version(void);

#endif
