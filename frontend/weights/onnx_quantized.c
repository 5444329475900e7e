/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of quantized constants, listed in onnx_quantized.h. Each add_OP adds that of a node; it returns true also
   where the operands are no such constants, as then nothing is added, and false without memory. by_column: rows of the
   packed matrix are columns of q, for the transpose. A packed_matrix (packed.h) needs a scale for each row, or for each
   group of columns of a row, since quantized formats have blocks along rows; other tensors are read as elements. */
#include "frontend/weights/onnx_quantized.h"

#include <string.h>

#include "frontend/weights/packed.h"
#include "ir/support/strmap.h"

/* A quantized constant; scale and zero have one element, one for each element of `axis`, or one for each block of
 * it. */
struct dequantized {
	const struct stored_tensor *q, *scale, *zero; /* zero NULL: 0 */
	int axis;
	int64_t block;                 /* 0: none */
	int64_t inner, size, n_blocks; /* elements of the axes after `axis`, of it, and its blocks */
	bool is_shared;                /* one scale */
};

struct adding {
	struct weight_files *files;
	struct arena *a;
	struct strmap tensors;   /* name -> struct onnx_tensor * */
	struct strmap producers; /* name of a result -> struct onnx_node * */
	const char *file;
	struct loc loc;
};

const char *onnx_weight_name(struct arena *a, const struct onnx_node *node)
{
	return arena_printf(a, "%s.weight", node->outputs.items[0]);
}

/* ---- operands ---- */

/* Input i of a node, if it is a constant with data; NULL: it is not. */
static const struct stored_tensor *constant_at(const struct adding *p, const struct onnx_node *node, size_t i)
{
	const struct onnx_tensor *t =
	        i < node->inputs.n ? strmap_get(&p->tensors, node->inputs.items[i]) : NULL;
	return t != NULL && t->stored.readable && t->stored.bytes > 0 && t->stored.data != NULL ? &t->stored
	                                                                                        : NULL;
}

static bool has_input(const struct onnx_node *node, size_t i)
{
	return i < node->inputs.n && node->inputs.items[i][0] != '\0';
}

static int64_t count_of(const struct stored_tensor *t)
{
	int64_t n = 1;
	for (int i = 0; i < t->rank; i++)
		n *= t->dims[i]; /* cannot overflow: the reader has checked the product */
	return n;
}

static int64_t int_attribute(const struct onnx_node *node, const char *name, int64_t def)
{
	const struct onnx_attribute *a = onnx_attribute(node, name);
	return a != NULL ? a->i : def;
}

/* Floats as the file has them. */
static bool is_plain_float(const struct stored_tensor *t)
{
	return t->read == NULL && (t->dtype == DT_F32 || t->dtype == DT_F16 || t->dtype == DT_BF16);
}

/* ---- elements ---- */

/* weight_elements of a struct dequantized: elements [begin, begin + n) as f32. s is the index of an element's scale:
   one for all, its index along the axis, or that of its block. */
static void dequantized_elements(const void *data, int64_t begin, int64_t n, double *out)
{
	const struct dequantized *d = data;
	for (int64_t i = 0; i < n; i++) {
		int64_t at = begin + i, along = at / d->inner % d->size;
		int64_t s = d->is_shared    ? 0
		            : d->block == 0 ? along
		                            : (at / (d->inner * d->size) * d->n_blocks + along / d->block) *
		                                              d->inner +
		                                      at % d->inner;
		double zero = d->zero != NULL ? stored_element(d->zero, (size_t)s) : 0;
		out[i] = (float)((stored_element(d->q, (size_t)at) - zero) *
		                 stored_element(d->scale, (size_t)s));
	}
}

/* Sets which scale each element of q has, for dequantized_elements: one for all, a vector along `axis`, or for each
   block of the axis, of which the last may be shorter. False: the scales do not fit. A zero point is stored for each
   scale. */
