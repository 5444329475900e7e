/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adapters: the configuration, then the tensors by module, then each module's update at the tensor that it changes.
 * Nothing is computed here: an update is two stored tensors and a factor, evaluated when weights are packed.
 * The format is that of PEFT: LoRA, W + s B A with s = alpha / r, and replaced tensors. Functions return false after
 * a diagnostic, or without memory; refuse(), report() and report_type() make the diagnostic and return false.
 */
#include "frontend/weights/adapter.h"

#include <math.h>
#include <string.h>

#include "frontend/weights/entry.h"
#include "ir/support/strmap.h"

/* A module's factors. W [out, in] becomes W + s B A. */
struct module {
	const struct stored_tensor *a, *b; /* [r, in], [out, r] */
	bool is_table;                     /* lora_embedding_*: W is [in, out] */
	struct stored_tensor *target;
	bool fits_rows, fits_columns; /* W is [out, in]; [in, out] */
};

struct adapter {
	struct arena *arena;
	struct diag_context *cx;
	struct weight_files *model, *files;
	struct loc loc; /* where the folder is named */
	/* the configuration */
	const char *path, *text;
	size_t len;
	uint32_t source;
	const struct json_node *root;
	int64_t rank;
	double alpha;
	bool rslora, fan_in_fan_out;
	struct strmap modules; /* path -> struct module * */
};

/* ---- the configuration ---- */

static struct loc key_loc(const struct adapter *ad, const char *key)
{
	return json_key_loc(ad->text, ad->len, ad->source, key, ad->loc);
}

static bool refuse(const struct adapter *ad, const char *key, const char *why)
{
	diag_error(ad->cx, key_loc(ad, key), DIAG_UNSUPPORTED, "not supported yet: '%.100s' in '%.400s'%s",
	           key, ad->path, why);
	return false;
}

static bool report_type(const struct adapter *ad, const char *key, const char *expected)
{
	diag_error(ad->cx, key_loc(ad, key), DIAG_VALUE_TYPE, "'%s' in '%.400s' is not %s", key, ad->path,
	           expected);
	return false;
}

/* True: a value without effect (null, false, empty). Unknown keys may have such values: PEFT writes all keys. */
static bool is_off(const struct json_node *v)
{
	switch (v->kind) {
	case JSON_NODE_NULL: return true;
	case JSON_NODE_BOOL: return v->i == 0;
	case JSON_NODE_STRING: return v->text[0] == '\0';
	case JSON_NODE_ARRAY:
	case JSON_NODE_OBJECT: return v->n == 0;
	case JSON_NODE_INT:
	case JSON_NODE_REAL: break;
	}
	return false;
}

/* Reads a finite number above 0. False, without a diagnostic: v is NULL, or another value. */
static bool is_positive(const struct json_node *v, double *out)
{
	bool is_number = v != NULL && (v->kind == JSON_NODE_INT || v->kind == JSON_NODE_REAL);
	*out = !is_number ? 0 : v->kind == JSON_NODE_INT ? (double)v->i : v->f;
	return *out > 0 && isfinite(*out);
}

/* Reads a bool of the configuration; absent or null: false. */
static bool read_flag(const struct adapter *ad, const char *key, bool *out)
{
	const struct json_node *v = json_find(ad->root, key);
	*out = v != NULL && v->kind == JSON_NODE_BOOL && v->i != 0;
	return v == NULL || v->kind == JSON_NODE_BOOL || v->kind == JSON_NODE_NULL ||
	       report_type(ad, key, "true or false");
}

/* Checks alpha_pattern or rank_pattern, a mapping from modules to numbers above 0. PEFT reads its keys as regular
 * expressions for the end of a path; here only plain names are supported, and other characters are an error, as the
 * number would silently not apply. */
static bool check_pattern(const struct adapter *ad, const char *key)
{
	const struct json_node *map = json_find(ad->root, key);
	double number;
	if (map == NULL || is_off(map))
		return true;
	if (map->kind != JSON_NODE_OBJECT)
		return report_type(ad, key, "a mapping from modules to numbers");
	for (size_t i = 0; i < map->n; i++) {
		const char *inner = arena_printf(ad->arena, "%s.%s", key, map->keys[i]);
		if (strpbrk(map->keys[i], "\\^$*+?()[]{}|") != NULL)
			return refuse(
			        ad, key,
			        arena_printf(ad->arena, ": '%.100s' is a regular expression", map->keys[i]));
		if (!is_positive(&map->items[i], &number))
			return report_type(ad, inner, "a number above 0");
	}
	return true;
}

