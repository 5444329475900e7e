/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model file as a document: the tree of its text with what it is based on, and which files were read for it.
 * Made by frontend/import, read by the sections.
 */
#ifndef TFMC_FRONTEND_MODEL_DOCUMENT_H
#define TFMC_FRONTEND_MODEL_DOCUMENT_H

#include "frontend/formats/parsed.h"
#include "frontend/text/yaml_tree.h"

struct model_document {
	struct arena *arena;
	struct diag_context *cx;
	const char *path, *dir;
	const struct yaml_node *written; /* the file as it is */
	const struct yaml_node *root;    /* with what it is based on: base, include, preset */
	const char *preset;              /* name of the one it is made from; NULL: none */
	const char *hub_path;            /* configuration that parameters of the preset come from, or NULL */
	const char *const *ignored;      /* --ignore-key: globs of keys of the configuration */
	size_t n_ignored;
	struct parsed_files parsed; /* JSON and GGUF files */
	struct {
		const char **items;
		size_t n, cap;
	} read; /* paths of the files that were read for the object */
};

/* Remembers that the file was read (frontend_files). */
void document_note_file(struct model_document *d, const char *path);

#endif
