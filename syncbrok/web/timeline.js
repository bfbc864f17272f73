// Attempts on a line of time, and times as an operator writes them down: with date and zone, and in the reader's own.

import { h, svg } from "./dom.js";

const WIDTH = 600;
const MARGIN = 14;
const local = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });
const zone = new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" });

/** The reader's zone on that day, as people call it. */
const zoneOf = (date) => zone.formatToParts(date).find((part) => part.type === "timeZoneName").value;

/** A time in UTC with its date, and below it in the reader's zone. */
export function stamp(text) {
  if (!text) return "–";
  const date = new Date(text);
  return h(
    "time",
    { datetime: text, title: text, class: "stamp" },
    `${text.slice(0, 10)} ${text.slice(11, 23)} UTC`,
    h("span", { class: "quiet detail" }, `${local.format(date)} ${zoneOf(date)}`),
  );
}

/** When a message came, each attempt, and the next one, from left to right. */
export function timeLine(message, one) {
  const from = Date.parse(message.accepted_at);
  const tried = one.attempts.filter((attempt) => attempt.time);
  const ends = [...tried.map((attempt) => attempt.time), one.next_attempt_at].filter(Boolean).map((text) => Date.parse(text));
  const until = Math.max(from + 1, ...ends);
  const x = (text) => (MARGIN + ((Date.parse(text) - from) / (until - from)) * (WIDTH - 2 * MARGIN)).toFixed(1);
  const dot = (attempt) => svg("circle", { class: `moment is-${attempt.outcome.replace(/[^a-z]/g, "-")}`, cx: x(attempt.time), cy: 14, r: 6 }, svg("title", null, `${attempt.attempt ? `attempt ${attempt.attempt}` : "end"}: ${attempt.outcome}, ${attempt.time}`));
  return svg(
    "svg",
    { class: "timeline", viewBox: `0 0 ${WIDTH} 28`, role: "img", "aria-label": `Accepted ${message.accepted_at}, ${tried.length} ${tried.length === 1 ? "attempt" : "attempts"}${one.next_attempt_at ? `, the next one ${one.next_attempt_at}` : ""}` },
    svg("line", { class: "axis", x1: MARGIN, y1: 14, x2: WIDTH - MARGIN, y2: 14 }),
    svg("line", { class: "axis", x1: MARGIN, y1: 6, x2: MARGIN, y2: 22 }, svg("title", null, `accepted ${message.accepted_at}`)),
    tried.map(dot),
    one.next_attempt_at && svg("circle", { class: "moment next", cx: x(one.next_attempt_at), cy: 14, r: 6 }, svg("title", null, `next attempt ${one.next_attempt_at}`)),
  );
}
