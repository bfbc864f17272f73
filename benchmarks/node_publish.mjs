// Publish with the TypeScript client: `node node_publish.mjs WAY URL COUNT IN_FLIGHT CONTENT`; prints the seconds.
import { Client } from "../clients/typescript/dist/index.js";

const [way, url, count, inFlight, content] = process.argv.slice(2);
const broker = new Client(url, { giveUpS: 20 });

function publishOf() {
  if (way === "batches") return () => broker.publish("bench", content);
  if (way === "socket") {
    const socket = broker.publisher("bench");
    return () => socket.publish(content);
  }
  // fetch keeps as many connections as there are requests at once
  return async () => {
    const answer = await fetch(`${url}/v1/queues/bench/messages`, { method: "POST", body: content });
    if (answer.status !== 201) throw new Error(`the broker answered ${answer.status}`);
    await answer.arrayBuffer();
  };
}

async function publishAll(publish, left) {
  const oneAfterTheOther = async () => { while (left-- > 0) await publish(); };
  await Promise.all(Array.from({ length: Number(inFlight) }, oneAfterTheOther));
}

const publish = publishOf();
await publishAll(publish, Math.ceil(Number(count) / 10)); // Node compiles what is used often
const began = performance.now();
await publishAll(publish, Number(count));
console.log((performance.now() - began) / 1000);
await broker.close();
