#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tfmc attend: pages and arrays of an encoder-decoder, a decoder and an encoder. The data inside of a page are
# JSON, rows sum to 1, arrays and page agree, hostile tokens stay text, failures leave old files alone. With a
# Chromium in the PATH the page is opened, every key and button is pressed, and errors of the console are counted.
set -euo pipefail
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
dates=$TFMC_SOURCE/examples/dates/model.yaml
golden=$TFMC_SOURCE/tests/golden
cat >"$tmp/check.py" <<'PY'
import array, ast, base64, glob, json, os, re, struct, sys

def page_of(path):
    text = open(path, encoding="utf-8").read()
    parts = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert len(parts) == 1 and text.count("</script") == 2 and text.count("<script") == 2, "markup"
    assert not re.search(r"[<>&']", parts[0]), "a character that is not escaped"
    rest = text.replace(parts[0], "")
    assert not re.search(r"(src|href|url|import|fetch)\s*[=(]|https?:(?!//www\.w3\.org/2000/svg)|@DATA@|@NAME@", rest), "a reference"
    return json.loads(parts[0])

def values_of(m, scale):
    a = array.array("H", base64.b64decode(m["weights"], validate=True))
    if sys.byteorder == "big":
        a.byteswap()
    assert len(a) == m["heads"] * m["rows"] * m["columns"]
    assert 65535 not in a, "not a number"
    return [x / scale for x in a]

def npy_of(path):
    data = open(path, "rb").read()
    assert data[:8] == b"\x93NUMPY\x01\x00"
    n, = struct.unpack("<H", data[8:10])
    head = ast.literal_eval(data[10:10 + n].decode())
    assert (10 + n) % 64 == 0 and head["descr"] == "<f4" and head["fortran_order"] is False
    body = data[10 + n:]
    return head["shape"], struct.unpack(f"<{len(body) // 4}f", body)

