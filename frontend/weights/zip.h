/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strict reader of zip archives in memory (.npz, files of torch.save). Input is hostile: central directory and local
 * headers must agree with each other and with the size of the file; entries must not overlap.
 */
#ifndef TFMC_FRONTEND_WEIGHTS_ZIP_H
#define TFMC_FRONTEND_WEIGHTS_ZIP_H

#include "frontend/weights/stored.h"
#include "ir/support/compiler.h"
#include "ir/support/strmap.h"

#define ZIP_ENTRIES_MAX 65535
#define ZIP_STORED      0 /* methods of entries */
#define ZIP_DEFLATED    8 /* RFC 1951 */

/* An entry of the central directory. */
struct zip_entry {
	const char *name;
	uint64_t size, packed, local; /* bytes, bytes as stored, offset of the local header */
	unsigned flags, method;
	uint32_t crc;        /* CRC-32 of the uncompressed data */
	size_t begin, index; /* begin: offset of the data; index: in the directory */
};

/* An archive. [begin, begin + packed) of each entry is inside of the file, also of entries that
 * zip_check_method rejects. */
struct zip {
	const struct stored_source *s;
	const unsigned char *bytes;
	size_t len;
	uint64_t n, directory, directory_bytes; /* directory: file offset */
	struct zip_entry *entries;              /* [n], in data order */
	struct strmap by_name;                  /* name -> entry */
};

/* True: the bytes begin as an archive does. */
bool zip_has_magic(const unsigned char *bytes, size_t len);
/* Reads the directory and all local headers; s must outlive the archive. False after a diagnostic, or no
 * memory in the arena of s. */
TFMC_MUST_USE bool zip_read(const struct stored_source *s, struct zip *out);
/* Checks that an entry can be read: not encrypted, stored or deflated, with a possible size; else a
 * diagnostic. */
TFMC_MUST_USE bool zip_check_method(const struct zip *z, const struct zip_entry *e);
/* Inflates the first bytes of a deflated entry, at most `size`; returns how many. Fewer: the data end or are
 * damaged. */
TFMC_MUST_USE size_t zip_inflate_head(const struct zip *z, const struct zip_entry *e, unsigned char *to,
                                      size_t size);
/* Inflates a deflated entry into the arena, with its checksum; NULL after a diagnostic, or no memory. */
TFMC_MUST_USE unsigned char *zip_inflate(const struct zip *z, const struct zip_entry *e);

#endif
