"""``queues.yml``: what it declares, how its mistakes are named, and when an entry is applied again (RULES 18)."""

import base64
import json
import logging
from pathlib import Path

import pytest

from syncbrok.frontends.from_yaml import Applied, QueuesFile, apply_queues, read_queues_file, reload_queues
from syncbrok.model.errors import BadConfig, Conflict, Draining, Overloaded
from syncbrok.model.message import Format, ParentFailure, RetryPolicy, Scope
from syncbrok.model.names import QueueName
from syncbrok.space.channels import DeclareQueue, Subscribe
from tests.support.space.fake_space import FakeSpace

SECRET = "whsec_" + base64.b64encode(bytes(range(24))).decode()
OTHER_SECRET = "whsec_" + base64.b64encode(bytes(range(1, 25))).decode()

FULL = """
queues:
  orders:
    scope: same
    parent_failure: hold
    timeout: 5s
    subscribers:
      - endpoint: http://127.0.0.1:20000/
      - name: billing
        endpoint: https://billing.example/hooks
        secret: ${BILLING_SECRET}        # from the environment
        timeout: 15s
        retry: [5s, 5m, 30m]
        start: beginning
        headers: {X-Tenant: north}
  empty:
"""


def read(tmp_path: Path, text: str, variables: dict[str, str] | None = None) -> QueuesFile:
    file = tmp_path / "queues.yml"
    file.write_text(text)
    return read_queues_file(file, {"BILLING_SECRET": SECRET} if variables is None else variables)


async def apply(space: FakeSpace, file: QueuesFile) -> Applied:
    return await apply_queues(file, space.channels, space.exists)


def test_the_file_says_what_it_declares(tmp_path: Path) -> None:
    """Settings, endpoints, secrets from the environment: the file of INTERFACES section 1."""
    orders, empty = read(tmp_path, FULL).queues
    assert (orders.name, orders.settings.scope, orders.settings.parent_failure) == (
        "orders",
        Scope.SAME,
        ParentFailure.HOLD,
    )
    assert orders.settings.timeout_s == 5.0
    first, billing = orders.subscribers
    assert (first.settings.endpoint, first.settings.format, first.secret, first.start) == (
        "http://127.0.0.1:20000/",
        Format.RAW,
        None,
        "now",
    )
    assert (billing.id, billing.secret, billing.start) == ("billing", SECRET, "beginning")
    assert billing.settings.retry == RetryPolicy((5.0, 300.0, 1_800.0))
    assert billing.settings.headers == (("x-tenant", "set"),)
    assert billing.credentials == {"headers:x-tenant": "north"}
    assert (empty.name, empty.subscribers) == ("empty", ())


@pytest.mark.parametrize("text", ["", "queues:\n", "# nothing yet\n", "queues: {}\n"])
def test_an_empty_file_declares_nothing(tmp_path: Path, text: str) -> None:
    """A file without entries is no mistake."""
    assert read(tmp_path, text) == QueuesFile(())


@pytest.mark.parametrize("storage", ["Storage: data/", "Storage: {path: data/}", "Storage:\n  Path: data/"])
def test_the_original_file(tmp_path: Path, storage: str) -> None:
    """``Storage: path`` and ``Queues: NAME: urls: [...]``: its subscribers get the original's delivery."""
    file = read(tmp_path, f"{storage}\nQueues:\n  orders:\n    urls: [http://a/, http://b/]\n  alone:\n")
    assert file.storage == Path("data")
    orders, alone = file.queues
    assert [one.settings.endpoint for one in orders.subscribers] == ["http://a/", "http://b/"]
    assert {one.settings.format for one in orders.subscribers} == {Format.ORIGINAL}
    assert alone.subscribers == ()


