"""An authority of a test and what it signs, as the files that a listener is given."""

import ssl
from pathlib import Path
from typing import NamedTuple

import trustme


class Files(NamedTuple):
    """PEM files of one certificate."""

    cert: Path
    key: Path
    both: Path


class Authority:
    """Signs certificates; ``file`` is its own."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self._authority = trustme.CA()
        self._directory = directory
        self.file = directory / f"{name}.pem"
        self._authority.cert_pem.write_to_path(self.file)

    def signs(self, name: str, *identities: str) -> Files:
        """A certificate of ``identities``, in files of this name; what stood there before is replaced."""
        signed = self._authority.issue_cert(*(identities or ("127.0.0.1", "localhost")))
        files = Files(*(self._directory / f"{name}.{end}" for end in ("crt", "key", "pem")))
        files.cert.write_bytes(b"".join(one.bytes() for one in signed.cert_chain_pems))
        signed.private_key_pem.write_to_path(files.key)
        signed.private_key_and_cert_chain_pem.write_to_path(files.both)
        return files

    def client(self, shows: Files | None = None) -> ssl.SSLContext:
        """What a client needs that trusts this authority alone, and shows a certificate of its own where one is
        given."""
        context = ssl.create_default_context(cafile=str(self.file))
        if shows is not None:
            context.load_cert_chain(shows.both)
        return context

    def verifying(self) -> ssl.SSLContext:
        """What a server needs that shows a certificate of this authority, and asks for one of it."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.file))
        context.load_cert_chain(self.signs("server").both)
        context.verify_mode = ssl.CERT_REQUIRED
        return context
