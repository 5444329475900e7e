/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions on compiled models: number of workers, and memory within --limit-memory. The arena is counted in full, the
 * state by the tokens it will hold, since its pages take memory only when a token is written: a session opens with
 * the context of the model, or with as many tokens as the limit allows.
 */
#include "frontend/driver/compile/jit.h"

#include "ir/support/number.h"

/* Longer prompts are read in several prefill calls, which changes no bit of the result. */
#define CALL_TOKENS 4096
#define PAGE        4096
#define WORKERS_MAX 4096 /* that an object accepts */

/* A session to be opened. */
struct session_request {
	int64_t batch;        /* sequences of the state; 0: the bound */
	const int64_t *dims;  /* largest dims of its calls; NULL: the bounds */
	bool chunked_prefill; /* long prompts are read in several calls */
	int64_t tokens;       /* the smallest context that is of use */
};

/* The index of the batch dim: the first one of the first entry; -1: none. */
static int64_t batch_dim(const struct tfmc_record *r)
{
	const struct tfmc_record_entry *e = tfmc_entry_at(r, 0);
	return e && e->n_dims ? (int64_t) * (const uint64_t *)(const void *)((const char *)r + e->dims) : -1;
}

/* The upper bounds of all dims, the batch dim limited to `batch`, in the arena. */
static int64_t *bounds_for_batch(struct driver *d, const struct tfmc_record *r, int64_t batch)
{
	int64_t *dims = ARENA_ARRAY(&d->arena, int64_t, (size_t)r->n_dims + 1), at = batch_dim(r);
	for (uint64_t i = 0; dims && i < r->n_dims; i++)
		dims[i] = tfmc_record_dim_at(r, i)->hi;
	if (dims && at >= 0 && batch < dims[at])
		dims[at] = batch;
	return dims;
}

/* ---- memory ---- */

/* Bytes of the pages that `tokens` tokens of a sequence touch in one state, a row of matrices [rows, columns]. */
static uint64_t touched_state_bytes(const struct tfmc_record_state *s, int64_t tokens)
{
	uint64_t matrices = 1, rows = 1, columns = 1, bytes = tfmc_dtype_bytes(s->dtype);
	if (s->rank >= 2)
		columns = (uint64_t)s->dims[s->rank - 1];
	if (s->rank >= 3)
		rows = (uint64_t)s->dims[s->rank - 2];
	for (uint64_t i = 1; i + 2 < s->rank; i++)
		matrices *= (uint64_t)s->dims[i];
	uint64_t all = rows * columns * bytes, used = (uint64_t)tokens < rows ? (uint64_t)tokens : rows;
	uint64_t touched = (used * columns * bytes + PAGE - 1) / PAGE * PAGE;
	return matrices * (s->grows && touched < all ? touched : all);
}

/* The same for all states and sequences; saturates at UINT64_MAX. */
static uint64_t session_state_bytes(const struct tfmc_record *r, int64_t batch, int64_t tokens)
{
	const struct tfmc_record_state *states = (const void *)((const char *)r + r->states);
	uint64_t sum = 0;
	for (uint64_t i = 0; i < r->n_states; i++)
		sum += touched_state_bytes(&states[i], tokens);
	bool is_far = batch > 0 && sum > (UINT64_MAX - r->state_fixed_bytes) / (uint64_t)batch;
	return is_far ? UINT64_MAX : sum * (uint64_t)batch + r->state_fixed_bytes;
}

/* The longest context, up to the model's, whose state fits into `bytes`, by binary search; 0: none. */
static int64_t max_tokens_within(const struct tfmc_record *r, int64_t batch, uint64_t bytes)
{
	int64_t fits = 0, most = r->context_limit && r->context_limit < INT32_MAX ? (int64_t)r->context_limit
	                                                                          : INT32_MAX;
	while (fits < most) {
		int64_t middle = fits + (most - fits + 1) / 2;
		if (session_state_bytes(r, batch, middle) <= bytes)
			fits = middle;
		else
			most = middle - 1;
	}
	return fits;
}

