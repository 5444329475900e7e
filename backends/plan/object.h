/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program around the kernels: what its files share. An object is laid out
 * first (weights, state, arena, places of all values), then emitted through the
 * kernel builder; both halves read this struct and only the first writes it.
 */
#ifndef TFMC_BACKENDS_PLAN_OBJECT_H
#define TFMC_BACKENDS_PLAN_OBJECT_H

#include "backends/backend.h"
#include "backends/kernel/group.h"
#include "ir/builder/case.h"
#include "ir/core/view.h"

#define OBJECT_ALIGN      64
#define OBJECT_REPEAT_MAX 4 /* repeats inside each other */
#define OBJECT_INDEX_MIN  2 /* indices that every function of a group takes */
/* First index among the words of a task: the group's function, the context, the arguments, indices. */
#define OBJECT_TASK_INDEX 3

#define OBJECT_LINE        128 /* bytes between words that several workers use: two lines are fetched together */
#define OBJECT_CLUSTERS    8
#define OBJECT_CLUSTER_MIN 4 /* workers that meet at one counter at least */

/* Byte offsets in the context. Words that workers write while they run have lines of their own. */
enum object_context {
	CONTEXT_MAGIC = 0,
	CONTEXT_WEIGHTS = 8,
	CONTEXT_STATE = 16,
	CONTEXT_ARENA = 24, /* workers' scratch, then what functions plan */
	CONTEXT_ARENA_BYTES = 32,
	CONTEXT_PLAN = 40,  /* address after the scratch */
	CONTEXT_BATCH = 48, /* sequences of the state */
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
	CONTEXT_SHARED = 256,      /* from here on: what workers write, backends/host/barrier.c */
	/* i32: marks of the call when a worker was told to stop, at a barrier and at the end of a call. */
	CONTEXT_CANCEL = CONTEXT_SHARED,
	CONTEXT_EXIT_CANCEL = CONTEXT_SHARED + OBJECT_LINE,
	CONTEXT_RESULT = CONTEXT_SHARED + 2 * OBJECT_LINE, /* i32 [2], by parity of the call */
	CONTEXT_ROOT = CONTEXT_SHARED + 3 * OBJECT_LINE,
	CONTEXT_CLUSTERS = CONTEXT_SHARED + 4 * OBJECT_LINE,
	CONTEXT_EXIT_ROOT = CONTEXT_CLUSTERS + 2 * OBJECT_CLUSTERS * OBJECT_LINE,
	CONTEXT_EXIT_CLUSTERS = CONTEXT_EXIT_ROOT + OBJECT_LINE,
	CONTEXT_BYTES = CONTEXT_EXIT_CLUSTERS + 2 * OBJECT_CLUSTERS * OBJECT_LINE
};

/* Byte offsets in the fixed part of the state. */
enum object_state {
	STATE_PAST = 64 /* i32 [batch_max]; after it, with encode, i32 [batch_max]: 1 where it has filled a
	                   block */
};

struct weight_place {
	const struct ir_weight *weight;
	int64_t offset, bytes; /* in the packed weights */
	int64_t rows, columns; /* of one matrix (ENC_PANEL16), or 1 and the whole count */
	int64_t matrices;
	int64_t matrix_bytes;
};

struct state_place {
	const struct ir_state_decl *decl;
	int64_t offset, bytes; /* in the block of one sequence */
	bool grows;            /* tokens are appended to it; otherwise encode fills it */
	int64_t window;        /* > 0: a ring, of which so many tokens are read */
};

enum place_kind {
	PLACE_NONE,   /* not in memory: constants, indices, state values */
	PLACE_PLAN,   /* at a planned offset */
	PLACE_INPUT,  /* parameter `number` */
	PLACE_PAST,   /* the lengths in the state */
	PLACE_OUTPUT, /* buffer of result `number`, or `at` when that is null */
	PLACE_WEIGHT, /* defined by a weight op */
	PLACE_SLICE,  /* a slice of a state */
};

struct place {
	enum place_kind kind;
	size_t number;
	const struct ir_dim *at; /* byte offset after the scratch; NULL: no spare memory */
};

