/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model on a device: opening (plan, device, launches, program, weights, state), bytes of the state, closing.
 *
 * The plan's commands (dispatch, repeat, condition, end) are unrolled into a list of launches for each function when
 * the model opens. A piece is a buffer with a part of the weights. Every buffer has a serial number, so that a call
 * knows whether its arguments are still valid. The integer dot products of the device (cl_khr_integer_dot_product) are
 * tested before kernels use them: a small kernel must compute the expected values.
 */
#include "runtime/opencl/model_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- integer dot products ---- */

/*
 * Test of the device's integer dot products (cl_khr_integer_dot_product). Kernels use them if the device has
 * the extension and a small kernel computes the expected values. If anything fails here, they do without.
 */

#define VECTORS 8

/* Vectors of four i8: -128, 127, -1, 0 and 1 in every position, against each other. */
static const uint32_t x[VECTORS] = {0x80808080, 0x7f7f7f7f, 0x80808080, 0x01ff7f80,
                                    0x00ff807f, 0xffffffff, 0x04030201, 0xfb8007fd};
static const uint32_t y[VECTORS] = {0x80808080, 0x80808080, 0x7f7f7f7f, 0x807f01ff,
                                    0x7f80ff01, 0x01010101, 0xfefdfcfb, 0x80fe7f03};
static const char test_source[] =
        "__kernel __attribute__((reqd_work_group_size(8, 1, 1)))\n"
        "void dots(__global const uint *x, __global const uint *y, __global int *out)\n"
        "{\n"
        "\tsize_t i = get_global_id(0);\n"
        "\tout[i] = dot_4x8packed_ss_int(x[i], y[i]);\n"
        "}\n";

static int32_t signed_byte(uint32_t vector, int at)
{
	int32_t byte = (int32_t)(vector >> 8 * at & 0xff);
	return byte < 128 ? byte : byte - 256;
}

/* True: the dot products of x and y have the values that the host computes. */
static bool are_correct(const int32_t *dots)
{
	for (int i = 0; i < VECTORS; i++) {
		int32_t sum = 0;
		for (int at = 0; at < 4; at++)
			sum += signed_byte(x[i], at) * signed_byte(y[i], at);
		if (dots[i] != sum)
			return false;
	}
	return true;
}

/* Objects of the test; each may be NULL. */
struct dot_test {
	struct tfmc_cl_program *program;
	struct tfmc_cl_kernel *kernel;
	struct tfmc_cl_buffer *buffer[3]; /* x, y, out */
};

/* Computes the dot products of x and y on the device, with no messages: after a failure kernels do without. `dots` is
 * uploaded to the result, too, so that a kernel that does not run leaves zeros. */
static int run_test(const struct tfmc_cl_model *m, struct dot_test *p, int32_t *dots)
{
	static const uint64_t one[2] = {1, 1}, items[2] = {VECTORS, 1};
	const struct tfmc_cl_source source = {test_source, sizeof(test_source) - 1, MODEL_LANGUAGE,
	                                      m->device.cache};
	const void *in[] = {x, y, dots};
	TRY(tfmc_cl_program_build(m->context, &source, &p->program, NULL));
	TRY(tfmc_cl_kernel_create(p->program, "dots", &p->kernel, NULL));
	for (uint32_t i = 0; i < 3; i++) {
		TRY(tfmc_cl_buffer_create(m->context, sizeof(x), &p->buffer[i], NULL));
		TRY(tfmc_cl_upload(p->buffer[i], 0, in[i], sizeof(x), NULL));
		TRY(tfmc_cl_kernel_set_buffer(p->kernel, i, p->buffer[i], NULL));
	}
	TRY(tfmc_cl_launch(p->kernel, one, items, NULL));
	return tfmc_cl_download(p->buffer[2], 0, dots, sizeof(x), NULL);
}

/* True: the source has the macro TFMC_DOT, which selects the device's dot products. */
static bool source_uses_dot(const struct tfmc_cl_code *code)
{
	static const char macro[] = "TFMC_DOT";
	const char *at = code->source, *end = at + code->source_bytes;
	while ((at = memchr(at, macro[0], (size_t)(end - at))) != NULL) {
		if ((size_t)(end - at) >= sizeof(macro) - 1 && memcmp(at, macro, sizeof(macro) - 1) == 0)
			return true;
		at++;
	}
	return false;
}

