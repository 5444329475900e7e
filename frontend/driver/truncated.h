/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mapped files that become shorter while they are read: a page behind the new
 * end raises SIGBUS, at any read in any thread. Of the command only: objects
 * and the libraries that applications link install no handlers.
 */
#ifndef TFMC_FRONTEND_DRIVER_TRUNCATED_H
#define TFMC_FRONTEND_DRIVER_TRUNCATED_H

/* Ends the process. `path`: of the file, valid during the call. It runs in a signal handler, of a thread that was reading
 * a mapping, so that no lock of the C library is held by it. */
typedef void truncated_file_fn(void *user, const char *path);

/* For the whole process. Other bus errors keep the default action. */
void truncated_file_handle(truncated_file_fn *handler, void *user);

#endif
