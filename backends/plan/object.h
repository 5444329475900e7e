/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An object before its code is emitted: the layout of weights, state and arena, the memory of every value,
 * and the entries. backends/plan/emit.h and backends/plan emit code from it.
 */
#ifndef TFMC_BACKENDS_PLAN_OBJECT_H
#define TFMC_BACKENDS_PLAN_OBJECT_H

#include "backends/backend.h"
#include "backends/plan/plan.h"
#include "ir/core/case.h"
#include "ir/core/real_rows.h"
#include "ir/core/view.h"

#define OBJECT_ALIGN 64

/* Bytes of two cache lines, which adjacent-line prefetch loads together: avoids false sharing. */
#define OBJECT_LINE_PAIR   128
#define OBJECT_CLUSTERS    8
#define OBJECT_CLUSTER_MIN 4 /* least workers of a barrier cluster */

/* Byte offsets in the context. Fields that workers write during a call have line pairs of their own. */
enum object_context {
	CONTEXT_MAGIC = 0,
	CONTEXT_WEIGHTS = 8,
	CONTEXT_STATE = 16,
	CONTEXT_ARENA = 24, /* scratch of all workers, then the planned buffers of a function */
	CONTEXT_ARENA_BYTES = 32,
	CONTEXT_BUFFERS = 40, /* address of the planned buffers, after the scratch */
	CONTEXT_BATCH = 48,   /* sequences that the state has memory for */
	CONTEXT_WORKERS = 56,
	CONTEXT_PARALLEL_FOR = 64,
	CONTEXT_YIELD = 72,
	CONTEXT_USER = 80,
	CONTEXT_CLUSTER_SIZE = 88, /* workers per barrier cluster; the last one may have fewer */
	CONTEXT_N_CLUSTERS = 96,
	CONTEXT_WORKERS_MAX = 104, /* workers of the config: the arena has scratch for them */
	CONTEXT_VARIANT = 112,     /* number of the variant that init chose */
	/* The sequences that rows of calls stand for: row i is sequence first + i, and reads the encoder
	 * output of its own sequence, or that of sequence `source` if it is not -1. The host functions of
	 * state.c set all fields; those below SOURCE are derived from the first two. */
	CONTEXT_FIRST = 120,
	CONTEXT_SOURCE = 128,      /* -1: each row its own */
	CONTEXT_PAST = 136,        /* address of the length (i32) of row 0 */
	CONTEXT_BLOCKS = 144,      /* address of the state block of row 0 */
	CONTEXT_SOURCES = 152,     /* address of the state block with the encoder output for row 0 */
	CONTEXT_SOURCE_STEP = 160, /* sequences between the sources of consecutive rows: 1, or 0 */
	CONTEXT_ENCODED = 168,     /* address of the encode mark (i32) of row 0's source */
	CONTEXT_DEVICE = 176,      /* struct tfmc_cl_model; NULL: the chosen variant runs on the CPU */
	CONTEXT_RANKS = 184,       /* struct tfmc_ranks; NULL: the object is not of several ranks */
	CONTEXT_SHARED = 256,      /* written by workers from here on, see backends/plan/host_call.c */
	/* i32: the mark of the call that a worker's yield hook cancelled, at a barrier and at the end of a
	 * call */
	CONTEXT_CANCEL = CONTEXT_SHARED,
	CONTEXT_EXIT_CANCEL = CONTEXT_SHARED + OBJECT_LINE_PAIR,
	CONTEXT_RESULT = CONTEXT_SHARED + 2 * OBJECT_LINE_PAIR, /* i32 [2]: status, by parity of the call */
	CONTEXT_ROOT = CONTEXT_SHARED + 3 * OBJECT_LINE_PAIR,
	CONTEXT_CLUSTERS = CONTEXT_SHARED + 4 * OBJECT_LINE_PAIR,
	CONTEXT_EXIT_ROOT = CONTEXT_CLUSTERS + 2 * OBJECT_CLUSTERS * OBJECT_LINE_PAIR,
	CONTEXT_EXIT_CLUSTERS = CONTEXT_EXIT_ROOT + OBJECT_LINE_PAIR,
	CONTEXT_BYTES = CONTEXT_EXIT_CLUSTERS + 2 * OBJECT_CLUSTERS * OBJECT_LINE_PAIR
};

/* Byte offsets in the fixed part of the state. */
enum object_state {
	/* Lengths i32 [batch_max]; then state_list.encoded_at, floor_at. */
	STATE_PAST = 64
};

struct weight_layout {
	const struct ir_weight *weight;
	int64_t offset, bytes; /* in the packed weights */
	int64_t rows, columns; /* of one matrix (ENC_PANEL16); ENC_ROW: 1 and the element count */
	int64_t matrices;
	int64_t matrix_bytes;
};

