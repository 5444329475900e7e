/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a function of an object for aarch64 under qemu-aarch64-static, linked by
 * aarch64-linux-gnu-gcc with a program that reads its input and writes its result.
 */
#ifndef TFMC_TESTS_SUPPORT_CROSS_H
#define TFMC_TESTS_SUPPORT_CROSS_H

#include <stdbool.h>
#include <stddef.h>

#include "ir/support/buf.h"

/* True when both tools are there. */
bool cross_has_tools(void);
/* Calls `symbol`(in, out) of the object; fails the running test when that does not work. out holds zeros
 * before the call. */
void cross_call(const struct buf *object, const char *symbol, const void *in, size_t in_bytes, void *out,
                size_t out_bytes);

#endif
