#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Debug information: an object with -g is the object without it and sections for debuggers; gdb stops at a line of the
# model file, says the layer, and names the line of a crash; DWARF is well formed on every target.
set -euo pipefail
for tool in gdb llvm-dwarfdump-19; do
	command -v "$tool" >/dev/null || { echo "SKIPPED: $tool is absent (Debian: gdb llvm-19)"; exit 77; }
done
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cp "$TFMC_SOURCE"/examples/dates/{model.yaml,*.txt,model.safetensors,cases.safetensors} "$tmp"
cd "$tmp"
line() { grep -n -- "$1" model.yaml | sed -n "${2:-1}s/:.*//p"; }

# The file, its lines and the layers; no path of this machine; the same bytes in another folder.
"$TFMC" model.yaml -mcpu=x86-64-v3 -g -o dates.o
mkdir again
cp model.yaml *.txt *.safetensors again
(cd again && "$TFMC" model.yaml -mcpu=x86-64-v3 -g -o dates.o)
cmp dates.o again/dates.o
if grep -qa "$tmp\|$TFMC_SOURCE" dates.o; then exit 1; fi
bash "$TFMC_SOURCE/tests/object_audit.sh" dates.o dates
llvm-dwarfdump-19 --debug-line dates.o >lines
for n in $(seq "$(line '- embed' 2)" "$(line '- linear')"); do
	sed -n "${n}p" model.yaml | grep -q 'repeat:\|body:$' || awk -v n="$n" '/^0x/ && $2 == n { found = 1 } END { exit !found }' lines
done
for target in -mcpu=armv8.6 --variants=v2,v4; do
	"$TFMC" model.yaml $target --entries=run -g -o other.o
	llvm-dwarfdump-19 --verify other.o >verified || { cat verified; exit 1; }
done
llvm-dwarfdump-19 --verify dates.o >verified

# Without -g nothing of it; with it each function that both have is as long.
"$TFMC" model.yaml -mcpu=x86-64-v3 -o plain.o
readelf -SW plain.o | { ! grep -q '\.debug'; }
nm plain.o | { ! grep -q 'layers'; }
sizes() { nm -S "$1" | awk '$3 == "t" || $3 == "T" { print $4, $2 }' | sed -E 's/\.(en|de)coder\.[a-z0-9.]*\.(linear|attention|loops|rowwise|attention\.join)(\.kernel)? /.\2\3 /' | sort; }
join <(sizes plain.o) <(sizes dates.o) >both
[ "$(wc -l <both)" -gt 100 ]
awk '$2 != $3 { print; bad = 1 } END { exit bad }' both

# A breakpoint at a line of a linked program: the layer, its sizes, the line; a fused step is inlined in its kernel.
if ! grep -qw avx2 /proc/cpuinfo; then echo "only dumps: no avx2 here"; exit 0; fi
"$CC" -g -std=c17 -I"$TFMC_SOURCE/runtime" -I. "$TFMC_SOURCE/examples/dates/main.c" dates.o \
	"$TFMC_BUILD/runtime/libtfmcrt.a" -lpthread ${TFMC_LINK_FLAGS:-} -o dates
debug() { gdb -nx -batch -iex 'set debuginfod enabled off' "$@" --args ./dates '3 March 2021' 2>&1; }
attention=$(line 'id: self') norm=$(line 'id: norm1')
debug -ex "break model.yaml:$attention" -ex run -ex 'backtrace' -ex "tbreak model.yaml:$norm" -ex 'delete 1' \
	-ex continue -ex 'backtrace 2' -ex 'tbreak decoder.head' -ex continue -ex 'print B' -ex kill >session || true
if grep -q 'ptrace: Operation not permitted\|Could not trace the inferior' session; then
	echo "SKIPPED: this system does not let gdb run a program"
	exit 77
fi
grep -q "^Breakpoint 1.*, encoder.layers.self.attention (.*B=1, S=12, .*worker=0, n_workers=1) at model.yaml:$attention" session
grep -q "^$attention.*residual: {id: self, body: \[attention\]}" session
grep -q '^#[0-9]* .*main (argc=2' session
grep -q "^#0 .*encoder.layers.norm1 () at model.yaml:$norm" session
grep -q "^#1 .*encoder.layers.self.attention (.*) at model.yaml:$attention" session
grep -q "^Temporary breakpoint .*, decoder.head (.*) at model.yaml:$(line '- linear')" session
grep -qx '\$1 = 1' session

# A crash: the backtrace begins with the step.
debug -ex "tbreak model.yaml:$attention" -ex run -ex 'set variable q_k_v_weight = 0' \
	-ex continue -ex 'backtrace 1' -ex kill >crash || true
grep -q 'received signal SIGSEGV' crash
grep -q "^#0 .*encoder.layers.self.attention (.*) at model.yaml:$attention" crash
