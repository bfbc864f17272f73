"""The pictures of the documentation are drawn by code and cannot fall behind it."""

from collections.abc import Callable

import pytest

from tests.whole.test_tidy import ROOT
from tools.pictures import PICTURES


@pytest.mark.parametrize(("name", "draw"), PICTURES.items())
def test_pictures_are_up_to_date(name: str, draw: Callable[[], str]) -> None:
    """A picture shows the code as it is: change the code, run ``make docs``, commit both."""
    assert (ROOT / "docs" / name).read_text() == draw(), "run: make docs"
