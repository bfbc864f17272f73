"""The log as files over HTTP (INTERFACES 3, `/v1/log/segments`), of a broker that goes on writing it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from syncbrok.cli.serve.log_files import LogFiles
from syncbrok.frontends.over_http.resources import log_segments
from syncbrok.log.index import sidecar
from syncbrok.log.journal import FileJournal
from syncbrok.log.segments.segment import segment_path
from syncbrok.model import limits
from syncbrok.model.errors import Overloaded
from syncbrok.model.limits import KIB
from tests.frontends.over_http.requests.test_reach import of, token
from tests.support.http.api import Api, Serve
from tests.support.polling import eventually
from tests.support.space.spaces import journal_of, running_space

PATH = "/v1/log/segments"
TOKENS = (token("reader", {"read": ["*"]}), token("some", {"read": ["shop.*"]}), token("filler", {"publish": ["*"]}),
          token("all", ["admin"]))  # fmt: skip
READER = of("reader")
_DAY_US = 86_400_000_000


class Written(NamedTuple):
    api: Api
    journal: FileJournal
    directory: Path
    now_us: list[int]

    async def listed(self) -> Any:
        reply = await self.api.get(PATH, READER)
        assert reply.status == 200, reply
        return reply.json()

    async def publish(self, count: int) -> None:
        for _ in range(count):
            assert (await self.api.publish("q", bytes(8 * KIB), of("filler"))).status == 201


@pytest.fixture
async def log(tmp_path: Path, served: Serve) -> AsyncIterator[Written]:
    """A broker of small segments, with three of them sealed."""
    now_us = [1_800_000_000_000_000]
    async with running_space(tmp_path, clock_us=lambda: now_us[0], segment_bytes=64 * KIB, retention_s=1.0) as running:
        journal = journal_of(running)
        routes = log_segments.routes(LogFiles(tmp_path, lambda: journal))
        async with served(running.space.channels, running.view, *routes, tokens=TOKENS) as api:
            assert (await api.post("/v1/queues", {"name": "q"}, of("all"))).status == 201
            written = Written(api, journal, tmp_path, now_us)
            await written.publish(28)
            await eventually(lambda: len(list(tmp_path.glob("*.idx"))) >= 3, "sealed ones have their sidecars")
            yield written


async def test_the_list_ends_with_what_is_durable(log: Written) -> None:
    """INTERFACES 3: every segment, the open one too, without a gap, up to the watermark and not behind it."""
    told = await log.listed()
    segments = told["segments"]
    assert [one["sealed"] for one in segments] == [True] * (len(segments) - 1) + [False]
    assert [one["first"] for one in segments[1:]] == [one["last"] + 1 for one in segments[:-1]]
    live = segments[-1]
    assert (told["log"], told["durable"]) == (log.journal.uuid.hex(), live["last"])
    assert live["last"] == log.journal.synced_sequence
    assert (live["checksum"], live["records"], live["last_at"]) == (None, None, None)
    assert all(len(one["checksum"]) == 8 and one["records"] == one["last"] - one["first"] + 1 for one in segments[:-1])
    assert told["erased_before"] is None, "of a single broker nobody asks"


async def test_the_open_segment_goes_out_up_to_there(log: Written) -> None:
    """What stands behind the durable end of the file, zeros or records, is sent to nobody, and has no ETag."""
    live = (await log.listed())["segments"][-1]
    path = segment_path(log.directory, live["first"])
    assert path.stat().st_size > live["bytes"], "the file has room for more"
    reply = await log.api.get(f"{PATH}/{live['first']}", READER)
    assert (reply.status, reply.body) == (200, path.read_bytes()[: live["bytes"]])
    assert "ETag" not in reply.headers
    behind = await log.api.get(f"{PATH}/{live['first']}", {**READER, "Range": f"bytes={live['bytes']}-"})
    assert behind.status == 416
    await log.publish(1)
    grown = await log.api.get(f"{PATH}/{live['first']}", {**READER, "Range": f"bytes={live['bytes']}-"})
    assert grown.status == 206
    assert len(grown.body) > 8 * KIB


async def test_a_sidecar_goes_out_beside_its_segment(log: Written) -> None:
    """Byte for byte; the open segment has none, and one that never was has none either."""
    segments = (await log.listed())["segments"]
    first = segments[0]["first"]
    index = await log.api.get(f"{PATH}/{first}/index", READER)
    assert (index.status, index.body) == (200, sidecar.path_of(log.directory, first).read_bytes())
    begins = await log.api.get(f"{PATH}/{first}/index", {**READER, "Range": "bytes=0-3"})
    assert (begins.status, begins.body) == (206, b"SYIX")
    for other in (segments[-1]["first"], first + 1):
        (await log.api.get(f"{PATH}/{other}/index", READER)).problem(404, "unknown-segment")


async def test_who_reads_one_version_is_not_given_another(log: Written) -> None:
    """`If-Match` with another ETag: 412, and no byte of it."""
    one = (await log.listed())["segments"][0]
    same = {**READER, "Range": "bytes=0-9", "If-Match": f'"{one["checksum"]}"'}
    assert (await log.api.get(f"{PATH}/{one['first']}", same)).status == 206
    assert (await log.api.get(f"{PATH}/{one['first']}", {**same, "If-Match": '"00000000"'})).status == 412


async def test_what_retention_has_dropped_is_gone(log: Written) -> None:
    """The bytes stay for those who are at them until they are unlinked; then 410, and what never was is 404."""
    first = (await log.listed())["segments"][0]["first"]
    data = segment_path(log.directory, first).read_bytes()
    await asyncio.to_thread(log.journal.trim_oldest)
    assert (await log.listed())["segments"][0]["first"] > first
    reply = await log.api.get(f"{PATH}/{first}", READER)
    assert (reply.status, reply.body) == (200, data)
    log.now_us[0] += _DAY_US
    await asyncio.to_thread(log.journal.sweep, log.now_us[0])
    for path in (f"{PATH}/{first}", f"{PATH}/{first}/index"):
        (await log.api.get(path, READER)).problem(410, "gone")
    (await log.api.get(f"{PATH}/{10**9}", READER)).problem(404, "unknown-segment")


async def test_it_is_for_those_who_may_read_everything(log: Written) -> None:
    """INTERFACES 1: the scope `read` without queues, or `admin`; 403 for a token of some queues, 401 without one."""
    for path in (PATH, f"{PATH}/1", f"{PATH}/1/index"):
        for name in ("reader", "all"):
            assert (await log.api.get(path, of(name))).status == 200
        for name in ("some", "filler"):
            (await log.api.get(path, of(name))).problem(403, "forbidden")
        (await log.api.get(path)).problem(401, "unauthorized")


async def test_a_crowd_is_told_to_come_again(log: Written) -> None:
    """So many pieces go out at a time; who comes beside them is answered 429 with `Retry-After`."""
    sending = log_segments._Sending(limits.segments_read_max)
    with ExitStack() as under_way:
        for _ in range(limits.segments_read_max):
            under_way.enter_context(sending.one_more())
        with pytest.raises(Overloaded):
            under_way.enter_context(sending.one_more())
    with sending.one_more():
        pass
