// A server without a broker behind it: what Node, undici and HTTP cost alone.

const { poster } = require('./post.cjs');

const connect = async (wish) => poster(wish, '/', 200);

module.exports = { connect };