/* Whether the device has correct i8 dot products and the source can use them. */
static bool model_has_dot(const struct tfmc_cl_model *m)
{
	struct dot_test p = {0};
	int32_t dots[VECTORS] = {0};
	if (!m->chosen->has_integer_dot || !source_uses_dot(&m->code))
		return false;
	bool is_right = run_test(m, &p, dots) == TFMC_CL_OK && are_correct(dots);
	for (int i = 0; i < 3; i++)
		tfmc_cl_buffer_free(p.buffer[i]);
	tfmc_cl_kernel_free(p.kernel);
	tfmc_cl_program_free(p.program);
	return is_right;
}

/* ---- launches ---- */

/*
 * Preparation of a plan: the launches of each function with repeats unrolled, and the split of the weights
 * into buffers of the size that the device allows.
 */

#define COMMANDS_MAX ((size_t)1 << 17) /* commands of a function, repeats unrolled */
#define ARGS_MAX     ((size_t)1 << 22)
#define TENSORS_MAX  ((int64_t)1 << 16) /* parameters or results of a function */
#define PAGE         4096

/* ---- launches ---- */

struct unroller {
	struct tfmc_cl_model *model;
	struct model_function *f;
	size_t cap, n_args;
	int64_t open[PLAN_DEPTH]; /* open REPEAT and IF_REQUESTED commands */
	int64_t indices[PLAN_REPEATS];
	int depth, repeats, skipping; /* skipping: open repeats with count 0 */
};

static bool is_repeat(const struct unroller *w, int64_t command)
{
	return model_cell(w->model, PLAN_COMMANDS, command, COMMAND_KIND) == PLAN_REPEAT;
}

/* Appends a launch with the open repeats' indices and, in `wanted`, the open conditions (commands whose outputs must
 * be requested; -1 ends the list). Conditions depend on the call, so they are not decided here. False: no memory. */
static bool add_launch(struct unroller *w, int64_t kernel)
{
	struct model_function *f = w->f;
	if (f->n == w->cap) {
		size_t cap = w->cap ? 2 * w->cap : 64;
		struct model_launch *more = realloc(f->launches, cap * sizeof(*more));
		if (!more)
			return false;
		f->launches = more;
		w->cap = cap;
	}
	struct model_launch *l = &f->launches[f->n++];
	*l = (struct model_launch){.kernel = kernel, .first_arg = w->n_args};
	memcpy(l->indices, w->indices, sizeof(l->indices));
	int n = 0;
	for (int i = 0; i < w->depth; i++)
		if (!is_repeat(w, w->open[i]))
			l->wanted[n++] = w->open[i];
	while (n < PLAN_DEPTH)
		l->wanted[n++] = -1;
	w->n_args += (size_t)model_kernel(w->model, l, KERNEL_ARGS_N);
	return true;
}

static void open_block(struct unroller *w, int64_t command)
{
	w->open[w->depth++] = command;
	w->repeats += is_repeat(w, command);
	w->skipping += is_repeat(w, command) && model_cell(w->model, PLAN_COMMANDS, command, COMMAND_B) == 0;
}

/* Ends the innermost block, or an iteration of it. Returns the command before the next one to execute: the repeat
 * itself for another iteration, since the caller's loop then goes to the command after it. */
static int64_t close_block(struct unroller *w, int64_t end)
{
	int64_t command = w->open[w->depth - 1],
	        count = model_cell(w->model, PLAN_COMMANDS, command, COMMAND_B);
	if (is_repeat(w, command) && ++w->indices[w->repeats - 1] < count)
		return command;
	w->depth--;
	if (is_repeat(w, command)) {
		w->indices[--w->repeats] = 0;
		w->skipping -= count == 0;
	}
	return end;
}

static int32_t model_no_memory(const struct tfmc_cl_model *m)
{
	return model_fail(m, NULL, "memory could not be allocated");
}

