"""A log over the network gives what its directory gives: the same rows, the same errors, and a clear word where it
cannot be had. No Spark."""

import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from syncbrok.frontends.listening import ListenerTls, server_context
from syncbrok.log.segments import retention
from syncbrok.log.segments.retention import Copy
from syncbrok.log.segments.segment import segment_path
from syncbrok.model.errors import BadSetting, Gone, LogCorrupt
from syncbrok.model.limits import KIB, MIB
from syncbrok.pipeline import schema
from syncbrok.pipeline.broker_log import BrokerLog, LogUnreachable, broker_log
from syncbrok.pipeline.decode import row_reader
from syncbrok.pipeline.decode.plan import plan
from syncbrok.pipeline.decode.query import Query
from syncbrok.pipeline.log_snapshot import LogSnapshot, Place, place_at, take_snapshot
from syncbrok.pipeline.source.options import stream_options
from syncbrok.pipeline.source.stream import SyncbrokStreamReader
from tests.support.certificates import Authority
from tests.support.log.journals import message, open_journal, publish, roll
from tests.support.log.segment_files import flip
from tests.support.pipeline.archive_log import WrittenLog
from tests.support.pipeline.served_log import NARROW, TOKEN, failing_way, served_log

_DAY_US = 86_400_000_000


@pytest.fixture
def written(tmp_path: Path) -> Iterator[WrittenLog]:
    """Three sealed segments with rows of all kinds, and an open one."""
    log = WrittenLog(tmp_path / "log")
    log.fill(3)
    log.publish(25)
    log.journal.sync()
    yield log
    log.close()


@pytest.fixture
def url(written: WrittenLog) -> Iterator[str]:
    with served_log(written.directory, written.journal) as url:
        yield url


def rows(log: LogSnapshot, kind: str, columns: str | None = None, *, verify: bool = True) -> list[dict[str, Any]]:
    query = Query(kind, schema.columns_of(kind, columns), verify=verify)
    planned = plan(log, query)
    return [
        row
        for one in planned.parts
        for batch in row_reader.read(one, log.uuid, query, planned.rule)
        for row in batch.to_pylist()
    ]


def drop_oldest(written: WrittenLog, *, unlinked: bool) -> None:
    oldest = written.journal.sections()[0].path
    retention.note(written.directory, [Copy(oldest.name, oldest.stat().st_size, retention.file_crc(oldest), "file:/a")])
    written.journal.trim_oldest()
    if unlinked:
        written.journal.sweep(written.now_us + 365 * _DAY_US)


@pytest.mark.parametrize("kind", schema.KINDS)
def test_every_row_is_that_of_the_directory(written: WrittenLog, url: str, kind: str) -> None:
    """With all columns, through sealed segments and the open one, with checksums and without, and where the sidecar
    answers alone; of a log whose beginning retention has dropped too."""
    for dropped in (False, True):
        if dropped:
            drop_oldest(written, unlinked=True)
        over_network, beside = take_snapshot(place_at(url, TOKEN)), take_snapshot(written.directory)
        for columns, verify in ((None, True), (None, False), ("sequence", True)):
            found = rows(over_network, kind, columns, verify=verify)
            # The watermark in the directory may be a second behind.
            found = [row for row in found if row["sequence"] <= beside.durable]
            assert found == rows(beside, kind, columns, verify=verify)
            assert len(found) > 60


def test_nothing_behind_what_is_durable_is_read(tmp_path: Path) -> None:
    """RULES 1: what was written and not fsynced yet is not there for readers; once it is, it is."""
    journal = open_journal(tmp_path / "log", sync="interval", interval_ms=10_000)
    try:
        publish(journal, 5)
        journal.sync()
        durable = journal.synced_sequence
        with served_log(tmp_path / "log", journal) as url:
            publish(journal, 5)
            log = take_snapshot(place_at(url, TOKEN))
            assert (log.durable, rows(log, "messages", "sequence")[-1]["sequence"]) == (durable, durable)
            journal.sync()
            log = take_snapshot(place_at(url, TOKEN))
            assert log.durable == durable + 5
            assert rows(log, "messages", "sequence")[-1]["sequence"] == durable + 5
    finally:
        journal.close()


def test_a_stream_follows_it_over_rolls(written: WrittenLog, url: str) -> None:
    """Each message comes once and in order while the broker writes and rolls."""
    reader = SyncbrokStreamReader(stream_options({"url": url, "token": TOKEN, "columns": "sequence"}))
    at, seen = reader.initialOffset(), []
    for turn in range(4):
        written.publish(20)
        if turn % 2:
            written.roll()
        end = reader.latestOffset(at, reader.getDefaultReadLimit())
        for part in reader.partitions(at, end):
            seen += [
                row["sequence"] for batch in reader.read(pickle.loads(pickle.dumps(part))) for row in batch.to_pylist()
            ]
        at = end
    assert seen == written.messages


