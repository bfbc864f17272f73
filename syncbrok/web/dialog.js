// Questions that come before anything is changed: a replay shows its plan first, a cancel asks.

import { content, get, post, publish, remove } from "./api.js";
import { copy, download, readable } from "./content.js";
import { h } from "./dom.js";
import { because, messageLink, number } from "./format.js";
import { asCurl, head, rebuilt } from "./request.js";
import { may } from "./session.js";

const dialog = document.getElementById("dialog");
const SHOWN = 30;

/** Plan a replay (`dry_run`), show the plan, and do it when the reader says so. */
export async function askReplay({ path, name, subscriber }, onDone) {
  const wish = { descendants: false, subscriber: subscriber ?? null };
  const redraw = async () => {
    show(`Replay ${name}`, [h("p", { class: "empty" }, "Asking what this would do …")], null);
    try {
      const plan = await post(path, { ...wish, dry_run: true });
      show(`Replay ${name}`, replayBody(plan, wish), plan.deliveries ? `Replay ${number(plan.deliveries)} deliver${plan.deliveries === 1 ? "y" : "ies"}` : null);
    } catch (error) {
      show(`Replay ${name}`, problem(error), null);
    }
  };
  dialog.onchange = (event) => {
    if (event.target.name === "descendants") wish.descendants = event.target.checked;
    if (event.target.name === "everyone") wish.subscriber = event.target.checked ? null : subscriber;
    redraw();
  };
  confirmed(async () => {
    const done = await post(path, { ...wish, dry_run: false });
    onDone(`Replay ${done.replay}: ${number(done.messages)} ${done.messages === 1 ? "message is" : "messages are"} going out again, in causal order.`);
  });
  function replayBody(plan, asked) {
    return [
      h("p", null, plan.deliveries ? `This sends ${number(plan.messages)} message${plan.messages === 1 ? "" : "s"} again, in this order:` : "There is nothing to send again."),
      h("ol", { class: "plan" }, plan.order.slice(0, SHOWN).map((step) => h("li", null, messageLink(step.id), ` → ${step.subscribers.join(", ")}`))),
      plan.left > 0 && h("p", { class: "quiet" }, `${number(plan.left)} dead letter${plan.left === 1 ? "" : "s"} of other subscribers stay${plan.left === 1 ? "s" : ""} as ${plan.left === 1 ? "it is" : "they are"}.`),
      plan.messages > SHOWN && h("p", { class: "quiet" }, `and ${number(plan.messages - SHOWN)} more`),
      subscriber && h("label", null, h("input", { type: "checkbox", name: "everyone", checked: asked.subscriber === null }), ` at every subscriber, not only ${subscriber}`),
      may("admin") && h("label", null, h("input", { type: "checkbox", name: "descendants", checked: asked.descendants }), " also descendants that have been delivered"),
      h("p", { class: "quiet" }, "Each keeps its webhook-id: a subscriber that drops what it has seen drops these too."),
    ];
  }
  await redraw();
}

const many = (count, one, more) => `${number(count)} ${count === 1 ? one : more}`;

/**
 * Ask for a plan, show it, and do it when the reader says so. `plan()` answers `[paragraphs, action]`, `action` null
 * where there is nothing to do; `act()` answers what was done.
 */
async function askPlanned(title, plan, act, onDone) {
  dialog.onchange = null;
  show(title, [h("p", { class: "empty" }, "Asking what this would do …")], null);
  confirmed(async () => onDone(await act()));
  try {
    show(title, ...(await plan()));
  } catch (error) {
    show(title, problem(error), null);
  }
}

/** Try again now what waits for another attempt: at a subscriber, of a message, or of the messages that are ticked. */
export function askRetry({ name, paths, subscriber }, onDone) {
  const each = (dry_run) => inTurn(paths, (path) => post(path, { ...(subscriber && { subscriber }), dry_run }));
  const total = (answers) => answers.reduce((sum, one) => sum + one.retried, 0);
  return askPlanned(
    `Retry now: ${name}`,
    async () => {
      const count = total(await each(true));
      const words = count ? `${many(count, "delivery waits", "deliveries wait")} for another attempt. Each goes out at once, as the window has room, and spends an attempt as usual.` : "Nothing here waits for another attempt.";
      return [[h("p", null, words)], count ? `Retry ${many(count, "delivery", "deliveries")}` : null];
    },
    async () => {
      const count = total(await each(false));
      return `${many(count, "delivery is", "deliveries are")} tried again now at ${name}.`;
    },
    onDone,
  );
}

