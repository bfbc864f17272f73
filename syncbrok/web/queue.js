// One queue: its settings and figures, its subscribers, its dead letters, its messages.

import { get } from "./api.js";
import { chartsSection, loadHistory } from "./charts.js";
import { h } from "./dom.js";
import { search } from "./find.js";
import { because, compact, messageLink, moment, number, pill, sentence, tableOf } from "./format.js";
import { address, pages } from "./lists.js";
import { box, selectionBar } from "./selection.js";
import { may } from "./session.js";
import { loadSubscribers, subscribersTable } from "./subscribers.js";

const STATES = ["", "waiting", "held", "pending", "scheduled", "complete", "dead", "expired", "dropped"];
const PAGE = 25;
const LETTERS = 25;
const SUBSCRIBERS = 25;

export const every_ms = 3_000;
export const title = (route) => route.name;

const here = (queue) => `#/queues/${encodeURIComponent(queue.name)}`;
const path = (name) => `/v1/queues/${encodeURIComponent(name)}`;

const lettersOrder = (route) => (route.query.get("letters.order") === "asc" ? "asc" : "desc");

export async function load(route, signal) {
  const state = route.query.get("state") ?? "";
  const order = route.query.get("order") === "asc" ? "asc" : "desc";
  const sought = new URLSearchParams({ queue: route.name, order, ...(state && { state }) });
  const queue = await get(path(route.name), signal);
  const [subscribers, letters, messages] = await Promise.all([
    loadSubscribers(route.name, { limit: SUBSCRIBERS }, signal),
    get(`${path(route.name)}/dead-letters?limit=${LETTERS}&order=${lettersOrder(route)}&after=${Number(route.query.get("letters") ?? 0)}`, signal),
    search(sought, route.query.get("from"), signal, PAGE),
  ]);
  return { queue, subscribers, letters, messages, state, order, minutes: await loadHistory(queue.name, signal) };
}

export function draw(found, route) {
  const { queue } = found;
  const figures = queue.statistics;
  return h(
    "div",
    { class: "page" },
    h("p", { class: "crumbs" }, h("a", { href: "#/" }, "Overview"), " / ", h("a", { href: "#/queues" }, "Queues"), " / ", queue.name),
    h("div", { class: "head" }, h("h1", null, queue.name), may("publish", queue.name) && h("button", { type: "button", "data-do": "publish", "data-queue": queue.name }, "Publish a test message…")),
    h(
      "p",
      { class: "facts" },
      fact("completion scope", queue.scope),
      fact("when a parent fails", queue.parent_failure),
      fact("timeout", queue.timeout),
      fact("in flight at most", queue.window),
      fact("backlog at most", queue.max_backlog ? backlogBound(queue.max_backlog) : "any"),
      fact("kept after the end", queue.retention ?? "as the log"),
      fact("content erased after", queue.erase_after ?? "never"),
      fact("changed last by", figures.changed_by ?? undefined),
      fact("retries", Array.isArray(queue.retry) ? queue.retry.join(", ") : JSON.stringify(queue.retry)),
    ),
    h(
      "section",
      { class: "tiles small", "aria-label": "Figures" },
      [
        ["Waiting", figures.waiting],
        ...(queue.max_backlog && figures.backlog.bytes !== null ? [["Bytes waiting", figures.backlog.bytes]] : []),
        ["Dead letters", figures.dead_letters],
        ["Accepted", figures.accepted],
        ["Delivered", figures.delivered],
        ["Failed attempts", figures.failed],
      ].map(([name, value]) => h("div", { class: "tile" }, h("p", { class: "name" }, name), h("p", { class: "value", title: number(value) }, compact(value)))),
    ),
    subscribersSection(found),
    lettersSection(found, route),
    messagesSection(found, route),
    chartsSection(found.minutes),
  );
}

const backlogBound = (bound) =>
  [bound.messages && `${number(bound.messages)} messages`, bound.bytes && `${number(bound.bytes)} bytes`]
    .filter(Boolean)
    .join(", ");

const fact = (name, value) => value !== undefined && h("span", null, `${name}: `, h("b", null, String(value)));

function subscribersSection({ queue, subscribers }) {
  return h(
    "section",
    { class: "card" },
    h("div", { class: "head" }, h("h2", null, "Subscribers"), subscribers.next !== null && h("a", { href: `${here(queue)}/subscribers` }, "All subscribers, and search")),
    subscribersTable(queue.name, subscribers.subscribers, "Nobody has subscribed: messages are complete as soon as they are accepted."),
    subscribers.next !== null && h("p", { class: "pages" }, h("a", { href: `${here(queue)}/subscribers` }, `The first ${subscribers.subscribers.length} by name; all of them`)),
  );
}

