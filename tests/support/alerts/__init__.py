"""The alerts of ``config/`` at a real Prometheus, and real brokers in the bad states that they are for."""
