"""The container of all queues: owns the journal, the courier and every lifetime; knows no frontend."""
