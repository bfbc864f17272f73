"""TLS sessions that a later connection to the same origin resumes, so that it needs no certificate and no signature.

The loops have no argument for a session. They only ask what they are given as a context to wrap a pair of buffers, and
hand it out again as the ``sslcontext`` of the transport: an ``OfferedSession`` stands there for one connection.

A resumed connection is as good as the certificate that was verified when its session began, so each origin (scheme,
host and port) has a session of its own, and it ends after ``VERIFIED_MAX_S``. Python itself refuses a session under
another trust than its own. A session is offered again as long as it is resumed: taking one off a connection copies it
with the certificates in it, which costs a third of a whole handshake.
"""

import asyncio
import ssl
from time import monotonic
from typing import Final

VERIFIED_MAX_S: Final = 300.0
"""no longer than a connection may live: then the certificate is looked at again"""


class OriginSession:
    """The session that the next connection to one origin offers; None where there is none. ``verified_s``: when its
    certificate was verified, on the monotonic clock."""

    __slots__ = ("context", "session", "verified_s")

    def __init__(self) -> None:
        self.session: ssl.SSLSession | None = None
        self.context: ssl.SSLContext | None = None
        """it was verified with this one; ``ssl`` raises where it is offered under another"""
        self.verified_s = 0.0

    def forget(self) -> None:
        """The next connection is verified in full."""
        self.session = None


class OfferedSession:
    """In place of a context of ``ssl``, for one connection: it offers the session of its origin where one is left."""

    __slots__ = ("_began_s", "_context", "_kept", "_session")

    def __init__(self, context: ssl.SSLContext, kept: OriginSession) -> None:
        self._began_s = monotonic()
        if self._began_s - kept.verified_s > VERIFIED_MAX_S or kept.context is not context:
            kept.forget()
        self._context = context
        self._kept = kept
        self._session = kept.session

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | None = None,
    ) -> ssl.SSLObject:
        """See ``wrap_bio`` of a context; called by the loop."""
        return self._context.wrap_bio(incoming, outgoing, server_side, server_hostname, self._session)

    def ended(self, tls: ssl.SSLObject) -> None:
        """Keep the session of the connection, which is at its end (tickets of TLS 1.3 come after the handshake), where
        it was verified in full and no other connection has left one since."""
        if tls.session_reused or self._kept.session is not self._session:
            return
        session = tls.session
        if session is not None and (session.has_ticket or session.id):
            self._kept.session, self._kept.verified_s = session, self._began_s
            self._kept.context = self._context


def keep_session(transport: asyncio.BaseTransport) -> None:
    """Keep the session of a connection that was made and ends, for its origin; one without TLS has none."""
    offered = transport.get_extra_info("sslcontext")
    if isinstance(offered, OfferedSession):
        offered.ended(transport.get_extra_info("ssl_object"))
