/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints schema.def as JSON Schema (draft 7, which yaml-language-server supports best), for completion and help
 * in editors. A value of most types may be an expression, which is a string; null deletes a key of a base file.
 * Everything the schema rejects, tfmc rejects; not the reverse.
 * A place is a mapping of the language (`where` of rows of schema.def) whose keys are fixed. Calls of json_pack take
 * over references with `o`, and share them with `O`. Editors know a file alone: where it has a base, an include or
 * definitions, required keys and kinds of steps may come from there, and are not demanded.
 */
#include <jansson.h>
#include <string.h>

#include "frontend/frontend.h"
#include "frontend/model/schema.h"
#include "frontend/weights/map.h"
#include "ir/support/memory.h"
#include "ir/support/strmap.h"

/* Mappings whose keys are chosen by the model, and lists whose elements are not plain values: the schema
 * definition of each value or element. */
static const struct {
	const char *where, *name, *each;
} members[] = {
        {"top", "params", "value"},        {"top", "set", "value"},         {"top", "dims", "dim"},
        {"top", "inputs", "input"},        {"top", "outputs", "text"},      {"top", "define", "steps"},
        {"top", "defaults", "any"},        {"top", "hub", "any"},           {"top", "checks", "check"},
        {"top", "graph", "step"},          {"top", "model", "stack"},       {"weights", "map", "source"},
        {"check", "with", "any"},          {"check", "expect", "any"},      {"check", "rename", "text"},
        {"residual", "branches", "steps"}, {"graph", "statements", "step"},
};

/* The schema definition of the values of a mapping, or elements of a list, in `members`; NULL: it is not there. */
static const char *element_definition(const struct schema_key *k)
{
	for (size_t i = 0; i < TFMC_COUNT(members); i++) {
		if (strcmp(members[i].where, k->where) == 0 && strcmp(members[i].name, k->name) == 0)
			return members[i].each;
	}
	return NULL;
}

/* The place whose keys the value of this key has; NULL: it is not a mapping, or its keys are chosen by the
 * model. */
static const char *place_of_mapping(const struct schema_key *k)
{
	bool may = (k->type == KEY_MAP || k->type == KEY_ANY) && element_definition(k) == NULL;
	const char *place = k->type == KEY_MAP && k->words[0] != '\0' ? k->words : k->name;
	return may && schema_next_key(place, NULL) != NULL ? place : NULL;
}

/* The words of a list, separated by blanks, as a JSON array. */
static json_t *word_array(const char *list)
{
	json_t *array = json_array();
	struct word w = {list, 0};
	while (list_word_next(&w))
		json_array_append_new(array, json_stringn(w.text, w.n));
	return array;
}

/* {"type": [..]} for types separated by blanks. */
static json_t *type_schema(const char *types)
{
	return json_pack("{s:o}", "type", word_array(types));
}

/* A reference to a definition of this schema; prefix: of its name. */
static json_t *ref_schema(const char *prefix, const char *definition)
{
	json_t *text = json_sprintf("#/definitions/%s%s", prefix, definition);
	return json_pack("{s:o}", "$ref", text);
}

/* Sets a member and returns the schema, so that calls nest. Takes over the reference to value. */
static json_t *set_member(json_t *schema, const char *key, json_t *value)
{
	json_object_set_new(schema, key, value);
	return schema;
}

/* ---- keys ---- */

/* The schema of a key that may have several kinds of values: a place, a mapping whose values `members` describes, or
 * a plain value or list. */
static json_t *any_schema(const struct schema_key *k)
{
	const char *each = element_definition(k);
	if (place_of_mapping(k) != NULL)
		return ref_schema("", place_of_mapping(k));
	if (each != NULL && strcmp(k->where, "top") == 0) /* a list of steps, or a mapping of stacks */
		return set_member(set_member(type_schema("array object"), "items", ref_schema("", "step")),
		                  "additionalProperties", ref_schema("", each));
	if (each != NULL)
		return set_member(type_schema("object string null"), "additionalProperties",
		                  ref_schema("", each));
	return set_member(type_schema("array string number boolean null"), "items", ref_schema("", "value"));
}

