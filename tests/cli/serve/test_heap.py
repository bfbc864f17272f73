"""How the process keeps memory and gives it back (syncbrok/cli/serve/heap.py).

Broken by hand to see this fail: without ``give_back``; without ``keep_blocks``; with a heap for each thread.
"""

import subprocess
import sys
import textwrap

_BURST = """
    import asyncio, json, resource
    from syncbrok.cli.serve import heap
    from tests.support.broker.process import resident_bytes
    import os

    MIB = 1 << 20

    def burst(stays):
        blocks = []
        for _ in range(100):
            blocks.append(bytearray(MIB))
            stays.append(bytes(700))  # something small behind each, which lives on

    async def main():
        heap.keep_blocks()
        stays = [bytes(700) for _ in range(20_000)]  # fills what imports have left free before the heap's end
        burst(stays)
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        burst(stays)
        again = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
        held = resident_bytes(os.getpid())
        giving = asyncio.create_task(heap.give_back(0.01))
        while resident_bytes(os.getpid()) > held - 80 * MIB:
            await asyncio.sleep(0.01)
        giving.cancel()
        print(json.dumps([again, held]))

    asyncio.run(main())
"""


def test_blocks_are_kept_for_a_moment_and_then_given_back() -> None:
    """INTERFACES 5, memory: what a burst of large messages has freed serves the next burst without a page from the
    system, and is the system's again after the next look, whatever small thing lies between."""
    asked = [sys.executable, "-c", textwrap.dedent(_BURST)]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    again, held = map(int, done.stdout.strip("[]\n").split(","))
    assert again < 2_000, f"{again} pages asked for anew, of 25,600"
    assert held > 100 << 20


_THREAD = """
    import resource, threading
    from syncbrok.cli.serve import heap

    MIB = 1 << 20
    heap.keep_blocks()

    def burst():
        blocks = []
        for _ in range(50):
            blocks.append(bytearray(MIB))
            stays.append(bytes(700))

    stays = [bytes(700) for _ in range(20_000)]
    burst()
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    reader = threading.Thread(target=burst)
    reader.start()
    reader.join()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults)
"""


def test_what_one_thread_has_freed_serves_another() -> None:
    """Contents are made on the loop and by the threads that read: a heap of its own for each of these held what the
    other had freed, 30 MiB of a consumer that reads nothing."""
    asked = [sys.executable, "-c", textwrap.dedent(_THREAD)]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 2_000, "pages asked for anew, of 12,800"
