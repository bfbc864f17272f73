"""The peers' clients: programs for Node in ``clients/``, with libraries that npm fetches once into the user's cache."""

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.peers.servers import number_in, program, said
from benchmarks.processes import Failed

_HERE: Final = Path(__file__).parent
_CLIENT_WITHIN_S: Final = 300.0


class Done(NamedTuple):
    """What a client did: messages, the seconds they took, of time and of its own CPU, and how many messages it sent
    before those to warm up."""

    messages: int
    seconds: float
    cpu_s: float
    warming: int = 0

    @property
    def per_s(self) -> float:
        return self.messages / self.seconds


class Node:
    """Node and the installed libraries. Raises ``Missing`` without node or npm, ``Failed`` where npm cannot install."""

    def __init__(self) -> None:
        self._program = program("node", "nodejs")
        self.version = number_in(said(self._program, "--version"))
        self._modules = _installed() / "node_modules"

    def library(self, name: str) -> str:
        """The installed version of a library."""
        described = json.loads((self._modules / name / "package.json").read_text())
        return str(described["version"])

    def run(self, peer: str, job: str, **wish: Any) -> Done:
        """Run one job to its end (see ``clients/run.cjs``). Raises ``Failed`` with what the client said."""
        command = [self._program, str(_HERE / "clients" / "run.cjs"), json.dumps({"peer": peer, "job": job, **wish})]
        environment = {**os.environ, "NODE_PATH": str(self._modules)}
        try:
            done = subprocess.run(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=_CLIENT_WITHIN_S,
            )
        except subprocess.TimeoutExpired as late:
            raise Failed(f"{peer}, {job}: nothing after {_CLIENT_WITHIN_S:g} s") from late
        if done.returncode:
            raise Failed(f"{peer}, {job}: {done.stderr.strip()}")
        return Done(**json.loads(done.stdout.splitlines()[-1]))


def _installed() -> Path:
    """The folder with ``node_modules``: one for each list of libraries, so that a changed list is installed anew."""
    wanted = _HERE / "package.json"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "syncbrok" / "bench-peers"
    folder = cache / hashlib.sha256(wanted.read_bytes()).hexdigest()[:16]
    done = folder / "installed"
    if not done.exists():
        npm = program("npm", "npm")
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(wanted, folder)
        quiet = ["--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
        ended = subprocess.run([npm, "install", *quiet], cwd=folder, capture_output=True, text=True, check=False)
        if ended.returncode:
            raise Failed(f"npm install failed: {ended.stderr.strip()}")
        done.touch()
    return folder
