// Publishing in batches that the client makes by itself.

const { Batches } = require('./batches.cjs');

async function connect({ port, queue }) {
  const batches = new Batches(`http://127.0.0.1:${port}`, queue);
  return (content) => batches.publish(content);
}

module.exports = { connect };
