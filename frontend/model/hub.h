/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hub configurations: the parameters of a preset from config.json or the metadata of a GGUF file.
 */
#ifndef TFMC_FRONTEND_MODEL_HUB_H
#define TFMC_FRONTEND_MODEL_HUB_H

#include "frontend/model/compose.h"

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
/* Location of a key (dots enter objects) in config.json; of GGUF files, of the reference to the file. */
struct loc hub_key_loc(const struct hub_config *c, const char *key);

#endif
