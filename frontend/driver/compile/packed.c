/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packed weights in a file of the cache, or in anonymous memory.
 */
#define _GNU_SOURCE /* memfd_create */
#include "frontend/driver/compile/packed.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define RELEASE_INTERVAL (64u << 20) /* bytes written between two releases of source pages */

static bool write_all(int fd, uint64_t offset, const char *bytes, size_t n)
{
	while (n > 0) {
		ssize_t done = pwrite(fd, bytes, n, (off_t)offset);
		if (done < 0 && errno != EINTR)
			return false;
		size_t some = done > 0 ? (size_t)done : 0;
		bytes += some;
		offset += some;
		n -= some;
	}
	return true;
}

/* Otherwise the pages of the source would stay resident in addition to the packed copy. */
static void release_source_pages(struct packed *p, size_t n)
{
	p->since += n;
	if (p->since < RELEASE_INTERVAL)
		return;
	p->since = 0;
	if (p->read)
		weight_files_release_pages(p->read);
}

static struct cache_file create_memory_file(void)
{
	return (struct cache_file){.fd = memfd_create("tfmc-weights", MFD_CLOEXEC)};
}

/* The cache failed to write (full disk, for example): copies its content and goes on in memory. */
static bool move_to_memory(struct packed *p)
{
	struct cache_file to = create_memory_file();
	char block[65536];
	uint64_t at = 0;
	ssize_t n = 1;
	while (to.fd >= 0 && (n = pread(p->file.fd, block, sizeof(block), (off_t)at)) > 0 &&
	       write_all(to.fd, at, block, (size_t)n))
		at += (uint64_t)n;
	cache_discard(&p->file);
	p->file = to;
	return to.fd >= 0 && n == 0;
}

bool packed_write(void *packed, uint64_t offset, const void *bytes, size_t n)
{
	struct packed *p = packed;
	if (p->file.fd < 0)
		p->file = cache_create(p->cache, p->arena);
	if (p->file.fd < 0)
		p->file = create_memory_file();
	bool ok = p->file.fd >= 0 && write_all(p->file.fd, offset, bytes, n);
	if (!ok && p->file.fd >= 0 && p->file.name)
		ok = move_to_memory(p) && write_all(p->file.fd, offset, bytes, n);
	if (ok) {
		release_source_pages(p, n);
		return true;
	}
	diag_environment_error(p->cx, LOC_NONE, DIAG_FILE, "cannot keep packed weights in memory: %s",
	                       strerror(errno));
	return false;
}

bool packed_write_copy(void *packed, uint64_t offset, const void *bytes, size_t n)
{
	struct packed *p = packed;
	if (p->file.fd >= 0 && !write_all(p->file.fd, offset, bytes, n))
		cache_discard(&p->file);
	return true;
}

enum tfmc_status packed_map(struct packed *p)
{
	struct stat st;
	if (p->file.fd < 0)
		return TFMC_OK;
	void *base = MAP_FAILED;
	if (!fstat(p->file.fd, &st))
		base = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, p->file.fd, 0);
	if (base == MAP_FAILED) {
		diag_environment_error(p->cx, LOC_NONE, DIAG_FILE, "cannot map packed weights: %s",
		                       strerror(errno));
		return TFMC_IO;
	}
	p->map = (struct tfmc_mapping){.data = (const char *)base + TFMC_WEIGHTS_DATA,
	                               .bytes = (uint64_t)st.st_size - TFMC_WEIGHTS_DATA,
	                               .base = base,
	                               .base_bytes = (uint64_t)st.st_size};
	if (p->read)
		weight_files_release_pages(p->read);
	return TFMC_OK;
}

bool packed_commit(struct packed *p, const char *name)
{
	return p->file.name && cache_commit(p->cache, &p->file, name);
}

void packed_close(struct packed *p)
{
	tfmc_weights_unmap(&p->map);
	cache_discard(&p->file);
}
