// The last hours as charts, from `GET /v1/history`: a ring of 1,440 minutes that the broker keeps over restarts, so
// nothing is gathered here and the memory of both is bounded.

import { get, Problem } from "./api.js";
import { h, svg } from "./dom.js";
import { compact, duration } from "./format.js";

const HOURS = 6;
const AGAIN_MS = 30_000;
const WIDTH = 320;
const HEIGHT = 90;

/** What was last asked: of which queue, when, and the answer. */
let last = { queue: undefined, at: -AGAIN_MS, minutes: [] };

/** The minutes of a queue, or with null of all that the reader may see; the broker adds one a minute. */
export async function loadHistory(queue, signal) {
  const now = performance.now();
  if (last.queue === queue && now - last.at < AGAIN_MS) return last.minutes;
  try {
    const { minutes } = await get(`/v1/history?hours=${HOURS}${queue === null ? "" : `&queue=${encodeURIComponent(queue)}`}`, signal);
    last = { queue, at: now, minutes };
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    last = { queue, at: now, minutes: [] };
  }
  return last.minutes;
}

export function chartsSection(minutes) {
  const perSecond = (name) => (minute) => minute[name] / 60;
  return h(
    "section",
    { class: "card", "data-key": "history" },
    h("h2", null, `The last ${HOURS} hours`),
    minutes.length < 2
      ? h("p", { class: "empty" }, "Nothing has been counted for two minutes yet.")
      : h(
          "div",
          { class: "charts" },
          chart("Messages a second", minutes, [["accepted", perSecond("accepted")], ["delivered", perSecond("delivered")], ["failed", perSecond("failed")]], compact2),
          chart("From acceptance to delivery", minutes, [["p50", (one) => one.p50_ms], ["p99", (one) => one.p99_ms]], (ms) => (ms < 1_000 ? `${Math.round(ms)} ms` : duration(ms / 1_000))),
          chart("Backlog", minutes, [["waiting", (one) => one.backlog]], compact),
        ),
  );
}

const compact2 = (value) => (value < 10 ? value.toFixed(2) : compact(Math.round(value)));

function chart(name, minutes, lines, words) {
  const from = Date.parse(minutes[0].at);
  const until = Math.max(from + 60_000, Date.parse(minutes.at(-1).at));
  const top = Math.max(...lines.flatMap(([, of]) => minutes.map((one) => of(one) ?? 0)), 0.001);
  const x = (one) => ((Date.parse(one.at) - from) / (until - from)) * WIDTH;
  const points = (of) => minutes.filter((one) => of(one) !== null).map((one) => `${x(one).toFixed(1)},${(HEIGHT - 2 - (of(one) / top) * (HEIGHT - 6)).toFixed(1)}`);
  const newest = lines.map(([label, of]) => `${label} ${words(of(minutes.at(-1)) ?? 0)}`).join(", ");
  return h(
    "figure",
    { class: "chart" },
    h("figcaption", null, name, h("span", { class: "quiet" }, ` at most ${words(top)}`)),
    svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `${name}; in the newest minute ${newest}` }, lines.map(([label, of], at) => svg("polyline", { class: `series series-${at}`, points: points(of).join(" ") }, svg("title", null, label)))),
    h("p", { class: "legend" }, lines.map(([label], at) => h("span", { class: `series-${at}` }, label)), h("span", { class: "quiet" }, `${minutes[0].at.slice(11, 16)} to ${minutes.at(-1).at.slice(11, 16)} UTC`)),
  );
}
