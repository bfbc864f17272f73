// One queue: its settings and figures, its subscribers, its dead letters, its messages.

import { get } from "./api.js";
import { h } from "./dom.js";
import { batchLine, because, breakerLine, changedLine, compact, disabledLine, messageLink, moment, number, pill, sentence, signedLine, tableOf } from "./format.js";

const STATES = ["", "waiting", "held", "pending", "scheduled", "complete", "dead", "expired", "dropped"];
const PAGE = 25;
const LETTERS = 10;
const STRETCHES = [300, 3_000, 30_000];

/** Which of `STRETCHES` held enough, by queue. */
const stretch = new Map();

export const every_ms = 3_000;
export const title = (route) => route.name;

const path = (name) => `/v1/queues/${encodeURIComponent(name)}`;

export async function load(route, signal) {
  const state = route.query.get("state") ?? "";
  const from = route.query.get("from");
  const queue = await get(path(route.name), signal);
  const newest = !state && from === null;
  const filter = state ? `&state=${state}` : "";
  const [subscribers, letters, messages] = await Promise.all([
    get(`${path(route.name)}/subscribers?limit=100`, signal),
    get(`${path(route.name)}/dead-letters?limit=${LETTERS}&after=${Number(route.query.get("letters") ?? 0)}`, signal),
    newest ? newestOf(queue, signal) : get(`${path(route.name)}/messages?after=${Number(from ?? 0)}&limit=${PAGE}${filter}`, signal),
  ]);
  return { queue, subscribers, letters, messages, state, newest };
}

/**
 * The newest messages, newest first. Lists are read forwards and sequences count all queues together, so a stretch
 * before the last one is read, a longer one where it held too few. What sufficed is tried first the next time.
 */
async function newestOf(queue, signal) {
  let found = { messages: [], next: null };
  for (let at = stretch.get(queue.name) ?? 0; at < STRETCHES.length; at += 1) {
    const after = Math.max(0, queue.statistics.last_sequence - STRETCHES[at]);
    const longer = await get(`${path(queue.name)}/messages?after=${after}&limit=${STRETCHES[0]}`, signal);
    if (longer.next !== null && found.messages.length) break; // too many: the newest are not among them
    found = longer;
    stretch.set(queue.name, longer.next === null ? at : 0);
    if (found.messages.length >= PAGE || after === 0) break;
  }
  return { messages: found.messages.slice(-PAGE).reverse(), next: null };
}

export function draw(found, route) {
  const { queue } = found;
  const figures = queue.statistics;
  return h(
    "div",
    { class: "page" },
    h("p", { class: "crumbs" }, h("a", { href: "#/" }, "Overview"), " / Queue"),
    h("h1", null, queue.name),
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
  );
}

const backlogBound = (bound) =>
  [bound.messages && `${number(bound.messages)} messages`, bound.bytes && `${number(bound.bytes)} bytes`]
    .filter(Boolean)
    .join(", ");

const fact = (name, value) => value !== undefined && h("span", null, `${name}: `, h("b", null, String(value)));

function subscribersSection({ queue, subscribers }) {
  const heads = [{ name: "Subscriber" }, { name: "State" }, { name: "Backlog", figure: true }, { name: "In flight", figure: true }, { name: "In retry", figure: true }, { name: "Delivered", figure: true }, { name: "Last answer" }, { name: "" }];
  const rows = subscribers.subscribers.map((one) => {
    const figures = one.statistics;
    const failing = one.state === "active" && figures.failing_since;
    return {
      key: one.id,
      cells: [
        [h("b", null, one.id), h("br"), h("span", { class: "quiet" }, one.counts ? one.endpoint : `${one.endpoint} (does not count: no message waits for it)`), signedLine(one), batchLine(one), changedLine(one)],
        [pill(failing ? "failing" : one.state), breakerLine(figures), disabledLine(one)],
        compact(figures.backlog),
        number(figures.in_flight),
        compact(figures.retrying),
        compact(figures.delivered),
        figures.last_attempt_at ? [because(figures.last_reason, figures.last_status), ", ", moment(figures.last_attempt_at)] : "not tried yet",
        [
          one.state === "active" && figures.retrying > 0 && h("button", { type: "button", class: "small", "data-do": "retry", "data-path": `${path(queue.name)}/subscribers/${encodeURIComponent(one.id)}/retry`, "data-name": one.id }, "Retry now"),
          " ",
          h("button", { type: "button", class: "small", "data-do": one.state === "active" ? "pause" : "resume", "data-queue": queue.name, "data-subscriber": one.id }, one.state === "active" ? "Pause" : "Resume"),
        ],
      ],
    };
  });
  return h("section", { class: "card" }, h("h2", null, "Subscribers"), tableOf("Subscribers", heads, rows, "Nobody has subscribed: messages are complete as soon as they are accepted."));
}

