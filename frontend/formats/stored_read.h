/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements of stored types that the IR has no name for, as f64: what a weight_bytes' `read` may be. All are
 * exact but u64 above 2^53, which is rounded to nearest even.
 */
#ifndef TFMC_FRONTEND_FORMATS_STORED_READ_H
#define TFMC_FRONTEND_FORMATS_STORED_READ_H

#include "ir/weights/weight.h"

weight_elements stored_read_u16, stored_read_u32, stored_read_u64;
/* Floats of 8 bits; E4M3, E4M3FNUZ, E5M2FNUZ have no infinities. They and E5M2 fit into f16, E8M0 into bf16.
 */
weight_elements stored_read_f8_e4m3, stored_read_f8_e5m2, stored_read_f8_e4m3fnuz, stored_read_f8_e5m2fnuz,
        stored_read_f8_e8m0;
/* Big-endian. */
weight_elements stored_read_be_i16, stored_read_be_u16, stored_read_be_i32, stored_read_be_u32,
        stored_read_be_i64, stored_read_be_u64, stored_read_be_f16, stored_read_be_f32, stored_read_be_f64;

/* What bits of IEEE floats are worth: of the lower 32, of 64. */
double stored_float(uint64_t bits);
double stored_double(uint64_t bits);

#endif
