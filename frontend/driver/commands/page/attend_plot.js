// SPDX-License-Identifier: Apache-2.0
//
// The page of `tfmc attend`, part two: panels with lines or a matrix, hover, keys; the page is built at the end of this file. Tokens
// are inserted as text only. Sizes are CSS pixels.

/* ---- panels ---- */

const tip = make("div", {class: "tip", hidden: ""});

function buildPanel(p, index) {
	const box = make("section", {class: "sheet panel"});
	p.title = make("h2");
	p.chips = make("div", {class: "chips", role: "group", "aria-label": "heads of this layer"});
	p.plot = make("div", {class: "plot"});
	p.readout = make("p", {class: "readout", "aria-live": "polite"});
	box.append(p.title, p.chips, p.readout, p.plot);
	box.addEventListener("pointerdown", () => activate(index));
	box.addEventListener("focusin", () => activate(index));
	p.box = box;
}

function activate(index) {
	if (state.active === index || (index && !state.comparing))
		return;
	state.active = index;
	updateMarks();
	updatePicker();
	markPressed($("stacks"), state.panels[index].map.stack);
}

function updateMarks() {
	state.panels.forEach((p, i) => p.box.classList.toggle("active", i === state.active));
}

function updateChips(p) {
	const key = p.map.path + "/" + p.map.heads;
	if (p.chipsFor !== key)
		p.chips.replaceChildren(make("span", {class: "faint"}, "heads"), ...Array.from({length: p.map.heads}, (_, h) => {
			const b = make("button", {"aria-label": "head " + p.map.numbers[h]}, String(p.map.numbers[h]));
			b.addEventListener("click", () => toggleHead(p, h));
			return b;
		}), allChip(p));
	p.chipsFor = key;
	p.chips.lastChild.setAttribute("aria-pressed", String(p.heads.length === p.map.heads));
	[...p.chips.children].slice(1, -1).forEach((b, h) => {
		const on = p.heads.includes(h);
		b.setAttribute("aria-pressed", String(on));
		b.style.setProperty("--chip", p.heads.length > 1 ? css(headColor(h, p.map.heads)) : "var(--accent)");
	});
}

function allChip(p) {
	const b = make("button", {}, "all");
	b.addEventListener("click", () => toggleAll(p));
	return b;
}

function headsText(p) {
	if (p.heads.length === 1)
		return "head " + p.map.numbers[p.heads[0]];
	return p.heads.length === p.map.of ? "all heads" : "heads " + p.heads.map((h) => p.map.numbers[h]).join(", ");
}

/* The strongest partners of the focused token, as a sentence. */
function updateReadout(p) {
	const t = focusOf(p), map = p.map;
	p.readout.replaceChildren();
	if (!t) {
		p.readout.append(make("span", {class: "faint"}, "Point at a token to read its weights."));
		return;
	}
	const isQuery = t.side === "q", partners = [], n = isQuery ? map.columns : map.rows;
	for (let x = 0; x < n; x++)
		partners.push([x, isQuery ? p.mean[t.i * map.columns + x] : p.mean[x * map.columns + t.i]]);
	partners.sort((a, b) => (b[1] || 0) - (a[1] || 0) || a[0] - b[0]);
	const best = partners.slice(0, 5).filter((x) => x[1] >= .005);
	const where = positionOf(map, t.side, t.i);
	p.readout.append(make("bdi", {}, labelOf(isQuery ? map.queries : map.keys, t.i)), " (" + where.at);
	if (where.next !== null)
		p.readout.append(", then comes ", make("bdi", {}, where.next));
	p.readout.append(isQuery ? ") attends to " : ") is attended to by ");
	best.forEach(([x, w], i) => p.readout.append(i ? ", " : "", make("bdi", {}, labelOf(isQuery ? map.keys : map.queries, x)), " " + w.toFixed(3)));
	const rest = 1 - best.reduce((sum, x) => sum + x[1], 0);
	if (!best.length)
		p.readout.append(partners.some((x) => Number.isNaN(x[1])) ? "NaN" : "nothing that reaches 0.005");
	else if (isQuery && rest > .0005)
		p.readout.append(", the rest " + rest.toFixed(3));
}

/* A factor for the colors of each row: with `stretch` its largest probability becomes 1. */
function rowFactors(p) {
	return Array.from({length: p.map.rows}, (_, i) => {
		const row = p.mean.subarray(i * p.map.columns, (i + 1) * p.map.columns);
		const top = row.reduce((a, w) => Math.max(a, w || 0), 0);
		return state.stretch && top > 0 ? 1 / top : 1;
	});
}

