/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ONNX: the messages of onnx.proto, field by field. A message is a range of the file; every length is compared with the
 * range it is in. Nesting is that of the schema; graphs within graphs recurse up to ONNX_DEPTH_MAX. Each read_MESSAGE
 * reads a message of onnx.proto by the numbers of its fields, which may come in any order; other fields are skipped.
 * False after a diagnostic, or without memory. A field may have another wire type than the schema: fields of numbers
 * are then 0, messages and names an error. count_item() bounds the memory that a small file can make this reader take.
 */
#include "frontend/weights/onnx.h"

#include <string.h>

#include "frontend/weights/protobuf.h"
#include "ir/support/checked.h"
#include "ir/support/number.h"
#include "ir/support/strmap.h"
#include "ir/support/utf8.h"

/* ---- fields ---- */

static bool damaged(const struct onnx_model *m, const unsigned char *at, const char *text)
{
	return weight_file_error_at(m->s, (size_t)(at - m->s->bytes), "%s", text);
}

/* proto_next with a diagnostic for damage. False also at the end, and where *ok is false already, with no further
 * diagnostic: a loop over it ends at the first error, which the caller finds in *ok. */
static bool next_field(const struct onnx_model *m, struct proto_range *r, struct proto_field *f, bool *ok)
{
	const unsigned char *begin = r->at;
	bool was_ok = *ok;
	return proto_next(r, f, ok) ||
	       (was_ok && !*ok &&
	        damaged(m, begin, "no field of a protobuf message is here; not an ONNX file, or cut off"));
}

/* Counts an item of the graph, so that memory is limited. */
static bool count_item(struct onnx_model *m)
{
	if (m->n_items++ < ONNX_ITEMS_MAX)
		return true;
	diag_error(m->s->cx, m->s->loc, DIAG_LIMIT, "'%s': more than %d items in its graph", m->s->name,
	           ONNX_ITEMS_MAX);
	return false;
}

/* A name or another string; NULL after a diagnostic: not UTF-8, too long, or with a zero byte. An empty field may have
 * no bytes at all, hence the tests of n. */
static const char *read_text(struct onnx_model *m, const struct proto_field *f)
{
	size_t n = f->wire == WIRE_BYTES ? (size_t)(f->bytes.end - f->bytes.at) : 0;
	const char *text = (const char *)f->bytes.at;
	if (f->wire != WIRE_BYTES || n > ONNX_NAME_MAX || (n > 0 && memchr(text, '\0', n) != NULL) ||
	    (n > 0 && utf8_check(text, n) != n)) {
		weight_file_error(m->s, "a name in it is no UTF-8 text of at most %d bytes", ONNX_NAME_MAX);
		return NULL;
	}
	return count_item(m) ? arena_strndup(m->s->arena, n > 0 ? text : "", n) : NULL;
}

static bool read_name(struct onnx_model *m, const struct proto_field *f, const char **out)
{
	const char *text = read_text(m, f);
	*out = text != NULL ? text : "";
	return text != NULL;
}

static bool add_name(struct onnx_model *m, const struct proto_field *f, struct onnx_names *list)
{
	const char *text;
	return read_name(m, f, &text) && ARENA_ADDED(m->s->arena, list, text);
}

static bool want_bytes(const struct onnx_model *m, const struct proto_field *f, struct proto_range *out)
{
	*out = f->bytes;
	return f->wire == WIRE_BYTES ||
	       weight_file_error(m->s, "its field %llu is no message", (unsigned long long)f->number);
}

/* ---- tensors ---- */

/* Fields of TensorProto that have elements in their own encoding. */
enum { FLOAT_DATA = 4, INT32_DATA, STRING_DATA, INT64_DATA, RAW_DATA = 9, DOUBLE_DATA, UINT64_DATA };

