/* SPDX-License-Identifier: Apache-2.0 */
/* Compiler-specific attributes, the status enum, and TFMC_TRY. */
#ifndef TFMC_IR_SUPPORT_COMPILER_H
#define TFMC_IR_SUPPORT_COMPILER_H

#define TFMC_MUST_USE __attribute__((warn_unused_result))
/* fmt: 1-based position of the format string, args: of its first argument. */
#define TFMC_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

#define TFMC_UNUSED __attribute__((unused))

/* Number of elements of an array (not of a pointer). */
#define TFMC_COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Result of a stage. Details are in diagnostics. */
enum tfmc_status {
	TFMC_OK = 0,
	TFMC_INVALID,   /* the user's input was rejected; at least one error diagnostic was emitted */
	TFMC_NO_MEMORY, /* an arena ran out of memory */
	TFMC_IO,        /* a file could not be read or written; a diagnostic was emitted */
	TFMC_INTERNAL,  /* a bug: an invariant does not hold; a diagnostic was emitted */
};

/*
 * Returns the status from the enclosing function unless it is TFMC_OK. Not for functions that must release resources.
 */
#define TFMC_TRY(expr)                         \
	do {                                   \
		enum tfmc_status st_ = (expr); \
		if (st_ != TFMC_OK)            \
			return st_;            \
	} while (0)

/*
 * Of a function with loops over many elements, a copy for each width of vectors, of which a program chooses when it
 * starts. Where the C library cannot choose and under sanitizers, one. Arithmetic is that of the source: no product
 * and sum become one operation (FP_CONTRACT; GCC does so only in its own dialects of C), so that all copies give the
 * same numbers.
 */
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define TFMC_SANITIZED
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TFMC_SANITIZED
#endif
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(TFMC_SANITIZED)
#define TFMC_MULTIVERSION __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define TFMC_MULTIVERSION
#endif
#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#endif

#endif
