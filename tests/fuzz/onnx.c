/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mutated ONNX files through the import, in this process: tfmc_fuzz_onnx COUNT FROM FILE.. takes the cases FROM,
 * FROM + 1, .., each made from one of the files by its number alone. A file is a tree of fields, so that a
 * mutation changes what a file says, and few are refused before a node is read: fields are removed, doubled,
 * exchanged, renamed; ints become others; and bytes are changed anywhere. Sizes that vary have bounds. Whatever
 * the answer, the import must not crash, take longer than SECONDS of the processor, or give a text after an error;
 * what it writes must be a model file that loads. The last file stays in case.onnx of the working directory when a
 * case ends the process.
 */
#define _XOPEN_SOURCE 700

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "frontend/frontend.h"
#include "frontend/onnx/onnx.h"
#include "ir/support/arena.h"
#include "ir/support/buf.h"
#include "tests/support/random/rng.h"

#define SECONDS    4
#define FILES_MAX  4096
#define FIELDS_MAX 20000
#define DIMS_MAX   16
#define CASE       "case.onnx"

/* ---- files as trees of fields ---- */

/* Messages whose fields are a tree; all others are bytes. */
enum message { BYTES, MODEL, GRAPH, NODE, TENSOR, VALUE, TYPE, TENSOR_TYPE, SHAPE, SIZE, ATTRIBUTE };

static const struct {
	enum message in;
	unsigned number;
	enum message is;
} messages[] = {{MODEL, 7, GRAPH},       {GRAPH, 1, NODE},     {GRAPH, 5, TENSOR},    {GRAPH, 11, VALUE},
                {GRAPH, 12, VALUE},      {NODE, 5, ATTRIBUTE}, {VALUE, 2, TYPE},      {TYPE, 1, TENSOR_TYPE},
                {TENSOR_TYPE, 2, SHAPE}, {SHAPE, 1, SIZE},     {ATTRIBUTE, 5, TENSOR}};

struct field {
	unsigned number, wire;
	uint64_t value; /* of a varint */
	const unsigned char *bytes;
	size_t n;
	enum message is;
	struct field *first, *next; /* fields of a message, in their order */
};

struct tree {
	struct arena *a;
	struct field *all[FIELDS_MAX];
	size_t n;
};

static bool get_varint(const unsigned char **p, const unsigned char *end, uint64_t *out)
{
	*out = 0;
	for (int shift = 0; *p < end && shift < 64; shift += 7) {
		unsigned char c = *(*p)++;
		*out |= (uint64_t)(c & 127) << shift;
		if (c < 128)
			return true;
	}
	return false;
}

/* The fields of a message; what is cut off is left out. */
static struct field *read_fields(struct tree *t, enum message in, const unsigned char *p, size_t n)
{
	const unsigned char *end = p + n;
	struct field *first = NULL, **last = &first;
	uint64_t tag, len;
	while (p < end && t->n < FIELDS_MAX && get_varint(&p, end, &tag)) {
		struct field *f = ARENA_NEW(t->a, struct field);
		f->number = (unsigned)(tag >> 3);
		f->wire = tag & 7;
		if (f->wire == 0) {
			if (!get_varint(&p, end, &f->value))
				break;
		} else {
			len = f->wire == 1 ? 8 : f->wire == 5 ? 4 : 0;
			if ((f->wire == 2 && !get_varint(&p, end, &len)) || len > (uint64_t)(end - p))
				break;
			f->bytes = p;
			f->n = (size_t)len;
			p += len;
		}
		for (size_t i = 0; f->wire == 2 && i < TFMC_COUNT(messages); i++)
			if (messages[i].in == in && messages[i].number == f->number)
				f->is = messages[i].is;
		t->all[t->n++] = f;
		if (f->is != BYTES)
			f->first = read_fields(t, f->is, f->bytes, f->n);
		*last = f;
		last = &f->next;
	}
	return first;
}

static void put_varint(struct buf *out, uint64_t v)
{
	for (; v > 127; v >>= 7)
		buf_char(out, (char)((v & 127) | 128));
	buf_char(out, (char)v);
}

