/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of an object beside its kernels: groups, schedules, checks, calls, and the interface.
 */
#ifndef TFMC_BACKENDS_HOST_HOST_H
#define TFMC_BACKENDS_HOST_HOST_H

#include "backends/plan/emit.h"

/* Its plan, kernels and calls: NAME.func.body .finish .call, of a device by the plan that emit_device_program made. */
TFMC_MUST_USE enum tfmc_status emit_function(struct object *o, struct function *f);
TFMC_MUST_USE enum tfmc_status emit_body(struct object *o, struct function *f);
/* Returns a status when anything is wrong with the call of e->function, whose dims and bases are loaded. */
void emit_check(struct emit *e);
/* Worker 0, or -1, fills inputs that are left out; gives whether there are any. */
struct kb_val emit_defaults(struct emit *e, struct kb_val worker);
void emit_barriers(struct object *o); /* NAME.barrier NAME.leave */
/* What the function of a kernel works on: words. */
enum task_slot { TASK_CONTEXT, TASK_ARGS, TASK_INDEX, TASK_SLOTS = TASK_INDEX + OBJECT_REPEAT_MAX };
/* Writes the words of a context that depend on the number of workers. */
void emit_set_workers(struct emit *e, struct kb_val n);
void emit_entries(struct object *o); /* NAME_call, NAME_ENTRY, NAME_ENTRY_spmd */
void emit_api(struct object *o);
void emit_require(struct emit *e, struct kb_val ok, enum tfmc_rt_status status);
void emit_check_magic(struct emit *e);
void emit_zero_words(struct emit *e, struct kb_val ptr, struct kb_val bytes); /* a multiple of 8 bytes */
/* ---- functions of the interface on the state (state.c): e->state, args after the context ---- */
void emit_reset(struct emit *e, const struct kb_val *args);
void emit_trim(struct emit *e, const struct kb_val *args);
void emit_fork(struct emit *e, const struct kb_val *args);
void emit_select(struct emit *e, const struct kb_val *args);
void emit_reorder(struct emit *e, const struct kb_val *args);
void emit_fetch(struct emit *e, const struct kb_val *args);
void emit_store_state(struct emit *e, const struct kb_val *args);
/* Writes the words of a context that follow from the first row's sequence and the shared source (-1: none). */
void emit_set_rows(struct emit *e, struct kb_val first, struct kb_val source);

/* Byte offsets in struct tfmc_config. */
#define CONFIG(field) ((int64_t)offsetof(struct tfmc_config, field))

/* What the code of the variant needs, which has been recorded: of its target's features tiles only where it has some,
 * as a process must ask for them. */
struct target_requirements object_needs(const struct object *o);
/* Words of init that NAME.cpu takes beside the config. */
enum start { INIT_WEIGHTS, INIT_BATCH, INIT_DEVICE /* CONTEXT_DEVICE; written */, INIT_SLOTS };
void emit_variant_check(struct object *o); /* NAME.cpu(config, start) -> status, for each variant */
/* The number of the best variant that is allowed and runs here, by NAME.cpu; returns a status when there is none. */
struct kb_val emit_choose_variant(struct emit *e, struct kb_val config, struct kb_val start);

/* ---- kernels on an OpenCL device (device.c) ---- */
/* Records them in a module of their own; the program becomes data of the object. */
TFMC_MUST_USE enum tfmc_status emit_device_program(struct object *o);
/* The rest of NAME.cpu: opens the device. */
void emit_device_open(struct emit *e, struct kb_val config, struct kb_val start);
void emit_device_body(struct object *o, const struct function *f);
struct kb_val emit_is_device(struct emit *e);
/* Calls a function of libtfmccl with the device and more; what is no OK is returned. */
void emit_device_call(struct emit *e, const char *function, const struct kb_val *args, size_t n);

#endif
