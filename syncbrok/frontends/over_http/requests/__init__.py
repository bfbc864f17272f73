"""What every request passes and every handler stands on: connection, gate, body, names, problems."""
