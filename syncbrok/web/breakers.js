// Subscribers of all queues that need somebody: whom a circuit breaker holds back, who was disabled, fails or is paused,
// since when and why, what waits there, and what can be done.

import { get } from "./api.js";
import { h } from "./dom.js";
import { because, compact, moment, nextProbe, number, pill, queueLink, tableOf } from "./format.js";
import { address, field, pages, seek } from "./lists.js";
import { may } from "./session.js";
import { switchButton, tryButton } from "./subscribers.js";

const PAGE = 50;
const STATES = [["ill", "to look after"], ["open", "breaker open"], ["probing", "breaker probing"], ["failing", "failing"], ["disabled", "disabled"], ["paused", "paused"], ["all", "all"]];
const HEADS = [{ name: "Subscriber" }, { name: "State" }, { name: "Since" }, { name: "Why" }, { name: "What happens next" }, { name: "Not tried yet", figure: true }, { name: "In retry", figure: true }, { name: "" }];

export const title = "Breakers";
export const every_ms = 3_000;

const stateOf = (route) => route.query.get("state") ?? "ill";

export function load(route, signal) {
  const query = new URLSearchParams({ limit: PAGE });
  if (stateOf(route) !== "all") query.set("state", stateOf(route));
  for (const name of ["text", "after"]) if (route.query.get(name)) query.set(name, route.query.get(name));
  return get(`/v1/subscribers?${query}`, signal);
}

export function draw(found, route) {
  const state = stateOf(route);
  const tab = ([name, words]) => h("a", { href: address(route, { state: name === "ill" ? null : name, after: null, "after.before": null }), "aria-current": name === state ? "page" : null }, words);
  return h(
    "div",
    { class: "page" },
    h("p", { class: "crumbs" }, h("a", { href: "#/" }, "Overview"), " / Breakers"),
    h("h1", null, "Breakers and endpoints"),
    h("p", { class: "quiet" }, "A breaker opens when an endpoint keeps failing. While it is open nothing is tried there but a probe now and then; once one is answered, it lets more and more through until it closes."),
    h(
      "section",
      { class: "card" },
      h("nav", { class: "tabs", "aria-label": "Which subscribers" }, STATES.map(tab)),
      seek(route, "Subscribers", [field(route, "text", "Part of the subscriber's or the queue's name", { type: "search" }), state !== "ill" && h("input", { type: "hidden", name: "state", value: state })]),
      tableOf("Subscribers", HEADS, found.subscribers.map((one) => ({ key: `${one.queue}/${one.id}`, cells: cells(one) })), "None."),
      pages(route, "after", found.next),
    ),
  );
}

/** How it stands in a word: a breaker that is not closed says more than that it fails. */
export function standing(one) {
  if (one.state !== "active") return one.state;
  if (one.statistics.breaker !== "closed") return `breaker ${one.statistics.breaker}`;
  return one.statistics.failing_since ? "failing" : "active";
}

function cells(one) {
  const figures = one.statistics;
  return [
    [h("a", { href: `#/queues/${encodeURIComponent(one.queue)}/subscribers?text=${encodeURIComponent(one.id)}` }, one.id), " on ", queueLink(one.queue), h("br"), h("span", { class: "quiet" }, one.endpoint)],
    pill(standing(one)),
    moment((one.state === "active" ? figures.breaker_since ?? figures.failing_since : one.disabled_at) ?? null),
    h("span", { class: "why" }, why(one)),
    h("span", { class: "why" }, next(one)),
    compact(figures.backlog),
    compact(figures.retrying),
    buttons(one),
  ];
}

/** Why nothing goes there, or does not go well. */
export function why(one) {
  const figures = one.statistics;
  const answered = because(figures.last_reason, figures.last_status);
  const last = answered && figures.failing_since && ["last: ", answered, ", ", moment(figures.last_attempt_at)];
  if (one.state === "disabled") return one.disabled_reason === "gone" ? "its endpoint answered 410: it is gone" : ["everything has failed for ", one.disable_after, "; ", last];
  if (one.state === "paused") return ["somebody has paused it", figures.changed_by && `: ${figures.changed_by}`];
  if (figures.breaker === "closed") return last || "";
  const failed = figures.breaker_failing === 1 ? "an attempt had failed" : `${number(figures.breaker_failing)} attempts had failed`;
  return [figures.breaker_origin ? `${figures.breaker_origin} could not be reached, ${failed}` : failed, last && [h("br"), last]];
}

/** What the broker does next by itself, or what somebody has to do. */
export function next(one) {
  const figures = one.statistics;
  if (one.state === "disabled") return one.disabled_reason === "gone" ? "Nothing. Enable it once the endpoint takes messages again, or give it another one; after 5 days what waits becomes dead letters." : "Nothing. Mend the endpoint, then enable it; after 5 days what waits becomes dead letters.";
  if (one.state === "paused") return "Nothing, until it is resumed.";
  if (figures.breaker === "open") return nextProbe(figures);
  if (figures.breaker === "probing") return "a few at a time, until it closes";
  return figures.retrying ? "each is tried again on its schedule" : "";
}

function buttons(one) {
  if (!may("admin", one.queue)) return "";
  if (one.state !== "active") return switchButton(one.queue, one, "resume", one.state === "disabled" ? "Enable" : "Resume");
  if (one.statistics.breaker === "open") return tryButton(one.queue, one, "probe", "Probe now…");
  return one.statistics.retrying > 0 ? tryButton(one.queue, one, "retry", "Retry now") : "";
}