/* Interprets the commands of a function and collects its launches. Repeats with count 0 are traversed once without
 * launches, to find their end. tfmc_plan_open has checked the nesting; the bounds keep a hostile plan from using all
 * memory. */
static int32_t unroll_commands(struct unroller *w, int64_t first, int64_t end)
{
	const struct model_site where = {w->f->name, NULL};
	size_t executed = 0;
	for (int64_t at = first; at < end; at++) {
		if (++executed > COMMANDS_MAX || w->n_args > ARGS_MAX)
			return model_fail(w->model, &where, "there are too many launches");
		switch ((enum plan_command_kind)model_cell(w->model, PLAN_COMMANDS, at, COMMAND_KIND)) {
		case PLAN_DISPATCH:
			if (w->skipping == 0 &&
			    !add_launch(w, model_cell(w->model, PLAN_COMMANDS, at, COMMAND_A)))
				return model_no_memory(w->model);
			break;
		case PLAN_REPEAT:
		case PLAN_IF_REQUESTED: open_block(w, at); break;
		case PLAN_END: at = close_block(w, at); break;
		case PLAN_LENGTHS: w->f->lengths = model_cell(w->model, PLAN_COMMANDS, at, COMMAND_A); break;
		case PLAN_IF_SPLIT:       /* never in a file */
		case PLAN_BARRIER: break; /* an in-order queue needs none */
		}
	}
	return TFMC_RT_OK;
}

/* Zeroed memory for n + 1 elements: never an allocation of 0 bytes. */
static void *allocate(int64_t n, size_t size)
{
	return calloc((size_t)n + 1, size);
}

/* Creates the launches of a function, and allocates what describes its last call: arguments, dims, and (in one block
 * after the dims) the bytes of parameters and results. */
static int32_t unroll_function(struct tfmc_cl_model *m, int64_t row)
{
	struct model_function *f = &m->functions[row];
	struct unroller w = {.model = m, .f = f};
	int64_t first = model_cell(m, PLAN_FUNCTIONS, row, FUNCTION_COMMANDS_FIRST);
	*f = (struct model_function){
	        .name = tfmc_plan_name(&m->plan, model_cell(m, PLAN_FUNCTIONS, row, FUNCTION_NAME)),
	        .lengths = -1,
	        .n_params = model_cell(m, PLAN_FUNCTIONS, row, FUNCTION_PARAMS),
	        .n_results = model_cell(m, PLAN_FUNCTIONS, row, FUNCTION_RESULTS)};
	const struct model_site where = {f->name, NULL};
	if (f->n_params > TENSORS_MAX || f->n_results > TENSORS_MAX)
		return model_fail(m, &where, "there are too many tensors");
	TRY(unroll_commands(&w, first, first + model_cell(m, PLAN_FUNCTIONS, row, FUNCTION_COMMANDS_N)));
	f->args = allocate((int64_t)w.n_args, sizeof(*f->args));
	f->dims = allocate(m->plan.rows[PLAN_DIMS] + f->n_params + f->n_results, sizeof(*f->dims));
	f->wanted = allocate(f->n_results, sizeof(*f->wanted));
	if (!f->args || !f->dims || !f->wanted)
		return model_no_memory(m);
	f->param_bytes = f->dims + m->plan.rows[PLAN_DIMS];
	f->result_bytes = f->param_bytes + f->n_params;
	m->n_params = f->n_params > m->n_params ? f->n_params : m->n_params;
	m->n_results = f->n_results > m->n_results ? f->n_results : m->n_results;
	return TFMC_RT_OK;
}

/* Creates the launches of all functions. */
static int32_t model_build_launches(struct tfmc_cl_model *m)
{
	int64_t n = m->plan.rows[PLAN_FUNCTIONS];
	m->functions = allocate(n, sizeof(*m->functions));
	if (!m->functions)
		return model_no_memory(m);
	for (int64_t i = 0; i < n; i++)
		TRY(unroll_function(m, i));
	m->params = allocate(m->n_params, sizeof(*m->params));
	m->results = allocate(m->n_results, sizeof(*m->results));
	return m->params && m->results ? TFMC_RT_OK : model_no_memory(m);
}

/* ---- weights ---- */

