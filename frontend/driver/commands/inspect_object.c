/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tfmc inspect of objects. The record is found by its magic number in the bytes, since the object may be for another
 * machine. The record is untrusted: every offset is checked.
 */
#include "frontend/driver/commands/inspect.h"

/* A damaged record may refer to the same bytes many times: output is truncated. */
#define REPORT_BYTES_MAX (4 << 20)
#define TYPE_BYTES_MAX   1024

static const struct tfmc_record *find_record(const unsigned char *bytes, size_t n)
{
	for (size_t i = 0; i + sizeof(struct tfmc_record) <= n; i += 8) {
		const struct tfmc_record *r = (const void *)(bytes + i);
		if (r->magic == TFMC_RECORD_MAGIC && r->abi_version == TFMC_ABI_VERSION &&
		    r->bytes <= n - i && r->bytes >= sizeof(*r))
			return r;
	}
	return NULL;
}

/* `n` structs of `size` bytes at an offset of the record; NULL: out of its bounds. */
static const void *record_array(const struct tfmc_record *r, uint64_t at, uint64_t n, size_t size)
{
	bool fits = at % 8 == 0 && at <= r->bytes && n <= (r->bytes - at) / size;
	return fits ? (const char *)r + at : NULL;
}

/* A damaged record's string may lack its terminator. */
static const char *record_text(struct arena *a, const struct tfmc_record *r, uint64_t at)
{
	uint64_t n = at < r->bytes ? r->bytes - at : 0;
	return arena_printf(a, "%.*s", n < 256 ? (int)n : 256, n ? (const char *)r + at : "");
}

/* A polynomial in the dims: "2*B+1". */
static void print_size(struct buf *out, struct arena *a, const struct tfmc_record *r, uint64_t at)
{
	const struct tfmc_record_dim *dims = record_array(r, r->dims, r->n_dims, sizeof(*dims));
	const uint64_t *head = record_array(r, at, 1, sizeof(*head));
	uint64_t terms = head ? *head : 0;
	buf_str(out, terms ? "" : "0");
	for (uint64_t t = 0; t < terms && out->len < TYPE_BYTES_MAX; t++) {
		const uint64_t *term = record_array(r, at += 8, 2, sizeof(*term));
		const uint64_t *factors = term ? record_array(r, at + 16, term[1], sizeof(*factors)) : NULL;
		if (!factors)
			return;
		int64_t scale = (int64_t)term[0];
		bool shows = scale != 1 || !term[1];
		buf_str(out, t ? "+" : "");
		if (shows)
			buf_printf(out, "%lld", (long long)scale);
		for (uint64_t k = 0; k < term[1] && out->len < TYPE_BYTES_MAX; k++)
			buf_printf(out, "%s%s", shows || k ? "*" : "",
			           dims && factors[k] < r->n_dims ? record_text(a, r, dims[factors[k]].name)
			                                          : "?");
		at += 8 + 8 * term[1];
	}
}

static void report_tensors(struct report *out, struct arena *a, const struct tfmc_record *r, const char *key,
                           uint64_t at, uint64_t n)
{
	const struct tfmc_record_tensor *items = record_array(r, at, n, sizeof(*items));
	struct buf type;
	buf_init(&type);
	report_open(out, key);
	for (uint64_t i = 0; items && i < n && out->out->len < REPORT_BYTES_MAX; i++) {
		const struct tfmc_record_tensor *t = &items[i];
		buf_clear(&type);
		buf_printf(&type, "%s[",
		           t->dtype < IR_N_DTYPES ? ir_dtype_name((enum ir_dtype)t->dtype) : "?");
		for (uint64_t k = 0; k < t->rank && k < TFMC_COUNT(t->sizes); k++) {
			buf_str(&type, k ? "," : "");
			print_size(&type, a, r, t->sizes[k]);
		}
		buf_char(&type, ']');
		report_row(out, record_text(a, r, t->name));
		report_text(out, "type", "%s", type.data);
		report_flag(out, "optional", t->has_default == 1);
		report_close(out);
	}
	report_close(out);
	buf_destroy(&type);
}

static void report_entries(struct report *out, struct arena *a, const struct tfmc_record *r)
{
	const struct tfmc_record_entry *items = record_array(r, r->entries, r->n_entries, sizeof(*items));
	report_open(out, "entries");
	for (uint64_t i = 0; items && i < r->n_entries && out->out->len < REPORT_BYTES_MAX; i++) {
		report_open(out, record_text(a, r, items[i].name));
		report_tensors(out, a, r, "inputs", items[i].inputs, items[i].n_inputs);
		report_tensors(out, a, r, "outputs", items[i].outputs, items[i].n_outputs);
		report_close(out);
	}
	report_close(out);
}

static void report_dims(struct report *out, struct arena *a, const struct tfmc_record *r)
{
	const struct tfmc_record_dim *dims = record_array(r, r->dims, r->n_dims, sizeof(*dims));
	report_open(out, "dims");
	for (uint64_t i = 0; dims && i < r->n_dims && out->out->len < REPORT_BYTES_MAX; i++)
		report_text(out, record_text(a, r, dims[i].name), "%lld..%lld", (long long)dims[i].lo,
		            (long long)dims[i].hi);
	report_close(out);
}

static void report_code(struct report *out, struct driver *d, const struct file_map *map,
                        const struct tfmc_record *r)
{
	const char *targets[BACKEND_VARIANTS_MAX];
	uint64_t code[BACKEND_VARIANTS_MAX];
	struct code_names names = {.model = record_text(&d->arena, r, r->name), .targets = targets};
	const uint64_t *items = record_array(r, r->variants, r->n_variants, sizeof(*items));
	if (!items || r->n_variants > BACKEND_VARIANTS_MAX)
		return;
	for (; names.n < r->n_variants; names.n++)
		targets[names.n] = record_text(&d->arena, r, items[names.n]);
	uint64_t remaining = driver_code_bytes(d, &names, map->data, map->len, code);
	report_open(out, "code_bytes");
	for (size_t i = 0; i < names.n; i++)
		report_number(out, targets[i], code[i]);
	report_number(out, "interface", remaining);
	report_close(out);
}

enum tfmc_status inspect_object(struct driver *d, struct report *out, const struct file_map *map)
{
	const struct tfmc_record *r = find_record(map->data, map->len);
	struct arena *a = &d->arena;
	if (!r) {
		diag_error(&d->diag, LOC_NONE, DIAG_FILE, "%s is an object without a tfmc record",
		           d->options.input);
		return TFMC_INVALID;
	}
	report_text(out, "kind", "tfmc object");
	report_text(out, "name", "%s", record_text(a, r, r->name));
	report_text(out, "target", "%s", record_text(a, r, r->target));
	report_number(out, "interface_version", r->abi_version);
	report_text(out, "structure", "%016llx", (unsigned long long)r->structure_hash);
	report_row(out, "weights");
	report_text(out, "type", "%016llx", (unsigned long long)r->weights_hash);
	report_number(out, "bytes", r->weights_bytes);
	report_flag(out, r->weights_embedded ? "embedded" : "in_a_file", true);
	report_close(out);
	report_dims(out, a, r);
	report_entries(out, a, r);
	report_code(out, d, map, r);
	report_number(out, "arena_bytes_max", r->arena_bytes_max);
	report_number(out, "arena_bytes_for_each_worker", r->scratch_bytes);
	report_number(out, "state_bytes", r->state_fixed_bytes);
	report_number(out, "state_bytes_for_each_sequence", r->state_batch_bytes);
	return TFMC_OK;
}
