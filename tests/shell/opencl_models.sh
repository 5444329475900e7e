#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Whole models on an OpenCL device against the interpreter: run, encode, and decode in pieces; launch by launch,
# then as a whole with several numbers of work-groups. The families take turns; the example is run by all, and with
# the optimizer of the device's compiler (which takes two thirds of the time, and sees every op in shell/matrix); by one family
# in the short run.
set -uo pipefail
tool=$TFMC_BUILD/tests/tfmc_opencl
families=(opencl-cpu opencl-cpu512 opencl-gpu)
failed=0
check() {
	"$tool" --whole "$@"
	local code=$?
	[ $code -eq 77 ] && exit 77
	[ $code -eq 0 ] || failed=1
}
turn=0
for model in "$TFMC_SOURCE"/tests/golden/*/model.yaml; do
	check --plain "${families[turn % 3]}" model "$model"
	turn=$((turn + 1))
done
# Keys and values as integers with scales.
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cp "$TFMC_SOURCE"/tests/golden/torch_rotary/*.safetensors "$tmp"
{ echo "dtype: {cache: int8}"; sed '/^checks:/,$d' "$TFMC_SOURCE/tests/golden/torch_rotary/model.yaml"; } >"$tmp/model.yaml"
check --plain opencl-gpu model "$tmp/model.yaml"
# Codes of a codebook: looked up in vectors of all lengths.
{ echo "quantize: iq4_nl"; sed '/^checks:/,$d' "$TFMC_SOURCE/tests/golden/torch_rotary/model.yaml"; } >"$tmp/codebook.yaml"
for family in "${families[@]}"; do
	check --plain "$family" model "$tmp/codebook.yaml"
done
[ -n "${TFMC_ALL:-}" ] || families=(opencl-cpu)
for family in "${families[@]}"; do
	check "$family" model "$TFMC_SOURCE/examples/dates/model.yaml"
done
exit $failed
