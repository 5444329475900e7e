#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Objects with code for OpenCL devices: the unchanged program of an example, linked with libtfmccl, gives the same
# lines on the device as on the processor; without a device it runs on the processor, or says that there is none.
set -euo pipefail
. "$TFMC_SOURCE/tests/support/effort.sh"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export XDG_CACHE_HOME=$tmp/cache
# Without the device's optimizer, which takes two thirds of the time; with TFMC_ALL with it.
[ -n "${TFMC_ALL:-}" ] || export POCL_EXTRA_BUILD_FLAGS=-cl-opt-disable
fail() { echo "$*"; exit 1; }
dates=$TFMC_SOURCE/examples/dates
prompts=("the 3rd of March, 2021" "3/3/21" "12 Aug 1987")
link() { # OBJECT PROGRAM
	${CC:-cc} -std=c17 -O1 -I"$TFMC_SOURCE/runtime" -I"$tmp" "$dates/main.c" "$1" -o "$2" \
		"$TFMC_BUILD/runtime/libtfmcrt.a" "$TFMC_BUILD/runtime/opencl/libtfmccl.a" -pthread -ldl ${TFMC_LINK_FLAGS:-}
}

"$TFMC" "$dates/model.yaml" -q "${quick[@]}" -o "$tmp/dates.o"
link "$tmp/dates.o" "$tmp/processor"
"$tmp/processor" "${prompts[@]}" >"$tmp/expected"
[ -z "$(nm -u "$tmp/dates.o")" ] || fail "an object without code for devices needs symbols"

"$TFMC" "$dates/model.yaml" -q "${quick[@]}" --target=native,opencl -o "$tmp/dates.o"
bad=$(nm -u "$tmp/dates.o" | awk '{print $2}' | grep -v '^tfmc_cl_model_' || true)
[ -z "$bad" ] || fail "the object needs $bad"
link "$tmp/dates.o" "$tmp/both"
# A device that shares memory takes the weights where they lie.
nm "$tmp/both" | grep '000 . dates_weights$' >/dev/null || fail "embedded weights do not begin at a page"
if ldd "$tmp/both" | grep -i opencl; then fail "the program is linked with OpenCL"; fi
# No driver: the code for the processor.
OCL_ICD_VENDORS=$tmp "$tmp/both" "${prompts[@]}" | cmp - "$tmp/expected"
"$TFMC" "$dates/model.yaml" -q "${quick[@]}" --target=opencl -o "$tmp/dates.o"
link "$tmp/dates.o" "$tmp/device"
if OCL_ICD_VENDORS=$tmp "$tmp/device" "${prompts[@]}" >"$tmp/out" 2>&1; then fail "it runs without a device"; fi
grep -q "OpenCL device" "$tmp/out" || { cat "$tmp/out"; fail "nothing says that there is no device"; }
for words in --device=cuda --device=opencl:no_such_device "--target=opencl" "--target=native,v3"; do
	code=0
	"$TFMC" generate "$dates/model.yaml" --prompt 3/3/21 $words 2>"$tmp/error" >"$tmp/out" || code=$?
	case $words in --device=opencl:* | --target=opencl) want=3 ;; *) want=1 ;; esac
	[ $code = $want ] && grep -q '^error: ' "$tmp/error" && [ ! -s "$tmp/out" ] || { cat "$tmp/error"; fail "$words: exit code $code"; }
done

"$TFMC" devices | grep '^  0:' >/dev/null || { echo "SKIPPED: no OpenCL device"; exit 77; }
"$tmp/both" "${prompts[@]}" | cmp - "$tmp/expected"
"$tmp/device" "${prompts[@]}" | cmp - "$tmp/expected"
# A state for 262144 tokens (67 MB) takes the pages of the tokens that come, as on the processor.
python3 "$TFMC_SOURCE/tests/support/make_llama.py" "$tmp/long" llama max_position_embeddings=262144 num_hidden_layers=4
generate=("$TFMC" generate "$tmp/long" "${quick[@]}" --tokens=1,5,9 --max-tokens=8 --ignore-stop --print-tokens)
"${generate[@]}" >"$tmp/text"
generate+=(--device=opencl)
for context in --context=64 --context=262144; do
	"${generate[@]}" $context | cmp - "$tmp/text" # builds the programs
	kb=$(python3 -c 'import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)' "${generate[@]}" $context)
	[ $context != --context=64 ] || few=$kb
