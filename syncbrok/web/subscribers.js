// Subscribers of a queue: the table that its page begins with, and all of them, page by page.

import { get } from "./api.js";
import { h } from "./dom.js";
import { batchLine, because, breakerLine, changedLine, compact, disabledLine, moment, number, pill, queueLink, signedLine, tableOf } from "./format.js";
import { field, pages, seek } from "./lists.js";
import { may } from "./session.js";

const PAGE = 50;
const HEADS = [{ name: "Subscriber" }, { name: "State" }, { name: "Backlog", figure: true }, { name: "In flight", figure: true }, { name: "In retry", figure: true }, { name: "Delivered", figure: true }, { name: "Last answer" }, { name: "" }];

export const every_ms = 3_000;
export const title = (route) => `Subscribers of ${route.name}`;

const path = (queue) => `/v1/queues/${encodeURIComponent(queue)}/subscribers`;

/** A page of them: those behind `after` with `text` in their name. */
export function loadSubscribers(queue, { limit, after, text }, signal) {
  const query = new URLSearchParams({ limit });
  if (after) query.set("after", after);
  if (text) query.set("text", text);
  return get(`${path(queue)}?${query}`, signal);
}

export function load(route, signal) {
  return loadSubscribers(route.name, { limit: PAGE, after: route.query.get("after"), text: route.query.get("text") }, signal);
}

export function draw(found, route) {
  return h(
    "div",
    { class: "page" },
    h("p", { class: "crumbs" }, h("a", { href: "#/" }, "Overview"), " / ", queueLink(route.name), " / Subscribers"),
    h("h1", null, `Subscribers of ${route.name}`),
    h(
      "section",
      { class: "card" },
      seek(route, "Subscribers by name", [field(route, "text", "Part of the name", { type: "search" })]),
      subscribersTable(route.name, found.subscribers, route.query.get("text") ? "No subscriber has this in its name." : "Nobody has subscribed."),
      pages(route, "after", found.next),
    ),
  );
}

export function subscribersTable(queue, subscribers, nothing) {
  return tableOf("Subscribers", HEADS, subscribers.map((one) => ({ key: one.id, cells: cells(queue, one) })), nothing);
}

function cells(queue, one) {
  const figures = one.statistics;
  const failing = one.state === "active" && figures.failing_since;
  return [
    [h("b", null, one.id), h("br"), h("span", { class: "quiet" }, one.counts ? one.endpoint : `${one.endpoint} (does not count: no message waits for it)`), signedLine(one), batchLine(one), changedLine(one)],
    [pill(failing ? "failing" : one.state), breakerLine(figures), disabledLine(one)],
    compact(figures.backlog),
    number(figures.in_flight),
    compact(figures.retrying),
    compact(figures.delivered),
    figures.last_attempt_at ? [because(figures.last_reason, figures.last_status), ", ", moment(figures.last_attempt_at)] : "not tried yet",
    buttons(queue, one),
  ];
}

function buttons(queue, one) {
  if (!may("admin", queue)) return "";
  const active = one.state === "active";
  return [active && one.statistics.retrying > 0 && tryButton(queue, one, "retry", "Retry now"), " ", switchButton(queue, one, active ? "pause" : "resume", active ? "Pause" : "Resume")];
}

/** A button that has something sent to the subscriber at once: `retry` or `probe`. */
export function tryButton(queue, one, what, words) {
  return h("button", { type: "button", class: "small", "data-do": what, "data-path": `${path(queue)}/${encodeURIComponent(one.id)}/retry`, "data-name": one.id }, words);
}

/** A button that stops the subscriber or lets it go on: `pause` or `resume`. */
export function switchButton(queue, one, what, words) {
  return h("button", { type: "button", class: "small", "data-do": what, "data-queue": queue, "data-subscriber": one.id }, words);
}
