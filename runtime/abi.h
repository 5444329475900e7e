/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The binary interface between compiled objects and their callers. The compiler writes these layouts, the
 * runtime library and generated headers read them. All integers are little-endian; structs consist of 8-byte
 * fields (no padding) except where stated.
 */
#ifndef TFMC_RUNTIME_ABI_H
#define TFMC_RUNTIME_ABI_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define TFMC_ABI_VERSION  11u
#define TFMC_RECORD_MAGIC 0x31434d46u /* "FMC1" */
/* Limits of an object that a session can call. */
#define TFMC_DIMS_MAX    16
#define TFMC_TENSORS_MAX 128 /* inputs and outputs of an entry */

/* Status codes of every call into an object, one row each: name, value, text. */
#define TFMC_STATUS_TABLE(X)                                                                                 \
	X(OK, 0, "ok")                                                                                       \
	X(E_NULL, 1, "a required pointer is null")                                                           \
	X(E_SIZE, 2, "a buffer is smaller than its tensor, or memory is too small")                          \
	X(E_ALIGN, 3, "memory is not aligned to 64 bytes")                                                   \
	X(E_DIM, 4, "a dimension is outside of its bounds")                                                  \
	X(E_LENGTH, 5, "a length is negative or larger than the dimension it measures")                      \
	X(E_TOKEN, 6, "a token id is outside of the vocabulary")                                             \
	X(E_CONTEXT, 7, "the context is not initialised")                                                    \
	X(E_ABI, 8, "the caller was built for another interface version")                                    \
	X(E_WEIGHTS, 9, "the weights are those of another object, or damaged")                               \
	X(E_CPU, 10,                                                                                         \
	  "this processor lacks instructions the object was compiled for, or config.system does not "        \
	  "say that it has them")                                                                            \
	X(E_FULL, 11, "the state has no room for that many tokens")                                          \
	X(E_WORKER, 12, "a worker number is outside of the workers of the context")                          \
	X(E_CANCELLED, 13, "the call was cancelled")                                                         \
	X(E_ENTRY, 14, "the object has no such entry")                                                       \
	X(E_STATE, 15, "the entry needs state the context was not given, or encode was not called")          \
	X(E_VARIANT, 16, "the object does not hold a variant that is allowed")                               \
	X(E_OVERWRITTEN, 17, "a ring of the state has overwritten tokens that the sequence would need")      \
	X(E_NO_WEIGHTS, 18,                                                                                  \
	  "the weights are not in this object: give it the file NAME.weights beside it, of a rank "          \
	  "NAME.RANK.weights")                                                                               \
	X(E_DEVICE, 19, "there is no such OpenCL device, or it failed")                                      \
	X(E_RANKS, 20, "the object is one of several ranks, and config.ranks is for another number of them") \
	X(E_RANK, 21, "another rank failed or is gone")

enum tfmc_rt_status {
#define X(name, value, text) TFMC_RT_##name = value,
	TFMC_STATUS_TABLE(X)
#undef X
};

/* Generated headers carry the same text up to the matching #endif, so that they need no other header. */
#ifndef TFMC_CONFIG_DEFINED
#define TFMC_CONFIG_DEFINED
/* Runs fn(arg, i, n) for i = 0 .. n-1, in any order, concurrently or not, and returns when all are done. */
typedef void tfmc_task_fn(void *arg, int64_t worker, int64_t n_workers);
typedef void tfmc_parallel_for_fn(void *user, int64_t n, tfmc_task_fn *fn, void *arg);
/* Called by a worker that has waited long at a barrier. Nonzero cancels the call. */
typedef int32_t tfmc_yield_fn(void *user);

/*
 * Told at the end of a call, in order, for each kernel that ran: a number of its own; the first of the
 * function's groups, as `tfmc bench --groups` lists them, that it computes; how long it ran.
 */
typedef void tfmc_launched_fn(void *user, uint64_t kernel, uint64_t group, uint64_t nanoseconds);

/* Which OpenCL device, of objects with code for one. Zeros: the best one. */
struct tfmc_device {
	const char *name;    /* its number, or a part of its name */
	const char *library; /* file of the OpenCL library; NULL: the one that the loader finds */
	const char *cache;   /* folder where programs are kept once they are built; NULL: built each time */
	/* [message_bytes]: why the last call that gave E_DEVICE failed, a text. NULL: not wanted. */
	char *message;
	uint64_t message_bytes;
	tfmc_launched_fn *launched; /* NULL: not wanted, and times are not measured */
	void *user;                 /* of launched */
};

