"""Questions and their answers: reports of queues, subscribers, messages, deliveries and events."""
