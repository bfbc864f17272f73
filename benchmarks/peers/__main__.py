"""``make bench-peers``. A peer that is not installed is named with its package and left out."""

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.machine import Watch
from benchmarks.peers.figures import Row, as_json, joined, merged, table
from benchmarks.peers.measure import PEERS, Bench, Peer, Run, Scale, machine
from benchmarks.peers.node import Node
from benchmarks.processes import Failed, Missing, Nginx

_RESULTS: Final = Path(__file__).parents[1] / "results" / "peers.json"


def main(arguments: Sequence[str]) -> int:
    """The exit code: 0 where every installed peer was measured, 1 where none is installed or one failed."""
    wish = _parsed(arguments)
    # Ended from outside it still ends the servers it has started: they are in process groups of their own.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with tempfile.TemporaryDirectory(dir=wish.storage, prefix="syncbrok-peers-") as folder:
            return _run(wish, Path(folder))
    except (Failed, Missing) as error:
        print(error, file=sys.stderr)
        return 1


def _run(wish: argparse.Namespace, folder: Path) -> int:
    node = Node()
    scale = Scale(wish.seconds, wish.backlog, wish.chain)
    where = machine(folder, node)
    peers, missing = _installed(wish.peers or list(PEERS), folder, node)
    for text in missing:
        print(text, file=sys.stderr)
    with Nginx(folder) as nginx:
        measured, failed = _measured(peers, wish.runs, folder, Bench(node, nginx, scale))
    rows = [_row(peer, runs) for name, peer in peers.items() if (runs := measured[name])]
    if not rows:
        return 1
    print(f"{table(rows)}\n\n{where}\n{wish.runs} runs; {_said(scale)}")
    _written(rows, wish.results, where=where, measured=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
             scale=scale._asdict())  # fmt: skip
    return 1 if failed else 0


def _installed(names: Sequence[str], folder: Path, node: Node) -> tuple[dict[str, Peer], list[str]]:
    found: dict[str, Peer] = {}
    missing: list[str] = []
    for name in names:
        try:
            PEERS[name].looked_at(folder, node)
        except Missing as error:
            missing.append(f"{name}: left out, {error}")
        else:
            found[name] = PEERS[name]
    return found, missing


def _measured(peers: Mapping[str, Peer], runs: int, folder: Path, bench: Bench) -> tuple[dict[str, list[Run]], bool]:
    """The runs of every peer, taken in turns: what the machine does meanwhile meets all of them alike."""
    measured: dict[str, list[Run]] = {name: [] for name in peers}
    failed = False
    for number in range(1, runs + 1):
        for name, peer in peers.items():
            print(f"{name}, run {number} of {runs}", file=sys.stderr)
            with tempfile.TemporaryDirectory(dir=folder, prefix=f"{name}-") as own:
                watch = Watch()
                try:
                    measured[name].append(Run(peer.once(Path(own), bench), watch.shares()["stolen"]))
                except Failed as error:
                    failed = True
                    print(f"{name} failed: {error}", file=sys.stderr)
    return measured, failed


def _row(peer: Peer, runs: Sequence[Run]) -> Row:
    stolen = max(run.stolen for run in runs)
    return Row(peer.name, peer.version, peer.durable, peer.settings, joined([run.per_s for run in runs]), stolen)


def _written(rows: Sequence[Row], path: Path, **of_each: Any) -> None:
    """Each peer with the machine and the time it was measured at; peers that were not measured now are kept."""
    old = json.loads(path.read_text())["peers"] if path.exists() else []
    peers = merged(old, [{**entry, **of_each} for entry in as_json(rows)])
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"peers": peers}, indent=1) + "\n")


def _said(scale: Scale) -> str:
    return (
        f"200-byte messages, 64 in flight; {scale.seconds:g} s of each publishing, a backlog of {scale.backlog:,}, "
        f"a chain of {scale.chain:,}"
    )


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench-peers", description=__doc__)
    parser.add_argument("peers", nargs="*", choices=[*PEERS, []], metavar="PEER", help=", ".join(PEERS))
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="the median of so many (3)")
    parser.add_argument("--seconds", type=float, default=4.0, metavar="S", help="of each publishing (4)")
    parser.add_argument("--backlog", type=int, default=100_000, metavar="N", help="messages to deliver (100000)")
    parser.add_argument("--chain", type=int, default=2_000, metavar="N", help="hops (2000)")
    parser.add_argument("--storage", type=Path, metavar="DIR", help="where the servers keep their data meanwhile")
    parser.add_argument("--results", type=Path, default=_RESULTS, metavar="FILE", help="the JSON beside the table")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
