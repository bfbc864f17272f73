// One job of one peer. Argument: a JSON object {peer, job, port, ...}; answers with one line of JSON
// {messages, seconds, cpu_s, warming}: seconds of time and of this program's CPU from the first message to the last
// answer, and how many messages were sent before that to warm up.
//
// publish: so many connections, together `in_flight` messages, each one awaited until the peer has acknowledged it.
// fill:    a backlog, quickly.
// deliver: the backlog to `url` by HTTP POST, each message acknowledged to the peer after a 2xx.
// hops:    a chain in which each message waits for the one before it.

const { Sink } = require('./sink.cjs');

const wish = JSON.parse(process.argv[2]);
const peer = require(`./${wish.peer}.cjs`);
const body = 'x'.repeat(wish.bytes);

function stopwatch() {
  const began = performance.now();
  const used = process.cpuUsage();
  return () => {
    const { user, system } = process.cpuUsage(used);
    return { seconds: (performance.now() - began) / 1000, cpu_s: (user + system) / 1e6 };
  };
}

async function publish({ connections, in_flight, seconds, count }) {
  await peer.prepare?.(wish);
  const lanes = await Promise.all(Array.from({ length: connections }, () => peer.connect(wish)));
  const during = async (most, ms) => {
    const ends = performance.now() + ms;
    let sent = 0;
    const loop = async (send) => {
      while (sent < most && performance.now() < ends) {
        sent += 1;
        await send(body);
      }
    };
    await Promise.all(Array.from({ length: in_flight }, (_, at) => loop(lanes[at % connections])));
    return sent;
  };
  // Compiling what runs often is no part of what a program that runs for days costs.
  const warming = seconds ? await during(Infinity, Math.min(500, 250 * seconds)) : 0;
  const taken = stopwatch();
  const messages = await during(count ?? Infinity, seconds ? 1000 * seconds : Infinity);
  return { messages, ...taken(), warming };
}

// The peer is connected and so are all connections to the subscriber before the clock starts.
async function deliver({ url, count, in_flight }, job) {
  const sink = new Sink(url, in_flight);
  await sink.warm(body);
  const start = await peer[job](wish, (content) => sink.post(content));
  const taken = stopwatch();
  await start();
  const result = { messages: count, ...taken() };
  if (sink.answered < count) throw new Error(`${sink.answered} of ${count} were delivered`);
  return result;
}

const JOBS = { publish, fill: publish, deliver, hops: deliver };

JOBS[wish.job](wish, wish.job).then(
  (result) => { console.log(JSON.stringify(result)); process.exit(0); },
  (error) => { console.error(error); process.exit(1); },
);
