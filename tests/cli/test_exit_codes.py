"""INTERFACES 1: one table of exit codes, and no other code is ever used."""

import re
from pathlib import Path

import pytest

from syncbrok.cli import exits
from syncbrok.model import errors
from syncbrok.model.errors import Fatal, LogFull, SyncbrokError

ROOT = Path(__file__).parents[2]
OF_SINGLE = {exits.FAILED, exits.USAGE, exits.LOG_CORRUPT, exits.LOG_FULL, exits.LOG_FAILED, exits.LOG_LOCKED}
OF_SERVE = {*OF_SINGLE, exits.FENCED, exits.NODE_REFUSED}


def test_the_table_of_exit_codes_is_complete() -> None:
    """INTERFACES 1: the page names every code that ``serve`` ends with, ``--help`` those of all commands, and every
    error that stops the broker has one of them."""
    page = (ROOT / "docs/operations.md").read_text()
    table = page.partition("| exit code |")[2].partition("\n\n")[0]
    codes = {int(code) for row in re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE) for code in row.split(",")}
    assert codes == {0, *OF_SERVE, 128 + 2, 128 + 15}
    all_codes = {value for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)}
    assert {0, *all_codes} == {int(code) for code in re.findall(r"^  (\d+) ", exits.EXIT_CODES, re.MULTILINE)}
    fatal = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, Fatal)]
    assert {one("x").exit_code for one in fatal} <= OF_SERVE
    assert exits.from_error(LogFull("x")).exit_code == exits.LOG_FULL
    assert exits.from_error(SyncbrokError("x")).exit_code in OF_SERVE


def test_a_node_that_is_fenced_is_started_again_and_one_that_is_refused_is_not() -> None:
    """INTERFACES 1: a supervisor tells them apart by the number alone."""
    pytest.importorskip("nats", reason="needs syncbrok[cluster]")
    from syncbrok.cluster.leadership import Fenced
    from syncbrok.cluster.local_cluster import STAYS_DOWN
    from syncbrok.cluster.node import NodeRefused

    assert (Fenced("x").exit_code, NodeRefused("x").exit_code) == (exits.FENCED, exits.NODE_REFUSED)
    assert {exits.USAGE, exits.LOG_CORRUPT, exits.LOG_LOCKED, exits.NODE_REFUSED} == STAYS_DOWN
