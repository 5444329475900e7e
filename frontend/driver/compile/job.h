/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command as one of several processes of an MPI job (mpirun -n 4 tfmc generate ..): rank 0 runs the command, the
 * others compile the same model, pack their own weights and serve its sessions. libtfmcmpi is loaded when a job is
 * found, so tfmc does not link MPI.
 */
#ifndef TFMC_FRONTEND_DRIVER_COMPILE_JOB_H
#define TFMC_FRONTEND_DRIVER_COMPILE_JOB_H

#include "frontend/driver/compile/jit.h"

struct job;

/*
 * Joins the job that started this process, if there is one of several ranks: sets d->job and --shards. TFMC_IO after a
 * diagnostic: libtfmcmpi cannot be loaded, or MPI fails; TFMC_INVALID: --shards is another number.
 */
TFMC_MUST_USE enum tfmc_status driver_join_job(struct driver *d);
/* Ends the job: rank 0 ends its followers. A follower that has failed leaves by ending its process, which the others
 * see. The process ends with `code` where MPI does not return; all outputs must be written. */
void driver_leave_job(struct driver *d, enum exit_code code);
/* The table of this process; NULL: no job. */
const struct tfmc_ranks *job_ranks(const struct job *job);
/* Ranks of the job on this host, which share its processors. */
int64_t job_ranks_on_host(const struct job *job);
/* The reason of the last failure of another rank; "": none. */
const char *job_error(const struct job *job);

/* ---- rank 0 (without a job these do nothing) ---- */
/* The followers compile these entries, too. TFMC_IO after a diagnostic: a rank is gone; TFMC_NO_MEMORY: too many
 * names. */
TFMC_MUST_USE enum tfmc_status job_send_compile(struct driver *d, struct entry_names entries);
/* The followers open a session with these options and dims_max [n_dims], and follow it. A status of tfmc_rt.h. */
int job_send_open(const struct job *job, const struct tfmc_session_options *o, uint64_t n_dims);

/* ---- the other ranks ---- */
/* Serves rank 0 until it ends. Prints diagnostics only. */
enum exit_code driver_follow_job(struct driver *d);

#endif
