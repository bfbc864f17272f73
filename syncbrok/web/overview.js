// The front: figures, what is stuck and why, who is ill, all queues, and what has just happened.

import { get, Problem } from "./api.js";
import { standing } from "./breakers.js";
import { clusterSection, LEADERLESS, loadCluster } from "./cluster.js";
import { chartsSection, loadHistory } from "./charts.js";
import { h, svg } from "./dom.js";
import { because, between, breakerLine, bytes, clock, compact, disabledLine, duration, messageLink, number, pill, queueLink, rate, sentence, tableOf } from "./format.js";

const SAMPLES = 90;
const STUCK_S = 3;
const TICKER = 14;
const ILL = 20;

/** Counters of the last polls: rates are what lies between two of them. */
const history = [];
const before = new Map();

export const title = "Overview";
export const every_ms = 2_000;

export async function load(_route, signal) {
  let now;
  try {
    now = await get("/v1/overview", signal);
  } catch (error) {
    if (!(error instanceof Problem && LEADERLESS.has(error.slug))) throw error;
    return { problem: error, cluster: await loadCluster(signal) };
  }
  now.minutes = await loadHistory(null, signal);
  now.cluster = now.in_cluster && (await loadCluster(signal));
  const at = performance.now();
  const last = history.at(-1);
  const { accepted, delivered, failed } = now.deliveries;
  const sample = { at, accepted, delivered, failed };
  if (!last || at - last.at > 300) {
    sample.rates = last && ratesBetween(last, sample);
    history.push(sample);
    if (history.length > SAMPLES) history.shift();
    now.rates = sample.rates;
    now.byQueue = queueRates(now.queues, at);
  } else {
    now.rates = last.rates;
    now.byQueue = new Map([...before].map(([name, entry]) => [name, entry.rates]));
  }
  return now;
}

function ratesBetween(last, now) {
  const seconds = (now.at - last.at) / 1_000;
  const per = (name) => Math.max(0, (now[name] - last[name]) / seconds);
  return { accepted: per("accepted"), delivered: per("delivered"), failed: per("failed") };
}

function queueRates(queues, at) {
  const found = new Map();
  for (const queue of queues) {
    const last = before.get(queue.name);
    const rates = last && ratesBetween(last, { ...queue, at });
    found.set(queue.name, rates);
    before.set(queue.name, { at, accepted: queue.accepted, delivered: queue.delivered, failed: queue.failed, rates });
  }
  return found;
}

/** What the disk has damaged, and what to do. */
function damaged(log) {
  const count = log.damaged_records;
  const more = count > log.damage.length ? " ..." : "";
  const head = `The disk has damaged ${count} ${count === 1 ? "record" : "records"} of the log. Restore the segment from a backup, or see "Damage" in the operator's guide: `;
  return head + log.damage.join("; ") + more;
}

export function draw(now, _route, live) {
  if (now.problem) return leaderless(now);
  const stuck = now.stuck.filter((message) => message.state === "held" || (message.state !== "scheduled" && between(message.accepted_at, now.time) >= STUCK_S)); // delayed on purpose needs nobody
  return h(
    "div",
    { class: "page" },
    h("h1", { class: "hidden" }, "Overview"),
    h("p", { class: "crumbs" }, h("a", { href: "#/queues" }, "Queues"), " · ", h("a", { href: "#/find" }, "Search"), " · ", h("a", { href: "#/breakers" }, "Breakers"), " · ", h("a", { href: "#/jobs" }, "Jobs"), " · ", h("a", { href: "#/actions" }, "Who did what")),
    now.state !== "serving" && h("p", { class: "notice bad", role: "alert" }, `The broker is ${now.state}.`),
    now.log.full && h("p", { class: "notice bad", role: "alert" }, "The disk is full: publishes are refused until there is room."),
    now.log.damaged_records > 0 && h("p", { class: "notice bad", role: "alert" }, damaged(now.log)),
    tiles(now),
    budgetsLine(now.budgets ?? []),
    h(
      "div",
      { class: "columns front" }, // what needs somebody first, on a telephone too
      stuckSection(stuck, now),
      h("div", { class: "side" }, illSection(now), tickerSection(live)),
      queuesSection(now),
    ),
    chartsSection(now.minutes),
    budgetsSection(now.budgets ?? []),
    now.cluster && clusterSection(now.cluster),
  );
}

