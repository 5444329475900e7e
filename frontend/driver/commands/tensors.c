/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Named tensors: files, dims from the shapes of inputs, and entries called through a session or the interpreter. Probes
 * (intermediate values as additional results, passes/graph/probe.h) become one tensor for each probed value.
 * The record of an object lists its entries and their tensors; the size of an axis is a polynomial in the dims.
 */
#include "frontend/driver/commands/tensors.h"

#include <math.h>
#include <string.h>

#include "frontend/syntax/files.h"
#include "frontend/weights/npy.h"
#include "frontend/weights/safetensors.h"
#include "ir/support/checked.h"

struct named_tensor *tensors_find(const struct named_tensors *t, const char *name)
{
	for (size_t i = 0; i < t->n; i++)
		if (!strcmp(t->items[i].name, name))
			return &t->items[i];
	return NULL;
}

/* At least one byte is allocated: a tensor without elements has an address, too, and NULL means no memory. */
struct named_tensor *tensors_add(struct driver *d, struct named_tensors *list, const char *name,
                                 enum ir_dtype dtype, int rank, const int64_t *dims)
{
	struct named_tensor t = {.name = arena_strdup(&d->arena, name), .dtype = dtype, .rank = rank};
	size_t bytes;
	if (!checked_product_i64(dims, (size_t)rank, &t.count) ||
	    !checked_mul_size((size_t)t.count, (size_t)ir_dtype_bytes(dtype), &bytes))
		return NULL;
	memcpy(t.dims, dims, (size_t)rank * sizeof(*dims));
	t.data = arena_alloc(&d->arena, bytes ? bytes : 1);
	struct named_tensor *slot = t.data ? ARENA_PUSH(&d->arena, list) : NULL;
	if (slot)
		*slot = t;
	return slot;
}

double tensor_value(const struct named_tensor *t, int64_t i)
{
	double value;
	weight_read_elements(t->dtype, t->data, i, 1, &value);
	return value;
}

const char *tensor_not_finite(struct driver *d, const struct named_tensor *t)
{
	int64_t first = -1, n = 0, inner = t->count;
	struct buf at;
	if (ir_dtype_class(t->dtype) != DTCLASS_FLOAT)
		return NULL;
	for (int64_t i = 0; i < t->count; i++) {
		bool is_finite = isfinite(tensor_value(t, i));
		first = !is_finite && first < 0 ? i : first;
		n += !is_finite;
	}
	if (n == 0)
		return NULL;
	buf_init(&at);
	for (int k = 0; k < t->rank; k++) {
		inner = t->dims[k] ? inner / t->dims[k] : 0;
		buf_printf(&at, "%s%lld", k ? "," : "", (long long)(inner ? first / inner % t->dims[k] : 0));
	}
	double v = tensor_value(t, first);
	const char *text = arena_printf(&d->arena, "%lld of %lld elements, the first %s at [%s]",
	                                (long long)n, (long long)t->count,
	                                isnan(v) ? "NaN"
	                                : v < 0  ? "-infinity"
	                                         : "infinity",
	                                t->rank ? at.data : "");
	buf_destroy(&at);
	return text;
}

void tensor_set_values(struct named_tensor *t, const double *values)
{
	struct interp_tensor v = {.dtype = t->dtype, .rank = t->rank, .data = (double *)(uintptr_t)values};
	memcpy(v.dims, t->dims, sizeof(v.dims));
	interp_to_bytes(&v, t->data);
}

/* Tensors of types that no model has are skipped; an array whose elements would have to be converted or transposed
 * is an error. The data are copied, so that the file can be closed. */
enum tfmc_status tensors_read(struct driver *d, const char *path, const char *prefix,
                              struct named_tensors *out)
{
	struct file_map map;
	struct stored_tensors file;
	TFMC_TRY(file_map_open(&d->diag, path, LOC_NONE, &map));
	outputs_add_input(&d->outputs, path);
	const struct stored_source src = {&d->arena, &d->diag, path, LOC_NONE, map.data, map.len, false};
	enum tfmc_status st =
	        npy_has_magic(map.data, map.len) ? npy_read(&src, &file) : safetensors_read(&src, &file);
	size_t skip = prefix ? strlen(prefix) : 0;
	for (size_t i = 0; st == TFMC_OK && i < file.n; i++) {
		const struct stored_tensor *s = &file.items[i];
		/* Other tensors of the file may have types that no model has. */
		if (!s->readable || (prefix && strncmp(s->name, prefix, skip)))
			continue;
		if (s->read || s->reversed) {
			diag_error(&d->diag, LOC_NONE, DIAG_UNSUPPORTED,
			           "not supported yet: the array of '%s' in order of Fortran or as %s", path,
			           s->type_name);
			st = TFMC_INVALID;
			continue;
		}
		struct named_tensor *t = tensors_add(d, out, s->name + skip, s->dtype, s->rank, s->dims);
		if (t && s->bytes)
			memcpy(t->data, s->data, s->bytes);
		st = t ? TFMC_OK : TFMC_NO_MEMORY;
	}
	file_map_close(&map);
	return st;
}

