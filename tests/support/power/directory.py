"""What a power loss leaves of a directory: the journal's system calls are recorded, and every state of the disk that
they allow can be made of them.

What was not fsynced may be there or not, or by sectors, in any order; a name that was not made durable by an fsync of
its directory may be the old one or the new one (names change in order, as on a file system with a journal). Files that
are written by other means (sidecars, checkpoints) are never there.
"""

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple

SECTOR_BYTES = 512
RECORDED = ("open", "pwrite", "ftruncate", "posix_fallocate", "fsync", "fdatasync", "rename", "unlink")


class Event(NamedTuple):
    """A call that changed the disk; ``file`` is a number that a file keeps under every name."""

    what: str
    file: int = 0
    offset: int = 0
    data: bytes = b""
    name: str = ""
    at_once: bool = False
    """written through a descriptor opened ``O_DSYNC``"""


class Recording:
    """The events of a directory, beginning with what stands in it and is on the disk."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.events: list[Event] = []
        self._names: dict[str, int] = {}
        self._descriptors: dict[int, tuple[int, bool]] = {}
        self._files = 0
        self._lock = RLock()
        for path in sorted(directory.iterdir()) if directory.exists() else ():
            self._files += 1
            self._names[path.name] = self._files
            self.events.append(Event("name", self._files, name=path.name))
            self.events.append(Event("write", self._files, 0, path.read_bytes(), at_once=True))
        self.events.append(Event("sync", 0))

    def _opened(self, descriptor: int, path: Any, flags: int = 0, *_: Any) -> None:
        name = self._name(path)
        self._descriptors.pop(descriptor, None)
        if name == ".":
            self._descriptors[descriptor] = (0, False)
        if name is None or name == ".":
            return
        if name not in self._names:
            if not flags & os.O_CREAT:
                return
            self._files += 1
            self._names[name] = self._files
            self.events.append(Event("name", self._files, name=name))
        file = self._names[name]
        self._descriptors[descriptor] = (file, bool(flags & os.O_DSYNC))
        if flags & os.O_TRUNC:
            self.events.append(Event("size", file, 0))

    def _name(self, path: Any) -> str | None:
        path = Path(os.fsdecode(path))
        if path == self.directory:
            return "."
        return path.name if path.parent == self.directory else None

    def _called(self, call: str, result: Any, arguments: tuple[Any, ...]) -> None:
        if call == "open":
            self._opened(result, *arguments)
        elif call in ("rename", "unlink"):
            name = self._name(arguments[0])
            if name is None or name not in self._names:
                return
            file = self._names.pop(name)
            target = self._name(arguments[1]) if call == "rename" else ""
            if target:
                self._names[target] = file
            self.events.append(Event("rename" if target else "unname", file, data=name.encode(), name=target or ""))
        elif arguments[0] in self._descriptors:
            file, at_once = self._descriptors[arguments[0]]
            if call == "pwrite":
                self.events.append(Event("write", file, arguments[2], bytes(arguments[1][:result]), at_once=at_once))
            elif call == "ftruncate":
                self.events.append(Event("size", file, arguments[1]))
            elif call == "posix_fallocate":
                self.events.append(Event("room", file, arguments[1] + arguments[2]))
            else:
                self.events.append(Event("sync", file))

    @contextmanager
    def running(self) -> Iterator["Recording"]:
        """Record what this process does to the directory meanwhile."""
        real = {name: getattr(os, name) for name in RECORDED}

        def recorded(name: str) -> Callable[..., Any]:
            def call(*arguments: Any, **named: Any) -> Any:
                with self._lock:
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


def after_power_loss(events: list[Event], dice: random.Random) -> dict[str, bytes]:
    """One of the states of the disk (name -> content) that a power loss after these events may leave."""
    # Which events are durable is told by the syncs behind them.
    durable = [event.at_once for event in events]
    synced: set[int] = set()
    for number in range(len(events) - 1, -1, -1):
        event = events[number]
        if event.what == "sync":
            synced.add(event.file)
        names = event.what in ("name", "rename", "unname")
        durable[number] = durable[number] or (0 if names else event.file) in synced
    name_events = [number for number, event in enumerate(events) if event.what in ("name", "rename", "unname")]
    sure = sum(durable[number] for number in name_events)
    kept = set(name_events[: dice.randint(sure, len(name_events))])
    likely = dice.choice((0.0, 0.5, 1.0))
    contents: dict[int, bytearray] = {}
    names: dict[str, int] = {}
    for number, event in enumerate(events):
        if event.what in ("name", "rename", "unname"):
            if number in kept:
                names.pop(event.data.decode(), None)
                if event.name:
                    names[event.name] = event.file
            continue
        content = contents.setdefault(event.file, bytearray())
        if event.what == "write":
            write_sectors(content, event, durable[number], likely, dice)
        elif event.what in ("size", "room") and (durable[number] or dice.random() < likely):
            if event.what == "size":
                del content[event.offset :]
            content.extend(bytes(max(0, event.offset - len(content))))
    return {name: bytes(contents.get(file, b"")) for name, file in names.items()}


def write_sectors(content: bytearray, event: Event, durable: bool, likely: float, dice: random.Random) -> None:
    """A write of which, unless it is durable, each sector is there or not."""
    end = event.offset + len(event.data)
    at = event.offset
    while at < end:
        following = min(end, (at // SECTOR_BYTES + 1) * SECTOR_BYTES)
        if durable or dice.random() < likely:
            content.extend(bytes(max(0, following - len(content))))
            content[at:following] = event.data[at - event.offset : following - event.offset]
        at = following


def restore(state: dict[str, bytes], directory: Path) -> None:
    """Write a state of the disk into an empty directory."""
    directory.mkdir()
    for name, content in state.items():
        (directory / name).write_bytes(content)
