"""A whole broker whose disk fails or is full (DESIGN 1 and 4, RULES 27): see ``tests.support.disk.bad_disk`` for the
judge.

``make soak`` tries every call; here are the first ones, and those that once ended the broker.
"""

import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.soak.disk import Kind, in_turn
from tests.support.disk import several_publishers, small_disk
from tests.support.disk.bad_disk import Answered, Broker, Fault, complete, ordeal, prepare, serving
from tests.support.http.recorder import Recorder
from tests.support.polling import eventually_blocking

FAULTS = (
    Fault("openat", "EIO", "1"),  # the lock: was told as "cannot listen on port"
    Fault("flock", "EIO", "1"),  # the same, and the error did not say which file
    Fault("fallocate", "EIO", "1"),  # the reserve: the error did not say which file
    Fault("pwrite64", "ENOSPC", "2"),  # writing again what no watermark vouches for
    Fault("pwrite64", "ENOSPC", "3"),  # the watermark at the start: ended the broker
    Fault("pwrite64", "EIO", "7"),
    Fault("fdatasync", "ENOSPC", "2"),  # the segment to come: ended the broker
    Fault("rename", "ENOSPC", "1+"),  # of a segment that is dropped: ended the broker
    Fault("fsync", "EIO", "2"),
    Fault("unlink", "ENOSPC", "1+"),
    Fault("pread64", "EIO", "3"),
    Fault("ftruncate", "ENOSPC", "2"),  # giving back what a sealed segment did not use: ended the broker
)


def test_a_soak_that_is_cut_short_says_what_it_left_out() -> None:
    """CONTRIBUTING: the soak of the disk tries the k-th call of each kind before the next of any, until none makes so
    many; where its time is over it says at which call number, and how many kinds had not come to it."""
    calls_made = {("openat", "EIO", ""): 2, ("write", "EIO", ""): 1, ("rename", "EIO", ""): 3}
    for time_for, expected in ((99, ""), (1, "number 1: 2 of 3 kinds"), (4, "number 2: 2 of 3 kinds")):
        tried: list[tuple[str, int]] = []

        def one(
            kind: Kind, k: int, tried: list[tuple[str, int]] = tried, time_for: int = time_for
        ) -> tuple[bool, list[str]] | None:
            if len(tried) == time_for:
                return None
            tried.append((kind[0], k))
            return calls_made[kind] >= k, ["broken"] if kind[0] == "write" else []

        kept, left_out = in_turn(list(calls_made), one, map)
        assert [k for _, k in tried] == sorted(k for _, k in tried)
        assert len(kept) == len(tried)
        assert kept.count(False) == sum(call == "write" for call, _ in tried)
        assert (expected in left_out) if expected else not left_out, left_out
    assert len(tried) == 4


def test_a_disk_that_fails_at_one_call(tmp_path: Path) -> None:
    """DESIGN 1, INTERFACES 1: an error of the disk at any call, starts included, costs no acknowledged message, makes
    nothing that was refused come back, hangs nobody, and ends the process with a code of the table or not at all."""
    if shutil.which("strace") is None:
        pytest.skip("needs strace")
    with Recorder() as subscriber:
        before = prepare(tmp_path / "prepared", subscriber)

        def one(number: int) -> list[str]:
            return ordeal(tmp_path / "prepared", before, tmp_path / f"log-{number}", FAULTS[number], subscriber)

        with ThreadPoolExecutor(4) as side_by_side:
            wrong = [line for lines in side_by_side.map(one, range(len(FAULTS))) for line in lines]
    assert not wrong, "\n".join(wrong)


# -- a full disk -------------------------------------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 4 MiB."""
    with small_disk.mounted(tmp_path / "disk") as directory:
        if directory is None:
            pytest.skip("a small file system can be mounted by root only")
        yield directory


def until_full(broker: Broker) -> list[Answered]:
    published: list[Answered] = []
    while not published or published[-1].status == 201:
        published.append(broker.publish(f"key-{len(published)}"))
        assert len(published) < 2_000
    return published


def test_a_whole_broker_on_a_small_disk(disk: Path) -> None:
    """RULES 27: 507 when the disk is full, nothing of it kept; an operator can delete a queue and let a subscriber go
    on; killed there it starts on the full disk; and with room all goes on by itself."""
    storage = disk / "log"
    config = "storage: {segment: 64KiB, reserve: 128KiB}\n"
    (disk / "filler").write_bytes(bytes(1_500_000))
    with Recorder() as subscriber:
        with serving(storage, config=config, beside=disk.parent) as broker:
            assert broker.ready(), broker.said()
            for queue in ("q", "unused"):
                assert broker.request("POST", "/v1/queues", {"name": queue})[0] == 201
            made = {"name": "s", "endpoint": subscriber.url, "paused": True}
            assert broker.request("POST", "/v1/queues/q/subscribers", made)[0] == 201
            published = until_full(broker)
            small_disk.fill(disk / "filler")
            assert published[-1].status == 507
            assert len(published) > 20
            assert broker.request("GET", "/healthz")[0] == 200
            assert broker.request("DELETE", "/v1/queues/unused")[0] in (200, 204)
            assert broker.request("POST", "/v1/queues", {"name": "new"})[0] == 507
            assert broker.request("POST", "/v1/queues", {"name": "q"})[0] == 200, "it is there alike"
            broker.end(signal.SIGKILL)
        small_disk.fill(disk / "filler")
        with serving(storage, config=config, beside=disk.parent) as broker:
            assert broker.ready(), broker.said()
            assert broker.publish("refused").status == 507
            assert broker.request("PATCH", "/v1/queues/q/subscribers/s", {"paused": False})[0] == 200
            eventually_blocking(lambda: len(subscriber.requests) >= 20, "deliveries go on from the reserve", 20)
            (disk / "filler").unlink()
            eventually_blocking(lambda: broker.publish("room").status in (200, 201), "there is room again", 20)
            wrong = list(complete(broker, [*published[:-1], Answered("refused", 507, "")], subscriber))
            assert not wrong, wrong
            assert broker.end() == 0


def test_a_disk_that_fills_again_and_again_under_several_publishers(tmp_path: Path) -> None:
    """RULES 1, 27: four publishers, two webhooks at each of two queues, retention that drops segments, and a disk that
    somebody fills and empties four times, with a kill -9 in between. What was answered 201 goes to both subscribers of
    its queue, what was answered 507 to nobody, no other answer is given, and each time the broker goes on by itself."""
    done, wrong = several_publishers.ordeal(tmp_path, 2)
    if done.startswith("no small disk"):
        pytest.skip(done)
    assert not wrong, "\n".join([done, *wrong])
