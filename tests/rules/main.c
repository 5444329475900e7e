/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tfmc_rules: numeric tests of rewrite rules (check.h), for those who write one: prints a table with a line for each
 * rule. Exit code 1 when a rule is wrong, 3 when a file cannot be read.
 *
 *   tfmc_rules [FILE.rule...]   the rules of the files, then the built-in ones
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ir/support/strmap.h"
#include "tests/rules/check.h"

#define SEEDS 40

/* The content of a file, in the arena; NULL after a message. */
static const char *read_file(struct arena *a, const char *path)
{
	char block[4096];
	struct buf text;
	FILE *f = fopen(path, "rb");
	buf_init(&text);
	for (size_t n; f && (n = fread(block, 1, sizeof(block), f)) > 0;)
		buf_bytes(&text, block, n);
	if (!f || ferror(f))
		(void)fprintf(stderr, "tfmc_rules: cannot read %s: %s\n", path, strerror(errno));
	const char *out = f && !ferror(f) ? arena_strndup(a, text.len ? text.data : "", text.len) : NULL;
	if (f)
		(void)fclose(f);
	buf_destroy(&text);
	return out;
}

int main(int argc, char **argv)
{
	struct arena arena;
	struct buf log, table;
	struct diag_context cx;
	struct rule_set set;
	enum tfmc_status st = TFMC_OK;
	arena_init(&arena);
	buf_init(&log);
	buf_init(&table);
	diag_init(&cx, diag_render_text, &log);
	rule_set_init(&set);
	for (int i = 1; i < argc && st == TFMC_OK; i++) {
		const char *text = read_file(&arena, argv[i]);
		st = text ? rule_set_read(&set, &cx, argv[i], text, strlen(text)) : TFMC_IO;
	}
	if (st == TFMC_OK)
		st = rule_set_read_builtin(&set, &cx);
	if (st == TFMC_OK)
		st = rule_check_all(&cx, &set, SEEDS, &table);
	(void)fputs(table.len ? table.data : "", stdout);
	(void)fputs(log.len ? log.data : "", stderr);
	rule_set_destroy(&set);
	diag_destroy(&cx);
	buf_destroy(&table);
	buf_destroy(&log);
	arena_destroy(&arena);
	return st == TFMC_OK ? 0 : st == TFMC_IO ? 3 : 1;
}
