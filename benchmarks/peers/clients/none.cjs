// No broker: what Node and the subscriber can do at most.

const { countdown } = require('./sink.cjs');

async function deliver({ count, in_flight, bytes }, post) {
  const content = Buffer.alloc(bytes, 'x');
  const done = countdown(count);
  let sent = 0;
  const loop = async () => {
    while (sent < count) {
      sent += 1;
      await post(content);
      done.one();
    }
  };
  return () => {
    for (let lane = 0; lane < in_flight; lane += 1) loop().catch(done.reject);
    return done.all;
  };
}

module.exports = { deliver };