/** All that a node can say while it knows nobody who leads. */
function leaderless({ problem, cluster }) {
  return h(
    "div",
    { class: "page" },
    h("h1", { class: "hidden" }, "Overview"),
    h("p", { class: "notice bad", role: "alert" }, `${problem.title}: ${problem.message}. Queues and messages are shown again once somebody leads.`),
    clusterSection(cluster),
  );
}

function tiles(now) {
  const rates = now.rates;
  return h(
    "section",
    { class: "tiles", "aria-label": "Figures" },
    tile("Accepted / s", rate(rates?.accepted), spark("accepted"), "is-pending"),
    tile("Delivered / s", rate(rates?.delivered), spark("delivered"), "is-complete"),
    tile("Failed attempts / s", rate(rates?.failed), spark("failed"), rates?.failed ? "is-retrying" : ""),
    tile("Waiting", compact(now.deliveries.waiting), `${compact(now.deliveries.in_flight)} in flight, ${compact(now.deliveries.retrying)} in retry`),
    tile("Dead letters", compact(now.deliveries.dead_letters), now.deliveries.dead_letters ? "see the queues" : "none", now.deliveries.dead_letters ? "is-dead" : ""),
    tile("Log", bytes(now.log.bytes), `${number(now.log.sequence)} facts, ${now.log.commits ? `${((now.log.commit_seconds_sum / now.log.commits) * 1_000).toFixed(1)} ms a commit` : now.log.sync}`),
  );
}

// What is scarce, once half of it is taken: below that it says nothing that an operator could act on.
function budgetsLine(budgets) {
  const short = budgets.filter((one) => 2 * one.used >= one.total);
  const words = short.map((one) => `${one.name.replaceAll("_", " ")} ${Math.round((100 * one.used) / one.total)} %`);
  return short.length > 0 && h("p", { class: "notice", role: "status" }, `Taken of what is shared out: ${words.join(", ")}.`);
}

/** All that is shared out and bounded, with how much of it is taken. */
function budgetsSection(budgets) {
  if (!budgets.length) return null;
  const rows = budgets.map((one) => ({ key: one.name, cells: [one.name.replaceAll("_", " "), h("progress", { max: one.total, value: one.used, "aria-label": one.name.replaceAll("_", " ") }), compact(one.used), compact(one.total)] }));
  return h("details", { class: "card", "data-key": "budgets" }, h("summary", null, "What is shared out"), tableOf("What is shared out", [{ name: "Budget" }, { name: "Taken" }, { name: "Used", figure: true }, { name: "Of", figure: true }], rows, ""));
}

function tile(name, value, below, tone = "") {
  return h("div", { class: `tile ${tone}` }, h("p", { class: "name" }, name), h("p", { class: "value" }, value), typeof below === "string" ? h("p", { class: "below" }, below) : below);
}

function spark(name) {
  const values = history.map((sample) => sample.rates?.[name] ?? 0);
  const top = Math.max(...values, 1);
  const step = 100 / (Math.max(values.length, 20) - 1);
  const start = 100 - step * (values.length - 1);
  const points = values.map((value, at) => `${(start + at * step).toFixed(2)},${(23 - (value / top) * 21).toFixed(2)}`);
  return svg("svg", { class: "spark", viewBox: "0 0 100 24", preserveAspectRatio: "none", "aria-hidden": "true" }, svg("polyline", { points: points.join(" ") }));
}

function stuckSection(stuck, now) {
  return h(
    "section",
    { class: "card" },
    h("h2", null, "What is stuck"),
    stuck.length
      ? h("ul", { class: "stuck" }, stuck.map((message) => stuckItem(message, now)))
      : h("p", { class: "empty good" }, "Nothing. Whatever waits has been waiting for less than three seconds."),
  );
}

