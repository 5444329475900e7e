/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rotary positions that exporters write out: after a node whose result may be rotated features, each element of a
 * row is followed back to what it is made of, a feature x_a times a cosine and a feature x_b times a sine. Since
 * elements are compared, and not nodes, halves, interleaved pairs, and features that are not rotated are all found
 * in this way:
 *
 *   y_e = x_e cos(p f) - x_b sin(p f),  y_b = x_b cos(p f) + x_e sin(p f)   ->   rope(x, positions, theta, layout)
 *
 * p is a position (visible.c); frequencies f are constants of the file. They are powers of theta where each of
 * them is one within the roundings of an exporter that computes them in f32, else they stand as factors of
 * longrope.
 * It works on the ops of the inference, which have lowered the statements so far. A place is an index of an element
 * along one axis: a number, or the index along an axis of the root's type (the value under test), or not known; a
 * leaf is an element of a value that is not followed further.
 */
#include "frontend/onnx/import.h"

#include <math.h>
#include <string.h>

#define FEATURES_MAX  1024
#define STEPS_MAX     512 /* ops that are visited for one element */
#define DEPTH_MAX     100
#define NEAR          2.5e-7 /* relative: four roundings of f32 */
#define NAMED_MAX     256    /* statements that are searched for the name of a value */
#define STEPS_OF_ALL  100000000
#define POSITIONS_MAX (1 << 20) /* rows of a table */

enum { NUMBER = -1, ANY = -2 }; /* axes of an index that is none of the result */

/* An index of an element: that of an axis of the result, a number, or not known. */
struct place {
	int axis;
	int64_t at;
};

struct leaf {
	struct ir_value v;
	struct place at[IR_RANK_MAX];
};

/* f times the product of leaves, and a sum of them. */
struct term {
	double f;
	size_t n;
	struct leaf of[2];
};
struct sum {
	size_t n;
	struct term items[2];
};

struct search {
	struct importer *im;
	const struct ir_func *f;
	int steps, depth;
	bool is_base;  /* behind a value that several ops read: only views are followed */
	bool is_angle; /* of a table, which is followed whoever reads it */
};

/* ---- readers ---- */

/* Adds the ops since the last call to the count of readers of each value; index 0: an op with several results is
   counted once. */
static void count_readers(struct importer *im, const struct ir_func *f)
{
	struct rotations *r = &im->rotations;
	if (r->readers.n == 0)
		r->counted = 1;
	while (r->readers.n < f->n_values)
		if (!ARENA_ADDED(im->a, &r->readers, 0))
			return;
	for (; r->counted < f->n_values; r->counted++) {
		const struct ir_value_info *v = &f->values[r->counted];
		for (size_t i = 0; v->def != NULL && v->index == 0 && i < v->def->n_operands; i++)
			r->readers.items[v->def->operands[i].id]++;
	}
}

/* ---- elements ---- */

/* The constant size of an axis; -1: it varies. */
static int64_t size_of(const struct ir_type *t, int axis)
{
	int64_t n;
	return ir_dim_is_const(t->dims[axis], &n) ? n : -1;
}

/* True: both are the same element of the same value, at places that are known. */
static bool same_leaf(const struct search *s, const struct leaf *a, const struct leaf *b)
{
	bool same = ir_same_value(a->v, b->v);
	const struct ir_type *t = ir_type_of(s->f, a->v);
	for (int i = 0; same && i < t->rank; i++)
		same = a->at[i].axis == b->at[i].axis && a->at[i].at == b->at[i].at && a->at[i].axis != ANY;
	return same;
}

/* The indices of an operand that has the same elements in another shape: axes are the same, or a product of constant
   sizes is that of other ones, whose indices are numbers. `to` is the shape of the result and `at` the element in it;
   indices `in` of the operand that do not follow stay as they are, not known. */
