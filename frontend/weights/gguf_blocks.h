/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dequantization of GGUF block formats. For each QUANTS type of gguf_types.def
 *
 *   gguf_elements_NAME  reads its elements as f32 values
 *   gguf_rows_NAME      reads its rows as quants, scales and offsets of the format of its row there; exact
 *
 * Blocks divide rows. An infinite f16 scale is read as NaN.
 */
#ifndef TFMC_FRONTEND_QUANTIZED_GGUF_BLOCKS_H
#define TFMC_FRONTEND_QUANTIZED_GGUF_BLOCKS_H

#include "ir/weights/weight.h"

#define QUANTS(number, name, block, bytes, format)   \
	extern weight_elements gguf_elements_##name; \
	extern weight_rows gguf_rows_##name;
#include "frontend/weights/gguf_types.def"

#endif
