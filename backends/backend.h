/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Public interface of the back ends: a module of stage plan becomes the bytes of an object file, its C header and its
 * packed weights; object bytes become callable functions of this process (JIT). Nothing here prints, exits or opens
 * files. object/README.md lists the symbols of an object.
 */
#ifndef TFMC_BACKENDS_BACKEND_H
#define TFMC_BACKENDS_BACKEND_H

#include "ir/core/cost.h"
#include "ir/core/module.h"
#include "ir/support/progress.h"
#include "ir/target/target.h"
#include "runtime/abi.h"

/* Where packed weights are stored. AUTO: embedded up to BACKEND_EMBED_AUTO bytes, else in a file. */
enum backend_weights { BACKEND_WEIGHTS_AUTO, BACKEND_WEIGHTS_EMBED, BACKEND_WEIGHTS_FILE };
#define BACKEND_EMBED_AUTO  (64u << 20)
#define BACKEND_C_EMBED_MAX (64u << 20)  /* limit of AUTO for weights in C text */
#define BACKEND_EMBED_MAX   (1ull << 30) /* more cannot be embedded: a diagnostic says to use a file */

/* Bound of packed bytes / stored bytes of weights: 8-bit elements converted to f32, tables stored in two layouts, and
 * padding. More than that comes from weight expressions that compute elements, which --limit-weights bounds. */
#define BACKEND_WEIGHTS_FACTOR 8

/* Receives the bytes of a file. Each position is written once; the order is not ascending. */
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
	int64_t pad;     /* -1: none */
	int64_t max_len; /* 0: none */
	int64_t prefix; /* first positions that attend to each other, so that one call must contain all of them */
	int64_t long_from; /* longrope: sequences longer than this use the long frequencies; 0: never */
	bool reread;       /* a sequence that grows past long_from is computed again from its first token */
	const char *tokens, *source, *logits; /* names of the tensors of generation, NULL: none */
	const char *vocabulary;               /* newline-separated tokens, one for each id; NULL: none */
	const char *source_vocabulary;
	const char *unknown_token; /* string of the token, NULL: none */
	const void *tokenizer;     /* packed; NULL: none */
	size_t tokenizer_bytes;
};

/* Packed weights of an earlier compilation: the data of a weights file. */
struct backend_packed {
	const void *data;
	uint64_t bytes, structure_hash,
	        weights_hash; /* of one process: not used for modules of several ranks */
};

struct backend_options {
	enum backend_weights weights;
	/* Names of the entries to export (run, encode, prefill, step); n_entries 0: all entries of the module. */
	const char *const *entries;
	size_t n_entries;
	const struct backend_facts *facts; /* NULL: none */
	/* [ranks of the module] files of the weights that are not embedded; write_at NULL: the part of that rank is not
	 * packed. NULL: weights are only hashed. */
	const struct backend_sink *weights_sink;
	uint64_t program_hash; /* for the record: equal code of equal modules; 0: not known */
	/* Used in place of packing if its structure_hash is the hash of the module; NULL: none. */
	const struct backend_packed *packed;
	bool packed_stays; /* if `packed` is used, nothing is written to weights_sink: the caller has the file */
	/* Receives the weights file whenever weights are packed, embedded or not (the cache); NULL: none. */
	const struct backend_sink *packed_sink;
	/* Receives the object while weights are packed, so that memory never holds it; NULL: output.object. */
	const struct backend_sink *object_sink;
	bool needs_llvm, needs_assembly, needs_kernels; /* text forms to produce in addition to the object */
	bool needs_c;                                   /* the program as portable C */
	/* Limits in bytes; more is TFMC_INVALID before anything is written; 0: no limit. weights_limit: packed bytes in
	 * addition to BACKEND_WEIGHTS_FACTOR times the bytes of the source tensors. code_limit: an estimate of machine
	 * code. */
	uint64_t weights_limit, code_limit;
	bool no_object; /* only the text forms in `c` and `kernels`, and the header */
	bool remarks;   /* report the loop nests of linears (--remarks) */
	bool debug;     /* debug information in the object, llvm and assembly (DWARF) */
	bool labels;    /* NAME_label, which names groups for timelines (tfmc_rt.h) */
	int opt_level;  /* of LLVM's code generation: 0 none (a third of the time), 1 and 2 full */
	const struct progress
	        *progress; /* notified while weights are packed and code is generated; NULL: none */
	/* Thread pool that packs weights; the bytes do not depend on its size. NULL: the calling thread. */
	tfmc_parallel_for_fn *parallel_for;
	void *parallel_user;
	int64_t workers;             /* >= 1 */
	double (*clock)(void *user); /* seconds, user NULL; no clock: no times are measured */
};

/* Results of backend_compile; backend_output_destroy() frees them. */
struct backend_output {
	struct buf object;   /* relocatable ELF; with object_sink only the code, as LLVM writes it */
	struct buf header;   /* NAME.h */
	struct buf llvm;     /* LLVM IR, if requested */
	struct buf assembly; /* if requested; without embedded weights */
	struct buf kernels;  /* text of the kernel IR, if requested */
	struct buf c;        /* NAME.c, if requested: the functions of the object, and its embedded weights */
	uint64_t weights_bytes;
	double pack_seconds; /* time of packing; 0 without a clock */
	bool packed_taken;   /* options.packed was used */
	bool embedded;       /* the weights are in the object, weights_sink was not used */
};

