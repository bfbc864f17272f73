"""Random families of messages, and the plain walk over them that the lineage job is compared with."""

import random
from typing import NamedTuple

START_US = 1_790_000_000_000_000


class Node(NamedTuple):
    sequence: int
    parents: tuple[int, ...]
    root: int
    depth: int
    accepted_us: int
    not_before_us: int | None
    began_us: int | None
    complete_us: int | None
    ended_us: int | None


class Step(NamedTuple):
    sequence: int
    own_us: int


def random_graph(chance: random.Random, size: int, *, further: float = 0.2) -> dict[int, Node]:
    """``size`` messages; some are chains, some have several parents, in other trees too; some never end, some fail,
    a parent here and there is missing."""
    nodes: dict[int, Node] = {}
    clock_us = START_US
    sequence = 0
    for _ in range(size):
        # Neighbours travel together; what is far apart, each to its own place.
        sequence += chance.choice((1, 1, 2, 5)) + (chance.randrange(50_000) if chance.random() < 0.05 else 0)
        clock_us += chance.randrange(3_000)
        earlier = list(nodes)
        parents: list[int] = []
        if earlier and chance.random() < 0.8:
            parents.append(chance.choice(earlier[-12:]) if chance.random() < 0.7 else earlier[-1])
            while chance.random() < further:
                parents.append(chance.choice(earlier))
        parents = list(dict.fromkeys(parents))
        gone = parents and chance.random() < 0.03
        root = nodes[parents[0]].root if parents else sequence
        depth = 1 + max((nodes[one].depth for one in parents), default=-1)
        if gone:  # its record is not there any more: only its number is known
            parents[0] = parents[0] * 1_000_003 + 1
        nodes[sequence] = _ended(chance, sequence, tuple(parents), root, depth, clock_us, nodes)
    return nodes


def with_return(nodes: dict[int, Node]) -> dict[int, Node]:
    """``nodes``, and a family whose critical path leaves its tree and comes back into it: of a random graph one in two
    hundred has such a path."""
    first, at_us = max(nodes) + 10, max(node.accepted_us for node in nodes.values()) + 10_000
    other, own, outside, back = range(first, first + 4)
    family = (
        Node(other, (), other, 0, at_us, None, at_us + 10, at_us + 20, at_us + 20),
        Node(own, (), own, 0, at_us, None, at_us + 10, at_us + 100, at_us + 100),
        Node(outside, (other, own), other, 1, at_us, None, at_us + 110, at_us + 200, at_us + 200),
        Node(back, (own, outside), own, 2, at_us, None, at_us + 210, at_us + 300, at_us + 300),
    )
    return nodes | {node.sequence: node for node in family}


def _ended(
    chance: random.Random, sequence: int, parents: tuple[int, ...], root: int, depth: int, at_us: int, nodes: dict
) -> Node:
    not_before = at_us + chance.randrange(4_000) if chance.random() < 0.1 else None
    ends = [nodes[one].complete_us or nodes[one].ended_us for one in parents if one in nodes]
    if None in ends or chance.random() < 0.02:
        return Node(sequence, parents, root, depth, at_us, not_before, None, None, None)
    # Now and then before a parent has ended, as scope same and replays make it.
    gate = max([at_us, not_before or 0, *(end for end in ends if chance.random() < 0.97)])
    began = gate + chance.randrange(500)
    end = began + chance.randrange(1, 6_000)
    done = chance.random() < 0.93
    return Node(sequence, parents, root, depth, at_us, not_before, began, end if done else None, end)


def end_of(node: Node) -> int | None:
    return node.ended_us if node.complete_us is None else node.complete_us


def critical_parent(nodes: dict[int, Node], node: Node) -> int | None:
    """Of the parents that had ended before the message, the one that ended last, of several the greatest number."""
    own = end_of(node)
    ended = [
        (end, parent)
        for parent in node.parents
        if parent in nodes and (end := end_of(nodes[parent])) is not None and (own is None or end <= own)
    ]
    return max(ended)[1] if ended else None


def critical_path(nodes: dict[int, Node], root: int) -> list[Step]:
    """From where it begins to the message of the tree that was complete last."""
    done = [(node.complete_us, node.sequence) for node in nodes.values() if node.root == root and node.complete_us]
    if not done:
        return []
    steps = []
    at: int | None = max(done)[1]
    while at is not None:
        node = nodes[at]
        above = critical_parent(nodes, node)
        end, since = end_of(node), node.accepted_us if above is None else end_of(nodes[above])
        assert end is not None
        assert since is not None
        steps.append(Step(at, end - since))
        at = above
    return steps[::-1]


def descendants(nodes: dict[int, Node]) -> dict[int, int]:
    """Below each along first parents."""
    counts = dict.fromkeys(nodes, 0)
    for sequence in sorted(nodes, reverse=True):
        node = nodes[sequence]
        if node.parents and node.parents[0] in nodes:
            counts[node.parents[0]] += counts[sequence] + 1
    return counts
