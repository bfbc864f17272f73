// All queues, page by page, found by a part of the name.

import { get } from "./api.js";
import { h } from "./dom.js";
import { compact, messageLink, number, queueLink, tableOf } from "./format.js";
import { field, pages, seek } from "./lists.js";

const PAGE = 50;
const HEADS = [{ name: "Queue" }, { name: "Waiting", figure: true }, { name: "Oldest waiting" }, { name: "Dead letters", figure: true }, { name: "Accepted", figure: true }, { name: "Delivered", figure: true }, { name: "Subscribers", figure: true }];

export const title = "Queues";
export const every_ms = 5_000;

export async function load(route, signal) {
  const query = new URLSearchParams({ limit: PAGE });
  for (const name of ["text", "after"]) if (route.query.get(name)) query.set(name, route.query.get(name));
  return get(`/v1/queues?${query}`, signal);
}

export function draw(found, route) {
  const rows = found.queues.map(({ name, statistics: figures }) => ({
    key: name,
    cells: [
      queueLink(name),
      compact(figures.waiting),
      figures.oldest_waiting ? messageLink(figures.oldest_waiting) : "",
      figures.dead_letters ? h("span", { class: "bad" }, compact(figures.dead_letters)) : "0",
      compact(figures.accepted),
      compact(figures.delivered),
      number(figures.subscribers),
    ],
  }));
  const nothing = route.query.get("text") ? "No queue has this in its name." : "There is no queue yet. Declare one in queues.yml, or with POST /v1/queues.";
  return h(
    "div",
    { class: "page" },
    h("p", { class: "crumbs" }, h("a", { href: "#/" }, "Overview"), " / Queues"),
    h("h1", null, "Queues"),
    h(
      "section",
      { class: "card" },
      seek(route, "Queues by name", [field(route, "text", "Part of the name", { type: "search" })]),
      tableOf("Queues", HEADS, rows, nothing),
      pages(route, "after", found.next),
    ),
  );
}
