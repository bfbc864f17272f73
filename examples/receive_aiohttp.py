#!/usr/bin/env python3
"""Webhooks verified in a middleware of aiohttp. Needs the README's ``.venv``.

export WEBHOOK_SECRET=whsec_...         the subscriber's secret, as the broker was given it
python3 examples/receive_aiohttp.py     listen on http://127.0.0.1:20000/
"""

import argparse
import os
import sys

from aiohttp import web
from aiohttp.typedefs import Handler

from syncbrok.client import BadSignature, check_secret, verify

try:
    SECRET = check_secret(os.environ.get("WEBHOOK_SECRET", ""))
except ValueError as wrong:
    sys.exit(f"WEBHOOK_SECRET: {wrong}; give it the subscriber's secret")


@web.middleware
async def genuine(request: web.Request, handler: Handler) -> web.StreamResponse:
    """401 for whatever the broker has not signed; the body stays readable for the handler."""
    try:
        request["webhook-id"] = verify(await request.read(), request.headers, SECRET)
    except BadSignature as forged:
        print(f"forged   {forged}", flush=True)
        raise web.HTTPUnauthorized from None
    return await handler(request)


async def receive(request: web.Request) -> web.Response:
    """Acknowledged by any 2xx."""
    print(f"genuine  {request['webhook-id']}  {(await request.read())[:60]!r}", flush=True)
    return web.Response(status=204)


if __name__ == "__main__":
    flags = argparse.ArgumentParser()
    flags.add_argument("--port", type=int, default=20_000)
    app = web.Application(middlewares=[genuine])
    app.router.add_post("/", receive)
    web.run_app(app, host="127.0.0.1", port=flags.parse_args().port, print=lambda _: print("listening", flush=True))
