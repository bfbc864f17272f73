"""The base of every handler: connection, middleware, body, names, problems."""
