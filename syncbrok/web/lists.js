// Pages of a list, forwards and back, and the form that says what a list is about. Both live in the address: a page can
// be linked to, and the browser's own way back works.

import { h } from "./dom.js";

const TRAIL_MAX = 50;

/** The address of the same view with other words in its query; null takes one away. */
export function address(route, changes) {
  const query = new URLSearchParams(route.query);
  for (const [name, value] of Object.entries(changes)) {
    query.delete(name);
    for (const one of [value].flat()) if (one !== null && one !== "" && one !== undefined) query.append(name, one);
  }
  const text = query.toString();
  return `#${route.path}${text && `?${text}`}`;
}

/**
 * Links to the first, the previous and the next page, by the `name` of the query that says behind what one begins. The
 * beginnings of the pages before stand in the address, since a list is read in one direction.
 */
export function pages(route, name, next) {
  const trail = `${name}.before`;
  const here = route.query.get(name);
  const before = route.query.getAll(trail);
  if (here === null && next === null) return null;
  const link = (changes, words) => h("a", { href: address(route, changes) }, words);
  return h(
    "nav",
    { class: "pages", "aria-label": "Pages" },
    here !== null && link({ [name]: null, [trail]: null }, "« first"),
    here !== null && before.length > 0 && link({ [name]: before.at(-1) || null, [trail]: before.slice(0, -1) }, "‹ previous"),
    next !== null && link({ [name]: String(next), [trail]: [...before, here ?? ""].slice(-TRAIL_MAX) }, "next ›"),
  );
}

/** A form whose fields go into the query of this view (`app.js` does that); what pages there were begins anew. */
export function seek(route, label, fields, action = "Search") {
  return h(
    "form",
    { "data-form": "seek", "data-path": route.path, "data-key": `seek ${route.query}`, class: "seek", role: "search", "aria-label": label },
    fields,
    h("button", { class: "primary" }, action),
  );
}

/** A field of such a form: a text, or one of `choices`. */
export function field(route, name, label, { choices = null, hint = "", type = "text" } = {}) {
  const value = route.query.get(name) ?? "";
  const shown = type === "datetime-local" ? localTime(value) : value;
  const id = `seek-${name}`;
  const control = choices
    ? h("select", { id, name }, choices.map((one) => h("option", { value: one, selected: one === value }, one ? one.replaceAll("_", " ") : "any")))
    : h("input", { id, name, type, value: shown, placeholder: hint, autocomplete: "off", spellcheck: "false", step: type === "datetime-local" && "1" });
  return h("p", { class: "field" }, h("label", { for: id }, label), control);
}

/** What a form of `seek` says, as an address. Times of the reader's own zone become those that the broker takes. */
export function sought(form) {
  const query = new URLSearchParams();
  for (const control of form.elements) {
    if (!control.name || !control.value.trim()) continue;
    query.set(control.name, control.type === "datetime-local" ? new Date(control.value).toISOString() : control.value.trim());
  }
  const text = query.toString();
  return `#${form.dataset.path}${text && `?${text}`}`;
}

/** An RFC 3339 time as an input of the reader's own zone has it. */
function localTime(text) {
  const at = Date.parse(text);
  if (Number.isNaN(at)) return "";
  return new Date(at - new Date(at).getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}
