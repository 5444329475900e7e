/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tfmc run: an entry on tensors of files and of the command line. --input NAME=VALUES and outputs as text, and inputs
 * by the names of the transformers library.
 */
#include <string.h>

#include "frontend/driver/commands/tensors.h"
#include "ir/support/checked.h"
#include "ir/support/number.h"
#include "ir/support/strmap.h"

#define FULL_VALUES 1024 /* tensors of up to this many values are printed in full */
#define ROW_VALUES  8    /* of larger ones: values of a row */
#define ROWS        16   /* and rows */

struct numbers {
	double *items;
	size_t n, cap;
};

/* The values of an input that equal its absence. */
enum neutral_value { NEUTRAL_ONES, NEUTRAL_ZEROS, NEUTRAL_POSITIONS, NEUTRAL_NEVER };
static const struct {
	const char *name;
	enum neutral_value neutral;
	const char *ids; /* the input whose tokens a mask is for */
} library_inputs[] = {{"attention_mask", NEUTRAL_ONES, "input_ids"},
                      {"decoder_attention_mask", NEUTRAL_ONES, "decoder_input_ids"},
                      {"token_type_ids", NEUTRAL_ZEROS, NULL},
                      {"position_ids", NEUTRAL_POSITIONS, NULL},
                      {"decoder_position_ids", NEUTRAL_POSITIONS, NULL},
                      {"inputs_embeds", NEUTRAL_NEVER, NULL},
                      {"decoder_inputs_embeds", NEUTRAL_NEVER, NULL},
                      {"encoder_hidden_states", NEUTRAL_NEVER, NULL},
                      {"encoder_attention_mask", NEUTRAL_NEVER, NULL},
                      {"head_mask", NEUTRAL_NEVER, NULL},
                      {"bool_masked_pos", NEUTRAL_NEVER, NULL}};

/* Whether the name is an integer input of the library for each token, which parse_input takes as
 * i32[rows, values]. */
static bool is_library_input(const char *name)
{
	for (size_t k = 0; k < TFMC_COUNT(library_inputs); k++)
		if (library_inputs[k].neutral != NEUTRAL_NEVER && strcmp(library_inputs[k].name, name) == 0)
			return true;
	return false;
}

/* ---- reading ---- */

/* Whether an element of the type has this value. Integers beyond 2^53 are not, since the text is parsed as a
 * double. */
static bool is_representable(enum ir_dtype t, double v)
{
	int64_t bits = 8 * ir_dtype_bytes(t), limit = bits > 53 ? INT64_C(1) << 53 : INT64_C(1) << (bits - 1);
	double lo = -(double)limit, hi = (double)limit - 1;
	if (ir_dtype_class(t) == DTCLASS_FLOAT)
		return true;
	if (t == DT_U8 || t == DT_BOOL) {
		lo = 0;
		hi = t == DT_BOOL ? 1 : 255;
	}
	return v >= lo && v <= hi && (double)(int64_t)v == v;
}

/* Parses "1,2;3,4" into values of type t; *rows counts the rows. False after a diagnostic. */
static bool read_numbers(struct driver *d, const char *name, enum ir_dtype t, const char *text,
                         struct numbers *out, int64_t *rows)
{
	*rows = 1;
	for (const char *s = text; *s;) {
		size_t n = strcspn(s, ",; ");
		double *slot = n ? ARENA_PUSH(&d->arena, out) : NULL;
		if (!n && *s == ',' && (s == text || s[-1] == ',')) {
			diag_error(&d->diag, LOC_NONE, DIAG_INPUT,
			           "--input %s: a number is missing before a comma", name);
			return false;
		}
		if (n && (!slot || !number_parse_f64(s, n, slot) || !is_representable(t, *slot))) {
			diag_error(&d->diag, LOC_NONE, DIAG_INPUT, "--input %s: '%.*s' is not of type %s",
			           name, (int)n, s, ir_dtype_name(t));
			return false;
		}
		s += n;
		*rows += *s == ';';
		s += *s != 0;
	}
	return true;
}