/* Element types; read: as in stored.h. `field`: that of elements that are not raw. */
static const struct element_type {
	int64_t type;
	const char *name;
	int64_t bytes; /* 0: not readable */
	enum ir_dtype dtype;
	weight_elements *read;
	unsigned field;
} element_types[] = {
        {1, "FLOAT", 4, DT_F32, NULL, FLOAT_DATA},
        {2, "UINT8", 1, DT_U8, NULL, INT32_DATA},
        {3, "INT8", 1, DT_I8, NULL, INT32_DATA},
        {4, "UINT16", 2, DT_F64, stored_read_u16, INT32_DATA},
        {5, "INT16", 2, DT_I16, NULL, INT32_DATA},
        {6, "INT32", 4, DT_I32, NULL, INT32_DATA},
        {7, "INT64", 8, DT_I64, NULL, INT64_DATA},
        {8, "STRING", 0, DT_F32, NULL, STRING_DATA},
        {9, "BOOL", 1, DT_BOOL, NULL, INT32_DATA},
        {10, "FLOAT16", 2, DT_F16, NULL, INT32_DATA},
        {11, "DOUBLE", 8, DT_F64, NULL, DOUBLE_DATA},
        {12, "UINT32", 4, DT_F64, stored_read_u32, UINT64_DATA},
        {13, "UINT64", 8, DT_F64, stored_read_u64, UINT64_DATA},
        {14, "COMPLEX64", 0, DT_F32, NULL, FLOAT_DATA},
        {15, "COMPLEX128", 0, DT_F32, NULL, DOUBLE_DATA},
        {16, "BFLOAT16", 2, DT_BF16, NULL, INT32_DATA},
        {17, "FLOAT8E4M3FN", 1, DT_F16, stored_read_f8_e4m3, INT32_DATA},
        {18, "FLOAT8E4M3FNUZ", 1, DT_F16, stored_read_f8_e4m3fnuz, INT32_DATA},
        {19, "FLOAT8E5M2", 1, DT_F16, stored_read_f8_e5m2, INT32_DATA},
        {20, "FLOAT8E5M2FNUZ", 1, DT_F16, stored_read_f8_e5m2fnuz, INT32_DATA},
        {21, "UINT4", 0, DT_F32, NULL, INT32_DATA},
        {22, "INT4", 0, DT_F32, NULL, INT32_DATA},
        {23, "FLOAT4E2M1", 0, DT_F32, NULL, INT32_DATA},
        {24, "FLOAT8E8M0", 1, DT_BF16, stored_read_f8_e8m0, INT32_DATA},
};

static const struct element_type *find_type(int64_t type)
{
	for (size_t i = 0; i < TFMC_COUNT(element_types); i++)
		if (element_types[i].type == type)
			return &element_types[i];
	return NULL;
}

const char *onnx_type_name(int64_t type)
{
	const struct element_type *t = find_type(type);
	return t != NULL ? t->name : "?";
}

bool onnx_dtype(int64_t type, enum ir_dtype *out)
{
	const struct element_type *t = find_type(type);
	bool is_native = t != NULL && t->bytes > 0 && t->read == NULL;
	if (is_native)
		*out = t->dtype;
	return is_native;
}

/* Appends a size to the shape of a tensor. */
static bool add_dim(const struct onnx_model *m, struct stored_tensor *t, uint64_t size)
{
	if (t->rank == IR_RANK_MAX)
		return weight_file_error_in(m->s, "tensor", t->name, "its rank is above %d", IR_RANK_MAX);
	if (size > INT64_MAX)
		return weight_file_error_in(m->s, "tensor", t->name, "it has a negative size");
	t->dims[t->rank++] = (int64_t)size;
	return true;
}

/* TensorProto.dims: one size, or a packed list of them. */
static bool read_dims(const struct onnx_model *m, const struct proto_field *f, struct stored_tensor *t)
{
	struct proto_range r = f->bytes;
	uint64_t size;
	if (f->wire == WIRE_VARINT)
		return add_dim(m, t, f->value);
	while (f->wire == WIRE_BYTES && r.at < r.end) {
		const unsigned char *at = r.at;
		if (!proto_varint(&r, &size))
			return damaged(m, at, "the shape of a tensor ends in the middle of a number");
		if (!add_dim(m, t, size))
			return false;
	}
	return f->wire == WIRE_BYTES ||
	       weight_file_error_in(m->s, "tensor", t->name, "its shape is no numbers");
}

