#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Two builds of tfmc make the same bytes: objects for three levels of x86-64 and aarch64, C, OpenCL C. Run by hand
# with builds of two compilers, of other optimization or with sanitizers; shell/conventions forbids the usual cause.
#
#   bash tests/compilers.sh TFMC OTHER_TFMC [MODEL...]      without models: the examples and the shared models
set -uo pipefail
first=$(realpath "$1") second=$(realpath "$2")
shift 2
cd "$(dirname "$0")/.."
models=("$@")
[ $# -gt 0 ] || models=(examples/{classify,dates,embed,names}/model.yaml examples/hub/tales
	"${TFMC_SHARED:-../shared}"/models/*/model.yaml "${TFMC_SHARED:-../shared}"/models/variants/*/)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
failed=0 compared=0
compile() { "$1" "$model" --name=model "${@:3}" -o "$2" >"$2.log" 2>&1; }
for model in "${models[@]}"; do
	[ -e "$model" ] || continue
	for options in --mcpu=x86-64-v{2,3,4} --target=aarch64-linux-gnu --emit=c "--target=opencl-gpu --emit=opencl"; do
		# shellcheck disable=SC2086
		compile "$first" "$tmp/first" $options && compile "$second" "$tmp/second" $options ||
			{ echo "$model $options: $(head -1 "$tmp/first.log" "$tmp/second.log")" >&2; failed=1; continue; }
		compared=$((compared + 1))
		cmp "$tmp/first" "$tmp/second" || { echo "$model $options: other bytes" >&2; failed=1; }
	done
done
echo "$compared outputs compared"
exit $((failed || compared == 0))
