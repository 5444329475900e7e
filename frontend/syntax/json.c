/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON with jansson, whose tree is copied into arena nodes. jansson itself rejects duplicate keys, invalid
 * UTF-8, zero characters, trailing text and integers beyond int64; depth is limited while copying. A copy function
 * that returns false has reported the depth, or memory ran out.
 */
#include "frontend/syntax/json.h"

#include <jansson.h>
#include <string.h>

#include "ir/support/memory.h"

#define DIGITS_MAX 18 /* any integer of 18 digits fits into int64 */

struct copier {
	struct arena *arena;
	struct diag_context *cx;
	const struct json_source *src;
};

static bool copy_node(const struct copier *c, const json_t *from, unsigned depth, struct json_node *to);

/* Copies the elements; `to` has its kind already. */
static bool copy_array(const struct copier *c, const json_t *from, unsigned depth, struct json_node *to)
{
	size_t n = json_array_size(from);
	struct json_node *items = ARENA_ARRAY(c->arena, struct json_node, n);
	to->n = n;
	to->items = items;
	if (n != 0 && (items == NULL || arena_failed(c->arena)))
		return false;
	for (size_t i = 0; i < n; i++) {
		if (!copy_node(c, json_array_get(from, i), depth, &items[i]))
			return false;
	}
	return true;
}

/* Copies keys and values in the order of the text (jansson keeps the order of insertion); `to` has its kind already. */
static bool copy_object(const struct copier *c, const json_t *from, unsigned depth, struct json_node *to)
{
	size_t n = json_object_size(from), i = 0;
	struct json_node *items = ARENA_ARRAY(c->arena, struct json_node, n);
	const char **keys = ARENA_ARRAY(c->arena, const char *, n);
	to->n = n;
	to->items = items;
	to->keys = keys;
	if (n != 0 && (items == NULL || keys == NULL || arena_failed(c->arena)))
		return false;
	/* jansson's iterators take a mutable object, but change nothing. */
	json_t *object = (json_t *)(uintptr_t)from;
	for (void *it = json_object_iter(object); it != NULL; it = json_object_iter_next(object, it), i++) {
		keys[i] = arena_strdup(c->arena, json_object_iter_key(it));
		if (!copy_node(c, json_object_iter_value(it), depth, &items[i]))
			return false;
	}
	return true;
}

/* Copies a value of jansson; the tree itself is freed. depth: arrays and objects around it. */
static bool copy_node(const struct copier *c, const json_t *from, unsigned depth, struct json_node *to)
{
	if (depth >= JSON_DEPTH_MAX && (json_is_array(from) || json_is_object(from))) {
		diag_error(c->cx, c->src->loc, c->src->code, "'%s': JSON is nested deeper than %d levels",
		           c->src->name, JSON_DEPTH_MAX);
		return false;
	}
	switch (json_typeof(from)) {
	case JSON_NULL: to->kind = JSON_NODE_NULL; return true;
	case JSON_TRUE:
	case JSON_FALSE:
		to->kind = JSON_NODE_BOOL;
		to->i = json_typeof(from) == JSON_TRUE;
		return true;
	case JSON_INTEGER:
		to->kind = JSON_NODE_INT;
		to->i = json_integer_value(from);
		return true;
	case JSON_REAL:
		to->kind = JSON_NODE_REAL;
		to->f = json_real_value(from);
		return true;
	case JSON_STRING:
		to->kind = JSON_NODE_STRING;
		to->text = arena_strdup(c->arena, json_string_value(from));
		return true;
	case JSON_ARRAY: to->kind = JSON_NODE_ARRAY; return copy_array(c, from, depth + 1, to);
	case JSON_OBJECT: to->kind = JSON_NODE_OBJECT; return copy_object(c, from, depth + 1, to);
	}
	return false;
}

/* jansson allocates by memory_alloc(), which reports that memory ran out. Any value may be the root; the caller
 * checks its kind. */
const struct json_node *json_parse(struct arena *a, struct diag_context *cx, const struct json_source *src,
                                   const char *text, size_t len)
{
	struct copier c = {a, cx, src};
	json_error_t error;
	if (len > JSON_BYTES_MAX) {
		diag_error(cx, src->loc, src->code, "'%s': JSON of %zu bytes, the limit is %zu", src->name,
		           len, JSON_BYTES_MAX);
		return NULL;
	}
	json_set_alloc_funcs(memory_alloc, memory_free);
	json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
	if (root == NULL) {
		diag_error(cx, src->loc, src->code, "'%s': JSON at byte %zu: %s", src->name,
		           src->base + (error.position < 0 ? 0 : (size_t)error.position), error.text);
		return NULL;
	}
	struct json_node *node = ARENA_NEW(a, struct json_node);
	bool ok = node != NULL && copy_node(&c, root, 0, node);
	json_decref(root);
	return ok && !arena_failed(a) ? node : NULL;
}

