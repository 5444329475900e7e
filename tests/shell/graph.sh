#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tfmc graph: data, picture and page of an encoder-decoder, a decoder, and IR text with hostile names. Boxes, rows and
# edges are consistent, work adds up to that of `plan`, names stay text, two runs give the same bytes. In node the
# script of the page draws the elements of the picture at its places, and every key and button is pressed. With a
# Chromium in the PATH the page is opened at three widths, light and dark, and errors of its console are counted.
set -euo pipefail
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$TFMC_SOURCE"
cat >"$tmp/check.py" <<'PY'
import json, re, sys, xml.dom.minidom

def boxes(node):
    yield node
    for child in node.get("children", []):
        yield from boxes(child)

def check_box(node):
    ids = [c["id"] for c in node["children"]]
    cells = [i for row in node["rows"] for i in row]
    bends = sorted(-i for i in cells if i < 0)
    assert sorted(i for i in cells if i not in [-b for b in bends]) == sorted(ids), node["name"]
    assert bends == list(range(1, len(bends) + 1)), node["name"]
    row_of = {i: r for r, row in enumerate(node["rows"]) for i in row}
    for start, end, first, n, label in node["edges"]:
        way = [start] + [-(first + k) for k in range(n)] + [end]
        rows = [row_of[i] for i in way]
        assert rows == sorted(set(rows)) and (n == 0 or rows == list(range(rows[0], rows[-1] + 1))), (node["name"], rows)

data = json.load(open(sys.argv[1] + ".json"))
for graph in data["graphs"]:
    every = list(boxes(graph["root"]))
    assert len({b["id"] for b in every}) == len(every)
    for b in every:
        if "children" in b:
            check_box(b)
        source, line = b["at"]
        if str(source) in data["sources"]:
            assert line <= data["sources"][str(source)]["text"].count("\n") + 1
    if graph["stage"] == "after":
        assert any(b["kind"] == "kernel" for b in every), graph["title"]
assert {g["stage"] for g in data["graphs"]} == {"before", "after"}

page = open(sys.argv[1] + ".html", encoding="utf-8").read()
parts = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
assert len(parts) == 1 and page.count("</script") == 2 and page.count("<script") == 2, "markup"
assert not re.search(r"[<>&']", parts[0]) and json.loads(parts[0]) == data
rest = page.replace(parts[0], "")
assert not re.search(r"(src|href|import|fetch)\s*[=(]|url\((?!#. \+ graph\.id)|https?:(?!//www\.w3\.org/2000/svg)", rest), "a reference"
assert not re.search("@[A-Z]+@", rest), "a mark"
svg = xml.dom.minidom.parse(sys.argv[1] + ".svg")
groups = {g.getAttribute("id"): g.getAttribute("class") for g in svg.getElementsByTagName("g")}
for stage in ("before", "after"): # the first function: what open boxes contain
    def check_drawn(node):
        is_open = "open" in groups[stage + "n" + str(node["id"])].split()
        for child in node.get("children", []):
            assert (stage + "n" + str(child["id"]) in groups) == is_open, (stage, child["name"])
            if is_open:
                check_drawn(child)
    check_drawn([g for g in data["graphs"] if g["stage"] == stage][0]["root"])
tags = {e.tagName for e in svg.getElementsByTagName("*")}
assert tags == {"svg", "style", "rect", "text", "g", "defs", "marker", "path"}, tags
assert eval("(" + sys.argv[2] + ")", {"data": data, "boxes": boxes, "names": lambda i: [b["name"] for b in boxes(data["graphs"][i]["root"])],
                          "titles": [g["stage"] + " " + g["title"] for g in data["graphs"]],
                          "facts": lambda i, name: [dict(b["facts"]) for b in boxes(data["graphs"][i]["root"]) if b["name"] == name],
                          "texts": [t.firstChild.data for t in svg.getElementsByTagName("text")]}), sys.argv[2]
