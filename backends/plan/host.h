/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of an object around its kernels: command sequences, argument checks, calls, worker barriers,
 * and the interface.
 */
#ifndef TFMC_BACKENDS_PLAN_HOST_H
#define TFMC_BACKENDS_PLAN_HOST_H

#include "backends/plan/emit.h"

/* The plan and kernels of f, and NAME.func.body, .finish and .call. Functions of a device variant use the
 * plan of emit_device_program. */
TFMC_MUST_USE enum tfmc_status emit_function(struct object *o, struct function *f);
/* NAME.func.body: runs the commands of the plan, which is built here. */
TFMC_MUST_USE enum tfmc_status emit_body(struct object *o, struct function *f);
/* Fills omitted inputs with their defaults (worker 0 or -1 only); returns whether there are any. */
struct kb_val emit_defaults(struct emit *e, struct kb_val worker);
void emit_barriers(struct object *o); /* NAME.barrier NAME.leave */
/* Slots of the `task` argument of a kernel's calling function. */
enum task_slot { TASK_CONTEXT, TASK_ARGS, TASK_INDEX, TASK_SLOTS = TASK_INDEX + OBJECT_REPEAT_MAX };
/* Sets the context fields that depend on the number of workers and clears the barriers. */
void emit_set_workers(struct emit *e, struct kb_val n);
void emit_entries(struct object *o); /* NAME_call, NAME_ENTRY, NAME_ENTRY_spmd */
/* The interface but for calls: NAME_init, NAME_close, sizes, functions on the state, status texts. */
void emit_api(struct object *o);
/* if (!ok) return status; */
void emit_require(struct emit *e, struct kb_val ok, enum tfmc_rt_status status);
/* Returns E_NULL or E_CONTEXT unless the context was initialized by this object. */
void emit_check_magic(struct emit *e);
void emit_zero_words(struct emit *e, struct kb_val ptr, struct kb_val bytes); /* bytes: a multiple of 8 */
/* ---- interface functions on the state (host_state.c); args: after the context; e->state is loaded ---- */
/* (): empties all sequences and selects the first ones with their own sources. */
void emit_reset(struct emit *e, const struct kb_val *args);
/* (sequence, length): forgets the tokens from `length` on. */
void emit_trim(struct emit *e, const struct kb_val *args);
/* (from, to): copies a sequence. */
void emit_fork(struct emit *e, const struct kb_val *args);
/* (first, source): later calls are for the sequences from `first` on; source >= 0: all read that one's encoder
 * output. */
void emit_select(struct emit *e, const struct kb_val *args);
/* (from, n): each sequence b < n becomes what from[b] was before. */
void emit_reorder(struct emit *e, const struct kb_val *args);
/* (sequence): copies a block from the device to the state in memory, or back; does nothing without a device. */
void emit_fetch(struct emit *e, const struct kb_val *args);
void emit_store_state(struct emit *e, const struct kb_val *args);
/* Selects the sequences of later calls: sets the context fields that depend on the first row's sequence and
 * on the shared source (-1: none). */
void emit_set_rows(struct emit *e, struct kb_val first, struct kb_val source);

/* Byte offsets in struct tfmc_config. */
#define CONFIG(field) ((int64_t)offsetof(struct tfmc_config, field))

/* CPU features that the emitted code of the variant needs. Matrix tiles count only if the code uses them,
 * because a process must request them from the operating system. */
struct target_requirements object_needs(const struct object *o);
/* Slots that init passes to NAME.cpu. */
enum init_slot { INIT_WEIGHTS, INIT_BATCH, INIT_DEVICE /* result, for CONTEXT_DEVICE */, INIT_SLOTS };
void emit_variant_check(struct object *o); /* NAME.cpu(config, slots) -> status, one per variant */
/* The number of the most demanding variant that the config allows and that can run here, by NAME.cpu;
 * returns a status if there is none. */
struct kb_val emit_choose_variant(struct emit *e, struct kb_val config, struct kb_val slots);

/* ---- kernels on an OpenCL device (host_api.c) ---- */
/* Emits the kernels in a kernel module of their own; the OpenCL C source and the plan become data of the
 * object. */
TFMC_MUST_USE enum tfmc_status emit_device_program(struct object *o);
/* NAME.func.body of a device variant: fills omitted inputs, builds a struct tfmc_cl_call on the stack and passes it to
 * libtfmccl. */
void emit_device_body(struct object *o, const struct function *f);
/* Whether the chosen variant runs on a device. */
struct kb_val emit_is_device(struct emit *e);
/* Calls a function of libtfmccl with the device and n args; returns its status unless it is TFMC_RT_OK. */
void emit_device_call(struct emit *e, const char *function, const struct kb_val *args, size_t n);

#endif