/*
 * One of several processes (ranks) that run an object compiled with --shards, each with its own weights (tensor
 * parallelism, pipeline). Rank 0 leads: its application calls the object, the others repeat its calls. All functions
 * return at once after a failure, which is for good: status says so.
 *
 * Exchanges are among the `group` ranks r with equal r / group, a stage of a pipeline; group is n, or one other divisor
 * of it, the same in all calls. Stage 1 is the first one, stage 0 the last one, with the logits, for the leader.
 */
struct tfmc_ranks {
	uint64_t struct_size; /* sizeof(struct tfmc_ranks) */
	void *user;
	int64_t rank, n; /* this one, and their number */
	/*
	 * out [count] = the sum of x [count] of the ranks of the group, added in f32 as a tree of neighbours:
	 * ((0 + 1) + (2 + 3)) + .. Called by each of `workers` workers of the rank, which may divide the elements, with
	 * x complete; the number of workers may differ between ranks, the order of calls may not. x may be written
	 * after the return; out is complete when all workers have returned. x and out do not overlap. tag: number of
	 * the exchange in its function, equal on all ranks.
	 */
	void (*sum)(void *user, const float *x, float *out, uint64_t count, int64_t group, uint64_t tag,
	            int64_t worker, int64_t workers);
	/* out [rows][group][width] = x [rows][width] of the ranks in their order; all else as of sum. width > 0 */
	void (*gather)(void *user, const float *x, float *out, uint64_t rows, uint64_t width, int64_t group,
	               uint64_t tag, int64_t worker, int64_t workers);
	/*
	 * Two stages or more, each message as of sum: out [count] = x [count]. send: x goes to rank + group, modulo n,
	 * unless this is the last stage. receive: out is what rank - group sends, unless this is the first stage.
	 * Messages of a rank are received in the order in which it sends them, with equal counts; a sender waits for
	 * the receiver or not.
	 */
	void (*send)(void *user, const float *x, float *out, uint64_t count, int64_t group, uint64_t tag,
	             int64_t worker, int64_t workers);
	void (*receive)(void *user, const float *x, float *out, uint64_t count, int64_t group, uint64_t tag,
	                int64_t worker, int64_t workers);
	/* 0, or nonzero for good: another rank failed or is gone. By one worker, at the end of a call. */
	int32_t (*status)(void *user);
	/* data [bytes] of rank 0 to all, between calls, by one thread; followers wait without a limit. As status. */
	int32_t (*broadcast)(void *user, void *data, uint64_t bytes);
};

/* Given to init. Zero-initialise, set struct_size. All memory belongs to the caller. */
struct tfmc_config {
	uint64_t struct_size; /* sizeof(struct tfmc_config) */
	const void *weights;  /* NULL: the embedded ones; else the packed weights, 64-byte aligned */
	uint64_t weights_bytes;
	void *state; /* 64-byte aligned; NULL when no entry with state is called */
	uint64_t state_bytes;
	void *arena; /* 64-byte aligned; shared by all entries, holds nothing between calls */
	uint64_t arena_bytes;
	int64_t batch;   /* sequences the state has room for, 1 .. bound of B; 0: as many as fit */
	int64_t workers; /* 0 and 1: one worker */
	/* For the single-call form with several workers; NULL: one does all. */
	tfmc_parallel_for_fn *parallel_for;
	tfmc_yield_fn *yield; /* may be NULL */
	void *user;           /* for parallel_for and yield */
	uint64_t variants; /* bit i allows variant i of the record; 0: all. The best one that runs is taken */
	/*
	 * What only the operating system knows of the processor; 0: variants that need it are not taken.
	 * x86-64: [0] the register state this process may use, as arch_prctl(ARCH_GET_XCOMP_PERM) of Linux gives
	 * it. Tiles (AMX) are bit 18, after arch_prctl(ARCH_REQ_XCOMP_PERM, 18). aarch64: AT_HWCAP and AT_HWCAP2.
	 */
	uint64_t system[2];
	const struct tfmc_device *device; /* stays until the context is closed; NULL: as one of zeros */
	/* Nonzero: all bytes of `state` are 0, as calloc and mmap return them. Init then writes none of them, so
	 * that pages of a large state take no memory before a token needs them. 0: init writes zeros. */
	int64_t state_is_zero;
	const struct tfmc_ranks
	        *ranks; /* stays until the context is closed; NULL: the object is for one process */
};
#endif

/*
 * Arguments of an entry are 8-byte slots: the dims of the entry in the order of the record, then {pointer,
 * number of elements} for each input and output. Generated headers name them; generic callers fill the array.
 * An omitted input with a default and an unwanted output are null pointers.
 */
