// One POST a message. Syncbrok delivers by itself; from Node it is only published to.

const { poster } = require('./post.cjs');

const connect = async (wish) => poster(wish, `/v1/queues/${wish.queue}/messages`, 201);

module.exports = { connect };
