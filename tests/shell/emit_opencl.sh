#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Kernels of whole models for OpenCL: one file that compiles as OpenCL C 1.2 without
# extensions and without a warning, the launches at its end, the same bytes each time.
set -euo pipefail
clang=$(command -v clang-19 || true)
if [ -z "$clang" ]; then
	echo "no clang-19" >&2
	exit 77
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

lint() {
	"$clang" -x cl -cl-std=CL1.2 -Xclang -cl-ext=-all -Xclang -finclude-default-header -Wall -Wextra -Werror \
		-fsyntax-only "$1"
}

for model in "$TFMC_SOURCE"/tests/golden/*/model.yaml "$TFMC_SOURCE"/examples/{dates,classify}/model.yaml; do
	"$TFMC" "$model" --emit=opencl="$tmp/model.cl" --target=opencl
	lint "$tmp/model.cl"
	grep -q '^weights [0-9]* bytes; indices of 32 bits$' "$tmp/model.cl"
	grep -q '^launches of [a-z]*: arena ' "$tmp/model.cl"
	# every kernel is launched, everything launched is a kernel
	sed -n 's/^__kernel .*void \([a-z0-9_]*\)($/\1/p' "$tmp/model.cl" | sort >"$tmp/kernels"
	sed -n '/^launches of /,$s/^ *\([a-z0-9_]*\)(.* groups of .*/\1/p' "$tmp/model.cl" | sort -u >"$tmp/launched"
	[ -s "$tmp/kernels" ]
	cmp "$tmp/kernels" "$tmp/launched"
done

model=$TFMC_SOURCE/examples/dates/model.yaml
"$TFMC" "$model" --emit=opencl -O0 >"$tmp/a.cl"
"$TFMC" "$model" --emit=opencl=- -O0 -mcpu=opencl-gpu >"$tmp/b.cl"
cmp "$tmp/a.cl" "$tmp/b.cl"
lint "$tmp/a.cl"
"$TFMC" "$model" --emit=opencl --target=opencl -o "$tmp/c.cl"
"$TFMC" "$model" --emit=opencl,tir --target=opencl-gpu -o "$tmp/d.cl"
cmp "$tmp/c.cl" "$tmp/d.cl"
[ -s "$tmp/d.tir" ]
