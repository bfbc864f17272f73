"""Explains errors of Spark: the Python error inside, or the first words of the JVM, without the stacks of both. A
failed task prints 100 lines and more."""

import re
from typing import Final, NamedTuple

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

_TRACEBACK: Final = "Traceback (most recent call last):\n"
_LINES_MAX: Final = 20
_STATE: Final = re.compile(r"[\s.]*SQLSTATE: \w{5}\b")
_PLAN: Final = re.compile(r";\n(?=['+: A-Za-z]).*", re.DOTALL)
_CLASS: Final = re.compile(r"((?:[A-Za-z_]\w*\.)*[A-Za-z_][\w$]*)(?::\s+|$)")
_CALLING: Final = re.compile(r"An error occurred while calling \S+\n: ")
_QUERY: Final = "\n=== Streaming Query ==="
_OURS: Final = re.compile(r"^\[PYTHON_\w+\] [^:\n]*: (syncbrok\.[\w.]+: .*)", re.DOTALL)
_FRAME: Final = re.compile(r"\n\s+at [\w.$/]+|\n\nDriver stacktrace:|\n\t\.\.\. \d+ more")
_CAUSE: Final = "\nCaused by: "


class ErrorSummary(NamedTuple):
    """An error in short. ``kind`` is the name of its class, in Python or Java; ``message`` may have several lines."""

    kind: str
    message: str


def is_from_spark(error: BaseException) -> bool:
    """True if Spark raised it, or the way to Spark broke."""
    return isinstance(error, PySparkException | Py4JError | ConnectionError)


def explained(error: BaseException) -> ErrorSummary:
    """A short explanation of an error that Spark raised, for people."""
    if isinstance(error, Py4JNetworkError | ConnectionError):
        return ErrorSummary(
            type(error).__name__,
            "Spark's Java process ended while it worked, or cannot be reached; where memory is short the system ends "
            "it (spark.driver.memory says how much it may take)",
        )
    text = str(error).partition(_QUERY)[0]
    _, traceback, told = text.rpartition(_TRACEBACK)
    if not traceback and (ours := _OURS.match(text)):
        return _from_python(ours[1])
    return _from_python(told) if traceback else _from_java(text, type(error).__name__)


def _from_python(told: str) -> ErrorSummary:
    """The error in ``told``: what follows the last "Traceback" line, which is indented frames, then the error, then
    maybe Java's frames."""
    lines = _FRAME.split(told)[0].splitlines()
    frames = next((number for number, line in enumerate(lines) if line and not line[0].isspace()), len(lines))
    raised = _shortened("\n".join(lines[frames:]))
    named = _CLASS.match(raised)
    if named is None:
        return ErrorSummary("", raised)
    path = named[1]
    kind = path.rpartition(".")[2]
    message = raised[named.end() :]
    if path.startswith("syncbrok.") and message:
        return ErrorSummary(kind, message)
    return ErrorSummary(kind, f"{kind}: {message}" if message else kind)


def _from_java(text: str, kind: str) -> ErrorSummary:
    """The last cause in ``text``, which is the first that happened."""
    cause = text.rpartition(_CAUSE)[2] if _CAUSE in text else _CALLING.sub("", text)
    message = _shortened(_FRAME.split(cause)[0])
    named = _CLASS.match(message)
    if named is not None and "." in named[1]:
        kind = named[1].rpartition(".")[2]
        message = message[named.end() :] or kind
        if not message.startswith("["):  # an error class of Spark's says what it is
            message = message if message == kind else f"{kind}: {message}"
    return ErrorSummary(kind, message)


def _shortened(text: str) -> str:
    """``text`` without the state of the SQL standard, the plan of the query and what would fill a second screen."""
    lines = _STATE.sub("", _PLAN.sub("", text)).strip().splitlines()
    more = [f"... ({len(lines) - _LINES_MAX} more lines)"] if len(lines) > _LINES_MAX else []
    return "\n".join(line.rstrip() for line in [*lines[:_LINES_MAX], *more])
