/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libyaml events to the tree with locations; the only file that includes libyaml. One loop over the events with
 * an explicit stack: nesting uses no C stack and is limited before libyaml reads on. Lines and columns are
 * computed here from libyaml's character indices, since its own line numbers also count breaks that editors do
 * not show (NEL, LS, PS). Encoding errors and control characters, which libyaml would report without a useful
 * position, are checked first.
 * A frame of the stack is an open mapping or sequence. Errors that leave the tree usable let reading go on, to report
 * more than one.
 */
#include "frontend/syntax/yaml_tree.h"

#include <string.h>
#include <yaml.h>

#include "frontend/syntax/files.h"
#include "ir/support/memory.h"
#include "ir/support/strmap.h"
#include "ir/support/utf8.h"

#define LINEAR_KEYS \
	8 /* mappings up to this size are searched linearly for duplicate keys, larger ones with a hash table */

/* A text position that only moves forward. */
struct cursor {
	size_t byte, index; /* index: code points before this position */
	uint32_t line, col;
};

struct frame {
	struct yaml_node *node;
	size_t n, cap;
	const struct yaml_node *key; /* mapping: a key whose value has not been read yet */
	struct strmap seen; /* keys seen so far, used from LINEAR_KEYS on; values are the key nodes */
};

struct reader {
	struct arena *arena;
	struct diag_context *cx;
	uint32_t source;
	const char *text;
	size_t len;
	yaml_parser_t parser;
	struct cursor at; /* start of the newest node */
	struct frame stack[YAML_DEPTH_MAX];
	size_t depth, n_nodes;
	size_t n_documents;
	struct yaml_node *root;
	bool done, fatal, failed; /* failed: an error was reported; fatal: and reading stops */
};

/* Moves the cursor to a code point; lines end at LF only, as editors count them. */
static void advance(const struct reader *r, struct cursor *c, size_t index)
{
	while (c->index < index && c->byte < r->len) {
		uint32_t cp = 0;
		size_t n = utf8_decode(r->text + c->byte, r->len - c->byte, &cp);
		c->byte += n == 0 ? 1 : n;
		c->index++;
		c->col++;
		if (cp == '\n') {
			c->line++;
			c->col = 1;
		}
	}
}

static struct cursor cursor_start(void)
{
	return (struct cursor){0, 0, 1, 1};
}

static struct loc loc_of(const struct reader *r, struct cursor c, uint32_t len)
{
	return (struct loc){r->source, c.line, c.col, len};
}

/* Only for errors: scans from the start of the text. */
static struct loc loc_of_index(const struct reader *r, size_t index)
{
	struct cursor c = cursor_start();
	advance(r, &c, index);
	return loc_of(r, c, 1);
}

static struct loc loc_of_byte(const struct reader *r, size_t byte)
{
	return loc_of_index(r, utf8_count(r->text, byte < r->len ? byte : r->len));
}

/* ---- the text as a whole ---- */

/* The characters that YAML 1.2 allows (c-printable), without DEL and the C1 controls but NEL. */
static bool is_yaml_char(uint32_t cp)
{
	return cp == '\t' || cp == '\n' || cp == '\r' || (cp >= 0x20 && cp <= 0x7E) || cp == 0x85 ||
	       (cp >= 0xA0 && cp != 0xFFFE && cp != 0xFFFF);
}

/* False after a diagnostic at the first byte that is not UTF-8, or character that YAML does not allow; libyaml would
 * report it without a useful position. */
static bool check_encoding(struct reader *r)
{
	for (size_t at = 0; at < r->len;) {
		uint32_t cp = 0;
		size_t n = utf8_decode(r->text + at, r->len - at, &cp);
		if (n == 0) {
			diag_error(r->cx, loc_of_byte(r, at), DIAG_ENCODING,
			           "the byte 0x%02x at offset %zu is not valid UTF-8",
			           (unsigned)(unsigned char)r->text[at], at);
			return false;
		}
		if (!is_yaml_char(cp)) {
			diag_error(r->cx, loc_of_byte(r, at), DIAG_ENCODING,
			           "the control character U+%04X at offset %zu is not allowed", (unsigned)cp,
			           at);
			return false;
		}
		at += n;
	}
	return true;
}

