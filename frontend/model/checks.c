/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Section `checks`: calls and expected results, read into frontend_check. Files are opened when a check runs. A
 * function that returns false has reported an error.
 */
#include <string.h>

#include "frontend/model/model.h"
#include "frontend/model/schema.h"
#include "ir/support/strmap.h"

#define CHECK_VALUES_MAX 1000000

struct check_file {
	const char *name;
	struct weight_files *files;
};

/* ---- nested lists ---- */

struct value_list {
	struct frontend_model *m;
	double *values;
	size_t n, cap;
};

/* Sets the shape of a nested list from the first element of each level; *count: number of values, at most
 * CHECK_VALUES_MAX, as each is a double in memory. read_nested_values() checks the other elements. */
static bool infer_nested_shape(struct frontend_model *m, const struct yaml_node *node,
                               struct frontend_tensor *t, size_t *count)
{
	*count = 1;
	for (t->rank = 0; node->kind == YAML_SEQUENCE; node = node->items[0]) {
		if (t->rank >= IR_RANK_MAX || node->n == 0 || *count > CHECK_VALUES_MAX / node->n) {
			diag_error(m->cx, node->loc, DIAG_LIMIT,
			           "the list of '%s' is empty, too deep or too long", t->name);
			return false;
		}
		t->dims[t->rank++] = (int64_t)node->n;
		*count *= node->n;
	}
	return true;
}

/* Reads the elements of a nested list at axis `depth`, row-major; all lists of an axis have the length that t->dims
 * says. A bool counts as 0 or 1. */
static bool read_nested_values(struct value_list *out, const struct yaml_node *node,
                               const struct frontend_tensor *t, int depth)
{
	struct expr_env env = model_env(&out->m->scope, false);
	if (depth == t->rank) {
		struct value v;
		if (!yaml_expect(out->m->cx, node, YAML_SCALAR, t->name) ||
		    !expr_read_value(&env, node, t->name, &v))
			return false;
		if (v.kind == VALUE_BOOL)
			v = value_int(v.b);
		return expr_require_float(&env, node->loc, t->name, &v, &out->values[out->n++]);
	}
	if (node->kind != YAML_SEQUENCE || (int64_t)node->n != t->dims[depth]) {
		diag_error(out->m->cx, node->loc, DIAG_SHAPE, "the lists of '%s' differ in length", t->name);
		return false;
	}
	for (size_t i = 0; i < node->n; i++) {
		if (!read_nested_values(out, node->items[i], t, depth + 1))
			return false;
	}
	return true;
}

/* Reads one tensor that is written as nested lists, or as a single value (rank 0). */
static bool read_tensor(struct frontend_model *m, const struct yaml_pair *pair, struct frontend_tensor *t)
{
	size_t count;
	t->name = pair->key->text;
	t->loc = pair->key->loc;
	if (!infer_nested_shape(m, pair->value, t, &count))
		return false;
	struct value_list out = {m, ARENA_ARRAY(&m->arena, double, count), 0, count};
	t->values = out.values;
	return out.values != NULL && read_nested_values(&out, pair->value, t, 0);
}

/* ---- with, expect ---- */

/* Reads `steps`, the number of tokens to generate, into the check. */
static bool read_steps(struct frontend_model *m, const struct yaml_node *node, struct frontend_check *c)
{
	struct expr_env env = model_env(&m->scope, false);
	if (!expr_read_int(&env, node, "steps", &c->steps))
		return false;
	if (c->steps >= 1)
		return true;
	diag_error(m->cx, node->loc, DIAG_VALUE_TYPE, "steps is %lld, it must be at least 1",
	           (long long)c->steps);
	return false;
}

/* Reads `with` or `expect` (NULL: absent): tensors written as lists, the file with further ones, and tolerances,
 * which belong to the check. A key `steps` is the tensor of that name if an input is called so, else the number of
 * tokens to generate. */