struct tfmc_buffer {
	void *data;
	uint64_t count; /* number of elements */
};

/* An execution of a group (ops that one kernel computes), to be shown: struct tfmc_timeline_options of tfmc_rt.h. */
struct tfmc_group_query {
	tfmc_task_fn *group;
	int64_t entry;       /* -1: unknown */
	const int64_t *dims; /* all of the record, 0 where the entry has none of it; NULL: unknown */
	int64_t iteration;   /* executions of the group in its call before: the number of the layer */
};
/* Strings in UTF-8, valid until the next question. */
struct tfmc_group_label {
	/* Of the step: decoder.layers.#12#.attention, where the last #N# stands for iteration mod N, the one before it
	 * for (iteration / N) mod its own number, and so on; #N*STEP+FIRST# for that times STEP plus FIRST. */
	const char *path;
	const char *line;    /* of the model file: model.yaml:25; NULL: unknown */
	const char *kernel;  /* kind and block sizes; NULL: unknown */
	double bytes, flops; /* of weights; operations of matrix products */
};

/*
 * The record of an object: this struct, then entries, dims and tensors at byte offsets from its beginning;
 * strings are zero-terminated.
 */
struct tfmc_record {
	uint32_t magic, abi_version;
	uint64_t bytes;              /* size of the record */
	uint64_t structure_hash;     /* of everything except the values of the weights */
	uint64_t weights_hash;       /* of the packed weights; several ranks: of those that all ranks have */
	uint64_t name;               /* offset of the model's name */
	uint64_t target;             /* offset of the target's name; several variants: all names,
				   comma-separated */
	uint64_t weights_bytes;      /* size of the packed weights, without the file header */
	uint64_t weights_embedded;   /* 1: embedded in the object */
	uint64_t context_bytes;      /* size of the context struct */
	uint64_t state_fixed_bytes;  /* size of the fixed part of the state ... */
	uint64_t state_batch_bytes;  /* ... and of each sequence; 0: no state */
	uint64_t arena_bytes_max;    /* at the upper bounds of all dims, without workers' scratch */
	uint64_t scratch_bytes;      /* arena bytes of each worker in addition */
	uint64_t context_limit;      /* capacity of a sequence in tokens; 0: no state */
	uint64_t n_dims, dims;       /* struct tfmc_record_dim [n_dims] */
	uint64_t n_entries, entries; /* struct tfmc_record_entry [n_entries] */
	uint64_t n_variants,
	        variants; /* uint64 [n_variants]: offsets of their names, least demanding first */
	/* For generation; -1 or 0 where absent. */
	int64_t start, n_start; /* offset of int64 ids; their number */
	int64_t stop, n_stop;
	int64_t suppress, n_suppress;
	int64_t suppress_first, n_suppress_first;
	int64_t pad, max_len;
	int64_t generate_kind;                 /* 0 none, 1 causal, 2 seq2seq */
	int64_t vocabulary, source_vocabulary; /* offsets of newline-separated tokens, line i is id i; 0:
					          none */
	int64_t unknown_token;                 /* offset of the string of the unknown token, 0: none */
	int64_t source_name, tokens_name,
	        logits_name; /* offsets of the names of generate's tensors, 0: none */
	/* Layout of the state, for serialization. Fixed part: i32 lengths of all sequences at `past`; with
	 * `encode` i32 marks at `encoded` (0: no encode), nonzero: the source of the sequence is filled. */
	uint64_t past, encoded;
	uint64_t state_hash;                 /* of the contents of the states, independent of their layout */
	uint64_t n_states, states;           /* struct tfmc_record_state [n_states] */
	uint64_t tokenizer, tokenizer_bytes; /* the packed tokenizer (libtfmctok), 8-byte aligned; 0: none */
	int64_t prefix;     /* length of the bidirectional prefix, which must come in one call; max_len: an
			   input has the length */
	uint64_t floor;     /* offset of i32 for each sequence in the fixed part, if states are sliding
			   windows: least length > 0 that trim allows; 0: none */
	uint64_t system[2]; /* bits of tfmc_config.system that some variant requires */
	/* > 0 (longrope): a call that makes a sequence longer than this uses the long rotary frequencies,
	 * and prefill, step and score have the input `call_end`, i32 [B]: the length after the last chunk
	 * of a text that is read in several calls. */
	int64_t long_from;
	int64_t reread; /* 1: generation prefills a sequence that grows past long_from again from its first
			   token */
	int64_t ranks;  /* processes that run the object together, each with its own weights; 1: one alone */
	uint64_t program_hash; /* of several ranks: of what the code computes, and of the compiler; else 0 */
};

