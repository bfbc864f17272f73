"""A version is made by one command: its number wherever it stands, its section of the changes, a commit and a tag."""

import re
import subprocess
from datetime import date
from pathlib import Path

import pytest

from syncbrok import __version__
from tests.whole.test_tidy import ROOT
from tools.release import CHANGES, CLIENT, CLIENT_LOCK, FILES, MANIFEST, PACKAGE, NoRelease, release

DAY = date(2026, 12, 1)


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with the files of this one that say a version."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    (tmp_path / CHANGES).write_text(
        "# Changes\n\n## Unreleased\n\n### Added\n\n- A thing.\n\n## 0.0.1 - 2026-01-01\n\n- It.\n"
    )
    git(tmp_path, "init", "--quiet")
    for setting, value in (("user.name", "Test"), ("user.email", "test@example.org")):
        git(tmp_path, "config", setting, value)
    git(tmp_path, "add", "--all")
    git(tmp_path, "commit", "--quiet", "--message", "Before")
    return tmp_path


def test_a_version_is_made_by_one_command(checkout: Path) -> None:
    """Package, client and manifest say the version, what was unreleased is its section, and the tag names the commit
    of all of it."""
    assert release(checkout, "99.0.0", DAY) == "v99.0.0"
    assert '__version__ = "99.0.0"' in (checkout / PACKAGE).read_text()
    assert '"version": "99.0.0"' in (checkout / CLIENT).read_text()
    assert (checkout / CLIENT_LOCK).read_text().count('"version": "99.0.0"') == 2
    assert "image: syncbrok:99.0.0\n" in (checkout / MANIFEST).read_text()
    headings = re.findall(r"^##+ .*$", (checkout / CHANGES).read_text(), re.MULTILINE)
    assert headings == ["## Unreleased", "## 99.0.0 - 2026-12-01", "### Added", "## 0.0.1 - 2026-01-01"]
    assert git(checkout, "status", "--porcelain") == ""
    assert git(checkout, "rev-parse", "v99.0.0^{commit}") == git(checkout, "rev-parse", "HEAD")


def test_no_version_is_made_of_what_is_not_ready(checkout: Path) -> None:
    """A number that is none or not a later one, nothing to tell, and uncommitted changes are refused, each by name;
    nothing is written then."""
    before = git(checkout, "rev-parse", "HEAD")
    for version, why in (("1.0", "such as 0.2.0"), (__version__, "is not behind"), ("0.0.1", "is not behind")):
        with pytest.raises(NoRelease, match=why):
            release(checkout, version, DAY)
    (checkout / CHANGES).write_text("# Changes\n\n## Unreleased\n\n## 0.0.1 - 2026-01-01\n")
    with pytest.raises(NoRelease, match="not committed"):
        release(checkout, "99.0.0", DAY)
    git(checkout, "commit", "--quiet", "--all", "--message", "Nothing to tell")
    with pytest.raises(NoRelease, match="says nothing under"):
        release(checkout, "99.0.0", DAY)
    assert git(checkout, "rev-parse", "HEAD~1") == before
    assert git(checkout, "tag", "--list") + git(checkout, "status", "--porcelain") == ""
