#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The compiler holds no weights: with 64 MB of memory beside mapped files (the limit on data counts private memory,
# not mappings of files) it packs 300 MB of them, a tied table once, into an object and into a file. The stored
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
packed=$bytes
for file in "$tmp/embed.o" "$tmp/file.weights"; do
	[ "$(stat -c %s "$file")" -ge $packed ] && [ "$(stat -c %s "$file")" -lt $((packed + 1000000)) ]
done
# The limit binds: no process has that much memory under it.
(ulimit -d 65536; x=$(head -c 100000000 /dev/zero | tr '\0' x 2>/dev/null) && [ ${#x} = 100000000 ]) 2>/dev/null &&
	{ echo "the limit on memory does not bind" >&2; exit 1; }
echo "$((packed / 1000000)) MB of weights packed with at most 64 MB beside mapped files"

# The same from a GGUF file.
put() { # FILE BYTES: a little-endian number
	local i v=$2
	for ((i = 0; i < 8; i++)); do printf "\\x$(printf %02x $((v & 255)))"; v=$((v >> 8)); done >>"$1"
}

gguf() { # FILE ROWS COLUMNS TYPE BYTES: one tensor `word`
	printf 'GGUF\3\0\0\0' >"$1"
	put "$1" 1 && put "$1" 0 && put "$1" 4
	printf 'word\2\0\0\0' >>"$1"
	put "$1" "$3" && put "$1" "$2"
	printf "\\x$(printf %02x "$4")\\0\\0\\0" >>"$1"
	put "$1" 0
	truncate -s $(((($(stat -c %s "$1") + 31) / 32) * 32 + $5)) "$1"
}

shard() { # FILE NAME ROWS COLUMNS TYPE BYTES
	local header="{\"$2\":{\"dtype\":\"$5\",\"shape\":[$3,$4],\"data_offsets\":[0,$6]}}"
	while [ $((${#header} % 8)) -ne 0 ]; do header="$header "; done
	: >"$1"
	put "$1" ${#header}
	printf %s "$header" >>"$1"
	truncate -s $((8 + ${#header} + $6)) "$1"
}

gguf "$tmp/w.gguf" $rows $columns 0 $bytes
sed 's/w.safetensors/w.gguf/' "$tmp/large.yaml" >"$tmp/gguf.yaml"
(ulimit -d 65536; "$TFMC" "$tmp/gguf.yaml" -mcpu=x86-64-v2 --weights=file -o "$tmp/g.o")
cmp "$tmp/file.weights" "$tmp/g.weights"
rm -f "$tmp"/*.o "$tmp"/*.weights "$tmp"/w.*

# 8 GB of half precision, in one GGUF file and in four shards: the last rows of each, far behind 4 GB.
long=4194304 wide=1024
gguf "$tmp/w.gguf" $long $wide 1 $((long * wide * 2))
index='{"metadata":{"total_size":8589934592},"weight_map":{'
for i in 1 2 3 4; do
	shard "$tmp/part$i.safetensors" word$i $((long / 4)) $wide F16 $((long * wide / 2))
	index="$index\"word$i\":\"part$i.safetensors\"$([ $i = 4 ] && echo '}}' || echo ,)"
done
echo "$index" >"$tmp/w.safetensors.index.json"
cat >"$tmp/tail.yaml" <<Y
tfmc: 1
name: tail
dims: {B: 1..2, S: 1..4}
inputs: {ids: {shape: [B, S], dtype: i32}}
model:
  - embed: {id: word, vocab: 4000, dim: $wide}
outputs: {rows: x}
weights: {files: [FILE], map: {word.weight: {SOURCE}}}
Y
last="slice: {axis: 0, begin: $((long / 4 - 1000)), end: $((long / 4))}"
parts="{from: word1, $last}, {from: word2, $last}, {from: word3, $last}, {from: word4, $last}"
sed "s/FILE/w.gguf/; s/SOURCE/from: word, slice: {axis: 0, begin: $((long - 4000)), end: $long}/" "$tmp/tail.yaml" >"$tmp/one.yaml"
sed "s/FILE/w.safetensors.index.json/; s/SOURCE/concat: {axis: 0, of: [$parts]}/" "$tmp/tail.yaml" >"$tmp/four.yaml"
for model in one four; do
	(ulimit -d 65536; "$TFMC" "$tmp/$model.yaml" -mcpu=x86-64-v2 --weights=file -o "$tmp/$model.o")
done
cmp "$tmp/one.weights" "$tmp/four.weights"
echo "300 MB of GGUF packed as those of safetensors; 8 GB of GGUF and of shards opened within 64 MB"

# A run holds its weights in pages of their own, not in an object: more of them than an object takes, 1 GiB.
many=2200000
shard "$tmp/many.safetensors" word $many $columns F32 $((many * columns * 4))
sed "s/name: tail/name: many/; s/4000/$many/; s/dim: [0-9]*/dim: $columns/; s/FILE/many.safetensors/; s/{SOURCE}/word/" \
	"$tmp/tail.yaml" >"$tmp/many.yaml"
(ulimit -d 131072; "$TFMC" bench "$tmp/many.yaml" --no-cache) >"$tmp/log" 2>&1 ||
	{ echo "a run with 1.1 GB of weights does not fit into 128 MB beside them" >&2; cat "$tmp/log" >&2; exit 1; }
echo "$((many * columns * 4 / 1000000)) MB of weights run with at most 128 MB beside them"

# A session's state takes memory for the tokens it holds, not for those it has room for (here 17 MB), also after a reset,
# which leaves nothing behind.
mkdir "$tmp/room"
cp -L "$TFMC_SOURCE/tests/golden/torch_rotary/model.safetensors" "$tmp/room"
sed -e 's/^name: .*/name: room/' -e 's/ctx: 24/ctx: 60000/' -e '/^checks:/,$d' \
	"$TFMC_SOURCE/tests/golden/torch_rotary/model.yaml" >"$tmp/room/model.yaml"
"$TFMC" "$tmp/room/model.yaml" -q -o "$tmp/room/room.o"
cat >"$tmp/room/main.c" <<'C'
#include <stdio.h>
#include <string.h>
#include "room.h"
#include "tfmc_rt.h"

/* Pages of files, which systems map many at a time, do not count. */
static long anonymous_kb(void)
{
	char line[256];
	long kb = -1;
	FILE *f = fopen("/proc/self/smaps_rollup", "r");
	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, "Anonymous:", 10))
			(void)sscanf(line + 10, "%ld", &kb);
	if (f)
		fclose(f);
	return kb;
}

int main(void)
{
	static const int32_t prompts[2][8] = {{1, 9, 4, 17, 3, 22, 8, 5}, {1, 30, 2, 11, 6, 6, 19, 7}};
	struct tfmc_model model = room_model();
	struct tfmc_session_options o = {.struct_size = sizeof(o), .batch = 1, .call_tokens = 16};
	struct tfmc_session *session = NULL;
	int32_t ids[3][12];
	uint64_t n[3] = {0};
	long before = anonymous_kb();
	if (tfmc_session_open(&model, &o, &session))
		return 1;
	for (int i = 0; i < 3; i++) {
		struct tfmc_generate_options g = {.struct_size = sizeof(g), .ignore_stop = 1, .max_new_tokens = 12};
		int status = tfmc_generate(session, &g, prompts[i % 2], 8, NULL, 0, ids[i], 12, &n[i]);
		if (status || n[i] != 12)
			return 2;
	}
	long grown = anonymous_kb() - before;
	tfmc_session_close(session);
	printf("a session with a state of %.1f MB took %ld kB for 20 tokens\n", (double)room_state_bytes(1) / 1e6, grown);
	if (before <= 0 || grown > 3000)
		return 3;
	return memcmp(ids[0], ids[2], sizeof(ids[0])) ? 4 : 0;
}
C
"$CC" -std=c17 -D_GNU_SOURCE -O1 -Wall -Wextra -Werror -I"$TFMC_SOURCE" -I"$TFMC_SOURCE/runtime" -I"$tmp/room" "$tmp/room/main.c" \
	"$TFMC_SOURCE"/runtime/*.c "$tmp/room/room.o" -lpthread ${TFMC_LINK_FLAGS:-} -o "$tmp/room/main"
"$tmp/room/main"
