/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pickles: a stack machine. An operation has an operand of fixed width, takes values from the stack (a fixed
 * number, or those above the last mark), and pushes a value. The memo names values by number. The function of an
 * operation runs it; false after a diagnostic, or without memory.
 */
#include "frontend/weights/pickle.h"

#include <string.h>

#include "ir/support/utf8.h"

#define PUSHES_MAX ((size_t)1 << 23) /* 40 for a tensor: 200000 tensors */
#define TEXT_MAX   65536             /* bytes of a string */
#define GLOBAL_MAX 256               /* bytes of a module or name */
#define TO_MARK    (-1)

/* An operation. run NULL: an operation of the format that is refused. */
struct operation {
	const char *name; /* as in pickletools; NULL: not of the format */
	bool (*run)(struct pickle *p, const struct operation *op);
	size_t width;          /* bytes of the operand: an integer */
	int count;             /* values taken from the stack */
	enum pickle_kind kind; /* of the value that is pushed, or that is stored into */
};

bool pickle_error(const struct pickle *p, const char *fmt, ...)
{
	const char *text;
	ARENA_FROM_ARGS(text, p->s->arena, fmt);
	return weight_file_error_at(p->s, p->operation, "its pickle is damaged: %s", text);
}

/* Reports a PICKLE error: `what` is not read. */
static bool refuse(const struct pickle *p, const char *what)
{
	diag_error(p->s->cx, p->s->loc, DIAG_PICKLE,
	           "'%s': at byte %zu: its pickle has %s, which is not read", p->s->name, p->operation, what);
	diag_note(p->s->cx, p->s->loc,
	          "nothing of a pickle is executed; torch.save(model.state_dict(), FILE) writes tensors "
	          "alone, which are read");
	return false;
}

/* ---- the stack ---- */

/* Pushes a value that is there already. The number of pushes is limited, and with it the memory of hostile
 * pickles. */
static bool push_again(struct pickle *p, struct pickle_value *v)
{
	if (p->pushes++ >= PUSHES_MAX) {
		diag_error(p->s->cx, p->s->loc, DIAG_LIMIT,
		           "'%s': at byte %zu: its pickle has more than %zu values", p->s->name, p->operation,
		           PUSHES_MAX);
		return false;
	}
	return ARENA_ADDED(p->arena, &p->stack, v) && !arena_failed(p->arena);
}

static bool push(struct pickle *p, struct pickle_value v)
{
	struct pickle_value *stored = ARENA_NEW(p->arena, struct pickle_value);
	if (stored == NULL)
		return false;
	*stored = v;
	return push_again(p, stored);
}

/* Pops the values that an operation takes, [*n], and with TO_MARK also the mark below them; valid until the next push.
 * NULL after a diagnostic: there are fewer, or a mark is among a fixed number. */
static struct pickle_value **take(struct pickle *p, const struct operation *op, size_t *n)
{
	size_t at = p->stack.n, count = 0;
	bool to_mark = op->count == TO_MARK;
	while (at > 0 && p->stack.items[at - 1]->kind != PICKLE_MARK &&
	       (to_mark || count < (size_t)op->count)) {
		at--;
		count++;
	}
	if (to_mark ? at == 0 : count < (size_t)op->count) {
		pickle_error(p, "%s takes values that are not there", op->name);
		return NULL;
	}
	*n = count;
	p->stack.n = to_mark ? at - 1 : at;
	return p->stack.items + at;
}

/* The last value, below those that were taken; NULL after a diagnostic. */
static struct pickle_value *top(struct pickle *p, const struct operation *op)
{
	struct pickle_value *v = p->stack.n > 0 ? p->stack.items[p->stack.n - 1] : NULL;
	if (v != NULL && v->kind != PICKLE_MARK)
		return v;
	pickle_error(p, "%s takes values that are not there", op->name);
	return NULL;
}

/* ---- operations ---- */

static bool read_protocol(struct pickle *p, const struct operation *op)
{
	(void)op;
	return (p->operand >= 2 && p->operand <= 4) ||
	       refuse(p, arena_printf(p->arena, "protocol %u, not 2 to 4", (unsigned)p->operand));
}

static bool read_frame(struct pickle *p, const struct operation *op)
{
	(void)op;
	return p->operand <= p->end - p->at || pickle_error(p, "it is cut off");
}

static bool push_empty(struct pickle *p, const struct operation *op)
{
	return push(p, (struct pickle_value){.kind = op->kind});
}

/* BININT is signed, the narrower ones are not; NEWTRUE has no operand. */
static bool push_int(struct pickle *p, const struct operation *op)
{
	int64_t i = op->width == 0 ? 1 : op->width == 4 ? (int32_t)p->operand : (int64_t)p->operand;
	return push(p, (struct pickle_value){.kind = PICKLE_INT, .i = i});
}