static void reshaped(const struct ir_type *to, const struct ir_type *t, const struct place *at,
                     struct place *in)
{
	int i = 0, k = 0;
	while (i < t->rank) {
		int from = i;
		if (size_of(t, i) == 1) {
			in[i++] = (struct place){NUMBER, 0};
			continue;
		}
		while (k < to->rank && size_of(to, k) == 1)
			k++;
		if (k == to->rank)
			return;
		if (to->dims[k] == t->dims[i]) {
			in[i++] = at[k++];
			continue;
		}
		int64_t a = size_of(t, i++), b = size_of(to, k), flat = at[k].at;
		bool is_known = at[k++].axis == NUMBER;
		while (a != b && a > 0 && b > 0 && (a < b ? i < t->rank : k < to->rank)) {
			if (a < b) {
				a *= size_of(t, i++);
			} else {
				is_known = is_known && at[k].axis == NUMBER;
				flat = flat * size_of(to, k) + at[k].at;
				b *= size_of(to, k++);
			}
		}
		if (a != b || a <= 0 || a > FEATURES_MAX || !is_known)
			return;
		for (int j = i; j-- > from; flat /= size_of(t, j))
			in[j] = (struct place){NUMBER, flat % size_of(t, j)};
	}
}

static bool int_at(struct search *s, struct ir_value v, const struct place *at, int64_t *out);

/* The indices of the operand of a view, those that are not known ANY; true: all are known. A slice moves a number; an
   index along an axis of the root stays only if the slice begins at 0. */
static bool view_places(const struct search *s, const struct ir_op *op, const struct place *at,
                        struct place *in)
{
	const struct ir_type *t = ir_type_of(s->f, op->operands[0]), *to = ir_type_of(s->f, op->results[0]);
	for (int i = 0; i < IR_RANK_MAX; i++)
		in[i] = (struct place){ANY, 0};
	if (op->code == OP_broadcast)
		for (int i = 0; i < t->rank; i++)
			in[i] = size_of(t, i) == 1 ? (struct place){NUMBER, 0} : at[i + to->rank - t->rank];
	if (op->code == OP_transpose)
		for (int i = 0; i < t->rank; i++)
			in[((const struct attrs_transpose *)op->attrs)->perm.items[i]] = at[i];
	if (op->code == OP_reshape)
		reshaped(to, t, at, in);
	if (op->code == OP_slice) {
		const struct attrs_slice *cut = op->attrs;
		int64_t begin;
		bool is_known = ir_dim_is_const(cut->begin, &begin);
		for (int i = 0; i < t->rank; i++)
			if (i != cut->axis || (is_known && (begin == 0 || at[i].axis == NUMBER)))
				in[i] = (struct place){at[i].axis, at[i].at + (i == cut->axis ? begin : 0)};
	}
	for (int i = 0; i < t->rank; i++)
		if (in[i].axis == ANY)
			return false;
	return true;
}

static bool is_view(const struct ir_op *op)
{
	return op->code == OP_broadcast || op->code == OP_transpose || op->code == OP_reshape ||
	       op->code == OP_slice;
}

/* The operand of a concat, or of a gather (its row), that has the element, and the element's place in it; false: the
   index is not known. Gathers have axis 0 alone here. */
static bool part_place(struct search *s, const struct ir_op *op, const struct place *at, struct ir_value *v,
                       struct place *in)
{
	const struct ir_type *t = ir_type_of(s->f, op->operands[0]);
	for (int i = 0; i < IR_RANK_MAX; i++)
		in[i] = i < t->rank ? at[i] : (struct place){ANY, 0};
	*v = op->operands[0];
	if (op->code == OP_gather) {
		int n = ir_type_of(s->f, op->operands[1])->rank;
		for (int i = 1; i < t->rank; i++)
			in[i] = at[i - 1 + n];
		in[0] = (struct place){NUMBER, 0};
		return int_at(s, op->operands[1], at, &in[0].at) && in[0].at >= 0 && in[0].at < size_of(t, 0);
	}
	int64_t axis = ((const struct attrs_concat *)op->attrs)->axis;
	for (size_t i = 0; in[axis].axis == NUMBER && i < op->n_operands; i++) {
		int64_t n = size_of(ir_type_of(s->f, op->operands[i]), (int)axis);
		*v = op->operands[i];
		if (n < 0 || in[axis].at < n)
			return n > 0;
		in[axis].at -= n;
	}
	return false;
}

