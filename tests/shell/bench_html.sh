#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tfmc bench --html: the data are the object of --json with the groups, names stay text. In node the script draws a point
# for each group with products and a row for each group, sorts by every column, and a key moves both. With a Chromium in
# the PATH the page is opened at three widths, light and dark, and errors of its console are counted.
set -euo pipefail
. "$TFMC_SOURCE/tests/support/effort.sh"
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
groups = data["groups"]
assert data["peaks"] and all(p > 0 for p in data["peaks"].values()) and data["peak_gbs"] >= 0
assert groups and all(g["ms"] >= 0 and g["times"] >= 1 and (g["peak_gflops"] > 0) == (g["flops"] > 0) for g in groups)
assert abs(sum(g["weight_bytes"] for g in groups) - data["weight_bytes"]) < 1
assert eval("(" + sys.argv[2] + ")", {"data": data, "titles": [g.get("title") for g in groups], "groups": groups}), sys.argv[2]
print(data["entry"], len(groups), "groups")
PY
# bench NAME EXPRESSION MODEL OPTIONS..
bench() {
	"$TFMC" bench "${@:3}" "${quick[@]}" --html="$tmp/$1.html" >"$tmp/out"
	PYTHONDONTWRITEBYTECODE=1 python3 "$tmp/check.py" "$tmp/$1.html" "$2"
}
bench embed 'data["threads"] == 2 and "layers.self.attention.o linear" in titles and all(":" in g["line"] for g in groups)' \
	examples/embed/model.yaml --threads=2
bench step 'data["entry"] == "step" and all(g["kernel"] for g in groups)' examples/hub/tales --entry=step --past=9
cat >"$tmp/hostile.tir" <<'TIR'
module "hostile"
weight @"</script><script>alert(1)</script>.a" : f32[4,4] = sinusoid(rows=4, dim=4, layout=halves, spacing=t2t, start=1, base=100.0)
func @run(%x: f32[4]) -> (y: f32[4]) {
  %"<!--<script>" = linear %x, @"</script><script>alert(1)</script>.a" : f32[4] loc("<b>":1:1 "</title>.@SCRIPT@")
  %z = layer_norm %"<!--<script>" : f32[4] loc("<b>":1:1 "</title>.&amp;")
  %y = softmax %z : f32[4]
  return %y
}
TIR
bench hostile 'any("</script><script>" in t for t in titles)' "$tmp/hostile.tir"

if node --version >"$tmp/out" 2>&1; then
	cat >"$tmp/page.js" <<'JS'
const {page, elements, made, listeners} = require(process.env.TFMC_SOURCE + "/tests/support/dom.js")(process.argv[2],
	"this.groups = groups; this.state = state; this.points = () => points; this.rows = () => rows;");
const fail = (why) => { throw new Error(why); };
const press = (e, key) => e.own.keydown({key, preventDefault() {}});
const worked = page.groups.filter((g) => g.flops > 0 && g.ms > 0);
const circles = () => made.filter((e) => e.tag === "circle" && e.attributes.role === "button");
circles().length === worked.length && page.points().length === worked.length || fail("points");
elements.rows.children.length === page.groups.length || fail("rows");
made.some((e) => Object.values(e.attributes).some((v) => /NaN|Infinity|undefined/.test(v))) && fail("an attribute");
made.some((e) => /NaN|Infinity|undefined/.test(e.textContent)) && fail("a text");
for (const cell of elements.head.children) {
	const button = cell.children[0], key = cell.dataset.key;
	button.own.click();
	const once = page.rows().map((g) => g[key]), first = cell.attributes["aria-sort"];
	button.own.click();
	const twice = page.rows().map((g) => g[key]);
	first && cell.attributes["aria-sort"] && first !== cell.attributes["aria-sort"] || fail(key + " says no order");
	if (typeof once[0] === "number") {
		const up = first === "ascending" ? once : twice, down = first === "ascending" ? twice : once;
		up.some((v, i) => i && v < up[i - 1]) && fail(key + " does not ascend");
		down.some((v, i) => i && v > down[i - 1]) && fail(key + " does not descend");
	}
	elements.head.children.filter((c) => c.attributes["aria-sort"]).length === 1 || fail("two orders");
}
/* Keys go around all points and rows, and both parts of a group are chosen. */
const start = page.points()[0];
press(start.point, "Enter");
for (let i = 0; i < worked.length; i++) {
	const at = page.state.chosen;
	at.point.classes.has("chosen") && at.row.classes.has("chosen") && page.focused === at.point || fail("one part alone is chosen");
	made.filter((e) => e.classes.has("chosen")).length === 2 || fail("others are chosen");
	press(at.point, "ArrowRight");
}
page.state.chosen === start || fail("the points are no round");
press(page.rows()[0].row, "ArrowUp");
page.state.chosen === page.rows()[page.rows().length - 1] && page.focused === page.state.chosen.row || fail("the row before the first");
press(page.state.chosen.row, "Home");
page.state.chosen === page.rows()[0] || fail("the first row");
elements.colors.children.forEach((b) => b.own.click());
listeners.resize();
console.log(worked.length, "points,", page.groups.length, "rows");
JS
	for page in embed step hostile; do node "$tmp/page.js" "$tmp/$page.html"; done
else
	echo "SKIPPED, the script alone: node is absent" >&2
fi

. "$TFMC_SOURCE/tests/support/browser.sh"
cat >>"$tmp/press.py" <<'PY'
text = text.replace("</body>", """<script>{
document.querySelectorAll("button").forEach((b) => b.click());
for (const e of document.querySelectorAll("circle[role=button], tbody tr")) {
	e.dispatchEvent(new PointerEvent("pointerenter"));
	e.dispatchEvent(new MouseEvent("click"));
	for (const key of ["ArrowRight", "ArrowDown", "Home"])
		e.dispatchEvent(new KeyboardEvent("keydown", {key, cancelable: true}));
}
if (document.body.scrollWidth > innerWidth)
	wrong.push("the page is wider than the window");
if (document.querySelectorAll("tbody tr.chosen").length !== 1)
	wrong.push("no row is chosen");
const result = Object.assign(document.createElement("pre"), {textContent: "errors " + wrong.length + wrong.join("\\n")});
document.body.replaceChildren(result);
}</script></body>""", 1)
open(sys.argv[2], "w", encoding="utf-8").write(text)
PY
for page in embed:400:0 step:1280:1 hostile:2560:0; do
	IFS=: read -r name width scheme <<<"$page"
	python3 "$tmp/press.py" "$tmp/$name.html" "$tmp/pressed.html"
	timeout 120 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$tmp/profile" --window-size="$width,900" \
		--blink-settings=preferredColorScheme="$scheme" --dump-dom "file://$tmp/pressed.html" 2>/dev/null >"$tmp/dom"
	sed -n '/<pre>/,$p' "$tmp/dom" | grep errors
	grep -q 'errors 0<' "$tmp/dom"
done
