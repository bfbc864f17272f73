"""``syncbrok ARGUMENTS`` against a running broker, in the test's own process."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from click.testing import CliRunner, Result

from syncbrok.cli.main import group
from tests.support.broker.process import BrokerProcess
from tests.support.http.recorder import Recorder

Run = Callable[..., Result]


def commands(broker: BrokerProcess) -> Run:
    """``run(*arguments)`` with this broker; fails the test unless the command ends with ``code``."""

    def called(*arguments: str, code: int = 0, given: bytes | str | None = None) -> Result:
        result = CliRunner().invoke(
            group, list(arguments), input=given, env={"SYNCBROK_URL": broker.url, "SYNCBROK_TOKEN": ""}
        )
        assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
        return result

    return called


def data(result: Result) -> Any:
    return json.loads(result.stdout)


def published(run: Run, *arguments: str, given: bytes | str = b"x") -> str:
    """The id that ``publish`` printed."""
    (line,) = run("publish", *arguments, given=given).stdout.splitlines()
    return line


@contextmanager
def dead_end_of(run: Run) -> Iterator[tuple[str, Recorder]]:
    """A queue whose subscriber ``billing`` answers 500 for as long as ``answer`` is not changed; no retries."""
    with Recorder(lambda _: 500) as recorder:
        queue = f"dead-{recorder.url.rpartition(':')[2].strip('/')}"
        run("queues", "create", queue, "--retry", "")
        run("subscribers", "create", queue, recorder.url, "--name", "billing")
        yield queue, recorder