/* `end`, or the begin of the first weight area of the launch that contains it, so that no piece ends inside the area.
 * Offsets of weights depend on no dim, so any dims will do. An area whose formulas overflow is left out: a call
 * reports it, or one that is in no piece. */
static int64_t before_crossing_area(const struct tfmc_cl_model *m, const struct model_launch *l, int64_t end)
{
	const int64_t *dims = m->functions[0].dims;
	int64_t first = model_kernel(m, l, KERNEL_AREAS_FIRST), at = end, begin, bytes;
	for (int64_t i = first; i < first + model_kernel(m, l, KERNEL_AREAS_N); i++)
		if (model_cell(m, PLAN_AREAS, i, AREA_C_MEMORY) == AREA_WEIGHTS &&
		    tfmc_plan_area(&m->plan, i, dims, l->indices, &begin, &bytes) && begin < at &&
		    at < begin + bytes)
			at = begin;
	return at;
}

/* The largest offset <= end that is inside no weight area of any launch, where a piece may end. Moving back to the
 * begin of an area can land inside another one: repeats until nothing changes. */
static int64_t find_split(const struct tfmc_cl_model *m, int64_t end)
{
	int64_t before = end + 1;
	while (end < before) {
		before = end;
		for (int64_t i = 0; i < m->plan.rows[PLAN_FUNCTIONS]; i++)
			for (size_t k = 0; k < m->functions[i].n; k++)
				end = before_crossing_area(m, &m->functions[i].launches[k], end);
	}
	return end;
}

/* TFMC_RT_OK for status 0, else model_fail with the text of m->error. */
static int32_t model_status(const struct tfmc_cl_model *m, const struct model_site *where, int status)
{
	return status == TFMC_CL_OK ? TFMC_RT_OK : model_fail(m, where, "%s", m->error.text);
}

/* Adds a buffer with bytes [begin, end) of the weights, shared with the device if possible. The serial number tells
 * calls that the buffer is new. */
static int32_t add_piece(struct tfmc_cl_model *m, int64_t begin, int64_t end)
{
	const char *data = m->code.weights;
	struct model_piece *more = realloc(m->pieces, (m->n_pieces + 1) * sizeof(*more));
	if (!more)
		return model_no_memory(m);
	m->pieces = more;
	struct model_piece *p = &m->pieces[m->n_pieces++];
	*p = (struct model_piece){{NULL, ++m->serial}, begin, end};
	int status = tfmc_cl_buffer_share(m->context, data ? data + begin : NULL, (uint64_t)(end - begin),
	                                  &p->memory.buffer, &m->error);
	return model_status(m, NULL, status);
}

/* Uploads the weights, in as many buffers as the device's limit requires; after model_build_launches. Pieces begin
 * at a page boundary, so that they can be shared with the device; adjacent pieces may overlap by a part of a page.
 * Without weights there is one empty piece, where areas of 0 bytes are. */
static int32_t model_upload_weights(struct tfmc_cl_model *m)
{
	int64_t bytes = (int64_t)m->code.weights_bytes, begin = 0, end = 0;
	while (end < bytes || m->n_pieces == 0) {
		begin = end / PAGE * PAGE;
		bool is_last = (uint64_t)(bytes - begin) <= m->chosen->largest;
		int64_t split = is_last ? bytes : find_split(m, begin + (int64_t)m->chosen->largest);
		if (split <= end && !is_last)
			return model_fail(m, NULL,
			                  "a kernel reads more weights than the %" PRIu64
			                  " bytes that the device gives at most in one buffer",
			                  m->chosen->largest);
		TRY(add_piece(m, begin, split));
		end = split;
	}
	return TFMC_RT_OK;
}

/* ---- state ---- */

/*
 * Bytes of the state: copies, permutations, and transfers, for fork, reorder, store and fetch.
 */

static const struct model_site state = {"state", NULL};

int32_t tfmc_cl_model_copy(struct tfmc_cl_model *m, int64_t from, int64_t to, int64_t bytes)
{
	int status = tfmc_cl_copy(m->state.buffer, (uint64_t)from, m->state.buffer, (uint64_t)to,
	                          (uint64_t)bytes, &m->error);
	return model_status(m, &state, status);
}