static int64_t count_sequences(const struct tfmc_record *r, const struct session_request *w)
{
	int64_t at = batch_dim(r), bound = at < 0 ? 1 : tfmc_record_dim_at(r, (uint64_t)at)->hi;
	int64_t used = at >= 0 && w->dims ? w->dims[at] : bound;
	return w->batch && w->batch < used ? w->batch : used;
}

/* Chooses the context within --limit-memory; *tokens 0: that of the model. TFMC_INVALID when not even w->tokens
 * fit. Devices allocate the full state. */
static enum tfmc_status fit_to_memory(struct driver *d, const struct compiled *c,
                                      const struct session_request *w, const struct tfmc_session_options *o,
                                      int64_t *tokens)
{
	const struct tfmc_record *r = c->model.record;
	uint64_t limit = d->limits.memory, arena = tfmc_session_arena_bytes(&c->model, o);
	int64_t sequences = count_sequences(r, w), least = d->options.device ? INT32_MAX : w->tokens;
	if (r->context_limit && (uint64_t)least > r->context_limit)
		least = (int64_t)r->context_limit;
	bool has_state = r->state_batch_bytes || r->state_fixed_bytes;
	uint64_t state = has_state ? session_state_bytes(r, sequences, least) : 0;
	TFMC_TRY(limits_session(&d->limits, &d->diag, arena, state));
	int64_t fits = has_state ? max_tokens_within(r, sequences, limit - arena) : 0;
	*tokens = fits < INT32_MAX && (uint64_t)fits != r->context_limit ? fits : 0;
	return TFMC_OK;
}

int64_t driver_batch_size(struct driver *d, const struct compiled *c, int64_t most)
{
	const struct tfmc_record *r = c->model.record;
	while (most > 1 && r->context_limit &&
	       session_state_bytes(r, most, (int64_t)r->context_limit) > d->limits.memory / 2)
		most /= 2;
	return most;
}

void driver_note_context_limit(struct driver *d)
{
	char limit[NUMBER_TEXT_MAX];
	if (!d->session_tokens)
		return;
	number_print_bytes(limit, d->limits.memory);
	diag_note(&d->diag, LOC_NONE,
	          "%s of memory are enough for %lld tokens of a sequence; --limit-memory=BYTES for more",
	          limit, (long long)d->session_tokens);
}

/* ---- workers ---- */

/* Commands that generate or evaluate text take all processors; those that measure or compare take one. */
int64_t driver_session_workers(const struct driver *d)
{
	const unsigned texts =
	        COMMAND_GENERATE | COMMAND_SCORE | COMMAND_QUALITY | COMMAND_CALIBRATE | COMMAND_ATTEND;
	if (d->options.threads || !(d->options.command & texts) || d->options.device)
		return option_int(d->options.threads, 1);
	int64_t n = limits_processors();
	return n < WORKERS_MAX ? n : WORKERS_MAX;
}

int64_t driver_pack_workers(const struct driver *d)
{
	int64_t all = limits_processors(), asked = option_int(d->options.threads, all);
	return asked < all ? asked : all;
}

int64_t driver_decode_workers(struct driver *d, const struct tfmc_record *r)
{
	int64_t most = option_int(d->options.decode_threads, driver_session_workers(d));
	int64_t step = tfmc_entry_find(r, "step"), *dims = ARENA_ARRAY(&d->arena, int64_t, r->n_dims + 1);
	for (uint64_t i = 0; dims && i < r->n_dims; i++)
		dims[i] = tfmc_record_dim_at(r, i)->lo;
	return step < 0 || !dims ? 1 : tfmc_entry_workers(r, step, dims, most);
}

/* ---- opening ---- */

