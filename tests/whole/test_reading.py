"""The pages are easy to read: no sentence of them is a long one.

A sentence counts from its capital to its full stop; tables, code and headings are none. A piece of code within one and
the text of a link count as what they are read as.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.whole.test_tidy import ROOT

WORDS_MAX: Final = 35
PAGES: Final = sorted(
    [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "storage/README.md")),
        *(ROOT / "docs").glob("*.md"),
        ROOT / "clients" / "typescript" / "README.md",
    ]
)
_ITEM: Final = re.compile(r"^\s*(?:> ?)?(?:[-*]|\d{1,2}\.) ")
_END: Final = re.compile(r"[.!?][)*\"'_]*\s+(?=[\"'(*_\[`]*[A-Z0-9`…])")
_SHORT: Final = re.compile(r"\b(?:e\.g|i\.e|etc|vs|cf)\.")


def blocks(page: str) -> Iterator[str]:
    """The paragraphs and items of lists in ``page``, each on one line."""
    block: list[str] = []
    code = False
    for line in [*page.splitlines(), ""]:
        fence = line.lstrip("> ").startswith("```")
        bare = line.lstrip("> ")
        ends = fence or code or not bare or bare.startswith(("|", "#", "<!--", "![")) or _ITEM.match(line)
        if ends and block:
            yield " ".join(block)
            block = []
        indented = line.startswith("    ") and not block and not _ITEM.match(line)  # code, without a fence
        if not (fence or code or indented) and bare and not bare.startswith(("|", "#", "<!--", "![")):
            block.append(_ITEM.sub("", line, count=1).lstrip("> ").strip())
        code ^= fence


def sentences(page: str) -> Iterator[str]:
    """The sentences of ``page``, with each piece of code as one word and each link as its text."""
    for block in blocks(page):
        text = re.sub(r"`+[^`]+`+", "Code", block)
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
        text = _SHORT.sub("short", text)
        yield from _END.split(text)


def words(sentence: str) -> int:
    """How many words of a sentence are read: a dash or a bracket by itself is none."""
    return sum(any(letter.isalnum() for letter in one) for one in sentence.split())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_sentence_is_hard(page: Path) -> None:
    """Whoever reads a page in another language than the own one can keep each sentence in mind."""
    long = [(words(one), one) for one in sentences(page.read_text()) if words(one) > WORDS_MAX]
    assert not long, "\n".join(f"{count} words: {one}" for count, one in long)


def test_a_hard_sentence_is_found() -> None:
    """The reader can fail: a long sentence counts over lines and in a list, code and tables do not count."""
    long = " ".join(["Word", *["word"] * WORDS_MAX])
    easy = f"# {long}\n\n| {long} |\n\n    {long}\n\n```sh\n{long}\n```\n\nOne. Two `{long}`.\n"
    assert [one for one in sentences(easy) if words(one) > WORDS_MAX] == []
    assert list(sentences(easy)) == ["One", "Two Code."]
    for hard in (f"{long}.", f"Short. {long}. Short.", f"- {long}.", f"1. One\n   {long.lower()}.", f"> {long}."):
        assert [words(one) > WORDS_MAX for one in sentences(hard)].count(True) == 1, hard
