"""``docs/frontends.md`` says what is so: its configuration is one, its code stands in the frontends.

Its commands and programs are run by ``test_readme.py``, behind the README. A block of Python that is marked
``<!-- program -->`` is such a program; any other one is a quotation.
"""

import re
from pathlib import Path

from syncbrok.config import load_config
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


def test_a_program_shows_what_it_prints() -> None:
    """INTERFACES 3: behind each program of the page stands its output, which is compared where it is run."""
    programs = blocks("python", "program")
    assert len(programs) >= 3
    assert all(shown for _, shown in programs)


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
