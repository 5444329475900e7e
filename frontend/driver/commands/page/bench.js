// SPDX-License-Identifier: Apache-2.0
//
// The page of `tfmc bench --html`: groups in the roofline (Williams, Waterman, Patterson 2009) over operations for each
// byte of weights, and as a table. A point and a row of one group are chosen together.
const data = JSON.parse($("data").textContent);
const LEFT = 56, RIGHT = 12, TOP = 14, BOTTOM = 34, STRIP = 56;

const number = (x, places) => x.toFixed(places);
const timeText = (ms) => ms < 1 ? number(ms * 1e3, 1) + " µs" : number(ms, ms < 100 ? 2 : 0) + " ms";
const percent = (x) => (100 * x).toFixed(x < .0995 ? 1 : 0) + " %";
const groups = data.groups.map((g, order) => {
	const gflops = g.ms > 0 ? g.flops / g.ms * 1e-6 : 0, gbs = g.ms > 0 ? g.weight_bytes / g.ms * 1e-6 : 0;
	return {...g, order, gflops, gbs, layer: g.title || g.group || "group " + order, share: 0,
		part: Math.max(g.peak_gflops > 0 ? gflops / g.peak_gflops : 0, data.peak_gbs > 0 ? gbs / data.peak_gbs : 0),
		busy: g.ms > 0 ? g.busy_ms / g.ms / data.threads : 0,
		intensity: g.weight_bytes > 0 ? g.flops / g.weight_bytes : Infinity};
});
const total = groups.reduce((sum, g) => sum + g.ms, 0);
groups.forEach((g) => { g.share = total > 0 ? g.ms / total : 0; });
const state = {chosen: null, sort: "order", down: false, colors: "kernel"};

/* ---- what is chosen ---- */

function lines(g) {
	const out = [g.layer, [g.kernel, g.line].filter((t) => t).join(", ")];
	out.push(timeText(g.ms) + " in " + g.times + (g.times === 1 ? " execution, " : " executions, ") + percent(g.share) + " of the whole" +
		(data.threads > 1 ? ", workers busy " + percent(g.busy) : ""));
	if (g.flops > 0 || g.weight_bytes > 0)
		out.push(number(g.gflops, 1) + " GFLOP/s, " + number(g.gbs, 1) + " GB/s of weights, " + percent(g.part) + " of the nearer roof");
	return out.filter((t) => t);
}

/* from: "point" or "row", which takes the focus; "": neither. */
function choose(g, from) {
	for (const other of groups)
		for (const e of [other.point, other.row]) {
			if (!e)
				continue;
			e.classList.toggle("chosen", other === g);
			e.setAttribute("tabindex", other === g ? "0" : "-1");
		}
	if (!g.point && points.length)
		points[0].point.setAttribute("tabindex", "0");
	state.chosen = g;
	$("readout").replaceChildren(...lines(g).map((text, k) => make(k ? "p" : "strong", {}, text)));
	const e = from && g[from];
	if (e)
		e.focus();
}

function listen(g, kind, list, previous, next) {
	const e = g[kind], step = (d) => list()[(list().indexOf(g) + d + list().length) % list().length];
	const largest = () => list().reduce((best, other) => other.share > best.share ? other : best);
	e.addEventListener("click", () => choose(g, kind));
	e.addEventListener("keydown", (event) => {
		const keys = {[previous]: () => step(-1), [next]: () => step(1), Home: () => kind === "row" ? list()[0] : largest(), Enter: () => g};
		if (!keys[event.key] || event.ctrlKey || event.altKey || event.metaKey)
			return;
		event.preventDefault();
		choose(keys[event.key](), kind);
	});
}

/* ---- the roofline ---- */

let points = [];
const kernelOf = (g) => (g.kernel || "unknown").split(" ")[0];
/* The path up to the first number of iterations, or its first two components. */
const layerOf = (g) => g.layer.split(" ")[0].split(".").slice(0, 2).join(".");

function powers(from, to) {
	const out = [];
	for (let e = Math.ceil(Math.log10(from)); e <= Math.log10(to); e++)
		out.push(Math.pow(10, e));
	return out;
}

