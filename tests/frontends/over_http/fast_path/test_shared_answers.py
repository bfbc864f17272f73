"""Heads that were seen before, and answers written together: quicker, and not a byte different."""

import asyncio
import re

import pytest

from syncbrok.frontends.over_http.fast_path import request_head
from syncbrok.frontends.over_http.fast_path.request_head import RequestHead, RequestHeadCache
from syncbrok.frontends.over_http.fast_path.shared_answers import answers
from syncbrok.frontends.over_http.publishing.publish import status_of
from syncbrok.frontends.over_http.requests.auth import Tokens
from syncbrok.model import errors
from syncbrok.model.message import Message, QueueSettings
from syncbrok.model.names import QueueName, id_text, make_message_id
from syncbrok.space.channels import Accepted, Publish
from tests.frontends.over_http.fast_path.test_fast_path import LONG_WAY, ORDERS, Connect, api, connect, publish, space
from tests.frontends.over_http.requests.test_auth import token
from tests.support.held_memory import held_by
from tests.support.http.api import Api, Serve, raw
from tests.support.polling import eventually
from tests.support.space.fake_space import KEY, FakeSpace

__all__ = ["api", "connect", "space"]


def head(*headers: str, length: int = 1, queue: str = "orders") -> bytes:
    lines = [f"POST /v1/queues/{queue}/messages HTTP/1.1", "Host: x", f"Content-Length: {length}", *headers]
    return "\r\n".join(lines).encode()


def contents(space: FakeSpace) -> list[bytes]:
    return [message.content for message in space.contents.values()]


# -- heads ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "queue", ["a%zz", "a%FF", "a%2Fb", "%2E%2E", "a%20", "a?b", "a#b", 'a"b', "a\\b", "{a}", "a b"]
)
def test_a_name_in_any_doubt_is_not_read_here(queue: str) -> None:
    """INTERFACES 5: what ends a path, is no escape, or is no name when it is decoded is aiohttp's to answer."""
    assert request_head.parse_head(head(queue=queue)) is None


def test_a_name_is_decoded_before_its_head_is_kept() -> None:
    """INTERFACES 5: two ways to write a name are two heads that are kept, and one queue."""
    seen = RequestHeadCache(1_000, lambda _: True)
    for queue in ("topic%20a", "%74opic%20%61"):
        for _ in range(2):
            found = seen.read(head(queue=queue))
            assert found is not None
            assert (found.queue, found.content_type) == ("topic a", "")
    assert len(seen) == 2


def test_what_the_same_bytes_meant_they_mean_again() -> None:
    """A head that was seen before is the same request, and only a head that says all there is to know is kept."""
    seen = RequestHeadCache(1_000, lambda host: host == "x")
    bare = head("Content-Type: text/plain", "Authorization: Bearer t", length=7)
    first = seen.read(bare)
    assert first is not None
    assert (first.queue, first.content_bytes, first.authorization) == (ORDERS, 7, "Bearer t")
    assert first.content_type == "text/plain"
    assert seen.cached(bare) is seen.read(bare) is first
    for special in ("Idempotency-Key: k", "Syncbrok-Delay: 5s", "ce-id: 1", "traceparent: 00", "Syncbrok-Parnet: x"):
        text = head(special)
        found = seen.read(text)
        assert found is not None
        assert found.content_type is None, special
        assert seen.cached(text) is None, special
    wrong = head("Content-Type: " + "x" * 300)
    assert isinstance(seen.read(wrong), RequestHead)
    assert seen.cached(wrong) is None
    for refused in (head(length=1_001), head("Prefer: wait=1"), head("Content-Length: 1"), b"GET / HTTP/1.1"):
        assert seen.read(refused) is None
        assert seen.cached(refused) is None
    assert len(seen) == 1


def test_kept_heads_are_bounded() -> None:
    """However many different heads come, a bounded number of bounded ones is kept."""
    seen = RequestHeadCache(10**6, lambda host: host == "x")
    for length in range(3 * request_head._CACHED_MAX):
        assert seen.read(head(length=length)) is not None
        assert len(seen) <= request_head._CACHED_MAX
    before = len(seen)
    long = head("X-A: " + "x" * request_head._CACHED_BYTES_MAX)
    assert seen.read(long) is not None
    assert seen.cached(long) is None
    assert len(seen) == before


