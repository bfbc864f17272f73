"""One endpoint is down for a while: what it gets, what others get, what is shown of it. A real broker."""

import asyncio
from pathlib import Path

from tests.support.broker.process import BrokerProcess
from tests.support.overload.outage import ask, declared, outage, patient, wrong_with
from tests.support.polling import eventually, eventually_blocking


async def test_an_outage_costs_probes_and_ends_without_a_stampede(tmp_path: Path) -> None:
    """RULES 15 and 29: with many waiting an endpoint that is down gets what was out and then probes, a neighbour gets
    all meanwhile, and after it 1, 2, 4, ... are out at once until all has come; nothing dies."""
    one = await outage(tmp_path, 1_500, 4.0)
    assert wrong_with(one) == []
    assert one.neighbour_s < one.down_s
    assert len(one.alongside) >= 1_500


async def test_an_open_breaker_is_shown(tmp_path: Path) -> None:
    """RULES 29, INTERFACES 3: ``statistics.breaker`` and when it probes next, ``waits_for``, a metric, events."""
    async with patient() as ill, patient() as well:
        with BrokerProcess(tmp_path) as broker:
            await declared(broker, ill, well, breaker={"failures": 3, "probe": ["1s", "1s"]}, window=4)
            ill.is_well = False
            ids = [(await ask(broker, "POST", "/v1/queues/q/messages", b"x"))["id"] for _ in range(20)]

            def is_now(state: str) -> bool:
                shown = broker.request("GET", "/v1/queues/q/subscribers/ill").json()
                assert shown["breaker"] == {"failures": 3, "share": 0.5, "of": 100, "probe": ["1s", "1s"]}
                assert (shown["statistics"]["next_probe_at"] is None) == (shown["statistics"]["breaker"] != "open")
                return bool(shown["statistics"]["breaker"] == state)

            await asyncio.to_thread(eventually_blocking, lambda: is_now("open"), "the breaker opens")
            words = (await ask(broker, "GET", f"/v1/messages/{ids[-1]}"))["waits_for"]
            assert "subscriber ill has not been tried: its breaker is" in words
            metrics = (await asyncio.to_thread(broker.request, "GET", "/metrics")).body.decode()
            assert 'syncbrok_subscriber_breaker{queue="q",subscriber="well"} 0.0' in metrics
            assert 'syncbrok_subscriber_breaker{queue="q",subscriber="ill"} 0.0' not in metrics
            assert "syncbrok_breakers_opened_total 1.0" in metrics
            assert "syncbrok.delivery.breaker_opened" in broker.output()
            ill.is_well = True
            await eventually(lambda: len(ill.taken) == 20, "the endpoint has all")
            await asyncio.to_thread(eventually_blocking, lambda: is_now("closed"), "the breaker closes")
            assert "syncbrok.delivery.breaker_closed" in broker.output()


def test_consumers_have_no_breaker(tmp_path: Path) -> None:
    """INTERFACES 3: of those whose consumers come for their messages ``breaker`` is false, and nothing else can be."""
    path = "/v1/queues/q/subscribers"
    with BrokerProcess(tmp_path) as broker:
        broker.request("POST", "/v1/queues", {"name": "q"})
        made = broker.request("POST", path, {"name": "g", "pull": True})
        assert made.json()["breaker"] is False
        assert broker.request("PATCH", f"{path}/g", {"breaker": False}).status == 200
        for refused in (
            broker.request("PATCH", f"{path}/g", {"breaker": {"failures": 3}}),
            broker.request("POST", path, {"name": "h", "pull": True, "breaker": True}),
        ):
            assert (refused.status, refused.json()["setting"]) == (400, "breaker")
