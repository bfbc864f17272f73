// Who the reader is to the broker, and what they may do: the page offers nothing that would be refused.

import { get, hasToken, Problem, setToken } from "./api.js";
import { decoded } from "./format.js";

/** What `GET /v1/token` says; null while that is not known. */
let own = null;

/** Ask who this is, where it is not known. A refusal is the view's to show. */
export async function learn() {
  if (own) return;
  try {
    own = await get("/v1/token");
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
  }
  show();
}

/** Whether there is the scope in the queue; without a queue: in all of them. */
export function may(scope, queue) {
  const patterns = own?.scopes[scope] ?? [];
  return patterns.some((one) => one === "*" || (queue !== undefined && (one.endsWith("*") ? queue.startsWith(one.slice(0, -1)) : one === queue)));
}

/** Use a token, or with null none, and forget who that was. */
export function become(token) {
  own = null;
  setToken(token);
  show();
}

/** A link may bring a token in its fragment, `/#token=...`: it is kept for this tab and leaves the address at once. */
export function takeFromAddress() {
  const found = /^#token=(.+)$/.exec(location.hash);
  if (!found) return;
  history.replaceState(null, "", `${location.pathname}${location.search}#/`);
  become(decoded(found[1]));
}

function show() {
  document.getElementById("who").hidden = !hasToken();
  document.getElementById("who-name").textContent = own?.name ?? "";
}
