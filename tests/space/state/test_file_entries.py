"""What a changed entry of ``queues.yml`` changes, and what it leaves to whoever operates the broker (RULES 18)."""

import base64
import json
from pathlib import Path

import pytest

from syncbrok.frontends.from_yaml import Applied, apply_queues, read_queues_file
from syncbrok.model.facts import FileApplied
from syncbrok.model.file_entry import key_hashes
from syncbrok.model.message import SubscriberSettings
from syncbrok.model.names import QueueName, SubscriberId
from syncbrok.space.channels import ChangeQueue, ChangeSubscriber, FromFile, RotateSecret, Unsubscribe
from tests.support.log.journals import everything
from tests.support.space.spaces import Running, forget_checkpoints, running_space

Q, A = QueueName("q"), SubscriberId("a")


def secret(number: int) -> str:
    return "whsec_" + base64.b64encode(bytes([number]) * 32).decode()


class File:
    """A ``queues.yml`` with the queue q and its subscriber a; their keys as the test says."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "queues.yml"
        self.queue: dict[str, object] = {}
        self.subscriber: dict[str, object] = {"name": "a", "endpoint": "http://127.0.0.1:9/"}

    async def apply(self, running: Running, **keys: object) -> Applied:
        """With these keys of the subscriber; None takes one out."""
        self.subscriber = {name: value for name, value in {**self.subscriber, **keys}.items() if value is not None}
        text = {"queues": {"q": {**self.queue, "subscribers": [self.subscriber]}}}
        self.path.write_text(json.dumps(text))  # which is YAML too
        return await apply_queues(read_queues_file(self.path, {}), running.space.channels, lambda: ())


@pytest.fixture
def file(tmp_path: Path) -> File:
    return File(tmp_path)


def settings(running: Running) -> SubscriberSettings:
    return running.view.subscriber("q", "a").settings


def signs_with(directory: Path) -> list[str]:
    """The secrets of the only subscriber, the newest first."""
    (kept,) = json.loads((directory / "secrets.json").read_text())["subscribers"].values()
    return list(kept["secrets"])


@pytest.mark.parametrize("start", ["live", "checkpoint", "log", "snapshot"])
async def test_only_the_changed_keys_of_an_entry_are_applied(tmp_path: Path, file: File, start: str) -> None:
    """RULES 18: what was changed over HTTP stays where the file says of it what it said before, also after a restart
    with a checkpoint, without one, and where a new segment's snapshot is all that is read; a key that the file says
    no more returns to its default."""
    log = tmp_path / "log"
    async with running_space(log) as running:
        file.queue = {"timeout": "5s"}
        await file.apply(running, timeout="5s", format="cloudevents")
        await running.put(ChangeSubscriber(Q, A, {"window": 7, "timeout_s": 8.0, "paused": True}))
        await running.put(ChangeQueue(Q, {"window": 9}))
        if start == "snapshot":
            await running.space._committer.keep_snapshot()
        if start == "live":
            await change_another_key(running, file)
    if start == "live":
        return
    if start != "checkpoint":
        forget_checkpoints(log)
    async with running_space(log) as running:
        await change_another_key(running, file)


async def change_another_key(running: Running, file: File) -> None:
    file.queue = {"timeout": "6s"}
    applied = await file.apply(running, headers={"x-tenant": "north"})
    assert applied.changed == ("q", "q/a")
    now = settings(running)
    assert (now.window, now.timeout_s, now.paused) == (7, 8.0, True)
    assert now.headers == (("x-tenant", "set"),)
    assert running.space.credentials(1, now.credentials) == {"headers:x-tenant": "north"}
    queue = running.view.queue("q").settings
    assert (queue.window, queue.timeout_s) == (9, 6.0)
    file.queue = {}
    await file.apply(running, timeout="9s", format=None)
    now = settings(running)
    assert (now.timeout_s, now.format.name, now.window) == (9.0, "RAW", 7)
    assert running.view.queue("q").settings.timeout_s == 15.0


async def test_paused_is_applied_when_the_file_says_it_anew(tmp_path: Path, file: File) -> None:
    """RULES 18: ``paused`` of the file neither resumes what an operator paused nor pauses what one has resumed, unless
    that very key changes; taken out, it is false."""
    async with running_space(tmp_path / "log") as running:
        await file.apply(running, paused=True)
        assert settings(running).paused
        await running.put(ChangeSubscriber(Q, A, {"paused": False}))
        await file.apply(running, window=3)
        assert not settings(running).paused
        await file.apply(running, paused=False)
        await running.put(ChangeSubscriber(Q, A, {"paused": True}))
        await file.apply(running, window=4)
        assert settings(running).paused
        await file.apply(running, paused=None)
        assert not settings(running).paused


async def test_a_secret_that_the_file_has_said_is_not_taken_back(tmp_path: Path, file: File) -> None:
    """RULES 18, 19: after a rotation the file still says the old secret; a change of another key leaves the new one. A
    secret that is new in the file is taken; one that the file says no more is kept, and deliveries stay signed."""
    log = tmp_path / "log"
    async with running_space(log) as running:
        await file.apply(running, secret=secret(1))
        await running.put(RotateSecret(Q, A, secret(2)))
        await file.apply(running, window=3)
        assert signs_with(log) == [secret(2), secret(1)]
        await file.apply(running, secret=secret(3))
        assert signs_with(log) == [secret(3)]
        await file.apply(running, secret=None)
        assert (signs_with(log), settings(running).secret_count) == ([secret(3)], 1)
    facts = [fact for fact in everything(log) if isinstance(fact, FileApplied)]
    assert facts
    assert not any(secret(number)[6:] in str(fact) for fact in facts for number in (1, 2, 3))


async def test_what_an_older_version_applied(tmp_path: Path, file: File) -> None:
    """RULES 18: a log of before has one hash an entry. One that has not changed is left alone and its keys are learned;
    one that has is applied whole, once, but for what is the operator's."""
    log = tmp_path / "log"
    async with running_space(log) as running:
        await file.apply(running, timeout="5s", secret=secret(1))
        old = {entry: fact._replace(keys=None) for entry, fact in running.space._state.registry._applied.items()}
        running.space._state.registry._applied.update(old)
        await running.put(ChangeSubscriber(Q, A, {"window": 7}))
        assert (await file.apply(running)).unchanged == ("q", "q/a")
        await file.apply(running, timeout="6s")
        assert (settings(running).window, settings(running).timeout_s) == (7, 6.0)
        running.space._state.registry._applied.update(old)
        await running.put(ChangeSubscriber(Q, A, {"paused": True}))
        await file.apply(running, timeout="7s")
        assert (settings(running).window, settings(running).timeout_s, settings(running).paused) == (None, 7.0, True)
        await running.put(ChangeSubscriber(Q, A, {"window": 8}))
        await file.apply(running, timeout="8s")
        assert settings(running).window == 8
        # Which secret the file said is not known either; one that is being rotated out is not taken back.
        await running.put(RotateSecret(Q, A, secret(2)))
        running.space._state.registry._applied.update(old)
        await file.apply(running, timeout="9s")
        assert signs_with(log) == [secret(2), secret(1)]
        await file.apply(running, secret=secret(3))
        assert signs_with(log) == [secret(3)]