/* One IR function with everything about its memory. */
struct function {
	const struct ir_func *func;
	const struct ir_func *base; /* the function it is a case of, or func; has the same words */
	const char *symbol;         /* NAME.func: prefix of internal functions */
	bool *has_dim;              /* [dims of the module]: is an argument */
	size_t *dim_word;           /* [dims of the module]: its word */
	size_t n_dims;
	size_t n_inputs, n_outputs;       /* tensors of the caller */
	size_t *param_word;               /* [n_params]: word of the pointer */
	size_t *result_word;              /* [n_results] */
	struct place *places;             /* [n_values] */
	const struct ir_dim **default_at; /* [n_params]: byte offset of a left-out input, NULL: none */
	const struct ir_dim *arena;       /* bytes after the scratch */
	int64_t scratch;                  /* bytes for each worker */
	size_t n_groups;
	const struct ir_op **groups; /* in order of emission */
	int64_t *parts;   /* [n_groups]: of heads, that group i and the next one divide alike; 1: none */
	bool *is_divided; /* [n_groups]: the kernel does so */
	uint32_t *uses;   /* [n_values] */
	bool has_state, has_past;
	bool reached;                /* by an entry */
	int past_param, past_result; /* -1: none */
};

struct entry {
	const char *name;
	enum tfmc_entry_kind kind;
	size_t function;
	int fixed_dim; /* a dim of the module that is not an argument; -1: none */
	int64_t fixed_value;
};

struct object {
	struct diag_context *cx;
	struct arena *arena;
	const struct ir_module *module;
	const struct target *target;
	const struct backend_options *options;
	const char *name;
	const char *prefix; /* of internal symbols: the name; with several variants NAME.LEVEL */
	/* All variants, from the least demanding on; this one is among them. The interface is made from the
	 * first one: weights, state and entries are the same in all, scratch is the largest. */
	struct object *all;
	size_t n_all;

	struct {
		struct weight_place *items;
		size_t n, cap;
	} weights;
	int64_t weights_bytes;
	bool embedded;
	uint64_t structure_hash, weights_hash;

	struct {
		struct state_place *items;
		size_t n, cap;
	} states;
	int64_t state_fixed_bytes, state_batch_bytes; /* 0, 0: no state */
	int batch_dim;                                /* symbol of axis 0 of all states, -1: none */
	int64_t batch_max;
	int64_t context_limit; /* tokens of a sequence, 0: none */
	int64_t encoded_at;    /* offset of the marks of encode in the state; 0: the model has none */
	int64_t floor_at;      /* offset of the lengths that rings can be trimmed to; 0: the model has none */
	uint64_t state_hash;   /* of what the states hold, not of how they lie */

	struct {
		struct function *items;
		size_t n, cap;
	} functions;
	struct {
		struct entry *items;
		size_t n, cap;
	} entries;
	int64_t scratch;  /* largest of all functions */
	size_t n_indices; /* of repeats, that every function of a group takes: those of the deepest one */
	bool is_text; /* the recording is for C: who compiles it chooses the processor, nothing asks for it */

	struct kb_module *kb;
};

/* An object of one variant. */
void object_init(struct object *o, struct diag_context *cx, struct arena *arena,
                 const struct ir_module *planned, const struct target *target,
                 const struct backend_options *options);

/* ---- layout ---- */
/* The weights of all variants: one list, in each of them. */
TFMC_MUST_USE enum tfmc_status layout_weights(struct object *o);
/* After layout_weights: TFMC_INVALID after a message when the weights exceed the limit of the options. */
TFMC_MUST_USE enum tfmc_status budget_weights(struct object *o);
/* The same of the code that is recorded, the last of it that of `group`. */
TFMC_MUST_USE enum tfmc_status budget_code(const struct object *o, const struct ir_op *group);
/* After the layout of each variant: TFMC_INTERNAL when they do not fit together; the largest scratch in all.
 */
TFMC_MUST_USE enum tfmc_status layout_variants(struct object *o);
TFMC_MUST_USE enum tfmc_status layout_state(struct object *o);
TFMC_MUST_USE enum tfmc_status layout_functions(struct object *o);
bool function_is_encode(const struct function *f);
/* How a call of the entry and a case of its function meet. */
enum case_use { CASE_NEVER, CASE_SOMETIMES, CASE_ALWAYS };
enum case_use entry_case(const struct object *o, const struct entry *e, const struct function *f);
TFMC_MUST_USE enum tfmc_status layout_entries(struct object *o);
/* Fills f->places. */
TFMC_MUST_USE enum tfmc_status places_find(struct object *o, struct function *f);
/* Bytes of an element of a weight in rows. */
int64_t weight_element_bytes(const struct ir_weight *w);
const struct weight_place *object_weight(const struct object *o, const struct ir_weight *w);
const struct state_place *object_state(const struct object *o, const struct ir_state_decl *d);
/* x rounded up to OBJECT_ALIGN. */
const struct ir_dim *object_round_up(const struct object *o, const struct ir_dim *x);
/* Bytes of a tensor type, rounded up. */
const struct ir_dim *object_tensor_bytes(const struct object *o, const struct ir_type *t);
bool param_is_input(const struct ir_func *f, size_t i); /* a tensor the caller gives */
bool result_is_output(const struct ir_func *f, size_t i);
/* Every result is an output that nothing else reads: the group runs only when one of them is wanted. */
bool group_is_optional(const struct function *f, const struct ir_op *group);
/* The return op's operand number i. */
struct ir_value func_result(const struct ir_func *f, size_t i);

