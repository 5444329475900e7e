/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a model file to planned IR and to code: loading, choice of targets and variants, pass pipelines, the
 * dependency file.
 */
#ifndef TFMC_FRONTEND_DRIVER_COMPILE_COMPILE_H
#define TFMC_FRONTEND_DRIVER_COMPILE_COMPILE_H

#include "backends/backend.h"
#include "frontend/driver/compile/driver.h"
#include "frontend/frontend.h"
#include "frontend/syntax/files.h"
#include "ir/interp/interp.h"
#include "ir/target/target.h"
#include "passes/framework/pass.h"
#include "passes/graph/probe.h"
#include "runtime/tfmc_rt.h"

/* ---- loading ---- */
/* A loaded model file (.yaml, hub directory, GGUF) or IR text (.tir). */
struct loaded {
	struct frontend_model *model; /* NULL for .tir */
	struct ir_module *module;     /* for models before any pass */
	struct ir_module *plain;      /* with probes: the module without them, else NULL */
	struct probe_values probes;
	struct weight_source weights;
	struct weight_files *files; /* of .tir; NULL for models */
	const char *text;           /* of .tir; NULL for models */
	size_t text_len;
};
/* The given one of --quantize, --profile, --dtype, which change the model's numerics, without dashes; NULL: none. */
const char *driver_rounding_option(const struct driver *d);
/* Reads a model without lowering it. Registers all files that were read as inputs, which no output may
 * overwrite. */
TFMC_MUST_USE enum tfmc_status driver_read_model(struct driver *d, struct frontend_model **out);
/* Reads, lowers and verifies d->options.input; applies the model's section `target`. The caller calls loaded_destroy
 * on success and on failure. */
TFMC_MUST_USE enum tfmc_status driver_load(struct driver *d, struct loaded *out);
void loaded_destroy(struct loaded *l);
/*
 * Adds results to the module of *l for all values in `functions` whose names match `patterns` (none: no change).
 * l->plain is then the module as loaded, whose locations and types the probes refer to.
 */
TFMC_MUST_USE enum tfmc_status driver_insert_probes(struct driver *d, struct loaded *l,
                                                    const struct option_list *patterns,
                                                    const struct option_list *functions);
/* The weight files of a model or of IR text; NULL: none. */
struct weight_files *driver_weight_files(const struct loaded *l);
/* Collects the facts of a model for the object's record: vocabulary, tokenizer, start and stop ids, .. */
TFMC_MUST_USE enum tfmc_status driver_collect_facts(struct driver *d, struct frontend_model *m,
                                                    struct backend_facts *out);
/*
 * Appends a table of quantized weights: format, bytes and, with_errors, the errors of those quantized by tfmc;
 * then the weights that stay unquantized, with the reason. Nothing for a model without either.
 */
TFMC_MUST_USE enum tfmc_status driver_print_formats(struct driver *d, const struct loaded *l,
                                                    bool with_errors, struct buf *out);

/* ---- targets and variants ---- */
/* The target of --target and a processor (NULL: not given). NULL after a diagnostic. */
const struct target *driver_find_target(struct driver *d, const char *mcpu);
/* The most demanding of --variants; without them driver_find_target. NULL after a diagnostic. */
const struct target *driver_best_target(struct driver *d, const char *mcpu);
/* Reports, at loc, the name of a target that tfmc no longer has, and what to use. False: name is none, or NULL. */
bool driver_reports_removed_target(struct driver *d, struct loc loc, const char *name);
/* Takes target, variants and opt level from the model's section `target` where the command line gives none. */
TFMC_MUST_USE enum tfmc_status driver_apply_model_target(struct driver *d, const struct frontend_target *t);

/* The targets that one object has code for: that of -mcpu, or those of --variants, least demanding first. */
struct variant_set {
	size_t n;
	struct backend_variant
	        items[BACKEND_VARIANTS_MAX]; /* the set owns their modules; NULL: not planned yet */
};
TFMC_MUST_USE enum tfmc_status driver_find_variants(struct driver *d, struct variant_set *out);
/* Runs a pipeline for each variant; the passes up to `encode`, which fix the layout of weights, run once. */
TFMC_MUST_USE enum tfmc_status driver_plan_variants(struct driver *d, const struct ir_module *in,
                                                    const char *pipeline, struct variant_set *set);
void variant_set_destroy(struct variant_set *set);
/*
 * backend_compile, with packing by all workers. TFMC_IO when a weight file changed meanwhile. After an
 * internal error the planned IR of the first variant is written as a reproducer.
 */
TFMC_MUST_USE enum tfmc_status driver_generate_code(struct driver *d, const struct variant_set *set,
                                                    const struct loaded *l, const struct backend_options *o,
                                                    struct backend_output *out);
/* The names that the symbols of an object are made of. */
struct code_names {
	const char *model;
	const char *const *targets;
	size_t n;
};
/* Bytes of code of each target in variants[n]; returns those of the interface, which they share. */
uint64_t driver_code_bytes(struct driver *d, const struct code_names *names, const void *object, size_t bytes,
                           uint64_t *variants);
/* --remarks: suggests --variants when processors with wider vectors exist than the object's target has. */
void driver_remark_variants(struct driver *d, const struct variant_set *set, const struct buf *object);

/* ---- passes ---- */
/*
 * The elements of --dim that are bounds of sizes of an ONNX model, and those that are values of dims: of an ONNX model
 * a number for a size that has bounds already, where the command computes numbers; of others all.
 */
void driver_split_dims(struct driver *d, struct option_list *bounds, struct option_list *values);
/* TFMC_INVALID after a diagnostic: --dim has no meaning for the command and its model, which could be read. */
TFMC_MUST_USE enum tfmc_status driver_check_dim_options(struct driver *d);
/* Sets the dims that --dim gives values to in values[number of dims]; others stay as they are. */
TFMC_MUST_USE enum tfmc_status driver_apply_dim_options(struct driver *d, const struct ir_dims *dims,
                                                        int64_t *values);
/* The pipeline of --passes, or the name of the one of -O; with --shards a named pipeline gets the passes shard and
 * stages. */
const char *driver_pipeline(struct driver *d);
/* Ranks of --shards, of all stages; 1: one process. */
int64_t driver_ranks(const struct driver *d);
/* The options of a pipeline run, with the sinks for prints, dumps and reproducers. */
struct pass_options driver_pass_options(struct driver *d, const struct target *target);
/* Runs a pipeline and prints times and statistics. The caller destroys *out; NULL on failure, as below. */
TFMC_MUST_USE enum tfmc_status driver_run_passes(struct driver *d, const struct ir_module *in,
                                                 const char *pipeline, const struct target *target,
                                                 struct ir_module **out);
/* Runs a pipeline into a report of the caller, without printing. */
TFMC_MUST_USE enum tfmc_status driver_run_pipeline(struct driver *d, const struct ir_module *in,
                                                   const char *pipeline, const struct target *target,
                                                   struct ir_module **out, struct pass_report *report);
/* Runs a part of a parsed pipeline and prints times and statistics. */
TFMC_MUST_USE enum tfmc_status driver_run_steps(struct driver *d, const struct pipeline *p,
                                                const struct pass_options *options,
                                                const struct ir_module *in, struct ir_module **out);
/* TFMC_INVALID after a diagnostic when m has no memory plan, which code generation and `plan` read. */
TFMC_MUST_USE enum tfmc_status driver_check_planned(struct driver *d, const struct ir_module *m);
/* Reads the file of --rules into *d. */
TFMC_MUST_USE enum tfmc_status driver_read_rules(struct driver *d);

#endif
