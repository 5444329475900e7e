/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Binaries of programs as files: a header, the key, the binary. The key is everything that a binary depends on,
 * source included, and is compared as a whole: the hash in a file's name only finds it. The checksum is against
 * accidents, so nothing has to wait for the disk.
 */
#define _GNU_SOURCE /* mkostemp */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/abi.h"
#include "runtime/opencl/internal.h"

#define MAGIC    0x31424c434d465400ull /* "\0TFMCLB1", in this machine's order of bytes */
#define VERSION  1
#define FILE_MAX ((uint64_t)1 << 30)

struct header {
	uint64_t magic, version, key_bytes, binary_bytes;
	uint64_t checksum; /* of all bytes of the file, with 0 here */
};

static uint64_t hash(const void *bytes, uint64_t n)
{
	struct tfmc_weights_hash h;
	tfmc_weights_hash_begin(&h);
	tfmc_weights_hash_add(&h, bytes, n);
	return tfmc_weights_hash_end(&h);
}

bool cl_key_make(const struct tfmc_cl_context *c, const struct tfmc_cl_source *source, struct cl_key *out)
{
	const struct tfmc_cl_device *d = &c->entry->device;
	const char *texts[] = {
	        d->platform, d->platform_version, d->name,      d->vendor,
	        d->driver,   d->version,          d->c_version, source->options ? source->options : ""};
	size_t n = 0, count = sizeof(texts) / sizeof(texts[0]);
	for (size_t i = 0; i < count; i++)
		n += strlen(texts[i]) + 1;
	*out = (struct cl_key){0};
	if (source->bytes > FILE_MAX)
		return false;
	out->bytes = malloc(n + (size_t)source->bytes);
	for (size_t i = 0; out->bytes && i < count; i++) {
		size_t length = strlen(texts[i]) + 1; /* the end keeps neighbours apart */
		memcpy(out->bytes + out->n, texts[i], length);
		out->n += length;
	}
	if (out->bytes)
		memcpy(out->bytes + out->n, source->text, (size_t)source->bytes);
	out->n += (size_t)source->bytes;
	return out->bytes != NULL;
}

/* "FOLDER/0123456789abcdef.clbin"; the caller frees it. NULL: no memory. */
static char *path_of(const char *folder, const struct cl_key *key)
{
	size_t n = strlen(folder) + 64;
	char *path = malloc(n);
	if (path)
		(void)snprintf(path, n, "%s/%016" PRIx64 ".clbin", folder, hash(key->bytes, key->n));
	return path;
}

/* ---- reading ---- */

/* All bytes of a file; NULL: it cannot be read, or is none of ours. */
static unsigned char *read_file(int fd, size_t *n)
{
	struct stat st;
	bool is_file = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
	               st.st_size >= (off_t)sizeof(struct header) && (uint64_t)st.st_size <= FILE_MAX;
	unsigned char *bytes = is_file ? malloc((size_t)st.st_size) : NULL;
	size_t got = 0;
	ssize_t step = 1;
	while (bytes && step > 0) {
		step = read(fd, bytes + got, (size_t)st.st_size - got);
		got += step > 0 ? (size_t)step : 0;
	}
	*n = got;
	return bytes;
}

/* Where the binary begins in the bytes of a file; 0: the file is damaged, or is of another key. */
static size_t find_binary(unsigned char *bytes, size_t n, const struct cl_key *key)
{
	struct header h;
	if (n < sizeof(h))
		return 0;
	memcpy(&h, bytes, sizeof(h));
	uint64_t rest = n - sizeof(h);
	if (h.magic != MAGIC || h.version != VERSION || h.key_bytes != key->n || h.key_bytes > rest ||
	    h.binary_bytes != rest - h.key_bytes || h.binary_bytes == 0)
		return 0;
	memset(bytes + offsetof(struct header, checksum), 0, sizeof(h.checksum));
	bool is_right = hash(bytes, n) == h.checksum && memcmp(bytes + sizeof(h), key->bytes, key->n) == 0;
	return is_right ? sizeof(h) + key->n : 0;
}

unsigned char *cl_cache_read(const char *folder, const struct cl_key *key, size_t *at, size_t *n)
{
	char *path = path_of(folder, key);
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1; /* a FIFO is not waited for */
	unsigned char *bytes = fd >= 0 ? read_file(fd, n) : NULL;
	*at = bytes ? find_binary(bytes, *n, key) : 0;
	if (fd >= 0)
		close(fd);
	free(path);
	if (*at)
		return bytes;
	free(bytes);
	return NULL;
}

/* ---- writing ---- */

static bool write_all(int fd, const unsigned char *bytes, size_t n)
{
	while (n > 0) {
		ssize_t step = write(fd, bytes, n);
		if (step <= 0)
			return false;
		bytes += step;
		n -= (size_t)step;
	}
	return true;
}

/* Under a name of its own first: who reads sees the whole file, or that before. */
static void write_file(const char *path, const unsigned char *bytes, size_t n)
{
	static const char ending[] = ".XXXXXX";
	size_t length = strlen(path);
	char *beside = malloc(length + sizeof(ending));
	if (!beside)
		return;
	memcpy(beside, path, length);
	memcpy(beside + length, ending, sizeof(ending));
	int fd = mkostemp(beside, O_CLOEXEC);
	if (fd >= 0) {
		bool is_written = write_all(fd, bytes, n);
		is_written = close(fd) == 0 && is_written;
		if (!is_written || rename(beside, path) != 0)
			(void)unlink(beside);
	}
	free(beside);
}

void cl_cache_write(const char *folder, const struct cl_key *key, const unsigned char *binary, size_t n)
{
	struct header h = {MAGIC, VERSION, key->n, n, 0};
	if (n > FILE_MAX - sizeof(h) || key->n > FILE_MAX - sizeof(h) - n)
		return;
	size_t all = sizeof(h) + key->n + n;
	char *path = path_of(folder, key);
	unsigned char *bytes = malloc(all);
	if (path && bytes) {
		memcpy(bytes, &h, sizeof(h));
		memcpy(bytes + sizeof(h), key->bytes, key->n);
		memcpy(bytes + sizeof(h) + key->n, binary, n);
		h.checksum = hash(bytes, all);
		memcpy(bytes, &h, sizeof(h));
		write_file(path, bytes, all);
	}
	free(bytes);
	free(path);
}
