"""What is written to several connections in one turn of the loop is written together, at its end.

A process that holds several of them is then woken once for all of it. Written one by one, with work between, it falls
asleep after each, and waking it costs more than the write.
"""

import asyncio

from syncbrok.frontends.over_tcp.conversation import Conversation


class Writes:
    """One for each frontend whose peers take small messages and answer each."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Conversation, bytes]] = []  # few for each connection: answers, and a message

    def write(self, conversation: Conversation, data: bytes) -> None:
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._flush)
        self._waiting.append((conversation, data))

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        for conversation, data in waiting:
            conversation.write(data)
