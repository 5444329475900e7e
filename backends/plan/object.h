/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An object before its code: where weights, state, arena and all values lie, which entries there are. What is
 * emitted (backends/plan/emit.h, backends/host) reads it.
 */
#ifndef TFMC_BACKENDS_PLAN_OBJECT_H
#define TFMC_BACKENDS_PLAN_OBJECT_H

#include "backends/backend.h"
#include "backends/plan/plan.h"
#include "ir/builder/case.h"
#include "ir/core/view.h"

#define OBJECT_ALIGN 64

#define OBJECT_LINE_PAIR \
	128 /* bytes between words that several workers use: two lines are fetched together */
#define OBJECT_CLUSTERS    8
#define OBJECT_CLUSTER_MIN 4 /* workers that meet at one counter at least */

/* Byte offsets in the context. Words that workers write while they run have lines of their own. */
enum object_context {
	CONTEXT_MAGIC = 0,
	CONTEXT_WEIGHTS = 8,
	CONTEXT_STATE = 16,
	CONTEXT_ARENA = 24, /* workers' scratch, then what functions plan */
	CONTEXT_ARENA_BYTES = 32,
	CONTEXT_BUFFERS = 40, /* address after the scratch */
	CONTEXT_BATCH = 48,   /* sequences of the state */
	CONTEXT_WORKERS = 56,
	CONTEXT_PARALLEL_FOR = 64,
	CONTEXT_YIELD = 72,
	CONTEXT_USER = 80,
	CONTEXT_CLUSTER_SIZE = 88, /* workers of a cluster, but for the last one */
	CONTEXT_N_CLUSTERS = 96,
	CONTEXT_WORKERS_MAX = 104, /* that init was told of: the arena has room for so many */
	CONTEXT_VARIANT = 112,     /* number of the variant that init has chosen */
	/* Rows of calls: sequences from `first` on, which read what encode left in their own blocks, or all
	 * in that of sequence `source`. state.c writes these; the rest follows from the first two. */
	CONTEXT_FIRST = 120,
	CONTEXT_SOURCE = 128,      /* -1: their own */
	CONTEXT_PAST = 136,        /* address of the length of row 0 */
	CONTEXT_BLOCKS = 144,      /* address of the block of row 0 */
	CONTEXT_SOURCES = 152,     /* address of the block that row 0 reads of encode */
	CONTEXT_SOURCE_STEP = 160, /* sequences from the source of a row to that of the next: 1, or 0 */
	CONTEXT_ENCODED = 168,     /* address of the mark of row 0's source */
	CONTEXT_DEVICE = 176,      /* struct tfmc_cl_model; NULL: the variant runs on this processor */
	CONTEXT_SHARED = 256,      /* from here on: what workers write, backends/host/barrier.c */
	/* i32: marks of the call when a worker was told to stop, at a barrier and at the end of a call. */
	CONTEXT_CANCEL = CONTEXT_SHARED,
	CONTEXT_EXIT_CANCEL = CONTEXT_SHARED + OBJECT_LINE_PAIR,
	CONTEXT_RESULT = CONTEXT_SHARED + 2 * OBJECT_LINE_PAIR, /* i32 [2], by parity of the call */
	CONTEXT_ROOT = CONTEXT_SHARED + 3 * OBJECT_LINE_PAIR,
	CONTEXT_CLUSTERS = CONTEXT_SHARED + 4 * OBJECT_LINE_PAIR,
	CONTEXT_EXIT_ROOT = CONTEXT_CLUSTERS + 2 * OBJECT_CLUSTERS * OBJECT_LINE_PAIR,
	CONTEXT_EXIT_CLUSTERS = CONTEXT_EXIT_ROOT + OBJECT_LINE_PAIR,
	CONTEXT_BYTES = CONTEXT_EXIT_CLUSTERS + 2 * OBJECT_CLUSTERS * OBJECT_LINE_PAIR
};

/* Byte offsets in the fixed part of the state. */
enum object_state {
	STATE_PAST = 64 /* i32 [batch_max]; after it, with encode, i32 [batch_max]: 1 where it has filled a
	                   block */
};

