// One message: where it stands, why it waits, every attempt, and its causal tree.

import { content, get } from "./api.js";
import { readable } from "./content.js";
import { h } from "./dom.js";
import { because, bytes, duration, messageLink, moment, number, pill, queueLink, sentence, tableOf } from "./format.js";
import { may } from "./session.js";
import { stamp, timeLine } from "./timeline.js";
import { drawTree, NODES_MAX } from "./tree.js";

const OPEN = new Set(["scheduled", "waiting", "held", "pending"]);

/** Contents the reader has asked to see, by message id. */
const shown = new Map();

export const every_ms = 3_000;
export const title = (route) => `Message ${route.id.slice(-8)}`;

export async function load(route, signal) {
  const base = `/v1/messages/${route.id}`;
  const [message, path, up, down] = await Promise.all([
    get(base, signal),
    get(`${base}/critical-path`, signal),
    get(`${base}/tree?direction=up&depth=6`, signal),
    get(`${base}/tree?direction=down&depth=6`, signal),
  ]);
  return { message, path, up, down };
}

export function draw({ message, path, up, down }) {
  const open = OPEN.has(message.state);
  return h(
    "div",
    { class: "page" },
    h("p", { class: "crumbs" }, h("a", { href: "#/" }, "Overview"), " / ", queueLink(message.queue), " / Message"),
    h("div", { class: "head" }, h("h1", { class: "id" }, message.id), pill(message.state)),
    message.waits_for && h("p", { class: "notice waits" }, /^(waits|is) /.test(message.waits_for) ? "It " : "Its ", sentence(message.waits_for), "."),
    may("admin", message.queue) && h(
      "p",
      { class: "actions" },
      h("button", { type: "button", "data-do": "replay", "data-path": `/v1/messages/${message.id}/replay`, "data-name": `message ${message.id}` }, "Replay…"),
      open && h("button", { type: "button", class: "danger", "data-do": "cancel", "data-id": message.id }, "Cancel…"),
    ),
    h("div", { class: "columns even" }, deliveriesSection(message), factsSection(message)),
    treeSection(message, path, up, down),
    pathSection(message, path),
  );
}

function deliveriesSection(message) {
  return h(
    "section",
    { class: "card" },
    h("h2", null, "Deliveries"),
    message.deliveries.length
      ? h("ul", { class: "deliveries" }, message.deliveries.map((one) => delivery(message, one)))
      : h("p", { class: "empty" }, "Nobody was subscribed when it was accepted: it was complete at once."),
  );
}

function delivery(message, one) {
  const { id, queue } = message;
  const heads = [{ name: "Attempt", figure: true }, { name: "At" }, { name: "Outcome" }, { name: "Answer" }, { name: "Took", figure: true }, { name: "" }];
  const rows = one.attempts.map((attempt, at) => ({
    key: `${at}`,
    cells: [attempt.attempt || "–", stamp(attempt.time), pill(attempt.outcome), [because(attempt.reason, attempt.status) || "–", attempt.detail && h("span", { class: "quiet detail" }, attempt.detail)], attempt.attempt ? `${attempt.latency_ms} ms` : "", attempt.attempt && /^https?:/.test(one.endpoint) ? h("button", { type: "button", class: "small", "data-do": "request", "data-id": id, "data-subscriber": one.subscriber, "data-at": String(at) }, "Request…") : ""],
  }));
  return h(
    "li",
    { "data-key": one.subscriber },
    h(
      "p",
      { class: "line" },
      pill(one.state),
      h("b", null, one.subscriber),
      one.reason && h("span", { class: "bad" }, because(one.reason, one.attempts.at(-1)?.status)),
      one.next_attempt_at && h("span", { class: "age" }, "next attempt ", moment(one.next_attempt_at)),
      one.state === "retrying" && may("admin", queue) && h("button", { type: "button", class: "small", "data-do": "retry", "data-path": `/v1/messages/${id}/retry`, "data-subscriber": one.subscriber, "data-name": one.subscriber }, "Retry now"),
      !one.counted && h("span", { class: "age" }, "not counted: subscribed later"),
    ),
    h("p", { class: "why" }, one.endpoint || "deleted since"),
    rows.length > 0 && timeLine(message, one),
    rows.length > 0 && tableOf(`Attempts at ${one.subscriber}`, heads, rows, ""),
  );
}

