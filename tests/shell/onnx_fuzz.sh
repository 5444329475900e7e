#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# onnx_fuzz.sh [COUNT [FROM [FILE..]]]: mutated ONNX files through the import (tests/fuzz/onnx.c), made from FILE.., else from
# the models that scripts here write and the node tests beside the checkout; best in a build with sanitizers (TFMC_BUILD).
set -uo pipefail
count=2000 from=1 onnx=$TFMC_SOURCE/tests/onnx
[ -n "${TFMC_ALL:-}" ] && count=50000
count=${1:-$count} from=${2:-$from}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
files=("${@:3}")
if [ ${#files[@]} = 0 ]; then
	for kind in causal padded none; do python3 -B "$onnx/make_cached.py" "$tmp/cached_$kind.onnx" --mask=$kind || exit 1; done
	for kind in halves interleaved part; do python3 -B "$onnx/make_rotary.py" "$tmp/rotary_$kind.onnx" --kind=$kind || exit 1; done
	python3 -B "$onnx/make_tiny.py" "$tmp/tiny.onnx" && python3 -B "$onnx/make_if.py" "$tmp/if.onnx" --depth=3 --size=1 &&
		python3 -B "$onnx/make_quantized.py" "$tmp/quantized.onnx" || exit 1
	for archive in "$TFMC_SHARED"/data/onnx-node-tests/*.tar.gz; do
		[ -f "$archive" ] && mkdir -p "$tmp/nodes" && tar xzf "$archive" -C "$tmp/nodes"
	done
	mapfile -t files < <(find "$tmp" -name '*.onnx' | LC_ALL=C sort)
fi
cd "$tmp" || exit 1
mkdir -p run && cd run || exit 1
"${TFMC_BUILD:-$TFMC_SOURCE/build}/tests/tfmc_fuzz_onnx" "$count" "$from" "${files[@]}"
