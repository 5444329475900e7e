/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LoRA adapters (Hu et al. 2021) as PEFT saves them: a folder with adapter_config.json and adapter_model.safetensors
 * (or .bin). A module X of the model has there X.lora_A.weight [r, in] and X.lora_B.weight [out, r]; the weight of X
 * becomes W + s B A with s = lora_alpha / r, or lora_alpha / sqrt(r) with use_rslora. Other tensors (modules_to_save,
 * biases) replace those of the model.
 */
#ifndef TFMC_FRONTEND_WEIGHTS_ADAPTER_H
#define TFMC_FRONTEND_WEIGHTS_ADAPTER_H

#include "frontend/weights/files.h"

#define ADAPTER_RANK_MAX 4096

/*
 * Opens the adapter in `folder`, to which `dir` is as in weight_files_open, and attaches its updates to the tensors of
 * wf, whose prefixes are stripped already. Errors are reported in its files, or at loc: unknown keys of the
 * configuration that are not null, false or empty; tensors that are no part of a LoRA; shapes that do not fit; tensors
 * that the model does not store, or not as floats. Adapters that are opened one after another are added up.
 */
TFMC_MUST_USE enum tfmc_status weight_adapter_open(struct weight_files *wf, struct arena *a,
                                                   struct diag_context *cx, const char *dir,
                                                   const char *folder, struct loc loc);

#endif
