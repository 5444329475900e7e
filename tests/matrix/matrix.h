/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The differential matrix: what its parts share. A suite is a list of modules
 * (batches of random functions, odd shapes, whole models) and of calls to their
 * functions with inputs, the interpreter's outputs and bounds. It is made anew by
 * every command from fixed seeds, so that all of them mean the same cases.
 */
#ifndef TFMC_TESTS_MATRIX_MATRIX_H
#define TFMC_TESTS_MATRIX_MATRIX_H

#include "backends/backend.h"
#include "frontend/frontend.h"
#include "ir/interp/interp.h"
#include "tests/support/random/rng.h"

#define OPS_WORDS ((IR_N_OPS + 63) / 64)

struct ops_set {
	uint64_t bits[OPS_WORDS];
};

/* One module: of the compiled models of every column, of one program of OpenCL. */
struct batch {
	const char *name;     /* the model's: prefix of its symbols */
	const char *pipeline; /* O0 or O2 */
	struct ir_module *graph;
	struct frontend_model *model; /* examples; NULL: random */
	struct weight_source weights;
	bool few;            /* one seed of everything: for columns whose compilers are slow */
	size_t turn;         /* of a model: which columns take it, see column_takes */
	bool may_be_refused; /* rare element types: a back end may say that it does not support them */
};

/* One call. */
struct matrix_case {
	const char *row;  /* an op, "programs", or an example */
	const char *what; /* the function and how it was called, for people */
	size_t batch;
	const struct ir_func *f;
	const char *entry; /* of the object */
	struct ops_set ops;
	bool reset; /* the state begins anew */
	int64_t *dims;
	struct interp_tensor *inputs, *outputs; /* tensor params and results, lengths of the state included */
	size_t n_inputs, n_outputs;
	double **bounds; /* [n_outputs][elements]; NULL: the whole output by its relative L2 error */
};

struct suite {
	struct arena *arena;
	struct diag_context *cx;
	const char *source; /* the checkout: models are found beneath */
	struct {
		struct batch *items;
		size_t n, cap;
	} batches;
	struct {
		struct matrix_case *items;
		size_t n, cap;
	} cases;
};

/* How inputs are made: random; special floats (infinities, NaN, ends of the range); counts and lengths all 0.
 */
enum fill { FILL_RANDOM, FILL_SPECIAL, FILL_EMPTY };

/* ---- making the suite ---- */
/* All batches and cases with the interpreter's outputs and bounds. False after a diagnostic. */
bool suite_build(struct suite *s);
void suite_destroy(struct suite *s);
bool suite_add_random(struct suite *s);
bool suite_add_odd(struct suite *s);
bool suite_add_examples(struct suite *s);
/* A call of f with inputs of that kind; dims are taken over when given, else drawn. NULL when memory ran out.
 */
struct matrix_case *suite_add_call(struct suite *s, size_t batch, const struct ir_func *f,
                                   const int64_t *dims, uint64_t seed, enum fill fill);
/* The interpreter's outputs of a case without state, and the bounds of its results. */
bool suite_expect(struct suite *s, struct matrix_case *c);
struct ops_set ops_of(const struct ir_func *f);
static inline bool ops_has(const struct ops_set *o, enum ir_opcode code)
{
	return o->bits[code / 64] >> (code % 64) & 1;
}
/* The tensor of an entry's caller, not the lengths of the state. */
bool input_is_caller(const struct ir_func *f, size_t tensor);
bool output_is_caller(const struct ir_func *f, size_t tensor);

/* ---- columns ---- */
enum column_kind { COLUMN_OBJECT, COLUMN_C, COLUMN_OPENCL };

struct column {
	const char *name, *target; /* a row of ir/target/targets.def */
	enum column_kind kind;
	const char *how;  /* for the table's legend */
	bool unoptimized; /* a device's compiler works without its optimizer */
};
/* Column i of the table, or NULL. */
const struct column *column_at(size_t i);
const struct column *column_find(const char *name);

/* "object", "c" or "opencl": how matrix.sh treats the column. */
const char *column_kind_name(enum column_kind kind);

/* Files of all batches for a column beneath DIR/NAME: NAME/MODEL.o or .c, and NAME/models.h. */
bool column_emit(struct suite *s, const struct column *column, const char *dir);
/* Runs all batches of a column in this process; writes DIR/NAME.out. 77: no device. */
int column_run_opencl(struct suite *s, const struct column *column, const char *dir);

/* ---- files (frontend/syntax/files.c says what is in them) ---- */
bool write_cases(const struct suite *s, const char *path);
/* Whole files; false after a message. */
bool file_put(const char *path, const char *bytes, size_t n);
bool file_get(struct arena *a, const char *path, const char **bytes, size_t *n);

/* ---- the table ---- */
/* Prints the table of the columns that have DIR/NAME.out; true when nothing failed. */
bool table_print(struct suite *s, const char *dir, size_t *n_failed);

#endif
