/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mapped files that become shorter while they are read: a page behind the new
 * end raises SIGBUS, at any read in any thread. Of the command only: objects
 * and the libraries that applications link install no handlers.
 */
#ifndef TFMC_FRONTEND_DRIVER_SHRUNK_H
#define TFMC_FRONTEND_DRIVER_SHRUNK_H

/* Ends the process. `path`: of the file, valid during the call. It runs in a signal handler, of a thread that was reading
 * a mapping, so that no lock of the C library is held by it. */
typedef void shrunk_handler(void *user, const char *path);

/* For the whole process. Other bus errors keep the default action. */
void shrunk_handle(shrunk_handler *handler, void *user);

#endif
