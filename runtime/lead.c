/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leader and followers of a session on several ranks: agreement of all ranks when it opens, then acts from rank 0
 * to the others (lead.h).
 *
 * Facts are the words that must be equal on all ranks. The payload of an act is what follows it: of calls their heads
 * and inputs. Outputs are not sent: followers compute them for the exchanges and drop them.
 */
#include "runtime/lead.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAYLOAD_ALIGN 64 /* of each input: as the caller of an object may align its own */
#define PAYLOAD_MAX   ((uint64_t)1 << 36)
#define RANKS_MAX     65536
#define LEAD_VERSION  2 /* counts changes of acts, payloads and facts */

/* ---- all ranks to all ---- */

/* Writes a message for the caller of tfmc_session_open, if there is a buffer for it. Returns the status. */
static int message(const struct tfmc_session_options *o, int status, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));
static int message(const struct tfmc_session_options *o, int status, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	if (o->message && o->message_bytes)
		(void)vsnprintf(o->message, (size_t)o->message_bytes, fmt, ap);
	va_end(ap);
	return status;
}

/* Checks the table of the caller: complete, of this version, with a possible rank. */
static int check_table(const struct tfmc_ranks *ranks)
{
	if (ranks->struct_size != sizeof(*ranks))
		return TFMC_RT_E_ABI;
	if (!ranks->sum || !ranks->gather || !ranks->send || !ranks->receive || !ranks->status ||
	    !ranks->broadcast)
		return TFMC_RT_E_NULL;
	return ranks->n < 1 || ranks->n > RANKS_MAX || ranks->rank < 0 || ranks->rank >= ranks->n
	               ? TFMC_RT_E_RANKS
	               : TFMC_RT_OK;
}

/*
 * all [ranks->n, n] = the words [n] of each rank: those of rank 0, then a sum of vectors that hold in the elements
 * of their rank how its words differ from them, and zeros elsewhere. Differences, since a table that stands for
 * other ranks (one rank measured alone) then reports ranks that agree. A word is four elements of 16 bits, which
 * f32 holds exactly.
 */
static int gather_words(const struct tfmc_ranks *ranks, const uint64_t *words, size_t n, uint64_t *all)
{
	enum { DIGITS = 4, DIGIT_BITS = 16 };
	size_t each = n * DIGITS, count = (size_t)ranks->n * each;
	float *x = calloc(2 * count, sizeof(*x));
	if (!x)
		return TFMC_RT_E_MEMORY;
	float *sum = x + count;
	memcpy(all, words, n * sizeof(*all));
	int32_t failed = ranks->broadcast(ranks->user, all, n * sizeof(*all));
	for (size_t i = 0; i < each; i++) {
		uint64_t difference = words[i / DIGITS] ^ all[i / DIGITS];
		x[(size_t)ranks->rank * each + i] =
		        (float)(difference >> (i % DIGITS * DIGIT_BITS) & UINT16_MAX);
	}
	if (!failed)
		ranks->sum(ranks->user, x, sum, count, ranks->n, 0, 0, 1);
	failed = failed || ranks->status(ranks->user);
	for (size_t i = n; i < n * (size_t)ranks->n; i++)
		all[i] = all[i % n];
	for (size_t i = 0; !failed && i < count; i++) {
		failed = !(sum[i] >= 0 && sum[i] <= UINT16_MAX);
		all[i / DIGITS] ^= failed ? 0 : (uint64_t)sum[i] << (i % DIGITS * DIGIT_BITS);
	}
	free(x);
	return failed ? TFMC_RT_E_RANK : TFMC_RT_OK;
}

/* ---- opening ---- */

/* Facts that all ranks have in common. Those of the record follow the two that say whether its layout is known. */
enum fact {
	FACT_LIBRARY,
	FACT_INTERFACE,
	FACT_OBJECT,
	FACT_PROGRAM,
	FACT_WEIGHTS,
	FACT_RANKS,
	FACT_VARIANT,
	FACT_BATCH,
	FACT_CALL_TOKENS,
	FACT_CONTEXT,
	FACT_DIM,
	N_FACTS = FACT_DIM + TFMC_DIMS_MAX
};

