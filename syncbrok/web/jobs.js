// Jobs: what operators have asked for that goes on by itself, how far it is, and who asked.

import { get } from "./api.js";
import { h } from "./dom.js";
import { moment, number, pill, queueLink, tableOf } from "./format.js";
import { pages } from "./lists.js";
import { may } from "./session.js";

const PAGE = 50;
const HEADS = [{ name: "Job" }, { name: "State" }, { name: "Queue" }, { name: "Progress" }, { name: "By" }, { name: "Begun" }, { name: "" }];
const OVER = new Set(["done", "cancelled", "failed"]);

export const title = "Jobs";
export const every_ms = 2_000;

export async function load(route, signal) {
  const query = new URLSearchParams({ limit: PAGE });
  if (route.query.get("after")) query.set("after", route.query.get("after"));
  return get(`/v1/jobs?${query}`, signal);
}

export function draw(found, route) {
  const rows = found.jobs.map((job) => ({
    key: job.id,
    cells: [
      [h("b", null, job.id), h("br"), h("span", { class: "quiet" }, job.kind.replaceAll("_", " "), job.subscriber && ` at ${job.subscriber}`, job.why && `: ${job.why}`)],
      pill(job.state),
      queueLink(job.queue),
      [h("progress", { max: Math.max(1, job.total), value: job.done + job.failed, "aria-label": `Job ${job.id}` }), ` ${number(job.done)} of ${number(job.total)}`, job.failed > 0 && h("span", { class: "bad" }, `, ${number(job.failed)} failed`)],
      job.by ?? "",
      moment(job.created_at),
      !OVER.has(job.state) && may("admin", job.queue) ? h("button", { type: "button", class: "small danger", "data-do": "cancelJob", "data-id": job.id }, "Cancel…") : "",
    ],
  }));
  return h(
    "div",
    { class: "page" },
    h("p", { class: "crumbs" }, h("a", { href: "#/" }, "Overview"), " / Jobs"),
    h("h1", null, "Jobs"),
    h("section", { class: "card" }, tableOf("Jobs", HEADS, rows, "Nobody has asked for anything in seven days."), pages(route, "after", found.next)),
  );
}
