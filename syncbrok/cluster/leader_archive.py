"""The notes of what is archived, as a job beside a node has them made: it asks the leader, by way of its own node.

The job has written the archive already, so nothing is lost where nobody can be asked: retention keeps what it does not
know to be archived, and the next run of the job asks again for all that the leader does not know.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from syncbrok.cluster.job_lease import RENEWED_EVERY_S, JobPhase
from syncbrok.cluster.signed_requests import SignedRequests
from syncbrok.log.segments.retention import Copy, line_of, parse_lines
from syncbrok.model import limits
from syncbrok.model.errors import SyncbrokError

_PATH: Final = "/v1/log/archived"
_BODY_BYTES: Final = limits.json_bytes_max // 4
_ANSWER_BYTES_MAX: Final = 64 * limits.MIB
_ANSWER_S: Final = 30.0
"""for a quorum, too"""
_PATIENCE_S: Final = 60.0
"""a failover is over by then"""
_AGAIN_S: Final = 1.0
_LATER: Final = (408, 429, 500, 502, 503, 504)


class NotNoted(SyncbrokError):
    """The leader could not be asked, or has refused; the archive is as it was."""

    slug = "not-noted"


class LeaderArchive:
    """``url``: of a node. ``job``: names the job, see ``JobLease``. ``wait`` sleeps for so many seconds, ``clock_s``
    never goes back."""

    def __init__(
        self,
        url: str,
        requests: SignedRequests,
        job: str = "",
        wait: Callable[[float], object] = time.sleep,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = url
        self._requests = requests
        self._job = job
        self._wait = wait
        self._clock_s = clock_s

    @contextmanager
    def alone(self, log: str) -> Iterator[None]:
        """Inside no other job archives this log, but for one that the leader lets in where it has not heard of this one
        for a lease. Raises ``NotNoted`` where another one does, and as ``copies``."""
        self.copies(log)
        self._ask("POST", self._body(log, (), JobPhase.BEGINS))
        ended = threading.Event()
        renewing = threading.Thread(target=self._renew, args=(log, ended), name="syncbrok job lease", daemon=True)
        renewing.start()
        try:
            yield
        finally:
            ended.set()
            renewing.join()
            with suppress(OSError):  # else it is over soon
                self._asked("POST", self._body(log, (), JobPhase.ENDS))

    def _renew(self, log: str, ended: threading.Event) -> None:
        while not ended.wait(RENEWED_EVERY_S):
            with suppress(OSError):  # a refusal is told to ``note``, too
                self._asked("POST", self._body(log, (), JobPhase.GOES_ON))

    def _body(self, log: str, lines: Sequence[str], phase: JobPhase = JobPhase.GOES_ON) -> bytes:
        return json.dumps({"log": log, "lines": lines, "job": self._job, "phase": phase}).encode()

    def copies(self, log: str) -> list[Copy]:
        """The copies that the leader has noted of ``log`` (its uuid in hexadecimal). Raises ``NotNoted``."""
        told = self._ask("GET")
        if told.get("log") != log:
            what = f"the cluster at {self._url} has the log {told.get('log')}, and the directory {log}"
            raise NotNoted(f"{what}; give --config of the node whose directory that is")
        return list(parse_lines("\n".join(told["lines"])))

    def note(self, log: str, copies: Sequence[Copy]) -> int:
        """Have these noted for all nodes; how many were new. Raises ``NotNoted``."""
        bodies = _bodies([line_of(one) for one in copies])
        return sum(int(self._ask("POST", self._body(log, one))["noted"]) for one in bodies)

    def _ask(self, method: str, body: bytes = b"") -> dict[str, Any]:
        until_s = self._clock_s() + _PATIENCE_S
        while True:
            try:
                status, told = self._asked(method, body)
            except OSError as silent:
                status, told = 503, {"detail": str(silent)}
            if status == 200:
                return told
            if status not in _LATER or self._clock_s() > until_s:
                what = f"{self._url} answers {status} to {method} {_PATH}: {told.get('detail', 'it gives no reason')}"
                mend = "What is archived stays archived; run this again once a node of the cluster leads"
                raise NotNoted(f"{what}. {mend}", status=status)
            self._wait(_AGAIN_S)

    def _asked(self, method: str, body: bytes) -> tuple[int, dict[str, Any]]:
        with self._requests.answered(self._url, method, _PATH, body, _ANSWER_S) as answer:
            try:
                told = json.loads(answer.read(_ANSWER_BYTES_MAX))
            except ValueError:
                told = None
        if not isinstance(told, dict):
            raise OSError(f"{self._url} answers something else; is a node of the cluster there?")
        return answer.status, told


def _bodies(lines: Sequence[str]) -> Iterator[list[str]]:
    """All of them, in parts of which each is one request."""
    part: list[str] = []
    size = 0
    for line in lines:
        if part and size + len(line) > _BODY_BYTES:
            yield part
            part, size = [], 0
        part.append(line)
        size += len(line) + 4  # quotes, comma, blank
    if part:
        yield part
