/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replay of control flow: loops in rotated form (a guard only when they may be
 * empty: mem2reg never rotates), conditions, calls, returns. Code after a
 * return goes to a block without predecessors.
 */
#include "backends/llvm/replay.h"

static LLVMBasicBlockRef new_block(struct replay *r, const char *name)
{
	return LLVMAppendBasicBlockInContext(r->module->context, r->function, name);
}

/* Goes on in a block, which is put after the current one: text reads in order of execution. */
static LLVMValueRef go_on(struct replay *r, LLVMBasicBlockRef block)
{
	if (block != LLVMGetLastBasicBlock(r->function))
		LLVMMoveBasicBlockAfter(block, LLVMGetLastBasicBlock(r->function));
	LLVMPositionBuilderAtEnd(r->builder, block);
	return NULL;
}

static struct replay_scope *push_scope(struct replay *r)
{
	struct replay_scope *s = &r->scopes[r->n_scopes++];
	*s = (struct replay_scope){0};
	return s;
}

/* ---- loops ---- */

LLVMValueRef replay_loop(struct replay *r, const struct kb_inst *i)
{
	struct replay_scope *s = push_scope(r);
	LLVMValueRef lo = replay_arg(r, i, 0);
	s->hi = replay_arg(r, i, 1);
	s->step = i->imm;
	s->body = new_block(r, i->name);
	s->exit = new_block(r, "end");
	LLVMBasicBlockRef before = LLVMGetInsertBlock(r->builder);
	if (i->flags & KB_NONEMPTY) {
		LLVMBuildBr(r->builder, s->body);
	} else {
		LLVMValueRef some = LLVMBuildICmp(r->builder, LLVMIntSLT, lo, s->hi, "");
		LLVMBuildCondBr(r->builder, some, s->body, s->exit);
	}
	go_on(r, s->body);
	s->index = LLVMBuildPhi(r->builder, replay_type(r->module, i->type), i->name);
	LLVMAddIncoming(s->index, &lo, &before, 1);
	return s->index;
}

LLVMValueRef replay_end_loop(struct replay *r, const struct kb_inst *i)
{
	struct replay_scope *s = &r->scopes[--r->n_scopes];
	LLVMValueRef step = replay_int(r->module, KB_INDEX_T, s->step);
	LLVMValueRef next = LLVMBuildNSWAdd(r->builder, s->index, step, "");
	LLVMValueRef more = LLVMBuildICmp(r->builder, LLVMIntSLT, next, s->hi, "");
	LLVMBasicBlockRef latch = LLVMGetInsertBlock(r->builder);
	LLVMBuildCondBr(r->builder, more, s->body, s->exit);
	LLVMAddIncoming(s->index, &next, &latch, 1);
	(void)i;
	return go_on(r, s->exit);
}

LLVMValueRef replay_forever(struct replay *r, const struct kb_inst *i)
{
	struct replay_scope *s = push_scope(r);
	s->body = new_block(r, "forever");
	s->exit = new_block(r, "end");
	LLVMBuildBr(r->builder, s->body);
	(void)i;
	return go_on(r, s->body);
}

LLVMValueRef replay_break_if(struct replay *r, const struct kb_inst *i)
{
	LLVMBasicBlockRef on = new_block(r, "on");
	LLVMBuildCondBr(r->builder, replay_arg(r, i, 0), r->scopes[r->n_scopes - 1].exit, on);
	return go_on(r, on);
}

LLVMValueRef replay_end_forever(struct replay *r, const struct kb_inst *i)
{
	struct replay_scope *s = &r->scopes[--r->n_scopes];
	(void)i;
	LLVMBuildBr(r->builder, s->body);
	return go_on(r, s->exit);
}

/* ---- conditions ---- */

LLVMValueRef replay_if(struct replay *r, const struct kb_inst *i)
{
	struct replay_scope *s = push_scope(r);
	LLVMBasicBlockRef then = new_block(r, "then");
	s->exit = new_block(r, "else");
	LLVMBuildCondBr(r->builder, replay_arg(r, i, 0), then, s->exit);
	return go_on(r, then);
}

LLVMValueRef replay_else(struct replay *r, const struct kb_inst *i)
{
	struct replay_scope *s = &r->scopes[r->n_scopes - 1];
	LLVMBasicBlockRef otherwise = s->exit;
	(void)i;
	s->exit = new_block(r, "endif");
	LLVMBuildBr(r->builder, s->exit);
	return go_on(r, otherwise);
}

LLVMValueRef replay_end_if(struct replay *r, const struct kb_inst *i)
{
	struct replay_scope *s = &r->scopes[--r->n_scopes];
	(void)i;
	LLVMBuildBr(r->builder, s->exit);
	return go_on(r, s->exit);
}

/* ---- calls ---- */

LLVMValueRef replay_return(struct replay *r, const struct kb_inst *i)
{
	if (i->n_args)
		LLVMBuildRet(r->builder, replay_arg(r, i, 0));
	else
		LLVMBuildRetVoid(r->builder);
	return go_on(r, new_block(r, "after"));
}

/* fn NULL: a function of another object, declared for these arguments. */
static LLVMValueRef call(struct replay *r, LLVMValueRef fn, const struct kb_inst *i, size_t first)
{
	size_t n = i->n_args - first;
	LLVMTypeRef *types = ARENA_ARRAY(r->module->arena, LLVMTypeRef, n + 1);
	LLVMValueRef *args = ARENA_ARRAY(r->module->arena, LLVMValueRef, n + 1);
	if (!types || !args)
		return NULL;
	for (size_t k = 0; k < n; k++) {
		args[k] = replay_arg(r, i, first + k);
		types[k] = LLVMTypeOf(args[k]);
	}
	LLVMTypeRef type = LLVMFunctionType(replay_scalar(r->module, i->type.scalar), types, (unsigned)n, 0);
	if (!fn)
		fn = LLVMAddFunction(r->module->module, i->name, type);
	return LLVMBuildCall2(r->builder, type, fn, args, (unsigned)n, "");
}

LLVMValueRef replay_call(struct replay *r, const struct kb_inst *i)
{
	LLVMValueRef fn = LLVMGetNamedFunction(r->module->module, i->name);
	if (!fn && !(i->flags & KB_OTHER)) {
		replay_fail(r->module, "a call of a function that is not defined");
		return NULL;
	}
	return call(r, fn, i, 0);
}

LLVMValueRef replay_call_ptr(struct replay *r, const struct kb_inst *i)
{
	return call(r, replay_arg(r, i, 0), i, 1);
}

LLVMValueRef replay_param(struct replay *r, const struct kb_inst *i)
{
	(void)i;
	return LLVMGetParam(r->function, r->n_params++);
}

LLVMValueRef replay_comment(struct replay *r, const struct kb_inst *i)
{
	(void)r;
	(void)i;
	return NULL;
}
