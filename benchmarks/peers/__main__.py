"""``make bench-peers``. A peer that is not installed is named with its package and left out."""

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final

from benchmarks.load import MESSAGE_BYTES
from benchmarks.machine import Watch
from benchmarks.peers.figures import Row, as_json, joined, merged, table
from benchmarks.peers.measure import PEERS, Bench, Peer, Run, Scale, machine
from benchmarks.peers.node import Node
from benchmarks.processes import Failed, Missing, Nginx

_RESULTS: Final = Path(__file__).parents[1] / "results" / "peers.json"

_SIZES: Final = (MESSAGE_BYTES, 4096)
_FULL: Final = {"runs": 3, "seconds": 2.5, "backlog": 60_000, "chain": 2_000, "results": _RESULTS}
_QUICK: Final = {"runs": 1, "seconds": 0.5, "backlog": 3_000, "chain": 100, "results": None}


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
    scales = [Scale(wish.seconds, wish.backlog, wish.chain, 0).sized(size) for size in wish.bytes]
    where = machine(folder, node)
    peers, missing = _installed(wish.peers or list(PEERS), folder, node)
    for text in missing:
        print(text, file=sys.stderr)
    with Nginx(folder) as nginx:
        measured, failed = _measured(peers, wish.runs, folder, [Bench(node, nginx, scale) for scale in scales])
    rows = {
        scale: [_row(peers[name], scale, runs) for name, runs in measured[scale].items() if runs] for scale in scales
    }
    if not any(rows.values()):
        return 1
    print(f"{table([row for of_scale in rows.values() for row in of_scale])}\n\n{where}")
    for scale in scales:
        print(f"{wish.runs} runs; {_said(scale)}")
    if wish.results:
        _written(rows, wish.results, where=where, measured=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
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


def _measured(
    peers: Mapping[str, Peer], runs: int, folder: Path, benches: Sequence[Bench]
) -> tuple[dict[Scale, dict[str, list[Run]]], bool]:
    """The runs of every peer at every scale, taken in turns: what the machine does meanwhile meets all of them alike.
    Besides, whether one failed."""
    measured: dict[Scale, dict[str, list[Run]]] = {bench.scale: {name: [] for name in peers} for bench in benches}
    failed = False
    for number, bench, name in product(range(1, runs + 1), benches, peers):
        print(f"{name}, {bench.scale.message_bytes} bytes, run {number} of {runs}", file=sys.stderr)
        with tempfile.TemporaryDirectory(dir=folder, prefix=f"{name}-") as own:
            watch = Watch()
            try:
                measured[bench.scale][name].append(Run(peers[name].once(Path(own), bench), watch.shares()["stolen"]))
            except Failed as error:
                failed = True
                print(f"{name} failed: {error}", file=sys.stderr)
    return measured, failed


def _row(peer: Peer, scale: Scale, runs: Sequence[Run]) -> Row:
    stolen = max(run.stolen for run in runs)
    figures = joined([run.readings for run in runs])
    return Row(peer.name, peer.version, scale.message_bytes, peer.durable, peer.settings, figures, stolen)


def _written(rows: Mapping[Scale, Sequence[Row]], path: Path, **of_each: Any) -> None:
    """Each peer at each size with its scale, the machine and the time it was measured at; what was not measured now is
    kept."""
    old = json.loads(path.read_text())["peers"] if path.exists() else []
    new = [
        {**entry, **of_each, "scale": scale._asdict()}
        for scale, of_scale in rows.items()
        for entry in as_json(of_scale)
    ]
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"peers": merged(old, new)}, indent=1) + "\n")


def _said(scale: Scale) -> str:
    return (
        f"{scale.message_bytes:,}-byte messages; {scale.seconds:g} s of each publishing, a backlog of "
        f"{scale.backlog:,}, a chain of {scale.chain:,}"
    )


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench-peers", description=__doc__)
    parser.add_argument("peers", nargs="*", choices=[*PEERS, []], metavar="PEER", help=", ".join(PEERS))
    parser.add_argument("--quick", action="store_true", help="one short run, to see that it works: no figures")
    parser.add_argument("--runs", type=int, metavar="N", help="the median of so many (3)")
    parser.add_argument("--bytes", type=int, nargs="+", default=_SIZES, metavar="N", help="of a message (200 4096)")
    parser.add_argument("--seconds", type=float, metavar="S", help="of each publishing (2.5)")
    parser.add_argument("--backlog", type=int, metavar="N", help="messages to deliver, 100 MiB at most (60000)")
    parser.add_argument("--chain", type=int, metavar="N", help="hops (2000)")
    parser.add_argument("--storage", type=Path, metavar="DIR", help="where the servers keep their data meanwhile")
    parser.add_argument("--results", type=Path, metavar="FILE", help="the JSON beside the table; none after --quick")
    wish = parser.parse_args(arguments)
    for name, usual in (_QUICK if wish.quick else _FULL).items():
        if getattr(wish, name) is None:
            setattr(wish, name, usual)
    return wish


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