/* The element of index arithmetic as a number that is the same in every call, in *out; false: it is none. */
static bool int_at(struct search *s, struct ir_value v, const struct place *at, int64_t *out)
{
	const struct ir_op *op = ir_def(s->f, v);
	struct place in[IR_RANK_MAX];
	int64_t a, b;
	if (op == NULL || s->steps++ > STEPS_MAX || s->depth > DEPTH_MAX)
		return false;
	if (op->code == OP_full) {
		*out = (int64_t)((const struct attrs_full *)op->attrs)->value;
		return true;
	}
	if (op->code == OP_iota) {
		const struct attrs_iota *iota = op->attrs;
		*out = at[iota->axis].at + iota->start;
		return at[iota->axis].axis == NUMBER;
	}
	s->depth++;
	bool ok = false;
	if (is_view(op)) {
		(void)view_places(s, op, at, in);
		ok = int_at(s, op->operands[0], in, out);
	} else if ((op->code == OP_add || op->code == OP_mul) && int_at(s, op->operands[0], at, &a) &&
	           int_at(s, op->operands[1], at, &b))
		ok = !(op->code == OP_add ? __builtin_add_overflow(a, b, out)
		                          : __builtin_mul_overflow(a, b, out));
	s->depth--;
	return ok;
}

static struct sum leaf_sum(struct ir_value v, const struct place *at)
{
	struct sum out = {1, {{1, 1, {{v, {{0}}}}}}};
	memcpy(out.items[0].of[0].at, at, sizeof(out.items[0].of[0].at));
	return out;
}

/* a + f b, or their product; n 0: more than two terms, or more than two leaves in one. */
static struct sum combined(const struct sum *a, const struct sum *b, bool is_product, double f)
{
	struct sum out = *a;
	if (is_product) {
		struct term *t = &out.items[0];
		if (a->n != 1 || b->n != 1 || a->items[0].n + b->items[0].n > 2)
			return (struct sum){0};
		memcpy(&t->of[t->n], b->items[0].of, b->items[0].n * sizeof(t->of[0]));
		t->n += b->items[0].n;
		t->f *= b->items[0].f;
		return out;
	}
	if (a->n != 1 || b->n != 1)
		return (struct sum){0};
	out.items[out.n] = b->items[0];
	out.items[out.n++].f *= f;
	return out;
}

static struct sum element(struct search *s, struct ir_value v, const struct place *at);

/* The element of an op that computes: a sum or product of elements of its operands, as terms. A matmul of one column
   and one row is a product. */
static struct sum computed(struct search *s, const struct ir_op *op, const struct place *at)
{
	struct place left[IR_RANK_MAX], right[IR_RANK_MAX];
	struct sum a, b;
	memcpy(left, at, sizeof(left));
	memcpy(right, at, sizeof(right));
	if (op->code == OP_matmul) { /* of one column and one row */
		const struct attrs_matmul *m = op->attrs;
		int last = ir_type_of(s->f, op->results[0])->rank - 1;
		left[m->ta ? last - 1 : last] = right[m->tb ? last : last - 1] = (struct place){NUMBER, 0};
		left[m->ta ? last : last - 1] = at[last - 1];
		right[m->tb ? last - 1 : last] = at[last];
	}
	a = element(s, op->operands[0], left);
	if (op->code == OP_neg || op->code == OP_scale) {
		for (size_t i = 0; i < a.n; i++)
			a.items[i].f *= op->code == OP_neg ? -1 : ((const struct attrs_scale *)op->attrs)->f;
		return a;
	}
	b = element(s, op->operands[1], right);
	return combined(&a, &b, op->code == OP_mul || op->code == OP_matmul, op->code == OP_sub ? -1 : 1);
}

/* The op computes a sum or product that is followed. A matmul over an axis of size 1 is the product of each pair of
   elements. */
static bool is_computed(const struct search *s, const struct ir_op *op)
{
	const struct ir_type *t = op->n_operands > 0 ? ir_type_of(s->f, op->operands[0]) : NULL;
	if (t == NULL || t->dtype != DT_F32)
		return false;
	if (op->code == OP_matmul)
		return size_of(t, t->rank - (((const struct attrs_matmul *)op->attrs)->ta ? 2 : 1)) == 1;
	return op->code == OP_neg || op->code == OP_scale || op->code == OP_mul || op->code == OP_add ||
	       op->code == OP_sub;
}

/* For a `rope` that was written in place of a rotation, the value that it replaced: rotations within later values are
   recognized by elements, which a rope does not have. Other values are themselves. */
