"""What a power loss leaves of a directory and all below it (``tests.support.power.directory``: of a journal's alone).

Recorded: ``open``, ``pwrite``, ``ftruncate``, ``posix_fallocate``, ``fsync``, ``fdatasync``, ``rename``, ``replace``,
``unlink`` and ``mkdir``. What reaches a file by other ways (``Path.open``, ``write_bytes``) is seen at its next fsync
or rename: the file is compared with what was recorded of it, and the difference counts as written just before. So is a
directory that another process made, at the first fsync of it or below it. What has neither is not there. Nothing is
modelled of times and modes: every file is 0600 and new.

Not fsynced bytes are there or not, by sectors. A name is sure once its directory was fsynced; others are kept in
order, or each for itself. A directory whose own name is lost takes with it what was in it.
"""

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any

from tests.support.power.directory import Event, write_sectors

RECORDED = (
    "open", "pwrite", "ftruncate", "posix_fallocate", "fsync", "fdatasync", "rename", "replace", "unlink", "mkdir",
)  # fmt: skip
NAMES = ("name", "directory", "rename", "unname")
State = dict[str, bytes | None]
"""path below the root -> content, None for a directory; those above come first"""


class TreeRecording:
    """The events below ``root``, which is made where it is not there. ``Event.name`` and ``Event.data`` (the name
    before) are paths below it; ``Event.offset`` of a change of names is the number of its directory."""

    def __init__(self, root: Path) -> None:
        root.mkdir(exist_ok=True)
        self.root = root
        self.events: list[Event] = []
        self._names: dict[str, int] = {"": 0}
        self._contents: dict[int, bytearray] = {}
        self._at_once: set[int] = set()
        """descriptors opened ``O_DSYNC``"""
        self._files = 0
        self._lock = RLock()
        for path in sorted(root.rglob("*")):
            name = path.relative_to(root).as_posix()
            self._new("directory" if path.is_dir() else "name", name)
            if path.is_file():
                self._look(name)
        self.events += [Event("sync", number) for number in range(self._files + 1)]

    def _below(self, path: Any) -> str | None:
        """Relative to the root; None for what is not below it."""
        try:
            found = Path(os.fsdecode(path)).relative_to(self.root).as_posix()
        except (TypeError, ValueError):
            return None
        return "" if found == "." else found

    def _new(self, what: str, name: str) -> None:
        self._files += 1
        self._names[name] = self._files
        self._contents[self._files] = bytearray()
        self.events.append(Event(what, self._files, self._directory(name), name=name))

    def _directory(self, name: str) -> int:
        return self._names[name.rpartition("/")[0]]

    def _look(self, name: str) -> None:
        """Record what has reached the file unseen."""
        if name not in self._names:
            self._new("name", name)
        file = self._names[name]
        known = self._contents[file]
        real = (self.root / name).read_bytes()
        if real != known:
            same = next(
                (at for at, (a, b) in enumerate(zip(known, real, strict=False)) if a != b), min(len(known), len(real))
            )
            if len(real) < len(known):
                self._record(Event("size", file, len(real)))
            if real[same:]:
                self._record(Event("write", file, same, real[same:]))

    def _look_above(self, name: str) -> None:
        """Record the directories down to ``name`` that were made unseen."""
        steps = name.split("/")
        for one in ("/".join(steps[:depth]) for depth in range(1, len(steps) + 1)):
            if one not in self._names and (self.root / one).is_dir():
                self._new("directory", one)

    def _record(self, event: Event) -> None:
        self.events.append(event)
        apply(self._contents[event.file], event)

    def _called(self, call: str, result: Any, arguments: tuple[Any, ...]) -> None:
        if call == "open":
            self._opened(result, *arguments)
        elif call == "mkdir":
            name = self._below(arguments[0])
            if name is not None:
                self._new("directory", name)
        elif call == "unlink":
            name = self._below(arguments[0])
            if name in self._names:
                self.events.append(Event("unname", self._names.pop(name), self._directory(name), name.encode()))
        elif call in ("rename", "replace"):
            name, target = self._below(arguments[0]), self._below(arguments[1])
            if name is not None and target is not None:
                file = self._names.pop(name)
                self._names[target] = file
                self.events.append(Event("rename", file, self._directory(target), name.encode(), target))
        else:
            self._to_descriptor(call, result, arguments)

    def _opened(self, descriptor: int, path: Any, flags: int = 0, *_: Any) -> None:
        self._at_once.discard(descriptor)
        name = self._below(path)
        if name is None or (name not in self._names and not flags & os.O_CREAT):
            return
        if name not in self._names:
            self._new("name", name)
        if flags & os.O_DSYNC:
            self._at_once.add(descriptor)
        if flags & os.O_TRUNC:
            self._record(Event("size", self._names[name], 0))

    def _to_descriptor(self, call: str, result: Any, arguments: tuple[Any, ...]) -> None:
        descriptor = arguments[0]
        name = self._below(Path(f"/proc/self/fd/{descriptor}").readlink())
        if name is None or name.endswith(" (deleted)"):
            return
        if call in ("fsync", "fdatasync"):
            self._look_above(name)
            if not (self.root / name).is_dir():
                self._look(name)
            self.events.append(Event("sync", self._names[name]))
            return
        file = self._names[name]
        if call == "pwrite":
            data = bytes(arguments[1][:result])
            self._record(Event("write", file, arguments[2], data, at_once=descriptor in self._at_once))
        elif call == "ftruncate":
            self._record(Event("size", file, arguments[1]))
        else:
            self._record(Event("room", file, arguments[1] + arguments[2]))

    @contextmanager
    def running(self) -> Iterator["TreeRecording"]:
        """Record what this process does below the root meanwhile."""
        real = {name: getattr(os, name) for name in RECORDED}

        def recorded(name: str) -> Callable[..., Any]:
            def call(*arguments: Any, **named: Any) -> Any:
                with self._lock:
                    if name in ("rename", "replace"):
                        source = self._below(arguments[0])
                        if source is not None:
                            self._look(source)
                    result = real[name](*arguments, **named)
                    self._called(name, result, arguments)
                return result

            return call

        for name in RECORDED:
            setattr(os, name, recorded(name))
        try:
            yield self
        finally:
            for name, function in real.items():
                setattr(os, name, function)


