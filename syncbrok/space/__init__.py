"""The container of all queues: owns the journal, the dispatcher and every lifetime; knows no frontend."""