def test_a_stream_is_told_what_it_has_missed(written: WrittenLog, url: str) -> None:
    """What retention dropped unread is an error, or passed over, as from a directory."""
    options = {"url": url, "token": TOKEN, "columns": "sequence"}
    reader = SyncbrokStreamReader(stream_options(options))
    at = reader.initialOffset()
    drop_oldest(written, unlinked=True)
    drop_oldest(written, unlinked=True)
    with pytest.raises(Gone, match=f"were dropped by retention.*{url}"):
        reader.latestOffset(at, reader.getDefaultReadLimit())
    bold = SyncbrokStreamReader(stream_options({**options, "failOnDataLoss": "false"}))
    assert bold.latestOffset(at, bold.getDefaultReadLimit())["next"] > at["next"]


def test_a_node_that_is_behind_is_waited_for(written: WrittenLog, url: str) -> None:
    """A stream that one node of a cluster has told how far the log is asks another: it gets all of it once that has it,
    and an error where it never does; never fewer rows."""
    behind = take_snapshot(place_at(url, TOKEN))
    written.publish(10)
    ahead = behind.durable + 20
    catching_up = threading.Timer(0.2, written.publish, (10,))
    catching_up.start()
    assert take_snapshot(place_at(url, TOKEN), through=ahead).durable == ahead
    catching_up.join()
    options = {"url": url, "token": TOKEN, "retryTimeout": "200ms", "columns": "sequence"}
    start = SyncbrokStreamReader(stream_options(options)).initialOffset()
    end = start | {"next": ahead + 2, "base": behind.segments[-1].base}
    with pytest.raises(BadSetting, match=f"goes on with sequence {ahead + 2}.*ends with {ahead}"):
        SyncbrokStreamReader(stream_options(options)).partitions(start, end)


def test_what_is_dropped_while_it_is_read(written: WrittenLog, url: str) -> None:
    """A segment stays readable until it is unlinked, as it does for those who read its file; then it is ``Gone``, which
    names the segment and what to do."""
    log = take_snapshot(place_at(url, TOKEN))
    whole = rows(log, "messages")
    for _ in range(2):
        drop_oldest(written, unlinked=False)
    assert rows(log, "messages") == whole
    drop_oldest(written, unlinked=True)
    with pytest.raises(Gone, match=r"127\.0\.0\.1:\d+/0{19}1\.log, sequences 1 to \d+: retention dropped"):
        rows(log, "messages")


def test_damage_is_found_as_in_a_file(written: WrittenLog, url: str) -> None:
    """A fact that a disk has changed is an error that names segment, offset and sequences, not a wrong row."""
    log = take_snapshot(place_at(url, TOKEN))
    one = log.segments[1]
    path = segment_path(written.directory, one.base)
    flip(path, 300)
    with pytest.raises(LogCorrupt) as beside:
        rows(take_snapshot(written.directory), "facts")
    with pytest.raises(LogCorrupt) as over_network:
        rows(log, "facts")
    assert over_network.value.detail.partition(path.name)[2] == beside.value.detail.partition(path.name)[2]


def test_a_segment_that_is_written_anew_meanwhile_is_read_again(written: WrittenLog, url: str) -> None:
    """RULES 32: the pieces of one segment are of one version of it; what was planned before the erasure is read as it
    stands after it, and no part of it twice."""
    log = take_snapshot(place_at(url, TOKEN))
    before = rows(log, "messages", "sequence,erased")
    erased = written.messages[3]
    written.journal.hide([erased])
    assert written.journal.erase([erased]) == 1
    for where in (log, take_snapshot(place_at(url, TOKEN))):
        found = rows(where, "messages", "sequence,erased")
        assert [row["sequence"] for row in found] == [row["sequence"] for row in before]
        assert [row["sequence"] for row in found if row["erased"]] == [erased]


