/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors as text on the command line and on the terminal: --input NAME=VALUES, and outputs. Inputs by the names of
 * the transformers library.
 */
#ifndef TFMC_FRONTEND_DRIVER_RUN_VALUES_H
#define TFMC_FRONTEND_DRIVER_RUN_VALUES_H

#include "frontend/driver/commands/tensors.h"

/*
 * Parses "NAME=1,2,3" (rows are separated by ;) as an input of the function. Of its axes without a fixed size the first
 * is the number of rows, the last the values of a row, others have size 1. TFMC_INVALID after a diagnostic.
 */
TFMC_MUST_USE enum tfmc_status values_parse_input(struct driver *d, const struct ir_func *f, const char *text,
                                                  struct named_tensors *out);
/* Whether the name is an integer input of the library for each token, which values_parse_input takes as
 * i32[rows, values]. */
bool values_is_library_input(const char *name);
/*
 * Maps tensors with names of the library that the function does not have. attention_mask with padding after the tokens
 * becomes lengths; neutral values (a mask of ones, token types 0, positions 0, 1, ..) are accepted. Everything else
 * would change the result: TFMC_INVALID after a diagnostic.
 */
TFMC_MUST_USE enum tfmc_status values_map_library_inputs(struct driver *d, const struct ir_func *f,
                                                         struct named_tensors *in);
/* Appends name, type and values, a line for each row; only the beginning of large tensors. */
TFMC_MUST_USE enum tfmc_status values_print(struct driver *d, const struct named_tensors *t, struct buf *out);

#endif
