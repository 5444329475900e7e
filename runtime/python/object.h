/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A compiled object loaded into this process without a linker: what `ld` and `dlopen` do for it, so that a machine
 * without a C compiler runs models. Objects are position-independent, have no data that is written and need memcpy and
 * memset only (with OpenCL code libtfmccl, which is in this library), so that sections are copied and relocated once.
 */
#ifndef TFMC_RUNTIME_PYTHON_OBJECT_H
#define TFMC_RUNTIME_PYTHON_OBJECT_H

#include "runtime/tfmc_rt.h"

struct tfmc_object;
/*
 * Loads an object that `tfmc -o` wrote for this architecture and fills *model, whose functions stay valid until close.
 * TFMC_RT_E_FILE: not readable, or not a relocatable ELF file; TFMC_RT_E_CPU: of another architecture;
 * TFMC_RT_E_RECORD: damaged, or not an object of tfmc; TFMC_RT_E_MEMORY. The code of the object is trusted, as that of
 * a shared library is.
 */
int tfmc_object_open(const char *path, struct tfmc_model *model, struct tfmc_object **out);
void tfmc_object_close(struct tfmc_object *object); /* NULL is allowed; no session may be open */

/* The arguments of tfmc_session_call behind one pointer: cffi takes a tenth of a microsecond for each. */
struct tfmc_prepared_call {
	struct tfmc_session *session;
	int64_t entry;
	const int64_t *dims;
	const struct tfmc_buffer *inputs, *outputs;
};
int tfmc_prepared_call(const struct tfmc_prepared_call *call);

#endif
