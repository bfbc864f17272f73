/** The client; its words are those of the Python client. */
import { sleep } from "./answers.js";
import { Batching } from "./batching.js";
import * as consuming from "./consuming.js";
import type { ConsumerOptions, PullOptions } from "./consuming.js";
import { ClientError, told } from "./errors.js";
import { Draft, type Content, type Fields, type Pending, type Published } from "./messages.js";
import { Publisher } from "./publisher.js";
import type { Handle, Received } from "./received.js";
import * as streaming from "./streaming.js";
import type { StreamOptions } from "./streaming.js";
import { segment, Transport, type Answer, type Asked } from "./transport.js";

const ENDED: ReadonlySet<unknown> = new Set(["complete", "dead", "expired", "dropped"]);
const LOOK_S = 0.05;
const PAGE = 1000;

export interface ClientOptions {
  token?: string;
  /** each message is given an idempotency key, so that a repeat after silence publishes nothing twice; true unless given */
  idempotent?: boolean;
  /** for how long a request is repeated before `Unreachable`; 60 unless given */
  giveUpS?: number;
  /** messages of a batch; 5,000 unless given */
  batchLinesMax?: number;
  /** how long the first message of a batch waits for company; 0.002 unless given */
  lingerS?: number;
  /** messages in memory that are not answered, beyond which `post` and `publish` wait; 20,000 unless given */
  waitingMax?: number;
  /** another `fetch`, as one with certificates of its own */
  fetch?: typeof fetch;
  /** hears of what the client goes on after: a pull that failed, a stream that broke; `console.warn` unless given */
  warn?: (told: string) => void;
}

export interface Delivery {
  id: string;
  sequence: number;
  state: string;
  reason: string | null;
  attempts: number;
  tried_at: string | null;
}

export interface DeliveriesAsked {
  after?: number;
  through?: number;
  state?: string;
}

type Registered = (stopping: AbortSignal) => Promise<void>;

/**
 * `url`: the broker's address, or those of the nodes of a cluster. A node that cannot be reached, is silent or says
 * that it cannot now (503 `no-leader`, `no-quorum`, `draining`) makes way for the next; where answers name the node that
 * leads, that is asked directly. `close` it at the end.
 */
export class Client {
  private readonly transport: Transport;
  private readonly batching: Batching;
  private readonly idempotent: boolean;
  private readonly registered: Registered[] = [];
  private readonly publishers = new Set<Publisher>();
  private readonly warn: (what: string, error: unknown) => void;
  private stopping = new AbortController();
  private running: Promise<unknown> = Promise.resolve();

  constructor(url: string | readonly string[] = "http://127.0.0.1:10000", options: ClientOptions = {}) {
    const { idempotent = true, giveUpS = 60, batchLinesMax = 5000, lingerS = 0.002, waitingMax = 20_000 } = options;
    this.transport = new Transport(url, options.token, giveUpS, options.fetch);
    this.batching = new Batching(this.transport, { linesMax: batchLinesMax, lingerS, waitingMax, idempotent });
    this.idempotent = idempotent;
    const warn = options.warn ?? ((text: string) => console.warn(text));
    this.warn = (what, error) => warn(`syncbrok: ${what}: ${error instanceof Error ? told(error) : JSON.stringify(error)}`);
  }

  /** Ends a `run` as `stop` does, and waits for everything published. */
  async close(): Promise<void> {
    this.stop();
    await this.running;
    await Promise.all([...this.publishers].map((one) => one.close()));
    await this.batching.finished();
  }

  /** Any route: its answer's JSON. It is repeated as all else is; a POST that changes something only with `again`. */
  async request(method: string, path: string, body?: object, asked: Asked = {}): Promise<Answer> {
    const again = asked.again ?? method !== "POST";
    if (body === undefined) return this.transport.request(method, path, { ...asked, again });
    const headers = { "Content-Type": "application/json", ...asked.headers };
    return this.transport.request(method, path, { ...asked, again, body: JSON.stringify(body), headers });
  }

  /**
   * The queue is there when this resolves; `settings` as in the body of `POST /v1/queues`. Rejects with `Refused` (409)
   * where it is there with others.
   */
  async declare(queue: string, settings: object = {}): Promise<void> {
    await this.request("POST", "/v1/queues", { name: queue, ...settings }, { again: true });
  }

  /**
   * Resolves once the message is on the broker's disk. Rejects with `Refused` and `Unreachable`. Many calls at once
   * share batches: do not await each before the next, or take `post` or `publishMany`. One with `deliverAt` or `expires`
   * goes by itself, beside the batches.
   */
  async publish(queue: string, content: Content, fields: Fields = {}): Promise<Published> {
    return (await this.batching.post(queue, new Draft(content, fields))).published;
  }

  /**
   * Hand a message over and go on; waits only while too many are under way. The `Pending` may be a parent of the next,
   * and its `published` is awaited for the outcome.
   */
  post(queue: string, message: Draft | Content): Promise<Pending> {
    return this.batching.post(queue, message);
  }