/* Streams the packed weights; each piece goes to `sink` (may be NULL) at `base` + its offset. Sets
 * weights_hash. */
TFMC_MUST_USE enum tfmc_status pack_weights(struct object *o, const struct weight_source *source,
                                            const struct backend_sink *sink, uint64_t base);
TFMC_MUST_USE enum tfmc_status pack_header(struct object *o, const struct backend_sink *sink);

/* content.c: hash of what the states hold; after layout of the states. */
uint64_t state_content_hash(const struct object *o);

/* ---- bases ---- */
/* A slice of a state at indices of the axes after the batch. */
struct binding_slice {
	const struct state_place *state;
	const struct ir_value *at;
	size_t n_at;
};

/* Memory with leading axes that are indexed: `offset` bytes, then unit_bytes for each unit of elements. */
struct binding_indexed {
	const struct ir_type *type;
	int first;                         /* axis of the first index */
	const struct ir_state_decl *state; /* NULL: no state */
	int64_t unit;
	int64_t unit_bytes;
	int64_t offset;
};

/* The slice that a state op works on. False: it is no such op. */
bool binding_state_slice(const struct object *o, const struct ir_func *f, const struct ir_op *op,
                         struct binding_slice *out);
/* The slice that v is, or was in the group it came from. False: none. */
bool binding_find_slice(const struct object *o, const struct ir_func *f, struct ir_value v,
                        struct binding_slice *out);
/* Elements after axis from - 1 of a state as it is stored: constant dims, panels as a whole. 0: too many. */
bool layout_state_count(const struct ir_state_decl *d, int from, int64_t *out);
struct binding_indexed binding_slice_axes(const struct object *o, const struct binding_slice *s);
/* The weight that an OP_weight refers to, in the packed weights. False: it has no elements or no place. */
bool binding_weight_axes(const struct object *o, const struct ir_op *op, struct binding_indexed *out);
/* Units after the first n indexed axes: what one step of index n - 1 skips. */
int64_t binding_units(const struct binding_indexed *x, size_t n);

/* Where kernels get addresses from when not from the object's memory: of bases that are slices of states, and
 * of all others. */
struct touch; /* backends/plan/touch.h */
struct emit_bases {
	bool (*slice)(void *user, const struct binding_slice *s, struct kb_val *ptr);
	bool (*place)(void *user, struct ir_value base, struct kb_val *ptr);
	void *user;
};

/* ---- emission ---- */
/* A function of the object under construction, with what all of its code reads. */
struct emit {
	const struct object *object;
	const struct function *function; /* NULL in functions of the interface */
	struct kb *k;
	struct kb_val context, args;
	const struct kb_val *dims; /* [dims of the module], none where absent */
	struct kb_val plan, weights, state;
	struct kb_val past, blocks, sources; /* addresses for row 0, of a function that has state */
	struct kb_val source_step;           /* none: as many sequences as rows */
	const struct ir_value *repeat_index; /* [n_repeats] */
	struct kb_val index[OBJECT_REPEAT_MAX];
	size_t n_repeats;
	const struct ir_op *group;
	const struct emit_bases *bases; /* NULL: the object's memory */
};

struct kb_val emit_context(struct emit *e, enum kb_scalar type, int64_t offset);
void emit_set_context(struct emit *e, struct kb_val v, int64_t offset);
/* if (cond) return status; */
void emit_return_if(struct emit *e, struct kb_val cond, enum tfmc_rt_status status);
/* Loads all dims of the function from the argument words. */
void emit_load_dims(struct emit *e);
/* Loads the addresses groups use. */
void emit_load_bases(struct emit *e);
/* A state that the function reads of encode, possibly of another sequence. */
bool binding_is_source(const struct emit *e, const struct state_place *p);
struct kb_val emit_word(struct emit *e, enum kb_scalar type, size_t word);
struct kb_val emit_dim(struct emit *e, const struct ir_dim *d);
struct kb_size emit_size(struct emit *e, const struct ir_dim *d);
/* All conditions of a case, over e->dims. */
struct kb_val emit_conditions(struct emit *e, const struct ir_case *c);
/* Addresses in the object's memory. False: the base has none, such as a slice or weight at a computed index. */
bool binding_has_address(const struct emit *e, const struct touch *t);
bool binding_slice_address(struct emit *e, const struct binding_slice *s, struct kb_val *ptr);
bool binding_address(struct emit *e, struct ir_value base, struct kb_val *ptr);
/* The last two words of a path, as one identifier: "encoder.layers.self.q.weight" gives q_weight. */
const char *emit_short_name(struct arena *a, const char *path);
/* A symbol of the interface, or of what the variants share: NAME and the text. */
const char *emit_name(const struct object *o, const char *fmt, ...) TFMC_PRINTF(2, 3);
/* The name of an internal function of a variant: its prefix and the text. */
const char *emit_internal(const struct object *o, const char *fmt, ...) TFMC_PRINTF(2, 3);

