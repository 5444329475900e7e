/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Patterns over dotted names, the same wherever a name may be a pattern
 * (weights.ignore, hub.ignore, --probe): `*` is any characters, dots included,
 * `?` is one character, `{a,b}` is either; `**` means what `*` does.
 */
#ifndef TFMC_IR_ALGORITHMS_GLOB_H
#define TFMC_IR_ALGORITHMS_GLOB_H

#include <stdbool.h>

#define GLOB_BYTES_MAX 1024 /* a longer pattern matches nothing */

bool glob_match(const char *glob, const char *text);

#endif