/* One of the words; or any string, since an expression may compute it. */
static json_t *word_schema(const struct schema_key *k)
{
	json_t *other = type_schema("string null");
	return k->words[0] == '\0'
	               ? other
	               : json_pack("{s:[{s:o}, o]}", "anyOf", "enum", word_array(k->words), other);
}

/* The schema of a key's value by the type of its row; null, which deletes the key of a base file, is the last type
 * (add_keys). */
static json_t *value_schema(const struct schema_key *k)
{
	const char *each = element_definition(k);
	switch (k->type) {
	case KEY_INT:
	case KEY_DIM: return type_schema("integer string null");
	case KEY_FLOAT: return type_schema("number string null");
	case KEY_BOOL: return type_schema("boolean string null");
	case KEY_WORD: return word_schema(k);
	case KEY_NAME:
		return set_member(type_schema("string null"), "pattern",
		                  json_string("^[A-Za-z_{][A-Za-z0-9_{}]*$"));
	case KEY_VALUE:
	case KEY_PATH: return type_schema("string null");
	case KEY_TEXT: return type_schema("string number null");
	case KEY_LIST:
		return set_member(type_schema("array string number null"), "items",
		                  ref_schema("", each != NULL ? each : "value"));
	case KEY_MAP:
		return place_of_mapping(k) != NULL ? ref_schema("", place_of_mapping(k))
		                                   : set_member(type_schema("object null"),
		                                                "additionalProperties", ref_schema("", each));
	case KEY_STEPS: return ref_schema("", "steps");
	case KEY_ANY: return any_schema(k);
	}
	return NULL;
}

/* Adds the keys of a place to the properties of a schema. A required key may not be null, the last of its types; other
 * keys have their default, as JSON if it is JSON, else as a string. Schemas of listed words, places and steps have no
 * member `type` (jansson ignores the NULL): null stays possible there. */
static void add_keys(json_t *properties, const char *where)
{
	for (const struct schema_key *k = NULL; (k = schema_next_key(where, k)) != NULL;) {
		json_t *def = json_loads(k->def, JSON_DECODE_ANY, NULL);
		json_t *s = set_member(value_schema(k), "description",
		                       json_sprintf("%s%s", k->now ? "" : "(not supported yet) ", k->doc));
		json_t *types = json_object_get(s, "type");
		if (strcmp(k->def, "!") == 0)
			json_array_remove(types, json_array_size(types) - 1);
		else if (k->def[0] != '\0')
			set_member(s, "default", def != NULL ? json_incref(def) : json_string(k->def));
		json_decref(def);
		set_member(properties, k->name, s);
	}
}

/* The schema of a mapping with the keys of a place; types: it may also be something else. */
static json_t *place_schema(const char *where, const char *types)
{
	json_t *properties = json_object();
	add_keys(properties, where);
	return set_member(set_member(type_schema(types), "properties", properties), "additionalProperties",
	                  json_false());
}

/* ---- steps ---- */

/* Returns the schema of a step's arguments: a mapping, or its main argument alone. `use` also accepts those of the
 * definition. */
static json_t *step_arguments(const struct schema_step *row)
{
	const struct schema_key *main = schema_find_key(row->kind, row->main);
	bool is_use = strcmp(row->kind, "use") == 0;
	json_t *properties = json_object();
	add_keys(properties, "step");
	add_keys(properties, row->kind);
	json_t *map = set_member(type_schema("object"), "properties", properties);
	set_member(map, "additionalProperties", json_boolean(is_use));
	json_t *alone = is_use ? type_schema("string") : main != NULL ? value_schema(main) : NULL;
	json_t *s = alone != NULL ? json_pack("{s:[o, o]}", "anyOf", map, alone) : map;
	return set_member(s, "description", json_string(row->doc));
}

