#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Every dump of the example, at every optimization level, reads back and prints to the same bytes; the
# dumps printed to stderr are the same text; one from the middle goes on to the same plan.
set -euo pipefail
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
model=$TFMC_SOURCE/examples/dates/model.yaml
count=0
for level in O0 O1 O2; do
	"$TFMC" "$model" -$level -mcpu=x86-64-v3 -o "$tmp/dates.o" -q --dump-dir="$tmp/$level" --print-ir-after=all 2>"$tmp/$level.printed"
	for dump in "$tmp/$level"/*.tir; do
		"$TFMC" opt "$dump" --weights-dir="$TFMC_SOURCE/examples/dates" >"$tmp/back.tir"
		cmp "$dump" "$tmp/back.tir"
		count=$((count + 1))
	done
	cat "$tmp/$level"/*.tir >"$tmp/dumped"
	grep -v '^; --- after ' "$tmp/$level.printed" | diff -q - "$tmp/dumped"
done
[ $count -ge 12 ]

# A dump in the middle goes on through the rest of the pipeline to the same plan.
"$TFMC" opt "$tmp"/O2/*specialize.tir --passes=group,select,plan-memory -mcpu=x86-64-v3 \
	--weights-dir="$TFMC_SOURCE/examples/dates" >"$tmp/again.tir"
shape() { sed -E 's/%[A-Za-z0-9_.]+/%/g; s/ loc\(.*//' "$1" | sed -n '/^func/,$p'; } # without the names of values
diff <(shape "$tmp/again.tir") <(shape "$tmp"/O2/*plan-memory.tir) >&2
echo "$count dumps read back to the same bytes"