/** Have an open breaker probe at once: somebody thinks that the endpoint is mended. */
export function askProbe({ path, name }, onDone) {
  return askPlanned(
    `Probe ${name} now`,
    async () => {
      const { retried } = await post(path, { dry_run: true });
      const waits = retried ? ` ${many(retried, "delivery that waits for another attempt is", "deliveries that wait for another attempt are")} due at once, too, and ${retried === 1 ? "goes" : "go"} out as soon as the breaker lets ${retried === 1 ? "it" : "them"}.` : "";
      return [[h("p", null, `One message goes out at once and spends an attempt. If it is answered, more follow, until the breaker closes.${waits}`)], "Probe now"];
    },
    async () => {
      await post(path, {});
      return `The next probe of ${name} is due now.`;
    },
    onDone,
  );
}

async function inTurn(items, ask) {
  const answers = [];
  for (const item of items) answers.push(await ask(item));
  return answers;
}

/** Send the messages that are ticked again: a job. */
export function askReplaySelection({ queue, ids }, onDone) {
  const path = `/v1/queues/${encodeURIComponent(queue)}/replay`;
  return askPlanned(
    `Replay ${many(ids.length, "message", "messages")} of ${queue}`,
    async () => {
      const { total } = await post(path, { ids, dry_run: true });
      const words = total ? `${many(total, "message goes", "messages go")} out again, in causal order: those that are selected, and what failed through them.` : "There is nothing to send again.";
      return [[h("p", null, words), h("p", { class: "quiet" }, "Each keeps its webhook-id: a subscriber that drops what it has seen drops these too.")], total ? `Replay ${many(total, "message", "messages")}` : null];
    },
    async () => `Job ${(await post(path, { ids })).id} sends them again.`,
    onDone,
  );
}

/** Cancel the messages that are ticked: nothing more of them is delivered. */
export function askCancelSelection({ queue, ids }, onDone) {
  const path = `/v1/queues/${encodeURIComponent(queue)}/cancel`;
  return askPlanned(
    `Cancel ${many(ids.length, "message", "messages")} of ${queue}`,
    async () => {
      const { messages, dropped } = await post(path, { ids, dry_run: true });
      const ended = ids.length - messages;
      const words = messages ? `${many(messages, "message has", "messages have")} not ended: ${many(dropped, "delivery is", "deliveries are")} dropped, and children follow their own rule for a parent that failed.` : "Nothing here can be cancelled.";
      return [[h("p", null, words), ended > 0 && h("p", { class: "quiet" }, `${many(ended, "has", "have")} ended already and ${ended === 1 ? "stays" : "stay"} as ${ended === 1 ? "it is" : "they are"}.`)], messages ? `Cancel ${many(messages, "message", "messages")}` : null];
    },
    async () => {
      const done = await post(path, { ids });
      return `${many(done.messages, "message is", "messages are")} cancelled: ${many(done.dropped, "delivery was", "deliveries were")} dropped.`;
    },
    onDone,
  );
}

/** Drop dead letters for good: all of a queue, of a subscriber, or of the messages that are ticked. A job. */
export function askDrop({ queue, subscriber, ids, name }, onDone) {
  const path = `/v1/queues/${encodeURIComponent(queue)}/dead-letters`;
  const wish = { ...(subscriber && { subscriber }), ...(ids && { ids }) };
  return askPlanned(
    `Drop ${name}`,
    async () => {
      const { total } = await remove(path, { ...wish, dry_run: true });
      const words = total ? `${many(total, "dead letter is", "dead letters are")} dropped for good: nobody lists or replays ${total === 1 ? "it" : "them"} any more. Messages keep their bad end; what is on hold for them ends too.` : "There is nothing to drop.";
      return [[h("p", null, words)], total ? `Drop ${many(total, "dead letter", "dead letters")}` : null];
    },
    async () => {
      const job = await remove(path, wish);
      return `Job ${job.id} drops ${many(job.total, "dead letter", "dead letters")}.`;
    },
    onDone,
  );
}

/** Show the request of an attempt as the log tells it, with what was answered. */
export async function showRequest({ id, subscriber: name, at }) {
  dialog.onchange = null;
  const title = `Request to ${name}`;
  show(title, [h("p", { class: "empty" }, "Reading the log …")], null);
  confirmed(null);
  try {
    const message = await get(`/v1/messages/${id}`);
    const delivery = message.deliveries.find((one) => one.subscriber === name);
    const attempt = delivery.attempts[Number(at)];
    const path = `/v1/queues/${encodeURIComponent(message.queue)}/subscribers/${encodeURIComponent(name)}`;
    const [subscriber, bytes] = await Promise.all([get(path), content(id)]);
    const request = rebuilt(message, delivery, attempt, subscriber, bytes);
    const body = readable(request.body);
    show(title, requestBody(request, body, attempt), null);
    confirmed(null, {
      copyRequest: () => copy(`${head(request)}\n\n${new TextDecoder().decode(request.body)}`),
      copyCurl: () => copy(asCurl(request, body.kind, id)),
      keepBody: () => download(id, request.body),
    });
  } catch (error) {
    show(title, problem(error), null);
  }
}

