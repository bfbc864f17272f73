"""What ``tools.house`` counts and must not grow: docs/architecture.md says so of the house, DESIGN 3."""

from tools import house


def test_one_function_lets_go_what_waits() -> None:
    """DESIGN 3: whoever asks what releases a child finds one function, whatever the child waited for: it alone asks the
    cursor to move what is blocked, and the cursor does so in one place."""
    assert house.releases().by == ["dependencies.release"]
    scheduler = house.PACKAGE / "delivery" / "scheduler"
    places = {path.name: path.read_text().count("blocked.move(") for path in scheduler.glob("*.py")}
    assert {name: count for name, count in places.items() if count} == {"cursor.py": 1}
