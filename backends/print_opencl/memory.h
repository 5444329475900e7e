/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads, stores and arrays as OpenCL C. Pointers are carried as pointers to
 * uchar in their address space; each access says the type of its element.
 */
#ifndef TFMC_BACKENDS_PRINT_OPENCL_MEMORY_H
#define TFMC_BACKENDS_PRINT_OPENCL_MEMORY_H

#include "backends/print_opencl/text.h"
#include "backends/print/space.h"

/* The pointer operand of an access; texts bind tighter than any operator. */
struct opencl_address {
	struct space_pointer pointer;
	const char *ptr;
	const char *index;      /* elements; NULL: 0 */
	const char *bare_index; /* between brackets */
	int64_t disp;           /* elements */
};

/* "__global const uchar *", without the name. */
void opencl_pointer_type(struct buf *out, struct space_pointer p);
/* LOAD, LOAD_SPLAT, LOAD_PART: an expression. */
enum print_level opencl_load(struct buf *out, const struct kb_inst *i, const struct opencl_address *at,
                             int index_bits);
/* STORE, STORE_PART: statements with their semicolons, each begun by `indent`, ended by a newline. */
void opencl_store(struct buf *out, const struct kb_inst *i, const struct opencl_address *at,
                  const char *value, int index_bits, const char *indent);
/* PTR_ADD: an expression; index and disp in bytes. */
enum print_level opencl_ptr_add(struct buf *out, const struct opencl_address *at);
/* LOCAL, SHARED: the declaration of an array of the name. */
void opencl_array(struct buf *out, const struct kb_inst *i, const char *name);
/* Data of the record as an array in constant memory. */
void opencl_data(struct buf *out, const struct kb_data_item *d, const char *name);

#endif