async def test_a_head_seen_before_takes_another_body(connect: Connect, api: Api, space: FakeSpace) -> None:
    """Nothing of a message sticks to its head, wherever packets end and whoever sends it."""
    one, other = await connect(api), await connect(api)
    assert (await one.ask(publish(b"first")))[0] == 201
    assert (await other.ask(publish(b"again")))[0] == 201
    stream = publish(b"third")
    for cut in range(1, len(stream)):
        assert (await one.ask(stream[:cut], stream[cut:]))[0] == 201
    other.writer.write(publish(b"4th..") + publish(b"5th..") + publish(b"6")[:-1])
    assert [(await other.answer())[0] for _ in range(2)] == [201, 201]
    assert (await other.ask(b"7"))[0] == 201
    assert contents(space) == [b"first", b"again", *[b"third"] * (len(stream) - 1), b"4th..", b"5th..", b"7"]
    assert api.server.fast_path_connections == 2


async def test_a_known_head_opens_nothing(connect: Connect, space: FakeSpace, served: Serve) -> None:
    """The token is asked for each time: one that is revoked opens nothing, though its head was seen before; nor does
    one that was refused before stay refused once it is known."""
    known = publish(b"x", "Authorization: Bearer secret of a")
    async with served(space.channels, space, tokens=(token("a", "publish"), token("b", "publish"))) as api:
        space.settings[ORDERS] = QueueSettings()
        wire = await connect(api)
        for _ in range(2):
            assert (await wire.ask(publish(b"x")))[0] == 401
            assert (await wire.ask(known))[0] == 201
        api.server._fast_path.middleware._tokens = Tokens((token("b", "publish"),))
        assert (await wire.ask(known))[0] == 401
        assert (await wire.ask(publish(b"x", "Authorization: Bearer secret of b")))[0] == 201
        api.server._fast_path.middleware._tokens = Tokens((token("a", "read"),))
        assert (await wire.ask(known))[0] == 403
        assert len(contents(space)) == 3
        assert api.server.fast_path_connections == 1


@pytest.mark.parametrize(
    ("refusal", "status"),
    [(errors.Draining("stopping"), 503), (errors.Overloaded("full", retry_after_s=3), 429), (OSError(), 500)],
)
async def test_a_known_head_is_refused_as_any_other(
    connect: Connect, api: Api, space: FakeSpace, refusal: Exception, status: int
) -> None:
    """What a full or a closing channel says reaches the publisher, at once or by the receipt; then it is as before."""
    wire, long = await connect(api), await connect(api)
    assert (await wire.ask(publish(b"x")))[0] == 201
    for way in ("refuse", "refuse_later"):
        setattr(space, way, refusal)
        short_answer, long_answer = await wire.ask(publish(b"x")), await long.ask(publish(b"x", LONG_WAY))
        setattr(space, way, None)
        assert short_answer[0] == status
        for _, headers, _ in (short_answer, long_answer):
            headers.pop("Date")
        assert short_answer == long_answer
        assert (await wire.ask(publish(b"x")))[0] == 201


async def test_a_queue_that_is_gone_is_refused_though_the_head_is_known(
    connect: Connect, api: Api, space: FakeSpace
) -> None:
    """Whether there is a queue is asked of the Space each time."""
    wire = await connect(api)
    assert (await wire.ask(publish(b"x")))[0] == 201
    del space.settings[ORDERS]
    status, _, problem = await wire.ask(publish(b"x"))
    assert (status, problem["type"]) == (404, "urn:syncbrok:problem:unknown-queue")


# -- answers ----------------------------------------------------------------------------------------------------------

VARIABLE = (
    re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"),
    re.compile(rb"(?<=Date: )[^\r]*"),
    re.compile(rb'(?<="sequence":)[0-9]+'),
)


