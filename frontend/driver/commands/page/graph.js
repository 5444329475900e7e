// SPDX-License-Identifier: Apache-2.0
//
// The page of `tfmc graph`: draws boxes when they are opened first, moves them, shows facts and source lines of a box.
// Rows and their order are data; places are those of graph_layout.c, elements those of graph_draw.c, whose constants these are.
const data = JSON.parse($("data").textContent);
const GAP_X = 26, GAP_Y = 40, BEND = 10, PAD = 18, HEAD = 34;
const LABEL = .3, TEXT_X = 18, TEXT_Y = 21, LINE = 17, RADIUS = 7;

/* ---- boxes ---- */

/* Links parents, cells and links of rows. Of a cell: node (or none: a bend), row, x (center), want. */
function prepare(graph, node, parent) {
	node.parent = parent;
	graph.nodes[node.id] = node;
	node.nIn = node.nOut = 0;
	if (!node.children)
		return;
	node.children.forEach((child) => prepare(graph, child, node));
	const bends = [];
	node.cells = node.rows.map((row, r) => row.map((id) => {
		const cell = {row: r, x: 0, want: 0, n: 0, node: id < 0 || Object.is(id, -0) ? null : graph.nodes[id]};
		if (cell.node)
			cell.node.cell = cell;
		else
			bends[-id] = cell;
		return cell;
	}));
	node.links = node.rows.map(() => []);
	node.labels = node.edges.map((edge) => edge[4]);
	node.edges = node.edges.map(([from, to, first, n]) => {
		graph.nodes[from].nOut++;
		graph.nodes[to].nIn++;
		const cells = [graph.nodes[from].cell, ...bends.slice(first, first + n), graph.nodes[to].cell];
		for (let i = 0; i + 1 < cells.length; i++)
			if (cells[i + 1].row === cells[i].row + 1)
				node.links[cells[i].row].push([cells[i], cells[i + 1]]);
		return cells;
	});
}

const widthOf = (cell) => cell.node ? cell.node.width : BEND;
const distance = (a, b) => widthOf(a) / 2 + GAP_X + widthOf(b) / 2;

/* Nearest to where the cells want to be: the mean of packing from the left and from the right. */
function placeRow(cells) {
	cells.forEach((c, i) => { c.x = i ? Math.max(c.want, cells[i - 1].x + distance(cells[i - 1], c)) : c.want; });
	for (let i = cells.length - 2; i >= 0; i--)
		cells[i].want = Math.min(cells[i].want, cells[i + 1].want - distance(cells[i], cells[i + 1]));
	for (const c of cells)
		c.x = (c.x + c.want) / 2;
}

function settleRow(node, row, down) {
	const cells = node.cells[row];
	for (const c of cells)
		c.want = c.n = 0;
	for (const [upper, lower] of node.links[down ? row - 1 : row]) {
		const to = down ? lower : upper;
		to.want += (down ? upper : lower).x;
		to.n++;
	}
	for (const c of cells)
		c.want = c.n ? c.want / c.n : c.x;
	placeRow(cells);
}

function layout(node) {
	node.width = node.w;
	node.height = node.h;
	if (!node.open)
		return;
	node.children.forEach(layout);
	const n = node.cells.length, all = node.cells.flat();
	const heights = node.cells.map((row) => Math.max(0, ...row.map((c) => c.node ? c.node.height : 0)));
	for (const c of all)
		c.x = 0;
	for (let row = 0; row < n; row++)
		settleRow(node, row, false);
	for (let i = 0; i < 2; i++) {
		for (let row = 1; row < n; row++)
			settleRow(node, row, true);
		for (let row = n - 2; row >= 0; row--)
			settleRow(node, row, false);
	}
	const left = Math.min(...all.map((c) => c.x - widthOf(c) / 2)), right = Math.max(...all.map((c) => c.x + widthOf(c) / 2));
	const extra = Math.max(0, (node.w - 2 * PAD - (right - left)) / 2);
	let y = HEAD;
	node.cells.forEach((row, r) => {
		for (const c of row) {
			c.x += PAD + extra - left;
			c.top = y;
			c.bottom = y + heights[r];
			if (!c.node)
				continue;
			c.node.x = c.x - c.node.width / 2;
			c.node.y = y + (heights[r] - c.node.height) / 2;
		}
		y += heights[r] + GAP_Y;
	});
	node.width = right - left + 2 * extra + 2 * PAD;
	node.height = y - GAP_Y + PAD;
}

/* ---- drawing ---- */

const round = (x) => x.toFixed(1);

