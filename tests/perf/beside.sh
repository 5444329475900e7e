#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# An OpenCL device beside the processor: the same models by `tfmc bench` on both, in turns, and how long a program takes
# to its first token when the driver has compiled nothing before, and when it has.
#   bash tests/perf/beside.sh [ROW...]        rows: linear e3 e2 step prompt start; default: all
# DEVICE (default opencl), FAMILY (--target of the device; default: what it chooses), THREADS of the processor (default:
# all), ROUNDS (default 7), BUILD_DIR, OUT.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath "${BUILD_DIR:-build}")
out=$(realpath -m "${OUT:-$build/perf/beside}")
tfmc=$build/frontend/driver/tfmc
threads=${THREADS:-$(nproc)}
on_device=(--device="${DEVICE:-opencl}" ${FAMILY:+--target="$FAMILY"})
rows=("$@")
if [ $# = 0 ]; then rows=(linear e3 e2 step prompt start); fi
mkdir -p "$out/pocl"
export XDG_CACHE_HOME=$out/cache POCL_CACHE_DIR=$out/pocl

for preset in e2 e3 d2; do
	[ -e "$out/$preset.yaml" ] || python3 tests/perf/make_encoder.py "$preset" --out "$out" >/dev/null
done
cat >"$out/linear.tir" <<'END'
module "linear"
weight @w : f32[3072,768] = sinusoid(rows=3072, dim=768, layout=halves, spacing=t2t, start=1, base=100.0)
func @run(%x: f32[128,768]) -> (y: f32[128,3072]) {
  %y = linear %x, @w : f32[128,3072]
  return %y
}
END

times() { # OPTIONS: "MIN MEDIAN"
	"$tfmc" bench "$@" --json | python3 -c 'import json, sys; r = json.load(sys.stdin); print(r["min_ms"], r["median_ms"])'
}

# NAME MODEL OPTIONS: least times of all rounds and their ratio, and the median of the rounds' ratios of medians.
beside() {
	local name=$1
	shift
	for _ in $(seq "${ROUNDS:-7}"); do
		echo "$(times "$@" --threads "$threads") $(times "$@" "${on_device[@]}")"
	done | python3 -c '
import statistics, sys
rounds = [[float(x) for x in line.split()] for line in sys.stdin]
one, two = min(r[0] for r in rounds), min(r[2] for r in rounds)
ratio = statistics.median(r[1] / r[3] for r in rounds)
print(f"{sys.argv[1]:10} {one:12.3f} {two:12.3f} {100 * one / two:7.0f} {100 * ratio:7.0f}", flush=True)' "$name"
}

# Seconds, and of processor time, from the command to its first token. Code and weights are in the cache of tfmc.
start() {
	local TIMEFORMAT='%R s, %U s of processor time'
	local -a first=("$tfmc" generate "$out/d2.yaml" --tokens=1,2,3 --max-tokens=1 -q "${on_device[@]}")
	"${first[@]}" >/dev/null
	rm -rf "${POCL_CACHE_DIR:?}"/*
	find "$XDG_CACHE_HOME" -name '*.clbin' -delete # what tfmc keeps of other drivers
	for what in cold warm warm; do
		echo -n "start, $what: "
		{ time "${first[@]}" >/dev/null 2>&1; } 2>&1
	done
}

printf '%-10s %12s %12s %7s %7s\n' "row" "processor ms" "device ms" "min %" "median %"
for row in "${rows[@]}"; do
	case $row in
	linear) beside linear "$out/linear.tir" ;;
	e3) beside e3-128 "$out/e3.yaml" --dim S=128 ;;
	e2) beside e2-128 "$out/e2.yaml" --dim S=128 ;;
	step) beside step "$out/d2.yaml" --entry step --past 64 ;;
	prompt) beside prompt-128 "$out/d2.yaml" --entry prefill --dim S=128 ;;
	start) start ;;
	*)
		echo "beside.sh: no row $row" >&2
		exit 2
		;;
	esac
done