/* An integer of n bytes, two's complement, sign-extended to 64 bits; longer ones are not needed. */
static bool push_long(struct pickle *p, const struct operation *op)
{
	size_t n = (size_t)p->operand;
	(void)op;
	if (n > p->end - p->at)
		return pickle_error(p, "it is cut off");
	struct pickle_value v = {.kind = n <= 8 ? PICKLE_INT : PICKLE_OTHER};
	if (n > 0 && n <= 8) {
		uint64_t bits = read_little_endian(p->s->bytes + p->at, n), sign = UINT64_C(1) << (8 * n - 1);
		v.i = (int64_t)((bits ^ sign) - sign);
	}
	p->at += n;
	return push(p, v);
}

/* A string of n bytes; bytes, and strings that are not UTF-8 or too long, are values that are not needed. */
static bool push_text(struct pickle *p, const struct operation *op)
{
	const char *text = (const char *)p->s->bytes + p->at;
	uint64_t n = p->operand;
	struct pickle_value v = {.kind = op->kind};
	if (n > p->end - p->at)
		return pickle_error(p, "it is cut off");
	p->at += (size_t)n;
	if (n > TEXT_MAX || memchr(text, '\0', (size_t)n) != NULL || utf8_check(text, (size_t)n) != n)
		v.kind = PICKLE_OTHER;
	if (v.kind == PICKLE_STRING)
		v.text = arena_strndup(p->arena, text, (size_t)n);
	return push(p, v);
}

/* Makes a tuple of the values it takes. */
static bool push_tuple(struct pickle *p, const struct operation *op)
{
	struct pickle_value v = {.kind = PICKLE_TUPLE};
	struct pickle_value **items = take(p, op, &v.n);
	if (items == NULL)
		return false;
	v.items = v.n > 0 ? ARENA_ARRAY(p->arena, struct pickle_value *, v.n) : NULL;
	if (v.n > 0 && v.items == NULL)
		return false;
	for (size_t i = 0; i < v.n; i++)
		v.items[i] = items[i];
	return push(p, v);
}

/* Stores into the list, dict or set below; contents of a set are not needed. */
static bool store(struct pickle *p, const struct operation *op)
{
	size_t n = 0;
	struct pickle_value **items = take(p, op, &n), *target = items != NULL ? top(p, op) : NULL;
	if (target == NULL)
		return false;
	if (target->kind != op->kind || (op->kind == PICKLE_DICT && n % 2 != 0))
		return pickle_error(p, "%s stores into another kind of value", op->name);
	for (size_t i = 0; i < n && op->kind != PICKLE_OTHER; i++)
		ARENA_ADD(p->arena, target, items[i]);
	return !arena_failed(p->arena);
}

/* Stores the last value in the memo, under the operand or, for MEMOIZE, the next number. A pickler numbers each value
 * once, so a number is at most that of the pushes so far, which bounds the memo. */
static bool memoize(struct pickle *p, const struct operation *op)
{
	struct pickle_value *v = top(p, op);
	uint64_t at = op->width == 0 ? p->memo.n : p->operand;
	if (v == NULL)
		return false;
	if (at > p->pushes)
		return pickle_error(p, "%s has the number %llu", op->name, (unsigned long long)at);
	while (p->memo.n <= at && !arena_failed(p->arena))
		ARENA_ADD(p->arena, &p->memo, NULL);
	if (arena_failed(p->arena))
		return false;
	p->memo.items[at] = v;
	return true;
}

static bool push_memoized(struct pickle *p, const struct operation *op)
{
	uint64_t number = p->operand;
	if (number >= p->memo.n || p->memo.items[number] == NULL)
		return pickle_error(p, "%s has the number %llu of no value", op->name,
		                    (unsigned long long)number);
	return push_again(p, p->memo.items[number]);
}

/* Pushes the value that the caller of pickle_read has for a global; others are refused, not imported. */
static bool push_named(struct pickle *p, const char *module, const char *name)
{
	struct pickle_value v = {.kind = PICKLE_OTHER};
	if (!p->find(module, name, &v))
		return refuse(p, arena_printf(p->arena, "the global '%.*s.%.*s'", GLOBAL_MAX, module,
		                              GLOBAL_MAX, name));
	return push(p, v);
}

