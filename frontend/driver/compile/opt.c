/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tfmc opt: IR text in, passes, IR text out. A text that begins with the head
 * of a reproducer brings its pipeline and options; what the command line says
 * comes first.
 */
#include "frontend/driver/compile/driver.h"

#include "ir/print/text.h"
#include "passes/framework/reproducer.h"

/* What `opt` writes; without passes the module as it was read: reading and printing changes nothing. */
static enum tfmc_status write_module(struct driver *d, const struct ir_module *m)
{
	struct buf text;
	buf_init(&text);
	ir_print(&text, d->options.no_locations ? NULL : &d->diag, m);
	enum tfmc_status st = driver_emit_text(d, &text);
	buf_destroy(&text);
	return st;
}

/* The options of the head take the place of those that were not given. */
static enum tfmc_status take_head(struct driver *d, const struct loaded *l)
{
	struct driver_options *o = &d->options;
	struct reproducer head;
	enum tfmc_status st = TFMC_OK;
	if (!l->text || o->passes || !reproducer_read(&d->arena, &d->diag, l->text, l->text_len, &head, &st))
		return st;
	TFMC_TRY(st);
	o->passes = head.passes;
	o->mcpu = o->mcpu ? o->mcpu : head.mcpu;
	for (size_t i = 0; i < head.n_disable_rules; i++) {
		if (!ARENA_ADDED(&d->arena, &o->disable_rule, head.disable_rules[i]))
			return TFMC_NO_MEMORY;
	}
	if (head.rules && !d->rules_text) {
		o->rules = arena_printf(&d->arena, "%s (its rules)", o->input);
		d->rules_text = head.rules;
		d->rules_len = head.rules_len;
	}
	if (head.tiles && !d->tiles_text) {
		o->tiles = arena_printf(&d->arena, "%s (its tiles)", o->input);
		d->tiles_text = head.tiles;
		d->tiles_len = head.tiles_len;
	}
	return TFMC_OK;
}

enum exit_code command_opt(struct driver *d)
{
	struct loaded l;
	struct ir_module *result = NULL;
	if (d->options.check_rules)
		return exit_code_of(driver_check_rules(d));
	enum tfmc_status st = driver_load(d, &l);
	if (st == TFMC_OK)
		st = take_head(d, &l);
	const char *passes = d->options.passes;
	const struct target *target = st == TFMC_OK ? driver_target(d, d->options.mcpu) : NULL;
	if (st == TFMC_OK && !target)
		st = TFMC_INVALID;
	if (st == TFMC_OK && passes)
		st = driver_passes(d, l.module, passes, target, &result);
	if (st == TFMC_OK)
		st = write_module(d, passes ? result : l.module);
	if (result)
		ir_module_destroy(result);
	driver_unload(&l);
	return exit_code_of(st);
}
