/* SPDX-License-Identifier: Apache-2.0 */
/* Internal: threads that poll a word in memory before they block. */
#ifndef TFMC_RUNTIME_SPIN_H
#define TFMC_RUNTIME_SPIN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Leaves the core to its other hardware thread for a moment. */
static inline void spin_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("isb" ::: "memory");
#endif
}
/* Nanoseconds of the monotonic clock. */
int64_t spin_clock(void);
/* Polls while *word is `value`, for about `limit` nanoseconds, and yields the processor from a few microseconds on.
 * True: the word has changed (acquire); false: the limit was over first. */
bool spin_while(const atomic_uint *word, unsigned value, int64_t limit);
/* Polls the clock until it is `end` (nanoseconds), yielding the processor. */
void spin_until(int64_t end);

#endif