/* A line of text without its end; NULL after a diagnostic. */
static const char *read_line(struct pickle *p)
{
	const char *text = (const char *)p->s->bytes + p->at;
	size_t left = p->end - p->at, most = left < GLOBAL_MAX + 1 ? left : GLOBAL_MAX + 1;
	const char *end = memchr(text, '\n', most);
	size_t n = end != NULL ? (size_t)(end - text) : 0;
	if (end == NULL || memchr(text, '\0', n) != NULL || utf8_check(text, n) != n) {
		pickle_error(p, "the name of a global is no line of text");
		return NULL;
	}
	p->at += n + 1;
	return arena_strndup(p->arena, text, n);
}

static bool push_global(struct pickle *p, const struct operation *op)
{
	(void)op;
	const char *module = read_line(p), *name = module != NULL ? read_line(p) : NULL;
	return name != NULL && push_named(p, module, name);
}

/* The global whose module and name are on the stack. */
static bool push_stack_global(struct pickle *p, const struct operation *op)
{
	size_t n;
	struct pickle_value **names = take(p, op, &n);
	if (names == NULL)
		return false;
	if (names[0]->kind != PICKLE_STRING || names[1]->kind != PICKLE_STRING)
		return pickle_error(p, "the name of a global is not text");
	return push_named(p, names[0]->text, names[1]->text);
}

/* Calls a function of the reader with a tuple of arguments: nothing else can be called. */
static bool reduce(struct pickle *p, const struct operation *op)
{
	size_t n;
	struct pickle_value v = {.kind = PICKLE_OTHER};
	struct pickle_value **call = take(p, op, &n);
	if (call == NULL)
		return false;
	if (call[0]->kind != PICKLE_FUNCTION || call[1]->kind != PICKLE_TUPLE)
		return pickle_error(p, "%s calls no function with a tuple", op->name);
	return call[0]->call(p, call[1], &v) && push(p, v);
}

/* Attributes of a dict (`_metadata` of a state_dict), which are not needed. */
static bool build(struct pickle *p, const struct operation *op)
{
	size_t n;
	struct pickle_value **attributes = take(p, op, &n), *target = attributes != NULL ? top(p, op) : NULL;
	if (target == NULL)
		return false;
	return (target->kind == PICKLE_DICT && attributes[0]->kind == PICKLE_DICT) ||
	       pickle_error(p, "%s gives attributes to another kind of value than a dict", op->name);
}

/* Replaces a persistent id, a tuple, by the object that the reader finds for it. */
static bool persist(struct pickle *p, const struct operation *op)
{
	size_t n;
	struct pickle_value v = {.kind = PICKLE_OTHER};
	struct pickle_value **id = take(p, op, &n);
	if (id == NULL)
		return false;
	if (id[0]->kind != PICKLE_TUPLE)
		return pickle_error(p, "a persistent id is no tuple");
	return p->persist(p, id[0], &v) && push(p, v);
}

#define STOP '.'

