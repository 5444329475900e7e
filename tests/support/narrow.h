/* SPDX-License-Identifier: Apache-2.0 */
/* Floats of 16 bits as they lie in memory. */
#ifndef TFMC_TESTS_SUPPORT_NARROW_H
#define TFMC_TESTS_SUPPORT_NARROW_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "ir/types/type.h"

/* One of 16 bits; x is in the type. */
static inline uint16_t narrow_bits(enum ir_dtype t, float x)
{
	uint32_t bits;
	if (t == DT_BF16) {
		memcpy(&bits, &x, 4);
		return (uint16_t)(bits >> 16);
	}
	uint16_t sign = signbit(x) ? 0x8000 : 0;
	int e;
	if (isnan(x))
		return 0x7e00;
	float m = frexpf(fabsf(x), &e); /* m 2^e, m in [1/2, 1) */
	if (m == 0)
		return sign;
	if (e < -13)
		return (uint16_t)(sign | (uint16_t)ldexpf(m, e + 24));
	return (uint16_t)(sign | (uint16_t)((e + 14) << 10) | ((uint16_t)ldexpf(m, 11) & 0x3ff));
}

#endif
