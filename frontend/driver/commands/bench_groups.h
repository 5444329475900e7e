/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench --groups: the time of each fused group of an entry. A context of its own has a parallel_for that runs one
 * group after another, by the calling thread or by a thread pool, and reads the clock around it. Cache misses that
 * neighboring groups cause are included, and with several workers the barrier after each group (an entry itself omits
 * barriers that no group needs). On a device the times are those that OpenCL profiling reports for the kernels.
 */
#ifndef TFMC_FRONTEND_DRIVER_RUN_BENCH_GROUPS_H
#define TFMC_FRONTEND_DRIVER_RUN_BENCH_GROUPS_H

#include "frontend/driver/compile/jit.h"

struct bench_groups;

struct bench_groups_options {
	const char *variant; /* NULL: the best that runs */
	int64_t threads;     /* >= 1 */
	const struct tfmc_mapping *weights;
	const struct tfmc_device *device; /* NULL: the CPU. Used until bench_groups_close */
};

/* Allocates memory for calls of up to dims[dims of the record]. Returns a status of tfmc_rt.h. */
int bench_groups_open(const struct tfmc_model *model, const int64_t *dims,
                      const struct bench_groups_options *o, struct bench_groups **out);
void bench_groups_close(struct bench_groups *g); /* NULL is allowed */
int bench_groups_reset(struct bench_groups *g);
int bench_groups_trim(struct bench_groups *g, int64_t sequence, int64_t length);
int bench_groups_call(struct bench_groups *g, int64_t entry, const int64_t *dims,
                      const struct tfmc_buffer *inputs, const struct tfmc_buffer *outputs);
/* Between begin and end the groups of one call are timed. Of each group the call with the least time is kept. */
void bench_groups_begin(struct bench_groups *g);
void bench_groups_end(struct bench_groups *g);
/*
 * Prints a row for each group of `func` (the function or case that the calls ran) in order, with the model step
 * it comes from (cx: names of files). values: of the module's dims; past: cached tokens of each sequence; peak:
 * of the machine with as many workers. A row shows the rate that is closer to its peak, FLOP of dot products or
 * bytes of weights. With several workers "busy" is the share of their time inside the group. is_json: objects,
 * separated by commas.
 */
void bench_groups_print(const struct bench_groups *g, struct buf *out, const struct diag_context *cx,
                        const struct ir_module *m, const struct ir_func *func, const int64_t *values,
                        int64_t past, struct backend_peak peak, bool is_json);

#endif
