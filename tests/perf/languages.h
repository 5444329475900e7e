/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The OpenCL row of languages.c: a module of one function `run` (x) -> (y), all
 * f32 of constant shape, compiled for a target of ARCH_OPENCL and kept on the
 * first device with its memory in place.
 */
#ifndef TFMC_TESTS_PERF_LANGUAGES_H
#define TFMC_TESTS_PERF_LANGUAGES_H

#include <stdbool.h>
#include <stdint.h>

struct opencl_row;

/* Compiles the .tir file and copies x to the device. NULL after a message on stderr. */
struct opencl_row *opencl_row_open(const char *tir, const char *target, const float *x);
/* Enqueues n calls and waits for the last one. */
bool opencl_row_call(struct opencl_row *r, int64_t n);
/* The result of the last call. */
bool opencl_row_read(struct opencl_row *r, float *y);

#endif
