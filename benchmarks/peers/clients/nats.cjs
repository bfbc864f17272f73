// A JetStream stream in files, and a durable pull consumer with explicit acknowledgements.

const { connect: open } = require('@nats-io/transport-node');
const { AckPolicy, StorageType, jetstream, jetstreamManager } = require('@nats-io/jetstream');
const { countdown } = require('./sink.cjs');

const DURABLE = 'bench';
const server = (port) => open({ servers: `127.0.0.1:${port}`, noAsyncTraces: true });

const prepare = (wish) => prepareWith(wish, {});

async function prepareWith({ port, queue }, more) {
  const connection = await server(port);
  const streams = await jetstreamManager(connection);
  await streams.streams.add({ name: queue, subjects: [queue], storage: StorageType.File, num_replicas: 1, ...more });
  await streams.consumers.add(queue, { durable_name: DURABLE, ack_policy: AckPolicy.Explicit });
  await connection.close();
}

async function connect({ port, queue }) {
  const stream = jetstream(await server(port));
  return (body) => stream.publish(queue, body);
}

async function deliver({ port, queue, count, prefetch }, post) {
  const connection = await server(port);
  const consumer = await jetstream(connection).consumers.get(queue, DURABLE);
  const done = countdown(count);
  // The library writes to its socket once a microtask; the acknowledgements of one turn of the event loop shall go out
  // together, as those of the other peers' libraries do by themselves.
  let answered = [];
  const acknowledge = () => {
    const turn = answered;
    answered = [];
    for (const message of turn) { message.ack(); done.one(); }
  };
  const one = async (message) => {
    await post(message.data);
    if (answered.push(message) === 1) setImmediate(acknowledge);
  };
  return async () => {
    await consumer.consume({ max_messages: prefetch, callback: (message) => one(message).catch(done.reject) });
    await done.all;
    // Acknowledgements have no answer: ask until the server has counted them all.
    while ((await consumer.info()).num_ack_pending) await new Promise((resolve) => { setTimeout(resolve, 5); });
  };
}

module.exports = { prepare, prepareWith, server, connect, deliver };
