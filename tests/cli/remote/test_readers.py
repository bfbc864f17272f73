"""``syncbrok readers`` against a real broker, and a stream that tells it its place."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from syncbrok.cli.main import group
from tests.support.broker.commands import data
from tests.support.broker.process import BrokerProcess
from tests.support.polling import eventually_blocking


def run(broker: BrokerProcess, *arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(group, ["readers", *arguments], env={"SYNCBROK_URL": broker.url})
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    return result


def test_readers_from_the_first_to_the_last(tmp_path: Path) -> None:
    """INTERFACES 1: made to hold before it has read anything, listed with how far it is behind, not forgotten by
    ``kill -9``, let go, deleted."""
    with BrokerProcess(tmp_path / "storage") as broker:
        assert run(broker, "list").stdout == ""
        assert "no readers" in run(broker, "list").stderr
        assert run(broker, "hold", "warehouse").stdout == "warehouse: retention keeps what is behind sequence 0\n"
        assert broker.request("PUT", "/v1/log/readers/warehouse", {"sequence": 1}).status == 200
        assert broker.request("POST", "/v1/queues", {"name": "orders"}).status == 201
        broker.kill()
        broker.start()
        (listed,) = data(run(broker, "list", "--json"))
        assert (listed["name"], listed["sequence"], listed["hold"], listed["holding"]) == ("warehouse", 1, True, True)
        assert listed["lag"] > 0
        assert run(broker, "list").stdout.splitlines()[1].split()[:3] == ["warehouse", "1", str(listed["lag"])]
        assert run(broker, "hold", "warehouse", "--off").stdout == "warehouse: retention waits for it no more\n"
        assert data(run(broker, "hold", "warehouse", "--off", "--json"))["hold"] is False
        assert run(broker, "delete", "warehouse", "--yes").stdout == "warehouse deleted\n"
        run(broker, "delete", "warehouse", "--yes", code=3)
        assert data(run(broker, "list", "--json")) == []


@pytest.mark.parametrize("silent", [False, True])
def test_a_reader_that_is_silent_is_named(tmp_path: Path, silent: bool) -> None:
    """``storage.reader_hold``: after so long without a word it holds nothing, and the list says why."""
    config = f"storage: {{reader_hold: {'1s' if silent else '1h'}}}\n"
    with BrokerProcess(tmp_path / "storage", config=config) as broker:
        run(broker, "hold", "warehouse")
        if silent:
            eventually_blocking(lambda: not data(run(broker, "list", "--json"))[0]["holding"], "it is silent for 1 s")
        assert ("no more: silent for too long" in run(broker, "list").stdout) is silent
