"""The broker killed with SIGKILL while everything is asked of it at once, judged by what clients saw alone.

Broken by hand to see it fail: a gate opened before its parent was complete; a key's chain that forgets its first
message; an answer before the write; a delay that is not kept over a restart.
"""

from pathlib import Path

import pytest

from tests.support.crash.everything_judge import Asked, Life, Seen, broken
from tests.support.crash.everything_traffic import counts, life, wrong_with


def test_killed_while_everything_is_asked_of_it(tmp_path: Path, seed: int) -> None:
    """DESIGN 1, durable, at least once, causal, nothing lost; RULES 4, 5, 6, 7, 11, 12, 13, 21, 22: scopes, policies,
    keys, delays, expiries, batches, cancels, replays, a subscriber that moves, one that is paused, consumers that pull,
    read a socket, and read over TCP - killed three times in the middle of it."""
    lived = life(tmp_path / "storage", seed, 3)
    wrong = wrong_with(lived, tmp_path / "storage")
    assert not wrong, wrong[:10]
    had = counts(lived)
    assert had["messages"] >= 100
    assert min(had.values()) > 0, had


def told(*asked: Asked, seen: tuple[Seen, ...], **more: object) -> list[str]:
    """What the judge says of two messages of a queue with one subscriber; each complete unless ``more`` says other."""
    ends = {one.id: "complete" for one in asked}
    known = {"scopes": {"q": "all"}, "subscribers": {"q": ("s",)}, "loose": frozenset(), "poison": frozenset()}
    return broken(Life(**{**known, "asked": list(asked), "seen": list(seen), "ends": ends, **more}))  # type: ignore[arg-type]


A = Asked("a", 1, "q", b"a", 0.0, key="k")
B = Asked("b", 2, "q", b"b", 0.0, ("a",), key="k")


def at(id_: str, at_s: float, *, well: bool = True, replay: bool = False) -> Seen:
    return Seen("s", id_, id_.encode(), at_s, well, replay)


@pytest.mark.parametrize(
    ("said", "judged"),
    [
        ("", (at("a", 1), at("b", 2))),
        ("", (at("a", 1, well=False), at("a", 2), at("b", 3), at("a", 4, replay=True))),
        ("early", (at("b", 1), at("a", 2))),
        ("late parent", (at("a", 1), at("b", 2), at("a", 3))),
        ("overtaken", (at("a", 1), at("b", 2), at("a", 3))),
        ("lost", (at("a", 1),)),
        ("lost", (at("a", 1), at("b", 2, well=False))),
        ("twice", (at("a", 1), at("b", 2), Seen("s", "c", b"a", 3, well=True, replay=False))),
    ],
)
def test_the_judge_sees_what_it_is_for(said: str, judged: tuple[Seen, ...]) -> None:
    """DESIGN 1, causal: a judge that says nothing proves nothing, so each rule of it is shown a life that breaks it."""
    found = told(A, B, seen=judged)
    assert any(one.startswith(said) for one in found) if said else not found, found


def test_the_judge_knows_time_and_ends() -> None:
    """RULES 7 and 10: as above, for delays, expiries, and messages that are gone, stuck or dead for no reason."""
    seen = (at("a", 1.0), at("b", 2.0))
    late = Asked("a", 1, "q", b"a", 0.5, delay_s=1.0)
    assert any(one.startswith("undelayed") for one in told(late, B, seen=seen))
    old = Asked("b", 2, "q", b"b", 0.0, expires_s=1.0)
    assert any(one.startswith("unexpired") for one in told(A, old, seen=(at("a", 1.0), at("b", 60.0))))
    for end in (None, "waiting", "dead"):
        assert told(A, B, seen=seen, ends={"a": "complete", "b": end})
    assert not told(A, B, seen=seen[:1], ends={"a": "complete", "b": "dropped"}, cancelled=frozenset({"b"}))