/* `name` is the path, or its end behind a dot. */
static bool names_module(const char *name, const char *path)
{
	size_t n = strlen(name), all = strlen(path);
	return n <= all && strcmp(path + all - n, name) == 0 && (n == all || path[all - n - 1] == '.');
}

/* KEYS_IGNORED: how the adapter was trained or saved, and which modules were selected: the tensors show those. */
#define KEYS_IGNORED                                                                                     \
	"auto_mapping base_model_name_or_path bias eva_config exclude_modules inference_mode "           \
	"layers_pattern "                                                                                \
	"layers_to_transform lora_dropout megatron_core modules_to_save peft_version qalora_group_size " \
	"revision runtime_config target_modules task_type"
#define KEYS_READ \
	"alpha_pattern fan_in_fan_out init_lora_weights lora_alpha peft_type r rank_pattern use_rslora"

/* Checks that the configuration is LoRA without keys that would change what its tensors mean: a key that is not known
   must be null, false or empty. */
static bool check_config(struct adapter *ad)
{
	const struct json_node *type = json_find(ad->root, "peft_type"),
	                       *start = json_find(ad->root, "init_lora_weights");
	double rank;
	bool is_text = type != NULL && type->kind == JSON_NODE_STRING;
	if (!is_text || strcmp(type->text, "LORA") != 0)
		return refuse(ad, "peft_type",
		              arena_printf(ad->arena, ": %s%.60s%s; LORA is", is_text ? "'" : "no",
		                           is_text ? type->text : " text", is_text ? "'" : ""));
	for (size_t i = 0; i < ad->root->n; i++) {
		const char *key = ad->root->keys[i];
		size_t n = strlen(key);
		if (!is_off(&ad->root->items[i]) && !list_has_word(KEYS_IGNORED, key, n) &&
		    !list_has_word(KEYS_READ, key, n))
			return refuse(ad, key, "; it may change what the tensors mean");
	}
	/* pissa, olora, corda, loftq change the weights of the model, too; the listed ones are for factors only */
	if (start != NULL && start->kind == JSON_NODE_STRING &&
	    !list_has_word("gaussian eva orthogonal", start->text, strlen(start->text)))
		return refuse(ad, "init_lora_weights",
		              arena_printf(ad->arena,
		                           ": '%.60s' changes the weights that the adapter is added to",
		                           start->text));
	if (!is_positive(json_find(ad->root, "r"), &rank) || rank > ADAPTER_RANK_MAX || rank != floor(rank))
		return report_type(ad, "r", "a rank from 1 to 4096");
	ad->rank = (int64_t)rank;
	if (!is_positive(json_find(ad->root, "lora_alpha"), &ad->alpha))
		return report_type(ad, "lora_alpha", "a number above 0");
	return read_flag(ad, "use_rslora", &ad->rslora) &&
	       read_flag(ad, "fan_in_fan_out", &ad->fan_in_fan_out) && check_pattern(ad, "alpha_pattern") &&
	       check_pattern(ad, "rank_pattern");
}

/* Reads and checks adapter_config.json. */
static enum tfmc_status read_config(struct adapter *ad)
{
	const struct json_source src = {.name = ad->path, .loc = ad->loc, .code = DIAG_FILE};
	TFMC_TRY(file_read(ad->arena, ad->cx, ad->path, JSON_BYTES_MAX, ad->loc, &ad->text, &ad->len));
	ad->root = json_parse(ad->arena, ad->cx, &src, ad->text, ad->len);
	if (ad->root == NULL)
		return arena_failed(ad->arena) ? TFMC_NO_MEMORY : TFMC_INVALID;
	ad->source = diag_add_source(ad->cx, ad->path, ad->text, ad->len);
	if (ad->root->kind != JSON_NODE_OBJECT) {
		diag_error(ad->cx, ad->loc, DIAG_FILE, "'%.400s' holds no JSON object", ad->path);
		return TFMC_INVALID;
	}
	return check_config(ad) ? TFMC_OK : TFMC_INVALID;
}

/* ---- tensors ---- */

