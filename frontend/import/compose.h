/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One document out of several: `base`, `include`, a preset and the parameter
 * values of a hub configuration. What the rest of the front end reads is the
 * merged tree; every node keeps its place in the file it came from.
 */
#ifndef TFMC_FRONTEND_IMPORT_COMPOSE_H
#define TFMC_FRONTEND_IMPORT_COMPOSE_H

#include "frontend/model/document.h"

#define COMPOSE_DEPTH_MAX 8

/* Replaces d->root by the merged document; it stays as it is when it names no other. */
bool document_compose(struct model_document *d);

/* ---- private to compose*.c, hub.c, presets.c ---- */

/* File names of a document that lies in `dir` (beneath that of the model), as seen from the model. */
const struct yaml_node *compose_moved(struct arena *a, const struct yaml_node *root, const char *dir);

/* ---- presets ---- */

/* The text of a preset, or NULL; presets.def is the list. */
const char *preset_text(const char *name);
/* The preset that has this word in presets.def, or NULL. */
const char *preset_of_type(const char *type);
/* The `kind` of the section `generate` that the preset of a configuration has, NULL without one; false after a
 * diagnostic. */
bool preset_generates(struct arena *a, struct diag_context *cx, const char *type, const char *architecture,
                      const char **kind);
/*
 * The preset of an architecture, such as llama_classes of LlamaForSequenceClassification; NULL: of its type none computes
 * it, only preset_architectures.
 */
const char *preset_of_architecture(struct arena *a, const char *type, const char *architecture);
const char *preset_architectures(struct arena *a, const char *type);
/* Whether the name is that of a decoder with another head, such as llama_classes: the presets llama, head_classes. */
bool preset_split(struct arena *a, const char *name, const char **base, const char **head);
/* What after the prefix chooses presets: "bert, bloom, ..." */
const char *preset_types(struct arena *a, const char *prefix);
/* All names, in order. */
const char *const *preset_names(size_t *n);

/* ---- hub.c ---- */

/*
 * The parameters of a preset with the values of a configuration (config.json or GGUF), by the table `hub` of
 * the preset. A key that is in no list is an error: it may change the computation. NULL after a diagnostic.
 */
struct hub_config;
const struct hub_config *hub_read(struct model_document *d, const struct yaml_node *file);
/* Its `model_type`, or NULL; "gguf:ARCHITECTURE" of a GGUF file. */
const char *hub_type(const struct hub_config *c);
/* The first of its `architectures`, or NULL. */
const char *hub_architecture(const struct hub_config *c);
bool hub_is_gguf(const struct hub_config *c);
/* What the configuration says of how weights are packed: a value of `weights.packed`; NULL after a diagnostic. */
const char *hub_packed(struct model_document *d, const struct hub_config *c);
/* own: what hub_ignored gives. */
const struct yaml_node *hub_apply(struct model_document *d, const struct hub_config *c,
                                  const struct yaml_node *table, const struct yaml_node *own,
                                  const struct yaml_node *params);
/* The lists of keys that count as absent: those of the section `hub` of a model file (NULL: none), those of
 * --ignore-key; NULL without any. */
const struct yaml_node *hub_ignored(struct model_document *d, const struct yaml_node *own, struct loc loc);

#endif
