// Publishes gathered into batches: one request, one fsync and one answer for all that is sent within a moment.

const LINES_MAX = 500;
const BYTES_MAX = 4 * 1024 * 1024;
const LINGER_MS = 5;

// A batch leaves at the end of the turn of the event loop where no other is on its way; otherwise once that one is
// answered, or 500 lines are together, or the first of them has waited for 5 ms.
class Batches {
  // `line(content)` is text for the wire; `send(lines)` settles each of them {text, resolve, reject}, or rejects for all.
  constructor(line, send) {
    this.line = line;
    this.send = send;
    this.lines = [];
    this.bytes = 0;
    this.onTheWay = 0;
    this.due = null;
    this.leave = () => { this.due = null; this.sendOne(); };
  }

  // What the server says of this message, once it is durable. Rejects where its own line was refused.
  publish(content) {
    return new Promise((resolve, reject) => {
      const text = this.line(content);
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
}

module.exports = { Batches };
