"""The picture of a tree, as data and text."""

import re
from xml.etree import ElementTree as ET

import pytest

from syncbrok.pipeline.lineage.tree_svg import MessageBar, TreeSummary, draw, duration

T = 1_790_000_000_000_000


def bar(sequence: int, *, step: int | None = None, **more: object) -> MessageBar:
    """A message that waits for the one before it and takes 100 ms."""
    at = T + 100_000 * sequence
    own = {
        "queue": "cards", "accepted_us": T, "parents_us": at, "began_us": at + 20_000, "ended_us": at + 100_000,
        "failed": False, "attempts": 1, "held_by": sequence - 1, "own_us": 100_000, "below": 0, "elsewhere": False,
    }  # fmt: skip
    return MessageBar(**{"sequence": sequence, "step": step, **own, **more})


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_who_waited_hangs_below_whom_it_waited_for() -> None:
    """The critical path goes from top to bottom with its parts of the time, what hangs off it stands where it hangs,
    steps that are left out are counted; a failure, a repetition and another tree are said in words, not by colour
    alone."""
    bars = [
        bar(1, step=1, elsewhere=True),
        bar(2, step=2, attempts=3),
        bar(40, step=7, held_by=39),
        bar(20, held_by=2, failed=True),
        bar(21, held_by=20, below=1_234),
        bar(50, held_by=None, ended_us=None, began_us=None),
    ]
    said = texts(draw(TreeSummary(2, "cards", 900, 6, 700_000, 400_000, 7), bars))
    rows = [one for one in said if re.fullmatch(r"#\d+|.* more steps", one)]
    assert rows == ["#1", "#2", "#20", "#21", "4 more steps", "#40", "#50"]
    told = [one for one in said if " · " in one or one == "not ended"]
    assert told == [
        "100 ms · 25 % · another tree",
        "100 ms · 25 % · 3 attempts",
        "100 ms · failed",
        "100 ms · 1,234 more below",
        "100 ms · 25 %",
        "not ended",
    ]
    assert said[0] == "The tree of cards #2, took 700 ms"
    assert "900 messages" in said[1]


def test_what_a_publisher_writes_cannot_break_the_picture() -> None:
    """Names are text, not markup; long ones are cut."""
    svg = draw(TreeSummary(1, "<b>&", 1, 0, None, 0, 0), [bar(1, queue="<script>alert(1)</script>", held_by=None)])
    assert "<script" not in svg
    assert "<script>alert(1)…" in texts(svg)


def test_one_message_at_one_moment_is_a_picture_too() -> None:
    """No width of time: nothing is divided by it."""
    only = bar(1, accepted_us=T, parents_us=None, began_us=T, ended_us=T, held_by=None, step=1, own_us=0)
    assert "1 message." in draw(TreeSummary(1, "cards", 1, 0, 0, 0, 1), [only])


@pytest.mark.parametrize(
    ("time_us", "told"),
    [
        (0, "0 µs"), (999, "999 µs"), (1_500, "1.5 ms"), (340_000, "340 ms"), (1_250_000, "1.25 s"),
        (59_960_000, "60 s"), (61_000_000, "1 min 1 s"), (119_700_000, "2 min"), (7_500_000_000, "2 h 5 min"),
        (200_000_000_000, "2 d 7 h"),
    ],
)  # fmt: skip
def test_durations_are_what_a_reader_wants(time_us: int, told: str) -> None:
    """Three digits and a unit."""
    assert duration(time_us) == told
