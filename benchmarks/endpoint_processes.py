"""The processes of ``tls_endpoints``, started, asked and ended: many origins aside, and the bare clients."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from benchmarks.processes import Failed, aside, usage
from benchmarks.tls_endpoints import AUTHORITY, address

_PROGRAM: Final = (sys.executable, "-m", "benchmarks.tls_endpoints")
_CLIENT_WITHIN_S: Final = 120.0


class Endpoints:
    """Origins that listen, on the second processor. ``folder``: for what they show; one process uses it at a time."""

    def __init__(self, folder: Path, origins: int, *, tls: bool, delay_s: float = 0.0, closing: bool = False) -> None:
        self._folder = folder
        self._tls = tls
        self._origins = origins
        wish = {"folder": str(folder), "origins": origins, "tls": tls, "delay_s": delay_s, "closing": closing}
        self._process = subprocess.Popen(
            aside([*_PROGRAM, "serve", json.dumps(wish)]), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        if not said:
            raise Failed(f"the origins ended with {self._process.wait()}")
        self.port = int(said)
        self._trusted_before: str | None = None

    def __enter__(self) -> Self:
        """Brokers that are started meanwhile trust the authority of these origins."""
        self._trusted_before = os.environ.get("SSL_CERT_FILE")
        if self._tls:
            os.environ["SSL_CERT_FILE"] = str(self._folder / AUTHORITY)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._trusted_before is not None:
            os.environ["SSL_CERT_FILE"] = self._trusted_before
        elif self._tls:
            del os.environ["SSL_CERT_FILE"]
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()

    def url(self, origin: int) -> str:
        return f"http{'s' if self._tls else ''}://{address(origin)}:{self.port}/"

    def cpu_s(self) -> float:
        return usage(self._process.pid).cpu_s

    def client(self, kind: str, **wish: Any) -> dict[str, Any]:
        """What a bare client of these origins says at its end: ``steady`` or ``closing`` of ``tls_endpoints``."""
        known = {"folder": str(self._folder), "port": self.port, "origins": self._origins, "tls": self._tls}
        command = [*_PROGRAM, kind, json.dumps({**known, **wish})]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_CLIENT_WITHIN_S)
        except subprocess.TimeoutExpired as error:
            raise Failed(f"the bare client did not end in {_CLIENT_WITHIN_S:g} s") from error
        if done.returncode:
            raise Failed(f"the bare client ended with {done.returncode}: {done.stderr}")
        said: dict[str, Any] = json.loads(done.stdout)
        return said

    def ended(self) -> dict[str, Any]:
        """End them; what they saw, see ``tls_endpoints.serve``."""
        said, _ = self._process.communicate("")
        seen: dict[str, Any] = json.loads(said)
        return seen