/* An entry of external_data, key (1) and value (2): location, offset or length; other keys (checksum) are ignored. */
static bool read_external(struct onnx_model *m, const struct proto_field *f, struct onnx_tensor *t)
{
	const char *key = "", *value = "";
	struct proto_range r;
	struct proto_field inner;
	int64_t number = 0;
	bool ok = want_bytes(m, f, &r);
	while (next_field(m, &r, &inner, &ok))
		if (inner.number == 1 || inner.number == 2)
			ok = read_name(m, &inner, inner.number == 1 ? &key : &value);
	if (!ok)
		return false;
	if (strcmp(key, "location") == 0)
		t->location = value;
	bool is_offset = strcmp(key, "offset") == 0, is_length = strcmp(key, "length") == 0;
	if (!is_offset && !is_length)
		return true;
	if (!number_parse_i64(value, strlen(value), &number) || number < 0)
		return weight_file_error_in(m->s, "tensor", t->stored.name, "its %s '%.40s' is no number",
		                            key, value);
	*(is_offset ? &t->offset : &t->length) = (uint64_t)number;
	return true;
}

/* Fields of a tensor that hold its elements. */
struct element_source {
	struct proto_range raw;
	bool has_raw, is_external;
	struct proto_range body; /* the whole message; typed elements are read in a second pass */
};

/* Appends the elements of one field, packed or a single one, each the low type->bytes of its number: floats and doubles
 * have fixed widths, others are varints, 16-bit floats as their bits. *at: elements so far, of n. Not packed: one
 * number, f->value. */
static bool read_typed_field(const struct onnx_model *m, const struct proto_field *f,
                             const struct element_type *type, unsigned char *out, int64_t n, int64_t *at)
{
	struct proto_range r = f->bytes;
	size_t fixed = type->field == FLOAT_DATA ? 4 : type->field == DOUBLE_DATA ? 8 : 0;
	bool is_packed = f->wire == WIRE_BYTES, ok = true;
	uint64_t v = f->value;
	while (ok && (!is_packed || r.at < r.end)) {
		if (is_packed && fixed == 0)
			ok = proto_varint(&r, &v);
		else if (is_packed) {
			ok = (size_t)(r.end - r.at) >= fixed;
			v = ok ? read_little_endian(r.at, fixed) : 0;
			r.at += ok ? fixed : 0;
		}
		ok = ok && *at < n;
		for (int64_t k = 0; ok && k < type->bytes; k++)
			out[*at * type->bytes + k] = (unsigned char)(v >> (8 * k));
		(*at)++;
		if (!is_packed)
			break;
	}
	return ok || damaged(m, f->bytes.at != NULL ? f->bytes.at : m->s->bytes,
	                     "a tensor has more elements than its shape, or they are cut off");
}

/* Copies the elements of the typed fields to the arena: they have no fixed width, or begin anywhere. */
static bool read_typed(const struct onnx_model *m, const struct element_source *e,
                       const struct element_type *type, int64_t n, struct stored_tensor *t)
{
	struct proto_range r = e->body;
	struct proto_field f = {0};
	bool ok = true;
	int64_t found = 0;
	/* An element takes at least a byte in the file: a hostile shape cannot allocate more than its file has. */
	if (n > e->body.end - e->body.at)
		return weight_file_error_in(m->s, "tensor", t->name,
		                            "it has not the %lld elements of its shape", (long long)n);
	unsigned char *out = arena_alloc(m->s->arena, (size_t)(n * type->bytes));
	if (out == NULL && n > 0)
		return false;
	while (next_field(m, &r, &f, &ok))
		if (f.number == type->field)
			ok = read_typed_field(m, &f, type, out, n, &found);
	if (ok && found != n)
		return weight_file_error_in(m->s, "tensor", t->name, "it has %lld elements, its shape %lld",
		                            (long long)found, (long long)n);
	t->data = out;
	return ok;
}

/* Sets type, bytes and data of a tensor whose fields have been read. External data are set later (onnx_set_external);
 * until then the tensor is not readable. A location counts only where data_location says that data are external. */
