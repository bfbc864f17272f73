#!/usr/bin/env python3
"""A subscriber that believes only what its broker signed. Needs ``pip install standardwebhooks``.

    export WEBHOOK_SECRET=whsec_...       the subscriber's secret, as the broker was given it
    python3 examples/verify_webhook.py    listen on http://127.0.0.1:20000/

The library checks the signature over id, timestamp and body, and refuses a timestamp more than five minutes off,
which keeps a recorded delivery from being sent again later. While a secret is being rotated a delivery carries two
signatures; one that fits is enough, so the change of secret may happen here at any moment of those 24 hours.

A shortcoming: the library wants the body to be UTF-8. For other bytes take an HMAC-SHA256 of ``id.timestamp.body``
yourself, and compare it with ``hmac.compare_digest``.
"""

import argparse
import base64
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks import Webhook, WebhookVerificationError


class Delivery(BaseHTTPRequestHandler):
    """One delivery: 204 when it is genuine, 401 when it is not."""

    protocol_version = "HTTP/1.1"
    webhook: Webhook

    def do_POST(self) -> None:
        """Verify first, look at the body afterwards."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            # Only the signature matters here: ask the library not to parse the body, which need not be JSON.
            self.webhook.verify(body, headers, json_parse=False)
        except (WebhookVerificationError, ValueError) as forged:  # ValueError: a signature that is not base64
            print(f"forged   {forged}", flush=True)
            self.answer(401)
        else:
            print(f"genuine  {headers['webhook-id']}  {body[:60]!r}", flush=True)
            self.answer(204)

    def answer(self, status: int) -> None:
        """Nothing but a status."""
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """The line printed above says it better."""


def main() -> None:
    """Take the secret from the environment, where it is not shown to others; serve until Ctrl-C."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=20000)
    options = parser.parse_args()
    if not (secret := os.environ.get("WEBHOOK_SECRET")):
        sys.exit("WEBHOOK_SECRET is not set: give it the subscriber's secret (whsec_...)")
    try:
        key_bytes = len(base64.b64decode(secret.removeprefix("whsec_"), validate=True))
    except ValueError:
        sys.exit("WEBHOOK_SECRET: a secret is whsec_ and base64, as the broker was given it")
    if key_bytes < 24:  # with "whsec_" alone everybody could sign, and the library would not mind
        sys.exit(f"WEBHOOK_SECRET: a secret has 24 bytes or more, this one has {key_bytes}: anybody could sign with it")
    Delivery.webhook = Webhook(secret)
    server = ThreadingHTTPServer((options.host, options.port), Delivery)
    print(f"listening on http://{options.host}:{server.server_address[1]}/", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        sys.exit(0)


if __name__ == "__main__":
    main()
