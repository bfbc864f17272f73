"""Fixtures every test may ask for. One constructor for each real part stands in ``tests/support``."""

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from pytest_aiohttp.plugin import AiohttpClient

from tests.support.broker.process import BrokerProcess
from tests.support.http.api import Serve, serve_with
from tests.support.http.recorder import Recorder
from tests.support.http.space import MakeHttpSpace, http_space_with
from tests.support.work_units import WorkUnits

# A slow machine is not a failing test; the blob makes a failure repeatable elsewhere.
settings.register_profile("syncbrok", deadline=None, print_blob=True)
settings.load_profile("syncbrok")


@pytest.hookimpl(optionalhook=True)  # -p no:xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> WorkUnits | None:
    """``make test`` gives out work as ``WorkUnits`` says."""
    return WorkUnits(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    """Last of all a line for each test that failed, with its seed and the first line of why: where a run keeps only the
    end of what was printed, this is what is left to find it again."""
    yield
    for report in terminalreporter.getreports("failed") + terminalreporter.getreports("error"):
        said = [text for _, text in report.sections for text in text.splitlines() if "SYNCBROK_TEST_SEED=" in text]
        crash = getattr(report.longrepr, "reprcrash", None)
        why = [crash.message.splitlines()[0][:200]] if crash is not None and crash.message else []
        terminalreporter.line(" ".join(("failed:", report.nodeid, *said[:1], *why)))


@pytest.fixture
def seed() -> int:
    """The seed of this test's randomness: new each time, printed when the test fails, given by SYNCBROK_TEST_SEED."""
    value = int(os.environ.get("SYNCBROK_TEST_SEED") or random.SystemRandom().randrange(2**32))
    print(f"seed: SYNCBROK_TEST_SEED={value}")
    return value


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    """An HTTP subscriber that acknowledges everything."""
    with Recorder() as running:
        yield running


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker in a process of its own, on an empty log."""
    with BrokerProcess(tmp_path / "storage") as running:
        yield running


@pytest.fixture
def served(aiohttp_client: AiohttpClient) -> Serve:
    """Makes the HTTP frontend over given channels and a view, with a client: see ``Serve``."""
    return serve_with(aiohttp_client)


@pytest.fixture
def http_space(served: Serve) -> MakeHttpSpace:
    """Makes the HTTP frontend over a real Space in a directory: see ``MakeHttpSpace``."""
    return http_space_with(served)
