#!/usr/bin/env python3
"""Each message applied once, whatever is killed when: an inbox in the receiver's own database (SQLite).
Needs the README's ``.venv``.

export WEBHOOK_SECRET=whsec_...              the subscriber's secret, where it has one
python3 examples/receive_once.py events.db   listen on http://127.0.0.1:20000/
"""

import argparse
import os
import sqlite3
from http.server import BaseHTTPRequestHandler, HTTPServer

from syncbrok.client import BadSignature, Inbox, verify

SECRET = os.environ.get("WEBHOOK_SECRET", "")
flags = argparse.ArgumentParser()
flags.add_argument("database")
flags.add_argument("--port", type=int, default=20_000)
given = flags.parse_args()
database = sqlite3.connect(given.database)
database.execute("create table if not exists event (id text, body blob)")


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        """What is applied, and that it was, are durable together before the answer says so."""
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            if SECRET:
                verify(body, self.headers, SECRET)
        except BadSignature:
            self.send_error(401)
            return
        with Inbox(database, self.headers["syncbrok-queue"]).apply(self.headers) as new:  # one of each subscriber
            if new:
                database.execute("insert into event values (?, ?)", (self.headers["webhook-id"], body))
        self.send_response(204)
        self.end_headers()


server = HTTPServer(("127.0.0.1", given.port), Receiver)
print(f"listening on {server.server_port}", flush=True)
server.serve_forever()
