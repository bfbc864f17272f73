"""What becomes of messages, seen from outside: ends, order, hops, who counts."""