int32_t tfmc_cl_model_fetch(struct tfmc_cl_model *m, int64_t at, void *to, int64_t bytes)
{
	int status = tfmc_cl_download(m->state.buffer, (uint64_t)at, to, (uint64_t)bytes, &m->error);
	return model_status(m, &state, status);
}

int32_t tfmc_cl_model_store(struct tfmc_cl_model *m, int64_t at, const void *from, int64_t bytes)
{
	int status = tfmc_cl_upload(m->state.buffer, (uint64_t)at, from, (uint64_t)bytes, &m->error);
	return model_status(m, &state, status);
}

/* ---- permutations ---- */

struct permutation {
	struct tfmc_cl_model *model;
	const int64_t *from;
	int64_t n, begin, stride, bytes; /* block i: `bytes` bytes at begin + i * stride */
	int64_t saved; /* the block that is copied to the model's permute_buffer; -1: none */
};

static uint64_t block_offset(const struct permutation *p, int64_t i)
{
	return (uint64_t)(p->begin + i * p->stride);
}

/* Fills block i if no other block reads it any more, then, along the chain, the block that it read. n_readers[i]:
 * number of blocks that still read block i, -1 when it is filled. Blocks from n on are only read. */
static int32_t fill_from(const struct permutation *p, int64_t i)
{
	struct tfmc_cl_model *m = p->model;
	while (i < p->n && p->from[i] != i && m->n_readers[i] == 0) {
		bool is_saved = p->from[i] == p->saved;
		int status = tfmc_cl_copy(is_saved ? m->permute_buffer.buffer : m->state.buffer,
		                          is_saved ? 0 : block_offset(p, p->from[i]), m->state.buffer,
		                          block_offset(p, i), (uint64_t)p->bytes, &m->error);
		TRY(model_status(m, &state, status));
		m->n_readers[i] = -1;
		i = p->from[i];
		m->n_readers[i]--;
	}
	return TFMC_RT_OK;
}

/* Only cycles of the permutation remain. Copies block i to the permute_buffer, so that none reads block i any more,
 * and fills the rest of its cycle; the block whose source is i reads the copy. */
static int32_t break_cycle(struct permutation *p, int64_t i)
{
	struct tfmc_cl_model *m = p->model;
	TRY(model_grow(m, &state, &m->permute_buffer, p->bytes));
	int status = tfmc_cl_copy(m->state.buffer, block_offset(p, i), m->permute_buffer.buffer, 0,
	                          (uint64_t)p->bytes, &m->error);
	TRY(model_status(m, &state, status));
	p->saved = i;
	m->n_readers[i] = 0;
	return fill_from(p, i);
}

/* Fills the blocks that no other one reads, along their chains; the cycles that remain are broken one by one. */
static int32_t permute(struct permutation *p)
{
	int64_t *n_readers = p->model->n_readers;
	memset(n_readers, 0, (size_t)p->model->code.batch * sizeof(*n_readers));
	for (int64_t i = 0; i < p->n; i++)
		n_readers[p->from[i]] += p->from[i] != i;
	for (int64_t i = 0; i < p->n; i++)
		TRY(fill_from(p, i));
	for (int64_t i = 0; i < p->n; i++)
		if (n_readers[i] > 0 && p->from[i] != i)
			TRY(break_cycle(p, i));
	return TFMC_RT_OK;
}

int32_t tfmc_cl_model_permute(struct tfmc_cl_model *m, const int64_t *from, int64_t n, int64_t at,
                              int64_t bytes)
{
	int64_t batch = (int64_t)m->code.batch, stride = tfmc_plan_header(&m->plan, PLAN_H_STATE_BATCH);
	struct permutation p = {m,      from,  n, tfmc_plan_header(&m->plan, PLAN_H_STATE_FIXED) + at,
	                        stride, bytes, -1};
	bool ok = n >= 0 && n <= batch && at >= 0 && at <= stride && bytes >= 0 && bytes <= stride - at;
	for (int64_t i = 0; ok && i < n; i++)
		ok = from[i] >= 0 && from[i] < batch;
	return ok ? permute(&p) : model_fail(m, &state, "there are no such sequences, or bytes of one");
}

/* ---- open and close ---- */