@pytest.mark.parametrize("sync", ["always", "interval:5"])
async def test_both_ways_answer_with_the_same_bytes(sync: str, served: Serve) -> None:
    """Status line, headers in their order, and body: not a byte tells which way it came."""
    space = FakeSpace(sync)
    async with served(space.channels, space) as api:
        space.settings[ORDERS] = QueueSettings()
        first = (await space.put(Publish.of(ORDERS, [Message(b"first")] * 10))).ids[:2]
        told = []
        for more in ((), (LONG_WAY,)):
            ending = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
            sent = publish(b"x", "Content-Type: text/plain", *more)
            keyed = publish(b"x", f"Idempotency-Key: {len(more)}", *more)
            parents = ", ".join(id_text(id_) for id_ in first)
            child = publish(b"x", f"Syncbrok-Parent: {parents}", *more)
            answer, mark, _ = (await raw(api, sent, sent, keyed, keyed, child, ending)).rpartition(b"HTTP/1.1 ")
            assert answer.count(mark) == 5
            assert (answer.count(b"HTTP/1.1 200 OK"), answer.count(parents[:36].encode())) == (1, 1)
            for pattern in VARIABLE:
                answer = pattern.sub(b"-", answer)
            told.append(answer)
        assert told[0] == told[1]
        assert told[0].startswith(b"HTTP/1.1 201 Created" if sync == "always" else b"HTTP/1.1 202 Accepted")


def test_each_answer_names_its_own_message() -> None:
    """Ids and sequences of one commit are told apart, in the order of the messages."""
    ids = [make_message_id(1_700_000_000_000, sequence, KEY) for sequence in range(98, 103)]
    receipt = Accepted(98, b"".join(ids), "always")
    states = ["pending", "complete", "waiting", "pending", "dead"]
    told = list(answers("201 Created", [Publish.one(QueueName("q"), Message(b""))] * 5, receipt, states, "now"))
    assert (len(told), status_of(receipt)) == (5, 201)
    for sequence, (one, id_, state) in enumerate(zip(told, ids, states, strict=True), 98):
        lines, body = one.decode().split("\r\n\r\n")
        text = id_text(id_)
        assert body == f'{{"id":"{text}","queue":"q","sequence":{sequence},"state":"{state}","parents":[]}}'
        assert f"Location: /v1/messages/{text}" in lines.split("\r\n")
        assert f"Content-Length: {len(body)}" in lines.split("\r\n")


def test_what_is_remembered_of_a_queue_is_its_name() -> None:
    """A broker with a thousand queues remembers a name of each for its answers, and not a page of memory."""
    receipt = Accepted(98, make_message_id(1_700_000_000_000, 98, KEY), "always")
    count = 200
    with held_by("*/shared_answers.py") as held_bytes:
        for number in range(count):
            answers(
                "201 Created", [Publish.one(QueueName(f"named{number}"), Message(b""))], receipt, ["pending"], "now"
            )
        assert held_bytes() < count * 512


async def test_one_answer_that_fails_takes_nobody_with_it(connect: Connect, api: Api, space: FakeSpace) -> None:
    """Answers of one commit are written in one pass; what goes wrong with one closes that connection only."""
    wires = [await connect(api) for _ in range(3)]
    for wire in wires:
        assert (await wire.ask(publish(b"x")))[0] == 201
    fast_path = api.server._fast_path
    unit = Publish.one(ORDERS, Message(b"y"))
    put_with: list[object] = []
    space.put_shared = lambda unit, publisher, listener: put_with.append(publisher)  # type: ignore[method-assign]
    for at, wire in enumerate(wires):
        wire.writer.write(publish(b"y"))
        await eventually(lambda many=at + 1: len(put_with) == many, "put")
    first, second, third = put_with

    class Broken(asyncio.Transport):
        def write(self, data: object) -> None:
            raise ValueError("a defect")

        def abort(self) -> None:
            transport.abort()

    transport, second._transport = second._transport, Broken()  # type: ignore[attr-defined]
    known = next(iter(space.reports.values()))
    fast_path.accepted([unit] * 3, [first, second, third], Accepted(known.sequence, known.id * 3, "always"))
    assert [(await wires[at].answer())[2]["sequence"] for at in (0, 2)] == [1, 3]
    assert await wires[1].reader.read() == b""
