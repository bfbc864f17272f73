/**
 * Publishes gathered into batches: one request, one fsync and one answer for hundreds of messages.
 *
 * What is published while a batch is being sent goes into the next one; the first waits `lingerS` for company. The
 * messages of a queue stay in the order given. A parent that is in the same batch is named by its line; one that is in
 * another batch is waited for.
 */
import { sleep } from "./answers.js";
import { Refused } from "./errors.js";
import {
  checkParents,
  Draft,
  idOf,
  isAlone,
  membersOf,
  newKey,
  Pending,
  postOf,
  type Content,
  type Parent,
} from "./messages.js";
import { queuePath, type Transport } from "./transport.js";

const BATCH_CHARS = 4 * 1024 * 1024; // at most 12 MiB of UTF-8; the broker takes 16
const WAITING_CHARS_MAX = 64 * 1024 * 1024;
/** statuses that refuse a batch whatever is in it: no token for it, no such queue */
const NOT_OF_A_LINE = new Set([401, 403, 404]);

export interface BatchingOptions {
  linesMax: number;
  lingerS: number;
  waitingMax: number;
  idempotent: boolean;
}

/** A queue has one batch under way, since two would overtake each other. At most `waitingMax` messages are in memory. */
export class Batching {
  private readonly key = newKey();
  private number = 0;
  private readonly queues = new Map<string, Pending[]>();
  private readonly busy = new Set<Promise<void>>();
  private readonly entering: (() => void)[] = [];
  private waiting = 0;
  private waitingChars = 0;

  constructor(
    private readonly transport: Transport,
    private readonly options: BatchingOptions,
  ) {}

  /** Hand it over; it is written as it is now. Settles once there is room for it. Rejects with `TypeError`. */
  post(queue: string, message: Draft | Content): Promise<Pending> {
    let put: () => Pending;
    try {
      put = this.prepared(queue, message);
    } catch (error) {
      return Promise.reject(error);
    }
    if (!this.isFull && !this.entering.length) return Promise.resolve(put());
    return new Promise((resolve) => this.entering.push(() => resolve(put())));
  }

  /** Everything handed over was answered. */
  async finished(): Promise<void> {
    while (this.busy.size) await Promise.all(this.busy);
  }

  private prepared(queue: string, message: Draft | Content): () => Pending {
    const path = queuePath(queue);
    const { content, fields } = message instanceof Draft ? message : new Draft(message);
    const parents = fields.parents ?? [];
    checkParents(parents);
    // The key is given once, so that every repeat has the same.
    const key = this.options.idempotent ? `${this.key}-${this.number++}` : "";
    if (isAlone(fields)) {
      const again = Boolean(key || fields.idempotencyKey);
      return () => {
        const pending = new Pending(queue, "", parents);
        this.enter(pending);
        this.keep(this.postAlone(pending, `${path}/messages`, content, { ...fields }, key, again));
        return pending;
      };
    }
    const line = JSON.stringify(membersOf(content, fields, key));
    return () => {
      const pending = new Pending(queue, line, parents);
      this.enter(pending);
      const waiting = this.queues.get(queue);
      if (waiting !== undefined) waiting.push(pending);
      else {
        const first = [pending];
        this.queues.set(queue, first);
        this.keep(this.sendAll(queue, first));
      }
      return pending;
    };
  }

  private get isFull(): boolean {
    return this.waiting >= this.options.waitingMax || this.waitingChars >= WAITING_CHARS_MAX;
  }

  private enter(pending: Pending): void {
    this.waiting += 1;
    this.waitingChars += pending.line.length;
  }

  private leave(batch: readonly Pending[]): void {
    this.waiting -= batch.length;
    for (const pending of batch) this.waitingChars -= pending.line.length;
    while (this.entering.length && !this.isFull) this.entering.shift()?.();
  }

  private keep(work: Promise<void>): void {
    this.busy.add(work);
    void work.finally(() => this.busy.delete(work));
  }

  private async postAlone(
    pending: Pending,
    path: string,
    content: Content,
    fields: Draft["fields"],
    key: string,
    again: boolean,
  ): Promise<void> {
    try {
      const post = postOf(content, fields, await Promise.all(pending.parents.map(idOf)), key);
      const answer = await this.transport.request("POST", path, { ...post, again });
      pending.resolveWith(String(answer.json["id"]));
    } catch (error) {
      pending.rejectWith(error);
    } finally {
      this.leave([pending]);
    }
  }

  /** Until there is nothing left to send to this queue. */
  private async sendAll(queue: string, waiting: Pending[]): Promise<void> {
    try {
      while (waiting.length) {
        if (waiting.length < this.options.linesMax) await sleep(this.options.lingerS);
        const batch = this.taken(waiting);
        await this.send(queue, batch);
        this.leave(batch);
      }
    } finally {
      this.queues.delete(queue);
    }
  }

  /**
   * The next batch of the queue. It ends before a message whose parent is under way in another batch: that message may
   * wait, but those before it must not wait with it, since others may depend on them.
   */
  private taken(waiting: Pending[]): Pending[] {
    const taken = new Set<Pending>();
    let chars = 0;
    for (const pending of waiting) {
      if (taken.size >= this.options.linesMax || chars >= BATCH_CHARS) break;
      if (taken.size && pending.parents.some((one) => one instanceof Pending && !one.isSettled && !taken.has(one))) break;
      taken.add(pending);
      chars += pending.line.length;
    }
    waiting.splice(0, taken.size);
    return [...taken];
  }

  private async send(queue: string, batch: readonly Pending[]): Promise<void> {
    try {
      const body = await bodyOf(batch);
      const headers = { "Content-Type": "application/x-ndjson" };
      const asked = { body, headers, again: this.options.idempotent };
      const { json } = await this.transport.request("POST", `${queuePath(queue)}/messages:batch`, asked);
      const ids = json["ids"] as string[];
      batch.forEach((pending, at) => pending.resolveWith(ids[at] as string));
    } catch (error) {
      if (error instanceof Refused && !NOT_OF_A_LINE.has(error.status) && batch.length > 1) {
        const middle = batch.length >> 1; // one of them is wrong: the others are not to suffer
        await this.send(queue, batch.slice(0, middle));
        await this.send(queue, batch.slice(middle));
      } else for (const pending of batch) pending.rejectWith(error);
    }
  }
}

async function bodyOf(batch: readonly Pending[]): Promise<string> {
  const at = new Map<Parent, number>();
  const lines: string[] = [];
  for (const [before, pending] of batch.entries()) {
    if (pending.parents.length) {
      const parents: string[] = [];
      for (const parent of pending.parents) parents.push(at.has(parent) ? `#${at.get(parent)}` : await idOf(parent));
      lines.push(`${pending.line.slice(0, -1)},"parents":${JSON.stringify(parents)}}`);
    } else lines.push(pending.line);
    at.set(pending, before + 1);
  }
  return lines.join("\n");
}