/* Sets the sizes of all axes. Of those without a fixed size the first is the number of rows, the last the values of
 * a row, others are 1; a single one has all values. False: the values do not fill the axes of fixed size. */
static bool infer_shape(const struct ir_type *t, int64_t values, int64_t rows, int64_t *dims)
{
	int first = -1, last = -1;
	int64_t fixed = 1;
	for (int i = 0; i < t->rank; i++) {
		dims[i] = 1;
		if (!ir_dim_is_const(t->dims[i], &dims[i])) {
			first = first < 0 ? i : first;
			last = i;
		} else if (!checked_mul_i64(fixed, dims[i], &fixed)) {
			return false;
		}
	}
	if (first < 0)
		return values == fixed;
	if (first != last)
		dims[first] = rows;
	if (first != last && !checked_mul_i64(fixed, rows, &fixed))
		return false;
	dims[last] = fixed > 0 ? values / fixed : 0;
	return fixed > 0 && values % fixed == 0;
}

/* The input parameter of that name; NULL: none. */
static const struct ir_param *find_input(const struct ir_func *f, const char *name)
{
	for (size_t i = 0; i < f->n_params; i++)
		if (f->params[i].role == ROLE_INPUT && f->params[i].name && !strcmp(f->params[i].name, name))
			return &f->params[i];
	return NULL;
}

/* Reports an input that the function does not have, with the nearest name. Returns TFMC_INVALID. */
static enum tfmc_status report_unknown_input(struct driver *d, const struct ir_func *f, const char *name)
{
	const char *names[64];
	size_t n = 0;
	for (size_t i = 0; i < f->n_params && n < TFMC_COUNT(names); i++)
		if (f->params[i].role == ROLE_INPUT && f->params[i].name)
			names[n++] = f->params[i].name;
	diag_error(&d->diag, LOC_NONE, DIAG_INPUT, "--input: there is no input '%s'%s", name,
	           did_you_mean_or_known(&d->arena, name, names, n));
	return TFMC_INVALID;
}

/*
 * Parses "NAME=1,2,3" (rows are separated by ;) as an input of the function. Of its axes without a fixed size the first
 * is the number of rows, the last the values of a row, others have size 1. TFMC_INVALID after a diagnostic.
 */
static enum tfmc_status parse_input(struct driver *d, const struct ir_func *f, const char *text,
                                    struct named_tensors *out)
{
	size_t n = strcspn(text, "=");
	const char *name = arena_strndup(&d->arena, text, n);
	struct interp_tensor value = {0};
	struct numbers numbers = {0};
	int64_t rows;
	if (!name)
		return TFMC_NO_MEMORY;
	if (!text[n]) {
		diag_error(&d->diag, LOC_NONE, DIAG_OPTION,
		           "--input is NAME=VALUES, such as ids=1,2,3, not %s", text);
		return TFMC_INVALID;
	}
	const struct ir_param *p = find_input(f, name);
	if (!p && !is_library_input(name))
		return report_unknown_input(d, f, name);
	const struct ir_type *t = p ? ir_type_of(f, p->value) : NULL;
	value.dtype = t ? t->dtype : DT_I32;
	value.rank = t ? t->rank : 2;
	if (!read_numbers(d, name, value.dtype, text + n + 1, &numbers, &rows))
		return TFMC_INVALID;
	value.dims[0] = rows;
	value.dims[1] = (int64_t)numbers.n / rows;
	bool fits = t ? infer_shape(t, (int64_t)numbers.n, rows, value.dims) : (int64_t)numbers.n % rows == 0;
	if (!fits) {
		diag_error(&d->diag, LOC_NONE, DIAG_INPUT,
		           "--input %s: %zu values in rows: %lld do not fill its axes of fixed size", name,
		           numbers.n, (long long)rows);
		return TFMC_INVALID;
	}
	struct named_tensor *made = tensors_add(d, out, name, value.dtype, value.rank, value.dims);
	if (!made || !interp_tensor_alloc(&d->arena, &value))
		return TFMC_NO_MEMORY;
	for (size_t i = 0; i < numbers.n; i++) {
		value.data[i] = numbers.items[i];
		if (value.exact)
			value.exact[i] = (int64_t)numbers.items[i];
	}
	interp_to_bytes(&value, made->data);
	return TFMC_OK;
}

