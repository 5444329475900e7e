/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the printer: where text goes and the unique names of one function.
 */
#ifndef TFMC_IR_PRINT_INTERNAL_H
#define TFMC_IR_PRINT_INTERNAL_H

#include "ir/print/text.h"

struct printer {
	struct buf *out;
	const struct diag_context *cx; /* NULL: no locations */
	const struct ir_module *m;
	const struct ir_func *f;
	struct arena arena; /* of the names */
	bool is_plain;      /* values have numbers, whatever their names */
	const char **names; /* [f->n_values] without the %; NULL: printed in place or unknown */
};

void printer_begin(struct printer *p, struct buf *out, const struct diag_context *cx,
                   const struct ir_module *m, const struct ir_func *f, bool is_plain);
/* The whole module; plain: numbers instead of the names of values. */
void print_module(struct buf *out, const struct diag_context *cx, const struct ir_module *m, bool is_plain);
void printer_end(struct printer *p);

void print_value(const struct printer *p, struct ir_value v);
/* The values separated by `, `; absent ones may not occur. */
void print_values(const struct printer *p, const struct ir_value *v, size_t n);
/* ` loc(...)`, or nothing. */
void print_loc(struct buf *out, const struct diag_context *cx, const struct ir_module *m, struct ir_loc loc);
void print_region(const struct printer *p, const struct ir_region *r, int indent);

#endif
