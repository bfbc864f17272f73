"""The same promises on uvloop, which the broker runs on: its transports are not asyncio's."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from syncbrok.delivery.webhook.address_guard import AddressGuard
from syncbrok.delivery.webhook.webhook import Webhook
from tests.delivery.webhook import test_connections, test_origin, test_tls_session, test_webhook
from tests.support.delivery.endpoint import TIME_US, Endpoint

Scenario = Callable[..., Coroutine[Any, Any, None]]

PARTS = {"webhook", "endpoint", "certificate", "authority"}
SCENARIOS: list[Scenario] = [
    function
    for module in (test_webhook, test_connections, test_origin, test_tls_session)
    for name, function in inspect.getmembers(module, inspect.iscoroutinefunction)
    if name.startswith("test_") and set(inspect.signature(function).parameters) <= PARTS
]
certificate = test_connections.certificate  # the fixture
authority = test_tls_session.authority  # the same


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__.removeprefix("test_"))
def test_on_uvloop(scenario: Scenario, request: pytest.FixtureRequest) -> None:
    """Whatever ``test_webhook``, ``test_connections``, ``test_origin`` and ``test_tls_session`` promise of a handler
    and an endpoint."""
    wanted = inspect.signature(scenario).parameters
    files = {name: request.getfixturevalue(name) for name in ("certificate", "authority") if name in wanted}

    async def run() -> None:
        webhook = Webhook(AddressGuard(loopback_allowed=True), lambda _: (), clock_us=lambda: TIME_US)
        async with Endpoint() as endpoint:
            given = {"webhook": webhook, "endpoint": endpoint, **files}
            await scenario(**{name: given[name] for name in wanted})
            await webhook.close()

    uvloop.run(run())


@pytest.mark.parametrize("turns", range(12))
def test_closing_at_any_moment(turns: int) -> None:
    """``test_connections`` has it: each attempt is answered once, and the handler closes."""

    async def run() -> None:
        async with Endpoint() as endpoint:
            await asyncio.wait_for(
                test_connections.test_closing_at_any_moment_answers_everything_once(endpoint, turns), 10.0
            )

    uvloop.run(run())


def test_there_is_something_to_run() -> None:
    """A test that finds no scenarios would pass for ever."""
    assert len(SCENARIOS) > 20
