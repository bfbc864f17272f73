// Finding messages: by an id as it is shown, a key, a text, and by where and how they stand.

import { get, Problem } from "./api.js";
import { h } from "./dom.js";
import { messageLink, moment, pill, queueLink, tableOf } from "./format.js";
import { field, pages, seek } from "./lists.js";

const ID = /^[0-9a-f]{8}-?[0-9a-f]{4}-?8[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$/i;
const PAGE = 50;
const LOOK_MS = 4_000;
const NAMES = ["text", "queue", "subscriber", "state", "reason", "key", "since", "until", "order"];
const STATES = ["", "scheduled", "waiting", "held", "pending", "complete", "dead", "expired", "dropped", "blocked", "in_flight", "retrying", "paused", "delivered", "skipped"];

export const every_ms = 0;
export const title = (route) => `Search: ${words(route.query)}`;

const words = (query) => NAMES.filter((name) => query.get(name)).map((name) => (name === "text" ? query.get(name) : `${name} ${query.get(name)}`)).join(", ");

/** Where a text leads at once, without asking the broker; null where it must be looked for. */
export function direct(text) {
  if (!ID.test(text)) return null;
  const digits = text.toLowerCase().replaceAll("-", "");
  const parts = [digits.slice(0, 8), digits.slice(8, 12), digits.slice(12, 16), digits.slice(16, 20), digits.slice(20)];
  return `#/messages/${parts.join("-")}`;
}

export async function load(route, signal) {
  const asked = new URLSearchParams();
  for (const name of NAMES) if (route.query.get(name)) asked.set(name, route.query.get(name));
  const text = (asked.get("text") ?? "").replace(/^…/, ""); // an id as the page shows it
  if (text) asked.set("text", text);
  const alone = text && asked.size === 1 && !route.query.has("after");
  const word = encodeURIComponent(text);
  const [queue, named, byKey, byIdempotency, found] = await Promise.all([
    alone && get(`/v1/queues/${word}`, signal).catch(missing),
    alone && get(`/v1/queues?text=${word}&limit=10`, signal).catch(missing),
    alone && get(`/v1/messages?key=${word}&limit=${PAGE}`, signal),
    alone && get(`/v1/messages?idempotency_key=${word}&limit=${PAGE}`, signal),
    asked.size ? search(asked, route.query.get("after"), signal) : null,
  ]);
  return { text, alone, queue, named, keyed: alone ? [...byKey.messages, ...byIdempotency.messages] : [], found };
}

/** A page of messages. An answer may be short though more follow: then it is asked again, for a few seconds. */
export async function search(asked, after, signal, limit = PAGE) {
  const query = new URLSearchParams(asked);
  const until = performance.now() + LOOK_MS;
  const messages = [];
  let next = after;
  do {
    query.set("limit", limit - messages.length);
    if (next) query.set("after", next);
    const page = await get(`/v1/messages?${query}`, signal).catch(refused);
    if (page.problem) return { messages, next: null, problem: page.problem };
    messages.push(...page.messages);
    next = page.next;
  } while (next !== null && messages.length < limit && performance.now() < until);
  return { messages, next };
}

function missing(error) {
  if (error instanceof Problem) return null;
  throw error;
}

/** What the broker says against a question; other failures are those of the whole page. */
function refused(error) {
  if (error instanceof Problem && [400, 403, 404].includes(error.status)) return { problem: error };
  throw error;
}

export function draw({ text, alone, queue, named, keyed, found }, route) {
  const others = (named?.queues ?? []).filter((one) => one.name !== queue?.name);
  return h(
    "div",
    { class: "page" },
    h("p", { class: "crumbs" }, h("a", { href: "#/" }, "Overview"), " / Search"),
    h("h1", null, alone ? `“${text}”` : "Search messages"),
    queue && h("p", { class: "notice" }, "There is a queue of this name: ", queueLink(queue.name)),
    others.length > 0 && h("p", { class: "notice" }, "Queues with this in the name: ", others.map((one) => [queueLink(one.name), " "]), named.next && h("a", { href: `#/queues?text=${encodeURIComponent(text)}` }, "and more")),
    h("section", { class: "card" }, form(route)),
    alone && h("section", { class: "card" }, h("h2", null, "Messages with this key"), listed(keyed, "None.")),
    found && foundSection(found, route, alone),
  );
}

function form(route) {
  return seek(route, "Messages", [
    field(route, "text", "Text, or part of an id", { type: "search" }),
    field(route, "queue", "Queue"),
    field(route, "subscriber", "Subscriber"),
    field(route, "state", "State", { choices: STATES }),
    field(route, "reason", "Reason", { hint: "status, timeout, connect …" }),
    field(route, "key", "Key"),
    field(route, "since", "From", { type: "datetime-local" }),
    field(route, "until", "Before", { type: "datetime-local" }),
    field(route, "order", "Order", { choices: ["desc", "asc"] }),
  ]);
}

function foundSection(found, route, alone) {
  const order = route.query.get("order") === "asc" ? "oldest first" : "newest first";
  const nothing = found.next === null ? "None." : "None in this stretch of the log: the next page goes on from there.";
  return h(
    "section",
    { class: "card" },
    h("h2", null, alone ? `Messages that contain it, ${order}` : `Messages, ${order}`),
    found.problem ? h("p", { class: "notice bad", role: "alert" }, found.problem.message) : listed(found.messages, nothing),
    pages(route, "after", found.next),
  );
}

function listed(messages, nothing) {
  const heads = [{ name: "Message" }, { name: "Queue" }, { name: "State" }, { name: "Accepted" }, { name: "Key" }, { name: "Idempotency key" }];
  const rows = messages.map((one) => ({
    key: one.id,
    cells: [messageLink(one.id, true), queueLink(one.queue), pill(one.state), moment(one.accepted_at), one.key ?? "", one.idempotency_key ?? ""],
  }));
  return tableOf("Messages found", heads, rows, nothing);
}