static bool locate_elements(const struct onnx_model *m, const struct element_source *e, struct onnx_tensor *t)
{
	const struct element_type *type = find_type(t->type);
	struct stored_tensor *s = &t->stored;
	int64_t n, bytes;
	if (type == NULL)
		return weight_file_error_in(m->s, "tensor", s->name, "it has the unknown type %lld",
		                            (long long)t->type);
	s->type_name = type->name;
	s->dtype = type->dtype;
	s->read = type->read;
	if (!checked_product_i64(s->dims, (size_t)s->rank, &n) || !checked_mul_i64(n, type->bytes, &bytes))
		return weight_file_error_in(m->s, "tensor", s->name, "its shape is too large");
	s->bytes = (size_t)bytes;
	if (e->is_external)
		return t->location != NULL ||
		       weight_file_error_in(m->s, "tensor", s->name, "its data are in a file without a name");
	t->location = NULL;
	s->readable = type->bytes > 0;
	if (!s->readable)
		return true;
	if (!e->has_raw)
		return read_typed(m, e, type, n, s);
	s->data = e->raw.at;
	return (uint64_t)(e->raw.end - e->raw.at) == s->bytes ||
	       weight_file_error_in(m->s, "tensor", s->name, "it has %zu bytes, its shape %zu",
	                            (size_t)(e->raw.end - e->raw.at), s->bytes);
}

/* TensorProto: dims (1), data_type (2), segment (3), name (8), raw_data (9), external_data (13), data_location (14),
 * and fields of typed elements, which locate_elements() reads. NULL after a diagnostic. Elements are located after the
 * last field, as the type and shape that they need may follow them. */
static struct onnx_tensor *read_tensor(struct onnx_model *m, const struct proto_field *message)
{
	struct onnx_tensor *t = ARENA_NEW(m->s->arena, struct onnx_tensor);
	struct element_source e = {.body = message->bytes};
	struct proto_range r;
	struct proto_field f = {0};
	if (t == NULL || !count_item(m) || !want_bytes(m, message, &r))
		return NULL;
	t->stored.name = "";
	bool ok = true;
	while (next_field(m, &r, &f, &ok)) {
		switch (f.number) {
		case 1: ok = read_dims(m, &f, &t->stored); break;
		case 2: t->type = (int64_t)f.value; break;
		case 3: ok = weight_file_error(m->s, "not supported: a tensor in segments"); break;
		case 8: ok = read_name(m, &f, &t->stored.name); break;
		case RAW_DATA:
			ok = want_bytes(m, &f, &e.raw);
			e.has_raw = true;
			break;
		case 13: ok = read_external(m, &f, t); break;
		case 14: e.is_external = f.value == 1; break;
		default: break;
		}
	}
	return ok && locate_elements(m, &e, t) ? t : NULL;
}

bool onnx_set_external(const struct stored_source *s, struct onnx_tensor *t, const unsigned char *bytes,
                       size_t len)
{
	const struct element_type *type = find_type(t->type);
	if (type == NULL || type->bytes == 0)
		return true; /* a type that is not readable: the data are not used */
	if ((t->length != 0 && t->length != t->stored.bytes) || t->offset > len ||
	    t->stored.bytes > len - (size_t)t->offset)
		return weight_file_error_in(s, "tensor", t->stored.name,
		                            "its %zu bytes at byte %llu of '%.200s' are not there",
		                            t->stored.bytes, (unsigned long long)t->offset, t->location);
	t->stored.data = bytes + t->offset;
	t->stored.readable = true;
	return true;
}

/* ---- nodes ---- */

/* AttributeProto.floats (7) and ints (8), packed or one number; each number is counted, as items of the arena are
 * larger than a byte of the file. */
static bool add_numbers(struct onnx_model *m, const struct proto_field *f, struct onnx_attribute *a)
{
	struct proto_range r = f->bytes;
	bool is_float = f->number == 7, ok = true;
	uint64_t v = f->value;
	while (ok && (f->wire != WIRE_BYTES || r.at < r.end)) {
		if (f->wire == WIRE_BYTES && is_float) {
			ok = r.end - r.at >= 4;
			v = ok ? read_little_endian(r.at, 4) : 0;
			r.at += ok ? 4 : 0;
		} else if (f->wire == WIRE_BYTES)
			ok = proto_varint(&r, &v);
		ok = ok || damaged(m, f->bytes.at, "a list of numbers is cut off");
		ok = ok && count_item(m);
		if (ok && is_float)
			ok = ARENA_ADDED(m->s->arena, &a->floats, f32_from_bits(v));
		else if (ok)
			ok = ARENA_ADDED(m->s->arena, &a->ints, (int64_t)v);
		if (f->wire != WIRE_BYTES)
			break;
	}
	return ok;
}

