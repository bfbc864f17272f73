/** Publishing over one WebSocket: a frame for each message, an answer for each. */
import { isElsewhere, LATER, Repeats, retryAfterS, sleep } from "./answers.js";
import { ClientError, Refused, Unreachable, type Problem } from "./errors.js";
import { checkParents, idOf, isAlone, membersOf, newKey, type Content, type Fields, type Published } from "./messages.js";
import { opened, type Socket } from "./sockets.js";
import { queuePath, type Transport } from "./transport.js";

const PAUSE_MAX_S = 5;
/** the broker reads no further while so many are not durable */
const OUTSTANDING_MAX = 1000;
const BUFFERED_MAX = 4 * 1024 * 1024;
const LOOK_S = 0.005;
/** it publishes only */
const NOTHING_TO_ME = JSON.stringify({ type: "window", size: 0 });

interface Sent {
  text: string;
  again: boolean;
  wasSent: boolean;
  repeats: Repeats;
  resolve: (published: Published) => void;
  reject: (error: unknown) => void;
}

/**
 * Made by `Client.publisher`. What was not answered when the connection broke is sent again over the next, in its
 * order and with its idempotency key. A batch costs the broker less: see `Client.publish`.
 */
export class Publisher {
  private readonly key = newKey();
  private number = 0;
  private readonly sent = new Map<number, Sent>();
  private readonly entering: (() => void)[] = [];
  private socket: Socket | undefined;
  private opening: Promise<void> | undefined;
  private isClosed = false;

  /** @internal */
  constructor(
    private readonly transport: Transport,
    private readonly queue: string,
    private readonly idempotent: boolean,
  ) {}

  /** Resolves once the message is durable. Rejects with `Refused` and `Unreachable`. */
  async publish(content: Content, fields: Fields = {}): Promise<Published> {
    if (isAlone(fields)) throw new TypeError("deliverAt and expires are for Client.publish: a frame has no member for them");
    const parents = fields.parents ?? [];
    checkParents(parents);
    const key = this.idempotent ? `${this.key}-${this.number}` : "";
    const ref = this.number++;
    const members = membersOf(content, fields, key);
    const again = Boolean(members["idempotency_key"]);
    if (parents.length) members["parents"] = await Promise.all(parents.map(idOf));
    const text = JSON.stringify({ type: "publish", ref, ...members });
    if (this.isClosed) throw new ClientError("this publisher is closed");
    while (this.isFull) await this.room();
    return new Promise((resolve, reject) => {
      const repeats = new Repeats(this.transport.giveUpS, PAUSE_MAX_S);
      const one: Sent = { text, again, wasSent: false, repeats, resolve, reject };
      this.sent.set(ref, one);
      if (this.socket !== undefined) this.write(this.socket, one);
      else this.opening ??= this.open();
    });
  }

  /** Everything handed over was answered; then the connection ends. */
  async close(): Promise<void> {
    this.isClosed = true;
    while (this.sent.size) await sleep(LOOK_S);
    this.socket?.close();
  }

  private get isFull(): boolean {
    return this.sent.size >= OUTSTANDING_MAX || (this.socket?.bufferedAmount ?? 0) > BUFFERED_MAX;
  }

  private async room(): Promise<void> {
    if (this.sent.size >= OUTSTANDING_MAX) await new Promise<void>((resolve) => this.entering.push(resolve));
    else await sleep(LOOK_S);
  }

  private write(socket: Socket, one: Sent): void {
    one.wasSent = true;
    socket.send(one.text);
  }

  /** Open the connection, at one address after the other, and send what waits; fail it where that takes too long. */
  private async open(): Promise<void> {
    const repeats = new Repeats(this.transport.giveUpS, PAUSE_MAX_S);
    const tried = new Set<string>();
    for (;;) {
      const url = this.transport.addresses.next(tried) as string;
      tried.add(url);
      try {
        const path = `${queuePath(this.queue)}/stream?start=now&window=1`;
        const socket = await opened(this.transport, url, path, (frame) => this.take(frame));
        this.opening = undefined;
        this.socket = socket;
        socket.send(NOTHING_TO_ME);
        for (const one of this.sent.values()) this.write(socket, one);
        void socket.closed.then(() => this.broke(url));
        return;
      } catch (error) {
        if (error instanceof Refused || !(error instanceof Unreachable)) return this.failAll(error);
        if (this.transport.addresses.next(tried) !== undefined && !repeats.areOver) continue;
        const pause = repeats.pauseS(0);
        if (pause === undefined) return this.failAll(error);
        tried.clear();
        await sleep(pause);
      }
    }
  }

  private broke(url: string): void {
    this.socket = undefined;
    if (this.isClosed && !this.sent.size) return;
    this.transport.addresses.failed(url);
    for (const [ref, one] of this.sent)
      if (one.wasSent && !one.again)
        this.end(ref).reject(new Unreachable(`the connection to ${url} broke; it is not known whether the broker has it`));
    if (this.sent.size) this.opening ??= this.open();
  }

  private failAll(error: unknown): void {
    this.opening = undefined;
    for (const ref of [...this.sent.keys()]) this.end(ref).reject(error);
  }

  private end(ref: number): Sent {
    const one = this.sent.get(ref) as Sent;
    this.sent.delete(ref);
    this.entering.shift()?.();
    return one;
  }

  private take(frame: Record<string, any>): void {
    const ref = frame["ref"] as number;
    if (!this.sent.has(ref)) return;
    if (frame["type"] === "published") this.end(ref).resolve({ id: frame["id"], queue: this.queue });
    else if (frame["type"] === "problem") this.refused(ref, frame["problem"]);
  }

  private refused(ref: number, problem: Problem): void {
    const status = problem.status ?? 0;
    if (!LATER.has(status)) return this.end(ref).reject(new Refused(status, problem));
    if (isElsewhere(status, problem)) return this.socket?.close(); // and all of it goes to another
    const one = this.sent.get(ref) as Sent;
    const pause = one.repeats.pauseS(retryAfterS(String(problem["retry_after_s"] ?? "")));
    if (pause === undefined) return this.end(ref).reject(new Unreachable(`not within ${this.transport.giveUpS} s: ${problem.detail}`));
    void sleep(pause).then(() => {
      if (this.sent.has(ref) && this.socket !== undefined) this.write(this.socket, one);
    });
  }
}