/* ---- printing ---- */

/* Prints a float so that it parses back to the same bits, an int exactly. */
static void print_value(struct buf *out, const struct interp_tensor *t, int64_t i)
{
	switch (ir_dtype_class(t->dtype)) {
	case DTCLASS_FLOAT:
		if (t->dtype == DT_F64)
			buf_f64(out, t->data[i]);
		else
			buf_f32(out, (float)t->data[i]);
		return;
	case DTCLASS_INT:
	case DTCLASS_BOOL: buf_printf(out, "%lld", (long long)interp_get_int(t, i)); return;
	}
}

/* Prints the index of a row along all axes but the last: "[0,3] ". */
static void print_row_index(struct buf *out, const struct named_tensor *t, int64_t row)
{
	int64_t below = 1, at = row;
	for (int i = 0; i + 1 < t->rank; i++)
		below *= t->dims[i];
	for (int i = 0; i + 1 < t->rank; i++) {
		below /= t->dims[i];
		buf_printf(out, "%s%lld%s", i ? "," : "[", (long long)(at / below),
		           i + 2 < t->rank ? "" : "] ");
		at %= below;
	}
}

/* Prints name, type and values, a line for each row; of large tensors only the beginning. */
static void print_tensor(struct buf *out, const struct named_tensor *t, const struct interp_tensor *value)
{
	int64_t row = t->rank ? t->dims[t->rank - 1] : 1, rows = row ? t->count / row : 0;
	bool is_full = t->count <= FULL_VALUES;
	buf_printf(out, "%s %s[", t->name, ir_dtype_name(t->dtype));
	for (int i = 0; i < t->rank; i++)
		buf_printf(out, "%s%lld", i ? "," : "", (long long)t->dims[i]);
	buf_str(out, "]\n");
	for (int64_t r = 0; r < rows && (is_full || r < ROWS); r++) {
		int64_t shown = is_full || row <= ROW_VALUES ? row : ROW_VALUES;
		buf_str(out, "  ");
		print_row_index(out, t, r);
		for (int64_t i = 0; i < shown; i++) {
			buf_str(out, i ? " " : "");
			print_value(out, value, r * row + i);
		}
		buf_str(out, shown < row ? " ...\n" : "\n");
	}
	if (!is_full && rows > ROWS)
		buf_printf(out, "  ... %lld more rows; --outputs FILE writes all\n",
		           (long long)(rows - ROWS));
}

/* Appends all tensors in the text form of print_tensor(). */
static enum tfmc_status print_tensors(struct driver *d, const struct named_tensors *t, struct buf *out)
{
	for (size_t i = 0; i < t->n; i++) {
		const struct named_tensor *v = &t->items[i];
		struct interp_tensor value = {.dtype = v->dtype, .rank = v->rank};
		struct arena_mark mark = arena_mark(&d->arena);
		memcpy(value.dims, v->dims, sizeof(value.dims));
		if (!interp_tensor_alloc(&d->arena, &value))
			return TFMC_NO_MEMORY;
		interp_from_bytes(&value, v->data);
		print_tensor(out, v, &value);
		arena_release(&d->arena, mark);
	}
	return buf_failed(out) ? TFMC_NO_MEMORY : TFMC_OK;
}

/* ---- inputs by the names of the transformers library ---- */

static bool reject_input(struct driver *d, const struct named_tensor *t, const char *why)
{
	diag_error(&d->diag, LOC_NONE, DIAG_INPUT, "the input %s %s", t->name, why);
	return false;
}

static bool all_equal(const struct named_tensor *t, double value)
{
	for (int64_t i = 0; i < t->count; i++)
		if (tensor_value(t, i) != value)
			return false;
	return true;
}

/* Whether each row is 0, 1, .. */
static bool are_positions(const struct named_tensor *t)
{
	int64_t n = t->rank > 0 ? t->dims[t->rank - 1] : 0;
	for (int64_t i = 0; i < t->count; i++)
		if (tensor_value(t, i) != (double)(i % n))
			return false;
	return true;
}

