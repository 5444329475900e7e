#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tfmc plan --html: buffers fit in the arena and do not overlap, groups have names, weights are all there, names stay
# text, two runs give the same bytes. In node the script draws every function, and areas of the treemap are the bytes.
# With a Chromium in the PATH the page is opened at three widths, light and dark, and errors of its console are counted.
set -euo pipefail
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$TFMC_SOURCE"
cat >"$tmp/check.py" <<'PY'
import json, re, sys
page = open(sys.argv[1], encoding="utf-8").read()
parts = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
assert len(parts) == 1 and page.count("</script") == 2 and page.count("<script") == 2, "markup"
assert not re.search(r"[<>&']", parts[0])
rest = page.replace(parts[0], "")
assert not re.search(r"(src|href|import|fetch)\s*[=(]|url\(|https?:(?!//www\.w3\.org/2000/svg)|@[A-Z]+@", rest), "a reference"
data = json.loads(parts[0])
for f in data["functions"]:
    for i, (name, first, last, at, size) in enumerate(f["buffers"]):
        assert 0 <= first <= last < len(f["groups"]) and size > 0 and name, (f["name"], name)
        for other, begin, end, start, length in f["buffers"][:i]:
            assert last < begin or end < first or at + size <= start or start + length <= at, (name, other)
    peak = max([at + size for _, _, _, at, size in f["buffers"]], default=0)
    assert f["bound"] <= peak, f["name"]
    assert all(g[0] and g[1] >= 1 for g in f["groups"])
assert eval("(" + sys.argv[2] + ")", {"data": data, "names": [w[0] for w in data["weights"]], "functions": {f["name"]: f for f in data["functions"]}}), sys.argv[2]
print(data["caption"], len(data["weights"]), "weights", [(f["name"], len(f["buffers"])) for f in data["functions"]])
PY
# plan NAME EXPRESSION MODEL OPTIONS..
plan() {
	"$TFMC" plan "${@:3}" -mcpu=x86-64-v3 --html="$tmp/$1.html" >"$tmp/out"
	"$TFMC" plan "${@:3}" -mcpu=x86-64-v3 --html="$tmp/again.html" >"$tmp/out"
	cmp "$tmp/again.html" "$tmp/$1.html"
	PYTHONDONTWRITEBYTECODE=1 python3 "$tmp/check.py" "$tmp/$1.html" "$2"
}
plan dates '{"run", "encode", "decode", "decode.step"} == set(functions) and data["caption"] == "dates for x86-64-v3 at B=8, S=24, T=16"
	and any(g == ["encoder.layers.self.attention.q_k_v linear (model.yaml:25)", 2, "encoder.layers.self.attention"] for g in functions["run"]["groups"])
	and any(b[0].startswith("encoder.layers.ff.ffn.up linear") for b in functions["run"]["buffers"])' examples/dates/model.yaml --dim S=24
plan tales '[w for w in data["weights"] if w[0] == "head.weight"] == [["head.weight", "f32[512,96]", "q8_0", 52224]] or
	sum(w[3] for w in data["weights"]) > 3e5' examples/hub/tales
cat >"$tmp/hostile.tir" <<'TIR'
module "hostile"
weight @"</script><script>alert(1)</script>.a" : f32[4,4]
func @run(%x: f32[4]) -> (y: f32[4]) {
  %"<!--<script>" = linear %x, @"</script><script>alert(1)</script>.a" : f32[4] loc("<b>":1:1 "</title>.@SCRIPT@")
  %z = layer_norm %"<!--<script>" : f32[4] loc("<b>":1:1 "</title>.&amp;")
  %y = softmax %z : f32[4]
  return %y
}
TIR
plan hostile 'names == ["</script><script>alert(1)</script>.a"] and data["weights"][0][3] == 64' "$tmp/hostile.tir"

if node --version >"$tmp/out" 2>&1; then
	cat >"$tmp/page.js" <<'JS'
const {page, elements, made, listeners} = require(process.env.TFMC_SOURCE + "/tests/support/dom.js")(process.argv[2],
	"this.data = data; this.show = show;");
const rects = (box, all = []) => { box.children.forEach((e) => { if (e.attributes.role === "button") all.push(e); rects(e, all); }); return all; };
const area = (e) => e.attributes.width * e.attributes.height;
for (const f of page.data.functions) {
	page.show(f.name);
	const boxes = rects(elements.memory);
	if (boxes.length !== f.buffers.length || made.some((e) => Object.values(e.attributes).some((v) => /NaN|Infinity/.test(v))))
		throw new Error(f.name + ": buffers are not drawn");
	for (const key of ["ArrowRight", "ArrowLeft", "Home"])
		boxes.forEach((b) => b.own.keydown({key, preventDefault() {}}));
}
/* The shares of the rectangles are all of the bytes; small weights of one step may share one. */
const weights = rects(elements.weights), shares = weights.map((e) => Number(/, ([\d.]+) % of all$/.exec(e.attributes["aria-label"])[1]));
if (Math.abs(shares.reduce((a, b) => a + b, 0) - 100) > .06 * weights.length || weights.length > page.data.weights.length)
	throw new Error("weights are not drawn: " + shares);
const shown = weights.map(area).reduce((a, b) => a + b, 0);
if (shown > 900 * 450 + 1 || shown < 900 * 450 / 3)
	throw new Error("the treemap covers " + shown);
listeners.resize();
console.log(weights.length, "weights drawn");
JS
	for page in dates tales hostile; do node "$tmp/page.js" "$tmp/$page.html"; done
else
	echo "SKIPPED, the script alone: node is absent" >&2
fi

. "$TFMC_SOURCE/tests/support/browser.sh"
cat >>"$tmp/press.py" <<'PY'
text = text.replace("</body>", """<script>{
document.querySelectorAll("button").forEach((b) => b.click());
for (const rect of document.querySelectorAll("rect[role=button]")) {
	rect.dispatchEvent(new PointerEvent("pointerenter"));
	rect.dispatchEvent(new MouseEvent("click"));
	rect.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowRight", cancelable: true}));
}
if (document.body.scrollWidth > innerWidth)
	wrong.push("the page is wider than the window");
const result = Object.assign(document.createElement("pre"), {textContent: "errors " + wrong.length + wrong.join("\\n")});
document.body.replaceChildren(result);
}</script></body>""", 1)
open(sys.argv[2], "w", encoding="utf-8").write(text)
PY
for page in dates:400:0 tales:1280:1 hostile:2560:0; do
	IFS=: read -r name width scheme <<<"$page"
	python3 "$tmp/press.py" "$tmp/$name.html" "$tmp/pressed.html"
	timeout 120 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$tmp/profile" --window-size="$width,900" \
		--blink-settings=preferredColorScheme="$scheme" --dump-dom "file://$tmp/pressed.html" 2>/dev/null >"$tmp/dom"
	sed -n '/<pre>/,$p' "$tmp/dom" | grep errors
	grep -q 'errors 0<' "$tmp/dom"
done