print(sys.argv[1].split("/")[-1], sum(len(list(boxes(g["root"]))) for g in data["graphs"]), "boxes")
PY
# graph NAME EXPRESSION MODEL OPTIONS..
graph() {
	for form in json html svg; do "$TFMC" graph "${@:3}" -mcpu=x86-64-v3 -o "$tmp/$1.$form"; done
	"$TFMC" graph "${@:3}" -mcpu=x86-64-v3 >"$tmp/again.html"
	cmp "$tmp/again.html" "$tmp/$1.html"
	PYTHONDONTWRITEBYTECODE=1 python3 "$tmp/check.py" "$tmp/$1" "$2"
}
graph dates 'titles == ["before run", "before encode", "before decode", "after run", "after encode", "after decode", "after decode.step"]
	and {"encoder", "layers ×2", "self", "attention", "softmax", "decoder", "linear q"} <= set(names(0))
	and "linear q_k_v" in names(3) and "softmax" not in names(3) and data["dims"] == "B=8, S=20, T=16"
	and "f32[B,S,96]" in texts and "dates, after the passes (B=8, S=20, T=16)" in texts' examples/dates/model.yaml --dim S=20
graph tales '"layers ×4" in names(0) and facts(0, "head")[0]["arithmetic"] == "201.3 MFLOP"
	and any("preset llama" == s["name"] for s in data["sources"].values())' examples/hub/tales
graph unfused 'not any(t.startswith("after decode.step") for t in titles)' examples/hub/tales -O0

# The work of a function is what plan says.
"$TFMC" plan examples/hub/tales -mcpu=x86-64-v3 >"$tmp/plan"
python3 - "$tmp/tales.json" "$tmp/plan" <<'PY'
import json, re, sys
root = [g for g in json.load(open(sys.argv[1]))["graphs"] if g["stage"] == "after" and g["title"] == "run"][0]["root"]
planned = re.search(r"^run.*\n  products .* = (.*?)(\n|,)", open(sys.argv[2]).read(), re.M)[1].strip()
assert dict(root["facts"])["arithmetic"] == planned, (root["facts"], planned)
PY

