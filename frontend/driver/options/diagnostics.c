/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Diagnostics as text, its first lines (short), JSON Lines and SARIF, and the explanations of codes. JSON and SARIF are
 * streamed in the order of the diagnostics: an object stays open at its array of notes until the next diagnostic, or
 * the end, closes it.
 */
#include "frontend/driver/options/diagnostics.h"

#include <string.h>

#include "ir/support/strmap.h"

void diagnostics_init(struct diagnostics *s, struct arena *arena)
{
	*s = (struct diagnostics){.arena = arena};
	buf_init(&s->open);
}

void diagnostics_destroy(struct diagnostics *s)
{
	buf_destroy(&s->open);
}

bool diagnostics_is_data(const struct diagnostics *s)
{
	return s->format == DIAGNOSTICS_JSON || s->format == DIAGNOSTICS_SARIF;
}

/* ---- text of JSON ---- */

/* Whether a byte stays as it is in a URI (RFC 3986, unreserved), or separates directories. */
static bool is_unreserved(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       (c != '\0' && strchr("-._~/", c));
}

void diagnostics_json_uri(struct buf *out, const char *path)
{
	buf_str(out, path[0] == '/' ? "\"file://" : "\"");
	for (const char *p = path; *p; p++) {
		if (is_unreserved(*p))
			buf_char(out, *p);
		else
			buf_printf(out, "%%%02X", (unsigned)(unsigned char)*p);
	}
	buf_char(out, '"');
}

/* ---- text and short ---- */
/* --diagnostics=short: appends "location: severity: message", the first line of the text form; notes are left out. */
static void add_short(const struct diag_context *cx, const struct diag *m, struct buf *log)
{
	struct buf line;
	if (m->severity == DIAG_NOTE)
		return;
	buf_init(&line);
	diag_render(&line, cx, m, false);
	buf_bytes(log, line.data, strcspn(line.data, "\n"));
	buf_char(log, '\n');
	buf_destroy(&line);
}

/* Appends a number, or null where it is unknown: every object has all fields. */
static void json_number(struct buf *out, const char *key, uint32_t value, bool is_known)
{
	if (is_known)
		buf_printf(out, ",\"%s\":%u", key, (unsigned)value);
	else
		buf_printf(out, ",\"%s\":null", key);
}

/* Message and location; a field is null where the diagnostic has no such location. */
static void json_body(struct buf *out, const struct diag_context *cx, const struct diag *m)
{
	const char *file = diag_source_name(cx, m->loc.source);
	bool has_line = file[0] && m->loc.line;
	buf_str(out, "\"message\":");
	buf_json(out, m->message);
	buf_str(out, ",\"file\":");
	if (file[0])
		buf_json(out, file);
	else
		buf_str(out, "null");
	json_number(out, "line", m->loc.line, has_line);
	json_number(out, "column", m->loc.col, has_line && m->loc.col);
	json_number(out, "length", m->loc.len ? m->loc.len : 1, has_line && m->loc.col);
}

static void json_text(struct buf *out, const char *key, const char *text)
{
	buf_printf(out, ",\"%s\":", key);
	if (text)
		buf_json(out, text);
	else
		buf_str(out, "null");
}

/* The fields of a pass remark. */
static void json_about(struct buf *out, const struct diag_remark *about)
{
	json_text(out, "pass", about->pass);
	json_text(out, "kind", about->is_missed ? "missed" : "passed");
	json_text(out, "text", about->text);
	json_text(out, "path", about->path);
	json_text(out, "function", about->function);
	buf_printf(out, ",\"count\":%lld", (long long)(about->count ? about->count : 1));
}

/* Begins the object of a diagnostic, up to its array of notes, which stays open for those that follow (close_notes).
 * Begins the object of a diagnostic, up to its array of notes, which stays open for those that follow (close_notes). */
static void json_begin(struct buf *out, const struct diag_context *cx, const struct diag *m)
{
	buf_printf(out, "{\"severity\":\"%s\",\"code\":", diag_severity_name(m->severity));
	if (m->code == DIAG_NONE)
		buf_str(out, "null,");
	else
		buf_printf(out, "\"E%d\",", (int)m->code);
	json_body(out, cx, m);
	if (m->about)
		json_about(out, m->about);
	buf_str(out, ",\"notes\":[");
}

/* ---- sarif ---- */

/* The index of a code in the rules of the SARIF document, added when it is new; 0 without memory, which
 * diagnostics_restart() handles. */
static size_t rule_index(struct diagnostics *s, int code)
{
	for (size_t i = 0; i < s->rules.n; i++)
		if (s->rules.items[i] == code)
			return i;
	if (!ARENA_ADDED(s->arena, &s->rules, code))
		return 0;
	return s->rules.n - 1;
}

/* Remarks have no code; they share the rule "remark". */
static void put_rule_id(struct buf *out, int code)
{
	if (code == DIAG_NONE)
		buf_str(out, "\"remark\"");
	else
		buf_printf(out, "\"E%d\"", code);
}

static void sarif_message(struct buf *out, const char *key, const char *text)
{
	buf_printf(out, "\"%s\":{\"text\":", key);
	buf_json(out, text);
	buf_char(out, '}');
}

