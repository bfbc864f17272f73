/** The broker's answers other than success, and when to ask again. */
import { slugOf, type Problem } from "./errors.js";

/** statuses of what may work later. With one nothing was kept, whatever the request, but see `isUnknown` */
export const LATER: ReadonlySet<number> = new Set([408, 429, 503, 507]);
const ELSEWHERE: ReadonlySet<string> = new Set(["no-leader", "no-quorum", "draining", "log-failed", "crowded"]);
const PAUSE_FIRST_S = 0.1;

export function problemOf(written: string): Problem {
  try {
    const found: unknown = JSON.parse(written);
    if (typeof found === "object" && found !== null && !Array.isArray(found)) return found as Problem;
  } catch {
    // no document
  }
  return {};
}

/** Whether another address of the same cluster may do what this one cannot now. */
export function isElsewhere(status: number, problem: Problem): boolean {
  return status === 503 && (!problem.type || ELSEWHERE.has(slugOf(problem)));
}

/** Whether the broker itself cannot say if it has kept what it was sent: its log failed meanwhile. */
export function isUnknown(status: number, problem: Problem): boolean {
  return status === 503 && slugOf(problem) === "log-failed";
}

/** Seconds to wait that `Retry-After` asks for. A date counts as no wish: the pause grows by itself. */
export function retryAfterS(header: string | null | undefined): number {
  const text = (header ?? "").trim();
  return /^\d{1,5}$/.test(text) ? Number(text) : 0;
}

/** When a request is sent again: after pauses that double up to `pauseMaxS`, each spread over its second half. */
export class Repeats {
  private readonly untilMs: number;
  private pauseNextS = PAUSE_FIRST_S;

  constructor(
    giveUpS: number,
    private readonly pauseMaxS: number,
  ) {
    this.untilMs = performance.now() + giveUpS * 1000;
  }

  get areOver(): boolean {
    return performance.now() > this.untilMs;
  }

  /** The next pause, for as long as the broker asks at least; undefined where the time would be over by then. */
  pauseS(atLeastS: number): number | undefined {
    const pause = Math.max(atLeastS, this.pauseNextS * (0.5 + Math.random() / 2));
    this.pauseNextS = Math.min(2 * this.pauseNextS, this.pauseMaxS);
    return performance.now() + pause * 1000 <= this.untilMs ? pause : undefined;
  }
}

export function sleep(seconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const done = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, seconds * 1000);
    signal?.addEventListener("abort", done);
  });
}
