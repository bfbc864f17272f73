"""A Space on several machines: one log, replicated by NATS JetStream, and one node that leads.

Imported only where ``cluster`` is configured; needs ``syncbrok[cluster]``.
"""
