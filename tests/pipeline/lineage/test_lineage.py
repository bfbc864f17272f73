"""The lineage job against a plain walk over random families, and against the broker's own trees."""

import json
import os
import random
import re
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from syncbrok.cli.pipeline.group import command as pipeline
from syncbrok.model.errors import UnknownMessage
from syncbrok.model.facts import Rearmed
from syncbrok.pipeline.completion import completions as completion
from syncbrok.pipeline.lineage import job
from syncbrok.pipeline.lineage.root_and_depth import with_root_and_depth
from syncbrok.pipeline.lineage.tree_picture import picture, root_of
from syncbrok.pipeline.log_and_archive import LogAndArchive
from tests.pipeline.lineage.family_graph import (
    Node,
    critical_parent,
    critical_path,
    descendants,
    end_of,
    random_graph,
    with_return,
)
from tests.support.broker.process import BrokerProcess
from tests.support.log.journals import START_US
from tests.support.log.segment_files import facts_in
from tests.support.pipeline.broker_log import RealLog

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MESSAGES = (
    "sequence long, time timestamp, queue string, id string, parent_sequences array<long>, root long, depth int, "
    "not_before timestamp"
)
_COMPLETIONS = "message long, first_attempt_at timestamp, attempts long, complete_at timestamp, ended_at timestamp"


def moment(time_us: int | None) -> datetime | None:
    return None if time_us is None else _EPOCH + timedelta(microseconds=time_us)


def frames(spark: SparkSession, nodes: dict[int, Node]) -> tuple[DataFrame, DataFrame]:
    messages = [
        (n.sequence, moment(n.accepted_us), "q", f"id-{n.sequence}", list(n.parents), n.root, n.depth,
         moment(n.not_before_us))
        for n in nodes.values()
    ]  # fmt: skip
    ends = [
        (n.sequence, moment(n.began_us), int(n.began_us is not None), moment(n.complete_us), moment(n.ended_us))
        for n in nodes.values()
    ]
    return spark.createDataFrame(messages, _MESSAGES), spark.createDataFrame(ends, _COMPLETIONS)


@pytest.fixture(scope="module")
def graph() -> dict[int, Node]:
    """Many families; of some a tree waits for another that waits for a third, or for its own beginning."""
    seed = int(os.environ.get("SYNCBROK_TEST_SEED") or random.SystemRandom().randrange(2**32))
    print(f"seed: SYNCBROK_TEST_SEED={seed}")
    return with_return(random_graph(random.Random(seed), 3_000))


@pytest.fixture(scope="module")
def found(spark: SparkSession, graph: dict[int, Node], tmp_path_factory: pytest.TempPathFactory) -> job.LineageTables:
    return job.write(job.lineage(*frames(spark, graph)), str(tmp_path_factory.mktemp("lineage")))


def test_each_message_knows_its_place(found: job.LineageTables, graph: dict[int, Node]) -> None:
    """Children are all who name it, descendants those below it along first parents, the critical parent is the last of
    those that had ended before it, wherever it stands."""
    below = descendants(graph)
    named = Counter(parent for node in graph.values() for parent in node.parents)
    expected = {
        one: (node.root, node.depth, named[one], below[one], critical_parent(graph, node))
        for one, node in graph.items()
    }
    columns = ("root", "depth", "children", "descendants", "critical_parent")
    assert {row[0]: tuple(row[1:]) for row in found.nodes.select("sequence", *columns).collect()} == expected


def test_each_edge_says_how_long_it_held_its_child(found: job.LineageTables, graph: dict[int, Node]) -> None:
    """A row for each parent of each message, also where the parent is in another tree or gone."""
    expected = set()
    for node in graph.values():
        for position, parent in enumerate(node.parents):
            known = graph.get(parent)
            end = end_of(known) if known else None
            waited = None if end is None else max(0, end - node.accepted_us)
            in_tree = known is not None and known.root == node.root
            is_critical = critical_parent(graph, node) == parent
            expected.add((parent, node.sequence, position, node.root, in_tree, waited, is_critical))
    columns = ("parent", "child", "position", "root", "in_tree", "waited_us", "critical")
    rows = [tuple(row) for row in found.edges.select(*columns).collect()]
    assert len(rows) == len(expected)
    assert set(rows) == expected


