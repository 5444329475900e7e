#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Memory plans of the examples and of the models beside the checkout: nothing above the lower bound of the whole
# arena for functions whose buffers are multiples of one quantity; elsewhere at most 1 % at each point of the dims.
# Then the groups of the examples in the bytes of their plan, and the map, which is the same twice.
set -euo pipefail
. "$TFMC_SOURCE/tests/support/effort.sh"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
models=("$TFMC_SOURCE"/examples/*/model.yaml)
for name in aren-transliteration seq2seq-base bert-tiny gpt2-tiny stories260k \
	variants/{bart,gpt_neox,llama,marian,opt,phi,qwen2,qwen3}; do
	if [ -d "$TFMC_SHARED/models" ]; then models+=("$TFMC_SHARED/models/$name/model.yaml"); fi
done
for model in "${models[@]}"; do
	for options in -O0 -O1 -O2; do
		"$TFMC" plan "$model" -mcpu=x86-64-v3 $options >"$tmp/plan"
		awk -v what="$model $options" '
			function over(x, most) { return x + 0 > most }
			/^  arena / { mixed = 0 }
			/^  (arena|bound) .*max\(/ { mixed = 1 }
			/^  gap / {
				n++
				most = mixed ? 1 : 0
				if (over($2, most) || over($8, most) || over($9, most) || over($11, most)) {
					print what ": " $0
					failed = 1
				}
			}
			END { if (!n) { print what ": no plan"; failed = 1 }; exit failed }' "$tmp/plan"
	done
done
for model in "$TFMC_SOURCE"/examples/*/model.yaml; do
	for options in -O0 "${quick[*]:--O2}"; do
		"$TFMC" verify "$model" -mcpu=x86-64-v2 $options --poison >"$tmp/out" || { cat "$tmp/out"; exit 1; }
		grep -q 'in the bytes of the plan .* ok$' "$tmp/out"
	done
done
model=$TFMC_SOURCE/examples/dates/model.yaml
"$TFMC" plan "$model" -mcpu=x86-64-v2 --svg="$tmp/one.svg" >"$tmp/one"
"$TFMC" plan "$model" -mcpu=x86-64-v2 --svg="$tmp/two.svg" >"$tmp/two"
cmp "$tmp/one.svg" "$tmp/two.svg"
grep -q '<title>lower bound ' "$tmp/one.svg"
[ "$(grep -c '<text class="t"' "$tmp/one.svg")" -ge 3 ]
! grep -qi '<script' "$tmp/one.svg"
# Labels fit into their rectangles and into the picture, and rows of a list do not overlap.
python3 - "$tmp/one.svg" <<'PY'
import sys, xml.dom.minidom
svg = xml.dom.minidom.parse(sys.argv[1]).documentElement
width, height = float(svg.getAttribute("width")), float(svg.getAttribute("height"))
text = lambda t: "".join(n.data for n in t.childNodes)
value = lambda e, key: float(e.getAttribute(key))
rows, labels = set(), 0
for t in svg.getElementsByTagName("text"):
    x, y, size = value(t, "x"), value(t, "y"), 6.63 * len(text(t))
    if t.getAttribute("class") == "n":
        [r] = t.parentNode.getElementsByTagName("rect")
        assert value(r, "x") <= x - size / 2 and x + size / 2 <= value(r, "x") + value(r, "width"), text(t)
        assert value(r, "height") >= 11 and text(t).split()[0].isdigit(), text(t)
        labels += 1
    elif t.getAttribute("class") == "l":
        assert x + size <= width and y <= height and (x, y) not in rows, text(t)
        rows.add((x, y))
assert len(rows) > 20 and labels > 10, (rows, labels)
PY
echo "plans of ${#models[@]} models"
