/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes of an MPI job. Rank 0 broadcasts an act before it compiles and before it opens a session (struct job_act);
 * inside a session the acts are those of tfmc_session_follow.
 */
#define _POSIX_C_SOURCE 200809L
#include "frontend/driver/compile/job.h"

#include <dlfcn.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ir/support/number.h"
#include "runtime/mpi/tfmc_mpi.h"

#define ENTRIES_MAX 4096 /* bytes of the names of entries, comma-separated */
#define VARIANT_MAX 64
/* One rank may take minutes longer than another to compile and pack; ranks that end are noticed at once. */
#define LIMIT_MS     600000
#define INIT_SECONDS 60
#define END_SECONDS  15 /* when all is written */

enum job_act_kind { JOB_COMPILE, JOB_OPEN, JOB_END };

struct job_act {
	int64_t kind;
	char entries[ENTRIES_MAX]; /* of JOB_COMPILE */
	/* Of JOB_OPEN. */
	int64_t batch, workers, decode_workers, all_workers, call_tokens, context;
	uint64_t n_dims;           /* int64 [n_dims] follow; 0: no bounds */
	char variant[VARIANT_MAX]; /* "": the best one */
};

struct job {
	void *library;
	struct tfmc_mpi *mpi;
	const struct tfmc_ranks *ranks;
	int (*open)(const struct tfmc_mpi_options *options, struct tfmc_mpi **out);
	const struct tfmc_ranks *(*table)(struct tfmc_mpi *mpi);
	const char *(*error)(const struct tfmc_mpi *mpi);
	void (*close)(struct tfmc_mpi *mpi);
};

/* ---- joining ---- */

/* Handler of SIGALRM: MPI_Init did not return in time. */
static void end_with_error(int number)
{
	static const char text[] = "error: MPI does not start: a rank is gone, or has not come for 60 s\n";
	(void)number;
	(void)!write(STDERR_FILENO, text, sizeof(text) - 1);
	_exit(EXIT_ENVIRONMENT);
}

static volatile sig_atomic_t code_at_end; /* for the signal handler */

/* Handler of SIGALRM after everything was written: MPI_Finalize did not return, which changes no result. */
static void end_quietly(int number)
{
	(void)number;
	_exit((int)code_at_end);
}

/*
 * Sets a timer for MPI_Init or MPI_Finalize; 0 seconds removes it. They never return where the launcher spares the
 * other ranks of one that was killed, nor may MPI_Finalize of MPICH before 4.2 over TCP (a process inside its
 * barrier makes no progress for the others).
 */
static void limit_mpi(unsigned seconds, void (*end)(int number))
{
	const struct sigaction act = {.sa_handler = end};
	alarm(0);
	sigaction(SIGALRM, &act, NULL);
	alarm(seconds);
}

/* Variables that launchers set for their processes: the number of all, and of those on this host. srun --mpi=pmix sets
 * only the rank of the process. */
static const struct launcher {
	const char *size, *local_size;
	int64_t above; /* *size of a process of a job is larger */
	const char *library;
} launchers[] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", 1, "libtfmcmpi-openmpi.so"},
                 {"PMI_SIZE", "MPI_LOCALNRANKS", 1, "libtfmcmpi-mpich.so"},
                 {"PMIX_RANK", "", -1, "libtfmcmpi-openmpi.so"}};

static bool read_count(const char *variable, int64_t *out)
{
	const char *text = getenv(variable);
	return text && number_parse_i64(text, strlen(text), out);
}

/* The launcher that may have started this process as one of several; NULL: none. */
static const struct launcher *find_launcher(void)
{
	int64_t n;
	for (size_t i = 0; i < TFMC_COUNT(launchers); i++)
		if (read_count(launchers[i].size, &n) && n > launchers[i].above)
			return &launchers[i];
	return NULL;
}

int64_t job_ranks_on_host(const struct job *job)
{
	const struct launcher *l = find_launcher();
	int64_t n;
	return l && read_count(l->local_size, &n) && n >= 1 && n < job->ranks->n ? n : job->ranks->n;
}

/* Loads the library of an MPI: from TFMC_MPI, else where the loader finds it, else relative to the program:
 * installed (../lib), or in the build folder. NULL: dlerror() has the reason. */
static void *load_library(struct arena *a, const char *name)
{
	static const char *const directories[] = {"", "../lib", "../../runtime/mpi"};
	const char *given = getenv("TFMC_MPI");
	char program[PATH_MAX];
	/* RTLD_GLOBAL: components that MPI loads by themselves need its symbols. */
	if (given && *given)
		return dlopen(given, RTLD_NOW | RTLD_GLOBAL);
	void *found = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
	ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);
	while (n > 0 && program[n - 1] != '/')
		n--;
	for (size_t i = 0; i < TFMC_COUNT(directories) && !found && n > 0; i++)
		found = dlopen(arena_printf(a, "%.*s%s/%s", (int)n, program, directories[i], name),
		               RTLD_NOW | RTLD_GLOBAL);
	return found;
}

