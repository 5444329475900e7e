#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tfmc inspect on an object of 100 kB whose record lies on top of itself: 16 entries with the same 1024 tensors, which
# have the same sizes of 64 products of 16 dims with a name of 255 letters. Shown in full it would be 70 GB.
set -euo pipefail
command -v python3 >/dev/null || { echo "SKIPPED: no python3"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
python3 - "$TFMC_SOURCE/runtime/abi.h" "$tmp/overlap.o" <<'PYTHON'
import re
import struct
import sys

text = open(sys.argv[1]).read()
magic = int(re.search(r"TFMC_RECORD_MAGIC\s+(0x[0-9a-f]+)", text)[1], 16)
version = int(re.search(r"TFMC_ABI_VERSION\s+(\d+)", text)[1])
head = 512
body = b""


def add(data):
    global body
    at = head + len(body)
    body += data + bytes(-len(data) % 8)
    return at


def words(*values):
    return struct.pack("<%dQ" % len(values), *values)


name = add(b"n" * 255 + b"\0")
dims = add(words(name, 1, 4))
size = add(words(64) + 64 * words(2, 16, *[0] * 16))
tensors = add(1024 * words(name, 0, 8, *[size] * 8, 0, 0, 0))
entries = add(16 * words(name, 0, 0, 0, 1024, tensors, 1024, tensors, 0, 0))
record = [0] * (head // 8)
record[:2] = magic | version << 32, head + len(body)
record[4:6] = name, name
record[14:18] = 1, dims, 16, entries
open(sys.argv[2], "wb").write(b"\x7fELF" + bytes(60) + words(*record) + body)
PYTHON
for form in "" --json; do
	# shellcheck disable=SC2086
	timeout 60 "$TFMC" inspect "$tmp/overlap.o" $form >"$tmp/out"
	bytes=$(wc -c <"$tmp/out")
	[ "$bytes" -gt 4000000 ] && [ "$bytes" -lt 8000000 ] || { echo "inspect $form prints $bytes bytes" >&2; exit 1; }
done
python3 -m json.tool "$tmp/out" >"$tmp/pretty"
