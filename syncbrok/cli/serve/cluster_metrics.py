"""A node's metrics of its cluster, as Prometheus reads them: of a leader behind those of its Space, of a follower
alone. Pure."""

from collections.abc import Mapping
from typing import Final, NamedTuple


class ClusterFigures(NamedTuple):
    """``lag_s``: since when records were missing here, 0 while none are. ``stalled``: it does not follow, for want of
    room. ``found``, ``not_found`` and the claims: see ``LeadershipStatistics``. ``fenced``: over all processes of this
    node. ``withheld``: see ``AttemptGuard``. ``unsynced_records``: in this node's files, not fsynced.
    ``confirmations_waiting``: messages whose publishers wait for another broker; ``unconfirmed``: messages answered
    without one. ``sync_always``: by URL of each server of the engine that answers. ``differing``: segments of which a
    node holds something else. ``mended``: segments that were fetched again. ``stream_bytes`` None: not known.
    ``stream_lost``: messages that this node has and the stream has not."""

    leads: bool
    stalled: bool
    epoch: int
    lease_s: float
    append_s: float
    appended: int
    found: int
    not_found: int
    claims_won: int
    claims_lost: int
    fenced: int
    withheld: int
    unsynced_records: int
    confirmations_waiting: int
    unconfirmed: int
    lag_records: int
    lag_s: float
    differing: int
    mended: int
    sync_always: Mapping[str, bool]
    stream_bytes: int | None
    stream_lost: int


_PREFIX: Final = "syncbrok_cluster_"


def exposition(figures: ClusterFigures) -> bytes:
    """The text format."""
    rows: list[tuple[str, str, str, Mapping[str, float]]] = [
        ("leader", "gauge", "1 while this node leads.", {"": int(figures.leads)}),
        ("stalled", "gauge", "1 while this node does not follow for want of room.", {"": int(figures.stalled)}),
        ("epoch", "gauge", "Of the leader that this node knows.", {"": figures.epoch}),
        ("lease_seconds", "gauge", "How long attempts may begin if nothing more is stored.", {"": figures.lease_s}),
        ("append_seconds_sum", "counter", "What appends to the stream took.", {"": round(figures.append_s, 6)}),
        ("append_seconds_count", "counter", "Messages appended to the stream.", {"": figures.appended}),
        (
            "append_unknown_total",
            "counter",
            "Tries to append whose fate had to be asked for, by whether the message stood in the stream.",
            _by("found", figures.found, figures.not_found),
        ),
        (
            "claims_total",
            "counter",
            "Claims of this process to lead.",
            _by("won", figures.claims_won, figures.claims_lost),
        ),
        ("fenced_total", "counter", "Processes of this node that ended since another led.", {"": figures.fenced}),
        (
            "attempts_withheld_total",
            "counter",
            "Attempts that did not begin for want of a lease, and turns in which none was taken.",
            {"": figures.withheld},
        ),
        ("local_unsynced_records", "gauge", "In this node's files, not fsynced.", {"": figures.unsynced_records}),
        ("confirmations_waiting", "gauge", "Messages waiting for a follower.", {"": figures.confirmations_waiting}),
        ("unconfirmed_total", "counter", "Messages answered without a follower.", {"": figures.unconfirmed}),
        ("follower_lag_records", "gauge", "Records behind the newest node.", {"": figures.lag_records}),
        ("follower_lag_seconds", "gauge", "Since when some are missing.", {"": round(figures.lag_s, 3)}),
        ("segments_differ", "gauge", "Sealed segments that are not the same on every node.", {"": figures.differing}),
        ("segments_mended_total", "counter", "Damaged segments that a peer had.", {"": figures.mended}),
        (
            "engine_sync_always",
            "gauge",
            "0: this server of the engine does not fsync what it answers.",
            {f'{{server="{url}"}}': int(always) for url, always in figures.sync_always.items()},
        ),
    ]
    if figures.stream_bytes is not None:
        rows.append(("stream_bytes", "gauge", "Of the engine's stream.", {"": figures.stream_bytes}))
        doc = "Messages of the stream that this node has and the engine has not: it has lost its end."
        rows.append(("stream_lost_messages", "gauge", doc, {"": figures.stream_lost}))
    lines = (
        f"# HELP {_PREFIX}{name} {doc}\n# TYPE {_PREFIX}{name} {kind}\n"
        + "".join(f"{_PREFIX}{name}{labels} {value}\n" for labels, value in samples.items())
        for name, kind, doc, samples in rows
    )
    return "".join(lines).encode()


def _by(label: str, true: int, false: int) -> Mapping[str, float]:
    return {f'{{{label}="true"}}': true, f'{{{label}="false"}}': false}