static bool read_graph(struct onnx_model *m, const struct proto_field *message, struct onnx_graph *g);

/* A graph within a graph; NULL after a diagnostic. */
static const struct onnx_graph *read_subgraph(struct onnx_model *m, const struct proto_field *message)
{
	struct onnx_graph *g = ARENA_NEW(m->s->arena, struct onnx_graph);
	if (m->depth >= ONNX_DEPTH_MAX)
		weight_file_error(m->s, "more than %d graphs within each other", ONNX_DEPTH_MAX);
	else if (g != NULL && read_graph(m, message, g))
		return g;
	return NULL;
}

/* AttributeProto: name (1), float (2), int (3), string (4), tensor (5), graph (6), floats (7), ints (8), strings (9,
 * only counted). `type` (20) says which of the values counts, whatever fields there are. */
static bool read_attribute(struct onnx_model *m, const struct proto_field *message, struct onnx_node *node)
{
	struct onnx_attribute *a = ARENA_PUSH(m->s->arena, &node->attributes);
	struct proto_range r;
	struct proto_field f = {0};
	bool ok = a != NULL && count_item(m) && want_bytes(m, message, &r);
	uint64_t kind = 0;
	if (!ok)
		return false;
	a->name = a->text = "";
	while (next_field(m, &r, &f, &ok)) {
		switch (f.number) {
		case 1: ok = read_name(m, &f, &a->name); break;
		case 2: a->f = f32_from_bits(f.value); break;
		case 3: a->i = (int64_t)f.value; break;
		case 4: /* bytes of any kind: text where it can be */
			if (f.wire == WIRE_BYTES && f.bytes.end - f.bytes.at <= ONNX_NAME_MAX &&
			    memchr(f.bytes.at, '\0', (size_t)(f.bytes.end - f.bytes.at)) == NULL)
				a->text = arena_strndup(m->s->arena, (const char *)f.bytes.at,
				                        (size_t)(f.bytes.end - f.bytes.at));
			break;
		case 5: ok = (a->tensor = read_tensor(m, &f)) != NULL; break;
		case 6: ok = (a->graph = read_subgraph(m, &f)) != NULL; break;
		case 7:
		case 8: ok = add_numbers(m, &f, a); break;
		case 20: kind = f.value; break;
		default: break;
		}
	}
	a->kind = kind <= ONNX_STRINGS ? (enum onnx_attribute_kind)kind : ONNX_OTHER;
	return ok && (a->kind != ONNX_TENSOR || a->tensor != NULL ||
	              weight_file_error(m->s, "an attribute '%.80s' has no tensor", a->name));
}

const struct onnx_attribute *onnx_attribute(const struct onnx_node *node, const char *name)
{
	for (size_t i = 0; i < node->attributes.n; i++)
		if (strcmp(node->attributes.items[i].name, name) == 0)
			return &node->attributes.items[i];
	return NULL;
}

/* Adds the tensor of a node Constant to the named tensors, under the name of the node's output, as if it were an
 * initializer. */
static bool name_constant(struct onnx_model *m, const struct onnx_node *node)
{
	const struct onnx_attribute *a = onnx_attribute(node, "value");
	if (strcmp(node->op, "Constant") != 0 || a == NULL || a->kind != ONNX_TENSOR || node->outputs.n != 1)
		return true;
	struct onnx_tensor *t = (struct onnx_tensor *)(uintptr_t)a->tensor; /* const to callers alone */
	t->stored.name = node->outputs.items[0];
	return ARENA_ADDED(m->s->arena, &m->tensors, t);
}