static bool report(const struct adapter *ad, const struct stored_tensor *t, enum diag_code code,
                   const char *what)
{
	diag_error(ad->cx, ad->loc, code, "'%.400s': tensor '%.200s' %s", t->file, t->name, what);
	return false;
}

/* The module's path before `end`; NULL: the name ends otherwise. */
static const char *path_before(struct arena *a, const char *name, const char *end)
{
	size_t n = strlen(name), m = strlen(end);
	return n > m && strcmp(name + n - m, end) == 0 ? arena_strndup(a, name, n - m) : NULL;
}

/* The name without the parts that PEFT puts between a module and its parameter. */
static const char *without_wrappers(struct arena *a, const char *name)
{
	static const char *const wrappers[] = {".base_layer.", ".modules_to_save."};
	for (size_t i = 0; i < TFMC_COUNT(wrappers); i++) {
		const char *at = strstr(name, wrappers[i]);
		if (at != NULL)
			name = arena_printf(a, "%.*s.%s", (int)(at - name), name, at + strlen(wrappers[i]));
	}
	return name;
}

/*
 * The tensor of the model for a parameter of the module tree; NULL: none. Files of a model and modules of an adapter
 * differ in the name of the part that holds the layers (`model.`, `transformer.`): it may be missing in either. So the
 * name is looked up as stored, then among stripped names, then without its first part.
 */
static struct stored_tensor *find_target(const struct adapter *ad, const char *name)
{
	struct stored_tensor *t = weight_files_find_stored(ad->model, name);
	const char *dot = strchr(name, '.');
	if (t == NULL)
		t = weight_files_find(ad->model, name);
	return t != NULL || dot == NULL ? t : weight_files_find(ad->model, dot + 1);
}

/* True: floats stored as such in row-major order. To quantized tensors no update can be added without dequantizing
   them. */
static bool is_float(const struct stored_tensor *t)
{
	return t->readable && t->read == NULL && t->format == FORMAT_PLAIN && t->packed_as == NULL &&
	       !t->reversed && ir_dtype_class(t->dtype) == DTCLASS_FLOAT;
}

/* A tensor that is no factor (modules_to_save, biases) replaces the model's, or is added where the model has none (a
   new head). Two adapters that replace one tensor contradict each other. */
static bool add_replacement(struct adapter *ad, struct stored_tensor *t, const char *name)
{
	struct stored_tensor *target = find_target(ad, name);
	if (!is_float(t))
		return report(ad, t, DIAG_STORED_TYPE,
		              arena_printf(ad->arena, "is stored as %s; adapters hold floats", t->type_name));
	if (target == NULL)
		return weight_files_add_as(ad->model, t, name);
	if (target->replaced_by != NULL)
		return report(ad, t, DIAG_REFUSED,
		              arena_printf(ad->arena, "replaces '%.200s', which '%.200s' has replaced",
		                           target->name, target->replaced_by->file));
	target->replaced_by = t;
	return true;
}

/* Files a tensor under its module, as factor A or B, or as a replacement of a whole tensor. Factors of an embedding, a
   table, have names of their own. Other tensors of LoRA (magnitudes of DoRA) would change the formula: unsupported. */
static bool add_tensor(struct adapter *ad, struct stored_tensor *t)
{
	static const struct {
		const char *end;
		bool is_b, is_table;
	} factors[] = {{".lora_A.weight", false, false},
	               {".lora_B.weight", true, false},
	               {".lora_embedding_A", false, true},
	               {".lora_embedding_B", true, true}};
	static const char root[] = "base_model.model.";
	if (strncmp(t->name, root, sizeof(root) - 1) != 0)
		return report(ad, t, DIAG_WEIGHT_FILE,
		              "has a name without 'base_model.model.', as no adapter of PEFT has");
	const char *name = t->name + sizeof(root) - 1, *path = NULL;
	size_t i = 0;
	while (i < TFMC_COUNT(factors) && (path = path_before(ad->arena, name, factors[i].end)) == NULL)
		i++;
	if (path == NULL && strstr(name, ".lora_") != NULL)
		return report(ad, t, DIAG_UNSUPPORTED,
		              "is not supported yet: of LoRA there are lora_A, lora_B and those of "
		              "embeddings (DoRA and "
		              "biases of factors are not)");
	if (path == NULL)
		return add_replacement(ad, t, without_wrappers(ad->arena, name));
	struct module *m = strmap_get(&ad->modules, path);
	if (m == NULL) {
		m = ARENA_NEW(ad->arena, struct module);
		if (m == NULL || !strmap_set(&ad->modules, path, m))
			return false;
		m->is_table = factors[i].is_table;
	}
	if (!is_float(t) || t->rank != 2)
		return report(ad, t, DIAG_STORED_TYPE,
		              arena_printf(ad->arena, "is %s of rank %d; factors are matrices of floats",
		                           t->type_name, t->rank));
	if (m->is_table != factors[i].is_table)
		return report(ad, t, DIAG_WEIGHT_FILE, "is a factor of a table, its neighbour of a matrix");
	*(factors[i].is_b ? &m->b : &m->a) = t;
	return true;
}

