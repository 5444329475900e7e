#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The compiler holds no weights: with 64 MB of memory beside mapped files (the limit on data counts private memory,
# not mappings of files) it packs 600 MB of them, in rows and in panels, into an object and into a file. The stored
# tensor is a hole in a file, so that the test itself costs little.
set -euo pipefail
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
rows=600000 columns=128
bytes=$((rows * columns * 4))
header="{\"word\":{\"dtype\":\"F32\",\"shape\":[$rows,$columns],\"data_offsets\":[0,$bytes]}}"
while [ $((${#header} % 8)) -ne 0 ]; do header="$header "; done
# Its length as 8 bytes, little-endian.
printf "\\x$(printf %02x ${#header})\\0\\0\\0\\0\\0\\0\\0%s" "$header" >"$tmp/w.safetensors"
truncate -s $((8 + ${#header} + bytes)) "$tmp/w.safetensors"
cat >"$tmp/large.yaml" <<Y
tfmc: 1
name: large
dims: {B: 1..2, S: 1..4}
inputs: {ids: {shape: [B, S], dtype: i32}}
model:
  - embed: {id: word, vocab: $rows, dim: $columns}
  - linear: {id: head, out: $rows, bias: false, tie: word}
outputs: {logits: x}
weights: {files: [w.safetensors], map: {word.weight: word}}
Y
for where in embed file; do
	(
		ulimit -d 65536
		"$TFMC" "$tmp/large.yaml" -mcpu=x86-64-v2 --weights=$where -o "$tmp/$where.o"
	)
done
packed=$((2 * bytes))
for file in "$tmp/embed.o" "$tmp/file.weights"; do
	[ "$(stat -c %s "$file")" -ge $packed ] && [ "$(stat -c %s "$file")" -lt $((packed + 1000000)) ]
done
# The limit binds: a command that runs the model holds its weights and does not fit.
code=0
(ulimit -d 65536; "$TFMC" bench "$tmp/large.yaml") >"$tmp/log" 2>&1 || code=$?
[ $code -eq 3 ] || { echo "a run of the model ends with $code" >&2; cat "$tmp/log" >&2; exit 1; }
echo "$((packed / 1000000)) MB of weights packed with at most 64 MB beside mapped files"