/* NodeProto: inputs (1), outputs (2), name (3), op_type (4), attributes (5), domain (7). Absent strings are "". */
static bool read_node(struct onnx_model *m, const struct proto_field *message, struct onnx_graph *g)
{
	struct onnx_node *node = ARENA_PUSH(m->s->arena, &g->nodes);
	struct proto_range r;
	struct proto_field f = {0};
	bool ok = node != NULL && count_item(m) && want_bytes(m, message, &r);
	if (!ok)
		return false;
	node->name = node->op = node->domain = "";
	while (next_field(m, &r, &f, &ok)) {
		switch (f.number) {
		case 1: ok = add_name(m, &f, &node->inputs); break;
		case 2: ok = add_name(m, &f, &node->outputs); break;
		case 3: ok = read_name(m, &f, &node->name); break;
		case 4: ok = read_name(m, &f, &node->op); break;
		case 5: ok = read_attribute(m, &f, node); break;
		case 7: ok = read_name(m, &f, &node->domain); break;
		default: break;
		}
	}
	return ok && name_constant(m, node);
}

/* ---- inputs and outputs ---- */

/* TensorShapeProto.Dimension: a number, a symbol, or neither. An empty symbol is none. */
static bool read_size(struct onnx_model *m, const struct proto_field *message, struct onnx_value *v)
{
	struct proto_range r;
	struct proto_field f = {0};
	bool ok = want_bytes(m, message, &r);
	if (!ok)
		return false;
	if (v->rank == IR_RANK_MAX)
		return weight_file_error(m->s, "'%.80s' has more than %d axes", v->name, IR_RANK_MAX);
	struct onnx_size *size = &v->sizes[v->rank++];
	*size = (struct onnx_size){-1, NULL};
	while (next_field(m, &r, &f, &ok)) {
		if (f.number == 1)
			size->value = (int64_t)f.value;
		else if (f.number == 2)
			ok = read_name(m, &f, &size->symbol);
	}
	if (size->symbol != NULL && size->symbol[0] == '\0')
		size->symbol = NULL;
	return ok;
}

/* TypeProto.Tensor: element type (1) and shape (2), a list of dimensions (1). Without a shape the rank is not known,
 * with an empty one it is 0. */
static bool read_tensor_type(struct onnx_model *m, const struct proto_field *message, struct onnx_value *v)
{
	struct proto_range r, shape;
	struct proto_field f = {0}, inner = {0};
	bool ok = want_bytes(m, message, &r);
	while (next_field(m, &r, &f, &ok)) {
		if (f.number == 1)
			v->type = (int64_t)f.value;
		if (f.number != 2)
			continue;
		ok = want_bytes(m, &f, &shape);
		v->has_shape = true;
		while (next_field(m, &shape, &inner, &ok))
			if (inner.number == 1)
				ok = count_item(m) && read_size(m, &inner, v);
	}
	return ok;
}

/* ValueInfoProto: a name (1) and a type (2), of which only a tensor type (1) is read. */
static bool read_value(struct onnx_model *m, const struct proto_field *message, struct onnx_values *list)
{
	struct onnx_value *v = ARENA_PUSH(m->s->arena, list);
	struct proto_range r, type;
	struct proto_field f = {0}, inner = {0};
	bool ok = v != NULL && count_item(m) && want_bytes(m, message, &r);
	if (!ok)
		return false;
	v->name = "";
	while (next_field(m, &r, &f, &ok)) {
		if (f.number == 1)
			ok = read_name(m, &f, &v->name);
		if (f.number != 2)
			continue;
		ok = want_bytes(m, &f, &type);
		while (next_field(m, &type, &inner, &ok))
			if (inner.number == 1)
				ok = read_tensor_type(m, &inner, v);
	}
	return ok;
}

/* ---- the graph ---- */

static bool read_initializer(struct onnx_model *m, const struct proto_field *f)
{
	struct onnx_tensor *t = read_tensor(m, f);
	return t != NULL && ARENA_ADDED(m->s->arena, &m->tensors, t);
}

