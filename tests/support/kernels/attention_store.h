/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors of an attention call in the form that its config says: narrow, keys in
 * panels, keys and values in rings.
 */
#ifndef TFMC_TESTS_SUPPORT_KERNELS_ATTENTION_STORE_H
#define TFMC_TESTS_SUPPORT_KERNELS_ATTENTION_STORE_H

#include "tests/support/kernels/attention_case.h"

/* Element type of keys and values. */
enum ir_dtype attention_key_type(const struct attention_config *c);
/* x, or its copy in bf16. */
void *attention_stored(struct attention_case *c, float *x, int64_t n);
void *attention_stored_keys(struct attention_case *c, struct attention_call *call);
void *attention_stored_values(struct attention_case *c, struct attention_call *call);
/* Of keys or values of i8, else NULL. */
void *attention_stored_scales(struct attention_case *c, struct attention_call *call, const float *scales);
/* Elements of what they give. */
int64_t attention_key_floats(const struct attention_case *c, const struct attention_call *call);
int64_t attention_value_floats(const struct attention_case *c, const struct attention_call *call);
int64_t attention_scale_floats(const struct attention_case *c, const struct attention_call *call);

#endif
