/** Consuming: messages lent by the broker, handled, answered in batches. */
import { sleep } from "./answers.js";
import { ClientError } from "./errors.js";
import { handled, received, type Handle, type Received } from "./received.js";
import { queuePath, segment, type Transport } from "./transport.js";

const PAUSE_S = 1;
const LINGER_S = 0.002;
/** the broker lends, and takes answers for, so many at once */
const MOST = 1000;

export interface PullOptions {
  /** where a new group begins: `beginning` (unless given), `now` or a sequence */
  start?: "beginning" | "now" | number;
  /** 100 unless given */
  most?: number;
  /** how long the broker may wait for messages; 20 unless given */
  waitS?: number;
  /** for how long each message is lent; 30 unless given */
  leaseS?: number;
  signal?: AbortSignal;
}

export interface ConsumerOptions {
  /** `pull` unless given */
  group?: string;
  start?: "beginning" | "now" | number;
  /** messages handled at once; 16 unless given */
  concurrency?: number;
  leaseS?: number;
}

const JSON_KIND = { "Content-Type": "application/json" };

export async function pull(transport: Transport, queue: string, group: string, options: PullOptions): Promise<Received[]> {
  const { start = "beginning", most = 100, waitS = 20, leaseS = 30, signal } = options;
  const body = JSON.stringify({ group, start, max: most, wait: waitS, lease: leaseS });
  const asked = { body, headers: JSON_KIND, waitS, signal };
  const { json } = await transport.request("POST", `${queuePath(queue)}/pull`, asked);
  return (json["messages"] as Record<string, unknown>[]).map(received);
}

export async function acknowledge(transport: Transport, leases: readonly string[]): Promise<number> {
  const body = JSON.stringify({ leases });
  const { json } = await transport.request("POST", "/v1/leases:ack", { body, headers: JSON_KIND });
  return json["answered"] as number;
}

export async function refuse(transport: Transport, lease: string, reason: string, delayS?: number): Promise<void> {
  const body = JSON.stringify(delayS === undefined ? { reason } : { reason, delay: delayS });
  await transport.request("POST", `/v1/leases/${segment(lease)}:nack`, { body, headers: JSON_KIND });
}

export async function extend(transport: Transport, lease: string, leaseS: number): Promise<void> {
  const body = JSON.stringify({ lease: leaseS });
  await transport.request("POST", `/v1/leases/${segment(lease)}:extend`, { body, headers: JSON_KIND });
}

/** Pull, handle, acknowledge, until `stopping` and what was pulled is answered. */
export async function run(
  transport: Transport,
  queue: string,
  handle: Handle,
  options: ConsumerOptions,
  stopping: AbortSignal,
  warn: (told: string, error: unknown) => void,
): Promise<void> {
  const { group = "pull", start = "beginning", concurrency = 16, leaseS = 30 } = options;
  const answers = new Answers(transport, warn);
  const handling = new Set<Promise<void>>();
  while (!stopping.aborted) {
    if (handling.size >= concurrency) {
      await Promise.race(handling);
      continue;
    }
    let messages: Received[];
    try {
      const most = Math.min(concurrency - handling.size, MOST);
      messages = await pull(transport, queue, group, { start, most, leaseS, signal: stopping });
    } catch (error) {
      if (stopping.aborted) break;
      if (!(error instanceof ClientError)) throw error;
      warn(`pulling from ${queue}`, error);
      await sleep(PAUSE_S, stopping);
      continue;
    }
    for (const message of messages) {
      const work = handleOne(handle, message, answers);
      handling.add(work);
      void work.finally(() => handling.delete(work));
    }
  }
  await Promise.all(handling);
  await answers.sent();
}

async function handleOne(handle: Handle, message: Received, answers: Answers): Promise<void> {
  const refusal = await handled(handle, message);
  if (refusal === undefined) answers.acknowledge(message);
  else await answers.refuse(message, refusal.reason, refusal.delayS);
}

/** Acknowledgements, gathered; an answer that does not get through leaves its lease to run out. */
class Answers {
  private leases: string[] = [];
  private sending: Promise<void> | undefined;

  constructor(
    private readonly transport: Transport,
    private readonly warn: (told: string, error: unknown) => void,
  ) {}

  acknowledge(message: Received): void {
    this.leases.push(message.lease);
    this.sending ??= this.send();
  }

  async sent(): Promise<void> {
    await this.sending;
  }

  async refuse(message: Received, reason: string, delayS?: number): Promise<void> {
    try {
      await refuse(this.transport, message.lease, reason, delayS);
    } catch (error) {
      this.warn(`refusing ${message.id}`, error);
    }
  }

  private async send(): Promise<void> {
    while (this.leases.length) {
      await sleep(LINGER_S);
      const leases = this.leases.splice(0, MOST);
      try {
        await acknowledge(this.transport, leases);
      } catch (error) {
        this.warn(`acknowledging ${leases.length} messages`, error);
      }
    }
    this.sending = undefined;
  }
}
