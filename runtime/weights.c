/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mapping of weights files: read-only, header checked against the record, never parsed; optionally copied to
 * huge pages.
 */
#define _POSIX_C_SOURCE 200809L
#include "runtime/memory.h"
#include "tfmc_rt.h"
#include "try.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t hash_bytes(const void *bytes, uint64_t n)
{
	struct tfmc_weights_hash h;
	tfmc_weights_hash_begin(&h);
	tfmc_weights_hash_add(&h, bytes, n);
	return tfmc_weights_hash_end(&h);
}

/* Checks the header of a mapped file against the record, with TFMC_MAP_VERIFY the hash of all bytes, too. E_FILE: no
 * weights, or cut off; E_WEIGHTS: of another object; E_RANKS: of another number of ranks. */
static int check_header(struct tfmc_mapping *m, const struct tfmc_record *record, unsigned flags)
{
	struct tfmc_weights_header header;
	if (m->base_bytes < TFMC_WEIGHTS_DATA)
		return TFMC_RT_E_FILE;
	memcpy(&header, m->base, sizeof(header));
	if (header.magic != TFMC_WEIGHTS_MAGIC || header.abi_version != TFMC_ABI_VERSION)
		return TFMC_RT_E_FILE;
	if (header.structure_hash != record->structure_hash || header.bytes != record->weights_bytes)
		return TFMC_RT_E_WEIGHTS;
	if (header.ranks != record->ranks || header.rank < 0 || header.rank >= header.ranks)
		return TFMC_RT_E_RANKS;
	if (header.bytes != m->base_bytes - TFMC_WEIGHTS_DATA)
		return TFMC_RT_E_FILE;
	m->rank = header.rank;
	m->set_hash = header.set_hash;
	m->hash = header.weights_hash;
	if ((flags & TFMC_MAP_VERIFY) && hash_bytes(m->data, m->bytes) != header.weights_hash)
		return TFMC_RT_E_WEIGHTS;
	return TFMC_RT_OK;
}

/* Replaces the mapping by a copy in huge pages (fewer TLB misses); small files stay mapped. base_bytes is then that of
 * the copy, which unmap needs. */
static int move_to_large_pages(struct tfmc_mapping *m)
{
	struct memory_block block;
	TRY(memory_block_alloc(&block, m->base_bytes, MEMORY_LARGE_PAGES));
	if (!block.mapped) {
		memory_block_free(&block);
		return TFMC_RT_OK;
	}
	memcpy(block.data, m->base, (size_t)m->base_bytes);
	munmap(m->base, (size_t)m->base_bytes);
	(void)mprotect(block.data, (size_t)block.mapped, PROT_READ);
	m->base = block.data;
	m->base_bytes = block.mapped;
	m->data = (const char *)block.data + TFMC_WEIGHTS_DATA;
	return TFMC_RT_OK;
}

/* *out is set when all checks have passed; after a failure nothing stays mapped. The descriptor is closed in any
 * case: a mapping does not need it. */
int tfmc_weights_map(const char *path, const struct tfmc_record *record, unsigned flags,
                     struct tfmc_mapping *out)
{
	struct stat st;
	if (!out)
		return TFMC_RT_E_NULL;
	*out = (struct tfmc_mapping){0};
	if (!path || !record)
		return TFMC_RT_E_NULL;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* O_NONBLOCK: a FIFO is rejected instead
								   of blocking */
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
	status = check_header(&m, record, flags);
	if (status == TFMC_RT_OK && (flags & TFMC_MAP_LARGE_PAGES))
		status = move_to_large_pages(&m);
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
	if (!mapping)
		return;
	if (mapping->base)
		munmap(mapping->base, (size_t)mapping->base_bytes);
	*mapping = (struct tfmc_mapping){0};
}

/* ---- search ---- */

static bool is_weights_name(const char *name)
{
	size_t n = strlen(name), suffix = strlen(".weights");
	return n > suffix && !strcmp(name + n - suffix, ".weights");
}

/* True: the header says that the file was written with the object, for this rank. set_hash: of the weights of all
 * ranks. */
static bool belongs_to(const struct tfmc_record *record, int64_t rank, int directory, const char *name)
{
	struct tfmc_weights_header h = {0};
	int fd = openat(directory, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	bool is_read = fd >= 0 && read(fd, &h, sizeof(h)) == (ssize_t)sizeof(h);
	if (fd >= 0)
		close(fd);
	return is_read && h.magic == TFMC_WEIGHTS_MAGIC && h.abi_version == TFMC_ABI_VERSION &&
	       h.structure_hash == record->structure_hash && h.set_hash == record->weights_hash &&
	       h.ranks == record->ranks && h.rank == rank;
}

/* Writes the first matching name of the directory, in alphabetical order (readdir has none), to out; "": none. */
static void find_in_directory(const struct tfmc_record *record, int64_t rank, const char *directory,
                              char out[NAME_MAX + 1])
{
	DIR *dir = opendir(directory);
	out[0] = 0;
	for (struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir)) {
		size_t n = strlen(e->d_name);
		bool is_first =
		        n <= NAME_MAX && is_weights_name(e->d_name) && (!*out || strcmp(e->d_name, out) < 0);
		if (is_first && belongs_to(record, rank, dirfd(dir), e->d_name))
			memcpy(out, e->d_name, n + 1);
	}
	if (dir)
		closedir(dir);
}

/* Directory of the executable; "": unknown, or the root directory. */
static void program_directory(char out[PATH_MAX])
{
	ssize_t n = readlink("/proc/self/exe", out, PATH_MAX - 1);
	while (n > 1 && out[n - 1] != '/')
		n--;
	out[n > 1 ? n - 1 : n == 1] = 0; /* of a program in the root directory "/" stays */
}

int tfmc_weights_find(const struct tfmc_record *record, char *path, uint64_t cap)
{
	return tfmc_weights_find_rank(record, 0, path, cap);
}

/* Searches the program's directory, then the working directory. */
int tfmc_weights_find_rank(const struct tfmc_record *record, int64_t rank, char *path, uint64_t cap)
{
	char program[PATH_MAX], name[NAME_MAX + 1];
	if (!record || !path)
		return TFMC_RT_E_NULL;
	program_directory(program);
	const char *directory = program;
	find_in_directory(record, rank, directory, name);
	if (!*name)
		find_in_directory(record, rank, directory = ".", name);
	if (!*name)
		return TFMC_RT_E_NO_WEIGHTS;
	size_t n = strlen(directory), n_name = strlen(name);
	if (n + 1 + n_name + 1 > cap)
		return TFMC_RT_E_SIZE;
	memcpy(path, directory, n);
	path[n] = '/';
	memcpy(path + n + 1, name, n_name + 1);
	return TFMC_RT_OK;
}