static struct ir_value written_out(const struct search *s, struct ir_value v)
{
	const struct rotations *r = &s->im->rotations;
	for (size_t i = r->found.n; i-- > 0;)
		if (ir_same_value(r->found.items[i].rope, v))
			return r->found.items[i].written;
	return v;
}

/* The element of v at these places as a sum of products of leaves; n 0: it has too many terms, or takes too many
   steps. Values that several ops read are leaves (is_base), except views of them: a shared value is a feature, and no
   part of one rotation. */
static struct sum element(struct search *s, struct ir_value v, const struct place *at)
{
	v = written_out(s, v);
	const struct ir_op *op = ir_def(s->f, v);
	bool was_base = s->is_base;
	struct place in[IR_RANK_MAX];
	struct sum out = leaf_sum(v, at);
	struct ir_value part;
	if (op == NULL || s->steps++ > STEPS_MAX || s->depth > DEPTH_MAX)
		return op == NULL ? out : (struct sum){0};
	s->is_base = s->is_base || (!s->is_angle && s->im->rotations.readers.items[v.id] > 1);
	s->depth++;
	if (is_view(op)) {
		if (view_places(s, op, at, in))
			out = element(s, op->operands[0], in);
	} else if ((op->code == OP_concat || op->code == OP_gather) && part_place(s, op, at, &part, in))
		out = element(s, part, in);
	else if (!s->is_base && is_computed(s, op))
		out = computed(s, op, at);
	s->depth--;
	s->is_base = was_base;
	return out;
}

/* element() of a value whose own op is followed even if other ops read it, too. */
static struct sum element_of(struct search *s, struct ir_value v, const struct place *at)
{
	const struct ir_op *op = ir_def(s->f, v);
	s->im->rotations.steps += s->steps;
	s->steps = 0;
	return op != NULL && is_computed(s, op) ? computed(s, op, at) : element(s, v, at);
}

/* ---- angles ---- */

/* The number of a leaf that is an element of a constant of the file; false: it is none. The inference has zeros for
   weights, so the parameter's tensor is found by the name. */
static bool constant_of(const struct search *s, const struct leaf *leaf, double *out)
{
	const struct ir_op *op = ir_def(s->f, leaf->v);
	const struct importer *im = s->im;
	if (op == NULL || op->code != OP_weight || op->n_operands > 0)
		return false;
	const struct ir_weight *w = ((const struct attrs_weight *)op->attrs)->weight;
	const char *dot = strrchr(w->name, '.'); /* the inference of types numbers its weights */
	size_t n = dot != NULL ? (size_t)(dot - w->name) : 0;
	int64_t at = 0;
	for (int i = 0; i < w->type->rank; i++) {
		if (leaf->at[i].axis != NUMBER)
			return false;
		at = at * size_of(w->type, i) + leaf->at[i].at;
	}
	for (size_t i = 0; i < im->parameters.n; i++) {
		const struct parameter *p = &im->parameters.items[i];
		const struct onnx_tensor *t = strmap_get(&im->tensors, p->tensor);
		if (strncmp(p->path, w->name, n) != 0 || p->path[n] != '\0' || p->source[0] == '{' ||
		    t == NULL)
			continue;
		if (!t->stored.readable || t->stored.data == NULL)
			return false;
		*out = stored_element(&t->stored, (size_t)at);
		return true;
	}
	return false;
}

/* amplitude times the cosine or sine of frequency times a position. */
struct wave {
	bool is_sine;
	double amplitude, frequency;
	struct leaf position; /* an int that is cast to f32 */
};

/* Reads the leaf as amplitude cos|sin(frequency position), with one position that is cast from an int, and factors
   that are constants; false: it is none. */
