"""How nodes show each other that they are nodes of one cluster."""

from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="needs syncbrok[cluster]")

from syncbrok.cluster.peer_signature import PeerSignature
from syncbrok.cluster.vault import add_key, keep_first_key, make_key
from syncbrok.model.content_digest import content_digest

PATH = "/v1/log/segments/7"


def signature(key: Path, space: str = "main") -> PeerSignature:
    made = PeerSignature(key, space)
    made.refresh()
    return made


def test_a_signature_is_for_one_request_of_one_space(tmp_path: Path) -> None:
    """Who has the key signs what the others believe; for another path, method or space, or with another key, they do
    not. Without a key nobody is believed."""
    for name in ("key", "other"):
        make_key(tmp_path / name)
    mine, its = signature(tmp_path / "key"), signature(tmp_path / "key")
    (signed,) = mine.authorizations("GET", PATH)
    assert its.is_node(signed, "GET", PATH)
    assert not its.is_node(signed, "GET", PATH + "0")
    assert not its.is_node(signed, "HEAD", PATH)
    assert not its.is_node("Bearer" + signed.removeprefix("Syncbrok-Node"), "GET", PATH)
    assert not signature(tmp_path / "key", "other").is_node(signed, "GET", PATH)
    assert not signature(tmp_path / "other").is_node(signed, "GET", PATH)
    assert not PeerSignature(tmp_path / "key", "main").is_node(signed, "GET", PATH)


def test_what_is_sent_is_signed_with_its_digest(tmp_path: Path) -> None:
    """Who has overheard a signature can send no other body; a signature for a request without one is none for a
    request with one."""
    make_key(tmp_path / "key")
    mine, its = signature(tmp_path / "key"), signature(tmp_path / "key")
    digest = content_digest(b"lines")
    (nonce,) = its.challenge().values()
    (signed,), (bare,) = mine.authorizations("POST", PATH, digest, nonce), mine.authorizations("POST", PATH)
    assert not its.is_node(signed, "POST", PATH, content_digest(b"other"))
    assert not its.is_node(signed, "POST", PATH)
    assert not its.is_node(bare, "POST", PATH, digest)
    assert its.is_node(signed, "POST", PATH, digest)


def test_what_is_sent_is_for_once(tmp_path: Path) -> None:
    """Who has overheard a request that changes something cannot have it done again, by this node or another; and a
    nonce is spent only by who has the key."""
    for name in ("key", "other"):
        make_key(tmp_path / name)
    mine, its, third = (signature(tmp_path / "key") for _ in range(3))
    digest = content_digest(b"lines")
    (nonce,) = its.challenge().values()
    (strange,) = signature(tmp_path / "other").authorizations("POST", PATH, digest, nonce)
    assert not its.is_node(strange, "POST", PATH, digest)
    (without,) = mine.authorizations("POST", PATH, digest)
    assert not its.is_node(without, "POST", PATH, digest)
    (signed,) = mine.authorizations("POST", PATH, digest, nonce)
    assert [its.is_node(signed, "POST", PATH, digest) for _ in range(2)] == [True, False]
    assert not third.is_node(signed, "POST", PATH, digest)
    (moved,) = mine.authorizations("POST", PATH, digest, its.challenge()["Syncbrok-Nonce"])
    assert not its.is_node(moved.rpartition(" ")[0] + f" {nonce}", "POST", PATH, digest)


def test_while_keys_are_changed_nodes_go_on_to_believe_each_other(tmp_path: Path) -> None:
    """`cluster rekey`: the new key stands before the old one, on one node after the other."""
    key, old = tmp_path / "key", tmp_path / "old"
    make_key(key)
    old.write_bytes(key.read_bytes())
    old.chmod(0o600)
    add_key(key, None)
    before, after = signature(old), signature(key)
    assert [before.is_node(one, "GET", PATH) for one in after.authorizations("GET", PATH)] == [False, True]
    assert all(after.is_node(one, "GET", PATH) for one in before.authorizations("GET", PATH))
    keep_first_key(key)
    after.refresh()
    assert not any(after.is_node(one, "GET", PATH) for one in before.authorizations("GET", PATH))
