// The rows a reader has ticked, by list (what it is of, a blank, its queue), and the bar of what can be done with them.

import { h } from "./dom.js";
import { number } from "./format.js";
import { may } from "./session.js";

/** Ids by the name of the list; it is emptied when another view is opened. */
const picked = new Map();

const ids = (list) => picked.get(list) ?? new Set();
export const pickedIn = (list) => [...ids(list)];
export const forgetPicked = () => picked.clear();

/** The box of a row, for a reader who may do something with it. */
export const box = (list, id, words) => may("admin", list.slice(list.indexOf(" ") + 1)) && h("input", { type: "checkbox", "data-pick": id, "data-list": list, checked: ids(list).has(id), "aria-label": words });

/** The box above the boxes: all of this page, or none. */
export function boxForAll(list, all) {
  const every = all.length > 0 && all.every((id) => ids(list).has(id));
  return h("label", { class: "pick-all" }, h("input", { type: "checkbox", "data-pick-all": all.join(" "), "data-list": list, checked: every }), " all on this page");
}

/** The bar above a table: the box for all, how many are ticked, and `buttons(attributes)` while any are. */
export function selectionBar(list, all, buttons) {
  const count = ids(list).size;
  if (!all.length || !may("admin", list.slice(list.indexOf(" ") + 1))) return null;
  return h("p", { class: "selection", "data-count": String(count) }, boxForAll(list, [...new Set(all)]), h("span", { class: "quiet", role: "status" }, count ? `${number(count)} selected` : ""), count > 0 && buttons({ "data-list": list }));
}

/** Note what a box says. */
export function picks(control) {
  const { list, pick, pickAll } = control.dataset;
  if (!list) return false;
  const set = ids(list);
  for (const id of pick ? [pick] : pickAll.split(" ")) {
    if (control.checked) set.add(id);
    else set.delete(id);
  }
  picked.set(list, set);
  return true;
}