MISTAKES = [
    ("queue: {}\n", 1, "queue: unknown key; did you mean 'queues'?"),
    ("queues: [orders]\n", 1, "queues: expected a mapping"),
    ("queues:\n  'a ': {}\n", 2, "queues.a : 'a ' is not a queue name: it begins or ends with a blank"),
    (
        "queues:\n  orders:\n    subscriber: []\n",
        3,
        "queues.orders.subscriber: unknown key; did you mean 'subscribers'?",
    ),
    ("queues:\n  orders:\n    scope: some\n", 3, "queues.orders.scope: expected all or same, found 'some'"),
    ("queues:\n  orders:\n    timeout: 0s\n", 3, "queues.orders.timeout: expected a duration from 1ms to 5m"),
    ("queues:\n  orders:\n    subscribers:\n      - http://a/\n", 4, "subscribers[0]: expected a mapping"),
    ("queues:\n  orders:\n    subscribers:\n      - name: a\n", 4, "subscribers[0]: expected an endpoint"),
    ("queues:\n  orders:\n    subscribers: http://a/\n", 3, "queues.orders.subscribers: expected a list"),
    (
        "queues:\n  orders:\n    subscribers:\n      - endpoint: http://a/\n        secret: x\n",
        5,
        "queues.orders.subscribers[0].secret: expected whsec_",
    ),
    (
        "queues:\n  orders:\n    subscribers:\n      - endpoint: http://a/\n        secret: ${NONE}\n",
        5,
        "queues.orders.subscribers[0].secret: the environment variable NONE is not set",
    ),
    (
        "queues:\n  orders:\n    subscribers:\n      - endpoint: ftp://a/\n",
        4,
        "queues.orders.subscribers[0].endpoint: expected an http or https URL",
    ),
    (
        "queues:\n  orders:\n    subscribers:\n      - endpoint: http://a/\n        start: then\n",
        5,
        "queues.orders.subscribers[0].start: expected now, beginning or a sequence",
    ),
    (
        "queues:\n  orders:\n    subscribers:\n      - endpoint: http://a/\n        start: 9999999999999\n",
        5,
        "queues.orders.subscribers[0].start: expected now, beginning or a sequence",
    ),
    (
        "queues:\n  orders:\n    subscribers:\n      - endpoint: http://a/\n      - endpoint: http://a/\n",
        5,
        "the same endpoint as",
    ),
    (
        "queues:\n  orders:\n    subscribers:\n      - {name: a, endpoint: http://a/}\n      - {name: a, endpoint: http://b/}\n",
        5,
        "the same name as",
    ),
    (
        "queues:\n  orders:\n    retry:\n      - 5s\n      - soon\n      - 1h\n",
        5,
        "queues.orders.retry[1]: expected a duration such as",
    ),
    ("queues:\n  orders:\n    retry:\n      5s: 1\n", 3, "queues.orders.retry: expected a list of at most"),
    ("queues:\n  orders:\n    window: 010\n", 3, "queues.orders.window: a number that begins with 0 is octal"),
    ("queues:\n  orders:\n    window: 1:30\n", 3, "queues.orders.window: numbers with a colon count in sixties"),
    ("queues:\n  orders:\n    window:\n      - 5\n", 3, "queues.orders.window: expected a whole number"),
    (
        "queues:\n  orders:\n    subscribers:\n      - endpoint: http://a/\n        retry: [5s,\n          -1]\n",
        6,
        "queues.orders.subscribers[0].retry[1]: expected a duration",
    ),
    (
        "queues:\n  q:\n    subscribers:\n    - endpoint: http://a/\n      headers:\n        x: b\n        host: x\n",
        7,
        "queues.q.subscribers[0].headers.host: header 'host' cannot be set",
    ),
    (
        "queues:\n  q:\n    subscribers:\n    - endpoint: http://a/\n      headers:\n        x: b\n        X: c\n",
        5,
        "queues.q.subscribers[0].headers: header 'x' is given twice",
    ),
    ("Queues:\n  orders:\n    subscribers: []\n", 3, "Queues.orders.subscribers: unknown key"),
    ("Queues: {}\nqueues: {}\n", 2, "queues: unknown key; did you mean 'Queues'?"),
    ("Queues:\n  orders:\n    urls: [nowhere]\n", 3, "Queues.orders.urls[0]: expected an http or https URL"),
    ("Storage: [a]\nQueues: {}\n", 1, "Storage: expected a path"),
]


@pytest.mark.parametrize(("text", "line", "said"), MISTAKES)
def test_a_mistake_is_named_with_file_line_and_key(tmp_path: Path, text: str, line: int, said: str) -> None:
    """A mistake in the file is named where it stands, with what was expected (INTERFACES 1)."""
    with pytest.raises(BadConfig) as raised:
        read(tmp_path, text)
    assert f"queues.yml:{line}: " in str(raised.value)
    assert said in str(raised.value)


def test_only_the_variable_of_the_item_is_named(tmp_path: Path) -> None:
    """Where one item of a list is wrong, the variables in the others have nothing to do with it."""
    text = "queues:\n  orders:\n    retry:\n      - ${GOOD}\n      - ${BAD}\n"
    with pytest.raises(BadConfig) as raised:
        read(tmp_path, text, {"GOOD": "5s", "BAD": "hunter2"})
    assert "queues.yml:5: queues.orders.retry[1]: expected a duration" in str(raised.value)
    assert "${BAD}" in str(raised.value)
    assert "${GOOD}" not in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_a_secret_is_never_repeated(tmp_path: Path) -> None:
    """RULES 19: neither a mistake nor a hash shows a secret, nor any value that came out of the environment."""
    text = "queues:\n  orders:\n    subscribers:\n      - endpoint: http://a/\n        {}: ${{V}}\n"
    for key in ("secret", "timeout", "endpoint", "name"):
        with pytest.raises(BadConfig) as raised:
            read(tmp_path, text.replace("endpoint: http://a/\n        {}", "endpoint").format() if key == "endpoint"
                 else text.format(key), {"V": "very secret"})  # fmt: skip
        assert "very secret" not in str(raised.value)
        assert "${V}" in str(raised.value) or key == "secret"
    billing = read(tmp_path, FULL).queues[0].subscribers[1]
    assert SECRET not in str(billing.said)
    assert SECRET not in json.dumps(billing.given)


