/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NAME_record, the constant that describes an object (struct tfmc_record): entries, tensors, dims, states,
 * tokens. Everything is addressed by offsets from its beginning, so it needs no relocations and can be read
 * from the file as well as in memory.
 *
 * put_X appends X and returns its offset; 0 means none, as the record begins with its own fields. Lists are arrays of
 * structs of abi.h: whatever an element points to (names, dims, tensors) is appended first, then the array. Dims of an
 * entry are those of its function, with the entry's fixed dim bound to 1 (entry_dim). Without memory an
 * array is NULL and its list empty; backend.c then reports the failure of the arena.
 */
#include "backends/plan/host.h"
#include "backends/object/internal.h"
#include "ir/core/cost.h"

#include <string.h>

struct record_writer {
	struct object *object;
	struct buf *out;
	enum tfmc_status status;
};

static void align8(struct record_writer *w)
{
	while (w->out->len % 8)
		buf_char(w->out, 0);
}

static uint64_t put_bytes(struct record_writer *w, const void *bytes, size_t n)
{
	align8(w);
	uint64_t at = w->out->len;
	buf_bytes(w->out, bytes, n);
	return at;
}

static uint64_t put_string(struct record_writer *w, const char *s)
{
	uint64_t at = w->out->len;
	buf_bytes(w->out, s, strlen(s) + 1);
	return at;
}

/* The string's offset; 0: there is none. */
static int64_t put_optional_string(struct record_writer *w, const char *s)
{
	return s ? (int64_t)put_string(w, s) : 0;
}

static int64_t put_ids(struct record_writer *w, const struct backend_ids *ids, int64_t *n)
{
	*n = (int64_t)ids->n;
	return (int64_t)put_bytes(w, ids->items, ids->n * sizeof(*ids->items));
}

/* ---- dims ---- */

/* A dim expression as a polynomial over dim symbols (u64: terms, and of each coefficient, factors, symbols); the
 * record format has no other terms: a diagnostic and TFMC_INVALID. */
static uint64_t put_dim(struct record_writer *w, const struct entry *e, const struct ir_dim *dim,
                        struct loc loc)
{
	const struct ir_dim *d = entry_dim(w->object, e, dim);
	align8(w);
	uint64_t at = w->out->len;
	buf_u64le(w->out, d->n_terms);
	for (size_t t = 0; t < d->n_terms; t++) {
		buf_u64le(w->out, (uint64_t)d->terms[t].coeff);
		buf_u64le(w->out, d->terms[t].n_atoms);
		for (size_t a = 0; a < d->terms[t].n_atoms; a++) {
			int sym = d->terms[t].atoms[a]->sym;
			if (sym < 0 && w->status == TFMC_OK) {
				diag_error(w->object->cx, loc, DIAG_UNSUPPORTED,
				           "not supported yet: a rounded division or a maximum in the size "
				           "of an input or "
				           "output");
				w->status = TFMC_INVALID;
			}
			buf_u64le(w->out, sym < 0 ? 0 : (uint64_t)sym);
		}
	}
	return at;
}

/* Appends the dim symbols, names and bounds. Returns their offset, as the other put_X do. */
static uint64_t put_dims(struct record_writer *w)
{
	const struct ir_dims *t = w->object->module->dims;
	size_t n = ir_dims_count(t);
	struct tfmc_record_dim *dims = ARENA_ARRAY(w->object->arena, struct tfmc_record_dim, n + 1);
	for (size_t i = 0; dims && i < n; i++) {
		const struct ir_dim_sym *s = ir_dims_sym(t, i);
		dims[i] = (struct tfmc_record_dim){put_string(w, s->name), s->lo, s->hi};
	}
	return put_bytes(w, dims, dims ? n * sizeof(*dims) : 0);
}

/* ---- cost of an entry ---- */

/* How many times the group runs in a call: the product of the counts of the repeats around it. */
static int64_t group_repetitions(const struct ir_func *f, const struct ir_op *group)
{
	int64_t n = 1;
	for (const struct ir_op *op = ir_value_info(f, group->results[0])->region->owner; op;
	     op = ir_value_info(f, op->results[0])->region->owner)
		if (op->code == OP_repeat)
			n *= ((const struct attrs_repeat *)op->attrs)->count;
	return n;
}

