// One job of one peer. Argument: a JSON object {peer, job, port, ...}; answers with one line of JSON {count, seconds}.
//
// publish: so many connections, together 64 messages in flight, each one awaited until the peer has acknowledged it.
// fill:    a backlog, quickly.
// deliver: the backlog to `url` by HTTP POST, each message acknowledged to the peer after a 2xx.
// hops:    a chain in which each message waits for the one before it.

const { Sink } = require('./sink.cjs');

const wish = JSON.parse(process.argv[2]);
const peer = require(`./${wish.peer}.cjs`);
const body = 'x'.repeat(wish.bytes);

async function publish({ connections, in_flight, seconds, count }) {
  await peer.prepare?.(wish);
  const lanes = await Promise.all(Array.from({ length: connections }, () => peer.connect(wish)));
  let sent = 0;
  let acknowledged = 0;
  const began = performance.now();
  const ends = seconds ? began + 1000 * seconds : Infinity;
  const most = count ?? Infinity;
  const loop = async (send) => {
    while (sent < most && performance.now() < ends) {
      sent += 1;
      await send(body);
      acknowledged += 1;
    }
  };
  await Promise.all(Array.from({ length: in_flight }, (_, at) => loop(lanes[at % connections])));
  return { count: acknowledged, seconds: (performance.now() - began) / 1000 };
}

// The peer is connected and so are all connections to the subscriber before the clock starts.
async function deliver({ url, count, in_flight }, job) {
  const sink = new Sink(url, in_flight);
  await sink.warm(body);
  const start = await peer[job](wish, (content) => sink.post(content));
  const began = performance.now();
  await start();
  if (sink.answered < count) throw new Error(`${sink.answered} of ${count} were delivered`);
  return { count, seconds: (performance.now() - began) / 1000 };
}

const JOBS = { publish, fill: publish, deliver, hops: deliver };

JOBS[wish.job](wish, wish.job).then(
  (result) => { console.log(JSON.stringify(result)); process.exit(0); },
  (error) => { console.error(error); process.exit(1); },
);
