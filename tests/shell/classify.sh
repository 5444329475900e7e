#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The classifier of shapes becomes a program of its own, without the runtime library: it names the shapes in the committed pictures,
# in every format that it reads, at other sizes and in colour; files that are no pictures are refused.
set -euo pipefail
. "$TFMC_SOURCE/tests/support/effort.sh"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
example=$TFMC_SOURCE/examples/classify
"$TFMC" verify "$example/model.yaml" -mcpu=native
"$TFMC" "$example/model.yaml" -mcpu=x86-64-v2 "${quick[@]}" -o "$tmp/classify.o"
bash "$TFMC_SOURCE/tests/object_audit.sh" "$tmp/classify.o" classify
"$CC" -std=c17 -Wall -Wextra -Werror -I"$tmp" "$example/main.c" "$tmp/classify.o" ${TFMC_LINK_FLAGS:-} -o "$tmp/classify"

"$tmp/classify" "$example"/pictures/*.pgm >"$tmp/out"
cat "$tmp/out"
[ "$(wc -l <"$tmp/out")" -eq 8 ]
sed 's,.*/\([a-z]*\)[0-9].pgm: \([a-z]*\) .*,\1 \2,' "$tmp/out" | awk '$1 != $2 { exit 1 }' # each is named for its shape

# The same picture as text, in colour, with 16 bits, three times as large: the same answer.
python3 -B - "$example/pictures/cross1.pgm" "$tmp" <<'P'
import sys
data = open(sys.argv[1], "rb").read()
header, pixels = data[:13], data[13:]
assert header == b"P5\n24 24\n255\n" and len(pixels) == 24 * 24
def put(name, head, body):
    with open(f"{sys.argv[2]}/{name}", "wb") as f:
        f.write(head + body)
put("a.pgm", b"P2 # text\n# more\n24 24\n# and more\n255\n", " ".join(map(str, pixels)).encode() + b"\n")
put("b.ppm", b"P6\n24 24\n255\n", bytes(v for p in pixels for v in (p, p, p)))
put("c.ppm", b"P3\n24 24\n255\n", "\n".join(f"{p} {p} {p}" for p in pixels).encode() + b"\n")
put("d.pgm", b"P5\n24 24\n65535\n", b"".join(bytes((p, p)) for p in pixels))
put("e.pgm", b"P5\n72 72\n255\n", bytes(pixels[y // 3 * 24 + x // 3] for y in range(72) for x in range(72)))
put("f.pgm", b"P5\n48 24\n255\n", bytes(pixels[y * 24 + x // 2] for y in range(24) for x in range(48)))
put("short.pgm", header, pixels[:-1])
put("bright.pgm", b"P5\n24 24\n100\n", pixels)
put("wide.pgm", b"P5\n9000 24\n255\n", pixels)
put("none.pgm", b"P5\n0 24\n255\n", pixels)
put("other.pgm", b"P7\n24 24\n255\n", pixels)
put("empty.pgm", b"", b"")
P
want=$(grep -o 'cross1.pgm: .*' "$tmp/out" | cut -d' ' -f2-)
for file in a.pgm b.ppm c.ppm d.pgm e.pgm f.pgm; do
	[ "$("$tmp/classify" "$tmp/$file")" = "$tmp/$file: $want" ]
done
for file in short bright wide none other empty absent; do
	if "$tmp/classify" "$tmp/$file.pgm" "$tmp/a.pgm" >"$tmp/out" 2>"$tmp/error"; then exit 1; fi
	[ "$(grep -c "^classify: $tmp/$file.pgm " "$tmp/error")" -eq 1 ]
	[ "$(grep -c 'cross' "$tmp/out")" -eq 1 ] # the others are still named
done