/* Arithmetic operations of a group in a call, all repetitions. Attention over a KV cache counts a quarter of the
 * operations for a full cache, since it is far from full in most calls. */
static const struct ir_dim *group_flops(const struct object *o, const struct ir_func *f,
                                        const struct ir_op *group)
{
	struct ir_dims *dims = o->module->dims;
	const struct ir_dim *sum = ir_dim_const(dims, 0);
	for (size_t i = 0; i < group->region->n_ops; i++) {
		const struct ir_op *op = group->region->ops[i];
		const struct ir_dim *flops = ir_op_flops(o->module, f, op, MAC_ALL);
		if (op->code == OP_attention && ir_is_state_slice(f, op->operands[1]))
			flops = ir_dim_floordiv(dims, flops, 4);
		sum = ir_dim_add(dims, sum, flops);
	}
	return ir_dim_mul(dims, sum, ir_dim_const(dims, group_repetitions(f, group)));
}

/* Whether d has neither floor divisions nor maximums, which the record format lacks. */
static bool is_polynomial(const struct ir_dim *d)
{
	for (size_t t = 0; t < d->n_terms; t++)
		for (size_t a = 0; a < d->terms[t].n_atoms; a++)
			if (d->terms[t].atoms[a]->sym < 0)
				return false;
	return true;
}

/* Kernels and arithmetic operations per call, from which the runtime chooses the number of workers; flops stay 0
 * (unknown) if the formula is no polynomial. */
static void put_cost(struct record_writer *w, const struct entry *e, struct tfmc_record_entry *out)
{
	const struct object *o = w->object;
	const struct function *f = &o->functions.items[e->function];
	const struct ir_dim *sum = ir_dim_const(o->module->dims, 0);
	for (size_t i = 0; i < f->n_groups; i++) {
		sum = ir_dim_add(o->module->dims, sum, group_flops(o, f->func, f->groups[i]));
		out->steps += (uint64_t)group_repetitions(f->func, f->groups[i]);
	}
	if (is_polynomial(entry_dim(o, e, sum)))
		out->flops = put_dim(w, e, sum, f->func->loc.at);
}

/* ---- tensors and entries ---- */

/* The description of an input or output of the entry. `lengths`, the index of the input with the real positions, is
 * set by the caller (-1: none). */
static struct tfmc_record_tensor make_tensor(struct record_writer *w, const struct entry *e, const char *name,
                                             const struct ir_type *t)
{
	struct tfmc_record_tensor r = {.name = put_string(w, name ? name : ""),
	                               .dtype = (uint64_t)t->dtype,
	                               .rank = (uint64_t)t->rank,
	                               .lengths = -1};
	struct loc loc = w->object->functions.items[e->function].func->loc.at;
	for (int i = 0; i < t->rank; i++)
		r.sizes[i] = put_dim(w, e, t->dims[i], loc);
	return r;
}

/* The index of a parameter among the inputs, or -1. */
static int64_t input_number(const struct ir_func *f, int param)
{
	int64_t n = 0;
	if (param < 0 || !param_is_input(f, (size_t)param))
		return -1;
	for (int i = 0; i < param; i++)
		n += param_is_input(f, (size_t)i);
	return n;
}

/* Appends descriptions of the inputs, which are the parameters but for states and past lengths. */
static uint64_t put_inputs(struct record_writer *w, const struct entry *e)
{
	const struct function *f = &w->object->functions.items[e->function];
	struct tfmc_record_tensor *all =
	        ARENA_ARRAY(w->object->arena, struct tfmc_record_tensor, f->n_inputs + 1);
	size_t n = 0;
	for (size_t i = 0; all && i < f->func->n_params; i++) {
		const struct ir_param *p = &f->func->params[i];
		if (!param_is_input(f->func, i))
			continue;
		all[n] = make_tensor(w, e, p->name, ir_type_of(f->func, p->value));
		all[n].below = p->below;
		all[n].has_default = p->has_default;
		all[n++].lengths = input_number(f->func, p->lengths);
	}
	return put_bytes(w, all, n * sizeof(*all));
}