static const struct fact_text {
	const char *name;
	bool has_value; /* that is of use in a message */
} fact_texts[FACT_DIM] = {
        [FACT_LIBRARY] = {"the version of the runtime library", true},
        [FACT_INTERFACE] = {"the version of the interface", true},
        [FACT_OBJECT] = {"the object", false},
        [FACT_PROGRAM] = {"the code of the object", false},
        [FACT_WEIGHTS] = {"the weights of the object", false},
        [FACT_RANKS] = {"the number of ranks of the object", true},
        [FACT_VARIANT] = {"variant", false},
        [FACT_BATCH] = {"batch", true},
        [FACT_CALL_TOKENS] = {"call_tokens", true},
        [FACT_CONTEXT] = {"context", true},
};

/* The facts of this rank; of a record of another layout only the two that say so. */
static void read_facts(const struct tfmc_session_options *o, const struct tfmc_record *r,
                       uint64_t facts[N_FACTS])
{
	memset(facts, 0, N_FACTS * sizeof(*facts));
	facts[FACT_LIBRARY] = LEAD_VERSION;
	facts[FACT_INTERFACE] = r->abi_version;
	if (r->magic != TFMC_RECORD_MAGIC || r->abi_version != TFMC_ABI_VERSION || r->n_dims > TFMC_DIMS_MAX)
		return;
	facts[FACT_OBJECT] = r->structure_hash;
	facts[FACT_PROGRAM] = r->program_hash;
	facts[FACT_WEIGHTS] = r->weights_hash;
	facts[FACT_RANKS] = (uint64_t)r->ranks;
	facts[FACT_BATCH] = (uint64_t)o->batch;
	facts[FACT_CALL_TOKENS] = (uint64_t)o->call_tokens;
	facts[FACT_CONTEXT] = (uint64_t)o->context;
	facts[FACT_VARIANT] = o->variant ? (uint64_t)tfmc_variant_find(r, o->variant) : UINT64_MAX;
	for (uint64_t i = 0; i < r->n_dims; i++)
		facts[FACT_DIM + i] = (uint64_t)(o->dims_max ? o->dims_max[i] : tfmc_record_dim_at(r, i)->hi);
}

/* E_RANKS, with a message about a fact in which the rank differs from rank 0; facts [n, N_FACTS]. Hashes have no value
 * that is of use in a message. */
static int report_difference(const struct tfmc_session_options *o, const struct tfmc_record *r, size_t fact,
                             int64_t rank, const uint64_t *facts)
{
	int64_t first = (int64_t)facts[fact], value = (int64_t)facts[(size_t)rank * N_FACTS + fact];
	if (fact >= FACT_DIM)
		return message(o, TFMC_RT_E_RANKS,
		               "rank %" PRId64 " differs from rank 0 in the bound of dim %s: %" PRId64
		               ", not %" PRId64,
		               rank, tfmc_record_text(r, tfmc_record_dim_at(r, fact - FACT_DIM)->name), value,
		               first);
	if (!fact_texts[fact].has_value)
		return message(o, TFMC_RT_E_RANKS, "rank %" PRId64 " differs from rank 0 in %s", rank,
		               fact_texts[fact].name);
	return message(o, TFMC_RT_E_RANKS,
	               "rank %" PRId64 " differs from rank 0 in %s: %" PRId64 ", not %" PRId64, rank,
	               fact_texts[fact].name, value, first);
}

/* Reports the first fact in which a rank differs from rank 0, and the first such rank. */
static int compare_facts(const struct tfmc_session_options *o, const struct tfmc_record *r,
                         const uint64_t *facts)
{
	for (size_t fact = 0; fact < N_FACTS; fact++)
		for (int64_t rank = 1; rank < o->ranks->n; rank++)
			if (facts[(size_t)rank * N_FACTS + fact] != facts[fact])
				return report_difference(o, r, fact, rank, facts);
	return TFMC_RT_OK;
}

/* Every rank compares the facts of all, so that all return the same. The object's number of ranks is compared with
 * the table's last: a fact that differs says more. */
int lead_compare(const struct tfmc_session_options *o, const struct tfmc_record *r)
{
	uint64_t facts[N_FACTS];
	if (!o->ranks)
		return TFMC_RT_OK;
	TRY(check_table(o->ranks));
	uint64_t *all = calloc((size_t)o->ranks->n * N_FACTS, sizeof(*all));
	if (!all)
		return TFMC_RT_E_MEMORY;
	read_facts(o, r, facts);
	int status = gather_words(o->ranks, facts, N_FACTS, all);
	if (status == TFMC_RT_OK)
		status = compare_facts(o, r, all);
	free(all);
	if (status == TFMC_RT_OK && facts[FACT_RANKS] && (int64_t)facts[FACT_RANKS] != o->ranks->n)
		status = message(o, TFMC_RT_E_RANKS,
		                 "the object is for %" PRId64 " ranks, and there are %" PRId64,
		                 (int64_t)facts[FACT_RANKS], o->ranks->n);
	return status;
}

