// SPDX-License-Identifier: Apache-2.0
//
// The page of `tfmc plan --html`: buffers of a function as rectangles over time and bytes; weights as a squarified
// treemap (Bruls, Huizing, van Wijk 2000) of the components of their names.
const data = JSON.parse($("data").textContent);
const LEFT = 70, TOP = 14, STRIP = 18, CHARACTER = 6.3, PAD = 3, HEAD = 16, LEAST = 4;

/* The longest end of a name, from a point on, that fits; "" where none does. */
function fitted(name, width) {
	const plain = name.replace(/ \(.*$/, "");
	for (let text = plain; text; text = text.includes(".") ? text.slice(text.indexOf(".") + 1) : "")
		if (text.length * CHARACTER <= width)
			return text;
	return "";
}

/* ---- memory over time ---- */

/* Runs of groups with one key: [begin, end, key]. */
function runs(groups, keyOf) {
	const out = [];
	groups.forEach((g, i) => {
		const last = out[out.length - 1], key = keyOf(g);
		if (last && last[2] === key)
			last[1] = i + 1;
		else
			out.push([i, i + 1, key]);
	});
	return out;
}

function strip(svg, f, y, xOf, keyOf, textOf) {
	for (const [begin, end, key] of runs(f.groups, keyOf)) {
		const x = xOf(begin), width = xOf(end) - x, text = textOf(key), shown = text && fitted(text, width - 6);
		if (!text)
			continue;
		addShape(addShape(svg, "rect", {class: "segment", x, y, width, height: STRIP - 2}), "title", {}, text);
		addShape(svg, "text", {x: x + width / 2, y: y + 12, "text-anchor": "middle", class: "faint"}, shown);
	}
}

function drawMemory(f) {
	const box = $("memory"), width = Math.max(280, box.clientWidth), height = Math.max(220, Math.min(520, width * .42));
	const n = Math.max(1, f.groups.length), peak = Math.max(1, ...f.buffers.map((b) => b[3] + b[4]));
	const xOf = (t) => LEFT + (width - LEFT - 8) * t / n, yOf = (bytes) => TOP + height * (1 - bytes / peak);
	const total = TOP + height + 2 * STRIP + 8, colorOf = colorer(), marks = [];
	const svg = addShape({append() {}}, "svg", {width, height: total, viewBox: "0 0 " + width + " " + total, role: "group", "aria-label": "arena over time"});
	addShape(svg, "rect", {class: "frame", x: LEFT, y: TOP, width: width - LEFT - 8, height});
	for (let i = 0; i <= 4; i++)
		addShape(svg, "text", {x: LEFT - 6, y: yOf(peak * i / 4) + 4, "text-anchor": "end", class: "faint"}, sizeText(Math.round(peak * i / 4)));
	for (const [name, first, last, at, bytes] of f.buffers) {
		const x = xOf(first), y = yOf(at + bytes), w = xOf(last + 1) - x, h = yOf(at) - y;
		const element = addShape(svg, "rect", {x, y, width: w, height: h, style: "fill: " + colorOf(f.groups[first] ? f.groups[first][2] : name)});
		if (h >= 13)
			addShape(svg, "text", {x: x + w / 2, y: y + h / 2 + 4, "text-anchor": "middle"}, fitted(name, w - 6));
		const groupText = (t) => t + (f.groups[t] ? ", " + f.groups[t][0] : "");
		marks.push({element, size: bytes, lines: () => [name, sizeText(bytes) + " at " + sizeText(at),
			"written by group " + groupText(first), last > first ? "read until group " + groupText(last) : "not read by a later group"]});
	}
	addShape(svg, "line", {class: "bound", x1: LEFT, x2: width - 8, y1: yOf(f.bound), y2: yOf(f.bound)});
	strip(svg, f, TOP + height + 4, xOf, (g) => g[2], (key) => key);
	strip(svg, f, TOP + height + 4 + STRIP, xOf, (g) => g[1], (key) => key > 1 ? "×" + key + " layers" : "");
	box.replaceChildren(svg);
	$("memory-title").textContent = "Arena of " + f.name + ": " + sizeText(peak) + ", lower bound " + sizeText(f.bound) + ", " +
		f.buffers.length + " buffers, " + f.groups.length + " groups";
	choosable($("memory-text"), marks);
}

/* ---- weights ---- */

/* The tree of name components; a box with one child is that child. */
function weightTree() {
	const root = {name: "", path: "", children: new Map(), bytes: 0};
	for (const w of data.weights) {
		let node = root;
		node.bytes += w[3];
		for (const part of w[0].split(".")) {
			if (!node.children.has(part))
				node.children.set(part, {name: part, path: node.path ? node.path + "." + part : part, children: new Map(), bytes: 0});
			node = node.children.get(part);
			node.bytes += w[3];
		}
		node.weight = w;
	}
	const collapse = (node) => {
		const children = [...node.children.values()].map(collapse).filter((c) => c.bytes > 0).sort((a, b) => b.bytes - a.bytes || (a.path < b.path ? -1 : 1));
		if (children.length === 1 && node.name)
			return {...children[0], name: node.name + "." + children[0].name};
		return {...node, children};
	};
	return collapse(root);
}

/* Calls put(node, x, y, w, h) for nodes, sorted by size, in an area: rows along the shorter side whose worst aspect does not get worse. */
function squarify(nodes, x, y, w, h, put) {
	let left = nodes.reduce((sum, n) => sum + n.bytes, 0);
	for (let i = 0; i < nodes.length && left > 0 && w > 0 && h > 0;) {
		const side = Math.min(w, h), scale = w * h / left;
		let sum = 0, worst = Infinity, end = i;
		for (; end < nodes.length; end++) {
			const next = sum + nodes[end].bytes, depth = next * scale / side;
			const sides = [nodes[i].bytes, nodes[end].bytes].map((b) => b * scale / depth);
			const aspect = Math.max(...sides.map((s) => Math.max(s / depth, depth / s)));
			if (aspect > worst)
				break;
			worst = aspect;
			sum = next;
		}
		const depth = sum * scale / side;
		let at = 0;
		for (; i < end; i++) {
			const length = nodes[i].bytes * scale / depth;
			if (w >= h)
				put(nodes[i], x, y + at, depth, length);
			else
				put(nodes[i], x + at, y, length, depth);
			at += length;
		}
		[x, y, w, h] = w >= h ? [x + depth, y, w - depth, h] : [x, y + depth, w, h - depth];
		left -= sum;
	}
}

function drawWeights(root) {
	const box = $("weights"), width = Math.max(280, box.clientWidth), height = Math.max(260, Math.min(640, width * .5)), marks = [], colorOf = colorer();
	const svg = addShape({append() {}}, "svg", {width, height, viewBox: "0 0 " + width + " " + height, role: "group", "aria-label": "weights by size"});
	const put = (node, x, y, w, h) => {
		const label = w > 24 && h > HEAD ? fitted(node.name, w - 8) : "";
		const head = label ? HEAD : PAD, isLeaf = !node.children.length;
		/* Where its children have no space, a box stands for all of them. */
		if (isLeaf || Math.min(w - 2 * PAD, h - head - PAD) < LEAST) {
			const element = addShape(svg, "rect", {x, y, width: w, height: h, style: "fill: " + colorOf(node.path.split(".").slice(-2).join("."))});
			addShape(svg, "text", {x: x + 4, y: y + 13}, label);
			const about = isLeaf ? node.weight[1] + (node.weight[2] ? " as " + node.weight[2] : "") : "several weights";
			marks.push({element, size: node.bytes, lines: () => [node.path, about,
				sizeText(node.bytes) + ", " + (100 * node.bytes / root.bytes).toFixed(1) + " % of all"]});
			return;
		}
		addShape(svg, "rect", {class: "area", x, y, width: w, height: h});
		addShape(svg, "text", {x: x + 5, y: y + 12, class: "faint"}, label);
		squarify(node.children, x + PAD, y + head, w - 2 * PAD, h - head - PAD, put);
	};
	squarify(root.children, 0, 0, width, height, put);
	box.replaceChildren(svg);
	$("weights-title").textContent = "Weights: " + sizeText(root.bytes) + " in " + data.weights.length;
	choosable($("weights-text"), marks);
}

/* ---- start ---- */

const state = {shown: data.functions[0], weights: weightTree()};

function show(name) {
	state.shown = data.functions.find((f) => f.name === name) || state.shown;
	markPressed($("functions"), name);
	if (state.shown)
		drawMemory(state.shown);
}

$("summary").textContent = data.caption;
const names = data.functions.map((f) => f.name);
buildChoices($("functions"), names, Object.fromEntries(names.map((n) => [n, n])), "", show);
buildThemes(() => {});
show(names[0]);
drawWeights(state.weights);
addEventListener("resize", () => { show(state.shown.name); drawWeights(state.weights); });
