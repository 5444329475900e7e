/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run of the interpreter: checks what the entry of an object checks (dims, shapes, ids, bounds), sets the inputs,
 * executes the body and copies the results. For each op operands are looked up, results allocated, the handler
 * called, results rounded and traced, and dead values freed. A value dies after the last op of its own region that
 * uses it, directly or in a nested region. All memory of intermediates is freed on every return, and counted before.
 * A slot (in->slots[v.id]) has the tensor of value v while it is live; states have a slot without data. In a planned
 * run (args->planned) values also go through the bytes of the planned arena, where each line of 64 bytes has the number
 * (stamp) of its last write; a value is intact while its lines have the stamp of its buffer.
 */
#include "ir/interp/interp.h"
#include "ir/core/inplace.h"
#include "ir/core/names.h"
#include "ir/core/view.h"
#include "ir/interp/interp_internal.h"
#include "ir/support/checked.h"
#include "ir/support/memory.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <string.h>

/* ---- tensors ---- */

int64_t interp_count(const struct interp_tensor *t)
{
	int64_t n;
	if (t->rank < 0 || t->rank > IR_RANK_MAX || !checked_product_i64(t->dims, (size_t)t->rank, &n))
		return -1;
	return n;
}

/* An i64 that is no double keeps its bytes in `exact`. */
void interp_from_bytes(struct interp_tensor *t, const void *bytes)
{
	int64_t n = interp_count(t);
	weight_read_elements(t->dtype, bytes, 0, n, t->data);
	if (t->exact && n > 0)
		memcpy(t->exact, bytes, (size_t)n * sizeof(*t->exact));
}

/* Values that their type cannot represent saturate; floats are rounded to nearest even. */
void interp_to_bytes(const struct interp_tensor *t, void *bytes)
{
	int64_t n = interp_count(t);
	weight_write_elements(t->dtype, t->data, n, bytes);
	for (int64_t i = 0; t->exact && i < n; i++) {
		int64_t v = interp_get_int(t, i);
		memcpy((char *)bytes + (size_t)i * sizeof(v), &v, sizeof(v));
	}
}

/* `exact` counts only if it rounds to data[i]: else only data was written (struct interp_tensor). */
int64_t interp_get_int(const struct interp_tensor *t, int64_t i)
{
	bool is_known = t->exact && (double)t->exact[i] == t->data[i];
	return is_known ? t->exact[i] : f64_to_i64(t->data[i]);
}

/* Differences of integers are taken modulo 2^64, since they may exceed int64. */
double interp_abs_diff(const struct interp_tensor *a, const struct interp_tensor *b, int64_t i)
{
	double x = a->data[i], y = b->data[i];
	if (ir_dtype_class(a->dtype) != DTCLASS_INT)
		return x == y || (isnan(x) && isnan(y)) ? 0 : fabs(x - y);
	int64_t n = interp_get_int(a, i), m = interp_get_int(b, i);
	return (double)(n > m ? (uint64_t)n - (uint64_t)m : (uint64_t)m - (uint64_t)n);
}

/* v modulo 2^width: casts of an unsigned value to a narrower type keep its low bits. */
int64_t interp_wrap(enum ir_dtype dtype, uint64_t v)
{
	switch (dtype) {
	case DT_I8: return (int8_t)(uint8_t)v;
	case DT_U8: return (uint8_t)v;
	case DT_I16: return (int16_t)(uint16_t)v;
	case DT_I32: return (int32_t)(uint32_t)v;
	case DT_I64: return (int64_t)v;
	case DT_F32:
	case DT_F16:
	case DT_BF16:
	case DT_F64:
	case DT_BOOL: break;
	}
	return 0;
}

/* Allocated bytes of an element: a double, and for i64 the exact value. */
static size_t element_bytes(enum ir_dtype dtype)
{
	return sizeof(double) + (dtype == DT_I64 ? sizeof(int64_t) : 0);
}