function stuckItem(message, now) {
  return h(
    "li",
    { "data-key": message.id },
    h(
      "p",
      { class: "line" },
      pill(message.state),
      queueLink(message.queue),
      messageLink(message.id),
      h("span", { class: "age" }, `waiting for ${duration(between(message.accepted_at, now.time))}`),
    ),
    h("p", { class: "why" }, message.waits_for ? sentence(message.waits_for) : "is on its way"),
  );
}

function queuesSection(now) {
  const heads = [
    { name: "Queue" },
    { name: "Waiting", figure: true },
    { name: "In / s", figure: true },
    { name: "Out / s", figure: true },
    { name: "Dead letters", figure: true },
    { name: "Subscribers", figure: true },
  ];
  const rows = now.queues.map((queue) => ({
    key: queue.name,
    cells: [
      queueLink(queue.name),
      compact(queue.waiting),
      rate(now.byQueue.get(queue.name)?.accepted),
      rate(now.byQueue.get(queue.name)?.delivered),
      queue.dead_letters ? h("span", { class: "bad" }, compact(queue.dead_letters)) : "0",
      [number(queue.subscribers), queue.ill > 0 && h("span", { class: "bad" }, ` (${queue.ill} ill)`)],
    ],
  }));
  const more = now.queues_in_all - now.queues.length;
  return h(
    "section",
    { class: "card" },
    h("div", { class: "head" }, h("h2", null, "Queues"), h("a", { href: "#/queues" }, "All queues, and search")),
    tableOf("Queues", heads, rows, "There is no queue yet. Declare one in queues.yml, or with POST /v1/queues."),
    more > 0 && h("p", { class: "empty" }, h("a", { href: "#/queues" }, `and ${number(more)} quieter ones`)),
  );
}

function illSection(now) {
  return h(
    "section",
    { class: "card" },
    h("div", { class: "head" }, h("h2", null, "Subscribers to look after"), now.ill.length > 0 && h("a", { href: "#/breakers" }, "Breakers")),
    now.ill.length
      ? h("ul", { class: "ill" }, now.ill.slice(0, ILL).map((subscriber) => illItem(subscriber, now)))
      : h("p", { class: "empty good" }, now.subscribers_in_all ? `All ${number(now.subscribers_in_all)} are well.` : "There are none yet."),
    now.ill_in_all > ILL && h("p", { class: "empty" }, h("a", { href: "#/breakers" }, `and ${number(now.ill_in_all - ILL)} more`)),
  );
}

function illItem(subscriber, now) {
  const figures = subscriber.statistics;
  const answered = because(figures.last_reason, figures.last_status);
  return h(
    "li",
    { "data-key": `${subscriber.queue}/${subscriber.id}` },
    h("p", { class: "line" }, pill(standing(subscriber)), h("strong", null, subscriber.id), "on", queueLink(subscriber.queue)),
    h("p", { class: "why" }, subscriber.endpoint),
    figures.failing_since &&
      h("p", { class: "why" }, `failing for ${duration(between(figures.failing_since, now.time))}`, answered && `, last: ${answered}`, figures.retrying > 0 && `; ${compact(figures.retrying)} in retry`),
    breakerLine(figures),
    disabledLine(subscriber),
  );
}

function tickerSection(live) {
  return h(
    "section",
    { class: "card" },
    h("h2", null, "Just now"),
    live.events.length
      ? h("ol", { class: "ticker" }, live.events.slice(0, TICKER).map(tickerItem))
      : h("p", { class: "empty" }, "Nothing has happened since this page was opened."),
  );
}

export function tickerItem(event) {
  if (event.kind === "thinned") return h("li", { "data-key": event.key, class: "thinned" }, `and ${number(event.count)} more`);
  return h(
    "li",
    { "data-key": event.key },
    clock(event.time),
    pill(event.kind),
    h(
      "span",
      { class: "what" },
      event.message && messageLink(event.message),
      event.queue && [" ", queueLink(event.queue)],
      event.subscriber && ` → ${event.subscriber}`,
      event.reason && ` (${because(event.reason, event.status)})`,
      event.text && ` ${event.text}`,
      event.by && h("span", { class: "quiet" }, ` by ${event.by}`),
    ),
  );
}

