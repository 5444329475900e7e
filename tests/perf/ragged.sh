#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Texts per second of an encoder of MiniLM's shape, one by one and in padded batches (ragged.c), for each type of weights.
#   bash tests/perf/ragged.sh [TYPE...]     default: f32 bf16 int8 q4
# CPU is the -mcpu value (default native), WORKERS (default 1), ROUNDS (default 5), LAYERS (default 6), BUILD_DIR the
# build (default build), OUT the scratch folder.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${BUILD_DIR:-build}
out=${OUT:-$build/perf}
types=("$@")
[ $# -gt 0 ] || types=(f32 bf16 int8 q4)
mkdir -p "$out"
declare -A sections=([f32]="" [bf16]="dtype: {weights: bf16, compute: bf16}" [int8]="quantize: q8" [q4]="quantize: q4")
for type in "${types[@]}"; do
	if [ -z "${sections[$type]+x}" ]; then echo "unknown type $type" >&2; exit 2; fi
	python3 tests/perf/make_encoder.py e3 --out "$out" --name ragged --max-batch 64 --layers "${LAYERS:-6}" >/dev/null
	echo "${sections[$type]}" >>"$out/ragged.yaml"
	"$build/frontend/driver/tfmc" "$out/ragged.yaml" -o "$out/ragged.o" -mcpu="${CPU:-native}" --weights=file -q
	cp "$out/ragged.h" "$out/ragged_model.h"
	${CC:-cc} -std=c17 -O2 -Wall -Wextra -Iruntime -I"$out" tests/perf/ragged.c "$out/ragged.o" \
		"$build/runtime/libtfmcrt.a" -lpthread -lm -o "$out/ragged"
	echo "$type"
	"$out/ragged" "${WORKERS:-1}" "${ROUNDS:-5}" "$out/ragged.weights"
done