/* ---- modules ---- */

/* True unless target_modules is a list without the module: PEFT then has no such layer. */
static bool is_targeted(const struct adapter *ad, const char *path)
{
	const struct json_node *list = json_find(ad->root, "target_modules");
	bool found = list == NULL || list->kind != JSON_NODE_ARRAY;
	for (size_t i = 0; !found && i < list->n; i++)
		found = list->items[i].kind == JSON_NODE_STRING && names_module(list->items[i].text, path);
	return found;
}

/* Finds the tensor that a module changes, and compares shapes: fits_rows, W is [out, in]; fits_columns, it is [in, out]
   (tables always); a square one fits both ways. With a rank_pattern, ranks differ from `r` and are those of the
   factors. If an adapter replaced the tensor, the update is added to the replacement. */
static bool find_module(struct adapter *ad, const char *path, struct module *m)
{
	const struct stored_tensor *t = m->a != NULL ? m->a : m->b;
	const char *name = arena_printf(ad->arena, "%s.weight", path);
	const struct json_node *ranks = json_find(ad->root, "rank_pattern");
	if (m->a == NULL || m->b == NULL)
		return report(ad, t, DIAG_MISSING_TENSOR, "is one factor of two, the other is missing");
	if (!is_targeted(ad, path))
		return report(ad, t, DIAG_REFUSED,
		              arena_printf(ad->arena,
		                           "is of a module that 'target_modules' in '%.200s' does not list",
		                           ad->path));
	int64_t rank = m->a->dims[0], in = m->a->dims[1], out = m->b->dims[0];
	if (rank != m->b->dims[1] || rank < 1 || rank > ADAPTER_RANK_MAX ||
	    ((ranks == NULL || is_off(ranks)) && rank != ad->rank))
		return report(ad, t, DIAG_WEIGHT_SHAPE,
		              arena_printf(ad->arena,
		                           "has rank %lld, the other factor %lld, 'r' in '%.200s' is %lld",
		                           (long long)rank, (long long)m->b->dims[1], ad->path,
		                           (long long)ad->rank));
	m->target = find_target(ad, name);
	if (m->target == NULL) {
		const char *near = weight_files_nearest(ad->model, name);
		return report(ad, t, DIAG_MISSING_TENSOR,
		              arena_printf(ad->arena,
		                           "changes '%.200s', which the model's files do not store%s%s", name,
		                           near[0] != '\0' ? "; similar: " : "", near));
	}
	if (!is_float(m->target))
		return report(ad, t, DIAG_STORED_TYPE,
		              arena_printf(ad->arena,
		                           "changes '%.200s', which is stored as %s: adapters are added to "
		                           "floats, as the "
		                           "model before it was quantized has them",
		                           m->target->name, m->target->type_name));
	const struct stored_tensor *w = m->target->replaced_by != NULL ? m->target->replaced_by : m->target;
	m->fits_rows = !m->is_table && w->rank == 2 && w->dims[0] == out && w->dims[1] == in;
	m->fits_columns = w->rank == 2 && w->dims[0] == in && w->dims[1] == out;
	return m->fits_rows || m->fits_columns ||
	       report(ad, t, DIAG_WEIGHT_SHAPE,
	              arena_printf(ad->arena,
	                           "and its neighbour change a matrix [%lld, %lld], '%.200s' is %s",
	                           (long long)out, (long long)in, m->target->name,
	                           weight_shape_text(ad->arena, w->rank, w->dims)));
}

