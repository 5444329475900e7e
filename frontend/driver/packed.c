/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packed weights in pages of their own.
 */
#define _GNU_SOURCE /* memfd_create */
#include "frontend/driver/packed.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define GIVE_BACK (64u << 20) /* bytes written between two times that pages of the source are given back */

void packed_init(struct packed *p, struct diag_context *cx, const struct weight_files *read)
{
	*p = (struct packed){.cx = cx, .read = read, .fd = -1};
}

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

/* Else what was read of the source would stay beside what is packed. */
static void give_back(struct packed *p, size_t n)
{
	p->since += n;
	if (p->since < GIVE_BACK)
		return;
	p->since = 0;
	if (p->read)
		weight_files_give_back(p->read);
}

bool packed_write(void *packed, uint64_t offset, const void *bytes, size_t n)
{
	struct packed *p = packed;
	if (p->fd < 0)
		p->fd = memfd_create("tfmc-weights", MFD_CLOEXEC);
	if (p->fd >= 0 && write_all(p->fd, offset, bytes, n)) {
		give_back(p, n);
		return true;
	}
	diag_error(p->cx, LOC_NONE, DIAG_FILE, "cannot keep packed weights in memory: %s", strerror(errno));
	return false;
}

enum tfmc_status packed_map(struct packed *p)
{
	struct stat st;
	if (p->fd < 0)
		return TFMC_OK;
	void *base = MAP_FAILED;
	if (!fstat(p->fd, &st))
		base = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, p->fd, 0);
	if (base == MAP_FAILED) {
		diag_error(p->cx, LOC_NONE, DIAG_FILE, "cannot map packed weights: %s", strerror(errno));
		return TFMC_IO;
	}
	p->map = (struct tfmc_mapping){.data = (const char *)base + TFMC_WEIGHTS_DATA,
	                               .bytes = (uint64_t)st.st_size - TFMC_WEIGHTS_DATA,
	                               .base = base,
	                               .base_bytes = (uint64_t)st.st_size};
	if (p->read)
		weight_files_give_back(p->read);
	return TFMC_OK;
}

void packed_close(struct packed *p)
{
	tfmc_weights_unmap(&p->map);
	if (p->fd >= 0)
		close(p->fd);
	p->fd = -1;
}
