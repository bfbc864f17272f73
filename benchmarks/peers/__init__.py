"""``make bench-peers``: what other brokers do with the same job, on the same machine, in the same run.

The job, with messages of 200 bytes and of 4 KiB: publish them, each one acknowledged when it is durable, 64 in flight
and 1,000; deliver a backlog to the same nginx by HTTP POST, 64 in flight, each message acknowledged to the broker only
after nginx's 2xx; and, where a peer has such a thing, a chain in which each message waits for the one before it. Every
server is configured as its own documentation recommends for durability, and the settings are printed with the figures.

From Node Syncbrok is published to in three ways: one POST a message, batches that the client makes of what is sent
within a moment, and frames of a WebSocket. What the layers below a single POST cost stands in a table of its own.
"""