def test_a_critical_path_is_the_chain_of_waits_and_adds_up(found: job.LineageTables, graph: dict[int, Node]) -> None:
    """From the last completion up through the parent that ended last at each message, through other trees too; what is
    on it is all of the time, each moment once."""
    roots = {node.root for node in graph.values()}
    expected = {root: [tuple(step) for step in critical_path(graph, root)] for root in roots}
    steps: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for row in found.critical_paths.orderBy("tree", "step").collect():
        steps[row["tree"]].append((row["sequence"], row["own_us"]))
        assert row["step"] == len(steps[row["tree"]])
        parts = row["published_us"] + row["scheduled_us"] + row["queued_us"] + row["attempts_us"]
        assert parts == row["own_us"]
        assert min(row["published_us"], row["scheduled_us"], row["queued_us"], row["attempts_us"]) >= 0
    assert dict(steps) == {root: path for root, path in expected.items() if path}
    trees = {row["root"]: row for row in found.trees.collect()}
    assert set(trees) == roots
    assert any(row["outside"] for row in trees.values()), "the graph has paths that leave their tree"
    for root, path in expected.items():
        row = trees[root]
        assert (row["critical_us"] or 0) == sum(own for _, own in path)
        assert (row["steps"] or 0) == len(path)
        assert row["start"] == (path[0][0] if path else None)
        assert (row["outside"] is None) == (row["complete_at"] is None) == (not path)
        outside = [graph[sequence].root != root for sequence, _ in path]
        assert not path or row["outside"] == sum(outside)
        assert row["messages"] == sum(node.root == root for node in graph.values())


def test_many_ways_between_trees_are_joined(
    spark: SparkSession, found: job.LineageTables, graph: dict[int, Node], tmp_path: Path
) -> None:
    """Where they are too many for every task to have, Spark makes the same trees and paths of the same files."""
    joined = job.write(job.lineage(*frames(spark, graph)), str(tmp_path), copied_max=3)
    for one, other in ((found.trees, joined.trees), (found.critical_paths, joined.critical_paths)):
        assert one.schema == other.schema
        assert sorted(map(repr, one.collect())) == sorted(map(repr, other.collect()))


@pytest.mark.parametrize("size", [0, 1, 40])
def test_trees_that_nothing_leads_out_of(spark: SparkSession, tmp_path: Path, size: int) -> None:
    """A chain, one message, none at all: each path stays in its tree, and every table is there."""
    chain = {
        at: Node(
            at, (at - 1,) if at > 1 else (), 1, at - 1, START_US + at, None, START_US + at, *[START_US + 9 * at] * 2
        )
        for at in range(1, size + 1)
    }
    found = job.write(job.lineage(*frames(spark, chain)), str(tmp_path))
    steps = [row["sequence"] for row in found.critical_paths.orderBy("step").collect()]
    assert steps == list(chain)
    assert [row["outside"] for row in found.trees.collect()] == [0] * bool(size)
    assert (found.nodes.count(), found.edges.count()) == (size, max(size - 1, 0))


def test_the_picture_of_any_tree_is_small_and_well_formed(found: job.LineageTables) -> None:
    """The largest tree and the one whose path is longest outside of it are drawn; a message is found by id and
    by sequence."""
    for column in ("messages", "outside"):
        root = found.trees.orderBy(f.desc(column)).first()["root"]
        svg = picture(found.nodes, found.trees, found.critical_paths, root)
        assert ET.fromstring(svg).tag.endswith("svg")
        assert len(re.findall(r'class="small faint end"', svg)) <= 40
    some = found.nodes.where("depth > 0").first()
    assert root_of(found.nodes, found.trees, some["id"]) == some["root"]
    assert root_of(found.nodes, found.trees, str(some["sequence"])) == some["root"]


