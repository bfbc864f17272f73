"""Queues and subscribers declared, changed, deleted; secrets; what a file applied (RULES 14 to 19)."""

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest

from syncbrok.model.errors import (
    BadConfig,
    BadName,
    BadSetting,
    Conflict,
    LogFull,
    SubscriberStopped,
    UnknownQueue,
    UnknownSubscriber,
)
from syncbrok.model.message import DisabledBy, Message, QueueSettings, RetryPolicy, SubscriberSettings
from syncbrok.model.names import QueueName, SubscriberId
from syncbrok.space.channels import (
    ChangeQueue,
    ChangeSubscriber,
    Declared,
    DeclareQueue,
    DeleteQueue,
    FromFile,
    Publish,
    RetrySubscriber,
    RotateSecret,
    Subscribe,
    Unsubscribe,
)
from tests.support.polling import eventually
from tests.support.space.spaces import (
    ACKNOWLEDGED,
    GONE,
    NEVER_AGAIN,
    REFUSED,
    Clock,
    Consumer,
    Running,
    journal_of,
    running_space,
)

Q = QueueName("q")
A = SubscriberId("a")
SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OTHER = "whsec_" + base64.b64encode(bytes(range(1, 33))).decode()


async def test_declaring_twice_alike_changes_nothing_and_otherwise_conflicts(tmp_path: Path):
    """A queue that exists alike is unchanged; one that differs is a conflict which names what differs."""
    async with running_space(tmp_path) as running:
        assert await running.put(DeclareQueue(Q, NEVER_AGAIN)) == Declared("created", "q")
        before = running.space.statistics().sequence
        assert await running.put(DeclareQueue(Q, NEVER_AGAIN)) == Declared("unchanged", "q")
        assert running.space.statistics().sequence == before
        with pytest.raises(Conflict) as caught:
            await running.put(DeclareQueue(Q, QueueSettings(window=3)))
        assert caught.value.members["differs"] == ["retry", "window"]
        with pytest.raises(BadName):
            await running.put(DeclareQueue(QueueName("a/b"), NEVER_AGAIN))


async def test_a_thousand_declarations_share_a_few_commits(tmp_path: Path):
    """Declarations of different queues are written together; a queue and its subscribers at once keep their order."""
    async with running_space(tmp_path) as running:
        channels = running.space.channels
        receipts = [channels.queues.put(DeclareQueue(QueueName(f"q{n}"), NEVER_AGAIN)) for n in range(300)]
        for n in range(300):
            settings = SubscriberSettings(f"test:{n}")
            receipts.append(channels.subscribers.put(Subscribe(QueueName(f"q{n}"), settings)))
        publish = channels.messages.put(Publish.of(QueueName("q299"), (Message(b"m"),)))
        assert {one.what for one in await asyncio.gather(*receipts)} == {"created"}
        await running.ended(*(await publish).ids)
        assert running.consumer.contents == [b"m"]
        assert running.space.statistics().committer.commits < 30


async def test_a_changed_setting_is_kept_and_an_unknown_one_refused(tmp_path: Path):
    """What a PATCH sets holds after a restart; a field that is not there, or not changeable, is a bad setting."""
    async with running_space(tmp_path) as running:
        await running.queue("q", subscribers=["a"])
        assert await running.put(ChangeQueue(Q, {"window": 7})) == Declared("changed", "q")
        assert await running.put(ChangeQueue(Q, {"window": 7})) == Declared("unchanged", "q")
        for changes in ({"secret_count": 1}, {"name": "b"}, {"nonsense": 1}):
            with pytest.raises(BadSetting):
                await running.put(ChangeSubscriber(Q, A, changes))
        await running.put(ChangeSubscriber(Q, A, {"timeout_s": 2.5, "endpoint": "test:elsewhere"}))
        with pytest.raises(BadSetting):
            await running.put(ChangeSubscriber(Q, A, {"endpoint": "gopher://x/"}))
        with pytest.raises(UnknownQueue):
            await running.put(ChangeQueue(QueueName("nowhere"), {"window": 7}))
        with pytest.raises(UnknownSubscriber):
            await running.put(ChangeSubscriber(Q, SubscriberId("b"), {}))
    async with running_space(tmp_path) as running:
        assert running.view.queue("q").settings == QueueSettings(retry=RetryPolicy((), 0.0), window=7)
        settings = running.view.subscriber("q", "a").settings
        assert (settings.timeout_s, settings.endpoint) == (2.5, "test:elsewhere")