def test_pieces_of_two_versions_never_meet(tmp_path: Path) -> None:
    """Erased between two pieces of a segment without a sidecar: the reader begins again, and no checksum calls it
    damage."""
    journal = open_journal(tmp_path / "log", segment_bytes=4 * MIB)
    sequences = range(journal.next_sequence, journal.next_sequence + 6)
    for number in sequences:
        journal.append(journal.prepare([message(journal.id_key, number, content=bytes([number]) * 200 * KIB)]))
    roll(journal)
    asked: list[str] = []

    def erase_in_between(method: str, path: str) -> str:
        if method == "GET" and path.endswith("/segments/1"):
            asked.append(path)
            if len(asked) == 3:  # the first was for the snapshot alone
                journal.hide([sequences[0], sequences[-1]])
                assert journal.erase([sequences[0], sequences[-1]]) == 1
        return "404" if path.endswith("/index") else "pass"

    try:
        with served_log(tmp_path / "log", journal) as url, failing_way(url, erase_in_between) as way:
            found = rows(take_snapshot(place_at(way, TOKEN)), "messages", "sequence,erased")
    finally:
        journal.close()
    assert [row["sequence"] for row in found] == [*sequences]
    assert [row["sequence"] for row in found if row["erased"]] == [sequences[0], sequences[-1]]
    assert len(asked) > 4


def test_what_fails_for_a_while_is_asked_again(written: WrittenLog, url: str) -> None:
    """Busy, gone for a moment, cut off in the middle: every second answer, and every row is there once."""
    count = 0

    def every_second(_method: str, _path: str) -> str:
        nonlocal count
        count += 1
        return ("busy", "pass", "cut", "pass", "503", "pass")[count % 6]

    with failing_way(url, every_second) as way:
        found = rows(take_snapshot(place_at(way, TOKEN)), "facts")
    assert found == rows(take_snapshot(place_at(url, TOKEN)), "facts")


@pytest.mark.parametrize("fault", ["503", "busy", "cut"])
def test_there_is_an_end_to_asking(url: str, fault: str) -> None:
    """After ``retryTimeout`` it is an error that names the broker and what it said; never fewer rows."""
    healthy = take_snapshot(place_at(url, TOKEN))
    with failing_way(url, lambda *_: fault) as way:
        place = broker_log(way, TOKEN, retry_timeout_s=0.3)
        there = healthy._replace(segments=tuple(one._replace(place=place) for one in healthy.segments))
        with pytest.raises(LogUnreachable, match="does not give the log"):
            rows(there, "messages")
        with pytest.raises(LogUnreachable, match=way):
            take_snapshot(place)


def test_who_may_not_read_is_told_what_to_give(url: str) -> None:
    """No token, an unknown one, one of some queues: what is missing, without the token that was given."""
    for token in (None, "another-secret", NARROW):
        with pytest.raises(BadSetting, match="gives one with the scope read in all queues") as refused:
            take_snapshot(place_at(url, token))
        assert token is None or token not in str(refused.value)
    with pytest.raises(BadSetting, match="knows no users and passwords") as shown:
        place_at("https://me:secret@broker:10000")
    assert "secret" not in str(shown.value)
    with pytest.raises(LogUnreachable, match=r"does not give the log: .*refused"):
        take_snapshot(broker_log("http://127.0.0.1:9", TOKEN, retry_timeout_s=0.1))


def test_no_text_shows_the_token(url: str) -> None:
    """Places, snapshots and partitions stand in logs, plans and errors."""
    place = place_at(url, TOKEN)
    reader = SyncbrokStreamReader(stream_options({"url": url, "token": TOKEN}))
    start = reader.initialOffset()
    parts = reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))
    log = take_snapshot(place)
    for shown in (place, log, parts, parts[0], reader._options, start):
        for text in (repr(shown), str(shown), f"{shown}"):
            assert TOKEN not in text
    assert isinstance(place, BrokerLog)
    assert pickle.loads(pickle.dumps(place)).token == TOKEN, "tasks elsewhere need it"


def test_a_certificate_is_believed_by_its_authority(written: WrittenLog, tmp_path: Path) -> None:
    """Https with the option ``ca``, a file or its text; without it the error says which option is missing."""
    authority = Authority(tmp_path)
    shown = authority.signs("broker")
    with served_log(written.directory, written.journal, ListenerTls(server_context(shown.cert, shown.key))) as url:
        assert url.startswith("https://")
        for ca in (str(authority.file), authority.file.read_text()):
            place: Place = place_at(url, TOKEN, ca)
            authority.file.unlink(missing_ok=True)  # workers do not see it
            assert len(rows(take_snapshot(pickle.loads(pickle.dumps(place))), "messages", "sequence")) == len(
                written.messages
            )
            authority.file.write_text(ca if ca.startswith("-----") else place.ca or "")
        with pytest.raises(LogUnreachable, match=r"certificate is not believed.*option ca"):
            take_snapshot(place_at(url, TOKEN))
    for wrong in (str(tmp_path / "none"), "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----"):
        with pytest.raises(BadSetting, match="ca: "):
            place_at("https://127.0.0.1:1", TOKEN, wrong)
