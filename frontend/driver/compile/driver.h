/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the commands share: the context of one invocation, the way from a model
 * file to planned IR and to an object in memory, and named tensors.
 */
#ifndef TFMC_FRONTEND_DRIVER_COMPILE_DRIVER_H
#define TFMC_FRONTEND_DRIVER_COMPILE_DRIVER_H

#include "backends/backend.h"
#include "frontend/driver/options/diagnostics.h"
#include "frontend/driver/options/limits.h"
#include "frontend/driver/options/options.h"
#include "frontend/driver/options/output.h"
#include "frontend/driver/compile/packed.h"
#include "frontend/driver/options/progress.h"
#include "frontend/frontend.h"
#include "frontend/text/files.h"
#include "ir/interp/interp.h"
#include "ir/target/target.h"
#include "passes/framework/pass.h"
#include "passes/probe/probe.h"
#include "runtime/tfmc_rt.h"

#define DRIVER_VERSION "0.1.0"

/* Exit codes of the command, as README.md lists them. */
enum exit_code {
	EXIT_OK = 0,
	EXIT_INPUT = 1, /* input rejected, diagnostics printed */
	EXIT_USAGE = 2,
	EXIT_ENVIRONMENT = 3, /* I/O, memory, device */
	EXIT_VERIFY = 4,      /* verification failed */
	EXIT_INTERNAL = 70,
};
enum exit_code exit_code_of(enum tfmc_status status);

struct tfmc_tokenizer;
struct driver {
	struct arena arena;
	struct driver_options options;
	struct diag_context diag; /* sink: diagnostics, then stderr */
	struct diagnostics diagnostics;
	struct limits limits;
	struct progress progress;           /* of whatever takes long */
	struct progress_view progress_view; /* where it is shown */
	struct outputs outputs;
	struct cache cache;     /* of commands that run a model */
	struct buf out;         /* what goes to stdout at the end */
	struct buf log;         /* text for stderr between diagnostics */
	double clock;           /* seconds at the end of the last timed stage */
	const char *rules_text; /* of --rules; NULL: not given */
	size_t rules_len;
	const char *tiles_text; /* of --tiles; NULL: not given */
	size_t tiles_len;
	struct tfmc_tokenizer
	        *tokenizer; /* of the model, driver_tokenizer; NULL: ids, or a list of characters */
	struct tfmc_tokenizer *target_tokenizer; /* of what is written: the same, or that of the other side */
	bool is_reporting;                       /* a diagnostic is being written */
	bool out_failed;                         /* stdout could not be written */
	bool is_unrounded;                       /* models are loaded so, see frontend_options */
	int64_t session_tokens; /* of a sequence, that --limit-memory leaves room for in the last session; 0: all */
	bool texts_failed; /* a dump or reproducer that was asked for could not be written */
};

/* One command: what it does with the parsed options. Its text is in d->out. */
typedef enum exit_code driver_run(struct driver *d);
#define COMMAND(id, name, input, synopsis, line, example, text) driver_run command_##name;
#include "frontend/driver/options/commands.def"

/* Writes d->log to stderr at once. */
void driver_flush_log(struct driver *d);
/* Writes d->out to stdout at once. False after a diagnostic, of the first time that it cannot be written. */
bool driver_flush_out(struct driver *d);
/* Seconds of the stage since the last call, to stderr with --time-passes or -v. */
void driver_time(struct driver *d, const char *stage);
/* Seconds of a clock that only goes forward; `user` is not used. */
double driver_clock(void *user);
/* --time-passes: a part of the stage before, indented. */
void driver_time_part(struct driver *d, const char *part, double seconds);
/* One text file, complete or not at all; false after a diagnostic. */
bool driver_write_text(struct driver *d, const char *path, const struct buf *text);
/* Puts text to an output of the command; "-" is stdout. The outputs are committed when
 * the command has succeeded, or by the caller. */
TFMC_MUST_USE enum tfmc_status driver_put(struct driver *d, const char *path, const struct buf *text);
/* Puts text to -o FILE, or to stdout. */
TFMC_MUST_USE enum tfmc_status driver_emit_text(struct driver *d, const struct buf *text);
/* A usage mistake: message to stderr. */
enum exit_code driver_usage(struct driver *d, const char *fmt, ...) TFMC_PRINTF(2, 3);

/* Appends the words of a comma-separated list (NULL: none) to *out, in the arena. */
void driver_split_list(struct driver *d, const char *text, struct option_list *out);