/* A physicalLocation. Columns count code points; endColumn is exclusive. */
static void sarif_location(struct buf *out, const struct diag_context *cx, struct loc loc)
{
	buf_str(out, "\"physicalLocation\":{\"artifactLocation\":{\"uri\":");
	diagnostics_json_uri(out, diag_source_name(cx, loc.source));
	buf_char(out, '}');
	if (loc.line)
		buf_printf(out, ",\"region\":{\"startLine\":%u", (unsigned)loc.line);
	if (loc.line && loc.col)
		buf_printf(out, ",\"startColumn\":%u,\"endColumn\":%llu", (unsigned)loc.col,
		           (unsigned long long)loc.col + (loc.len ? loc.len : 1));
	buf_str(out, loc.line ? "}}" : "}");
}

/* Remarks are no problems, so they have level none. */
static const char *sarif_level(enum diag_severity severity)
{
	switch (severity) {
	case DIAG_ERROR: return "\"level\":\"error\"";
	case DIAG_WARNING: return "\"level\":\"warning\"";
	case DIAG_NOTE:
	case DIAG_REMARK: return "\"kind\":\"informational\",\"level\":\"none\"";
	}
	return "";
}

/* Begins a result, up to its list of related locations: the notes that follow. */
static void sarif_begin(struct diagnostics *s, const struct diag_context *cx, const struct diag *m)
{
	struct buf *out = &s->open;
	buf_str(out, s->n_results++ ? ",\n{\"ruleId\":" : "\n{\"ruleId\":");
	put_rule_id(out, (int)m->code);
	buf_printf(out, ",\"ruleIndex\":%zu,%s,", rule_index(s, (int)m->code), sarif_level(m->severity));
	sarif_message(out, "message", m->message);
	buf_str(out, ",\"locations\":[");
	if (diag_source_name(cx, m->loc.source)[0]) {
		buf_char(out, '{');
		sarif_location(out, cx, m->loc);
		buf_char(out, '}');
	}
	buf_str(out, "],\"relatedLocations\":[");
}

/* Appends a note to the related locations. They are a set: the id makes two notes of the same text distinct. */
static void sarif_note(struct buf *out, const struct diag_context *cx, const struct diag *m, size_t id)
{
	buf_printf(out, "{\"id\":%zu,", id);
	sarif_message(out, "message", m->message);
	if (diag_source_name(cx, m->loc.source)[0]) {
		buf_char(out, ',');
		sarif_location(out, cx, m->loc);
	}
	buf_char(out, '}');
}

/* Appends a rule: a code with title and meaning of its explanation. */
static void sarif_rule(struct arena *a, struct buf *out, int code)
{
	struct explanation e = {0};
	const char *nearest;
	bool is_known = code != DIAG_NONE && explain_find(a, arena_printf(a, "%d", code), &e, &nearest);
	buf_str(out, "{\"id\":");
	put_rule_id(out, code);
	buf_char(out, ',');
	sarif_message(out, "shortDescription", is_known ? e.title : "what was done, or why not");
	if (is_known) {
		buf_char(out, ',');
		sarif_message(out, "fullDescription", e.meaning);
	}
	buf_char(out, '}');
}

/* Appends the document around the results: rules, which are known only at the end, come before them. */
static void sarif_document(struct diagnostics *s, int exit_code, const char *version, struct buf *log)
{
	buf_str(log, "{\"$schema\":\"https://json.schemastore.org/sarif-2.1.0.json\",\"version\":\"2.1.0\","
	             "\"runs\":[{\"tool\":{\"driver\":{\"name\":\"tfmc\",\"version\":");
	buf_json(log, version);
	buf_str(log, ",\"rules\":[");
	for (size_t i = 0; i < s->rules.n; i++) {
		buf_str(log, i ? ",\n" : "\n");
		sarif_rule(s->arena, log, s->rules.items[i]);
	}
	buf_printf(log,
	           "]}},\n\"invocations\":[{\"executionSuccessful\":%s,\"exitCode\":%d}],"
	           "\"columnKind\":\"unicodeCodePoints\",\n\"results\":[",
	           exit_code ? "false" : "true", exit_code);
	buf_append(log, &s->open);
	buf_str(log, "]}]}\n");
}

/* ---- the sink ---- */

/* Ends the open diagnostic. A JSON object is complete then and goes to the log; SARIF results wait for the end. */
static void close_notes(struct diagnostics *s, struct buf *log)
{
	if (!s->is_open)
		return;
	buf_str(&s->open, "]}");
	s->is_open = false;
	s->n_notes = 0;
	if (s->format != DIAGNOSTICS_JSON)
		return;
	buf_append(log, &s->open);
	buf_char(log, '\n');
	buf_clear(&s->open);
}

/* Adds a diagnostic to the JSON or SARIF output; a note goes into the array of the open one. A note without one is
 * a diagnostic of its own. */
