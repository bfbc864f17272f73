"""The pictures of the documents are made by code."""

from pathlib import Path

from tests.support.broker.process import ROOT
from tests.support.http.page_stage import in_browser
from tests.support.http.screenshots import PICTURES, WIDTH, take

PNG = b"\x89PNG\r\n\x1a\n"


def size_px(picture: bytes) -> tuple[int, int]:
    """Width and height, as its first chunk says."""
    assert picture.startswith(PNG)
    return int.from_bytes(picture[16:20], "big"), int.from_bytes(picture[20:24], "big")


@in_browser
def test_pictures_of_the_page_are_taken_of_a_real_broker(tmp_path: Path) -> None:
    """`make screenshots`: each picture of docs/page.md is made, of the size that it has there."""
    take(tmp_path)
    text = (ROOT / "docs" / "page.md").read_text()
    for name, height in PICTURES.items():
        assert f"]({name})" in text
        assert size_px((tmp_path / name).read_bytes()) == (WIDTH, height)
        assert size_px((ROOT / "docs" / name).read_bytes()) == (WIDTH, height)
