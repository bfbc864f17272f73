// Publishing on one WebSocket: a frame each, the answers told apart by their `ref`, which come once it is durable.

const net = require('node:net');
const { WebSocket } = require('ws');

// It publishes only.
const NOTHING_TO_ME = JSON.stringify({ type: 'window', size: 0 });

async function connect({ port, queue }) {
  const waiting = new Map();
  let ref = 0;
  let socket;
  const createConnection = (options) => { socket = net.connect(options); return socket; };
  const url = `ws://127.0.0.1:${port}/v1/queues/${queue}/stream`;
  const stream = new WebSocket(url, { createConnection, perMessageDeflate: false });
  const fail = (error) => { for (const { reject } of waiting.values()) reject(error); };

  // Frames of one turn of the event loop go out in one write.
  let corked = false;
  const uncork = () => { corked = false; socket.uncork(); };
  const publish = (content) => new Promise((resolve, reject) => {
    ref += 1;
    waiting.set(ref, { resolve, reject });
    if (!corked) {
      corked = true;
      socket.cork();
      setImmediate(uncork);
    }
    stream.send(JSON.stringify({ type: 'publish', ref, content }));
  });

  await new Promise((resolve, reject) => {
    stream.on('error', (error) => { reject(error); fail(error); });
    stream.on('close', (code) => fail(new Error(`the broker closed the stream: ${code}`)));
    stream.on('message', (data) => {
      const frame = JSON.parse(data);
      if (frame.type === 'subscribed') {
        stream.send(NOTHING_TO_ME);
        return resolve();
      }
      const sender = waiting.get(frame.ref);
      waiting.delete(frame.ref);
      if (frame.type === 'published') return sender.resolve(frame.id);
      const error = new Error(`the broker said ${JSON.stringify(frame)}`);
      return sender ? sender.reject(error) : fail(error);
    });
  });
  return publish;
}

module.exports = { connect };