static bool place_scales(struct dequantized *d, int64_t axis)
{
	const struct stored_tensor *q = d->q, *s = d->scale;
	d->is_shared = count_of(s) == 1;
	axis = d->is_shared ? 0 : axis < 0 ? axis + q->rank : axis;
	if (q->rank == 0 || axis < 0 || axis >= q->rank || d->block < 0 ||
	    (d->zero != NULL && count_of(d->zero) != count_of(s)))
		return false;
	d->axis = (int)axis;
	d->size = q->dims[axis];
	d->inner = 1;
	for (int i = d->axis + 1; i < q->rank; i++)
		d->inner *= q->dims[i];
	if (d->is_shared || d->block == 0) {
		d->block = 0;
		return d->is_shared || (s->rank == 1 && s->dims[0] == d->size);
	}
	bool fits = s->rank == q->rank;
	for (int i = 0; fits && i < q->rank; i++)
		fits = i == d->axis || s->dims[i] == q->dims[i];
	d->n_blocks = fits ? s->dims[d->axis] : 0;
	return fits && d->n_blocks == d->size / d->block + (d->size % d->block != 0);
}

/* ---- quants ---- */

/* Zero points as bytes [groups, n]; row and group: steps in `zero` from a row, and from a group, to the next. flip:
   XORed to each, 0x80 makes signed ones unsigned. */
static const unsigned char *zero_bytes(struct arena *a, const struct stored_tensor *zero, int64_t n,
                                       int64_t groups, int64_t row, int64_t group, int flip)
{
	unsigned char *out = ARENA_ARRAY(a, unsigned char, n *groups);
	for (int64_t g = 0; out != NULL && g < groups; g++)
		for (int64_t i = 0; i < n; i++)
			out[g * n + i] =
			        (unsigned char)((int)stored_element(zero, (size_t)(i * row + g * group)) ^
			                        flip);
	return out;
}

/* Describes the matrix, or its transpose (by_column), as rows of quants with their scales; false: its rows have no
   scales of their own, or it is no 8-bit matrix. Signed quants become unsigned by their top bit, with 128 as zero
   point. */
static bool pack_rows(struct adding *p, const struct dequantized *d, bool by_column, struct packed_matrix *m)
{
	const struct stored_tensor *q = d->q;
	bool is_signed = q->dtype == DT_I8;
	int rows = by_column ? 1 : 0;
	/* Scales of a vector must be along the rows of the packed matrix, those of blocks along its columns. */
	if (q->rank != 2 || q->read != NULL || (q->dtype != DT_I8 && q->dtype != DT_U8) || q->reversed ||
	    !is_plain_float(d->scale) || (!d->is_shared && (d->block > 0) == (d->axis == rows)) ||
	    (d->zero != NULL && d->zero->dtype != q->dtype))
		return false;
	*m = (struct packed_matrix){.n = q->dims[rows],
	                            .k = q->dims[1 - rows],
	                            .by_column = by_column,
	                            .zero = is_signed ? 128 : 0,
	                            .scales = d->scale->data,
	                            .scale_dtype = d->scale->dtype,
	                            .q = {.data = q->data,
	                                  .bytes = 1,
	                                  .bits = 8,
	                                  .row_words = q->dims[1],
	                                  .flip = is_signed ? 0x80 : 0}};
	m->group = d->block > 0 ? d->block : m->k;
	m->scale_row = d->is_shared ? 0 : d->block > 0 && !by_column ? d->n_blocks : 1;
	m->scale_group = d->block == 0 ? 0 : by_column ? m->n : 1;
	if (d->zero == NULL)
		return true;
	int64_t groups = d->block > 0 ? d->n_blocks : 1;
	m->zero = 0;
	m->zeros = (struct packed_words){.data = zero_bytes(p->a, d->zero, m->n, groups, m->scale_row,
	                                                    m->scale_group, is_signed ? 0x80 : 0),
	                                 .bytes = 1,
	                                 .bits = 8,
	                                 .row_words = m->n};
	return m->zeros.data != NULL;
}

/* A tensor of this name, with the shape of q; NULL: there is one of this name already, or no memory. It counts as
   ignored, since a model need not read it. */
static struct stored_tensor *new_tensor(struct adding *p, const char *name, const struct stored_tensor *q)
{
	struct stored_tensor *t =
	        weight_files_find(p->files, name) == NULL ? ARENA_NEW(p->a, struct stored_tensor) : NULL;
	if (t == NULL)
		return NULL;
	*t = *q;
	t->name = name;
	t->file = p->file;
	t->loc = p->loc;
	t->dtype = DT_F32;
	t->used = false;
	t->ignored = true;
	return t;
}

