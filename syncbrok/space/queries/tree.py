"""The causal graph around one message: up to its ancestors, or down to its descendants.

Breadth first, so that a graph larger than ``limits.tree_nodes_max`` or ``limits.tree_edges_max`` is cut at its far
edge. Every level is read off the event loop in slices, and states are asked for between them.
"""

from collections.abc import Sequence
from itertools import islice

from syncbrok.model import limits
from syncbrok.model.facts import StoredMessage
from syncbrok.model.journal import MessageIndex
from syncbrok.model.names import MessageId, QueueName, sequence_of
from syncbrok.space.pause import Pause
from syncbrok.space.queries.reading import SLICE, Reading
from syncbrok.space.queries.sources import Sources
from syncbrok.space.reports import TreeNode, TreeReport

GONE = "gone"
"""state of a parent that retention has dropped: its id is known, nothing else of it is"""


class TreeWalk:
    """Walks the graph. Keeps nothing between two walks."""

    def __init__(self, sources: Sources, reading: Reading) -> None:
        self._sources = sources
        self._reading = reading

    async def walk(self, start: StoredMessage, direction: str, depth_max: int, pause: Pause) -> TreeReport:
        """``direction`` is ``up`` (parents) or ``down`` (children); ``depth_max`` edges at most."""
        nodes = [self._node(start, 0)]
        seen = {start.sequence}
        parents_left = limits.tree_edges_max - len(start.parents)
        level: Sequence[StoredMessage] = (start,)
        beyond = self._parents if direction == "up" else self._children
        for distance in range(1, depth_max + 1):
            room = limits.tree_nodes_max - len(nodes)
            named = await beyond(level, seen, room + 1)
            seen.update(named)
            level, is_cut = await self._read(dict(islice(named.items(), room)), distance, nodes, parents_left, pause)
            parents_left -= sum([len(message.parents) for message in level])
            if not level or is_cut or len(named) > room:
                return TreeReport(tuple(nodes), truncated=is_cut or len(named) > room)
        return TreeReport(tuple(nodes), truncated=bool(await beyond(level, seen, 1)))

    async def _parents(self, level: Sequence[StoredMessage], seen: set[int], limit: int) -> dict[int, MessageId | None]:
        """Up to ``limit`` parents that have not been seen, by sequence."""
        named: dict[int, MessageId | None] = {}
        for message in level:
            for parent in message.parents:
                sequence = sequence_of(parent)
                if sequence not in seen and len(named) < limit:
                    named[sequence] = parent
        return named

    async def _children(
        self, level: Sequence[StoredMessage], seen: set[int], limit: int
    ) -> dict[int, MessageId | None]:
        """Up to ``limit`` children that have not been seen; their ids come with their records."""
        named: dict[int, MessageId | None] = {}
        for at in range(0, len(level), SLICE):
            some = [message.sequence for message in level[at : at + SLICE]]
            # Messages seen already may fill an answer, so ask for that many more.
            children = await self._sources.run_blocking(_children_of, self._sources.journal, some, limit + len(seen))
            for sequence in children:
                if sequence not in seen:
                    named[sequence] = None
                if len(named) >= limit:
                    return named
        return named

    async def _read(
        self,
        named: dict[int, MessageId | None],
        distance: int,
        nodes: list[TreeNode],
        parents_left: int,
        pause: Pause,
    ) -> tuple[list[StoredMessage], bool]:
        """Add a node for each; the messages there are to go on from, and whether the rest was left out, since those
        read so far name ``parents_left`` parents."""
        found: list[StoredMessage] = []
        sequences = list(named)
        for at in range(0, len(sequences), SLICE):
            if parents_left <= 0:
                return found, True
            some = sequences[at : at + SLICE]
            for sequence, stored in zip(some, await self._reading.messages(some), strict=True):
                id_ = named[sequence]
                if stored is not None:
                    nodes.append(self._node(stored.message, distance))
                    found.append(stored.message)
                    parents_left -= len(stored.message.parents)
                elif id_ is not None:
                    nodes.append(TreeNode(id_, sequence, QueueName(""), GONE, distance, ()))
            await pause()
        return found, False

    def _node(self, message: StoredMessage, distance: int) -> TreeNode:
        return TreeNode(
            id=message.id,
            sequence=message.sequence,
            queue=self._sources.registry.queue_name(message.queue),
            state=self._sources.schedule.message_state(message.sequence),
            distance=distance,
            parents=message.parents,
        )


def _children_of(journal: MessageIndex, sequences: Sequence[int], limit: int) -> list[int]:
    found: dict[int, None] = {}
    for sequence in sequences:
        found.update(dict.fromkeys(journal.children_of(sequence, limit)))
        if len(found) >= limit:
            break
    return list(found)
