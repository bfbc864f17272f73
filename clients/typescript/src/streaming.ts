/**
 * Consuming over a WebSocket: the broker sends as soon as it may, no more than the window unanswered.
 *
 * A connection that breaks is made again, at the next address where there are several. A group goes on where it was.
 * Without a group the broker forgets the consumer with its connection; then the next one begins with what was not
 * acknowledged, or behind the last that came.
 */
import { sleep } from "./answers.js";
import { handled, received, type Handle, type Received } from "./received.js";
import { opened, type Socket } from "./sockets.js";
import { queuePath, type Transport } from "./transport.js";

const LINGER_S = 0.002;
const PAUSE_S = 1;
/** the broker takes so many in a frame */
const MOST = 1000;

export interface StreamOptions {
  /** the durable group that `pull` uses too; without one nothing is kept for this consumer while it is away */
  group?: string;
  /** `now` unless given */
  start?: "beginning" | "now" | number;
  /** messages handled at once; 64 unless given */
  window?: number;
}

/** Receive, handle, acknowledge, until `stopping` and what was received is answered. */
export async function run(
  transport: Transport,
  queue: string,
  handle: Handle,
  options: StreamOptions,
  stopping: AbortSignal,
  warn: (told: string, error: unknown) => void,
): Promise<void> {
  let start: string | number = options.start ?? "now";
  const tried = new Set<string>();
  while (!stopping.aborted) {
    const url = transport.addresses.next(tried) as string;
    const conversation = new Conversation(queue, handle, options, start, stopping, warn);
    try {
      await conversation.hold(transport, url);
    } catch (error) {
      warn(`the stream of ${queue}`, error);
    }
    start = conversation.resume;
    tried.add(url);
    if (transport.addresses.next(tried) !== undefined) continue;
    tried.clear();
    await sleep(PAUSE_S, stopping);
  }
}

/** One connection. */
class Conversation {
  /** received and not answered yet; bounded by the window */
  private readonly owed = new Set<number>();
  private readonly handling = new Set<Promise<void>>();
  private done: number[] = [];
  private answering = false;
  private last = 0;
  /** the sequence behind which this one is sent messages, as the broker said */
  private began: number | undefined;
  private socket: Socket | undefined;
  private isOpen = true;

  constructor(
    private readonly queue: string,
    private readonly handle: Handle,
    private readonly options: StreamOptions,
    private readonly start: string | number,
    private readonly stopping: AbortSignal,
    private readonly warn: (told: string, error: unknown) => void,
  ) {}

  /** The `start` of the next connection, for a consumer without a group. */
  get resume(): string | number {
    if (this.owed.size) return Math.min(...this.owed);
    if (this.last) return this.last + 1;
    return this.began === undefined ? this.start : this.began + 1;
  }

  /** Keep the connection until it breaks and messages under way have been handled. */
  async hold(transport: Transport, url: string): Promise<void> {
    const { group, window = 64 } = this.options;
    const asked = new URLSearchParams({ start: String(this.start), window: String(window), ...(group ? { group } : {}) });
    const path = `${queuePath(this.queue)}/stream?${asked}`;
    // What comes in the same moment as the opening is kept until the socket is known.
    const early: Record<string, any>[] = [];
    const socket = await opened(transport, url, path, (frame) =>
      this.socket === undefined ? void early.push(frame) : this.take(frame),
    );
    this.socket = socket;
    for (const frame of early) this.take(frame);
    const stop = (): void => void this.end(socket);
    if (this.stopping.aborted) stop();
    else this.stopping.addEventListener("abort", stop);
    await socket.closed;
    this.isOpen = false;
    this.stopping.removeEventListener("abort", stop);
    if (!this.stopping.aborted) transport.addresses.failed(url);
    await Promise.all(this.handling);
  }

  private take(frame: Record<string, any>): void {
    if (frame["type"] === "message") {
      const message = received(frame);
      this.last = Math.max(this.last, message.sequence);
      this.owed.add(message.sequence);
      const work = this.handleOne(message);
      this.handling.add(work);
      void work.finally(() => this.handling.delete(work));
    } else if (frame["type"] === "subscribed") this.began = frame["sequence"];
    else if (frame["type"] === "problem") this.warn(`the stream of ${this.queue}`, frame["problem"]);
  }

  private async handleOne(message: Received): Promise<void> {
    const refusal = await handled(this.handle, message);
    const { sequence } = message;
    if (refusal === undefined) {
      this.done.push(sequence);
      if (!this.answering) void this.answer();
    } else {
      const frame = { type: "nack", sequence, reason: refusal.reason };
      this.send(refusal.delayS === undefined ? frame : { ...frame, delay: refusal.delayS });
    }
    // What could not be answered any more is still owed: the next connection begins with it.
    if (this.isOpen) this.owed.delete(sequence);
  }

  private async answer(): Promise<void> {
    this.answering = true;
    await sleep(LINGER_S);
    this.answering = false;
    this.acknowledge();
  }

  private acknowledge(): void {
    while (this.done.length) this.send({ type: "ack", sequences: this.done.splice(0, MOST) });
  }

  /** Take no more, answer what is here, close. */
  private async end(socket: Socket): Promise<void> {
    this.send({ type: "window", size: 0 });
    while (this.handling.size) await Promise.race([Promise.all(this.handling), socket.closed]).then(() => sleep(0));
    this.acknowledge();
    socket.close();
  }

  private send(frame: object): void {
    if (this.isOpen) this.socket?.send(JSON.stringify(frame));
  }
}
