/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors on the command line and on the terminal: --input NAME=VALUES, and outputs as text. */
#ifndef TFMC_FRONTEND_DRIVER_RUN_VALUES_H
#define TFMC_FRONTEND_DRIVER_RUN_VALUES_H

#include "frontend/driver/run/tensors.h"

/*
 * Appends the tensor of "NAME=1,2,3" (rows are separated by ;) for an input of the function. Axes of fixed
 * size have it; of the others the first one counts the rows, the last one the values of a row, those between
 * have 1. TFMC_INVALID after a diagnostic.
 */
TFMC_MUST_USE enum tfmc_status values_parse_input(struct driver *d, const struct ir_func *f, const char *text,
                                                  struct named_tensors *out);
/* Whether the library has an input of integers for each token with that name: i32 [rows, values] for values_parse_input. */
bool values_is_library_input(const char *name);
/*
 * Tensors of the library's names that are no inputs of the function. A mask of padding behind the tokens becomes lengths, one of
 * ones alone says nothing; any other mask, and tensors that would change what is computed (position_ids, inputs_embeds,
 * ..), are TFMC_INVALID after a diagnostic unless they say what holds anyway.
 */
TFMC_MUST_USE enum tfmc_status values_map_library_inputs(struct driver *d, const struct ir_func *f,
                                                         struct named_tensors *in);
/* Appends name, type and values, one line for each row; of long rows and many rows the beginning. */
TFMC_MUST_USE enum tfmc_status values_print(struct driver *d, const struct named_tensors *t, struct buf *out);

#endif
