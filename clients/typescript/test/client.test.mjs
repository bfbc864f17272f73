// Against a real broker, whose address is in SYNCBROK_URL (tests/client/test_typescript.py starts one).
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { connect, createServer as createTcp } from "node:net";
import { after, before, test } from "node:test";

import { Client, ClientError, draft, Refuse, Refused, Unreachable } from "../dist/index.js";

const url = process.env.SYNCBROK_URL;
const skip = url ? false : "SYNCBROK_URL names no broker";
const quiet = { giveUpS: 10, warn: () => undefined };
let broker;

before(() => { broker = new Client(url ?? "http://127.0.0.1:1", quiet); });
after(() => broker.close());

const queue = (name) => `ts ${name}`;

async function eventually(holds) {
  for (const until = Date.now() + 20_000; ; await new Promise((resolve) => setTimeout(resolve, 20)))
    try { return await holds(); } catch (error) { if (Date.now() > until) throw error; }
}

/** A connection between, which the test cuts. */
async function relay(to) {
  const { hostname, port } = new URL(to);
  const open = new Set();
  const server = createTcp((near) => {
    const far = connect(Number(port), hostname);
    for (const one of [near, far]) { open.add(one); one.on("error", () => undefined); one.on("close", () => { open.delete(one); near.destroy(); far.destroy(); }); }
    near.pipe(far).pipe(near);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${server.address().port}`, cut: () => { for (const one of open) one.destroy(); }, close: () => { for (const one of open) one.destroy(); server.close(); } };
}

/** A node that answers as told. */
async function node(answer) {
  const asked = [];
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (part) => { body += part; });
    request.on("end", () => {
      asked.push({ method: request.method, path: request.url, headers: request.headers, body });
      const [status, headers, written] = answer(asked.length, request, body);
      if (status === 0) return request.socket.destroy();
      response.writeHead(status, headers).end(typeof written === "string" ? written : JSON.stringify(written));
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${server.address().port}`, asked, close: () => { server.closeAllConnections(); server.close(); } };
}

test("every field of a publish comes to the broker, alone and in a batch", { skip, timeout: 30_000 }, async () => {
  const name = queue("fields");
  await broker.declare(name);
  await broker.declare(name);
  const parent = await broker.publish(name, { customer: 1 });
  const fields = { parents: [parent], key: "k é", headers: { "x-shop": "1" }, contentType: "text/css", parentFailure: "hold" };
  const batched = await broker.publish(name, "content", { ...fields, delayS: 0.01 });
  const alone = await broker.publish(name, "content", { ...fields, deliverAt: new Date(Date.now() + 5), expires: 3600 });
  const bytes = await broker.publish(name, new Uint8Array([255, 0, 10]));
  const [first, one, two, three] = await broker.pull(name, "all", { most: 1, waitS: 5 }).then(async (some) => {
    await broker.acknowledge(...some);
    const rest = [];
    while (rest.length < 3) {
      const more = await broker.pull(name, "all", { waitS: 5 });
      await broker.acknowledge(...more);
      rest.push(...more);
    }
    rest.sort((a, b) => a.sequence - b.sequence);
    return [...some, ...rest];
  });
  assert.deepEqual(first.json(), { customer: 1 });
  assert.equal(first.contentType, "application/json");
  for (const [message, published] of [[one, batched], [two, alone]]) {
    assert.equal(message.id, published.id);
    assert.deepEqual([message.parents, message.key, message.contentType, message.text()], [[parent.id], "k é", "text/css", "content"]);
    assert.equal(message.headers["x-shop"], "1");
  }
  assert.deepEqual([...three.content], [255, 0, 10]);
  assert.equal(three.id, bytes.id);
  assert.equal(three.previous > 0, true);
  assert.equal(await broker.wait(two.id, 5), "complete");
  assert.equal((await broker.message(alone)).expires_at !== null, true);
  await broker.declare(queue("other"));
  const pair = { idempotencyKey: "mine" };
  const [same, again] = await Promise.all([broker.publish(queue("other"), "x", pair), broker.publish(queue("other"), "x", pair)]);
  assert.equal(same.id, again.id);
});

test("publishes at once share batches, keep their order, and a wrong one harms no other", { skip, timeout: 30_000 }, async () => {
  const name = queue("batches");
  await broker.declare(name);
  let requests = 0;
  const counting = new Client(url, { ...quiet, waitingMax: 50, batchLinesMax: 40, fetch: (...asked) => { requests += 1; return fetch(...asked); } });
  const published = await Promise.all(Array.from({ length: 200 }, (_, number) => counting.publish(name, `${number}`)));
  assert.equal(requests >= 5 && requests < 30, true, `${requests} requests`);
  assert.equal(new Set(published.map((one) => one.id)).size, 200);
  const outcomes = await Promise.allSettled(Array.from({ length: 20 }, (_, number) =>
    counting.publish(name, "y", number === 7 ? { parents: ["no id"] } : {})));
  assert.deepEqual(outcomes.flatMap((one, at) => (one.status === "rejected" ? [at] : [])), [7]);
  assert.equal(outcomes[7].reason instanceof Refused, true);
  const parent = await counting.post(name, "parent");
  const child = await counting.post(name, draft("child", { parents: [parent] }));
  assert.deepEqual((await broker.message(await child.published)).parents.map((one) => one.id ?? one), [(await parent.published).id]);
  await counting.close();
  const read = [];
  while (read.length < 200) {
    const some = await broker.pull(name, "order", { most: 1000, waitS: 5 });
    read.push(...some.map((one) => one.text()));
    await broker.acknowledge(...some);
  }
  assert.deepEqual(read.slice(0, 200), Array.from({ length: 200 }, (_, number) => `${number}`));
  await assert.rejects(broker.publish(queue("not there"), "x"), (error) => error instanceof Refused && error.status === 404 && error.problem.title !== undefined);
  await assert.rejects(broker.publish(name, undefined), TypeError);
});

test("a group pulls, refuses, extends, and ends", { skip, timeout: 30_000 }, async () => {
  const name = queue("pull");
  await broker.declare(name, { retry: ["0s", "0s"] });
  await broker.publishMany(name, ["a", "b"]);
  const [a, b] = await broker.pull(name, "workers", { waitS: 5 });
  await broker.extend(a, 60);
  assert.equal(await broker.acknowledge(a), 1);
  await broker.refuse(b, "busy", 0);
  await assert.rejects(broker.extend(b), (error) => error instanceof Refused && error.status === 410);
  const seen = [];
  broker.consumer(name, (message) => {
    seen.push([message.text(), message.attempt]);
    if (message.attempt === 2) throw new Refuse("once more");
    broker.stop();
  }, { group: "workers" });
  await broker.run();
  assert.deepEqual(seen, [["b", 2], ["b", 3]]);
  await eventually(async () => {
    const states = (await broker.deliveries(name, "workers")).map((one) => one.state);
    assert.deepEqual(states, ["delivered", "delivered"]);
  });
});

test("a stream that is cut goes on where it was, and a publisher repeats what was not answered", { skip, timeout: 30_000 }, async () => {
  const name = queue("stream");
  await broker.declare(name, { retry: ["0s", "0s", "0s"] });
  const between = await relay(url);
  const cut = new Client(between.url, quiet);
  const publisher = cut.publisher(name);
  const seen = { group: [], alone: [] };
  let was = false;
  cut.stream(name, (message) => { if (message.attempt === 1 && message.text() === "20") throw new Refuse("no", 0); seen.group.push(message.text()); if (message.text() === "100" && !was) { was = true; between.cut(); } }, { group: "sockets", start: "beginning" });
  cut.stream(name, (message) => { seen.alone.push(message.text()); }, { start: "beginning" });
  const running = cut.run();
  const ids = await Promise.all(Array.from({ length: 300 }, (_, number) => publisher.publish(`${number}`)));
  assert.equal(new Set(ids.map((one) => one.id)).size, 300);
  // Seen is not acknowledged: what was out when the line was cut comes again, after the last of the others perhaps.
  await eventually(async () => {
    const states = (await broker.deliveries(name, "sockets")).map((one) => one.state);
    assert.deepEqual([states.length, new Set(states)], [300, new Set(["delivered"])]);
    assert.deepEqual(["group", "alone"].map((one) => new Set(seen[one]).size), [300, 300]);
  });
  cut.stop();
  await running;
  await assert.rejects(publisher.publish("x", { parents: ["no id"] }), Refused);
  await cut.close();
  between.close();
});

test("what is put off is repeated after Retry-After, with the same keys; what may be there is not without them", async () => {
  const later = await node((times) => (times === 1 ? [429, { "Retry-After": "1" }, { type: "urn:syncbrok:problem:backlog-full" }] : times === 2 ? [0] : [201, {}, { ids: ["1", "2"] }]));
  const client = new Client(later.url, quiet);
  const began = performance.now();
  const both = await client.publishMany("q", ["a", "b"]);
  assert.deepEqual(both.map((one) => one.id), ["1", "2"]);
  assert.equal(performance.now() - began >= 1000, true);
  assert.equal(new Set(later.asked.map((one) => one.body)).size, 1);
  assert.match(later.asked[0].body, /^\{"content":"a","idempotency_key":"[^"]+"\}\n/);
  later.close();
  const silent = await node(() => [0]);
  const careful = new Client(silent.url, { ...quiet, idempotent: false });
  await assert.rejects(careful.publish("q", "a"), Unreachable);
  assert.equal(silent.asked.length, 1);
  silent.close();
});

test("the leader is asked directly, where a token may go; a node that does not lead makes way", async () => {
  const leader = await node(() => [201, {}, { ids: ["1"] }]);
  const follower = await node(() => [503, { "Syncbrok-Leader": leader.url }, { type: "urn:syncbrok:problem:no-leader" }]);
  const gone = await node(() => [0]);
  gone.close();
  const client = new Client([gone.url, follower.url], { ...quiet, token: "secret" });
  assert.equal((await client.publish("q", "a")).id, "1");
  await client.publish("q", "b");
  assert.deepEqual([follower.asked.length, leader.asked.length], [1, 2]);
  assert.equal(leader.asked[0].headers.authorization, "Bearer secret");
  const liar = await node(() => [201, { "Syncbrok-Leader": "http://192.0.2.1:10000" }, { ids: ["3"] }]);
  const goneTo = new Set();
  const wary = new Client(liar.url, { ...quiet, fetch: (to, asked) => { goneTo.add(new URL(to).origin); return fetch(to, asked); } });
  await wary.publish("q", "a");
  await wary.publish("q", "b");
  assert.deepEqual([...goneTo], [liar.url]);
  for (const one of [leader, follower, liar]) one.close();
  const moved = await node(() => [307, { Location: leader.url }, ""]);
  await assert.rejects(new Client(moved.url, quiet).publish("q", "a"), ClientError);
  moved.close();
  assert.throws(() => new Client("nonsense"), TypeError);
});