static void write_fields(struct buf *out, const struct field *f)
{
	for (; f != NULL; f = f->next) {
		put_varint(out, (uint64_t)f->number << 3 | f->wire);
		if (f->wire == 0)
			put_varint(out, f->value);
		else if (f->is == BYTES) {
			if (f->wire == 2)
				put_varint(out, f->n);
			buf_bytes(out, f->bytes, f->n);
		} else {
			struct buf inner;
			buf_init(&inner);
			write_fields(&inner, f->first);
			put_varint(out, inner.len);
			buf_bytes(out, inner.data, inner.len);
			buf_destroy(&inner);
		}
	}
}

/* ---- mutations ---- */

static uint64_t below(struct rng *rng, size_t n)
{
	return rng_next(rng) % n;
}

static uint64_t odd_int(struct rng *rng, uint64_t old)
{
	static const int64_t values[] = {0,
	                                 1,
	                                 2,
	                                 3,
	                                 4,
	                                 8,
	                                 16,
	                                 64,
	                                 -1,
	                                 -2,
	                                 -8,
	                                 1 << 16,
	                                 INT32_MAX,
	                                 INT32_MIN,
	                                 INT64_MAX,
	                                 INT64_MIN,
	                                 (int64_t)1 << 40};
	return rng_next(rng) % 4 == 0 ? old + below(rng, 5) - 2
	                              : (uint64_t)values[below(rng, TFMC_COUNT(values))];
}

/* Another field of the same place, which exchanges its content with f: names, operands, attributes, types, shapes. */
static struct field *alike(struct tree *t, struct rng *rng, const struct field *f)
{
	for (int i = 0; i < 64; i++) {
		struct field *g = t->all[below(rng, t->n)];
		if (g != f && g->wire == f->wire && g->is == f->is &&
		    (f->is != BYTES || f->wire == 0 || g->n < 200))
			return g;
	}
	return NULL;
}

static void change_bytes(struct tree *t, struct rng *rng, struct field *f)
{
	size_t n = f->n == 0 ? 1 : f->n;
	unsigned char *bytes = arena_alloc(t->a, n + 1);
	if (f->n > 0)
		memcpy(bytes, f->bytes, f->n);
	if (n >= 8 && rng_next(rng) % 2 == 0) { /* an int of a list */
		uint64_t v = odd_int(rng, bytes[0]);
		memcpy(bytes + below(rng, n / 8) * 8, &v, 8);
	} else
		bytes[below(rng, n)] = (unsigned char)rng_next(rng);
	f->bytes = bytes;
	f->n = rng_next(rng) % 8 == 0 ? below(rng, n + 1) : f->n;
}

static void mutate_field(struct tree *t, struct rng *rng)
{
	struct field *f = t->all[below(rng, t->n)], *g;
	for (int i = 0; i < 8 && f->n > 256 && f->is == BYTES; i++) /* data are most of a file */
		f = t->all[below(rng, t->n)];
	switch (rng_next(rng) % 8) {
	case 0: /* without the field after it */ f->next = f->next != NULL ? f->next->next : NULL; break;
	case 1: /* twice */
		g = ARENA_NEW(t->a, struct field);
		*g = *f;
		f->next = g;
		break;
	case 2:
	case 3: /* the content of another */
		g = alike(t, rng, f);
		if (g != NULL) {
			struct field *next = f->next;
			unsigned number = f->number;
			*f = *g;
			f->next = next;
			f->number = rng_next(rng) % 8 == 0 ? f->number : number;
			if (f->is != BYTES) { /* no cycles: its bytes as they were */
				f->is = BYTES;
				f->first = NULL;
			}
		}
		break;
	case 4: /* exchanged with the next */
		g = f->next;
		if (g != NULL) {
			struct field old = *f;
			*f = *g;
			*g = old;
			g->next = f->next;
			f->next = g;
		}
		break;
	case 5: f->number = f->number == 0 ? 1 : (unsigned)below(rng, 22); break;
	default:
		if (f->wire == 0)
			f->value = odd_int(rng, f->value);
		else if (f->is == BYTES && (f->wire == 2 || f->n > 0))
			change_bytes(t, rng, f);
		break;
	}
}