/* Sets repeat_index, n_repeats from e->group: the repeats around it, outermost first, into index
 * [OBJECT_REPEAT_MAX]. TFMC_INVALID after a diagnostic when there are too many. */
TFMC_MUST_USE enum tfmc_status emit_find_repeats(struct emit *e, struct ir_value *index);
/* Where the group comes from. */
void emit_group_comment(struct emit *e);
struct kernel_binding binding_of(struct emit *e);
struct kb_val binding_input(struct emit *e, size_t param);

TFMC_MUST_USE enum tfmc_status emit_groups(struct object *o, struct function *f);
const char *group_symbol(const struct object *o, const struct function *f, size_t group);
/* The function of the second step of an attention (kernel_has_join). */
const char *group_join_symbol(const struct object *o, const struct function *f, size_t group);
void emit_check(struct object *o, const struct function *f);    /* NAME.func.check(context, args) */
void emit_schedule(struct object *o, const struct function *f); /* .defaults .body .tasks */
void emit_calls(struct object *o, const struct function *f);    /* .commit .finish .spmd .single */
void emit_barriers(struct object *o);                           /* NAME.barrier NAME.leave NAME.task */
/* Writes the words of a context that depend on the number of workers. */
void emit_set_workers(struct emit *e, struct kb_val n);
/* NAME_ENTRY NAME_ENTRY_spmd; with several variants NAME.LEVEL.ENTRY NAME.LEVEL.ENTRY_spmd */
void emit_entry(struct object *o, const struct entry *e);
/* Several variants: the exported forms, which call those of the chosen one. */
void emit_entry_choice(struct object *o, const struct entry *e);
void emit_api(struct object *o);
/* Functions of the interface; false: no memory. The context is not loaded. */
bool api_begin(struct emit *e, struct object *o, const char *suffix, enum kb_scalar result);
void api_require(struct emit *e, struct kb_val ok, enum tfmc_rt_status status);
void api_check_magic(struct emit *e);
void api_zero_words(struct emit *e, struct kb_val ptr, struct kb_val bytes); /* a multiple of 8 bytes */
void emit_state_api(struct object *o); /* reset, trim, fork, select, reorder */
/* Writes the words of a context that follow from the first row's sequence and the shared source (-1: none).
 */
void emit_set_window(struct emit *e, struct kb_val state, struct kb_val first, struct kb_val source);
void emit_cpu(struct object *o); /* NAME.cpu() -> status, for each variant */
/* What emit_choice gives beside the number of a variant. */
enum choice { CHOICE_NO_CPU = -1, CHOICE_NO_VARIANT = -2 };
void emit_choice(
        struct object *o); /* NAME.choose(allowed) -> index: the best variant that is allowed and runs */
/* Functions that must run on every processor. */
const char *const *api_baseline(const struct object *o, size_t *n);

/* Names of the targets of all variants. */
const char *object_targets(const struct object *o, const char *separator);
/* The arena at the bounds of all dims, beside the scratch: the largest of all variants. */
int64_t object_arena_max(const struct object *o);
/* The constant data NAME_record. */
TFMC_MUST_USE enum tfmc_status record_build(struct object *o, struct buf *out);
void header_build(const struct object *o, struct buf *out);
/* The dims of an entry in order of its words: numbers of the dims; returns how many. */
size_t entry_dims(const struct object *o, const struct entry *e, uint64_t *out);
/* A dim as the entry sees it. */
const struct ir_dim *entry_dim(const struct object *o, const struct entry *e, const struct ir_dim *d);
/*
 * Prepares an ELF object for `size` bytes of weights in a read-only section, with the symbol at its
 * beginning. The file then consists of object[0, EMBED_AT), the weights filled up to embed_gap(size) bytes,
 * object[EMBED_AT, len).
 */
#define EMBED_AT 64
uint64_t embed_gap(uint64_t size);
TFMC_MUST_USE enum tfmc_status embed_room(struct diag_context *cx, struct buf *object, const char *symbol,
                                          uint64_t size);

/* A hash continued with a text and its end, with a number (layout.c). */
uint64_t object_hash_text(uint64_t h, const char *s);
uint64_t object_hash_number(uint64_t h, int64_t v);

#endif
