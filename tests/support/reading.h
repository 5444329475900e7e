/* SPDX-License-Identifier: Apache-2.0 */
/*
* Common to tests of the readers: an arena, a diagnostic context whose
 * messages are collected as text, and files in a directory of their own.
 */
#ifndef TFMC_TESTS_SUPPORT_READING_H
#define TFMC_TESTS_SUPPORT_READING_H

#include "frontend/syntax/yaml_tree.h"
#include "ir/support/arena.h"
#include "ir/support/buf.h"
#include "ir/support/diag.h"

struct reading {
	struct arena arena;
	struct diag_context cx;
	struct buf log; /* rendered diagnostics */
	char dir[64];   /* "" until a file is written */
};

void reading_init(struct reading *r);
void reading_destroy(struct reading *r);
/* Forgets the diagnostics so far. */
void reading_clear(struct reading *r);
/* The tree of a text (any root), or NULL. */
const struct yaml_node *reading_yaml(struct reading *r, const char *text);
/* Writes a file into the directory of this reading. */
void reading_write(struct reading *r, const char *name, const void *bytes, size_t n);
/* The log has the text. */
bool reading_says(const struct reading *r, const char *text);

#endif