static bool bytes_of(const struct interp_tensor *t, size_t *bytes)
{
	int64_t n = interp_count(t);
	return n >= 0 && checked_mul_size((size_t)n, element_bytes(t->dtype), bytes);
}

/* The address of the exact integers of an i64 tensor (struct interp_tensor), which follow its doubles in one
 * allocation; NULL for other dtypes. */
static int64_t *exact_values(const struct interp_tensor *t)
{
	return t->dtype == DT_I64 && t->data ? (int64_t *)(t->data + interp_size(t)) : NULL;
}

bool interp_tensor_alloc(struct arena *a, struct interp_tensor *t)
{
	size_t bytes;
	if (!bytes_of(t, &bytes))
		return false;
	/* an empty tensor gets the bytes of one element: its data is not NULL */
	t->data = arena_alloc(a, bytes ? bytes : element_bytes(t->dtype));
	t->exact = exact_values(t);
	return t->data && !arena_failed(a);
}

/* Also the exact integers. */
bool interp_tensor_copy(struct arena *a, const struct interp_tensor *t, struct interp_tensor *out)
{
	struct interp_tensor copy = *t;
	if (!interp_tensor_alloc(a, &copy))
		return false;
	interp_copy(&copy, 0, t, 0, interp_size(t));
	*out = copy;
	return true;
}

/* Concrete shape and bytes of a type for dim values; false if a dim is negative or on overflow. */
static bool shape_of(const struct ir_type *type, const int64_t *dims, struct interp_tensor *out,
                     size_t *bytes)
{
	*out = (struct interp_tensor){.dtype = type->dtype, .rank = type->rank};
	for (int i = 0; i < type->rank; i++)
		if (!ir_dim_eval(type->dims[i], dims, &out->dims[i]) || out->dims[i] < 0)
			return false;
	return bytes_of(out, bytes);
}

bool interp_tensor_make(struct arena *a, const struct ir_type *type, const int64_t *dims,
                        struct interp_tensor *out)
{
	size_t bytes;
	return type->kind == IR_TENSOR && shape_of(type, dims, out, &bytes) && interp_tensor_alloc(a, out);
}

int64_t interp_dim(const struct interp *in, const struct ir_dim *d)
{
	int64_t v;
	return ir_dim_eval(d, in->args->dims, &v) ? v : -1;
}

static enum tfmc_status too_large(struct interp *in, const struct ir_op *op, const char *what)
{
	diag_error(in->cx, op ? op->loc.at : in->f->loc.at, DIAG_LIMIT,
	           "%s of the interpreter's memory limit of %zu bytes", what, in->limit_bytes);
	return TFMC_INVALID;
}

/* Frees the tensor of v, if it has one, and no longer counts it. */
static void interp_slot_free(struct interp *in, struct ir_value v)
{
	struct interp_slot *s = &in->slots[v.id];
	if (s->live && s->tensor.data)
		in->used_bytes -= (size_t)interp_size(&s->tensor) * element_bytes(s->tensor.dtype);
	memory_free(s->tensor.data);
	s->tensor.data = NULL;
	s->tensor.exact = NULL;
	s->live = false;
}

/* Allocates the tensor of v, counted against args->memory_limit, after freeing the one of an earlier iteration. A
 * state has none: its contents are in args->state. op: for errors. */
static enum tfmc_status interp_slot_make(struct interp *in, const struct ir_op *op, struct ir_value v)
{
	const struct ir_type *type = ir_type_of(in->f, v);
	struct interp_slot *s = &in->slots[v.id];
	size_t bytes = 0, used;
	interp_slot_free(in, v);
	s->live = true;
	if (type->kind == IR_STATE) {
		s->tensor = (struct interp_tensor){0};
		return TFMC_OK;
	}
	if (!shape_of(type, in->args->dims, &s->tensor, &bytes))
		return too_large(in, op, "the size of a value does not fit into 64 bits, let alone");
	if (!checked_add_size(in->used_bytes, bytes, &used) || used > in->limit_bytes)
		return too_large(in, op, "intermediate values need more than all");
	s->tensor.data = memory_zeroed(bytes ? bytes : 1, 1);
	s->tensor.exact = exact_values(&s->tensor);
	if (!s->tensor.data)
		return TFMC_NO_MEMORY;
	in->used_bytes = used;
	return TFMC_OK;
}

