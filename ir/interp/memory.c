/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks memory plans by execution (`tfmc verify --poison`). Besides their own memory, values of a planned run go
 * through an arena: it is poisoned with 0xff (NaN, -1), every group writes its results at their planned offsets, and
 * later groups load their operands from there. Each 64-byte line records its last writer, so reading another value is
 * an error that names both.
 */
#include "ir/interp/interp_internal.h"

#include <string.h>

#include "ir/core/inplace.h"
#include "ir/support/memory.h"
#include "ir/core/view.h"

#define LINE      64
#define BYTES_MAX ((int64_t)1 << 32)

/* The last write to a line: a value, and the number of the write (values of a repeat are written several times). 0:
 * never written. */
struct line {
	uint64_t stamp;
	struct ir_value value;
};

/* Bytes of a value in the arena, and the number of its last write. bytes < 0: not in the arena. */
struct buffer {
	int64_t at, bytes;
	uint64_t stamp;
};

struct interp_memory {
	unsigned char *bytes;   /* [size] */
	struct line *lines;     /* [size / LINE] */
	struct buffer *buffers; /* [n_values] */
	int64_t size;
	uint64_t stamp;
};

enum tfmc_status interp_memory_begin(struct interp *in)
{
	struct interp_memory *m = memory_zeroed(1, sizeof(*m));
	if (m == NULL)
		return TFMC_NO_MEMORY;
	in->memory = m;
	m->size = in->f->arena != NULL ? interp_dim(in, in->f->arena) : 0;
	if (m->size < 0 || m->size > BYTES_MAX)
		return interp_error(in, NULL, "the arena is too large to be interpreted");
	m->size = (m->size + LINE - 1) / LINE * LINE;
	m->bytes = memory_alloc((size_t)m->size + 1);
	m->lines = memory_zeroed((size_t)(m->size / LINE) + 1, sizeof(*m->lines));
	m->buffers = memory_zeroed(in->f->n_values, sizeof(*m->buffers));
	if (m->bytes == NULL || m->lines == NULL || m->buffers == NULL)
		return TFMC_NO_MEMORY;
	memset(m->bytes, 0xff, (size_t)m->size);
	for (size_t i = 0; i < in->f->n_values; i++)
		m->buffers[i].bytes = -1;
	return TFMC_OK;
}

void interp_memory_end(struct interp *in)
{
	if (in->memory == NULL)
		return;
	memory_free(in->memory->bytes);
	memory_free(in->memory->lines);
	memory_free(in->memory->buffers);
	memory_free(in->memory);
	in->memory = NULL;
}

void interp_memory_carry(struct interp *in, struct ir_value to, struct ir_value from)
{
	if (in->memory != NULL)
		in->memory->buffers[to.id] = in->memory->buffers[ir_view_base(in->f, from).id];
}

static const char *name_of(const struct interp *in, struct ir_value v)
{
	const char *name = v.id != 0 ? ir_value_info(in->f, v)->name : NULL;
	return name != NULL ? name : "(unnamed)";
}

static bool is_inside(const struct ir_op *group, const struct interp *in, struct ir_value v)
{
	return ir_value_info(in->f, v)->region == group->region;
}

/* Loads v from the arena; an error if a line was last written by another value or never. */
static enum tfmc_status load_value(struct interp *in, const struct ir_op *group, struct ir_value v)
{
	struct interp_memory *m = in->memory;
	const struct buffer *s = &m->buffers[v.id];
	struct interp_tensor *t = &in->slots[v.id].tensor;
	for (int64_t i = s->at / LINE; i * LINE < s->at + s->bytes; i++) {
		const struct line *l = &m->lines[i];
		if (l->stamp == s->stamp)
			continue;
		if (l->stamp == 0)
			return interp_error(in, group,
			                    "plan: %%%s is read at byte %lld, which was never written",
			                    name_of(in, v), (long long)(i * LINE));
		return interp_error(in, group,
		                    "plan: %%%s is read at byte %lld, where %%%s was written since",
		                    name_of(in, v), (long long)(i * LINE), name_of(in, l->value));
	}
	if (in->slots[v.id].live && t->data != NULL && !in->args->wide)
		interp_from_bytes(t, m->bytes + s->at);
	return TFMC_OK;
}

