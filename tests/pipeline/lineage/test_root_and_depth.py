"""Root and depth that nobody recorded."""

import random

import numpy as np
import pyarrow as pa
import pytest

from syncbrok.pipeline.lineage.root_and_depth import RootsAndDepths
from tests.pipeline.lineage.family_graph import Node, random_graph


def derived(nodes: dict[int, Node], said: set[int], blocks: int) -> dict[int, tuple[int, int]]:
    places, found = RootsAndDepths(), {}
    for some in np.array_split(np.array(sorted(nodes)), blocks):
        if not len(some):
            continue
        rows = [nodes[int(one)] for one in some]
        table = pa.table(
            {
                "sequence": pa.array([row.sequence for row in rows]),
                "parent_sequences": pa.array([list(row.parents) for row in rows], pa.list_(pa.int64())),
                "root": pa.array([row.root if row.sequence in said else None for row in rows], pa.int64()),
                "depth": pa.array([row.depth if row.sequence in said else None for row in rows], pa.int32()),
            }
        )
        root, depth = places.add(table)
        found |= {row.sequence: (int(a), int(b)) for row, a, b in zip(rows, root.tolist(), depth.tolist(), strict=True)}
    return found


@pytest.mark.parametrize("further", [0.0, 0.3])
@pytest.mark.parametrize("seed", range(12))
def test_what_is_derived_is_what_the_broker_would_have_recorded(seed: int, further: float) -> None:
    """Root of the first parent and 1 + the deepest parent's depth, over any cut into blocks, from nothing or from what
    some messages say; a parent that is missing counts as not being there."""
    chance = random.Random(seed)
    nodes = random_graph(chance, 150, further=further)
    said = {one for one in nodes if chance.random() < chance.choice((0.0, 0.3))}
    expected: dict[int, tuple[int, int]] = {}
    for sequence, node in nodes.items():
        known = [expected[parent] for parent in node.parents if parent in expected]
        first = expected.get(node.parents[0]) if node.parents else None
        own = (first[0] if first else sequence, 1 + max((depth for _, depth in known), default=-1))
        expected[sequence] = (node.root, node.depth) if sequence in said else own
    for blocks in (1, 4, 40):
        assert derived(nodes, said, blocks) == expected
