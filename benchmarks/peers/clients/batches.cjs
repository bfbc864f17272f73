// Publishes gathered into NDJSON batches: one request, one fsync and one answer for all that is sent within a moment.

const { Pool } = require('undici');

const LINES_MAX = 500;
const BYTES_MAX = 4 * 1024 * 1024;
const LINGER_MS = 5;
const ON_THE_WAY_MAX = 4;

// These refuse a batch whatever is in it: no token, no such queue, too much at once, a broker that stops or is full.
const NOT_OF_A_LINE = new Set([401, 403, 404, 429, 503, 507]);

// A batch leaves at the end of the turn of the event loop where no other is on its way; otherwise once that one is
// answered, or 500 lines are together, or the first of them has waited for 5 ms.
class Batches {
  constructor(url, queue) {
    this.pool = new Pool(url, { connections: ON_THE_WAY_MAX, pipelining: 1 });
    this.request = {
      path: `/v1/queues/${encodeURIComponent(queue)}/messages:batch`,
      method: 'POST',
      headers: { 'content-type': 'application/x-ndjson' },
    };
    this.lines = [];
    this.bytes = 0;
    this.onTheWay = 0;
    this.due = null;
    this.leave = () => { this.due = null; this.sendOne(); };
  }

  // The id of the message, once it is durable. Rejects where its own line was refused.
  publish(content) {
    return new Promise((resolve, reject) => {
      const text = `${JSON.stringify({ content })}\n`;
      this.lines.push({ text, resolve, reject });
      this.bytes += text.length;
      if (this.lines.length >= LINES_MAX || this.bytes >= BYTES_MAX) this.sendOne();
      else if (this.due === null) this.wait();
    });
  }

  wait() {
    this.due = this.onTheWay ? setTimeout(this.leave, LINGER_MS) : setImmediate(this.leave);
  }

  forget() {
    clearTimeout(this.due);
    clearImmediate(this.due);
    this.due = null;
  }

  sendOne() {
    this.forget();
    const batch = this.lines;
    if (!batch.length) return;
    this.lines = [];
    this.bytes = 0;
    this.onTheWay += 1;
    this.send(batch).catch((error) => { for (const line of batch) line.reject(error); }).finally(() => {
      this.onTheWay -= 1;
      if (this.onTheWay || !this.lines.length) return;
      this.forget();
      this.wait();
    });
  }

  // A batch is all or nothing: where a line of it is wrong the halves are sent, so that the others do not suffer.
  async send(batch) {
    let body = '';
    for (const line of batch) body += line.text;
    const answer = await this.pool.request({ ...this.request, body });
    const said = await answer.body.json();
    if (answer.statusCode < 300) {
      batch.forEach((line, at) => line.resolve(said.ids[at]));
    } else if (batch.length === 1 || answer.statusCode >= 500 || NOT_OF_A_LINE.has(answer.statusCode)) {
      throw new Error(`the broker said ${answer.statusCode}: ${said.detail}`);
    } else {
      const middle = batch.length >> 1;
      for (const half of [batch.slice(0, middle), batch.slice(middle)]) {
        await this.send(half).catch((error) => { for (const line of half) line.reject(error); });
      }
    }
  }
}

module.exports = { Batches };