def apply(content: bytearray, event: Event) -> None:
    """The whole of an event."""
    end = event.offset + len(event.data)
    if event.what == "size":
        del content[end:]
    content.extend(bytes(max(0, end - len(content))))
    if event.what == "write":
        content[event.offset : end] = event.data


def tree_after_power_loss(events: list[Event], dice: random.Random, *, in_order: bool) -> State:
    """One of the states of the disk that a power loss after these events may leave."""
    durable = _durable(events)
    likely = dice.choice((0.0, 0.5, 1.0))
    kept = _names_kept(events, durable, likely, dice, in_order=in_order)
    contents: dict[int, bytearray] = {}
    for event, sure in zip(events, durable, strict=True):
        if event.what in NAMES or event.what == "sync":
            continue
        content = contents.setdefault(event.file, bytearray())
        if event.what == "write":
            write_sectors(content, event, sure, likely, dice)
        elif sure or dice.random() < likely:
            apply(content, event)
    names: dict[str, int] = {}
    for number in sorted(kept):
        names.pop(events[number].data.decode(), None)
        if events[number].name:
            names[events[number].name] = events[number].file
    directories = {event.file for event in events if event.what == "directory"}
    there = {name for name, file in names.items() if file in directories}
    return {
        name: None if name in there else bytes(contents.get(names[name], b""))
        for name in sorted(names)
        if there.issuperset(name[:at] for at, letter in enumerate(name) if letter == "/")
    }


def _durable(events: list[Event]) -> list[bool]:
    """Of each event, as the syncs behind it tell."""
    durable = [event.at_once for event in events]
    synced: set[int] = set()
    for number in range(len(events) - 1, -1, -1):
        event = events[number]
        if event.what == "sync":
            synced.add(event.file)
        durable[number] = durable[number] or (event.offset if event.what in NAMES else event.file) in synced
    return durable


def _names_kept(
    events: list[Event], durable: list[bool], likely: float, dice: random.Random, *, in_order: bool
) -> set[int]:
    changes = [number for number, event in enumerate(events) if event.what in NAMES]
    if not in_order:
        return {number for number in changes if durable[number] or dice.random() < likely}
    sure = max((at + 1 for at, number in enumerate(changes) if durable[number]), default=0)
    return set(changes[: dice.randint(sure, len(changes))])


def restore_tree(state: State, root: Path) -> None:
    """Write a state of the disk into a new directory."""
    root.mkdir()
    for name, content in state.items():
        path = root / name
        if content is None:
            path.mkdir()
        else:
            path.touch(0o600)
            path.write_bytes(content)
