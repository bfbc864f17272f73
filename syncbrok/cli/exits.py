"""The exit codes of commands, and the errors that become them. Scripts rely on the numbers."""

from typing import IO, Any, Final

import click

from syncbrok.model.errors import ClientFault, Fatal, LogFull, SyncbrokError

FAILED: Final = 1
USAGE: Final = 2
NOT_FOUND: Final = 3
REFUSED: Final = 4
UNREACHABLE: Final = 5
LOG_CORRUPT: Final = 65
LOG_FULL: Final = 73
LOG_FAILED: Final = 74
LOG_LOCKED: Final = 75
FENCED: Final = 76
NODE_REFUSED: Final = 78

EXIT_CODES: Final = """\b
Exit codes:
  0   done
  1   it did not work; standard error says why
  2   a mistake on the command line or in a configuration file
  3   no such queue, subscriber, message or log
  4   the broker refused it: a conflict, a wrong setting, no permission
  5   the broker cannot be reached
  65  the log is damaged
  73  no room on the disk for the log
  74  the disk failed: reading, writing or fsyncing the log
  75  another process has the log open
  76  another node of the cluster leads: start it again, it follows
  78  the node cannot take part: its log, its key or the engine is not what the others have"""
SEE_EXIT_CODES: Final = "0 is the exit code of success; syncbrok --help lists the others."
"""in the help of each other command: the table itself would be half of it"""


class CommandFailed(click.ClickException):
    """Ends the command with ``exit_code`` after saying what happened, and what to do about it."""

    def __init__(self, message: str, exit_code: int = FAILED, mend: str = "") -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click declares it of the class
        self.mend = mend

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"syncbrok: {self.message}", file=file, err=True)
        if self.mend:
            click.echo(f"  {self.mend}", file=file, err=True)


def from_error(error: SyncbrokError) -> CommandFailed:
    """The end of a command that met ``error``."""
    return CommandFailed(error.detail, _code(error))


def _code(error: SyncbrokError) -> int:
    match error:
        case Fatal():
            return error.exit_code
        case LogFull():
            return LOG_FULL
        case ClientFault():
            return REFUSED
        case _:
            return FAILED
