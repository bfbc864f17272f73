/** A message before it is published, and the answer to its publish. */
import { encodeBase64 } from "./base64.js";

export type Json = null | boolean | number | string | readonly unknown[] | { readonly [name: string]: unknown };

/** Text goes as text, bytes as they are, anything else as JSON. */
export type Content = string | Uint8Array | ArrayBuffer | Json | object;

/** A message the broker has on its disk. Give it as a parent. */
export interface Published {
  readonly id: string;
  readonly queue: string;
}

/** A message on its way. `published` gives the outcome; give it as a parent without awaiting. */
export class Pending {
  /** Rejects with `Refused` or `Unreachable`. */
  readonly published: Promise<Published>;
  /** undefined until it is known */
  id: string | undefined;
  isSettled = false;
  private settle!: (published: Published) => void;
  private reject!: (error: unknown) => void;

  constructor(
    readonly queue: string,
    /** as it stands in a batch, but for its parents */
    readonly line: string,
    readonly parents: readonly Parent[],
  ) {
    this.published = new Promise((resolve, reject) => {
      this.settle = resolve;
      this.reject = reject;
    });
    this.published.catch(() => undefined); // whoever does not await it is not told twice
  }

  /** @internal */
  resolveWith(id: string): void {
    this.id = id;
    this.isSettled = true;
    this.settle({ id, queue: this.queue });
  }

  /** @internal */
  rejectWith(error: unknown): void {
    this.isSettled = true;
    this.reject(error);
  }
}

/** A message, or the id of one. */
export type Parent = Published | Pending | string;

export interface Fields {
  /** messages that must be complete first, of any queue */
  parents?: readonly Parent[];
  /** messages of one key go out in the order accepted */
  key?: string;
  /** one of your own; otherwise the client gives one */
  idempotencyKey?: string;
  /** for the subscribers */
  headers?: Readonly<Record<string, string>>;
  contentType?: string;
  /** not before so many seconds from acceptance */
  delayS?: number;
  /** not before this time; RFC 3339 where it is text */
  deliverAt?: Date | string;
  /** not after this time, or so many seconds from now */
  expires?: Date | string | number;
  /** what becomes of it when a parent ends as a dead letter; the queue's own where it is not given */
  parentFailure?: "fail" | "hold" | "deliver";
}

/** A message to publish, for `post` and `publishMany`, where it has more than its content: `draft(content, fields)`. */
export class Draft {
  constructor(
    readonly content: Content,
    readonly fields: Fields = {},
  ) {}
}

export function draft(content: Content, fields: Fields = {}): Draft {
  return new Draft(content, fields);
}

/** The members of a line of a batch (NDJSON), and of a frame, without parents. Throws `TypeError`. */
export function membersOf(content: Content, fields: Fields, idempotencyKey: string): Record<string, unknown> {
  const members: Record<string, unknown> = contentOf(content);
  const key = fields.idempotencyKey || idempotencyKey;
  if (key) members["idempotency_key"] = key;
  if (fields.key) members["key"] = fields.key;
  const headers = headersOf(fields);
  if (headers !== undefined) members["headers"] = headers;
  if (fields.delayS !== undefined) members["delay"] = fields.delayS;
  if (fields.parentFailure !== undefined) members["parent_failure"] = fields.parentFailure;
  return members;
}

function headersOf({ headers, contentType }: Fields): Record<string, string> | undefined {
  if (contentType === undefined) return headers && Object.keys(headers).length ? { ...headers } : undefined;
  return { ...headers, "content-type": contentType };
}

function contentOf(content: Content): Record<string, unknown> {
  if (typeof content === "string") return { content };
  const bytes = bytesOf(content);
  if (bytes !== undefined) return { content_base64: encodeBase64(bytes) };
  if (JSON.stringify(content) === undefined) throw new TypeError(`${typeof content} is no content: give text, bytes or JSON`);
  return { data: content };
}