static bool follow_wave(struct search *s, const struct leaf *leaf, struct wave *out)
{
	struct sum y = element_of(s, leaf->v, leaf->at);
	const struct ir_op *op = y.n == 1 && y.items[0].n == 1 ? ir_def(s->f, y.items[0].of[0].v) : NULL;
	if (op == NULL || (op->code != OP_cos && op->code != OP_sin))
		return false;
	*out = (struct wave){.is_sine = op->code == OP_sin, .amplitude = y.items[0].f, .frequency = 1};
	struct sum angle = element_of(s, op->operands[0], y.items[0].of[0].at);
	bool has_position = false;
	for (size_t i = 0; angle.n == 1 && i < angle.items[0].n; i++) {
		struct leaf *of = &angle.items[0].of[i];
		double f;
		op = ir_def(s->f, of->v);
		if (constant_of(s, of, &f))
			out->frequency *= f;
		else if (!has_position && op != NULL && op->code == OP_cast) {
			out->position = (struct leaf){.v = op->operands[0]};
			memcpy(out->position.at, of->at, sizeof(of->at));
			has_position = true;
		} else
			return false;
	}
	out->frequency *= angle.n == 1 ? angle.items[0].f : 0;
	return has_position;
}

static bool read_wave(struct search *s, const struct leaf *leaf, struct wave *out)
{
	s->is_angle = true;
	bool is_wave = follow_wave(s, leaf, out);
	s->is_angle = false;
	return is_wave;
}

/* ---- the rotation ---- */

struct feature {
	struct leaf source, other; /* x_e, and x_b of the sine */
	double frequency;
	bool is_first; /* the sine is subtracted */
};

struct rotation {
	struct search s;
	struct ir_value root;
	const struct ir_type *type;
	int64_t width, rotated; /* features of a row, and those of them that are rotated, the first ones */
	bool is_interleaved;
	double amplitude;
	struct leaf position;
	struct feature *features; /* [width] */
};

static void places_of(const struct rotation *r, int64_t e, struct place *at)
{
	for (int i = 0; i < IR_RANK_MAX; i++)
		at[i] = i == r->type->rank - 1 ? (struct place){NUMBER, e} : (struct place){i, 0};
}

/* Reads the term i of feature e as x cos or x sin of an angle that all features share in position and amplitude; has:
   e has had its cosine, its sine. false: no such term. The sign of a sine says which feature of the pair e is. */
static bool read_term(struct rotation *r, int64_t e, size_t i, struct term *t, bool has[2])
{
	struct feature *to = &r->features[e];
	struct wave w;
	size_t of = 0;
	while (of < t->n && !read_wave(&r->s, &t->of[of], &w))
		of++;
	if (t->n != 2 || of == 2 || has[w.is_sine])
		return false;
	double amplitude = t->f * w.amplitude;
	if (e == 0 && i == 0) {
		r->position = w.position;
		r->amplitude = fabs(amplitude);
	}
	if (i == 0)
		to->frequency = w.frequency;
	has[w.is_sine] = true;
	*(w.is_sine ? &to->other : &to->source) = t->of[1 - of];
	to->is_first = w.is_sine ? amplitude < 0 : to->is_first;
	return same_leaf(&r->s, &w.position, &r->position) && fabs(amplitude) == r->amplitude &&
	       w.frequency == to->frequency && w.frequency > 0 && (w.is_sine || amplitude > 0);
}

/* Reads element e of a row: a feature that is rotated (a cosine and a sine term), or, after all of those, one that is
   not (one leaf). False: neither, so that the value is no rotation. */
static bool read_feature(struct rotation *r, int64_t e)
{
	struct place at[IR_RANK_MAX];
	bool has[2] = {false, false};
	places_of(r, e, at);
	struct sum y = element_of(&r->s, r->root, at);
	if (y.n == 1 && y.items[0].n == 1 && y.items[0].f == 1 && e > 0) {
		r->features[e].source = y.items[0].of[0];
		return true;
	}
	for (size_t i = 0; i < y.n; i++)
		if (!read_term(r, e, i, &y.items[i], has))
			return false;
	r->rotated += has[0] && has[1];
	return r->rotated == e + 1;
}

/* The feature that is rotated with e: the neighbour, or that half the features away. */
static int64_t partner_of(const struct rotation *r, int64_t e)
{
	int64_t half = r->rotated / 2;
	return r->is_interleaved ? e ^ 1 : e < half ? e + half : e - half;
}

/* Whether pairs are halves, or neighbours: that of the two by which every sine's feature is the partner's cosine
   feature. False: neither. */