/* s for a module: its alpha is that of the first pattern that names it. */
static double scale_of(const struct adapter *ad, const char *path, int64_t rank)
{
	const struct json_node *map = json_find(ad->root, "alpha_pattern");
	double alpha = ad->alpha;
	for (size_t i = 0; map != NULL && map->kind == JSON_NODE_OBJECT && i < map->n; i++) {
		if (names_module(map->keys[i], path)) {
			(void)is_positive(&map->items[i], &alpha); /* check_pattern has checked it */
			break;
		}
	}
	return ad->rslora ? alpha / sqrt((double)rank) : alpha / (double)rank;
}

/* Appends the update of a module to those of its tensor, which are applied in the order of adapters. transposed: W is
   stored as [in, out]. */
static bool attach(struct adapter *ad, const char *path, const struct module *m, bool transposed)
{
	struct weight_update *u = ARENA_NEW(ad->arena, struct weight_update), **end = &m->target->updates;
	if (u == NULL)
		return false;
	*u = (struct weight_update){m->a, m->b, scale_of(ad, path, m->a->dims[0]), transposed, NULL};
	while (*end != NULL)
		end = &(*end)->next;
	*end = u;
	m->target->is_table = m->target->is_table || m->is_table;
	return true;
}

/*
 * Attaches the updates. fan_in_fan_out says that matrices are stored [in, out] (GPT-2). PEFT corrects it for each kind
 * of layer, and saves what it corrected last, so shapes decide, and the key only for square matrices. It is an error if
 * there is a square matrix and the shape of another one contradicts the key: then neither decides.
 */
static bool attach_all(struct adapter *ad)
{
	const struct module *square = NULL, *against = NULL;
	bool ok = true;
	for (size_t i = 0; i < ad->modules.n && !diag_is_full(ad->cx); i++) {
		struct module *m = ad->modules.items[i].value;
		ok = find_module(ad, ad->modules.items[i].key, m) && ok;
		if (m->fits_rows && m->fits_columns)
			square = m;
		else if (!m->is_table && m->fits_columns != ad->fan_in_fan_out)
			against = m;
	}
	if (ok && square != NULL && against != NULL) {
		diag_error(ad->cx, key_loc(ad, "fan_in_fan_out"), DIAG_WEIGHT_SHAPE,
		           "'%.400s': '%.200s' is not stored as 'fan_in_fan_out' says, so that nothing says "
		           "how the square "
		           "'%.200s' is",
		           ad->path, against->target->name, square->target->name);
		return false;
	}
	for (size_t i = 0; ok && i < ad->modules.n; i++) {
		const struct module *m = ad->modules.items[i].value;
		bool both = m->fits_rows && m->fits_columns;
		ok = attach(ad, ad->modules.items[i].key, m, both ? ad->fan_in_fan_out : m->fits_columns);
	}
	return ok;
}

/* Tensors are collected by module before any update is attached: the factors of a module are two tensors, in any order
   of the file, and fan_in_fan_out is judged by all shapes. */
enum tfmc_status weight_adapter_open(struct weight_files *wf, struct arena *a, struct diag_context *cx,
                                     const char *dir, const char *folder, struct loc loc)
{
	struct weight_files *files = weight_files_attach(wf);
	struct adapter ad = {.arena = a, .cx = cx, .model = wf, .files = files, .loc = loc};
	const char *from = dir == NULL ? "" : dir, *name = file_join(a, folder, "adapter_model.safetensors");
	bool ok = true;
	if (files == NULL || arena_failed(a))
		return TFMC_NO_MEMORY;
	strmap_init(&ad.modules, a);
	ad.path = file_join(a, from, file_join(a, folder, "adapter_config.json"));
	weight_files_record(wf, ad.path);
	TFMC_TRY(read_config(&ad));
	/* safetensors wins where both exist, as in PEFT; where none does, opening it reports that */
	if (!file_exists(file_join(a, from, name)) &&
	    file_exists(file_join(a, from, file_join(a, folder, "adapter_model.bin"))))
		name = file_join(a, folder, "adapter_model.bin");
	TFMC_TRY(weight_files_open(files, dir, name, loc));
	for (size_t i = 0; ok && i < weight_files_count(files); i++)
		ok = add_tensor(&ad, weight_files_at(files, i));
	ok = ok && attach_all(&ad);
	return arena_failed(a) ? TFMC_NO_MEMORY : ok ? TFMC_OK : TFMC_INVALID;
}
