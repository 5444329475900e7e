/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Emission of a source file. Function bodies are printed first, because they request the types, helpers and
 * declarations that the file needs; then the parts are put in order. Helpers are instantiated from blocks of the
 * dialect's prelude.
 */
#include "backends/print/print.h"

#include <string.h>

bool print_once(struct print *p, const char *name)
{
	if (strmap_has(&p->needed, name))
		return false;
	return strmap_set(&p->needed, name, p);
}

/* ---- functions ---- */

static bool is_used(const struct print *p, const char *name)
{
	for (size_t i = 0; i < kb_func_count(p->m); i++) {
		const struct kb_func *f = kb_func_at(p->m, i);
		for (size_t k = 0; k < f->n_insts; k++) {
			const struct kb_inst *inst = &f->insts[k];
			bool names = inst->op == KBO_CALL || inst->op == KBO_FUNC_ADDR;
			if (names && strcmp(inst->name, name) == 0)
				return true;
		}
	}
	return false;
}

static bool begin_function(struct print *p, size_t number)
{
	const struct kb_func *f = kb_legalize(kb_func_at(p->m, number), p->arena, &p->dialect->has);
	p->f = f;
	p->f_number = number;
	p->values = ARENA_ARRAY(p->arena, struct print_value, f->n_values + 1);
	p->vars = ARENA_ARRAY(p->arena, struct print_var, f->n_vars + 1);
	p->pending = ARENA_ARRAY(p->arena, uint32_t, f->n_values + 1);
	p->alignments = kb_alignments(f, p->arena);
	p->n_pending = 0;
	if (!p->alignments || !p->values || !p->vars || !p->pending || !print_locals_begin(p))
		return false;
	for (size_t i = 0; i < f->n_insts && f->insts[i].op == KBO_PARAM; i++)
		print_name_value(p, f->insts[i].result, print_local_name(p, f->insts[i].name));
	return true;
}

/* Prints the head of the function; comments that follow the parameters go before it. Returns the position of the
 * first instruction after them. */
static size_t print_head(struct print *p, struct buf *declarations)
{
	struct buf head;
	size_t at = 0;
	while (at < p->f->n_insts && p->f->insts[at].op == KBO_PARAM)
		at++;
	for (; at < p->f->n_insts && p->f->insts[at].op == KBO_COMMENT; at++)
		print_comment(p, &p->f->insts[at]);
	buf_init(&head);
	p->dialect->head(p, p->f, p->f->linkage != KB_INTERNAL || is_used(p, p->f->name), &head);
	print_line(p, "%s", head.data);
	print_line(p, "{");
	if (p->f->linkage != KB_KERNEL)
		buf_printf(declarations, "%s;\n", head.data);
	p->body.failed |= head.failed;
	buf_destroy(&head);
	return at;
}

static void print_body(struct print *p, size_t at)
{
	const struct kb_func *f = p->f;
	print_open(p);
	for (size_t i = 0; i < f->n_insts && f->insts[i].op == KBO_PARAM; i++)
		if (p->values[f->insts[i].result].uses == 0)
			print_line(p, "(void)%s;", p->values[f->insts[i].result].text);
	for (; at < f->n_insts && !p->failed; at++)
		print_control(p, &f->insts[at]);
	print_flush(p, FLUSH_ALL, 0);
	bool ends_with_return = f->n_insts > 0 && f->insts[f->n_insts - 1].op == KBO_RETURN;
	if (f->result != KB_VOID && !ends_with_return)
		print_line(p, "return 0;");
	print_close(p);
	print_line(p, "}\n");
}

/* Each kernel is inside of #ifndef WITHOUT_name, so that a host can leave out kernels that it does not run. */
static void print_func(struct print *p, size_t number, struct buf *declarations)
{
	struct arena local, *arena = p->arena;
	arena_init(&local);
	/* for strings of one function; identifiers of the file are in the arena of their maps */
	p->arena = &local;
	if (begin_function(p, number)) {
		const char *missing = p->dialect->missing_feature(p, p->f);
		bool is_kernel = p->f->linkage == KB_KERNEL;
		if (missing)
			print_fail(p, missing);
		print_count_uses(p);
		if (is_kernel)
			print_line(p, "#ifndef WITHOUT_%s", print_global(p, p->f->name));
		size_t at = print_head(p, declarations);
		print_body(p, at);
		if (is_kernel)
			print_line(p, "#endif\n");
	}
	p->body.failed |= arena_failed(&local);
	arena_destroy(&local);
	p->arena = arena;
}

/* ---- the file ---- */