function drawRoofline() {
	const box = $("roofline"), width = Math.max(280, box.clientWidth), height = Math.max(260, Math.min(560, width * .55));
	const peaks = Object.entries(data.peaks), top = Math.max(...peaks.map((p) => p[1]), 1e-3), gbs = data.peak_gbs;
	const worked = groups.filter((g) => g.flops > 0 && g.ms > 0), whole = {gflops: data.gflops, intensity: data.flops / data.weight_bytes};
	/* A few bytes are not enough to measure the rate of memory: then it has no roof. */
	const finite = [...worked.map((g) => g.intensity), whole.intensity, top / gbs].filter((x) => x > 0 && isFinite(x));
	const rates = [...worked.map((g) => g.gflops), data.gflops, top].filter((y) => y > 0);
	const [x0, x1, y0, y1] = [Math.min(...finite, 1e6) / 3, Math.max(...finite, 1e-6) * 4, Math.min(...rates) / 3, Math.max(...rates) * 2];
	const strip = worked.some((g) => !isFinite(g.intensity)) ? STRIP : 0, right = width - RIGHT - strip;
	const scale = (v, from, to, a, b) => a + (b - a) * (Math.log(v) - Math.log(from)) / (Math.log(to) - Math.log(from));
	const xOf = (x) => isFinite(x) ? scale(x, x0, x1, LEFT, right) : right + strip / 2, yOf = (y) => scale(y, y0, y1, height - BOTTOM, TOP);
	const svg = addShape({append() {}}, "svg", {width, height, viewBox: "0 0 " + width + " " + height, role: "group", "aria-label": "roofline"});
	const colors = colorer(), keyOf = state.colors === "kernel" ? kernelOf : layerOf, seen = new Map();
	if (strip) {
		addShape(svg, "rect", {class: "strip", x: right, y: TOP, width: strip, height: height - TOP - BOTTOM});
		addShape(svg, "text", {x: right + strip / 2, y: height - BOTTOM + 14, "text-anchor": "middle", class: "faint"}, "no weights");
	}
	for (const x of powers(x0, x1)) {
		addShape(svg, "line", {class: "grid", x1: xOf(x), x2: xOf(x), y1: TOP, y2: height - BOTTOM});
		if (!strip || xOf(x) < right - 24)
			addShape(svg, "text", {x: xOf(x), y: height - BOTTOM + 14, "text-anchor": "middle", class: "faint"}, String(Number(x.toPrecision(3))));
	}
	for (const y of powers(y0, y1)) {
		addShape(svg, "line", {class: "grid", x1: LEFT, x2: width - RIGHT, y1: yOf(y), y2: yOf(y)});
		addShape(svg, "text", {x: LEFT - 6, y: yOf(y) + 4, "text-anchor": "end", class: "faint"}, String(Number(y.toPrecision(3))));
	}
	addShape(svg, "text", {x: (LEFT + right) / 2, y: height - 6, "text-anchor": "middle", class: "faint"}, "operations for each byte of weights");
	addShape(svg, "text", {x: 4, y: TOP - 3, class: "faint"}, "GFLOP/s");
	if (gbs > 0) {
		const low = Math.max(x0, y0 / gbs), high = top / gbs, at = Math.sqrt(low * high);
		addShape(svg, "line", {class: "roof memory", x1: xOf(low), y1: yOf(gbs * low), x2: xOf(high), y2: yOf(top)});
		addShape(svg, "text", {x: xOf(at) + 8, y: yOf(gbs * at) + 14}, number(gbs, 1) + " GB/s");
	}
	for (const [name, peak] of peaks) {
		addShape(svg, "line", {class: "roof", x1: xOf(gbs > 0 ? peak / gbs : x0), y1: yOf(peak), x2: width - RIGHT, y2: yOf(peak)});
		addShape(svg, "text", {x: width - RIGHT - 4, y: yOf(peak) - 5, "text-anchor": "end"}, name + " " + number(peak, 1) + " GFLOP/s");
	}
	if (whole.gflops > 0 && whole.intensity > 0)
		addShape(svg, "circle", {class: "whole", cx: xOf(whole.intensity), cy: yOf(whole.gflops), r: 18});
	groups.forEach((g) => { g.point = null; });
	/* Small ones on top of large ones. */
	for (const g of [...worked].sort((a, b) => b.share - a.share)) {
		g.point = addShape(svg, "circle", {cx: xOf(g.intensity), cy: yOf(g.gflops), r: 4 + 14 * Math.sqrt(g.share), role: "button",
			"aria-label": lines(g).join(", "), style: "fill: " + colors(keyOf(g))});
		seen.set(keyOf(g), colors(keyOf(g)));
		g.point.addEventListener("pointerenter", () => choose(g, ""));
		listen(g, "point", () => points, "ArrowLeft", "ArrowRight");
	}
	points = worked.sort((a, b) => a.intensity - b.intensity || a.gflops - b.gflops || a.order - b.order);
	box.replaceChildren(svg);
	$("keys").replaceChildren(...[...seen].map(([name, color]) => {
		const item = make("span");
		item.append(make("i", {style: "background: " + color}), make("span", {}, name));
		return item;
	}));
}

