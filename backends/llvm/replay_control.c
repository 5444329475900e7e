/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replay of control flow: loops in rotated form (a guard only when they may be
 * empty: mem2reg never rotates), conditions, calls, returns. Code after a
 * return goes to a block without predecessors.
 */
#include "backends/llvm/replay.h"

#include <string.h>

static LLVMBasicBlockRef new_block(struct replay *r, const char *name)
{
	return LLVMAppendBasicBlockInContext(r->module->context, r->function, name);
}

/* Goes on in a block, which is put after the current one: text reads in order of execution. */
static void go_on(struct replay *r, LLVMBasicBlockRef block)
{
	if (block != LLVMGetLastBasicBlock(r->function))
		LLVMMoveBasicBlockAfter(block, LLVMGetLastBasicBlock(r->function));
	LLVMPositionBuilderAtEnd(r->builder, block);
}

static struct replay_scope *push_scope(struct replay *r, enum kb_opcode op)
{
	struct replay_scope *s = ARENA_PUSH(r->module->arena, &r->scopes);
	if (s)
		*s = (struct replay_scope){.op = op};
	else
		replay_fail(r->module, "no memory");
	return s;
}

static struct replay_scope *top_scope(struct replay *r)
{
	if (r->scopes.n == 0) {
		replay_fail(r->module, "an end without its begin");
		return NULL;
	}
	return &r->scopes.items[r->scopes.n - 1];
}

/* ---- loops ---- */

static LLVMValueRef begin_loop(struct replay *r, const struct kb_inst *i)
{
	struct replay_scope *s = push_scope(r, KBO_LOOP);
	if (!s)
		return NULL;
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

static void end_loop(struct replay *r)
{
	struct replay_scope *s = top_scope(r);
	if (!s)
		return;
	LLVMValueRef step = replay_int(r->module, KB_INDEX_T, s->step);
	LLVMValueRef next = LLVMBuildNSWAdd(r->builder, s->index, step, "");
	LLVMValueRef more = LLVMBuildICmp(r->builder, LLVMIntSLT, next, s->hi, "");
	LLVMBasicBlockRef latch = LLVMGetInsertBlock(r->builder);
	LLVMBuildCondBr(r->builder, more, s->body, s->exit);
	LLVMAddIncoming(s->index, &next, &latch, 1);
	go_on(r, s->exit);
	r->scopes.n--;
}

static void begin_forever(struct replay *r)
{
	struct replay_scope *s = push_scope(r, KBO_FOREVER);
	if (!s)
		return;
	s->body = new_block(r, "forever");
	s->exit = new_block(r, "end");
	LLVMBuildBr(r->builder, s->body);
	go_on(r, s->body);
}

static void break_if(struct replay *r, const struct kb_inst *i)
{
	struct replay_scope *s = top_scope(r);
	if (!s)
		return;
	LLVMBasicBlockRef on = new_block(r, "on");
	LLVMBuildCondBr(r->builder, replay_arg(r, i, 0), s->exit, on);
	go_on(r, on);
}

static void end_forever(struct replay *r)
{
	struct replay_scope *s = top_scope(r);
	if (!s)
		return;
	LLVMBuildBr(r->builder, s->body);
	go_on(r, s->exit);
	r->scopes.n--;
}

/* ---- conditions ---- */

static void begin_if(struct replay *r, const struct kb_inst *i)
{
	struct replay_scope *s = push_scope(r, KBO_IF);
	if (!s)
		return;
	LLVMBasicBlockRef then = new_block(r, "then");
	s->exit = new_block(r, "else");
	LLVMBuildCondBr(r->builder, replay_arg(r, i, 0), then, s->exit);
	go_on(r, then);
}

static void begin_else(struct replay *r)
{
	struct replay_scope *s = top_scope(r);
	if (!s)
		return;
	LLVMBasicBlockRef otherwise = s->exit;
	s->exit = new_block(r, "endif");
	LLVMBuildBr(r->builder, s->exit);
	go_on(r, otherwise);
}

static void end_if(struct replay *r)
{
	struct replay_scope *s = top_scope(r);
	if (!s)
		return;
	LLVMBuildBr(r->builder, s->exit);
	go_on(r, s->exit);
	r->scopes.n--;
}

/* ---- calls ---- */

static void build_return(struct replay *r, const struct kb_inst *i)
{
	if (i->n_args)
		LLVMBuildRet(r->builder, replay_arg(r, i, 0));
	else
		LLVMBuildRetVoid(r->builder);
	go_on(r, new_block(r, "after"));
}

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
	return LLVMBuildCall2(r->builder, type, fn, args, (unsigned)n, "");
}

static LLVMValueRef call_name(struct replay *r, const struct kb_inst *i)
{
	LLVMValueRef fn = LLVMGetNamedFunction(r->module->module, i->name);
	if (!fn) {
		replay_fail(r->module, "a call of a function that is not defined");
		return NULL;
	}
	return call(r, fn, i, 0);
}

LLVMValueRef replay_control(struct replay *r, const struct kb_inst *i)
{
	if (i->op == KBO_PARAM)
		return LLVMGetParam(r->function, r->n_params++);
	if (i->op == KBO_LOOP)
		return begin_loop(r, i);
	if (i->op == KBO_END_LOOP)
		end_loop(r);
	else if (i->op == KBO_FOREVER)
		begin_forever(r);
	else if (i->op == KBO_BREAK_IF)
		break_if(r, i);
	else if (i->op == KBO_END_FOREVER)
		end_forever(r);
	else if (i->op == KBO_IF)
		begin_if(r, i);
	else if (i->op == KBO_ELSE)
		begin_else(r);
	else if (i->op == KBO_END_IF)
		end_if(r);
	else if (i->op == KBO_RETURN)
		build_return(r, i);
	else if (i->op == KBO_CALL)
		return call_name(r, i);
	else if (i->op == KBO_CALL_PTR)
		return call(r, replay_arg(r, i, 0), i, 1);
	return NULL;
}