/* Returns the schema of a step: a built-in kind with its arguments, or a definition of the model with any arguments,
 * or a statement of a graph (a string). `body` and `branches` may stand next to the kind. */
static json_t *step_schema(const json_t *kinds)
{
	json_t *properties = json_object(), *kind;
	size_t i;
	json_array_foreach(kinds, i, kind)
	        set_member(properties, json_string_value(kind), ref_schema("step_", json_string_value(kind)));
	set_member(properties, "body", ref_schema("", "steps"));
	set_member(properties, "branches", json_pack("{s:o}", "items", ref_schema("", "steps")));
	return set_member(type_schema("object string"), "properties", properties);
}

/* Returns the schema of a step in a file without definitions: its kind is built in, also in the bodies inside it. A
 * bare string is a kind without arguments. */
static json_t *builtin_step_schema(const json_t *kinds)
{
	json_t *names = json_deep_copy(kinds), *inner = json_object();
	json_array_append_new(names, json_string("body"));
	json_array_append_new(names, json_string("branches"));
	set_member(inner, "body", ref_schema("", "known_steps"));
	set_member(inner, "branches", json_pack("{s:o}", "items", ref_schema("", "known_steps")));
	json_t *properties = json_copy(inner);
	set_member(properties, "residual",
	           json_pack("{s:O, s:o}", "properties", inner, "items", ref_schema("", "known_step")));
	set_member(properties, "repeat", json_pack("{s:o}", "properties", inner));
	json_t *map = json_pack("{s:{s:o}, s:o}", "propertyNames", "enum", names, "properties", properties);
	return json_pack("{s:{s:s}, s:{s:O}, s:o}", "if", "type", "string", "then", "enum", kinds, "else",
	                 map);
}

/* A source of the weight map: a name, a mapping of steps, or a list. */
static json_t *weight_source_schema(void)
{
	json_t *properties = json_object(), *many = json_pack("{s:o}", "items", ref_schema("", "source"));
	for (size_t i = 0; weight_source_key(i) != NULL; i++)
		set_member(properties, weight_source_key(i), json_true());
	set_member(properties, "any", json_incref(many));
	set_member(properties, "stack", many);
	json_t *s = set_member(type_schema("object array string null"), "properties", properties);
	return set_member(set_member(s, "additionalProperties", json_false()), "items",
	                  ref_schema("", "source"));
}

/* ---- the document ---- */

/* The definitions that references name: places, steps, and kinds of values. A place is defined at the first key that
 * leads to it. */
static json_t *definitions(const json_t *kinds)
{
	json_t *d = json_object(), *kind;
	size_t i;
	set_member(d, "any", json_true());
	set_member(d, "text", type_schema("string number boolean null"));
	set_member(d, "value",
	           set_member(type_schema("string number boolean array null"), "items",
	                      ref_schema("", "value")));
	set_member(d, "dim", place_schema("dim", "object string integer null"));
	set_member(d, "input", place_schema("input", "object string null"));
	set_member(d, "check", place_schema("check", "object"));
	set_member(d, "stack", place_schema("stack", "object null"));
	set_member(d, "source", weight_source_schema());
	for (const struct schema_key *k = NULL; (k = schema_next_key(NULL, k)) != NULL;) {
		bool may_be_bool = strcmp(k->words, "bool") == 0;
		if (place_of_mapping(k) != NULL && json_object_get(d, place_of_mapping(k)) == NULL)
			set_member(d, place_of_mapping(k),
			           place_schema(place_of_mapping(k), k->type == KEY_MAP ? "object null"
			                                             : may_be_bool
			                                                     ? "object boolean string null"
			                                                     : "object string null"));
	}
	set_member(d, "steps", json_pack("{s:s, s:o}", "type", "array", "items", ref_schema("", "step")));
	set_member(d, "step", step_schema(kinds));
	json_array_foreach(kinds, i, kind)
	{
		const struct schema_step *row = schema_find_step(json_string_value(kind));
		json_t *name = json_sprintf("step_%s", row->kind);
		set_member(d, json_string_value(name), step_arguments(row));
		json_decref(name);
	}
	set_member(d, "known_steps", json_pack("{s:o}", "items", ref_schema("", "known_step")));
	set_member(d, "known_step", builtin_step_schema(kinds));
	return d;
}

