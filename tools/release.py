"""Makes a version by one command: ``python -m tools.release 0.2.0`` (``make release VERSION=0.2.0``).

The version is written wherever it stands, what CHANGELOG.md says to be unreleased becomes its section, and both are one
commit with the tag ``v0.2.0``. Nothing is pushed.
"""

import re
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, date, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE, CHANGES = "syncbrok/__init__.py", "CHANGELOG.md"
CLIENT, CLIENT_LOCK = "clients/typescript/package.json", "clients/typescript/package-lock.json"
MANIFEST = "deploy/kubernetes/broker.yaml"
FILES = (PACKAGE, CHANGES, CLIENT, CLIENT_LOCK, MANIFEST)
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_UNRELEASED = "## Unreleased\n"


class NoRelease(Exception):
    """Why no version was made; nothing was changed."""


def released(files: Mapping[str, str], version: str, day: date) -> dict[str, str]:
    """What the files say with ``version``, made on ``day``. Raises ``NoRelease``."""
    if not _VERSION.fullmatch(version):
        raise NoRelease(f"{version!r}: expected a version such as 0.2.0")
    now = re.search(r'^__version__ = "(.+)"$', files[PACKAGE], re.MULTILINE)
    if now is None or _numbers(version) <= _numbers(now[1]):
        raise NoRelease(f"{version} is not behind {now and now[1]}, which {PACKAGE} says")
    before, heading, after = files[CHANGES].partition(_UNRELEASED)
    if not heading or not after.partition("\n## ")[0].strip():
        raise NoRelease(f"{CHANGES} says nothing under {_UNRELEASED.strip()!r}: say there what has changed")
    named = f'"version": "{now[1]}"'
    then = f'"version": "{version}"'
    return {
        PACKAGE: files[PACKAGE].replace(now[0], f'__version__ = "{version}"'),
        CHANGES: f"{before}{heading}\n## {version} - {day.isoformat()}\n{after}",
        CLIENT: files[CLIENT].replace(named, then, 1),
        CLIENT_LOCK: files[CLIENT_LOCK].replace(named, then, 2),
        MANIFEST: files[MANIFEST].replace(f"image: syncbrok:{now[1]}", f"image: syncbrok:{version}"),
    }


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def release(root: Path, version: str, day: date) -> str:
    """Write, commit and tag the version in the checkout at ``root``; returns the tag. Raises ``NoRelease``."""
    if _git(root, "status", "--porcelain"):
        raise NoRelease("there are changes that are not committed: commit them first, or put them away")
    tag = f"v{version}"
    if _git(root, "tag", "--list", tag):
        raise NoRelease(f"the tag {tag} is there already")
    for name, text in released({name: (root / name).read_text() for name in FILES}, version, day).items():
        (root / name).write_text(text)
    _git(root, "commit", "--quiet", "--message", f"Version {version}", "--", *FILES)
    _git(root, "tag", "--annotate", tag, "--message", f"Version {version}")
    return tag


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoRelease(f"git {arguments[0]}: {(done.stderr or done.stdout).strip()}")
    return done.stdout.strip()


def main() -> None:
    """Make the version that the command line names."""
    if len(sys.argv) != 2 or not sys.argv[1]:
        sys.exit("say which: make release VERSION=0.2.0")
    try:
        tag = release(ROOT, sys.argv[1], datetime.now(UTC).date())
    except NoRelease as why:
        sys.exit(f"no release: {why}")
    print(f"{tag} is committed and tagged; git push --follow-tags gives it to others")


if __name__ == "__main__":
    main()