/* Sets v to a copy of `from`, which must have as many elements as the type of v; a difference is an error of the IR.
 * Nothing to copy for a state. */
static enum tfmc_status interp_slot_copy(struct interp *in, const struct ir_op *op, struct ir_value v,
                                         const struct interp_tensor *from)
{
	TFMC_TRY(interp_slot_make(in, op, v));
	struct interp_tensor *to = &in->slots[v.id].tensor;
	if (!to->data)
		return TFMC_OK;
	if (interp_size(to) != interp_size(from))
		return interp_error(in, op, "a value has %lld elements where its type has %lld",
		                    (long long)interp_size(from), (long long)interp_size(to));
	interp_copy(to, 0, from, 0, interp_size(from));
	return TFMC_OK;
}

void interp_unravel(const struct interp_tensor *t, int64_t at, int64_t index[IR_RANK_MAX])
{
	for (int i = t->rank - 1; i >= 0; i--) {
		index[i] = at % t->dims[i];
		at /= t->dims[i];
	}
}

int64_t interp_ravel(const struct interp_tensor *t, const int64_t index[IR_RANK_MAX])
{
	int64_t at = 0;
	for (int i = 0; i < t->rank; i++)
		at = at * t->dims[i] + index[i];
	return at;
}

/* ---- the arena of planned runs ---- */

/*
 * Checks memory plans by execution (`tfmc verify --poison`). Besides their own memory, values of a planned run go
 * through an arena: it is poisoned with 0xff (NaN, -1), every group writes its results at their planned offsets, and
 * later groups load their operands from there. Each 64-byte line records its last writer, so reading another value is
 * an error that names both.
 */

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

/* The arena of planned runs, of its size for the dims of this run, filled with 0xff (NaN, -1), all lines never
 * written. All functions but this do nothing in other runs. in->memory is set first, so that interp_memory_end frees
 * what a failure leaves. */
static enum tfmc_status interp_memory_begin(struct interp *in)
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

/* Frees the arena of a planned run, also one that was only partly allocated. */
static void interp_memory_end(struct interp *in)
{
	if (in->memory == NULL)
		return;
	memory_free(in->memory->bytes);
	memory_free(in->memory->lines);
	memory_free(in->memory->buffers);
	memory_free(in->memory);
	in->memory = NULL;
}

/* `to` shares the buffer of `from` (carries). */
static void interp_memory_carry(struct interp *in, struct ir_value to, struct ir_value from)
{
	if (in->memory != NULL)
		in->memory->buffers[to.id] = in->memory->buffers[ir_view_base(in->f, from).id];
}

static const char *name_of(const struct interp *in, struct ir_value v)
{
	const char *name = v.id != 0 ? ir_value_name(in->args->arena, in->f, v) : NULL;
	return name != NULL ? name : "(unnamed)";
}

/* Loads v from the arena, over the copy in its slot; an error if a line was last written by another value or never.
 * A wide run only checks: its f64 are not the bytes of kernels. */
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

/* The result at `to` does not share bytes with a value that the group reads (from->bytes <= 0: it is not in the
 * arena), unless its kernel works in place, at the same offset. */
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

/* Calls visit for every outer value in the arena that the group reads; views count as their base, whose bytes they
 * read. */
