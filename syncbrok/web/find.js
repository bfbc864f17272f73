// What a reader typed into the search: an id, the name of a queue, a key or an idempotency key.

import { get, Problem } from "./api.js";
import { h } from "./dom.js";
import { messageLink, moment, pill, queueLink, tableOf } from "./format.js";

const ID = /^[0-9a-f]{8}-?[0-9a-f]{4}-?8[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$/i;

export const every_ms = 0;
export const title = (route) => `Search: ${route.query.get("text") ?? ""}`;

/** Where a text leads at once, without asking the broker; null where it must be looked for. */
export function direct(text) {
  if (!ID.test(text)) return null;
  const digits = text.toLowerCase().replaceAll("-", "");
  const parts = [digits.slice(0, 8), digits.slice(8, 12), digits.slice(12, 16), digits.slice(16, 20), digits.slice(20)];
  return `#/messages/${parts.join("-")}`;
}

export async function load(route, signal) {
  const text = route.query.get("text") ?? "";
  const word = encodeURIComponent(text);
  const after = Number(route.query.get("after") ?? 0);
  const [queue, byKey, byIdempotency, byText] = await Promise.all([
    get(`/v1/queues/${word}`, signal).catch(missing),
    get(`/v1/messages?key=${word}&limit=50`, signal),
    get(`/v1/messages?idempotency_key=${word}&limit=50`, signal),
    get(`/v1/messages?text=${word}&limit=50&after=${after}`, signal).catch(missing),
  ]);
  return { text, queue, messages: [...byKey.messages, ...byIdempotency.messages], containing: byText ?? { messages: [], next: null } };
}

function missing(error) {
  if (error instanceof Problem) return null;
  throw error;
}

export function draw({ text, queue, messages, containing }) {
  return h(
    "div",
    { class: "page" },
    h("p", { class: "crumbs" }, h("a", { href: "#/" }, "Overview"), " / Search"),
    h("h1", null, `“${text}”`),
    queue && h("p", { class: "notice" }, "There is a queue of this name: ", queueLink(queue.name)),
    h("section", { class: "card" }, h("h2", null, "Messages with this key"), listed(messages)),
    h(
      "section",
      { class: "card" },
      h("h2", null, "Messages that contain it, newest first"),
      listed(containing.messages),
      containing.next &&
        h("p", null, h("a", { href: `#/find?text=${encodeURIComponent(text)}&after=${containing.next}` }, "Look further back")),
    ),
  );
}

function listed(messages) {
  const heads = [{ name: "Message" }, { name: "Queue" }, { name: "State" }, { name: "Accepted" }, { name: "Key" }, { name: "Idempotency key" }];
  const rows = messages.map((one) => ({
    key: one.id,
    cells: [messageLink(one.id, true), queueLink(one.queue), pill(one.state), moment(one.accepted_at), one.key ?? "", one.idempotency_key ?? ""],
  }));
  return tableOf("Messages found", heads, rows, "None.");
}
