"""Logs that older versions wrote open for ever, and say what they said (INTERFACES, docs/log-format.md)."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from syncbrok.log.format.codec import Kind
from syncbrok.log.format.records import SegmentOpened
from syncbrok.log.offline.order import check
from syncbrok.log.offline.verify import Finding, verify
from syncbrok.model.facts import RULES
from tests.support.broker.process import BrokerProcess
from tests.support.log import golden
from tests.support.log.segment_files import facts_in

LOGS = sorted(path.name for path in golden.GOLDEN.iterdir())
OLD, TODAY = LOGS[0], LOGS[-1]
CAME_WITH = {"Erased": "4", "JobChanged": "5", "Managed": "7"}
"""the log that was the first to have records of that kind"""


@pytest.mark.parametrize("name", LOGS)
def test_an_old_log_says_what_it_said(name: str) -> None:
    """The format grows and does not change: each field of each record is what its version read; what has come since has
    its default. No damage is found, and no breach of the rules of its time."""
    directory = golden.GOLDEN / name
    expected = [json.loads(line) for line in (directory / golden.FACTS).read_text().splitlines()]
    now = golden.said(directory)
    assert len(now) == len(expected)
    for was, is_now in zip(expected, now, strict=True):
        assert _is_in(was, is_now), (was, is_now)
    assert [met for met in verify(directory) if isinstance(met, Finding)] == []


def _is_in(was: Any, now: Any) -> bool:
    """Whether all that was said is said now."""
    if isinstance(was, dict):
        return isinstance(now, dict) and all(name in now and _is_in(one, now[name]) for name, one in was.items())
    if isinstance(was, list):
        return isinstance(now, list) and len(was) == len(now) and all(map(_is_in, was, now))
    return bool(was == now)


@pytest.mark.parametrize("name", LOGS)
def test_a_broker_starts_on_an_old_log(name: str, tmp_path: Path) -> None:
    """DESIGN 1, durable: what waited in it waits, with its key; and what is published now comes behind it."""
    storage = tmp_path / "storage"
    shutil.copytree(golden.GOLDEN / name, storage)
    with BrokerProcess(storage, config="storage: {retention: 30000d}\n") as broker:
        queues = {one["name"] for one in broker.request("GET", "/v1/queues").json()["queues"]}
        assert queues == {"orders", "elsewhere"}
        (waiting,) = broker.request("GET", "/v1/messages?key=k&limit=1").json()["messages"]
        told = broker.request("GET", f"/v1/messages/{waiting['id']}/content")
        assert told.body == b"behind the third"
        behind = broker.request("POST", "/v1/queues/orders/messages", b"new", {"Syncbrok-Key": "k"})
        assert behind.status == 201
        assert broker.request("GET", f"/v1/messages/{behind.json()['id']}").json()["blocked_by"] == [waiting["id"]]
        assert broker.terminate() == 0


def test_the_golden_logs_have_every_kind_of_record() -> None:
    """A kind, or a field, that is not in the newest of them would be kept by nobody."""
    for name in LOGS:
        kinds = {type(fact).__name__ for fact in facts_in(golden.GOLDEN / name)}
        missing = {kind for kind, since in CAME_WITH.items() if name < since}
        assert len(kinds | missing) == len(Kind), f"log {name} has {sorted(kinds)}"
        assert not kinds & missing
    written = golden.told()
    assert [golden.plain(fact) for fact in written.facts if not hasattr(fact, "crc")] == [
        golden.plain(fact) for fact in facts_in(golden.GOLDEN / TODAY) if not hasattr(fact, "crc")
    ], "a record has got a field: write a golden log of today, beside the others"


def test_what_was_before_the_rule_of_keys_is_judged_by_the_old_one() -> None:
    """RULES 6: in the oldest log a message overtook the first of its key, as its broker was meant to do."""
    facts = facts_in(golden.GOLDEN / OLD)
    assert check(facts) == []
    as_now = [fact._replace(rules=RULES) if isinstance(fact, SegmentOpened) else fact for fact in facts]
    assert [one.rule for one in check(as_now)] == ["key"]