async def test_entries_are_handed_over_with_their_hashes(tmp_path: Path) -> None:
    """Queues come before subscribers; each item has the hash of its own entry (RULES 18)."""
    space, file = FakeSpace(), read(tmp_path, FULL)
    applied = await apply(space, file)
    unnamed = file.queues[0].subscribers[0].id
    assert applied == Applied(("orders", "empty", f"orders/{unnamed}", "orders/billing"), (), (), ())
    assert [type(item) for item in space.put_items] == [DeclareQueue, DeclareQueue, Subscribe, Subscribe]
    assert len({item.applied.hash for item in space.put_items}) == 4
    assert space.put_items[3].secret == SECRET


async def test_an_entry_is_applied_again_only_when_it_changes(tmp_path: Path) -> None:
    """A hash changes with what the file says, not with how it says it (RULES 18)."""
    space = FakeSpace()
    await apply(space, read(tmp_path, FULL))
    same = FULL.replace("5m, 30m", "300, 0.5h").replace("timeout: 5s", "timeout: 5000ms  # as before")
    assert (await apply(space, read(tmp_path, same))).changed == ()
    slower = await apply(space, read(tmp_path, FULL.replace("timeout: 15s", "timeout: 16s")))
    assert slower.changed == ("orders/billing",)
    assert slower.created == ()
    assert len(slower.unchanged) == 3
    assert (await apply(space, read(tmp_path, FULL.replace("scope: same", "scope: all")))).changed == (
        "orders",
        "orders/billing",
    )


async def test_another_secret_is_a_change(tmp_path: Path) -> None:
    """A secret that is another in the environment changes the entry that names it, and no other."""
    space = FakeSpace()
    await apply(space, read(tmp_path, FULL))
    again = await apply(space, read(tmp_path, FULL, {"BILLING_SECRET": OTHER_SECRET}))
    assert again.changed == ("orders/billing",)


async def test_what_is_not_in_the_file_is_named_and_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What runs and is no longer in the file is named in the log, never removed."""
    space = FakeSpace()
    await apply(space, read(tmp_path, FULL))
    with caplog.at_level(logging.INFO, "syncbrok.yaml"):
        applied = await apply(space, read(tmp_path, "queues:\n  orders:\n    subscribers: [{endpoint: http://new/}]\n"))
    assert set(applied.undeclared) == {
        *(f"orders/{id_}" for id_ in [*space.declared[QueueName("orders")]][:2]),
        "empty",
    }
    assert all(isinstance(item, DeclareQueue | Subscribe) for item in space.put_items)
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.getMessage() == "syncbrok.yaml.undeclared"
    assert vars(warning)["yaml_undeclared"] == applied.undeclared


async def test_what_the_space_refuses_is_named_with_its_line(tmp_path: Path) -> None:
    """An entry that cannot be applied stops the start with the line of the entry."""
    space = FakeSpace()
    space.refuse_later = Conflict("it exists otherwise")
    with pytest.raises(BadConfig, match=r"queues\.yml:3: queues\.orders: it exists otherwise"):
        await apply(space, read(tmp_path, FULL))


async def test_a_queue_that_was_deleted_over_http_stays_deleted(tmp_path: Path) -> None:
    """Its entry has not changed, so it is not declared again; a subscriber of it is left out and named, and the start
    goes on (RULES 18)."""
    space = FakeSpace()
    await apply(space, read(tmp_path, FULL))
    del space.settings[QueueName("orders")]
    applied = await apply(space, read(tmp_path, FULL.replace("timeout: 15s", "timeout: 16s")))
    assert "orders" in applied.unchanged
    assert "orders/billing" in applied.left_out


async def test_a_bad_file_on_reload_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """SIGHUP with a mistake in the file: nothing is put, the mistake is logged, the broker goes on."""
    space, path = FakeSpace(), tmp_path / "queues.yml"
    path.write_text(FULL + "  orders: {}\n")
    assert not await reload_queues(path, {"BILLING_SECRET": SECRET}, space.channels, space.exists)
    assert space.put_items == []
    (record,) = caplog.records
    assert "queues.orders: the key stands here for the second time" in vars(record)["yaml_mistake"]
    path.write_text(FULL)
    assert await reload_queues(path, {"BILLING_SECRET": SECRET}, space.channels, space.exists)
    assert len(space.put_items) == 4


@pytest.mark.parametrize("closed", [Draining("stopping"), Overloaded("full")])
async def test_a_reload_while_the_broker_stops(tmp_path: Path, closed: Exception) -> None:
    """A closed or full channel is no reason to fall over."""
    space, path = FakeSpace(), tmp_path / "queues.yml"
    path.write_text(FULL)
    space.refuse = closed
    assert not await reload_queues(path, {"BILLING_SECRET": SECRET}, space.channels, space.exists)


async def test_thousands_of_entries(tmp_path: Path) -> None:
    """More entries than are handed over at once: each is applied."""
    text = "queues:\n" + "".join(f"  q{n}: {{subscribers: [{{endpoint: 'http://a/{n}'}}]}}\n" for n in range(1_100))
    space = FakeSpace()
    assert len((await apply(space, read(tmp_path, text))).created) == 2_200
