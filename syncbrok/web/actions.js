// Who did what: the actions that the log names somebody for, found by person, kind, queue and time.

import { get, Problem } from "./api.js";
import { h } from "./dom.js";
import { messageLink, number, queueLink, tableOf } from "./format.js";
import { field, pages, seek } from "./lists.js";
import { stamp } from "./timeline.js";

const PAGE = 50;
const LOOK_MS = 4_000;
const NAMES = ["by", "action", "queue", "since", "until", "order"];
const WORDS = {
  queue_set: "declared or changed a queue",
  queue_deleted: "deleted a queue",
  subscriber_set: "declared or changed a subscriber",
  subscriber_deleted: "deleted a subscriber",
  erased: "erased content",
  cancel: "cancelled a message",
  purge: "purged a queue",
  cancel_job: "cancelled a job",
  replay: "replayed",
  recover: "recovered a subscriber",
  seek: "moved a subscriber on",
  drop_dead_letters: "dropped dead letters",
  erase: "began to erase",
};
const HEADS = [{ name: "When" }, { name: "Who" }, { name: "What" }, { name: "Queue" }, { name: "About" }];

export const title = "Who did what";
export const every_ms = 0;

/** A page. An answer may be short though more follow: then it is asked again, for a few seconds. */
export async function load(route, signal) {
  const query = new URLSearchParams();
  for (const name of NAMES) if (route.query.get(name)) query.set(name, route.query.get(name));
  const end = performance.now() + LOOK_MS;
  const actions = [];
  let next = route.query.get("after");
  do {
    query.set("limit", PAGE - actions.length);
    if (next) query.set("after", next);
    try {
      const page = await get(`/v1/actions?${query}`, signal);
      actions.push(...page.actions);
      next = page.next;
    } catch (error) {
      if (error instanceof Problem && [400, 403].includes(error.status)) return { actions, next: null, problem: error };
      throw error;
    }
  } while (next !== null && actions.length < PAGE && performance.now() < end);
  return { actions, next };
}

export function draw(found, route) {
  const rows = found.actions.map((one) => ({
    key: String(one.sequence),
    cells: [stamp(one.time), one.by ?? "somebody else", WORDS[one.action] ?? one.action.replaceAll("_", " "), one.queue ? queueLink(one.queue) : "", about(one)],
  }));
  const nothing = found.next === null ? "Nobody has done anything of the kind, as far as the log goes back." : "Nothing in this stretch of the log: the next page goes on from there.";
  return h(
    "div",
    { class: "page" },
    h("p", { class: "crumbs" }, h("a", { href: "#/" }, "Overview"), " / Who did what"),
    h("h1", null, "Who did what"),
    h(
      "section",
      { class: "card" },
      seek(route, "Actions", [
        field(route, "by", "Who", { hint: "name of a token, local or file" }),
        field(route, "action", "What", { choices: ["", ...Object.keys(WORDS)] }),
        field(route, "queue", "Queue"),
        field(route, "since", "From", { type: "datetime-local" }),
        field(route, "until", "Before", { type: "datetime-local" }),
        field(route, "order", "Order", { choices: ["desc", "asc"] }),
      ]),
    ),
    h("section", { class: "card" }, h("h2", null, route.query.get("order") === "asc" ? "Oldest first" : "Newest first"), found.problem ? h("p", { class: "notice bad", role: "alert" }, found.problem.message) : tableOf("Actions", HEADS, rows, nothing), pages(route, "after", found.next)),
  );
}

function about(one) {
  return [
    one.subscriber && h("b", null, one.subscriber),
    one.message && [" ", messageLink(one.message)],
    one.messages > 1 && ` and ${number(one.messages - 1)} more`,
    one.job && [" ", h("a", { href: "#/jobs" }, one.job)],
  ];
}