/* One state in the block of a sequence: axes [B, ..], row-major; dims[0] is 0. */
struct tfmc_record_state {
	uint64_t name; /* offset */
	uint64_t dtype, rank;
	uint64_t offset; /* byte offset in the block */
	uint64_t panels; /* 1: its matrices [rows, columns] are packed in panels, [ceil(rows /
			    16)][columns][16] */
	uint64_t grows;  /* 1: axis rank - 2 is tokens; 0: filled by encode */
	uint64_t window; /* > 0: a sliding window, position p in row p mod dims[rank - 2] */
	int64_t dims[8];
};

/* Generated headers carry the same text up to the matching #endif. */
#ifndef TFMC_MODEL_DEFINED
#define TFMC_MODEL_DEFINED
/*
 * The functions of an object by role, for generic callers. Generated headers make one (NAME_model()). Entries
 * are numbered as in the record. `args` are the words described above.
 */
struct tfmc_model {
	const struct tfmc_record *record;
	int32_t (*init)(void *context, const struct tfmc_config *config);
	/* worker >= 0: SPMD form, called by every worker; -1: single-call form. */
	int32_t (*call)(void *context, uint64_t entry, const uint64_t *args, int64_t worker);
	int32_t (*reset)(void *context);
	int32_t (*trim)(void *context, int64_t sequence, int64_t length);
	int32_t (*fork)(void *context, int64_t from, int64_t to);
	int32_t (*select)(void *context, int64_t first, int64_t source);
	int32_t (*reorder)(void *context, const int64_t *from, int64_t n);
	/* Between a device and the memory of the state that init was given, one sequence; without a device nothing. */
	int32_t (*fetch)(void *context, int64_t sequence);
	int32_t (*store)(void *context, int64_t sequence);
	/* Gives back what init has taken of a device. */
	int32_t (*close)(void *context);
	/* Number of the variant that init has chosen; -1: the context is not initialised. */
	int64_t (*variant)(void *context);
	/* Between calls: how many workers later calls have, 1 to those of the config. */
	int32_t (*set_workers)(void *context, int64_t workers);
	/* dims: one value for every dim of the record. Bytes that are enough for every entry at these dims. */
	uint64_t (*arena_size)(const int64_t *dims, int64_t workers);
	uint64_t (*state_size)(int64_t batch);
};
#endif

/*
 * OpenCL code of an object, which it passes to libtfmccl (functions: runtime/opencl/model.h). Objects without
 * such code call nothing. Fields of 8 bytes.
 */
enum tfmc_cl_for { TFMC_CL_FOR_ANY, TFMC_CL_FOR_WIDE_CPU, TFMC_CL_FOR_GPU }; /* device families */
struct tfmc_cl_code {
	const void *plan; /* runtime/opencl/plan_format.h */
	uint64_t plan_bytes;
	const char *source; /* OpenCL C of all kernels, not terminated */
	uint64_t source_bytes;
	const void *weights; /* packed; valid as long as the model */
	uint64_t weights_bytes;
	uint64_t devices; /* enum tfmc_cl_for: device family */
	uint64_t batch;   /* sequences of the state; 0: no state */
};

/* Call of a function of the plan. */
struct tfmc_cl_call {
	uint64_t function;                 /* index in the plan */
	int32_t *past;                     /* [B]: lengths of the rows, updated by the call; NULL: no state */
	int64_t first;                     /* sequence of row 0 */
	int64_t source;                    /* sequence whose source all rows read; -1: each its own */
	const int64_t *dims;               /* [rows of DIMS] */
	const struct tfmc_buffer *params;  /* [params] counts in bytes; data NULL: not a tensor of the
					      caller */
	const struct tfmc_buffer *results; /* [results] data NULL: unwanted, or not a tensor of the caller */
};

/*
 * A weights file of one rank: this header, zero-padded to TFMC_WEIGHTS_DATA bytes, then the packed weights.
 * weights_hash is tfmc_weights_hash_end over the packed bytes.
 */
#define TFMC_WEIGHTS_MAGIC 0x31535448474957ull /* "WIGHTS1" */
#define TFMC_WEIGHTS_DATA  4096u
struct tfmc_weights_header {
	uint64_t magic;
	uint64_t abi_version;
	uint64_t structure_hash; /* of the object that it belongs to */
	uint64_t weights_hash;
	uint64_t bytes;    /* of the packed weights */
	uint64_t set_hash; /* the record's weights_hash: of the weights that all ranks have */
	int64_t rank;      /* whose weights they are, 0 .. ranks - 1 */
	int64_t ranks;
};

