"""All that schemathesis makes of the broker's own description: bounds, random requests, and some after each other."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.broker.process import BrokerProcess
from tests.support.http.openapi_cases import EVERYTHING, ask


@contextmanager
def rounds(_asked: argparse.Namespace) -> Iterator[object]:
    yield one_round


def one_round(directory: Path, seed: int) -> tuple[str, list[str]]:
    """What was done, and what is wrong."""
    with BrokerProcess(directory / "storage") as broker:
        came = ask(broker.url, directory, seed, EVERYTHING)
        well = broker.request("GET", "/readyz").status == 200
    return f"{came.cases} cases", [came.wrong] * bool(came.wrong) + ["it serves no more"] * (not well)
