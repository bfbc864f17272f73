"""Brokers that are one cluster, on real servers of its engine."""
