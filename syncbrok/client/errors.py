"""The exceptions that the client raises."""

from collections.abc import Mapping
from typing import Any


class ClientError(Exception):
    """The root of the tree. ``str()`` says what happened and what to do about it."""


class Refused(ClientError):
    """The broker has answered no: the request is wrong, and nothing has changed. ``problem`` is its RFC 9457 document,
    whose ``type`` never changes."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.problem = dict(problem)
        detail = problem.get("detail") or problem.get("title") or "no reason was given"
        mend = problem.get("mend")
        super().__init__(f"{status}: {detail}{f' ({mend})' if mend else ''}")


class Unreachable(ClientError):
    """No answer, or none but "later", for as long as was tried. With idempotent publishing it is safe to repeat."""


class BadSignature(ClientError):
    """The request was not signed with the secret, or is too old. Answer 401 and do nothing."""
