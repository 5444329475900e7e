/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backend_compile, from a planned module to an object, a header and C: layout, packed weights, emission
 * through the kernel builder, LLVM, and the final file.
 *
 * A struct object is one code variant of the object that is made, compiled for one target; o->all are all of them,
 * which share weights, layout of the state and interface. A sink is where the caller takes bytes (a file), by
 * position: embedded weights go to it as they are packed, so that they are never in memory as a whole. `blob` is that
 * memory where they must be: an object without a sink, and weights that are printed as C.
 */
#include "backends/object/internal.h"
#include "backends/plan/host.h"

#include <string.h>

#include "ir/support/memory.h"

#include "backends/print/cfamily.h"
#include "backends/object/llvm.h"

void backend_output_init(struct backend_output *out)
{
	memset(out, 0, sizeof(*out));
	buf_init(&out->object);
	buf_init(&out->header);
	buf_init(&out->llvm);
	buf_init(&out->assembly);
	buf_init(&out->kernels);
	buf_init(&out->c);
}

/* Frees the buffers, also those of a failed compilation. */
void backend_output_destroy(struct backend_output *out)
{
	buf_destroy(&out->object);
	buf_destroy(&out->header);
	buf_destroy(&out->llvm);
	buf_destroy(&out->assembly);
	buf_destroy(&out->kernels);
	buf_destroy(&out->c);
}

/* ---- layout and weights ---- */

/* Places the weights (of all variants in one list), then state, functions and entries of each variant; at last checks
 * that the variants agree, and gives each the largest scratch. */
static enum tfmc_status layout_all(struct object *o)
{
	TFMC_TRY(layout_weights(o));
	for (size_t i = 0; i < o->n_all; i++) {
		TFMC_TRY(layout_state(&o->all[i]));
		TFMC_TRY(layout_functions(&o->all[i]));
		TFMC_TRY(layout_entries(&o->all[i]));
	}
	return layout_variants(o);
}

/* Sets o->embedded from the options and the size of the weights: with AUTO small ones are embedded. Weights of several
 * ranks are files, since the ranks run one object. TFMC_INVALID after a diagnostic: too large to embed, or of ranks. */
static enum tfmc_status choose_weights_location(struct object *o)
{
	uint64_t bytes = (uint64_t)o->weights.bytes;
	switch (o->options->weights) {
	case BACKEND_WEIGHTS_AUTO: o->embedded = bytes > 0 && bytes <= BACKEND_EMBED_AUTO; break;
	case BACKEND_WEIGHTS_EMBED: o->embedded = bytes > 0; break;
	case BACKEND_WEIGHTS_FILE: o->embedded = false; break;
	}
	if (o->ranks > 1 && o->options->weights == BACKEND_WEIGHTS_EMBED) {
		diag_error(o->cx, LOC_NONE, DIAG_UNSUPPORTED,
		           "weights of several ranks are not embedded: each rank has a file of its own");
		return TFMC_INVALID;
	}
	o->embedded = o->embedded && o->ranks == 1;
	if (!o->embedded || bytes <= BACKEND_EMBED_MAX)
		return TFMC_OK;
	diag_error(o->cx, LOC_NONE, DIAG_LIMIT,
	           "weights of %llu bytes do not fit into an object (at most %llu)",
	           (unsigned long long)bytes, BACKEND_EMBED_MAX);
	diag_note(o->cx, LOC_NONE, "use --weights=file");
	return TFMC_INVALID;
}

/* backend_sink that appends to a buffer; packing writes in order. False: no memory; a write after a dropped one does
 * not begin at the buffer's end and is dropped, too. */
static bool write_buf(void *user, uint64_t offset, const void *bytes, size_t n)
{
	struct buf *b = user;
	if (offset == b->len)
		buf_bytes(b, bytes, n);
	return !buf_failed(b) && offset + n == b->len;
}

/* Whether embedded weights go to the object's sink as they are packed; otherwise they are kept in memory,
 * because emission as C prints them. */
static bool streams_weights(const struct object *o)
{
	return o->options->object_sink && !o->options->needs_c && !o->options->no_object;
}

/* Packs the weights, or copies packed ones of the cache, to position `base` of the sink. Newly packed ones also go to
 * packed_sink, the cache's file, whose header is complete when all are written. */
static enum tfmc_status write_weights(struct object *o, const struct weight_source *source,
                                      const struct backend_sink *sink, uint64_t base)
{
	const struct backend_sink *also = o->options->packed_sink;
	if (pack_is_done(o))
		return pack_copy(o, sink, base);
	TFMC_TRY(pack_weights(o, source, sink, base));
	return also && o->weights.bytes > 0 ? pack_header(o, also, 0) : TFMC_OK;
}

