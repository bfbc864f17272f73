"""A broker whose clocks are wrong: ``python -m tests.support.broker.wrong_clock AHEAD_S RATE serve ...``. The wall
clock is so many seconds ahead; the clock that leases are counted with goes RATE times as fast as others do.

(Under libfaketime a node was not level with the others in five minutes; why was not found out.)
"""

import sys
import time

from syncbrok.cli.main import main

AHEAD_NS, RATE = int(float(sys.argv[1]) * 1e9), float(sys.argv[2])
_time_ns, _clock_ns = time.time_ns, time.clock_gettime_ns
_BEGAN_NS = _clock_ns(time.CLOCK_BOOTTIME)


def _clock_gettime_ns(clock: int) -> int:
    if clock != time.CLOCK_BOOTTIME:
        return _clock_ns(clock)
    return _BEGAN_NS + int((_clock_ns(clock) - _BEGAN_NS) * RATE)


time.time_ns = lambda: _time_ns() + AHEAD_NS
time.time = lambda: time.time_ns() / 1e9
time.clock_gettime_ns = _clock_gettime_ns
del sys.argv[1:3]
main()