static bool read_layout(struct rotation *r)
{
	for (int interleaved = 0; interleaved < 2; interleaved++) {
		bool fits = r->rotated >= 2 && r->rotated % 2 == 0;
		r->is_interleaved = interleaved != 0;
		for (int64_t e = 0; fits && e < r->rotated; e++) {
			int64_t b = partner_of(r, e);
			const struct feature *x = &r->features[e], *y = &r->features[b];
			fits = same_leaf(&r->s, &x->other, &y->source) && x->is_first == (e < b) &&
			       x->frequency == y->frequency;
		}
		if (fits)
			return true;
	}
	return false;
}

/* True: the value has the type of the root and the features of a row in their order: it is what rope() rotates. */
static bool is_source(struct rotation *r, struct ir_value v)
{
	const struct ir_type *t = ir_type_of(r->s.f, v);
	struct place at[IR_RANK_MAX];
	bool same = t == r->type && !ir_same_value(v, r->root);
	r->s.is_base = true;
	for (int64_t e = 0; same && e < r->width; e++) {
		places_of(r, e, at);
		r->s.steps = 0;
		struct sum x = element(&r->s, v, at);
		same = x.n == 1 && x.items[0].n == 1 &&
		       same_leaf(&r->s, &x.items[0].of[0], &r->features[e].source);
	}
	r->s.is_base = false;
	return same;
}

static bool is_named_source(struct rotation *r, const char *name)
{
	const struct lowered *v = lower_find(r->s.im->lw, name);
	return v != NULL && v->kind == LOWERED_TENSOR && is_source(r, v->v);
}

/* The name of a statement, or input, that has the features of a row; NULL: none of the last NAMED_MAX statements
   does. */
static const char *find_source(struct rotation *r)
{
	const struct importer *im = r->s.im;
	for (size_t i = im->statements.n, k = 0; i-- > 0 && k < NAMED_MAX; k++)
		for (size_t n = 0; n < im->statements.items[i].st->n_targets; n++)
			if (is_named_source(r, im->statements.items[i].st->targets[n].name))
				return im->statements.items[i].st->targets[n].name;
	for (size_t i = 0; i < im->m->inputs.n; i++)
		if (is_named_source(r, im->m->inputs.items[i].name))
			return im->m->inputs.items[i].name;
	return NULL;
}

/* ---- its statement ---- */

/* Frequency of pair n. */
static double frequency_of(const struct rotation *r, int64_t n)
{
	return r->features[r->is_interleaved ? 2 * n : n].frequency;
}

/* True: the frequencies are theta^(-2n / D) of an int theta, the roundest one that fits: exporters compute in f32, so
   the last frequency gives theta only nearly. */
static bool find_theta(const struct rotation *r, double *theta)
{
	double width = (double)r->rotated, found;
	*theta = 10000;
	if (r->amplitude != 1 || r->rotated < 4)
		return r->amplitude == 1 && frequency_of(r, 0) == 1;
	found = pow(frequency_of(r, r->rotated / 2 - 1), -width / (width - 2));
	*theta = rint(found);
	for (double unit = 10; unit < found; unit *= 10)
		if (fabs(rint(found / unit) * unit - found) <= found * 2 * NEAR)
			*theta = rint(found / unit) * unit;
	for (int64_t n = 0; n < r->rotated / 2; n++) {
		double f = pow(*theta, -2.0 * (double)n / width);
		if (!(fabs(f - frequency_of(r, n)) <= NEAR * f))
			return false;
	}
	return true;
}

/* The arguments of rope for the frequencies: theta, or else factors of longrope, by which frequencies of theta 1 (all
   1) are divided, and the amplitude. */
static const char *frequencies_text(struct rotation *r)
{
	struct importer *im = r->s.im;
	double theta;
	const char *list = "";
	if (find_theta(r, &theta))
		return import_text(im, "theta=%s", float_text(im, theta));
	for (int64_t n = 0; n < r->rotated / 2; n++)
		list = import_text(im, "%s%s%s", list, n > 0 ? ", " : "",
		                   float_text(im, 1 / frequency_of(r, n)));
	return import_text(im, "theta=1.0, scaling=longrope(factors=[%s], attention_factor=%s)", list,
	                   float_text(im, r->amplitude));
}

/* The positions as text, and *axis, along which rows of x count; NULL: they do not count, or have no bound. The axis
   is that before the features, or of four axes the second, [B, S, H, E]. With a state they must be those of the
   tokens. */