function sizeCanvas(canvas, width, height) {
	const scale = window.devicePixelRatio || 1;
	canvas.width = Math.round(width * scale);
	canvas.height = Math.round(height * scale);
	canvas.style.width = width + "px";
	canvas.style.height = height + "px";
	const c = canvas.getContext("2d");
	c.setTransform(scale, 0, 0, scale, 0, 0);
	return c;
}

/* ---- lines ---- */

/* Characters of a token that are shown: both columns and the least width between them fit into the panel. */
const tokenCharacters = (p) => Math.max(4, Math.min(16, Math.floor((p.plot.clientWidth - 72 - 32) / 2 / 9)));

/* Rows of tokens, or cells, fill the height of the window up to a size that is comfortable to read. */
const ABOVE = 360; /* pixels of what is above and below a plot */
const fillHeight = (n, least, most) => Math.round(Math.max(least, Math.min(most, (innerHeight - ABOVE) / n)));
const rowHeight = (map) => {
	const n = Math.max(map.rows, map.columns);
	return fillHeight(n, n <= 40 ? 23 : n <= 100 ? 18 : 14, 52);
};

function buildLines(p) {
	const map = p.map, box = make("div", {class: "lines"});
	const names = [map.queries, map.keys].map((s) => data.sequences[s] ? data.sequences[s].name : "rows");
	box.append(make("div", {class: "side", style: "text-align: right"}, names[0] + " (query)"), make("div"),
		make("div", {class: "side"}, names[1] + " (key)"));
	const columns = [["q", map.queries, map.rows, "left"], ["k", map.keys, map.columns, "right"]].map(([side, s, n, where]) => {
		const list = make("ul", {class: "tokens " + where, "aria-label": side === "q" ? "query tokens" : "key tokens"});
		for (let i = 0; i < n; i++) {
			const text = labelOf(s, i), item = make("li", {title: positionOf(map, side, i).at + ": " + text}, shorten(text, tokenCharacters(p)));
			item.style.height = item.style.lineHeight = rowHeight(map) + "px";
			item.style.fontSize = Math.min(15, rowHeight(map) * .72) + "px";
			item.addEventListener("pointerenter", () => hover(p, {side, i}));
			item.addEventListener("pointerleave", () => hover(p, null));
			item.addEventListener("click", () => togglePin(p, {side, i}));
			list.append(item);
		}
		return list;
	});
	p.canvas = make("canvas", {role: "img"});
	const middle = make("div");
	middle.append(p.canvas);
	box.append(columns[0], middle, columns[1]);
	p.tokens = {q: columns[0], k: columns[1]};
	p.middle = middle;
	p.plot.replaceChildren(box);
}

function markTokens(p) {
	const t = focusOf(p), map = p.map, rgb = accent();
	for (const side of ["q", "k"])
		[...p.tokens[side].children].forEach((item, i) => {
			const at = t && t.side === side && t.i === i;
			item.classList.toggle("at", Boolean(at));
			item.classList.toggle("pinned", Boolean(p.pin && p.pin.side === side && p.pin.i === i));
			let w = 0;
			if (t && t.side !== side)
				w = side === "k" ? p.mean[t.i * map.columns + i] * p.factors[t.i] : p.mean[i * map.columns + t.i] * p.factors[i];
			item.style.background = w > 0 ? css(rgb, Math.min(1, w) * .75) : "";
		});
}

/* The keys of query i whose lines are drawn: all for a focused token, else the strongest. */
const linesOfQuery = 12;

function chosenKeys(p, row, i) {
	const t = focusOf(p);
	if (t && t.side === "k")
		return [t.i];
	if (t && t.i !== i)
		return [];
	const keys = Array.from(row.keys()).filter((j) => row[j] * p.factors[i] >= .004);
	if (t || keys.length <= linesOfQuery)
		return keys;
	return keys.sort((a, b) => row[b] - row[a] || a - b).slice(0, linesOfQuery);
}

function drawLines(p) {
	const map = p.map, step = rowHeight(map), width = Math.max(64, p.middle.clientWidth), all = weightsOf(map);
	const c = sizeCanvas(p.canvas, width, step * Math.max(map.rows, map.columns));
	for (const h of p.heads) {
		const rgb = p.heads.length > 1 ? headColor(h, map.heads) : accent();
		for (let i = 0; i < map.rows; i++) {
			const from = (h * map.rows + i) * map.columns, row = all.subarray(from, from + map.columns), y = (i + .5) * step;
			for (const j of chosenKeys(p, row, i)) {
				const w = Math.min(1, row[j] * p.factors[i]), to = (j + .5) * step;
				c.strokeStyle = css(rgb, w || 0);
				c.lineWidth = 1 + 1.6 * (w || 0);
				c.beginPath();
				c.moveTo(2, y);
				c.bezierCurveTo(width * .4, y, width * .6, to, width - 2, to);
				c.stroke();
			}
		}
	}
	p.canvas.setAttribute("aria-label", "lines from each query token to the key tokens it attends to, " + p.title.textContent);
}