/* The packed weights, in order of first use. */
struct weight_list {
	struct weight_layout *items;
	size_t n, cap;
	int64_t bytes;
};

struct state_layout {
	const struct ir_state_decl *decl;
	int64_t offset, bytes; /* in the state block of one sequence */
	bool grows;            /* a KV cache that tokens are appended to; otherwise encode fills it */
	/* > 0: a ring buffer whose last `window` tokens are read (sliding-window attention) */
	int64_t window;
};

/* A fixed part, then one block per sequence with all states. */
struct state_list {
	struct state_layout *items;
	size_t n, cap;
	int64_t fixed_bytes, batch_bytes; /* both 0: no state */
	int batch_dim;                    /* dim symbol of axis 0 of all states, -1: none */
	int64_t batch_max;
	int64_t context_limit; /* capacity of a sequence in tokens, 0: unlimited */
	/* offset of the marks i32 [batch_max] of sequences that encode has filled; 0: the model has no
	 * encode */
	int64_t encoded_at;
	/* offset of the least lengths i32 [batch_max] that trim can restore, since rings overwrite older
	 * tokens; 0: no rings */
	int64_t floor_at;
	uint64_t hash; /* of the contents' meaning, independent of the layout (hash_states) */
};

/* Storage class of a value. */
enum storage_kind {
	STORAGE_NONE,    /* not in memory: constants, indices, states */
	STORAGE_ARENA,   /* at a planned offset of the arena */
	STORAGE_INPUT,   /* parameter `number` */
	STORAGE_LENGTHS, /* the sequence lengths in the state */
	STORAGE_OUTPUT,  /* the caller's buffer of result `number`, or `at` when that is null */
	STORAGE_WEIGHT,  /* defined by a weight op */
	STORAGE_STATE,   /* a slice of a state */
};

struct storage {
	enum storage_kind kind;
	size_t number;
	const struct ir_dim *at; /* byte offset in the planned buffers; NULL: none */
};

/* An IR function with its argument slots, the storage of its values, and its plan. */
struct function {
	const struct ir_func *func;
	const struct ir_func *base; /* the function that func is a case of (same argument slots), or func */
	const char *symbol;         /* NAME.func, the prefix of internal symbols */
	bool *has_dim;              /* [dims of the module]: the dim is an argument */
	size_t *dim_slot;           /* [dims of the module]: its argument slot */
	size_t n_dims;
	size_t n_inputs, n_outputs; /* tensors that the caller passes */
	size_t *param_slot;         /* [n_params]: slot of the pointer, followed by the element count */
	size_t *result_slot;        /* [n_results] */
	struct storage **storage;   /* [n_values]; values that share memory share one */
	/* [n_params]: byte offset of the default values of an omitted input, NULL: no default */
	const struct ir_dim **default_at;
	bool has_defaults;                /* of any parameter */
	const struct ir_dim *partials_at; /* byte offset of the partial results of split attention */
	const struct ir_dim *arena;       /* bytes of planned and spare buffers, without scratch */
	int64_t scratch;                  /* bytes per worker */
	size_t n_groups;
	const struct ir_op **groups;          /* in execution order */
	const struct plan *plan;              /* NULL: not built yet */
	size_t row;                           /* row of FUNCTIONS in the plan's bytes */
	uint32_t *uses;                       /* [n_values] */
	const struct ir_real_rows *real_rows; /* [n_values] */
	bool has_state;
	bool reached;                /* by an entry */
	int past_param, past_result; /* -1: none */
};

struct entry {
	const char *name;
	enum tfmc_entry_kind kind;
	size_t function;
	int fixed_dim; /* a dim of the module that is fixed to 1 and no argument; -1: none */
};

struct kb_module; /* backends/kb/kb.h */
struct object {
	struct diag_context *cx;
	struct arena *arena;
	const struct ir_module *module;
	const struct target *target;
	/* processor of the functions around kernels: the target, or the host of an OpenCL device */
	const struct target *driver;
	const struct backend_options *options;
	const char *name;
	const char *prefix; /* prefix of internal symbols: NAME, or NAME.LEVEL with several variants */
	/* All variants, the least demanding first, this one included. The interface is emitted from all[0]:
	 * weights, state and entries are equal in all, scratch is the largest. */
	struct object *all;
	size_t n_all;

	struct weight_list weights;
	bool embedded;
	uint64_t structure_hash, weights_hash, set_hash; /* set_hash: of the weights that all ranks have */