static bool read_check_tensors(struct frontend_model *m, const struct yaml_node *node,
                               struct frontend_check *c, struct frontend_tensors *out)
{
	if (node == NULL)
		return true;
	out->loc = node->loc;
	if (!yaml_expect(m->cx, node, YAML_MAPPING, "with and expect"))
		return false;
	struct frontend_tensor *items = ARENA_ARRAY(&m->arena, struct frontend_tensor, node->n);
	const struct yaml_node *file = yaml_find(node, "file"), *prefix = yaml_find(node, "prefix");
	if (file != NULL && !yaml_expect(m->cx, file, YAML_SCALAR, "file"))
		return false;
	if (prefix != NULL && !yaml_expect(m->cx, prefix, YAML_SCALAR, "prefix"))
		return false;
	out->file = file == NULL ? NULL : file->text;
	out->prefix = prefix == NULL ? "" : prefix->text;
	for (size_t i = 0; items != NULL && i < node->n; i++) {
		const struct yaml_pair *p = &node->pairs[i];
		const char *key = p->key->text;
		if (strcmp(key, "file") == 0 || strcmp(key, "prefix") == 0 || strcmp(key, "rtol") == 0 ||
		    strcmp(key, "atol") == 0)
			continue;
		if (strcmp(key, "steps") == 0 && model_find_input(&m->inputs, key) < 0) {
			if (!read_steps(m, p->value, c))
				return false;
			continue;
		}
		if (!read_tensor(m, p, &items[out->n++]))
			return false;
	}
	out->items = items;
	struct expr_env env = model_env(&m->scope, false);
	const struct yaml_node *rtol = yaml_find(node, "rtol"), *atol = yaml_find(node, "atol");
	return (rtol == NULL || expr_read_float(&env, rtol, "rtol", &c->rtol)) &&
	       (atol == NULL || expr_read_float(&env, atol, "atol", &c->atol));
}

/* ---- one entry ---- */

/* Checks that the model has the entry `call`: encode of a seq2seq model, prefill, step and generate of a generating
 * one. The name of an output stands for a call of `run` of which this output alone is compared; an entry wins over
 * it. */
static bool find_call(struct frontend_model *m, const struct yaml_node *node, struct frontend_check *c)
{
	static const char *const causal[] = {"run", "prefill", "step", "generate"};
	static const char *const pair[] = {"run", "encode", "prefill", "step", "generate"};
	const char *const *names = m->generate.kind == GENERATE_SEQ2SEQ ? pair : causal;
	size_t n = m->generate.kind == GENERATE_NONE ? 1 : m->generate.kind == GENERATE_CAUSAL ? 4 : 5;
	for (size_t i = 0; i < n; i++) {
		if (strcmp(names[i], c->call) == 0)
			return true;
	}
	int output = model_find_output(&m->outputs, c->call);
	if (output >= 0) {
		c->only_output = m->outputs.items[output].name;
		c->call = "run";
		return true;
	}
	diag_error(m->cx, node->loc, DIAG_UNKNOWN_NAME, "no entry or output is called '%s'%s", c->call,
	           did_you_mean(&m->arena, c->call, names, n));
	return false;
}

/* Reads the names that tensors have in the file of the check, {input or result: name in the file}. NULL: none. */
static bool read_rename(struct frontend_model *m, const struct yaml_node *node, struct frontend_check *c)
{
	if (node == NULL)
		return true;
	if (!yaml_expect(m->cx, node, YAML_MAPPING, "rename"))
		return false;
	struct frontend_rename *items = ARENA_ARRAY(&m->arena, struct frontend_rename, node->n);
	for (size_t i = 0; items != NULL && i < node->n; i++) {
		if (!yaml_expect(m->cx, node->pairs[i].value, YAML_SCALAR, "rename"))
			return false;
		items[i] = (struct frontend_rename){node->pairs[i].key->text, node->pairs[i].value->text};
	}
	c->rename = items;
	c->n_rename = items == NULL ? 0 : node->n;
	return true;
}

static bool push_check(struct frontend_model *m, const struct frontend_check *c)
{
	return ARENA_ADDED(&m->arena, &m->checks, *c);
}

/* Expands the short form {file, cases} to one check for each case, whose tensors in the file have the name of the
 * case and a dot as prefix. */
static bool read_cases(struct frontend_model *m, const struct yaml_node *node,
                       const struct frontend_check *base)
{
	const struct yaml_node *file = yaml_find(node, "file"), *cases = yaml_find(node, "cases");
	if (file == NULL || cases == NULL) {
		diag_error(m->cx, node->loc, DIAG_MISSING, "a check with '%s' needs '%s'",
		           file == NULL ? "cases" : "file", file == NULL ? "file" : "cases");
		return false;
	}
	if (!yaml_expect(m->cx, file, YAML_SCALAR, "file"))
		return false;
	struct yaml_list list = yaml_as_list(&m->arena, cases);
	for (size_t i = 0; i < list.n; i++) {
		struct frontend_check c = *base;
		if (!yaml_expect(m->cx, list.items[i], YAML_SCALAR, "cases"))
			return false;
		const char *prefix = arena_printf(&m->arena, "%s.", list.items[i]->text);
		c.short_form = true;
		c.name = list.items[i]->text;
		c.loc = list.items[i]->loc;
		c.with = (struct frontend_tensors){.file = file->text, .prefix = prefix, .loc = file->loc};
		c.expect = c.with;
		if (!push_check(m, &c))
			return false;
	}
	return true;
}