/* Returns the schema of required keys of a file without base or preset, and of the mappings inside it, also of those
 * whose keys the model chooses (dims, inputs, stacks). */
static json_t *required_of(const char *where)
{
	static const char *const named[] = {"dim", "input", "stack"};
	json_t *names = json_array(), *inner = json_object();
	for (const struct schema_key *k = NULL; (k = schema_next_key(where, k)) != NULL;) {
		const char *each = element_definition(k);
		if (strcmp(k->def, "!") == 0)
			json_array_append_new(names, json_string(k->name));
		if (place_of_mapping(k) != NULL)
			set_member(inner, k->name, required_of(place_of_mapping(k)));
		for (size_t i = 0; each != NULL && i < TFMC_COUNT(named); i++) {
			if (strcmp(each, named[i]) == 0)
				set_member(inner, k->name,
				           json_pack("{s:o}", "additionalProperties", required_of(each)));
		}
	}
	return json_pack("{s:o, s:o}", "required", names, "properties", inner);
}

/* {not: {anyOf: [{required: [a]}, ..]}}: none of the keys is present. */
static json_t *has_none_of(const char *keys)
{
	json_t *array = json_array(), *list = word_array(keys), *key;
	size_t i;
	json_array_foreach(list, i, key) json_array_append_new(array, json_pack("{s:[O]}", "required", key));
	json_decref(list);
	return json_pack("{s:{s:o}}", "not", "anyOf", array);
}

/* Returns the conditions: a file without base or preset has the required keys; one without definitions has only
 * built-in kinds. A file of definitions, for `include`, has no inputs. */
static json_t *conditions(void)
{
	json_t *fragment =
	        json_pack("{s:{s:o}}", "propertyNames", "enum", word_array("define include weights"));
	json_t *alone = json_pack("{s:[o, {s:o}]}", "allOf", has_none_of("base preset"), "not", fragment);
	json_t *stacks = json_pack("{s:{s:o}}", "properties", "body", ref_schema("", "known_steps"));
	json_t *model = json_pack("{s:o, s:o}", "items", ref_schema("", "known_step"), "additionalProperties",
	                          stacks);
	json_t *known = json_pack("{s:{s:o}}", "properties", "model", model);
	json_t *defaults = json_pack("{s:{s:o}}", "properties", "defaults", ref_schema("", "step"));
	return json_pack("[{s:o, s:o}, {s:o, s:o}, o]", "if", alone, "then", required_of("top"), "if",
	                 has_none_of("define base preset include"), "then", known, defaults);
}

/* The place `top` is the document itself; references name `definitions`. jansson allocates by memory_alloc(), which
 * reports that memory ran out. */
void frontend_schema(struct buf *out)
{
	struct arena a;
	size_t n;
	arena_init(&a);
	json_set_alloc_funcs(memory_alloc, memory_free);
	const char *const *names = schema_step_kinds(&a, &n);
	json_t *kinds = json_array();
	for (size_t i = 0; i < n; i++)
		json_array_append_new(kinds, json_string(names[i]));
	json_t *top = place_schema("top", "object");
	json_t *root = json_pack("{s:s, s:s}", "$schema", "http://json-schema.org/draft-07/schema#", "title",
	                         "model file of tfmc");
	json_object_update(root, top);
	json_decref(top);
	set_member(root, "allOf", conditions());
	set_member(root, "definitions", definitions(kinds));
	char *text = json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
	buf_printf(out, "%s\n", text != NULL ? text : "");
	memory_free(text);
	json_decref(root);
	json_decref(kinds);
	arena_destroy(&a);
}