/* Returns the number of leading ones in a row of a mask; -1: a one follows a zero. */
static int64_t row_length(const struct named_tensor *mask, int64_t row)
{
	int64_t n = 0, columns = mask->dims[1];
	while (n < columns && tensor_value(mask, row * columns + n) != 0)
		n++;
	for (int64_t i = n; i < columns; i++)
		if (tensor_value(mask, row * columns + i) != 0)
			return -1;
	return n;
}

/* Turns the mask of the input `ids_name`, which is tensor `number` of *in, into the lengths of its rows, or checks
 * that given ones agree. A mask of ones changes nothing. The mask is copied, since adding a tensor may move the
 * list. False after a diagnostic, or without memory. */
static bool mask_to_lengths(struct driver *d, const struct ir_func *f, struct named_tensors *in,
                            size_t number, const char *ids_name)
{
	const struct named_tensor mask = in->items[number], *ids = tensors_find(in, ids_name);
	const struct ir_param *p = find_input(f, ids_name);
	in->items[number].used = true;
	if (all_equal(&mask, 1))
		return true;
	if (!p || p->lengths < 0)
		return reject_input(d, &mask, "masks positions, and the model has no lengths");
	if (mask.rank != 2 || !ids || ids->rank != 2 || ids->dims[0] != mask.dims[0] ||
	    ids->dims[1] != mask.dims[1])
		return reject_input(d, &mask, arena_printf(&d->arena, "has not the shape of %s", ids_name));
	const char *name = f->params[p->lengths].name;
	struct named_tensor *lengths = tensors_find(in, name);
	bool is_new = lengths == NULL;
	if (is_new && !(lengths = tensors_add(d, in, name, DT_I32, 1, mask.dims)))
		return false;
	for (int64_t b = 0; b < mask.dims[0]; b++) {
		int64_t n = row_length(&mask, b);
		if (n < 0)
			return reject_input(
			        d, &mask,
			        arena_printf(&d->arena,
			                     "has tokens after padding in row %lld; only padding after the "
			                     "tokens is supported, as lengths in the input %s",
			                     (long long)b, name));
		if (is_new)
			((int32_t *)lengths->data)[b] = (int32_t)n;
		else if (b >= lengths->count || tensor_value(lengths, b) != (double)n)
			return reject_input(d, &mask, arena_printf(&d->arena, "contradicts %s", name));
	}
	return true;
}

/*
 * Maps tensors with names of the library that the function does not have. attention_mask with padding after the tokens
 * becomes lengths; neutral values (a mask of ones, token types 0, positions 0, 1, ..) are accepted. Everything else
 * would change the result: TFMC_INVALID after a diagnostic.
 */
static enum tfmc_status map_library_inputs(struct driver *d, const struct ir_func *f,
                                           struct named_tensors *in)
{
	bool ok = true;
	for (size_t k = 0; k < TFMC_COUNT(library_inputs); k++) {
		struct named_tensor *t = tensors_find(in, library_inputs[k].name);
		if (!t || find_input(f, library_inputs[k].name))
			continue;
		switch (library_inputs[k].neutral) {
		case NEUTRAL_ONES:
			ok = mask_to_lengths(d, f, in, (size_t)(t - in->items), library_inputs[k].ids) && ok;
			continue;
		case NEUTRAL_ZEROS: t->used = all_equal(t, 0); break;
		case NEUTRAL_POSITIONS: t->used = are_positions(t); break;
		case NEUTRAL_NEVER: break;
		}
		ok = (t->used ||
		      reject_input(d, t, "changes what is computed, and the model has no such input")) &&
		     ok;
	}
	return ok ? TFMC_OK : TFMC_INVALID;
}

/* ---- the command ---- */

static void warn_not_finite_outputs(struct driver *d, const struct named_tensors *out)
{
	for (size_t i = 0; i < out->n; i++) {
		const char *which = tensor_not_finite(d, &out->items[i]);
		if (which)
			diag_warning(&d->diag, LOC_NONE, DIAG_CHECK_FAILED,
			             "the output %s is not finite in %s", out->items[i].name, which);
	}
}

