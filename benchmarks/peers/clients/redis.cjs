// A stream read by a consumer group.

const { Redis } = require('ioredis');
const { countdown } = require('./sink.cjs');

const GROUP = 'bench';

// Auto-pipelining: commands of one turn of the event loop go out in one write.
const client = (port) => new Redis({ host: '127.0.0.1', port, enableAutoPipelining: true, maxRetriesPerRequest: null });

async function prepare({ port, queue }) {
  const redis = client(port);
  await redis.xgroup('CREATE', queue, GROUP, '0', 'MKSTREAM');
  redis.disconnect();
}

async function connect({ port, queue }) {
  const redis = client(port);
  await redis.ping();
  return (body) => redis.xadd(queue, '*', 'content', body);
}

async function deliver({ port, queue, count, prefetch, in_flight }, post) {
  const reader = client(port);
  const writer = client(port);
  await Promise.all([reader.ping(), writer.ping()]);
  const done = countdown(count);
  let held = 0;
  let freed = () => {};
  const one = async ([id, [, content]]) => {
    await post(content);
    await writer.xack(queue, GROUP, id);
    held -= 1;
    if (held <= prefetch - in_flight) freed();
    done.one();
  };
  const read = async () => {
    for (let taken = 0; taken < count; ) {
      if (held > prefetch - in_flight) await new Promise((resolve) => { freed = resolve; });
      const room = prefetch - held;
      const answer = await reader.xreadgroup(
        'GROUP', GROUP, 'one', 'COUNT', room, 'BLOCK', 5000, 'STREAMS', queue, '>',
      );
      if (!answer) throw new Error(`the stream ended after ${taken} messages`);
      const entries = answer[0][1];
      taken += entries.length;
      held += entries.length;
      for (const entry of entries) one(entry).catch(done.reject);
    }
  };
  return () => {
    read().catch(done.reject);
    return done.all;
  };
}

module.exports = { prepare, connect, deliver };
