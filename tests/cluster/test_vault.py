"""Secrets go through the stream sealed, and the key can be changed while the nodes run."""

import random
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="needs syncbrok[cluster]")

from syncbrok.cluster.vault import Vault, add_key, keep_first_key, make_key
from syncbrok.model.errors import BadConfig, LogDiverged
from tests.support.power.tree import TreeRecording, tree_after_power_loss


@pytest.fixture
def key(tmp_path: Path) -> Path:
    make_key(tmp_path / "cluster.key")
    return tmp_path / "cluster.key"


def test_what_is_sealed_is_bound_to_its_log(key: Path) -> None:
    """It cannot be put into the stream of another one."""
    mine, other = (Vault.open(key, log) for log in (b"1" * 16, b"2" * 16))
    assert mine.unseal(mine.seal(b"x")) == b"x"
    with pytest.raises(LogDiverged, match=r"cluster\.key"):
        other.unseal(mine.seal(b"x"))


def test_a_new_key_seals_and_the_old_one_still_unseals(key: Path, tmp_path: Path) -> None:
    """A node that runs takes the file as it is copied to it; one that has not got it yet says so; what is left out of
    the file unseals nothing any more."""
    vault = Vault.open(key, b"1" * 16)
    (tmp_path / "late.key").write_bytes(key.read_bytes())
    (tmp_path / "late.key").chmod(0o600)
    late = Vault.open(tmp_path / "late.key", b"1" * 16)
    before = vault.seal(b"x")
    assert not vault.is_old(before)
    add_key(key, None)
    assert key.stat().st_mode & 0o777 == 0o600
    assert vault.is_old(before)
    assert vault.unseal(before) == b"x"
    after = vault.seal(b"x")
    assert not vault.is_old(after)
    with pytest.raises(LogDiverged):
        late.unseal(after)
    add_key(tmp_path / "late.key", key)
    assert late.unseal(after) == b"x"
    assert keep_first_key(key) == 1
    assert vault.unseal(after) == b"x"
    with pytest.raises(LogDiverged):
        vault.unseal(before)


def test_a_file_that_others_may_read_or_that_holds_no_key_is_refused(key: Path) -> None:
    """Before anything is sealed with it."""
    key.chmod(0o640)
    with pytest.raises(BadConfig, match="may be read by others"):
        Vault.open(key, b"1" * 16)
    key.chmod(0o600)
    key.write_bytes(key.read_bytes() + b"syncbrok-cluster-key-1:short\n")
    with pytest.raises(BadConfig, match="holds no key"):
        Vault.open(key, b"1" * 16)


def test_no_power_loss_takes_a_key_that_has_been_made(tmp_path: Path) -> None:
    """What other nodes seal with it could not be read here any more: a new key, one put before it and the one left are
    on the disk once they are told to be."""
    disk = TreeRecording(tmp_path / "disk")
    path = disk.root / "cluster.key"
    for change in (make_key, lambda one: add_key(one, None), keep_first_key):
        with disk.running():
            change(path)
        for seed in range(10):
            left = tree_after_power_loss(disk.events, random.Random(seed), in_order=False)
            assert left.get(path.name) == path.read_bytes(), (change, seed)
