// SPDX-License-Identifier: Apache-2.0
//
// The page of `tfmc attend`, part one: the data, colors, the view state (stored in the URL fragment), the tool bar and the picker of
// layers and heads. attend_plot.js follows it in the same script.
const data = JSON.parse(document.getElementById("data").textContent);
const stackTitles = {encoder: "Encoder", decoder: "Decoder", cross: "Cross-attention", attention: "Attention"};

/* ---- data ---- */

/* Probabilities [heads, rows, columns] of a map, decoded on first use. */
function weightsOf(map) {
	if (map.values)
		return map.values;
	const bytes = atob(map.weights);
	map.values = new Float32Array(bytes.length / 2);
	for (let i = 0; i < map.values.length; i++) {
		const v = bytes.charCodeAt(2 * i) | bytes.charCodeAt(2 * i + 1) << 8;
		map.values[i] = v === 65535 ? NaN : v / data.scale;
	}
	if (map.values.some(Number.isNaN))
		$("warning").hidden = false;
	return map.values;
}

/* Mean over the selected heads: [rows, columns]. */
function meanOf(map, heads) {
	const all = weightsOf(map), n = map.rows * map.columns, out = new Float32Array(n);
	for (const h of heads)
		for (let i = 0; i < n; i++)
			out[i] += all[h * n + i] / heads.length;
	return out;
}

const shown = new Map([[" ", "␣"], ["\n", "↵"], ["\r", "␍"], ["\t", "⇥"]]);
/* A token as visible text: blanks and control characters become symbols. */
function visibleText(text) {
	const signs = Array.from(text, (c) => shown.get(c) || (/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u.test(c) ? "\\u{" + c.codePointAt(0).toString(16) + "}" : c));
	return signs.join("");
}

function labelOf(sequence, i) {
	const s = data.sequences[sequence];
	if (!s)
		return String(i);
	return s.tokens.length ? visibleText(s.tokens[i]) || "#" + s.ids[i] : String(s.ids[i]);
}

function shorten(text, n) {
	const signs = Array.from(text);
	return signs.length > n ? signs.slice(0, n - 1).join("") + "…" : text;
}

/* The position of a token ("source 3"), and the next token of the sequence, which the decoder predicts after reading it. */
function positionOf(map, side, i) {
	const s = data.sequences[side === "q" ? map.queries : map.keys];
	const at = (s ? s.name : "row") + " " + i;
	const grows = side === "q" && s && map.stack !== "encoder" && i + 1 < s.ids.length;
	return {at, next: grows ? labelOf(map.queries, i + 1) : null};
}

const stacks = [...new Set(data.maps.map((m) => m.stack))];
const mapsOf = (stack) => data.maps.filter((m) => m.stack === stack);

/* ---- colors ---- */

const ramps = {
	light: [[255, 255, 255], [96, 158, 220], [10, 42, 104]],
	dark: [[23, 27, 34], [42, 104, 178], [252, 228, 140]],
};

function rampColor(w) {
	const stops = isDark() ? ramps.dark : ramps.light;
	const x = Math.min(Math.max(w, 0), 1) * 2, i = x < 1 ? 0 : 1, f = x - i;
	return stops[i].map((v, k) => Math.round(v + (stops[i + 1][k] - v) * f));
}

const css = (rgb, alpha) => alpha === undefined ? `rgb(${rgb.join(",")})` : `rgba(${rgb.join(",")},${alpha})`;

/* A color for each head, distinct from its neighbors'. */
function headColor(h, n) {
	const hue = (210 + h * (n <= 6 ? 360 / n : 137.5)) % 360, light = isDark() ? .68 : .38, a = .72 * Math.min(light, 1 - light);
	return [0, 8, 4].map((k) => {
		const x = (k + hue / 30) % 12;
		return Math.round(255 * (light - a * Math.max(-1, Math.min(x - 3, 9 - x, 1))));
	});
}

function accent() {
	return getComputedStyle(document.documentElement).getPropertyValue("--accent-rgb").split(",").map(Number);
}

/* ---- state ---- */

const state = {view: "lines", comparing: false, active: 0, stretch: false, panels: []};
state.panels = [0, 1].map((i) => ({map: data.maps[0], heads: [Math.min(i, data.maps[0].heads - 1)], pin: null, over: null}));

/* The URL fragment stores the view state, so that a view can be linked. */
function readAddress() {
	const wanted = new URLSearchParams(location.hash.slice(1));
	state.view = wanted.get("view") === "matrix" ? "matrix" : "lines";
	state.comparing = wanted.has("layer2");
	state.stretch = wanted.get("stretch") === "1";
	state.panels.forEach((p, i) => {
		const end = i ? "2" : "";
		p.map = data.maps.find((m) => m.path === wanted.get("layer" + end)) || p.map;
		const heads = (wanted.get("heads" + end) || "").split(",").filter((h) => /^\d+$/.test(h)).map(Number).filter((h) => h < p.map.heads);
		p.heads = heads.length ? [...new Set(heads)].sort((a, b) => a - b) : p.heads.filter((h) => h < p.map.heads);
		p.heads = p.heads.length ? p.heads : [0];
		const pin = /^([qk])(\d+)$/.exec(wanted.get("token" + end) || "");
		p.pin = pin && Number(pin[2]) < (pin[1] === "q" ? p.map.rows : p.map.columns) ? {side: pin[1], i: Number(pin[2])} : null;
	});
}

