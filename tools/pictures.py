"""Draws the pictures of the documentation: ``python -m tools.pictures`` (``make docs``).

``family.svg``  what a parent does to its children, on a time line
``concepts.svg`` the words: publisher, queue, message, key, subscriber, delivery, attempt, ends, scope
``cluster.svg`` three hosts: the way of a publish to its answer, who follows, who relays
``rooms.svg``   the rooms of the package and what stands in them, read from the import contracts in pyproject.toml

They are drawn by code so that they cannot fall behind it: ``tests/whole/test_pictures.py`` draws them again and
compares.
"""

import textwrap
import tomllib
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FONT = "ui-sans-serif, system-ui, 'Segoe UI', Helvetica, Arial, sans-serif"
INK, FAINT, PAPER, RULE = "#1f2933", "#66727f", "#ffffff", "#c9d1d9"
PARENT, CHILD, OTHER, FAILED = "#2f6f9f", "#4c956c", "#8d99a6", "#c8553d"


class Picture:
    """An SVG, element by element. Sizes are pixels; text is given by its baseline."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._parts = [
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
                f'viewBox="0 0 {width} {height}" role="img" font-family="{FONT}" font-size="14">'
            ),
            f"<title>{escape(title)}</title>",
            (
                '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
                f'orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="{FAINT}"/></marker></defs>'
            ),
        ]
        self.box(0.5, 0.5, width - 1, height - 1, PAPER, RULE)

    def box(self, x: float, y: float, width: float, height: float, fill: str, stroke: str = "none") -> None:
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" fill="{fill}" stroke="{stroke}"/>'
        )

    def text(self, x: float, y: float, words: str, colour: str = INK, style: str = "") -> None:
        self._parts.append(f'<text x="{x:g}" y="{y:g}" fill="{colour}" {style}>{escape(words)}</text>')

    def line(self, x1: float, y1: float, x2: float, y2: float, style: str = "") -> None:
        self._parts.append(f'<path d="M{x1:g} {y1:g} L{x2:g} {y2:g}" stroke="{FAINT}" fill="none" {style}/>')

    def curve(self, path: str, style: str = "") -> None:
        self._parts.append(f'<path d="{path}" stroke="{FAINT}" fill="none" {style}/>')

    def svg(self) -> str:
        return "\n".join([*self._parts, "</svg>"]) + "\n"


BOLD = 'font-weight="600"'
SMALL = 'font-size="12"'
MIDDLE = 'text-anchor="middle"'
ARROW = 'marker-end="url(#tip)"'
DASHED = 'stroke-dasharray="4 4"'


def family() -> str:
    """The graph on the left; on the right who receives what, when, while one subscriber fails at first."""
    picture = Picture(860, 330, "A parent goes first; its children follow, together; nothing else waits")
    _graph(picture)
    _time_line(picture)
    return picture.svg()


def _graph(picture: Picture) -> None:
    picture.text(24, 32, "What is published", INK, BOLD)
    for x, y, words, colour in (
        (64, 62, "customer.created", PARENT),
        (14, 172, "card.created", CHILD),
        (144, 172, "address.created", CHILD),
        (14, 262, "invoice.paid", OTHER),
    ):
        width = 144 if y == 62 else 122
        picture.box(x, y, width, 34, colour)
        picture.text(x + width / 2, y + 22, words, PAPER, MIDDLE)
    picture.curve("M120 98 C 114 130, 82 134, 75 168", ARROW)
    picture.curve("M152 98 C 158 130, 198 134, 205 168", ARROW)
    picture.text(216, 84, "goes first", FAINT, SMALL)
    picture.text(14, 226, "wait for their parent", FAINT, SMALL)
    picture.text(144, 284, "has no parent", FAINT, SMALL)


def _time_line(picture: Picture) -> None:
    left, complete = 392, 660
    picture.text(left - 80, 32, "What the subscribers of the queue receive", INK, BOLD)
    lanes = (
        ("A", 62, ((0, 66, PARENT, "customer"), (72, 62, OTHER, "invoice"))),
        ("B", 152, ((0, 66, FAILED, "customer"), (72, 62, OTHER, "invoice"), (194, 66, PARENT, "customer"))),
    )
    children = ((276, 56, CHILD, "card"), (338, 64, CHILD, "address"))
    for name, y, bars in lanes:
        picture.text(left - 80, y + 26, f"subscriber {name}", FAINT, SMALL)
        picture.line(left - 8, y + 44, 844, y + 44, f'stroke-width="0.6" {ARROW}')
        for x, width, colour, words in (*bars, *children):
            picture.box(left + x, y + 6, width, 30, colour)
            picture.text(left + x + width / 2, y + 25, words, PAPER, f"{MIDDLE} {SMALL}")
    picture.text(left, 212, "503", FAILED, SMALL)
    picture.curve(f"M{left + 28} 220 C {left + 60} 250, {left + 180} 250, {left + 226} 200", f"{DASHED} {ARROW}")
    picture.text(left + 84, 258, "tried again later", FAINT, SMALL)
    picture.line(complete, 46, complete, 262, DASHED)
    picture.text(complete + 8, 236, "customer.created is complete,", INK, SMALL)
    picture.text(complete + 8, 252, "and that is on disk", INK, SMALL)
    picture.text(
        left - 80, 300, "The children wait until A and B both have their parent. What has no part in", FAINT, SMALL
    )
    picture.text(left - 80, 316, "the family (invoice.paid) waits for nothing.", FAINT, SMALL)


HOSTS = (("a", 20), ("b", 300), ("c", 580))


def concepts() -> str:
    """On the left who publishes, in the middle a queue with its messages, on the right who is sent them; below, what
    ends there are and what the two scopes mean for the child."""
    picture = Picture(940, 470, "The words: a queue, its messages and subscribers, and how a delivery ends")
    _published(picture)
    _subscribed(picture)
    _ends(picture)
    _scopes(picture)
    return picture.svg()


def _published(picture: Picture) -> None:
    picture.text(20, 32, "Publisher", INK, BOLD)
    picture.box(20, 92, 96, 34, OTHER)
    picture.text(68, 114, "your service", PAPER, MIDDLE)
    picture.line(118, 109, 166, 109, ARROW)
    picture.text(20, 146, "POST; 201: it is", FAINT, SMALL)
    picture.text(20, 162, "on the disk", FAINT, SMALL)
    picture.text(170, 32, "Queue, with its messages in the order accepted", INK, BOLD)
    picture.box(170, 46, 330, 190, PAPER, RULE)
    rows = (
        (60, "customer 7", "a parent", PARENT),
        (102, "card of 7", "waits for its parent", CHILD),
        (144, "invoice 1", "key c-7", OTHER),
        (186, "invoice 2", "key c-7: behind invoice 1", OTHER),
    )
    for y, words, said, colour in rows:
        picture.box(184, y, 110, 34, colour)
        picture.text(239, y + 22, words, PAPER, MIDDLE)
        picture.text(324, y + 22, said, FAINT, SMALL)
    picture.curve("M296 119 C 318 116, 318 82, 298 78", ARROW)
    picture.curve("M296 203 C 318 200, 318 166, 298 162", ARROW)


def _subscribed(picture: Picture) -> None:
    picture.text(650, 32, "Subscribers: each gets all of it", INK, BOLD)
    for y, name, said in (
        (50, "billing", "a webhook"),
        (110, "search", "a webhook with a filter"),
        (170, "workers", "a group that pulls"),
    ):
        picture.box(660, y, 96, 34, INK)
        picture.text(708, y + 22, name, PAPER, MIDDLE)
        picture.text(766, y + 22, said, FAINT, SMALL)
        picture.line(502, 141, 656, y + 17, ARROW)
    picture.text(660, 228, "each: window, retry, rate, breaker", FAINT, SMALL)
    picture.text(514, 204, "a delivery: one", FAINT, SMALL)
    picture.text(514, 220, "message to one", FAINT, SMALL)
    picture.text(514, 236, "subscriber", FAINT, SMALL)


def _ends(picture: Picture) -> None:
    picture.text(20, 284, "A delivery: attempts, then an end", INK, BOLD)
    for x, words in ((20, "1st"), (76, "2nd"), (132, "3rd")):
        picture.box(x, 300, 44, 34, OTHER)
        picture.text(x + 22, 322, words, PAPER, MIDDLE)
    picture.text(20, 352, "as its retry says", FAINT, SMALL)
    picture.line(178, 315, 236, 312, ARROW)
    for y, words, said, colour in (
        (296, "delivered", "a 2xx answer, or acknowledged", CHILD),
        (336, "skipped, dropped", "by a filter, an operator: counts as delivered", CHILD),
        (376, "dead letter", "no attempt is left, or a parent failed", FAILED),
        (416, "expired", "its time was over before", FAILED),
    ):
        picture.box(240, y, 130, 30, colour)
        picture.text(305, y + 20, words, PAPER, MIDDLE)
        picture.text(380, y + 20, said, FAINT, SMALL)
    picture.curve("M238 392 C 190 392, 150 380, 150 340", f"{ARROW} {DASHED}")
    picture.text(150, 408, "replay", FAINT, SMALL)
    picture.text(20, 430, "A message is complete once all of", FAINT, SMALL)
    picture.text(20, 446, "its deliveries have ended green.", FAINT, SMALL)


def _scopes(picture: Picture) -> None:
    picture.text(680, 284, "Scope: whose parent?", INK, BOLD)
    picture.text(680, 306, "billing has customer 7, search has not:", FAINT, SMALL)
    for y, scope, billing, colour in ((320, "all", "card waits", OTHER), (366, "same", "card goes", CHILD)):
        picture.text(680, y + 22, scope, INK, BOLD)
        picture.box(726, y, 92, 34, colour)
        picture.text(772, y + 22, billing, PAPER, MIDDLE)
        picture.box(828, y, 92, 34, OTHER)
        picture.text(874, y + 22, "card waits", PAPER, MIDDLE)
    picture.text(772, 418, "to billing", FAINT, f"{SMALL} {MIDDLE}")
    picture.text(874, 418, "to search", FAINT, f"{SMALL} {MIDDLE}")


def cluster() -> str:
    """Three hosts side by side, a broker above a server of the engine on each; whom clients meet stands above them."""
    picture = Picture(860, 520, "Three hosts keep one log: a publish is answered once a quorum and the leader have it")
    for name, left in HOSTS:
        _host(picture, name, left)
    _clients(picture)
    _replication(picture)
    steps = (
        "1  A client publishes. It may ask any node: one that follows relays the connection to the leader.",
        "2  The leader appends to the stream, behind the last message it knows; if another stands there it is fenced.",
        "3  Two of the three servers have fsynced it: a quorum.      4  The leader writes it to its own file.",
        "5  201.      6  The leader delivers, while its lease holds.",
        "Followers read the stream, write the same files, keep the same state: one of them leads within seconds.",
    )
    for row, words in enumerate(steps):
        picture.text(20, 430 + 19 * row, words, FAINT, SMALL)
    return picture.svg()


def _host(picture: Picture, name: str, left: float) -> None:
    leads = name == "a"
    picture.box(left, 120, 260, 280, "#f4f6f8", RULE)
    picture.text(left + 250, 390, f"host {name}", FAINT, f'text-anchor="end" {SMALL}')
    picture.box(left + 14, 150, 120, 48, PARENT if leads else CHILD)
    picture.text(left + 74, 171, f"broker {name}", PAPER, f"{MIDDLE} {BOLD}")
    picture.text(left + 74, 188, "leads" if leads else "follows", PAPER, f"{MIDDLE} {SMALL}")
    picture.box(left + 186, 150, 60, 48, PAPER, RULE)
    picture.text(left + 216, 178, "its log", INK, f"{MIDDLE} {SMALL}")
    picture.line(left + 136, 174, left + 183, 174, ARROW)
    picture.box(left + 14, 300, 232, 62, OTHER)
    picture.text(left + 130, 324, "server of the engine", PAPER, f"{MIDDLE} {BOLD}")
    picture.text(left + 130, 344, "NATS JetStream: the stream", PAPER, f"{MIDDLE} {SMALL}")


def _clients(picture: Picture) -> None:
    for x, words in ((20, "publisher"), (160, "subscribers"), (314, "another client")):
        picture.box(x, 20, 120, 34, PAPER, RULE)
        picture.text(x + 60, 42, words, INK, MIDDLE)
    picture.line(60, 56, 60, 146, ARROW)
    picture.text(46, 92, "1", INK, BOLD)
    picture.line(84, 148, 84, 58, ARROW)
    picture.text(91, 92, "5", INK, BOLD)
    picture.line(122, 148, 206, 58, ARROW)
    picture.text(180, 106, "6", INK, BOLD)
    picture.line(374, 56, 374, 146, ARROW)
    picture.curve("M340 148 C 318 106, 270 100, 158 160", f"{DASHED} {ARROW}")
    picture.text(268, 112, "relay", FAINT, SMALL)


def _replication(picture: Picture) -> None:
    picture.line(80, 200, 80, 296, ARROW)
    picture.text(66, 252, "2", INK, BOLD)
    picture.line(108, 298, 108, 202, ARROW)
    picture.text(164, 192, "4", INK, BOLD)
    for left in (268, 548):
        picture.line(left, 326, left + 44, 326, ARROW)
        picture.line(left + 44, 338, left, 338, ARROW)
    picture.text(286, 318, "3", INK, BOLD)
    for _, left in HOSTS[1:]:
        picture.line(left + 74, 298, left + 74, 202, ARROW)
        picture.text(left + 84, 252, "reads the stream", FAINT, SMALL)


ROLES = {
    "__main__": "python -m syncbrok",
    "cli": "the commands",
    "config": "how it runs",
    "bench": "figures beside ceilings",
    "cluster": "one log on several machines",
    "frontends": "ways in and out",
    "client": "speaks HTTP only",
    "pipeline": "the log as data, on Spark",
    "yaml_file": "a mistake has a line",
    "web": "the page, as it is served",
    "space": "the container: owns journal, dispatcher and every lifetime",
    "log": "bytes and files; synchronous",
    "delivery": "who gets what, when; and taking it there",
    "model": "the nouns; standard library only",
}


def rooms() -> str:
    """Rooms from top to bottom as the contracts order them; arrows point down only."""
    contracts = _contracts()
    floors = [floor.replace("(", "").replace(")", "").split(" | ") for floor in contracts["syncbrok"]]
    width, gap, y = 860, 14, 20
    boxes: list[tuple[float, int, float, str, list[str], int]] = []
    for floor in floors:
        widths = _widths(floor, contracts, width - 40 - gap * (len(floor) - 1))
        lines = [list(_files(contracts, room, int(each / 6.6))) for room, each in zip(floor, widths, strict=True)]
        height = 54 + 17 * max(len(found) for found in lines)
        x = 20.0
        for room, each, found in zip(floor, widths, lines, strict=True):
            boxes.append((x, y, each, room, found, height))
            x += each + gap
        y += height + 26
    picture = Picture(width, y, "The rooms of Syncbrok: a room imports only rooms below it")
    for left, top, each, room, found, height in boxes:
        picture.box(left, top, each, height, "#f4f6f8", RULE)
        picture.text(left + 12, top + 21, room, PARENT, BOLD)
        picture.text(left + 12, top + 39, ROLES[room], FAINT, SMALL)
        for row, words in enumerate(found):
            picture.text(left + 12, top + 62 + 17 * row, words, INK, SMALL)
    for below in sorted({top for _, top, *_ in boxes if top > 20}):
        picture.line(width / 2, below - 24, width / 2, below - 3, ARROW)
    return picture.svg()


def _widths(floor: list[str], contracts: dict[str, list[str]], width: float) -> list[float]:
    """A room that is one file needs room for its role only; the others share what is left."""
    small = {room: 6.2 * len(ROLES[room]) + 30 for room in floor if f"syncbrok.{room}" not in contracts}
    if len(small) == len(floor):
        return [width / len(floor)] * len(floor)
    rest = (width - sum(small.values())) / (len(floor) - len(small))
    return [small.get(room, rest) for room in floor]


def _contracts() -> dict[str, list[str]]:
    """Package -> its layers, top first, of every layers contract."""
    tool: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layered = [contract for contract in tool["contracts"] if contract["type"] == "layers"]
    return {container: contract["layers"] for contract in layered for container in contract["containers"]}


def _files(contracts: dict[str, list[str]], room: str, chars: int) -> Iterator[str]:
    """The files of a room, top first, wrapped; files side by side stand between commas, steps between >."""
    layers = contracts.get(f"syncbrok.{room}", [])
    steps = [", ".join(layer.replace("(", "").replace(")", "").split(" | ")) for layer in layers]
    yield from textwrap.wrap(" > ".join(steps), chars)


PICTURES = {"family.svg": family, "concepts.svg": concepts, "cluster.svg": cluster, "rooms.svg": rooms}


def main() -> None:
    """Write every picture into docs/."""
    for name, draw in PICTURES.items():
        (ROOT / "docs" / name).write_text(draw())


if __name__ == "__main__":
    main()
