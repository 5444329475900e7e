#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Compiles encoders of the presets and times them on one core, beside the core's multiply-add peaks.
#   bash tests/perf/bench.sh [WORKLOAD...]     default: e5:1x16 e3:1x32 e3:1x128 e1:1x64 e2:1x128
# A workload is PRESET:BATCHxLENGTH. TFMC_CPUS lists the -mcpu values (default: x86-64-v3, and x86-64-v4 where
# it runs), ROUNDS the interleaved rounds (default 10), BUILD_DIR the build (default build), OUT the scratch folder.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${BUILD_DIR:-build}
out=${OUT:-$build/perf}
tfmc=$build/frontend/driver/tfmc
workloads=("$@")
[ $# -gt 0 ] || workloads=(e5:1x16 e3:1x32 e3:1x128 e1:1x64 e2:1x128)
cpus=${TFMC_CPUS:-x86-64-v3}
if [ -z "${TFMC_CPUS:-}" ] && grep -qw avx512vl /proc/cpuinfo; then cpus="$cpus x86-64-v4"; fi
mkdir -p "$out"

declare -A shapes=([e1]="6, 512, 2048" [e2]="12, 768, 3072" [e3]="6, 384, 1536" [e5]="2, 64, 256")
declare -A compiled=()
objects=()
headers=
rows=
for cpu in $cpus; do
	peak=0
	[ "$cpu" = x86-64-v3 ] || peak=1
	for workload in "${workloads[@]}"; do
		preset=${workload%%:*}
		size=${workload#*:}
		name=${preset}_${cpu//[^a-z0-9]/_}
		name=${name/x86_64_/}
		if [ -z "${shapes[$preset]:-}" ]; then echo "unknown preset $preset" >&2; exit 2; fi
		if [ -z "${compiled[$name]:-}" ]; then
			compiled[$name]=1
			python3 tests/perf/make_encoder.py "$preset" --out "$out" --name "$name" >/dev/null
			"$tfmc" "$out/$name.yaml" -o "$out/$name.o" -mcpu="$cpu" --weights=file
			objects+=("$out/$name.o")
			headers+="#include \"$name.h\""$'\n'
		fi
		rows+=" \\"$'\n'"	X($name, \"$out/$name.weights\", $peak, ${shapes[$preset]}, ${size%x*}, ${size#*x})"
	done
done
printf '%s#define MODELS(X)%s\n' "$headers" "$rows" >"$out/models.h"
${CC:-cc} -std=c17 -O2 -Wall -Wextra -Iruntime -I"$out" tests/perf/bench.c tests/perf/peaks.c "${objects[@]}" \
	"$build/runtime/libtfmcrt.a" -lpthread -lm -o "$out/bench"
pin=
if command -v taskset >/dev/null; then pin="taskset -c 0"; fi
$pin "$out/bench" "${ROUNDS:-10}"
