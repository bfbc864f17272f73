import assert from "node:assert/strict";
import { createHmac, generateKeyPairSync, sign } from "node:crypto";
import { test } from "node:test";

import { BadSignature, checkSecret, messagesOf, verify } from "../dist/index.js";

const key = Buffer.from("a secret of thirty-two bytes ...");
const secret = `whsec_${key.toString("base64")}`;
const now = 1_700_000_000;
const signed = (body, timestamp = now) => ({
  "webhook-id": "m1",
  "webhook-timestamp": String(timestamp),
  "webhook-signature": `v1,${createHmac("sha256", key).update(`m1.${timestamp}.`).update(body).digest("base64")}`,
});
const at = { nowS: now };

test("what the broker has signed is believed, as text or bytes, from any kind of headers", async () => {
  for (const body of ["text", Buffer.from([255, 0]), new Uint8Array([1]), new ArrayBuffer(3)]) {
    const headers = signed(body instanceof ArrayBuffer ? Buffer.from(body) : body);
    assert.equal(await verify(body, headers, secret, at), "m1");
    assert.equal(await verify(body, new Headers(headers), secret, at), "m1");
  }
  const both = { ...signed("x") };
  both["webhook-signature"] = `v1,AAAA v1a,AAAA ${both["webhook-signature"]}`;
  const other = `whsec_${Buffer.alloc(24, 1).toString("base64")}`;
  assert.equal(await verify("x", both, [other, secret], at), "m1");
});

test("what another has signed, changed, or kept for long is not", async () => {
  const genuine = signed("x");
  const { "webhook-id": _, ...without } = genuine;
  const forged = [
    ["y", genuine],
    ["x", signed("x", now - 301)],
    ["x", signed("x", now + 301)],
    ["x", without],
    ["x", { ...genuine, "webhook-timestamp": "1e9" }],
    ["x", { ...genuine, "webhook-signature": genuine["webhook-signature"].replace("v1,", "v2,") }],
    ["x", { ...genuine, "webhook-signature": genuine["webhook-signature"].replace("=", "") }],
    ["x", { ...genuine, "webhook-signature": "v1,not base64" }],
  ];
  for (const [body, headers] of forged) await assert.rejects(verify(body, headers, secret, at), BadSignature);
  await assert.rejects(verify("x", genuine, [], at), TypeError);
});

test("v1a is verified by the public key", async () => {
  const { publicKey, privateKey } = generateKeyPairSync("ed25519");
  const shown = `whpk_${publicKey.export({ format: "der", type: "spki" }).subarray(-32).toString("base64")}`;
  const headers = { ...signed("x"), "webhook-signature": `v1a,${sign(null, Buffer.from(`m1.${now}.x`), privateKey).toString("base64")}` };
  assert.equal(await verify("x", headers, checkSecret(shown), at), "m1");
  await assert.rejects(verify("y", headers, shown, at), BadSignature);
  await assert.rejects(verify("x", headers, secret, at), BadSignature);
});

test("a secret that anybody could guess is none", () => {
  assert.equal(checkSecret(secret), secret);
  for (const wrong of [undefined, "", "whsec_", `whsec_${Buffer.alloc(23).toString("base64")}`, "whsec_?", "whpk_AAAA"])
    assert.throws(() => checkSecret(wrong), TypeError);
});

test("a request with several messages is read", () => {
  const line = { id: "1", queue: "q", sequence: 4, attempt: 1, headers: {}, previous: 3, complete_through: 2 };
  const lines = [{ ...line, content: "é" }, { ...line, data: { a: 1 }, key: "k" }, { ...line, content_base64: "/wA=", headers: { "content-type": "image/png", x: "y" } }];
  const [text, json, bytes] = messagesOf(`${lines.map((one) => JSON.stringify(one)).join("\n")}\n`);
  assert.deepEqual([text.text(), text.contentType, text.previous, text.completeThrough], ["é", "text/plain; charset=utf-8", 3, 2]);
  assert.deepEqual([json.json(), json.key, json.contentType], [{ a: 1 }, "k", "application/json"]);
  assert.deepEqual([[...bytes.content], bytes.contentType, bytes.headers], [[255, 0], "image/png", { x: "y" }]);
  for (const wrong of ["", "x", "{}", JSON.stringify(line)]) assert.throws(() => messagesOf(wrong), TypeError);
});
