/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model in this process: compiled or taken from the cache, loaded by LLVM's JIT linker, its packed weights, and
 * sessions on it.
 */
#ifndef TFMC_FRONTEND_DRIVER_COMPILE_JIT_H
#define TFMC_FRONTEND_DRIVER_COMPILE_JIT_H

#include "frontend/driver/compile/compile.h"
#include "frontend/weights/files.h"

/* ---- packed weights ---- */
/* Packed weights of a model in this process. They are written while they are packed, to a file of the cache or, where
 * there is no cache, to anonymous memory (memfd), and then mapped. */
struct packed {
	struct diag_context *cx;
	struct cache *cache;
	const struct weight_files *read; /* source of the weights; NULL: none */
	struct cache_file file;          /* fd -1: nothing was written yet; name NULL: in memory */
	struct arena *arena;             /* of file.name */
	uint64_t since;                  /* bytes written since pages of `read` were released */
	struct tfmc_mapping map;
};

/* A struct backend_sink for a copy that only the cache needs, begun by cache_create: when writing fails, the copy is
 * dropped. Always true. */
bool packed_write_copy(void *packed, uint64_t offset, const void *bytes, size_t n);
/* Gives the file its name in the cache. False: it is not in the cache, or could not be kept. */
bool packed_commit(struct packed *p, const char *name);
void packed_close(struct packed *p);

/* Ranks [first, first + n) whose weights this process packs: of a job its own. */
struct rank_range {
	int64_t first, n;
};
struct rank_range driver_packed_ranks(const struct driver *d);

/* ---- the model ---- */
/* Entries to compile; none: all. */
struct entry_names {
	const char *const *items;
	size_t n;
};

/* Exchanges of a session with other ranks, timed (ranks.h). */
struct timed_ranks {
	struct tfmc_ranks ranks;
	const struct tfmc_ranks *base;
	double seconds; /* since the session was opened */
};

struct compiled {
	/* Set by the caller, for sessions that are opened later. */
	bool all_workers;               /* small calls take all workers, too */
	const struct tfmc_trace *trace; /* NULL: none */
	tfmc_launched_fn *launched;     /* of --device; NULL: not wanted */
	void *launched_user;
	struct variant_set variants;
	/* Of the variant that runs; NULL where the code came from the cache and no command reads the plan. */
	const struct ir_module *planned;
	const char *forced; /* variant of the next session; NULL: init chooses */
	struct backend_output object;
	struct packed *weights; /* [n_weights], one for each rank, of the arena */
	int64_t n_weights;
	struct backend_jit *jit;
	struct tfmc_model model;
	struct tfmc_session *session; /* the last one that was opened; NULL: none */
	struct rank_threads *ranks;   /* the ranks that follow it (ranks.h); NULL: one process */
	struct timed_ranks exchanges; /* with several ranks: of the session */
	char device_message[512];     /* of --device: the reason of its last failed call */
};
/* Compiles for the targets and the pipeline of the options, or loads from the cache. The caller calls
 * compiled_destroy on success and on failure. */
TFMC_MUST_USE enum tfmc_status driver_compile_jit(struct driver *d, struct loaded *l,
                                                  struct entry_names entries, struct compiled *out);
/* Closes the session, too. */
void compiled_destroy(struct compiled *c);
/* Closes the session and ends the threads of its ranks. */
void compiled_close_session(struct compiled *c);
/* Calls each() for every variant that runs on this machine, which sessions of *c then use; once without --variants. */
typedef enum tfmc_status variant_fn(void *user, struct compiled *c, const struct target *target);
TFMC_MUST_USE enum tfmc_status driver_for_each_variant(struct driver *d, struct compiled *c, variant_fn *each,
                                                       void *user);

/* ---- devices ---- */
/* The OpenCL library that TFMC_OPENCL names; NULL: the one that the loader finds. */
const char *driver_opencl_library(void);
/* The device of --device; its errors go to c->device_message. */
struct tfmc_device driver_device(const struct driver *d, struct compiled *c);
/* Measures the peak of --device (roofline): multiply-adds, and reading `bytes` bytes. */
TFMC_MUST_USE enum tfmc_status driver_device_peak(struct driver *d, uint64_t bytes, struct backend_peak *out);

/* ---- sessions ---- */
/*
 * Opens a session in place of the last one, with driver_session_workers(). batch: sequences (at most the model's
 * bound; 0: the bound). The context is that of the model, or what --limit-memory allows (d->session_tokens). With a
 * batch, causal models read long prompts in several calls of bounded arena.
 */
TFMC_MUST_USE enum tfmc_status driver_open_session(struct driver *d, struct compiled *c, int64_t batch);
/* TFMC_INVALID after a diagnostic: the model has more dims, or an entry more tensors, than a session takes. */
TFMC_MUST_USE enum tfmc_status driver_check_session_limits(struct driver *d, const struct tfmc_record *r);
/* driver_open_session for calls of up to dims[number of dims], which are clamped to their bounds; NULL: the bounds. */
TFMC_MUST_USE enum tfmc_status driver_open_session_for(struct driver *d, struct compiled *c, int64_t *dims);
/* driver_compile_jit and driver_open_session. */
TFMC_MUST_USE enum tfmc_status driver_compile_and_open(struct driver *d, struct loaded *l,
                                                       struct entry_names entries, int64_t batch,
                                                       struct compiled *out);
/* The most sequences of a session: the bound of the batch dim, 1 without one. */
int64_t driver_batch_max(const struct tfmc_record *r);
/* Sequences of a session, 1 to `most`, whose full contexts fit into half of --limit-memory. */
int64_t driver_batch_size(struct driver *d, const struct compiled *c, int64_t most);
/* Workers for packing weights and hashing files: all processors, or --threads if that is less. */
int64_t driver_pack_workers(const struct driver *d);
/* Workers of a session: --threads, or the default of the command. */
int64_t driver_session_workers(const struct driver *d);
/* Workers of a decode step of one sequence: those it gains from, at most --decode-threads. */
int64_t driver_decode_workers(struct driver *d, const struct tfmc_record *r);
/* A note with the context that --limit-memory leaves; nothing where it is that of the model. */
void driver_note_context_limit(struct driver *d);

#endif
