"""A leader whose followers are stopped, beside a single node: ``python -m benchmarks.cluster_leader``.

In a cluster of three hosts each follower has processors of its own; here all share two. What a leader does when nobody
else takes them is nearer to three hosts, though its engine's three servers are still here.
"""

from functools import partial

from benchmarks.cluster import once, ratio
from benchmarks.program import main
from benchmarks.row import Row, each_run

ROW = Row(
    "cluster_leader",
    "The row *cluster* with the two followers stopped: one broker and the three servers of the engine on this machine,"
    " beside a single node in the same run, in turns.",
    {
        "publish": ratio("leader alone: publish, one POST each", 0.6),
        "batch": ratio("leader alone: publish, batches of 500", 0.5),
        "chain": ratio("leader alone: hops of one parent chain", 0.2),
        "backlog": ratio("leader alone: deliver a backlog", 0.7),
    },
    each_run(partial(once, followers=False)),
)

if __name__ == "__main__":
    main([ROW])
