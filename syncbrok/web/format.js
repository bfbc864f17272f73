// Figures, times and states as people read them.

import { h } from "./dom.js";

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const ID = /[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}/g;

export const number = (value) => whole.format(value);
export const compact = (value) => (value < 10_000 ? whole.format(value) : short.format(value));

export function rate(value) {
  if (value === null || value === undefined) return "–";
  return value >= 100 ? compact(Math.round(value)) : value >= 10 ? value.toFixed(0) : value.toFixed(value ? 1 : 0);
}

export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (value >= 1024 && at < units.length - 1) [value, at] = [value / 1024, at + 1];
  return `${at && value < 10 ? value.toFixed(1) : Math.round(value)} ${units[at]}`;
}

/** A duration in seconds, in its two largest units. */
export function duration(seconds) {
  if (seconds < 1) return "under 1 s";
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3_600)} h ${Math.floor((seconds % 3_600) / 60)} min`;
  return `${Math.floor(seconds / 86_400)} d ${Math.floor((seconds % 86_400) / 3_600)} h`;
}

/** Seconds from one RFC 3339 time to another. */
export const between = (from, to) => Math.max(0, (Date.parse(to) - Date.parse(from)) / 1_000);

/** A moment: how long ago or ahead, the exact time on hovering. */
export function moment(text, now = new Date().toISOString()) {
  if (!text) return "–";
  const seconds = (Date.parse(now) - Date.parse(text)) / 1_000;
  const words = seconds >= 0 ? `${duration(seconds)} ago` : `in ${duration(-seconds)}`;
  return h("time", { datetime: text, title: text }, words);
}

export function clock(text) {
  return h("time", { datetime: text, title: text }, text.slice(11, 23));
}

export const tail = (id) => `…${id.slice(-8)}`;
export const messageLink = (id, whole_ = false) =>
  h("a", { href: `#/messages/${id}`, class: "id", title: id }, whole_ ? id : tail(id));
export const queueLink = (name) => h("a", { href: `#/queues/${encodeURIComponent(name)}` }, name);

/** A sentence of the broker's, the message ids in it as links. */
export function sentence(text) {
  const parts = [];
  let from = 0;
  for (const found of text.matchAll(ID)) {
    parts.push(text.slice(from, found.index), messageLink(found[0]));
    from = found.index + found[0].length;
  }
  return [...parts, text.slice(from)];
}

/** Why an attempt failed or a delivery ended, in words. */
export function because(reason, status) {
  if (reason === "status" || reason === "gone") return `answered ${status ?? 410}`;
  return reason ? reason.replaceAll("_", " ") : status ? `answered ${status}` : "";
}

export const pill = (state) => h("span", { class: `pill is-${state.replace(/[^a-z]/g, "-")}` }, state.replaceAll("_", " "));

/** When an open breaker probes next: at its time, or where that is over, as each message waits for its own, then. */
export const nextProbe = (figures) => (Date.parse(figures.next_probe_at) > Date.now() ? ["the next probe, ", moment(figures.next_probe_at)] : "the next probe, which is the first message that is due");

/** Why nothing is tried at a subscriber though it is active: its circuit breaker is not closed. */
export const breakerLine = (figures) =>
  figures.breaker !== "closed" &&
  h("p", { class: "why" }, figures.breaker === "open" ? ["breaker open: nothing is tried before ", nextProbe(figures)] : "breaker probing: few are tried at once");

/** By what its deliveries are signed, where that is more than a secret or something else. */
export const signedLine = (one) => {
  const others = (one.signatures ?? []).filter((each) => each.scheme !== "v1");
  const names = others.map((each) => (each.scheme === "v1a" ? `v1a by ${each.public_key}` : `in ${each.header}`));
  return names.length > 0 && h("p", { class: "quiet" }, `signed ${names.join(", ")}`);
};

/** How many messages one request to a subscriber has, where that may be several. */
export const batchLine = (one) =>
  one.batch && h("p", { class: "quiet" }, `up to ${one.batch.max} messages a request, the first waits ${one.batch.wait}`);

/** Who declared or changed a subscriber last, as far as the page's token may know. */
export const changedLine = (one) => one.statistics.changed_by && h("p", { class: "quiet" }, `changed last by ${one.statistics.changed_by}`);

/** Why a subscriber is disabled. */
export const disabledLine = (one) =>
  one.disabled_reason &&
  h("p", { class: "why" }, one.disabled_reason === "gone" ? "its endpoint answered 410, " : `everything has failed for ${one.disable_after}, disabled `, moment(one.disabled_at));

/** A table; on a narrow screen each row becomes a card, labelled by `heads`. */
export function tableOf(caption, heads, rows, empty) {
  if (!rows.length) return h("p", { class: "empty" }, empty);
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table",
      null,
      h("caption", { class: "hidden" }, caption),
      h("thead", null, h("tr", null, heads.map((head) => h("th", { scope: "col", class: head.figure && "figure" }, head.name)))),
      h("tbody", null, rows.map(({ key, cells }) => h("tr", { "data-key": key }, cells.map((cell, at) => h("td", { "data-label": heads[at].name, class: heads[at].figure && "figure" }, cell !== "" && h("div", null, cell)))))),
    ),
  );
}

/** What is no escape stands for itself: an address typed by hand must not end the page. */
export function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
