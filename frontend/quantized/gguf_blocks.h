/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors that GGUF files store in blocks of codes. For each type CODES of gguf_types.def
 *
 *   gguf_elements_NAME  its elements as numbers of f32
 *   gguf_rows_NAME      its rows as codes of the format of its row there; exact
 *
 * Blocks divide rows. A scale of f16 that is infinite is read as NaN.
 */
#ifndef TFMC_FRONTEND_QUANTIZED_GGUF_BLOCKS_H
#define TFMC_FRONTEND_QUANTIZED_GGUF_BLOCKS_H

#include "ir/weights/weight.h"

#define CODES(number, name, block, bytes, format)    \
	extern weight_elements gguf_elements_##name; \
	extern weight_rows gguf_rows_##name;
#include "frontend/quantized/gguf_types.def"

#endif