/* Reports a rank that failed to open, or has weights of another rank or set; TFMC_RT_OK: it has not. */
static int report_opened(const struct tfmc_session_options *o, int64_t rank, const struct lead_opened *its,
                         const struct lead_opened *first)
{
	if (its->status != TFMC_RT_OK)
		return message(o, its->status, "rank %" PRId64 ": %s", rank,
		               tfmc_rt_status_text(its->status));
	if (its->weights_rank != rank)
		return message(o, TFMC_RT_E_RANKS, "rank %" PRId64 " has the weights of rank %" PRId64, rank,
		               its->weights_rank);
	if (its->weights_hash != first->weights_hash)
		return message(o, TFMC_RT_E_RANKS,
		               "rank %" PRId64 " differs from rank 0 in the set of its weights", rank);
	return TFMC_RT_OK;
}

int lead_collect(const struct tfmc_session_options *o, const struct lead_opened *own, int64_t *lowest,
                 int64_t *highest)
{
	enum { N_WORDS = 4 };
	const int64_t own_rank = o->ranks ? o->ranks->rank : 0;
	/* whose weights relative to the rank, which is the same on ranks that agree */
	const uint64_t words[N_WORDS] = {(uint64_t)own->status, (uint64_t)own->variant,
	                                 (uint64_t)(own->weights_rank - own_rank), own->weights_hash};
	struct lead_opened first = *own;
	*lowest = *highest = own->variant;
	if (!o->ranks)
		return own->status;
	uint64_t *all = calloc((size_t)o->ranks->n * N_WORDS, sizeof(*all));
	if (!all)
		return TFMC_RT_E_MEMORY;
	int status = gather_words(o->ranks, words, N_WORDS, all);
	for (int64_t rank = 0; status == TFMC_RT_OK && rank < o->ranks->n; rank++) {
		const uint64_t *w = all + rank * N_WORDS;
		const struct lead_opened its = {(int)w[0], (int64_t)w[1], (int64_t)w[2] + rank, w[3]};
		first = rank == 0 ? its : first;
		*lowest = its.variant < *lowest ? its.variant : *lowest;
		*highest = its.variant > *highest ? its.variant : *highest;
		status = report_opened(o, rank, &its, &first);
	}
	free(all);
	return status;
}

/* ---- acts ---- */

#define SMALL_BYTES 480

/* One broadcast, of an act with a small payload: that of a decode step is. A larger one comes in a second
 * broadcast. */
struct packet {
	struct act act;
	unsigned char small[SMALL_BYTES];
};

void lead_close(struct lead *l)
{
	free(l->payload);
	*l = (struct lead){0};
}

static int broadcast(const struct lead *l, void *data, uint64_t bytes)
{
	return l->ranks->broadcast(l->ranks->user, data, bytes) ? TFMC_RT_E_RANK : TFMC_RT_OK;
}

static uint64_t align(uint64_t at)
{
	return (at + PAYLOAD_ALIGN - 1) / PAYLOAD_ALIGN * PAYLOAD_ALIGN;
}

/* Makes room for a payload of `bytes`; the contents are lost. */
static int reserve_payload(struct lead *l, uint64_t bytes)
{
	if (bytes <= l->capacity)
		return TFMC_RT_OK;
	uint64_t capacity = align(bytes);
	void *payload = aligned_alloc(PAYLOAD_ALIGN, (size_t)capacity);
	if (!payload)
		return TFMC_RT_E_MEMORY;
	free(l->payload);
	l->payload = payload;
	l->capacity = capacity;
	return TFMC_RT_OK;
}

/* A follower receives a packet of fixed size without knowing the act: one broadcast for most, such as decode steps;
 * a larger payload follows in a second one. */