function factsSection(message) {
  const entries = [
    ["Accepted", [stamp(message.accepted_at), moment(message.accepted_at)]],
    ["Queue", queueLink(message.queue)],
    ["Sequence", number(message.sequence)],
    ["Parents", message.parents.length ? message.parents.map((id) => [messageLink(id), " "]) : "none"],
    ["When a parent fails", message.parent_failure],
    ["Completion scope", message.scope],
    ["Key", message.key],
    ["Idempotency key", message.idempotency_key],
    ["Not before", message.deliver_at],
    ["Not after", message.expires_at],
    ["Content erased after its end", message.erase_after],
    ["Depth in its graph", number(message.depth)],
    ["Content", `${bytes(message.content_bytes)}${message.content_type ? `, ${message.content_type}` : ""}`],
    ...Object.entries(message.headers).map(([name, value]) => [name, value]),
  ];
  return h(
    "section",
    { class: "card" },
    h("h2", null, "Message"),
    h("dl", { class: "entries" }, entries.filter(([, value]) => value !== null && value !== undefined).map(([name, value]) => [h("dt", null, name), h("dd", null, value)])),
    contentPart(message),
  );
}

/** Fetch the content and keep it for the next drawing. */
export async function showContent(id) {
  const bytes = await content(id);
  shown.set(id, { bytes, ...readable(bytes) });
}

/** The content as the reader has asked for it, to copy or to keep. */
export const contentOf = (id) => shown.get(id);

function contentPart(message) {
  const found = shown.get(message.id);
  const button = (what, words) => h("button", { type: "button", class: "small", "data-do": what, "data-id": message.id }, words);
  if (!found) return h("p", { class: "actions" }, button("content", "Show the content"));
  return [
    h("p", { class: "actions" }, h("span", { class: "quiet" }, found.kind), button("copyContent", "Copy"), button("downloadContent", "Download")),
    h("pre", { class: "content", tabindex: "0" }, found.text),
  ];
}

/** Why it took so long: the chain of waits, each with its part of the time. */
function pathSection(message, path) {
  const heads = [{ name: "Message" }, { name: "Queue" }, { name: "State" }, { name: "Took longest at" }, { name: "Attempts", figure: true }, { name: "Own time", figure: true }, { name: "Of it" }];
  const parts = (step) => [["not published", step.published_ms], ["delayed", step.scheduled_ms], ["queued", step.queued_ms], ["attempts", step.attempts_ms]].filter(([, ms]) => ms >= 1).map(([name, ms]) => `${name} ${time(ms)}`);
  const rows = path.steps.map((step) => ({
    key: step.id,
    cells: [step.id === message.id ? h("b", null, "this one") : messageLink(step.id), step.queue ? queueLink(step.queue) : "another queue", pill(step.state), step.subscriber ?? "", number(step.attempts), time(step.own_ms), [step.share !== null && h("progress", { max: 1, value: step.share, "aria-label": "share of the whole" }), ` ${parts(step).join(", ")}`]],
  }));
  return h(
    "section",
    { class: "card", id: "critical-path" },
    h("h2", null, "Critical path"),
    h("p", { class: "quiet" }, path.ended_at ? `The chain of waits that made it late: ${time(path.took_ms)} in all.` : `The chain of waits that makes it late: ${time(path.took_ms)} until now.`),
    tableOf("Critical path", heads, rows, "It waited for nothing."),
  );
}

const time = (ms) => (ms < 1_000 ? `${Math.round(ms)} ms` : duration(ms / 1_000));

function treeSection(message, path, up, down) {
  const nodes = new Map([...up.nodes, ...down.nodes].map((node) => [node.id, node]));
  const all = [...nodes.values()].sort((one, other) => one.distance - other.distance);
  const cut = up.truncated || down.truncated || all.length > NODES_MAX;
  return h(
    "section",
    { class: "card" },
    h("h2", null, "Causal tree"),
    h("p", { class: "quiet" }, "Parents stand to the left of their children. A solid edge is open; a dashed one still holds its child back; the thick ones are the critical path."),
    all.length > 1 ? drawTree(all.slice(0, NODES_MAX), message.id, new Set(path.steps.map((step) => step.id))) : h("p", { class: "empty" }, "It has no parents, and no message names it as one."),
    cut && h("p", { class: "quiet" }, `The graph goes on beyond the ${number(Math.min(all.length, NODES_MAX))} nearest messages.`),
  );
}
