"""``make mutations``: break the broker on purpose, one promise at a time, and see which test notices.

Each mutation is a small edit that a tired person could make. For each the project is copied, the edit is made, and the
tests that guard the promise are run; a mutation that no test notices is a promise that nothing holds. Prints a row for
each, and ends with 1 where one survived.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


class Mutation(NamedTuple):
    """``before`` stands once in ``file`` and becomes ``after``; ``tests`` are those that must notice."""

    what: str
    promise: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]


MUTATIONS = (
    Mutation(
        "a claim does not end what a yield before it allowed",
        "causal",
        "syncbrok/cluster/election.py",
        "        self.epoch = epoch_of(self._generation, claim)\n        self.received(now_us)\n",
        "        self.epoch = epoch_of(self._generation, claim)\n",
        ("tests/cluster/test_election.py",),
    ),
    Mutation(
        "the lease is not looked at before the first byte",
        "causal",
        "syncbrok/delivery/attempt_guard.py",
        "        return self.lets_take(attempts)\n",
        "        return True\n",
        ("tests/whole/cluster/test_first_byte.py",),
    ),
    Mutation(
        "the file of secrets is not fsynced",
        "durable",
        "syncbrok/space/state/secret_store.py",
        "                await file.flush()\n                await _fsync(file.fileno(), executor=self._thread)\n",
        "                await file.flush()\n",
        ("tests/whole/crash/test_power_loss_space.py",),
    ),
    Mutation(
        "the copy in the archive is not fsynced",
        "durable",
        "syncbrok/log/segments/retention.py",
        "            os.fsync(target.fileno())\n",
        "",
        ("tests/whole/crash/test_power_loss_space.py",),
    ),
    Mutation(
        "a write is not fsynced",
        "durable",
        "syncbrok/log/segments/segment.py",
        "os.O_RDWR | (os.O_DSYNC if every_write_synced else 0)",
        "os.O_RDWR",
        ("tests/whole/crash/test_power_loss.py",),
    ),
    Mutation(
        "under interval nothing is fsynced",
        "durable",
        "syncbrok/log/segments/files.py",
        """    try:
        os.fdatasync(descriptor)
    except OSError as problem:
        raise LogFailed(""",
        """    try:
        os.fstat(descriptor)
    except OSError as problem:
        raise LogFailed(""",
        ("tests/whole/crash/test_power_loss.py",),
    ),
    Mutation(
        "a directory is not fsynced",
        "durable",
        "syncbrok/log/segments/files.py",
        "            os.fsync(descriptor)\n",
        "            os.fstat(descriptor)\n",
        ("tests/whole/crash/test_power_loss.py",),
    ),
    Mutation(
        "publishers are answered before the write",
        "durable",
        "syncbrok/space/commit/committer.py",
        "        prepared = self._journal.prepare(batch.facts, batch.unit_ends)\n",
        "        prepared = self._journal.prepare(batch.facts, batch.unit_ends)\n        batch.resolve()\n",
        ("tests/space/commit/test_committer.py", "tests/whole/crash/test_crash.py"),
    ),
    Mutation(
        "a body's checksum is not looked at",
        "nothing lost",
        "syncbrok/log/format/codec.py",
        "    if verify and crc32c(body) != header.body_crc:\n",
        "    if False and crc32c(body) != header.body_crc:\n",
        ("tests/log/format/test_codec.py", "tests/space/operations/test_damage.py"),
    ),
    Mutation(
        "a sidecar's checksum is not looked at",
        "nothing lost",
        "syncbrok/log/index/sidecar.py",
        "    if crc32c(memoryview(buffer)[size + _CRC.size :]) != rest_crc:\n",
        "    if False and crc32c(memoryview(buffer)[size + _CRC.size :]) != rest_crc:\n",
        ("tests/log/index/test_index.py",),
    ),
    Mutation(
        "what the watermark vouches for may be cut off",
        "nothing lost",
        "syncbrok/log/recovery/recovery_table.py",
        '        "LOST_RECORD",\n        Verdict.CORRUPT,\n',
        '        "LOST_RECORD",\n        Verdict.TORN,\n',
        ("tests/space/operations/test_damage.py", "tests/log/recovery/test_recovery.py"),
    ),
    Mutation(
        "retention carries nothing along",
        "nothing lost",
        "syncbrok/space/operations/maintenance.py",
        "            sequences = self._state.scheduler.unended(None, through, _carried_together, after)\n",
        "            sequences = ()\n",
        ("tests/space/operations/test_retention.py",),
    ),
    Mutation(
        "a row of a commit is forgotten",
        "at least once",
        "syncbrok/space/commit/committer.py",
        "tuple(self._machine.unerased(rows))",
        "tuple(self._machine.unerased(rows[1:] or rows))",
        (
            "tests/space/commit/test_committer.py",
            "tests/delivery/test_dispatcher_with_scheduler.py",
            "tests/whole/crash/test_crash.py",
        ),
    ),
    Mutation(
        "a gate opens before its parents are complete",
        "causal",
        "syncbrok/delivery/scheduler/dependencies.py",
        "                if event is MessageEvent.RELEASED:\n                    event = MessageEvent.BLOCKED\n",
        "",
        ("tests/delivery/scheduler/test_scheduler.py",),
    ),
    Mutation(
        "scope same does not look at the subscriber",
        "causal",
        "syncbrok/delivery/scheduler/blockers.py",
        "        return counted and cursor.finished(parent) and parent not in cursor.dead\n",
        "        return True\n",
        ("tests/delivery/scheduler/test_scheduler.py",),
    ),
    Mutation(
        "a replayed message does not wait for those of its key in the replay",
        "causal",
        "syncbrok/delivery/scheduler/blockers.py",
        "        if not 0 < before < sequence:\n            before = state",
        "        if True:\n            before = state",
        ("tests/delivery/scheduler/test_keys.py",),
    ),
    Mutation(
        "a dead parent's child goes out",
        "causal",
        "syncbrok/delivery/scheduler/dependencies.py",
        "                return MessageEvent.ENDED_DEAD, PARENT_REASON[state]\n",
        "                continue\n",
        ("tests/delivery/scheduler/test_scheduler.py",),
    ),
    Mutation(
        "a key's order is that of neighbours",
        "causal",
        "syncbrok/delivery/scheduler/key_chains.py",
        "        while at < end and not self._is_open_at(messages[at], cursor):\n            at += 1\n",
        "        at = max(at, end - 1)\n",
        ("tests/delivery/scheduler/test_keys.py",),
    ),
    Mutation(
        "a delay is not kept",
        "at least once",
        "syncbrok/delivery/scheduler/admission.py",
        "        if extras.due_us:  #",
        "        if False:  #",
        ("tests/delivery/scheduler/test_scheduler.py",),
    ),
    Mutation(
        "a repeated key is accepted again",
        "at least once",
        "syncbrok/space/commit/acceptance.py",
        "        first = work.keys.get(key) or batch.keys.get((queue.number, key))\n        if first is not None:\n"
        "            return first\n",
        "        if key:\n            return None\n",
        ("tests/space/commit/test_acceptance.py",),
    ),
    Mutation(
        "any address may be dialled",
        "who may speak",
        "syncbrok/delivery/webhook/address_guard.py",
        "    why = _why_not_public(parsed)\n",
        "    why = None\n",
        ("tests/delivery/webhook/test_address_guard.py",),
    ),
    Mutation(
        "a page of another site may ask",
        "who may speak",
        "syncbrok/frontends/over_http/requests/middleware.py",
        '            self._authorities.check_origin(", ".join(origins), hosts[0] if hosts else "")\n',
        "",
        ("tests/frontends/over_http/requests/test_authorities.py",),
    ),
    Mutation(
        "one owner may take a whole budget",
        "bounded",
        "syncbrok/model/budget.py",
        "        if amount > free or (held and held >= free - self.reserve):\n",
        "        if amount > free:\n",
        ("tests/model/test_budget.py",),
    ),
)  # fmt: skip


class Noticed(NamedTuple):
    """``by``: the first test that failed; ``""`` where none did."""

    mutation: Mutation
    by: str
    seconds: float


def misfits(mutations: Iterable[Mutation] = MUTATIONS) -> Iterator[str]:
    """Mutations that cannot be made any more: the code has changed, and the list has not."""
    for one in mutations:
        count = (ROOT / one.file).read_text().count(one.before)
        if count != 1:
            yield f"{one.what}: stands {count} times in {one.file}"
        for test in one.tests:
            if not (ROOT / test.partition("::")[0]).exists():
                yield f"{one.what}: there is no {test}"


def made(mutation: Mutation, copy: Path) -> None:
    """A copy of the project with the edit."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    file = copy / mutation.file
    file.write_text(file.read_text().replace(mutation.before, mutation.after))


def noticed(mutation: Mutation) -> Noticed:
    """Run the mutation's tests on a copy that has it, one file after the other, until one fails."""
    began = time.monotonic()
    by = ""
    with tempfile.TemporaryDirectory() as directory:
        made(mutation, Path(directory))
        for test in mutation.tests:
            command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", test]
            ran = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
            if ran.returncode == 1:
                found = re.search(r"^(?:FAILED|ERROR) (\S+)", ran.stdout, re.MULTILINE)
                by = found[1] if found else test
                break
            assert ran.returncode == 0, f"{mutation.what}: {ran.stdout[-2_000:]}{ran.stderr[-2_000:]}"
    return Noticed(mutation, by, time.monotonic() - began)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="only mutations with one of these in what they do")
    words = parser.parse_args().words
    wrong = list(misfits())
    if wrong:
        print(*wrong, sep="\n")
        return 1
    survived = 0
    for mutation in MUTATIONS:
        if words and not any(word in mutation.what for word in words):
            continue
        result = noticed(mutation)
        survived += not result.by
        print(f"{result.seconds:6.1f} s  {mutation.what}: {result.by or 'NOBODY NOTICED'}", flush=True)
    print(f"{survived} survived" if survived else "every mutation was noticed")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
