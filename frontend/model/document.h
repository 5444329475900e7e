/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model file as a document: its YAML tree merged with the files it is based on, and the list of files read.
 * Made by frontend/model, read by the sections.
 */
#ifndef TFMC_FRONTEND_MODEL_DOCUMENT_H
#define TFMC_FRONTEND_MODEL_DOCUMENT_H

#include "frontend/weights/parsed.h"
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
	struct parsed_files parsed; /* JSON and GGUF files, each parsed once */
	struct {
		const char **items;
		size_t n, cap;
	} read; /* paths of the files that were read */
};

/* Remembers that the file was read (frontend_files). */
void document_record_file(struct model_document *d, const char *path);

#endif
