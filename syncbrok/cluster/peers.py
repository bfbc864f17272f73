"""The other nodes as holders of segments: what each has, and a copy of one, over HTTP (``/v1/log/segments``).

All of it blocks. A peer that does not answer, or answers something else, is passed over; who asks looks elsewhere.
"""

import http.client
import json
import os
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from syncbrok.cluster.membership import NodeReport
from syncbrok.cluster.peer_signature import PeerSignature
from syncbrok.cluster.signed_requests import SignedRequests
from syncbrok.log.segments import files
from syncbrok.log.segments.descriptors import open_file
from syncbrok.log.segments.sealed_segments import SealedSegment
from syncbrok.model import limits

_PATH: Final = "/v1/log/segments"
_LIST_BYTES_MAX: Final = 64 * limits.MIB
_CHUNK_BYTES: Final = limits.MIB


class PeerSegments(NamedTuple):
    """The segments that one node holds; ``problem`` says why that is not known."""

    node: NodeReport
    segments: tuple[SealedSegment, ...] = ()
    problem: str = ""
    erased_before: int | None = 0
    """see ``ReplicatedJournal.erased_before``"""

    def describe(self) -> str:
        """In words."""
        if self.problem:
            return f"{self.node.node} at {self.node.url}: {self.problem}"
        held = self.segments
        what = f"holds {held[0].first} to {held[-1].last}" if held else "holds no sealed segment"
        return f"{self.node.node} at {self.node.url} {what}"


class Peers:
    """``own``: the name of this node. ``heard``: who was heard lately. ``tls``: with what nodes are spoken to whose
    URL is https; None: as this system does."""

    def __init__(
        self,
        own: str,
        heard: Callable[[], Sequence[NodeReport]],
        signature: PeerSignature,
        tls: Callable[[], ssl.SSLContext | None] = lambda: None,
    ) -> None:
        self._own = own
        self._heard = heard
        self._requests = SignedRequests(signature, tls)

    def ask(self) -> list[PeerSegments]:
        """The segments that each of the others holds, the leader's first."""
        others = [one for one in self._heard() if one.node != self._own]
        return [self._list(one) for one in sorted(others, key=lambda one: (one.role != "leading", one.node))]

    def _list(self, node: NodeReport) -> PeerSegments:
        try:
            with self._asked(node, _PATH) as answer:
                told = answer.read(_LIST_BYTES_MAX)
            said = json.loads(told)
            segments = tuple(
                SealedSegment(int(one["first"]), int(one["last"]), int(one["bytes"]), str(one["checksum"]))
                for one in said["segments"]
            )
            erased = said.get("erased_before", 0)  # an older version says nothing of it
        except OSError as silent:
            return PeerSegments(node, problem=str(silent))
        except (ValueError, KeyError, TypeError) as odd:
            return PeerSegments(node, problem=f"answers something else ({odd!r})")
        return PeerSegments(node, tuple(sorted(segments)), erased_before=None if erased is None else int(erased))

    def fetch(self, node: NodeReport, wanted: SealedSegment, path: Path) -> None:
        """Write the node's copy to ``path``, a new file, fsynced; it is not looked at. Raises ``OSError`` where there
        is none, or one of another length; ``LogFull`` and ``LogFailed`` where it cannot be written."""
        with self._asked(node, f"{_PATH}/{wanted.first}") as answer:
            if answer.length != wanted.bytes:
                raise OSError(f"{node.url} has {answer.length} bytes of {wanted.name}, and not {wanted.bytes}")
            descriptor = open_file(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            try:
                at = 0
                while chunk := answer.read(_CHUNK_BYTES):
                    files.write_at(descriptor, chunk, at, path)
                    at += len(chunk)
                if at != wanted.bytes:
                    raise OSError(f"{node.url} broke off in the middle of {wanted.name}")
                files.sync_new(descriptor, path)
            finally:
                os.close(descriptor)

    @contextmanager
    def _asked(self, node: NodeReport, path: str) -> Iterator[http.client.HTTPResponse]:
        """The answer 200 to a signed GET. Raises ``OSError``."""
        with self._requests.answered(node.url, "GET", path) as answer:
            if answer.status != 200:
                raise OSError(f"{node.url} answers {answer.status} to GET {path}")
            yield answer