/* Adds the matrix as rows of quants. */
static bool add_packed(struct adding *p, const char *name, const struct stored_tensor *q,
                       const struct packed_matrix *m)
{
	struct stored_tensor *t = new_tensor(p, name, q);
	if (t == NULL)
		return !arena_failed(p->a);
	t->rank = 2;
	return packed_describe(p->a, t, m) && weight_files_add(p->files, t);
}

/* Adds the tensor, which is read as dequantized elements unless its rows can be quants, and its transpose where that
   has rows of quants. Its data is a copy of *d, which is the caller's. */
static bool add_dequantized(struct adding *p, const char *name, const struct dequantized *d)
{
	struct stored_tensor *t = new_tensor(p, name, d->q);
	struct dequantized *copy = ARENA_NEW(p->a, struct dequantized);
	struct packed_matrix m;
	if (t == NULL || copy == NULL)
		return !arena_failed(p->a);
	*copy = *d;
	t->read = dequantized_elements;
	t->data = copy;
	if (pack_rows(p, d, true, &m)) {
		t->transposed = arena_printf(p->a, "%s^T", name);
		if (!add_packed(p, t->transposed, d->q, &m))
			return false;
	}
	if (pack_rows(p, d, false, &m) && !packed_describe(p->a, t, &m))
		return false;
	return !arena_failed(p->a) && weight_files_add(p->files, t);
}

/* ---- nodes ---- */

/* Adds the tensor of q and inputs number `scale` (SIZE_MAX: none, all scales are 1) and `zero` of a node. An input that
   is no constant has no values here: nothing is added. */
static bool add_inputs(struct adding *p, const struct onnx_node *node, const char *name,
                       const struct stored_tensor *q, size_t scale, size_t zero)
{
	static const float one = 1.0F;
	static const struct stored_tensor unit = {
	        .readable = true, .dtype = DT_F32, .data = &one, .bytes = sizeof(one)};
	struct dequantized d = {.q = q,
	                        .scale = scale == SIZE_MAX ? &unit : constant_at(p, node, scale),
	                        .zero = has_input(node, zero) ? constant_at(p, node, zero) : NULL,
	                        .block = int_attribute(node, "block_size", 0)};
	if (q == NULL || d.scale == NULL || (has_input(node, zero) && d.zero == NULL))
		return true;
	if (scale == SIZE_MAX && d.zero != NULL && count_of(d.zero) != 1)
		return true; /* place_scales wants as many scales as zero points, and there is one */
	return !place_scales(&d, int_attribute(node, "axis", 1)) || add_dequantized(p, name, &d);
}

/* DequantizeLinear of a constant; or of rows that a Gather looks up in one, with one scale: then the tensor is the
   dequantized table. */
static bool add_dequantize_linear(struct adding *p, const struct onnx_node *node)
{
	const struct stored_tensor *q = constant_at(p, node, 0), *scale = constant_at(p, node, 1);
	const struct onnx_node *from =
	        node->inputs.n > 0 ? strmap_get(&p->producers, node->inputs.items[0]) : NULL;
	if (q != NULL)
		return add_inputs(p, node, node->outputs.items[0], q, 1, 2);
	bool is_lookup = from != NULL && strcmp(from->op, "Gather") == 0 && from->domain[0] == '\0' &&
	                 scale != NULL && count_of(scale) == 1;
	return !is_lookup || add_inputs(p, node, onnx_weight_name(p->a, node), constant_at(p, from, 0), 1, 2);
}

static bool add_matmul_integer(struct adding *p, const struct onnx_node *node)
{
	return add_inputs(p, node, onnx_weight_name(p->a, node), constant_at(p, node, 1), SIZE_MAX, 3);
}

static bool add_qlinear_matmul(struct adding *p, const struct onnx_node *node)
{
	return add_inputs(p, node, onnx_weight_name(p->a, node), constant_at(p, node, 3), SIZE_MAX, 5);
}