struct weight_layout {
	const struct ir_weight *weight;
	int64_t offset, bytes; /* in the packed weights */
	int64_t rows, columns; /* of one matrix (ENC_PANEL16), or 1 and the whole count */
	int64_t matrices;
	int64_t matrix_bytes;
};

/* One after another in the packed weights. */
struct weight_list {
	struct weight_layout *items;
	size_t n, cap;
	int64_t bytes;
};

struct state_layout {
	const struct ir_state_decl *decl;
	int64_t offset, bytes; /* in the block of one sequence */
	bool grows;            /* tokens are appended to it; otherwise encode fills it */
	int64_t window;        /* > 0: a ring, of which so many tokens are read */
};

/* Of one sequence after another, after a fixed part. */
struct state_list {
	struct state_layout *items;
	size_t n, cap;
	int64_t fixed_bytes, batch_bytes; /* 0, 0: no state */
	int batch_dim;                    /* symbol of axis 0 of all states, -1: none */
	int64_t batch_max;
	int64_t context_limit; /* tokens of a sequence, 0: none */
	int64_t encoded_at;    /* offset of the marks of encode in the state; 0: the model has none */
	int64_t floor_at;      /* offset of the lengths that rings can be trimmed to; 0: the model has none */
	uint64_t hash;         /* of what the states hold, not of how they lie */
};

enum storage_kind {
	STORAGE_NONE,    /* not in memory: constants, indices, state values */
	STORAGE_ARENA,   /* at a planned offset */
	STORAGE_INPUT,   /* parameter `number` */
	STORAGE_LENGTHS, /* the lengths in the state */
	STORAGE_OUTPUT,  /* buffer of result `number`, or `at` when that is null */
	STORAGE_WEIGHT,  /* defined by a weight op */
	STORAGE_STATE,   /* a slice of a state */
};

struct place {
	enum storage_kind kind;
	size_t number;
	const struct ir_dim *at; /* byte offset after the scratch; NULL: no spare memory */
};

/* One IR function with everything about its memory. */
struct function {
	const struct ir_func *func;
	const struct ir_func *base; /* the function it is a case of, or func; has the same words */
	const char *symbol;         /* NAME.func: prefix of internal functions */
	bool *has_dim;              /* [dims of the module]: is an argument */
	size_t *dim_slot;           /* [dims of the module]: its word */
	size_t n_dims;
	size_t n_inputs, n_outputs;       /* tensors of the caller */
	size_t *param_slot;               /* [n_params]: word of the pointer */
	size_t *result_slot;              /* [n_results] */
	struct place **places;            /* [n_values]; values that share memory share one */
	const struct ir_dim **default_at; /* [n_params]: byte offset of a left-out input, NULL: none */
	bool has_defaults;                /* of any parameter */
	const struct ir_dim *sums_at; /* of devices: offset of what kernels leave for those that join it */
	const struct ir_dim *arena;   /* bytes after the scratch */
	int64_t scratch;              /* bytes for each worker */
	size_t n_groups;
	const struct ir_op **groups; /* in order of emission */
	const struct plan *plan;     /* backends/plan/commands.c; NULL: not made yet */
	size_t row;                  /* of a plan as bytes */
	uint32_t *uses;              /* [n_values] */
	bool has_state;
	bool reached;                /* by an entry */
	int past_param, past_result; /* -1: none */
};

struct entry {
	const char *name;
	enum tfmc_entry_kind kind;
	size_t function;
	int fixed_dim; /* a dim of the module that is 1, not an argument; -1: none */
};

struct kb_module; /* backends/kb/kb.h */
struct object {
	struct diag_context *cx;
	struct arena *arena;
	const struct ir_module *module;
	const struct target *target;
	const struct target
	        *driver; /* processor of the functions around kernels: the target, but for OpenCL */
	const struct backend_options *options;
	const char *name;
	const char *prefix; /* of internal symbols: the name; with several variants NAME.LEVEL */
	/* All variants, from the least demanding on; this one is among them. The interface is made from the
	 * first one: weights, state and entries are the same in all, scratch is the largest. */
	struct object *all;
	size_t n_all;