/* Writes a weights file for each rank that has a sink. Without any sink rank 0 is packed all the same: the record
 * needs the hashes. */
static enum tfmc_status pack_ranks(struct object *o, const struct weight_source *source)
{
	const struct backend_sink *sinks = o->options->weights_sink;
	struct weight_source part = source ? *source : (struct weight_source){0};
	for (part.rank = 0; part.rank < o->ranks; part.rank++) {
		const struct backend_sink *sink =
		        sinks && sinks[part.rank].write_at ? &sinks[part.rank] : NULL;
		if (!sink && (sinks || part.rank > 0))
			continue;
		TFMC_TRY(pack_weights(o, &part, sink, TFMC_WEIGHTS_DATA));
		if (sink && o->weights.bytes > 0)
			TFMC_TRY(pack_header(o, sink, part.rank));
	}
	return TFMC_OK;
}

/* Writes the weights to the object's sink, to `blob`, or to weights files. Embedded ones begin at EMBED_AT, after the
 * ELF header. packed_stays: the cache's file is itself the weights file, nothing is written. */
static enum tfmc_status pack_to_output(struct object *o, const struct weight_source *source, struct buf *blob)
{
	struct backend_sink to_buf = {write_buf, blob};
	const struct backend_sink *sink = o->options->weights_sink;
	if (o->ranks > 1)
		return pack_ranks(o, source);
	if (o->embedded && streams_weights(o))
		return write_weights(o, source, o->options->object_sink, EMBED_AT);
	if (o->embedded) {
		buf_fill(blob, 0, EMBED_AT);
		enum tfmc_status status = write_weights(o, source, &to_buf, EMBED_AT);
		return buf_failed(blob) ? TFMC_NO_MEMORY : status;
	}
	if (pack_is_done(o) && o->options->packed_stays)
		sink = NULL;
	TFMC_TRY(write_weights(o, source, sink, TFMC_WEIGHTS_DATA));
	return sink && o->weights.bytes > 0 ? pack_header(o, sink, 0) : TFMC_OK;
}

/* ---- emission ---- */

/* Emits the functions of one variant that an entry reaches. A device variant first emits its kernels, as OpenCL C and a
 * plan to which the functions refer; it needs no barriers of workers. */
static enum tfmc_status emit_variant(struct object *o)
{
	if (object_is_device(o))
		TFMC_TRY(emit_device_program(o));
	for (size_t i = 0; i < o->functions.n; i++)
		if (o->functions.items[i].reached)
			TFMC_TRY(emit_function(o, &o->functions.items[i]));
	if (!object_is_device(o))
		emit_barriers(o);
	return TFMC_OK;
}

/* Emits the code and data that all variants share: entries, the checks of each variant by which init chooses, the
 * exported functions, the record, which is data with the alignment of cache lines. */
static enum tfmc_status emit_interface(struct object *o)
{
	struct buf record;
	emit_entries(o);
	for (size_t i = 0; i < o->n_all; i++)
		emit_variant_check(&o->all[i]);
	emit_api(o);
	buf_init(&record);
	enum tfmc_status status = record_build(o, &record);
	if (status == TFMC_OK)
		kb_data(o->kb, emit_api_symbol(o, "record"), KB_EXPORTED, record.data, record.len,
		        OBJECT_ALIGN);
	buf_destroy(&record);
	return status;
}

/* Emits all variants into one module of kernels, then the interface that chooses among them as code for the
 * baseline processor, since it runs before the choice. */
static enum tfmc_status emit_object(struct object *o)
{
	struct kb_caps first = kb_caps_of(o->driver);
	struct kb_module *m = kb_module_create(o->arena, &first);
	if (!m)
		return TFMC_NO_MEMORY;
	if (object_has_locs(o))
		kb_module_keep_locs(m);
	for (size_t i = 0; i < o->n_all; i++) {
		struct kb_caps caps = kb_caps_of(o->all[i].driver);
		kb_module_set_variant(m, (int)i, &caps);
		o->all[i].kb = m;
		TFMC_TRY(emit_variant(&o->all[i]));
	}
	kb_module_set_variant(m, KB_BASELINE, &first);
	return emit_interface(o);
}

/* ---- code generation ---- */

/* Rejects with a diagnostic what cannot be printed as C: several variants, device programs, embedded weights too large
 * for a C compiler (an array of digits). */
