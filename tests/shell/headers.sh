#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Every header compiles alone; the runtime's public headers also as C++.
set -uo pipefail
cd "$TFMC_SOURCE"
failed=0
llvm=$(llvm-config-19 --includedir 2>/dev/null || llvm-config --includedir)
for h in $(find ir frontend passes backends runtime -name '*.h' | sort); do
	printf '#include "%s"\nint only_this_header;\n' "$h" |
		"$CC" -std=c17 -Wall -Wextra -Werror -I. -Iruntime -I"$llvm" -x c -fsyntax-only - ||
		{ echo "$h does not compile alone" >&2; failed=1; }
done
if command -v c++ >/dev/null; then
	for h in runtime/abi.h runtime/tfmc_rt.h runtime/opencl/tfmc_cl.h; do
		printf '#include "%s"\n' "$h" | c++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -I. -x c++ -fsyntax-only - ||
			{ echo "$h does not compile as C++" >&2; failed=1; }
	done
	printf '#include "runtime/tfmc_rt.h"\nextern const struct tfmc_sample_options o;\nconst struct tfmc_sample_options o = TFMC_SAMPLE_DEFAULTS;\n' |
		c++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -I. -x c++ -fsyntax-only - ||
		{ echo "TFMC_SAMPLE_DEFAULTS does not compile as C++17" >&2; failed=1; }
fi
exit $failed
