// Questions that come before anything is changed: a replay shows its plan first, a cancel asks.

import { post, remove } from "./api.js";
import { h } from "./dom.js";
import { messageLink, number } from "./format.js";

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
      h("label", null, h("input", { type: "checkbox", name: "descendants", checked: asked.descendants }), " also descendants that have been delivered"),
      h("p", { class: "quiet" }, "Each keeps its webhook-id: a subscriber that drops what it has seen drops these too."),
    ];
  }
  await redraw();
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

function confirmed(work) {
  dialog.onclick = async (event) => {
    const what = event.target.closest("[data-do]")?.dataset.do;
    if (what === "close") dialog.close();
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
