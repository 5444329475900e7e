/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The SIGBUS handler. /proc/self/maps tells which file the faulting address belongs to.
 */
#define _GNU_SOURCE /* siginfo_t */
#include "frontend/driver/truncated.h"

#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static struct {
	truncated_file_fn *call;
	void *user;
} handler;

/* A line of /proc/self/maps, "7f0000000000-7f0000200000 r--p 00000000 fe:01 1234 /path", that covers the
 * address. False: it does not, or it is anonymous memory. */
static bool parse_maps_line(const char *line, uintptr_t at, char path[PATH_MAX])
{
	unsigned long long begin, end;
	int length = 0;
	if (sscanf(line, "%llx-%llx %*s %*s %*s %*s %n", &begin, &end, &length) != 2 || at < begin ||
	    at >= end || length == 0 || line[length] != '/')
		return false;
	size_t n = strcspn(line + length, "\n");
	n = n < PATH_MAX ? n : PATH_MAX - 1;
	memcpy(path, line + length, n);
	path[n] = 0;
	return true;
}

static bool find_mapped_file(uintptr_t at, char path[PATH_MAX])
{
	char line[PATH_MAX + 256];
	bool found = false;
	FILE *f = fopen("/proc/self/maps", "re");
	while (f && !found && fgets(line, sizeof(line), f))
		found = parse_maps_line(line, at, path);
	if (f)
		fclose(f);
	return found;
}

/* After a return the read is repeated, with the default action (SA_RESETHAND). */
static void handle_sigbus(int number, siginfo_t *info, void *context)
{
	char path[PATH_MAX];
	(void)number;
	(void)context;
	if (info->si_code == BUS_ADRERR && find_mapped_file((uintptr_t)info->si_addr, path))
		handler.call(handler.user, path);
}

void truncated_file_handle(truncated_file_fn *call, void *user)
{
	struct sigaction act = {.sa_sigaction = handle_sigbus,
	                        .sa_flags = (int)(SA_SIGINFO | SA_RESETHAND | SA_NODEFER)};
	handler.call = call;
	handler.user = user;
	sigaction(SIGBUS, &act, NULL);
}
