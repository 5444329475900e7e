/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libtfmcmpi: the ranks of a model that was compiled with --shards, as processes of an MPI job. One library for each
 * MPI; neither objects nor the other libraries link MPI.
 *
 * 	#include <tfmc_rt.h>
 * 	#include <tfmc_mpi.h>
 * 	struct tfmc_mpi *mpi;
 * 	int status = tfmc_mpi_open(NULL, &mpi);              // every rank, on the thread that later calls the model
 * 	const struct tfmc_ranks *ranks = tfmc_mpi_ranks(mpi); // ranks->rank, ranks->n; for tfmc_config.ranks
 *
 * Inside a host ranks add in shared memory, else by messages; results have the same bits. After tfmc_mpi_open no
 * function waits for another rank without a limit, but for broadcast in ranks other than 0. A failure is for good.
 * Nothing is printed, nothing ends the process, and no environment variable is read but those of MPI.
 */
#ifndef TFMC_RUNTIME_MPI_TFMC_MPI_H
#define TFMC_RUNTIME_MPI_TFMC_MPI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct tfmc_ranks; /* abi.h, tfmc_rt.h and the header of a model define it */
struct tfmc_mpi;

/* Distinct from the codes of abi.h and tfmc_rt.h. */
enum tfmc_mpi_status {
	TFMC_MPI_OK = 0,
	TFMC_MPI_E_NULL = 300, /* a pointer is missing */
	TFMC_MPI_E_OPTIONS,    /* an option is outside of its range, or struct_size is of another version */
	TFMC_MPI_E_MEMORY,     /* memory could not be allocated, on this rank or another one */
	TFMC_MPI_E_THREAD, /* MPI was initialised on another thread, or without threads while there are workers */
	TFMC_MPI_E_MPI /* MPI cannot be initialised, was finalized, or has no communicator for this library */
};

/* Zeros: the defaults. */
struct tfmc_mpi_options {
	uint64_t struct_size; /* sizeof(struct tfmc_mpi_options) */
	int64_t limit_ms;     /* longest wait for another rank, 1 .. 86400000; 0: 30000 */
	int64_t workers; /* largest number of workers of this rank, 1 .. 65536; 0: 1. Decides whether waits spin */
	int64_t messages_only; /* nonzero: no shared memory even inside a host; one rank's wish is enough */
};

/* Collective: all ranks of MPI_COMM_WORLD. Initialises MPI (MPI_THREAD_FUNNELED) unless the program has. options may
 * be NULL. After a failure *out is NULL. */
int tfmc_mpi_open(const struct tfmc_mpi_options *options, struct tfmc_mpi **out);

/* The table of this rank, valid until tfmc_mpi_close. broadcast, and sum as worker 0, are called by the thread that
 * opened. NULL of NULL. */
const struct tfmc_ranks *tfmc_mpi_ranks(struct tfmc_mpi *mpi);

/* The failure that status of the table reports, by rank and cause: "rank 2 is gone: its process has ended"; else "".
 * Valid until tfmc_mpi_close, never NULL. */
const char *tfmc_mpi_error(const struct tfmc_mpi *mpi);

/* Collective: waits for the other ranks, at most the limit. Finalizes MPI if tfmc_mpi_open initialised it. After a
 * failure MPI is left as it is, since finalizing would wait for the rank that is gone. NULL is allowed. */
void tfmc_mpi_close(struct tfmc_mpi *mpi);

#ifdef __cplusplus
}
#endif
#endif
