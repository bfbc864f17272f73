/** Checking a webhook: Standard Webhooks 1.0, as the broker signs. WebCrypto does the work; see `verify`. */
import { decodeBase64 } from "./base64.js";
import { BadSignature } from "./errors.js";

export { BadSignature } from "./errors.js";
export { messagesOf, Received } from "./received.js";

/** of a key: the least that Standard Webhooks 1.0 takes; a shorter one can be guessed, the empty one everybody has */
export const SECRET_BYTES_MIN = 24;
const PREFIX = "whsec_";
const PUBLIC_PREFIX = "whpk_";
const PUBLIC_BYTES = 32;

type Bytes = Uint8Array<ArrayBuffer>;

/** `Headers` of fetch, or an object as Node's `request.headers`. */
export type HeadersGiven = { forEach(each: (value: string, name: string) => void): void } | HeaderObject;
type HeaderObject = Readonly<Record<string, string | readonly string[] | undefined>>;

export interface VerifyOptions {
  /** how old the attempt may be, against replays by others; 300 unless given */
  toleranceS?: number;
  /** Unix seconds; the clock unless given */
  nowS?: number;
}

interface Key {
  version: "v1" | "v1a";
  bytes: Bytes;
}

/**
 * `secret` as given, where it is one: `whsec_` and base64 of 24 bytes or more, or a public key (`whpk_...`) as the
 * broker shows it. Throws `TypeError`, which does not repeat it, for any other, an empty one too. For the start of a
 * receiver: better it does not start than that it believes everybody.
 */
export function checkSecret(secret: string | undefined): string {
  keyOf(secret ?? "");
  return secret as string;
}

/**
 * The id of the message, once the signature over `{id}.{timestamp}.{body}` is right under one of `secrets`
 * (`whsec_...`, two while one is being rotated; or `whpk_...`, the public key of `v1a`). `body` must be the bytes as
 * they came. Rejects with `BadSignature`, and with `TypeError` for a secret that is none.
 */
export async function verify(
  body: string | Uint8Array | ArrayBuffer,
  headers: HeadersGiven,
  secrets: string | readonly string[],
  { toleranceS = 300, nowS = Date.now() / 1000 }: VerifyOptions = {},
): Promise<string> {
  const keys = (typeof secrets === "string" ? [secrets] : secrets).map(keyOf);
  if (!keys.length) throw new TypeError("no secret is given: without one nothing can be told to be genuine");
  const given = lowered(headers);
  const id = given.get("webhook-id");
  const timestamp = given.get("webhook-timestamp");
  const signatures = given.get("webhook-signature");
  if (!id || !timestamp || !signatures)
    throw new BadSignature("it is not signed: webhook-id, webhook-timestamp and webhook-signature are needed");
  checkTime(timestamp, toleranceS, nowS);
  const signed = joined(new TextEncoder().encode(`${id}.${timestamp}.`), body);
  for (const one of signatures.split(" ")) {
    const comma = one.indexOf(",");
    const signature = decodeBase64(one.slice(comma + 1));
    if (comma < 0 || signature === undefined) continue;
    for (const key of keys)
      if (key.version === one.slice(0, comma) && (await isOf(key, signed, signature))) return id;
  }
  throw new BadSignature("the signature is not that of this body under this secret");
}

async function isOf(key: Key, signed: Bytes, signature: Bytes): Promise<boolean> {
  const { subtle } = await webCrypto();
  if (key.version === "v1") {
    const algorithm = { name: "HMAC", hash: "SHA-256" };
    return subtle.verify("HMAC", await subtle.importKey("raw", key.bytes, algorithm, false, ["verify"]), signature, signed);
  }
  const algorithm = { name: "Ed25519" };
  return subtle.verify(algorithm, await subtle.importKey("raw", key.bytes, algorithm, false, ["verify"]), signature, signed);
}

/** Node 18 has it in a module alone. */
async function webCrypto(): Promise<Crypto> {
  return globalThis.crypto?.subtle !== undefined
    ? globalThis.crypto
    : ((await import("node:crypto")).webcrypto as unknown as Crypto);
}

function checkTime(timestamp: string, toleranceS: number, nowS: number): void {
  if (!/^\d{1,15}$/.test(timestamp)) throw new BadSignature("webhook-timestamp is not a number of seconds");
  if (!(Math.abs(nowS - Number(timestamp)) <= toleranceS))
    throw new BadSignature(`webhook-timestamp is more than ${toleranceS} s away from now`);
}

function keyOf(secret: string): Key {
  const text = secret.trim();
  if (text.startsWith(PUBLIC_PREFIX)) {
    const bytes = decodeBase64(text.slice(PUBLIC_PREFIX.length));
    if (bytes?.length !== PUBLIC_BYTES)
      throw new TypeError(`a public key is ${PUBLIC_PREFIX} and base64 of ${PUBLIC_BYTES} bytes, as the broker shows it`);
    return { version: "v1a", bytes };
  }
  const bytes = decodeBase64(text.startsWith(PREFIX) ? text.slice(PREFIX.length) : text);
  if (bytes === undefined) throw new TypeError("a secret is whsec_ and base64, as the broker was given it");
  if (bytes.length < SECRET_BYTES_MIN)
    throw new TypeError(
      `a secret is whsec_ and base64 of ${SECRET_BYTES_MIN} bytes or more, this one has ${bytes.length}: ` +
        "with it anybody could sign",
    );
  return { version: "v1", bytes };
}

function lowered(headers: HeadersGiven): Map<string, string> {
  const found = new Map<string, string>();
  if (typeof headers.forEach === "function") {
    (headers as Headers).forEach((value, name) => found.set(name.toLowerCase(), value));
    return found;
  }
  for (const [name, value] of Object.entries(headers as HeaderObject))
    if (value !== undefined) found.set(name.toLowerCase(), typeof value === "string" ? value : value.join(" "));
  return found;
}

function joined(start: Uint8Array, body: string | Uint8Array | ArrayBuffer): Bytes {
  const rest = typeof body === "string" ? new TextEncoder().encode(body) : new Uint8Array(body);
  const whole = new Uint8Array(start.length + rest.length);
  whole.set(start);
  whole.set(rest, start.length);
  return whole;
}
