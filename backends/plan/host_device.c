/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OpenCL variants: calls of libtfmccl from the functions around kernels. They open the device with the
 * model's plan and source, call a function of the plan, and copy bytes of the state.
 *
 *   NAME.LEVEL.plan, NAME.LEVEL.source   data: the plan's bytes, the kernels as OpenCL C
 *   NAME.LEVEL.func.body(context, args, worker, n) -> status   worker is 0, n is 1
 */
#include "backends/plan/host.h"

#include <stddef.h>

#include "backends/plan/opencl.h"

#define AT(type, field)    ((int64_t)offsetof(struct type, field))
#define SLOTS(type, count) ((int64_t)(sizeof(struct type) / 8 * (count)))

/* ---- the program ---- */

enum tfmc_status emit_device_program(struct object *o)
{
	struct opencl_program p;
	struct buf plan;
	buf_init(&plan);
	enum tfmc_status status = opencl_compile(o, &p, &plan);
	o->device.plan_bytes = (int64_t)plan.len;
	o->device.source_bytes = (int64_t)p.source.len;
	if (status == TFMC_OK) {
		kb_data(o->kb, emit_variant_symbol(o, "plan"), KB_INTERNAL, plan.data, plan.len, 8);
		kb_data(o->kb, emit_variant_symbol(o, "source"), KB_INTERNAL, p.source.data, p.source.len, 1);
	}
	buf_destroy(&plan);
	opencl_program_destroy(&p);
	return status;
}

void emit_device_open(struct emit *e, struct kb_val config, struct kb_val slots)
{
	struct kb *k = e->k;
	const struct object *o = e->object;
	struct kb_val code = kb_local(k, "code", KB_INDEX, SLOTS(tfmc_cl_code, 1));
	struct kb_val weights = emit_load(k, KB_PTR, slots, 8 * INIT_WEIGHTS);
	struct kb_val batch = emit_load(k, KB_INDEX, slots, 8 * INIT_BATCH);
	emit_store(k, kb_symbol(k, emit_variant_symbol(o, "plan")), code, AT(tfmc_cl_code, plan));
	emit_store(k, kb_index(k, o->device.plan_bytes), code, AT(tfmc_cl_code, plan_bytes));
	emit_store(k, kb_symbol(k, emit_variant_symbol(o, "source")), code, AT(tfmc_cl_code, source));
	emit_store(k, kb_index(k, o->device.source_bytes), code, AT(tfmc_cl_code, source_bytes));
	emit_store(k, weights, code, AT(tfmc_cl_code, weights));
	emit_store(k, kb_index(k, o->weights.bytes), code, AT(tfmc_cl_code, weights_bytes));
	emit_store(k, kb_index(k, TFMC_CL_FOR_ANY), code, AT(tfmc_cl_code, devices));
	emit_store(k, batch, code, AT(tfmc_cl_code, batch));
	struct kb_val device = emit_load(k, KB_PTR, config, AT(tfmc_config, device));
	struct kb_val args[] = {code, device, kb_ptr_add(k, slots, kb_index(k, 0), 8 * INIT_DEVICE)};
	kb_return(k, kb_call_external(k, "tfmc_cl_model_open", KB_I32, args, 3));
}

/* ---- calls ---- */

/* Fills struct tfmc_buffer i: the address, and the size of tensor v in bytes instead of elements. */
static void store_tensor(struct emit *e, struct kb_val buffers, size_t i, struct ir_value v,
                         struct kb_val data)
{
	struct kb *k = e->k;
	int64_t at = (int64_t)(sizeof(struct tfmc_buffer) * i);
	const struct ir_type *t = ir_type_of(e->function->func, v);
	struct kb_val n = emit_dim(e, ir_type_count(e->object->module->dims, t));
	emit_store(k, data, buffers, at + AT(tfmc_buffer, data));
	emit_store(k, kb_mul_const(k, n, ir_dtype_bytes(t->dtype)), buffers, at + AT(tfmc_buffer, count));
}

