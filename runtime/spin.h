/* SPDX-License-Identifier: Apache-2.0 */
/* Internal: threads that poll a word in memory before they block. */
#ifndef TFMC_RUNTIME_SPIN_H
#define TFMC_RUNTIME_SPIN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Nanoseconds of the monotonic clock. */
int64_t spin_clock(void);
/* Polls while *word is `value`, for about `limit` nanoseconds, and yields the processor from a few microseconds on.
 * True: the word has changed (acquire); false: the limit was over first. */
bool spin_while(const atomic_uint *word, unsigned value, int64_t limit);
/* Polls the clock until it is `end` (nanoseconds), yielding the processor. */
void spin_until(int64_t end);

#endif