enum tfmc_status tensors_write(struct driver *d, const char *path, const struct named_tensors *t)
{
	struct stored_tensor *items = ARENA_ARRAY(&d->arena, struct stored_tensor, t->n ? t->n : 1);
	if (!items)
		return TFMC_NO_MEMORY;
	for (size_t i = 0; i < t->n; i++) {
		const struct named_tensor *v = &t->items[i];
		items[i] = (struct stored_tensor){
		        .name = v->name, .dtype = v->dtype, .readable = true, .rank = v->rank};
		items[i].type_name = ir_dtype_safetensors(v->dtype);
		memcpy(items[i].dims, v->dims, sizeof(v->dims));
		items[i].data = v->data;
		items[i].bytes = (size_t)v->count * (size_t)ir_dtype_bytes(v->dtype);
	}
	struct buf text;
	buf_init(&text);
	enum tfmc_status st = safetensors_write(&text, items, t->n) ? TFMC_OK : TFMC_NO_MEMORY;
	if (st == TFMC_OK)
		st = driver_write_output(d, path, &text);
	buf_destroy(&text);
	return st == TFMC_OK ? outputs_commit(&d->outputs) : st;
}

/* ---- dims from shapes ---- */
#define SOLVE_MAX 1048576 /* values tried for a dim */

/* By the number of the dim in the record. */
struct shape_dims {
	int64_t *values;
	bool *known;
};

/* False: no memory. */
static bool make_dims(struct driver *d, const struct tfmc_record *r, struct shape_dims *dims)
{
	dims->values = ARENA_ARRAY(&d->arena, int64_t, r->n_dims + 1);
	dims->known = ARENA_ARRAY(&d->arena, bool, r->n_dims + 1);
	return dims->values && dims->known;
}

/* Binds the dim of an axis whose size is a single symbol: in the record 1 term of scale 1 with 1 factor, the dim
 * w[3]. The first axis counts; check_input() compares the others. */
static void bind_symbol(const struct tfmc_record *r, const struct tfmc_record_tensor *t, uint64_t axis,
                        int64_t size, struct shape_dims *dims)
{
	const uint64_t *w = (const void *)((const char *)r + t->sizes[axis]);
	if (w[0] != 1 || w[1] != 1 || w[2] != 1 || dims->known[w[3]])
		return;
	dims->values[w[3]] = size;
	dims->known[w[3]] = true;
}

/* Finds a dim that no axis has alone, from an axis whose size is an expression (S - 1): tries values in ascending
 * order, so the smallest one that fits. Only one unknown dim is varied at a time. */
static void solve_size(const struct tfmc_record *r, const struct tfmc_record_tensor *t, uint64_t axis,
                       int64_t size, struct shape_dims *dims)
{
	for (uint64_t i = 0; i < r->n_dims && tfmc_tensor_size(r, t, axis, dims->values) != size; i++) {
		const struct tfmc_record_dim *dim = tfmc_record_dim_at(r, i);
		int64_t *v = &dims->values[i],
		        most = dim->hi - dim->lo < SOLVE_MAX ? dim->hi : dim->lo + SOLVE_MAX;
		while (!dims->known[i] && *v < most && tfmc_tensor_size(r, t, axis, dims->values) != size)
			++*v;
		dims->known[i] = dims->known[i] || tfmc_tensor_size(r, t, axis, dims->values) == size;
		if (!dims->known[i])
			*v = dim->lo;
	}
}

typedef void axis_fn(const struct tfmc_record *r, const struct tfmc_record_tensor *t, uint64_t axis,
                     int64_t size, struct shape_dims *dims);

/* Calls visit() for each axis of the inputs that are given and have the rank of the record. */
static void for_each_input_axis(const struct tfmc_record *r, int64_t entry, const struct named_tensors *in,
                                axis_fn *visit, struct shape_dims *dims)
{
	const struct tfmc_record_entry *e = tfmc_entry_at(r, entry);
	for (uint64_t i = 0; i < e->n_inputs; i++) {
		const struct tfmc_record_tensor *t = tfmc_entry_input(r, entry, i);
		const struct named_tensor *v = tensors_find(in, tfmc_record_text(r, t->name));
		for (uint64_t k = 0; v && (uint64_t)v->rank == t->rank && k < t->rank; k++)
			visit(r, t, k, v->dims[k], dims);
	}
}