/* ---- errors ---- */

/* Writes "function: kernel NAME: text" to the caller's buffer, if there is one. Returns TFMC_RT_E_DEVICE. */
int32_t model_fail(const struct tfmc_cl_model *m, const struct model_site *where, const char *fmt, ...)
{
	static const struct model_site nowhere;
	const struct model_site *w = where ? where : &nowhere;
	char text[TFMC_CL_TEXT];
	va_list ap;
	if (!m->device.message || m->device.message_bytes == 0)
		return TFMC_RT_E_DEVICE;
	va_start(ap, fmt);
	if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
		text[0] = 0;
	va_end(ap);
	(void)snprintf(m->device.message, (size_t)m->device.message_bytes, "%s%s%s%s%s%s",
	               w->function ? w->function : "", w->function ? ": " : "", w->kernel ? "kernel " : "",
	               w->kernel ? w->kernel : "", w->kernel ? ": " : "", text);
	return TFMC_RT_E_DEVICE;
}

/* ---- memory ---- */

/* The old buffer is freed first: both may not fit, and nothing in it is needed (arena, scratch, inputs and results
 * live for one call). */
int32_t model_grow(struct tfmc_cl_model *m, const struct model_site *where, struct model_memory *memory,
                   int64_t bytes)
{
	if (memory->buffer && tfmc_cl_buffer_bytes(memory->buffer) >= (uint64_t)bytes)
		return TFMC_RT_OK;
	tfmc_cl_buffer_free(memory->buffer);
	memory->serial = ++m->serial;
	int status = tfmc_cl_buffer_create(m->context, (uint64_t)bytes, &memory->buffer, &m->error);
	return model_status(m, where, status);
}

/* The state has its full capacity, since kernels address it by constant strides; on a processor its pages take
 * memory as tokens come. */
static int32_t allocate_state(struct tfmc_cl_model *m)
{
	int64_t fixed = tfmc_plan_header(&m->plan, PLAN_H_STATE_FIXED), bytes = 0;
	uint64_t batch = m->code.batch;
	if (batch > 0 &&
	    (batch > SIZE_MAX / sizeof(*m->n_readers) ||
	     __builtin_mul_overflow(tfmc_plan_header(&m->plan, PLAN_H_STATE_BATCH), batch, &bytes) ||
	     __builtin_add_overflow(bytes, fixed, &bytes)))
		return model_fail(m, NULL, "a state of %" PRIu64 " sequences is too large", batch);
	m->lengths = calloc((size_t)batch + 1, sizeof(*m->lengths));
	m->n_readers = calloc((size_t)batch + 1, sizeof(*m->n_readers));
	if (!m->lengths || !m->n_readers)
		return model_no_memory(m);
	if ((uint64_t)bytes > m->chosen->largest)
		return model_fail(
		        m, NULL,
		        "a state of %" PRIu64 " sequences takes %" PRId64
		        " bytes, a buffer of the device has at most %" PRIu64
		        ": fewer sequences or a smaller context (--context when it is compiled) fit",
		        batch, bytes, m->chosen->largest);
	m->state.serial = ++m->serial;
	return model_status(m, NULL,
	                    tfmc_cl_buffer_zeroed(m->context, (uint64_t)bytes, &m->state.buffer, &m->error));
}

/* ---- device and plan ---- */

/* Loads the OpenCL library, chooses a device and opens it. */
static int32_t open_device(struct tfmc_cl_model *m)
{
	size_t number;
	int status = tfmc_cl_open(m->device.library, &m->cl, &m->error);
	if (status == TFMC_CL_OK)
		status = tfmc_cl_choose(m->cl, (int)m->code.devices, m->device.name, &number, &m->error);
	if (status != TFMC_CL_OK)
		return model_status(m, NULL, status);
	m->chosen = tfmc_cl_device(m->cl, number);
	status = tfmc_cl_context_open(m->cl, number, 0, &m->context, &m->error);
	m->has_dot = status == TFMC_CL_OK && model_has_dot(m);
	return model_status(m, NULL, status);
}

/* Checks and opens the plan; its weights must have the size of the code's, since offsets in areas are not checked
 * against them. */
