"""The documents as one site: built strictly, so that no link, no anchor and no page of the menu leads nowhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.whole.test_tidy import ROOT


def build(config: Path, out: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(out)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_the_site_is_whole(tmp_path: Path) -> None:
    """Each page of the documents is a page of the site, its links lead somewhere, and nothing is loaded from elsewhere;
    a file of the repository that the site does not hold is named by its path."""
    done = build(ROOT / "mkdocs.yml", tmp_path)
    assert done.returncode == 0, done.stderr
    written = {path.name for path in (ROOT / "docs").glob("*.md")} - {"promises.md"}
    pages = {name: (tmp_path / name.removesuffix(".md") / "index.html").read_text() for name in sorted(written)}
    home = (tmp_path / "index.html").read_text()
    for name, page in {"index.md": home, **pages}.items():
        loaded = re.findall(r'<(?:script|img|link rel="stylesheet")[^>]*?(?:src|href)="(https?:[^"]+)', page)
        assert not loaded, f"{name} loads {loaded}"
    assert 'href="http/"' in home
    assert (tmp_path / "family.svg").exists()
    assert "config/syncbrok.service" in pages["operations.md"]


def test_a_link_that_leads_nowhere_fails_the_build(tmp_path: Path) -> None:
    """A page with a bad link or anchor is no site: the build says which and ends with an error."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Home\n\n[gone](gone.md), [there](other.md#gone)\n")
    (tmp_path / "docs" / "other.md").write_text("# Other\n")
    settings = (ROOT / "mkdocs.yml").read_text()
    own = settings[settings.index("theme:") : settings.index("hooks:")]
    checks = settings[settings.index("validation:") : settings.index("nav:\n")]
    (tmp_path / "mkdocs.yml").write_text(f"site_name: x\n{own}{checks}")
    done = build(tmp_path / "mkdocs.yml", tmp_path / "out")
    assert done.returncode != 0
    assert "gone.md" in done.stderr
    assert "#gone" in done.stderr
