// Syncbrok delivers by itself; from Node it is only published to.

const { Client } = require('undici');

async function connect({ port, queue }) {
  const client = new Client(`http://127.0.0.1:${port}`, { pipelining: 1 });
  const request = { path: `/v1/queues/${queue}/messages`, method: 'POST', headers: { 'content-type': 'text/plain' } };
  return async (body) => {
    const answer = await client.request({ ...request, body });
    await answer.body.dump();
    if (answer.statusCode !== 201) throw new Error(`the broker said ${answer.statusCode}`);
  };
}

module.exports = { connect };
