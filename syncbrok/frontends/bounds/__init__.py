"""Bounds on a single client: descriptors, bytes it sends, bytes it does not read, time of the event loop. Every
frontend asks here before it serves; the budgets are those of the process (``space.budgets``)."""

from syncbrok.frontends.bounds.addresses import Addresses
from syncbrok.frontends.bounds.connections import Connections, HeldConnection
from syncbrok.frontends.bounds.receiving import Receiving
from syncbrok.frontends.bounds.sending import HIGH_WATER_BYTES, Sending, hold_little
from syncbrok.frontends.bounds.turns import Turns
from syncbrok.space.budgets import Budgets

__all__ = [
    "HIGH_WATER_BYTES",
    "Addresses",
    "Bounds",
    "Connections",
    "HeldConnection",
    "Receiving",
    "Sending",
    "Turns",
    "hold_little",
]


class Bounds:
    """The bounds of one process. Each frontend makes its own ``connections``."""

    def __init__(self, budgets: Budgets | None = None, addresses: Addresses | None = None) -> None:
        budgets = budgets or Budgets.of()
        self.addresses = addresses or Addresses()
        self.descriptors = budgets.descriptors
        self.receiving = Receiving(budgets.receiving)
        self.sending = Sending(budgets.sending)
        self.turns = Turns()

    def connections(self, connections_max: int, per_address_max: int) -> Connections:
        """The connections that one frontend accepts."""
        return Connections(self.descriptors, self.addresses.is_proxy, connections_max, per_address_max)