/* The bytes of a file with some mutations. */
static void mutated(struct tree *t, struct rng *rng, const struct buf *file, struct buf *out)
{
	buf_clear(out);
	t->n = 0;
	struct field *first = read_fields(t, MODEL, (const unsigned char *)file->data, file->len);
	for (uint64_t k = 1 + below(rng, 4); t->n > 0 && k > 0; k--)
		mutate_field(t, rng);
	write_fields(out, first);
	for (uint64_t k = rng_next(rng) % 4 == 0 ? 1 + below(rng, 3) : 0; out->len > 0 && k > 0; k--)
		out->data[below(rng, out->len)] = (char)rng_next(rng);
	if (rng_next(rng) % 64 == 0)
		out->len = below(rng, out->len + 1);
}

/* ---- files ---- */

struct seed {
	struct buf file;
	const char *dims[DIMS_MAX]; /* bounds of its sizes */
	size_t n_dims;
};

static void add_dim(struct arena *a, struct seed *s, const char *name)
{
	const char *text = arena_printf(a, "%s=1..%d", name, (int)s->n_dims % 3 == 0 ? 4 : 64);
	for (size_t i = 0; i < s->n_dims; i++)
		if (strcmp(s->dims[i], text) == 0 || strncmp(s->dims[i], text, strlen(name) + 1) == 0)
			return;
	if (s->n_dims < DIMS_MAX && strpbrk(name, " +-*/") == NULL)
		s->dims[s->n_dims++] = text;
}

/* The sizes of inputs that vary. */
static void find_dims(struct arena *a, struct seed *s, const struct field *f, const char *input, int *axis)
{
	for (; f != NULL; f = f->next) {
		if (f->is == VALUE && f->number != 11)
			continue;
		const char *name = input;
		for (const struct field *g = f->first; f->is == VALUE && g != NULL; g = g->next)
			if (g->number == 1 && g->wire == 2)
				name = arena_strndup(a, (const char *)g->bytes, g->n);
		if (f->is == VALUE)
			*axis = 0;
		if (f->is == SIZE) {
			const struct field *g = f->first;
			if (g != NULL && g->wire == 2)
				add_dim(a, s, arena_strndup(a, (const char *)g->bytes, g->n));
			else if (g == NULL || g->value == 0)
				add_dim(a, s, arena_printf(a, "%s_%d", input, *axis));
			++*axis;
		}
		if (f->is != BYTES)
			find_dims(a, s, f->first, name, axis);
	}
}

static bool read_seed(struct arena *a, const char *path, struct seed *s)
{
	char block[4096];
	FILE *f = fopen(path, "rb");
	struct tree *t = ARENA_NEW(a, struct tree);
	int axis = 0;
	if (f == NULL)
		return false;
	buf_init(&s->file);
	for (size_t n; (n = fread(block, 1, sizeof(block), f)) > 0;)
		buf_bytes(&s->file, block, n);
	fclose(f);
	t->a = a;
	find_dims(a, s, read_fields(t, MODEL, (const unsigned char *)s->file.data, s->file.len), "", &axis);
	return s->file.len > 0;
}

static bool write_case(const struct buf *b)
{
	FILE *f = fopen(CASE, "wb");
	bool ok = f != NULL && fwrite(b->data, 1, b->len, f) == b->len;
	return f != NULL && fclose(f) == 0 && ok;
}

/* ---- cases ---- */

struct counts {
	long imported, loaded, refused;
	double slowest;
};

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* The import has written a model file. */
static bool loads(struct diag_context *cx, const struct seed *s)
{
	struct frontend_model *m = NULL;
	struct ir_module *module = NULL;
	const struct frontend_options options = {.dims = s->dims, .n_dims = s->n_dims};
	enum tfmc_status st = frontend_load(cx, CASE, &options, &m);
	st = st == TFMC_OK ? frontend_lower(m, &module) : st;
	if (module != NULL)
		ir_module_destroy(module);
	frontend_destroy(m);
	return st == TFMC_OK;
}

