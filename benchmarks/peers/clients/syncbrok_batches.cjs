// Publishing in NDJSON batches that the client makes by itself.

const { Pool } = require('undici');
const { Batches } = require('./batches.cjs');

const CONNECTIONS = 4;

// These refuse a batch whatever is in it: no token, no such queue, too much at once, a broker that stops or is full.
const NOT_OF_A_LINE = new Set([401, 403, 404, 429, 503, 507]);

async function connect({ port, queue }) {
  const pool = new Pool(`http://127.0.0.1:${port}`, { connections: CONNECTIONS, pipelining: 1 });
  const request = {
    path: `/v1/queues/${encodeURIComponent(queue)}/messages:batch`,
    method: 'POST',
    headers: { 'content-type': 'application/x-ndjson' },
  };

  // A batch is all or nothing: where a line of it is wrong the halves are sent, so that the others do not suffer.
  async function send(batch) {
    let body = '';
    for (const line of batch) body += line.text;
    const answer = await pool.request({ ...request, body });
    const said = await answer.body.json();
    if (answer.statusCode < 300) {
      batch.forEach((line, at) => line.resolve(said.ids[at]));
    } else if (batch.length === 1 || answer.statusCode >= 500 || NOT_OF_A_LINE.has(answer.statusCode)) {
      throw new Error(`the broker said ${answer.statusCode}: ${said.detail}`);
    } else {
      const middle = batch.length >> 1;
      for (const half of [batch.slice(0, middle), batch.slice(middle)]) {
        await send(half).catch((error) => { for (const line of half) line.reject(error); });
      }
    }
  }

  const batches = new Batches((content) => `${JSON.stringify({ content })}\n`, send);
  return (content) => batches.publish(content);
}

module.exports = { connect };