function writeAddress() {
	const all = new URLSearchParams({view: state.view});
	state.panels.slice(0, state.comparing ? 2 : 1).forEach((p, i) => {
		const end = i ? "2" : "";
		all.set("layer" + end, p.map.path);
		all.set("heads" + end, p.heads.join(","));
		if (p.pin)
			all.set("token" + end, p.pin.side + p.pin.i);
	});
	if (state.stretch)
		all.set("stretch", "1");
	try {
		history.replaceState(null, "", "#" + all.toString().replaceAll("%2C", ","));
	} catch (e) { /* some browsers reject it for file: URLs */ }
}

/* The focused token: under the pointer, or pinned. */
const focusOf = (p) => p.over || p.pin;

function select(p, map, heads) {
	p.map = map;
	p.heads = heads.filter((h) => h < map.heads);
	if (!p.heads.length)
		p.heads = [0];
	const fits = (t) => t && t.i < (t.side === "q" ? map.rows : map.columns);
	p.pin = fits(p.pin) ? p.pin : null;
	p.over = null;
	render();
}

/* ---- the bar and the picker ---- */

function chooseStack(stack) {
	const p = state.panels[state.active];
	if (p.map.stack !== stack)
		select(p, mapsOf(stack)[0], p.heads);
}

function chooseView(view) {
	state.view = view;
	render();
}

function drawThumb(canvas, map, h) {
	const size = canvas.width, all = weightsOf(map), n = map.rows * map.columns, c = canvas.getContext("2d");
	const image = c.createImageData(size, size);
	let top = 0;
	for (let i = 0; i < n; i++)
		top = Math.max(top, all[h * n + i] || 0);
	for (let y = 0; y < size; y++)
		for (let x = 0; x < size; x++) {
			const i = Math.floor(y * map.rows / size), j = Math.floor(x * map.columns / size);
			const rgb = rampColor(Math.sqrt((all[h * n + i * map.columns + j] || 0) / (top || 1)));
			image.data.set([...rgb, 255], 4 * (y * size + x));
		}
	c.putImageData(image, 0, 0);
}

let pickerStack = null;

function buildPicker(stack) {
	const maps = mapsOf(stack), most = Math.max(...maps.map((m) => m.heads));
	const size = most <= 4 ? 52 : most <= 8 ? 40 : 28, table = make("table"), head = make("tr");
	head.append(make("td"));
	for (const number of maps.find((m) => m.heads === most).numbers)
		head.append(make("th", {scope: "col", "aria-label": "head " + number}, String(number)));
	const top = make("thead"), body = make("tbody");
	top.append(head);
	for (const map of maps) {
		const row = make("tr");
		row.append(make("th", {scope: "row", title: map.path}, shorten(nameOf(map), 24)));
		for (let h = 0; h < map.heads; h++) {
			const cell = make("td", {"data-head": map.numbers[h]}), name = nameOf(map) + ", head " + map.numbers[h];
			const b = make("button", {"aria-label": name, title: name});
			const canvas = make("canvas", {width: size, height: size, "aria-hidden": "true"});
			drawThumb(canvas, map, h);
			b.map = map;
			b.head = h;
			b.addEventListener("click", (e) => pickHead(map, h, e.shiftKey));
			b.append(canvas);
			cell.append(b);
			row.append(cell);
		}
		body.append(row);
	}
	table.append(top, body);
	$("heads").replaceChildren(table);
	$("picker-title").textContent = stackTitles[stack] + ": layers and heads";
	pickerStack = stack;
}

function commonPrefix(texts) {
	let n = 0;
	while (texts.every((t) => n < t.length && t[n] === texts[0][n]))
		n++;
	return texts[0].lastIndexOf(".", n - 1) + 1;
}

/* Components of a path as words: "layer 1" for layers.1, "self-attention" for self. */
const words = {self: "self-attention", cross: "cross-attention", layers: "", blocks: ""};

/* The words that distinguish a map from the others of its stack: "layer 1 self-attention" for encoder.layers.1.self. */
function nameOf(map) {
	const paths = mapsOf(map.stack).map((m) => m.path);
	const parts = map.path.slice(paths.length > 1 ? commonPrefix(paths) : 0).split(".");
	const said = parts.map((part) => /^\d+$/.test(part) ? "layer " + part : words[part] ?? part.replaceAll("_", " "));
	return said.filter(Boolean).join(" ");
}

function pickHead(map, h, adds) {
	const p = state.panels[state.active];
	if (adds && map === p.map)
		toggleHead(p, h);
	else
		select(p, map, [h]);
}

function toggleHead(p, h) {
	const rest = p.heads.filter((x) => x !== h);
	select(p, p.map, rest.length === p.heads.length ? [...rest, h].sort((a, b) => a - b) : rest.length ? rest : [h]);
}

function updatePicker() {
	const p = state.panels[state.active];
	const inside = $("heads").contains(document.activeElement);
	if (pickerStack !== p.map.stack)
		buildPicker(p.map.stack);
	let first = null;
	for (const b of $("heads").querySelectorAll("button")) {
		const chosen = b.map === p.map && p.heads.includes(b.head);
		b.setAttribute("aria-pressed", String(chosen));
		b.tabIndex = chosen && !first ? 0 : -1;
		first = first || (chosen ? b : null);
	}
	if (first && inside)
		first.focus();
	if (first)
		first.scrollIntoView({block: "nearest", inline: "nearest"});
}