/* Reads one check; without a name it is called by its number, from 1. steps -1: as many as the expected tokens. */
static bool read_check(struct frontend_model *m, const struct yaml_node *node, size_t number)
{
	static const struct schema_member members[] = {
	        SCHEMA_MEMBER(frontend_check, name),        SCHEMA_MEMBER(frontend_check, call),
	        SCHEMA_MEMBER(frontend_check, rtol),        SCHEMA_MEMBER(frontend_check, atol),
	        SCHEMA_MEMBER(frontend_check, rows),        SCHEMA_MEMBER(frontend_check, steps),
	        SCHEMA_MEMBER(frontend_check, ignore_stop), SCHEMA_MEMBER(frontend_check, search)};
	struct expr_env env = model_env(&m->scope, false);
	struct frontend_check c = {
	        .steps = -1, .loc = node->loc, .name = arena_printf(&m->arena, "%zu", number + 1)};
	if (!schema_read(&env, node, "check", "a check", members, TFMC_COUNT(members), &c) ||
	    !find_call(m, yaml_find(node, "call"), &c) || !read_rename(m, yaml_find(node, "rename"), &c))
		return false;
	if (yaml_find(node, "file") != NULL || yaml_find(node, "cases") != NULL)
		return read_cases(m, node, &c);
	if (yaml_find(node, "expect") == NULL) {
		diag_error(m->cx, node->loc, DIAG_MISSING, "a check needs 'expect', or 'file' and 'cases'");
		return false;
	}
	return read_check_tensors(m, yaml_find(node, "with"), &c, &c.with) &&
	       read_check_tensors(m, yaml_find(node, "expect"), &c, &c.expect) && push_check(m, &c);
}

bool model_read_checks(struct frontend_model *m)
{
	const struct yaml_node *checks = model_section(m, "checks");
	bool ok = true;
	if (checks == NULL)
		return true;
	if (!yaml_expect(m->cx, checks, YAML_SEQUENCE, "checks"))
		return false;
	for (size_t i = 0; i < checks->n; i++)
		ok = read_check(m, checks->items[i], i) && ok;
	return ok;
}

/* ---- files of checks ---- */

/* A file is opened at its first tensor and kept. Values are read in place, so a tensor must be stored as a plain
 * type, row by row. */
enum tfmc_status frontend_check_tensor(struct frontend_model *m, const char *file, struct loc loc,
                                       const char *name, const struct stored_tensor **out)
{
	struct check_file *found = NULL;
	for (size_t i = 0; i < m->checks.files.n; i++) {
		if (strcmp(m->checks.files.items[i].name, file) == 0)
			found = &m->checks.files.items[i];
	}
	*out = NULL;
	if (found == NULL) {
		found = ARENA_PUSH(&m->arena, &m->checks.files);
		if (found == NULL)
			return TFMC_NO_MEMORY;
		found->name = file;
		found->files = weight_files_create(&m->arena, m->cx, NULL);
		if (found->files == NULL)
			return TFMC_NO_MEMORY;
		document_record_file(&m->doc, file_join(&m->arena, m->doc.dir, file));
		TFMC_TRY(weight_files_open(found->files, m->doc.dir, file, loc));
	}
	*out = weight_files_find(found->files, name);
	if (*out == NULL || ((*out)->read == NULL && !(*out)->reversed))
		return TFMC_OK;
	diag_error(m->cx, loc, DIAG_STORED_TYPE,
	           "not supported yet: '%.200s' of '%.200s' as a value of checks: it is stored as %s%s", name,
	           file, (*out)->type_name, (*out)->reversed ? " in the order of Fortran" : "");
	return TFMC_INVALID;
}

void model_close_checks(struct frontend_model *m)
{
	for (size_t i = 0; i < m->checks.files.n; i++)
		weight_files_destroy(m->checks.files.items[i].files);
}
