/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model file as a document: its YAML tree, merged with `base`, `include`, a preset and the parameter values of a hub
 * configuration. The rest of the frontend reads the merged tree; every node keeps the
 * location in the file it came from.
 */
#ifndef TFMC_FRONTEND_MODEL_COMPOSE_H
#define TFMC_FRONTEND_MODEL_COMPOSE_H

#include "frontend/weights/files.h"
#include "frontend/syntax/yaml_tree.h"

struct model_document {
	struct arena *arena;
	struct diag_context *cx;
	const char *path, *dir;
	const struct yaml_node *written; /* the file as written */
	const struct yaml_node *root;    /* merged with base, include and preset */
	const char *preset;              /* name of the preset it is based on; NULL: none */
	const char *hub_path; /* config.json or GGUF file that sets the parameters of the preset, or NULL */
	const char *const *ignored; /* --ignore-key: globs of configuration keys */
	size_t n_ignored;
	struct parsed_files parsed;                      /* JSON and GGUF files, each parsed once */
	void (*file_read)(void *user, const char *path); /* of frontend_options */
	void *file_user;
};

/* Tells frontend_options.file_read that the file is read. */
void document_record_file(struct model_document *d, const char *path);

#define COMPOSE_DEPTH_MAX 8

/* Replaces d->root by the merged document; unchanged if it names no other document. False after a
 * diagnostic. */
bool document_compose(struct model_document *d);

/* Rebases the file names of a document in `dir`, a subdirectory of the model's: they become relative to
 * the model. */
const struct yaml_node *compose_rebase_files(struct arena *a, const struct yaml_node *root, const char *dir);

/* ---- presets ---- */

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

#endif
