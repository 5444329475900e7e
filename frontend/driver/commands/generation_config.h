/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The generation configuration: sampling, beam search and logit constraints of the model's section `generate`,
 * overridden by the options, as options of the runtime library.
 */
#ifndef TFMC_FRONTEND_DRIVER_COMMANDS_GENERATION_CONFIG_H
#define TFMC_FRONTEND_DRIVER_COMMANDS_GENERATION_CONFIG_H

#include "frontend/driver/compile/compile.h"

/* False: greedy decoding. Any sampling option samples; --temperature=0 and --beam=1 without one are greedy. */
bool generation_sampling(const struct driver *d, const struct frontend_generate *g,
                         struct tfmc_sample_options *out);
/* The model's beam search; beam 1: it has none. */
struct tfmc_beam_options generation_beam(const struct frontend_generate *g);
/*
 * Penalties, stop strings, banned and forced tokens; their lists are in the arena. Start, stop and suppressed ids of
 * the model are in the record. False after a diagnostic: an option is not a list of ids, or a text has no ids.
 */
bool generation_constraints(struct driver *d, const struct frontend_generate *g, const struct tfmc_record *r,
                            struct tfmc_constraints *out);

#endif