function lettersSection({ queue, letters }, route) {
  const list = `letters ${queue.name}`;
  const heads = [{ name: "Select" }, { name: "Message" }, { name: "Subscriber" }, { name: "Why" }, { name: "Attempts", figure: true }, { name: "When" }, { name: "" }];
  const rows = letters.dead_letters.map((letter) => ({
    key: `${letter.sequence}/${letter.subscriber}`,
    cells: [
      letter.id ? box(list, letter.id, `Select message ${letter.id}`) : "",
      letter.id ? messageLink(letter.id) : `sequence ${letter.sequence}`,
      letter.subscriber,
      [because(letter.reason, letter.status), letter.detail && h("span", { class: "quiet detail" }, letter.detail)],
      number(letter.attempts),
      moment(letter.time),
      letter.id && letterButtons(queue.name, letter),
    ],
  }));
  const tab = (order, words) => h("a", { href: address(route, { "letters.order": order === "desc" ? null : order, letters: null, "letters.before": null }), "aria-current": order === lettersOrder(route) ? "page" : null }, words);
  const here = letters.dead_letters.map((letter) => letter.id).filter(Boolean);
  return h(
    "section",
    { class: "card", id: "dead-letters" },
    h(
      "div",
      { class: "head" },
      h("h2", null, "Dead letters"),
      rows.length > 0 && may("admin", queue.name) && [
        h("button", { type: "button", "data-do": "replay", "data-path": `${path(queue.name)}/dead-letters/replay`, "data-name": `all dead letters of ${queue.name}` }, "Replay all…"),
        h("button", { type: "button", class: "danger", "data-do": "drop", "data-queue": queue.name, "data-name": `all dead letters of ${queue.name}` }, "Drop all…"),
      ],
    ),
    letters.dead_letters.length > 0 && h("nav", { class: "tabs", "aria-label": "Order of the dead letters" }, tab("desc", "newest first"), tab("asc", "oldest first"), h("a", { href: `#/find?queue=${encodeURIComponent(queue.name)}&state=dead` }, "search …")),
    selectionBar(list, here, (which) => [
      h("button", { type: "button", class: "small", "data-do": "replaySelected", "data-queue": queue.name, ...which }, "Replay selected…"),
      h("button", { type: "button", class: "small danger", "data-do": "dropSelected", "data-queue": queue.name, ...which }, "Drop selected…"),
    ]),
    tableOf("Dead letters", heads, rows, "None."),
    pages(route, "letters", letters.next),
  );
}

function letterButtons(queue, letter) {
  if (!may("admin", queue)) return "";
  const about = { "data-subscriber": letter.subscriber, "data-name": `message ${letter.id}`, class: "small", type: "button" };
  return [
    h("button", { ...about, "data-do": "replay", "data-path": `/v1/messages/${letter.id}/replay` }, "Replay…"),
    " ",
    h("button", { ...about, class: "small danger", "data-do": "drop", "data-queue": queue, "data-id": letter.id, "data-name": `the dead letter of ${letter.subscriber}` }, "Drop…"),
  ];
}

function messagesSection({ queue, messages, state, order }, route) {
  const list = `messages ${queue.name}`;
  const heads = [{ name: "Select" }, { name: "Message" }, { name: "State" }, { name: "Accepted" }, { name: "Parents", figure: true }, { name: "Key" }, { name: "What it waits for" }];
  const rows = messages.messages.map((message) => ({
    key: message.id,
    cells: [box(list, message.id, `Select message ${message.id}`), messageLink(message.id), pill(message.state), moment(message.accepted_at), number(message.parents.length), message.key ?? "", message.waits_for ? h("span", { class: "why" }, sentence(message.waits_for)) : ""],
  }));
  const tab = (changes, current, words) => h("a", { href: address(route, { from: null, "from.before": null, ...changes }), "aria-current": current ? "page" : null }, words);
  const tabs = [
    tab({ order: null }, order === "desc", "newest first"),
    tab({ order: "asc" }, order === "asc", "oldest first"),
    ...STATES.map((one) => tab({ state: one || null }, one === state, one || "all states")),
    h("a", { href: `#/find?queue=${encodeURIComponent(queue.name)}` }, "search …"),
  ];
  return h(
    "section",
    { class: "card", id: "messages" },
    h("h2", null, "Messages"),
    h("nav", { class: "tabs", "aria-label": "Which messages" }, tabs),
    selectionBar(list, messages.messages.map((one) => one.id), (which) => [
      h("button", { type: "button", class: "small", "data-do": "retrySelected", ...which }, "Retry selected…"),
      h("button", { type: "button", class: "small", "data-do": "replaySelected", "data-queue": queue.name, ...which }, "Replay selected…"),
      h("button", { type: "button", class: "small danger", "data-do": "cancelSelected", "data-queue": queue.name, ...which }, "Cancel selected…"),
    ]),
    messages.problem ? h("p", { class: "notice bad", role: "alert" }, messages.problem.message) : tableOf("Messages", heads, rows, messages.next !== null ? "None in this stretch of the log." : "None."),
    pages(route, "from", messages.next),
  );
}
