"""``docs/frontends.md`` does what it says: its commands and programs are run, its code stands in the frontends.

A block marked ``<!-- tour -->`` is run by bash, one marked ``<!-- program -->`` by Python; a ``text`` block behind the
one and an ``output`` block behind the other show what is printed. Any other block of Python is a quotation.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from syncbrok.config import load_config
from tests.support.broker.process import BrokerProcess
from tests.whole.test_readme import Step, check, needs_curl, run_page
from tests.whole.test_tidy import ROOT

PAGE = ROOT / "docs" / "frontends.md"
_BLOCK = re.compile(r"(<!-- \w+ -->\n)?```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str, mark: str = "") -> list[tuple[str, str]]:
    """Each block of a language with this mark, and the text shown right behind it."""
    found = [(match[1] or "", match[2], match[3]) for match in _BLOCK.finditer(PAGE.read_text())]
    following = [(kind, text) for _, kind, text in found[1:]] + [("", "")]
    return [
        (text, after if kind_after == "output" else "")
        for (marked, kind, text), (kind_after, after) in zip(found, following, strict=True)
        if kind == language and marked.strip() == (f"<!-- {mark} -->" if mark else "")
    ]


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BrokerProcess]:
    """A broker, and the command ``syncbrok`` that speaks to it."""
    command = tmp_path / "bin" / "syncbrok"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m syncbrok "$@"\n')
    command.chmod(0o755)
    with BrokerProcess(tmp_path / "storage") as running:
        monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")
        monkeypatch.setenv("SYNCBROK_URL", running.url)
        yield running


@needs_curl
def test_the_commands_of_the_page_run(broker: BrokerProcess, tmp_path: Path) -> None:
    """Who types what the page shows sees what the page shows: pull and leases, events, the shell."""
    run_page(PAGE, tmp_path, {"10000": str(broker.port)})


@pytest.mark.parametrize("number", range(len(blocks("python", "program"))))
def test_the_programs_of_the_page_run(broker: BrokerProcess, number: int) -> None:
    """INTERFACES 3: the programs run as they stand, end by themselves, and print what is shown, in this order."""
    program, shown = blocks("python", "program")[number]
    broker.request("POST", "/v1/queues", {"name": "orders"})
    broker.request("POST", "/v1/queues/orders/messages", b"order 1")
    ran = subprocess.run(
        [sys.executable, "-c", program.replace(":10000", f":{broker.port}")],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    assert shown, "a program shows what it prints"
    check([Step(program, tuple(shown.splitlines()))], ran.stdout + "--- step 0 done")


def test_the_configuration_of_the_page_is_one(tmp_path: Path) -> None:
    """INTERFACES 4: a broker takes what the page shows, with the ports of the page's table."""
    ((written, _),) = blocks("yaml")
    (tmp_path / "broker.yml").write_text(written)
    frontends = load_config(tmp_path / "broker.yml", {}, {}).frontends
    ports = [line.split("|")[3].strip() for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    assert frontends.framed is not None
    assert frontends.topics is not None
    assert frontends.multiplexed is not None
    assert frontends.msgpack_bus is not None
    for port in (frontends.framed.port, frontends.topics.port, frontends.multiplexed.port):
        assert str(port) in ports
    assert f"{frontends.msgpack_bus.producer_port}, {frontends.msgpack_bus.consumer_port}" in ports


def test_what_the_page_quotes_stands_in_the_code() -> None:
    """Whoever writes a frontend after the page writes it after one that works."""
    sources = [
        ROOT / "syncbrok" / "frontends" / "over_tcp" / "msgpack_bus.py",
        ROOT / "syncbrok" / "cli" / "serve" / "broker.py",
    ]
    code = "\n".join(source.read_text() for source in sources)
    quoted = [text for text, _ in blocks("python")]
    assert len(quoted) >= 4
    for quotation in quoted:
        assert quotation in code, f"the code no longer says:\n{quotation}"