async def test_one_that_is_made_anew_is_told_everything(tmp_path: Path, file: File) -> None:
    """RULES 18: what the file said of a subscriber that is deleted goes with it, but for that it was applied."""
    async with running_space(tmp_path / "log") as running:
        await file.apply(running, timeout="5s", secret=secret(1), paused=True)
        await running.put(Unsubscribe(Q, A))
        assert (await file.apply(running)).unchanged == ("q", "q/a")
        await running.subscribe("q", "a")
        await file.apply(running, window=3)
        now = settings(running)
        assert (now.endpoint, now.timeout_s, now.window, now.paused) == ("http://127.0.0.1:9/", 5.0, 3, True)
        assert signs_with(tmp_path / "log") == [secret(1)]


async def test_what_an_operator_applies_out_of_a_file(tmp_path: Path) -> None:
    """RULES 18: the same for secret and ``paused`` where an operator applies a file himself; where there is no secret
    the file's is taken. Also of one whose secret was rotated before any file was applied."""
    log = tmp_path / "log"
    async with running_space(log) as running:
        await running.queue("q")
        await running.subscribe("q", "a", secret=secret(1))
        await running.put(RotateSecret(Q, A, secret(2)))

        async def apply(number: int, *, paused: bool) -> None:
            said = FromFile("", {"secret": f"hash {number}", "paused": str(paused)})
            await running.put(ChangeSubscriber(Q, A, {"paused": paused}, secret(number), applied=said))

        await running.put(ChangeSubscriber(Q, A, {}, secret(1), applied=FromFile("", key_mark(1))))
        assert signs_with(log) == [secret(2), secret(1)]
        await apply(3, paused=True)
        assert (signs_with(log), settings(running).paused) == ([secret(3)], True)
        await running.put(ChangeSubscriber(Q, A, {"paused": False}, secret(4)))
        await apply(3, paused=True)
        assert (signs_with(log), settings(running).paused) == ([secret(4)], False)
        await running.put(ChangeSubscriber(Q, A, {}, without_secret=True))
        await apply(3, paused=True)
        assert signs_with(log) == [secret(3)]


def key_mark(number: int) -> dict[str, str]:
    return key_hashes({}, secret(number))
