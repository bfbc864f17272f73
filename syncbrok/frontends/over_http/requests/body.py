"""Reading what a client sends, within bounds of size and time (aiohttp has none of its own)."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from io import BytesIO
from typing import Any, Protocol, cast

import orjson
from aiohttp import hdrs, web

from syncbrok.frontends.over_http.requests.exact_json import without_mark
from syncbrok.frontends.over_http.requests.problems import TooSlow, UnsupportedMedia, answer
from syncbrok.model import limits
from syncbrok.model.errors import ClientFault, Malformed, TooLarge


def refuse_early(request: web.BaseRequest, bytes_max: int) -> None:
    """Refuse a request before a byte of its body is read: for its coding, or a stated length over ``bytes_max``.

    Raises ``UnsupportedMedia`` and ``TooLarge``. Compressed bodies are refused altogether: a few KiB of them can be a
    GiB, and the content is kept byte for byte, so the broker would have nothing to gain from unpacking it.
    """
    transfer = request.headers.get(hdrs.TRANSFER_ENCODING)
    if transfer is not None and transfer.strip().lower() != "chunked":
        raise UnsupportedMedia(
            f"Transfer-Encoding {transfer[:40]!r} is not taken; send the content as it is",
            mend="of transfer codings only chunked is known here",
        )
    coding = request.headers.get(hdrs.CONTENT_ENCODING)
    if coding is not None and coding.strip().lower() not in ("", "identity"):
        raise UnsupportedMedia(
            f"Content-Encoding {coding[:40]!r} is not taken; send the content as it is",
            mend="send the body without Content-Encoding; name what is inside with Content-Type",
        )
    length = request.content_length
    if length is not None and length > bytes_max:
        raise _too_large(bytes_max, length)


def refuse_no_json(request: web.BaseRequest) -> None:
    """Raises ``UnsupportedMedia`` where there is a body that is not said to be JSON. Without this a page can send JSON
    as text, which its browser does not ask leave for."""
    kind = request.content_type
    if request.body_exists and kind != "application/json" and not kind.endswith("+json"):
        raise UnsupportedMedia(f"with an Origin this route takes application/json only, not {kind[:60]!r}")


class BodySender(Protocol):
    """The connection of a request (``connection.HttpConnection``)."""

    async def admit_body(self, amount: int) -> None: ...


async def read_body(request: web.Request, bytes_max: int, timeout_s: float) -> bytes:
    """The whole body. Raises ``TooLarge``, ``TooSlow``, ``UnsupportedMedia``, ``Malformed`` where it breaks off, and
    ``Overloaded`` where its sender has too much under way."""
    refuse_early(request, bytes_max)
    stream = request.content
    if stream.is_eof():  # it came with the headers, as nearly every message does: no timer, no waiting
        body = stream.read_nowait()
        if len(body) > bytes_max:
            raise _too_large(bytes_max, len(body))
        return body
    stream.set_read_chunk_size(min(bytes_max, limits.MIB))
    length = request.content_length
    await cast("BodySender", request.protocol).admit_body(bytes_max if length is None else length)
    # Joined at the end, 15 MiB would hold the loop up for 40 ms, and be in memory twice. What has come of a body that
    # breaks off is given up at once: the stream keeps the error, and the error's traceback keeps this frame.
    with BytesIO() as whole:
        try:
            async with asyncio.timeout(timeout_s):
                while chunk := await stream.readany():
                    if whole.tell() + len(chunk) > bytes_max:
                        raise _too_large(bytes_max, None)
                    whole.write(chunk)
        except TimeoutError:
            raise TooSlow(f"the body did not arrive within {timeout_s:g} s", timeout_s=timeout_s) from None
        except (web.RequestPayloadError, ConnectionError):
            raise Malformed("the body broke off before its end") from None
        return whole.getvalue()


async def read_object(request: web.Request, timeout_s: float) -> dict[str, Any]:
    """A JSON object; an empty body is an empty object. Raises ``Malformed`` as well."""
    body = await read_body(request, limits.json_bytes_max, timeout_s)
    if not body:
        return {}
    try:
        found = orjson.loads(without_mark(body))
    except orjson.JSONDecodeError as error:
        raise Malformed(f"the body is not JSON: {error.msg}", line=error.lineno, column=error.colno) from None
    if not isinstance(found, dict):
        raise Malformed("the body must be a JSON object, {...}")
    return found


def expectation(
    bytes_max: int, headers: Mapping[str, str]
) -> Callable[[web.Request], Awaitable[web.StreamResponse | None]]:
    """The handler of ``Expect: 100-continue``: asks for the body unless its stated length already rules it out. Such a
    refusal does not pass the middleware: ``headers`` are those that it would have added."""

    async def expect(request: web.Request) -> web.StreamResponse | None:
        try:
            refuse_early(request, bytes_max)
        except ClientFault as error:
            return answer(error, headers)
        # HTTP/1.0 knows no interim answers (RFC 9110, 10.1.1).
        if request.version >= (1, 1) and request.headers[hdrs.EXPECT].strip().lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0  # the answer proper has not begun
        return None

    return expect


def _too_large(bytes_max: int, length: int | None) -> TooLarge:
    has = f"this one has {length}" if length is not None else "this one has more"
    return TooLarge(f"a body may have {bytes_max} bytes here, {has}", bytes_max=bytes_max)