const struct json_node *json_find(const struct json_node *object, const char *key)
{
	if (object == NULL || object->kind != JSON_NODE_OBJECT)
		return NULL;
	for (size_t i = 0; i < object->n; i++) {
		if (strcmp(object->keys[i], key) == 0)
			return &object->items[i];
	}
	return NULL;
}

/* Scans numbers outside of strings. Digits become spaces, so that all byte offsets in diagnostics stay. */
const char *json_truncate_long_ints(struct arena *a, const char *text, size_t len)
{
	char *copy = arena_alloc(a, len + 1);
	bool quoted = false;
	if (copy == NULL)
		return NULL;
	memcpy(copy, text, len + 1); /* texts from file_read have a terminating zero byte */
	for (size_t i = 0; i < len; i++) {
		if (!quoted && strchr("-0123456789", text[i]) != NULL && text[i] != '\0') {
			size_t begin = i + (text[i] == '-'), digits = strspn(text + begin, "0123456789");
			size_t n = strspn(text + i, "+-.eE0123456789");     /* bytes of the whole number */
			if (digits > DIGITS_MAX && begin + digits == i + n) /* an integer, no real */
				memset(copy + begin + DIGITS_MAX, ' ', digits - DIGITS_MAX);
			i += n - 1;
		} else if (text[i] == '"') {
			quoted = !quoted;
		} else if (quoted && text[i] == '\\') {
			i++;
		}
	}
	return copy;
}

/* ---- offsets of keys ---- */

/* Scanner over a text that json_parse accepted: it checks nothing again. */
struct json_scan {
	const char *p, *end;
};

static void skip_space(struct json_scan *s)
{
	while (s->p < s->end && strchr(" \t\r\n", *s->p) != NULL)
		s->p++;
}

/* Skips a string from its opening quote; an escaped quote does not end it. */
static void skip_string(struct json_scan *s)
{
	for (s->p++; s->p < s->end && *s->p != '"'; s->p++)
		s->p += *s->p == '\\';
	s->p++;
}

/* Skips a value, up to the comma or bracket after it: brackets are counted, strings skipped as a whole. */
static void skip_value(struct json_scan *s)
{
	int depth = 0;
	while (s->p < s->end) {
		if (depth == 0 && strchr(",]}", *s->p) != NULL)
			return;
		if (*s->p == '"') {
			skip_string(s);
			continue;
		}
		depth += *s->p == '{' || *s->p == '[' ? 1 : *s->p == '}' || *s->p == ']' ? -1 : 0;
		s->p++;
	}
}

/* Finds the key `path`, names joined by dots, in the object that begins at s.p, and the length of its text with
   quotes. A name may itself have dots, so that each key is compared as a whole. Recursion is bounded by
   JSON_DEPTH_MAX. NULL: there is none. */
static const char *find_key_text(struct json_scan s, const char *path, size_t *n)
{
	for (s.p++; s.p < s.end;) {
		skip_space(&s);
		if (s.p >= s.end || *s.p != '"')
			return NULL;
		const char *key = s.p;
		skip_string(&s);
		size_t len = (size_t)(s.p - key) - 2;
		bool begins = s.p <= s.end && strncmp(path, key + 1, len) == 0;
		*n = len + 2;
		if (begins && path[len] == '\0')
			return key;
		skip_space(&s);
		s.p++;
		skip_space(&s);
		const char *inner = NULL;
		if (begins && path[len] == '.' && s.p < s.end && *s.p == '{')
			inner = find_key_text(s, path + len + 1, n);
		if (inner != NULL)
			return inner;
		skip_value(&s);
		if (s.p >= s.end || *s.p != ',')
			return NULL;
		s.p++;
	}
	return NULL;
}

bool json_key_offset(const char *text, size_t len, const char *path, size_t *at, size_t *n)
{
	struct json_scan s = {text, text + len};
	skip_space(&s);
	const char *key = s.p < s.end && *s.p == '{' ? find_key_text(s, path, n) : NULL;
	*at = key == NULL ? 0 : (size_t)(key - text);
	return key != NULL;
}

/* Columns count characters, not bytes. */
struct loc json_key_loc(const char *text, size_t len, uint32_t source, const char *path, struct loc otherwise)
{
	size_t at, n;
	if (source == 0 || !json_key_offset(text, len, path, &at, &n))
		return otherwise;
	struct loc loc = {.source = source, .line = 1, .col = 1, .len = (uint32_t)n};
	for (size_t i = 0; i < at; i++) {
		bool begins = ((unsigned char)text[i] & 0xc0) != 0x80; /* first byte of a character */
		loc.col = text[i] == '\n' ? 1 : loc.col + begins;
		loc.line += text[i] == '\n';
	}
	return loc;
}
