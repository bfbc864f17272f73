/** A message as a consumer receives it, and how the consumer refuses it. */
import { decodeBase64 } from "./base64.js";
import { told } from "./errors.js";
import { bytesOf } from "./messages.js";

const encoder = new TextEncoder();

/** Thrown by a handler: this message was not handled. `delayS`: not again before. */
export class Refuse extends Error {
  override name = "Refuse";
  constructor(
    readonly reason = "",
    readonly delayS?: number,
  ) {
    super(reason);
  }
}

/** A message given to this consumer. It must be acknowledged in time; else it goes to another. */
export class Received {
  readonly id: string;
  readonly queue: string;
  readonly sequence: number;
  readonly attempt: number;
  readonly parents: readonly string[];
  readonly key: string;
  readonly contentType: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly content: Uint8Array;
  /** its name, where it was pulled; empty where it came over a stream */
  readonly lease: string;
  /** from a cluster: a number that grows with each leader */
  readonly epoch: number;
  /** number of the replay it belongs to, 0 for none */
  readonly replay: number;
  /** the greatest sequence below its own that had been delivered to the subscriber (the group), 0 for none */
  readonly previous: number;
  /** everything of the subscriber (the group) up to this sequence had ended */
  readonly completeThrough: number;

  /** @internal from the broker's JSON */
  constructor(shown: Record<string, any>, content: Uint8Array, contentType: string, headers: Record<string, string>) {
    this.id = shown["id"];
    this.queue = shown["queue"];
    this.sequence = shown["sequence"];
    this.attempt = shown["attempt"];
    this.parents = shown["parents"] ?? [];
    this.key = shown["key"] ?? "";
    this.contentType = contentType;
    this.headers = headers;
    this.content = content;
    this.lease = shown["lease"] ?? "";
    this.epoch = shown["epoch"] ?? 0;
    this.replay = shown["replay"] ?? 0;
    this.previous = shown["previous"] ?? 0;
    this.completeThrough = shown["complete_through"] ?? 0;
  }

  text(): string {
    return new TextDecoder().decode(this.content);
  }

  json<T = unknown>(): T {
    return JSON.parse(this.text()) as T;
  }
}

/** Resolves: acknowledged. Rejects or throws: tried again, as the queue's retry schedule says. */
export type Handle = (message: Received) => unknown;

export async function handled(handle: Handle, message: Received): Promise<Refuse | undefined> {
  try {
    await handle(message);
    return undefined;
  } catch (error) {
    return error instanceof Refuse ? error : new Refuse(told(error));
  }
}

export function received(shown: Record<string, any>): Received {
  const content = "content" in shown ? encoder.encode(shown["content"]) : base64(shown["content_base64"]);
  return new Received(shown, content, shown["content_type"] ?? "", shown["headers"]);
}

/**
 * The messages of a request to a subscriber with `batch`, in order. `verify` the request first; drop those whose `id`
 * you have seen: they may come again in other company. Throws `TypeError` for any other body.
 */
export function messagesOf(body: string | Uint8Array | ArrayBuffer): Received[] {
  const text = typeof body === "string" ? body : new TextDecoder().decode(bytesOf(body));
  try {
    return text.replace(/\n$/, "").split("\n").map((line) => ofLine(JSON.parse(line)));
  } catch (error) {
    throw new TypeError(`this is no request with several messages: ${told(error)}`);
  }
}

function ofLine(line: Record<string, any>): Received {
  for (const [name, kind] of [["id", "string"], ["queue", "string"], ["sequence", "number"], ["attempt", "number"]] as const)
    if (typeof line[name] !== kind) throw new TypeError(`a line has no ${name}`);
  const { "content-type": given, ...headers } = line["headers"] as Record<string, string>;
  if ("data" in line)
    return new Received(line, encoder.encode(JSON.stringify(line["data"])), given ?? "application/json", headers);
  if ("content" in line)
    return new Received(line, encoder.encode(line["content"]), given ?? "text/plain; charset=utf-8", headers);
  return new Received(line, base64(line["content_base64"]), given ?? "application/octet-stream", headers);
}

function base64(text: string): Uint8Array {
  const bytes = decodeBase64(text);
  if (bytes === undefined) throw new TypeError("content_base64 is not base64");
  return bytes;
}
