/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public face: a recorded program with its source as OpenCL C, or as one
 * file with the launches in a comment at its end.
 */
#include "backends/print/cfamily.h"
#include "backends/opencl/internal.h"

static enum tfmc_status print_source(struct builder *b, struct opencl_program *out)
{
	const struct object *o = &b->object;
	struct cfamily_options options = {.dialect = CFAMILY_OPENCL, .index_bits = out->index_bits};
	options.title = arena_printf(o->arena, "%s for %s", o->name, o->target->name);
	return cfamily_print(o->cx, b->kb, &options, &out->source);
}

static enum tfmc_status check_input(struct diag_context *cx, const struct ir_module *m,
                                    const struct target *t)
{
	if (m->stage == STAGE_PLAN && t->arch == ARCH_OPENCL)
		return TFMC_OK;
	diag_error(cx, LOC_NONE, DIAG_INTERNAL,
	           m->stage == STAGE_PLAN ? "the target is none of OpenCL"
	                                  : "the module is not of stage plan");
	return TFMC_INTERNAL;
}

enum tfmc_status opencl_build(struct diag_context *cx, const struct ir_module *planned,
                              const struct target *target, struct arena *arena, struct opencl_program *out)
{
	static const struct backend_options none;
	*out = (struct opencl_program){0};
	buf_init(&out->source);
	TFMC_TRY(check_input(cx, planned, target));
	struct builder *b = ARENA_NEW(arena, struct builder);
	if (!b)
		return TFMC_NO_MEMORY;
	object_init(&b->object, cx, arena, planned, target, &none);
	TFMC_TRY(program_record(b, out));
	TFMC_TRY(print_source(b, out));
	return buf_failed(&out->source) ? TFMC_NO_MEMORY : TFMC_OK;
}

void opencl_program_destroy(struct opencl_program *p)
{
	buf_destroy(&p->source);
	*p = (struct opencl_program){0};
}

enum tfmc_status backend_opencl(struct diag_context *cx, const struct ir_module *planned,
                                const struct target *target, struct buf *out)
{
	struct arena arena;
	struct opencl_program p;
	arena_init(&arena);
	enum tfmc_status status = opencl_build(cx, planned, target, &arena, &p);
	if (status == TFMC_OK) {
		buf_append(out, &p.source);
		buf_str(out, "\n/*\n");
		opencl_print_table(&p, planned, out);
		buf_str(out, "*/\n");
	}
	opencl_program_destroy(&p);
	arena_destroy(&arena);
	return status == TFMC_OK && buf_failed(out) ? TFMC_NO_MEMORY : status;
}
