/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One attention group as it is in a model: q [B,S,H E] is split and
 * transposed, k [B,K,T,E] and v [B,K,T,V] lie as a state does, the result goes
 * back to [B,S,H V]. Emitted once for all B, S, T; run by the IR interpreter, the
 * kernel interpreter (every access checked) and as machine code.
 */
#ifndef TFMC_TESTS_SUPPORT_KERNELS_ATTENTION_CASE_H
#define TFMC_TESTS_SUPPORT_KERNELS_ATTENTION_CASE_H

#include "backends/backend.h"
#include "backends/kb/kb.h"
#include "ir/core/module.h"
#include "ir/target/target.h"

enum attention_bias { BIAS_NONE, BIAS_FULL /* [B,H,S,T] */, BIAS_KEYS /* [B,T] */, BIAS_ROWS /* [H,S] */ };

struct attention_config {
	int64_t heads, key_heads, size, value_size;
	bool is_causal, has_len, has_past;
	bool is_padded; /* of the rows, too, only those below len are computed */
	int64_t window; /* 0: none */
	int64_t split;  /* blocks of a head that workers may divide, 0: none */
	enum attention_bias bias;
	bool has_sinks;
	double sink; /* the sinks are around this */
	double scale, softcap;
	bool rounds;        /* what is multiplied, to bf16 */
	bool is_bf16;       /* all float tensors are bf16 */
	enum ir_dtype kv;   /* of k and v, where the others are f32; of i8 there are scales */
	bool transposed_kv; /* k and v are views of [B,K,E,T] and [B,K,V,T] */
	bool panel_keys;    /* k is #panel16, as a state may be; not with is_bf16 */
	int64_t ring; /* > 0: row p of k and v lies at p mod ring, and only those up to past + S are there */
	int64_t br, bc; /* 0: the defaults */
	const char *target;
};

struct attention_case {
	struct attention_config config;
	struct diag_context cx;
	struct buf log;
	struct arena arena;
	struct ir_module *m;
	const struct ir_func *f;
	int64_t scratch_bytes;
	struct kb_caps caps;
	struct kb_module *kernels;
	bool is_shared;          /* by the items of work-groups, of which there are as many as workers */
	struct backend_jit *jit; /* NULL: this machine cannot run the target */
};

/* Tensors of one call, filled with seeded numbers. */
struct attention_call {
	int64_t b, s, t;
	float *q, *k, *v, *bias;  /* bias [count of its config] or NULL */
	float *sinks;             /* [heads] */
	float *k_scale, *v_scale; /* [b, key_heads, t] of i8 */
	int32_t *len, *past;      /* [b], zero at first */
	float *out;               /* [b, s, heads value_size] */
	int64_t n_q, n_k, n_v, n_bias, n_out, n_scales;
};

void attention_case_init(struct attention_case *c, const struct attention_config *config);
void attention_case_destroy(struct attention_case *c);

void attention_call_init(struct attention_case *c, struct attention_call *call, int64_t b, int64_t s,
                         int64_t t);
/* Keys and values of sequence b at positions [from, to) become NaN, of i8 their scales NaN and infinite. */
void attention_poison(const struct attention_case *c, struct attention_call *call, int64_t b, int64_t from,
                      int64_t to);
/* Computes call->out by machine code when there is any, else by the kernel interpreter. */
void attention_run(struct attention_case *c, struct attention_call *call, int64_t n_workers);
/* Always by the kernel interpreter. */
void attention_run_checked(struct attention_case *c, struct attention_call *call, int64_t n_workers);
/* call->out is the IR interpreter's result within the bounds of support/bounds/bound.h. */
void attention_expect(struct attention_case *c, const struct attention_call *call);
/* For kernels that a test made wrong: NULL when attention_run_checked and attention_expect would pass, else
 * why not. */
const char *attention_complaint(struct attention_case *c, struct attention_call *call, int64_t n_workers);

#endif