async def test_identity_is_the_name_else_the_endpoint(tmp_path: Path):
    """RULES 18: subscribing again alike is unchanged, also to one paused since; with other settings a conflict."""
    async with running_space(tmp_path) as running:
        await running.queue("q")
        nameless = Subscribe(Q, SubscriberSettings("test:x"))
        created = await running.put(nameless)
        assert created.what == "created"
        await running.put(ChangeSubscriber(Q, SubscriberId(created.id), {"paused": True}))
        assert await running.put(nameless) == Declared("unchanged", created.id)
        assert running.view.subscriber("q", created.id).state == "paused"
        with pytest.raises(Conflict):
            await running.put(Subscribe(Q, SubscriberSettings("test:x", window=9)))
        assert (await running.subscribe("q", "named")).id == "named"
        with pytest.raises(BadSetting):
            await running.put(Subscribe(Q, SubscriberSettings("ftp://x/")))


async def test_a_file_is_applied_again_only_when_its_entry_has_changed(tmp_path: Path):
    """RULES 18: a restart with the same file does not revert a PATCH or a deletion; a changed entry is applied."""

    async def apply(running, hash_: str, window: int) -> list[str]:
        said = FromFile(hash_, {"window": str(window)})
        queue = await running.put(DeclareQueue(Q, QueueSettings(window=window), applied=said))
        subscriber = await running.subscribe("q", "a", window=window, applied=said)
        return [queue.what, subscriber.what]

    async with running_space(tmp_path) as running:
        assert await apply(running, "1", 5) == ["created", "created"]
        await running.put(ChangeQueue(Q, {"window": 50}))
        await running.put(ChangeSubscriber(Q, A, {"window": 60}))
    async with running_space(tmp_path) as running:
        assert await apply(running, "1", 5) == ["unchanged", "unchanged"]
        assert running.view.queue("q").settings.window == 50
        assert await apply(running, "2", 8) == ["changed", "changed"]
        assert running.view.subscriber("q", "a").settings.window == 8
        assert await apply(running, "3", 8) == ["unchanged", "unchanged"]
        await running.put(DeleteQueue(Q))
        assert await apply(running, "3", 8) == ["unchanged", "unchanged"]
        assert running.view.queues(None, 10) == ([], None)
        assert await apply(running, "4", 9) == ["created", "created"]
        moved = await running.subscribe("q", "a", window=9, start="beginning", applied=FromFile("5", {"window": "9"}))
        assert moved.what == "unchanged", "where a subscription begins was decided when it was made, in a file too"


async def test_a_late_subscriber_gets_what_comes_after_it(tmp_path: Path):
    """RULES 14: what was accepted before it does not count it; ``start`` lets it catch up, still uncounted."""
    async with running_space(tmp_path) as running:
        await running.queue("q", subscribers=["a"])
        early = [await running.publish("q", b"%d" % n) for n in range(5)]
        await running.ended(*early)
        await running.subscribe("q", "late")
        await running.subscribe("q", "history", start="beginning")
        sequence = (await running.view.message(early[3])).sequence
        await running.subscribe("q", "some", start=str(sequence))
        last = await running.publish("q", b"last")
        await running.ended(last)
        await eventually(lambda: len(running.consumer.seen) == 6 + 1 + 6 + 3, "everybody has caught up")
        by_name = {name: [c for c, s in running.consumer.seen if s == name] for name in ("late", "history", "some")}
        assert by_name["late"] == [b"last"]
        assert sorted(by_name["history"]) == [b"0", b"1", b"2", b"3", b"4", b"last"]
        assert sorted(by_name["some"]) == [b"3", b"4", b"last"]
        assert await running.states(*early) == ["complete"] * 5
        with pytest.raises(BadSetting):
            await running.subscribe("q", "wrong", start="yesterday")


async def test_a_deleted_subscriber_drops_what_it_owed(tmp_path: Path):
    """RULES 14: deleted, its pending deliveries end ``dropped``, which counts as acknowledged; the receipt counts."""
    consumer = Consumer(lambda delivery: None)
    async with running_space(tmp_path, consumer) as running:
        await running.queue("q", subscribers=["a"])
        ids = [await running.publish("q", b"m") for _ in range(3)]
        await eventually(lambda: len(consumer.held) == 3, "all are out")
        assert await running.put(Unsubscribe(Q, A)) == 3
        await running.ended(*ids)
        assert await running.states(*ids) == ["complete"] * 3
        assert consumer.forgotten == [1]
        with pytest.raises(UnknownSubscriber):
            await running.put(Unsubscribe(Q, A))
        consumer.release()


