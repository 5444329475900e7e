#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Warnings are errors where continuous integration asks only, and what optimizers have warned of is clean at each level.
# builds.sh builds everything in every build type.
set -uo pipefail
cd "$TFMC_SOURCE"
bad=0
complain() { echo "$*" >&2; bad=1; }
grep -q '^option(TFMC_WERROR .* OFF)$' CMakeLists.txt || complain "TFMC_WERROR is not OFF by default"
grep -q 'TFMC_WERROR=ON .*tests/run.sh' .ci/run || complain ".ci/run does not make warnings errors"
warned=(frontend/tokenizer/json_pre.c frontend/weights/npy.c backends/print/opencl.c)
for level in -O0 -Os -O2 -O3; do
	for file in "${warned[@]}"; do
		"$CC" -std=c17 $level -DNDEBUG -I. -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wvla -Werror -c "$file" \
			-o /dev/null || complain "$file warns with $level"
	done
done
exit $bad