/* NULL: the case is right; else why it is not. */
static const char *run_case(struct arena *a, const struct seed *s, struct buf *log, struct counts *counts)
{
	const struct frontend_options options = {.dims = s->dims, .n_dims = s->n_dims};
	struct itimerval limit = {.it_value = {.tv_sec = SECONDS}}, none = {{0, 0}, {0, 0}};
	struct diag_context cx;
	enum tfmc_status st = TFMC_OK;
	double begin = now();
	buf_clear(log);
	diag_init(&cx, diag_render_text, log);
	setitimer(ITIMER_PROF, &limit, NULL); /* the default action of its signal ends the process */
	const char *text = onnx_model_text(a, &cx, CASE, "", &options, &st), *wrong = NULL;
	if ((text != NULL) != (st == TFMC_OK))
		wrong = "a text and an error, or none of them";
	else if (text == NULL && cx.n_errors == 0 && st != TFMC_NO_MEMORY)
		wrong = "no reason";
	else if (text != NULL && cx.n_errors > 0)
		wrong = "a text after an error";
	else if (strstr(log->data, "[E999]") != NULL)
		wrong = "an internal error";
	counts->imported += text != NULL;
	counts->refused += text == NULL;
	if (text != NULL && wrong == NULL) {
		bool ok = loads(&cx, s);
		counts->loaded += ok;
		if (!ok && cx.n_errors == 0)
			wrong = "it does not load, without a reason";
	}
	setitimer(ITIMER_PROF, &none, NULL);
	diag_destroy(&cx);
	counts->slowest = now() - begin > counts->slowest ? now() - begin : counts->slowest;
	return wrong;
}

int main(int argc, char **argv)
{
	static struct seed seeds[FILES_MAX];
	struct arena kept, a;
	struct buf bytes, log;
	struct counts counts = {0, 0, 0, 0};
	size_t n = 0;
	int failed = 0;
	if (argc < 4) {
		fprintf(stderr, "usage: tfmc_fuzz_onnx COUNT FROM FILE..\n");
		return 2;
	}
	arena_init(&kept);
	arena_init(&a);
	buf_init(&bytes);
	buf_init(&log);
	for (int i = 3; i < argc && n < FILES_MAX; i++)
		n += read_seed(&kept, argv[i], &seeds[n]);
	struct tree *t = ARENA_NEW(&a, struct tree);
	t->a = &a;
	struct arena_mark mark = arena_mark(&a);
	long count = atol(argv[1]), from = atol(argv[2]);
	for (long i = from; n > 0 && i < from + count; i++) {
		struct rng rng = rng_seed((uint64_t)i);
		const struct seed *s = &seeds[below(&rng, n)];
		mutated(t, &rng, &s->file, &bytes);
		if (!write_case(&bytes))
			return 3;
		const char *wrong = run_case(&a, s, &log, &counts);
		if (wrong != NULL) {
			char name[64];
			snprintf(name, sizeof(name), "case_%ld.onnx", i);
			printf("FAILED case %ld: %s: %.300s\n", i, wrong, log.data);
			rename(CASE, name);
			failed = 1;
		}
		arena_release(&a, mark);
		if ((i - from + 1) % 20000 == 0) {
			printf("%ld cases, %ld imported, %ld loaded\n", i - from + 1, counts.imported,
			       counts.loaded);
			fflush(stdout);
		}
	}
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	printf("%ld cases of %zu files: %ld imported, %ld of them loaded, %ld refused; slowest %.2f s, "
	       "memory %ld MB\n",
	       count, n, counts.imported, counts.loaded, counts.refused, counts.slowest,
	       usage.ru_maxrss / 1024);
	unlink(CASE);
	arena_destroy(&a);
	for (size_t i = 0; i < n; i++)
		buf_destroy(&seeds[i].file);
	arena_destroy(&kept);
	buf_destroy(&bytes);
	buf_destroy(&log);
	return n == 0 ? 2 : failed;
}