int lead_send(struct lead *l, const struct act *act, const void *payload)
{
	struct packet packet = {.act = *act};
	if (!l->ranks)
		return TFMC_RT_OK;
	if (l->ranks->rank != 0)
		return TFMC_RT_E_RANKS;
	bool is_small = act->bytes <= SMALL_BYTES;
	if (is_small && act->bytes)
		memcpy(packet.small, payload, (size_t)act->bytes);
	TRY(broadcast(l, &packet, sizeof(packet)));
	return is_small ? (int)TFMC_RT_OK : broadcast(l, (void *)(uintptr_t)payload, act->bytes);
}

/* The packet comes from another process: kind and sizes are checked before they are used. */
int lead_receive(struct lead *l, struct act *act)
{
	struct packet packet;
	TRY(broadcast(l, &packet, sizeof(packet)));
	*act = packet.act;
	if (act->kind < 0 || act->kind > ACT_CLOSE || act->bytes > PAYLOAD_MAX)
		return TFMC_RT_E_RANK;
	TRY(reserve_payload(l, act->bytes));
	if (act->bytes > SMALL_BYTES)
		TRY(broadcast(l, l->payload, act->bytes));
	else if (act->bytes)
		memcpy(l->payload, packet.small, (size_t)act->bytes);
	bool is_whole = /* the payload has an i64 for each sequence that is reordered */
	        act->kind != ACT_REORDER || act->a <= 0 || act->bytes / sizeof(int64_t) >= (uint64_t)act->a;
	return is_whole ? TFMC_RT_OK : TFMC_RT_E_RANK;
}

/* ---- calls ---- */

/* At the beginning of a call; its present inputs follow, all at multiples of PAYLOAD_ALIGN. */
struct call_head {
	int64_t entry;
	int64_t dims[TFMC_DIMS_MAX];          /* of the record; 0: the entry does not use it */
	uint8_t is_present[TFMC_TENSORS_MAX]; /* 0: the input takes its default */
};

/* Elements of the inputs of a call and their byte offsets from its beginning. */
struct call_layout {
	uint64_t counts[TFMC_TENSORS_MAX], offsets[TFMC_TENSORS_MAX];
	uint64_t bytes; /* of the call */
};

/* Finds where the present inputs of a call stand after its head. False: they do not fit into a payload, or the dims
 * have no such sizes. Leader and followers derive the same layout from the record and the dims, so offsets are not
 * sent. */
static bool layout_inputs(const struct tfmc_record *r, const struct call_head *head, struct call_layout *out)
{
	*out = (struct call_layout){.bytes = sizeof(*head)};
	for (uint64_t i = 0; i < tfmc_entry_at(r, head->entry)->n_inputs; i++) {
		const struct tfmc_record_tensor *t = tfmc_entry_input(r, head->entry, i);
		int64_t count = tfmc_tensor_count(r, t, head->dims);
		if (!head->is_present[i])
			continue;
		if (count < 0 || (uint64_t)count > PAYLOAD_MAX)
			return false;
		out->counts[i] = (uint64_t)count;
		out->offsets[i] = align(out->bytes);
		out->bytes = out->offsets[i] + (uint64_t)count * tfmc_dtype_bytes(t->dtype);
	}
	return out->bytes <= PAYLOAD_MAX;
}

/* head = the entry and the dims that it uses, within their bounds (else E_DIM); the others are 0, since a caller need
 * not set them and all ranks must send the same bytes. */
static int read_dims(const struct tfmc_record *r, const struct session_call *c, struct call_head *head)
{
	const struct tfmc_record_entry *e = tfmc_entry_at(r, c->entry);
	const uint64_t *numbers = (const void *)((const char *)r + e->dims);
	*head = (struct call_head){.entry = c->entry};
	for (uint64_t i = 0; i < e->n_dims; i++) {
		const struct tfmc_record_dim *dim = tfmc_record_dim_at(r, numbers[i]);
		int64_t value = c->dims[numbers[i]];
		if (value < dim->lo || value > dim->hi)
			return TFMC_RT_E_DIM;
		head->dims[numbers[i]] = value;
	}
	return TFMC_RT_OK;
}

/* The buffer, unless absent, has an element for each one of the tensor. */
static int check_buffer(const struct tfmc_record *r, const struct tfmc_record_tensor *t, const int64_t *dims,
                        const struct tfmc_buffer *b)
{
	int64_t count = tfmc_tensor_count(r, t, dims);
	if (count < 0)
		return TFMC_RT_E_DIM;
	return b->data && b->count < (uint64_t)count ? TFMC_RT_E_SIZE : TFMC_RT_OK;
}