static int32_t read_plan(struct tfmc_cl_model *m)
{
	const char *wrong = m->code.plan && m->code.source && (m->code.weights || !m->code.weights_bytes)
	                            ? tfmc_plan_open(m->code.plan, (size_t)m->code.plan_bytes, &m->plan)
	                            : "there is none, or no source, or no weights";
	if (wrong)
		return model_fail(m, NULL, "plan: %s", wrong);
	uint64_t weights = (uint64_t)tfmc_plan_header(&m->plan, PLAN_H_WEIGHTS);
	if (weights != m->code.weights_bytes)
		return model_fail(m, NULL, "the plan has %" PRIu64 " bytes of weights, there are %" PRIu64,
		                  weights, m->code.weights_bytes);
	return TFMC_RT_OK;
}

/* ---- programs ---- */

static const char *kernel_name(const struct tfmc_cl_model *m, int64_t row)
{
	return tfmc_plan_name(&m->plan, model_cell(m, PLAN_KERNELS, row, KERNEL_NAME));
}

/* Counts the dispatches of f whose kernel no program has, and sets the rows of their kernels in is_unbuilt (may be
 * NULL). Rows of KERNELS with one name are one kernel. */
static size_t find_unbuilt(const struct tfmc_cl_model *m, const struct model_function *f, bool *is_unbuilt)
{
	int64_t row = f - m->functions, first = model_cell(m, PLAN_FUNCTIONS, row, FUNCTION_COMMANDS_FIRST);
	size_t n = 0;
	for (int64_t i = first; i < first + model_cell(m, PLAN_FUNCTIONS, row, FUNCTION_COMMANDS_N); i++) {
		int64_t kernel = model_cell(m, PLAN_COMMANDS, i, COMMAND_A);
		if (model_cell(m, PLAN_COMMANDS, i, COMMAND_KIND) != PLAN_DISPATCH || m->programs[kernel])
			continue;
		n++;
		for (int64_t k = 0; is_unbuilt && k < m->plan.rows[PLAN_KERNELS]; k++)
			is_unbuilt[k] = is_unbuilt[k] || !strcmp(kernel_name(m, k), kernel_name(m, kernel));
	}
	return n;
}

/* Build options with a macro WITHOUT_kernel for each kernel to leave out, so that one source serves all functions, and
 * a device compiles only what a call needs (backends/plan/README.md). NULL: no memory. */
static char *build_options(const struct tfmc_cl_model *m, const bool *is_unbuilt)
{
	static const char plain[] = MODEL_LANGUAGE, dots[] = MODEL_LANGUAGE " -DTFMC_DOT=1",
	                  without[] = " -DWITHOUT_";
	const char *standard = m->has_dot ? dots : plain;
	size_t at = strlen(standard), bytes = at + 1;
	for (int64_t i = 0; i < m->plan.rows[PLAN_KERNELS]; i++)
		bytes += sizeof(without) + strlen(kernel_name(m, i));
	char *text = malloc(bytes);
	if (!text)
		return NULL;
	memcpy(text, standard, at + 1);
	for (int64_t i = 0; i < m->plan.rows[PLAN_KERNELS]; i++)
		if (!is_unbuilt[i])
			at += (size_t)snprintf(text + at, bytes - at, "%s%s", without, kernel_name(m, i));
	return text;
}

/* Builds one program of the kernels in is_unbuilt. */
static int32_t build_kernels(struct tfmc_cl_model *m, struct model_function *f, const bool *is_unbuilt)
{
	const struct model_site where = {f->name, NULL};
	char *options = build_options(m, is_unbuilt);
	if (!options)
		return model_no_memory(m);
	const struct tfmc_cl_source source = {m->code.source, m->code.source_bytes, options, m->device.cache};
	int status = tfmc_cl_program_build(m->context, &source, &f->program, &m->error);
	free(options);
	for (int64_t i = 0; status == TFMC_CL_OK && i < m->plan.rows[PLAN_KERNELS]; i++)
		m->programs[i] = is_unbuilt[i] ? f->program : m->programs[i];
	return model_status(m, &where, status);
}

