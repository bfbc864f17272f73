"""Delivering messages of real sizes, with TLS and signatures: ``python -m benchmarks.delivery_sizes``.

Four queues, by http or https, signed or not, are delivered in turns, some thousand messages each, so that all of them
feel the same minute of the machine.
"""

import hashlib
import time
from base64 import b64encode
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import trustme

from benchmarks.delivery import deliver, pause, subscribe
from benchmarks.load import content, fill, wrk
from benchmarks.processes import Broker, Nginx
from benchmarks.program import main
from benchmarks.row import Aim, Options, Reading, Readings, Row, each_run

KIB: Final = 1_024
SIZES_KIB: Final = (1, 4, 16, 64)
SMALL_BYTES: Final = 200
_TURNS: Final = 5
_REST_S: Final = 0.1
_REST_S_MAX: Final = 3.0
_TURN_BYTES: Final = 32 * KIB * KIB
_TURN_MESSAGES_MAX: Final = 8_000
_SECRET: Final = "whsec_" + b64encode(bytes(range(32))).decode()


class Way(NamedTuple):
    """How a queue is delivered."""

    tls: bool
    signed: bool

    @property
    def key(self) -> str:
        return f"http{'s' if self.tls else ''}{'_signed' if self.signed else ''}"

    @property
    def words(self) -> str:
        return f"http{'s' if self.tls else ''}{', signed' if self.signed else ''}"


WAYS: Final = tuple(Way(tls, signed) for tls in (False, True) for signed in (False, True))


class Delivered(NamedTuple):
    """Messages a second, the median of the turns, and CPU of the broker a message in microseconds, of all of them: the
    system counts it in hundredths of a second."""

    per_s: float
    cpu_us: float


def in_turns(broker: Broker, nginx: Nginx, size_bytes: int, ways: tuple[Way, ...], options: Options) -> list[Delivered]:
    """What came of each of ``ways``."""
    most = options.messages_or(_TURN_MESSAGES_MAX, 200)
    messages = max(100, min(most, _TURN_BYTES // size_bytes))
    turns = 1 if options.quick else _TURNS
    cpu_s = dict.fromkeys(ways, 0.0)
    per_s: dict[Way, list[float]] = {way: [] for way in ways}
    for turn in range(turns):
        for way in ways:
            queue = f"{way.key}-{size_bytes}"
            if not turn:
                url = nginx.tls_url if way.tls else nginx.url
                subscribe(broker, url, paused=True, queue=queue, secret=_SECRET if way.signed else "")
            fill(broker, queue, messages, size_bytes)
            rest(broker)
            before_s = broker.usage().cpu_s
            per_s[way].append(messages / deliver(broker, queue))
            cpu_s[way] += broker.usage().cpu_s - before_s
            pause(broker, queue)
    return [Delivered(median(per_s[way]), 1e6 * cpu_s[way] / (turns * messages)) for way in ways]


def rest(broker: Broker) -> None:
    """Wait until the broker has done what follows a fill: indexes of segments that are full, and room for the next."""
    used_s, until = 0.0, time.monotonic() + _REST_S_MAX
    while broker.usage().cpu_s - used_s > _REST_S / 50 and time.monotonic() < until:
        used_s = broker.usage().cpu_s
        time.sleep(_REST_S)


def once(folder: Path, options: Options) -> Readings:
    authority = trustme.CA()
    authority_file, pem = folder / "authority.pem", folder / "127.0.0.1.pem"
    authority.cert_pem.write_to_path(authority_file)
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(pem)
    seconds, readings = options.seconds_or(1.5), Readings()
    cpu_us: dict[tuple[int, str], float] = {}
    with Nginx(folder, pem=pem) as nginx, Broker(folder, authority=authority_file) as broker:
        (small,) = in_turns(broker, nginx, SMALL_BYTES, WAYS[:1], options)
        for kib in SIZES_KIB:
            body = content(kib * KIB)
            ceilings = [wrk(url, body, seconds, folder).per_s for url in (nginx.url, nginx.tls_url)]
            for way, seen in zip(WAYS, in_turns(broker, nginx, kib * KIB, WAYS, options), strict=True):
                beside = {"broker CPU us/message": seen.cpu_us}
                readings[f"{way.key}_{kib}k"] = Reading(seen.per_s, ceilings[way.tls], beside)
                cpu_us[kib, way.key] = seen.cpu_us
    for kib in (4, 16):
        readings[f"cpu_{kib}k"] = Reading(cpu_us[kib, "http"], small.cpu_us, {"of 200 bytes, msg/s": small.per_s})
    tls = {f"{kib} KiB": cpu_us[kib, "https"] / cpu_us[kib, "http"] for kib in SIZES_KIB}
    readings["tls"] = Reading(tls["4 KiB"], 1.0, tls)
    signing = {f"{kib} KiB": cpu_us[kib, "http_signed"] - cpu_us[kib, "http"] for kib in SIZES_KIB}
    readings["signature"] = Reading(max(signing["4 KiB"], 0.01), hashed_us(4 * KIB), signing)
    return readings


def hashed_us(size_bytes: int) -> float:
    """What SHA-256 of so many bytes takes here, in microseconds: the least of some hundreds."""
    data, least_s = bytes(size_bytes), 1.0
    for _ in range(500):
        began = time.perf_counter()
        hashlib.sha256(data).digest()
        least_s = min(least_s, time.perf_counter() - began)
    return 1e6 * least_s


def _aims() -> dict[str, Aim]:
    aims: dict[str, Aim] = {}
    for kib in SIZES_KIB:
        for way in WAYS:
            least = 0.5 if (kib, way) == (64, WAYS[0]) else None
            ceiling_is = f"wrk, 64 connections, posting {kib} KiB to the same nginx by http{'s' if way.tls else ''}"
            title = f"deliver {kib} KiB, {way.words}"
            aims[f"{way.key}_{kib}k"] = Aim(title, "msg/s", ceiling_is, least, of_ceiling=least is not None)
    small = "the CPU of a delivery of 200 bytes, in the same run"
    aims["cpu_4k"] = Aim("CPU of a delivery of 4 KiB", "us", small, 25, less_is_better=True)
    aims["cpu_16k"] = Aim("CPU of a delivery of 16 KiB", "us", small, 40, less_is_better=True)
    http = "the CPU of a delivery by http, in turns"
    aims["tls"] = Aim("CPU of a delivery by https, 4 KiB", "of that by http", http, 1.25, less_is_better=True)
    hashing = "SHA-256 of 4 KiB, alone"
    aims["signature"] = Aim("CPU of a signature, 4 KiB", "us", hashing, 4, less_is_better=True)
    return aims


ROW = Row(
    "delivery_sizes",
    "Messages of 1 to 64 KiB that wait for a paused subscriber (window 64), by http and https (connections kept alive),"
    " signed and not, five turns each; from un-pausing it until all are complete.",
    _aims(),
    each_run(once),
)

if __name__ == "__main__":
    main([ROW])