static enum tfmc_status check_c(const struct object *o)
{
	if (o->n_all > 1) {
		diag_error(o->cx, LOC_NONE, DIAG_TARGET,
		           "a program in C has no variants: the user of its compiler chooses the processor");
		return TFMC_INVALID;
	}
	if (o->target->arch == ARCH_OPENCL) {
		diag_error(o->cx, LOC_NONE, DIAG_TARGET, "no program in C is made for %s", o->target->name);
		return TFMC_INVALID;
	}
	if (!o->embedded || o->weights.bytes <= (int64_t)BACKEND_C_EMBED_MAX)
		return TFMC_OK;
	diag_error(o->cx, LOC_NONE, DIAG_LIMIT,
	           "weights of %lld bytes do not fit into a file of C (at most %u)",
	           (long long)o->weights.bytes, BACKEND_C_EMBED_MAX);
	diag_note(o->cx, LOC_NONE, "use --weights=file");
	return TFMC_INVALID;
}

/* Emits the functions a second time, as emits_c leaves out cpuid checks (the C compiler's user chooses the processor),
 * and prints them as C. */
static enum tfmc_status compile_c(struct object *o, const struct buf *blob, struct backend_output *out)
{
	if (!o->options->needs_c)
		return TFMC_OK;
	TFMC_TRY(check_c(o));
	o->emits_c = true;
	TFMC_TRY(emit_object(o));
	TFMC_TRY(kb_verify(o->kb, o->cx));
	struct cfamily_data weights = {.name = emit_api_symbol(o, "weights")};
	if (o->embedded) {
		weights.bytes = blob->data + EMBED_AT;
		weights.n = blob->len - EMBED_AT;
	}
	struct cfamily_options options = {.dialect = CFAMILY_C, .index_bits = 64, .data = &weights};
	options.n_data = o->embedded ? 1 : 0;
	const char *cpu = o->target->llvm_cpu;
	bool any = !strcmp(cpu, target_baseline(o->target->arch)->llvm_cpu);
	options.title = arena_printf(
	        o->arena, "%s as C, for %s.h and tfmc_rt.h; made for %s: vectors of %d floats%s%s.", o->name,
	        o->name, o->target->name, o->target->lanes,
	        any ? "" : ", which want -march=", any ? "" : cpu);
	return cfamily_print(o->cx, o->kb, &options, &out->c);
}

/* Verifies the emitted module and compiles it, with the texts that the options request, into `out`. The driver of a
 * variant is its processor (of a device variant the host's baseline). A builder without memory has gone on, so the
 * arena is checked here. */
static enum tfmc_status compile_object(struct object *o, struct backend_output *out)
{
	struct llvm_options options = {
	        .target = o->driver, .opt_level = o->options->opt_level, .progress = o->options->progress};
	struct llvm_output result = {.object = &out->object,
	                             .text = o->options->needs_llvm ? &out->llvm : NULL,
	                             .assembly = o->options->needs_assembly ? &out->assembly : NULL};
	const struct target *targets[BACKEND_VARIANTS_MAX];
	for (size_t i = 0; i < o->n_all; i++)
		targets[i] = o->all[i].driver;
	options.variants = targets;
	if (arena_failed(o->arena))
		return TFMC_NO_MEMORY;
	TFMC_TRY(kb_verify(o->kb, o->cx));
	if (o->options->needs_kernels)
		kb_dump(&out->kernels, o->kb, NULL);
	return llvm_compile(o->cx, o->kb, o->name, &options, &result);
}

/* ---- output file ---- */

static enum tfmc_status sink_write(const struct backend_sink *sink, uint64_t at, const char *bytes, size_t n)
{
	return n == 0 || sink->write_at(sink->user, at, bytes, n) ? TFMC_OK : TFMC_IO;
}

/* Writes the object to the sink, around the weights: ELF header, weights, zeros up to the alignment, the rest of the
 * object. The weights are in the sink already, or in `blob` if C was wanted. */
static enum tfmc_status write_object(const struct object *o, const struct buf *image, const struct buf *blob)
{
	static const char zeros[OBJECT_ALIGN];
	const struct backend_sink *sink = o->options->object_sink;
	uint64_t size = (uint64_t)o->weights.bytes, gap = embed_bytes(size);
	if (!o->embedded)
		return sink_write(sink, 0, image->data, image->len);
	TFMC_TRY(sink_write(sink, 0, image->data, EMBED_AT));
	if (!streams_weights(o))
		TFMC_TRY(sink_write(sink, EMBED_AT, blob->data + EMBED_AT, size));
	TFMC_TRY(sink_write(sink, EMBED_AT + size, zeros, gap - size));
	return sink_write(sink, EMBED_AT + gap, image->data + EMBED_AT, image->len - EMBED_AT);
}

