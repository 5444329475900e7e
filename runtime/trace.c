/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timelines: calls and groups of traced sessions in arrays of a fixed size, written as Chrome's trace events (JSON):
 * complete events ("ph":"X") of microseconds, workers as threads. A recording touches only memory that is there, so
 * that it costs some writes; names are looked up when the timeline is written.
 *
 * A run is an execution of a group of kernels, or a call, which is recorded when it ends, after its groups. Paths of
 * groups in repeats contain marks (#N#: N iterations), which are replaced by the iteration. A group that does not fit
 * is counted as dropped.
 */
#include "runtime/feed.h"
#include "tfmc_rt.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RUNS 16777216 /* of a timeline: a gigabyte, of which pages are taken as runs come */

/* An execution of a group, or a call. */
struct run {
	tfmc_task_fn *group; /* NULL: a call, the groups of which come before it */
	struct tfmc_span span;
	uint64_t first; /* group: its first worker in `workers`; call: index in `calls` */
	int64_t n_workers;
};

struct call {
	int64_t entry, status, dims[TFMC_DIMS_MAX];
};

struct tfmc_timeline {
	struct tfmc_trace trace;
	struct tfmc_record *record; /* a copy */
	struct run *runs;           /* [cap] */
	struct tfmc_span *workers;  /* [cap]: shares of the groups */
	struct call *calls;         /* [cap] */
	uint64_t cap, n_runs, n_workers, n_calls, n_dropped;
	int64_t most_workers;
};

/* ---- recording ---- */

/* Records a run of a group with the spans of its workers; drops it where either array is full. */
static void add_group(void *user, const struct tfmc_group_run *r)
{
	struct tfmc_timeline *t = user;
	if (t->n_runs >= t->cap || r->n_workers < 1 || (uint64_t)r->n_workers > t->cap - t->n_workers) {
		t->n_dropped++;
		return;
	}
	t->runs[t->n_runs++] = (struct run){r->group, r->span, t->n_workers, r->n_workers};
	memcpy(t->workers + t->n_workers, r->workers, (size_t)r->n_workers * sizeof(*r->workers));
	t->n_workers += (uint64_t)r->n_workers;
	t->most_workers = r->n_workers > t->most_workers ? r->n_workers : t->most_workers;
}

/* Records a call with the dims at its time. */
static void add_call(void *user, const struct tfmc_call_run *r)
{
	struct tfmc_timeline *t = user;
	if (t->n_runs >= t->cap || t->n_calls >= t->cap) {
		t->n_dropped++;
		return;
	}
	struct call *c = &t->calls[t->n_calls];
	*c = (struct call){.entry = r->entry, .status = r->status};
	for (uint64_t i = 0; i < t->record->n_dims && i < TFMC_DIMS_MAX; i++)
		c->dims[i] = r->dims[i];
	t->runs[t->n_runs++] = (struct run){.span = r->span, .first = t->n_calls++};
}

int tfmc_timeline_create(const struct tfmc_record *record, uint64_t cap, struct tfmc_timeline **out)
{
	if (!out)
		return TFMC_RT_E_NULL;
	*out = NULL;
	if (!record)
		return TFMC_RT_E_NULL;
	if (cap > MAX_RUNS)
		return TFMC_RT_E_SIZE;
	if (record->magic != TFMC_RECORD_MAGIC || record->abi_version != TFMC_ABI_VERSION)
		return TFMC_RT_E_RECORD;
	struct tfmc_timeline *t = calloc(1, sizeof(*t));
	if (!t)
		return TFMC_RT_E_MEMORY;
	t->cap = cap ? cap : TFMC_TIMELINE_RUNS;
	t->trace = (struct tfmc_trace){t, add_group, add_call};
	t->record = malloc((size_t)record->bytes);
	t->runs = calloc((size_t)t->cap, sizeof(*t->runs));
	t->workers = calloc((size_t)t->cap, sizeof(*t->workers));
	t->calls = calloc((size_t)t->cap, sizeof(*t->calls));
	if (!t->record || !t->runs || !t->workers || !t->calls) {
		tfmc_timeline_destroy(t);
		return TFMC_RT_E_MEMORY;
	}
	memcpy(t->record, record, (size_t)record->bytes);
	*out = t;
	return TFMC_RT_OK;
}

void tfmc_timeline_destroy(struct tfmc_timeline *timeline)
{
	if (!timeline)
		return;
	free(timeline->record);
	free(timeline->runs);
	free(timeline->workers);
	free(timeline->calls);
	free(timeline);
}

const struct tfmc_trace *tfmc_timeline_trace(struct tfmc_timeline *timeline)
{
	return timeline ? &timeline->trace : NULL;
}

/* ---- writing ---- */

/* A group that has run: its number, in the order of first runs, and how often it has run in a call, the last it was
 * in. */
struct seen {
	tfmc_task_fn *group; /* NULL: an empty slot */
	int64_t number, times;
	uint64_t call;
};

struct writer {
	const struct tfmc_timeline *t;
	const struct tfmc_timeline_options *o;
	int status;
	int64_t start; /* nanoseconds that are 0 in the file */
	/* Open addressing, at most half full; n_slots: 0 or a power of two. */
	struct seen *seen;
	size_t n_seen, n_slots;
	uint64_t call; /* the open one, from 1 on, also of groups whose call is not recorded */
};

static void put_bytes(struct writer *w, const char *text, uint64_t bytes)
{
	if (w->status == TFMC_RT_OK && w->o->write(w->o->write_user, text, bytes))
		w->status = TFMC_RT_E_FILE;
}

static void put(struct writer *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Formats at most 255 bytes, for numbers and fixed texts; names of any length go to put_string(). */
static void put(struct writer *w, const char *fmt, ...)
{
	char text[256];
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	put_bytes(w, text, n < 0 ? 0 : (size_t)n < sizeof(text) ? (uint64_t)n : sizeof(text) - 1);
}

/* Writes a JSON string; quotes, backslashes and control characters as \u00XX. */
static void put_string(struct writer *w, const char *text)
{
	put(w, "\"");
	for (; *text; text++) {
		size_t n = 0;
		while ((unsigned char)text[n] >= 0x20 && text[n] != '"' && text[n] != '\\')
			n++;
		put_bytes(w, text, n);
		text += n;
		if (!*text)
			break;
		put(w, "\\u%04x", (unsigned char)*text);
	}
	put(w, "\"");
}

/* The beginning of an event up to its args, which the caller ends. */
static void put_event(struct writer *w, const char *name, const char *category, struct tfmc_span s,
                      int64_t worker)
{
	put(w, ",\n{\"name\":");
	put_string(w, name);
	put(w, ",\"cat\":");
	put_string(w, category);
	put(w, ",\"ph\":\"X\",\"ts\":%.3f,\"dur\":%.3f,\"pid\":0,\"tid\":%" PRId64 ",\"args\":{",
	    (double)(s.begin - w->start) * 1e-3, (double)(s.end - s.begin) * 1e-3, worker);
}

/* Writes the wait of a worker: between the begin of a group and that of the worker's share, or between the ends of
 * both; shorter ones than TFMC_TIMELINE_WAIT_NS are left out. */
static void put_wait(struct writer *w, int64_t begin, int64_t end, int64_t worker)
{
	if (end - begin < TFMC_TIMELINE_WAIT_NS)
		return;
	put_event(w, "wait", "wait", (struct tfmc_span){begin, end}, worker);
	put(w, "}}");
}

/* The slot of a group, or the empty one where it belongs (Fibonacci hashing, linear probing); at most half of the
 * slots are taken, so the search ends. */
static struct seen *find_slot(struct seen *slots, size_t n_slots, tfmc_task_fn *group)
{
	size_t i = (size_t)(((uint64_t)(uintptr_t)group * 0x9e3779b97f4a7c15u) >> 32);
	while (slots[i & (n_slots - 1)].group && slots[i & (n_slots - 1)].group != group)
		i++;
	return &slots[i & (n_slots - 1)];
}

/* Doubles the slots of the hash table and inserts the groups again, whose slots depend on the number. False: no
 * memory, which is the status of the writer. */
static bool add_slots(struct writer *w)
{
	size_t n = w->n_slots ? 2 * w->n_slots : 64;
	struct seen *more = calloc(n, sizeof(*more));
	for (size_t i = 0; more && i < w->n_slots; i++)
		if (w->seen[i].group)
			*find_slot(more, n, w->seen[i].group) = w->seen[i];
	if (!more) {
		w->status = TFMC_RT_E_MEMORY;
		return false;
	}
	free(w->seen);
	w->seen = more;
	w->n_slots = n;
	return true;
}

/* The group, whose runs are counted from the begin of the present call: the count is the iteration of its repeats;
 * NULL: no memory. */
static struct seen *find_seen(struct writer *w, tfmc_task_fn *group)
{
	if (2 * w->n_seen >= w->n_slots && !add_slots(w))
		return NULL;
	struct seen *s = find_slot(w->seen, w->n_slots, group);
	if (!s->group)
		*s = (struct seen){.group = group, .number = (int64_t)w->n_seen++};
	if (s->call != w->call)
		s->times = 0;
	s->call = w->call;
	return s;
}

/* #N#, or #N*STEP+FIRST# */
struct mark {
	int64_t n, step, first;
};

/* Reads a mark at the beginning of a text, with its end; false: there is none. Its value at iteration i is first +
 * step i. */
static bool read_mark(const char *text, struct mark *out, const char **end)
{
	char *after;
	*out = (struct mark){0};
	out->n = *text == '#' ? strtoll(text + 1, &after, 10) : 0;
	if (out->n < 1)
		return false;
	out->step = *after == '*' ? strtoll(after + 1, &after, 10) : 1;
	out->first = *after == '+' ? strtoll(after + 1, &after, 10) : 0;
	if (*after != '#')
		return false;
	*end = after + 1;
	return true;
}

/* The product of N of the marks in a text: how many iterations of the inner repeats one of the outer takes. 0 beyond
 * 2^32. */
static int64_t multiply_marks(const char *text)
{
	int64_t product = 1;
	struct mark mark;
	for (const char *end = NULL; *text; text = end) {
		if (!read_mark(text, &mark, &end)) {
			end = text + 1;
			continue;
		}
		if (mark.n > UINT32_MAX || product * mark.n > UINT32_MAX)
			return 0;
		product *= mark.n;
	}
	return product;
}

/* Replaces the marks of a path by indices of its repeats, of which the last is the innermost. `iteration` counts
 * executions of the group: divided by those that one iteration of the repeat takes (multiply_marks), modulo N. A
 * path that is too long is cut off. */
static void fill_marks(char *out, size_t cap, const char *path, int64_t iteration)
{
	size_t n = 0;
	struct mark mark;
	for (const char *end = NULL; *path && n + 24 < cap;) { /* 24: an i64 with its sign and zero */
		int64_t inner = read_mark(path, &mark, &end) ? multiply_marks(end) : 0;
		if (inner) {
			n += (size_t)snprintf(out + n, cap - n, "%" PRId64,
			                      mark.first + mark.step * (iteration / inner % mark.n));
			path = end;
		} else {
			out[n++] = *path++;
		}
	}
	out[n] = 0;
}

/* Writes a run of a group: for each worker its share and waits before and after, named by the label that the caller's
 * callback gives, else by number. call is NULL if it is not recorded; without memory find_seen() sets the
 * status. */
static void put_group(struct writer *w, const struct run *r, const struct call *call)
{
	struct tfmc_group_label l = {0};
	char name[512];
	struct seen *seen = find_seen(w, r->group);
	if (!seen)
		return;
	const struct tfmc_group_query q = {r->group, call ? call->entry : -1, call ? call->dims : NULL,
	                                   seen->times++};
	if (!w->o->label || !w->o->label(w->o->label_user, &q, &l))
		l = (struct tfmc_group_label){0};
	if (l.path)
		fill_marks(name, sizeof(name), l.path, q.iteration);
	else
		(void)snprintf(name, sizeof(name), "group %" PRId64, seen->number);
	for (int64_t k = 0; k < r->n_workers; k++) {
		const struct tfmc_span *s = &w->t->workers[r->first + (uint64_t)k];
		put_wait(w, r->span.begin, s->begin, k);
		put_event(w, name, "group", *s, k);
		put(w, "\"iteration\":%" PRId64, q.iteration);
		if (l.line) {
			put(w, ",\"line\":");
			put_string(w, l.line);
		}
		if (l.kernel) {
			put(w, ",\"kernel\":");
			put_string(w, l.kernel);
		}
		if (l.path)
			put(w, ",\"bytes\":%.0f,\"flops\":%.0f", l.bytes, l.flops);
		put(w, "}}");
		put_wait(w, s->end, r->span.end, k);
	}
}

/* A call encloses its groups on the lane of worker 0, and so comes before them. */
static void put_call(struct writer *w, const struct run *r)
{
	const struct tfmc_record *record = w->t->record;
	const struct call *c = &w->t->calls[r->first];
	const struct tfmc_record_entry *e = tfmc_entry_at(record, c->entry);
	put_event(w, e ? tfmc_record_text(record, e->name) : "call", "call", r->span, 0);
	put(w, "\"status\":%" PRId64, c->status);
	const uint64_t *numbers = e ? (const void *)((const char *)record + e->dims) : NULL;
	for (uint64_t i = 0; e && i < e->n_dims; i++) {
		const struct tfmc_record_dim *dim = tfmc_record_dim_at(record, numbers[i]);
		put(w, ",");
		put_string(w, tfmc_record_text(record, dim->name));
		put(w, ":%" PRId64, numbers[i] < TFMC_DIMS_MAX ? c->dims[numbers[i]] : 0);
	}
	put(w, "}}");
}

/* A call is recorded after its groups: the runs between two calls belong to the second one, those after the last
 * call to none (theirs is not recorded, as when it is dropped). Times are relative to the earliest begin. */
int tfmc_timeline_write(const struct tfmc_timeline *timeline, const struct tfmc_timeline_options *options)
{
	if (!timeline || !options || !options->write)
		return TFMC_RT_E_NULL;
	if (options->struct_size != sizeof(*options))
		return TFMC_RT_E_ABI;
	const struct tfmc_timeline *t = timeline;
	struct writer w = {.t = t, .o = options};
	for (uint64_t i = 0; i < t->n_runs; i++)
		if (i == 0 || t->runs[i].span.begin < w.start)
			w.start = t->runs[i].span.begin;
	put(&w, "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"dropped\":%" PRIu64 "},\"traceEvents\":[\n",
	    t->n_dropped);
	put(&w, "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,\"tid\":0,\"args\":{\"name\":");
	put_string(&w, tfmc_record_text(t->record, t->record->name));
	put(&w, "}}");
	for (int64_t k = 0; k < t->most_workers || k < 1; k++)
		put(&w,
		    ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":0,\"tid\":%" PRId64
		    ",\"args\":{\"name\":\"worker %" PRId64 "\"}}",
		    k, k);
	for (uint64_t i = 0, end; i < t->n_runs; i = end + 1) {
		for (end = i; end < t->n_runs && t->runs[end].group;)
			end++;
		const struct run *call = end < t->n_runs ? &t->runs[end] : NULL;
		w.call++;
		if (call)
			put_call(&w, call);
		for (uint64_t k = i; k < end; k++)
			put_group(&w, &t->runs[k], call ? &t->calls[call->first] : NULL);
	}
	put(&w, "\n]}\n");
	free(w.seen);
	return w.status;
}

static int write_file(void *user, const char *text, uint64_t bytes)
{
	return fwrite(text, 1, (size_t)bytes, user) != bytes;
}

int tfmc_timeline_save(const struct tfmc_timeline *timeline, const char *path,
                       const struct tfmc_timeline_options *options)
{
	struct tfmc_timeline_options o = {.struct_size = sizeof(o)};
	if (!timeline || !path)
		return TFMC_RT_E_NULL;
	if (options && options->struct_size != sizeof(o))
		return TFMC_RT_E_ABI;
	o = options ? *options : o;
	FILE *file = fopen(path, "wb");
	if (!file)
		return TFMC_RT_E_FILE;
	o.write = write_file;
	o.write_user = file;
	int status = tfmc_timeline_write(timeline, &o);
	return fclose(file) && status == TFMC_RT_OK ? (int)TFMC_RT_E_FILE : status;
}
