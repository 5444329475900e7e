// SPDX-License-Identifier: Apache-2.0
//
// What the scripts of all pages share: elements, groups of buttons, light and dark. Text of models is set as text,
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
