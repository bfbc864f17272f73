"""The file of secrets is believed whole or not at all (RULES 19)."""

import asyncio
import json
import threading
from pathlib import Path

import pytest

from syncbrok.cli.exits import LOG_CORRUPT, from_error
from syncbrok.model.errors import LogCorrupt
from syncbrok.space.state import secrets_file
from syncbrok.space.state.secret_store import FILE, SecretStore, make_secret
from syncbrok.space.state.secrets_file import Kept
from tests.support.polling import eventually
from tests.support.space.spaces import running_space

KEPT = {1: Kept((make_secret(),)), 12: Kept((make_secret(), make_secret()), 1_700_000_000_000_000)}


def written(directory: Path, data: bytes) -> Path:
    file = directory / FILE
    file.touch(0o600)
    file.write_bytes(data)
    return file


def opened(directory: Path) -> SecretStore:
    return SecretStore.open(directory, lambda: 0)


def test_what_was_written_is_read() -> None:
    """RULES 19: by the broker, and as JSON by a person."""
    data = secrets_file.encode(KEPT)
    assert secrets_file.decode(data) == (KEPT, True)
    assert json.loads(data)["subscribers"]["1"]["secrets"] == list(KEPT[1].secrets)
    assert secrets_file.decode(secrets_file.encode({})) == ({}, True)


def test_no_flipped_bit_signs_with_another_secret(tmp_path: Path) -> None:
    """RULES 19: each bit of the file flipped, each piece of its end cut off: the start is refused with 65, in words
    that name the file and hold no secret."""
    data = secrets_file.encode(KEPT)
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError) as wrong:  # noqa: PT011 (any text)
            secrets_file.decode(bytes(damaged))
        assert not any(secret[6:] in str(wrong.value) for one in KEPT.values() for secret in one.secrets)
    for length in range(len(data)):
        with pytest.raises(ValueError):  # noqa: PT011
            secrets_file.decode(data[:length])
    damaged = bytearray(data)
    damaged[100] ^= 4
    file = written(tmp_path, bytes(damaged))
    with pytest.raises(LogCorrupt) as refused:
        opened(tmp_path)
    assert str(file) in refused.value.detail
    assert from_error(refused.value).exit_code == LOG_CORRUPT


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"version": 1}', '{"version": 1, "subscribers": {"1": {"secrets": [], "until_us": 0}}}',
             '{"version": 1, "subscribers": {"1": {"secrets": ["whsec_!"], "until_us": 0}}}',
             '{"version": 1, "subscribers": {"1": {"secrets": ["whsec_AAAA"], "until_us": 1e999}}}', "[" * 100_000]
)  # fmt: skip
def test_what_nobody_wrote_is_refused_in_words(tmp_path: Path, text: str) -> None:
    """RULES 19: an editor's mistake in a file of the old form is no defect of the broker."""
    written(tmp_path, text.encode())
    with pytest.raises(LogCorrupt, match=FILE):
        opened(tmp_path)


async def test_a_file_without_a_checksum_is_written_again(tmp_path: Path) -> None:
    """RULES 19: one of an older version is read, and has a checksum soon after."""
    async with running_space(tmp_path) as running:
        await running.queue("q")
        await running.subscribe("q", "a", secret=KEPT[1].secrets[0])
        keys = running.space.signing_keys(1)
        assert keys
    entries = {"1": {"secrets": list(KEPT[1].secrets), "until_us": 0}}
    file = written(tmp_path, json.dumps({"version": 1, "subscribers": entries}, indent=1).encode())
    async with running_space(tmp_path) as running:
        assert running.space.signing_keys(1) == keys
        await eventually(lambda: b"crc32c" in file.read_bytes(), "it is written again")
        assert file.stat().st_mode & 0o777 == 0o600
    assert secrets_file.decode(file.read_bytes()) == ({1: KEPT[1]}, True)


async def test_a_fact_waits_for_its_secret_and_the_loop_does_not(tmp_path: Path) -> None:
    """RULES 19: nothing of a subscriber is in the log before its secret is on the disk, however long that takes; and
    meanwhile the event loop does all else."""
    async with running_space(tmp_path) as running:
        await running.queue("q")
        slow_disk = threading.Event()
        running.space._secret_store._thread.submit(slow_disk.wait)
        before = running.space._journal.next_sequence
        subscribing = asyncio.ensure_future(running.subscribe("q", "a", secret=KEPT[1].secrets[0]))
        for _ in range(1_000):
            await asyncio.sleep(0)
        assert (running.space._journal.next_sequence, (tmp_path / FILE).exists()) == (before, False)
        slow_disk.set()
        await subscribing
        assert running.space._journal.next_sequence > before
        assert secrets_file.decode((tmp_path / FILE).read_bytes()) == ({1: Kept(KEPT[1].secrets)}, True)