/* Makes all outputs empty; frees them. */
void backend_output_init(struct backend_output *out);
void backend_output_destroy(struct backend_output *out);

#define BACKEND_VARIANTS_MAX 8
/* Code for one machine, in an object that holds several. */
struct backend_variant {
	const struct ir_module *planned;
	const struct target *target;
};
/*
 * Compiles verified modules of stage plan. variants[0 .. n), 1 <= n <= BACKEND_VARIANTS_MAX: several make one object,
 * in ascending order of their requirements (function multiversioning); they come from one module after `encode`, so
 * that they have the same weights, state and entries, and init selects one (object/README.md, "Variants"); C text is
 * not supported. After diagnostics: TFMC_INVALID if something is not supported, TFMC_IO if weights cannot be read or
 * written.
 */
TFMC_MUST_USE enum tfmc_status backend_compile(struct diag_context *cx,
                                               const struct backend_variant *variants, size_t n,
                                               const struct weight_source *source,
                                               const struct backend_options *options,
                                               struct backend_output *out);
/* Bytes of the functions of an ELF object whose names begin with `prefix`; 0: none, or not an ELF object. */
uint64_t backend_code_bytes(const void *object, size_t bytes, const char *prefix);

/*
 * The module as one file of OpenCL C: all kernels, then the launches of its functions as a comment, for readers and for
 * hosts other than libtfmccl. `target` has ARCH_OPENCL; remarks: as in the options. TFMC_INVALID after diagnostics.
 */
TFMC_MUST_USE enum tfmc_status backend_opencl(struct diag_context *cx, const struct ir_module *planned,
                                              const struct target *target, bool remarks, struct buf *out);

/* ---- sizes, before code generation ---- */
struct backend_function_sizes {
	const struct ir_func *func;
	const struct ir_dim *arena; /* bytes, without scratch */
	uint64_t weights;           /* packed bytes that a call reads */
};

struct backend_sizes {
	uint64_t weights;                  /* packed bytes */
	uint64_t state_fixed, state_batch; /* bytes of a state (KV cache): fixed + B x batch; 0, 0: none */
	uint64_t scratch;                  /* bytes of each worker at the beginning of the arena */
	uint64_t context_limit;            /* tokens of a sequence; 0: none */
	struct backend_function_sizes *functions;
	size_t n_functions;
};

/* The exact sizes of the object that backend_compile would write. Lists are allocated in `arena`. */
TFMC_MUST_USE enum tfmc_status backend_measure(struct diag_context *cx, const struct ir_module *planned,
                                               const struct target *target, struct arena *arena,
                                               struct backend_sizes *out);

/* ---- object bytes in this process ---- */
struct backend_jit;
/* Loads an object for this machine with LLJIT; copies `object`. */
TFMC_MUST_USE enum tfmc_status backend_jit_load(struct diag_context *cx, const struct buf *object,
                                                struct backend_jit **out);
/* A function of this process that an object calls by name. */
struct backend_function {
	const char *name;
	uintptr_t address;
};
/* backend_jit_load for an object that calls functions of this process. */
TFMC_MUST_USE enum tfmc_status backend_jit_link(struct diag_context *cx, const struct buf *object,
                                                const struct backend_function *functions, size_t n_functions,
                                                struct backend_jit **out);
void backend_jit_destroy(struct backend_jit *jit); /* NULL is allowed */
/* Address of an exported symbol, or NULL. NULL follows a diagnostic (diag_environment_error) if memory for the code is
 * not available. */
void *backend_jit_symbol(struct backend_jit *jit, const char *symbol);
/* Fills *out with the functions of the model `name`, as NAME_model() of its header does. False if one is absent. */
bool backend_jit_model(struct backend_jit *jit, const char *name, struct tfmc_model *out);

/* Measured peak rates of all workers together (the two bounds of a roofline plot). */
struct backend_peak {
	/* Operations per second by ir_mac_type (a multiply-add counts two), with the vectors or AMX tiles of the
	 * target: the rate of one core times workers. 0 for types not in options.mac_types. */
	double flops[MAC_ALL];
	double bytes; /* per second, read from `data` by all workers at once; 0: `data` is shorter than one iteration */
};
struct backend_peak_options {
	const struct target *target;
	bool mac_types[MAC_ALL];
	const void *data; /* [n_bytes], aligned to 64 bytes */
	uint64_t n_bytes;
	int64_t workers; /* >= 1 */
	tfmc_parallel_for_fn *parallel_for;
	void *user; /* of parallel_for */
	double (*clock)(void *user);
};
/* Measures by generated loops that run on this machine. */
TFMC_MUST_USE enum tfmc_status backend_peak(struct diag_context *cx, const struct backend_peak_options *o,
                                            struct backend_peak *out);

/* Releases clean pages of the LLVM library to the system (madvise); a later use reads them from the file again. */
void backend_llvm_release(void);
/* Version of the LLVM library, for --version. */
const char *backend_llvm_version(void);

#endif
