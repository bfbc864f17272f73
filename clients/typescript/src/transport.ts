/**
 * One request to the broker, repeated while the broker says "later" or cannot be reached: at another address, where it
 * has several, and after a pause, where each of them was asked.
 */
import { BrokerAddresses, LEADER } from "./addresses.js";
import { isElsewhere, isUnknown, LATER, problemOf, Repeats, retryAfterS, sleep } from "./answers.js";
import { ClientError, Refused, told, Unreachable } from "./errors.js";

const PAUSE_MAX_S = 5;
const SILENCE_S = 90;
const ANSWER_S = 10;
const NOT_SENT = new Set([
  "ECONNREFUSED",
  "ENOTFOUND",
  "EAI_AGAIN",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "UND_ERR_CONNECT_TIMEOUT",
]);
const UNKNOWN = "it is not known whether the broker has it";

export interface Asked {
  body?: string | Uint8Array | undefined;
  headers?: Record<string, string> | undefined;
  /** repeat it also where it is not known whether the broker has seen it */
  again?: boolean | undefined;
  /** for how long the broker is asked to wait with it */
  waitS?: number | undefined;
  signal?: AbortSignal | undefined;
}

export interface Answer {
  status: number;
  headers: Headers;
  json: Record<string, unknown>;
}

class Later extends Error {
  constructor(
    why: string,
    readonly elsewhere: boolean,
    readonly atLeastS = 0,
  ) {
    super(why);
  }
}

export class Transport {
  readonly addresses: BrokerAddresses;
  private readonly fetch: typeof fetch;

  constructor(
    urls: string | readonly string[],
    readonly token: string | undefined,
    readonly giveUpS: number,
    fetchWith?: typeof fetch,
  ) {
    this.addresses = new BrokerAddresses(urls);
    this.fetch = fetchWith ?? ((url, init) => globalThis.fetch(url, init));
  }

  /** For how long one address is waited for. Where there are others, each has its turn before the time is over. */
  get answerS(): number {
    const { known } = this.addresses;
    return known === 1 ? SILENCE_S : Math.min(ANSWER_S, this.giveUpS / known);
  }

  /** The answer's JSON. Throws `Refused` and `Unreachable`, and the signal's reason once that is aborted. */
  async request(method: string, path: string, asked: Asked = {}): Promise<Answer> {
    const repeats = new Repeats(this.giveUpS, PAUSE_MAX_S);
    const tried = new Set<string>();
    for (;;) {
      const url = this.addresses.next(tried) as string; // cleared below before none is left
      let pause: number | undefined;
      try {
        return await this.once(url, method, path, asked);
      } catch (error) {
        if (!(error instanceof Later)) throw error;
        if (error.elsewhere) {
          tried.add(url);
          this.addresses.failed(url);
          if (this.addresses.next(tried) !== undefined && !repeats.areOver) continue;
        }
        pause = repeats.pauseS(error.atLeastS);
        if (pause === undefined)
          throw new Unreachable(`${this.addresses} did not take it within ${this.giveUpS} s: ${error.message}`);
      }
      tried.clear();
      await sleep(pause, asked.signal);
      asked.signal?.throwIfAborted();
    }
  }

  private async once(url: string, method: string, path: string, asked: Asked): Promise<Answer> {
    const { body, again = true, waitS = 0, signal } = asked;
    const headers: Record<string, string> = { ...asked.headers };
    if (this.token !== undefined) headers["Authorization"] = `Bearer ${this.token}`;
    const silenceS = again ? Math.min(this.answerS + waitS, SILENCE_S + waitS) : SILENCE_S + waitS;
    const ending = new AbortController();
    const end = (): void => ending.abort(signal?.reason);
    signal?.throwIfAborted();
    signal?.addEventListener("abort", end);
    const timer = setTimeout(() => ending.abort(new Error(`no answer within ${silenceS} s`)), silenceS * 1000);
    let answer: Response;
    let written: string;
    try {
      const init: RequestInit = { method, headers, redirect: "manual", signal: ending.signal };
      // (with the token, to wherever a redirection says: never)
      if (body !== undefined) init.body = body as BodyInit;
      answer = await this.fetch(url + path, init);
      written = await answer.text();
    } catch (error) {
      if (signal?.aborted) throw signal.reason;
      const code = ((error as Error).cause as { code?: string } | undefined)?.code ?? "";
      if (!again && !NOT_SENT.has(code)) {
        this.addresses.failed(url);
        throw new Unreachable(`${method} ${path}: ${told(error)}; ${UNKNOWN}`);
      }
      throw new Later(told(error), true);
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
    }
    this.addresses.named(url, answer.headers.get(LEADER));
    if (answer.ok) {
      this.addresses.answered(url);
      return { status: answer.status, headers: answer.headers, json: documentOf(url, answer.status, written) };
    }
    const problem = problemOf(written);
    if (!Object.keys(problem).length) problem.detail = written.slice(0, 200);
    if (!LATER.has(answer.status)) {
      this.addresses.answered(url);
      throw new Refused(answer.status, problem);
    }
    const detail = String(problem.detail || answer.statusText);
    if (!again && isUnknown(answer.status, problem)) throw new Unreachable(`${method} ${path}: ${detail}; ${UNKNOWN}`);
    throw new Later(detail, isElsewhere(answer.status, problem), retryAfterS(answer.headers.get("Retry-After")));
  }
}

function documentOf(url: string, status: number, written: string): Record<string, unknown> {
  if (status === 204 || status === 205) return {};
  try {
    const found: unknown = JSON.parse(written);
    if (typeof found === "object" && found !== null) return found as Record<string, unknown>;
  } catch {
    // no document
  }
  throw new Refused(status, { detail: `what answers at ${url} is not Syncbrok; is the address right?` });
}

/** A name, an id or a lease as one segment of a path. A proxy would take `.` and `..` for steps in it. */
export function segment(name: string): string {
  if (name === "." || name === "..") return name.replaceAll(".", "%2E");
  try {
    return encodeURIComponent(name);
  } catch {
    throw new ClientError(`${JSON.stringify(name)} is no text that can be encoded`);
  }
}

export function queuePath(queue: string): string {
  return `/v1/queues/${segment(queue)}`;
}