/* ---- matrix ---- */

function measureMatrix(p) {
	const map = p.map, labels = {q: [], k: []};
	for (let i = 0; i < map.rows; i++)
		labels.q.push(shorten(labelOf(map.queries, i), 12));
	for (let j = 0; j < map.columns; j++)
		labels.k.push(shorten(labelOf(map.keys, j), 12));
	const wide = (list) => Math.max(...list.map((s) => Array.from(s).length));
	const available = Math.max(200, p.plot.clientWidth - 2);
	let cell = fillHeight(map.rows, 26, 56), font, left, top, upright;
	for (; cell > 4; cell--) {
		font = Math.max(8, Math.min(14, cell * .72));
		left = wide(labels.q) * font * .64 + 12;
		if (left + cell * map.columns + 4 <= available)
			break;
	}
	upright = wide(labels.k) <= 1 && cell >= 10;
	top = (upright ? font * 1.3 : wide(labels.k) * font * .64) + 8;
	return {labels, cell, font, left: Math.ceil(left), top: Math.ceil(top), upright};
}

function buildMatrix(p) {
	p.canvas = make("canvas", {class: "matrix", role: "img"});
	p.canvas.addEventListener("pointermove", (e) => overCell(p, e));
	p.canvas.addEventListener("pointerleave", () => { tip.hidden = true; p.cell = p.over = null; drawPanel(p); });
	p.canvas.addEventListener("click", (e) => {
		const at = cellAt(p, e);
		if (at)
			togglePin(p, at.j < 0 ? {side: "q", i: at.i} : at.i < 0 ? {side: "k", i: at.j} : {side: "q", i: at.i});
	});
	const legend = make("div", {class: "legend"});
	p.legend = make("canvas", {"aria-hidden": "true"});
	p.legendTop = make("span");
	legend.append("0", p.legend, p.legendTop);
	p.plot.replaceChildren(p.canvas, legend);
}

function cellAt(p, e) {
	const m = p.measure, box = p.canvas.getBoundingClientRect();
	const j = Math.floor((e.clientX - box.left - m.left) / m.cell), i = Math.floor((e.clientY - box.top - m.top) / m.cell);
	if (i >= p.map.rows || j >= p.map.columns || (i < 0 && j < 0))
		return null;
	return {i: Math.max(i, -1), j: Math.max(j, -1)};
}

function overCell(p, e) {
	const at = cellAt(p, e), map = p.map;
	const cell = at && at.i >= 0 && at.j >= 0 ? at : null;
	if (JSON.stringify(cell) !== JSON.stringify(p.cell)) {
		p.cell = cell;
		p.over = !at ? null : at.i >= 0 ? {side: "q", i: at.i} : {side: "k", i: at.j};
		drawPanel(p);
	}
	tip.hidden = !cell;
	if (!cell) {
		hover(p, !at ? null : at.i >= 0 ? {side: "q", i: at.i} : {side: "k", i: at.j});
		return;
	}
	const n = map.rows * map.columns, k = at.i * map.columns + at.j, say = (w) => Number.isNaN(w) ? "not a number" : w.toFixed(4);
	tip.replaceChildren(make("bdi", {}, labelOf(map.queries, at.i)), " (" + positionOf(map, "q", at.i).at + ") → ",
		make("bdi", {}, labelOf(map.keys, at.j)), " (" + positionOf(map, "k", at.j).at + "): " + say(p.mean[k]));
	if (p.heads.length > 1)
		tip.append(make("div", {}, p.heads.map((h) => map.numbers[h] + ": " + say(weightsOf(map)[h * n + k])).join("  ")));
	const box = tip.getBoundingClientRect();
	tip.style.left = Math.max(4, Math.min(e.clientX + 14, innerWidth - box.width - 8)) + "px";
	tip.style.top = Math.max(4, e.clientY + 18 + box.height > innerHeight ? e.clientY - box.height - 10 : e.clientY + 18) + "px";
}

