/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reader of ONNX files: the fields of ModelProto that weights and the importer (frontend/onnx) need. The wire format of
 * protobuf is read in place: data of tensors stay in the mapped file, since a library of protobuf copies messages to
 * the heap and stops at 2 GB. Functions and sparse tensors are noticed, but not read.
 */
#ifndef TFMC_FRONTEND_WEIGHTS_ONNX_H
#define TFMC_FRONTEND_WEIGHTS_ONNX_H

#include "frontend/weights/stored.h"
#include "ir/support/compiler.h"

/* Limits of a file; beyond them it is refused (E106). */
#define ONNX_ITEMS_MAX 1000000 /* messages, names and numbers of the graph, elements of tensors not counted */
#define ONNX_NAME_MAX  1024    /* bytes of a name */
#define ONNX_DEPTH_MAX 8       /* graphs within graphs */

/* A tensor: an initializer, or the value of a node Constant or of an attribute. */
struct onnx_tensor {
	struct stored_tensor stored; /* data NULL: external, or of a type that is not readable */
	int64_t type;                /* TensorProto.DataType */
	/* External data: a file next to the model, and the range in it; NULL: inside of the file. */
	const char *location;
	uint64_t offset, length; /* length 0: as many bytes as the shape has */
};

#define ONNX_INT64 7 /* TensorProto.DataType */

enum onnx_attribute_kind {
	ONNX_OTHER, /* types, sparse tensors, lists of tensors and graphs */
	ONNX_FLOAT = 1,
	ONNX_INT,
	ONNX_STRING,
	ONNX_TENSOR,
	ONNX_GRAPH,
	ONNX_FLOATS,
	ONNX_INTS,
	ONNX_STRINGS,
};

struct onnx_attribute {
	const char *name;
	enum onnx_attribute_kind kind;
	double f;
	int64_t i;
	const char *text;
	const struct onnx_tensor *tensor;
	const struct onnx_graph *graph; /* a branch of If, a body; its tensors are those of the model */
	struct {
		int64_t *items;
		size_t n, cap;
	} ints;
	struct {
		double *items;
		size_t n, cap;
	} floats;
	bool is_read; /* by the import */
};

struct onnx_names {
	const char **items;
	size_t n, cap;
};

struct onnx_node {
	const char *name, *op, *domain; /* "" where absent */
	struct onnx_names inputs, outputs;
	struct {
		struct onnx_attribute *items;
		size_t n, cap;
	} attributes;
};

/* A size of an input: a number, a symbol, or neither (value -1, symbol NULL). */
struct onnx_size {
	int64_t value;
	const char *symbol;
};

/* An input or output of the graph. */
struct onnx_value {
	const char *name;
	int64_t type;   /* TensorProto.DataType; 0: no tensor */
	bool has_shape; /* rank and sizes are known */
	int rank;
	struct onnx_size sizes[IR_RANK_MAX];
};

struct onnx_values {
	struct onnx_value *items;
	size_t n, cap;
};

struct onnx_graph {
	struct {
		struct onnx_node *items;
		size_t n, cap;
	} nodes;
	struct onnx_values inputs, outputs;
};

struct onnx_model {
	int64_t opset; /* of the domain ai.onnx; 0: none */
	struct onnx_graph graph;
	struct {
		struct onnx_tensor **items;
		size_t n, cap;
	} tensors; /* with names: initializers, then values of nodes Constant */
	bool has_graph, has_functions, has_sparse;
	/* state of the reader */
	const struct stored_source *s;
	size_t n_items;
	int depth; /* of the graph that is read */
};

/* True: the bytes begin as a ModelProto with its version does. */
bool onnx_has_magic(const unsigned char *bytes, size_t len);
/* Reads the graph. Strings and lists are in s->arena, data of tensors in the file, or in the arena where their
 * encoding has no fixed width. TFMC_INVALID after a diagnostic. */
TFMC_MUST_USE enum tfmc_status onnx_read_model(const struct stored_source *s, struct onnx_model *out);
/* The named tensors. Those with external data are not readable. */
TFMC_MUST_USE stored_reader onnx_read;
/* Sets the data of a tensor to its range of the external file; false after a diagnostic. */
bool onnx_set_external(const struct stored_source *s, struct onnx_tensor *t, const unsigned char *bytes,
                       size_t len);
/* An attribute of a node; NULL: absent. */
const struct onnx_attribute *onnx_attribute(const struct onnx_node *node, const char *name);
/* The element type of a number of TensorProto.DataType that tensors here have, too; false: they have none such. */
bool onnx_dtype(int64_t type, enum ir_dtype *out);
/* The name of an element type, "FLOAT"; "?": unknown. */
const char *onnx_type_name(int64_t type);

#endif