/* ---- nodes ---- */

/* Makes a node at an event and moves r->at there; events come in order of the text, so that each character is passed
 * once. NULL, and r->fatal: too many nodes, or no memory. */
static struct yaml_node *new_node(struct reader *r, enum yaml_kind kind, const yaml_mark_t *start)
{
	advance(r, &r->at, start->index);
	if (++r->n_nodes > YAML_NODES_MAX) {
		diag_error(r->cx, loc_of(r, r->at, 1), DIAG_LIMIT, "the document has more than %d nodes",
		           YAML_NODES_MAX);
		r->fatal = true;
		return NULL;
	}
	struct yaml_node *node = ARENA_NEW(r->arena, struct yaml_node);
	if (node == NULL || arena_failed(r->arena)) {
		r->fatal = true;
		return NULL;
	}
	node->kind = kind;
	node->loc = loc_of(r, r->at, 1);
	return node;
}

/* Length of the node on its first line, in code points, for the underline of messages. */
static uint32_t first_line_len(const struct reader *r, const yaml_mark_t *end)
{
	struct cursor c = r->at;
	while (c.index < end->index && c.byte < r->len && r->text[c.byte] != '\n' && r->text[c.byte] != '\r')
		advance(r, &c, c.index + 1);
	return (uint32_t)(c.index - r->at.index);
}

/* True if the source contains the scalar's text verbatim on one line, after a quote if with_quotes, and before the
 * same one: then there were no escapes. Block scalars (quoted, without quotes) never are. */
static bool is_verbatim(const struct reader *r, const struct yaml_node *node, bool with_quotes)
{
	size_t from = r->at.byte + (with_quotes ? 1 : 0);
	size_t need = node->len + (with_quotes ? 1 : 0);
	if (node->quoted && !with_quotes)
		return false;
	if (from > r->len || r->len - from < need || memchr(node->text, '\n', node->len) != NULL)
		return false;
	if (memcmp(r->text + from, node->text, node->len) != 0)
		return false;
	return !with_quotes || r->text[from + node->len] == r->text[r->at.byte];
}

static bool is_null_text(const char *s)
{
	return s[0] == '\0' || strcmp(s, "~") == 0 || strcmp(s, "null") == 0;
}

/* Makes the node of a scalar event. NULL, and r->fatal: too long, or no memory. A zero character, which an escape can
 * write, ends the text. */
static struct yaml_node *new_scalar(struct reader *r, const yaml_event_t *ev)
{
	struct yaml_node *node = new_node(r, YAML_SCALAR, &ev->start_mark);
	const char *value = (const char *)ev->data.scalar.value;
	size_t len = ev->data.scalar.length;
	yaml_scalar_style_t style = ev->data.scalar.style;
	if (node == NULL)
		return NULL;
	if (len > YAML_SCALAR_MAX) {
		diag_error(r->cx, node->loc, DIAG_LIMIT, "the scalar has %zu bytes, the limit is %zu", len,
		           YAML_SCALAR_MAX);
		r->fatal = true;
		return NULL;
	}
	if (memchr(value, '\0', len) != NULL) {
		diag_error(r->cx, node->loc, DIAG_YAML, "the text contains a zero character");
		r->failed = true;
		len = strlen(value);
	}
	node->text = arena_strndup(r->arena, value, len);
	node->len = arena_failed(r->arena) ? 0 : len;
	node->quoted = style != YAML_PLAIN_SCALAR_STYLE && style != YAML_ANY_SCALAR_STYLE;
	node->null = !node->quoted && is_null_text(node->text);
	node->exact = is_verbatim(r, node,
	                          style == YAML_SINGLE_QUOTED_SCALAR_STYLE ||
	                                  style == YAML_DOUBLE_QUOTED_SCALAR_STYLE);
	node->loc.len = first_line_len(r, &ev->end_mark);
	return node;
}

