// The request of an attempt, rebuilt from the log: what went to the endpoint but for signatures and credentials, which
// the log does not show.

const FORMATS = new Set(["raw", "original"]);

/** `{method, endpoint, headers, body, remarks}`; `subscriber` as `/v1` answers it, `bytes` the content. */
export function rebuilt(message, delivery, attempt, subscriber, bytes) {
  const began_s = Math.floor(Date.parse(attempt.time) / 1_000);
  const remarks = ["Signatures and credentials are left out; values of the subscriber's own headers are not shown. Dates are those of the attempt, to the second."];
  const original = subscriber.format === "original";
  if (!FORMATS.has(subscriber.format)) remarks.push(`The subscriber's format is ${subscriber.format}: the attributes of a CloudEvent, made from the same message, went with this.`);
  if (subscriber.batch) remarks.push("Several messages may have gone in one request; this is the message's own part.");
  return {
    method: "POST",
    endpoint: delivery.endpoint,
    headers: original ? [["Content-Type", "application/json"]] : headersOf(message, attempt, subscriber, began_s),
    body: original ? new TextEncoder().encode(`{"id": "${message.id}", "content": "${base64(bytes)}"}`) : bytes,
    remarks,
  };
}

function headersOf(message, attempt, subscriber, began_s) {
  const own = Object.keys(subscriber.headers ?? {});
  const fixed = new Set(own.map((name) => name.toLowerCase()));
  const published = Object.entries(message.headers).filter(([name]) => !fixed.has(name.toLowerCase()) && name.toLowerCase() !== "syncbrok-hops");
  return [
    ...own.map((name) => [name, "***"]),
    ["webhook-id", message.id],
    ["webhook-timestamp", String(began_s)],
    ["syncbrok-queue", encodeURIComponent(message.queue)],
    ["syncbrok-sequence", String(message.sequence)],
    ["syncbrok-attempt", String(attempt.attempt)],
    ...published,
    ...(message.parents.length ? [["syncbrok-parents", message.parents.join(",")]] : []),
    ["Content-Type", message.content_type || "application/octet-stream"],
  ];
}

function base64(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += 8_192) text += String.fromCharCode(...bytes.subarray(at, at + 8_192));
  return btoa(text);
}

/** The head of the request, a line each. */
export const head = (request) => [`${request.method} ${request.endpoint}`, ...request.headers.map(([name, value]) => `${name}: ${value}`)].join("\n");

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** A command that sends the same; bytes that are no text are taken from a file of the message's id. */
export function asCurl(request, kind, id) {
  const data = kind === "binary" ? quoted(`@${id}`) : quoted(new TextDecoder().decode(request.body));
  const lines = request.headers.map(([name, value]) => `-H ${quoted(`${name}: ${value}`)}`);
  return ["curl -sS", ...lines, `--data-${kind === "binary" ? "binary" : "raw"} ${data}`, quoted(request.endpoint)].join(" \\\n  ");
}
