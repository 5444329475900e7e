#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Single groups (softmax, norms, activations, embeddings, copies) on one core, in cycles per element, for
# tensors in L1, in L2 and in memory and for every level of x86-64 that this machine has.
#   bash tests/perf/rowwise.sh [CASE...]        default: all; the names are in `cases` below
# The row `copy` of the same size and level is what moving the bytes alone costs. SIZES (default "L1 L2 mem"),
# LEVELS (default: all of v4 v3 v2), ROUNDS (default 9), BUILD_DIR, OUT, PIN (a command in front of the measurement).
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${BUILD_DIR:-build}
out=${OUT:-$build/perf/rowwise}
tfmc=$build/frontend/driver/tfmc
levels=v3\ v2
if grep -qw avx512vl /proc/cpuinfo; then levels="v4 $levels"; fi
levels=${LEVELS:-$levels}
cases="copy softmax softmax_masks log_softmax layer_norm rms_norm gelu gelu_tanh gelu_quick silu gated tanh erf relu
	add embed mask_rows transpose heads split_heads slice concat argmax"
if [ $# -gt 0 ]; then cases="$*"; fi
mkdir -p "$out"

d=${D:-768}
# Rows of d elements; x and y together stay in the level.
rows_of() {
	case $1 in
	L1) echo 5 ;;
	L2) echo 80 ;;
	mem) echo 10240 ;;
	esac
}

# elementwise NAME: y = NAME x, [n, d]
unary() { # module op n
	printf 'module "%s"\nfunc @run(%%x: f32[1,%s,%s]) -> (y: f32[1,%s,%s]) {\n  %%y = %s\n  return %%y\n}\n' \
		"$1" "$3" "$d" "$3" "$d" "$2 : f32[1,$3,$d]"
}

# NAME CASE N: the module; its elements go to the variable `elements`
module() {
	local name=$1 n=$3 head f="f32[1,$3,$d]"
	elements=$((n * d))
	case $2 in
	copy) unary "$name" 'neg %x' "$n" ;;
	softmax | log_softmax | layer_norm | rms_norm | gelu | gelu_tanh | gelu_quick | silu | tanh | erf | relu)
		case $2 in
		layer_norm | rms_norm) norm "$name" "$2" "$n" ;;
		*) unary "$name" "$2 %x" "$n" ;;
		esac ;;
	softmax_masks)
		echo "module \"$name\""
		echo "func @run(%x: f32[1,$n,$d,$d], %len: i32[1]) -> (y: f32[1,$n,$d,$d]) {"
		echo "  %y = masked_softmax %x {mask=causal scale=0.125} : f32[1,$n,$d,$d]"
		echo "  return %y"
		echo "}" ;;
	gated) binary "$name" "$n" "%a = silu %x : $f" "%y = mul %a, %z : $f" ;;
	add) binary "$name" "$n" "%y = add %x, %z : $f" ;;
	embed)
		echo "module \"$name\""
		echo "func @run(%t: f32[64,$d], %p: f32[$n,$d], %ids: i32[1,$n]) -> (y: $f) {"
		echo "  %a = gather %t, %ids : $f"
		echo "  %at = broadcast %p {dims=[1,$n,$d]} : $f"
		echo "  %y = add %a, %at : $f"
		echo "  return %y"
		echo "}" ;;
	mask_rows)
		echo "module \"$name\""
		echo "func @run(%x: $f, %len: i32[1]) -> (y: $f) {"
		echo "  %y = mask_rows %x, %len : $f"
		echo "  return %y"
		echo "}" ;;
	transpose) plain "$name" "$f" "f32[1,$d,$n]" "%y = transpose %x {perm=[0,2,1]} : f32[1,$d,$n]" ;;
	heads)
		head="f32[1,12,$n,$((d / 12))]"
		plain "$name" "$head" "$f" "%h = transpose %x {perm=[0,2,1,3]} : f32[1,$n,12,$((d / 12))]" \
			"%y = reshape %h {dims=[1,$n,$d]} : $f" ;;
	split_heads)
		head="f32[1,12,$n,$((d / 12))]"
		plain "$name" "$f" "$head" "%h = reshape %x {dims=[1,$n,12,$((d / 12))]} : f32[1,$n,12,$((d / 12))]" \
			"%y = transpose %h {perm=[0,2,1,3]} : $head" ;;
	slice)
		plain "$name" "f32[1,$n,$((3 * d))]" "$f" "%y = slice %x {axis=2 begin=$d size=$d} : $f" ;;
	concat)
		echo "module \"$name\""
		echo "func @run(%x: $f, %z: $f) -> (y: f32[1,$n,$((2 * d))]) {"
		echo "  %y = concat %x, %z {axis=2} : f32[1,$n,$((2 * d))]"
		echo "  return %y"
		echo "}"
		elements=$((2 * n * d)) ;;
	argmax) plain "$name" "$f" "i32[1,$n]" "%y = argmax %x : i32[1,$n]" ;;
	*) echo "rowwise.sh: no case $2" >&2; exit 2 ;;
	esac
}

# NAME N LINE...: y from x and z, all [1, n, d]
binary() {
	echo "module \"$1\""
	echo "func @run(%x: f32[1,$2,$d], %z: f32[1,$2,$d]) -> (y: f32[1,$2,$d]) {"
	shift 2
	printf '  %s\n' "$@" "return %y"
	echo "}"
}

# NAME TYPE-OF-X TYPE-OF-Y LINE...
plain() {
	echo "module \"$1\""
	echo "func @run(%x: $2) -> (y: $3) {"
	shift 3
	printf '  %s\n' "$@" "return %y"
	echo "}"
}

norm() { # NAME OP N
	local f="f32[1,$3,$d]"
	echo "module \"$1\""
	if [ "$2" = layer_norm ]; then
		echo "func @run(%x: $f, %g: f32[$d], %b: f32[$d]) -> (y: $f) {"
		echo "  %y = layer_norm %x, %g, %b : $f"
	else
		echo "func @run(%x: $f, %g: f32[$d]) -> (y: $f) {"
		echo "  %y = rms_norm %x, %g : $f"
	fi
	printf '  return %%y\n}\n'
}

rows=()
build_row() { # LABEL NAME LEVEL ELEMENTS
	"$tfmc" "$out/$2.tir" -o "$out/$2.o" -mcpu="x86-64-$3"
	${CC:-cc} -shared "$out/$2.o" -o "$out/$2.so"
	rows+=("$1,$out/$2.so,$2,$4")
}

for level in $levels; do
	plain "call_$level" 'f32[1]' 'f32[1]' '%y = neg %x : f32[1]' >"$out/call_$level.tir"
	build_row "$level" "call_$level" "$level" 0
	for size in ${SIZES:-L1 L2 mem}; do
		for case in $cases; do
			n=$(rows_of "$size")
			[ "$case" != softmax_masks ] || n=$(((n + 767) / 768))
			[ "$case" != softmax_masks ] || [ "$size" != L1 ] || continue
			name=${case}_${size}_$level
			module "$name" "$case" "$n" >"$out/$name.tir"
			elements=$((n * d))
			[ "$case" != concat ] || elements=$((2 * n * d))
			[ "$case" != softmax_masks ] || elements=$((n * d * d / 2))
			build_row "$case $size $level" "$name" "$level" "$elements"
		done
	done
done
${PIN:-} "$build/tests/tfmc_rowwise" "${ROUNDS:-9}" "${rows[@]}"