/* Finds the functions of libtfmcmpi. False: one is missing. */
static bool find_functions(struct job *j)
{
	const struct {
		const char *name;
		void *function;
	} all[] = {{"tfmc_mpi_open", &j->open},
	           {"tfmc_mpi_ranks", &j->table},
	           {"tfmc_mpi_error", &j->error},
	           {"tfmc_mpi_close", &j->close}};
	for (size_t i = 0; i < TFMC_COUNT(all); i++) {
		void *symbol = dlsym(j->library, all[i].name);
		if (!symbol)
			return false;
		memcpy(all[i].function, &symbol, sizeof(symbol));
	}
	return true;
}

/* Only commands that open sessions have work for followers. A timer runs while MPI is opened, since MPI_Init may
 * never return (limit_mpi). A job of one rank is none. Without --shards the job's number of ranks is taken. */
enum tfmc_status driver_join_job(struct driver *d)
{
	const unsigned commands =
	        COMMAND_RUN | COMMAND_GENERATE | COMMAND_SCORE | COMMAND_VERIFY | COMMAND_BENCH;
	const struct launcher *launcher = d->options.command & commands ? find_launcher() : NULL;
	if (!launcher)
		return TFMC_OK;
	struct job *j = ARENA_NEW(&d->arena, struct job);
	if (!j)
		return TFMC_NO_MEMORY;
	j->library = load_library(&d->arena, launcher->library);
	if (!j->library || !find_functions(j)) {
		diag_environment_error(&d->diag, LOC_NONE, DIAG_FILE, "cannot load %s: %s", launcher->library,
		                       dlerror());
		return TFMC_IO;
	}
	struct tfmc_mpi_options o = {
	        .struct_size = sizeof(o), .limit_ms = LIMIT_MS, .workers = option_int(d->options.threads, 1)};
	limit_mpi(INIT_SECONDS, end_with_error);
	int status = j->open(&o, &j->mpi);
	limit_mpi(0, SIG_DFL);
	if (status != TFMC_MPI_OK) {
		diag_environment_error(&d->diag, LOC_NONE, DIAG_FILE, "cannot open MPI: status %d", status);
		return TFMC_IO;
	}
	j->ranks = j->table(j->mpi);
	if (j->ranks->n == 1) {
		j->close(j->mpi);
		return TFMC_OK;
	}
	d->job = j;
	if (d->options.shards && driver_ranks(d) != j->ranks->n) {
		diag_error(&d->diag, LOC_NONE, DIAG_OPTION, "--shards=%s in a job of %lld ranks",
		           d->options.shards, (long long)j->ranks->n);
		return TFMC_INVALID;
	}
	if (!d->options.shards)
		d->ranks = j->ranks->n;
	return TFMC_OK;
}

const struct tfmc_ranks *job_ranks(const struct job *job)
{
	return job ? job->ranks : NULL;
}

const char *job_error(const struct job *job)
{
	return job ? job->error(job->mpi) : "";
}

/* ---- rank 0 ---- */

static int send_act(const struct job *j, struct job_act *act)
{
	return j->ranks->broadcast(j->ranks->user, act, sizeof(*act)) == 0 ? TFMC_RT_OK : TFMC_RT_E_RANK;
}

void driver_leave_job(struct driver *d, enum exit_code code)
{
	struct job_act act = {.kind = JOB_END};
	if (!d->job)
		return;
	if (d->job->ranks->rank == 0)
		(void)send_act(d->job, &act);
	code_at_end = (sig_atomic_t)code;
	limit_mpi(END_SECONDS, end_quietly);
	/* Without MPI_Finalize the others notice the end of a follower that failed. */
	if (d->job->ranks->rank == 0 || code == EXIT_OK)
		d->job->close(d->job->mpi);
	limit_mpi(0, SIG_DFL);
	d->job = NULL;
}

/* The names are one text with commas, in an act of fixed size; the empty text stands for all entries. */
enum tfmc_status job_send_compile(struct driver *d, struct entry_names entries)
{
	struct job_act act = {.kind = JOB_COMPILE};
	size_t at = 0;
	if (!d->job || d->job->ranks->rank > 0)
		return TFMC_OK;
	for (size_t i = 0; i < entries.n; i++) {
		size_t n = strlen(entries.items[i]);
		if (n >= sizeof(act.entries) - at)
			return TFMC_NO_MEMORY;
		memcpy(act.entries + at, entries.items[i], n);
		at += n;
		act.entries[at++] = ',';
	}
	act.entries[at > 0 ? at - 1 : 0] = 0;
	if (send_act(d->job, &act) == TFMC_RT_OK)
		return TFMC_OK;
	diag_environment_error(&d->diag, LOC_NONE, DIAG_FILE, "%s", job_error(d->job));
	return TFMC_IO;
}