def test_missing_roots_are_derived_before_anything_else(spark: SparkSession, graph: dict[int, Node]) -> None:
    """Rows of elsewhere without root and depth get the same trees as those the broker wrote, where no
    parent is missing."""
    whole: dict[int, Node] = {}
    for sequence, node in graph.items():
        if all(parent in whole for parent in node.parents):
            whole[sequence] = node
    messages, _ = frames(spark, whole)
    expected = {one: (n.root, n.depth) for one, n in whole.items()}
    for rows_at_once in (len(whole), len(whole) // 2 + 1):  # in one task, and in two, one after the other
        places = with_root_and_depth(messages.drop("root", "depth"), rows_at_once)
        assert {row[0]: (row[1], row[2]) for row in places.select("sequence", "root", "depth").collect()} == expected


def test_a_part_of_a_log_is_the_same_whichever_way_it_is_read(
    spark: SparkSession, real_log: RealLog, tmp_path: Path
) -> None:
    """Rows that Spark never meets and rows that it hands over make the same four tables, of a log whose beginning is
    left out: parents are asked for there that nobody knows."""
    whole = LogAndArchive(spark, real_log.storage)
    times = sorted(message["accepted_at"] for message in real_log.answers.messages.values())
    messages = whole.rows("messages", since=times[len(times) // 2])
    deliveries, facts = whole.rows("deliveries"), whole.read("facts")
    completions = completion.completions(messages.frame(), deliveries.frame(), facts)
    ways = {
        "log": job.lineage_of_log(messages, deliveries, facts),
        "frames": job.lineage(messages.frame(), completions),
    }
    log, rows = (job.write(made, str(tmp_path / name)) for name, made in ways.items())
    for name in ("nodes", "edges", "trees", "critical_paths"):
        # Which row of a tree says what is to say of all of it is open.
        one, other = (getattr(found, name).drop(*(["tree"] if name == "nodes" else [])) for found in (log, rows))
        told, same = (sorted(map(repr, frame.collect())) for frame in (one, other))
        assert told
        assert told == same, name


def test_the_command_agrees_with_the_brokers_own_trees(spark: SparkSession, real_log: RealLog, tmp_path: Path) -> None:
    """On a log of a broker that was killed under load, following the edges finds what ``/v1/messages/{id}/tree`` found,
    up and down; and a second run leaves the same."""
    out = tmp_path / "out"
    arguments = ["lineage", "--storage", str(real_log.storage), "--out", str(out)]
    told = [CliRunner().invoke(pipeline, arguments) for _ in range(2)]
    assert [one.exit_code for one in told] == [0, 0], told[0].output
    assert "picture" in told[0].output
    assert ET.parse(out / "lineage" / "tree.svg").getroot().tag.endswith("svg")
    nodes = spark.read.parquet(str(out / "lineage" / "nodes"))
    edges = [
        tuple(row) for row in spark.read.parquet(str(out / "lineage" / "edges")).select("child", "parent").collect()
    ]
    places = {row["sequence"]: row for row in nodes.select("sequence", "id", "root", "depth", "complete_at").collect()}
    assert len(places) == len(real_log.answers.messages)
    children, parents = defaultdict(set), defaultdict(set)
    for child, parent in edges:
        children[parent].add(child)
        parents[child].add(parent)
    assert real_log.answers.trees
    for tree in real_log.answers.trees:
        start = next(node for node in tree["nodes"] if node["distance"] == 0)["sequence"]
        both = [_reached(start, ways) for ways in (parents, children)]
        answered = {node["sequence"]: node["distance"] for node in tree["nodes"]}
        assert answered in both, json.dumps(tree)[:500]
    replays = [fact for fact in facts_in(real_log.storage) if isinstance(fact, Rearmed)]
    opened_again = {entry.message for fact in replays for entry in fact.entries}
    for sequence, message in real_log.answers.messages.items():
        assert places[sequence]["id"] == message["id"]
        was_complete = places[sequence]["complete_at"] is not None
        # What a replay has opened again stays complete for those that waited for it.
        assert was_complete == (message["state"] == "complete") or (was_complete and sequence in opened_again), message


def test_the_broker_itself_finds_the_same_critical_paths(
    spark: SparkSession, real_log: RealLog, tmp_path: Path
) -> None:
    """``GET /v1/messages/{id}/critical-path`` of the message of each tree that was complete last says what the job
    says, in another order of reading and by other code: the same steps, times and attempts; and its parts are the whole
    of the wall time."""
    out = tmp_path / "out"
    done = CliRunner().invoke(pipeline, ["lineage", "--storage", str(real_log.storage), "--out", str(out)])
    assert done.exit_code == 0, done.output
    trees = spark.read.parquet(str(out / "lineage" / "trees")).where("last is not null and messages > 1").collect()
    steps = defaultdict(list)
    for row in spark.read.parquet(str(out / "lineage" / "critical_paths")).orderBy("tree", "step").collect():
        steps[row["tree"]].append(row)
    ids = {sequence: message["id"] for sequence, message in real_log.answers.messages.items()}
    assert len(trees) > 100
    with BrokerProcess(real_log.copied(tmp_path)) as broker:
        for tree in trees:
            found = broker.request("GET", f"/v1/messages/{ids[tree['last']]}/critical-path").json()
            expected = steps[tree["root"]][-len(found["steps"]) :]
            assert len(found["steps"]) == tree["steps"]
            assert [step["id"] for step in found["steps"]] == [row["id"] for row in expected]
            for step, row in zip(found["steps"], expected, strict=True):
                for part in ("published", "waited", "scheduled", "queued", "attempts", "own"):
                    assert round(step[f"{part}_ms"] * 1_000) == row[f"{part}_us"], (part, step, row)
                assert step["attempts"] == row["attempts"]
            assert round(found["took_ms"] * 1_000) == tree["critical_us"]
            own_ms = sum(step["own_ms"] for step in found["steps"])
            assert own_ms == pytest.approx(found["took_ms"], rel=0.01, abs=0.01)


def _reached(start: int, ways: dict[int, set[int]]) -> dict[int, int]:
    """How many edges away each is."""
    found: dict[int, int] = {start: 0}
    level = {start}
    while level:
        level = {one for at in level for one in ways[at]} - set(found)
        found |= dict.fromkeys(level, max(found.values()) + 1)
    return found


def test_what_is_asked_for_and_not_there_is_said(spark: SparkSession, found: job.LineageTables) -> None:
    """``--root`` of a message that is not in the data names it and what to give."""
    with pytest.raises(UnknownMessage, match="no message '123456789'"):
        root_of(found.nodes, found.trees, "123456789")
