/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graph statements that a user wrote, closed: indices and arguments of
 * definitions become literals, local names become free ones, strings keep
 * `{i}` for the index of an enclosing repeat.
 */
#ifndef TFMC_FRONTEND_GRAPH_CLOSE_H
#define TFMC_FRONTEND_GRAPH_CLOSE_H

#include "frontend/blocks.h"

/* A top-level `graph`. */
bool graph_close_model(struct frontend_model *m);
/* One statement of a body in graph mode (b->locals). */
bool graph_close_statement(struct blocks *b, const struct yaml_node *node);

#endif
