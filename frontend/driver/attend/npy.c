/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NumPy's array file, version 1.0: magic, length of the header, the header (a Python
 * dictionary, padded with blanks so that the data begin at a multiple of 64), elements.
 */
#include <string.h>

#include "frontend/driver/attend/attend.h"

#define ALIGNMENT 64

void npy_write(struct buf *out, const float *data, size_t rank, const int64_t *dims)
{
	struct buf header;
	size_t count = 1;
	buf_init(&header);
	buf_str(&header, "{'descr': '<f4', 'fortran_order': False, 'shape': (");
	for (size_t i = 0; i < rank; i++) {
		buf_printf(&header, "%lld, ", (long long)dims[i]);
		count *= (size_t)dims[i];
	}
	buf_str(&header, "), }");
	size_t prefix = 10 + header.len + 1; /* magic, version, length; the newline at the end */
	buf_fill(&header, ' ', (ALIGNMENT - prefix % ALIGNMENT) % ALIGNMENT);
	buf_char(&header, '\n');
	buf_bytes(out, "\x93NUMPY\x01", 7);
	buf_char(out, 0);
	buf_char(out, (char)(header.len & 255));
	buf_char(out, (char)(header.len >> 8));
	buf_append(out, &header);
	for (size_t i = 0; i < count; i++) {
		uint32_t bits;
		memcpy(&bits, &data[i], sizeof(bits));
		buf_u32le(out, bits);
	}
	if (buf_failed(&header))
		out->failed = true;
	buf_destroy(&header);
}