function drawLabels(p, c, ink, faint) {
	const m = p.measure, t = focusOf(p), every = Math.max(1, Math.ceil(9 / m.cell));
	c.font = m.font + "px ui-monospace, 'DejaVu Sans Mono', monospace";
	c.textBaseline = "middle";
	for (let i = 0; i < p.map.rows; i += every) {
		c.fillStyle = t && t.side === "q" && t.i === i ? ink : faint;
		c.textAlign = "right";
		c.fillText(m.labels.q[i], m.left - 6, m.top + (i + .5) * m.cell);
	}
	for (let j = 0; j < p.map.columns; j += every) {
		c.fillStyle = t && t.side === "k" && t.i === j ? ink : faint;
		c.save();
		c.translate(m.left + (j + .5) * m.cell, m.top - (m.upright ? m.font * .75 : 5));
		c.rotate(m.upright ? 0 : -Math.PI / 2);
		c.textAlign = m.upright ? "center" : "left";
		c.fillText(m.labels.k[j], 0, 0);
		c.restore();
	}
}

/* One pixel for each cell, scaled up without smoothing. */
function paintCells(p) {
	const map = p.map, canvas = make("canvas", {width: map.columns, height: map.rows}), c = canvas.getContext("2d");
	const image = c.createImageData(map.columns, map.rows);
	for (let i = 0; i < p.mean.length; i++)
		image.data.set([...rampColor((p.mean[i] || 0) * p.factors[Math.floor(i / map.columns)]), 255], 4 * i);
	c.putImageData(image, 0, 0);
	return canvas;
}

function drawCells(p, c, edge) {
	const m = p.measure, map = p.map, width = m.cell * map.columns, height = m.cell * map.rows;
	p.image = p.image || paintCells(p);
	c.imageSmoothingEnabled = false;
	c.drawImage(p.image, m.left, m.top, width, height);
	c.fillStyle = edge;
	for (let i = 1; m.cell >= 8 && i < map.rows; i++)
		c.fillRect(m.left, m.top + i * m.cell - .5, width, .5);
	for (let j = 1; m.cell >= 8 && j < map.columns; j++)
		c.fillRect(m.left + j * m.cell - .5, m.top, .5, height);
	c.strokeStyle = edge;
	c.lineWidth = 1;
	c.strokeRect(m.left - .5, m.top - .5, width + 1, height + 1);
	c.textAlign = "center";
	c.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--focus").trim();
	p.mean.forEach((w, i) => {
		if (Number.isNaN(w))
			c.fillText("×", m.left + (i % map.columns + .5) * m.cell, m.top + (Math.floor(i / map.columns) + .5) * m.cell);
	});
}

function drawMatrix(p) {
	const m = p.measure = measureMatrix(p), map = p.map, t = focusOf(p), style = getComputedStyle(document.documentElement);
	const color = (name) => style.getPropertyValue(name).trim();
	const width = m.left + m.cell * map.columns + 4, height = m.top + m.cell * map.rows + 4;
	const c = sizeCanvas(p.canvas, width, height);
	drawLabels(p, c, color("--ink"), color("--faint"));
	drawCells(p, c, color("--edge"));
	c.strokeStyle = color("--focus");
	c.lineWidth = 2;
	if (t && t.side === "q")
		c.strokeRect(m.left - 1, m.top + t.i * m.cell - 1, m.cell * map.columns + 1, m.cell + 1);
	if (t && t.side === "k")
		c.strokeRect(m.left + t.i * m.cell - 1, m.top - 1, m.cell + 1, m.cell * map.rows + 1);
	if (p.cell)
		c.strokeRect(m.left + p.cell.j * m.cell - 1, m.top + p.cell.i * m.cell - 1, m.cell + 1, m.cell + 1);
	const legend = sizeCanvas(p.legend, 160, 10);
	for (let x = 0; x < 160; x++) {
		legend.fillStyle = css(rampColor(x / 159));
		legend.fillRect(x, 0, 1, 10);
	}
	p.legendTop.textContent = state.stretch ? "the largest of its row" : "1";
	p.canvas.setAttribute("aria-label", "matrix of probabilities, one row for each query token, " + p.title.textContent);
}

/* ---- drawing ---- */

function drawPanel(p) {
	if (state.view === "lines") {
		drawLines(p);
		markTokens(p);
	} else {
		drawMatrix(p);
	}
	updateReadout(p);
}

const panelsShown = () => state.panels.slice(0, state.comparing ? 2 : 1);

function updatePanel(p) {
	const what = state.view + " " + data.maps.indexOf(p.map);
	p.title.textContent = stackTitles[p.map.stack] + ", " + nameOf(p.map) + ", " + headsText(p);
	p.title.title = p.map.path;
	p.mean = meanOf(p.map, p.heads);
	p.factors = rowFactors(p);
	p.image = null;
	updateChips(p);
	if (p.built !== what) {
		p.cell = null;
		(state.view === "lines" ? buildLines : buildMatrix)(p);
	}
	p.built = what;
}

