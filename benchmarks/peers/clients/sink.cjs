// The subscriber as a Node program sees it: undici with `connections` kept-alive connections, one request on each.

const { Pool } = require('undici');

class Sink {
  constructor(url, connections) {
    this.answered = 0;
    this.connections = connections;
    this.pool = new Pool(url, { connections, pipelining: 1 });
  }

  async post(content) {
    const answer = await this.pool.request({ path: '/', method: 'POST', body: content, headers: HEADERS });
    await answer.body.dump();
    if (answer.statusCode < 200 || answer.statusCode > 299) throw new Error(`the subscriber said ${answer.statusCode}`);
    this.answered += 1;
  }

  async warm(content) {
    await Promise.all(Array.from({ length: this.connections }, () => this.post(content)));
    this.answered = 0;
  }
}

const HEADERS = { 'content-type': 'application/octet-stream' };

// Resolves `all` when called `count` times.
function countdown(count) {
  let left = count;
  let resolve;
  let reject;
  const all = new Promise((yes, no) => { resolve = yes; reject = no; });
  return { all, reject, one: () => { left -= 1; if (left === 0) resolve(); } };
}

module.exports = { Sink, countdown };