/* Sets all dims from the shapes of the inputs: first the axes with a single symbol, then the others; a dim of no
 * axis keeps its lower bound. */
static void solve_dims(const struct tfmc_record *r, int64_t entry, const struct named_tensors *in,
                       struct shape_dims *dims)
{
	for_each_input_axis(r, entry, in, bind_symbol, dims);
	for (uint64_t i = 0; i < r->n_dims; i++)
		if (!dims->known[i])
			dims->values[i] = tfmc_record_dim_at(r, i)->lo;
	for_each_input_axis(r, entry, in, solve_size, dims);
}

static void print_shape(struct buf *b, enum ir_dtype dtype, int rank, const int64_t *dims)
{
	buf_printf(b, "%s[", ir_dtype_name(dtype));
	for (int i = 0; i < rank; i++)
		buf_printf(b, "%s%lld", i ? "," : "", (long long)dims[i]);
	buf_char(b, ']');
}

/* False after a diagnostic: type or shape differ from the record's. */
static bool check_input(struct caller *c, const struct tfmc_record_tensor *t, const struct named_tensor *v,
                        const int64_t *dims)
{
	bool ok = (uint64_t)v->rank == t->rank && (uint64_t)v->dtype == t->dtype;
	int64_t expected[IR_RANK_MAX];
	for (uint64_t k = 0; k < t->rank; k++) {
		expected[k] = tfmc_tensor_size(c->record, t, k, dims);
		ok = ok && expected[k] == v->dims[k];
	}
	if (ok)
		return true;
	struct buf b;
	buf_init(&b);
	print_shape(&b, v->dtype, v->rank, v->dims);
	buf_str(&b, ", expected ");
	print_shape(&b, (enum ir_dtype)t->dtype, (int)t->rank, expected);
	diag_error(&c->d->diag, LOC_NONE, DIAG_INPUT, "input %s is %s", v->name, b.data);
	buf_destroy(&b);
	return false;
}

/* Fills the buffers of an entry from the tensors of the same names; optional inputs that are not given stay without
 * data. False after a diagnostic. */
static bool bind_inputs(struct caller *c, int64_t entry, struct named_tensors *in, const int64_t *dims,
                        struct tfmc_buffer *buffers)
{
	const struct tfmc_record *r = c->record;
	const struct tfmc_record_entry *e = tfmc_entry_at(r, entry);
	for (uint64_t i = 0; i < e->n_inputs; i++) {
		const struct tfmc_record_tensor *t = tfmc_entry_input(r, entry, i);
		const char *name = tfmc_record_text(r, t->name);
		struct named_tensor *v = tensors_find(in, name);
		if (!v && !t->has_default) {
			diag_error(&c->d->diag, LOC_NONE, DIAG_INPUT, "input %s is not given", name);
			return false;
		}
		if (!v)
			continue;
		v->used = true;
		if (!check_input(c, t, v, dims))
			return false;
		buffers[i] = (struct tfmc_buffer){v->data, (uint64_t)v->count};
	}
	return true;
}

/* Appends zeroed tensors for the outputs of an entry, and their buffers. False: no memory. */
static bool alloc_outputs(struct caller *c, int64_t entry, const int64_t *dims, struct tfmc_buffer *buffers,
                          struct named_tensors *out)
{
	const struct tfmc_record *r = c->record;
	const struct tfmc_record_entry *e = tfmc_entry_at(r, entry);
	for (uint64_t i = 0; i < e->n_outputs; i++) {
		const struct tfmc_record_tensor *t = tfmc_entry_output(r, entry, i);
		int64_t sizes[IR_RANK_MAX];
		for (uint64_t k = 0; k < t->rank; k++)
			sizes[k] = tfmc_tensor_size(r, t, k, dims);
		struct named_tensor *v = tensors_add(c->d, out, tfmc_record_text(r, t->name),
		                                     (enum ir_dtype)t->dtype, (int)t->rank, sizes);
		if (!v)
			return false;
		buffers[i] = (struct tfmc_buffer){v->data, (uint64_t)v->count};
	}
	return true;
}

const char *entry_function(const char *entry)
{
	return !strcmp(entry, "prefill") || !strcmp(entry, "step") ? "decode" : entry;
}

/* ---- through the interpreter ---- */
/* Makes the argument for a parameter. Without data the interpreter computes the default; states are empty. False:
 * no memory. */