/* ---- adding nodes to their parents ---- */

/* The earlier key of a mapping with this text; NULL: none. */
static const struct yaml_node *find_key(const struct frame *f, const char *text)
{
	if (f->seen.arena != NULL)
		return strmap_get(&f->seen, text);
	for (size_t i = 0; i < f->n; i++) {
		if (strcmp(f->node->pairs[i].key->text, text) == 0)
			return f->node->pairs[i].key;
	}
	return NULL;
}

/* Adds a key to those seen; with LINEAR_KEYS keys before it the hash table is made of all of them, so that large
 * mappings take linear time. */
static void index_key(struct reader *r, struct frame *f, const struct yaml_node *key)
{
	if (f->seen.arena == NULL && f->n == LINEAR_KEYS) {
		strmap_init(&f->seen, r->arena);
		for (size_t i = 0; i < f->n; i++)
			strmap_set(&f->seen, f->node->pairs[i].key->text, (void *)f->node->pairs[i].key);
	}
	if (f->seen.arena != NULL)
		strmap_set(&f->seen, key->text, (void *)key);
}

/* Begins a pair after checking its key: scalar, unique, not a merge key; its value follows. */
static void begin_pair(struct reader *r, struct frame *f, const struct yaml_node *key)
{
	f->key = key;
	if (key->kind != YAML_SCALAR) {
		diag_error(r->cx, key->loc, DIAG_YAML, "a key must be a scalar, found %s",
		           yaml_describe(r->arena, key));
		r->fatal = true;
		return;
	}
	if (!key->quoted && strcmp(key->text, "<<") == 0) {
		diag_error(r->cx, key->loc, DIAG_ALIAS,
		           "merge keys are not allowed; write the keys out, or use 'define' or 'base'");
		r->failed = true;
	}
	if (utf8_count(key->text, key->len) > YAML_KEY_MAX) {
		diag_error(r->cx, key->loc, DIAG_LIMIT, "the key has more than %d characters", YAML_KEY_MAX);
		r->fatal = true;
		return;
	}
	const struct yaml_node *before = find_key(f, key->text);
	if (before == NULL)
		return;
	diag_error(r->cx, key->loc, DIAG_DUPLICATE_KEY, "the key '%.200s' is given twice", key->text);
	diag_note(r->cx, before->loc, "the first one is here");
	r->failed = true;
}

/* Appends the pair of the pending key and a value. The key is indexed now, as a key without a value is no pair. */
static void finish_pair(struct reader *r, struct frame *f, const struct yaml_node *value)
{
	index_key(r, f, f->key);
	struct yaml_pair *pair =
	        arena_list_push(r->arena, (void **)&f->node->pairs, &f->n, &f->cap, sizeof(*pair));
	if (pair == NULL) {
		r->fatal = true;
		return;
	}
	*pair = (struct yaml_pair){f->key, value};
	f->node->n = f->n;
	f->key = NULL;
}

/* Adds a node to the open collection: as an item, as a key, or as the value of the last key; without one it is the
 * root. node NULL: it failed, and reading stops (r->fatal). */
static void add_to_parent(struct reader *r, struct yaml_node *node)
{
	if (node == NULL)
		return;
	if (r->depth == 0) {
		r->root = node;
		return;
	}
	struct frame *f = &r->stack[r->depth - 1];
	if (f->node->kind == YAML_SEQUENCE) {
		const struct yaml_node **item =
		        arena_list_push(r->arena, (void **)&f->node->items, &f->n, &f->cap, sizeof(*item));
		if (item == NULL) {
			r->fatal = true;
			return;
		}
		*item = node;
		f->node->n = f->n;
	} else if (f->key == NULL) {
		begin_pair(r, f, node);
	} else {
		finish_pair(r, f, node);
	}
}