function requestBody(request, body, attempt) {
  const answered = [because(attempt.reason, attempt.status) || attempt.outcome, `after ${attempt.latency_ms} ms`];
  const buttons = [["copyRequest", "Copy"], ["copyCurl", "Copy as curl"], ["keepBody", "Download the body"]];
  return [
    h("pre", { class: "content request", tabindex: "0" }, head(request)),
    h("p", { class: "quiet" }, `Body, ${body.kind}:`),
    h("pre", { class: "content", tabindex: "0" }, body.text),
    h("p", { class: "actions" }, buttons.map(([what, words]) => h("button", { type: "button", class: "small", "data-do": what }, words))),
    h("h2", null, "Answer"),
    h("p", { class: "answered" }, answered.filter(Boolean).join(", ")),
    attempt.detail ? h("pre", { class: "content", tabindex: "0" }, attempt.detail) : h("p", { class: "quiet" }, "The log keeps the beginning of an answer that failed; of this one it has nothing."),
    request.remarks.map((text) => h("p", { class: "quiet" }, text)),
  ];
}

/** Let the reader write a message and publish it. */
export function askPublish(queue, onDone) {
  const field = (name, label, hint) => h("label", null, label, h("input", { name, placeholder: hint, autocomplete: "off", spellcheck: "false" }));
  const value = (name) => dialog.querySelector(`[name=${name}]`).value.trim();
  dialog.onchange = null;
  show(
    `Publish to ${queue}`,
    [
      h("p", null, "It is a message like any other: every subscriber of the queue gets it."),
      h("label", null, "Content", h("textarea", { name: "content", rows: "6", spellcheck: "false" }, '{"test": true}')),
      field("type", "Content type", "application/json"),
      field("key", "Key", "none"),
      field("parents", "Parents, ids with commas between them", "none"),
    ],
    "Publish",
  );
  confirmed(async () => {
    const given = { "Content-Type": value("type") || "application/json", "Syncbrok-Key": value("key"), "Syncbrok-Parent": value("parents") };
    const more = Object.fromEntries(Object.entries(given).filter(([, text]) => text));
    const done = await publish(queue, dialog.querySelector("[name=content]").value, more);
    onDone(["Message ", messageLink(done.id, true), " is accepted."]);
  });
}

export function askCancelJob(id, onDone) {
  show(`Cancel job ${id}`, [h("p", null, "What it has sent stays sent; the rest is taken back.")], "Cancel it");
  dialog.onchange = null;
  confirmed(async () => {
    const job = await remove(`/v1/jobs/${id}`);
    onDone(`Job ${id} is cancelled: ${number(job.done)} of ${number(job.total)} were done.`);
  });
}

export function askCancel(id, onDone) {
  show("Cancel this message", [h("p", null, "What has not been delivered of it will end as dropped, and its children follow their own rule for a parent that failed.")], "Cancel it");
  dialog.onchange = null;
  confirmed(async () => {
    const done = await remove(`/v1/messages/${id}`);
    onDone(`${number(done.dropped)} deliveries were dropped.`);
  });
}

function show(title, body, action) {
  dialog.replaceChildren(
    h("h2", { id: "dialog-title" }, title),
    ...h("div", null, body).childNodes,
    h("p", { class: "actions" }, action && h("button", { type: "button", class: "primary", "data-do": "confirm" }, action), h("button", { type: "button", "data-do": "close" }, action ? "Leave it" : "Close")),
  );
  if (!dialog.open) dialog.showModal();
}

function problem(error) {
  return [h("p", { class: "notice bad", role: "alert" }, error.message), error.mend && h("p", { class: "quiet" }, error.mend)];
}

/** What the buttons of the dialog do: `work` once it is confirmed, and by name what changes nothing. */
function confirmed(work, more = {}) {
  dialog.onclick = async (event) => {
    const what = event.target.closest("[data-do]")?.dataset.do;
    if (what === "close") dialog.close();
    if (what in more) {
      await more[what]();
      event.target.textContent = "Done";
    }
    if (what !== "confirm") return;
    event.target.disabled = true;
    try {
      await work();
      dialog.close();
    } catch (error) {
      show("This could not be done", problem(error), null);
    }
  };
}