/* The result at `to` does not share bytes with a value that the group reads, unless its kernel works in place. */
static enum tfmc_status check_inplace(struct interp *in, const struct ir_op *group, struct ir_value read,
                                      const struct buffer *to)
{
	const struct buffer *from = &in->memory->buffers[read.id];
	if (from->bytes <= 0 || to->at >= from->at + from->bytes || from->at >= to->at + to->bytes)
		return TFMC_OK;
	const char *why =
	        from->at == to->at ? ir_inplace_conflict(in->m, in->f, group, read) : "they overlap in part";
	if (why == NULL)
		return TFMC_OK;
	return interp_error(in, group, "plan: the group writes over %%%s, which it reads: %s",
	                    name_of(in, read), why);
}

typedef enum tfmc_status visit_read(struct interp *in, const struct ir_op *group, struct ir_value read,
                                    const struct buffer *to);

/* Calls visit for every outer value in the arena that the group reads. */
static enum tfmc_status each_read(struct interp *in, const struct ir_op *group, visit_read *visit,
                                  const struct buffer *to)
{
	for (size_t k = 0; k < group->region->n_ops; k++)
		for (size_t i = 0; i < group->region->ops[k]->n_operands; i++) {
			struct ir_value v = group->region->ops[k]->operands[i];
			if (v.id == 0 || ir_type_of(in->f, v)->kind != IR_TENSOR)
				continue;
			v = ir_view_base(in->f, v);
			if (!is_inside(group, in, v) && in->memory->buffers[v.id].bytes >= 0)
				TFMC_TRY(visit(in, group, v, to));
		}
	return TFMC_OK;
}

static enum tfmc_status load_read(struct interp *in, const struct ir_op *group, struct ir_value read,
                                  const struct buffer *to)
{
	(void)to;
	return load_value(in, group, read);
}

enum tfmc_status interp_memory_read(struct interp *in, const struct ir_op *group)
{
	return in->memory == NULL ? TFMC_OK : each_read(in, group, load_read, NULL);
}

/* Stores result i of the group at its offset. */
static enum tfmc_status store_result(struct interp *in, const struct ir_op *group, size_t i)
{
	struct interp_memory *m = in->memory;
	const struct attrs_group *a = group->attrs;
	struct ir_value v = group->results[i];
	const struct interp_tensor *t = &in->slots[v.id].tensor;
	struct buffer *s = &m->buffers[v.id];
	*s = (struct buffer){.bytes = -1};
	if (i >= a->at.n || ir_type_of(in->f, v)->kind != IR_TENSOR || ir_dim_equals(a->at.items[i], -1))
		return TFMC_OK;
	*s = (struct buffer){interp_dim(in, a->at.items[i]), interp_dim(in, ir_value_bytes(in->m, in->f, v)),
	                     ++m->stamp};
	if (s->at < 0 || s->at % LINE != 0 || s->bytes > m->size - s->at)
		return interp_error(in, group, "plan: %%%s lies outside of the arena", name_of(in, v));
	TFMC_TRY(each_read(in, group, check_inplace, s));
	interp_to_bytes(t, m->bytes + s->at);
	for (int64_t k = s->at / LINE; k * LINE < s->at + s->bytes; k++)
		m->lines[k] = (struct line){s->stamp, v};
	return TFMC_OK;
}

enum tfmc_status interp_memory_write(struct interp *in, const struct ir_op *group)
{
	for (size_t i = 0; in->memory != NULL && i < group->n_results; i++)
		TFMC_TRY(store_result(in, group, i));
	return TFMC_OK;
}