/* ---- from a model file to IR ---- */
/* A model file (.yaml) or IR text (.tir), loaded. */
struct loaded {
	struct frontend_model *model; /* NULL for .tir */
	struct ir_module *module;     /* stage graph for models */
	struct ir_module *plain;      /* with probes: the module without them, else NULL */
	struct probe_values probes;
	struct weight_source weights;
	struct weight_files *files; /* of .tir; NULL for models */
	const char *text;           /* of .tir; NULL for models */
	size_t text_len;
};
/* What the command line says to the front end: --set, --allow-unused, --name. */
struct frontend_options driver_frontend_options(const struct driver *d);
/* The option that gives the model other numbers than its file says, without dashes; NULL: there is none. */
const char *driver_rounding_option(const struct driver *d);
/*
 * A call of the runtime library failed: the message, and the status that goes on. Of memory, threads, files and
 * devices it is that of the environment, whatever the command was doing.
 */
enum tfmc_status driver_call_failed(struct driver *d, struct loc loc, enum diag_code code, int status,
                                    const char *fmt, ...) TFMC_PRINTF(5, 6);
/* The model alone, as it is written. No output may take the place of a file that it was read from, or is to be. */
TFMC_MUST_USE enum tfmc_status driver_read(struct driver *d, struct frontend_model **out);
TFMC_MUST_USE enum tfmc_status driver_load(struct driver *d, struct loaded *out);
void driver_unload(struct loaded *l);
/*
 * The module of *l gets results for all values of the functions that match (none: nothing happens). *l keeps
 * the module that was read, for places and types.
 */
TFMC_MUST_USE enum tfmc_status driver_probe(struct driver *d, struct loaded *l,
                                            const struct option_list *patterns,
                                            const struct option_list *functions);

/* The row of a processor (NULL: not given) and --target. NULL after a diagnostic. */
const struct target *driver_row(struct driver *d, const char *mcpu);
/* The same; with --variants the most demanding of them. */
const struct target *driver_target(struct driver *d, const char *mcpu);

/* What an object holds code for: the target of -mcpu, or those of --variants from the least demanding on. */
struct variant_set {
	size_t n;
	struct backend_variant
	        items[BACKEND_VARIANTS_MAX]; /* modules belong to the set; NULL: not planned yet */
};
TFMC_MUST_USE enum tfmc_status driver_targets(struct driver *d, struct variant_set *out);
/* Runs a pipeline for each of them; the passes up to `encode` once. The caller calls driver_forget_plans. */
TFMC_MUST_USE enum tfmc_status driver_plan(struct driver *d, const struct ir_module *in, const char *pipeline,
                                           struct variant_set *set);
void driver_forget_plans(struct variant_set *set);
/* backend_compile_variants, of weight files that nobody changed meanwhile (TFMC_IO); a failure of the compiler itself writes the planned IR of the first variant. */
TFMC_MUST_USE enum tfmc_status driver_generate(struct driver *d, const struct variant_set *set,
                                               const struct loaded *l, const struct backend_options *o,
                                               struct backend_output *out);
/* Of a model or of IR text; NULL: there are none. */
struct weight_files *driver_weight_files(const struct loaded *l);
/* Whose code an object holds. */
struct code_names {
	const char *model;
	const char *const *targets;
	size_t n;
};
/* Bytes of code of each variant, and of the interface (the result). */
uint64_t driver_code_bytes(struct driver *d, const struct code_names *names, const void *object, size_t bytes,
                           uint64_t *variants);
/* Takes what the file says about the target where the command line says nothing. */
TFMC_MUST_USE enum tfmc_status driver_take_target(struct driver *d, const struct frontend_target *t);
/* Weights that are codes, with their bytes and, where they are quantized here, their errors; and those that could have been,
 * with the reason. Nothing where there are none. */
TFMC_MUST_USE enum tfmc_status driver_print_formats(struct driver *d, const struct loaded *l,
                                                    bool with_errors, struct buf *out);
/* --remarks: what an object for a less capable processor does not use. */
void driver_remark_variants(struct driver *d, const struct variant_set *set, const struct buf *object);
/* Sets the values, one for each dim, that --dim gives; the others stay. */
TFMC_MUST_USE enum tfmc_status driver_set_dims(struct driver *d, const struct ir_dims *dims, int64_t *values);
/* Pipeline text of -O and --passes. */
const char *driver_pipeline(const struct driver *d);
/* Where prints, dumps and reproducers of passes go. */
struct pass_options driver_pass_options(struct driver *d, const struct target *target);
/* Runs a pipeline with the options' dumps, remarks and statistics. The caller destroys *out. */
TFMC_MUST_USE enum tfmc_status driver_passes(struct driver *d, const struct ir_module *in,
                                             const char *pipeline, const struct target *target,
                                             struct ir_module **out);
