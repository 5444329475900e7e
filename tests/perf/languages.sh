#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# One matmul, three languages: times `linear` of several sizes on one core as an object, as C compiled by
# clang and by gcc, and as OpenCL C on PoCL, beside the core's multiply-add peaks, all in one run.
#   bash tests/perf/languages.sh [MxNxK...]     default: 128x768x768 128x3072x768 128x768x3072 32x1536x384
# M rows, N columns of the result, K the depth. ROUNDS: interleaved rounds (default 10), BUILD_DIR: the build
# (default build), OUT: the scratch folder. What is absent (clang, OpenCL) is left out and said so.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${BUILD_DIR:-build}
out=${OUT:-$build/perf}
tfmc=$build/frontend/driver/tfmc
sizes=("$@")
[ $# -gt 0 ] || sizes=(128x768x768 128x3072x768 128x768x3072 32x1536x384)
cpus=x86-64-v3
if grep -qw avx512vl /proc/cpuinfo; then cpus="$cpus x86-64-v4"; fi
mkdir -p "$out"

# A module of one linear: NAME M N K > file
module() {
	cat <<-TIR
		module "$1"
		weight @w : f32[$3,$4] = sinusoid(rows=$3, dim=$4, layout=halves, spacing=t2t, start=1, base=100.0)
		func @run(%x: f32[$2,$4]) -> (y: f32[$2,$3]) {
		  %y = linear %x, @w : f32[$2,$3]
		  return %y
		}
	TIR
}

rows=()
add() { # label size cpu KIND FILE NAME
	local peak=0
	[ "$3" = x86-64-v3 ] || peak=1
	rows+=("$1 ${3##*-},$peak,${2//x/,},$4,$5,$6")
}

for size in "${sizes[@]}"; do
	IFS=x read -r m n k <<<"$size"
	for cpu in $cpus; do
		base=mm_${size}_${cpu##*-}
		module "${base}_object" "$m" "$n" "$k" >"$out/${base}_object.tir"
		"$tfmc" "$out/${base}_object.tir" -o "$out/${base}_object.o" -mcpu="$cpu" --weights=embed
		${CC:-cc} -shared "$out/${base}_object.o" -o "$out/${base}_object.so"
		add object "$size" "$cpu" native "$out/${base}_object.so" "${base}_object"
		for cc in clang-19 gcc; do
			command -v $cc >/dev/null || { echo "languages.sh: no $cc, its rows are left out" >&2; continue; }
			name=${base}_${cc%-*}
			module "$name" "$m" "$n" "$k" >"$out/$name.tir"
			"$tfmc" "$out/$name.tir" --emit=c="$out/$name.c" -mcpu="$cpu" --weights=embed
			$cc -O2 -march="$cpu" -fPIC -shared "$out/$name.c" -o "$out/$name.so"
			add "C by $cc" "$size" "$cpu" native "$out/$name.so" "$name"
		done
	done
	add OpenCL "$size" "${cpus##* }" opencl "$out/${base}_object.tir" opencl-gpu
done
pin=
if command -v taskset >/dev/null; then pin="taskset -c 0"; fi
POCL_MAX_PTHREAD_COUNT=1 $pin "$build/tests/tfmc_languages" "${ROUNDS:-10}" "${rows[@]}"
