#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Operator cases of ONNX (beside the checkout): each becomes a small model whose object must give the stored results and
# agree with the interpreter. The table of passed and not applicable ones is tests/onnx/table.txt; it changes by
# `onnx.sh --write` only.
set -uo pipefail
. "$TFMC_SOURCE/tests/support/effort.sh"
cases=$TFMC_SHARED/models/onnx-ops
table=$TFMC_SOURCE/tests/onnx/table.txt
[ -d "$cases" ] || { echo "SKIPPED: $cases is absent"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
python3 "$TFMC_SOURCE/tests/onnx/cases.py" "$cases" "$tmp" >"$tmp/list" || exit 1

run_case() { # NAME: its models, through the object and the interpreter
	local folder=$tmp/$1
	if [ -f "$folder/model.yaml" ]; then
		"$TFMC" verify "${quick[@]}" "$folder/model.yaml" -mcpu=native
		return
	fi
	"$TFMC" verify "${quick[@]}" "$folder/model.tir" -mcpu=native &&
		"$TFMC" run "${quick[@]}" "$folder/model.tir" --inputs "$folder/inputs.safetensors" --outputs "$folder/out.safetensors" &&
		python3 "$TFMC_SOURCE/tests/onnx/cases.py" compare "$folder/out.safetensors" "$folder/cases.safetensors"
}

failed=0
while read -r what name; do
	if [ "$what" != model ]; then
		echo "$what $name"
	elif run_case "$name" >"$tmp/out" 2>&1; then
		echo "passed $name"
	else
		echo "FAILED $name"
		{ echo "--- $name"; cat "$tmp/out"; } >&2
	fi
done <"$tmp/list" >"$tmp/table"
grep -c '^FAILED' "$tmp/table" >/dev/null && failed=1
echo "$(grep -c '^passed' "$tmp/table") passed, $(grep -c '^not applicable' "$tmp/table") not applicable, of $(wc -l <"$tmp/table")"
if [ "${1:-}" = --write ]; then
	cp "$tmp/table" "$table"
else
	diff "$table" "$tmp/table" || failed=1
fi
exit $failed