static void title(const struct print *p, struct buf *out)
{
	if (!p->options->title)
		return;
	buf_str(out, "/* ");
	for (const char *s = p->options->title; *s; s++) {
		buf_char(out, *s);
		if (s[0] == '*' && s[1] == '/')
			buf_char(out, ' ');
	}
	buf_str(out, " */\n");
}

static void print_data(struct print *p, struct buf *out)
{
	for (size_t i = 0; i < kb_data_count(p->m); i++) {
		const struct kb_data_item *d = kb_data_at(p->m, i);
		p->dialect->data(p, d, print_global(p, d->name), out);
	}
	for (size_t i = 0; i < p->options->n_data; i++) {
		const struct cfamily_data *d = &p->options->data[i];
		struct kb_data_item item = {d->name, KB_INTERNAL, d->bytes, d->n, 64};
		p->dialect->data(p, &item, print_global(p, d->name), out);
	}
}

static void append_part(struct buf *out, const struct buf *text)
{
	if (text->len == 0 && !buf_failed(text))
		return;
	buf_char(out, '\n');
	buf_append(out, text);
}

static enum tfmc_status print_file(struct print *p, struct buf *out)
{
	struct buf declarations, prelude;
	if (!print_names_begin(p))
		return TFMC_NO_MEMORY;
	buf_init(&declarations);
	buf_init(&prelude);
	for (size_t i = 0; i < kb_func_count(p->m) && !p->failed; i++)
		print_func(p, i, &declarations);
	if (!p->failed) {
		p->dialect->prelude(p, &prelude);
		title(p, out);
		buf_append(out, &prelude);
		append_part(out, &p->types);
		append_part(out, &p->helpers);
		append_part(out, &declarations);
		buf_char(out, '\n');
		print_data(p, out);
		append_part(out, &p->body);
	}
	bool failed = buf_failed(out) || buf_failed(&prelude) || p->scratch.failed || arena_failed(p->arena);
	buf_destroy(&declarations);
	buf_destroy(&prelude);
	return failed ? TFMC_NO_MEMORY : p->failed ? TFMC_INVALID : TFMC_OK;
}

enum tfmc_status cfamily_print(struct diag_context *cx, const struct kb_module *m,
                               const struct cfamily_options *options, struct buf *out)
{
	struct arena arena;
	struct print p = {.cx = cx, .m = m, .options = options, .arena = &arena};
	p.dialect = options->dialect == CFAMILY_C ? cfamily_c() : cfamily_opencl();
	arena_init(&arena);
	buf_init(&p.types);
	buf_init(&p.helpers);
	buf_init(&p.body);
	buf_init(&p.scratch);
	enum tfmc_status status = TFMC_OK;
	if (p.dialect->has_spaces)
		status = space_infer(cx, m, &arena, &p.spaces);
	if (status == TFMC_OK)
		status = print_file(&p, out);
	buf_destroy(&p.types);
	buf_destroy(&p.helpers);
	buf_destroy(&p.body);
	buf_destroy(&p.scratch);
	arena_destroy(&arena);
	return status;
}

/* The block under the line "@@ NAME: .."; *n: its length. */
static const char *find_block(const char *text, const char *block, size_t *n)
{
	const char *at = strstr(text, "\n@@ ");
	size_t len = strlen(block);
	for (; at; at = strstr(at + 1, "\n@@ ")) {
		const char *heading = at + strlen("\n@@ ");
		if (strncmp(heading, block, len) != 0 || !strchr(":\n", heading[len]))
			continue;
		const char *end = strstr(heading, "\n\n@@ "), *first = strchr(heading, '\n') + 1;
		*n = end ? (size_t)(end + 1 - first) : strlen(first);
		return first;
	}
	*n = 0;
	return "";
}

void print_block(struct print *p, const char *block, const struct print_helper *h, struct buf *out)
{
	size_t n;
	const char *text = find_block(p->dialect->helpers, block, &n);
	for (size_t i = 0; i < n; i++) {
		if (text[i] != '$') {
			buf_char(out, text[i]);
			continue;
		}
		char letter = text[++i];
		const char *value = letter == 'N'                    ? h->name
		                    : letter >= '1' && letter <= '9' ? h->args[letter - '1']
		                                                     : p->dialect->placeholder(p, h, letter);
		size_t len = strlen(value);
		buf_bytes(out, value, len);
		if (len && value[len - 1] == '*' && text[i + 1] == ' ')
			i++;
	}
}

const char *print_helper(struct print *p, const char *block, const struct print_helper *h)
{
	if (print_once(p, h->name))
		print_block(p, block, h, &p->helpers);
	return h->name;
}
