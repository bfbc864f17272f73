"""The certificates of every listener that speaks TLS, read at the start and again on SIGHUP."""

import ssl
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from syncbrok.config import Config, TlsConfig
from syncbrok.frontends.listening import ListenerTls, server_context
from syncbrok.model.errors import BadConfig

_OVER_HTTP: Final = ("http/1.1",)


class ReadCertificate(NamedTuple):
    """The TLS of one listener. ``files``: the bytes it was made of, to see later whether they have changed.
    ``as_client``: for this process as a client of a listener like it."""

    files: tuple[bytes, ...]
    context: ssl.SSLContext
    as_client: ssl.SSLContext


def read_certificates(config: Config) -> Mapping[str, ReadCertificate]:
    """The certificates of each listener that speaks TLS, by its key in the configuration (http, frontends.framed, ...).
    Reads the disk. Raises ``BadConfig`` that names the listener and the file."""
    return {listener: _read(listener, files) for listener, files in _listeners(config)}


class Certificates:
    """The TLS of each listener, and which certificate it shows."""

    def __init__(self, read: Mapping[str, ReadCertificate]) -> None:
        self._read = dict(read)
        self._tls = {listener: ListenerTls(one.context) for listener, one in read.items()}

    def of(self, listener: str) -> ListenerTls | None:
        """None where it speaks in clear."""
        return self._tls.get(listener)

    def as_client(self, listener: str) -> ssl.SSLContext | None:
        """The TLS for connections to such a listener of another broker that is set up alike; None: in clear."""
        read = self._read.get(listener)
        return None if read is None else read.as_client

    def replace(self, read: Mapping[str, ReadCertificate]) -> list[str]:
        """Show these from the next connection on. Returns the listeners for which that is something else. One that
        begins or ends to speak TLS needs a restart."""
        changed = [one for one in self._tls if one in read and read[one].files != self._read[one].files]
        for listener in changed:
            self._read[listener] = read[listener]
            self._tls[listener].context = read[listener].context
        return changed


def _listeners(config: Config) -> Iterator[tuple[str, TlsConfig]]:
    if config.http.tls is not None:
        yield "http", config.http.tls
    for name, settings in config.frontends.on():
        if settings.tls is not None:
            yield f"frontends.{name}", settings.tls


def _read(listener: str, files: TlsConfig) -> ReadCertificate:
    try:
        context = server_context(files.cert, files.key, files.client_ca, _OVER_HTTP if listener == "http" else ())
    except BadConfig as wrong:
        raise BadConfig(f"{listener}.tls: {wrong.detail}", key=f"{listener}.tls") from wrong
    found = (files.cert, files.key, files.client_ca)
    return ReadCertificate(tuple(one.read_bytes() for one in found if one is not None), context, _as_client(files))


def _as_client(files: TlsConfig) -> ssl.SSLContext:
    """The TLS of a client of such a listener: it trusts the authority that the listener asks certificates of, and shows
    the listener's own; without one it trusts the system's authorities."""
    if files.client_ca is None:
        return ssl.create_default_context()
    context = ssl.create_default_context(cafile=str(files.client_ca))
    context.load_cert_chain(files.cert, files.key)
    return context
