/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Globs over dotted names, for all options that accept patterns (weights.ignore, hub.ignore, --probe): `*` and `**`
 * match any characters including dots, `?` one character, `{a,b}` either alternative.
 */
#ifndef TFMC_IR_SUPPORT_GLOB_H
#define TFMC_IR_SUPPORT_GLOB_H

#include <stdbool.h>

#define GLOB_BYTES_MAX 1024 /* a longer pattern matches nothing */

bool glob_match(const char *glob, const char *text);

#endif
