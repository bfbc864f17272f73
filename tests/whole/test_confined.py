"""The systemd unit's restrictions let the broker do all its work: each call that they refuse would end it here."""

import json
import os
import platform
import re
import signal
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from syncbrok.client import Client
from tests.support.broker import confined
from tests.support.broker.process import ROOT, BrokerProcess
from tests.support.certificates import Authority
from tests.support.http.recorder import Recorder
from tests.support.polling import eventually_blocking

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="system calls by their numbers of x86-64"
)
UNIT = (ROOT / "config" / "syncbrok.service").read_text()


def test_the_filter_of_the_tests_is_that_of_the_unit() -> None:
    """What the tests put before a broker is what systemd makes of these lines; and it does refuse: a process that
    gives a file to somebody else, as no broker has to, is ended by it."""
    said = re.findall(r"^(?:SystemCall|RestrictAddress|MemoryDeny|NoNewPriv)\w*=.*$", UNIT, re.MULTILINE)
    assert sorted({*said, *confined.OPTIONS}) == sorted({*confined.OPTIONS, "SystemCallArchitectures=native"})
    program = "from tests.support.broker.confined import confine; import os; confine(); os.chown('.', 0, 0)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == -signal.SIGSYS


async def test_a_confined_broker_does_all_its_work(tmp_path: Path) -> None:
    """TLS in and out with a certificate of its own, a name to look up, a filter, pull, a WebSocket, TCP, an erasure
    and its rewriting, a reload and a stop: no call of them is one that the unit refuses."""
    authority = Authority(tmp_path)
    files, shown = authority.signs("broker"), authority.signs("hook")
    config = (
        f"http: {{tls: {{cert: {files.cert}, key: {files.key}}}}}\n"
        "storage: {segment: 1MiB, erase_within: 1s}\n"
        "frontends: {framed: {port: 0}}\n"
    )
    with (
        Recorder(tls=authority.verifying()) as hook,
        BrokerProcess(tmp_path / "log", config=config, tls=authority.client(), confined=True) as broker,
    ):
        broker.request("POST", "/v1/queues", {"name": "shop"})
        auth = {
            "mtls": {"cert": shown.cert.read_text(), "key": shown.key.read_text()},
            "ca": authority.file.read_text(),
        }
        path = "/v1/queues/shop/subscribers"
        named = hook.url.replace("127.0.0.1", "localhost")
        assert broker.request("POST", path, {"endpoint": named, "auth": auth, "filter": "size > 0"}).status == 201
        assert broker.request("POST", path, {"name": "workers", "pull": True}).status == 201
        async with Client(broker.url, tls=authority.client()) as client:
            first = await client.publish("shop", os.urandom(700_000))
            await client.publish_many("shop", [b"%d" % number for number in range(100)])
        hook.wait_for(101)
        pulled = broker.request("POST", "/v1/queues/shop/pull", {"max": 200, "group": "workers", "wait": 5}).json()
        leases = [one["lease"] for one in pulled["messages"]]
        assert broker.request("POST", "/v1/leases:ack", {"leases": leases}).status == 200
        stream = f"{broker.url}/v1/queues/shop/stream?start=beginning&window=10"
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=authority.client())) as session,
            session.ws_connect(stream) as reader,
        ):
            assert (await reader.receive_json())["type"] == "subscribed"
            assert (await reader.receive_json())["id"] == first.id
        assert broker.request("DELETE", f"/v1/messages/{first.id}/content?force=true").status == 200
        eventually_blocking(lambda: "syncbrok.space.erased" in broker.output(), "it is off the disk")
        broker.process.send_signal(signal.SIGHUP)
        assert broker.request("GET", "/metrics").status == 200
        assert broker.terminate() == 0
    said = [json.loads(line) for line in broker.output().splitlines() if line.startswith("{")]
    assert not [one for one in said if one["level"] not in ("info", "warning")]
