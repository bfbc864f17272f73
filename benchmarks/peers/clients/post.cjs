// One POST a message over one kept-alive connection, each awaited. Resolves when the server has answered `status`.

const { Client } = require('undici');

function poster({ port }, path, status) {
  const client = new Client(`http://127.0.0.1:${port}`, { pipelining: 1 });
  const request = { path, method: 'POST', headers: { 'content-type': 'text/plain' } };
  return async (body) => {
    const answer = await client.request({ ...request, body });
    await answer.body.dump();
    if (answer.statusCode !== status) throw new Error(`the server said ${answer.statusCode}`);
  };
}

module.exports = { poster };
