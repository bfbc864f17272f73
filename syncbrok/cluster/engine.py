"""NATS JetStream as this Space uses it: one stream, appended by compare-and-swap, read in batches.

Every method blocks its caller and may be called from any thread: the connection lives on an event loop in a thread of
its own. nats-py speaks the protocol; what stands here is which questions are asked, and what an answer means.
"""

import asyncio
import json
import ssl
import threading
import urllib.request
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import nats.errors
import nats.js.errors
from nats.aio.client import Client, Srv
from nats.js import api

from syncbrok.cluster.credentials import login
from syncbrok.cluster.stream_messages import StreamMessage, headers_of, message_of
from syncbrok.model import limits
from syncbrok.model.errors import Fatal

T = TypeVar("T")

_WRONG_LAST: Final = 10_071
_NO_MESSAGE: Final = 10_037
_NO_PEERS: Final = 10_005
_REPLICAS: Final = 3
_ANSWER_S: Final = 5.0
_DIAL_S: Final = 2.0
_RETRY_S: Final = 0.1
_GRACE_S: Final = 1.0
_PING_S: Final = 1
_PINGS_UNANSWERED: Final = 2
"""a server that has vanished without a word is left after three pings; NATS's clients wait for minutes by themselves"""
_READ_MESSAGES: Final = 256
_READ_BYTES: Final = 8 * limits.MIB
_READ_S: Final = 30.0
"""for all the replies of one read together"""
_EXPECTED_LAST: Final = "Nats-Expected-Last-Sequence"


class Fate(Enum):
    """The result of one try of an append. ``ELSEWHERE``: the stream does not end where it was to; by itself that says
    neither that it was stored nor that it was not. ``UNKNOWN``: no answer, or none of the stream."""

    STORED = "stored"
    ELSEWHERE = "elsewhere"
    UNKNOWN = "unknown"


class EngineUnfit(Fatal):
    """The engine does not promise what an acknowledgement means here. Raised before anything was written."""

    slug = "engine-unfit"


class StreamMissing(EngineUnfit):
    """There is no stream of this space."""


class StreamState(NamedTuple):
    """``first`` and ``last`` are sequences of the stream; ``last`` is 0 while it is empty."""

    first: int
    last: int
    bytes: int


class EngineServer(NamedTuple):
    """One server of the engine. ``monitor``: its HTTP address, where it says how it runs."""

    url: str
    monitor: str