/* The same with a report of the caller, and nothing printed of it. On failure *out is NULL. */
TFMC_MUST_USE enum tfmc_status driver_pipeline_run(struct driver *d, const struct ir_module *in,
                                                   const char *pipeline, const struct target *target,
                                                   struct ir_module **out, struct pass_report *report);
/* Some steps of a pipeline, with the options' statistics and times. On failure *out is NULL. */
TFMC_MUST_USE enum tfmc_status driver_passes_part(struct driver *d, const struct pipeline *p,
                                                  const struct pass_options *options,
                                                  const struct ir_module *in, struct ir_module **out);
/* Code and plans want places of buffers: TFMC_INVALID when the pipeline ended before plan-memory. */
TFMC_MUST_USE enum tfmc_status driver_check_planned(struct driver *d, const struct ir_module *m);
/* Reads the files of --rules and --tiles, before any command runs. */
TFMC_MUST_USE enum tfmc_status driver_read_texts(struct driver *d);
/* --prompt -: the prompt is what stdin has, without the end of its last line. */
TFMC_MUST_USE enum tfmc_status driver_read_prompt(struct driver *d);
/* --check-rules: the table goes to d->out; TFMC_INVALID when a rule is wrong. */
TFMC_MUST_USE enum tfmc_status driver_check_rules(struct driver *d);
/*
 * Adds FILE with a rule for make to the outputs: those added before it depend on every file that was read.
 * Renamed before them. TFMC_INVALID when make has no way to write a name.
 */
TFMC_MUST_USE enum tfmc_status driver_depfile(struct driver *d, const char *path);
/*
 * Opens the tokenizer of a model for commands that read text, once; d->tokenizer stays NULL without one, and
 * where it is not needed and not supported.
 */
TFMC_MUST_USE enum tfmc_status driver_tokenizer(struct driver *d, struct frontend_model *m, bool needed);
/* Facts for the record from the model's sections. */
TFMC_MUST_USE enum tfmc_status driver_facts(struct driver *d, struct frontend_model *m,
                                            struct backend_facts *out);

/* ---- an object in memory ---- */
/* Entries that are compiled; none: all. */
struct entry_names {
	const char *const *items;
	size_t n;
};
/* Compiled, loaded through LLJIT, ready to be called. */
struct compiled {
	bool all_workers; /* said before: small calls take all workers, too */
	struct variant_set variants;
	const struct ir_module *planned; /* of what runs here */
	const char *forced;              /* the variant that sessions run; NULL: init chooses */
	struct backend_output object;
	struct packed weights;
	struct backend_jit *jit;
	struct tfmc_model model;
	struct tfmc_session *session; /* the last one that was opened; NULL: none */
	char device_message[512];     /* of --device: why a call of it failed */
};
/* Of TFMC_OPENCL; NULL: the one that the loader finds. */
const char *driver_opencl_library(void);
/* That of --device, with messages in *c. */
struct tfmc_device driver_device(const struct driver *d, struct compiled *c);
/* --device=..: why; TFMC_IO. */
enum tfmc_status driver_refuse_device(struct driver *d, const char *why);
/* What it can do at best, reading so many bytes. */
TFMC_MUST_USE enum tfmc_status driver_device_roof(struct driver *d, uint64_t bytes, struct backend_peak *out);
/* For the options' target or variants and pipeline. */
TFMC_MUST_USE enum tfmc_status driver_compile_native(struct driver *d, struct loaded *l,
                                                     struct entry_names entries, struct compiled *out);
/* Closes the session, too. */
void driver_release(struct compiled *c);
/* Does `each` for every variant that runs on this machine, which sessions of *c then run; without --variants
 * once. */
typedef enum tfmc_status variant_work(void *user, struct compiled *c, const struct target *target);
TFMC_MUST_USE enum tfmc_status driver_each_variant(struct driver *d, struct compiled *c, variant_work *each,
                                                   void *user);
/*
 * A session on a compiled model with --threads workers, in place of the one that was open; for `batch` sequences
 * (at most the bound; 0: the bound) of as many tokens as the model or, below that, --limit-memory allows
 * (d->session_tokens). Prompts of causal models are read in calls of bounded size when a batch is given.
 */
TFMC_MUST_USE enum tfmc_status driver_session(struct driver *d, struct compiled *c, int64_t batch);
/* Sequences for a session, up to `most`, at least 1, for each of which --limit-memory has room for all tokens of the
 * model. */
