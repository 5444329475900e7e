#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Does compile time grow with the number of layers? It must not: layers are a loop with stacked weights, only packing
# the weights grows. Compiles BERT-base (preset e2) with 12, 24 and 48 layers in interleaved rounds and checks that
# the code is equally large and that the time beside weights grows by no more than 10 %.
#   bash tests/perf/compile_time.sh [PRESET [LAYERS...]]
# BUILD_DIR (default build), OUT (scratch folder), ROUNDS (default 5), TFMC_CPU (default x86-64-v3).
# MODEL_OPTIONS goes to make_encoder.py, for example --pre-norm (norms are folded into the weights behind them) or --full.
# Times are the lines of --time-passes; those that name weights, and writing the files, are "weights". Packing is told in bytes of packed
# weights for a second; memory is the largest resident size without the pages of mapped files (the weights that were read), and must
# stay below 512 MB.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${BUILD_DIR:-build}
out=${OUT:-$build/perf}
tfmc=$build/frontend/driver/tfmc
rounds=${ROUNDS:-5}
read -ra run <<<"${RUN:-}" # a command in front of tfmc, such as taskset -c 1
preset=${1:-e2}
shift || true
layers=("$@")
[ ${#layers[@]} -gt 0 ] || layers=(12 24 48)
mkdir -p "$out"

declare -A wall=() beside=() weights=() packing=() memory=()
smaller() { awk -v a="$1" -v b="${2:-1e9}" 'BEGIN { print a < b ? a : b }'; }

compile() { # LAYERS: one compilation, minimum of each time is kept
	local n=$1 name=${preset}_l$1 start end
	start=$(date +%s.%N)
	"${run[@]}" "$tfmc" "$out/$name.yaml" -o "$out/$name.o" -mcpu="${TFMC_CPU:-x86-64-v3}" --weights=file --time-passes \
		2>"$out/$name.times" || { cat "$out/$name.times" >&2; exit 1; }
	end=$(date +%s.%N)
	# A stage is `name  seconds s`; indented lines are parts of the stage beside them.
	awk '$NF == "s" && $(NF-1) ~ /^[0-9.]+$/ {
		if (/^ /) { if (/weight packing/) { w += $(NF-1); b -= $(NF-1); p += $(NF-1) } }
		else if (tolower($0) ~ /weight|writing/) w += $(NF-1)
		else b += $(NF-1)
	} END { printf "%.4f %.4f %.4f\n", b, w, p }' "$out/$name.times" >"$out/$name.sums"
	read -r b w p <"$out/$name.sums"
	wall[$n]=$(smaller "$(awk -v a="$start" -v b="$end" 'BEGIN { print b - a }')" "${wall[$n]:-}")
	beside[$n]=$(smaller "$b" "${beside[$n]:-}")
	weights[$n]=$(smaller "$w" "${weights[$n]:-}")
	packing[$n]=$(smaller "$p" "${packing[$n]:-}")
}

for n in "${layers[@]}"; do
	# shellcheck disable=SC2086
	python3 tests/perf/make_encoder.py "$preset" ${MODEL_OPTIONS:-} --layers "$n" --out "$out" --name "${preset}_l$n" >/dev/null
done
for _ in $(seq "$rounds"); do
	for n in "${layers[@]}"; do compile "$n"; done
done

# Private memory at its peak in MB: the smallest limit on data under which the command still works, to 16 MB.
fits() { (ulimit -d "$(($2 * 1024))"; "$tfmc" "$out/$1.yaml" -o "$out/$1.o" -mcpu="${TFMC_CPU:-x86-64-v3}" --weights=file) >/dev/null 2>&1; }
peak() {
	local low=0 high=512
	fits "$1" $high || { echo 9999; return; }
	while [ $((high - low)) -gt 16 ]; do
		if fits "$1" $(((low + high) / 2)); then high=$(((low + high) / 2)); else low=$(((low + high) / 2)); fi
	done
	echo $high
}
for n in "${layers[@]}"; do memory[$n]=$(peak "${preset}_l$n"); done

code_size() { size -A "$1" | awk '$1 ~ /^\.text/ { n += $2 } END { print n + 0 }'; }

printf '%6s %10s %16s %12s %12s %12s %10s %10s\n' layers 'wall s' 'beside weights s' 'weights s' 'code bytes' 'object bytes' 'pack GB/s' 'memory MB'
failed=0
first=${layers[0]}
first_code=$(code_size "$out/${preset}_l$first.o")
for n in "${layers[@]}"; do
	object=$out/${preset}_l$n.o
	code=$(code_size "$object")
	gbs=$(awk -v b="$(stat -c %s "$out/${preset}_l$n.weights")" -v s="${packing[$n]}" 'BEGIN { printf "%.2f", (s > 0 ? b / s * 1e-9 : 0) }')
	printf '%6d %10.3f %16.3f %12.3f %12d %12d %10s %10d\n' "$n" "${wall[$n]}" "${beside[$n]}" "${weights[$n]}" "$code" \
		"$(stat -c %s "$object")" "$gbs" "${memory[$n]}"
	[ "${memory[$n]}" -le 512 ] || { echo "$n layers do not compile with 512 MB beside mapped files" >&2; failed=1; }
	[ "$code" -gt 0 ] && [ "$code" -eq "$first_code" ] || { echo "code of $n layers is $code bytes, of $first layers $first_code" >&2; failed=1; }
	awk -v a="${beside[$first]}" -v b="${beside[$n]}" 'BEGIN { exit !(a > 0 && b <= 1.1 * a) }' ||
		{ echo "time beside weights grew by more than 10 %: ${beside[$first]} s with $first layers, ${beside[$n]} s with $n" >&2; failed=1; }
done
[ $failed -eq 0 ] && echo "code sizes equal, time beside weights within 10 %"
exit $failed