function lettersSection({ queue, letters }, route) {
  const heads = [{ name: "Message" }, { name: "Subscriber" }, { name: "Why" }, { name: "Attempts", figure: true }, { name: "When" }, { name: "" }];
  const rows = letters.dead_letters.map((letter) => ({
    key: `${letter.sequence}/${letter.subscriber}`,
    cells: [
      letter.id ? messageLink(letter.id) : `sequence ${letter.sequence}`,
      letter.subscriber,
      [because(letter.reason, letter.status), letter.detail && h("span", { class: "quiet detail" }, letter.detail)],
      number(letter.attempts),
      moment(letter.time),
      letter.id && h("button", { type: "button", class: "small", "data-do": "replay", "data-path": `/v1/messages/${letter.id}/replay`, "data-subscriber": letter.subscriber, "data-name": `message ${letter.id}` }, "Replay…"),
    ],
  }));
  return h(
    "section",
    { class: "card" },
    h(
      "div",
      { class: "head" },
      h("h2", null, "Dead letters"),
      rows.length > 0 && h("button", { type: "button", "data-do": "replay", "data-path": `${path(queue.name)}/dead-letters/replay`, "data-name": `all dead letters of ${queue.name}` }, "Replay all…"),
    ),
    tableOf("Dead letters", heads, rows, "None."),
    pages(route, "letters", letters.next),
  );
}

function messagesSection({ queue, messages, state, newest }, route) {
  const heads = [{ name: "Message" }, { name: "State" }, { name: "Accepted" }, { name: "Parents", figure: true }, { name: "Key" }, { name: "What it waits for" }];
  const rows = messages.messages.map((message) => ({
    key: message.id,
    cells: [messageLink(message.id), pill(message.state), moment(message.accepted_at), number(message.parents.length), message.key ?? "", message.waits_for ? h("span", { class: "why" }, sentence(message.waits_for)) : ""],
  }));
  const here = `#/queues/${encodeURIComponent(queue.name)}`;
  const tabs = STATES.map((one) => h("a", { href: one ? `${here}?state=${one}` : here, "aria-current": one === state && (one || newest) ? "page" : null }, one || "newest"));
  tabs.splice(1, 0, h("a", { href: `${here}?from=0`, "aria-current": !state && !newest ? "page" : null }, "from the oldest"));
  return h(
    "section",
    { class: "card" },
    h("h2", null, "Messages"),
    h("nav", { class: "tabs", "aria-label": "Which messages" }, tabs),
    tableOf("Messages", heads, rows, messages.next ? "None in this stretch of the log." : "None."),
    !newest && pages(route, "from", messages.next),
  );
}

/** Links to the first and the next page, by the `name` of the query that says where one begins. */
function pages(route, name, next) {
  const link = (value, text) => {
    const query = new URLSearchParams(route.query);
    if (value === null) query.delete(name);
    else query.set(name, value);
    return h("a", { href: `#/queues/${encodeURIComponent(route.name)}?${query}` }, text);
  };
  const begun = Number(route.query.get(name) ?? 0) > 0;
  if (!begun && next === null) return null;
  return h("p", { class: "pages" }, begun && link(name === "from" ? "0" : null, "« first"), next !== null && link(String(next), "next »"));
}
