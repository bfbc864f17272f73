"""Asks a running broker what schemathesis makes of its own description: as a program, in a process of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.support.broker.process import ROOT

ALWAYS = "coverage"
"""of schemathesis' phases: each bound, type and missing part of each route; two milliseconds a case"""
EVERYTHING = "coverage,fuzzing,stateful"
_CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,"
    "response_schema_conformance,unsupported_method,allow_header_conformance"
)
_LASTING = "stream|events"
"""routes that answer for as long as somebody listens"""
_COUNT = re.compile(r"^ +(\d+) generated, (\d+) passed", re.MULTILINE)


class Asked(NamedTuple):
    """``wrong`` is what schemathesis says where it is not content."""

    cases: int
    wrong: str


def ask(url: str, directory: Path, seed: int, phases: str = ALWAYS, token: str = "", each: int = 100) -> Asked:
    """Ask the broker at ``url``. Without a ``token`` it is not asked to make one: then it would answer nobody.
    ``each``: cases of each route in phases that draw them at random."""
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json", "--checks", _CHECKS]
    command += ["--phases", phases, "-n", str(each), "--seed", str(seed), "--continue-on-failure", "--no-color"]
    command += ["--warnings", "off", "--request-timeout", "15", "--generation-database", "none"]
    command += ["--exclude-path-regex", _LASTING if token else f"{_LASTING}|tokens"]
    command += ["-H", f"Authorization: Bearer {token}"] if token else []
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": "tests.support.http.openapi_hooks", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    found = _COUNT.search(done.stdout)
    return Asked(int(found[1]) if found else 0, "" if found and not done.returncode else done.stdout + done.stderr)
