"""What ``tools.house`` counts and must not grow: docs/architecture.md says so of the house, DESIGN 3."""

import re

from tools import house


def test_one_function_lets_go_what_waits() -> None:
    """DESIGN 3: whoever asks what releases a child finds one function, whatever the child waited for: it alone asks the
    cursor to move what is blocked, and the cursor does so in one place."""
    assert house.releases().by == ["dependencies.release"]
    scheduler = house.PACKAGE / "delivery" / "scheduler"
    places = {path.name: path.read_text().count("blocked.move(") for path in scheduler.glob("*.py")}
    assert {name: count for name, count in places.items() if count} == {"cursor.py": 1}


def test_a_page_names_the_file_that_has_a_thing() -> None:
    """Who follows a page to a class or function finds it in the file that stands beside its name: pages once led to
    files which a thing had left."""
    root = house.PACKAGE.parent
    lost = []
    for page in (root / "CONTRIBUTING.md", *sorted((root / "docs").glob("*.md"))):
        words = page.read_text().replace("\n", " ")
        for name, file in re.findall(r"`(\w+)(?:\.\w+)?`,? (?:in|of|\() ?`([a-z_/]+/[a-z]\w+\.py)`", words):
            is_made = re.compile(rf"^\s*(class |(async )?def )?{name}\b", re.MULTILINE)
            places = [*house.PACKAGE.rglob(file), *(root / "tests").rglob(file), *root.glob(file)]
            if not any(is_made.search(one.read_text()) for one in places):
                lost.append(f"{page.name}: `{name}` in `{file}`")
    assert not lost, lost


def test_no_docstring_puts_off_its_contract() -> None:
    """A docstring begins with what is returned, done or raised: "What is due" makes a reader wait for the subject."""
    assert not house.evasive_docstrings()