def check(page, folder):
    scale, n = page["scale"], len(page["sequences"])
    names = {m["path"] + ".npy" for m in page["maps"]}
    assert names == set(os.listdir(folder)) and len(names) == len(page["maps"]), names
    for m in page["maps"]:
        shape, exact = npy_of(os.path.join(folder, m["path"] + ".npy"))
        shown, columns = values_of(m, scale), m["columns"]
        assert shape == (m["heads"], m["rows"], columns)
        assert m["rows"] == len(page["sequences"][m["queries"]]["ids"])
        assert columns == len(page["sequences"][m["keys"]]["ids"])
        assert max(abs(a - b) for a, b in zip(exact, shown)) <= .5 / scale + 1e-7
        for at in range(0, len(exact), columns):
            row = exact[at:at + columns]
            assert abs(sum(row) - 1) < 1e-5, (m["path"], at, sum(row))
            assert abs(sum(shown[at:at + columns]) - 1) <= columns * .5 / scale
            if m["stack"] == "decoder":
                assert not any(row[at // columns % m["rows"] + 1:]), "it looks ahead"
        assert len(set(exact)) > 1 or m["rows"] == 1

page = page_of(sys.argv[1])
check(page, sys.argv[2])
print(page["model"], [len(s["ids"]) for s in page["sequences"]], [(m["path"], m["stack"]) for m in page["maps"]])
assert eval(sys.argv[3], {"page": page, "maps": page["maps"], "tokens": [s["tokens"] for s in page["sequences"]],
                          "ids": [s["ids"] for s in page["sequences"]]}), sys.argv[3]
PY
# attend EXPRESSION MODEL ARGUMENTS...: the page and the arrays are right, and the expression holds
attend() {
	rm -rf "$tmp/arrays"
	"$TFMC" attend "${@:2}" -mcpu=x86-64-v2 --html="$tmp/page.html" --npy="$tmp/arrays"
	PYTHONDONTWRITEBYTECODE=1 python3 "$tmp/check.py" "$tmp/page.html" "$tmp/arrays" "$1"
}
# refused CODE TEXT ARGUMENTS...: the exit code, the message, no new file, the old page as it was
refused() {
	echo old >"$tmp/page.html"
	rm -rf "$tmp/arrays"
	local code=0
	"$TFMC" attend "${@:3}" -mcpu=x86-64-v2 --html="$tmp/page.html" >"$tmp/out" 2>"$tmp/err" || code=$?
	[ "$code" -eq "$1" ] || { echo "exit code $code, not $1: ${*:3}"; cat "$tmp/err"; exit 1; }
	grep -aq -- "$2" "$tmp/err" || { echo "no '$2' in:"; cat "$tmp/err"; exit 1; }
	[ "$(cat "$tmp/page.html")" = old ] && [ ! -s "$tmp/out" ] && [ ! -e "$tmp/arrays" ]
	[ -z "$(find "$tmp" -name '.*tfmc-*')" ]
}

# An encoder-decoder: what it writes is generated first; given as text it is the same page.
names='sorted(m["path"] for m in maps) == [f"{s}.layers.{i}.{a}" for s, a, i in
	[("decoder", "cross", 0), ("decoder", "self", 0), ("decoder", "cross", 1), ("decoder", "self", 1),
	("encoder", "self", 0), ("encoder", "self", 1)]]'
attend "$names and ''.join(tokens[0]) == 'the 3rd of March, 2021' and ''.join(tokens[1]) == '<s>2021-03-03'" \
	"$dates" --prompt 'the 3rd of March, 2021'
cp "$tmp/page.html" "$tmp/dates.html"
attend "[m['stack'] for m in maps] == ['encoder'] * 2 + ['decoder', 'cross'] * 2" \
	"$dates" --prompt 'the 3rd of March, 2021' --target-text 2021-03-03
cmp "$tmp/page.html" "$tmp/dates.html"
attend "ids[1] == [1, 4]" "$dates" --prompt 3/3/21 --target-tokens 1,4

# A decoder, its prompt alone and continued; an encoder; without vocabulary and with one token.
attend "len(maps) == 3 and ids == [[5, 6, 7, 8]] and tokens == [[]]" "$golden/torch_decoder/model.yaml" --tokens 5,6,7,8
attend "len(ids[0]) == 5 and ids[0][:2] == [5, 6]" "$golden/torch_decoder/model.yaml" --tokens 5,6 --max-tokens 3
attend "{m['stack'] for m in maps} == {'encoder'}" "$golden/torch_encoder/model.yaml" --tokens 1,2,3,4,5
attend "maps[0]['rows'] == 1" "$golden/torch_encoder/model.yaml" --tokens 9

# Layers that are built as a loop and a single one have the numbers of the file.
mkdir "$tmp/rounds"
cp "$golden/torch_decoder/model.safetensors" "$tmp/rounds"
sed 's/^    body:/&\n      - scale: {by: 1.5, when: i == 2}/; /^checks:/,$d' "$golden/torch_decoder/model.yaml" >"$tmp/rounds/model.yaml"
"$TFMC" "$tmp/rounds/model.yaml" --passes=canonicalize --stop-after=canonicalize --emit=tir="$tmp/rounds/m.tir"
grep -q layers.0_1.self "$tmp/rounds/m.tir"
attend "[m['path'] for m in maps] == ['layers.0.self', 'layers.1.self', 'layers.2.self']" \
	"$tmp/rounds/model.yaml" --tokens 5,6,7

# Chosen kinds, layers and heads: they are the same planes of the arrays of everything.
attend True "$dates" --prompt 3/3/21 --target-text 2021-03-03
mv "$tmp/arrays" "$tmp/everything"
cat >"$tmp/part.py" <<'PY'
import os, sys
exec(open(sys.argv[4]).read().split("page = page_of")[0])
part, whole, heads = sys.argv[1], sys.argv[2], [int(h) for h in sys.argv[3].split(",")]
for name in os.listdir(part):
    (h, s, t), some = npy_of(os.path.join(part, name))
    (_, rows, columns), everything = npy_of(os.path.join(whole, name))
    assert (h, s, t) == (len(heads), rows, columns), name
    for i, head in enumerate(heads):
        plane = everything[head * s * t:(head + 1) * s * t]
        assert max(abs(x - y) for x, y in zip(some[i * s * t:(i + 1) * s * t], plane)) < 1e-6, (name, head)
PY
part() {
	PYTHONDONTWRITEBYTECODE=1 python3 "$tmp/part.py" "$tmp/arrays" "$tmp/everything" "$1" "$tmp/check.py"
}
pair=("$dates" --prompt 3/3/21 --target-text 2021-03-03)
attend "[m['path'] for m in maps] == ['decoder.layers.0.cross', 'decoder.layers.1.cross'] and maps[0]['numbers'] == [0, 2]" "${pair[@]}" --attentions=cross --heads=2,0,2
part 0,2
attend "[m['path'] for m in maps] == ['encoder.layers.1.self', 'decoder.layers.1.self'] and maps[0]['numbers'] == [3]" "${pair[@]}" --attentions self --layers 1 --heads 3
part 3
attend "{m['stack'] for m in maps} == {'encoder', 'cross'} and len(maps) == 4 and maps[0]['of'] == 4" "${pair[@]}" --attentions=encoder,cross
part 0,1,2,3
refused 2 'is a list of encoder, decoder, cross and self, not crossed' "${pair[@]}" --attentions=crossed
refused 2 'is a list of encoder, decoder, cross and self, not self,' "${pair[@]}" --attentions=self,
refused 2 'layers is a list of numbers such as 0,1,2, not first' "${pair[@]}" --layers=first
refused 1 'choose none of the 6 attentions, such as encoder.layers.0.self with 4 heads' "${pair[@]}" --heads=4
refused 1 'choose none of the 6 attentions' "${pair[@]}" --layers=2

# Sounds of a fixed size: two layers of the encoder have 18 M weights, more than a page holds. What is read most comes first,
# whole, then what fits of the rest, and that is said; a choice is shown as it is, and arrays alone have no limit.
mkdir "$tmp/sound"
cat >"$tmp/sound/model.yaml" <<'YAML'
tfmc: 1
name: sound
params: {d: 8, frames: 1500, ctx: 8}
dims: {B: 1..2, T: 1..ctx}
inputs:
  features: {shape: [B, frames, d], dtype: f32}
  ids: {shape: [B, T], dtype: i32}
defaults:
  attention: {heads: 4, bias: false}
model:
  encoder:
    input: features
    body:
      - repeat: {id: layers, count: 2}
        body:
          - residual: {id: self, body: [attention: {mask: none}]}
  decoder:
    input: ids
    body:
      - embed: {id: tok, vocab: 16, dim: d}
      - repeat: {id: layers, count: 2}
        body:
          - residual: {id: self, body: [attention: {mask: causal}]}
          - residual: {id: cross, body: [attention: {memory: encoder, mask: none}]}
      - linear: {id: head, out: 16, bias: false, tie: tok}
outputs: {logits: decoder}
generate: {kind: seq2seq, source: features, tokens: ids, start: 1, stop: 2, max_len: ctx}
weights: {files: [model.safetensors]}
YAML
python3 - "$tmp/sound" <<'PY'
import array, json, random, struct, sys
random.seed(4)
def write(path, shapes):
    head, at, body = {}, 0, b""
    for name, shape in shapes.items():
        n = 1
        for x in shape:
            n *= x
        body += array.array("f", [random.gauss(0, .5) for _ in range(n)]).tobytes()
        head[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + 4 * n]}
        at += 4 * n
    text = json.dumps(head).encode()
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + body)
steps = [f"{s}.layers.{i}.{a}" for i in range(2) for s, a in (("encoder", "self"), ("decoder", "self"), ("decoder", "cross"))]
write(sys.argv[1] + "/model.safetensors", {"decoder.tok.weight": [16, 8], **{f"{s}.attention.{r}.weight": [8, 8] for s in steps for r in "qkvo"}})
write(sys.argv[1] + "/in.safetensors", {"features": [1, 1500, 8]})
write(sys.argv[1] + "/long.safetensors", {"features": [1, 4200, 8]})
PY
sound=("$tmp/sound/model.yaml" -O0 --inputs "$tmp/sound/in.safetensors" --target-tokens 1,5,6)
shapes() {
	for file in "$tmp/arrays"/*.npy; do
		echo "$(basename "$file" .npy) $(head -c 128 "$file" | grep -ao '[0-9]*, [0-9]*, [0-9]*')"
	done
}
"$TFMC" attend "${sound[@]}" --html="$tmp/page.html" --npy="$tmp/arrays" 2> >(tee "$tmp/err")
said='a page holds at most 16777216 weights, these are 18036072: 6 of 6 attentions are shown, 1 of them with fewer heads'
grep -q "warning: $said; --attentions, --layers and --heads choose others" "$tmp/err"
grep -q "\"left_out\":\"$said" "$tmp/page.html"
diff <(shapes) - <<'TXT'
decoder.layers.0.cross 4, 3, 1500
decoder.layers.0.self 4, 3, 3
decoder.layers.1.cross 4, 3, 1500
decoder.layers.1.self 4, 3, 3
encoder.layers.0.self 4, 1500, 1500
encoder.layers.1.self 3, 1500, 1500
TXT
rm -r "$tmp/arrays"
"$TFMC" attend "${sound[@]}" --attentions=encoder --layers=1 --heads=3 --html="$tmp/page.html" --npy="$tmp/arrays" -Werror 2>"$tmp/err"
[ "$(shapes)" = "encoder.layers.1.self 1, 1500, 1500" ]
rm -r "$tmp/arrays"
"$TFMC" attend "${sound[@]}" --npy="$tmp/arrays" -Werror 2>"$tmp/err"
[ "$(shapes | grep -c '4, 1500, 1500')" -eq 2 ]
# A single head that is too large.
refused 1 'one head alone has more; --npy=DIR without --html has no such limit' "${sound[@]}" --attentions=encoder --set frames=4200 --inputs "$tmp/sound/long.safetensors"

# Tokens that want to be markup.
mkdir "$tmp/hostile"
cp "$TFMC_SOURCE"/examples/dates/{model.yaml,model.safetensors,*_vocab.txt} "$tmp/hostile"
{
	printf '%s\n' '</script><script>alert(1)</script>' '<!--<script>' "\"'&\\" ']]>{{' '@DATA@'
	printf '\342\200\250\342\200\256\tx\n'
	sed 1,6d "$TFMC_SOURCE/examples/dates/source_vocab.txt"
} >"$tmp/hostile/source_vocab.txt"
attend "tokens[0] == ['</script><script>alert(1)</script>', '<!--<script>', '\"\\'&\\\\', ']]>{{', '@' + 'DATA@',
	chr(0x2028) + chr(0x202e) + chr(9) + 'x']" "$tmp/hostile/model.yaml" -O0 --tokens 0,1,2,3,4,5 --target-tokens 1,2
cp "$tmp/page.html" "$tmp/hostile.html"

# Rejected inputs.
refused 2 'one of --prompt, --tokens' "$dates"
refused 2 'such as 1,2,3' "$dates" --tokens 1,x
refused 2 'only one of --target-text' "$dates" --prompt x --target-text y --target-tokens 1
refused 1 'the source is not UTF-8 from byte 2' "$dates" --prompt "$(printf '3 \377')"
sed 's/, unknown: <unk>//' "$tmp/hostile/model.yaml" >"$tmp/hostile/known.yaml"
refused 1 'U+0078 of the target is not in the vocabulary' "$tmp/hostile/known.yaml" --prompt 3 --target-text x --npy="$tmp/arrays"
refused 1 'takes 1 to 48 tokens, not 49' "$dates" --prompt "$(printf '3%.0s' $(seq 49))"
refused 1 'takes 1 to 48 tokens, not 0' "$dates" --prompt '' --target-tokens 1
refused 1 "has the value 74 at 1, not in \[0,73\]" "$dates" --tokens 1,74 --target-tokens 1
refused 1 'no vocabulary for the tokens' "$golden/torch_decoder/model.yaml" --prompt x
refused 1 'has no target' "$golden/torch_decoder/model.yaml" --tokens 1 --target-tokens 1
refused 3 'cannot make the directory' "$dates" --prompt 3 --npy=/dev/null/arrays
[ -s "$dates" ]

# The scripts run in node, where it exists, on a page whose every object answers everything: all keys in both views, so
# that a name that does not exist is found without a browser.
if node --version >"$tmp/out" 2>&1; then
	cat >"$tmp/page.js" <<'JS'
const fs = require("fs"), vm = require("vm");
const text = fs.readFileSync(process.argv[2], "utf8"), scripts = [...text.matchAll(/<script([^>]*)>([^]*?)<\/script>/g)];
const listeners = {};
const any = new Proxy(function () {}, {
	get: (_, name) => name === Symbol.toPrimitive ? () => 40 : name === Symbol.iterator ? function* () {} : name === "length" ? 0 : any,
	set: () => true, apply: () => any, construct: () => any,
});
const page = {
	document: new Proxy({}, {get: (_, name) => ({
		getElementById: (id) => id === "data" ? {textContent: scripts[0][2]} : any,
		addEventListener: (type, f) => { listeners[type] = f; },
	})[name] || any}),
	location: {hash: ""}, history: any, innerWidth: 430, innerHeight: 900, atob, URLSearchParams,
	matchMedia: () => any, addEventListener: (type, f) => { listeners[type] = f; },
	getComputedStyle: () => ({getPropertyValue: () => "1, 2, 3"}), requestAnimationFrame: (f) => f(),
};
page.window = page;
vm.runInNewContext(scripts.slice(1).map((s) => s[2]).join("\n"), page);
for (const view of ["lines", "matrix"]) {
	for (const key of ["ArrowRight", "ArrowDown", "c", "ArrowLeft", "t", "a", "s", "j", "x", "j", "k", "k", "ArrowUp", "Escape", "c"])
		listeners.keydown({key, preventDefault() {}});
	listeners.resize();
	listeners.keydown({key: "v", preventDefault() {}});
}
JS
	for page in dates hostile; do node "$tmp/page.js" "$tmp/$page.html"; done
fi

# In a browser.
. "$TFMC_SOURCE/tests/support/browser.sh"
cat >>"$tmp/press.py" <<'PY'
text = text.replace("</body>", """<script>{
const titles = () => state.panels.map((p) => p.title.textContent).join("; "), seen = [titles()];
const press = (key) => document.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true}));
for (const key of ["ArrowRight", "ArrowDown", "v", "c", "ArrowLeft", "t", "a", "s", "j", "x", "j", "k", "k", "v", "ArrowUp"]) {
	press(key);
	seen.push(key + " " + state.view + " " + titles() + ": " + state.panels[state.active].readout.textContent);
}
press("Escape");
for (const item of document.querySelectorAll(".tokens li"))
	for (const name of ["pointerenter", "pointerleave", "click"])
		item.dispatchEvent(new PointerEvent(name));
press("v");
for (const canvas of document.querySelectorAll("canvas.matrix")) {
	const box = canvas.getBoundingClientRect();
	for (let x = 0; x < box.width; x += 40)
		canvas.dispatchEvent(new PointerEvent("pointermove", {clientX: box.left + x, clientY: box.top + box.height / 2}));
	canvas.dispatchEvent(new MouseEvent("click", {clientX: box.left + box.width / 2, clientY: box.top + 2}));
}
document.querySelectorAll("button").forEach((b) => b.click());
const result = Object.assign(document.createElement("pre"), {textContent: seen.join("\\n") + "\\nerrors " + wrong.length + wrong.join("\\n")});
document.body.replaceChildren(result);
}</script></body>""", 1)
open(sys.argv[2], "w", encoding="utf-8").write(text)
PY
for page in ${TFMC_ALL:+dates} hostile; do
	python3 "$tmp/press.py" "$tmp/$page.html" "$tmp/pressed.html"
	timeout 120 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$tmp/profile" \
		--virtual-time-budget=5000 --dump-dom "file://$tmp/pressed.html" 2>/dev/null >"$tmp/dom"
	sed -n '/<pre>/,$p' "$tmp/dom"
	grep -q '^errors 0<' "$tmp/dom"
	grep -q 'v matrix Encoder, layer 1 self-attention, head 1' "$tmp/dom"
done
