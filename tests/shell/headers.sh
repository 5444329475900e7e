#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Every header compiles alone; the runtime's public headers also as C++. So does the header of a model whose dims, inputs
# and outputs have the names of keywords and of each other's members.
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

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
# What is returned is computed, so that inputs and outputs are tensors of their own.
python3 - >"$tmp/odd.tir" <<'EOF'
inputs = "n restrict requires typename linux x x_count x_data n_data static_assert S_dim".split()
outputs = {name: name for name in inputs} | {"x_out": "x"}
type = "f32[n,N,alignas]"
print('module "odd"\ndim n in [1,4]\ndim N in [1,5]\ndim alignas in [1,3]')
print("func @run(" + ", ".join(f"%{name}: {type}" for name in inputs) + ") -> (" +
      ", ".join(f"{name}: {type}" for name in outputs) + ") {")
for name, source in outputs.items():
    print(f"  %r_{name} = relu %{source} : {type}")
print("  return " + ", ".join(f"%r_{name}" for name in outputs) + "\n}")
EOF
"$TFMC" "$tmp/odd.tir" -o "$tmp/odd.o" >/dev/null || failed=1
for compiler in "$CC -std=c99 -x c" 'c++ -std=c++20 -x c++'; do
	command -v ${compiler%% *} >/dev/null || continue
	printf '#include "odd.h"\nint only_this_header;\n' |
		$compiler -Wall -Wextra -Werror -I"$tmp" -fsyntax-only - ||
		{ echo "the header of odd names does not compile by $compiler" >&2; failed=1; }
done
exit $failed
