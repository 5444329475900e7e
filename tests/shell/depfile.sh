#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# -MD: make compiles again when a file was touched that the compiler read (model, index, weights, map,
# vocabularies, IR text, rules), and does nothing otherwise, whatever the names contain.
set -euo pipefail
if ! command -v make >/dev/null; then
	echo "SKIPPED: make is absent"
	exit 77
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export MODEL_DIR="$tmp/in put \$x#1:2\\ 3\\"
mkdir "$MODEL_DIR"
cp "$TFMC_SOURCE"/examples/dates/{model.yaml,model.safetensors,source_vocab.txt,target_vocab.txt} "$MODEL_DIR"

# The weights behind an index, the map in a file of its own, a name with a blank.
python3 - "$MODEL_DIR" <<'PY'
import json, os, struct, sys
os.chdir(sys.argv[1])
with open("model.safetensors", "rb") as f:
    header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
os.rename("model.safetensors", "part 1.safetensors")
header.pop("__metadata__", None)
with open("all.safetensors.index.json", "w") as f:
    json.dump({"weight_map": {name: "part 1.safetensors" for name in header}}, f)
lines = open("model.yaml").read().split("\n")
at = lines.index("  map:")
end = next((i for i in range(at + 1, len(lines)) if not lines[i].startswith("    ")), len(lines))
with open("map.yaml", "w") as f:
    f.write("\n".join(line[4:] for line in lines[at + 1:end]) + "\n")
lines[at:end] = ["  map: map.yaml"]
with open("model.yaml", "w") as f:
    f.write("\n".join(lines).replace("[model.safetensors]", "[all.safetensors.index.json]"))
PY

cd "$tmp"
cat >Makefile <<'MAKE'
all: a\ b\#.o
-include m.d
a\ b\#.o:
	"$(TFMC)" "$$MODEL_DIR/model.yaml" -mcpu=x86-64-v2 -O0 -o 'a b#.o' --weights=file -MD -MF m.d
	echo compiled >>log
MAKE
: >log

# made N: N compilations so far; make has nothing left to do
made() {
	make -s
	make -q
	[ "$(wc -l <log)" -eq "$1" ]
}
made 1
cat m.d
[ "$(head -1 m.d)" = 'a\ b\#.weights a\ b\#.h a\ b\#.o: \' ]
n=1
for name in model.yaml all.safetensors.index.json "part 1.safetensors" map.yaml source_vocab.txt target_vocab.txt; do
	[ -f "$MODEL_DIR/$name" ]
	find . -type f -exec touch -d 2020-01-01 {} +
	touch -d 2021-01-01 'a b#'.*
	make -q
	touch -d 2022-01-01 "$MODEL_DIR/$name"
	n=$((n + 1))
	made "$n"
done
[ "$(wc -l <m.d)" -eq 7 ] # every file once

# Beside the object by default; IR text, its weights and rules.
cd "$MODEL_DIR"
"$TFMC" model.yaml -mcpu=x86-64-v2 --emit=tir=m.tir --stop-after=canonicalize
touch more.rules
"$TFMC" m.tir -mcpu=x86-64-v2 -o "$tmp/x.y.o" -MD --rules=more.rules
printf '%s\n' "$tmp/x.y.h $tmp/x.y.o: \\" ' m.tir \' ' more.rules \' ' part\ 1.safetensors' | diff - "$tmp/x.y.d"

# A failure leaves the old rule; no rule becomes an input file.
cp "$tmp/x.y.d" "$tmp/old"
if "$TFMC" m.tir -mcpu=x86-64-v2 -o "$tmp/x.y.o" -MD --rules=absent 2>/dev/null; then exit 1; fi
cmp "$tmp/old" "$tmp/x.y.d"
cp map.yaml "$tmp/map"
if "$TFMC" model.yaml -o "$tmp/z.o" -MD -MF map.yaml 2>"$tmp/error"; then exit 1; fi
grep -q 'the output map.yaml is an input file' "$tmp/error"
cmp map.yaml "$tmp/map"
[ ! -e "$tmp/z.o" ]
