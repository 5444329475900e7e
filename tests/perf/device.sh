#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Everything that a new OpenCL device is asked, in one run: what it says of itself, whether it is right, how fast its
# kernels are, how long a model takes to start. Lines of JSON in OUT/device.json, the same as text on stdout and in
# OUT/device.txt; README.md says what to look at.
#
#	bash tests/perf/device.sh [--quick] [--device=opencl:N] [OUT]        (a built tree: build, or TFMC_BUILD)
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${TFMC_BUILD:-$root/build} tfmc=${TFMC:-$build/frontend/driver/tfmc}
device=opencl out=device quick=
for word in "$@"; do
	case $word in
	--quick) quick=1 ;;
	--device=*) device=${word#--device=} ;;
	-*) echo "unknown option $word" >&2 && exit 2 ;;
	*) out=$word ;;
	esac
done
mkdir -p "$out"
out=$(cd "$out" && pwd)
: >"$out/device.json"
exec > >(tee "$out/device.txt") 2>&1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME=$work/cache
seconds() { date +%s.%N; }
since() { awk -v a="$1" -v b="$(seconds)" 'BEGIN { printf "%.3f", b - a }'; }
# {"row": NAME, ..}: NAME is put in front of an object that a command has printed.
row() { sed "s|^{|{\"row\": \"$1\", |" | tee -a "$out/device.json"; }

echo "== device"
"$tfmc" devices | tee "$work/devices"
grep -q '^  0:' "$work/devices" || { echo "there is no OpenCL device"; exit 77; }
"$tfmc" devices --json | tr '\n' ' ' | sed 's/ *$/\n/' | row devices >/dev/null

echo "== right: every op, random programs, models, launch by launch against the interpreter (device 0)"
tests='unit/(opencl|cfamily_opencl)|shell/(device|opencl_models)'
[ -n "$quick" ] && tests='unit/opencl_device_model'
start=$(seconds) result=passed
TFMC_ALL=${quick:+} ctest --test-dir "$build" -R "$tests" --output-on-failure >"$out/tests.txt" 2>&1 || result=failed
tail -n 3 "$out/tests.txt"
echo "{\"result\": \"$result\", \"seconds\": $(since "$start")}" | row tests

# A .tir file of one function `run`.
linear() { # K N
	cat <<-END
		module "linear" stage=graph dim S in [1,512]
		weight @w : f32[$2,$1] = sinusoid(rows=$2, dim=$1, layout=halves, spacing=t2t, start=1, base=100.0)
		func @run(%x: f32[S,$1]) -> (y: f32[S,$2]) {
		  %y = linear %x, @w : f32[S,$2]
		  return %y
		}
	END
}
attention() { # T E
	cat <<-END
		module "attention" stage=graph dim S in [1,512]
		func @run(%q: f32[1,12,S,$2], %k: f32[1,12,$1,$2], %v: f32[1,12,$1,$2]) -> (y: f32[1,12,S,$2]) {
		  %y = attention %q, %k, %v {scale=0.125} : f32[1,12,S,$2]
		  return %y
		}
	END
}
stream() { # ELEMENTS
	cat <<-END
		module "stream" stage=graph dim S in [1,1024]
		func @run(%x: f32[S,$1]) -> (y: f32[S,$1]) {
		  %y = relu %x : f32[S,$1]
		  return %y
		}
	END
}
measure() { # ROW FILE DIM
	"$tfmc" bench "$2" --dim "S=$3" --device="$device" --groups --json 2>>"$out/errors.txt" | row "$1" ||
		echo "{\"error\": \"see errors.txt\"}" | row "$1"
}
echo "== kernels: rows of x, K x N; GFLOP/s"
sizes="64x64 768x768 768x3072 3072x768 4096x4096" shapes="128x64 1024x64 4096x128" rows="1 8 64 512" most=1024
if [ -n "$quick" ]; then sizes=64x64 shapes=64x16 rows="1 8" most=4; fi
for size in $sizes; do
	linear "${size%x*}" "${size#*x}" >"$work/linear.tir"
	for s in $rows; do measure "linear S=$s $size" "$work/linear.tir" "$s"; done
done
for shape in $shapes; do
	attention "${shape%x*}" "${shape#*x}" >"$work/attention.tir"
	for s in $rows; do measure "attention S=$s T=${shape%x*} E=${shape#*x}" "$work/attention.tir" "$s"; done
done
stream 65536 >"$work/stream.tir"
measure "stream (with its copies to and from the device)" "$work/stream.tir" "$most"

echo "== a model: start without and with a program that was built before, prompt, token by token"
model=$root/examples/hub/tales
for start_kind in cold warm; do
	start=$(seconds)
	"$tfmc" generate "$model" --prompt Once --max-tokens=1 --device="$device" >/dev/null
	echo "{\"kind\": \"$start_kind\", \"seconds\": $(since "$start")}" | row start
done
for entry in prefill step; do
	"$tfmc" bench "$model" --entry "$entry" --device="$device" --groups --json | row "tales $entry"
	"$tfmc" bench "$model" --entry "$entry" --json | row "tales $entry, this processor"
done
[ "$result" = passed ]