class Engine:
    """The stream of one Space. ``credentials``: a file as ``login`` reads it, None where the engine asks for none.
    ``tls``: with which servers are verified, and their monitors; None: by the system's authorities, where they speak
    TLS."""

    def __init__(
        self,
        space: str,
        servers: Sequence[EngineServer],
        credentials: Path | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.stream = f"SB_{space}"
        self._subject = f"sb.{space}.log"
        self._beside = f"sb.{space}"
        self.servers = servers
        self._credentials = credentials
        self._tls = tls
        self._loop: asyncio.AbstractEventLoop
        self._thread: threading.Thread | None = None
        self._client: Client | None = None
        self._inbox = ""
        """below which replies to reads come, a name for each read. One subscription for all: one for each read would be
        told to all servers, and taken back"""
        self._asked = 0
        self._replies: dict[str, asyncio.Queue[Any]] = {}
        """of the reads that are under way"""
        self._complaint: Exception | None = None
        """what went wrong last while it dialled"""

    # -- its life -----------------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Dial until one server answers; later the connection is made again whenever it breaks. Raises ``OSError``
        where none answers within a few seconds, and ``BadConfig`` where the credentials are none. Connected already it
        does nothing."""
        if self._thread is not None:
            return
        as_whom = login(self._credentials)
        self._loop = _quick_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="syncbrok engine", daemon=True)
        self._thread.start()
        try:
            self._client = self._do(self._dial(as_whom), _ANSWER_S + 2 * _DIAL_S)
        except (nats.errors.Error, TimeoutError, OSError) as error:
            self.close()
            urls = ", ".join(one.url for one in self.servers)
            why = self._complaint or error  # of a dial that took too long the reason is what each server said
            raise OSError(f"no engine answers at {urls}: {str(why) or type(why).__name__}") from error

    def close(self) -> None:
        """Twice is as once."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        if self._client is not None:
            with suppress(nats.errors.Error, TimeoutError, OSError):
                self._do(self._client.close(), _ANSWER_S)
        self._client, self._inbox = None, ""
        self._loop.call_soon_threadsafe(self._stop)
        thread.join()
        self._loop.close()

    def _stop(self) -> None:
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.call_soon(self._loop.stop)

    async def _dial(self, as_whom: Mapping[str, Any]) -> Client:
        """Raises what went wrong last, once no server has let it in for a while. nats-py itself would go on for ever,
        cancelled or not: it swallows a cancellation that comes while it closes a connection which was refused."""
        client, until_s = _OneConnection(), asyncio.get_running_loop().time() + _ANSWER_S
        dialling = True

        async def quiet(error: Exception) -> None:
            """Ignore an error of the connection: who waits for an answer finds out itself."""
            if str(error):  # a connection that ended says nothing, and comes after the reason
                self._complaint = error
            if dialling and asyncio.get_running_loop().time() > until_s:
                raise error

        options: dict[str, Any] = {
            "connect_timeout": _DIAL_S,
            "tls": self._tls,
            "max_reconnect_attempts": -1,
            "reconnect_time_wait": _RETRY_S,
            "ping_interval": _PING_S,
            "max_outstanding_pings": _PINGS_UNANSWERED,
            "error_cb": quiet,
            "allow_reconnect": True,
            **as_whom,
        }
        try:
            await client.connect([one.url for one in self.servers], **options)
        except BaseException:
            await client.close()
            raise
        dialling = False
        return client

    def _do(self, coroutine: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """Raises ``TimeoutError`` too where nats-py does not even end when it is cancelled, and ``ConnectionError``
        where it writes to a connection that has gone: uvloop calls that a ``RuntimeError``, which nats-py passes on."""
        doing = asyncio.run_coroutine_threadsafe(asyncio.wait_for(coroutine, timeout_s), self._loop)
        try:
            return doing.result(timeout_s + _GRACE_S)
        except TimeoutError:
            doing.cancel()
            raise
        except RuntimeError as gone:
            if type(gone) is not RuntimeError:
                raise
            raise ConnectionResetError(f"the connection to the engine has gone: {gone}") from gone

    def _ask(self, coroutine: Coroutine[Any, Any, T], timeout_s: float = 2 * _ANSWER_S) -> T:
        """The answer to a question. Raises an ``APIError`` that the engine answered, and ``OSError`` where it does not
        answer."""
        try:
            return self._do(coroutine, timeout_s)
        except nats.js.errors.APIError:
            raise
        except (nats.errors.Error, TimeoutError) as error:
            raise OSError(f"the engine does not answer: {str(error) or type(error).__name__}") from error

    @property
    def client(self) -> Client:
        assert self._client is not None, "not connected"
        return self._client

    # -- what it promises ---------------------------------------------------------------------------------------------

    def make_stream(self, replicas: int = _REPLICAS) -> None:
        """Make the stream, empty. Raises ``EngineUnfit`` where there is one of this name already, with
        other settings, and ``OSError`` where the engine does not answer, and it may have been made, or lacks servers
        for now."""
        wanted = api.StreamConfig(
            name=self.stream,
            subjects=[self._subject],
            retention=api.RetentionPolicy.LIMITS,
            storage=api.StorageType.FILE,
            discard=api.DiscardPolicy.NEW,
            num_replicas=replicas,
            deny_delete=True,
            allow_direct=True,
            max_msgs=-1,
            max_bytes=-1,
            duplicate_window=0.1,
        )
        try:
            self._ask(self.client.jetstream(timeout=_ANSWER_S).add_stream(wanted))
        except nats.js.errors.APIError as error:
            what = f"the stream {self.stream} cannot be made: {error.description}"
            if error.err_code == _NO_PEERS:  # a server that is busy, or has just begun, is not heard of yet
                raise OSError(what) from error
            raise EngineUnfit(what) from error

    def verify(self, replicas: int = _REPLICAS) -> None:
        """Ask the engine how it runs; nothing about it is believed. Raises ``EngineUnfit`` that says what is wrong and
        ``OSError`` where it does not answer."""
        info = self._info()
        if info is None:
            what = f"the engine has no stream {self.stream}: `syncbrok cluster init` makes it, nothing else does"
            raise StreamMissing(what)
        config = info.config
        wanted = (
            ("replicas", config.num_replicas, replicas),
            ("storage", config.storage, api.StorageType.FILE),
            ("discard", config.discard, api.DiscardPolicy.NEW),
            ("deny_delete", config.deny_delete, True),
            ("allow_direct", config.allow_direct, True),
            ("subjects", config.subjects, [self._subject]),
        )
        wrong = [f"{name} is {found}, and must be {right}" for name, found, right in wanted if found != right]
        wrong += [
            f"{one.url} does not fsync each message (sync_interval: always)"
            for one in self.servers
            if self.syncs_always(one) is False
        ]
        if wrong:
            raise EngineUnfit(f"the stream {self.stream} does not keep what is acknowledged: {'; '.join(wrong)}")

    def syncs_always(self, server: EngineServer) -> bool | None:
        """Whether this server fsyncs each message before it is answered; None where it does not say. Its monitor
        answers before its JetStream runs, and once that is switched off, and says nothing of it then."""
        try:
            url = f"{server.monitor}/varz"
            with urllib.request.urlopen(url, timeout=_DIAL_S, context=self._tls) as answer:  # noqa: S310 (its setting)
                config = json.load(answer)["jetstream"]["config"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return bool(config.get("sync_always", False)) if isinstance(config, dict) and config else None

    def state(self) -> StreamState:
        """Raises ``OSError`` where it does not answer, or has no such stream."""
        found = self.stream_state()
        if found is None:
            raise OSError(f"the engine has no stream {self.stream}")
        return found

    def stream_state(self) -> StreamState | None:
        """As ``state``; None where there is no such stream."""
        info = self._info()
        return None if info is None else StreamState(info.state.first_seq, info.state.last_seq, info.state.bytes)

    def _info(self) -> api.StreamInfo | None:
        """None where there is no such stream. Raises ``OSError``."""
        try:
            return self._ask(self.client.jetstream(timeout=_ANSWER_S).stream_info(self.stream))
        except nats.js.errors.NotFoundError:
            return None
        except nats.js.errors.APIError as error:
            raise OSError(f"the engine does not say how {self.stream} stands: {error.description}") from error

    # -- appending ----------------------------------------------------------------------------------------------------

    def try_append(self, message: StreamMessage, last: int, timeout_s: float) -> tuple[Fate, int]:
        """One try to put ``message`` behind the message ``last``. With ``STORED`` comes its sequence."""
        try:
            return self._do(self._append(message, last, timeout_s), timeout_s + 1)
        except (nats.errors.Error, TimeoutError, OSError):
            return Fate.UNKNOWN, 0

    def try_append_many(self, messages: Sequence[StreamMessage], last: int, timeout_s: float) -> list[Fate]:
        """One try to put these behind the message ``last``, each behind the one before, without waiting for the answers
        in between. Where one is not stored those after it are not."""

        async def all_of_them() -> list[tuple[Fate, int]]:
            tries = (self._append(one, last + at, timeout_s) for at, one in enumerate(messages))
            return await asyncio.gather(*tries)

        try:
            return [fate for fate, _ in self._do(all_of_them(), timeout_s + 1)]
        except (nats.errors.Error, TimeoutError, OSError):
            return [Fate.UNKNOWN] * len(messages)

    async def _append(self, message: StreamMessage, last: int, timeout_s: float) -> tuple[Fate, int]:
        headers = {**headers_of(message), _EXPECTED_LAST: str(last)}
        context = self.client.jetstream(timeout=timeout_s)
        try:
            stored = await context.publish(self._subject, message.body, stream=self.stream, headers=headers)
        except nats.js.errors.APIError as error:
            return (Fate.ELSEWHERE if error.err_code == _WRONG_LAST else Fate.UNKNOWN), 0
        except (nats.errors.Error, TimeoutError, OSError):
            return Fate.UNKNOWN, 0
        return Fate.STORED, stored.seq

    def from_leader(self, sequence: int) -> StreamMessage | None:
        """The message at this place as the stream's leader has it; None where there is none. Raises ``OSError`` where
        that is not known."""
        try:
            found = self._ask(self.client.jetstream(timeout=_ANSWER_S).get_msg(self.stream, seq=sequence))
        except nats.js.errors.APIError as error:
            if error.err_code == _NO_MESSAGE:
                return None
            raise OSError(f"the engine does not say what stands at {sequence}: {error.description}") from error
        return message_of(found.headers, found.data or b"", sequence)

    def purge(self, before: int) -> None:
        """Forget the messages before this place; asked again it does nothing. Raises ``OSError``."""
        try:
            self._ask(self.client.jetstream(timeout=_ANSWER_S).purge_stream(self.stream, seq=before))
        except nats.js.errors.APIError as error:
            raise OSError(f"the engine does not purge {self.stream}: {error.description}") from error

    # -- beside the stream --------------------------------------------------------------------------------------------

    def announce(self, told: bytes, subject: str) -> None:
        """Tell the other nodes something that is not kept; it may get lost. Raises ``OSError``."""
        self._ask(self.client.publish(f"{self._beside}.{subject}", told), _ANSWER_S)

    def hear(self, heard: Callable[[bytes], None], subject: str) -> None:
        """From now on ``heard`` is called, in the engine's thread, with what nodes tell of this subject, this one too.
        Raises ``OSError``."""

        async def take(message: Any) -> None:
            heard(message.data)

        self._ask(self.client.subscribe(f"{self._beside}.{subject}", cb=take))

    # -- reading ------------------------------------------------------------------------------------------------------

    def first(self) -> StreamMessage | None:
        """The first message that is kept; None while there is none. Where the server that was asked has none, the
        stream's leader is. Raises ``OSError``."""
        at = max(1, self.state().first)
        found = self.read(at - 1, _ANSWER_S)
        return found[0] if found and found[0].sequence == at else self.from_leader(at)

    def read(self, after: int, timeout_s: float) -> list[StreamMessage]:
        """Messages after this one, in order, some of them; empty where there is none. Any replica answers. Raises
        ``OSError`` where none does within ``timeout_s``."""
        return list(_messages(self._ask(self._read(after + 1, timeout_s), _READ_S + timeout_s), after))

    async def _read(self, first: int, timeout_s: float) -> list[Any]:
        """The replies of one batched Direct Get, without the one that ends it; where they break off, those that came.
        (nats-py asks for single messages only.)"""
        if not self._inbox:
            self._inbox = self.client.new_inbox()
            await self.client.subscribe(f"{self._inbox}.*", cb=self._take_reply)
        self._asked += 1
        inbox = f"{self._inbox}.{self._asked}"
        replies: asyncio.Queue[Any] = asyncio.Queue()  # bounded by what is asked for
        self._replies[inbox] = replies
        found: list[Any] = []
        try:
            asked = {"seq": first, "batch": _READ_MESSAGES, "max_bytes": _READ_BYTES}
            await self.client.publish(f"$JS.API.DIRECT.GET.{self.stream}", json.dumps(asked).encode(), reply=inbox)
            while True:
                try:
                    async with asyncio.timeout(timeout_s):
                        reply = await replies.get()
                except TimeoutError:
                    if found:
                        return found
                    raise
                status = (reply.headers or {}).get("Status")
                if status is not None:
                    if status not in ("204", "404"):
                        raise nats.errors.NoRespondersError
                    return found
                found.append(reply)
        finally:
            del self._replies[inbox]

    async def _take_reply(self, reply: Any) -> None:
        """For whichever read it is; for none where it comes too late."""
        replies = self._replies.get(reply.subject)
        if replies is not None:
            replies.put_nowait(reply)


class _OneConnection(Client):
    """nats-py's client, with one connection at a time. nats-py by itself leaves the one on which a server did not let
    it in, or fell silent while it said hello, open and forgotten when it dials the next: a descriptor each, until the
    garbage collector closes it, from whichever thread that is. And one that is over is dropped, not taken leave of."""

    async def _attempt_reconnect(self) -> None:
        """TLS ends with an answer of the server, and loops wait 30 s for it. One that is frozen or cut off gives none,
        and the next server is dialled once the connection has ended."""
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()
        await super()._attempt_reconnect()

    async def _connect_to_server(self, s: Srv) -> None:
        if self._transport is not None:
            self._transport.close()  # type: ignore[no-untyped-call]
        await super()._connect_to_server(s)

    async def _process_connect_init(self) -> None:
        """nats-py puts TLS on a connection by hand, and leaves out what asyncio does besides when it does so: its
        protocol does not learn of it, and asyncio warns of that on stderr when the server ends the connection."""
        await super()._process_connect_init()
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None and writer.get_extra_info("sslcontext") is not None:
            writer.transport.get_protocol()._replace_writer(writer)  # noqa: SLF001 (no other way to tell it)


def _quick_loop() -> asyncio.AbstractEventLoop:
    """An append goes through a dozen turns of the loop: uvloop's cost a quarter less of its time. There is none for
    every system."""
    try:
        import uvloop  # noqa: PLC0415
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _messages(replies: Sequence[Any], after: int) -> Iterator[StreamMessage]:
    """As many as follow each other: a replica that lags may lack the first ones, and a purge takes some away."""
    for reply in replies:
        sequence = int(reply.headers["Nats-Sequence"])
        if sequence <= after:
            continue
        yield message_of(reply.headers, reply.data, sequence)
