"""The look before the first byte of an attempt: one rule for webhooks, pulls, sockets and consumers over TCP.

    1  all that was written to the connection before is with the system     ``carries``, then the transport's own word
    2  the lease of leadership holds                                        ``lets_begin``
    3  the bytes go to the system, and nothing is waited for between 2 and 3

Whoever writes attempts to a connection does these three, and gives back what was not let begin. An earlier look
(``lets_take``: where an attempt is taken, where it is handed over) only saves work: bytes that wait in a buffer of this
process go out when the process wakes, however long it was stopped, and another node leads by then. A parent would reach
a consumer after its children.

An attempt begins with the first byte of the write that carries it: the rest of a large content, and of several small
messages in one write, goes on. What the system has and the peer does not take is given up after as long as a lease.
"""

import asyncio
import socket
from typing import Final

from syncbrok.delivery.leader_lease import SINGLE_NODE, LeaderLease

_USER_TIMEOUT: Final[int | None] = getattr(socket, "TCP_USER_TIMEOUT", None)
"""Linux has it; elsewhere bytes may lie in the system for longer"""


class AttemptGuard:
    """One for a Space, shared by all who write attempts."""

    def __init__(self, lease: LeaderLease = SINGLE_NODE) -> None:
        self.lease = lease
        self.looks = lease.epoch != 0
        """False on a single machine: nobody else leads, and nothing is paid for it"""
        self.withheld = 0
        """attempts that were given back before their first byte, and turns in which none was taken, for want of a
        lease"""

    def carries(self, transport: asyncio.Transport) -> None:
        """The connection carries attempts from now on: its protocol is told (``pause_writing``) of whatever the system
        has not taken at once, and (``resume_writing``) when all of it is taken. Bytes that the peer does not
        acknowledge for as long as a lease end the connection. Neither on a single machine."""
        if not self.looks or transport.is_closing():
            return
        transport.set_write_buffer_limits(high=0)
        connection = transport.get_extra_info("socket")
        if connection is not None and _USER_TIMEOUT is not None:
            connection.setsockopt(socket.IPPROTO_TCP, _USER_TIMEOUT, int(self.lease.lease_s * 1_000))

    def lets_begin(self, attempts: int = 1) -> bool:
        """Whether the first byte of so many attempts may be written now. Else they are counted as withheld, and the
        caller gives them back: they have not begun."""
        return self.lets_take(attempts)

    def lets_take(self, attempts: int = 1) -> bool:
        """Whether so many may be on their way to where they begin."""
        if not self.looks or self.lease.holds():
            return True
        self.withheld += attempts
        return False
