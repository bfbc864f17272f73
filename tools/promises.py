"""Writes docs/promises.md: each promise and each rule beside the tests that guard it (``make docs``).

A test names what it guards in its docstring: ``RULES 12``, ``RULES 3, 14``, ``DESIGN 1, causal``. So the page cannot
name a test that does not exist. ``tests/whole/test_promises.py`` checks that nothing is without a test.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs" / "promises.md"

PROMISES = {
    "durable": "201 means written and fsynced. Records of one moment share one fsync; nothing is acknowledged before "
    "it.",
    "at least once": "Every subscriber the queue had when the message was accepted gets it at least once; `webhook-id` "
    "never changes between attempts.",
    "causal": "A child is sent only after every parent is complete and the log has recorded that on disk; so no "
    "attempt of a parent starts after an attempt of its child, crash or not.",
    "nothing lost": "A message ends delivered, dead (with the reason), expired or dropped by an operator; each end is "
    "a record.",
    "bounded": "A hanging subscriber uses up only its own window of attempts and disk space, no memory; "
    "messages without an unfinished ancestor there are not delayed.",
    "who may speak": "Only who can connect and has a token, where there are tokens; no web page of another site; other "
    "machines only where the configuration says so.",
}
RULES_MAX = 38
_CITED = re.compile(r"RULES (\d+(?:(?:, | and | to )\d+)*)")
_PROMISED = re.compile(r"DESIGN 1[ ,(:]+([a-z, ]+)")


def guards() -> dict[str, list[str]]:
    """``"12"`` or ``"causal"`` -> the tests that cite it, as ``tests/test_x.py::test_y``."""
    found: dict[str, list[str]] = {name: [] for name in (*PROMISES, *map(str, titles()))}
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        for test, words in _tests(file):
            for subject in dict.fromkeys(cited(words)):
                found.setdefault(subject, []).append(f"{file.relative_to(ROOT).as_posix()}::{test}")
    return found


def cited(words: str) -> Iterator[str]:
    """The rules and promises that a docstring cites."""
    words = " ".join(words.split())
    for numbers in _CITED.findall(words):
        for part in re.split(r", | and ", numbers):
            first, _, last = part.partition(" to ")
            yield from map(str, range(int(first), int(last or first) + 1))
    for names in _PROMISED.findall(words):
        yield from (name for name in PROMISES if name in names)


def _tests(file: Path) -> Iterator[tuple[str, str]]:
    """Name and docstring of each test; a class's own docstring and the module's count for none."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            words = ast.get_docstring(node)
            if words and node.name.lower().startswith("test"):
                yield node.name, words


def page() -> str:
    """The page's text."""
    found = guards()
    lines = [
        "# Promises, and the tests that guard them",
        "",
        "Written by `make docs` from the docstrings of the tests: each says which rule or promise it guards. The",
        "promises are those of [architecture.md](architecture.md#1-what-it-promises), the rules those of",
        "[rules.md](rules.md).",
        "",
        "## Promises",
        "",
        "| promise | tests |",
        "|---|---|",
        *(f"| **{name.capitalize()}.** {words} | {_links(found[name])} |" for name, words in PROMISES.items()),
        "",
        "## Rules",
        "",
        "| rule | tests |",
        "|---|---|",
        *(f"| {number}. {title} | {_links(found[str(number)])} |" for number, title in titles().items()),
    ]
    return "\n".join(lines) + "\n"


def titles() -> dict[int, str]:
    """Number -> the beginning of each rule in docs/rules.md, one sentence or clause."""
    text = (ROOT / "docs" / "rules.md").read_text()
    rules = re.findall(r"^(\d+)\. (.*?)(?=^\d+\. |^## |\Z)", text, re.MULTILINE | re.DOTALL)
    before_its_list = (re.split(r"^ +- ", words, maxsplit=1, flags=re.MULTILINE)[0] for _, words in rules)
    return {
        int(number): _first_sentence(" ".join(words.split()))
        for (number, _), words in zip(rules, before_its_list, strict=True)
    }


def _first_sentence(words: str) -> str:
    sentence = re.split(r"(?<=[.;:]) (?=[A-Z`a-z])", words)
    taken = sentence[0]
    for more in sentence[1:]:
        if len(taken) > 60:
            break
        taken += " " + more
    return taken.rstrip(";:").replace("|", "\\|")


def _links(tests: list[str]) -> str:
    return "<br>".join(f"[`{name.partition('::')[2]}`](../{name.partition('::')[0]})" for name in tests) or "none"


if __name__ == "__main__":
    TARGET.write_text(page())