/* Adds a sequence or mapping, whose items follow, and opens it. The depth is limited by the stack, before libyaml
 * reads further. */
static void open_collection(struct reader *r, enum yaml_kind kind, const yaml_event_t *ev)
{
	struct yaml_node *node = new_node(r, kind, &ev->start_mark);
	add_to_parent(r, node);
	if (node == NULL || r->fatal)
		return;
	if (r->depth == YAML_DEPTH_MAX) {
		diag_error(r->cx, node->loc, DIAG_LIMIT, "nested deeper than %d levels", YAML_DEPTH_MAX);
		r->fatal = true;
		return;
	}
	r->stack[r->depth++] = (struct frame){.node = node};
}

/* ---- events ---- */

/* Reports anchor and tag of a node, which is read without them. */
static void reject_anchor_and_tag(struct reader *r, const yaml_event_t *ev, const yaml_char_t *anchor,
                                  const yaml_char_t *tag)
{
	advance(r, &r->at, ev->start_mark.index);
	if (anchor != NULL) {
		diag_error(r->cx, loc_of(r, r->at, 1), DIAG_ALIAS,
		           "the anchor '&%.60s' is not allowed; write the value out, or use 'define' or "
		           "'params'",
		           (const char *)anchor);
		r->failed = true;
	}
	if (tag != NULL) {
		diag_error(r->cx, loc_of(r, r->at, 1), DIAG_TAG,
		           "the tag '%.60s' is not allowed; the key of a value determines its type",
		           (const char *)tag);
		r->failed = true;
	}
}

/* Reports an alias and reads it as null, so that parsing can continue. */
static void reject_alias(struct reader *r, const yaml_event_t *ev)
{
	struct yaml_node *node = new_node(r, YAML_SCALAR, &ev->start_mark);
	if (node == NULL)
		return;
	node->text = "";
	node->null = true;
	diag_error(r->cx, node->loc, DIAG_ALIAS,
	           "the alias '*%.60s' is not allowed; write the value out, or use 'define' or 'params'",
	           (const char *)ev->data.alias.anchor);
	r->failed = true;
	add_to_parent(r, node);
}

/* Checks the start of a document: there is one, and its directives change nothing. Its marks are not in r->at, which
 * only nodes move. */
static void start_document(struct reader *r, const yaml_event_t *ev)
{
	const yaml_version_directive_t *version = ev->data.document_start.version_directive;
	struct loc loc = loc_of_index(r, ev->start_mark.index);
	if (++r->n_documents > 1) {
		diag_error(r->cx, loc, DIAG_YAML,
		           "a second document begins here; a file contains one document");
		r->fatal = true;
		return;
	}
	if (version != NULL && (version->major != 1 || version->minor != 2)) {
		diag_error(r->cx, loc, DIAG_YAML, "the directive '%%YAML %d.%d' is not allowed; only 1.2 is",
		           version->major, version->minor);
		r->failed = true;
	}
	if (ev->data.document_start.tag_directives.start != ev->data.document_start.tag_directives.end) {
		diag_error(r->cx, loc, DIAG_TAG, "the directive '%%TAG' is not allowed");
		r->failed = true;
	}
}

/* Adds the node of an event to the tree. libyaml guarantees that ends match starts, so that the stack does not
 * underflow. */
