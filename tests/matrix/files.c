/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cases.bin, which the runner reads: 8-byte little-endian words; texts and tensors
 * are a length in bytes and the bytes, padded to 8.
 *
 *   MAGIC, sequences of a state, number of cases, then for each
 *   model, entry, reset, dims of the module [n, values], inputs [n, {elements, bytes of an element, data}],
 *   outputs [n, {elements, bytes of an element}]
 *
 * NAME.out, which it writes: for each case a status, and when that is 0 the outputs' data.
 */
#include "tests/matrix/files.h"

#include <stdio.h>
#include <string.h>

#include "tests/matrix/matrix.h"

void put_bytes(struct buf *b, const void *bytes, size_t n)
{
	buf_bytes(b, bytes, n);
	buf_fill(b, '\0', (8 - n % 8) % 8);
}

static void put_text(struct buf *b, const char *text)
{
	buf_u64le(b, strlen(text));
	put_bytes(b, text, strlen(text));
}

bool put_tensor(struct arena *a, struct buf *b, const struct interp_tensor *t)
{
	size_t n = (size_t)interp_count(t) * (size_t)ir_dtype_bytes(t->dtype);
	struct arena_mark mark = arena_mark(a);
	void *bytes = arena_alloc(a, n + 1);
	if (!bytes)
		return false;
	interp_to_bytes(t, bytes);
	put_bytes(b, bytes, n);
	arena_release(a, mark);
	return true;
}

static void put_size(struct buf *b, const struct interp_tensor *t)
{
	buf_u64le(b, (uint64_t)interp_count(t));
	buf_u64le(b, (uint64_t)ir_dtype_bytes(t->dtype));
}

static bool put_case(const struct suite *s, struct buf *b, const struct matrix_case *c)
{
	const struct ir_module *m = s->batches.items[c->batch].graph;
	uint64_t n_in = 0, n_out = 0;
	put_text(b, m->name);
	put_text(b, c->entry);
	buf_u64le(b, c->reset);
	buf_u64le(b, ir_dims_count(m->dims));
	for (size_t i = 0; i < ir_dims_count(m->dims); i++)
		buf_u64le(b, (uint64_t)c->dims[i]);
	for (size_t i = 0; i < c->n_inputs; i++)
		n_in += input_is_caller(c->f, i);
	for (size_t i = 0; i < c->n_outputs; i++)
		n_out += output_is_caller(c->f, i);
	buf_u64le(b, n_in);
	for (size_t i = 0; i < c->n_inputs; i++) {
		if (!input_is_caller(c->f, i))
			continue;
		put_size(b, &c->inputs[i]);
		if (!put_tensor(s->arena, b, &c->inputs[i]))
			return false;
	}
	buf_u64le(b, n_out);
	for (size_t i = 0; i < c->n_outputs; i++)
		if (output_is_caller(c->f, i))
			put_size(b, &c->outputs[i]);
	return true;
}

bool write_cases(const struct suite *s, const char *path)
{
	struct buf b;
	buf_init(&b);
	buf_u64le(&b, MATRIX_MAGIC);
	buf_u64le(&b, MATRIX_SEQUENCES);
	buf_u64le(&b, s->cases.n);
	bool ok = true;
	for (size_t i = 0; ok && i < s->cases.n; i++)
		ok = put_case(s, &b, &s->cases.items[i]);
	ok = ok && !buf_failed(&b) && file_put(path, b.data, b.len);
	buf_destroy(&b);
	return ok;
}

/* ---- whole files ---- */

bool file_put(const char *path, const char *bytes, size_t n)
{
	FILE *f = fopen(path, "wb");
	bool ok = f && fwrite(bytes, 1, n, f) == n;
	if (f)
		ok = fclose(f) == 0 && ok;
	if (!ok)
		fprintf(stderr, "matrix: cannot write %s\n", path);
	return ok;
}

bool file_get(struct arena *a, const char *path, const char **bytes, size_t *n)
{
	FILE *f = fopen(path, "rb");
	long size = -1;
	*bytes = NULL;
	if (f && fseek(f, 0, SEEK_END) == 0)
		size = ftell(f);
	if (f && size >= 0) {
		char *data = arena_alloc(a, (size_t)size + 1);
		rewind(f);
		*n = data ? fread(data, 1, (size_t)size, f) : 0;
		*bytes = *n == (size_t)size ? data : NULL;
	}
	if (f)
		fclose(f);
	return *bytes != NULL;
}
