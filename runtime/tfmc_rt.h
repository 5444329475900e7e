/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libtfmcrt: what applications normally use on top of a compiled object. Maps weights, runs a gang of workers,
 * keeps memory for a session, calls entries by name, and generates: greedily, by sampling or by beam search.
 * Depends on libc and threads only.
 *
 * 	#include <tfmc_rt.h>
 * 	#include "dates.h"
 * 	struct tfmc_model model = dates_model();
 * 	struct tfmc_session *session;
 * 	int status = tfmc_session_open(&model, NULL, &session);
 *
 * Every function returns a status code of abi.h (0: ok) unless it says otherwise; nothing is printed. Positive
 * codes from 100 are those of this library. A missing pointer is TFMC_RT_E_NULL (functions that return pointers
 * give NULL, functions that return counts -1 or 0); a null pointer with a count of 0 is an empty list.
 *
 * Threads: a session, what was made of it (slots), a gang and a sampler are used by one thread at a time; only
 * tfmc_session_cancel may be called from any. Different sessions are independent: any number of threads may each
 * have one, over the same model, record and mapped weights, which nobody changes. There is no global state.
 */
#ifndef TFMC_RT_H
#define TFMC_RT_H

#include "abi.h"

#ifdef __cplusplus
extern "C" {
#endif

enum tfmc_rt_code {
	TFMC_RT_E_MEMORY = 100, /* memory could not be allocated */
	TFMC_RT_E_FILE,         /* a file cannot be opened or mapped, or is not what it should be */
	TFMC_RT_E_THREAD,       /* a thread could not be started */
	TFMC_RT_E_RECORD,       /* the object's record is of another version or damaged */
	TFMC_RT_E_NAME,         /* no entry, tensor or dim has this name */
	TFMC_RT_E_GENERATE,     /* the object was not compiled for generation */
	TFMC_RT_E_PROMPT,       /* the prompt is empty, too long, or has an id outside the vocabulary:
	                           tfmc_session_status_text says which */
	TFMC_RT_E_LOGITS,       /* a logit is NaN or infinite, or no id may be chosen */
	TFMC_RT_E_TEXT,         /* the object carries no vocabulary, or the text is not UTF-8 */
	TFMC_RT_E_SAMPLE,       /* a sampling option is outside its range */
	TFMC_RT_E_BEAM,         /* a beam option is outside its range (beam: 1 to the session's batch) */
	TFMC_RT_E_RULES,        /* a rule names an id outside the vocabulary, or an empty text */
	TFMC_RT_E_SAVED,        /* a saved sequence is damaged, cut off, or of another version */
	TFMC_RT_E_OTHER, /* a saved sequence is one of another model, or of states that hold something else */
	TFMC_RT_E_SLOT,  /* no sequence has this slot, it is named twice, or all slots are taken */
};
/* Text of any status code, of objects and of this library. Never NULL. */
const char *tfmc_rt_status_text(int status);

/* ---- weights ---- */
struct tfmc_mapping {
	const void *data; /* the weights: pass as tfmc_config.weights; 64-byte aligned */
	uint64_t bytes;
	void *base; /* the mapping itself */
	uint64_t base_bytes;
	uint64_t hash; /* weights_hash of the file's header; 0: that of the record */
};
enum tfmc_map_flags {
	TFMC_MAP_VERIFY = 1, /* hash all bytes, not only the header */
	/*
	 * Copies a file of 4 MiB or more into memory of large pages: opening takes as long as reading the file, and
	 * processes do not share the bytes. Steps of models of a gigabyte in 8 or 4 bits are then 7 to 12 % faster, as
	 * pages of 4 KiB are found more slowly than such weights are read.
	 */
	TFMC_MAP_LARGE_PAGES = 2,
};
/*
 * Maps a weights file read-only and checks that it belongs to the record. The
 * file must not be changed or truncated while it is mapped (replace it by rename). TFMC_RT_E_FILE: it cannot
 * be read, is no regular file, or no weights file; TFMC_RT_E_WEIGHTS: it is that of another object, or
 * damaged; TFMC_RT_E_MEMORY: there is none for a copy.
 */
int tfmc_weights_map(const char *path, const struct tfmc_record *record, unsigned flags,
                     struct tfmc_mapping *out);
void tfmc_weights_unmap(struct tfmc_mapping *mapping); /* NULL is allowed */
/*
 * Finds the weights file that was written with the object, whatever it is called: the first *.weights file
 * (by name) beside the program, then in the current folder, whose header has the record's weights_hash. Its
 * path, zero-terminated, goes to path[0..cap). TFMC_RT_E_NO_WEIGHTS: there is none; TFMC_RT_E_SIZE: the path
 * is longer.
 */
int tfmc_weights_find(const struct tfmc_record *record, char *path, uint64_t cap);

/* ---- a gang of workers ---- */
struct tfmc_gang;
/*
 * n >= 1 workers: the caller and n - 1 threads. Who has to wait, a thread for the next round or the caller
 * for the last thread, looks for some time (TFMC_GANG_SPIN_US, or `microseconds`; 0: not at all), then
 * sleeps. tfmc_gang_create does not look when there are more workers than processors.
 */
#define TFMC_GANG_SPIN_US 50
int tfmc_gang_create(int64_t n, struct tfmc_gang **out);
int tfmc_gang_create_spinning(int64_t n, int64_t microseconds, struct tfmc_gang **out);
void tfmc_gang_destroy(struct tfmc_gang *gang); /* NULL is allowed */
/* A gang that is NULL is the caller alone. */
int64_t tfmc_gang_size(const struct tfmc_gang *gang);
/* Runs fn(arg, i, n) on all workers at once and returns when all are done. Not from inside fn. */
void tfmc_gang_run(struct tfmc_gang *gang, tfmc_task_fn *fn, void *arg);
/* The same on the first n of them (at least one, at most all); the others are left alone. */
void tfmc_gang_run_some(struct tfmc_gang *gang, int64_t n, tfmc_task_fn *fn, void *arg);
/* A parallel_for for tfmc_config (user = the gang): any n, indices dealt out in order. */
void tfmc_gang_parallel_for(void *gang, int64_t n, tfmc_task_fn *fn, void *arg);

/* ---- sessions: memory and calls by name ---- */
struct tfmc_session;
enum tfmc_driver { TFMC_DRIVER_SPMD, TFMC_DRIVER_PARALLEL_FOR };
/* Fields may be added at the end: a smaller struct_size is that of an older header, and what it lacks is 0.
 */
struct tfmc_session_options {
	uint64_t struct_size;     /* sizeof(struct tfmc_session_options) */
	int64_t batch;            /* sequences of the state; 0: the bound of the batch dim */
	int64_t workers;          /* 0: one; the most that a call takes, see tfmc_entry_workers */
	const char *weights_path; /* NULL: embedded weights, or `weights`, else TFMC_RT_E_NO_WEIGHTS
	                             (tfmc_weights_find) */
	const int64_t *dims_max; /* largest values of the record's dims that will be used; NULL: the bounds */
	enum tfmc_driver driver; /* how several workers are used */
	const char *variant; /* of the code, by its name in the record; NULL: the best one that runs here */
	int64_t decode_workers; /* of steps, which are bound by memory; 0: as `workers` */
	int all_workers;        /* nonzero: every call takes all of them, however small it is */
	int64_t spin_us; /* that idle workers look for work; 0: as tfmc_gang_create, negative: not at all */
	/*
	 * Tokens of one call, over all its sequences; 0: as many as the bounds allow; TFMC_RT_E_DIM where negative. The arena is made for
	 * calls of so many (of one token for each sequence at least, and of the prefix whose positions see
	 * each other), longer prompts are read in several calls, with the same bits. Sources of
	 * sequence-to-sequence models and inputs of `run` must fit as a whole.
	 */
	int64_t call_tokens;
	/* What tfmc_weights_map gave, for several sessions, all closed before it is unmapped; NULL: none. */
	const struct tfmc_mapping *weights;
	int verify_weights; /* nonzero: all bytes of weights_path are hashed, not only its header read */
	/* Of objects with code for OpenCL devices; stays until the session is closed. NULL: the best one. */
	const struct tfmc_device *device;
	/*
	 * Tokens that a sequence may have in this session, at most; 0: the bound of the object, more than it is
	 * TFMC_RT_E_DIM. The state takes memory for tokens as they come, so this bounds the memory of the session.
	 * Prompts and generation of this library keep to it; entries that are called by tfmc_session_call know the
	 * bound of the object alone.
	 */
	int64_t context;
};
/* The model is copied; its functions must stay loaded. options may be NULL. */
int tfmc_session_open(const struct tfmc_model *model, const struct tfmc_session_options *options,
                      struct tfmc_session **out);
/* Bytes for intermediate values that a session with these options reserves; 0: there are none, or an option is wrong.
 * The state takes tfmc_model.state_size of its batch at most, page by page as tokens come. */
uint64_t tfmc_session_arena_bytes(const struct tfmc_model *model, const struct tfmc_session_options *options);
void tfmc_session_close(struct tfmc_session *session); /* NULL is allowed */
const struct tfmc_record *tfmc_session_record(const struct tfmc_session *session);
/*
 * tfmc_rt_status_text, but with numbers for a TFMC_RT_E_PROMPT that this session has just returned: how many
 * ids of how many, or which id of which vocabulary (of tfmc_generate_many the first such item); for a
 * TFMC_RT_E_DEVICE with the call of OpenCL that failed. Valid until the next call on the session. Never NULL; session may be NULL.
 */
const char *tfmc_session_status_text(const struct tfmc_session *session, int status);
/* Name of the variant of the code that the session runs. */
const char *tfmc_session_variant(const struct tfmc_session *session);

/*
 * Fills tfmc_config.system for an object, for who calls its init without a session (a session does it). On x86-64 this
 * asks Linux for the use of tiles where a variant wants them: once granted, the whole process has it, and its
 * signal stacks (sigaltstack) have to be larger. Refused, or on another system: no bit, and init takes the
 * variant below.
 */
void tfmc_system_words(const struct tfmc_record *record, uint64_t words[2]);
/* Number of the variant of that name, or -1. */
int64_t tfmc_variant_find(const struct tfmc_record *record, const char *name);
/* NULL: no such variant. */
const char *tfmc_variant_name(const struct tfmc_record *record, int64_t variant);
/* Number of the entry of that name, or -1. */
int64_t tfmc_entry_find(const struct tfmc_record *record, const char *name);
const struct tfmc_record_entry *tfmc_entry_at(const struct tfmc_record *record, int64_t entry);
const struct tfmc_record_tensor *tfmc_entry_input(const struct tfmc_record *record, int64_t entry,
                                                  uint64_t i);
const struct tfmc_record_tensor *tfmc_entry_output(const struct tfmc_record *record, int64_t entry,
                                                   uint64_t i);
const struct tfmc_record_dim *tfmc_record_dim_at(const struct tfmc_record *record, uint64_t dim);
const char *tfmc_record_text(const struct tfmc_record *record, uint64_t offset);
/* Size of axis `axis` at the given dim values (of all the record's dims); -1 on overflow. */
int64_t tfmc_tensor_size(const struct tfmc_record *record, const struct tfmc_record_tensor *t, uint64_t axis,
                         const int64_t *dims);
int64_t tfmc_tensor_count(const struct tfmc_record *record, const struct tfmc_record_tensor *t,
                          const int64_t *dims);
uint64_t tfmc_dtype_bytes(uint64_t dtype);

/*
 * How many workers a call should have, at most `most`: one more as long as it saves more than the steps of
 * the call cost by waiting. n of them share a step that has at least n (n - 1) TFMC_STEP_FLOPS.
 */
#define TFMC_STEP_FLOPS 150000
int64_t tfmc_entry_workers(const struct tfmc_record *record, int64_t entry, const int64_t *dims,
                           int64_t most);

/*
 * Calls an entry. dims: all dims of the record (those the entry does not have are ignored). inputs, outputs: one buffer for
 * each of the entry, in the order of tfmc_entry_input and tfmc_entry_output, which is that of the model file. data NULL: an
 * output that is not wanted, an optional input that has its default.
 */
int tfmc_session_call(struct tfmc_session *session, int64_t entry, const int64_t *dims,
                      const struct tfmc_buffer *inputs, const struct tfmc_buffer *outputs);
int tfmc_session_reset(struct tfmc_session *session);

/* ---- sequences of a session ---- */
/*
 * A session holds `batch` sequences of their own lengths. A call with B rows works on B of them that
 * follow each other, those from 0 on unless tfmc_session_select said otherwise; rows whose length (the
 * input `lengths`) is 0 are left alone (`encode` gives them an empty source). What cannot be done is a
 * status, and then nothing has changed.
 */
int64_t tfmc_session_batch(const struct tfmc_session *session);
/* Tokens of a sequence; -1: there is none of that number. */
int64_t tfmc_session_length(const struct tfmc_session *session, int64_t sequence);
/*
 * Row i of later calls is sequence first + i. With source >= 0 all of them read the source (what encode left
 * in sequence `source`) instead of their own, so that it is held once; fork and reorder then copy tokens
 * alone. -1: each its own. tfmc_session_reset goes back to 0 and -1.
 */
int tfmc_session_select(struct tfmc_session *session, int64_t first, int64_t source);
/* Sequence i becomes what sequence from[i] was, for all i < n at once: of beams, who comes from whom. */
int tfmc_session_reorder(struct tfmc_session *session, const int64_t *from, int64_t n);
/* Forgets the tokens of a sequence from `length` on. TFMC_RT_E_OVERWRITTEN: a ring has lost what would be
 * read, or what stays has seen what goes (record->prefix). */
int tfmc_session_trim(struct tfmc_session *session, int64_t sequence, int64_t length);
/* Makes sequence `to` a copy of sequence `from`. */
int tfmc_session_fork(struct tfmc_session *session, int64_t from, int64_t to);
/*
 * One sequence as bytes: a head with version, hashes and checksum, then the rows of its tokens in every
 * state, row-major (runtime/README.md). Fits every object with the same states that runs on the same packed
 * weights (those the session was opened with): other variants of the code, numbers of sequences and workers,
 * machines. *n_out: bytes needed, also when cap is smaller (then nothing is written, TFMC_RT_E_SIZE).
 * TFMC_RT_E_OTHER: the bytes are of another model; TFMC_RT_E_SAVED: damaged; TFMC_RT_E_FULL: more tokens than
 * the state has room for. Calls with restored sequences have the same bits.
 */
int tfmc_session_save(const struct tfmc_session *session, int64_t sequence, void *out, uint64_t cap,
                      uint64_t *n_out);
int tfmc_session_restore(struct tfmc_session *session, int64_t sequence, const void *data, uint64_t n);
/* The same on the state's memory of a context without a session; weights: those the context was given, NULL:
 * those in the object; batch: sequences it has room for. */
int tfmc_state_save(const struct tfmc_record *record, const struct tfmc_mapping *weights, const void *state,
                    int64_t batch, int64_t sequence, void *out, uint64_t cap, uint64_t *n_out);
int tfmc_state_restore(const struct tfmc_record *record, const struct tfmc_mapping *weights, void *state,
                       int64_t batch, int64_t sequence, const void *data, uint64_t n);

/* ---- slots: sequences that join and leave a running batch ---- */
/*
 * Sequences that were begun at different times take their steps in one call. A slot is a number that stays
 * with a sequence until it leaves. The session is the slots' alone until they are closed; it must outlive
 * them.
 */
struct tfmc_slots;
/* Resets the session. As many slots as the session has sequences. */
int tfmc_slots_open(struct tfmc_session *session, struct tfmc_slots **out);
void tfmc_slots_close(struct tfmc_slots *slots); /* NULL is allowed */
/*
 * Reads a prompt into a free slot; others keep their sequences. Without ids: the model's start ids. source:
 * of sequence-to-sequence models (or that of tfmc_session_set_source). TFMC_RT_E_SLOT: none is free.
 */
int tfmc_slots_join(struct tfmc_slots *slots, const int32_t *ids, uint64_t n, const int32_t *source,
                    uint64_t n_source, int64_t *slot);
int tfmc_slots_fork(struct tfmc_slots *slots, int64_t slot, int64_t *copy);
/* The slot is free again. */
int tfmc_slots_leave(struct tfmc_slots *slots, int64_t slot);
/* Forgets tokens from `length` on. */
int tfmc_slots_trim(struct tfmc_slots *slots, int64_t slot, int64_t length);
/* More tokens for one slot. */
int tfmc_slots_feed(struct tfmc_slots *slots, int64_t slot, const int32_t *ids, uint64_t n);
struct tfmc_slot_token {
	int64_t slot;
	int32_t id;
};
/* One token for each of the slots that are named, in one call; the others are left alone. */
int tfmc_slots_step(struct tfmc_slots *slots, const struct tfmc_slot_token *tokens, uint64_t n);
/* Logits [vocabulary] after the last token of a slot, until the next call with it; NULL: there are none (no
 * such slot, or it was trimmed or restored since). */
const float *tfmc_slots_logits(const struct tfmc_slots *slots, int64_t slot);
int64_t tfmc_slots_vocabulary(const struct tfmc_slots *slots);
/* Tokens of a slot; -1: no sequence has it. */
int64_t tfmc_slots_length(const struct tfmc_slots *slots, int64_t slot);
int64_t tfmc_slots_active(const struct tfmc_slots *slots); /* sequences in slots */
int tfmc_slots_save(const struct tfmc_slots *slots, int64_t slot, void *out, uint64_t cap, uint64_t *n_out);
/* Into a free slot. */
int tfmc_slots_restore(struct tfmc_slots *slots, const void *data, uint64_t n, int64_t *slot);

/* ---- sampling ---- */
/* Begin with TFMC_SAMPLE_DEFAULTS, which cut nothing off. The steps are done in the order of the fields, first the
 * penalties. */
struct tfmc_sample_options {
	uint64_t struct_size;      /* sizeof of this struct, else TFMC_RT_E_ABI */
	double repetition_penalty; /* > 0: logits of ids seen before are divided (negative: multiplied) by it;
	                              1: none */
	double presence_penalty;   /* subtracted from the logits of ids seen before */
	double frequency_penalty;  /* subtracted once for each time an id was seen */
	double temperature;        /* > 0: logits are divided by it */
	int64_t top_k;             /* only the k likeliest ids; 0: all */
	double top_p;              /* (0, 1]: only the fewest of the likeliest whose probability reaches p */
	double min_p; /* [0, 1]: only ids at least so likely, as a part of the likeliest's probability */
	uint64_t seed;
};
/* Every field in its order: C++ has designators since 2020 only. */
#define TFMC_SAMPLE_DEFAULTS                                               \
	{                                                                  \
		sizeof(struct tfmc_sample_options), 1, 0, 0, 1, 0, 1, 0, 0 \
	}
struct tfmc_sampler;
/* TFMC_RT_E_SAMPLE when an option is out of its range. The options are copied. */
int tfmc_sampler_create(const struct tfmc_sample_options *options, int64_t vocab, struct tfmc_sampler **out);
void tfmc_sampler_destroy(struct tfmc_sampler *sampler); /* NULL is allowed */
/*
 * Draws one id from logits [vocab], which stay as they are. excluded [vocab]: nonzero bytes are ids that are
 * never drawn; NULL: none. history: all ids of the sequence so far. -1 when nothing can be drawn (no logit of
 * an allowed id is a number); ids with NaN or -infinity are never drawn, those with +infinity share
 * everything. The numbers come from SplitMix64: equal seeds and logits give equal ids on every machine.
 */
int32_t tfmc_sampler_draw(struct tfmc_sampler *sampler, const float *logits, const unsigned char *excluded,
                          const int32_t *history, uint64_t n_history);

/* ---- what may be written ---- */
/*
 * Beside what the model itself says (start, stop, suppress). Ids are excluded after probabilities have
 * been taken over the whole vocabulary: a beam's log p does not change by what is excluded, and sampling
 * shares their probability among the others. Zero-initialise, set struct_size; arrays stay the caller's.
 */
struct tfmc_ids {
	const int32_t *items;
	uint64_t n;
};
struct tfmc_bias {
	struct tfmc_ids ids; /* at least one */
	double by;
};
struct tfmc_rules {
	uint64_t struct_size;          /* sizeof of this struct, else TFMC_RT_E_ABI */
	struct tfmc_ids forced;        /* the first new tokens; a stop id among them ends nothing */
	struct tfmc_ids suppress;      /* never chosen */
	const struct tfmc_ids *banned; /* [n_banned] sequences: the last id is not chosen where the others
	                                  are before it */
	uint64_t n_banned;
	int64_t no_repeat_ngram;       /* n: no n ids occur twice in the sequence; 0: any may */
	int64_t min_new_tokens;        /* stop ids are not chosen before */
	struct tfmc_ids stop;          /* a sequence ends after one of these */
	const char *const *stop_texts; /* [n_stop_texts]: it ends when its new text contains one of these,
	                                  also across tokens; needs a vocabulary */
	uint64_t n_stop_texts;
	/* [n_banned_texts]: an id with which the new text would contain one of these is not chosen; needs a
	 * vocabulary. */
	const char *const *banned_texts;
	uint64_t n_banned_texts;
	/*
	 * The text of a token for these texts and on_text when the object carries no vocabulary (with
	 * libtfmctok: tfmc_tokenizer_decode of one id, TFMC_DETOKENIZE_AFTER); valid until the next call.
	 * NULL: no such id, no text. May be NULL.
	 */
	const char *(*token_text)(void *user, int32_t id, uint64_t *bytes);
	/*
	 * Called before every choice with the logits [vocab] after ids[0..n): all of the sequence so far,
	 * with prompt or start. May change them (-INFINITY: never). Nonzero cancels. May be NULL.
	 */
	int (*on_logits)(void *user, float *logits, int64_t vocab, const int32_t *ids, uint64_t n);
	void *user;
	/*
	 * Changes of scores, in this order: of logits, in a beam search of log p. Like `transformers` does it. The
	 * source is that of a sequence-to-sequence model, where it has ids, else the prompt.
	 */
	const struct tfmc_bias
	        *biases; /* [n_biases]: the score of the last id grows where the others are before it */
	uint64_t n_biases;
	double source_repetition_penalty; /* positive scores of ids of the source are multiplied by it, negative
	                                     ones divided; 0, 1: none */
	double repetition_penalty;      /* positive scores of ids seen before are divided by it, negative ones
	                                     multiplied; 0, 1: none */
	double presence_penalty;        /* subtracted from scores of ids seen before */
	double frequency_penalty;       /* subtracted once for each time an id was seen */
	int64_t decay_after;            /* from the k-th new token after so many the score s of a stop id */
	double decay;                   /* grows by |s| (decay^k - 1); 0: it does not */
	int64_t source_no_repeat_ngram; /* n: no n ids of the source occur in the sequence; 0: any may */
	int64_t min_tokens; /* stop ids are not chosen before; prompt or start and new ones together */
	int64_t max_tokens; /* most of them, 0: the model's max_len; TFMC_RT_E_PROMPT when no new one fits */
	struct tfmc_ids
	        forced_last; /* one of these is chosen where only one more token may follow; its score is 0 */
	/*
	 * Models of speech: ids from here on are timestamps, 0: no rules about them. A text begins with one, at most
	 * latest_timestamp (0: any); they come in pairs and do not decrease; one is chosen where all together are
	 * likelier than any other id. The id before the first one is never chosen.
	 */
	int64_t timestamps, latest_timestamp;
	int64_t n_counted; /* of the ids before the new ones: a beam's score counts them as new */
	int renormalize;   /* beam search: log p is among the ids that may follow, after all changes */
};

/* ---- generation ---- */
enum tfmc_finish {
	TFMC_FINISH_LENGTH,   /* max_new_tokens, max_len or the room for ids was reached */
	TFMC_FINISH_STOP,     /* the last token is a stop id */
	TFMC_FINISH_TEXT,     /* the text contains a stop text, which is not part of what on_text was given */
	TFMC_FINISH_CALLBACK, /* a callback wanted no more */
	TFMC_FINISH_FAILED,   /* the status is not TFMC_RT_OK */
};
struct tfmc_generate_options {
	uint64_t struct_size;                     /* sizeof of this struct, else TFMC_RT_E_ABI */
	int64_t max_new_tokens;                   /* 0: as many as the model's max_len allows */
	int ignore_stop;                          /* nonzero: go on after stop ids */
	const struct tfmc_sample_options *sample; /* NULL: greedy, the lowest id on a tie */
	const struct tfmc_rules *rules;           /* NULL: only those of the model */
	/* Called for every new token; nonzero ends generation. May be NULL. */
	int (*on_token)(void *user, int32_t token);
	/*
	 * Called with new text as soon as it is sure to stay: what may be the beginning of a stop text is
	 * held back until it is decided. Start, stop and pad ids are no text. Nonzero ends generation. May be
	 * NULL.
	 */
	int (*on_text)(void *user, const char *text, uint64_t bytes);
	void *user;
	double *log_p; /* [cap of out]: log p of each new token before temperature and cuts; may be NULL */
	enum tfmc_finish *finish; /* why it ended; may be NULL */
};
/*
 * Generation of one sequence, greedy or sampled. Causal models: `prompt` is continued (when
 * it is empty, from the model's start ids). Sequence-to-sequence: `prompt` is the
 * source; `target`, when given, replaces the start ids. New tokens, the stop
 * token included, go to out[0..cap); *n_out receives their number, also after a failure.
 * TFMC_RT_E_LOGITS: a logit was NaN or +infinity, or no id may be chosen. TFMC_RT_E_RULES: a rule cannot be
 * followed by this model. TFMC_RT_E_CANCELLED: tfmc_session_cancel was called.
 */
int tfmc_generate(struct tfmc_session *session, const struct tfmc_generate_options *options,
                  const int32_t *prompt, uint64_t n_prompt, const int32_t *target, uint64_t n_target,
                  int32_t *out, uint64_t cap, uint64_t *n_out);

/* One of several sequences that are generated side by side. */
struct tfmc_generation {
	const int32_t *prompt; /* as of tfmc_generate */
	uint64_t n_prompt;
	const int32_t *target;
	uint64_t n_target;
	int32_t *out; /* [cap]: new tokens */
	uint64_t cap;
	double *log_p; /* [cap] or NULL */
	uint64_t n;    /* new tokens, written by the call, as are the following */
	enum tfmc_finish finish;
	int status; /* of this sequence alone: TFMC_RT_E_PROMPT and the like leave the others as they are */
};
/*
 * Several sequences in the slots of a session: who ends makes room for the next one, steps take all of them
 * in one call. Each has the ids that tfmc_generate gives it alone with the same options. options: as there,
 * but without on_token, on_text, log_p and finish (TFMC_RT_E_RULES). A status of a call that all sequences
 * share ends all of them and is returned; those that had ended keep what they are.
 */
int tfmc_generate_many(struct tfmc_session *session, const struct tfmc_generate_options *options,
                       struct tfmc_generation *items, uint64_t n);

#define TFMC_SOURCE_RANK_MAX 8
/*
 * The source of a sequence-to-sequence model that reads no ids (features of audio, an image): elements of the
 * input's type, row-major, [1, ..] of these sizes. Generation, search and scoring on the session take it in
 * place of source ids until it is set again; data NULL takes it back. The data stay the caller's and must
 * outlive these calls. TFMC_RT_E_PROMPT: the rank, or a size, is impossible; what does not fit the model is
 * refused by the calls.
 */
int tfmc_session_set_source(struct tfmc_session *session, const void *data, const int64_t *sizes,
                            uint64_t rank);

/*
 * When a beam search ends: as soon as `beam` hypotheses are finished, or not before no live one can be better
 * than the worst of them, as judged by its log p with the length penalty of its present length, or (NEVER, where
 * the penalty is positive) of the limit of length.
 */
enum tfmc_early_stopping { TFMC_EARLY_ALWAYS, TFMC_EARLY_JUDGED, TFMC_EARLY_NEVER };
struct tfmc_beam_options {
	uint64_t struct_size; /* sizeof of this struct, else TFMC_RT_E_ABI */
	int64_t beam;         /* live hypotheses, 1 to the session's batch */
	double length_penalty; /* a, -100 to 100: the score is log p / n^a for n new tokens, the stop token included */
	int gnmt;              /* nonzero: log p / ((5 + n) / 6)^a (Wu et al. 2016) */
	int64_t max_new_tokens;         /* 0: as many as the model's max_len allows */
	const struct tfmc_rules *rules; /* NULL: only those of the model */
	/*
	 * Nonzero: log_p and score of a hypothesis count its stop token neither as a probability nor as a
	 * token, and probabilities are among the ids that may follow (no suppressed ones), as those of
	 * CTranslate2.
	 */
	int bare_scores;
	enum tfmc_early_stopping early_stopping;
};
struct tfmc_hypothesis {
	int32_t *tokens; /* [cap], the caller's: new tokens, the stop token included */
	uint64_t cap;
	uint64_t n;   /* tokens of the hypothesis, also when cap is smaller */
	double log_p; /* sum over the tokens */
	double score; /* log_p with the length penalty */
};
/*
 * Beam search for one sequence, prompt and target as in tfmc_generate. At each step the likeliest continuations
 * are taken, beam (1 + stop ids) of them and at least 2 beam (ties: earlier beam, lower id): those of the first
 * `beam` that stop, or reach the limit of length, are finished, and the `beam` best of all finished ones are kept; the
 * first `beam` that do not stop go on. early_stopping says when that ends. Hypotheses go
 * to out[0..cap), best score first. Statuses as of tfmc_generate.
 */
int tfmc_beam_search(struct tfmc_session *session, const struct tfmc_beam_options *options,
                     const int32_t *prompt, uint64_t n_prompt, const int32_t *target, uint64_t n_target,
                     struct tfmc_hypothesis *out, uint64_t cap, uint64_t *n_out);

/*
 * Ends the generation, search or scoring that runs on the session, from any thread or a signal handler: it
 * returns TFMC_RT_E_CANCELLED before its next call of the model, and may be begun again. When none runs, the
 * next one ends so.
 */
void tfmc_session_cancel(struct tfmc_session *session);

/*
 * Log-probabilities: log_p[i] = log p(ids[i] | what is before), for all n ids. Before ids[0] are the
 * model's start ids; without any log_p[0] is 0. Sequence-to-sequence models are also given the source. Their
 * sum is the log-probability of the sequence, e^(-sum / n) its perplexity. An object with the entry score
 * computes many rows at once and keeps no logits; with prefill and step alone it goes id after id.
 * TFMC_RT_E_LOGITS: a probability is not a number.
 */
int tfmc_score(struct tfmc_session *session, const int32_t *source, uint64_t n_source, const int32_t *ids,
               uint64_t n, double *log_p);

/* The packed tokenizer an object carries, for tfmc_tokenizer_open of libtfmctok; NULL: none. */
const void *tfmc_record_tokenizer(const struct tfmc_record *record, uint64_t *bytes);

/* ---- text: one token per Unicode code point ---- */
/* Text to ids with the source vocabulary (seq2seq) or the vocabulary; *n_out: ids needed, also when cap is
 * smaller. */
int tfmc_text_encode(const struct tfmc_record *record, const char *text, int32_t *out, uint64_t cap,
                     uint64_t *n_out);
/* The same with the vocabulary of what is written: for forced and banned sequences, and targets. */
int tfmc_text_encode_target(const struct tfmc_record *record, const char *text, int32_t *out, uint64_t cap,
                            uint64_t *n_out);
/* Ids to text, zero-terminated, without start, stop and pad ids; *n_out: bytes without the terminator. */
int tfmc_text_decode(const struct tfmc_record *record, const int32_t *ids, uint64_t n, char *out,
                     uint64_t cap, uint64_t *n_out);
/* Where the first stop text of the rules begins in a text: what on_text is given of it. Its length: nowhere.
 */
uint64_t tfmc_text_stop(const struct tfmc_rules *rules, const char *text);
/* From text to text in one call: encodes (after the start ids, where the text is continued), generates,
 * decodes. TFMC_RT_E_SIZE: the text has more than cap - 1 bytes; out then holds its beginning. */
int tfmc_generate_text(struct tfmc_session *session, const char *prompt, char *out, uint64_t cap);

#ifdef __cplusplus
}
#endif

#endif
