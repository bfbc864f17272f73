// The page: which view is shown, when it is asked for again, and what the reader's clicks do.

import * as actions from "./actions.js";
import { hasToken, listen, patch, Problem } from "./api.js";
import * as breakers from "./breakers.js";
import { askCancel, askCancelJob, askCancelSelection, askDrop, askProbe, askPublish, askReplay, askReplaySelection, askRetry, showRequest } from "./dialog.js";
import { copy, download } from "./content.js";
import { h, morph } from "./dom.js";
import * as find from "./find.js";
import { decoded } from "./format.js";
import { sought } from "./lists.js";
import * as jobs from "./jobs.js";
import * as message from "./message.js";
import * as overview from "./overview.js";
import * as queue from "./queue.js";
import * as queues from "./queues.js";
import { forgetPicked, pickedIn, picks } from "./selection.js";
import { become, learn, takeFromAddress } from "./session.js";
import * as subscribers from "./subscribers.js";

const EVENTS_KEPT = 40;
const EVENTS_PER_SECOND = 12;
const HURRY_MS = 400;

const main = document.getElementById("main");
const live = { events: [], count: 0 };
let route = null;
let timer = 0;
let asking = null;
let note = null;
let drawn = null;

function parse(hash) {
  const [path, query = ""] = hash.replace(/^#/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decoded);
  const base = { path, query: new URLSearchParams(query) };
  if (parts[0] === "queues" && parts[2] === "subscribers") return { ...base, view: subscribers, name: parts[1] };
  if (parts[0] === "queues" && parts[1]) return { ...base, view: queue, name: parts[1] };
  if (parts[0] === "queues") return { ...base, view: queues };
  if (parts[0] === "messages" && parts[1]) return { ...base, view: message, id: parts[1] };
  if (parts[0] === "actions") return { ...base, view: actions };
  if (parts[0] === "breakers") return { ...base, view: breakers };
  if (parts[0] === "jobs") return { ...base, view: jobs };
  if (parts[0] === "find") return { ...base, view: find };
  return { ...base, view: overview };
}

function go() {
  takeFromAddress();
  const before = route;
  route = parse(location.hash);
  if (before?.path !== route.path) forgetPicked();
  drawn = null;
  note = null;
  const title = typeof route.view.title === "function" ? route.view.title(route) : route.view.title;
  document.title = `${title} – Syncbrok`;
  refresh();
}

/** Ask again now; the next time after the view's own interval, or sooner when something happens. */
async function refresh() {
  clearTimeout(timer);
  asking?.abort();
  const mine = (asking = new AbortController());
  const shown = route;
  try {
    await learn();
    if (mine.signal.aborted) return;
    const found = await shown.view.load(shown, mine.signal);
    if (mine.signal.aborted) return;
    drawn = found;
    redraw();
    centreTree();
  } catch (error) {
    if (mine.signal.aborted) return;
    show(failure(error));
  }
  if (shown.view.every_ms) timer = setTimeout(refresh, document.hidden ? shown.view.every_ms * 10 : shown.view.every_ms);
}

function redraw() {
  if (!drawn && note) show(h("div", { class: "page" }));
  if (drawn) show(route.view.draw(drawn, route, live));
}

function show(page) {
  if (note) page.prepend(h("div", { class: `notice ${note.bad ? "bad" : "good"}`, role: note.bad ? "alert" : "status" }, h("p", null, note.text), note.mend && h("p", { class: "quiet" }, note.mend)));
  const holder = h("div", null, page);
  morph(main, holder);
}

function failure(error) {
  if (error instanceof Problem && error.status === 401) return tokenForm(error);
  const words = error instanceof Problem ? [h("h1", null, error.title), h("p", null, error.message), error.mend && h("p", { class: "quiet" }, error.mend)] : [h("h1", null, "The broker does not answer"), h("p", null, "This page will go on when it does.")];
  return h("div", { class: "page" }, h("section", { class: "card" }, words));
}

function tokenForm(error) {
  return h(
    "div",
    { class: "page" },
    h(
      "section",
      { class: "card" },
      h("h1", null, "A token is needed"),
      hasToken() && h("p", { class: "notice bad", role: "alert" }, `The token that was given does not do: ${error.message}.`),
      h("form", { "data-form": "token" }, h("label", { for: "token" }, "Token with the scope read (and admin, to replay)"), h("input", { id: "token", type: "password", autocomplete: "off", required: true, "data-keep": true }), h("button", { class: "primary" }, "Use it")),
      h("p", { class: "quiet" }, "It is kept for this tab only."),
    ),
  );
}

function centreTree() {
  const tree = main.querySelector(".tree[data-centre]");
  if (!tree || tree.dataset.centred === tree.dataset.centre || tree.scrollWidth <= tree.clientWidth) return;
  const here = tree.querySelector(".here .box");
  if (here) tree.scrollLeft = Number(here.getAttribute("x")) - tree.clientWidth / 2 + 84;
  tree.dataset.centred = tree.dataset.centre;
}

// -- what happens -----------------------------------------------------------------------------------------------------

const ABOUT_QUEUE = new Set(["queue", "queue_deleted", "subscriber", "subscriber_deleted", "breaker_opened", "breaker_closed"]);
let hurrying = false;

function happened(event) {
  live.count += 1;
  live.events.unshift({ ...event, key: `e${live.count}` });
  live.events.length = Math.min(live.events.length, EVENTS_KEPT);
  const concerns =
    (route.view === message && (event.message === route.id || event.parents?.includes(route.id))) ||
    ((route.view === queue || route.view === subscribers) && event.queue === route.name) ||
    (route.view === breakers && ABOUT_QUEUE.has(event.kind)) ||
    (route.view === overview && (event.kind === "dead" || ABOUT_QUEUE.has(event.kind)));
  if (route.view === overview || concerns) hurry(concerns);
}

/** At most one refresh in `HURRY_MS`, however much happens. */
function hurry(ask) {
  if (hurrying) return;
  hurrying = true;
  setTimeout(() => {
    hurrying = false;
    if (ask) refresh();
    else redraw();
  }, HURRY_MS);
}

function linked(state) {
  const link = document.getElementById("link");
  link.dataset.state = state;
  document.getElementById("link-text").textContent = state === "live" ? "live" : "connecting";
}

// -- what the reader does ---------------------------------------------------------------------------------------------

function done(text) {
  note = { text };
  forgetPicked();
  refresh();
}

const DO = {
  replay: (data) => askReplay(data, done),
  cancel: (data) => askCancel(data.id, done),
  content: async (data) => {
    await message.showContent(data.id);
    redraw();
  },
  copyContent: async (data) => {
    await copy(message.contentOf(data.id).text);
    note = { text: "The content is on the clipboard." };
    redraw();
  },
  downloadContent: (data) => download(data.id, message.contentOf(data.id).bytes),
  request: (data) => showRequest(data),
  retry: (data) => askRetry({ name: data.name, paths: [data.path], subscriber: data.subscriber }, done),
  probe: (data) => askProbe(data, done),
  retrySelected: ({ list }) => askRetry({ name: "the selected messages", paths: pickedIn(list).map((id) => `/v1/messages/${id}/retry`) }, done),
  replaySelected: ({ list, queue: name }) => askReplaySelection({ queue: name, ids: pickedIn(list) }, done),
  cancelSelected: ({ list, queue: name }) => askCancelSelection({ queue: name, ids: pickedIn(list) }, done),
  publish: (data) => askPublish(data.queue, done),
  cancelJob: (data) => askCancelJob(data.id, done),
  drop: (data) => askDrop({ queue: data.queue, subscriber: data.subscriber, ids: data.id && [data.id], name: data.name }, done),
  dropSelected: ({ list, queue: name }) => askDrop({ queue: name, ids: pickedIn(list), name: "the dead letters of the selected messages" }, done),
  pause: (data) => setPaused(data, true),
  resume: (data) => setPaused(data, false),
};

async function setPaused(data, paused) {
  await patch(`/v1/queues/${encodeURIComponent(data.queue)}/subscribers/${encodeURIComponent(data.subscriber)}`, { paused });
  done(`Subscriber ${data.subscriber} is ${paused ? "paused: what it is owed waits for it" : "active again: what had failed is tried again now"}.`);
}

main.addEventListener("click", async (event) => {
  const asked = event.target.closest("[data-do]");
  if (!asked || !(asked.dataset.do in DO)) return;
  try {
    await DO[asked.dataset.do](asked.dataset);
  } catch (error) {
    note = { text: error.message, mend: error.mend, bad: true };
    redraw();
  }
});

document.getElementById("log-out").addEventListener("click", () => {
  become(null);
  live.events.length = 0;
  location.hash = "#/";
  go();
});

main.addEventListener("change", (event) => {
  if (picks(event.target)) redraw();
});

document.getElementById("dialog").addEventListener("click", (event) => {
  if (event.target.closest("a")) event.currentTarget.close();
});

document.addEventListener("submit", (event) => {
  event.preventDefault();
  if (event.target.id === "find") {
    const text = document.getElementById("find-text").value.trim();
    if (text) location.hash = find.direct(text) ?? `#/find?text=${encodeURIComponent(text)}`;
  } else if (event.target.dataset.form === "token") {
    become(document.getElementById("token").value.trim());
    event.target.reset();
    refresh();
  } else if (event.target.dataset.form === "seek") {
    const wanted = sought(event.target);
    if (wanted === location.hash) refresh();
    else location.hash = wanted;
  }
});

document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !/^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName)) {
    event.preventDefault();
    document.getElementById("find-text").focus();
  }
});

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) refresh();
});
addEventListener("hashchange", () => {
  go();
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
});

go();
listen(`/v1/events?rate=${EVENTS_PER_SECOND}`, happened, linked);
