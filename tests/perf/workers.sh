#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Times of a round of the pool, a barrier of an object and the end of a call.
#   bash tests/perf/workers.sh [WORKERS...]     default: 2 4
# ROUNDS: interleaved rounds (default 20), BUILD_DIR the build (default build), OUT the scratch folder.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${BUILD_DIR:-build}
out=${OUT:-$build/perf}
mkdir -p "$out"
for model in chain:1000 link:1; do
	name=${model%:*}
	sed "s/NAME/$name/; s/COUNT/${model#*:}/" >"$out/$name.tir" <<'TIR'
module "NAME" stage=graph
dim B in [1,1]

func @run(%x: f32[B,16]) -> (y: f32[B,16]) {
  %0 = repeat %i = 0 to COUNT carry (%r = %x) {
    %1 = softmax %r : f32[B,16]
    yield %1
  } : f32[B,16]
  return %0
}
TIR
	"$build/frontend/driver/tfmc" "$out/$name.tir" -o "$out/$name.o"
done
${CC:-cc} -std=c17 -O2 -Wall -Wextra -Iruntime -I"$out" tests/perf/workers.c "$out/chain.o" "$out/link.o" \
	"$build/runtime/libtfmcrt.a" -lpthread -o "$out/workers"
if [ $# -eq 0 ]; then set -- 2 4; fi
for workers in "$@"; do ${RUN:-} "$out/workers" "$workers" "${ROUNDS:-20}"; done
