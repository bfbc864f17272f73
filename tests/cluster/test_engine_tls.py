"""The engine over TLS: its servers are verified by the authority that the configuration names."""

from pathlib import Path

import pytest

pytest.importorskip("nats", reason="needs syncbrok[cluster]")

from syncbrok.cli.cluster.settings import engine_of
from syncbrok.cluster.engine import Engine, EngineServer
from syncbrok.config import ClusterConfig, EngineConfig
from syncbrok.model.errors import BadConfig
from tests.support.certificates import Authority
from tests.support.cluster.nats_engine import NatsEngine, bear
from tests.support.polling import eventually_blocking


def configured(servers: list[EngineServer], ca: Path | None) -> Engine:
    """The engine as every command and node makes it."""
    engine = tuple(EngineConfig(*one) for one in servers)
    return engine_of(ClusterConfig("a", engine, "http://127.0.0.1:1", Path("key"), ca=ca))


def test_who_shows_a_certificate_of_another_authority_is_not_spoken_to(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """CLUSTER R7, ``ca``: servers of the engine, and their monitors, are who that authority says, or nobody; without it
    the system's are asked. What is wrong is said."""
    authority = Authority(tmp_path)
    with NatsEngine(tmp_path / "engine", authority=authority) as running:
        bear("main", running.addresses, running.servers[0].tls)
        for ca in (Authority(tmp_path, "other").file, None):
            engine = configured(running.addresses, ca)
            with pytest.raises(OSError, match=r"no engine answers.*certificate verify failed"):
                engine.connect()
            assert engine.syncs_always(engine.servers[0]) is None
        engine = configured(running.addresses, authority.file)
        engine.connect()
        engine.verify()
        assert all(engine.syncs_always(one) for one in engine.servers)
        # A server that goes is no news for who runs a command: asyncio's own words about it would stand on its stderr.
        for server in running.servers:
            server.kill()
        eventually_blocking(lambda: engine.client.is_reconnecting, "the client notices")
        engine.close()
        assert [record.message for record in caplog.records if record.name == "asyncio"] == []


def test_a_server_that_is_frozen_is_left_at_once(tmp_path: Path) -> None:
    """TLS ends with an answer of the other side, which one that is frozen or cut off never gives: the next server is
    dialled after the pings, and not after the 30 s for which loops wait for that."""
    authority = Authority(tmp_path)
    with NatsEngine(tmp_path / "engine", authority=authority) as running:
        bear("main", running.addresses, running.servers[0].tls)
        engine = configured(running.addresses, authority.file)
        engine.connect()
        url = engine.client.connected_url
        assert url is not None
        frozen = next(one for one in running.servers if one.port == url.port)
        frozen.pause(paused=True)
        # Not "it is disconnected, then connected": it is for so short a time between the two that a look may miss it.
        eventually_blocking(
            lambda: (now := engine.client.connected_url) is not None and now.port != frozen.port,
            "another server is dialled",
            15,
        )
        engine.close()


@pytest.mark.parametrize(("holds", "why"), [(None, "No such file"), ("no PEM", "no certificates in PEM")])
def test_a_file_that_is_no_authority_is_a_mistake_of_the_configuration(
    tmp_path: Path, holds: str | None, why: str
) -> None:
    """What happened and where, before anything is dialled."""
    file = tmp_path / "ca.crt"
    if holds is not None:
        file.write_text(holds)
    with pytest.raises(BadConfig, match=f"cluster.ca: .*ca.crt cannot be used: .*{why}"):
        configured([EngineServer("tls://127.0.0.1:1", "https://127.0.0.1:2")], file)
