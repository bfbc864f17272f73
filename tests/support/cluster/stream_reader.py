"""Reads a stream of the engine as NATS describes it, with none of the broker's code."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from nats.aio.client import Client, Srv

from tests.support.cluster.judge import Stored

_BATCH = 256
_BYTES = 8 << 20
_ANSWER_S = 10.0


def stream_of(space: str, urls: list[str]) -> list[Stored]:
    """All that the stream of a space holds now."""
    return asyncio.run(_read(f"SB_{space}", urls))


def ask_engine(urls: list[str], subject: str, question: bytes = b"") -> dict[str, Any]:
    """What the engine answers to a request of its own API."""

    async def ask() -> dict[str, Any]:
        client = await _connected(urls)
        try:
            reply = await client.request(f"$JS.API.{subject}", question, timeout=_ANSWER_S)
            answer: dict[str, Any] = json.loads(reply.data)
            return answer
        finally:
            await client.close()

    return asyncio.run(ask())


def stream_leader(space: str, urls: list[str]) -> str:
    """The name of the server that leads the stream; empty while none does."""
    answer = ask_engine(urls, f"STREAM.INFO.SB_{space}")
    return str(answer.get("cluster", {}).get("leader", ""))


@contextmanager
def watched(space: str, urls: list[str], seen: Callable[[dict[str, str]], None]) -> Iterator[None]:
    """Inside ``seen`` is called, in a thread, with the headers of each message that is sent to the stream, as early as
    anybody can know of it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="watching the stream", daemon=True)
    thread.start()

    async def take(message: Any) -> None:
        seen(dict(message.headers or {}))

    async def subscribe() -> Any:
        client = await _connected(urls)
        await client.subscribe(f"sb.{space}.log", cb=take)
        await client.flush()
        return client

    client = asyncio.run_coroutine_threadsafe(subscribe(), loop).result(_ANSWER_S)
    try:
        yield
    finally:
        asyncio.run_coroutine_threadsafe(client.close(), loop).result(_ANSWER_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class _OneConnection(Client):
    """nats-py leaves a connection on which a server did not let it in open and forgotten when it dials the next."""

    async def _connect_to_server(self, s: Srv) -> None:
        if self._transport is not None:
            self._transport.close()
        await super()._connect_to_server(s)


async def _connected(urls: list[str]) -> Client:
    client = _OneConnection()
    try:
        await client.connect(urls, connect_timeout=2)
    except BaseException:
        await client.close()  # the connection of its last try is open still, and would be collected in another test
        raise
    return client


async def _read(stream: str, urls: list[str]) -> list[Stored]:
    client = await _connected(urls)
    found: list[Stored] = []
    try:
        info = await client.jetstream(timeout=_ANSWER_S).stream_info(stream)
        after = info.state.first_seq - 1
        while after < info.state.last_seq:
            inbox = client.new_inbox()
            replies = await client.subscribe(inbox)
            asked = json.dumps({"seq": after + 1, "batch": _BATCH, "max_bytes": _BYTES}).encode()
            await client.publish(f"$JS.API.DIRECT.GET.{stream}", asked, reply=inbox)
            while True:
                reply = await replies.next_msg(_ANSWER_S)
                headers = dict(reply.headers or {})
                if "Status" in headers:
                    break
                after = int(headers["Nats-Sequence"])
                found.append(_stored(headers, reply.data, after))
            await replies.unsubscribe()
    finally:
        await client.close()
    return found


def _stored(headers: dict[str, str], body: bytes, sequence: int) -> Stored:
    piece, _, pieces = headers.get("Sb-Piece", "1/1").partition("/")
    first, last = (int(headers.get(name, "0")) for name in ("Sb-First", "Sb-Last"))
    kind, epoch, n = headers["Sb-StreamKind"], int(headers["Sb-Epoch"]), headers["Sb-N"]
    return Stored(sequence, kind, epoch, n, first, last, int(piece), int(pieces), body)
