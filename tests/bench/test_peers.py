"""``make bench-peers``: what it makes of the figures. No peer is started here, and none needs to be installed."""

from benchmarks.peers.figures import ALIKE, Figure, Row, Way, as_json, joined, merged, table

BEST = Way("publish", "Node, one connection with 64 in flight")
DELIVER = Way("deliver", "Node and undici, 64 in flight")


def row(peer: str, *, durable: bool = True) -> Row:
    runs = [{ALIKE: 9_000.0, BEST: 20_000.0, DELIVER: 8_000.0}, {ALIKE: 10_000.0, BEST: 30_000.0}, {ALIKE: 12_000.0}]
    return Row(peer, "1.2.3", durable, ("appendfsync always", "prefetch 256"), joined(runs), 0.07)


def test_the_median_of_the_runs_and_how_far_they_lie_apart() -> None:
    """The middle run is what is shown, and the spread is a share of it; a way missing in a run has fewer runs."""
    alike, best, deliver = row("a").figures
    assert (alike.runs, alike.median, alike.spread) == ((9_000.0, 10_000.0, 12_000.0), 10_000.0, 0.3)
    assert (best.median, best.spread) == (25_000.0, 0.4)
    assert (deliver.runs, deliver.spread) == ((8_000.0,), 0.0)
    assert Figure(ALIKE, (0.0,)).spread == 0.0


def test_the_fastest_way_stands_beside_the_one_they_have_in_common() -> None:
    """A peer is judged by the best it can do, and the table says which way that was, and with which settings."""
    head, line, *rest = table([row("Redis")]).splitlines()
    assert head.split("  ")[0] == "peer"
    assert line.split() == ["Redis", "1.2.3", "yes", "25,000", "(40%)", "10,000", "(30%)", "8,000", "(0%)", "-", "7%"]
    assert rest[-4:] == [
        "Redis",
        "  appendfsync always",
        "  prefetch 256",
        "  published fastest by Node, one connection with 64 in flight",
    ]


def test_who_acknowledges_before_the_disk_has_it_is_shown() -> None:
    """A figure without an fsync is not the same job: the table and the JSON both say so."""
    lines = table([row("a"), row("b", durable=False)]).splitlines()
    assert [line.split()[2] for line in lines[1:3]] == ["yes", "NO"]
    assert [entry["fsynced"] for entry in as_json([row("a"), row("b", durable=False)])] == [True, False]


def test_columns_stand_below_each_other() -> None:
    """Numbers are set to the right, whatever the length of a name."""
    head, short, long = table([row("a"), row("a much longer name")]).splitlines()[:3]
    ends = [line.index("10,000 (30%)") + len("10,000 (30%)") for line in (short, long)]
    assert ends == [head.index("from Node*") + len("from Node*")] * 2


def test_a_peer_measured_alone_leaves_the_others_as_they_were() -> None:
    """The JSON keeps what was measured before of other peers, in its place, and has every peer once."""
    old = [{"peer": "a", "figures": 1}, {"peer": "b", "figures": 2}]
    assert merged(old, [{"peer": "b", "figures": 3}, {"peer": "c", "figures": 4}]) == [
        {"peer": "a", "figures": 1},
        {"peer": "b", "figures": 3},
        {"peer": "c", "figures": 4},
    ]
