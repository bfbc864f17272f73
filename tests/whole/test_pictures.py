"""The pictures of the documentation are drawn by code and cannot fall behind it."""

import re
import tomllib
from collections.abc import Callable

import pytest

from tests.whole.test_tidy import ROOT
from tools.pictures import PICTURES


@pytest.mark.parametrize(("name", "draw"), PICTURES.items())
def test_pictures_are_up_to_date(name: str, draw: Callable[[], str]) -> None:
    """A picture shows the code as it is: change the code, run ``make docs``, commit both."""
    assert (ROOT / "docs" / name).read_text() == draw(), "run: make docs"


def test_the_table_of_wings_is_that_of_the_contracts() -> None:
    """docs/architecture.md says which wing may import which; the contracts decide it."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = {one["containers"][0]: one["layers"] for one in contracts if one["type"] == "layers"}
    table = (ROOT / "docs" / "architecture.md").read_text().partition("| room | its wings")[2].partition("\n\n")[0]
    rooms = re.findall(r"^\| ([a-z_/]+) \| (.+) \|$", table, re.MULTILINE)
    assert len(rooms) >= 4
    for room, said in rooms:
        floors = [re.findall(r"`(\w+)`", floor) for floor in re.sub(r"\([^)]*\)", "", said).split(",")]
        decided = [layer.split(" | ") for layer in layers[f"syncbrok.{room.replace('/', '.')}"]]
        wings = {wing for floor in floors for wing in floor}
        assert floors == [kept for layer in decided if (kept := [one for one in layer if one in wings])], room
