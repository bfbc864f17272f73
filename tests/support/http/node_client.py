"""The TypeScript client, installed and built for the tests that need it."""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[3]
CLIENT: Final = ROOT / "clients" / "typescript"
_WITHIN_S: Final = 120


def node() -> str:
    """The path of Node, with the client built. Skips the test where node or npm is missing, or npm reaches no
    registry; fails it where the client does not build."""
    found, npm = shutil.which("node"), shutil.which("npm")
    if not found or not npm:
        pytest.skip("node and npm are not installed (Debian: nodejs, npm)")
    with (ROOT / ".venv" / ".typescript-client").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # workers of pytest, at once
        installed = CLIENT / "node_modules" / ".package-lock.json"
        if _is_older(installed, [CLIENT / "package-lock.json"]):
            ended = _run([npm, "ci", "--no-audit", "--no-fund", "--loglevel=error"])
            if ended.returncode:
                pytest.skip(f"npm could not install what the client needs: {ended.stderr.strip()[-500:]}")
        built = CLIENT / "dist" / "index.js"
        if _is_older(built, [*(CLIENT / "src").iterdir(), CLIENT / "tsconfig.json"]):
            ended = _run([found, "node_modules/typescript/bin/tsc"])
            assert not ended.returncode, ended.stdout
            os.utime(built)
    return found


def beside(example: Path, folder: Path) -> Path:
    """A copy of a program in a folder that has what it imports."""
    modules = folder / "node_modules"
    modules.mkdir()
    (modules / "syncbrok").symlink_to(CLIENT)
    (modules / "express").symlink_to(CLIENT / "node_modules" / "express")
    return Path(shutil.copy(example, folder))


def _is_older(file: Path, than: list[Path]) -> bool:
    return not file.exists() or any(file.stat().st_mtime < one.stat().st_mtime for one in than)


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=CLIENT, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=_WITHIN_S
    )