	struct weight_list weights;
	bool embedded;
	uint64_t structure_hash, weights_hash;

	struct state_list states;
	struct {
		struct function *items;
		size_t n, cap;
	} functions;
	struct {
		struct entry *items;
		size_t n, cap;
	} entries;
	int64_t scratch; /* largest of all functions */
	bool is_text; /* the recording is for C: who compiles it chooses the processor, nothing asks for it */

	struct {
		int64_t plan_bytes, source_bytes;
	} device;
	struct kb_module *kb;
};

/* Its kernels run on an OpenCL device. */
bool object_is_device(const struct object *o);
/* Those of one of the variants do. */
bool object_has_device(const struct object *o);
/* An object of one variant. */
void object_init(struct object *o, struct diag_context *cx, struct arena *arena,
                 const struct ir_module *planned, const struct target *target,
                 const struct backend_options *options);

/* ---- layout ---- */
/* The weights of all variants: one list, in each of them. */
TFMC_MUST_USE enum tfmc_status layout_weights(struct object *o);
/* After layout_weights: TFMC_INVALID after a message when the weights exceed the limit of the options. */
TFMC_MUST_USE enum tfmc_status check_weights_limit(struct object *o);
/* The same of the code that is recorded, the last of it that of `group`. */
TFMC_MUST_USE enum tfmc_status check_code_limit(const struct object *o, const struct ir_op *group);
/* After the layout of each variant: TFMC_INTERNAL when they do not fit together; the largest scratch in all.
 */
TFMC_MUST_USE enum tfmc_status layout_variants(struct object *o);
TFMC_MUST_USE enum tfmc_status layout_state(struct object *o);
TFMC_MUST_USE enum tfmc_status layout_functions(struct object *o);
bool function_is_encode(const struct function *f);
/* It reads what encode has left. */
bool function_has_source(const struct object *o, const struct function *f);
/* Of a call: its dims, then address and count of each tensor. */
size_t function_arg_slots(const struct function *f);
/* How a call of the entry and a case of its function meet. */
enum case_use { CASE_NEVER, CASE_SOMETIMES, CASE_ALWAYS };
enum case_use entry_case(const struct object *o, const struct entry *e, const struct function *f);
TFMC_MUST_USE enum tfmc_status layout_entries(struct object *o);
/* Fills f->places. carry: ir_lifetimes. */
TFMC_MUST_USE enum tfmc_status assign_storage(struct object *o, struct function *f, const uint32_t *carry);
/* Bytes of the group that needs most, in whole lines. */
int64_t groups_scratch(const struct ir_op *const *groups, size_t n);
/* Bytes of an element of a weight in rows. */
int64_t weight_element_bytes(const struct ir_weight *w);
const struct weight_layout *object_weight(const struct object *o, const struct ir_weight *w);
struct state_layout *object_state(const struct object *o, const struct ir_state_decl *d);
bool param_is_input(const struct ir_func *f, size_t i); /* a tensor the caller gives */
bool result_is_output(const struct ir_func *f, size_t i);
/* Every result is an output that nothing else reads: the group runs only when one of them is wanted. */
bool group_is_optional(const struct function *f, const struct ir_op *group);
/* The return op's operand number i. */
struct ir_value func_result(const struct ir_func *f, size_t i);

/* Elements after axis from - 1 of a state as it is stored: constant dims, panels as a whole. -1: too many. */
int64_t layout_state_count(const struct ir_state_decl *d, int from);
/* content.c: hash of what the states hold; after layout of the states. */
uint64_t state_content_hash(const struct object *o);

/* Names of the targets of all variants. */
const char *object_target_names(const struct object *o, const char *separator);
/* The dims of an entry in order of its words: numbers of the dims; returns how many. */
size_t entry_dims(const struct object *o, const struct entry *e, uint64_t *out);
/* A dim as the entry sees it. */
const struct ir_dim *entry_dim(const struct object *o, const struct entry *e, const struct ir_dim *d);
/* A hash continued with a text and its end, with a number (layout.c). */
uint64_t object_hash_text(uint64_t h, const char *s);
uint64_t object_hash_number(uint64_t h, int64_t v);

#endif
