"""What can be asked: reports of queues, subscribers, messages, deliveries and events."""