/* Appends descriptions of the outputs, which are the results but for states and new lengths. */
static uint64_t put_outputs(struct record_writer *w, const struct entry *e)
{
	const struct function *f = &w->object->functions.items[e->function];
	struct tfmc_record_tensor *all =
	        ARENA_ARRAY(w->object->arena, struct tfmc_record_tensor, f->n_outputs + 1);
	size_t n = 0;
	for (size_t i = 0; all && i < f->func->n_results; i++) {
		if (!result_is_output(f->func, i))
			continue;
		all[n] = make_tensor(w, e, f->func->results[i].name,
		                     ir_type_of(f->func, func_result(f->func, i)));
		all[n++].lengths = input_number(f->func, f->func->results[i].lengths);
	}
	return put_bytes(w, all, n * sizeof(*all));
}

/* Appends the entries, each after the tensors that it points to. */
static uint64_t put_entries(struct record_writer *w)
{
	struct object *o = w->object;
	size_t n_dims = ir_dims_count(o->module->dims);
	struct tfmc_record_entry *all = ARENA_ARRAY(o->arena, struct tfmc_record_entry, o->entries.n + 1);
	uint64_t *numbers = ARENA_ARRAY(o->arena, uint64_t, n_dims + 1);
	for (size_t i = 0; all && numbers && i < o->entries.n; i++) {
		const struct entry *e = &o->entries.items[i];
		const struct function *f = &o->functions.items[e->function];
		all[i].name = put_string(w, e->name);
		all[i].kind = e->kind;
		all[i].n_dims = entry_dims(o, e, numbers);
		all[i].dims = put_bytes(w, numbers, all[i].n_dims * sizeof(*numbers));
		all[i].n_inputs = f->n_inputs;
		all[i].inputs = put_inputs(w, e);
		all[i].n_outputs = f->n_outputs;
		all[i].outputs = put_outputs(w, e);
		put_cost(w, e, &all[i]);
	}
	return put_bytes(w, all, all ? o->entries.n * sizeof(*all) : 0);
}

/* ---- the record ---- */

/* Sets what generation and tokenizers need to know: token ids, vocabularies, names of the tensors; without facts, the
 * values that mean "none". */
static void put_facts(struct record_writer *w, struct tfmc_record *r)
{
	static const struct backend_facts none = {.pad = -1};
	const struct backend_facts *f = w->object->options->facts ? w->object->options->facts : &none;
	r->start = put_ids(w, &f->start, &r->n_start);
	r->stop = put_ids(w, &f->stop, &r->n_stop);
	r->suppress = put_ids(w, &f->suppress, &r->n_suppress);
	r->suppress_first = put_ids(w, &f->suppress_first, &r->n_suppress_first);
	r->pad = f->pad;
	r->max_len = f->max_len;
	r->prefix = f->prefix;
	r->long_from = f->long_from;
	r->reread = f->long_from > 0 && f->reread;
	r->generate_kind = f->generate_kind;
	r->vocabulary = put_optional_string(w, f->vocabulary);
	r->source_vocabulary = put_optional_string(w, f->source_vocabulary);
	r->unknown_token = put_optional_string(w, f->unknown_token);
	r->tokenizer_bytes = f->tokenizer_bytes;
	r->tokenizer = f->tokenizer_bytes ? put_bytes(w, f->tokenizer, f->tokenizer_bytes) : 0;
	r->source_name = put_optional_string(w, f->source);
	r->tokens_name = put_optional_string(w, f->tokens);
	r->logits_name = put_optional_string(w, f->logits);
}

int64_t object_arena_max(const struct object *o)
{
	int64_t most = 0;
	for (size_t v = 0; v < o->n_all; v++)
		for (size_t i = 0; i < o->all[v].functions.n; i++) {
			const struct function *f = &o->all[v].functions.items[i];
			int64_t bytes = ir_dim_hi(o->all[v].module->dims, f->arena);
			if (f->reached && bytes > most)
				most = bytes;
		}
	return most;
}

