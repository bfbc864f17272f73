"""Every promise and every rule has a test, and the page that says so is right."""

import re

from tools.promises import PROMISES, RULES_MAX, TARGET, cited, guards, titles


def test_every_rule_and_promise_is_guarded() -> None:
    """A promise without a test is a hope: each rule and each promise is cited by the docstring of a test at least."""
    found = guards()
    assert not [subject for subject, tests in found.items() if not tests]


def test_only_rules_that_exist_are_cited() -> None:
    """A citation leads somewhere: docstrings name rules and promises that there are, nothing else."""
    assert set(titles()) == set(range(1, RULES_MAX + 1))
    assert set(guards()) == {*PROMISES, *map(str, titles())}


def test_every_test_the_page_names_exists() -> None:
    """docs/promises.md names no test that has been renamed or deleted."""
    named = set(re.findall(r"\[`(\w+)`\]\(\.\./(tests/[\w/]+\.py)\)", TARGET.read_text()))
    existing = {tuple(test.split("::")[::-1]) for tests in guards().values() for test in tests}
    assert named
    assert named <= existing, "run: make docs"


def test_citations_are_read_as_they_are_written() -> None:
    """One rule, several, a range, a promise; over a line's end too."""
    words = "x (RULES 3, 14). RULES 5 to 7 and RULES\n 9 and 10; DESIGN 1, durable: y; DESIGN 1 (causal)"
    assert list(cited(words)) == ["3", "14", "5", "6", "7", "9", "10", "durable", "causal"]
