/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench --groups: where the time of an entry goes. A session of its own whose
 * parallel_for runs one group after another, by the calling thread alone or by
 * a pool of workers, and stamps the clock around it. What a group costs beside
 * its neighbours' caches is in the figure, and with several workers the meeting
 * after each group (an entry itself leaves out those that nobody needs). On a device a group is timed by what the
 * device says of its kernels.
 */
#ifndef TFMC_FRONTEND_DRIVER_RUN_BENCH_GROUPS_H
#define TFMC_FRONTEND_DRIVER_RUN_BENCH_GROUPS_H

#include "frontend/driver/compile/jit.h"

struct bench_groups;

struct bench_groups_options {
	const char *variant; /* NULL: the best that runs */
	int64_t threads;     /* >= 1 */
	const struct tfmc_mapping *weights;
	const struct tfmc_device *device; /* NULL: the model has no code for one. Used until the end */
};

/* Memory for calls up to dims (all of the record), one sequence for each of the batch. Status codes of
 * tfmc_rt.h. */
int bench_groups_open(const struct tfmc_model *model, const int64_t *dims,
                      const struct bench_groups_options *o, struct bench_groups **out);
void bench_groups_close(struct bench_groups *g); /* NULL is allowed */
int bench_groups_reset(struct bench_groups *g);
int bench_groups_trim(struct bench_groups *g, int64_t sequence, int64_t length);
int bench_groups_call(struct bench_groups *g, int64_t entry, const int64_t *dims,
                      const struct tfmc_buffer *inputs, const struct tfmc_buffer *outputs);
/* Between begin and end the groups of one call are timed; the least time of each group over all such calls is
 * kept. */
void bench_groups_begin(struct bench_groups *g);
void bench_groups_end(struct bench_groups *g);
/*
 * The table: for each group of `func` (the function or case that the calls ran) in order, with the step of
 * the model it comes from (cx: names of files). values: those of
 * the module's dims; past: cached tokens of each sequence; roof: of as many workers. A row has the rate that is the larger part of its roof, operations of
 * its products or bytes of its weights. Several workers: "busy" is the part of
 * their time that they were inside the group. is_json: objects with commas between them.
 */
void bench_groups_print(const struct bench_groups *g, struct buf *out, const struct diag_context *cx,
                        const struct ir_module *m, const struct ir_func *func, const int64_t *values,
                        int64_t past, struct backend_peak roof, bool is_json);

#endif