static enum tfmc_status each_read(struct interp *in, const struct ir_op *group, visit_read *visit,
                                  const struct buffer *to)
{
	for (size_t k = 0; k < group->region->n_ops; k++)
		for (size_t i = 0; i < group->region->ops[k]->n_operands; i++) {
			struct ir_value v = group->region->ops[k]->operands[i];
			if (v.id == 0 || ir_type_of(in->f, v)->kind != IR_TENSOR)
				continue;
			v = ir_view_base(in->f, v);
			if (ir_value_info(in->f, v)->region != group->region &&
			    in->memory->buffers[v.id].bytes >= 0)
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

/* Stores result i of the group at its offset, and marks the lines as written by it. Offset -1 is memory of the
 * caller, which is not checked. Overlaps are checked before the bytes are overwritten. */
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

/* ---- a run ---- */

#define DEFAULT_LIMIT ((size_t)8 << 30)

enum tfmc_status interp_error(struct interp *in, const struct ir_op *op, const char *fmt, ...)
{
	struct buf text;
	BUF_FROM_ARGS(&text, fmt);
	diag_error(in->cx, op ? op->loc.at : in->f->loc.at, DIAG_INPUT, "%s", text.data);
	buf_destroy(&text);
	return TFMC_INVALID;
}

static interp_handler *const handlers[IR_N_OPS] = {
#define OP(name, traits, operands, attributes, results, axes, formula) [OP_##name] = interp_eval_##name,
#include "ir/core/ops.def"
};

/* ---- last uses ---- */

/* The region being traversed, and those around it. */
struct frame {
	const struct frame *outer;
	const struct ir_region *region;
};

/* op uses v: the op of v's own region that is or contains op becomes its last use. So a value that a repeat reads
 * lives until the repeat ends. */
static void record_use(struct interp *in, const struct frame *frame, const struct ir_op *op,
                       struct ir_value v)
{
	const struct ir_region *home = ir_value_info(in->f, v)->region;
	for (; frame && frame->region != home; frame = frame->outer)
		op = frame->region->owner;
	in->slots[v.id].last_use = op;
}

/* Sets last_use of all values used in r and its nested regions; ops are visited in order, so the last one stays. */
static void record_uses(struct interp *in, const struct frame *outer, const struct ir_region *r)
{
	struct frame frame = {outer, r};
	for (size_t i = 0; i < r->n_ops; i++) {
		const struct ir_op *op = r->ops[i];
		for (size_t k = 0; k < op->n_operands; k++)
			if (op->operands[k].id)
				record_use(in, &frame, op, op->operands[k]);
		if (op->region)
			record_uses(in, &frame, op->region);
	}
}

/* Frees operands of `op`, and of ops nested in it, whose last use is `last`: nested ones may be the only uses of an
 * outer value. */
static void free_last_uses(struct interp *in, const struct ir_op *op, const struct ir_op *last)
{
	for (size_t i = 0; i < op->n_operands; i++)
		if (op->operands[i].id && in->slots[op->operands[i].id].last_use == last)
			interp_slot_free(in, op->operands[i]);
	for (size_t i = 0; op->region && i < op->region->n_ops; i++)
		free_last_uses(in, op->region->ops[i], last);
}

/* ---- one op ---- */

/* At least the number of optional operands of any op: handlers may read absent ones after the end of the operands. */
#define OPTIONAL_MAX 8

/* Operands and results of an op for its handler and the trace. */
struct call {
	const struct interp_tensor **x; /* [n_operands + OPTIONAL_MAX] */
	struct interp_tensor *out;      /* [n_results] */
	const struct interp_tensor **traced;
};

/* Rounds results to their types; in a wide run floats stay f64. The loop for f32 is separate because it is the usual
 * one. A state has no data: n is 0. */
static void round_results(struct interp *in, const struct ir_op *op)
{
	for (size_t i = 0; i < op->n_results; i++) {
		struct interp_tensor *t = &in->slots[op->results[i].id].tensor;
		int64_t n = t->data ? interp_size(t) : 0;
		if (in->args->wide && ir_dtype_class(t->dtype) == DTCLASS_FLOAT)
			continue;
		for (int64_t k = 0; k < n && t->dtype == DT_F32; k++)
			t->data[k] = (double)(float)t->data[k];
		for (int64_t k = 0; k < n && t->dtype != DT_F32; k++)
			t->data[k] = ir_round(t->dtype, t->data[k]);
	}
}

/* Looks operands up, allocates results, calls the handler, rounds and traces. An absent operand, or a state, is
 * NULL. The handler gets copies of the results' tensors, which share their data. */
static enum tfmc_status call_handler(struct interp *in, const struct ir_op *op, struct call *c)
{
	for (size_t i = 0; i < op->n_operands; i++) {
		struct interp_slot *s = &in->slots[op->operands[i].id];
		c->x[i] = op->operands[i].id && s->tensor.data ? &s->tensor : NULL;
	}
	for (size_t i = 0; i < op->n_results; i++) {
		TFMC_TRY(interp_slot_make(in, op, op->results[i]));
		c->out[i] = in->slots[op->results[i].id].tensor;
		c->traced[i] = &in->slots[op->results[i].id].tensor;
	}
	TFMC_TRY(handlers[op->code](in, op, c->x, c->out));
	round_results(in, op);
	if (in->args->trace)
		in->args->trace(in->args->trace_user, in->f, op, c->traced);
	return TFMC_OK;
}

/* One op; then frees operands that it used last, and results that are never used. Arrays are zeroed, so operands
 * after the last are NULL for the handler. */
static enum tfmc_status execute(struct interp *in, const struct ir_op *op)
{
	struct call c = {
	        .x = memory_zeroed(op->n_operands + OPTIONAL_MAX, sizeof(*c.x)),
	        .out = memory_zeroed(op->n_results + 1, sizeof(*c.out)),
	        .traced = memory_zeroed(op->n_results + 1, sizeof(*c.traced)),
	};
	enum tfmc_status st = c.x && c.out && c.traced ? call_handler(in, op, &c) : TFMC_NO_MEMORY;
	memory_free(c.x);
	memory_free(c.out);
	memory_free(c.traced);
	if (st != TFMC_OK)
		return st;
	free_last_uses(in, op, op);
	for (size_t i = 0; i < op->n_results; i++)
		if (!in->slots[op->results[i].id].last_use)
			interp_slot_free(in, op->results[i]);
	return TFMC_OK;
}

/* Executes the ops before the terminator. */
static enum tfmc_status execute_region(struct interp *in, const struct ir_region *r)
{
	for (size_t i = 0; i + 1 < r->n_ops; i++)
		TFMC_TRY(execute(in, r->ops[i]));
	return TFMC_OK;
}

/* Frees all values that the region defines, without nested regions. */
static void clear_region(struct interp *in, const struct ir_region *r)
{
	for (size_t i = 0; i < r->n_args; i++)
		interp_slot_free(in, r->args[i]);
	for (size_t i = 0; i < r->n_ops; i++)
		for (size_t k = 0; k < r->ops[i]->n_results; k++)
			interp_slot_free(in, r->ops[i]->results[k]);
}

/* ---- ops with regions ---- */

/* Copies the yielded values to the results of op, which in a planned run are in the same buffers of the arena
 * (carries). */
static enum tfmc_status copy_yields(struct interp *in, const struct ir_op *op)
{
	const struct ir_op *yield = op->region->ops[op->region->n_ops - 1];
	assert(yield->n_operands == op->n_results);
	for (size_t i = 0; i < op->n_results; i++) {
		TFMC_TRY(interp_slot_copy(in, op, op->results[i], &in->slots[yield->operands[i].id].tensor));
		interp_memory_carry(in, op->results[i], yield->operands[i]);
	}
	return TFMC_OK;
}

/* Copies the carries to the arguments, executes the body and copies the yields back, `count` times. Between
 * iterations the carries are in the results of the repeat. */
INTERP_EVAL(repeat)
{
	const struct attrs_repeat *a = op->attrs;
	const struct ir_region *r = op->region;
	for (size_t i = 0; i < op->n_results; i++) {
		TFMC_TRY(interp_slot_copy(in, op, op->results[i], &in->slots[op->operands[i].id].tensor));
		interp_memory_carry(in, op->results[i], op->operands[i]);
	}
	size_t depth = in->n_at++;
	for (int64_t n = 0; n < a->count; n++) {
		if (depth < INTERP_DEPTH_MAX)
			in->at[depth] = n;
		TFMC_TRY(interp_slot_make(in, op, r->args[REPEAT_INDEX]));
		in->slots[r->args[REPEAT_INDEX].id].tensor.data[0] = (double)n;
		for (size_t i = 0; i < op->n_results; i++) {
			TFMC_TRY(interp_slot_copy(in, op, r->args[1 + i],
			                          &in->slots[op->results[i].id].tensor));
			interp_memory_carry(in, r->args[1 + i], op->results[i]);
		}
		TFMC_TRY(execute_region(in, r));
		TFMC_TRY(copy_yields(in, op));
		clear_region(in, r);
	}
	in->n_at--;
	return TFMC_OK;
}

/* Executes the body; in a planned run reads values from the arena before, and stores the results to it after. */
INTERP_EVAL(group)
{
	if (in->memory != NULL)
		TFMC_TRY(each_read(in, op, load_read, NULL));
	TFMC_TRY(execute_region(in, op->region));
	TFMC_TRY(copy_yields(in, op));
	for (size_t i = 0; in->memory != NULL && i < op->n_results; i++)
		TFMC_TRY(store_result(in, op, i));
	clear_region(in, op->region);
	return TFMC_OK;
}

/* The caller of execute_region reads the terminator. */
INTERP_EVAL(yield)
{
	return interp_error(in, op, "a yield comes before the end of its region");
}

INTERP_EVAL(return )
{
	return interp_error(in, op, "a return comes before the end of its function");
}

/* ---- a run ---- */

/* The dims of the call are within their bounds. */
static enum tfmc_status check_dims(struct interp *in)
{
	for (size_t i = 0; i < ir_dims_count(in->m->dims); i++) {
		const struct ir_dim_sym *s = ir_dims_sym(in->m->dims, i);
		int64_t v = in->args->dims[i];
		if (v < s->lo || v > s->hi)
			return interp_error(in, NULL,
			                    "dim %s is %" PRId64 ", not in [%" PRId64 ",%" PRId64 "]",
			                    s->name, v, s->lo, s->hi);
	}
	return TFMC_OK;
}

/* Ids are below their bound, counts in [0, max]; NaN, too, is outside. No bound: nothing is checked. */
static enum tfmc_status check_values(struct interp *in, const struct ir_param *p,
                                     const struct interp_tensor *t)
{
	int64_t hi = p->below > 0 ? p->below - 1 : -1;
	if (p->max)
		hi = interp_dim(in, p->max);
	if (p->below <= 0 && !p->max)
		return TFMC_OK;
	for (int64_t i = 0; i < interp_size(t); i++)
		if (!(t->data[i] >= 0 && t->data[i] <= (double)hi))
			return interp_error(in, NULL,
			                    "input '%s' has the value %" PRId64 " at %" PRId64
			                    ", not in [0,%" PRId64 "]",
			                    p->name, f64_to_i64(t->data[i]), i, hi);
	return TFMC_OK;
}

/* The given input has element type and shape of the parameter; else reports the first difference. The loop over axes
 * ends: some axis differs. */
static enum tfmc_status check_shape(struct interp *in, const struct ir_param *p,
                                    const struct interp_tensor *have, const struct interp_tensor *want)
{
	bool same = have->dtype == want->dtype && have->rank == want->rank;
	for (int i = 0; same && i < want->rank; i++)
		same = have->dims[i] == want->dims[i];
	if (same)
		return TFMC_OK;
	if (have->dtype != want->dtype || have->rank != want->rank)
		return interp_error(
		        in, NULL, "input '%s' is %s of rank %d, the function expects %s of rank %d", p->name,
		        ir_dtype_name(have->dtype), have->rank, ir_dtype_name(want->dtype), want->rank);
	int axis = 0;
	while (have->dims[axis] == want->dims[axis])
		axis++;
	return interp_error(in, NULL, "axis %d of input '%s' is %" PRId64 ", the function expects %" PRId64,
	                    axis, p->name, have->dims[axis], want->dims[axis]);
}

/* Fills an omitted input with its default: a dim (of ints, i64 exactly) or a constant. */
static enum tfmc_status fill_default(struct interp *in, const struct ir_param *p, struct interp_tensor *t)
{
	if (!p->has_default)
		return interp_error(in, NULL, "input '%s' is missing", p->name);
	double v = p->default_value ? (double)interp_dim(in, p->default_value) : p->fill;
	for (int64_t i = 0; i < interp_size(t); i++)
		t->data[i] = v;
	for (int64_t i = 0; t->exact && p->default_value && i < interp_size(t); i++)
		interp_set_int(t, i, interp_dim(in, p->default_value));
	return TFMC_OK;
}

/* Copies or fills all inputs. args->inputs has tensors only, so `next` skips states. */
static enum tfmc_status set_inputs(struct interp *in)
{
	size_t next = 0;
	for (size_t i = 0; i < in->f->n_params; i++) {
		const struct ir_param *p = &in->f->params[i];
		TFMC_TRY(interp_slot_make(in, NULL, p->value));
		struct interp_tensor *t = &in->slots[p->value.id].tensor;
		if (!t->data) { /* a state */
			if (!in->args->state)
				return interp_error(in, NULL, "function '%s' needs state", in->f->name);
			continue;
		}
		const struct interp_tensor *given = &in->args->inputs[next++];
		if (given->data) {
			TFMC_TRY(check_shape(in, p, given, t));
			interp_copy(t, 0, given, 0, interp_size(t));
		} else {
			TFMC_TRY(fill_default(in, p, t));
		}
		TFMC_TRY(check_values(in, p, t));
	}
	return TFMC_OK;
}

/* Copies the returned values to args->outputs, in memory of the caller; states are not among them. */
static enum tfmc_status copy_outputs(struct interp *in)
{
	const struct ir_region *body = in->f->body;
	const struct ir_op *ret = body->ops[body->n_ops - 1];
	size_t next = 0;
	for (size_t i = 0; i < ret->n_operands; i++) {
		const struct interp_tensor *from = &in->slots[ret->operands[i].id].tensor;
		if (!from->data)
			continue;
		struct interp_tensor *to = &in->args->outputs[next++];
		if (!interp_tensor_copy(in->args->arena, from, to))
			return TFMC_NO_MEMORY;
	}
	return TFMC_OK;
}

/* The whole run, in the order of a compiled function: dims and inputs are checked before anything is computed. Last
 * uses are recorded before the first op runs. */
static enum tfmc_status execute_func(struct interp *in)
{
	TFMC_TRY(check_dims(in));
	record_uses(in, NULL, in->f->body);
	if (in->args->planned && in->m->stage == STAGE_PLAN)
		TFMC_TRY(interp_memory_begin(in));
	TFMC_TRY(set_inputs(in));
	TFMC_TRY(execute_region(in, in->f->body));
	return copy_outputs(in);
}

/* Frees all slots on every return. */
enum tfmc_status interp_run(struct diag_context *cx, const struct ir_module *m, const struct ir_func *f,
                            const struct interp_args *args)
{
	struct interp in = {.cx = cx, .m = m, .f = f, .args = args};
	in.limit_bytes = args->memory_limit ? args->memory_limit : DEFAULT_LIMIT;
	in.slots = memory_zeroed(f->n_values + 1, sizeof(*in.slots));
	if (!in.slots)
		return TFMC_NO_MEMORY;
	enum tfmc_status st = execute_func(&in);
	for (size_t i = 0; i < f->n_values; i++)
		memory_free(in.slots[i].tensor.data);
	memory_free(in.slots);
	interp_memory_end(&in);
	return st;
}
