#!/usr/bin/env python3
"""Webhooks verified in a middleware of FastAPI. Needs the README's ``.venv`` and
``pip install fastapi uvicorn``.

export WEBHOOK_SECRET=whsec_...         the subscriber's secret, as the broker was given it
python3 examples/receive_fastapi.py     listen on http://127.0.0.1:20000/
"""

import argparse
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI, Request, Response

from syncbrok.client import BadSignature, check_secret, verify

try:
    SECRET = check_secret(os.environ.get("WEBHOOK_SECRET", ""))
except ValueError as wrong:
    sys.exit(f"WEBHOOK_SECRET: {wrong}; give it the subscriber's secret")


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    print("listening", flush=True)
    yield


app = FastAPI(lifespan=lifespan)


@app.middleware("http")
async def genuine(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    """401 for whatever the broker has not signed; the body stays readable for the route."""
    try:
        request.state.webhook_id = verify(await request.body(), request.headers, SECRET)
    except BadSignature as forged:
        print(f"forged   {forged}", flush=True)
        return Response(status_code=401)
    return await call_next(request)


@app.post("/")
async def receive(request: Request) -> Response:
    """Acknowledged by any 2xx."""
    print(f"genuine  {request.state.webhook_id}  {(await request.body())[:60]!r}", flush=True)
    return Response(status_code=204)


if __name__ == "__main__":
    flags = argparse.ArgumentParser()
    flags.add_argument("--port", type=int, default=20_000)
    uvicorn.run(app, host="127.0.0.1", port=flags.parse_args().port, log_level="warning")