/* Reads the inputs of the options. Those of --input come first in the list, so they take precedence over those of
 * --inputs with the same name. */
static enum tfmc_status read_inputs(struct driver *d, const struct loaded *l, const char *entry,
                                    struct named_tensors *in)
{
	const struct option_list *given = &d->options.values;
	const struct ir_func *f = ir_find_func(l->module, entry_function(entry));
	for (size_t i = 0; f && i < given->n; i++)
		TFMC_TRY(parse_input(d, f, given->items[i], in));
	if (d->options.inputs)
		TFMC_TRY(tensors_read(d, d->options.inputs, d->options.prefix, in));
	return f ? map_library_inputs(d, f, in) : TFMC_OK;
}

/* Calls the entry on the given inputs, compiled or in the interpreter, and writes or prints the outputs. */
static enum tfmc_status run_entry(struct driver *d, struct loaded *l, struct compiled *c)
{
	const char *entry = d->options.entry ? d->options.entry : "run";
	bool is_interp = d->options.backend == RUN_INTERPRETED;
	struct named_tensors in = {0}, out = {0};
	TFMC_TRY(read_inputs(d, l, entry, &in));
	struct caller caller = {
	        .d = d, .record = c->model.record, .module = l->module, .weights = &l->weights};
	caller.probes = &l->probes;
	if (is_interp && strcmp(entry, "run") && strcmp(entry, "encode")) {
		diag_error(&d->diag, LOC_NONE, DIAG_UNSUPPORTED,
		           "not supported yet: entry %s in the interpreter", entry);
		return TFMC_INVALID;
	}
	if (is_interp)
		caller.state = interp_state_create(&d->arena, l->module, 64); /* sequences */
	else if (l->probes.n) /* probed values take memory: as much as these shapes need */
		TFMC_TRY(caller_open_session(d, c, entry, &in));
	else
		TFMC_TRY(driver_open_session(d, c, 0));
	caller.session = c->session;
	enum tfmc_status st = caller_run(&caller, entry, &in, &out);
	if (st != TFMC_OK)
		return st;
	for (size_t i = 0; i < in.n; i++)
		if (!in.items[i].used)
			diag_warning(&d->diag, LOC_NONE, DIAG_INPUT,
			             "tensor %s is not an input of this entry", in.items[i].name);
	warn_not_finite_outputs(d, &out);
	return d->options.outputs ? tensors_write(d, d->options.outputs, &out)
	                          : print_tensors(d, &out, &d->out);
}

/* Whether the model has the entry. An unknown entry is reported when it is called. */
static bool is_known_entry(const struct loaded *l, const char *entry)
{
	static const char *const known[] = {"run", "encode", "prefill", "step", "score"};
	for (size_t i = 0; l->model && i < TFMC_COUNT(known); i++)
		if (!strcmp(known[i], entry))
			return ir_find_func(l->module, entry_function(entry)) != NULL;
	return false;
}

/* Only the named entry is compiled, if it is known; the number of names is 0 otherwise, which compiles all, and the
 * call reports the name. */
enum exit_code command_run(struct driver *d)
{
	struct loaded l;
	struct compiled c = {.all_workers = true};
	if (!d->options.inputs && !d->options.values.n)
		return driver_usage_error(d, "run requires --inputs=FILE or --input NAME=VALUES");
	enum tfmc_status st = driver_load(d, &l);
	const char *entry = d->options.entry ? d->options.entry : "run", *function = entry_function(entry);
	if (st == TFMC_OK)
		st = driver_insert_probes(d, &l, &d->options.probe, &(struct option_list){&function, 1, 1});
	if (st == TFMC_OK)
		st = driver_compile_jit(d, &l, (struct entry_names){&entry, is_known_entry(&l, entry)}, &c);
	if (st == TFMC_OK)
		st = run_entry(d, &l, &c);
	compiled_destroy(&c);
	loaded_destroy(&l);
	return exit_code_of(st);
}