/* Boxes are what keys, screen readers and pointers reach; values at the border of a box are not. */
function makeBox(graph, node, into) {
	const isValue = node.kind === "input" || node.kind === "output", isPort = node.kind === "port";
	const e = node.element = addShape(into, "g", {class: "n " + node.kind + node.work + (node.children ? " closed" : " leaf"),
		id: graph.id + "n" + node.id});
	const put = (name, x, y, text) => text && addShape(e, "text", {class: name, x, y}, text);
	node.frames = isPort ? [] : [addShape(e, "rect", {rx: isValue ? node.h / 2 : RADIUS})];
	if (node.kind === "repeat") { // a second card behind the first
		node.frames.push(addShape(e, "rect", {class: "card", x: 5, y: 5, rx: RADIUS}));
		e.prepend(node.frames[1]);
	}
	put(isPort ? "text" : "name", isPort || isValue ? node.w / 2 : TEXT_X, isPort ? LINE - 5 : isValue ? TEXT_Y - 1 : TEXT_Y, node.name);
	put("text", TEXT_X, TEXT_Y + LINE, node.text);
	put("figures", TEXT_X, TEXT_Y + LINE * (node.text ? 2 : 1), node.figures);
	if (!isBox(node))
		return;
	e.setAttribute("tabindex", "-1");
	e.setAttribute("role", "button");
	e.setAttribute("aria-label", [node.name, node.kind, ...node.facts.map((f) => f.join(" "))].join(", "));
	if (node.children)
		node.fold = addShape(e, "text", {class: "fold", y: 17});
}

/* Lines are before labels, so that no line crosses a label. */
function makeInside(graph, node) {
	node.inside = addShape(node.element, "g", {class: "in"});
	node.paths = node.edges.map(() => addShape(node.inside, "path", {class: "e", "marker-end": "url(#" + graph.id + "arrow)"}));
	node.labels = node.labels.map((text) => addShape(node.inside, "text", {class: "l"}, text));
	node.children.forEach((child) => makeBox(graph, child, node.inside));
}

/* Labels are at the end where fewer edges meet. */
function drawEdge(node, i) {
	const cells = node.edges[i], from = cells[0].node, to = cells[cells.length - 1].node, points = [[cells[0].x, from.y + from.height]];
	for (const c of cells.slice(1, -1))
		points.push([c.x, c.top], [c.x, c.bottom]);
	points.push([cells[cells.length - 1].x, to.y]);
	let path = "M" + points[0].map(round).join(" ");
	for (let k = 1; k < points.length; k++) {
		const [[x, y], [toX, toY]] = [points[k - 1], points[k]], bend = (toY - y) / 2;
		path += k % 2 ? "C" + [x, y + bend, toX, toY - bend, toX, toY].map(round).join(" ") : "L" + round(toX) + " " + round(toY);
	}
	node.paths[i].setAttribute("d", path);
	const atEnd = from.nOut > to.nIn, share = atEnd ? 1 - LABEL : LABEL, k = atEnd ? points.length - 1 : 1;
	node.labels[i].setAttribute("x", round(points[k - 1][0] + share * (points[k][0] - points[k - 1][0])));
	node.labels[i].setAttribute("y", round(points[k - 1][1] + share * (points[k][1] - points[k - 1][1]) + 4));
}

function draw(graph, node) {
	const e = node.element;
	e.setAttribute("transform", "translate(" + round(node.x) + "," + round(node.y) + ")");
	for (const rect of node.frames) {
		rect.setAttribute("width", round(node.width));
		rect.setAttribute("height", round(node.height));
	}
	if (!node.children)
		return;
	e.classList.toggle("open", node.open);
	e.classList.toggle("closed", !node.open);
	e.setAttribute("aria-expanded", String(node.open));
	if (node.fold) {
		node.fold.setAttribute("x", round(node.width - 9));
		node.fold.textContent = node.open ? "−" : "+";
	}
	if (!node.open)
		return;
	if (!node.inside)
		makeInside(graph, node);
	node.edges.forEach((_, i) => drawEdge(node, i));
	node.children.forEach((child) => draw(graph, child));
}

function update() {
	const graph = state.graph, root = graph.root;
	layout(root);
	root.x = root.y = 0;
	state.zoom = state.zoom || Math.max(.6, Math.min(1, (state.paneWidth - 24) / (root.width + 2)));
	draw(graph, root);
	resize();
}

function resize() {
	const graph = state.graph, root = graph.root, svg = graph.svg, w = root.width + 2, h = root.height + 2;
	svg.setAttribute("viewBox", "0 0 " + round(w) + " " + round(h));
	svg.setAttribute("width", round(w * state.zoom));
	svg.setAttribute("height", round(h * state.zoom));
}