async def test_paused_waits_and_goes_on(tmp_path: Path):
    """RULES 14: a paused subscriber is still counted; what waits for it goes out when it goes on."""
    async with running_space(tmp_path) as running:
        await running.queue("q")
        await running.subscribe("q", "a", paused=True)
        id_ = await running.publish("q", b"m")
        report = await running.view.message(id_)
        assert (report.state, report.deliveries[0].state) == ("pending", "paused")
        await running.put(ChangeSubscriber(Q, A, {"paused": False}))
        await running.ended(id_)
        assert running.consumer.contents == [b"m"]


async def test_gone_disables_and_a_patch_enables(tmp_path: Path):
    """RULES 14: the delivery that met the 410 is dead, the rest wait, over a restart too; a PATCH lets them go."""
    consumer = Consumer(lambda delivery: GONE)
    async with running_space(tmp_path, consumer) as running:
        await running.queue("q", QueueSettings(window=1), subscribers=["a", "b"])
        first = await running.publish("q", b"1")
        await running.ended(first)
        second = await running.publish("q", b"2")
        await eventually(lambda: running.view.subscriber("q", "a").state == "disabled", "a is disabled")
        await eventually(lambda: running.view.subscriber("q", "b").state == "disabled", "b is disabled")
        assert await running.states(first, second) == ["dead", "pending"]
    async with running_space(tmp_path) as running:
        assert running.view.subscriber("q", "a").state == "disabled"
        for name in ("a", "b"):
            await running.put(ChangeSubscriber(Q, SubscriberId(name), {"paused": False}))
        await running.ended(second)
        assert sorted(running.consumer.seen) == [(b"2", "a"), (b"2", "b")]


async def test_disabled_for_too_long_is_dead(tmp_path: Path):
    """RULES 14: after ``disabled_max`` what waits for a disabled subscriber dies as ``subscriber_disabled``."""
    clock = Clock()
    consumer = Consumer(lambda delivery: GONE)
    async with running_space(tmp_path, consumer, clock_us=clock, retention_s=90 * 86_400.0) as running:
        await running.queue("q", subscribers=["a"])
        await running.ended(await running.publish("q", b"1"))
        waiting = await running.publish("q", b"2")
        clock.forward(6 * 86_400)
        await running.publish("q", b"3")  # wakes the dispatcher, whose own timer waits for the loop's clock
        await running.ended(waiting)
        report = await running.view.message(waiting)
        assert report.deliveries[0].reason == "subscriber_disabled"


async def test_a_queue_in_use_is_not_deleted(tmp_path: Path):
    """RULES 16: 409 while anything waits in it; forced, what waits is dropped and children elsewhere fail."""
    consumer = Consumer(lambda delivery: None if delivery.to.queue == "q" else REFUSED)
    async with running_space(tmp_path, consumer) as running:
        await running.queue("q", subscribers=["a"])
        await running.queue("other", subscribers=["b"])
        parents = [await running.publish("q", b"m") for _ in range(3)]
        child = await running.publish("other", b"child", parents[0])
        with pytest.raises(Conflict) as caught:
            await running.put(DeleteQueue(Q))
        assert caught.value.members["waiting"] >= 3
        assert await running.put(DeleteQueue(Q, force=True)) == 3
        await running.ended(child)
        report = await running.view.message(child)
        assert (report.state, report.deliveries[0].reason) == ("dead", "parent_dropped")
        with pytest.raises(UnknownQueue):
            running.view.queue("q")
        with pytest.raises(UnknownQueue):
            await running.publish("q", b"m")
        consumer.release()
        await running.queue("empty")
        assert await running.put(DeleteQueue(QueueName("empty"))) == 0


async def test_a_test_message_goes_to_one_subscriber_alone(tmp_path: Path):
    """A message for one subscriber alone (``Publish.only``) reaches that and nobody else, and is an ordinary one
    otherwise."""
    async with running_space(tmp_path) as running:
        await running.queue("q", subscribers=["a", "b"])
        accepted = await running.put(Publish.of(Q, (Message(b"test"),), SubscriberId("b")))
        await running.ended(*accepted.ids)
        assert running.consumer.seen == [(b"test", "b")]
        with pytest.raises(UnknownSubscriber):
            await running.put(Publish.of(Q, (Message(b"test"),), SubscriberId("c")))