/* GraphProto: nodes (1), initializers (5), inputs (11), outputs (12); sparse initializers (15) are only noticed. */
static bool read_graph(struct onnx_model *m, const struct proto_field *message, struct onnx_graph *g)
{
	struct proto_range r;
	struct proto_field f = {0};
	bool ok = want_bytes(m, message, &r);
	m->depth++;
	while (next_field(m, &r, &f, &ok)) {
		switch (f.number) {
		case 1: ok = read_node(m, &f, g); break;
		case 5: ok = read_initializer(m, &f); break;
		case 11: ok = read_value(m, &f, &g->inputs); break;
		case 12: ok = read_value(m, &f, &g->outputs); break;
		case 15: m->has_sparse = true; break;
		default: break;
		}
	}
	m->depth--;
	return ok;
}

/* OperatorSetIdProto: the version (2) of the domain (1) ai.onnx, which may be written as "". Others do not count: their
 * operators are known by name. */
static bool read_opset(struct onnx_model *m, const struct proto_field *message)
{
	const char *domain = "";
	int64_t version = 0;
	struct proto_range r;
	struct proto_field f = {0};
	bool ok = want_bytes(m, message, &r);
	while (next_field(m, &r, &f, &ok)) {
		if (f.number == 1)
			ok = read_name(m, &f, &domain);
		else if (f.number == 2)
			version = (int64_t)f.value;
	}
	if (domain[0] == '\0' || strcmp(domain, "ai.onnx") == 0)
		m->opset = version;
	return ok;
}

/* Names of tensors are unique: they are the names of weights. */
static bool check_names(const struct onnx_model *m)
{
	struct strmap seen;
	strmap_init(&seen, m->s->arena);
	for (size_t i = 0; i < m->tensors.n; i++) {
		const char *name = m->tensors.items[i]->stored.name;
		if (name[0] == '\0')
			return weight_file_error(m->s, "a tensor in it has no name");
		if (strmap_has(&seen, name))
			return weight_file_error_in(m->s, "tensor", name, "is there twice");
		strmap_set(&seen, name, m->tensors.items[i]);
	}
	return true;
}

/* ModelProto: the graph (7), versions of operator sets (8); functions (25) are only noticed. */
enum tfmc_status onnx_read_model(const struct stored_source *s, struct onnx_model *out)
{
	struct proto_range r = {s->bytes, s->bytes + s->len};
	struct proto_field f = {0};
	bool ok = true;
	*out = (struct onnx_model){.s = s};
	while (next_field(out, &r, &f, &ok)) {
		switch (f.number) {
		case 7:
			ok = !out->has_graph ? read_graph(out, &f, &out->graph)
			                     : weight_file_error(s, "it has two graphs");
			out->has_graph = true;
			break;
		case 8: ok = read_opset(out, &f); break;
		case 25: out->has_functions = true; break;
		default: break;
		}
	}
	ok = ok && (out->has_graph || weight_file_error(s, "it has no graph; not an ONNX file, or cut off"));
	ok = ok && check_names(out);
	if (arena_failed(s->arena))
		return TFMC_NO_MEMORY;
	return ok ? TFMC_OK : TFMC_INVALID;
}

/* ---- weights ---- */

/* Protobuf has no magic: field 1 (ir_version, tag 0x08) is a small number, and the tag of the next field is one of
 * ModelProto's fields 2 to 8. */
bool onnx_has_magic(const unsigned char *bytes, size_t len)
{
	static const unsigned char next[] = {0x12, 0x1a, 0x22, 0x28, 0x32, 0x3a, 0x42};
	return len > 2 && bytes[0] == 0x08 && bytes[1] > 0 && bytes[1] < 0x20 &&
	       memchr(next, bytes[2], sizeof(next)) != NULL;
}

enum tfmc_status onnx_read(const struct stored_source *s, struct stored_tensors *out)
{
	struct onnx_model m;
	TFMC_TRY(onnx_read_model(s, &m));
	struct stored_tensor *items = ARENA_ARRAY(s->arena, struct stored_tensor, m.tensors.n + 1);
	if (items == NULL)
		return TFMC_NO_MEMORY;
	for (size_t i = 0; i < m.tensors.n; i++)
		items[i] = m.tensors.items[i]->stored;
	*out = (struct stored_tensors){items, m.tensors.n};
	return TFMC_OK;
}
