"""The TLS of endpoints with authorities of their own, or to which the broker shows a certificate of its own.

OpenSSL reads a private key from a file alone; ``_as_file`` gives it one that no disk ever sees.
"""

import asyncio
import os
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from syncbrok.model.auth_settings import AUTHORITY, CERTIFICATE, PRIVATE_KEY
from syncbrok.model.errors import BadSetting
from syncbrok.model.message import EndpointAuth


class EndpointTls:
    """Authorities in place of the system's (``""``: those), and a certificate with its key (``""``: none), all PEM.

    ``digest`` is the same for the same ones: connections are shared by those alone."""

    __slots__ = ("_authority", "_certificate", "_context", "_key", "digest")

    def __init__(self, authority: str = "", certificate: str = "", key: str = "") -> None:
        self._authority, self._certificate, self._key = authority, certificate, key
        whole = f"{authority}\0{certificate}\0{key}".encode("utf-8", "surrogatepass")
        self.digest = sha256(whole).digest() if authority or certificate else b""
        self._context: ssl.SSLContext | None = None

    @classmethod
    def of(cls, auth: EndpointAuth | None, credentials: Mapping[str, str]) -> "EndpointTls | None":
        """That of a subscriber; None where it is everybody's. Raises ``LookupError`` where a credential is missing."""
        if auth is None or not (auth.has_certificate or auth.has_authority):
            return None
        shown = (credentials[CERTIFICATE], credentials[PRIVATE_KEY]) if auth.has_certificate else ("", "")
        return cls(credentials[AUTHORITY] if auth.has_authority else "", *shown)

    async def context(self) -> ssl.SSLContext:
        """Made with the first connection: it reads the system's trust store from the disk. Raises ``OSError``."""
        if self._context is None:
            made = await asyncio.get_running_loop().run_in_executor(None, self._make)
            self._context = self._context or made  # dials at once make it each; a session is good for one context only
        return self._context

    def _make(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=_ascii(self._authority) or None)
        context.set_alpn_protocols(["http/1.1"])
        if self._certificate:
            show(context, self._certificate, self._key)
        return context


def check_credentials(credentials: Mapping[str, str]) -> None:
    """Raises ``BadSetting`` where authorities, certificate or key cannot be used. Names none of them."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if AUTHORITY in credentials:
        try:
            context.load_verify_locations(cadata=_ascii(credentials[AUTHORITY]))
        except (ssl.SSLError, ValueError):
            raise BadSetting("auth: ca: expected certificates of authorities, PEM", setting="auth") from None
    if CERTIFICATE in credentials:
        try:
            show(context, credentials[CERTIFICATE], credentials[PRIVATE_KEY])
        except (ssl.SSLError, ValueError) as wrong:
            other = "MISMATCH" in str(wrong)
            what = "the key of that certificate" if other else "a certificate and its key, PEM, without a passphrase"
            raise BadSetting(f"auth: mtls: expected {what}", setting="auth") from None


def show(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Let ``context`` show the certificate (PEM, with those it hangs on). Raises ``OSError``, ``ValueError``."""
    with _as_file(f"{certificate}\n{key}\n".encode()) as file:
        context.load_cert_chain(file, password=_no_passphrase)  # without it OpenSSL would ask at the terminal


def _ascii(pem: str) -> str:
    """The same PEM for ``ssl``, which takes ASCII alone: what people write between the certificates need not be."""
    return pem.encode("ascii", "replace").decode()


def _no_passphrase() -> str:
    raise ValueError("the key has a passphrase")


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """The path of a file with this content, in memory where the system can."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("syncbrok")
        try:
            os.write(file, content)
            yield f"/proc/self/fd/{file}"
        finally:
            os.close(file)
    else:
        with tempfile.TemporaryDirectory() as directory:  # 0700
            path = Path(directory, "pem")
            path.write_bytes(content)
            yield str(path)