/* Without a sink: completes `blob`, which is zeros for the ELF header, then the weights, with the object's other bytes
 * and its header. */
static void append_code(const struct object *o, struct buf *image, struct buf *blob)
{
	uint64_t size = (uint64_t)o->weights.bytes;
	buf_fill(blob, 0, embed_bytes(size) - size);
	buf_bytes(blob, image->data + EMBED_AT, image->len - EMBED_AT);
	if (!buf_failed(blob))
		memcpy(blob->data, image->data, EMBED_AT);
}

/* Completes out->object, as LLVM wrote it, with embedded weights, or writes it to the sink. The section of weights is
 * added to a copy: with a sink out->object stays the code as LLVM wrote it; without, it becomes `blob`, and the caller
 * destroys LLVM's bytes in its place. */
static enum tfmc_status write_output(const struct object *o, struct buf *blob, struct backend_output *out)
{
	struct buf image;
	if (!o->embedded)
		return o->options->object_sink ? write_object(o, &out->object, blob) : TFMC_OK;
	buf_init(&image);
	buf_append(&image, &out->object);
	enum tfmc_status status =
	        embed_section(o->cx, &image, emit_api_symbol(o, "weights"), (uint64_t)o->weights.bytes);
	if (status == TFMC_OK && o->options->object_sink) {
		status = write_object(o, &image, blob);
	} else if (status == TFMC_OK) {
		struct buf code = out->object;
		append_code(o, &image, blob);
		out->object = *blob;
		*blob = code;
		status = buf_failed(&out->object) ? TFMC_NO_MEMORY : TFMC_OK;
	}
	buf_destroy(&image);
	return status;
}

/* The time of the caller's clock, for the duration of packing; 0 without a clock. */
static double seconds(const struct object *o)
{
	return o->options->clock ? o->options->clock(NULL) : 0;
}

/* Makes all outputs. o is the first variant, which has what all share. Weights are packed before emission,
 * because the record contains their hash. */
static enum tfmc_status compile_variants(struct object *o, const struct weight_source *source,
                                         struct backend_output *out)
{
	struct buf blob;
	TFMC_TRY(layout_all(o));
	TFMC_TRY(check_weights_limit(o));
	TFMC_TRY(choose_weights_location(o));
	buf_init(&blob);
	double start = seconds(o);
	enum tfmc_status status = pack_to_output(o, source, &blob);
	out->pack_seconds = seconds(o) - start;
	bool needs_object = !o->options->no_object;
	memory_stage("choosing kernels", NULL);
	if (status == TFMC_OK && needs_object)
		status = emit_object(o);
	if (status == TFMC_OK && needs_object)
		status = compile_object(o, out);
	if (status == TFMC_OK)
		status = compile_c(o, &blob, out);
	if (status == TFMC_OK && needs_object)
		status = write_output(o, &blob, out);
	if (status == TFMC_OK)
		header_build(o, &out->header);
	buf_destroy(&blob);
	out->weights_bytes = (uint64_t)o->weights.bytes;
	out->embedded = o->embedded;
	out->packed_taken = pack_is_done(o);
	if (status == TFMC_OK && buf_failed(&out->header))
		return TFMC_NO_MEMORY;
	return status;
}

/* Whether the passes that plan memory have run; false after a diagnostic, which only a mistake of tfmc causes. */
static bool is_planned(struct diag_context *cx, const struct ir_module *m)
{
	if (m->stage == STAGE_PLAN)
		return true;
	diag_error(cx, LOC_NONE, DIAG_INTERNAL, "the module is not of stage plan");
	return false;
}

/* With several variants internal symbols have the level in their prefix, as each variant defines the same functions. */
enum tfmc_status backend_compile(struct diag_context *cx, const struct backend_variant *variants, size_t n,
                                 const struct weight_source *source, const struct backend_options *options,
                                 struct backend_output *out)
{
	struct object all[BACKEND_VARIANTS_MAX];
	struct arena arena;
	for (size_t i = 0; i < n; i++)
		if (!is_planned(cx, variants[i].planned))
			return TFMC_INTERNAL;
	arena_init(&arena);
	for (size_t i = 0; i < n; i++) {
		object_init(&all[i], cx, &arena, variants[i].planned, variants[i].target, options);
		if (n > 1)
			all[i].prefix =
			        arena_printf(&arena, "%s.%s", all[i].name, target_level_name(all[i].target));
		all[i].all = all;
		all[i].n_all = n;
	}
	enum tfmc_status status = compile_variants(&all[0], source, out);
	arena_destroy(&arena);
	return status;
}