done
! "$TFMC" devices | grep 'type: cpu' >/dev/null || [ "$kb" -lt $((few + 30000)) ] ||
	fail "$kb kB for 11 of 262144 tokens, $few for 11 of 64"
# Whole texts, beams that share a source, scores, slots of a batch, a sliding window.
run() { "$TFMC" "$@" "${quick[@]}" >"$tmp/one" && "$TFMC" "$@" --device=opencl >"$tmp/two" && cmp "$tmp/one" "$tmp/two"; }
run generate "$dates/model.yaml" --prompt "the 3rd of March, 2021" --beam=3
run generate "$TFMC_SOURCE/examples/hub/tales" --prompt Once --max-tokens=24
"$TFMC" score "$dates/model.yaml" --prompt 3/3/21 --target-tokens=3,1,3,2 --device=opencl >/dev/null
"$TFMC" bench "$dates/model.yaml" --device=opencl | grep "opencl-gpu, " >/dev/null
"$TFMC" bench "$dates/model.yaml" --device=opencl --json >"$tmp/out"
"$TFMC" bench "$dates/model.yaml" --entry=step --device=opencl --groups --json >"$tmp/groups"
"$TFMC" bench "$dates/model.yaml" --entry=step --device=opencl --groups >"$tmp/table"
python3 - "$tmp/out" "$tmp/groups" "$tmp/table" <<'END' || { cat "$tmp/out" "$tmp/groups" "$tmp/table"; fail "peaks and times of kernels"; }
import json, re, sys
plain, groups = (json.load(open(path)) for path in sys.argv[1:3])
assert plain["peak_gflops"] > 0 and plain["peak_gbs"] > 0 and plain["bound"] in ("products", "weights"), plain
rows = groups["groups"]
assert len(rows) > 10 and all(row["ms"] > 0 and row["times"] > 0 for row in rows)
# Kernels are a part of the call, and the products of all of them are those of the call.
assert sum(row["ms"] for row in rows) < groups["median_ms"]
assert sum(row["flops"] for row in rows) == groups["flops"] > 0
for name in ("decoder.layers.self.attention.q_k_v linear (model.yaml:36), kernel linear", "decoder.head linear (model.yaml:42)"):
    assert any(row["group"].startswith(name) for row in rows), name
lines = re.findall(r"ms +([0-9.]+) %  +(\d+) x.*, kernel ", open(sys.argv[3]).read())
assert len(lines) == len(rows) and abs(sum(float(share) for share, times in lines) - 100) < 0.06 * len(rows), lines
END
"$TFMC" verify "$TFMC_SOURCE/tests/golden/torch_encoder/model.yaml" --device=opencl >/dev/null
"$TFMC" verify "$TFMC_SOURCE/tests/golden/torch_decoder/model.yaml" --device=opencl >/dev/null
# Caches shorter than texts; two models on both sides at once, whose sequences go from one to the other.
CC=${CC:-cc} bash "$TFMC_SOURCE/tests/shell/ring.sh" 1 opencl
for model in dates names; do
	"$TFMC" "$TFMC_SOURCE/examples/$model/model.yaml" -q "${quick[@]}" --target=native,opencl -o "$tmp/$model.o"
done
${CC:-cc} -std=c17 -O1 -Wall -Wextra -Werror -I"$TFMC_SOURCE/runtime" -I"$tmp" "$TFMC_SOURCE/tests/soak/sides.c" "$tmp/dates.o" \
	"$tmp/names.o" -o "$tmp/sides" "$TFMC_BUILD/runtime/libtfmcrt.a" "$TFMC_BUILD/runtime/opencl/libtfmccl.a" -pthread -ldl -lm ${TFMC_LINK_FLAGS:-}
"$tmp/sides"
