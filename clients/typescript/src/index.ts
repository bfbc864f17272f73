/** A client of the Syncbrok broker: publish, wait, consume, verify. */
export { Client, type ClientOptions, type DeliveriesAsked, type Delivery } from "./client.js";
export type { ConsumerOptions, PullOptions } from "./consuming.js";
export { BadSignature, ClientError, Refused, Unreachable, type Problem } from "./errors.js";
export { Draft, draft, Pending, type Content, type Fields, type Json, type Parent, type Published } from "./messages.js";
export { Publisher } from "./publisher.js";
export { messagesOf, Received, Refuse, type Handle } from "./received.js";
export type { StreamOptions } from "./streaming.js";
export { checkSecret, verify, type HeadersGiven, type VerifyOptions } from "./webhooks.js";