static bool interp_input(struct caller *c, const struct ir_func *f, const struct ir_param *p,
                         const int64_t *dims, const struct tfmc_buffer *given, struct interp_tensor *out)
{
	*out = (struct interp_tensor){0};
	if (!given && p->role == ROLE_PAST)
		return interp_tensor_make(&c->d->arena, ir_type_of(f, p->value), dims, out);
	if (!given || !given->data)
		return true;
	if (!interp_tensor_make(&c->d->arena, ir_type_of(f, p->value), dims, out))
		return false;
	interp_from_bytes(out, given->data);
	return true;
}

/* Calls the function of an entry in the interpreter. The record lists only tensors of the caller; parameters and
 * results that are states or lengths of the past have no buffer. */
static enum tfmc_status interp_call(struct caller *c, const char *entry, const int64_t *dims,
                                    const struct tfmc_buffer *inputs, const struct tfmc_buffer *outputs)
{
	const struct ir_func *f = ir_find_func(c->module, entry_function(entry));
	size_t n_in = 0, n_given = 0, n_out = 0;
	if (!f)
		return TFMC_INTERNAL;
	struct interp_tensor *in = ARENA_ARRAY(&c->d->arena, struct interp_tensor, f->n_params + 1),
	                     *results = ARENA_ARRAY(&c->d->arena, struct interp_tensor, f->n_results + 1);
	if (!in || !results)
		return TFMC_NO_MEMORY;
	for (size_t i = 0; i < f->n_params; i++) {
		const struct ir_param *p = &f->params[i];
		if (ir_type_of(f, p->value)->kind != IR_TENSOR)
			continue;
		const struct tfmc_buffer *given = p->role == ROLE_INPUT ? &inputs[n_given++] : NULL;
		if (!interp_input(c, f, p, dims, given, &in[n_in++]))
			return TFMC_NO_MEMORY;
	}
	struct interp_args args = {.dims = dims,
	                           .inputs = in,
	                           .outputs = results,
	                           .state = c->state,
	                           .weights = c->weights,
	                           .arena = &c->d->arena,
	                           .planned = c->planned,
	                           .wide = c->wide,
	                           .single = c->single};
	TFMC_TRY(interp_run(&c->d->diag, c->module, f, &args));
	for (size_t i = 0, k = 0; i < f->n_results; i++) {
		if (!f->results[i].name && f->results[i].role == ROLE_INPUT)
			continue; /* state */
		if (f->results[i].role == ROLE_INPUT)
			interp_to_bytes(&results[n_out], outputs[k++].data);
		n_out++;
	}
	return TFMC_OK;
}

/* Returns "; S is 12, 1..8 is possible" for the first dim out of bounds, or "". */
static const char *describe_dim_out_of_bounds(struct caller *c, int64_t entry, const int64_t *dims)
{
	const struct tfmc_record_entry *e = tfmc_entry_at(c->record, entry);
	const uint64_t *used = (const void *)((const char *)c->record + e->dims);
	for (uint64_t i = 0; i < e->n_dims; i++) {
		const struct tfmc_record_dim *d = tfmc_record_dim_at(c->record, used[i]);
		int64_t v = dims[used[i]];
		if (v < d->lo || v > d->hi)
			return arena_printf(&c->d->arena, "; %s is %lld, %lld..%lld is possible",
			                    tfmc_record_text(c->record, d->name), (long long)v,
			                    (long long)d->lo, (long long)d->hi);
	}
	return "";
}

/* Calls an entry through the session, and reports its status with the dim that is out of bounds. */
static enum tfmc_status session_call(struct caller *c, int64_t entry, const char *name, const int64_t *dims,
                                     const struct tfmc_buffer *inputs, const struct tfmc_buffer *outputs)
{
	int status = tfmc_session_call(c->session, entry, dims, inputs, outputs);
	if (status == TFMC_RT_OK)
		return TFMC_OK;
	return driver_runtime_error(c->d, LOC_NONE, DIAG_INPUT, status, "entry %s: %s%s", name,
	                            tfmc_session_status_text(c->session, status),
	                            status == TFMC_RT_E_DIM ? describe_dim_out_of_bounds(c, entry, dims)
	                                                    : "");
}

int64_t caller_find_entry(struct driver *d, const struct tfmc_record *r, const char *name)
{
	int64_t number = tfmc_entry_find(r, name);
	if (number >= 0)
		return number;
	const char *list = "";
	for (uint64_t i = 0; i < r->n_entries; i++)
		list = arena_printf(&d->arena, "%s%s%s", list, i ? ", " : "",
		                    tfmc_record_text(r, tfmc_entry_at(r, (int64_t)i)->name));
	diag_error(&d->diag, LOC_NONE, DIAG_INPUT, "the model has no entry %s; entries are %s", name, list);
	return -1;
}

