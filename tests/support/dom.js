// SPDX-License-Identifier: Apache-2.0
// A page of the command without a browser: what its script makes, and what it listens to.
const fs = require("fs"), vm = require("vm");

// Runs the script of a page behind its data; expose: statements that make names of it members of `page`.
module.exports = function (file, expose) {
	const scripts = [...fs.readFileSync(file, "utf8").matchAll(/<script([^>]*)>([^]*?)<\/script>/g)].map((s) => s[2]);
	const elements = {}, made = [], listeners = {};
	function element(tag) {
		const e = {
			tag, attributes: {}, own: {}, children: [], dataset: {}, clientWidth: 900, textContent: "", classes: new Set(),
			classList: {
				add(name) { e.classes.add(name); }, remove(name) { e.classes.delete(name); },
				toggle(name, on) { e.classes[on ? "add" : "delete"](name); },
			},
			setAttribute(name, value) { e.attributes[name] = value; if (name.startsWith("data-")) e.dataset[name.slice(5)] = value; },
			removeAttribute(name) { delete e.attributes[name]; },
			append(...items) { e.children.push(...items); }, replaceChildren(...items) { e.children = items; },
			addEventListener(type, f) { e.own[type] = f; }, focus() { page.focused = e; },
		};
		made.push(e);
		return e;
	}
	const page = {
		document: {getElementById: (id) => elements[id] = elements[id] || (id === "data" ? {textContent: scripts[0]} : element(id)),
			createElement: element, createElementNS: (_, tag) => element(tag)},
		matchMedia: () => ({matches: false, addEventListener() {}}), addEventListener: (type, f) => { listeners[type] = f; },
	};
	vm.runInNewContext(scripts[1] + "\n" + expose, page);
	return {page, elements, made, listeners};
};
