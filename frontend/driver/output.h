/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Output files: each is written to a temporary file in its directory and all
 * are renamed together at the end, in the order they were added; a failure
 * leaves old files untouched and removes the temporary ones.
 */
#ifndef TFMC_DRIVER_OUTPUT_H
#define TFMC_DRIVER_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "ir/support/arena.h"
#include "ir/support/diag.h"
#include "ir/support/strmap.h"

struct output_file {
	const char *path, *temporary;
	FILE *stream;
	uint64_t at; /* position of the next byte */
	bool failed;
};

struct outputs {
	struct arena *arena;
	struct diag_context *cx;
	struct output_file **items;
	size_t n, cap;
	struct {
		const char **items;
		size_t n, cap;
	} inputs;            /* files that were read: must not be written; each once */
	struct strmap known; /* the inputs */
};

void outputs_init(struct outputs *o, struct arena *arena, struct diag_context *cx);
/* `path` is an input: no output may be the same file. */
void outputs_protect(struct outputs *o, const char *path);
/* Opens a temporary file beside `path`. NULL after a diagnostic. The path `input` (may be NULL) must be
 * another file. */
struct output_file *outputs_add(struct outputs *o, const char *path, const char *input);
bool output_write(struct output_file *f, const void *bytes, size_t n);
/* The same, at a position from the beginning. */
bool output_write_at(struct output_file *f, uint64_t offset, const void *bytes, size_t n);
/* The file that was added last is renamed before all others. */
void outputs_move_first(struct outputs *o);
/* The file is renamed after all others. */
void outputs_move_last(struct outputs *o, struct output_file *f);
/* Closes and renames all. On failure a diagnostic, and nothing is renamed that was not yet. */
TFMC_MUST_USE enum tfmc_status outputs_commit(struct outputs *o);
/* Removes the temporary files that are left. */
void outputs_discard(struct outputs *o);

#endif