/*
 * Hash of packed weights: 16 interleaved FNV-1a streams (64 bit) over little-endian u32, word i in stream i
 * mod 16 (the last one zero-padded), then FNV-1a over the streams and the number of bytes. Detects accidents,
 * not attacks; the streams make it as fast as memory.
 */
#define TFMC_HASH_STREAMS 16u
#define TFMC_HASH_SEED    0xcbf29ce484222325ull
#define TFMC_HASH_PRIME   0x100000001b3ull
struct tfmc_weights_hash {
	uint64_t streams[TFMC_HASH_STREAMS];
	uint64_t bytes;
};

static inline void tfmc_weights_hash_begin(struct tfmc_weights_hash *h)
{
	for (unsigned i = 0; i < TFMC_HASH_STREAMS; i++)
		h->streams[i] = TFMC_HASH_SEED;
	h->bytes = 0;
}

/* All calls but the last pass a multiple of 4 bytes. */
static inline void tfmc_weights_hash_add(struct tfmc_weights_hash *h, const void *data, uint64_t n)
{
	const unsigned char *p = (const unsigned char *)data;
	unsigned stream = (unsigned)(h->bytes / 4 % TFMC_HASH_STREAMS);
	uint32_t line[TFMC_HASH_STREAMS];
	h->bytes += n;
	for (; stream == 0 && n >= sizeof(line); p += sizeof(line), n -= sizeof(line)) {
		memcpy(line, p, sizeof(line));
		for (unsigned i = 0; i < TFMC_HASH_STREAMS; i++)
			h->streams[i] = (h->streams[i] ^ line[i]) * TFMC_HASH_PRIME;
	}
	while (n > 0) {
		uint32_t word = 0;
		uint64_t part = n < 4 ? n : 4;
		memcpy(&word, p, (size_t)part);
		h->streams[stream] = (h->streams[stream] ^ word) * TFMC_HASH_PRIME;
		stream = (stream + 1) % TFMC_HASH_STREAMS;
		p += part;
		n -= part;
	}
}

static inline uint64_t tfmc_weights_hash_end(const struct tfmc_weights_hash *h)
{
	uint64_t all = TFMC_HASH_SEED;
	for (unsigned i = 0; i < TFMC_HASH_STREAMS; i++)
		all = (all ^ h->streams[i]) * TFMC_HASH_PRIME;
	return (all ^ h->bytes) * TFMC_HASH_PRIME;
}

struct tfmc_record_dim {
	uint64_t name; /* offset */
	int64_t lo, hi;
};

enum tfmc_entry_kind {
	TFMC_ENTRY_RUN,
	TFMC_ENTRY_ENCODE,
	TFMC_ENTRY_PREFILL,
	TFMC_ENTRY_STEP,
	TFMC_ENTRY_SCORE
};

struct tfmc_record_entry {
	uint64_t name;             /* offset */
	uint64_t kind;             /* enum tfmc_entry_kind */
	uint64_t n_dims, dims;     /* uint64 [n_dims]: indices of the dims among the arguments of the call */
	uint64_t n_inputs, inputs; /* struct tfmc_record_tensor */
	uint64_t n_outputs, outputs;
	/* For the choice of workers: operations of the matrix products of a call (struct tfmc_record_poly;
	 * a multiply-add is two), and the number of plan steps between barriers. 0: unknown. */
	uint64_t flops, steps;
};

struct tfmc_record_tensor {
	uint64_t name;  /* offset */
	uint64_t dtype; /* row of ir/types/dtypes.def: f32 0, f16 1, bf16 2, f64 3, i8 4, u8 5, i32 6, i64 7,
	                 * bool 8, i16 9 */
	uint64_t rank;
	/* Size of axis i, a polynomial of the dims: */
	uint64_t sizes[8];   /* offset of a struct tfmc_record_poly */
	int64_t below;       /* > 0: ids must be in [0, below) */
	int64_t has_default; /* 1: may be omitted */
	int64_t lengths;     /* index of the input with the lengths of axis 1, -1: none */
};

/* Sum over n_terms of coeff * product of n_factors dim values (indices of the record's dims). */
struct tfmc_record_poly {
	uint64_t n_terms;
	/* followed by n_terms times: int64 coeff, uint64 n_factors, uint64 dim[n_factors] */
};

#endif
