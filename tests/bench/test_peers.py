"""``make bench-peers``: what it makes of the figures. No peer is started here, and none needs to be installed."""

from benchmarks.peers.figures import ALIKE, LAYERS, MANY, Figure, Reading, Row, Way, as_json, joined, merged, table

PIPELINED = Way("publish", "Node, one connection with 64 in flight")
CROWD = Way("publish", "Node, one connection with 1,000 in flight", MANY)
WRK = Way("publish", "wrk, 64 connections")
DELIVER = Way("deliver", "Node and undici, 64 in flight")


def row(peer: str, *, durable: bool = True, size: int = 200) -> Row:
    runs = [
        {ALIKE: Reading(9_000.0), PIPELINED: Reading(20_000.0), DELIVER: Reading(8_000.0), CROWD: Reading(40_000.0)},
        {ALIKE: Reading(10_000.0, 20.0, 30.0), PIPELINED: Reading(30_000.0), WRK: Reading(50_000.0)},
        {ALIKE: Reading(12_000.0, 24.0, 31.0)},
    ]
    return Row(peer, "1.2.3", size, durable, ("appendfsync always", "prefetch 256"), joined(runs), 0.07)


def peers_of(text: str) -> list[str]:
    """The first table, its head left out."""
    return text.split("\n\n")[1].splitlines()[1:]


def test_the_median_of_the_runs_and_how_far_they_lie_apart() -> None:
    """The middle run is what is shown, and the spread is a share of it; a way missing in a run has fewer runs, and a
    cost that a run does not know is left out."""
    alike, pipelined, deliver, *_ = row("a").figures
    assert (alike.runs, alike.median, alike.spread) == ((9_000.0, 10_000.0, 12_000.0), 10_000.0, 0.3)
    assert (alike.client_us, alike.server_us) == (22.0, 30.5)
    assert (pipelined.median, pipelined.spread, pipelined.client_us) == (25_000.0, 0.4, None)
    assert (deliver.runs, deliver.spread) == ((8_000.0,), 0.0)
    assert Figure(ALIKE, (Reading(0.0),)).spread == 0.0


def test_the_fastest_way_stands_beside_those_from_node() -> None:
    """A peer is judged by the best it can do; from Node by what its client does with so many messages in flight."""
    text = table([row("Redis")])
    (line,) = peers_of(text)
    figures = ["50,000", "(0%)", "10,000", "(30%)", "25,000", "(40%)", "40,000", "(0%)", "8,000", "(0%)", "-", "7%"]
    assert line.split() == ["Redis", "1.2.3", "yes", *figures]
    assert text.splitlines()[-3:] == ["Redis", "  appendfsync always", "  prefetch 256"]


def test_every_way_to_publish_from_node_has_a_line_with_its_costs() -> None:
    """Each is told with the CPU that a message takes of Node and of the server; other generators are not Node."""
    head, *lines = table([row("Redis")]).split("\n\n")[2].splitlines()
    assert head.split("  ")[0] == "published to"
    assert [line.split()[1:4] for line in lines] == [
        ["Node,", "64", "connections"],
        *[["Node,", "one", "connection"]] * 2,
    ]
    assert [line.split()[-2:] for line in lines] == [["22.0", "30.5"], ["-", "-"], ["-", "-"]]


def test_each_layer_is_told_by_what_it_adds() -> None:
    """From a server that answers at once to the broker: the CPU of both sides beyond that of the line before."""
    costs = [Reading(90_000.0, 10.0, 2.0), Reading(80_000.0, 10.0, 5.0), Reading(40_000.0, 12.0, 8.0)]
    bare = Row("(no broker)", "", 200, None, (), joined([dict(zip(LAYERS, costs, strict=True))]))
    broker = Row("Syncbrok", "", 200, True, (), joined([{ALIKE: Reading(20_000.0, 15.0, 30.0)}]))
    layers = table([broker, bare]).split("\n\n")[3].splitlines()[1:]
    assert [line.split()[-2] for line in layers] == ["2.0", "+3.0", "+5.0", "+25.0"]
    assert "a POST from Node to" not in table([row("Redis")])


def test_sizes_have_tables_of_their_own() -> None:
    """Figures of one size never stand beside those of another."""
    text = table([row("a"), row("b"), row("a", size=4096)])
    assert [line for line in text.splitlines() if line.startswith("messages of")] == [
        "messages of 200 bytes",
        "messages of 4,096 bytes",
    ]
    assert [line.split()[0] for line in peers_of(text)] == ["a", "b"]
    assert text.count("  prefetch 256") == 2, "what a peer was set to is the same at every size"
    assert [entry["message_bytes"] for entry in as_json([row("a"), row("a", size=4096)])] == [200, 4096]


def test_who_acknowledges_before_the_disk_has_it_is_shown() -> None:
    """A figure without an fsync is not the same job: the table and the JSON both say so."""
    lines = peers_of(table([row("a"), row("b", durable=False)]))
    assert [line.split()[2] for line in lines] == ["yes", "NO"]
    assert [entry["fsynced"] for entry in as_json([row("a"), row("b", durable=False)])] == [True, False]


def test_columns_stand_below_each_other() -> None:
    """Numbers are set to the right, whatever the length of a name."""
    head, short, long = table([row("a"), row("a much longer name")]).split("\n\n")[1].splitlines()
    ends = [line.index("10,000 (30%)") + len("10,000 (30%)") for line in (short, long)]
    assert ends == [head.index("from Node*") + len("from Node*")] * 2


def test_a_peer_measured_alone_leaves_the_others_as_they_were() -> None:
    """The JSON keeps what was measured before of other peers and other sizes, in its place, and has each once."""

    def entry(peer: str, size: int, figures: int) -> dict[str, object]:
        return {"peer": peer, "message_bytes": size, "figures": figures}

    old = [entry("a", 200, 1), entry("b", 200, 2), entry("b", 4096, 3)]
    assert merged(old, [entry("b", 200, 4), entry("c", 200, 5)]) == [
        entry("a", 200, 1),
        entry("b", 200, 4),
        entry("b", 4096, 3),
        entry("c", 200, 5),
    ]
