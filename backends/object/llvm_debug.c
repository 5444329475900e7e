/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Debug information: DWARF of kernels, whose file is the model, whose lines are its steps, and whose functions are
 * called by the layer path of the step. An op of another step that is fused into a kernel is an inlined call of a
 * function of its own path, so that a debugger shows both. Parameters are variables: sizes and layer indices.
 *
 * Functions around kernels have none: then a breakpoint at a line stops in kernels only. File names are as the user
 * gave them, and there is no compilation directory, so that objects are equal wherever they are made.
 */
#include "backends/object/llvm_emit.h"

#include <llvm-c/DebugInfo.h>
#include <string.h>

#define DWARF_VERSION 4
#define PRODUCER      "tfmc"

enum { DW_ATE_ADDRESS = 1, DW_ATE_SIGNED = 5, WORD_BITS = 64 };

struct llvm_debug {
	LLVMDIBuilderRef di;
	LLVMMetadataRef address, word; /* types of parameters */
	LLVMMetadataRef *
	        inlined; /* [locations + 1], by the first location of a path: the function it is inlined as */
};

static LLVMMetadataRef file_of(struct llvm_debug *d, const struct kb_loc *p)
{
	return LLVMDIBuilderCreateFile(d->di, p->file, strlen(p->file), "", 0);
}

static void module_flag(struct llvm_module *m, const char *name, unsigned value)
{
	LLVMTypeRef i32 = LLVMInt32TypeInContext(m->context);
	LLVMMetadataRef v = LLVMValueAsMetadata(LLVMConstInt(i32, value, 0));
	LLVMAddModuleFlag(m->module, LLVMModuleFlagBehaviorWarning, name, strlen(name), v);
}

/* Sets m->debug if the kernels have locations (compiled with -g); without, or without memory, all functions of this
 * file do nothing. */
void llvm_debug_begin(struct llvm_module *m)
{
	size_t n = kb_loc_count(m->kernels);
	struct llvm_debug *d = n ? ARENA_NEW(m->arena, struct llvm_debug) : NULL;
	if (!d)
		return;
	d->inlined = ARENA_ARRAY(m->arena, LLVMMetadataRef, n + 1);
	if (!d->inlined)
		return;
	module_flag(m, "Debug Info Version", LLVMDebugMetadataVersion());
	module_flag(m, "Dwarf Version", DWARF_VERSION);
	d->di = LLVMCreateDIBuilder(m->module);
	(void)LLVMDIBuilderCreateCompileUnit(
	        d->di, LLVMDWARFSourceLanguageC99, file_of(d, kb_loc_at(m->kernels, 1)), PRODUCER,
	        strlen(PRODUCER), 1, "", 0, 0, "", 0, LLVMDWARFEmissionFull, 0, 1, 0, "", 0, "", 0);
	d->address = LLVMDIBuilderCreateBasicType(d->di, "address", strlen("address"), WORD_BITS,
	                                          DW_ATE_ADDRESS, LLVMDIFlagZero);
	d->word = LLVMDIBuilderCreateBasicType(d->di, "long", strlen("long"), WORD_BITS, DW_ATE_SIGNED,
	                                       LLVMDIFlagZero);
	m->debug = d;
}

void llvm_debug_end(struct llvm_module *m)
{
	if (!m->debug)
		return;

	LLVMDIBuilderFinalize(m->debug->di);
	LLVMDisposeDIBuilder(m->debug->di);
}

/* ---- functions ---- */

/* The description of a function named by the location's path, or `symbol` without one. Without a type of its
 * parameters, which variables describe. */
static LLVMMetadataRef subprogram(struct llvm_debug *d, const struct kb_loc *p, const char *symbol)
{
	LLVMMetadataRef file = file_of(d, p);
	LLVMMetadataRef type = LLVMDIBuilderCreateSubroutineType(d->di, file, NULL, 0, LLVMDIFlagZero);
	const char *name = *p->path ? p->path : symbol;
	return LLVMDIBuilderCreateFunction(d->di, file, name, strlen(name), "", 0, file, p->line, type, 1, 1,
	                                   p->line, LLVMDIFlagZero, 1);
}

