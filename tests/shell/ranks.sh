#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Ranks inside one process under ThreadSanitizer: their unit suite, in a program of its own. The same suite reports a
# race where ranks arrive at an exchange without an order of memory.
set -euo pipefail
skip() { echo "SKIPPED: $*" >&2; exit 77; }
check=$(pkg-config --cflags --libs check) || skip "no Check"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cat >"$tmp/main.c" <<'C'
#include <check.h>
Suite *suite_ranks(void);
int main(void)
{
	SRunner *runner = srunner_create(suite_ranks());
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed > 0;
}
C
threads=(-std=c17 -O1 -g -fsanitize=thread)
echo 'int main(void) { return 0; }' | "$CC" "${threads[@]}" -x c - -o "$tmp/empty" && "$tmp/empty" ||
	skip "no ThreadSanitizer"
# build RANKS.C PROGRAM
build() {
	"$CC" "${threads[@]}" -I"$TFMC_SOURCE" -I"$TFMC_SOURCE/runtime" "$tmp/main.c" "$1" \
		"$TFMC_SOURCE"/tests/unit/object/test_ranks.c "$TFMC_SOURCE"/runtime/{spin,memory}.c $check -lm -lpthread -o "$2"
}
build "$TFMC_SOURCE/runtime/ranks.c" "$tmp/ranks"
"$tmp/ranks"
sed 's/memory_order_acq_rel/memory_order_relaxed/' "$TFMC_SOURCE/runtime/ranks.c" >"$tmp/relaxed.c"
build "$tmp/relaxed.c" "$tmp/relaxed"
if CK_RUN_CASE=failures "$tmp/relaxed" >"$tmp/report" 2>&1; then echo "no race is reported" >&2; exit 1; fi
grep -q 'ThreadSanitizer: data race' "$tmp/report"