static const struct operation operations[256] = {
        [0x80] = {"PROTO", read_protocol, 1, 0, PICKLE_OTHER},
        [0x95] = {"FRAME", read_frame, 8, 0, PICKLE_OTHER},
        ['N'] = {"NONE", push_empty, 0, 0, PICKLE_OTHER},
        [0x88] = {"NEWTRUE", push_int, 0, 0, PICKLE_INT},
        [0x89] = {"NEWFALSE", push_empty, 0, 0, PICKLE_INT},
        ['J'] = {"BININT", push_int, 4, 0, PICKLE_INT},
        ['K'] = {"BININT1", push_int, 1, 0, PICKLE_INT},
        ['M'] = {"BININT2", push_int, 2, 0, PICKLE_INT},
        [0x8a] = {"LONG1", push_long, 1, 0, PICKLE_INT},
        ['G'] = {"BINFLOAT", push_empty, 8, 0, PICKLE_OTHER},
        ['U'] = {"SHORT_BINSTRING", push_text, 1, 0, PICKLE_STRING},
        ['T'] = {"BINSTRING", push_text, 4, 0, PICKLE_STRING},
        ['X'] = {"BINUNICODE", push_text, 4, 0, PICKLE_STRING},
        [0x8c] = {"SHORT_BINUNICODE", push_text, 1, 0, PICKLE_STRING},
        [0x8d] = {"BINUNICODE8", push_text, 8, 0, PICKLE_STRING},
        ['C'] = {"SHORT_BINBYTES", push_text, 1, 0, PICKLE_OTHER},
        ['B'] = {"BINBYTES", push_text, 4, 0, PICKLE_OTHER},
        [0x8e] = {"BINBYTES8", push_text, 8, 0, PICKLE_OTHER},
        ['('] = {"MARK", push_empty, 0, 0, PICKLE_MARK},
        [')'] = {"EMPTY_TUPLE", push_empty, 0, 0, PICKLE_TUPLE},
        [']'] = {"EMPTY_LIST", push_empty, 0, 0, PICKLE_LIST},
        ['}'] = {"EMPTY_DICT", push_empty, 0, 0, PICKLE_DICT},
        [0x8f] = {"EMPTY_SET", push_empty, 0, 0, PICKLE_OTHER},
        ['t'] = {"TUPLE", push_tuple, 0, TO_MARK, PICKLE_TUPLE},
        [0x85] = {"TUPLE1", push_tuple, 0, 1, PICKLE_TUPLE},
        [0x86] = {"TUPLE2", push_tuple, 0, 2, PICKLE_TUPLE},
        [0x87] = {"TUPLE3", push_tuple, 0, 3, PICKLE_TUPLE},
        ['a'] = {"APPEND", store, 0, 1, PICKLE_LIST},
        ['e'] = {"APPENDS", store, 0, TO_MARK, PICKLE_LIST},
        ['s'] = {"SETITEM", store, 0, 2, PICKLE_DICT},
        ['u'] = {"SETITEMS", store, 0, TO_MARK, PICKLE_DICT},
        [0x90] = {"ADDITEMS", store, 0, TO_MARK, PICKLE_OTHER},
        ['q'] = {"BINPUT", memoize, 1, 0, PICKLE_OTHER},
        ['r'] = {"LONG_BINPUT", memoize, 4, 0, PICKLE_OTHER},
        [0x94] = {"MEMOIZE", memoize, 0, 0, PICKLE_OTHER},
        ['h'] = {"BINGET", push_memoized, 1, 0, PICKLE_OTHER},
        ['j'] = {"LONG_BINGET", push_memoized, 4, 0, PICKLE_OTHER},
        ['c'] = {"GLOBAL", push_global, 0, 0, PICKLE_OTHER},
        [0x93] = {"STACK_GLOBAL", push_stack_global, 0, 2, PICKLE_OTHER},
        ['R'] = {"REDUCE", reduce, 0, 2, PICKLE_OTHER},
        ['b'] = {"BUILD", build, 0, 1, PICKLE_DICT},
        ['Q'] = {"BINPERSID", persist, 0, 1, PICKLE_OTHER},
        /* refused */
        ['P'] = {.name = "PERSID"},
        ['i'] = {.name = "INST"},
        ['o'] = {.name = "OBJ"},
        [0x81] = {.name = "NEWOBJ"},
        [0x92] = {.name = "NEWOBJ_EX"},
        [0x82] = {.name = "EXT1"},
        [0x83] = {.name = "EXT2"},
        [0x84] = {.name = "EXT4"},
        ['0'] = {.name = "POP"},
        ['1'] = {.name = "POP_MARK"},
        ['2'] = {.name = "DUP"},
        ['F'] = {.name = "FLOAT"},
        ['I'] = {.name = "INT"},
        ['L'] = {.name = "LONG"},
        [0x8b] = {.name = "LONG4"},
        ['S'] = {.name = "STRING"},
        ['V'] = {.name = "UNICODE"},
        ['l'] = {.name = "LIST"},
        ['d'] = {.name = "DICT"},
        ['p'] = {.name = "PUT"},
        ['g'] = {.name = "GET"},
        [0x91] = {.name = "FROZENSET"},
        [0x96] = {.name = "BYTEARRAY8"},
        [0x97] = {.name = "NEXT_BUFFER"},
        [0x98] = {.name = "READONLY_BUFFER"},
};

/* Runs one operation: reads its operand, which must be there, and calls its function. */
static bool run_operation(struct pickle *p, unsigned char code)
{
	const struct operation *op = &operations[code];
	if (op->name == NULL)
		return pickle_error(p, "0x%02x is no operation", code);
	if (op->run == NULL)
		return refuse(p, arena_printf(p->arena, "the operation %s", op->name));
	if (op->width > p->end - p->at)
		return pickle_error(p, "it is cut off");
	p->operand = read_little_endian(p->s->bytes + p->at, op->width);
	p->at += op->width;
	return op->run(p, op);
}

/* STOP ends a pickle, with one value on the stack. p->pushes is not reset: its limit is for all pickles of a file,
 * whose values are in one arena. */
bool pickle_read(struct pickle *p, const struct pickle_value **out)
{
	p->stack.n = p->memo.n = 0;
	while (p->at < p->end) {
		p->operation = p->at;
		unsigned char code = p->s->bytes[p->at++];
		if (code == STOP) {
			bool one = p->stack.n == 1 && p->stack.items[0]->kind != PICKLE_MARK;
			*out = one ? p->stack.items[0] : NULL;
			return one || pickle_error(p, "it ends with %zu values, not one", p->stack.n);
		}
		if (!run_operation(p, code))
			return false;
	}
	return pickle_error(p, "it is cut off");
}
