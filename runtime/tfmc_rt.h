/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libtfmcrt, the runtime library that applications use with a compiled object. It maps weights, runs a thread
 * pool, owns the memory of a session, calls entries by name, and generates: greedily, by sampling or by beam
 * search. It depends on libc and threads only.
 *
 * 	#include <tfmc_rt.h>
 * 	#include "dates.h"
 * 	struct tfmc_model model = dates_model();
 * 	struct tfmc_session *session;
 * 	int status = tfmc_session_open(&model, NULL, &session);
 *
 * Every function returns a status code of abi.h (0: success) unless its comment says otherwise; nothing is
 * printed. Codes from 100 on come from this library. A missing pointer is TFMC_RT_E_NULL (functions that
 * return pointers return NULL, functions that return counts -1 or 0); a null pointer with a count of 0 is an
 * empty list.
 *
 * Threads: a session, its slots, a thread pool and a sampler are used by one thread at a time; only
 * tfmc_session_cancel may be called from any thread. Different sessions are independent: each thread may have
 * its own session over the same model, record and mapped weights, which are never written. There is no global
 * state.
 */
#ifndef TFMC_RUNTIME_TFMC_RT_H
#define TFMC_RUNTIME_TFMC_RT_H

#include "abi.h"

#ifdef __cplusplus
extern "C" {
#endif

enum tfmc_rt_code {
	TFMC_RT_E_MEMORY = 100,   /* memory could not be allocated */
	TFMC_RT_E_FILE,           /* a file cannot be opened or mapped, or has the wrong format */
	TFMC_RT_E_THREAD,         /* a thread could not be started */
	TFMC_RT_E_RECORD,         /* the object's record is of another version or damaged */
	TFMC_RT_E_NAME,           /* no entry, tensor or dim has this name */
	TFMC_RT_E_GENERATE,       /* the object was not compiled for generation */
	TFMC_RT_E_PROMPT,         /* the prompt is empty, too long, or has an id outside the vocabulary:
	                           tfmc_session_status_text says which */
	TFMC_RT_E_LOGITS,         /* a logit is NaN or infinite, or no id may be chosen */
	TFMC_RT_E_TEXT,           /* the object carries no vocabulary, or the text is not UTF-8 */
	TFMC_RT_E_SAMPLE,         /* a sampling option is outside its range */
	TFMC_RT_E_BEAM,           /* a beam option is outside its range (beam: 1 to the session's batch) */
	TFMC_RT_E_CONSTRAINTS,    /* a constraint names an id outside the vocabulary, or an empty string */
	TFMC_RT_E_SAVED,          /* a saved sequence is damaged, cut off, or of another version */
	TFMC_RT_E_MODEL_MISMATCH, /* a saved sequence belongs to another model or to states of another
				     layout */
	TFMC_RT_E_SLOT,           /* no sequence has this slot, it is named twice, or all slots are taken */
};
/* Message of any status code, of objects and of this library. Never NULL. */
const char *tfmc_rt_status_text(int status);

/* ---- weights ---- */
struct tfmc_mapping {
	const void *data; /* the packed weights, 64-byte aligned: the value of tfmc_config.weights */
	uint64_t bytes;
	void *base; /* the whole mapping, file header included */
	uint64_t base_bytes;
	uint64_t hash;     /* weights_hash of the file's header; 0: use that of the record */
	int64_t rank;      /* whose weights they are; 0 for one process */
	uint64_t set_hash; /* of the weights that all ranks have; 0: use weights_hash of the record */
};
enum tfmc_map_flags {
	TFMC_MAP_VERIFY = 1, /* hash all bytes, not only the header */
	/*
	 * Copies a file of 4 MiB or more into large pages: opening then costs reading the whole file, and
	 * processes do not share the memory. Decode steps of models of a gigabyte in 8 or 4 bits become 7 to
	 * 12 % faster, because TLB misses on 4 KiB pages cost more than reading such weights.
	 */
	TFMC_MAP_LARGE_PAGES = 2,
};
/*
 * Maps a weights file read-only and checks its header against the record. The file must not be changed or
 * truncated while it is mapped (replace it by rename). TFMC_RT_E_FILE: not readable, not a regular file, or
 * not a weights file; TFMC_RT_E_WEIGHTS: of another object, or damaged; TFMC_RT_E_MEMORY: no memory for the
 * copy in large pages.
 */
int tfmc_weights_map(const char *path, const struct tfmc_record *record, unsigned flags,
                     struct tfmc_mapping *out);
void tfmc_weights_unmap(struct tfmc_mapping *mapping); /* NULL is allowed */
/*
 * Finds the weights file of an object, whatever its name: the first *.weights file (by name) in the directory
 * of the program, then in the current directory, whose header has the record's weights_hash. Writes its
 * zero-terminated path to path[0..cap). TFMC_RT_E_NO_WEIGHTS: none found; TFMC_RT_E_SIZE: the path is longer
 * than cap.
 */
int tfmc_weights_find(const struct tfmc_record *record, char *path, uint64_t cap);
/* The same for the weights of one rank of an object for several. */
int tfmc_weights_find_rank(const struct tfmc_record *record, int64_t rank, char *path, uint64_t cap);

/* ---- thread pool ---- */
struct tfmc_pool;
/*
 * A pool of n >= 1 workers: the calling thread and n - 1 threads of its own. A waiter (a worker without a
 * task, or the caller until the last worker is done) polls for TFMC_POOL_SPIN_US, or `microseconds`, then
 * blocks; 0: it blocks at once. tfmc_pool_create uses 0 where there are more workers than processors.
 */
#define TFMC_POOL_SPIN_US 50
int tfmc_pool_create(int64_t n, struct tfmc_pool **out);
int tfmc_pool_create_spinning(int64_t n, int64_t microseconds, struct tfmc_pool **out);
void tfmc_pool_destroy(struct tfmc_pool *pool); /* NULL is allowed */
/* A NULL pool is the caller alone: size 1. */
int64_t tfmc_pool_size(const struct tfmc_pool *pool);
/* Runs fn(arg, i, n) on all n workers concurrently and returns when all are done. Not reentrant from fn. */
void tfmc_pool_run(struct tfmc_pool *pool, tfmc_task_fn *fn, void *arg);
/* The same on the first n workers, clamped to 1 .. size; the others stay idle. */
void tfmc_pool_run_some(struct tfmc_pool *pool, int64_t n, tfmc_task_fn *fn, void *arg);
/* A tfmc_config.parallel_for (user: the pool): any n, iterations dealt to the workers round-robin. */
void tfmc_pool_parallel_for(void *pool, int64_t n, tfmc_task_fn *fn, void *arg);

/* ---- ranks ---- */
/*
 * Tables for tfmc_config.ranks where no network is needed: ranks as threads, one rank alone, delays. The sums of all
 * of them are the tree of abi.h, so they have the bits of every other transport.
 */
#define TFMC_LOCAL_RANKS_MAX 1024
struct tfmc_local_ranks;
/*
 * A group of n ranks inside this process, in stages or not, each called by threads of its own. Waiting threads poll for
 * TFMC_POOL_SPIN_US, yielding the processor, then block. Exchanges whose tag or count differs between ranks, and a sum
 * on one rank that meets a broadcast on another, fail; the sums of a stage and messages meet their like alone.
 * TFMC_RT_E_RANKS: n is not 1 .. TFMC_LOCAL_RANKS_MAX.
 */
int tfmc_local_ranks_create(int64_t n, struct tfmc_local_ranks **out);
/* The table of a rank, valid until the group is destroyed; NULL: no such rank. */
const struct tfmc_ranks *tfmc_local_rank(struct tfmc_local_ranks *ranks, int64_t rank);
/* A rank gives up, from any thread: waiting calls of all ranks return, later ones return at once, and status is
 * TFMC_RT_E_RANK for good. NULL is allowed. */
void tfmc_local_ranks_fail(struct tfmc_local_ranks *ranks);
/* No thread may be in a call on the group; after tfmc_local_ranks_fail they all return. NULL is allowed. */
void tfmc_local_ranks_destroy(struct tfmc_local_ranks *ranks);

/*
 * Rank 0 of n that runs alone, for measuring: all others are taken to have its x. No thread is started and no call
 * waits. *out is its own user: it must not be moved. TFMC_RT_E_RANKS: as above.
 */
int tfmc_mirror_ranks_init(struct tfmc_ranks *out, int64_t n);

/* A network: each rank sends and receives with this rate. */
struct tfmc_link {
	int64_t latency_ns;        /* of a message, 0 .. 1e9 */
	uint64_t bytes_per_second; /* > 0 */
};
/*
 * Nanoseconds of a sum of `count` floats between n ranks. Two ranks, and n that sum at most TFMC_DIRECT_BYTES
 * together, send each other all of it, in one phase of messages; else each sums a share of the elements and sends the
 * sums (reduce-scatter, all-gather), in two phases.
 */
#define TFMC_DIRECT_BYTES 65536
double tfmc_link_sum_ns(const struct tfmc_link *link, int64_t n, uint64_t count);
/* Of gathering `count` floats of each of n ranks, in one phase. */
double tfmc_link_gather_ns(const struct tfmc_link *link, int64_t n, uint64_t count);
/* Of a message of `count` floats from one stage to the next. */
double tfmc_link_message_ns(const struct tfmc_link *link, uint64_t count);
/* Of a message from rank 0 to all others, as a binomial tree: the call of a session is one. */
double tfmc_link_broadcast_ns(const struct tfmc_link *link, int64_t n, uint64_t bytes);
/* Ranks whose exchanges take the time of a link in addition to that of `base`. */
struct tfmc_delayed_ranks {
	struct tfmc_ranks ranks; /* for tfmc_config.ranks; its user is this struct, which must not be moved */
	const struct tfmc_ranks *base; /* must outlive this struct */
	struct tfmc_link link;
};
/* TFMC_RT_E_DIM: the latency or the rate is outside its range. */
int tfmc_delayed_ranks_init(struct tfmc_delayed_ranks *out, const struct tfmc_ranks *base,
                            const struct tfmc_link *link);

/* ---- traces: which worker computes what, and when ---- */
/*
 * A session with a trace runs the groups of a call (ops that one kernel computes, in the order of `tfmc bench
 * --groups`) one after another, each by all workers of the call, with a barrier after it, and reads the clock around
 * each share. The object is the one of every other session, and results have the same bits; barriers that a call omits
 * otherwise are part of the times. Without a trace a call costs one test more, a group none. Kernels of OpenCL devices
 * are not traced (tfmc_device.launched has their times).
 */
struct tfmc_span {
	int64_t begin, end; /* nanoseconds of the monotonic clock */
};
struct tfmc_group_run {
	tfmc_task_fn *group;             /* which one */
	struct tfmc_span span;           /* until the last worker has ended */
	const struct tfmc_span *workers; /* [n_workers]: their shares, until the return */
	int64_t n_workers;
};
struct tfmc_call_run {
	int64_t entry;
	const int64_t *dims; /* those of the entry, at their numbers in the record; until the return */
	struct tfmc_span span;
	int status;
};
/* Both are called by the thread that calls the session: after each group, and after its call. */
struct tfmc_trace {
	void *user;
	void (*group)(void *user, const struct tfmc_group_run *run);
	void (*call)(void *user, const struct tfmc_call_run *run); /* may be NULL */
};

/*
 * A recorder of traces, written as Chrome's trace events (JSON), which https://ui.perfetto.dev shows: a lane for each
 * worker; calls, groups and waits (for TFMC_TIMELINE_WAIT_NS or more) as complete events.
 *
 * 	tfmc_timeline_create(model.record, 0, &timeline);
 * 	options.trace = tfmc_timeline_trace(timeline);
 * 	.. open a session with the options, call it, close it ..
 * 	tfmc_timeline_save(timeline, "trace.json", NULL);
 */
#define TFMC_TIMELINE_RUNS    262144
#define TFMC_TIMELINE_WAIT_NS 100
struct tfmc_timeline;
/*
 * cap: shares of workers, and calls, that it has memory for; 0: TFMC_TIMELINE_RUNS. Memory is taken as they come, about
 * 100 bytes each; further ones are counted and dropped. The record is copied. TFMC_RT_E_SIZE: cap is above 2^24.
 */
int tfmc_timeline_create(const struct tfmc_record *record, uint64_t cap, struct tfmc_timeline **out);
void tfmc_timeline_destroy(struct tfmc_timeline *timeline); /* NULL is allowed */
/* For the options of one session, which the timeline must outlive; NULL: timeline is NULL. */
const struct tfmc_trace *tfmc_timeline_trace(struct tfmc_timeline *timeline);
struct tfmc_timeline_options {
	uint64_t struct_size; /* sizeof(struct tfmc_timeline_options), else TFMC_RT_E_ABI */
	/*
	 * Nonzero: *out is the label. Else, and where label is NULL, groups are "group N" in the order of their first
	 * execution. Objects compiled with --labels have such a function, NAME_label.
	 */
	int (*label)(void *user, const struct tfmc_group_query *group, struct tfmc_group_label *out);
	void *label_user;
	int (*write)(void *user, const char *text, uint64_t bytes); /* nonzero: TFMC_RT_E_FILE */
	void *write_user;
};
/* Writes what was recorded so far, while no traced session is in a call. */
int tfmc_timeline_write(const struct tfmc_timeline *timeline, const struct tfmc_timeline_options *options);
/* The same to a file, in place of options->write; options may be NULL. TFMC_RT_E_FILE: it cannot be written. */
int tfmc_timeline_save(const struct tfmc_timeline *timeline, const char *path,
                       const struct tfmc_timeline_options *options);

/* ---- sessions: memory and calls by name ---- */
struct tfmc_session;
enum tfmc_driver { TFMC_DRIVER_SPMD, TFMC_DRIVER_PARALLEL_FOR };
/* Fields may be added at the end: a smaller struct_size is that of an older header, and the missing fields
 * are 0. */
struct tfmc_session_options {
	uint64_t struct_size;     /* sizeof(struct tfmc_session_options) */
	int64_t batch;            /* sequences of the state; 0: the bound of the batch dim */
	int64_t workers;          /* at most; 0: one. A call uses tfmc_entry_workers */
	const char *weights_path; /* NULL: `weights`, or the weights in the object, else
				     TFMC_RT_E_NO_WEIGHTS (see tfmc_weights_find) */
	const int64_t *dims_max;  /* upper bounds of the record's dims in this session; NULL: those of the
				    record */
	enum tfmc_driver driver;  /* the call form used with several workers */
	const char *variant;      /* name of a code variant of the record; NULL: the best one that this
			        processor runs */
	int64_t decode_workers;   /* for decode steps, which are bound by memory; 0: as `workers` */
	int all_workers;          /* nonzero: every call uses all workers, however small it is */
	int64_t spin_us; /* time a worker polls before it blocks; 0: as tfmc_pool_create, negative: none */
	/*
	 * Tokens of one call, over all its sequences; 0: as many as the bounds allow; negative:
	 * TFMC_RT_E_DIM. Sizes the arena: a call has at least one token of each sequence and the whole
	 * bidirectional prefix. Longer prompts are read in several calls (chunked prefill) with the same
	 * bits. Sources of sequence-to-sequence models and inputs of `run` must fit in one call.
	 */
	int64_t call_tokens;
	/* A mapping made by tfmc_weights_map, which several sessions may share and which must outlive
	 * them; NULL: none. */
	const struct tfmc_mapping *weights;
	int verify_weights; /* nonzero: verify the hash of all bytes of weights_path, not only the header */
	/* The device, for objects with OpenCL code; must outlive the session. NULL: the best one. */
	const struct tfmc_device *device;
	/*
	 * Tokens that a sequence may have in this session; 0: the bound of the object; more than that bound:
	 * TFMC_RT_E_DIM. KV-cache pages are touched as tokens come, so this bounds the memory of the session.
	 * Prompts and generation of this library obey it; entries called by tfmc_session_call know the bound
	 * of the object only.
	 */
	int64_t context;
	/*
	 * This process as one of several that run an object compiled for as many: see "several ranks" below. Must
	 * outlive the session. NULL: one process.
	 */
	const struct tfmc_ranks *ranks;
	/* [message_bytes]: why tfmc_session_open failed, a text; "": it did not. NULL: not wanted. */
	char *message;
	uint64_t message_bytes;
	/* Told of each group and call; must outlive the session. NULL: no trace. */
	const struct tfmc_trace *trace;
};
/* Opens a session. The model struct is copied; its functions must stay loaded. options may be NULL. */
int tfmc_session_open(const struct tfmc_model *model, const struct tfmc_session_options *options,
                      struct tfmc_session **out);
/* Arena bytes (intermediate values) of a session with these options; 0: none needed, or an option is
 * invalid. The state takes tfmc_model.state_size(batch) in addition, page by page as tokens come. */
uint64_t tfmc_session_arena_bytes(const struct tfmc_model *model, const struct tfmc_session_options *options);
void tfmc_session_close(struct tfmc_session *session); /* NULL is allowed */
const struct tfmc_record *tfmc_session_record(const struct tfmc_session *session);
/*
 * tfmc_rt_status_text with details of the last call on this session. TFMC_RT_E_PROMPT: how many ids of how
 * many, or which id of which vocabulary (for tfmc_generate_many, of the first such item); TFMC_RT_E_DEVICE:
 * the failed OpenCL call. Valid until the next call on the session. Never NULL; session may be NULL.
 */
const char *tfmc_session_status_text(const struct tfmc_session *session, int status);
/* Name of the code variant that the session runs. */
const char *tfmc_session_variant(const struct tfmc_session *session);

/*
 * Fills tfmc_config.system for callers that call init of an object without a session. On x86-64 this requests
 * AMX tile state from Linux if a variant needs it: the permission holds for the whole process, whose signal
 * stacks (sigaltstack) must then be larger. Denied, or another system: no bit is set, and init chooses the
 * next lower variant.
 */
void tfmc_system_features(const struct tfmc_record *record, uint64_t words[2]);
/* Index of the variant of that name, or -1. */
int64_t tfmc_variant_find(const struct tfmc_record *record, const char *name);
/* Name of a variant; NULL: no such index. */
const char *tfmc_variant_name(const struct tfmc_record *record, int64_t variant);
/* Index of the entry of that name, or -1. */
int64_t tfmc_entry_find(const struct tfmc_record *record, const char *name);
const struct tfmc_record_entry *tfmc_entry_at(const struct tfmc_record *record, int64_t entry);
const struct tfmc_record_tensor *tfmc_entry_input(const struct tfmc_record *record, int64_t entry,
                                                  uint64_t i);
const struct tfmc_record_tensor *tfmc_entry_output(const struct tfmc_record *record, int64_t entry,
                                                   uint64_t i);
const struct tfmc_record_dim *tfmc_record_dim_at(const struct tfmc_record *record, uint64_t dim);
const char *tfmc_record_text(const struct tfmc_record *record, uint64_t offset);
/* Size of an axis at the given values of all dims of the record; -1 on overflow. */
int64_t tfmc_tensor_size(const struct tfmc_record *record, const struct tfmc_record_tensor *t, uint64_t axis,
                         const int64_t *dims);
int64_t tfmc_tensor_count(const struct tfmc_record *record, const struct tfmc_record_tensor *t,
                          const int64_t *dims);
uint64_t tfmc_dtype_bytes(uint64_t dtype);

/*
 * Number of workers for a call, at most `most`. A worker is added as long as it saves more than the
 * additional barrier wait costs: n workers share a plan step of at least n (n - 1) TFMC_STEP_FLOPS
 * operations.
 */
#define TFMC_STEP_FLOPS 150000
int64_t tfmc_entry_workers(const struct tfmc_record *record, int64_t entry, const int64_t *dims,
                           int64_t most);

/*
 * Calls an entry. dims: values of all dims of the record (those that the entry does not use are ignored).
 * inputs, outputs: one buffer each, in the order of tfmc_entry_input and tfmc_entry_output, which is that of
 * the model file. data NULL: an output that is not wanted, or an optional input that takes its default.
 */
int tfmc_session_call(struct tfmc_session *session, int64_t entry, const int64_t *dims,
                      const struct tfmc_buffer *inputs, const struct tfmc_buffer *outputs);
int tfmc_session_reset(struct tfmc_session *session);

/* ---- several ranks ---- */
/*
 * Every rank opens a session, with its own weights and workers and the same batch, call_tokens, context, dims_max and
 * variant. Rank 0 leads: its application calls generation, slots, scoring and the session as in one process. The others
 * follow:
 *
 * 	options.ranks = ranks;
 * 	int status = tfmc_session_open(&model, &options, &session);
 * 	if (status == TFMC_RT_OK && ranks->rank > 0)
 * 		status = tfmc_session_follow(session);
 *
 * Opening compares object, weights, options and library of all ranks and opens all or none: TFMC_RT_E_RANKS, or the
 * status of the first rank that failed; `message` of the options names the rank. All take the least demanding code
 * variant that one of them runs, so that they round alike.
 *
 * Once a rank fails or is gone, every call that reaches the model is TFMC_RT_E_RANK. tfmc_session_cancel takes effect
 * between calls of the model, as in one process, but calls of one prompt or scored text are sent 16 at a time: all
 * ranks complete those that have begun. Saving and restoring sequences is TFMC_RT_E_RANKS.
 *
 * Stages of a pipeline work at different calls of a prompt at the same time: call_tokens should be a small part of it,
 * with enough tokens that arithmetic and not memory bounds a call (128).
 */

/*
 * On ranks > 0: repeats what rank 0 does with its session, until that is closed: TFMC_RT_OK. Other calls that change
 * the session of a follower are TFMC_RT_E_RANKS, as is this one on rank 0 or in one process. TFMC_RT_E_RANK: another
 * rank failed or is gone. After a failure, also of tfmc_session_open, a rank has to leave the others as its table
 * demands (a process ends, a thread calls tfmc_local_ranks_fail), so that they fail instead of waiting for it.
 */
int tfmc_session_follow(struct tfmc_session *session);

/* ---- sequences of a session ---- */
/*
 * A session has `batch` sequences, each with its own length. A call with B rows works on B consecutive
 * sequences, from the one chosen by tfmc_session_select on (0 at first); a row whose length (the input
 * `lengths`) is 0 is left unchanged (`encode` gives it an empty source). A call that fails changes nothing.
 */
int64_t tfmc_session_batch(const struct tfmc_session *session);
/* Tokens of a sequence; -1: no such sequence. */
int64_t tfmc_session_length(const struct tfmc_session *session, int64_t sequence);
/*
 * Row i of later calls is sequence first + i. source >= 0: all rows read the encoder output stored in
 * sequence `source` instead of their own, so that it is stored once; fork and reorder then copy tokens only.
 * -1: each row reads its own. tfmc_session_reset restores 0 and -1.
 */
int tfmc_session_select(struct tfmc_session *session, int64_t first, int64_t source);
/* Sequence i becomes a copy of the former sequence from[i], for all i < n at once (beam search: parents of
 * the beams). */
int tfmc_session_reorder(struct tfmc_session *session, const int64_t *from, int64_t n);
/* Removes the tokens of a sequence from `length` on. TFMC_RT_E_OVERWRITTEN: a sliding-window cache has
 * overwritten rows that would be read again, or the cut is inside the bidirectional prefix
 * (record->prefix). */
int tfmc_session_trim(struct tfmc_session *session, int64_t sequence, int64_t length);
/* Makes sequence `to` a copy of sequence `from`. */
int tfmc_session_fork(struct tfmc_session *session, int64_t from, int64_t to);
/*
 * Serializes one sequence: a header with version, hashes and checksum, then the cached rows of its tokens in
 * every state, row-major (format: runtime/README.md). It can be restored by every object with the same states
 * and the same packed weights (those that the session uses): other code variants, batch sizes, worker counts
 * and machines; calls then have the same bits. *n_out: bytes needed, also when cap is smaller
 * (TFMC_RT_E_SIZE, nothing is written). TFMC_RT_E_RANKS: a session on several ranks. Restoring returns
 * TFMC_RT_E_MODEL_MISMATCH: of another model; TFMC_RT_E_SAVED: damaged; TFMC_RT_E_FULL: more tokens than the state
 * holds.
 */
int tfmc_session_save(const struct tfmc_session *session, int64_t sequence, void *out, uint64_t cap,
                      uint64_t *n_out);
int tfmc_session_restore(struct tfmc_session *session, int64_t sequence, const void *data, uint64_t n);
/* The same on the state memory of a context without a session. weights: the mapping given to the context,
 * NULL: the weights in the object; batch: sequences of the state. */
int tfmc_state_save(const struct tfmc_record *record, const struct tfmc_mapping *weights, const void *state,
                    int64_t batch, int64_t sequence, void *out, uint64_t cap, uint64_t *n_out);
int tfmc_state_restore(const struct tfmc_record *record, const struct tfmc_mapping *weights, void *state,
                       int64_t batch, int64_t sequence, const void *data, uint64_t n);

/* ---- slots: continuous batching ---- */
/*
 * Sequences that started at different times decode in one batched call. A slot is a handle that stays with a
 * sequence until it leaves. The session belongs to the slots until they are closed, and must outlive them.
 */
struct tfmc_slots;
/* Resets the session. There are as many slots as the session has sequences. */
int tfmc_slots_open(struct tfmc_session *session, struct tfmc_slots **out);
void tfmc_slots_close(struct tfmc_slots *slots); /* NULL is allowed */
/*
 * Prefills a prompt into a free slot; other slots are unchanged. n = 0: the model's start ids. source: ids of
 * sequence-to-sequence models (or set tfmc_session_set_source). TFMC_RT_E_SLOT: no slot is free.
 */
int tfmc_slots_join(struct tfmc_slots *slots, const int32_t *ids, uint64_t n, const int32_t *source,
                    uint64_t n_source, int64_t *slot);
int tfmc_slots_fork(struct tfmc_slots *slots, int64_t slot, int64_t *copy);
/* The slot is free again. */
int tfmc_slots_leave(struct tfmc_slots *slots, int64_t slot);
/* Removes the tokens of a slot from `length` on. */
int tfmc_slots_trim(struct tfmc_slots *slots, int64_t slot, int64_t length);
/* Appends tokens to one slot. */
int tfmc_slots_feed(struct tfmc_slots *slots, int64_t slot, const int32_t *ids, uint64_t n);
struct tfmc_slot_token {
	int64_t slot;
	int32_t id;
};
/* Appends one token to each of the named slots in one batched call; the others are unchanged. */
int tfmc_slots_step(struct tfmc_slots *slots, const struct tfmc_slot_token *tokens, uint64_t n);
/* Logits [vocabulary] after the last token of a slot, valid until its next call; NULL: no such slot, or it
 * was trimmed or restored since. */
const float *tfmc_slots_logits(const struct tfmc_slots *slots, int64_t slot);
int64_t tfmc_slots_vocabulary(const struct tfmc_slots *slots);
/* Tokens of a slot; -1: no sequence has it. */
int64_t tfmc_slots_length(const struct tfmc_slots *slots, int64_t slot);
int64_t tfmc_slots_active(const struct tfmc_slots *slots); /* sequences in slots */
int tfmc_slots_save(const struct tfmc_slots *slots, int64_t slot, void *out, uint64_t cap, uint64_t *n_out);
/* Into a free slot. */
int tfmc_slots_restore(struct tfmc_slots *slots, const void *data, uint64_t n, int64_t *slot);

/* ---- sampling ---- */
/* Initialize with TFMC_SAMPLE_DEFAULTS, which changes no probability. Applied in this order: penalties,
 * temperature, top-k, top-p, min-p. */
struct tfmc_sample_options {
	uint64_t struct_size;      /* sizeof of this struct, else TFMC_RT_E_ABI */
	double repetition_penalty; /* > 0: positive logits of ids seen before are divided, negative ones
				      multiplied by it; 1: none */
	double presence_penalty;   /* subtracted from the logits of ids seen before */
	double frequency_penalty;  /* subtracted once for each time an id was seen */
	double temperature;        /* > 0: logits are divided by it */
	int64_t top_k;             /* keep the k most likely ids; 0: all */
	double top_p;              /* (0, 1]: nucleus, the smallest set of most likely ids whose
				      probability reaches p */
	double min_p;              /* [0, 1]: keep ids with at least min_p times the largest probability */
	uint64_t seed;
};
/* All fields in order, not designated: C++ before 2020 has no designated initializers. */
#define TFMC_SAMPLE_DEFAULTS                                               \
	{                                                                  \
		sizeof(struct tfmc_sample_options), 1, 0, 0, 1, 0, 1, 0, 0 \
	}
struct tfmc_sampler;
/* The options are copied. TFMC_RT_E_SAMPLE: an option is outside of its range. */
int tfmc_sampler_create(const struct tfmc_sample_options *options, int64_t vocab, struct tfmc_sampler **out);
void tfmc_sampler_destroy(struct tfmc_sampler *sampler); /* NULL is allowed */
/*
 * Draws an id from logits [vocab], which are not changed. excluded [vocab]: nonzero bytes mark ids that are
 * never drawn; NULL: none. history: all ids of the sequence so far. Ids with NaN or -infinity are never
 * drawn, ids with +infinity share all probability. Returns -1 when no id can be drawn. The random numbers
 * come from SplitMix64: equal seeds and logits give equal ids on every machine.
 */
int32_t tfmc_sampler_draw(struct tfmc_sampler *sampler, const float *logits, const unsigned char *excluded,
                          const int32_t *history, uint64_t n_history);

/* ---- logit constraints ---- */
/*
 * Constraints in addition to those of the model (start, stop, suppress). Ids are excluded after the softmax
 * over the whole vocabulary: exclusion does not change log p of a beam, and a sampler renormalizes over the
 * remaining ids. Zero-initialize, set struct_size; the caller owns all arrays.
 */
struct tfmc_ids {
	const int32_t *items;
	uint64_t n;
};
struct tfmc_bias {
	struct tfmc_ids ids; /* at least one */
	double by;
};
struct tfmc_constraints {
	uint64_t struct_size;          /* sizeof of this struct, else TFMC_RT_E_ABI */
	struct tfmc_ids forced;        /* the first new tokens; a stop id among them does not end the
				          sequence */
	struct tfmc_ids suppress;      /* never chosen */
	const struct tfmc_ids *banned; /* [n_banned] sequences: the last id is excluded where the preceding
				          ones are the end of the sequence */
	uint64_t n_banned;
	int64_t no_repeat_ngram;       /* n: no n-gram occurs twice in the sequence; 0: off */
	int64_t min_new_tokens;        /* stop ids are excluded before */
	struct tfmc_ids stop;          /* a sequence ends after one of these, in addition to the model's
				          stop ids */
	const char *const *stop_texts; /* [n_stop_texts] stop strings: the sequence ends when its new text
				          contains one, also across tokens; needs a vocabulary */
	uint64_t n_stop_texts;
	/* [n_banned_texts] banned strings: an id is excluded if the new text would then contain one; needs
	 * a vocabulary. */
	const char *const *banned_texts;
	uint64_t n_banned_texts;
	/*
	 * Returns the string of a token for stop_texts, banned_texts and on_text when the object has no
	 * vocabulary (with libtfmctok: tfmc_tokenizer_decode of one id, TFMC_DETOKENIZE_AFTER); valid until
	 * the next call. NULL: no such id, no text. May be NULL.
	 */
	const char *(*token_text)(void *user, int32_t id, uint64_t *bytes);
	/*
	 * Logits processor: called before every choice with the logits [vocab] after ids[0..n), all ids of
	 * the sequence so far including prompt or start. May change them (-INFINITY: never chosen). Nonzero
	 * cancels. May be NULL.
	 */
	int (*on_logits)(void *user, float *logits, int64_t vocab, const int32_t *ids, uint64_t n);
	void *user;
	/*
	 * Score changes, applied in this order, as the logits processors of `transformers` do: to logits, in
	 * a beam search to log p. The source is that of a sequence-to-sequence model if it is ids, else the
	 * prompt.
	 */
	const struct tfmc_bias
	        *biases; /* [n_biases]: adds `by` to the score of the last id where the preceding ids are
			    the end of the sequence */
	uint64_t n_biases;
	double source_repetition_penalty; /* positive scores of ids of the source are multiplied, negative
					     ones divided by it; 0, 1: none */
	double repetition_penalty;        /* positive scores of ids seen before are divided, negative ones
					   multiplied by it; 0, 1: none */
	double presence_penalty;          /* subtracted from scores of ids seen before */
	double frequency_penalty;         /* subtracted once for each time an id was seen */
	int64_t decay_after;              /* exponential decay: at the k-th new token after this many, the
					   score s of a stop id */
	double decay;                     /* grows by |s| (decay^k - 1); 0: off */
	int64_t source_no_repeat_ngram;   /* n: no n-gram of the source occurs in the sequence; 0: off */
	int64_t min_tokens;               /* stop ids are excluded before; counts prompt or start ids, too */
	int64_t max_tokens; /* upper bound of the same count, 0: the model's max_len; TFMC_RT_E_PROMPT if
			       no new token fits */
	struct tfmc_ids forced_last; /* if only one more token fits, it is one of these; its score is 0 */
	/*
	 * Speech models: ids >= timestamps are timestamps; 0: no such constraints. A text begins with a timestamp
	 * of at most latest_timestamp (0: any); timestamps come in pairs and do not decrease; one is chosen
	 * where all timestamps together are more likely than the best other id. Id timestamps - 1 is never
	 * chosen.
	 */
	int64_t timestamps, latest_timestamp;
	int64_t n_counted; /* number of ids before the new ones that the length penalty of a beam counts as
			      new */
	int renormalize;   /* beam search: log p is renormalized over the ids that may follow, after all
			      changes */
};

/* ---- generation ---- */
enum tfmc_finish {
	TFMC_FINISH_LENGTH,   /* max_new_tokens, max_len or cap was reached */
	TFMC_FINISH_STOP,     /* the last token is a stop id */
	TFMC_FINISH_TEXT,     /* the text contains a stop string, which on_text has not been given */
	TFMC_FINISH_CALLBACK, /* a callback returned nonzero */
	TFMC_FINISH_FAILED,   /* the status is not TFMC_RT_OK */
};
struct tfmc_generate_options {
	uint64_t struct_size;                       /* sizeof of this struct, else TFMC_RT_E_ABI */
	int64_t max_new_tokens;                     /* 0: as many as the model's max_len allows */
	int ignore_stop;                            /* nonzero: continue after stop ids */
	const struct tfmc_sample_options *sample;   /* NULL: greedy, the lowest id on a tie */
	const struct tfmc_constraints *constraints; /* logit constraints; NULL: only those of the model */
	/* Called for every new token; nonzero ends generation. May be NULL. */
	int (*on_token)(void *user, int32_t token);
	/*
	 * Called with new text once it is final: a suffix that may be the beginning of a stop string is
	 * withheld until later tokens decide. Start, stop and pad ids have no text. Nonzero ends generation.
	 * May be NULL.
	 */
	int (*on_text)(void *user, const char *text, uint64_t bytes);
	void *user;
	double *log_p; /* [cap of out]: log p of each new token before temperature and truncation; may be
		          NULL */
	enum tfmc_finish *finish; /* reason for the end; may be NULL */
};
/*
 * Generates one sequence, greedily or by sampling. Causal models: `prompt` is continued (an empty prompt:
 * from the model's start ids). Sequence-to-sequence: `prompt` is the source; `target`, if not empty, replaces
 * the start ids. New tokens, including the stop token, go to out[0..cap); *n_out receives their number, also
 * after a failure. TFMC_RT_E_LOGITS: a logit was NaN or +infinity, or every id is excluded. TFMC_RT_E_CONSTRAINTS:
 * the model cannot follow a constraint. TFMC_RT_E_CANCELLED: tfmc_session_cancel was called.
 */
int tfmc_generate(struct tfmc_session *session, const struct tfmc_generate_options *options,
                  const int32_t *prompt, uint64_t n_prompt, const int32_t *target, uint64_t n_target,
                  int32_t *out, uint64_t cap, uint64_t *n_out);

/* One sequence of tfmc_generate_many. */
struct tfmc_generation {
	const int32_t *prompt; /* prompt and target as in tfmc_generate */
	uint64_t n_prompt;
	const int32_t *target;
	uint64_t n_target;
	int32_t *out; /* [cap]: new tokens */
	uint64_t cap;
	double *log_p; /* [cap] or NULL */
	uint64_t n;    /* new tokens; this and the following fields are written by the call */
	enum tfmc_finish finish;
	int status; /* of this sequence: TFMC_RT_E_PROMPT and the like do not affect the others */
};
/*
 * Continuous batching: generates n sequences in the slots of a session; a finished one makes room for the
 * next, and every decode step is one call. Each sequence gets the ids that tfmc_generate gives it alone with
 * the same options, which must have no on_token, on_text, log_p and finish (TFMC_RT_E_CONSTRAINTS). A failure of a
 * shared call ends all running sequences and is returned; finished ones keep their results.
 */
int tfmc_generate_many(struct tfmc_session *session, const struct tfmc_generate_options *options,
                       struct tfmc_generation *items, uint64_t n);

#define TFMC_SOURCE_RANK_MAX 8
/*
 * Sets the source of a sequence-to-sequence model whose encoder input is not ids (audio features, an image):
 * elements of the input's type, row-major, [1, ..] of these sizes. Generation, search and scoring on the
 * session use it instead of source ids until it is set again; data NULL removes it. The caller owns the data,
 * which must outlive these calls. TFMC_RT_E_PROMPT: an invalid rank or size; sizes that do not fit the model
 * are rejected by the later calls.
 */
int tfmc_session_set_source(struct tfmc_session *session, const void *data, const int64_t *sizes,
                            uint64_t rank);

/*
 * When a beam search ends. ALWAYS: as soon as `beam` hypotheses are finished. JUDGED: when no live one can
 * beat the worst finished one, by its log p with the length penalty of its current length. NEVER: the same,
 * by the length limit where the penalty is positive.
 */
#define TFMC_BEAM_MAX 256
enum tfmc_early_stopping { TFMC_EARLY_ALWAYS, TFMC_EARLY_JUDGED, TFMC_EARLY_NEVER };
struct tfmc_beam_options {
	uint64_t struct_size; /* sizeof of this struct, else TFMC_RT_E_ABI */
	int64_t beam;         /* beam width, 1 to the session's batch, at most TFMC_BEAM_MAX */
	double length_penalty; /* a, -100 to 100: the score is log p / n^a for n new tokens, the stop token included */
	int gnmt;              /* nonzero: log p / ((5 + n) / 6)^a (Wu et al. 2016) */
	int64_t max_new_tokens;                     /* 0: as many as the model's max_len allows */
	const struct tfmc_constraints *constraints; /* logit constraints; NULL: only those of the model */
	/*
	 * Nonzero: log_p and score of a hypothesis count its stop token neither as a probability nor as a
	 * token, and probabilities are normalized over the ids that may follow, as in CTranslate2.
	 */
	int bare_scores;
	enum tfmc_early_stopping early_stopping;
};
struct tfmc_hypothesis {
	int32_t *tokens; /* [cap], owned by the caller: new tokens, including the stop token */
	uint64_t cap;
	uint64_t n;   /* length of the hypothesis, also when cap is smaller */
	double log_p; /* sum over the tokens */
	double score; /* log_p with the length penalty */
};
/*
 * Beam search for one sequence; prompt and target as in tfmc_generate. Each step takes the best
 * continuations: beam (1 + stop ids) of them and at least 2 beam (ties: earlier beam, lower id). Those of the
 * first `beam` that stop or reach the length limit are finished, of which the best `beam` are kept; the first
 * `beam` that do not stop go on. early_stopping says when the search ends. Hypotheses go to out[0..cap), best
 * score first. Statuses as of tfmc_generate.
 */
int tfmc_beam_search(struct tfmc_session *session, const struct tfmc_beam_options *options,
                     const int32_t *prompt, uint64_t n_prompt, const int32_t *target, uint64_t n_target,
                     struct tfmc_hypothesis *out, uint64_t cap, uint64_t *n_out);

/*
 * Cancels the generation, search or scoring that runs on the session, from any thread or a signal handler: it
 * returns TFMC_RT_E_CANCELLED before its next call of the model, and may be started again. If none runs, the
 * next one is cancelled.
 */
void tfmc_session_cancel(struct tfmc_session *session);

/*
 * Scores n ids: log_p[i] = log p(ids[i] | all before). ids[0] follows the model's start ids; without start
 * ids log_p[0] is 0. Sequence-to-sequence models also get the source. The sum is the log-probability of the
 * sequence, e^(-sum / n) its perplexity. An object with the entry `score` computes many rows per call and
 * stores no logits; with prefill and step alone it takes one call per id. TFMC_RT_E_LOGITS: a probability is
 * not a number.
 */
int tfmc_score(struct tfmc_session *session, const int32_t *source, uint64_t n_source, const int32_t *ids,
               uint64_t n, double *log_p);

/* The packed tokenizer an object carries, for tfmc_tokenizer_open of libtfmctok; NULL: none. */
const void *tfmc_record_tokenizer(const struct tfmc_record *record, uint64_t *bytes);

/* ---- text: one token per Unicode code point ---- */
/* Encodes text with the source vocabulary (seq2seq) or the vocabulary; *n_out: ids needed, also when cap
 * is smaller. */
int tfmc_text_encode(const struct tfmc_record *record, const char *text, int32_t *out, uint64_t cap,
                     uint64_t *n_out);
/* The same with the vocabulary of the output: for targets, forced and banned sequences. */
int tfmc_text_encode_target(const struct tfmc_record *record, const char *text, int32_t *out, uint64_t cap,
                            uint64_t *n_out);
/* Decodes ids to zero-terminated text, without start, stop and pad ids; *n_out: bytes without the
 * terminator. */
int tfmc_text_decode(const struct tfmc_record *record, const int32_t *ids, uint64_t n, char *out,
                     uint64_t cap, uint64_t *n_out);
/* Offset of the first stop string of the constraints in a text, where the text of on_text ends; its
 * length: none. */
uint64_t tfmc_text_stop(const struct tfmc_constraints *constraints, const char *text);
/* Text to text in one call: encodes (after the start ids, where the text is continued), generates,
 * decodes. TFMC_RT_E_SIZE: the text has more than cap - 1 bytes; out then contains its beginning. */
int tfmc_generate_text(struct tfmc_session *session, const char *prompt, char *out, uint64_t cap);

/* ---- DEPRECATED names of 0.1.0, removed in the next release ---- */
#define TFMC_RT_E_OTHER           TFMC_RT_E_MODEL_MISMATCH
#define TFMC_RT_E_RULES           TFMC_RT_E_CONSTRAINTS
#define tfmc_system_words         tfmc_system_features
#define TFMC_GANG_SPIN_US         TFMC_POOL_SPIN_US
#define tfmc_gang                 tfmc_pool
#define tfmc_gang_create          tfmc_pool_create
#define tfmc_gang_create_spinning tfmc_pool_create_spinning
#define tfmc_gang_destroy         tfmc_pool_destroy
#define tfmc_gang_size            tfmc_pool_size
#define tfmc_gang_run             tfmc_pool_run
#define tfmc_gang_run_some        tfmc_pool_run_some
#define tfmc_gang_parallel_for    tfmc_pool_parallel_for
#define tfmc_rules                tfmc_constraints

#ifdef __cplusplus
}
#endif

#endif