static uint64_t put_variants(struct record_writer *w)
{
	const struct object *o = w->object;
	uint64_t names[BACKEND_VARIANTS_MAX];
	for (size_t i = 0; i < o->n_all; i++)
		names[i] = put_string(w, o->all[i].target->name);
	return put_bytes(w, names, o->n_all * sizeof(*names));
}

/* Operating-system permissions that any variant needs (tiles; all of aarch64). C text needs none: its
 * compiler's user chooses the processor. */
static void collect_system_needs(const struct object *o, uint64_t system[TARGET_SYSTEM_WORDS])
{
	for (size_t i = 0; i < o->n_all && !o->emits_c; i++) {
		const struct target_requirements needs = object_needs(&o->all[i]);
		for (int w = 0; w < TARGET_SYSTEM_WORDS; w++)
			system[w] |= needs.system[w];
	}
}

/* Appends the states. Dim 0 is the batch; the sizes of the others are constant. */
static uint64_t put_states(struct record_writer *w)
{
	struct object *o = w->object;
	struct tfmc_record_state *all = ARENA_ARRAY(o->arena, struct tfmc_record_state, o->states.n + 1);
	for (size_t i = 0; all && i < o->states.n; i++) {
		const struct state_layout *p = &o->states.items[i];
		const struct ir_type *t = p->decl->type;
		all[i] = (struct tfmc_record_state){.name = put_string(w, p->decl->name),
		                                    .dtype = (uint64_t)t->dtype,
		                                    .rank = (uint64_t)t->rank,
		                                    .offset = (uint64_t)p->offset,
		                                    .panels = p->decl->encoding == ENC_PANEL16,
		                                    .grows = p->grows,
		                                    .window = (uint64_t)p->window};
		for (int a = 1; a < t->rank; a++)
			(void)ir_dim_is_const(t->dims[a], &all[i].dims[a]);
	}
	return put_bytes(w, all, all ? o->states.n * sizeof(*all) : 0);
}

/* Everything else is appended after room for the struct, which is written last, when all offsets are known.
 * TFMC_INVALID: put_dim() has reported a size of an input or output that is no polynomial. */
enum tfmc_status record_build(struct object *o, struct buf *out)
{
	struct record_writer w = {.object = o, .out = out};
	struct tfmc_record r = {.magic = TFMC_RECORD_MAGIC,
	                        .abi_version = TFMC_ABI_VERSION,
	                        .structure_hash = o->structure_hash,
	                        .weights_hash = o->set_hash,
	                        .weights_bytes = (uint64_t)o->weights.bytes,
	                        .weights_embedded = o->embedded,
	                        .context_bytes = CONTEXT_BYTES,
	                        .state_fixed_bytes = (uint64_t)o->states.fixed_bytes,
	                        .state_batch_bytes = (uint64_t)o->states.batch_bytes,
	                        .arena_bytes_max = (uint64_t)object_arena_max(o),
	                        .scratch_bytes = (uint64_t)o->scratch,
	                        .context_limit = (uint64_t)o->states.context_limit,
	                        .n_dims = ir_dims_count(o->module->dims),
	                        .n_entries = o->entries.n,
	                        .n_variants = o->n_all,
	                        .ranks = o->ranks,
	                        .program_hash = o->options->program_hash,
	                        .past = STATE_PAST,
	                        .encoded = (uint64_t)o->states.encoded_at,
	                        .floor = (uint64_t)o->states.floor_at,
	                        .state_hash = o->states.hash,
	                        .n_states = o->states.n};
	buf_fill(out, 0, sizeof(r));
	collect_system_needs(o, r.system);
	r.name = put_string(&w, o->name);
	r.target = put_string(&w, object_target_names(o, ","));
	r.variants = put_variants(&w);
	r.dims = put_dims(&w);
	r.entries = put_entries(&w);
	r.states = put_states(&w);
	put_facts(&w, &r);
	align8(&w);
	r.bytes = out->len;
	if (buf_failed(out))
		return TFMC_NO_MEMORY;
	memcpy(out->data, &r, sizeof(r));
	return w.status;
}
