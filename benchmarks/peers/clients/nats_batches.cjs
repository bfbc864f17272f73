// Publishing to JetStream in atomic batches that the client makes by itself, all or nothing as those of Syncbrok.

const { jetstream } = require('@nats-io/jetstream');
const { Batches } = require('./batches.cjs');
const { prepareWith, server } = require('./nats.cjs');

const prepare = (wish) => prepareWith(wish, { allow_atomic: true });

async function connect({ port, queue }) {
  const stream = jetstream(await server(port));

  // The last message of a batch commits it; a single one is a usual publish.
  async function send(lines) {
    const last = lines.length - 1;
    if (!last) {
      lines[0].resolve(await stream.publish(queue, lines[0].text));
      return;
    }
    const batch = await stream.startBatch(queue, lines[0].text);
    for (let at = 1; at < last; at += 1) batch.add(queue, lines[at].text);
    const { seq, count } = await batch.commit(queue, lines[last].text);
    if (count !== lines.length) throw new Error(`${count} of ${lines.length} messages were committed`);
    lines.forEach((line, at) => line.resolve({ seq: seq - last + at }));
  }

  const batches = new Batches((content) => content, send);
  return (content) => batches.publish(content);
}

module.exports = { prepare, connect };