# Names that want to be markup, and a comment of a model.
cat >"$tmp/hostile.tir" <<'TIR'
module "hostile"
func @run(%"</script><script>alert(1)</script>": f32[4], %"<!--<script>": f32[4]) -> ("\"'&]]>@DATA@": f32[4]) {
  %"</text></svg><svg onload=alert(1)>" = add %"</script><script>alert(1)</script>", %"<!--<script>" : f32[4] loc("<b>":1:1 "</title>.@SCRIPT@")
  %z = relu %"</text></svg><svg onload=alert(1)>" : f32[4] loc("<b>":1:1 "</title>.&amp;")
  return %z
}
TIR
graph hostile '"</script><script>alert(1)</script>" in names(0) and "</title>" in names(0)' "$tmp/hostile.tir"
mkdir "$tmp/comment"
cp examples/dates/*.txt examples/dates/*.safetensors "$tmp/comment"
{ echo '# </script><script>alert(1)</script> @DATA@ <!--'; cat examples/dates/model.yaml; } >"$tmp/comment/model.yaml"
graph comment '[s["text"] for s in data["sources"].values()][0].startswith("# </script>")' "$tmp/comment/model.yaml"
# Forty-eight layers in a row, without weights; what is refused leaves the old file.
python3 - "$tmp/deep.yaml" <<'PY'
import sys
steps = "".join(f"  - norm: {{id: n{i}, kind: {('layer', 'rms')[i % 2]}, eps: 1e-5}}\n  - residual: {{id: l{i}, body: [ffn: {{dim: 64, act: gelu}}]}}\n" for i in range(48))
open(sys.argv[1], "w").write(f"tfmc: 1\nname: deep\nparams: {{d: 32}}\ndims: {{B: 1..4}}\ninputs: {{x0: {{shape: [B, d], dtype: f32}}}}\n"
                             f"model:\n  - x: x0\n{steps}outputs: {{y: x}}\nweights: {{files: [absent.safetensors]}}\n")
PY
graph deep '"l47" in names(0) and len(names(0)) > 190' "$tmp/deep.yaml"
echo old >"$tmp/old.html"
if "$TFMC" graph "$tmp/deep.yaml" --set=d=x -o "$tmp/old.html" 2>"$tmp/err"; then echo "not refused" >&2; exit 1; fi
[ "$(cat "$tmp/old.html")" = old ]

# In node: a page of which only elements, classes and attributes exist.
if node --version >"$tmp/out" 2>&1; then
	cat >"$tmp/page.js" <<'JS'
const fs = require("fs"), vm = require("vm");
const text = fs.readFileSync(process.argv[2], "utf8"), scripts = [...text.matchAll(/<script([^>]*)>([^]*?)<\/script>/g)].map((s) => s[2]);
const svg = fs.readFileSync(process.argv[3], "utf8");
const listeners = {}, elements = {};
let opened = 0;
function element(tag) {
	const attributes = {}, set = new Set(), own = {};
	return {
		tag, style: {}, dataset: {}, children: [], textContent: "", scrollTop: 0, scrollLeft: 0, clientWidth: 700, clientHeight: 500, own, attributes, set,
		get id() { return attributes.id; },
		classList: {contains: (c) => set.has(c), add: (c) => set.add(c), toggle: (c, on) => on ? set.add(c) : set.delete(c)},
		setAttribute(name, value) {
			attributes[name] = String(value);
			if (name === "data-name") this.dataset.name = value;
			if (name === "class") value.split(" ").forEach((c) => set.add(c));
		},
		append(...items) { this.children.push(...items); }, prepend(item) { this.children = [item, ...this.children.filter((c) => c !== item)]; },
		replaceChildren(...items) { this.children = items; },
		addEventListener: (type, f) => { own[type] = f; },
		querySelectorAll(what) { return what === "li" ? this.children[1].children : []; },
		getBoundingClientRect: () => ({left: 0, top: 0, width: 10, height: 10, right: 10, bottom: 10}),
		contains: () => true, closest() { return this; }, focus() { opened++; },
	};
}
const page = {
	document: {
		getElementById: (id) => elements[id] = elements[id] || Object.assign(element(""), {textContent: id === "data" ? scripts[0] : ""}),
		createElement: element, createElementNS: (_, tag) => element(tag), body: {},
		addEventListener: (type, f) => { listeners[type] = f; },
	},
	matchMedia: () => ({matches: false, addEventListener() {}}),
};
vm.runInNewContext(scripts[1] + "\nthis.state = state; this.data = data; this.show = show; this.foldLevel = foldLevel; this.choose = choose; this.isShown = isShown;", page);
const {state, data} = page;
/* Tags of a picture with their attributes, and text, in order. */
const unescape = (s) => s.replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&quot;/g, '"').replace(/&amp;/g, "&");
const drawn = [...svg.matchAll(/<(g|rect|path|text)\b([^>]*)>([^<]*)/g)].map((m) => ({tag: m[1], text: unescape(m[3]),
	attributes: Object.fromEntries([...m[2].matchAll(/([\w-]+)="([^"]*)"/g)].map((a) => [a[1], a[2]]))}));
const IGNORED = ["tabindex", "role", "aria-label", "aria-expanded", "id", "class", "marker-end"];
/* Numbers agree to the last printed digit but one: additions are in another order. */
function near(a, b, what) {
	const x = a.match(/-?[\d.]+/g).map(Number), y = b.match(/-?[\d.]+/g).map(Number);
	if (x.length !== y.length || x.some((v, i) => Math.abs(v - y[i]) > .11))
		throw new Error(what + ": " + a + " is not " + b);
}
let places = 0;
/* The elements of the page are those of the picture, one after another: at(i), i the first one. Gives the next. */
function compare(e, i) {
	if (!e.set.has("fold") && e.tag !== "defs") {
		const want = drawn[i++], a = want.attributes, classes = (a.class || "").split(" ").filter((c) => c).sort().join(" ");
		const has = [...e.set].filter((c) => c !== "root" && c !== "chosen").sort().join(" ");
		if (want.tag !== e.tag || classes !== has || (e.tag === "text" && want.text !== e.textContent))
			throw new Error([want.tag, classes, want.text].join(" ") + " is drawn as " + [e.tag, has, e.textContent].join(" "));
		for (const name of Object.keys(e.attributes).filter((n) => !IGNORED.includes(n)))
			near(e.attributes[name], a[name] || "none", want.text + " " + name);
		places++;
		for (const child of e.children)
			i = compare(child, i);
	}
	return i;
}
for (const stage of ["before", "after"]) {
	const graph = data.graphs.find((g) => g.stage === stage), classes = {};
	for (const e of drawn)
		if (e.tag === "g" && e.attributes.id)
			classes[e.attributes.id] = e.attributes.class.split(" ");
	page.show(graph);
	const kept = graph.nodes.map((n) => n && n.open);
	for (const node of graph.nodes)
		if (node && node.children)
			node.open = (classes[stage + "n" + node.id] || []).includes("open");
	page.show(graph);
	compare(graph.root.element, drawn.findIndex((e) => e.attributes.id === stage + "n" + graph.root.id));
	graph.nodes.forEach((n, i) => { if (n) n.open = kept[i]; });
}
const press = (key) => listeners.keydown({key, target: page.document.body, preventDefault() {}});
for (const graph of data.graphs) {
	page.show(graph);
	for (let i = 0; i < 9; i++)
		page.foldLevel(true);
	if (state.graph.nodes.some((n) => n && n.children && !n.open))
		throw new Error("a box stays closed");
	for (const node of graph.nodes.filter((n, i) => n && n.parent && n.kind !== "port" && i % 20 === 1)) {
		page.choose(node, true);
		const kept = state.graph.nodes.map((n) => n && n.open);
		for (const key of ["Enter", " ", "ArrowDown", "ArrowRight", "ArrowUp", "ArrowLeft", "+", "-"])
			press(key);
		if (node.children && !node.open)
			throw new Error("Enter twice does not open again");
		const line = elements.code.children[1];
		if (line)
			line.children[Math.max(0, node.at[1] - 1)].own.click();
		state.graph.nodes.forEach((n, i) => { if (n) n.open = kept[i]; });
	}
	press("Escape");
	for (let i = 0; i < 9; i++)
		page.foldLevel(false);
	if (state.graph.nodes.some((n) => n && n.parent && n.open && page.isShown(n)))
		throw new Error("a box stays open");
	press("p");
}
for (const id of ["fold", "unfold", "smaller", "larger", "fit"])
	elements[id].own.click();
console.log(places, "elements as drawn,", opened, "times focused");
JS
	for page in dates tales unfused hostile deep; do node "$tmp/page.js" "$tmp/$page.html" "$tmp/$page.svg"; done
else
	echo "SKIPPED, the script alone: node is absent" >&2
fi

# In a browser.
. "$TFMC_SOURCE/tests/support/browser.sh"
cat >>"$tmp/press.py" <<'PY'
text = text.replace("</body>", """<script>{
const seen = ["ready after " + Math.round(performance.now()) + " ms"];
const press = (key) => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true}));
for (const key of ["ArrowDown", "ArrowDown", "Enter", "ArrowRight", "ArrowLeft", "ArrowUp", "+", "-", "p", "ArrowDown", "Enter", "Escape"]) {
	press(key);
	seen.push(key + ": " + state.graph.id + " " + state.graph.chosen.name);
}
document.querySelectorAll("button").forEach((b) => b.click());
[...document.querySelectorAll(".n")].filter((_, i) => i % 20 === 0).forEach((n) => n.dispatchEvent(new MouseEvent("click", {bubbles: true})));
[...document.querySelectorAll("#code li")].filter((_, i) => i % 10 === 0).forEach((n) => n.click());
if (document.body.scrollWidth > innerWidth)
	wrong.push("the page is wider than the window");
const result = Object.assign(document.createElement("pre"), {textContent: seen.join("\\n") + "\\nerrors " + wrong.length + wrong.join("\\n")});
document.body.replaceChildren(result);
}</script></body>""", 1)
open(sys.argv[2], "w", encoding="utf-8").write(text)
PY
for page in dates:400:0 hostile:1280:1 deep:2560:0; do
	IFS=: read -r name width scheme <<<"$page"
	python3 "$tmp/press.py" "$tmp/$name.html" "$tmp/pressed.html"
	timeout 600 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$tmp/profile" --window-size="$width,900" \
		--blink-settings=preferredColorScheme="$scheme" --dump-dom "file://$tmp/pressed.html" 2>/dev/null >"$tmp/dom"
	sed -n '/<pre>/,$p' "$tmp/dom" | grep -E 'ready|errors'
	grep -q '^errors 0<' "$tmp/dom"
done