static const char *positions_text(struct rotation *r, int *axis)
{
	struct importer *im = r->s.im;
	const struct ir_dim *first = NULL;
	int64_t start;
	int axes[IR_RANK_MAX];
	for (int i = 0; i < IR_RANK_MAX; i++)
		axes[i] = r->position.at[i].axis == NUMBER && r->position.at[i].at != 0
		                  ? ANY
		                  : r->position.at[i].axis;
	for (*axis = r->type->rank - 2; *axis > 0; --*axis)
		if (import_counts(im, r->position.v, axes, *axis, &first))
			break;
	if (*axis <= 0 || (*axis != r->type->rank - 2 && r->type->rank != 4))
		return NULL;
	const struct ir_dim *n = r->type->dims[*axis];
	if (im->past.is_state)
		return past_positions_name(im, first, r->type->dims[0], n);
	if (ir_dim_lo(im->dims, first) < 0 ||
	    ir_dim_hi(im->dims, ir_dim_add(im->dims, first, n)) > POSITIONS_MAX)
		return NULL;
	const char *count = import_text(im, "iota([%s]", dim_text(im, n));
	if (!ir_dim_is_const(first, &start))
		return import_text(im, "%s) + (%s)", count, dim_text(im, first));
	return start == 0 ? import_text(im, "%s)", count)
	                  : import_text(im, "%s, start=%lld)", count, (long long)start);
}

/* The statement of a rotation that has been read; "": it has none: no source or positions, or it is longer than a
   statement may be. */
static const char *rotation_text(struct rotation *r)
{
	struct importer *im = r->s.im;
	int axis;
	const char *x = find_source(r), *at = x != NULL ? positions_text(r, &axis) : NULL;
	if (at == NULL)
		return "";
	bool is_transposed = axis != r->type->rank - 2; /* [B, S, H, E] */
	const char *dim = r->rotated < r->width ? import_text(im, ", dim=%lld", (long long)r->rotated) : "";
	const char *y =
	        import_text(im,
	                    is_transposed ? "rope(transpose(%s, [0, 2, 1, 3]), %s, %s%s, layout=%s)"
	                                  : "rope(%s, %s, %s%s, layout=%s)",
	                    x, at, frequencies_text(r), dim, r->is_interleaved ? "interleaved" : "halves");
	y = is_transposed ? import_text(im, "transpose(%s, [0, 2, 1, 3])", y) : y;
	return strlen(y) + EXPR_NAME_MAX + 3 > EXPR_TEXT_MAX ? "" : y;
}

/* The first feature is read alone before the array of all: most values are no rotations, and stop there. On success v
   has the name of the new statement; statements of the written one are left out when nothing reads them. */
void import_rotation(struct importer *im, struct operand *v)
{
	const struct lowered *y =
	        v->name != NULL && v->rank >= 3 && v->dtype == DT_F32 ? lower_find(im->lw, v->name) : NULL;
	struct rotation r = {.s = {.im = im, .f = irb_func(im->lw->b)}};
	struct feature first = {.frequency = 0};
	if (im->failed || y == NULL || y->kind != LOWERED_TENSOR || im->rotations.steps > STEPS_OF_ALL)
		return;
	r.root = y->v;
	r.type = ir_type_of(r.s.f, r.root);
	r.width = size_of(r.type, v->rank - 1);
	r.features = &first;
	count_readers(im, r.s.f);
	bool is_whole =
	        r.width >= 2 && r.width <= FEATURES_MAX && !arena_failed(im->a) && read_feature(&r, 0);
	if (is_whole)
		r.features = ARENA_ARRAY(im->a, struct feature, r.width);
	r.rotated = 0;
	for (int64_t e = 0; is_whole && e < r.width; e++)
		is_whole = r.features != NULL && read_feature(&r, e);
	const char *text = is_whole && read_layout(&r) ? rotation_text(&r) : "";
	const char *name = text[0] != '\0' ? import_statement(im, "rotated", "%s", text) : "";
	const struct lowered *rope = name[0] != '\0' ? lower_find(im->lw, name) : NULL;
	if (rope == NULL)
		return;
	v->name = name;
	(void)ARENA_ADDED(im->a, &im->rotations.found, (struct rotated){rope->v, r.root});
}
