/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mapping of weights files: read-only, checked against the record of the
 * object, never parsed.
 */
#define _POSIX_C_SOURCE 200809L
#include "tfmc_rt.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t hash(const void *bytes, uint64_t n)
{
	struct tfmc_weights_hash h;
	tfmc_weights_hash_begin(&h);
	tfmc_weights_hash_add(&h, bytes, n);
	return tfmc_weights_hash_end(&h);
}

static int check(const struct tfmc_mapping *m, const struct tfmc_record *record, unsigned flags)
{
	struct tfmc_weights_header header;
	if (m->base_bytes < TFMC_WEIGHTS_DATA)
		return TFMC_RT_E_FILE;
	memcpy(&header, m->base, sizeof(header));
	if (header.magic != TFMC_WEIGHTS_MAGIC || header.abi_version != TFMC_ABI_VERSION)
		return TFMC_RT_E_FILE;
	if (header.structure_hash != record->structure_hash || header.bytes != record->weights_bytes)
		return TFMC_RT_E_WEIGHTS;
	if (header.bytes != m->base_bytes - TFMC_WEIGHTS_DATA)
		return TFMC_RT_E_FILE;
	if ((flags & TFMC_MAP_VERIFY) && hash(m->data, m->bytes) != header.weights_hash)
		return TFMC_RT_E_WEIGHTS;
	return TFMC_RT_OK;
}

int tfmc_weights_map(const char *path, const struct tfmc_record *record, unsigned flags,
                     struct tfmc_mapping *out)
{
	struct stat st;
	*out = (struct tfmc_mapping){0};
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return TFMC_RT_E_FILE;
	int status = TFMC_RT_E_FILE;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size < (off_t)TFMC_WEIGHTS_DATA)
		goto done;
	void *base = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (base == MAP_FAILED)
		goto done;
	struct tfmc_mapping m = {.data = (const char *)base + TFMC_WEIGHTS_DATA,
	                         .bytes = (uint64_t)st.st_size - TFMC_WEIGHTS_DATA,
	                         .base = base,
	                         .base_bytes = (uint64_t)st.st_size};
	status = check(&m, record, flags);
	if (status == TFMC_RT_OK)
		*out = m;
	else
		munmap(base, (size_t)st.st_size);
done:
	close(fd);
	return status;
}

void tfmc_weights_unmap(struct tfmc_mapping *mapping)
{
	if (mapping->base)
		munmap(mapping->base, (size_t)mapping->base_bytes);
	*mapping = (struct tfmc_mapping){0};
}