/* Kernels that the program of an earlier function has are not built again. */
int32_t model_build(struct tfmc_cl_model *m, struct model_function *f)
{
	bool *is_unbuilt = calloc((size_t)m->plan.rows[PLAN_KERNELS] + 1, sizeof(*is_unbuilt));
	if (!is_unbuilt)
		return model_no_memory(m);
	int32_t status = find_unbuilt(m, f, is_unbuilt) > 0 ? build_kernels(m, f, is_unbuilt) : TFMC_RT_OK;
	f->is_built = status == TFMC_RT_OK;
	free(is_unbuilt);
	return status;
}

/* Building the function with most kernels shows at once whether the device's compiler accepts the code;
 * other functions are built at their first call. */
static int32_t build_largest(struct tfmc_cl_model *m)
{
	struct model_function *largest = &m->functions[0];
	m->programs = calloc((size_t)m->plan.rows[PLAN_KERNELS] + 1, sizeof(*m->programs));
	if (!m->programs)
		return model_no_memory(m);
	for (int64_t i = 1; i < m->plan.rows[PLAN_FUNCTIONS]; i++)
		if (find_unbuilt(m, &m->functions[i], NULL) > find_unbuilt(m, largest, NULL))
			largest = &m->functions[i];
	return m->plan.rows[PLAN_FUNCTIONS] > 0 ? model_build(m, largest) : TFMC_RT_OK;
}

/* ---- opening ---- */

/* Opens all parts in the order of their dependencies: the device reports the limit of a buffer, and the launches
 * have the areas that no piece of the weights may cut. The caller closes after a failure. */
static int32_t open_sections(struct tfmc_cl_model *m)
{
	TRY(read_plan(m));
	TRY(open_device(m));
	TRY(model_build_launches(m));
	TRY(build_largest(m));
	TRY(model_upload_weights(m));
	return allocate_state(m);
}

/* `initial` has the caller's message buffer, for failures before there is a model. */
int32_t tfmc_cl_model_open(const struct tfmc_cl_code *code, const struct tfmc_device *device,
                           struct tfmc_cl_model **out)
{
	const struct tfmc_device any_device = {0};
	struct tfmc_cl_model initial = {.device = device ? *device : any_device};
	if (out)
		*out = NULL;
	if (!code || !out)
		return model_fail(&initial, NULL, "the code or the result pointer is null");
	struct tfmc_cl_model *m = malloc(sizeof(*m));
	if (!m)
		return model_no_memory(&initial);
	*m = initial;
	m->code = *code;
	int32_t status = open_sections(m);
	if (status == TFMC_RT_OK)
		*out = m;
	else
		tfmc_cl_model_close(m);
	return status;
}

/* ---- closing ---- */

static void free_function(struct model_function *f)
{
	for (size_t i = 0; i < f->n; i++)
		tfmc_cl_kernel_free(f->launches[i].handle);
	tfmc_cl_program_free(f->program);
	free(f->launches);
	free(f->args);
	free(f->dims);
	free(f->wanted);
}

static void free_buffers(struct model_memory *list, int64_t n)
{
	for (int64_t i = 0; list && i < n; i++)
		tfmc_cl_buffer_free(list[i].buffer);
}

/* Frees the model, also one that was opened in part. OpenCL objects are released before the context that they belong
 * to, and the library last. */
void tfmc_cl_model_close(struct tfmc_cl_model *m)
{
	if (!m)
		return;
	for (int64_t i = 0; m->functions && i < m->plan.rows[PLAN_FUNCTIONS]; i++)
		free_function(&m->functions[i]);
	for (size_t i = 0; i < m->n_pieces; i++)
		tfmc_cl_buffer_free(m->pieces[i].memory.buffer);
	struct model_memory single[] = {m->arena, m->scratch, m->state, m->permute_buffer};
	free_buffers(single, sizeof(single) / sizeof(single[0]));
	free_buffers(m->params, m->n_params);
	free_buffers(m->results, m->n_results);
	tfmc_cl_context_close(m->context);
	tfmc_cl_close(m->cl);
	free(m->functions);
	free(m->programs);
	free(m->pieces);
	free(m->params);
	free(m->results);
	free(m->lengths);
	free(m->n_readers);
	free(m);
}