/* NAME.func.body: fills omitted inputs, builds a struct tfmc_cl_call on the stack and passes it to
 * libtfmccl. */
void emit_device_body(struct object *o, const struct function *f)
{
	struct emit e = emit_begin(o, f, emit_function_symbol(o, f, "body"), KB_INTERNAL);
	struct kb *k = e.k;
	struct kb_val worker = kb_param(k, "worker", KB_INDEX_T, 0);
	(void)kb_param(k, "n_workers", KB_INDEX_T, 0);
	struct kb_val call = kb_local(k, "call", KB_INDEX, SLOTS(tfmc_cl_call, 1));
	struct kb_val dims = kb_local(k, "dims", KB_INDEX, (int64_t)ir_dims_count(o->module->dims) + 1);
	struct kb_val params = kb_local(k, "params", KB_INDEX, SLOTS(tfmc_buffer, f->func->n_params + 1));
	struct kb_val results = kb_local(k, "results", KB_INDEX, SLOTS(tfmc_buffer, f->func->n_results + 1));
	bool has_past = f->has_state && o->states.batch_dim >= 0;
	struct area input = {.memory = AREA_INPUT, .offset = ir_dim_const(o->module->dims, 0)};
	emit_load_call(&e);
	(void)emit_defaults(&e, worker);
	for (size_t i = 0; i < ir_dims_count(o->module->dims); i++)
		emit_store(k, f->has_dim[i] ? e.dims[i] : kb_index(k, ir_dims_sym(o->module->dims, i)->lo),
		           dims, 8 * (int64_t)i);
	emit_zero_words(&e, params, kb_index(k, 8 * SLOTS(tfmc_buffer, f->func->n_params)));
	emit_zero_words(&e, results, kb_index(k, 8 * SLOTS(tfmc_buffer, f->func->n_results)));
	for (input.number = 0; input.number < f->func->n_params; input.number++)
		if (param_is_input(f->func, input.number))
			store_tensor(&e, params, input.number, f->func->params[input.number].value,
			             area_address(&e, &input));
	for (size_t i = 0; i < f->func->n_results; i++)
		if (result_is_output(f->func, i))
			store_tensor(&e, results, i, func_result(f->func, i),
			             emit_load_arg(&e, KB_PTR, f->result_slot[i]));
	emit_store(k, kb_index(k, (int64_t)f->row), call, AT(tfmc_cl_call, function));
	emit_store(k, has_past ? e.past : kb_null(k), call, AT(tfmc_cl_call, past));
	emit_store(k, emit_load_context(&e, KB_INDEX, CONTEXT_FIRST), call, AT(tfmc_cl_call, first));
	emit_store(k, emit_load_context(&e, KB_INDEX, CONTEXT_SOURCE), call, AT(tfmc_cl_call, source));
	emit_store(k, dims, call, AT(tfmc_cl_call, dims));
	emit_store(k, params, call, AT(tfmc_cl_call, params));
	emit_store(k, results, call, AT(tfmc_cl_call, results));
	struct kb_val args[] = {emit_load_context(&e, KB_PTR, CONTEXT_DEVICE), call};
	kb_return(k, kb_call_external(k, "tfmc_cl_model_call", KB_I32, args, 2));
	kb_end(k);
}

/* ---- the state ---- */

struct kb_val emit_is_device(struct emit *e)
{
	return kb_cmp(e->k, KB_NE, emit_load_context(e, KB_PTR, CONTEXT_DEVICE), kb_null(e->k));
}

void emit_device_call(struct emit *e, const char *function, const struct kb_val *args, size_t n)
{
	struct kb_val all[8] = {emit_load_context(e, KB_PTR, CONTEXT_DEVICE)};
	for (size_t i = 0; i < n; i++)
		all[i + 1] = args[i];
	struct kb_val status = kb_call_external(e->k, function, KB_I32, all, n + 1);
	kb_if(e->k, kb_cmp(e->k, KB_NE, status, kb_i32(e->k, TFMC_RT_OK)));
	kb_return(e->k, status);
	kb_end_if(e->k);
}
