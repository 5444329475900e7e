#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Node tests of ONNX through `tfmc import`: those beside the checkout by the interpreter, and with --all those of the
# package `onnx` as objects, where a python3 (TFMC_PYTHON) has it. Every test passes, or is refused by name. The counts of
# each operator beside the checkout are tests/onnx/nodes.txt, which `onnx_nodes.sh --write` writes.
set -uo pipefail
onnx=$TFMC_SOURCE/tests/onnx
archive=$(ls "$TFMC_SHARED"/data/onnx-node-tests/*.tar.gz 2>/dev/null)
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
failed=0 ran=0

compare() { # TABLE ARGUMENTS..: the counts are those of the table; "" prints them
	local table=$1 status=0
	shift
	"${TFMC_PYTHON:-python3}" -B "$onnx/nodes.py" "$TFMC" "$@" >"$tmp/table" || status=$?
	if [ $status = 77 ]; then
		cat "$tmp/table"
		return
	fi
	ran=1
	[ $status = 0 ] || failed=1
	if [ -z "$table" ]; then
		cat "$tmp/table"
		return
	fi
	tail -n 1 "$tmp/table"
	if [ "${write:-}" = --write ]; then cp "$tmp/table" "$table"; else diff "$table" "$tmp/table" || failed=1; fi
}

write=${1:-}
if [ -n "$archive" ]; then compare "$onnx/nodes.txt" --interpret "$archive"; else echo "SKIPPED: no archive of node tests in $TFMC_SHARED"; fi
if [ -n "${TFMC_ALL:-}" ]; then compare ""; fi
[ $ran = 1 ] || exit 77
exit $failed