/* ---- probed values ---- */

/*
 * Adds the tensor of a probed value, copied from `all`, the result that contains the value. Iterations of a repeat
 * are slots along the leading axis of `all`, of which the value is slot v->slot; outside of repeats (slot < 0) the
 * value is `all`. A slot beyond the axis, which probe_insert() never makes, is skipped. False: no memory.
 */
static bool add_probed_value(struct driver *d, const struct probe_value *v, const struct named_tensor *all,
                             struct named_tensors *out)
{
	bool is_all = v->slot < 0;
	if (!is_all && (all->rank < 1 || v->slot >= all->dims[0]))
		return true;
	struct named_tensor *t = tensors_add(d, out, v->name, all->dtype, is_all ? all->rank : all->rank - 1,
	                                     is_all ? all->dims : all->dims + 1);
	if (!t)
		return false;
	size_t bytes = (size_t)t->count * (size_t)ir_dtype_bytes(t->dtype);
	if (bytes)
		memcpy(t->data, (const char *)all->data + (is_all ? 0 : (size_t)v->slot * bytes), bytes);
	t->probe = v;
	return true;
}

/* Whether a result of the function contains probed values. */
static bool is_probe_result(const struct probe_values *values, const char *function, const char *name)
{
	for (size_t i = 0; i < values->n; i++)
		if (!strcmp(values->items[i].result, name) && !strcmp(values->items[i].function, function))
			return true;
	return false;
}

/* Replaces the results of a function that are probes by one tensor for each value, in order of computation. */
static enum tfmc_status split_probes(struct driver *d, const struct probe_values *values,
                                     const char *function, struct named_tensors *t)
{
	struct named_tensors out = {0};
	for (size_t i = 0; i < t->n; i++) {
		struct named_tensor *slot = NULL;
		if (is_probe_result(values, function, t->items[i].name))
			continue;
		slot = ARENA_PUSH(&d->arena, &out);
		if (!slot)
			return TFMC_NO_MEMORY;
		*slot = t->items[i];
	}
	for (size_t i = 0; i < values->n; i++) {
		const struct probe_value *v = &values->items[i];
		const struct named_tensor *all = tensors_find(t, v->result);
		if (all && !strcmp(v->function, function) && !tensors_find(&out, v->name) &&
		    !add_probed_value(d, v, all, &out))
			return TFMC_NO_MEMORY;
	}
	*t = out;
	return TFMC_OK;
}

/* ---- calls ---- */

/* Dims come first: they give the shapes that inputs must have, and the sizes of the outputs. */
enum tfmc_status caller_run(struct caller *c, const char *entry, struct named_tensors *in,
                            struct named_tensors *out)
{
	struct shape_dims dims;
	int64_t number = caller_find_entry(c->d, c->record, entry);
	if (number < 0)
		return TFMC_INVALID;
	const struct tfmc_record_entry *e = tfmc_entry_at(c->record, number);
	struct tfmc_buffer *inputs = ARENA_ARRAY(&c->d->arena, struct tfmc_buffer, e->n_inputs + 1),
	                   *outputs = ARENA_ARRAY(&c->d->arena, struct tfmc_buffer, e->n_outputs + 1);
	if (!inputs || !outputs || !make_dims(c->d, c->record, &dims))
		return TFMC_NO_MEMORY;
	solve_dims(c->record, number, in, &dims);
	if (!bind_inputs(c, number, in, dims.values, inputs))
		return TFMC_INVALID;
	if (!alloc_outputs(c, number, dims.values, outputs, out))
		return TFMC_NO_MEMORY;
	if (c->session)
		TFMC_TRY(session_call(c, number, entry, dims.values, inputs, outputs));
	else
		TFMC_TRY(interp_call(c, entry, dims.values, inputs, outputs));
	return c->probes && c->probes->n ? split_probes(c->d, c->probes, entry_function(entry), out)
	                                 : TFMC_OK;
}

enum tfmc_status caller_open_session(struct driver *d, struct compiled *c, const char *entry,
                                     const struct named_tensors *in)
{
	const struct tfmc_record *r = c->model.record;
	struct shape_dims dims;
	int64_t number = tfmc_entry_find(r, entry);
	if (!make_dims(d, r, &dims))
		return TFMC_NO_MEMORY;
	if (number < 0) /* a session for the bounds: the call reports the error */
		return driver_open_session_for(d, c, NULL);
	solve_dims(r, number, in, &dims);
	return driver_open_session_for(d, c, dims.values);
}
