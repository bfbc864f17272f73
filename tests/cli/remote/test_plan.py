"""The plan of ``syncbrok apply``: what would make a broker match a file, and nothing else (RULES 18)."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from syncbrok.cli.main import group
from syncbrok.cli.remote.plan import PlanStep, Running, plan
from syncbrok.frontends.from_yaml import QueuesFile, read_queues_file
from syncbrok.model.message import QueueSettings, SubscriberSettings
from syncbrok.model.names import SubscriberId
from syncbrok.model.settings import render_queue, render_subscriber
from tests.support.broker.process import BrokerProcess

SECRET = "whsec_" + base64.b64encode(bytes(24)).decode()
OTHER_SECRET = "whsec_" + base64.b64encode(bytes([7]) * 24).decode()
FILE = """
queues:
  orders:
    timeout: 5s
    subscribers:
      - {name: billing, endpoint: https://billing.example/hooks, timeout: 90s, retry: [60, 2h]}
"""


def read(tmp_path: Path, text: str) -> QueuesFile:
    path = tmp_path / "queues.yml"
    path.write_text(text)
    return read_queues_file(path, {"SECRET": SECRET})


def running(file: QueuesFile, **changes: Any) -> dict[str, Running]:
    """A broker that matches ``file``, as it would answer, but for ``changes`` to every subscriber."""
    return {
        queue.name: Running(
            {"name": queue.name, **render_queue(queue.settings), "statistics": {}},
            [{"id": one.id, **render_subscriber(one.settings), **changes} for one in queue.subscribers],
        )
        for queue in file.queues
    }


def shown(steps: list[PlanStep]) -> list[tuple[str, str, Mapping[str, Any]]]:
    return [(step.what, step.entry, step.changes) for step in steps]


def test_nothing_differs_from_itself(tmp_path: Path) -> None:
    """What the file declared needs no step, with prune too; durations are compared, not their texts."""
    file = read(tmp_path, FILE)
    assert plan(file, running(file), prune=True) == []
    assert plan(file, running(file, timeout="1.5m", retry=["1m", "120m"]), prune=True) == []


def test_what_is_missing_is_created(tmp_path: Path) -> None:
    """A queue comes before its subscribers; only what the file names is sent."""
    queue, subscriber = plan(read(tmp_path, FILE), {}, prune=True)
    assert (queue.what, queue.method, queue.path) == ("create", "POST", ())
    assert queue.body == {"name": "orders", "timeout": "5s"}
    assert (subscriber.what, subscriber.entry) == ("create", "orders/billing")
    assert subscriber.body == {
        "name": "billing", "endpoint": "https://billing.example/hooks", "timeout": "90s", "retry": ["1m", "2h"],
    }  # fmt: skip


def test_what_differs_is_changed(tmp_path: Path) -> None:
    """Only settings that differ are sent; what the file no longer says goes back to its default."""
    before = running(read(tmp_path, FILE.replace("timeout: 5s", "window: 8")), endpoint="https://old.example/")
    steps = plan(read(tmp_path, FILE), before, prune=False)
    assert shown(steps) == [
        ("change", "orders", {"timeout": ("15s", "5s"), "window": (8, 64)}),
        ("change", "orders/billing", {"endpoint": ("https://old.example/", "https://billing.example/hooks")}),
    ]
    assert steps[0].body == {"timeout": "5s", "window": 64}
    assert (steps[1].method, steps[1].path) == ("PATCH", ("orders", "subscribers", "billing"))


def test_a_scope_that_the_file_does_not_name_stays(tmp_path: Path) -> None:
    """RULES 18: its default is the broker's (``defaults: {scope: same}``), which no plan knows: applied again, a file
    must not turn over who waits for whom. One that it names is made so."""
    file = read(tmp_path, FILE)
    there = running(file)
    there["orders"] = Running({**there["orders"].queue, "scope": "same"}, there["orders"].subscribers)
    assert plan(file, there, prune=False) == []
    (step,) = plan(read(tmp_path, FILE.replace("timeout: 5s", "timeout: 5s\n    scope: all")), there, prune=False)
    assert step.body == {"scope": "all"}


def test_paused_is_the_operators(tmp_path: Path) -> None:
    """Who paused a subscriber by hand is not overruled by a file that says nothing about it, and of one that does the
    plan claims nothing: only the broker knows whether it says so anew. It is told in any case."""
    file = read(tmp_path, FILE)
    assert plan(file, running(file, paused=True), prune=False) == []
    said = read(tmp_path, FILE.replace("{name", "{paused: false, name"))
    (step,) = plan(said, running(said, paused=True), prune=False)
    assert (step.what, step.changes, step.if_said_anew) == ("paused", {}, {"paused": (True, False)})
    assert step.body == {"paused": False, "from_file": True}
    (step,) = plan(said, running(said, paused=False), prune=False)
    assert (step.what, step.body, step.if_said_anew) == ("paused", {"paused": False, "from_file": True}, {})


def test_a_secret_is_sent_and_never_shown(tmp_path: Path) -> None:
    """Whether a secret is another one only the broker knows; the plan says that it is sent, and not what it is."""
    file = read(tmp_path, FILE.replace("{name", '{secret: "${SECRET}", name'))
    (step,) = plan(file, running(file, secret="set"), prune=False)
    assert (step.what, step.body, step.changes) == (
        "secret",
        {"secret": SECRET, "from_file": True},
        {},
    )
    (step,) = plan(file, running(file, secret=None), prune=False)
    assert (step.what, step.changes) == ("change", {"secret": (None, "set")})
    assert SECRET not in str([one.changes for one in plan(file, {}, prune=False)])


def test_only_prune_deletes(tmp_path: Path) -> None:
    """What is not in the file goes only when asked for, and consumers of the TCP frontends never."""
    file = read(tmp_path, FILE)
    there = running(file)
    other = {"id": "s-1", **render_subscriber(SubscriberSettings("http://other/"))}
    consumer = {"id": "c-1", **render_subscriber(SubscriberSettings("topics:consumer"))}
    there["orders"] = Running(there["orders"].queue, [*there["orders"].subscribers, other, consumer])
    there["old"] = Running({"name": "old", **render_queue(QueueSettings())}, [other])
    there["polled"] = Running({"name": "polled", **render_queue(QueueSettings())}, [consumer])
    assert plan(file, there, prune=False) == []
    steps = plan(file, there, prune=True)
    assert [(one.what, one.entry, one.path) for one in steps] == [
        ("delete", "orders/s-1", ("orders", "subscribers", "s-1")),
        ("delete", "old", ("old",)),
    ]


def test_a_group_goes_by_prune_only_where_it_was_declared(tmp_path: Path) -> None:
    """RULES 18: one that its first pull made is nobody's to prune."""
    file = read(tmp_path, FILE)
    there = running(file)
    group = {"id": "workers", **render_subscriber(SubscriberSettings("consumer:pull"))}
    there["orders"] = Running(there["orders"].queue, [*there["orders"].subscribers, group | {"declared": False}])
    assert plan(file, there, prune=True) == []
    there["orders"] = Running(there["orders"].queue, [*there["orders"].subscribers[:-1], group | {"declared": True}])
    assert [one.entry for one in plan(file, there, prune=True)] == ["orders/workers"]


def test_a_file_makes_a_group_count_that_its_first_pull_made(tmp_path: Path) -> None:
    """RULES 3: the plan says so, and what it sends makes one where there is none."""
    file = read(tmp_path, "queues: {orders: {subscribers: [{name: workers, pull: true}]}}")
    (_, create) = plan(file, {}, prune=False)
    assert create.body is not None
    assert {name: create.body.get(name) for name in ("name", "pull", "endpoint")} == {
        "name": "workers", "pull": True, "endpoint": None,
    }  # fmt: skip
    queue_there = {"name": "orders", **render_queue(QueueSettings())}
    made = SubscriberSettings("consumer:pull", name=SubscriberId("workers"), window=10_000, counts=False)
    there = {"orders": Running(queue_there, [{"id": "workers", **render_subscriber(made)}])}
    (change,) = plan(file, there, prune=False)
    assert (change.method, change.changes) == ("PATCH", {"counts": (False, True)})


@pytest.fixture
def applied(broker: BrokerProcess, tmp_path: Path) -> Any:
    """``syncbrok apply`` of a text, with this broker."""

    def called(text: str, *flags: str, code: int = 0) -> Result:
        path = tmp_path / "apply.yml"
        path.write_text(text)
        result = CliRunner().invoke(
            group, ["apply", str(path), *flags], env={"SYNCBROK_URL": broker.url, "SECRET": SECRET}
        )
        assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
        return result

    return called


def test_a_broker_is_made_to_match(applied: Any, broker: BrokerProcess) -> None:
    """The plan is printed, a dry run changes nothing, and a second run finds no differences; prune deletes."""
    text = FILE.replace("{name", '{secret: "${SECRET}", name')
    assert "2 to create, 0 to change, 0 to delete" in applied(text, "--dry-run").stdout
    assert broker.request("GET", "/v1/queues").json()["queues"] == []
    assert "+ orders/billing" in applied(text).stdout
    again = applied(text)
    assert "no differences" in again.stdout
    assert SECRET not in again.stdout
    changed = applied(text.replace("timeout: 5s", "timeout: 6s"), "--json")
    assert json.loads(changed.stdout)[0] == {
        "what": "change", "entry": "orders", "changes": {"timeout": ["5s", "6s"]}, "changed_by": "local",
    }  # fmt: skip
    assert broker.request("GET", "/v1/queues/orders").json()["timeout"] == "6s"
    assert "0 to delete" not in applied("queues: {}\n", "--prune").stdout
    assert broker.request("GET", "/v1/queues").json()["queues"] == []


def test_what_is_overwritten_is_shown_with_who_set_it(applied: Any, broker: BrokerProcess) -> None:
    """RULES 18: a dry run says of each setting what it is, what it becomes, whether the file or a default says so, and
    who changed it last; of a deletion, how much goes with it."""
    applied(FILE)
    broker.request("PATCH", "/v1/queues/orders", {"timeout": "7s", "window": 8})
    path = "/v1/queues/orders/subscribers/billing"
    broker.request("PATCH", path, {"paused": True, "endpoint": "https://other.example/"})
    assert applied(FILE, "--dry-run").stdout.splitlines() == [
        "~ orders  (changed last by local)",
        "    timeout: 7s -> 5s",
        "    window: 8 -> 64, the default: not in the file",
        "~ orders/billing  (changed last by local)",
        "    endpoint: https://other.example/ -> https://billing.example/hooks",
        "0 to create, 2 to change, 0 to delete",
    ]
    (changed, _) = json.loads(applied(FILE, "--dry-run", "--json").stdout)
    assert (changed["changed_by"], changed["unsaid"]) == ("local", ["window"])
    broker.request("POST", "/v1/queues/orders/messages", b"x")
    without = FILE.partition("    subscribers")[0]
    assert applied(without, "--prune", "--dry-run").stdout.splitlines()[-3:] == [
        "- orders/billing  (changed last by local)",
        "    1 message that waits for it is dropped",
        "0 to create, 1 to change, 1 to delete",
    ]
    told = applied("queues: {}", "--prune", "--dry-run").stdout
    assert "    1 subscriber goes with it\n    1 message waits in it: it stays until that has ended\n" in told
    assert broker.request("GET", path).json()["endpoint"] == "https://other.example/", "a dry run changes nothing"


def test_what_an_operator_has_changed_since_stays(applied: Any, broker: BrokerProcess) -> None:
    """RULES 18: an unchanged file takes back neither a rotated secret nor a pause; one that says them anew is taken.
    Other settings are made to match, as the plan says."""
    text = FILE.replace("{name", '{secret: "${SECRET}", paused: false, name')
    path = "/v1/queues/orders/subscribers/billing"

    def secrets() -> list[str]:
        (kept,) = json.loads((broker.storage / "secrets.json").read_text())["subscribers"].values()
        return list(kept["secrets"])

    applied(text)
    rotated = broker.request("POST", f"{path}/rotate-secret").json()["secret"]
    broker.request("PATCH", path, {"paused": True, "timeout": "7s"})
    again = applied(text)
    assert "orders/billing: stays paused, as it was set since the file was last applied" in again.stderr
    now = broker.request("GET", path).json()
    assert (now["paused"], now["timeout"], secrets()) == (True, "90s", [rotated, SECRET])
    applied(text.replace("paused: false, ", ""))
    applied(text.replace("${SECRET}", OTHER_SECRET).replace("paused: false, ", ""))
    assert secrets() == [OTHER_SECRET]
    broker.request("PATCH", path, {"paused": False})
    applied(text.replace("paused: false", "paused: true"))
    assert broker.request("GET", path).json()["paused"]


def test_what_the_file_says_is_told_where_nothing_differs(applied: Any, broker: BrokerProcess) -> None:
    """RULES 18: ``paused`` applies when the file says it anew. So the broker must be told what the file says even where
    an operator was there first; and a dry run announces nothing that it cannot know."""
    path = "/v1/queues/orders/subscribers/billing"
    text = FILE.replace("{name", "{paused: false, name")
    applied(text)
    broker.request("PATCH", path, {"paused": True})
    for arguments in (["--dry-run"], []):
        assert "    paused: true -> false, unless the file has said so before" in applied(text, *arguments).stdout
    assert broker.request("GET", path).json()["paused"], "an operator has paused it since"
    assert "no differences" in applied(text.replace("paused: false", "paused: true")).stdout
    applied(text)
    assert not broker.request("GET", path).json()["paused"], "the file said something else in between"


def test_a_bad_file_asks_the_broker_nothing(applied: Any) -> None:
    """A mistake is named with its line, the exit code is that of usage, and nothing was changed."""
    assert (
        "apply.yml:3: queues.orders.timout: unknown key"
        in applied("queues:\n  orders:\n    timout: 5s\n", code=2).stderr
    )


def test_what_is_refused_does_not_stop_the_rest(applied: Any, broker: BrokerProcess) -> None:
    """A queue in which something waits is not deleted; the others are, and the exit code says that not all was done."""
    applied("queues:\n  a: {}\n  b: {}\n")
    broker.request("POST", "/v1/queues/a/subscribers", {"endpoint": "http://127.0.0.1:9/", "paused": True})
    broker.request("POST", "/v1/queues/a/messages", b"x")
    refused = applied("queues: {}\n", "--prune", code=4)
    assert "a: 1 message waits" in refused.stderr
    assert "not all of it could be done" in refused.stderr
    assert [one["name"] for one in broker.request("GET", "/v1/queues").json()["queues"]] == ["a"]


def test_credentials_of_a_file_are_the_brokers_to_compare(applied: Any, broker: BrokerProcess) -> None:
    """RULES 18 and 19: the same file again makes no difference, though the broker has made a key pair and shows no
    secret; another secret is set, and is on no screen."""
    signed = 'signatures: [{scheme: v1a}, {scheme: hmac, header: x-s, secret: "${SECRET}"}]'
    text = FILE.replace("{name", f"{{{signed}, name")
    path = "/v1/queues/orders/subscribers/billing"

    def kept() -> str:
        (entry,) = json.loads((broker.storage / "secrets.json").read_text())["subscribers"].values()
        newest = max(entry["credentials"], key=int)  # those before it go when the file is written again
        return str(entry["credentials"][newest]["signatures:x-s"])

    assert "+ orders/billing" in applied(text).stdout
    public = broker.request("GET", path).json()["signatures"][0]["public_key"]
    again = applied(text)
    assert "no differences" in again.stdout
    assert kept() == SECRET
    other = applied(text.replace("${SECRET}", OTHER_SECRET))
    assert kept() == OTHER_SECRET
    assert not {SECRET, OTHER_SECRET} & set((again.stdout + again.stderr + other.stdout + other.stderr).split())
    assert broker.request("GET", path).json()["signatures"][0]["public_key"] == public


def test_the_query_of_an_endpoint_is_sent_and_never_shown(tmp_path: Path) -> None:
    """RULES 19: whether it is another one only the broker knows, so it is sent in full; the plan shows it hidden, and
    so it compares one that an older broker shows in full."""
    file = read(tmp_path, FILE.replace("https://billing.example/hooks", '"https://billing.example/hooks?token=s3cret"'))
    full, shown_ = "https://billing.example/hooks?token=s3cret", "https://billing.example/hooks?token=***"
    for there in (running(file), running(file, endpoint=full)):
        (step,) = plan(file, there, prune=False)
        assert (step.what, step.body, step.changes) == ("secret", {"endpoint": full}, {})
    (_, create) = plan(file, {}, prune=False)
    assert create.body is not None
    assert (create.body["endpoint"], create.changes["endpoint"]) == (full, (None, shown_))
    (change,) = plan(file, running(file, endpoint="https://old.example/?k=v"), prune=False)
    assert change.body == {"endpoint": full}
    assert change.changes == {"endpoint": ("https://old.example/?k=***", shown_)}


def log_bytes(broker: BrokerProcess) -> bytes:
    return b"".join(one.read_bytes() for one in sorted(broker.storage.rglob("*")) if one.is_file())


def test_another_query_in_the_file_is_set(applied: Any, broker: BrokerProcess) -> None:
    """RULES 18 and 19: the same file makes no difference, another value of a parameter is set, and is on no screen."""
    text = FILE.replace("https://billing.example/hooks", '"https://billing.example/hooks?token=s3cret"')
    said = [applied(text), applied(text)]
    assert "no differences" in said[1].stdout
    before = log_bytes(broker).count(b'"endpoint"')
    said.append(applied(text))
    assert log_bytes(broker).count(b'"endpoint"') == before, "the same again is no fact"
    said.append(applied(text.replace("s3cret", "an0ther")))
    assert log_bytes(broker).count(b'"endpoint"') == before + 1
    assert not any("s3cret" in one.output or "an0ther" in one.output for one in said)
    assert b"an0ther" in log_bytes(broker)
