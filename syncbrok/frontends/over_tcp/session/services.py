"""The parts of the broker that a TCP frontend is given."""

from collections.abc import Callable
from typing import NamedTuple

from syncbrok.delivery.consumers import Consumers
from syncbrok.frontends.bounds import Bounds
from syncbrok.frontends.over_tcp.session.first_use import FirstUse
from syncbrok.model import limits
from syncbrok.space.channels import Channels
from syncbrok.space.queries.view import View


class TcpServices(NamedTuple):
    """The Space's channels to put into and its view to ask, queues on first use, and the handler of those who come for
    their messages."""

    channels: Channels
    view: View
    queues: FirstUse
    consumers: Consumers
    number_of: Callable[[str, str], int]
    """of a subscriber, by queue and id"""
    bounds: Bounds
    """what its peers may hold"""
    content_bytes_max: int = limits.content_bytes_max
    """of a message, as over HTTP"""