static void handle_event(struct reader *r, const yaml_event_t *ev)
{
	switch (ev->type) {
	case YAML_NO_EVENT:
	case YAML_STREAM_START_EVENT:
	case YAML_DOCUMENT_END_EVENT: break;
	case YAML_STREAM_END_EVENT: r->done = true; break;
	case YAML_DOCUMENT_START_EVENT: start_document(r, ev); break;
	case YAML_ALIAS_EVENT: reject_alias(r, ev); break;
	case YAML_SCALAR_EVENT:
		reject_anchor_and_tag(r, ev, ev->data.scalar.anchor, ev->data.scalar.tag);
		add_to_parent(r, new_scalar(r, ev));
		break;
	case YAML_SEQUENCE_START_EVENT:
		reject_anchor_and_tag(r, ev, ev->data.sequence_start.anchor, ev->data.sequence_start.tag);
		open_collection(r, YAML_SEQUENCE, ev);
		break;
	case YAML_MAPPING_START_EVENT:
		reject_anchor_and_tag(r, ev, ev->data.mapping_start.anchor, ev->data.mapping_start.tag);
		open_collection(r, YAML_MAPPING, ev);
		break;
	case YAML_SEQUENCE_END_EVENT:
	case YAML_MAPPING_END_EVENT: r->depth--; break;
	}
}

/* Replaces libyaml's messages by ones that tell what to write. */
static const char *friendly_message(const char *message)
{
	static const char *const words[][2] = {
	        {"did not find expected ',' or '}'", "expected ',' or '}'"},
	        {"did not find expected ',' or ']'", "expected ',' or ']'"},
	        {"did not find expected key", "expected a key; is it indented as the keys above?"},
	        {"did not find expected '-' indicator", "expected '-', as on the lines above"},
	        {"could not find expected ':'", "expected ':' after the key"},
	        {"mapping values are not allowed in this context",
	         "':' is not allowed here; put the text in quotes, or check the indentation"},
	        {"found unexpected end of stream", "the text ends before the quote is closed"},
	        {"found a tab character that violates indentation", "a tab cannot indent; use spaces"},
	        {"while parsing a flow mapping", "to close this '{'"},
	        {"while parsing a flow sequence", "to close this '['"},
	        {"while parsing a block mapping", "the mapping begins here"},
	        {"while parsing a block collection", "the list begins here"},
	        {"while scanning a quoted scalar", "the quote begins here"},
	        {"while scanning a simple key", "the key begins here"},
	        {"while scanning a plain scalar", "the text begins here"},
	};
	for (size_t i = 0; i < TFMC_COUNT(words); i++)
		if (strcmp(message, words[i][0]) == 0)
			return words[i][1];
	return message;
}

/* Reports an error of libyaml at its position, with its context as a note. A tab and a character that begins no token
 * are told apart by the text, as libyaml has one message for both. */
static void report_problem(struct reader *r)
{
	const yaml_parser_t *p = &r->parser;
	if (p->error == YAML_MEMORY_ERROR) {
		memory_failed(0);
		return;
	}
	if (p->error == YAML_READER_ERROR) {
		diag_error(r->cx, loc_of_byte(r, p->problem_offset), DIAG_ENCODING, "%s",
		           p->problem == NULL ? "unreadable text" : p->problem);
		return;
	}
	struct cursor c = cursor_start();
	advance(r, &c, p->problem_mark.index);
	char here = c.byte < r->len ? r->text[c.byte] : '\0';
	const char *problem = p->problem == NULL ? "not well-formed YAML" : p->problem;
	if (strstr(problem, "cannot start any token") != NULL && here == '\t')
		diag_error(r->cx, loc_of(r, c, 1), DIAG_YAML, "a tab cannot indent; use spaces");
	else if (strstr(problem, "cannot start any token") != NULL)
		diag_error(r->cx, loc_of(r, c, 1), DIAG_YAML, "text cannot begin with '%c'; put it in quotes",
		           here);
	else
		diag_error(r->cx, loc_of(r, c, 1), DIAG_YAML, "%s", friendly_message(problem));
	if (p->context != NULL && p->context_mark.index != p->problem_mark.index)
		diag_note(r->cx, loc_of_index(r, p->context_mark.index), "%s", friendly_message(p->context));
}

/* Parses the text, event by event, up to its end or a fatal error. Without memory there is no diagnostic:
 * memory_failed() runs the handler, and the arena is marked as failed for the caller. */