static void add_data(struct diagnostics *s, const struct diag_context *cx, const struct diag *m,
                     struct buf *log)
{
	bool is_json = s->format == DIAGNOSTICS_JSON;
	if (m->severity == DIAG_NOTE && s->is_open) {
		if (s->n_notes++)
			buf_char(&s->open, ',');
		if (is_json) {
			buf_char(&s->open, '{');
			json_body(&s->open, cx, m);
			buf_char(&s->open, '}');
		} else {
			sarif_note(&s->open, cx, m, s->n_notes);
		}
		return;
	}
	close_notes(s, log);
	s->is_open = true;
	if (is_json)
		json_begin(&s->open, cx, m);
	else
		sarif_begin(s, cx, m);
}

void diagnostics_add(struct diagnostics *s, const struct diag_context *cx, const struct diag *m,
                     struct buf *log)
{
	if (m->severity == DIAG_ERROR && s->first_error == DIAG_NONE)
		s->first_error = m->code;
	switch (s->format) {
	case DIAGNOSTICS_TEXT: diag_render(log, cx, m, s->color); return;
	case DIAGNOSTICS_SHORT: add_short(cx, m, log); return;
	case DIAGNOSTICS_JSON:
	case DIAGNOSTICS_SARIF: add_data(s, cx, m, log); return;
	}
}

/* Of SARIF all results go, too: the buffer that they share has failed. */
void diagnostics_restart(struct diagnostics *s)
{
	buf_clear(&s->open);
	s->is_open = false;
	s->n_notes = s->n_results = 0;
}

void diagnostics_finish(struct diagnostics *s, int exit_code, const char *version, struct buf *log)
{
	close_notes(s, log);
	if (s->format == DIAGNOSTICS_SARIF)
		sarif_document(s, exit_code, version, log);
	if (s->format == DIAGNOSTICS_TEXT && s->on_terminal && s->first_error != DIAG_NONE)
		buf_printf(log, "`tfmc explain E%d` has an example and its cure\n", (int)s->first_error);
}

/* ---- explanations of codes ---- */

#define HEADING "\n## E"

extern const unsigned char diagnostics_md[], text_md[];

/* The text before the first `stop`, or all of it. */
static const char *copy_until(struct arena *a, const char *from, const char *stop)
{
	const char *end = strstr(from, stop);
	return arena_strndup(a, from, end != NULL ? (size_t)(end - from) : strlen(from));
}

/* Reads the section whose heading is at `at`; diagnostics.md is embedded and has the form of struct explanation.
 * Returns the next heading, or NULL. */
static const char *read_section(struct arena *a, const char *at, struct explanation *e)
{
	const char *code = strchr(at, 'E'), *title = strchr(code, ' ') + 1, *text = strchr(title, '\n') + 1;
	*e = (struct explanation){copy_until(a, code, ":"), copy_until(a, title, "\n"),
	                          copy_until(a, text, "\n- "), copy_until(a, text, HEADING)};
	return strstr(text, HEADING);
}

static const char *first_section(void)
{
	return strstr((const char *)diagnostics_md, HEADING);
}

bool explain_find(struct arena *a, const char *code, struct explanation *out, const char **nearest)
{
	struct {
		const char **items;
		size_t n, cap;
	} codes = {NULL, 0, 0};
	const char *name = arena_printf(a, "E%s", code + (code[0] == 'E' || code[0] == 'e'));
	for (const char *at = first_section(); at != NULL;) {
		at = read_section(a, at, out);
		const char **slot = ARENA_PUSH(a, &codes);
		if (arena_failed(a))
			break;
		if (strcmp(out->code, name) == 0)
			return true;
		*slot = out->code;
	}
	*nearest = arena_failed(a) ? NULL : nearest_name(name, codes.items, codes.n);
	return false;
}

/* Prints Markdown for a terminal: code fences become empty lines, of which none follow each other. */
static void print_lines(struct buf *out, const char *text)
{
	bool was_empty = true;
	for (size_t len; *text != '\0'; text += len) {
		len = strcspn(text, "\n");
		len += text[len] == '\n';
		bool is_empty = len == 1 || strncmp(text, "```", 3) == 0;
		if (!is_empty)
			buf_bytes(out, text, len);
		else if (!was_empty)
			buf_char(out, '\n');
		was_empty = is_empty;
	}
}

/* Examples show the changed lines of one model, which is printed with the list of codes (explain_list): hence the
 * hint. */
void explain_print(struct buf *out, const struct explanation *e)
{
	buf_printf(out, "%s: %s\n\n%s\n", e->code, e->title, e->text);
	if (strstr(e->text, "\n- wrong: ") != NULL)
		buf_str(out, "\n(`tfmc explain` prints the model that is changed.)\n");
}

/* The text of diagnostics.md between its title and the first code, then the codes. */
void explain_list(struct arena *a, struct buf *out)
{
	struct explanation e;
	const char *page = (const char *)diagnostics_md;
	print_lines(out, copy_until(a, strchr(page, '\n') + 1, HEADING));
	buf_char(out, '\n');
	for (const char *at = first_section(); at != NULL && !arena_failed(a);) {
		at = read_section(a, at, &e);
		buf_printf(out, "%s  %s\n", e.code, e.title);
	}
}

void explain_tir(struct buf *out)
{
	print_lines(out, (const char *)text_md);
}
