#!/usr/bin/env python3
"""Webhooks verified before each request of Flask. Needs the README's ``.venv`` and ``pip install flask``.

export WEBHOOK_SECRET=whsec_...         the subscriber's secret, as the broker was given it
python3 examples/receive_flask.py       listen on http://127.0.0.1:20000/
"""

import argparse
import os
import sys

from flask import Flask, Response, abort, g, request
from werkzeug.serving import make_server

from syncbrok.client import BadSignature, check_secret, verify

try:
    SECRET = check_secret(os.environ.get("WEBHOOK_SECRET", ""))
except ValueError as wrong:
    sys.exit(f"WEBHOOK_SECRET: {wrong}; give it the subscriber's secret")

app = Flask(__name__)


@app.before_request
def genuine() -> None:
    """401 for whatever the broker has not signed; the body stays readable for the view."""
    try:
        g.webhook_id = verify(request.get_data(), request.headers, SECRET)
    except BadSignature as forged:
        print(f"forged   {forged}", flush=True)
        abort(401)


@app.post("/")
def receive() -> Response:
    """Acknowledged by any 2xx."""
    print(f"genuine  {g.webhook_id}  {request.get_data()[:60]!r}", flush=True)
    return Response(status=204)


if __name__ == "__main__":
    flags = argparse.ArgumentParser()
    flags.add_argument("--port", type=int, default=20_000)
    server = make_server("127.0.0.1", flags.parse_args().port, app, threaded=True)
    print("listening", flush=True)
    server.serve_forever()
