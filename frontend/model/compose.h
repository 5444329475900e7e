/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Composition of one document from `base`, `include`, a preset and the parameter values of a hub
 * configuration. The rest of the frontend reads the merged tree; every node keeps the location in the file it
 * came from.
 */
#ifndef TFMC_FRONTEND_IMPORT_COMPOSE_H
#define TFMC_FRONTEND_IMPORT_COMPOSE_H

#include "frontend/model/document.h"

#define COMPOSE_DEPTH_MAX 8

/* Replaces d->root by the merged document; unchanged if it names no other document. False after a
 * diagnostic. */
bool document_compose(struct model_document *d);

/* Rebases the file names of a document in `dir`, a subdirectory of the model's: they become relative to
 * the model. */
const struct yaml_node *compose_rebase_files(struct arena *a, const struct yaml_node *root, const char *dir);

/* ---- private to compose.c, hub*.c, presets.c ---- */

/* ---- presets ---- */

/* The YAML text of a preset, or NULL; presets.def is the list. */
const char *preset_text(const char *name);
/* The preset for a model type (a keyword in presets.def), or NULL. */
const char *preset_of_type(const char *type);
/* The `kind` of the section `generate` of the preset for a configuration, NULL without one; false after a
 * diagnostic. */
bool preset_generate_kind(struct arena *a, struct diag_context *cx, const char *type,
                          const char *architecture, const char **kind);
/*
 * The preset for an architecture, such as llama_classes for LlamaForSequenceClassification; NULL: no preset
 * for this type computes it, see preset_architectures.
 */
const char *preset_of_architecture(struct arena *a, const char *type, const char *architecture);
/* Supported architectures of a type, for messages. */
const char *preset_architectures(struct arena *a, const char *type);
/* True: the name is a decoder with another head, such as llama_classes: *base llama, *head head_classes. */
bool preset_split_head(struct arena *a, const char *name, const char **base, const char **head);
/* Model types with a prefix, for messages: "bert, bloom, ..." */
const char *preset_types(struct arena *a, const char *prefix);
/* All names, in order. */
const char *const *preset_names(size_t *n);

/* ---- hub.c ---- */

/*
 * A hub configuration (config.json or GGUF metadata), which hub_apply turns into parameters of a preset by
 * the table `hub` of the preset. A key in no list is an error: it may change the computation. NULL after a
 * diagnostic.
 */
struct hub_config;
const struct hub_config *hub_read(struct model_document *d, const struct yaml_node *file);
/* `model_type`, or NULL; "gguf:ARCHITECTURE" for a GGUF file. */
const char *hub_type(const struct hub_config *c);
/* First of `architectures`, or NULL. */
const char *hub_architecture(const struct hub_config *c);
/* True: the configuration is GGUF metadata. */
bool hub_is_gguf(const struct hub_config *c);
/* Packing of the weights by quantization_config: a value of `weights.packed`; NULL after a diagnostic. */
const char *hub_weight_packing(struct model_document *d, const struct hub_config *c);
/* Returns the parameters with the values of the configuration; extra_ignored: from hub_ignored_lists. NULL after a
 * diagnostic. */
const struct yaml_node *hub_apply(struct model_document *d, const struct hub_config *c,
                                  const struct yaml_node *table, const struct yaml_node *extra_ignored,
                                  const struct yaml_node *params);
/* Returns named lists of the keys that hub_apply treats as absent: the lists `ignore` of the section `hub` of a model
 * file (own; NULL: no section), and the names of --ignore-key as a list of their own, at loc. NULL: no lists. */
const struct yaml_node *hub_ignored_lists(struct model_document *d, const struct yaml_node *own,
                                          struct loc loc);

#endif
