"""Draws a message's way through the code, docs/way.svg: ``python -m tools.way [FILE]`` (``make docs``).

Nobody writes down the files: a real broker runs in this process under ``sys.setprofile``, as for ``tools.house``. A
message is published over HTTP and delivered; then a parent is acknowledged, and its child goes out. ``STEPS`` names the
function that each step begins with, and what it does there; a file belongs to the step whose function called it last,
on the same stack. So the picture does not depend on which thread wrote or what was due meanwhile. What no step called
(timers, retention) is no part of the way. A file is drawn if each of ``_ROUNDS`` messages passed it.

``tests/whole/test_way.py`` walks again and compares.
"""

import asyncio
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

from tools.house import PACKAGE, Client, Endpoint, with_broker
from tools.pictures import ARROW, BOLD, CHILD, FAINT, INK, PAPER, PARENT, ROOT, RULE, SMALL, Picture

TARGET: Final = ROOT / "docs" / "way.svg"
_ROUNDS: Final = 3
_SETTLED_S: Final = 0.1
_PATIENCE_S: Final = 30

ANSWER: Final = "WebhookConnection.data_received"
SENT: Final = "Webhook.deliver"


class Part(NamedTuple):
    """``steps``: function that a step begins with -> what the step does, in their order."""

    title: str
    steps: dict[str, str]


STEPS: Final = (
    Part(
        "A message is published",
        {
            "FastPathConnection.data_received": "The frontend reads the request and puts a unit into the channel.",
            "Committer._begin": "The committer drains the channel, checks, gives ids, and encodes the records.",
            "FileJournal.append": "The journal writes the batch and syncs it.",
            "Committer._written": "It is durable: the committer has it applied.",
            "Applier.apply": "The scheduler takes the message in.",
            "SharedItem.resolve": "The publisher is answered: 201.",
            "Dispatcher._turn": "The dispatcher asks what there is to do, and reads the message.",
            "Scheduler.take": "The scheduler says which delivery goes next.",
            SENT: "The handler sends it.",
        },
    ),
    Part(
        "Its subscriber acknowledges it",
        {
            ANSWER: "The handler reads the answer.",
            "Dispatcher._turn": "The dispatcher takes it.",
            "Dispatcher._settle": "The scheduler notes it; the committer is given the row.",
            "Committer._begin": "The committer puts the row into a batch.",
            "FileJournal.append": "The journal writes it: the record of the end.",
            "Applier.apply": "The scheduler applies it: the message has ended.",
        },
    ),
    Part(
        "A parent is acknowledged, and a child waited for it",
        {
            ANSWER: "The handler reads the answer.",
            "Dispatcher._turn": "The dispatcher takes it.",
            "Dispatcher._settle": "The scheduler notes it: the row is urgent, a child waits for it.",
            "Committer._begin": "The committer puts the row into a batch.",
            "FileJournal.append": "The journal writes it and syncs it.",
            "Applier.apply": "The scheduler applies it: the parent has ended, its children are looked at.",
            "DependencyTracker.release": "The child is released.",
            "Scheduler.take": "The scheduler says which delivery goes next: the child.",
            SENT: "The handler sends the child.",
        },
    ),
)
_ROOMS: Final = ("frontends", "space", "log", "delivery")

Passed = dict[tuple[int, str], set[str]]
"""part and function of a step -> files"""

Round = tuple[Passed, list[tuple[int, str]]]
"""with the steps as they were entered"""


class Walker:
    """Notes under which step each file of the package is called, while ``part`` says which part it is."""

    def __init__(self) -> None:
        self.part: int | None = None
        self.passed: Passed = {}
        self.entered: list[tuple[int, str]] = []

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        part = self.part
        if part is None or event != "call" or not frame.f_code.co_filename.startswith(str(PACKAGE)):
            return
        if part == 0 and frame.f_code.co_qualname == ANSWER:
            self.part = part = 1
        step = _step(frame, STEPS[part].steps)
        if step is not None:
            if frame.f_code.co_qualname == step:
                self.entered.append((part, step))
            self.passed.setdefault((part, step), set()).add(frame.f_code.co_filename)


def _step(frame: FrameType | None, steps: dict[str, str]) -> str | None:
    """The nearest function of the stack that a step begins with."""
    while frame is not None:
        if frame.f_code.co_qualname in steps and frame.f_code.co_filename.startswith(str(PACKAGE)):
            return frame.f_code.co_qualname
        frame = frame.f_back
    return None


def walked() -> list[Round]:
    """``_ROUNDS`` times: a message, and a parent with its child."""
    walker = Walker()
    threading.setprofile(walker)
    sys.setprofile(walker)
    try:
        with tempfile.TemporaryDirectory() as storage, asyncio.Runner() as runner:
            return runner.run(with_broker(storage, lambda port: _rounds(walker, port)))
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def always(rounds: list[Round]) -> Passed:
    """Part and step -> the files that every round passed.

    Raises ``LookupError`` if a round does not pass a step, or not after the one before it.
    """
    steps = [(number, step) for number, part in enumerate(STEPS) for step in part.steps]
    for _, entered in rounds:
        following = iter(entered)
        if lost := [step for number, step in steps if (number, step) not in following]:
            raise LookupError(f"{lost[0]} is not passed, or elsewhere: mend STEPS in tools/way.py. Passed: {entered}")
    return {step: set.intersection(*(passed[step] for passed, _ in rounds)) for step in steps}


