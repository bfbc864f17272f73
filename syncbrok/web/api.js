// Asking the broker. A token, where the broker wants one, is kept for this tab only.

const KEY = "syncbrok-token";

/** The address below which the broker answers: a proxy may have put a prefix before its paths. */
const BASE = new URL("../", import.meta.url);
const url = (path) => new URL(path.replace(/^\//, ""), BASE);

/** An answer that is a problem document (RFC 9457). */
export class Problem extends Error {
  constructor(status, document) {
    super(document.detail || document.title || `status ${status}`);
    this.status = status;
    this.title = document.title || "The broker refused";
    this.mend = document.mend || "";
    this.slug = String(document.type || "").split(":").at(-1);
  }
}

/** Ends the event stream that is read, and the pause before it is tried again. */
let hurry = () => {};

// A page that the browser keeps for its way back would hold a connection of six for as long.
addEventListener("pagehide", () => hurry());

export const hasToken = () => sessionStorage.getItem(KEY) !== null;

/** Speak with this token from now on; null: with none. */
export function setToken(token) {
  if (token === null) sessionStorage.removeItem(KEY);
  else sessionStorage.setItem(KEY, token);
  hurry();
}

/** A header holds bytes, and the broker reads them as UTF-8; `fetch` takes no letter beyond a byte. */
const asBytes = (text) => String.fromCharCode(...new TextEncoder().encode(text));

function headers(more) {
  const token = sessionStorage.getItem(KEY);
  const all = token ? { ...more, Authorization: `Bearer ${token}` } : more;
  return Object.fromEntries(Object.entries(all).map(([name, value]) => [name, asBytes(value)]));
}

async function answer(response) {
  if (response.ok) return response;
  let document = {};
  try {
    document = await response.json();
  } catch {
    // no problem document: something between us and the broker answered
  }
  throw new Problem(response.status, document);
}

async function send(method, path, body, signal) {
  const options = { method, headers: headers({}), signal };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  return answer(await fetch(url(path), options));
}

export const get = async (path, signal) => (await send("GET", path, undefined, signal)).json();
export const post = async (path, body) => (await send("POST", path, body)).json();
export const patch = async (path, body) => (await send("PATCH", path, body)).json();
export const remove = async (path, body) => (await send("DELETE", path, body)).json();

/** Publish a content; `more` are headers. */
export async function publish(queue, text, more) {
  const options = { method: "POST", headers: headers(more), body: new TextEncoder().encode(text) };
  return (await answer(await fetch(url(`/v1/queues/${encodeURIComponent(queue)}/messages`), options))).json();
}

/** The bytes of a content. */
export async function content(id) {
  const response = await send("GET", `/v1/messages/${id}/content`);
  return new Uint8Array(await response.arrayBuffer());
}

/**
 * What happens, live, until the page is closed. `EventSource` cannot send a token, so the stream is read by hand.
 * `onLink` is told "live" and "waiting"; after a break it goes on where it was.
 */
export async function listen(path, onEvent, onLink) {
  let last = null;
  let pause = 500;
  for (;;) {
    const mine = new AbortController();
    hurry = () => mine.abort();
    try {
      const response = await answer(await fetch(url(path), { signal: mine.signal, headers: headers(last ? { "Last-Event-ID": last } : {}) }));
      onLink("live");
      pause = 500;
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const blocks = (rest + value).split("\n\n");
        rest = blocks.pop();
        for (const block of blocks) last = tell(block, onEvent) ?? last;
      }
    } catch (error) {
      if (error instanceof Problem && (error.status === 401 || error.status === 403)) pause = 10_000;
    }
    onLink("waiting");
    if (mine.signal.aborted) pause = 250; // another token, or the page is left: then the timer rests with it
    await new Promise((resolve) => {
      hurry = () => {
        pause = 250;
        resolve();
      };
      setTimeout(resolve, pause);
    });
    pause = Math.min(pause * 2, 10_000);
  }
}

function tell(block, onEvent) {
  let id = null;
  for (const line of block.split("\n")) {
    if (line.startsWith("id: ")) id = line.slice(4);
    if (line.startsWith("data: ")) onEvent(JSON.parse(line.slice(6)));
  }
  return id;
}