/* Checks the arguments of a call, and lays them out. Outputs are checked here since followers have none: the call
 * would fail on the leader alone. */
static int describe_call(const struct tfmc_record *r, const struct session_call *c, struct call_head *head,
                         struct call_layout *layout)
{
	const struct tfmc_record_entry *e = tfmc_entry_at(r, c->entry);
	TRY(read_dims(r, c, head));
	for (uint64_t i = 0; i < e->n_inputs; i++)
		TRY(check_buffer(r, tfmc_entry_input(r, c->entry, i), head->dims, &c->inputs[i]));
	for (uint64_t i = 0; i < e->n_outputs; i++)
		TRY(check_buffer(r, tfmc_entry_output(r, c->entry, i), head->dims, &c->outputs[i]));
	for (uint64_t i = 0; i < e->n_inputs; i++)
		head->is_present[i] = c->inputs[i].data != NULL;
	return layout_inputs(r, head, layout) ? TFMC_RT_OK : TFMC_RT_E_SIZE;
}

/* Appends a call to a payload that ends at `at`; NULL: only finds where it would end. */
static int append_call(const struct tfmc_record *r, const struct session_call *c, char *payload, uint64_t *at)
{
	struct call_head head;
	struct call_layout layout;
	TRY(describe_call(r, c, &head, &layout));
	const uint64_t begin = align(*at);
	*at = begin + layout.bytes;
	if (!payload)
		return *at <= PAYLOAD_MAX ? TFMC_RT_OK : TFMC_RT_E_SIZE;
	memcpy(payload + begin, &head, sizeof(head));
	for (uint64_t i = 0; i < tfmc_entry_at(r, c->entry)->n_inputs; i++)
		if (layout.counts[i])
			memcpy(payload + begin + layout.offsets[i], c->inputs[i].data,
			       (size_t)(layout.counts[i] *
			                tfmc_dtype_bytes(tfmc_entry_input(r, c->entry, i)->dtype)));
	return TFMC_RT_OK;
}

/* The first pass checks all calls and measures the payload, the second one fills it. It is zeroed, so that gaps for
 * alignment send no bytes of other data. */
int lead_send_calls(struct lead *l, const struct tfmc_record *r, const struct session_call *calls, uint64_t n)
{
	uint64_t bytes = 0, at = 0;
	if (!l->ranks)
		return TFMC_RT_OK;
	if (l->ranks->rank != 0)
		return TFMC_RT_E_RANKS;
	for (uint64_t i = 0; i < n; i++)
		TRY(append_call(r, &calls[i], NULL, &bytes));
	TRY(reserve_payload(l, bytes));
	memset(l->payload, 0, (size_t)bytes);
	for (uint64_t i = 0; i < n; i++)
		TRY(append_call(r, &calls[i], l->payload, &at));
	return lead_send(l, &(struct act){.kind = ACT_CALLS, .a = (int64_t)n, .bytes = bytes}, l->payload);
}

/* The bytes come from another process: entry, sizes and end are checked before they are used. */
int lead_read_call(const struct lead *l, const struct tfmc_record *r, const struct act *act, int64_t i,
                   uint64_t *at, struct session_call *out)
{
	struct call_head head;
	struct call_layout layout;
	const uint64_t begin = align(*at);
	if (begin + sizeof(head) > act->bytes)
		return TFMC_RT_E_RANK;
	char *call = (char *)l->payload + begin;
	memcpy(&head, call, sizeof(head));
	const struct tfmc_record_entry *e = tfmc_entry_at(r, head.entry);
	if (!e || e->n_dims > TFMC_DIMS_MAX || e->n_inputs + e->n_outputs > TFMC_TENSORS_MAX ||
	    !layout_inputs(r, &head, &layout))
		return TFMC_RT_E_RANK;
	*at = begin + layout.bytes;
	if (i + 1 < act->a ? *at > act->bytes : *at != act->bytes)
		return TFMC_RT_E_RANK;
	*out = (struct session_call){.entry = head.entry};
	memcpy(out->dims, head.dims, sizeof(head.dims));
	for (uint64_t k = 0; k < e->n_inputs; k++)
		if (head.is_present[k])
			out->inputs[k] = (struct tfmc_buffer){call + layout.offsets[k], layout.counts[k]};
	return TFMC_RT_OK;
}
