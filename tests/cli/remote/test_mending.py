"""What the commands do about what did not arrive: list it, show it, try it again now, replay it."""

from collections.abc import Iterator

import pytest

from tests.support.broker.commands import Run, commands, data, dead_end_of, published
from tests.support.broker.process import BrokerProcess
from tests.support.http.recorder import Recorder
from tests.support.polling import eventually_blocking


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for all of them: each test has queues of its own."""
    with BrokerProcess(tmp_path_factory.mktemp("cli") / "storage") as running:
        yield running


@pytest.fixture
def run(shop: BrokerProcess) -> Run:
    return commands(shop)


@pytest.fixture
def dead_end(run: Run) -> Iterator[tuple[str, Recorder]]:
    with dead_end_of(run) as made:
        yield made


def test_dead_letters_are_found_and_replayed(run: Run, dead_end: tuple[str, Recorder]) -> None:
    """What to do when something does not arrive: list, show, mend, replay; descendants come with their parent."""
    queue, recorder = dead_end
    parent = published(run, queue)
    child = published(run, queue, "--parent", parent)
    letters = eventually_blocking(
        lambda: (found := data(run("dead-letters", "list", queue, "--json"))) and len(found) == 2 and found,
        "two dead letters",
    )
    assert {one["id"]: one["reason"] for one in letters} == {parent: "status", child: "parent_failed"}
    assert parent in run("dead-letters", "list").stdout
    assert "500" in run("dead-letters", "show", parent).stdout
    assert data(run("dead-letters", "show", child, "--json"))["deliveries"][0]["state"] == "dead"
    dry = run("dead-letters", "replay", queue, "--dry-run").stdout
    assert "2 messages, 2 deliveries would go out again" in dry
    assert dry.index(parent) < dry.index(child)
    recorder.answer = lambda _: 200
    assert data(run("dead-letters", "replay", queue, "--json"))["messages"] == 2
    assert [one.id for one in recorder.wait_for(3)[1:]] == [parent, child]
    eventually_blocking(lambda: data(run("messages", "show", child, "--json"))["state"] == "complete", "the child ends")
    assert "no dead letters" in run("dead-letters", "list", queue).stderr
    assert f"no delivery of message {child} is a dead letter" in run("dead-letters", "show", child, code=3).stderr
    # RULES 21: what was delivered stays unless asked for; the flag that once said so is still taken.
    assert "1 messages" in run("messages", "replay", parent, "--dry-run").stdout
    assert "1 messages" in run("messages", "replay", parent, "--no-descendants", "--dry-run").stdout
    assert "2 messages" in run("messages", "replay", parent, "--descendants", "--dry-run").stdout


def test_what_has_failed_is_tried_again_now(run: Run) -> None:
    """RULES 26: once an endpoint is mended, what failed there need not wait; all of a subscriber, or one message."""
    with Recorder(lambda _: 500) as recorder:
        run("queues", "create", "patient", "--retry", "1h,1h")
        run("subscribers", "create", "patient", recorder.url, "--name", "hook")
        first, second = published(run, "patient"), published(run, "patient")

        def retrying() -> int:
            figures = data(run("subscribers", "show", "patient", "hook", "--json"))["statistics"]
            return int(figures["retrying"])

        eventually_blocking(lambda: retrying() == 2, "both have failed once")
        recorder.answer = lambda _: 200
        assert run("messages", "retry", first, "--subscriber", "hook").stdout == "1 deliveries are tried again now\n"
        eventually_blocking(lambda: data(run("messages", "show", first, "--json"))["state"] == "complete", "the first")
        assert run("subscribers", "retry", "patient", "hook").stdout == "1 messages are tried again now\n"
        eventually_blocking(lambda: data(run("messages", "show", second, "--json"))["state"] == "complete", "the other")
        assert data(run("subscribers", "retry", "patient", "hook", "--json")) == {"retried": 0}
        run("subscribers", "pause", "patient", "hook")
        assert (
            "is paused: nothing is tried there; resume it"
            in run("subscribers", "retry", "patient", "hook", code=4).stderr
        )


def test_a_replay_to_one_says_what_is_left(run: Run) -> None:
    """RULES 21: narrowed to one subscriber the others' dead letters stay, and the plan says how many."""
    with Recorder(lambda _: 500) as recorder:
        run("queues", "create", "two", "--retry", "")
        for name in ("a", "b"):
            run("subscribers", "create", "two", recorder.url, "--name", name)
        parent = published(run, "two")
        child = published(run, "two", "--parent", parent)
        eventually_blocking(
            lambda: data(run("messages", "show", child, "--json"))["state"] == "dead", "the family is dead"
        )
        dry = run("messages", "replay", parent, "--subscriber", "a", "--dry-run").stdout
        assert "2 messages, 2 deliveries would go out again" in dry
        assert "2 dead letters of other subscribers would stay" in dry
        recorder.answer = lambda _: 200
        done = run("dead-letters", "replay", "two", "--subscriber", "a").stdout
        assert "2 dead letters of other subscribers stay" in done
        eventually_blocking(lambda: len(data(run("dead-letters", "list", "two", "--json"))) == 2, "those of b stay")
