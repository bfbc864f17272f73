"""Who a node is to the engine: a user with a password, or a token with a key, as a real server of NATS judges it."""

import base64
import binascii
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nats", reason="needs syncbrok[cluster]")

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from syncbrok.cluster.credentials import login
from syncbrok.cluster.engine import Engine, EngineServer
from syncbrok.model.errors import BadConfig
from tests.support.broker.process import held_port
from tests.support.polling import eventually_blocking

OPERATOR, ACCOUNT, USER, SEED = 14 << 3, 0, 20 << 3, 18 << 3
"""the first letters of keys of NATS: O, A, U, and S before whose seed it is"""


class NatsKey:
    """Of an operator, an account or a user."""

    def __init__(self, kind: int) -> None:
        self._key = Ed25519PrivateKey.generate()
        self.public = _encoded(bytes([kind]) + self._key.public_key().public_bytes_raw())
        self.seed = _encoded(bytes([SEED | kind >> 5, (kind & 31) << 3]) + self._key.private_bytes_raw())

    def signs(self, subject: str, kind: str) -> str:
        """A token of NATS."""
        free = dict.fromkeys(("subs", "data", "payload", "conn", "leaf", "imports", "exports"), -1) | {
            "wildcards": True
        }
        about: dict[str, Any] = {"type": kind, "version": 2}
        about |= {"account": {"limits": free}, "user": dict.fromkeys(("subs", "data", "payload"), -1)}.get(kind, {})
        claims = {"jti": subject, "iat": 1, "iss": self.public, "sub": subject, "nats": about}
        head = {"typ": "JWT", "alg": "ed25519-nkey"}
        text = ".".join(_url(json.dumps(one).encode()) for one in (head, claims))
        return f"{text}.{_url(self._key.sign(text.encode()))}"


def _encoded(data: bytes) -> str:
    return base64.b32encode(data + binascii.crc_hqx(data, 0).to_bytes(2, "little")).decode().rstrip("=")


def _url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


@contextmanager
def server_with(directory: Path, more: str) -> Iterator[EngineServer]:
    """One server of NATS, whose configuration has ``more``."""
    with held_port() as port:
        (directory / "nats.conf").write_text(f'listen: "127.0.0.1:{port}"\n{more}')
        program = Path(sys.executable).with_name("nats-server")
        with (directory / "out").open("wb") as out:
            process = subprocess.Popen([program, "-c", directory / "nats.conf"], stdout=out, stderr=out)
            try:
                ready = lambda: "Server is ready" in (directory / "out").read_text()  # noqa: E731
                eventually_blocking(ready, (directory / "out").read_text)
                yield EngineServer(f"nats://127.0.0.1:{port}", "http://127.0.0.1:1")
            finally:
                process.terminate()
                process.wait()


def connects(server: EngineServer, credentials: Path | None) -> bool:
    engine = Engine("main", [server], credentials)
    try:
        engine.connect()
    except OSError:
        return False
    engine.close()
    return True


def test_a_user_with_its_password_gets_in(tmp_path: Path) -> None:
    """docs/cluster.md: only who is in the engine's file of users may write to the stream."""
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    right.write_text("syncbrok:with:colons\n")
    wrong.write_text("syncbrok:another\n")
    with server_with(tmp_path, 'authorization { user: syncbrok, password: "with:colons" }\n') as server:
        eventually_blocking(lambda: connects(server, right), "the right one gets in", 60)
        assert not any(connects(server, one) for one in (wrong, None))


def test_a_token_of_nats_gets_in(tmp_path: Path) -> None:
    """``cluster.credentials`` as ``nsc`` writes it; another user's key does not answer for it."""
    operator, account, user, other = NatsKey(OPERATOR), NatsKey(ACCOUNT), NatsKey(USER), NatsKey(USER)
    token = account.signs(user.public, "user")
    files = []
    for name, key in (("right", user), ("wrong", other)):
        files.append(tmp_path / name)
        files[-1].write_text(
            f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n*** keep it ***\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{key.seed}\n------END USER NKEY SEED------\n"
        )
    preloaded = f"resolver_preload: {{ {account.public}: {operator.signs(account.public, 'account')} }}\n"
    trusts = f"operator: {operator.signs(operator.public, 'operator')}\nresolver: MEMORY\n{preloaded}"
    with server_with(tmp_path, trusts) as server:
        eventually_blocking(lambda: connects(server, files[0]), "the right one gets in", 60)
        assert not connects(server, files[1])


@pytest.mark.parametrize("text", ["", "syncbrok", "syncbrok:", "a:b\nc:d", "-----BEGIN NATS USER JWT-----\nx\n", None])
def test_what_is_neither_is_told(tmp_path: Path, text: str | None) -> None:
    """Bad input: the file is named, and what it should hold."""
    path = tmp_path / "nats.creds"
    if text is not None:
        path.write_text(text)
    with pytest.raises(BadConfig, match=str(path)):
        login(path)