async def _rounds(walker: Walker, port: int) -> list[Round]:
    endpoint = Endpoint()
    found = []
    async with await asyncio.start_server(endpoint.serve, "127.0.0.1", 0) as server, Client(port) as client:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        json = "Content-Type: application/json"
        await client.post("/v1/queues", b'{"name": "q"}', json)
        await client.post("/v1/queues/q/subscribers", f'{{"name": "s", "endpoint": "{url}"}}'.encode(), json)
        async with Client(port) as publisher:
            for _ in range(1 + _ROUNDS):
                walker.passed, walker.entered = {}, []
                await _round(walker, publisher, endpoint)
                found.append((walker.passed, walker.entered))
        server.close()
    return found[1:]  # in the first one connections were opened


async def _round(walker: Walker, publisher: Client, endpoint: Endpoint) -> None:
    """A message, and then a parent with a child; nothing is under way when it begins, nor when it ends."""
    walker.part = 0
    await publisher.post("/v1/queues/q/messages", b"one")
    await _until(lambda: (1, "Applier.apply") in walker.entered)
    walker.part = None
    endpoint.go_on.clear()
    parent = await publisher.post("/v1/queues/q/messages", b"parent")
    id_ = parent.split(b'"id":"')[1].split(b'"')[0].decode()
    await publisher.post("/v1/queues/q/messages", b"child", f"Syncbrok-Parent: {id_}")
    await _until(lambda: endpoint.bodies[-1] == b"parent")
    walker.part = 2
    endpoint.go_on.set()
    await _until(lambda: walker.entered.count((2, "Applier.apply")) == 2)
    assert endpoint.bodies[-1] == b"child", endpoint.bodies
    walker.part = None


async def _until(reached: Callable[[], bool]) -> None:
    """Waits until it is so, and a moment longer for what follows from it. Raises ``TimeoutError``."""
    async with asyncio.timeout(_PATIENCE_S):
        while not reached():  # noqa: ASYNC110 (what is walked must not know that it is)
            await asyncio.sleep(0.01)
    await asyncio.sleep(_SETTLED_S)


class Place(NamedTuple):
    """One cell of the picture: what of a room a step passes. ``lines``: text, and whether it is a wing's name."""

    room: str
    lines: list[tuple[str, bool]]


def _places(files: set[str], chars: int) -> Iterator[Place]:
    """By room, in the picture's order; ``model`` is left out, everything uses it."""
    wings: dict[str, dict[str, list[str]]] = {}
    for name in files:
        place = Path(name).relative_to(PACKAGE).with_suffix("")
        wings.setdefault(place.parts[0], {}).setdefault("/".join(place.parts[1:-1]), []).append(place.name)
    for room in _ROOMS:
        lines = []
        for wing, modules in sorted(wings.get(room, {}).items()):
            if wing:
                lines.append((wing, True))
            lines.extend((line, False) for line in textwrap.wrap(", ".join(sorted(modules)), chars))
        if lines:
            yield Place(room, lines)


_WIDTH, _LEFT, _ROOM_WIDTH, _LINE, _CHARS = 1040, 260, 192, 15, 27


def drawn(passed: Passed) -> str:
    """The SVG: a row a step, a column a room."""
    rows = [[(step, list(_places(passed[n, step], _CHARS))) for step in part.steps] for n, part in enumerate(STEPS)]
    heights = [[_height(STEPS[n].steps[step], places) for step, places in part] for n, part in enumerate(rows)]
    height = 80 + sum(44 + sum(part) for part in heights)
    picture = Picture(_WIDTH, height, "A message's way through the code: the files that each step passes")
    for column, room in enumerate(_ROOMS):
        x = _LEFT + _ROOM_WIDTH * column
        picture.box(x, 14, _ROOM_WIDTH - 8, height - 50, "#f4f6f8")
        picture.text(x + 10, 34, room, PARENT, BOLD)
    y, number = 46, 0
    for n, part in enumerate(STEPS):
        picture.text(16, y + 26, part.title, CHILD, BOLD)
        y += 44
        for (step, places), each in zip(rows[n], heights[n], strict=True):
            number += 1
            _draw_step(picture, y, number, (step, part.steps[step]), places)
            if step != list(part.steps)[-1]:
                picture.line(28, y + 27, 28, y + each + 1, ARROW)
            y += each
    picture.text(16, height - 14, "Not drawn: model, whose nouns all of them use.", FAINT, SMALL)
    return picture.svg()


def _height(words: str, places: list[Place]) -> int:
    return 16 + _LINE * max(1 + len(textwrap.wrap(words, 32)), *(len(place.lines) for place in places))


def _draw_step(picture: Picture, y: int, number: int, step: tuple[str, str], places: list[Place]) -> None:
    function, words = step
    picture.box(16, y + 4, 24, 22, PARENT)
    picture.text(28, y + 20, str(number), PAPER, f'text-anchor="middle" {SMALL}')
    for row, line in enumerate(textwrap.wrap(words, 32)):
        picture.text(48, y + 14 + _LINE * row, line, INK, SMALL)
    picture.text(48, y + 14 + _LINE * (row + 1), function, FAINT, 'font-size="11"')
    for place in places:
        x = _LEFT + _ROOM_WIDTH * _ROOMS.index(place.room)
        picture.box(x, y, _ROOM_WIDTH - 8, 9 + _LINE * len(place.lines), PAPER, RULE)
        for row, (line, is_wing) in enumerate(place.lines):
            picture.text(x + 10, y + 16 + _LINE * row, line, PARENT if is_wing else INK, 'font-size="11"')


def main() -> None:
    (Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET).write_text(drawn(always(walked())))


if __name__ == "__main__":
    main()