	struct state_list states;
	struct {
		struct function *items;
		size_t n, cap;
	} functions;
	struct {
		struct entry *items;
		size_t n, cap;
	} entries;
	int64_t weight_bytes; /* of all weights of the module, as stored without padding; saturates */
	int64_t ranks;        /* processes that run the object together; 1: one alone */
	int64_t scratch;      /* bytes per worker, largest of all functions */
	bool emits_c; /* emits C text: no cpuid checks, since the C compiler's user chooses the processor */

	struct {
		int64_t plan_bytes, source_bytes;
	} device;
	struct kb_module *kb;
};

/* Whether the kernels of this variant run on an OpenCL device; object_has_device: those of any variant. */
bool object_is_device(const struct object *o);
bool object_has_device(const struct object *o);
/* Whether kernels record the locations that they come from, and have the paths of their steps in their names. */
bool object_has_locs(const struct object *o);
/* Initializes an object with a single variant; target NULL: for the layout of weights alone. The driver of an OpenCL
 * object is the baseline of the host's arch, so that every host of that arch executes it. */
void object_init(struct object *o, struct diag_context *cx, struct arena *arena,
                 const struct ir_module *planned, const struct target *target,
                 const struct backend_options *options);

/* ---- layout ---- */
/* Lays out the weights of all variants in one list, which each of them gets. */
TFMC_MUST_USE enum tfmc_status layout_weights(struct object *o);
/* TFMC_INVALID with a diagnostic if the weights of the layout exceed the limit of the options (sizes.c). */
TFMC_MUST_USE enum tfmc_status check_weights_limit(struct object *o);
/* TFMC_INVALID with a diagnostic at `group`, whose code was emitted last, if the code exceeds the limit. */
TFMC_MUST_USE enum tfmc_status check_code_limit(const struct object *o, const struct ir_op *group);
/* Checks that the layouts of all variants agree (TFMC_INTERNAL otherwise) and gives each the largest
 * scratch. */
TFMC_MUST_USE enum tfmc_status layout_variants(struct object *o);
/* Lays out the state: the fixed part, and the block of a sequence with all states. */
TFMC_MUST_USE enum tfmc_status layout_state(struct object *o);
/* Lays out all functions: argument slots, storage of values, arena and scratch. */
TFMC_MUST_USE enum tfmc_status layout_functions(struct object *o);
/* Whether the function, or the one that it is a case of, fills the source of a sequence. */
bool function_is_encode(const struct function *f);
/* Whether the function reads encoder output from the state. */
bool function_has_source(const struct object *o, const struct function *f);
/* Argument slots of a call: the dims, then pointer and element count of each tensor. */
size_t function_arg_slots(const struct function *f);
/* Whether calls of the entry are served by f, a case of its function (CASE_NEVER: f is none). */
enum case_use { CASE_NEVER, CASE_SOMETIMES, CASE_ALWAYS };
enum case_use entry_case(const struct object *o, const struct entry *e, const struct function *f);
/* Lists the entries that the options request, and marks the functions that they reach. TFMC_INVALID after a diagnostic:
 * the model has none of them. */
TFMC_MUST_USE enum tfmc_status layout_entries(struct object *o);
/* Scratch bytes of the group that needs most, rounded up to OBJECT_ALIGN. */
int64_t groups_scratch(const struct ir_op *const *groups, size_t n);
/* Bytes of a stored element of a weight that is not quantized. */
int64_t weight_element_bytes(const struct ir_weight *w);
/* The layout of a weight, of a state, by name; NULL: it has none. */
const struct weight_layout *object_weight(const struct object *o, const struct ir_weight *w);
struct state_layout *object_state(const struct object *o, const struct ir_state_decl *d);
bool param_is_input(const struct ir_func *f, size_t i); /* a tensor that the caller passes */
bool result_is_output(const struct ir_func *f, size_t i);
/* Every result is an output without further readers: the group runs only if the caller requests one of
 * them. */
bool group_is_optional(const struct function *f, const struct ir_op *group);
/* Operand i of the return op. */
struct ir_value func_result(const struct ir_func *f, size_t i);

/* Stored elements of axes [from, rank) of a state, panels padded to 16 rows; -1: a dim is not constant, or
 * overflow. */
int64_t layout_state_count(const struct ir_state_decl *d, int from);

/* Target names of all variants, with the separator between them. */
const char *object_target_names(const struct object *o, const char *separator);
/* out: numbers of the dims that an entry takes, in slot order; returns their count. */
size_t entry_dims(const struct object *o, const struct entry *e, uint64_t *out);
/* The dim with the entry's fixed dim bound to 1. */
const struct ir_dim *entry_dim(const struct object *o, const struct entry *e, const struct ir_dim *d);

#endif
