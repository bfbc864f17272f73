"""What a job beside a node has noted by the leader: what is asked over HTTP, by whom, and what comes of refusals."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("cryptography", reason="needs syncbrok[cluster]")

from syncbrok.cluster.leader_archive import LeaderArchive, NotNoted
from syncbrok.cluster.peer_signature import PeerSignature
from syncbrok.cluster.signed_requests import SignedRequests
from syncbrok.cluster.vault import add_key, make_key
from syncbrok.frontends.over_http.resources.cluster import routes
from syncbrok.log.segments.retention import Copy, line_of
from syncbrok.model.content_digest import content_digest
from syncbrok.model.errors import BadSetting, Conflict, LogFailed, LogFull
from syncbrok.model.tokens import ADMIN, Token
from tests.support.cluster.followers import SomeNode, following
from tests.support.http.api import Api, Reply, Serve
from tests.support.space.fake_space import FakeSpace

PATH = "/v1/log/archived"
LOG = "00ff"
COPIES = [Copy(f"{at:020d}.log", 1_000 + at, at, "hdfs://name/a b") for at in range(1, 4)]


class Leader(NamedTuple):
    """A node that leads, and what asks it."""

    node: SomeNode
    api: Api
    key: Path

    def archive(self, url: str = "", key: Path | None = None, job: str = "") -> LeaderArchive:
        """As a job has it whose time passes without waiting."""
        signature = PeerSignature(key or self.key, "main")
        signature.refresh()
        now_s = [0.0]

        def wait(seconds: float) -> None:
            now_s[0] += seconds

        return LeaderArchive(url or self.api.server.url, SignedRequests(signature), job, wait, lambda: now_s[0])


@pytest.fixture
async def leader(tmp_path: Path, served: Serve) -> AsyncIterator[Leader]:
    node, key = SomeNode(), tmp_path / "key"
    make_key(key)
    signature = PeerSignature(key, "main")
    signature.refresh()
    token = Token("ops", hashlib.sha256(b"ops").hexdigest(), frozenset({ADMIN}))
    other = Token("app", hashlib.sha256(b"app").hexdigest(), frozenset({"publish", "read"}))
    space = FakeSpace()
    more = routes(node, lambda: None)
    async with served(
        space.channels,
        space,
        *more,
        tokens=(token, other),
        is_peer=signature.is_node,
        peer_challenge=signature.challenge,
        leader_url="http://a:1",
    ) as api:
        yield Leader(node, api, key)


def noted(leader: Leader, copies: list[Copy] = COPIES, log: str = LOG) -> Any:
    return asyncio.to_thread(leader.archive().note, log, copies)


async def test_a_job_has_it_noted_once_and_is_told_what_is(leader: Leader) -> None:
    """INTERFACES 3, `/v1/log/archived`: signed by the key of the cluster alone, in as many requests as it takes; what
    is noted already is counted no more."""
    assert await noted(leader) == 3
    assert await noted(leader) == 0
    assert leader.node.noted == [line_of(one) for one in COPIES]
    assert await asyncio.to_thread(leader.archive().copies, LOG) == COPIES
    many = [Copy(f"{at:020d}.log", 1, at, "hdfs://name/" + "x" * 900) for at in range(10, 300)]
    assert await noted(leader, many) == len(many)


async def test_a_follower_passes_it_on(leader: Leader) -> None:
    """A job asks its own node, whoever leads; a node that knows no leader says so, and the job tells what to do."""
    own = SomeNode(leader.api.server.port)
    async with following(own) as running:
        archive = leader.archive(f"http://127.0.0.1:{running.server.port}")
        assert await asyncio.to_thread(archive.note, LOG, COPIES) == 3
        own.port = 0
        with pytest.raises(NotNoted, match=r"nobody is known to lead.*run this again once a node"):
            await asyncio.to_thread(archive.note, LOG, COPIES)
    with pytest.raises(NotNoted, match=r"refused.*run this again once a node"):
        await asyncio.to_thread(archive.note, LOG, COPIES)


@pytest.mark.parametrize(
    ("failing", "told"),
    [
        (BadSetting("no such segment"), "answers 400 .* no such segment"),
        (Conflict("another log"), "answers 409 .* another log"),
        (LogFull("no room"), "answers 507 .* no room"),
        (LogFailed("gave up"), "answers 503 .* gave up"),
        (OSError("a disk"), "answers 503 .* a disk"),
    ],
)
async def test_what_the_leader_says_is_told(leader: Leader, failing: Exception, told: str) -> None:
    """A refusal is no riddle, whichever it is; nothing is noted."""
    leader.node.failing = failing
    with pytest.raises(NotNoted, match=told):
        await noted(leader)
    assert not leader.node.noted


async def test_one_job_at_a_time_archives(leader: Leader) -> None:
    """Two timers on two hosts with one archive: the second one ends before it has touched anything, and says why; the
    first has its lease until it has ended."""
    first, second = leader.archive(job="a:/log"), leader.archive(job="b:/log")

    def archives() -> None:
        with first.alone(LOG):
            with (
                pytest.raises(NotNoted, match=r"answers 409 .*another job archives this log: a:/log"),
                second.alone(LOG),
            ):
                raise AssertionError("it is let in")
            with pytest.raises(NotNoted, match="another job"):
                second.note(LOG, COPIES)
            assert first.note(LOG, COPIES) == 3
        with second.alone(LOG):
            assert second.note(LOG, COPIES) == 0

    await asyncio.to_thread(archives)


async def test_another_log_is_told_apart_before_anything_is_archived(leader: Leader) -> None:
    """A directory of one cluster and the configuration of another."""
    with pytest.raises(NotNoted, match="has the log 00ff, and the directory 0bad"):
        await asyncio.to_thread(leader.archive().copies, "0bad")


async def test_only_nodes_and_admins_may(leader: Leader, tmp_path: Path) -> None:
    """DESIGN of tokens: scope ``admin``, or the key of the cluster; nodes take nothing back."""
    body = {"log": LOG, "lines": [line_of(COPIES[0])]}
    for headers, status in (({}, 401), ({"Authorization": "Bearer app"}, 403), ({"Authorization": "Bearer ops"}, 200)):
        assert (await leader.api.request("POST", PATH, body, headers)).status == status
    make_key(tmp_path / "another")
    with pytest.raises(NotNoted, match="answers 401"):
        await asyncio.to_thread(leader.archive(key=tmp_path / "another").note, LOG, COPIES)
    (signed,) = _signed(leader, "DELETE")
    assert (await leader.api.request("DELETE", PATH, None, {"Authorization": signed})).status == 401
    assert leader.node.noted == body["lines"]
    assert (await leader.api.request("DELETE", PATH, None, {"Authorization": "Bearer ops"})).status == 204
    assert not leader.node.noted


async def test_while_keys_are_changed_a_job_is_heard(leader: Leader) -> None:
    """`cluster rekey`: where the new key is not known yet it is asked again with the old one."""
    add_key(leader.key, None)
    assert await noted(leader) == 3


async def test_an_overheard_signature_is_for_what_was_signed(leader: Leader) -> None:
    """Whoever hears a request without TLS cannot have other segments noted: retention would drop them."""
    sent, other = b'{"log": "00ff", "lines": []}', b'{"log": "00ff", "lines": ["x"]}'
    digest = content_digest(sent)
    signature = PeerSignature(leader.key, "main")
    signature.refresh()

    async def asked(body: bytes, digest: str, signed: str) -> Reply:
        headers = {"Authorization": signed, "Content-Digest": digest, "Content-Type": "application/json"}
        return await leader.api.request("POST", PATH, body, headers)

    async def signed() -> str:
        (without,) = signature.authorizations("POST", PATH, digest)
        refused = await asked(sent, digest, without)
        assert refused.status == 401
        (found,) = signature.authorizations("POST", PATH, digest, refused.headers["Syncbrok-Nonce"])
        return found

    assert (await asked(other, content_digest(other), await signed())).status == 401
    (await asked(other, digest, await signed())).problem(400, "malformed")
    assert (await asked(sent, digest, await signed())).status == 200
    assert not leader.node.noted


async def test_what_was_overheard_is_not_noted_again(leader: Leader) -> None:
    """An archive is lost and all is taken back: who has heard the lines before without TLS, and sends them again with
    their signature, must not have segments go that stand nowhere else."""
    body = json.dumps({"log": LOG, "lines": [line_of(COPIES[0])]}).encode()
    digest = content_digest(body)
    signature = PeerSignature(leader.key, "main")
    signature.refresh()
    (first,) = signature.authorizations("POST", PATH, digest)
    headers = {"Content-Digest": digest, "Content-Type": "application/json"}
    refused = await leader.api.request("POST", PATH, body, {**headers, "Authorization": first})
    (good,) = signature.authorizations("POST", PATH, digest, refused.headers["Syncbrok-Nonce"])
    assert (await leader.api.request("POST", PATH, body, {**headers, "Authorization": good})).json() == {"noted": 1}
    assert (await leader.api.request("DELETE", PATH, None, {"Authorization": "Bearer ops"})).status == 204
    for overheard in (first, good):
        again = await leader.api.request("POST", PATH, body, {**headers, "Authorization": overheard})
        assert again.status == 401
    assert not leader.node.noted


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", {"lines": []}, {"log": LOG}, {"log": LOG, "lines": "x"}, {"log": 1}]
)
async def test_a_body_that_says_something_else_changes_nothing(leader: Leader, body: Any) -> None:
    """400, in words."""
    answer = await leader.api.request("POST", PATH, body, {"Authorization": "Bearer ops"})
    assert "log" in answer.problem(400, "malformed")["detail"]
    assert not leader.node.noted


def _signed(leader: Leader, method: str) -> list[str]:
    signature = PeerSignature(leader.key, "main")
    signature.refresh()
    return signature.authorizations(method, PATH)
