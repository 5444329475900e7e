/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors that nodes of an ONNX file make of quantized constants, as tensors of the file beside its initializers:
 *
 *   DequantizeLinear(q, scale, zero)              OUTPUT          (q - zero) scale
 *   DequantizeLinear(Gather(q, ids), scale, zero) OUTPUT.weight   the same of the table q
 *   MatMulInteger(a, q, .., zero), QLinearMatMul  OUTPUT.weight   q - zero
 *   MatMulNBits(a, q, scales, zeros)              OUTPUT.weight   [N, K]
 *
 * OUTPUT is the name of the node's result. Matrices of 8 bits, and of 4 bits in MatMulNBits, keep their quants where
 * rows have scales of their own, or all have one; where columns have, OUTPUT^T keeps them, which `transpose: true` of
 * the map takes in place of OUTPUT. Nothing of this is an error: what does not fit is not added.
 */
#ifndef TFMC_FRONTEND_WEIGHTS_ONNX_QUANTIZED_H
#define TFMC_FRONTEND_WEIGHTS_ONNX_QUANTIZED_H

#include "frontend/weights/files.h"
#include "frontend/weights/onnx.h"

/* OUTPUT.weight of a node with an output, in `a`. */
const char *onnx_weight_name(struct arena *a, const struct onnx_node *node);
/* Adds the tensors, as ignored ones, after those of the model have their data. False: no memory. */
bool onnx_add_quantized(struct weight_files *wf, struct arena *a, const struct onnx_model *m,
                        const char *file, struct loc loc);

#endif