/* ---- state ---- */

const state = {graph: null, zoom: 0, paneWidth: $("pane").clientWidth}; // read before pictures are there: it needs their layout
const stages = [...new Set(data.graphs.map((g) => g.stage))];
const stageTitles = {before: "As written", after: "After the passes"};

const isShown = (node) => !node.parent || (node.parent.open && isShown(node.parent));
const isBox = (node) => node.kind !== "port" && node.parent;
const shownBoxes = () => state.graph.nodes.filter((n) => n && isBox(n) && isShown(n));

function start(graph) {
	graph.nodes = [];
	prepare(graph, graph.root, null);
	graph.svg = addShape($("pane"), "svg", {class: "graph", id: graph.id});
	const arrow = addShape(addShape(graph.svg, "defs", {}), "marker", {id: graph.id + "arrow", class: "a", viewBox: "0 0 8 8", refX: 7, refY: 4,
		markerWidth: 8, markerHeight: 8, orient: "auto"});
	addShape(arrow, "path", {d: "M0 0L8 4L0 8z"});
	makeBox(graph, graph.root, graph.svg);
	graph.root.element.classList.add("root");
	graph.chosen = graph.root.children.find(isBox);
}

function show(graph) {
	if (!graph.nodes)
		start(graph);
	state.graph = graph;
	for (const g of data.graphs.filter((g) => g.nodes))
		g.svg.style.display = g === graph ? "block" : "none";
	const same = data.graphs.filter((g) => g.stage === graph.stage);
	buildChoices($("functions"), same.map((g) => g.id), Object.fromEntries(same.map((g) => [g.id, g.title])), graph.id,
		(id) => show(data.graphs.find((g) => g.id === id)));
	markPressed($("stages"), graph.stage);
	update();
	choose(graph.chosen, false);
}

function showStage(stage) {
	const same = data.graphs.filter((g) => g.stage === stage);
	show(same.find((g) => g.title === state.graph.title) || same[0]);
}

function toggle(node) {
	if (!node.children)
		return;
	node.open = !node.open;
	update();
}

/* Opens the outermost closed boxes, or closes the innermost open ones. */
function foldLevel(opens) {
	const boxes = shownBoxes().filter((n) => n.children && n.open !== opens);
	const depths = boxes.map((n) => n.depth), depth = opens ? Math.min(...depths) : Math.max(...depths);
	for (const n of boxes)
		if (n.depth === depth)
			n.open = opens;
	while (!isShown(state.graph.chosen))
		state.graph.chosen = state.graph.chosen.parent;
	update();
	choose(state.graph.chosen, false);
}

function zoom(to) {
	state.zoom = Math.min(4, Math.max(.1, to));
	resize();
}

function fit() {
	const pane = $("pane"), root = state.graph.root;
	zoom(Math.min(1, (pane.clientWidth - 24) / (root.width + 2), (pane.clientHeight - 24) / (root.height + 2)));
}

/* ---- the chosen box ---- */

function linesOf(node, lines) {
	if (node.at[1])
		lines.add(node.at.join(":"));
	(node.children || []).forEach((child) => linesOf(child, lines));
	return lines;
}