def files(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


async def test_catching_up_goes_past_test_messages(tmp_path: Path) -> None:
    """RULES 14: what was for others is passed by, however much of it there is, and the rest is delivered."""
    async with running_space(tmp_path) as running:
        await running.queue("q", subscribers=("a",))
        await asyncio.gather(*(running.put(Publish.of(Q, (Message(b"test"),), SubscriberId("a"))) for _ in range(600)))
        await running.publish("q", b"real")
        await running.subscribe("q", "late", start="beginning")
        await eventually(lambda: (b"real", "late") in running.consumer.seen, "what was not a test arrives")
        assert [content for content, name in running.consumer.seen if name == "late"] == [b"real"]


async def test_secrets_are_in_their_file_and_nowhere_else(tmp_path: Path):
    """RULES 19: a 0600 file, written before the fact; not in the log, not in settings; in force after a restart."""
    async with running_space(tmp_path) as running:
        await running.queue("q")
        await running.subscribe("q", "a", secret=SECRET)
        assert running.space.signing_keys(1) == (bytes(range(32)),)
        assert running.view.subscriber("q", "a").settings.secret_count == 1
        assert (await running.subscribe("q", "a", secret=SECRET)).what == "unchanged"
        with pytest.raises(Conflict):
            await running.subscribe("q", "a", secret=OTHER)
        with pytest.raises(BadSetting):
            await running.subscribe("q", "b", secret="whsec_short")
    file = tmp_path / "secrets.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert [other.name for other in files(tmp_path) if SECRET[6:].encode() in other.read_bytes()] == ["secrets.json"]
    async with running_space(tmp_path) as running:
        assert running.space.signing_keys(1) == (bytes(range(32)),)
        await running.put(ChangeSubscriber(Q, A, {}, secret=OTHER))
        assert running.space.signing_keys(1) == (bytes(range(1, 33)),)


async def test_a_shorter_secret_of_before_goes_on_signing(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """INTERFACES 3, secrets: what an older version took is signed with as before, and each start says whose it is; as a
    new one it is refused, by every way of giving it."""
    short = "whsec_" + base64.b64encode(b"short").decode()
    async with running_space(tmp_path) as running:
        await running.queue("q")
        await running.subscribe("q", "a", secret=SECRET)
    file = tmp_path / "secrets.json"
    before = {"version": 1, "subscribers": {"1": {"secrets": [short], "until_us": 0}}}  # as that version wrote it
    file.write_text(json.dumps(before, indent=1))
    async with running_space(tmp_path) as running:
        assert running.space.signing_keys(1) == (b"short",)
        (told,) = [record for record in caplog.records if record.msg == "syncbrok.space.secret_short"]
        assert (told.subscriber, told.bytes) == (1, 5)  # type: ignore[attr-defined]
        for change in (RotateSecret(Q, A, short), ChangeSubscriber(Q, A, {}, secret=short)):
            with pytest.raises(BadSetting, match="24 to 64 bytes"):
                await running.put(change)
        with pytest.raises(BadSetting, match="24 to 64 bytes"):
            await running.subscribe("q", "b", secret=short)
        await running.put(RotateSecret(Q, A, OTHER))
        assert running.space.signing_keys(1) == (bytes(range(1, 33)), b"short")


async def test_a_rotated_secret_signs_beside_the_new_one_for_a_day(tmp_path: Path):
    """Rotation: both sign for 24 h, the new one first; then the old one is forgotten, in the file as well."""
    clock = Clock()
    async with running_space(tmp_path, clock_us=clock) as running:
        await running.queue("q")
        await running.subscribe("q", "a", secret=SECRET)
        assert await running.put(RotateSecret(Q, A, OTHER)) == OTHER
        assert running.space.signing_keys(1) == (bytes(range(1, 33)), bytes(range(32)))
        assert running.view.subscriber("q", "a").settings.secret_count == 2
        with pytest.raises(Conflict):
            await running.put(RotateSecret(Q, A, OTHER))
        clock.forward(86_401)
        assert running.space.signing_keys(1) == (bytes(range(1, 33)),)
    async with running_space(tmp_path, clock_us=clock) as running:  # maintenance begins with what is due
        await eventually(lambda: running.view.subscriber("q", "a").settings.secret_count == 1, "the old one retires")
        assert SECRET not in (tmp_path / "secrets.json").read_text()
        made = await running.put(RotateSecret(Q, A))
        assert made.startswith("whsec_")
        assert made not in (SECRET, OTHER)


async def test_a_secret_that_is_taken_away_signs_nothing_and_is_nowhere(tmp_path: Path):
    """RULES 19: with ``without_secret`` both secrets of one that is being rotated stop signing, for good."""
    async with running_space(tmp_path) as running:
        await running.queue("q")
        await running.subscribe("q", "a", secret=SECRET)
        await running.put(RotateSecret(Q, A, OTHER))
        assert (await running.put(ChangeSubscriber(Q, A, {}, without_secret=True))).what == "changed"
        assert running.space.signing_keys(1) == ()
        assert (await running.put(ChangeSubscriber(Q, A, {}, without_secret=True))).what == "unchanged"
    async with running_space(tmp_path) as running:
        assert running.view.subscriber("q", "a").settings.secret_count == 0
        assert running.space.signing_keys(1) == ()
        await running.put(ChangeSubscriber(Q, A, {}, secret=SECRET))
        assert running.space.signing_keys(1) == (bytes(range(32)),)
        assert OTHER not in (tmp_path / "secrets.json").read_text()


async def test_a_secret_refused_for_want_of_room_is_not_kept(tmp_path: Path):
    """RULES 19: where the fact was not written its secret does not sign, and leaves the file with the next change."""
    async with running_space(tmp_path) as running:
        await running.queue("q")
        await running.subscribe("q", "a", secret=SECRET)
        journal_of(running).room = False
        with pytest.raises(LogFull):
            await running.put(RotateSecret(Q, A, OTHER))
        assert running.space.signing_keys(1) == (bytes(range(32)),)
        journal_of(running).room = True
        await eventually(lambda: not running.space.statistics().committer.full, "there is room again")
        await running.subscribe("q", "b", secret=SECRET)
        assert OTHER not in (tmp_path / "secrets.json").read_text()


async def test_a_secret_that_no_fact_counts_is_forgotten(tmp_path: Path):
    """RULES 19: a crash between the file and the fact leaves a secret for a number that may be given to another."""
    async with running_space(tmp_path) as running:
        await running.queue("q")
    file = tmp_path / "secrets.json"
    file.touch(0o600)
    file.write_text(json.dumps({"version": 1, "subscribers": {"1": {"secrets": [SECRET], "until_us": 0}}}))
    async with running_space(tmp_path) as running:
        await running.subscribe("q", "a")
        assert running.space.signing_keys(1) == ()
        await eventually(lambda: SECRET not in file.read_text(), "the file is tidied")
    file.chmod(0o644)
    with pytest.raises(BadConfig):
        async with running_space(tmp_path):
            pass


async def test_failing_for_too_long_disables(tmp_path: Path):
    """RULES 14: after ``disable_after`` of failure without a success the next failure disables, over a restart too,
    and says why; a success in between, or a resumption, begins it anew; 0 is never."""
    clock = Clock()
    consumer = Consumer(lambda delivery: REFUSED)
    options: dict[str, Any] = {"clock_us": clock, "retention_s": 90 * 86_400.0}

    async def failed(running: Running, content: bytes) -> None:
        await running.ended(await running.publish("q", content))

    async with running_space(tmp_path, consumer, **options) as running:
        await running.queue("q")
        for name, after_s in (("a", 5 * 86_400.0), ("never", 0.0)):
            await running.subscribe("q", name, disable_after_s=after_s, breaker=None)
        await failed(running, b"1")
        clock.forward(4 * 86_400)
        consumer.answer = lambda delivery: ACKNOWLEDGED
        await failed(running, b"2")
        consumer.answer = lambda delivery: REFUSED
        await failed(running, b"3")
        clock.forward(4 * 86_400)
        await failed(running, b"4")
        assert running.view.subscriber("q", "a").state == "active"
    async with running_space(tmp_path, consumer, **options) as running:
        clock.forward(1.1 * 86_400)
        await failed(running, b"5")
        await eventually(lambda: running.view.subscriber("q", "a").state == "disabled", "a is disabled")
        assert running.view.subscriber("q", "a").settings.disabled_by is DisabledBy.FAILING
        waits = (await running.view.message(await running.publish("q", b"6"))).waits_for
        assert "has failed for so long without a success that it is disabled" in waits
        with pytest.raises(SubscriberStopped, match="failed for so long"):
            await running.put(RetrySubscriber(Q, SubscriberId("a")))
        await running.put(ChangeSubscriber(Q, SubscriberId("a"), {"paused": False}))
        await failed(running, b"7")
        assert running.view.subscriber("q", "a").state == "active"
        assert running.view.subscriber("q", "never").state == "active"