/* MatMulNBits of ONNX Runtime: y = x W^T with W [N, K], whose numbers have a scale for each block of K. q u8 [N,
   blocks, block bits / 8], the first number of a byte in its low bits; zeros likewise packed, a row from a whole byte
   on, 2^(bits - 1) where absent. They are unpacked here, as the rows of a packed_matrix have all of one group. */
static bool add_matmul_nbits(struct adding *p, const struct onnx_node *node)
{
	const struct stored_tensor *q = constant_at(p, node, 1), *s = constant_at(p, node, 2),
	                           *zero = has_input(node, 3) ? constant_at(p, node, 3) : NULL;
	int64_t n = int_attribute(node, "N", 0), k = int_attribute(node, "K", 0),
	        bits = int_attribute(node, "bits", 4), block = int_attribute(node, "block_size", 0);
	if (q == NULL || s == NULL || q->dtype != DT_U8 || q->read != NULL || !is_plain_float(s) ||
	    (bits != 4 && bits != 8) || n < 1 || n > INT32_MAX || k < 1 || k > INT32_MAX || block < 16 ||
	    block > 4096 || block % 2 != 0)
		return true;
	int64_t groups = k / block + (k % block != 0), row = groups * (block * bits / 8),
	        zero_row = (groups * bits + 7) / 8;
	if (row > INT64_MAX / n || (int64_t)q->bytes != n * row || count_of(s) != n * groups ||
	    (has_input(node, 3) && (zero == NULL || zero->dtype != DT_U8 || zero->read != NULL ||
	                            (int64_t)zero->bytes != n * zero_row)))
		return true;
	struct packed_matrix m = {
	        .n = n,
	        .k = k,
	        .group = block,
	        .zero = zero == NULL ? 1 << (bits - 1) : 0,
	        .q = {.data = q->data, .bytes = 1, .bits = (int)bits, .across = bits == 4, .row_words = row},
	        .scales = s->data,
	        .scale_dtype = s->dtype,
	        .scale_row = groups,
	        .scale_group = 1};
	unsigned char *zeros = zero != NULL ? ARENA_ARRAY(p->a, unsigned char, n *groups) : NULL;
	for (int64_t g = 0; zeros != NULL && g < groups; g++)
		for (int64_t i = 0; i < n; i++) {
			const unsigned char *at = (const unsigned char *)zero->data + i * zero_row;
			zeros[g * n + i] = bits == 8 ? at[g] : at[g / 2] >> (g % 2 * 4) & 15;
		}
	if (zero != NULL && zeros == NULL)
		return false;
	m.zeros = (struct packed_words){.data = zeros, .bytes = 1, .bits = 8, .row_words = n};
	return add_packed(p, onnx_weight_name(p->a, node), q, &m);
}

static const struct {
	const char *domain, *op;
	bool (*add)(struct adding *p, const struct onnx_node *node);
} makers[] = {{"", "DequantizeLinear", add_dequantize_linear},
              {"", "MatMulInteger", add_matmul_integer},
              {"", "QLinearMatMul", add_qlinear_matmul},
              {"com.microsoft", "MatMulNBits", add_matmul_nbits}};

/* Nodes are in topological order (onnx.proto): a producer is in the map before the nodes that read its result. */
bool onnx_add_quantized(struct weight_files *wf, struct arena *a, const struct onnx_model *m,
                        const char *file, struct loc loc)
{
	struct adding p = {.files = wf, .a = a, .file = file, .loc = loc};
	strmap_init(&p.tensors, a);
	strmap_init(&p.producers, a);
	for (size_t i = 0; i < m->tensors.n; i++)
		strmap_set(&p.tensors, m->tensors.items[i]->stored.name, m->tensors.items[i]);
	for (size_t i = 0; i < m->graph.nodes.n; i++) {
		struct onnx_node *node = &m->graph.nodes.items[i];
		const char *domain = strcmp(node->domain, "ai.onnx") == 0 ? "" : node->domain;
		for (size_t k = 0; k < TFMC_COUNT(makers) && node->outputs.n > 0; k++)
			if (strcmp(makers[k].op, node->op) == 0 && strcmp(makers[k].domain, domain) == 0 &&
			    !makers[k].add(&p, node))
				return false;
		if (node->outputs.n > 0)
			strmap_set(&p.producers, node->outputs.items[0], node);
	}
	return !arena_failed(a);
}