function lineLink(node) {
	const source = data.sources[node.at[0]];
	return source && node.at[1] ? source.name.replace(/.*\//, "") + ":" + node.at[1] : "";
}

function showFacts(node) {
	const list = make("dl"), kind = node.kind === "op" || node.kind === "step" ? "" : ", " + node.kind;
	const fact = (label, text) => list.append(make("dt", {}, label), make("dd", {}, text));
	if (lineLink(node))
		fact("line", lineLink(node));
	node.facts.forEach(([label, text]) => fact(label, text));
	$("box").replaceChildren(make("h2", {}, node.name + kind), list);
}

let codeOf = null;

function showCode(node) {
	const source = data.sources[node.at[0]], box = $("code");
	if (!source)
		return;
	if (codeOf !== source) {
		const list = make("ol");
		source.text.replace(/\n$/, "").split(/\r?\n/).forEach((line, i) => {
			const item = make("li", {value: i + 1}, line || " ");
			item.addEventListener("click", () => chooseLine(node.at[0], i + 1));
			list.append(item);
		});
		box.replaceChildren(make("h2", {}, source.name), list);
		codeOf = source;
	}
	const lines = linesOf(node, new Set()), items = box.querySelectorAll("li");
	items.forEach((item, i) => {
		item.classList.toggle("part", lines.has(node.at[0] + ":" + (i + 1)));
		item.classList.toggle("at", i + 1 === node.at[1]);
	});
	const at = items[node.at[1] - 1];
	if (at)
		box.scrollTop += at.getBoundingClientRect().top - box.getBoundingClientRect().top - box.clientHeight / 3;
}

function choose(node, focuses) {
	const graph = state.graph, old = graph.chosen;
	if (!node)
		return;
	for (const n of [old, node]) {
		n.element.classList.toggle("chosen", n === node);
		n.element.setAttribute("tabindex", n === node ? "0" : "-1");
	}
	graph.chosen = node;
	if (focuses) {
		node.element.focus({preventScroll: true});
		scrollTo(node);
	}
	showFacts(node);
	showCode(node);
}

/* Its title comes into sight. */
function scrollTo(node) {
	const pane = $("pane"), outer = pane.getBoundingClientRect(), inner = node.element.getBoundingClientRect();
	const height = Math.min(inner.height, 60), width = Math.min(inner.width, outer.width - 40);
	if (inner.top < outer.top || inner.top + height > outer.bottom)
		pane.scrollTop += inner.top - outer.top - outer.height / 3;
	if (inner.left < outer.left || inner.left + width > outer.right)
		pane.scrollLeft += inner.left - outer.left - 20;
}

/* The innermost shown box that was made from a line, the next one at each call. */
function chooseLine(source, line) {
	const boxes = shownBoxes().filter((n) => n.at[0] === source && n.at[1] === line && !(n.children && n.open));
	const inner = boxes.length ? boxes : shownBoxes().filter((n) => !n.open && linesOf(n, new Set()).has(source + ":" + line));
	choose(inner[(inner.indexOf(state.graph.chosen) + 1) % inner.length], true);
}

/* ---- pointer and keys ---- */

/* The nearest box in a direction, by the centers of what is on the screen. Boxes around it do not count. */
function moveTo(dx, dy) {
	const at = state.graph.chosen, center = (n) => {
		const r = n.element.getBoundingClientRect();
		return [r.left + r.width / 2, n.open ? r.top + 10 : r.top + r.height / 2];
	};
	const [x, y] = center(at);
	let best = null, least = Infinity;
	for (const n of shownBoxes()) {
		const [toX, toY] = center(n), along = (toX - x) * dx + (toY - y) * dy, across = Math.abs((toX - x) * dy) + Math.abs((toY - y) * dx);
		const cost = along + 2.5 * across;
		if (along > 2 && cost < least)
			[best, least] = [n, cost];
	}
	choose(best, true);
}

const keys = {
	ArrowLeft: () => moveTo(-1, 0), ArrowRight: () => moveTo(1, 0), ArrowUp: () => moveTo(0, -1), ArrowDown: () => moveTo(0, 1),
	Enter: () => toggle(state.graph.chosen), " ": () => toggle(state.graph.chosen),
	Escape: () => { const around = state.graph.chosen.parent; if (around.parent) { around.open = false; update(); choose(around, true); } },
	"+": () => zoom(state.zoom * 1.2), "-": () => zoom(state.zoom / 1.2),
	p: () => showStage(stages[(stages.indexOf(state.graph.stage) + 1) % stages.length]),
};

document.addEventListener("keydown", (e) => {
	const inside = e.target === document.body || $("pane").contains(e.target);
	if (!keys[e.key] || !inside || e.ctrlKey || e.altKey || e.metaKey)
		return;
	e.preventDefault();
	keys[e.key]();
});

$("pane").addEventListener("click", (e) => {
	const element = e.target.closest(".n"), graph = state.graph;
	const node = element && graph.nodes[Number(element.id.slice(graph.id.length + 1))];
	if (!node || node.element !== element || !isBox(node))
		return;
	choose(node, true);
	if (!node.open || e.target.classList.contains("fold") || e.target.classList.contains("name"))
		toggle(node);
});

$("pane").addEventListener("wheel", (e) => {
	if (!e.ctrlKey)
		return;
	e.preventDefault();
	zoom(state.zoom * Math.exp(-e.deltaY / 400));
}, {passive: false});

/* ---- start ---- */

$("summary").textContent = data.dims ? "numbers at " + data.dims : "";
buildChoices($("stages"), stages, stageTitles, "", showStage);
buildThemes(() => {});
$("fold").addEventListener("click", () => foldLevel(false));
$("unfold").addEventListener("click", () => foldLevel(true));
$("smaller").addEventListener("click", () => zoom(state.zoom / 1.2));
$("larger").addEventListener("click", () => zoom(state.zoom * 1.2));
$("fit").addEventListener("click", fit);
show(data.graphs[0]);
