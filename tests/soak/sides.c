/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two models, each with a session on the processor and one on an OpenCL device, all open at once: slots are joined,
 * forked, trimmed and left on both; a sequence that one side has saved goes on at the other one.
 *
 *	sides
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tfmc_rt.h"

#include "dates.h"
#include "names.h"

enum { PROCESSOR, DEVICE, SIDES };
enum { BATCH = 4, SAVED = 1 << 20, TOKENS = 12 };

#define TOLERANCE 1e-4F

struct pair {
	const char *name;
	struct tfmc_session *session[SIDES];
	struct tfmc_slots *slots[SIDES];
};

static void expect(const struct pair *p, const char *what, int status)
{
	if (status == TFMC_RT_OK)
		return;
	fprintf(stderr, "%s: %s: %s\n", p->name, what, tfmc_session_status_text(p->session[DEVICE], status));
	exit(1);
}

static void fail(const struct pair *p, const char *what)
{
	fprintf(stderr, "%s: %s\n", p->name, what);
	exit(1);
}

static struct pair open_pair(const char *name, struct tfmc_model model)
{
	struct pair p = {.name = name};
	const char *device = tfmc_variant_name(model.record, 1);
	for (int i = 0; i < SIDES; i++) {
		struct tfmc_session_options o = {.struct_size = sizeof(o), .batch = BATCH};
		o.variant = tfmc_variant_name(model.record, i);
		expect(&p, "open", tfmc_session_open(&model, &o, &p.session[i]));
		expect(&p, "slots", tfmc_slots_open(p.session[i], &p.slots[i]));
	}
	if (!device || strcmp(tfmc_session_variant(p.session[DEVICE]), device) != 0)
		fail(&p, "the second variant does not run");
	return p;
}

static void close_pair(struct pair *p)
{
	for (int i = 0; i < SIDES; i++) {
		tfmc_slots_close(p->slots[i]);
		tfmc_session_close(p->session[i]);
	}
}

/* Slot a of one side has the logits that slot b of the other one has. */
static void compare(const struct pair *p, const char *what, int64_t a, int64_t b)
{
	const float *x = tfmc_slots_logits(p->slots[PROCESSOR], a);
	const float *y = tfmc_slots_logits(p->slots[DEVICE], b);
	if (!x || !y || tfmc_slots_length(p->slots[PROCESSOR], a) != tfmc_slots_length(p->slots[DEVICE], b))
		fail(p, what);
	for (int64_t i = 0; i < tfmc_slots_vocabulary(p->slots[DEVICE]); i++)
		if (!(fabsf(x[i] - y[i]) <= TOLERANCE * (1 + fabsf(x[i]))))
			fail(p, what);
}

static void step(const struct pair *p, const char *what, const int64_t slots[], uint64_t n, int32_t id)
{
	struct tfmc_slot_token tokens[BATCH] = {{0}};
	for (uint64_t i = 0; i < n; i++)
		tokens[i] = (struct tfmc_slot_token){slots[i], id + (int32_t)i};
	for (int i = 0; i < SIDES; i++)
		expect(p, what, tfmc_slots_step(p->slots[i], tokens, n));
	for (uint64_t i = 0; i < n; i++)
		compare(p, what, slots[i], slots[i]);
}

static int64_t join(const struct pair *p, uint64_t n, int32_t id)
{
	int32_t ids[TOKENS], source[TOKENS];
	int64_t slot[SIDES];
	for (uint64_t i = 0; i < n; i++)
		ids[i] = source[i] = 3 + (int32_t)((i * 5 + (uint64_t)id) % 8);
	int has_source = strcmp(p->name, "dates") == 0;
	for (int i = 0; i < SIDES; i++)
		expect(p, "join",
		       tfmc_slots_join(p->slots[i], ids, has_source ? 2 : n, source, has_source ? n : 0,
		                       &slot[i]));
	if (slot[PROCESSOR] != slot[DEVICE])
		fail(p, "another slot");
	compare(p, "join", slot[PROCESSOR], slot[DEVICE]);
	return slot[DEVICE];
}

static void fork_all(const struct pair *p, int64_t slot, int64_t *copy)
{
	int64_t here[SIDES];
	for (int i = 0; i < SIDES; i++)
		expect(p, "fork", tfmc_slots_fork(p->slots[i], slot, &here[i]));
	if (here[PROCESSOR] != here[DEVICE])
		fail(p, "another slot");
	*copy = here[DEVICE];
}

static void leave(const struct pair *p, int64_t slot)
{
	for (int i = 0; i < SIDES; i++)
		expect(p, "leave", tfmc_slots_leave(p->slots[i], slot));
}

static void use_slots(const struct pair *p)
{
	int64_t a = join(p, 7, 1), b = join(p, 4, 2), c;
	step(p, "step of two", (int64_t[]){a, b}, 2, 5);
	fork_all(p, a, &c);
	step(p, "step of three", (int64_t[]){c, a, b}, 3, 8);
	for (int i = 0; i < SIDES; i++)
		expect(p, "trim", tfmc_slots_trim(p->slots[i], a, 2));
	step(p, "step after trim", (int64_t[]){a, c}, 2, 4);
	leave(p, b);
	b = join(p, 5, 9);
	step(p, "step of a new one", (int64_t[]){b, c}, 2, 6);
	leave(p, a);
	leave(p, b);
	leave(p, c);
}

/* A sequence that `from` saved continues identically at the other side. */
static void carry(const struct pair *p, int from)
{
	static char bytes[SAVED];
	struct tfmc_slots *source = p->slots[from], *target = p->slots[1 - from];
	int64_t slot = join(p, 6, from), other;
	uint64_t n;
	step(p, "step before saving", &slot, 1, 7);
	expect(p, "save", tfmc_slots_save(source, slot, bytes, SAVED, &n));
	expect(p, "restore", tfmc_slots_restore(target, bytes, n, &other));
	for (int32_t id = 4; id < 7; id++) {
		expect(p, "step", tfmc_slots_step(source, &(struct tfmc_slot_token){slot, id}, 1));
		expect(p, "step", tfmc_slots_step(target, &(struct tfmc_slot_token){other, id}, 1));
		compare(p, "what was restored goes on in another way", from == PROCESSOR ? slot : other,
		        from == PROCESSOR ? other : slot);
	}
	expect(p, "leave", tfmc_slots_leave(target, other));
	leave(p, slot);
}

int main(void)
{
	struct pair pairs[] = {open_pair("dates", dates_model()), open_pair("names", names_model())};
	for (int round = 0; round < 2; round++)
		for (int i = 0; i < 2; i++) {
			use_slots(&pairs[i]);
			carry(&pairs[i], PROCESSOR);
			carry(&pairs[i], DEVICE);
		}
	close_pair(&pairs[0]);
	close_pair(&pairs[1]);
	return 0;
}