  /**
   * All of them, in this order, in as few requests as may be. Rejects for the first that was refused; the others are
   * published.
   */
  async publishMany(
    queue: string,
    messages: Iterable<Draft | Content> | AsyncIterable<Draft | Content>,
  ): Promise<Published[]> {
    const pending: Pending[] = [];
    for await (const message of messages) pending.push(await this.batching.post(queue, message));
    const published: Published[] = [];
    for (const one of pending) published.push(await one.published);
    return published;
  }

  /** Publish over a WebSocket: an answer for each message as soon as it is durable. `close` it, or the client. */
  publisher(queue: string): Publisher {
    const made = new Publisher(this.transport, queue, this.idempotent);
    this.publishers.add(made);
    return made;
  }

  /** Wait for a message's end: `complete`, `dead`, `expired` or `dropped`. Rejects with `ClientError` after the time. */
  async wait(message: Published | string, timeoutS = 60): Promise<string> {
    const until = performance.now() + timeoutS * 1000;
    for (let pauseS = LOOK_S; ; pauseS = Math.min(2 * pauseS, 1)) {
      const { state } = await this.message(message);
      if (ENDED.has(state)) return String(state);
      if (performance.now() + pauseS * 1000 > until) throw new ClientError(`it is ${state} after ${timeoutS} s`);
      await sleep(pauseS);
    }
  }

  /** The JSON of `GET /v1/messages/{id}`: state, deliveries, attempts, why it waits. */
  async message(message: Published | string): Promise<Record<string, unknown>> {
    const id = typeof message === "string" ? message : message.id;
    return (await this.transport.request("GET", `/v1/messages/${segment(id)}`)).json;
  }

  /** The deliveries at one subscriber of the messages of a queue with a sequence above `after` and up to `through`. */
  async deliveries(queue: string, subscriber: string, asked: DeliveriesAsked = {}): Promise<Delivery[]> {
    let path = `/v1/queues/${segment(queue)}/subscribers/${segment(subscriber)}/deliveries?limit=${PAGE}`;
    if (asked.state !== undefined) path += `&state=${segment(asked.state)}`;
    if (asked.through !== undefined) path += `&through=${asked.through}`;
    const found: Delivery[] = [];
    for (let place: unknown = asked.after ?? 0; place !== null; ) {
      const { json } = await this.transport.request("GET", `${path}&after=${place}`);
      found.push(...(json["deliveries"] as Delivery[]));
      place = json["next"];
    }
    return found;
  }

  /** Up to `most` messages, each lent for `leaseS`; an empty list when none came within `waitS`. */
  pull(queue: string, group = "pull", options: PullOptions = {}): Promise<Received[]> {
    return consuming.pull(this.transport, queue, group, options);
  }

  /** Messages one by one, for ever. Acknowledge each. */
  async *messages(queue: string, group = "pull", options: PullOptions = {}): AsyncGenerator<Received, never> {
    for (;;) yield* await this.pull(queue, group, options);
  }

  /** How many of them were still lent to us. */
  acknowledge(...messages: Received[]): Promise<number> {
    return consuming.acknowledge(
      this.transport,
      messages.map((message) => message.lease),
    );
  }

  /** A failed attempt. Rejects with `Refused` (410) where it is not lent to us any more. */
  refuse(message: Received, reason = "", delayS?: number): Promise<void> {
    return consuming.refuse(this.transport, message.lease, reason, delayS);
  }

  /** Keep it so long from now on. Rejects with `Refused` (410) where it is not lent to us any more. */
  extend(message: Received, leaseS = 30): Promise<void> {
    return consuming.extend(this.transport, message.lease, leaseS);
  }

  /**
   * `handle` each message of the queue, `concurrency` at once, while `run` runs. It resolves: acknowledged. It rejects:
   * tried again as the queue's retry schedule says (`Refuse` with a reason).
   */
  consumer(queue: string, handle: Handle, options: ConsumerOptions = {}): void {
    this.registered.push((stopping) => consuming.run(this.transport, queue, handle, options, stopping, this.warn));
  }

  /**
   * As `consumer`, over a WebSocket: what is accepted is sent at once, `window` messages handled together. Each is to be
   * handled within the queue's `timeout`.
   */
  stream(queue: string, handle: Handle, options: StreamOptions = {}): void {
    this.registered.push((stopping) => streaming.run(this.transport, queue, handle, options, stopping, this.warn));
  }

  /** Consume with all that was registered, until `stop` is called and what is being handled is answered. */
  async run(): Promise<void> {
    this.stopping = new AbortController();
    const { signal } = this.stopping;
    const running = Promise.all(this.registered.map((one) => one(signal)));
    this.running = running.catch(() => undefined);
    try {
      await running;
    } finally {
      this.stopping.abort(); // where one of them failed, the others end
    }
  }

  /** Let `run` return. */
  stop(): void {
    this.stopping.abort();
  }
}
