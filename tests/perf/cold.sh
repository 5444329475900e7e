#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Cold start and shipped bytes of a linked application: MiniLM, one sequence of 32 tokens, weights mapped from a file.
#   bash tests/perf/cold.sh [STARTS]
# BUILD_DIR: the build (default build); OUT: scratch folder (default BUILD_DIR/perf); TFMC_CPU: -mcpu (default native).
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${BUILD_DIR:-build}
out=${OUT:-$build/perf}
mkdir -p "$out"
python3 tests/perf/make_encoder.py e3 --out "$out" --name cold --full >/dev/null
"$build/frontend/driver/tfmc" "$out/cold.yaml" -o "$out/cold.o" -mcpu="${TFMC_CPU:-native}" --weights=file
${CC:-cc} -std=c17 -O2 -Wall -Wextra -Iruntime -I"$out" -DMODEL_HEADER='"cold.h"' -DMODEL=cold_model -DLENGTH=32 \
	-ffunction-sections -Wl,--gc-sections tests/perf/cold.c "$out/cold.o" "$build/runtime/libtfmcrt.a" -lpthread -lm \
	-o "$out/cold"
strip -o "$out/cold.stripped" "$out/cold"
"$out/cold" "$out/cold.weights" "${1:-20}"
bytes() { stat -c %s "$1"; }
echo "object                         $(bytes "$out/cold.o") bytes"
echo "runtime library, all of it     $(bytes "$build/runtime/libtfmcrt.a") bytes"
echo "program, linked and stripped   $(bytes "$out/cold.stripped") bytes (libc is not in it)"
echo "weights                        $(bytes "$out/cold.weights") bytes"
