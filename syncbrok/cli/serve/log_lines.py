"""The broker's log: one line per event on standard error, as JSON for machines or as text.

An event is its name (``syncbrok.space.commit_slow``) and fields. Values of fields are escaped: a line break in a name
never makes a second line. No content and no secret is ever given to a logger (RULES 19).
"""

import logging
import sys
from collections.abc import Mapping
from typing import Any, Final, TextIO

import orjson

from syncbrok.model.units import render_time

_OWN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_TEXT_CHARS_MAX: Final = 2_000


class JsonLines(logging.Formatter):
    """One JSON object a line: ``time``, ``level``, ``event``, ``logger``, then the fields of the event."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": render_time(int(record.created * 1e6)),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "logger": record.name,
            **fields_of(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=_shown, option=orjson.OPT_NON_STR_KEYS).decode()


class TextLines(logging.Formatter):
    """``time level event name=value ...`` for people; a traceback follows on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        time = render_time(int(record.created * 1e6))
        parts = [time[:23] + "Z", f"{record.levelname.lower():7}", _escaped(record.getMessage())]
        parts += [f"{name}={_escaped(value)}" for name, value in fields_of(record).items()]
        line = " ".join(parts)
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def fields_of(record: logging.LogRecord) -> Mapping[str, Any]:
    """The fields of an event."""
    return {name: value for name, value in vars(record).items() if name not in _OWN}


def start_logging(level: str, form: str, stream: TextIO | None = None) -> None:
    """Start logging; a second call replaces the first. Libraries are logged from ``warning`` on."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("syncbrok").setLevel(level.upper())
    logging.captureWarnings(capture=True)


def _shown(value: object) -> object:
    """A value for which JSON has no form, in a form that it has."""
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    if isinstance(value, bytes):
        return value.hex()
    return str(value)[:_TEXT_CHARS_MAX]


def _escaped(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    text = value if isinstance(value, str) else str(_shown(value) if isinstance(value, bytes) else value)
    text = text[:_TEXT_CHARS_MAX]
    return text if text and text.isprintable() and " " not in text and '"' not in text else repr(text)