/* Number of the location at which the function's code begins; 0: it has none. */
static uint32_t first_loc(const struct kb_func *f)
{
	size_t i = 0;
	while (i < f->n_insts && !f->insts[i].loc)
		i++;
	return i < f->n_insts ? f->insts[i].loc : 0;
}

/* Declares the parameters, which are the first instructions of the kernel IR, as variables: addresses and sizes. Their
 * values are those at the entry, the only ones that are surely known. */
static void declare_parameters(struct llvm_func *r, const struct kb_loc *p)
{
	struct llvm_debug *d = r->module->debug;
	LLVMMetadataRef file = file_of(d, p), at = LLVMGetCurrentDebugLocation2(r->builder);
	LLVMMetadataRef plain = LLVMDIBuilderCreateExpression(d->di, NULL, 0);
	for (unsigned i = 0; i < LLVMCountParams(r->function); i++) {
		const struct kb_inst *inst = &r->ir->insts[i];
		LLVMMetadataRef type = inst->type.scalar == KB_PTR ? d->address : d->word;
		LLVMMetadataRef var =
		        LLVMDIBuilderCreateParameterVariable(d->di, r->scope, inst->name, strlen(inst->name),
		                                             i + 1, file, p->line, type, 1, LLVMDIFlagZero);
		LLVMDIBuilderInsertDbgValueRecordAtEnd(d->di, LLVMGetParam(r->function, i), var, plain, at,
		                                       LLVMGetInsertBlock(r->builder));
	}
}

void llvm_debug_function(struct llvm_func *r)
{
	uint32_t first = r->module->debug ? first_loc(r->ir) : 0;
	if (!first)
		return;
	const struct kb_loc *p = kb_loc_at(r->module->kernels, first);
	r->first_loc = first;
	r->scope = subprogram(r->module->debug, p, r->ir->name);
	LLVMSetSubprogram(r->function, r->scope);
	llvm_debug_loc(r, first);
	declare_parameters(r, p);
}

/* ---- locations ---- */

/* The first location of the same path and file, which stands for the path; at the latest `number` itself. */
static uint32_t first_of_path(const struct kb_module *m, uint32_t number)
{
	const struct kb_loc *p = kb_loc_at(m, number), *first;
	uint32_t i = 0;
	do
		first = kb_loc_at(m, ++i);
	while (strcmp(first->path, p->path) || strcmp(first->file, p->file));
	return i;
}

/* The scope of code at a location: the function, or that of another path, which is inlined (*inlined_at: where; NULL:
 * it is not). Each path has one function, made at its first use. */
static LLVMMetadataRef scope_of(struct llvm_func *r, uint32_t number, LLVMMetadataRef *inlined_at)
{
	struct llvm_module *m = r->module;
	struct llvm_debug *d = m->debug;
	uint32_t path = first_of_path(m->kernels, number), own = first_of_path(m->kernels, r->first_loc);
	const struct kb_loc *p = kb_loc_at(m->kernels, path);
	const struct kb_loc *call = kb_loc_at(m->kernels, r->first_loc);
	*inlined_at = NULL;
	if (path == own || !*p->path)
		return r->scope;
	if (!d->inlined[path])
		d->inlined[path] = subprogram(d, p, p->path);
	*inlined_at = LLVMDIBuilderCreateDebugLocation(m->context, call->line, call->col, r->scope, NULL);
	return d->inlined[path];
}

/* Makes location `number` that of the instructions that follow. 0: none known, the one before stays. */
void llvm_debug_loc(struct llvm_func *r, uint32_t number)
{
	LLVMMetadataRef scope, inlined_at;
	if (!r->scope || !number || number == r->loc)
		return;
	const struct kb_loc *p = kb_loc_at(r->module->kernels, number);
	scope = scope_of(r, number, &inlined_at);
	r->loc = number;
	LLVMSetCurrentDebugLocation2(r->builder, LLVMDIBuilderCreateDebugLocation(r->module->context, p->line,
	                                                                          p->col, scope, inlined_at));
}
