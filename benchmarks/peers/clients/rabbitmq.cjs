// A quorum queue, publisher confirms, manual acknowledgements.

const amqp = require('amqplib');
const { countdown } = require('./sink.cjs');

const open = (port) => amqp.connect(`amqp://127.0.0.1:${port}`, { noDelay: true });

async function prepare({ port, queue }) {
  const connection = await open(port);
  const channel = await connection.createChannel();
  await channel.assertQueue(queue, { durable: true, arguments: { 'x-queue-type': 'quorum' } });
  await connection.close();
}

async function connect({ port, queue }) {
  const connection = await open(port);
  const channel = await connection.createConfirmChannel();
  const options = { persistent: true };
  return (body) => new Promise((resolve, reject) => {
    channel.sendToQueue(queue, Buffer.from(body), options, (error) => (error ? reject(error) : resolve()));
  });
}

async function deliver({ port, queue, count, prefetch }, post) {
  const connection = await open(port);
  const channel = await connection.createChannel();
  await channel.prefetch(prefetch);
  const done = countdown(count);
  const one = async (message) => {
    await post(message.content);
    channel.ack(message);
    done.one();
  };
  return async () => {
    await channel.consume(queue, (message) => one(message).catch(done.reject));
    await done.all;
    // Acknowledgements have no answer; what comes after them on the same channel has one.
    await channel.checkQueue(queue);
  };
}

module.exports = { prepare, connect, deliver };
