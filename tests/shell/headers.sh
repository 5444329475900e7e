#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Every header has the guard of its path and compiles alone; the runtime's public headers also as C++. So does the header
# of a model whose dims, inputs and outputs have the names of keywords and of each other's members.
set -uo pipefail
cd "$TFMC_SOURCE"
failed=0
for h in $(find ir frontend passes backends runtime tests -name '*.h' | sort); do
	guard=TFMC_$(echo "$h" | tr 'a-z/.-' 'A-Z___')
	[ "$(grep -m2 -E '^#(ifndef|define) ' "$h")" = "#ifndef $guard
#define $guard" ] || { echo "$h has not the guard $guard" >&2; failed=1; }
done
llvm=$(llvm-config-19 --includedir 2>/dev/null || llvm-config --includedir)
for h in $(find ir frontend passes backends runtime -name '*.h' | sort); do
	printf '#include "%s"\nint only_this_header;\n' "$h" |
		"$CC" -std=c17 -Wall -Wextra -Werror -I. -Iruntime -I"$llvm" -x c -fsyntax-only - ||
		{ echo "$h does not compile alone" >&2; failed=1; }
done
if command -v c++ >/dev/null; then
	for h in runtime/abi.h runtime/tfmc_rt.h runtime/opencl/tfmc_cl.h runtime/mpi/tfmc_mpi.h; do
		printf '#include "%s"\n' "$h" | c++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -I. -x c++ -fsyntax-only - ||
			{ echo "$h does not compile as C++" >&2; failed=1; }
	done
	printf '#include "runtime/tfmc_rt.h"\nextern const struct tfmc_sample_options o;\nconst struct tfmc_sample_options o = TFMC_SAMPLE_DEFAULTS;\n' |
		c++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -I. -x c++ -fsyntax-only - ||
		{ echo "TFMC_SAMPLE_DEFAULTS does not compile as C++17" >&2; failed=1; }
fi

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
standard="assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdarg stdbool stddef stdint
	stdio stdlib string time wchar wctype"
both="$standard stdalign stdatomic stdnoreturn tgmath threads uchar" # of C alone
includes() { for h in $1; do echo "#include <$h.h>"; done; }
# Names are keywords of C and C++, types, the macros without arguments of those headers on this machine, and each other's
# members. What is returned is computed, so that inputs and outputs are tensors of their own.
includes "$both" | "$CC" -std=gnu17 -dM -E - | awk '$2 !~ /\(/ { print $2 }' >"$tmp/macros"
python3 - "$tmp" <<'EOF'
import re, sys
tmp = sys.argv[1]
own = "n restrict requires typename linux x x_count x_data n_data static_assert S_dim _Bool _Bool_out out_Bool __x _x".split()
c = """auto break case char const continue default do double else enum extern float for goto if inline int long register return
short signed sizeof static struct switch typedef union unsigned void volatile while _Alignas _Alignof _Atomic _Complex _Generic
_Imaginary _Noreturn _Static_assert _Thread_local alignas alignof bool constexpr false nullptr thread_local true typeof
typeof_unqual int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t intptr_t uintptr_t intmax_t uintmax_t size_t
ptrdiff_t ssize_t wint_t max_align_t uint_fast8_t int_least64_t off_t time_t FILE va_list"""
cxx = """and and_eq asm bitand bitor catch char8_t char16_t char32_t class co_await co_return co_yield compl concept const_cast
consteval constinit decltype delete dynamic_cast explicit export friend mutable namespace new noexcept not not_eq operator or
or_eq private protected public reinterpret_cast static_cast template this throw try typeid using virtual wchar_t xor xor_eq
final override import module"""
macros = [m for m in open(tmp + "/macros").read().split() if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,40}", m)]
assert "EINVAL" in macros and "errno" in macros, macros[:5]
names = list(dict.fromkeys(own + c.split() + cxx.split() + macros))
type, size = "f32[n,N,alignas]", "f32[SIZE_MAX,__x]"
for k in range(0, len(names), 60):
    inputs = own[:4] + [n for n in names[k:k + 60] if n not in own[:4]]
    outputs = {n: n for n in inputs} | {"x_out": inputs[0]}
    lines = [f'module "odd{k // 60}"']
    lines += [f"dim {n} in [1,{i + 2}]" for i, n in enumerate("n N alignas SIZE_MAX __x".split())]
    lines += ["func @run(" + ", ".join(f"%{n}: {type}" for n in inputs) + f", %s: {size}) -> (" +
              ", ".join(f"{n}: {type}" for n in outputs) + f", S: {size}) {{"]
    lines += [f"  %r_{n} = relu %{source} : {type}" for n, source in outputs.items()]
    lines += [f"  %r_s = relu %s : {size}", "  return " + ", ".join(f"%r_{n}" for n in outputs) + ", %r_s", "}"]
    open(f"{tmp}/odd{k // 60}.tir", "w").write("\n".join(lines) + "\n")
EOF
for f in "$tmp"/odd*.tir; do
	"$TFMC" "$f" -q -O0 --emit=header="${f%.tir}.h" || failed=1
done
for f in "$tmp"/odd*.h; do echo "#include \"${f##*/}\""; done >"$tmp/all.h"
[ "$(wc -l <"$tmp/all.h")" -gt 5 ] || { echo "only $(wc -l <"$tmp/all.h") headers of odd names" >&2; failed=1; }
compiles() { # HEADERS COMPILER..: alone, and after those headers
	{ includes "$1"; printf '#include "all.h"\nint only_this_header;\n'; } |
		"${@:2}" -Wall -Wextra -Werror -I"$tmp" -fsyntax-only - >"$tmp/log" 2>&1 && return
	echo "the headers of odd names do not compile by ${*:2}, after '${1:0:20}..':" >&2
	grep error "$tmp/log" | head -5 >&2
	failed=1
}
for compiler in "$CC -std=c99 -x c" "$CC -std=gnu17 -x c" "clang-19 -std=c2x -x c" "c++ -std=c++20 -x c++" "clang++-19 -std=c++17 -x c++"; do
	command -v ${compiler%% *} >/dev/null || continue
	case $compiler in *c++) after=$standard ;; *c99*) after=assert ;; *) after=$both ;; esac
	compiles "" $compiler
	compiles "$after" $compiler
done
exit $failed
