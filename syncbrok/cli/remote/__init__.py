"""Commands that ask a running broker, over HTTP by the client."""
