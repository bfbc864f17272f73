"""``make bench-peers``: what other brokers do with the same job, on the same machine, in the same run.

The job: publish 200-byte messages, each one acknowledged when it is durable, 64 in flight; deliver a backlog to the
same nginx by HTTP POST, 64 in flight, each message acknowledged to the broker only after nginx's 2xx; and, where a peer
has such a thing, a chain in which each message waits for the one before it. Every server is configured as its own
documentation recommends for durability, and the settings are printed with the figures.
"""
