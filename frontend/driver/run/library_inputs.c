/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inputs by the names of the transformers library that a model has under another name, or not at all: masks of padding
 * become lengths, what would change the result is refused.
 */
#include "frontend/driver/run/values.h"

#include <string.h>

enum holds { MASK, ZEROS, POSITIONS, NOTHING }; /* what says nothing new */
static const struct {
	const char *name;
	enum holds neutral;
	const char *ids; /* of a mask */
} known[] = {{"attention_mask", MASK, "input_ids"},     {"decoder_attention_mask", MASK, "decoder_input_ids"},
             {"token_type_ids", ZEROS, NULL},           {"position_ids", POSITIONS, NULL},
             {"decoder_position_ids", POSITIONS, NULL}, {"inputs_embeds", NOTHING, NULL},
             {"decoder_inputs_embeds", NOTHING, NULL},  {"encoder_hidden_states", NOTHING, NULL},
             {"encoder_attention_mask", NOTHING, NULL}, {"head_mask", NOTHING, NULL},
             {"bool_masked_pos", NOTHING, NULL}};

static bool refuse(struct driver *d, const struct named_tensor *t, const char *why)
{
	diag_error(&d->diag, LOC_NONE, DIAG_INPUT, "the input %s %s", t->name, why);
	return false;
}

static const struct ir_param *find(const struct ir_func *f, const char *name)
{
	for (size_t i = 0; i < f->n_params; i++)
		if (f->params[i].role == ROLE_INPUT && strcmp(f->params[i].name, name) == 0)
			return &f->params[i];
	return NULL;
}

static bool all_are(const struct named_tensor *t, double value)
{
	for (int64_t i = 0; i < t->count; i++)
		if (tensor_value(t, i) != value)
			return false;
	return true;
}

/* 0, 1, .. in each row */
static bool counts(const struct named_tensor *t)
{
	int64_t n = t->rank > 0 ? t->dims[t->rank - 1] : 0;
	for (int64_t i = 0; i < t->count; i++)
		if (tensor_value(t, i) != (double)(i % n))
			return false;
	return true;
}

/* How many ones a row begins with; -1: others follow behind a zero. */
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

/* The mask of the ids of that name as their lengths. */
static bool take_mask(struct driver *d, const struct ir_func *f, struct named_tensors *in, size_t number,
                      const char *ids_name)
{
	const struct named_tensor mask = in->items[number], *ids = tensors_find(in, ids_name);
	const struct ir_param *p = find(f, ids_name);
	in->items[number].used = true;
	if (all_are(&mask, 1))
		return true;
	if (!p || p->lengths < 0)
		return refuse(d, &mask, "masks positions, and the model has no lengths");
	if (mask.rank != 2 || !ids || ids->rank != 2 || ids->dims[0] != mask.dims[0] ||
	    ids->dims[1] != mask.dims[1])
		return refuse(d, &mask, arena_printf(&d->arena, "has not the shape of %s", ids_name));
	const char *name = f->params[p->lengths].name;
	struct named_tensor *lengths = tensors_find(in, name);
	bool is_new = lengths == NULL;
	if (is_new && !(lengths = tensors_add(d, in, name, DT_I32, 1, mask.dims)))
		return false;
	for (int64_t b = 0; b < mask.dims[0]; b++) {
		int64_t n = row_length(&mask, b);
		if (n < 0)
			return refuse(
			        d, &mask,
			        arena_printf(&d->arena,
			                     "has tokens behind padding in row %lld; only padding behind the "
			                     "tokens is possible, as the input %s says it",
			                     (long long)b, name));
		if (is_new)
			((int32_t *)lengths->data)[b] = (int32_t)n;
		else if (b >= lengths->count || tensor_value(lengths, b) != (double)n)
			return refuse(d, &mask, arena_printf(&d->arena, "contradicts %s", name));
	}
	return true;
}

bool values_are_of_library(const char *name)
{
	for (size_t k = 0; k < TFMC_COUNT(known); k++)
		if (known[k].neutral != NOTHING && strcmp(known[k].name, name) == 0)
			return true;
	return false;
}

enum tfmc_status values_of_library(struct driver *d, const struct ir_func *f, struct named_tensors *in)
{
	bool ok = true;
	for (size_t k = 0; k < TFMC_COUNT(known); k++) {
		struct named_tensor *t = tensors_find(in, known[k].name);
		if (!t || find(f, known[k].name))
			continue;
		switch (known[k].neutral) {
		case MASK: ok = take_mask(d, f, in, (size_t)(t - in->items), known[k].ids) && ok; continue;
		case ZEROS: t->used = all_are(t, 0); break;
		case POSITIONS: t->used = counts(t); break;
		case NOTHING: break;
		}
		ok = (t->used || refuse(d, t, "changes what is computed, and the model has no such input")) &&
		     ok;
	}
	return ok ? TFMC_OK : TFMC_INVALID;
}
