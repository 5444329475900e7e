// SPDX-License-Identifier: Apache-2.0
//
// What the scripts of all pages share: elements, groups of buttons, pictures with marks to choose, light and dark. Text of models is set as text,
// never as markup.
"use strict";
const $ = (id) => document.getElementById(id);

function make(tag, attributes, text) {
	const e = document.createElement(tag);
	for (const [name, value] of Object.entries(attributes || {}))
		e.setAttribute(name, value);
	if (text !== undefined)
		e.textContent = text;
	return e;
}

function buildChoices(box, names, titles, chosen, choose) {
	box.replaceChildren(...names.map((name) => {
		const b = make("button", {"aria-pressed": String(name === chosen), "data-name": name}, titles[name]);
		b.addEventListener("click", () => choose(name));
		return b;
	}));
}

function markPressed(box, chosen) {
	for (const b of box.children)
		b.setAttribute("aria-pressed", String(b.dataset.name === chosen));
}

/* ---- pictures ---- */

function sizeText(bytes) {
	let unit = 0;
	for (; bytes >= 1024 && unit < 4; unit++)
		bytes /= 1024;
	return (unit ? bytes.toFixed(1) : bytes) + " " + ["bytes", "KiB", "MiB", "GiB", "TiB"][unit];
}

/* Appends an element of SVG; numbers of attributes have one place. */
function addShape(parent, tag, attributes, text) {
	const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
	for (const [name, value] of Object.entries(attributes))
		e.setAttribute(name, typeof value === "number" ? value.toFixed(1) : value);
	if (text !== undefined)
		e.textContent = text;
	parent.append(e);
	return e;
}

/* A color for each key, in order of appearance. */
function colorer() {
	const seen = new Map();
	return (key) => {
		if (!seen.has(key))
			seen.set(key, seen.size % 8);
		return "var(--c" + seen.get(key) + ")";
	};
}

/* Makes rectangles one stop of Tab, chosen by pointer and arrows; lines() is what the readout says of one. */
function choosable(readout, marks) {
	let at = -1;
	const choose = (i, focuses) => {
		if (at >= 0) {
			marks[at].element.classList.remove("chosen");
			marks[at].element.setAttribute("tabindex", "-1");
		}
		at = i;
		marks[at].element.classList.add("chosen");
		marks[at].element.setAttribute("tabindex", "0");
		readout.replaceChildren(...marks[at].lines().map((text, k) => make(k ? "p" : "strong", {}, text)));
		if (focuses)
			marks[at].element.focus();
	};
	const largest = () => marks.reduce((best, m, i) => m.size > marks[best].size ? i : best, 0);
	const keys = {ArrowRight: () => (at + 1) % marks.length, ArrowLeft: () => (at + marks.length - 1) % marks.length, Home: largest};
	marks.forEach((m, i) => {
		m.element.setAttribute("tabindex", "-1");
		m.element.setAttribute("role", "button");
		m.element.setAttribute("aria-label", m.lines().join(", "));
		m.element.addEventListener("pointerenter", () => choose(i, false));
		m.element.addEventListener("click", () => choose(i, true));
		m.element.addEventListener("keydown", (e) => {
			if (!keys[e.key] || e.ctrlKey || e.altKey || e.metaKey)
				return;
			e.preventDefault();
			choose(keys[e.key](), true);
		});
	});
	if (marks.length)
		choose(largest(), false);
	else
		readout.replaceChildren(make("p", {class: "faint"}, "There is none."));
}

/* ---- light and dark ---- */

const darkQuery = matchMedia("(prefers-color-scheme: dark)");
const themeMedia = {system: "(prefers-color-scheme: dark)", light: "not all", dark: "all"};

function isDark() {
	const media = $("dark").media;
	return media === themeMedia.system ? darkQuery.matches : media === themeMedia.dark;
}

/* The switch; changed() draws again what style sheets do not color. */
function buildThemes(changed) {
	const choose = (name) => {
		$("dark").media = themeMedia[name];
		markPressed($("themes"), name);
		changed();
	};
	buildChoices($("themes"), ["system", "light", "dark"], {system: "System", light: "Light", dark: "Dark"}, "system", choose);
	darkQuery.addEventListener("change", changed);
}
