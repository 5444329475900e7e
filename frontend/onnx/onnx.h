/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Import of ONNX: the graph of a file as a model file of the graph level, whose weights are the initializers of the
 * same file. Public interface of frontend/onnx.
 */
#ifndef TFMC_FRONTEND_ONNX_ONNX_H
#define TFMC_FRONTEND_ONNX_ONNX_H

#include "frontend/model/model.h"

/* True if the path is an ONNX file, by its name or its first bytes. */
bool onnx_is_file(struct diag_context *cx, const char *path);
/*
 * The YAML text of the model at `path`, in `a`. `at`: directory of the file as seen from the text. Sizes with a symbol
 * are dims, whose bounds options->dims has ("seq=1..512"). NULL after a diagnostic, with the reason in *st.
 */
const char *onnx_model_text(struct arena *a, struct diag_context *cx, const char *path, const char *at,
                            const struct frontend_options *options, enum tfmc_status *st);

#endif