int64_t driver_side_by_side(struct driver *d, const struct compiled *c, int64_t most);
/* The same for one call of an entry on inputs of these shapes: no larger dims are used in the session. */
struct named_tensors;
TFMC_MUST_USE enum tfmc_status driver_session_of(struct driver *d, struct compiled *c, const char *entry,
                                                 const struct named_tensors *in);
/* Workers of what is done before a session opens, packing and hashing: as many as the machine has, or --threads if that
 * is less. */
int64_t driver_packers(const struct driver *d);
/* Workers of a session: --threads, or what the command takes by default. */
int64_t driver_workers(const struct driver *d);
/* Of a step of one sequence: as many as it gains from. */
int64_t driver_step_workers(struct driver *d, const struct tfmc_record *r);
/* Says how many tokens --limit-memory leaves room for, where they are fewer than those of the model. */
void driver_note_room(struct driver *d);
/* Compiles and opens a session. */
TFMC_MUST_USE enum tfmc_status driver_open(struct driver *d, struct loaded *l, struct entry_names entries,
                                           int64_t batch, struct compiled *out);

/* How tokens are chosen: the model's `sample`, then the options. False: greedily. */
bool driver_sampling(const struct driver *d, const struct frontend_generate *g,
                     struct tfmc_sample_options *out);

/*
 * The rules of the model and of the options, in the arena. False after a message when an option is no list, or a
 * text has no ids.
 */
bool driver_rules(struct driver *d, const struct frontend_generate *g, const struct tfmc_record *r,
                  struct tfmc_constraints *out);

/* "1,2,3" or "1 2 3" as ids, in the arena. False when it is no such list. */
bool driver_ids(struct driver *d, const char *text, int32_t **items, size_t *n);
/* The model's `search`; beam 1 when it has none. */
struct tfmc_beam_options driver_beam(const struct frontend_generate *g);

/* ---- named tensors ---- */
struct named_tensor {
	const char *name;
	enum ir_dtype dtype;
	int rank;
	int64_t dims[IR_RANK_MAX];
	void *data; /* row-major, in the arena or mapped; 8-byte aligned */
	int64_t count;
	bool used;
	const struct probe_value *probe; /* NULL: no probe */
};
struct named_tensors {
	struct named_tensor *items;
	size_t n, cap;
};
/* Appends a zeroed tensor; copies the name. NULL when it does not fit into memory. */
struct named_tensor *tensors_add(struct driver *d, struct named_tensors *list, const char *name,
                                 enum ir_dtype dtype, int rank, const int64_t *dims);
struct named_tensor *tensors_find(const struct named_tensors *t, const char *name);
double tensor_value(const struct named_tensor *t, int64_t i);
/* Which elements of a float tensor are not finite: "12 of 97 elements, the first NaN at [0,4,17]"; NULL: none. */
const char *tensor_not_finite(struct driver *d, const struct named_tensor *t);
/* Gives a tensor its elements, rounded to its type. */
void tensor_set(struct named_tensor *t, const double *values);
/* Reads a safetensors file; with a prefix only tensors whose names begin so, without it. */
TFMC_MUST_USE enum tfmc_status tensors_read(struct driver *d, const char *path, const char *prefix,
                                            struct named_tensors *out);

/* Writes a safetensors file, complete or not at all; - is stdout. */
TFMC_MUST_USE enum tfmc_status tensors_write(struct driver *d, const char *path,
                                             const struct named_tensors *t);

/* The dims of a call on inputs of these shapes: [number of dims of the record], in the arena. NULL: no
 * memory. */
int64_t *tensors_dims(struct driver *d, const struct tfmc_record *r, int64_t entry,
                      const struct named_tensors *in);

/*
 * Calls an entry of a session (or, when session is NULL, the function of the same
 * name of `module` through the interpreter) on named inputs. Dims follow from the
 * inputs' shapes. Outputs are appended to *out.
 */
struct caller {
	struct driver *d;
	struct tfmc_session *session;
	const struct tfmc_record *record;
	const struct ir_module *module;      /* for the interpreter */
	const struct weight_source *weights; /* for the interpreter */
	struct interp_state *state;          /* for the interpreter */
	const struct probe_values *probes;   /* whose results become tensors; NULL: none */
	bool planned;                        /* the interpreter works in the bytes of the module's plan */
	bool wide;                           /* the interpreter rounds no floats */
	bool single;                         /* its sums are those of f32 */
};
/* The number of the entry; -1 after a diagnostic. */
int64_t driver_find_entry(struct driver *d, const struct tfmc_record *r, const char *name);
TFMC_MUST_USE enum tfmc_status caller_run(struct caller *c, const char *entry, struct named_tensors *in,
                                          struct named_tensors *out);

#endif
