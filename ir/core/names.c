/* SPDX-License-Identifier: Apache-2.0 */
/* Names of values by the steps of the model, see names.h. */
#include "ir/core/names.h"

#include <string.h>

#define STREAM "x" /* the variable that steps read and assign (frontend/presets/prelude.yaml) */

bool ir_name_is_number(const char *name)
{
	return strspn(name, "0123456789") == strlen(name);
}

/* The op that computes v; of the result of a group the one whose result it yields, since that has the path of the
 * step. NULL: v is an argument. */
static const struct ir_op *computing_op(const struct ir_func *f, struct ir_value v)
{
	const struct ir_value_info *info = ir_value_info(f, v);
	const struct ir_region *r =
	        info->def != NULL && info->def->code == OP_group ? info->def->region : NULL;
	const struct ir_op *yield = r != NULL && r->n_ops > 0 ? r->ops[r->n_ops - 1] : NULL;
	if (yield == NULL || info->index >= yield->n_operands ||
	    yield->operands[info->index].id >= f->n_values)
		return info->def;
	const struct ir_op *op = ir_def(f, yield->operands[info->index]);
	return op != NULL ? op : info->def;
}

/* The path of the step that v belongs to, without the last component of the path of each enclosing repeat ("layers"
 * of "encoder.layers"); NULL: v is an argument, or its op has no path. */
static const char *step_name(struct arena *a, const struct ir_func *f, struct ir_value v)
{
	const struct ir_op *op = computing_op(f, v);
	const char *path = op != NULL ? op->loc.path : NULL;
	if (path == NULL || path[0] == '\0')
		return NULL;
	size_t end = strlen(path); /* of the part that no component was removed from */
	char *name = arena_alloc(a, end + 1);
	if (name == NULL)
		return NULL;
	memcpy(name, path, end + 1);
	/* From the innermost repeat outward, so that the components before `end` are still those of path. */
	for (const struct ir_region *r = ir_value_info(f, v)->region; r != NULL; r = r->parent) {
		const char *repeat =
		        r->owner != NULL && r->owner->code == OP_repeat ? r->owner->loc.path : NULL;
		size_t n = repeat != NULL ? strlen(repeat) : 0, from = n;
		if (n == 0 || n >= end || path[n] != '.' || memcmp(path, repeat, n) != 0)
			continue;
		while (from > 0 && path[from - 1] != '.')
			from--;
		memmove(name + from, name + n + 1, strlen(name + n + 1) + 1);
		end = from;
	}
	return name;
}

/* The own name x is that of the step; x.2, a second x made unique, is STEP.2. */
const char *ir_value_name(struct arena *a, const struct ir_func *f, struct ir_value v)
{
	const char *own = ir_value_info(f, v)->name;
	const char *step = own != NULL && !ir_name_is_number(own) ? step_name(a, f, v) : NULL;
	if (step == NULL)
		return own;
	if (strcmp(own, STREAM) == 0)
		return step;
	bool is_numbered = strncmp(own, STREAM ".", 2) == 0 && own[2] != '\0' && ir_name_is_number(own + 2);
	return arena_printf(a, "%s.%s", step, is_numbered ? own + 2 : own);
}

/* STEP.2 is the own name x.2, since a number is no name. */
const char *ir_own_name(struct arena *a, const struct ir_func *f, struct ir_value v, const char *name)
{
	const char *step = step_name(a, f, v);
	size_t n = step != NULL ? strlen(step) : 0;
	if (n == 0 || strncmp(name, step, n) != 0 || (name[n] != '.' && name[n] != '\0'))
		return name;
	if (name[n] == '\0')
		return STREAM;
	const char *own = name + n + 1;
	return own[0] != '\0' && ir_name_is_number(own) ? arena_printf(a, STREAM ".%s", own) : own;
}