export function bytesOf(content: unknown): Uint8Array | undefined {
  if (content instanceof ArrayBuffer) return new Uint8Array(content);
  return ArrayBuffer.isView(content)
    ? new Uint8Array(content.buffer as ArrayBuffer, content.byteOffset, content.byteLength)
    : undefined;
}

/** A batch's line has no members for these: such a message is posted by itself. */
export function isAlone(fields: Fields): boolean {
  return fields.deliverAt !== undefined || fields.expires !== undefined;
}

/** headers of a request that reach subscribers by their own names; others do as `Syncbrok-Forward-NAME` */
const AS_THEY_ARE = /^(traceparent|tracestate|syncbrok-hops|ce-.*)$/i;

/** The body and the headers of a message that is posted by itself. */
export function postOf(
  content: Content,
  fields: Fields,
  parents: readonly string[],
  idempotencyKey: string,
): { body: string | Uint8Array; headers: Record<string, string> } {
  const bytes = bytesOf(content);
  const usual = bytes !== undefined ? "application/octet-stream" : "application/json";
  const given = Object.entries(fields.headers ?? {});
  const ofHeaders = given.find(([name]) => name.toLowerCase() === "content-type")?.[1];
  const headers: Record<string, string> = Object.fromEntries(
    given.filter(([name]) => name.toLowerCase() !== "content-type").map(([name, value]) => [AS_THEY_ARE.test(name) ? name : `Syncbrok-Forward-${name}`, value]),
  );
  headers["Content-Type"] =
    fields.contentType ?? ofHeaders ?? (typeof content === "string" ? "text/plain; charset=utf-8" : usual);
  const key = fields.idempotencyKey || idempotencyKey;
  if (key) headers["Idempotency-Key"] = `"${key.replace(/[\\"]/g, "\\$&")}"`;
  if (fields.key) headers["Syncbrok-Key"] = fields.key;
  if (parents.length) headers["Syncbrok-Parent"] = parents.join(",");
  if (fields.parentFailure !== undefined) headers["Syncbrok-Parent-Failure"] = fields.parentFailure;
  if (fields.delayS !== undefined) headers["Syncbrok-Delay"] = String(fields.delayS);
  if (fields.deliverAt !== undefined) headers["Syncbrok-Deliver-At"] = timeOf(fields.deliverAt);
  if (fields.expires !== undefined)
    headers["Syncbrok-Expires"] = typeof fields.expires === "number" ? String(fields.expires) : timeOf(fields.expires);
  for (const [name, value] of Object.entries(headers)) headers[name] = octets(value);
  return { body: bytes ?? (typeof content === "string" ? content : JSON.stringify(content)), headers };
}

/** fetch writes a character of a header as one byte; the broker reads UTF-8 */
function octets(value: string): string {
  return /^[\x20-\x7e]*$/.test(value) ? value : String.fromCharCode(...new TextEncoder().encode(value));
}

function timeOf(time: Date | string): string {
  return typeof time === "string" ? time : time.toISOString();
}

/** The id of a parent, once it is known. Rejects where that was refused. */
export async function idOf(parent: Parent): Promise<string> {
  if (typeof parent === "string") return parent;
  return parent instanceof Pending ? (await parent.published).id : parent.id;
}

export function checkParents(parents: readonly Parent[]): void {
  for (const one of parents)
    if (typeof one !== "string" && !(one instanceof Pending) && typeof one?.id !== "string")
      throw new TypeError(`a parent is a message or the id of one, not ${typeof one}`);
}

/** No secret: it only has to be another one in each client. */
export function newKey(): string {
  if (globalThis.crypto?.getRandomValues !== undefined) {
    const bytes = globalThis.crypto.getRandomValues(new Uint8Array(12));
    return encodeBase64(bytes).replaceAll("+", "-").replaceAll("/", "_");
  }
  return [Date.now(), Math.random(), Math.random()].map((part) => part.toString(36).replace("0.", "")).join("");
}
