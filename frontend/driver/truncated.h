/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SIGBUS: a mapped file was truncated while it was read, so that a page beyond its new end is accessed, in any
 * thread. Only the command installs a handler; objects and the runtime libraries install none.
 */
#ifndef TFMC_FRONTEND_DRIVER_TRUNCATED_H
#define TFMC_FRONTEND_DRIVER_TRUNCATED_H

/* Must not return. path: of the file, valid during the call. Runs in the signal handler of the thread that read
 * the mapping, which therefore holds no lock of the C library. */
typedef void truncated_file_fn(void *user, const char *path);

/* Installs the handler for the whole process. Bus errors outside of mapped files keep the default action. */
void truncated_file_handle(truncated_file_fn *handler, void *user);

#endif