static void read_events(struct reader *r)
{
	if (!yaml_parser_initialize(&r->parser)) {
		memory_failed(0);
		r->fatal = true;
		return;
	}
	yaml_parser_set_encoding(&r->parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&r->parser, (const unsigned char *)r->text, r->len);
	while (!r->done && !r->fatal) {
		yaml_event_t ev;
		if (!yaml_parser_parse(&r->parser, &ev)) {
			report_problem(r);
			r->fatal = true;
			break;
		}
		handle_event(r, &ev);
		yaml_event_delete(&ev);
	}
	if (r->parser.error == YAML_MEMORY_ERROR)
		r->arena->failed = true;
	yaml_parser_delete(&r->parser);
}

/* Checks that the document is a mapping; with any_root it may be anything, and an empty one is null. A report about
 * the whole file has no line. */
static void check_root(struct reader *r, bool any_root)
{
	struct loc file = {r->source, 0, 0, 0};
	if (r->root == NULL && any_root) {
		r->root = ARENA_NEW(r->arena, struct yaml_node);
		if (r->root != NULL)
			*r->root = (struct yaml_node){
			        .kind = YAML_SCALAR, .text = "", .null = true, .loc = file};
	} else if (r->root == NULL || (r->root->null && !any_root)) {
		diag_error(r->cx, file, DIAG_YAML, "the file is empty; it must contain a mapping");
		r->failed = true;
	} else if (!any_root && r->root->kind != YAML_MAPPING) {
		diag_error(r->cx, r->root->loc, DIAG_YAML, "the document must be a mapping, found %s",
		           yaml_describe(r->arena, r->root));
		r->failed = true;
	}
}

/* True after a diagnostic: a text that is too large or UTF-16 (by its byte order mark). It is not copied as a
 * diagnostic source, so its location is the file alone. */
static bool reject_source(struct diag_context *cx, const char *name, const char *text, size_t len)
{
	bool utf16 = len >= 2 && (memcmp(text, "\xff\xfe", 2) == 0 || memcmp(text, "\xfe\xff", 2) == 0);
	if (len <= YAML_FILE_MAX && !utf16)
		return false;
	struct loc file = {diag_add_source(cx, name, NULL, 0), 0, 0, 0};
	if (utf16)
		diag_error(cx, file, DIAG_ENCODING, "the file is UTF-16; save it as UTF-8");
	else
		diag_error(cx, file, DIAG_LIMIT, "the file has %zu bytes, the limit is %zu", len,
		           YAML_FILE_MAX);
	return true;
}

/* A UTF-8 byte order mark is skipped. The reader, with its stack, is in the arena, as it is large. */
enum tfmc_status yaml_parse(struct arena *a, struct diag_context *cx, const char *name, const char *text,
                            size_t len, bool any_root, const struct yaml_node **out)
{
	struct reader *r = ARENA_NEW(a, struct reader);
	*out = NULL;
	if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
		text += 3;
		len -= 3;
	}
	if (reject_source(cx, name, text, len))
		return TFMC_INVALID;
	if (r == NULL || arena_failed(a))
		return TFMC_NO_MEMORY;
	*r = (struct reader){.arena = a, .cx = cx, .text = text, .len = len, .at = cursor_start()};
	r->source = diag_add_source(cx, name, text, len);
	if (!check_encoding(r))
		return TFMC_INVALID;
	read_events(r);
	if (arena_failed(a) || arena_failed(&cx->arena))
		return TFMC_NO_MEMORY;
	if (!r->fatal)
		check_root(r, any_root);
	if (r->fatal || r->failed)
		return TFMC_INVALID;
	*out = r->root;
	return TFMC_OK;
}

enum tfmc_status yaml_read(struct arena *a, struct diag_context *cx, const char *path, const char *name,
                           struct loc from, const struct yaml_node **out)
{
	const char *text;
	size_t len;
	*out = NULL;
	TFMC_TRY(file_read(a, cx, path, YAML_FILE_MAX, from, &text, &len));
	return yaml_parse(a, cx, name, text, len, false, out);
}
