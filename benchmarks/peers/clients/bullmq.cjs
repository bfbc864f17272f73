// A queue of jobs, and a flow for the chain: in BullMQ a parent waits for its children, so the last one is the root.

const { FlowProducer, Queue, Worker } = require('bullmq');
const { countdown } = require('./sink.cjs');

const connection = (port) => ({ host: '127.0.0.1', port, maxRetriesPerRequest: null });
const KEEP = { removeOnComplete: { count: 1000 }, removeOnFail: { count: 5000 } };

async function connect({ port, queue }) {
  const jobs = new Queue(queue, { connection: connection(port) });
  await jobs.waitUntilReady();
  return (body) => jobs.add('message', { content: body });
}

async function deliver({ port, queue, count, in_flight }, post) {
  const done = countdown(count);
  const worker = new Worker(queue, (job) => post(job.data.content), {
    connection: connection(port), concurrency: in_flight, autorun: false, ...KEEP,
  });
  worker.on('completed', done.one);
  worker.on('failed', (_, error) => done.reject(error));
  worker.on('error', done.reject);
  await worker.waitUntilReady();
  return () => {
    worker.run().catch(done.reject);
    return done.all;
  };
}

async function hops(wish, post) {
  const { port, queue, count, bytes } = wish;
  const content = 'x'.repeat(bytes);
  const flows = new FlowProducer({ connection: connection(port) });
  let flow;
  for (let at = 0; at < count; at += 1) {
    flow = { name: 'message', queueName: queue, data: { content }, children: flow ? [flow] : [] };
  }
  await flows.add(flow);
  return deliver(wish, post);
}

module.exports = { connect, deliver, hops };