/* The dims follow in a second broadcast, so that acts have one size, which followers know before they receive one. */
int job_send_open(const struct job *job, const struct tfmc_session_options *o, uint64_t n_dims)
{
	struct job_act act = {.kind = JOB_OPEN,
	                      .batch = o->batch,
	                      .workers = o->workers,
	                      .decode_workers = o->decode_workers,
	                      .all_workers = o->all_workers,
	                      .call_tokens = o->call_tokens,
	                      .context = o->context,
	                      .n_dims = o->dims_max ? n_dims : 0};
	int64_t dims[TFMC_DIMS_MAX];
	size_t n_variant = o->variant ? strlen(o->variant) : 0;
	if (!job || job->ranks->rank > 0)
		return TFMC_RT_OK;
	if (act.n_dims > TFMC_COUNT(dims) || n_variant >= sizeof(act.variant))
		return TFMC_RT_E_RECORD;
	if (n_variant > 0)
		memcpy(act.variant, o->variant, n_variant);
	int status = send_act(job, &act);
	if (status != TFMC_RT_OK || act.n_dims == 0)
		return status;
	memcpy(dims, o->dims_max, (size_t)act.n_dims * sizeof(*dims));
	return job->ranks->broadcast(job->ranks->user, dims, act.n_dims * sizeof(*dims)) == 0
	               ? TFMC_RT_OK
	               : TFMC_RT_E_RANK;
}

/* ---- the other ranks ---- */

/* Opens the session that rank 0 has opened, with the weights of this rank, and serves its calls until it closes. A
 * status of tfmc_rt.h. */
static int follow_session(const struct job *j, const struct compiled *c, const struct job_act *act)
{
	int64_t dims[TFMC_DIMS_MAX];
	struct tfmc_session *s = NULL;
	struct tfmc_session_options o = {.struct_size = sizeof(o),
	                                 .batch = act->batch,
	                                 .workers = act->workers,
	                                 .decode_workers = act->decode_workers,
	                                 .all_workers = act->all_workers != 0,
	                                 .call_tokens = act->call_tokens,
	                                 .context = act->context,
	                                 .dims_max = act->n_dims > 0 ? dims : NULL,
	                                 .variant = *act->variant ? act->variant : NULL,
	                                 .weights = &c->weights[j->ranks->rank].map,
	                                 .ranks = j->ranks};
	if (act->n_dims > TFMC_COUNT(dims) || act->variant[sizeof(act->variant) - 1] ||
	    (act->n_dims > 0 && j->ranks->broadcast(j->ranks->user, dims, act->n_dims * sizeof(*dims)) != 0))
		return TFMC_RT_E_RANK;
	int status = tfmc_session_open(&c->model, &o, &s);
	if (status == TFMC_RT_OK)
		status = tfmc_session_follow(s);
	tfmc_session_close(s);
	return status;
}

/* Compiles the entries that rank 0 compiles; an earlier program goes. The act came from another process, so its
 * text is ended here. */
static enum tfmc_status compile_again(struct driver *d, struct loaded *l, struct job_act *act,
                                      struct compiled *c)
{
	struct option_list entries = {0};
	compiled_destroy(c);
	act->entries[sizeof(act->entries) - 1] = 0;
	if (*act->entries)
		driver_split_list(d, act->entries, &entries);
	return driver_compile_jit(d, l, (struct entry_names){entries.items, entries.n}, c);
}

/* A lost broadcast, a failed compilation or a failed session ends the loop, and then the process, which the other
 * ranks notice (driver_leave_job). */
enum exit_code driver_follow_job(struct driver *d)
{
	const struct job *j = d->job;
	struct loaded l;
	struct compiled c = {0};
	struct job_act act = {.kind = JOB_COMPILE};
	enum tfmc_status st = driver_load(d, &l);
	while (st == TFMC_OK && act.kind != JOB_END) {
		if (j->ranks->broadcast(j->ranks->user, &act, sizeof(act)) != 0)
			break;
		if (act.kind == JOB_COMPILE)
			st = compile_again(d, &l, &act, &c);
		else if (act.kind == JOB_OPEN &&
		         (!c.model.record || follow_session(j, &c, &act) != TFMC_RT_OK))
			break;
	}
	compiled_destroy(&c);
	loaded_destroy(&l);
	if (st == TFMC_OK && j->ranks->rank == 1 &&
	    *job_error(j)) { /* rank 0, which would say it, may be gone */
		diag_environment_error(&d->diag, LOC_NONE, DIAG_TARGET, "%s", job_error(j));
		st = TFMC_IO;
	}
	return exit_code_of(st);
}