/* Tokens of a prefill call whose arena takes at most a quarter of the limit: where attention scores are
 * materialized, a token takes memory in proportion to the context. */
static int64_t choose_call_tokens(struct driver *d, const struct compiled *c, struct tfmc_session_options o)
{
	for (o.call_tokens = CALL_TOKENS; o.call_tokens > 1; o.call_tokens /= 2)
		if (tfmc_session_arena_bytes(&c->model, &o) <= d->limits.memory / 4)
			break;
	return o.call_tokens;
}

static enum tfmc_status open_session(struct driver *d, struct compiled *c, const struct session_request *w)
{
	struct tfmc_session_options o = {.struct_size = sizeof(o),
	                                 .batch = w->batch,
	                                 .workers = driver_session_workers(d),
	                                 .decode_workers = option_int(d->options.decode_threads, 0),
	                                 .all_workers = c->all_workers,
	                                 .variant = c->forced,
	                                 .dims_max = w->dims,
	                                 .weights = &c->weights.map};
	struct tfmc_device device = driver_device(d, c);
	if (d->options.device)
		o.device = &device;
	if (w->chunked_prefill)
		o.call_tokens = choose_call_tokens(d, c, o);
	TFMC_TRY(fit_to_memory(d, c, w, &o, &o.context));
	d->session_tokens = o.context;
	tfmc_session_close(c->session);
	c->session = NULL;
	int status = tfmc_session_open(&c->model, &o, &c->session);
	if (status == TFMC_RT_E_THREAD && !d->options.threads) { /* all processors is only the default */
		o.workers = 1;
		status = tfmc_session_open(&c->model, &o, &c->session);
	}
	if (status == TFMC_RT_OK)
		return TFMC_OK;
	if (status == TFMC_RT_E_DEVICE)
		return driver_device_error(d, *c->device_message ? c->device_message
		                                                 : tfmc_rt_status_text(status));
	enum tfmc_status st = driver_runtime_error(d, LOC_NONE, DIAG_INPUT, status,
	                                           "cannot open a session: %s", tfmc_rt_status_text(status));
	if (status == TFMC_RT_E_MEMORY)
		diag_note(
		        &d->diag, LOC_NONE,
		        "addresses for %llu bytes of state are reserved; --context=N makes sequences shorter",
		        (unsigned long long)c->model.state_size(count_sequences(c->model.record, w)));
	return st;
}

enum tfmc_status driver_open_session_for(struct driver *d, struct compiled *c, int64_t *dims)
{
	const struct tfmc_record *r = c->model.record;
	int64_t batch = batch_dim(r), tokens = 1;
	for (uint64_t i = 0; dims && i < r->n_dims; i++) {
		const struct tfmc_record_dim *dim = tfmc_record_dim_at(r, i);
		dims[i] = dims[i] < dim->lo ? dim->lo : dims[i] > dim->hi ? dim->hi : dims[i];
		tokens = (int64_t)i != batch && dims[i] > tokens ? dims[i] : tokens;
	}
	return open_session(d, c, &(struct session_request){.dims = dims, .tokens = tokens});
}

enum tfmc_status driver_open_session(struct driver *d, struct compiled *c, int64_t batch)
{
	struct session_request w = {.tokens = 1};
	if (batch == 0)
		return open_session(d, c, &w);
	int64_t *dims = bounds_for_batch(d, c->model.record, batch), at = batch_dim(c->model.record);
	if (!dims)
		return TFMC_NO_MEMORY;
	w.dims = dims;
	w.batch = at >= 0 ? dims[at] : batch;
	w.chunked_prefill = c->model.record->generate_kind == 1;
	return open_session(d, c, &w);
}

enum tfmc_status driver_compile_and_open(struct driver *d, struct loaded *l, struct entry_names entries,
                                         int64_t batch, struct compiled *out)
{
	TFMC_TRY(driver_compile_jit(d, l, entries, out));
	return driver_open_session(d, out, batch);
}
