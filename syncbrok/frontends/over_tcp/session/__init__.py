"""The common part of the TCP frontends: connections with bounds, queues made on first use, publishing without answers,
and the shared read position of those who ask for messages. It knows no wire format.
"""