/* ---- the table ---- */

const columns = [
	["order", "#", (g) => String(g.order + 1)], ["layer", "Layer", (g) => g.layer], ["kernel", "Kernel", (g) => g.kernel || ""], ["line", "Line", (g) => g.line || ""],
	["ms", "Time, µs", (g) => number(g.ms * 1e3, 1)], ["share", "Of all", (g) => percent(g.share)], ["times", "Times", (g) => String(g.times)],
	["gflops", "GFLOP/s", (g) => g.flops > 0 ? number(g.gflops, 1) : ""], ["gbs", "GB/s", (g) => g.weight_bytes > 0 ? number(g.gbs, 1) : ""],
	["part", "Of roof", (g) => g.part > 0 ? percent(g.part) : ""], ...(data.threads > 1 ? [["busy", "Busy", (g) => percent(g.busy)]] : []),
];
const isText = (key) => key === "layer" || key === "kernel" || key === "line";
/* Lines of one file by their numbers. */
const collator = new Intl.Collator("en", {numeric: true});

function sorted() {
	const key = state.sort, sign = state.down ? -1 : 1;
	const compare = (a, b) => isText(key) ? collator.compare(a[key] || "", b[key] || "") : a[key] - b[key];
	return [...groups].sort((a, b) => sign * compare(a, b) || a.order - b.order);
}

let rows = [];

function drawRows() {
	rows = sorted();
	$("rows").replaceChildren(...rows.map((g) => g.row));
	for (const cell of $("head").children) {
		if (cell.dataset.key === state.sort)
			cell.setAttribute("aria-sort", state.down ? "descending" : "ascending");
		else
			cell.removeAttribute("aria-sort");
	}
}

function sortBy(key) {
	state.down = state.sort === key ? !state.down : !isText(key) && key !== "order";
	state.sort = key;
	drawRows();
}

function buildTable() {
	$("head").replaceChildren(...columns.map(([key, title]) => {
		const cell = make("th", {scope: "col", "data-key": key, class: isText(key) ? "" : "number"}), button = make("button", {}, title);
		button.addEventListener("click", () => sortBy(key));
		cell.append(button);
		return cell;
	}));
	for (const g of groups) {
		g.row = make("tr", {});
		for (const [key, , text] of columns) {
			const cell = make("td", {class: isText(key) ? "" : "number"}, text(g));
			if (key === "share") {
				const meter = make("span", {class: "meter", "aria-hidden": "true"});
				meter.append(make("i", {style: "width: " + (100 * g.share).toFixed(1) + "%"}));
				cell.replaceChildren(meter, make("span", {}, text(g)));
			}
			g.row.append(cell);
		}
		listen(g, "row", () => rows, "ArrowUp", "ArrowDown");
	}
	$("table-title").textContent = groups.length + " groups, " + timeText(total);
	drawRows();
}

/* ---- start ---- */

function draw() {
	drawRoofline();
	choose(state.chosen || groups.reduce((best, g) => g.share > best.share ? g : best), "");
}

const dims = Object.entries(data.dims).map(([name, value]) => name + "=" + value).join(", ");
$("summary").textContent = [data.entry + (dims ? " at " + dims : ""), data.target, data.threads + (data.threads === 1 ? " thread" : " threads"),
	data.calls + " calls", "min " + timeText(data.min_ms) + ", median " + timeText(data.median_ms)].join(" · ");
buildChoices($("colors"), ["kernel", "layer"], {kernel: "Kernel", layer: "Layer"}, state.colors, (name) => {
	state.colors = name;
	markPressed($("colors"), name);
	draw();
});
buildThemes(() => {});
buildTable();
if (groups.length) {
	draw();
	addEventListener("resize", draw);
} else {
	$("readout").replaceChildren(make("p", {class: "faint"}, "There is none."));
}