function render() {
	tip.hidden = true;
	if (!state.comparing)
		state.active = 0;
	document.body.classList.toggle("comparing", state.comparing);
	const boxes = panelsShown().map((p) => p.box);
	if ($("panels").children.length !== boxes.length)
		$("panels").replaceChildren(...boxes);
	markPressed($("stacks"), state.panels[state.active].map.stack);
	markPressed($("views"), state.view);
	$("compare").setAttribute("aria-pressed", String(state.comparing));
	$("stretch").setAttribute("aria-pressed", String(state.stretch));
	updateMarks();
	updatePicker();
	panelsShown().forEach(updatePanel);
	panelsShown().forEach(drawPanel);
	writeAddress();
}

function hover(p, t) {
	const name = (x) => x ? x.side + x.i : "";
	const changed = name(focusOf(p)) !== name(t || p.pin);
	p.over = t;
	if (changed)
		drawPanel(p);
}

function togglePin(p, t) {
	p.pin = p.pin && t && p.pin.side === t.side && p.pin.i === t.i ? null : t;
	drawPanel(p);
	writeAddress();
}

/* ---- keys ---- */

const cycle = (list, at, by) => list[(at + by + list.length) % list.length];

function moveHead(by) {
	const p = state.panels[state.active], from = by > 0 ? p.heads[p.heads.length - 1] : p.heads[0];
	select(p, p.map, [(from + by + p.map.heads) % p.map.heads]);
}

function moveLayer(by) {
	const p = state.panels[state.active], maps = mapsOf(p.map.stack);
	select(p, cycle(maps, maps.indexOf(p.map), by), p.heads);
}

function moveToken(by) {
	const p = state.panels[state.active], side = p.pin ? p.pin.side : "q", n = side === "q" ? p.map.rows : p.map.columns;
	p.pin = {side, i: p.pin ? (p.pin.i + by + n) % n : by > 0 ? 0 : n - 1};
	p.over = null;
	drawPanel(p);
	writeAddress();
}

function toggleAll(p) {
	const all = Array.from({length: p.map.heads}, (_, h) => h);
	select(p, p.map, p.heads.length === p.map.heads ? [0] : all);
}

function toggleCompare() {
	state.comparing = !state.comparing;
	state.active = state.comparing ? 1 : 0;
	render();
}

function toggleStretch() {
	state.stretch = !state.stretch;
	render();
}

const keys = {
	ArrowLeft: () => moveHead(-1), ArrowRight: () => moveHead(1), ArrowUp: () => moveLayer(-1), ArrowDown: () => moveLayer(1),
	v: () => chooseView(state.view === "lines" ? "matrix" : "lines"), c: toggleCompare, s: toggleStretch, a: () => toggleAll(state.panels[state.active]),
	x: () => activate(state.comparing ? 1 - state.active : 0), j: () => moveToken(1), k: () => moveToken(-1),
	t: () => chooseStack(cycle(stacks, stacks.indexOf(state.panels[state.active].map.stack), 1)),
	Escape: () => { tip.hidden = true; state.panels.forEach((p) => { p.pin = p.over = null; }); render(); },
};

document.addEventListener("keydown", (e) => {
	const key = keys[e.key];
	if (!key || e.ctrlKey || e.altKey || e.metaKey)
		return;
	e.preventDefault();
	key();
});

/* ---- start ---- */

function summaryText() {
	const tokens = data.sequences.map((s) => s.ids.length + " " + (s.name === "tokens" ? "tokens" : s.name + " tokens")).join(", ");
	const parts = stacks.map((s) => stackTitles[s] + ": " + mapsOf(s).length + " × " + mapsOf(s)[0].heads + " heads");
	return tokens + " · " + parts.join(" · ");
}

document.body.append(tip);
$("summary").textContent = summaryText();
$("left-out").textContent = data.left_out;
$("left-out").hidden = !data.left_out;
buildChoices($("stacks"), stacks, stackTitles, "", chooseStack);
buildChoices($("views"), ["lines", "matrix"], {lines: "Lines", matrix: "Matrix"}, "", chooseView);
$("compare").addEventListener("click", toggleCompare);
$("stretch").addEventListener("click", toggleStretch);
state.panels.forEach(buildPanel);
readAddress();
render();
buildThemes(() => { pickerStack = null; render(); });
addEventListener("resize", () => panelsShown().forEach((p) => {
	p.built = null;
	updatePanel(p);
	drawPanel(p);
}));
addEventListener("hashchange", () => { readAddress(); render(); });
