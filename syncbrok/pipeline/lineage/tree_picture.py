"""Chooses which messages of a tree to draw, and draws them. A tree of millions gets as many rows as one of forty.

A small tree is shown whole. Of a larger one: the first and the last step of its critical path and those that took
longest; and of the others those with the most children, of these the ones that ended last.
"""

from typing import Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f

from syncbrok.model.errors import UnknownMessage
from syncbrok.pipeline.lineage.tree_svg import MessageBar, TreeSummary, draw

ROWS_MAX: Final = 40
_STEPS_MAX: Final = 18
"""of the critical path, where not all of the tree fits"""


def root_of(nodes: DataFrame, trees: DataFrame, wanted: str | None) -> int | None:
    """The tree to draw: that of the message ``wanted`` (an id or a sequence), else the one that took longest. None
    where there is no tree. Raises ``UnknownMessage``."""
    if wanted is None:
        slowest = trees.orderBy(f.desc_nulls_last("took_us"), f.desc("messages"), "root").select("root").first()
        return None if slowest is None else int(slowest["root"])
    text = wanted.strip().lower()
    is_it = f.col("sequence") == int(text) if text.isdecimal() else f.col("id") == text
    found = nodes.where(is_it).select("root").first()
    if found is None and text.isdecimal():  # the root's own record may be gone
        found = trees.where(f.col("root") == int(text)).select("root").first()
    if found is None:
        raise UnknownMessage(
            f"there is no message {wanted!r} in what was read: give an id or a sequence, and mind the range of time"
        )
    return int(found["root"])


def picture(nodes: DataFrame, trees: DataFrame, critical_paths: DataFrame, root: int) -> str:
    """The SVG of the tree of ``root``, as ``lineage.write`` gave the tables."""
    tree = trees.where(f.col("root") == root).first()
    if tree is None:
        raise UnknownMessage(f"there is no tree with the root {root}: see the table trees for those there are")
    path = critical_paths.where(f.col("tree") == root)
    whole = tree["messages"] + (tree["outside"] or 0) <= ROWS_MAX
    if not whole:
        ends = path.where((f.col("step") == 1) | (f.col("step") == tree["steps"]))
        path = ends.union(path.orderBy(f.desc("own_us"), "step").limit(_STEPS_MAX)).distinct()
    steps = {row["sequence"]: row for row in path.select("sequence", "step", "own_us").collect()}
    columns = _columns(nodes)
    chosen = columns.where(f.col("sequence").isin(*steps) if steps else f.lit(False))
    others = columns.where((f.col("root") == root) & ~f.col("critical"))
    widest = others.orderBy(f.desc("children"), f.desc_nulls_first("ended_us"), "sequence").limit(ROWS_MAX - len(steps))
    rows = [*chosen.collect(), *widest.collect()]
    return draw(
        TreeSummary(
            root,
            tree["queue"] or "",
            tree["messages"],
            tree["depth"],
            tree["took_us"],
            tree["critical_us"] or 0,
            tree["steps"] or 0,
        ),
        [_bar(row, root, steps, rows) for row in rows],
    )


def _columns(nodes: DataFrame) -> DataFrame:
    ended = f.coalesce("complete_at", "ended_at")
    return nodes.select(
        *("sequence", "root", "queue", "critical", "critical_parent", "children", "descendants", "attempts"),
        f.unix_micros("accepted_at").alias("accepted_us"),
        f.unix_micros("parents_at").alias("parents_us"),
        f.unix_micros("first_attempt_at").alias("began_us"),
        f.unix_micros(ended).alias("ended_us"),
        f.col("complete_at").isNull().alias("incomplete"),
        f.col("parents.sequence").alias("parents"),
    )


def _bar(row: Row, root: int, steps: dict[int, Row], rows: list[Row]) -> MessageBar:
    sequence = row["sequence"]
    step = steps.get(sequence)
    has_rows_below = any(sequence in (other["parents"] or ()) for other in rows)
    first_parent = row["parents"][0] if row["parents"] else None
    return MessageBar(
        sequence=sequence,
        queue=row["queue"],
        accepted_us=row["accepted_us"],
        parents_us=row["parents_us"],
        began_us=row["began_us"],
        ended_us=row["ended_us"],
        failed=bool(row["incomplete"] and row["ended_us"] is not None),
        attempts=row["attempts"],
        held_by=row["critical_parent"] if row["critical_parent"] is not None else first_parent,
        step=step["step"] if step is not None else None,
        own_us=step["own_us"] if step is not None else 0,
        below=0 if has_rows_below or row["root"] != root else row["descendants"],
        elsewhere=row["root"] != root,
    )
