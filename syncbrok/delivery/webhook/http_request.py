"""Writes deliveries as bytes of HTTP/1.1 requests. Pure.

The parts that are the same in every request to a subscriber (method line, host, its own headers, the queue's name) are
put together once, in a ``RequestForm``; a message adds the rest. See INTERFACES "What a v1 subscriber receives" and,
for the format ``original``, section 2.

Text of a message or its publisher is cleaned before it becomes a header: no line end or other control character gets
through, and no name that frames the request, proves who sent it or is the broker's own word.
"""

import re
from base64 import b64encode
from binascii import hexlify
from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

import orjson

from syncbrok import __version__
from syncbrok.delivery.handler import NOTHING_CONFIRMED, Attempt, Confirmed, Delivery, members_of
from syncbrok.delivery.webhook.batch_body import MEDIA, batch_id, batch_line
from syncbrok.delivery.webhook.key_pair import KeySigner
from syncbrok.delivery.webhook.signing import HeaderSigner, Signer, SignerLike, signatures, signed_begin
from syncbrok.model import header_settings, limits
from syncbrok.model.auth_settings import BASIC, BEARER, PASSWORD, TOKEN
from syncbrok.model.credentials import NONE, SET
from syncbrok.model.facts import StoredMessage
from syncbrok.model.header_settings import HELD_BACK_PREFIX
from syncbrok.model.message import HOPS, EndpointAuth, Format, Signature, Subscriber, SubscriberSettings
from syncbrok.model.names import MessageId, id_text
from syncbrok.model.signature_settings import HMAC, KEY, OLD_KEY, OLD_KEY_UNTIL, V1, V1A, credential
from syncbrok.model.units import parse_endpoint, render_time

EVENT_TYPE = "syncbrok.message"
"""``ce-type`` of messages whose publisher gave none"""

_DEFAULT_TYPE = "application/octet-stream"
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}", re.ASCII)
# U+DC80..U+DCFF stand for raw bytes of a header that was not UTF-8 and go out as those bytes again.
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\ud800-\udc7f\udd00-\udfff]")
_RESERVED = frozenset(
    [
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "http2-settings",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ]
)
_SHARED_BYTES_MAX = 16 * limits.KIB
"""of larger contents every copy counts, and nothing of them is kept"""
_id_pieces = Struct("8s4s4s4s12s").unpack
"""the digits of an id as they stand between its dashes"""
_RESERVED_PREFIXES = ("webhook-", "syncbrok-", "proxy-")


class EndpointTarget(NamedTuple):
    """The parts of an endpoint's URL."""

    tls: bool
    host: str
    """a name or a numeric address, without brackets, in ASCII"""
    port: int
    authority: str
    """the ``Host`` header"""
    path: str
    """path and query, as they stand in the method line"""


def parse_target(endpoint: str) -> EndpointTarget:
    """``endpoint`` taken apart; raises ``BadSetting``."""
    parts = urlsplit(parse_endpoint(endpoint))
    tls = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    assert parts.hostname is not None  # parse_endpoint saw to it
    return EndpointTarget(tls, parts.hostname, parts.port or (443 if tls else 80), parts.netloc, path)


class SharedTails:
    """The end of a request, behind the subscriber's own lines and its signature, for messages that have only id,
    sequence, parents and content of their own. It is the same for all subscribers of a message, so it is made once for
    those that get the message one after the other. All forms of a handler share it."""

    __slots__ = ("_message", "_of", "_parents", "_parents_of", "_tail", "_template")

    def __init__(self) -> None:
        self._template = b""
        self._of = ("", "", 0)
        """what ``_template`` was made for: content type, timestamp, number of the attempt"""
        self._message: StoredMessage | None = None
        """what ``_tail`` was made for, and of the same"""
        self._tail = b""
        self._parents = b""
        self._parents_of: tuple[MessageId, ...] = ()
        """what ``_parents`` was made for"""

    def tail(self, message: StoredMessage, timestamp_s: str, number: int) -> bytes:
        """The bytes from ``webhook-id`` to the end of the content; ``number`` is that of the attempt."""
        of = (message.content_type, timestamp_s, number)
        if of != self._of:
            self._template = _shared_template(message.content_type, timestamp_s, number)
            self._of, self._message = of, None
        elif message is self._message:
            return self._tail
        body = message.content
        parents = b""
        named = message.parents
        if named:
            if named is not self._parents_of and named != self._parents_of:  # children of a tree follow each other
                self._parents = _parents_line(named).encode()
            self._parents_of = named
            parents = self._parents
        self._tail = self._template % (
            *_id_pieces(hexlify(message.id)),
            message.sequence,
            parents,
            len(body),
            body,
        )
        self._message = message
        return self._tail


def _shared_template(content_type: str, timestamp_s: str, number: int) -> bytes:
    """The part that such requests share, with places for id, sequence, parents, length and content."""
    time = f"\r\nwebhook-timestamp: {timestamp_s}\r\nsyncbrok-sequence: "
    tried = f"\r\nsyncbrok-attempt: {number}\r\n"
    rest = f"Content-Type: {_media(content_type)}\r\nContent-Length: "
    pieces = [piece.encode("utf-8", "surrogateescape").replace(b"%", b"%%") for piece in (time, tried, rest)]
    return b"webhook-id: %%b-%%b-%%b-%%b-%%b%b%%d%b%%b%b%%d\r\n\r\n%%b" % tuple(pieces)


_FIXED = frozenset({"user-agent"})
_BOTH_LINES = b"%bsyncbrok-previous: %d\r\nsyncbrok-complete-through: %d\r\n"


class RequestForm:
    """Makes the requests to one subscriber. Made anew when its settings or its queue's name change."""

    __slots__ = ("_begin", "_confirmed", "_confirmed_prefix", "_end", "_fixed", "_forward", "_header_signers",
                 "_is_batch", "_key_signers", "_kind", "_old_signer", "_old_until_s", "_prefix", "_ready", "_shared",
                 "_shared_prefix", "_tails", "_with_secret", "credentials", "queue", "subscriber",
                 "target")  # fmt: skip

    def __init__(
        self,
        subscriber: Subscriber,
        queue: str,
        tails: SharedTails | None = None,
        epoch: int = 0,
        credentials: Mapping[str, str] = NONE,
    ) -> None:
        """Raises ``BadSetting`` where the endpoint is not one. ``epoch``: see ``LeaderLease``. ``credentials``: of the
        subscriber's settings; raises ``LookupError`` where one is missing."""
        self._tails = tails or SharedTails()
        self.subscriber = subscriber
        self.queue = queue
        self.credentials = credentials
        self.target = target = parse_target(subscriber.settings.endpoint)
        self._kind = subscriber.settings.format
        self._sign_as(subscriber.settings.signatures, credentials)
        self._is_batch = subscriber.settings.batch is not None
        self._shared = self._kind == Format.RAW and not self._header_signers and not self._is_batch
        """messages with nothing of their own share what their neighbours have"""
        own = _own_headers(subscriber.settings, credentials)
        # A publisher cannot forward a header that the operator has set: an Authorization of its own, for instance.
        taken = {name for name, _ in own}.union(one.header for one in self._header_signers)
        auth = subscriber.settings.auth
        if auth is not None and auth.scheme:
            taken.add("authorization")
        held_back = header_settings.HELD_BACK.difference(subscriber.settings.forward)
        self._fixed = _FIXED.union(taken, held_back)
        self._forward = frozenset(subscriber.settings.forward)
        agent = "" if "user-agent" in dict(own) else f"User-Agent: syncbrok/{__version__}\r\n"
        queue_line = "" if self._kind == Format.ORIGINAL else f"syncbrok-queue: {quote(queue, safe='')}\r\n"
        epoch_line = f"Syncbrok-Epoch: {epoch}\r\n" if epoch else ""
        self._begin = f"POST {target.path} HTTP/1.1\r\nHost: {target.authority}\r\n{agent}"
        self._end = f"{header_lines(own)}{queue_line}{epoch_line}"
        self._ready: tuple[tuple[int, int, int, str], Sequence[SignerLike], bytes] | None = None
        """the end of a request made ahead, behind what only its attempt says, and what it was made of"""
        self.authorize(_authorization(auth, credentials))

    def authorize(self, authorization: str) -> None:
        """From now on requests have this header of authorization; ``""``: none."""
        line = f"Authorization: {authorization}\r\n" if authorization else ""
        self._prefix = f"{self._begin}{line}{self._end}"
        self._shared_prefix = f"{self._prefix}Syncbrok-Hops: 1\r\n".encode("utf-8", "surrogateescape")
        self._confirmed, self._confirmed_prefix = NOTHING_CONFIRMED, self._shared_prefix
        self._ready = None

    def _sign_as(self, schemes: Sequence[Signature], credentials: Mapping[str, str]) -> None:
        self._with_secret = any(one.scheme == V1 for one in schemes)
        self._key_signers: tuple[SignerLike, ...] = ()
        self._old_signer: SignerLike | None = None
        self._old_until_s = 0.0
        if any(one.scheme == V1A for one in schemes):
            self._key_signers = (KeySigner(credentials[KEY]),)
            if OLD_KEY in credentials:
                self._old_signer = KeySigner(credentials[OLD_KEY])
                self._old_until_s = int(credentials[OLD_KEY_UNTIL]) / 1e6
                self._key_signers += (self._old_signer,)
        self._header_signers = tuple(
            HeaderSigner(one, credentials[credential(one.header)]) for one in schemes if one.scheme == HMAC
        )

    def signers(self, keys: Sequence[bytes]) -> tuple[SignerLike, ...]:
        """The signers whose signatures stand in ``webhook-signature``: of its secrets, whose ``keys`` these are, and of
        its key pairs."""
        with_secret = tuple(Signer(key) for key in keys) if self._with_secret else ()
        return (*with_secret, *self._key_signers)

    def _signed(self, signers: Sequence[SignerLike], name: str, timestamp_s: str, body: bytes) -> str:
        """The value of ``webhook-signature``. The key pair that is rotated out signs no more once its grace is over,
        though the fact that says so may come a minute later."""
        if self._old_signer is not None and float(timestamp_s) >= self._old_until_s:
            signers = [one for one in signers if one is not self._old_signer]
        return signatures(signers, signed_begin(name, timestamp_s), body)

    def render(self, delivery: Delivery, timestamp_s: str, signers: Sequence[SignerLike]) -> bytes:
        """The whole request. ``timestamp_s``: Unix seconds of the attempt; for ``signers`` see the method.

        Most messages have nothing of their own but id, sequence, parents and content: those are put into what their
        neighbours have in common, in half the time of ``in_full``, and byte for byte the same (``SharedTails``)."""
        attempt, message, _ = delivery
        if self._ready is not None:
            of_ready, signed_by, end = self._ready
            if of_ready == _identity(attempt, timestamp_s) and signed_by is signers:
                self._ready = None
                return self._line_up(attempt, message) + end
        return self._made(delivery, timestamp_s, signers)

    def _made(self, delivery: Delivery, timestamp_s: str, signers: Sequence[SignerLike]) -> bytes:
        """``render`` of a request of which nothing was made ahead."""
        attempt, message, _ = delivery
        if not self._shared or message.headers or attempt.replay or len(message.content) > _SHARED_BYTES_MAX:
            return self.in_full(delivery, timestamp_s, signers)
        if attempt.confirmed is not self._confirmed:
            self._confirm(attempt.confirmed)
        tail = self._tails.tail(message, timestamp_s, attempt.number)
        if not signers:
            return self._confirmed_prefix + tail
        signed = self._signed(signers, id_text(message.id), timestamp_s, message.content)
        return b"%bwebhook-signature: %b\r\n%b" % (self._confirmed_prefix, signed.encode(), tail)

    def _confirm(self, confirmed: Confirmed) -> None:
        """Prepare what goes with this message and probably with those that follow."""
        self._confirmed = confirmed
        previous, through = confirmed
        if previous and through:
            self._confirmed_prefix = _BOTH_LINES % (self._shared_prefix, previous, through)
        else:
            self._confirmed_prefix = self._shared_prefix + self._confirmed_lines(confirmed).encode()

    def _confirmed_lines(self, confirmed: Confirmed) -> str:
        if self._kind == Format.ORIGINAL:
            return ""
        previous = f"syncbrok-previous: {confirmed.previous}\r\n" if confirmed.previous else ""
        through = f"syncbrok-complete-through: {confirmed.complete_through}\r\n" if confirmed.complete_through else ""
        return previous + through

    def _line_up(self, attempt: Attempt, message: StoredMessage) -> bytes:
        """A request up to where what is made ahead begins."""
        if self._shared and not message.headers:
            if attempt.confirmed is not self._confirmed:
                self._confirm(attempt.confirmed)
            return self._confirmed_prefix
        head = f"{self._prefix}{_hops_line(message)}{self._confirmed_lines(attempt.confirmed)}"
        return head.encode("utf-8", "surrogateescape")

    def make_ready(self, delivery: Delivery, timestamp_s: str, signers: Sequence[SignerLike]) -> None:
        """Make of the request that ``render`` will probably be asked for what is known now; another one takes its
        place. What will have been delivered by then is not known, and none of the signatures covers it. Of a batch
        nobody knows what will stand in it."""
        attempt, message, _ = delivery
        self._ready = None
        if self._is_batch:
            return
        made = self._made(delivery, timestamp_s, signers)
        end = made[len(self._line_up(attempt, message)) :]
        self._ready = (_identity(attempt, timestamp_s), signers, end)

    def in_full(self, delivery: Delivery, timestamp_s: str, signers: Sequence[SignerLike]) -> bytes:
        """See ``render``; any message."""
        if self._is_batch:
            return self._batch(members_of(delivery), timestamp_s, signers)
        attempt, message, _ = delivery
        rest, body = self._rest(delivery, timestamp_s, signers)
        head = f"{self._prefix}{_hops_line(message)}{self._confirmed_lines(attempt.confirmed)}{rest}"
        return head.encode("utf-8", "surrogateescape") + body

    def _rest(self, delivery: Delivery, timestamp_s: str, signers: Sequence[SignerLike]) -> tuple[str, bytes]:
        """The lines of a request from its signature on, with the empty one; and its body."""
        attempt, message = delivery.attempt, delivery.message
        if self._kind == Format.ORIGINAL:
            return self._original(delivery, timestamp_s, signers)
        name = id_text(message.id)
        body = message.content
        media = _media(message.content_type)
        extra = ""
        if self._kind != Format.RAW:
            body, media, extra = self._cloud_event(message, name, media)
        elif message.headers:
            extra = header_lines(message.headers, self._fixed, self._forward)
        if message.parents:
            extra += _parents_line(message.parents)
        if attempt.replay:
            extra += f"Syncbrok-Replay: {attempt.replay}\r\n"
        signature = ""
        if signers:
            signature = f"webhook-signature: {self._signed(signers, name, timestamp_s, body)}\r\n"
        signature += self._own_signatures(name, timestamp_s, body)
        rest = (
            f"{signature}webhook-id: {name}\r\nwebhook-timestamp: {timestamp_s}\r\n"
            f"syncbrok-sequence: {attempt.message}\r\nsyncbrok-attempt: {attempt.number}\r\n{extra}"
            f"Content-Type: {media}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return rest, body

    def _batch(self, members: Sequence[Delivery], timestamp_s: str, signers: Sequence[SignerLike]) -> bytes:
        name = batch_id(members[0].message, len(members))
        hops = [hops_with(one.message) for one in members]
        body = b"".join(
            [
                batch_line(one, self.queue, kept_headers(one.message.headers, self._fixed, self._forward), count)
                + b"\n"
                for one, count in zip(members, hops, strict=True)
            ]
        )
        signature = ""
        if signers:
            signature = f"webhook-signature: {self._signed(signers, name, timestamp_s, body)}\r\n"
        signature += self._own_signatures(name, timestamp_s, body)
        return (
            f"{self._prefix}Syncbrok-Hops: {max(hops)}\r\n{signature}"
            f"webhook-id: {name}\r\nwebhook-timestamp: {timestamp_s}\r\n"
            f"Content-Type: {MEDIA}\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode("utf-8", "surrogateescape") + body

    def _original(self, delivery: Delivery, timestamp_s: str, signers: Sequence[SignerLike]) -> tuple[str, bytes]:
        name = id_text(delivery.message.id)
        body = b'{"id": "%b", "content": "%b"}' % (name.encode(), b64encode(delivery.message.content))
        extra = f"Syncbrok-Replay: {delivery.attempt.replay}\r\n" if delivery.attempt.replay else ""
        if signers:
            extra += (
                f"webhook-id: {name}\r\nwebhook-timestamp: {timestamp_s}\r\n"
                f"webhook-signature: {self._signed(signers, name, timestamp_s, body)}\r\n"
            )
        extra += self._own_signatures(name, timestamp_s, body)
        return f"{extra}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n", body

    def _own_signatures(self, name: str, timestamp_s: str, body: bytes) -> str:
        """The lines of signatures that have a header of their own."""
        return "".join([one.line(name, timestamp_s, body) for one in self._header_signers])

    def _cloud_event(self, message: StoredMessage, name: str, media: str) -> tuple[bytes, str, str]:
        """(body, content type, header lines) of the message as a CloudEvent, binary or structured."""
        attributes = cloud_event_attributes(message, name, self.queue)
        others = [pair for pair in message.headers if not pair[0].lower().startswith("ce-")]
        if self._kind == Format.CLOUDEVENTS:
            binary = [(f"ce-{attribute}", value) for attribute, value in attributes.items()]
            return message.content, media, header_lines(binary + others, self._fixed, self._forward)
        event: dict[str, Any] = {
            # JSON has no raw bytes: what was not UTF-8 in a header becomes U+FFFD.
            attribute: unquote(value.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))
            for attribute, value in attributes.items()
        }
        event["datacontenttype"] = media
        event |= _event_data(message.content, media)
        body = orjson.dumps(event)
        return body, "application/cloudevents+json; charset=utf-8", header_lines(others, self._fixed, self._forward)


def _own_headers(settings: SubscriberSettings, credentials: Mapping[str, str]) -> list[tuple[str, str]]:
    """The headers that the subscriber's settings name; an older version has left the values there too."""
    is_kept = settings.credentials > 0
    return [
        (name.lower(), credentials[header_settings.credential(name)] if is_kept and value == SET else value)
        for name, value in settings.headers
    ]


def _authorization(auth: EndpointAuth | None, credentials: Mapping[str, str]) -> str:
    """The value that does not change; ``""`` where there is none, or it is to be fetched first."""
    if auth is not None and auth.scheme == BASIC:
        user = f"{auth.username}:{credentials[PASSWORD]}".encode("utf-8", "surrogatepass")
        return f"Basic {b64encode(user).decode()}"
    return f"Bearer {credentials[TOKEN]}" if auth is not None and auth.scheme == BEARER else ""


def hops_with(message: StoredMessage) -> int:
    """How many deliveries the message will have gone through with this one."""
    return 1 + next((int(value) for name, value in message.headers if name == HOPS), 0)


def _hops_line(message: StoredMessage) -> str:
    return f"Syncbrok-Hops: {hops_with(message)}\r\n"


def _identity(attempt: Attempt, timestamp_s: str) -> tuple[int, int, int, str]:
    """All of an attempt that shows in its request; when it began in the log does not."""
    return attempt.message, attempt.number, attempt.replay, timestamp_s


def _parents_line(parents: Sequence[MessageId]) -> str:
    return f"syncbrok-parents: {','.join(map(id_text, parents))}\r\n"


def _media(content_type: str) -> str:
    if not content_type:
        return _DEFAULT_TYPE
    return content_type if content_type.isascii() and content_type.isprintable() else clean(content_type)


def cloud_event_attributes(message: StoredMessage, name: str, queue: str) -> dict[str, str]:
    """The context attributes of CloudEvents 1.0, as headers of the binary mode (percent-encoded where needed).
    Attributes of the publisher (``ce-*``) stay; the broker fills in the rest."""
    given = {key.lower()[3:]: clean(value) for key, value in message.headers if key.lower().startswith("ce-")}
    attributes = {
        "specversion": "1.0",
        "id": name,
        # Encoded as a URI asks, and its percent signs once more as a header asks; structured they are decoded once.
        "source": f"/queues/{quote(queue, safe='').replace('%', '%25')}",
        "type": EVENT_TYPE,
        "time": render_time(message.time_us),
    }
    if message.parents:
        parents = [id_text(parent) for parent in message.parents]
        attributes["causationid"] = parents[0]
        attributes["syncbrokparents"] = ",".join(parents)
    return attributes | {attribute: value for attribute, value in given.items() if attribute}


def _event_data(content: bytes, media: str) -> dict[str, Any]:
    kind = media.partition(";")[0].strip().lower()
    if not content:
        return {}
    if kind == "application/json" or kind.endswith("+json"):
        try:
            orjson.loads(content)
        except orjson.JSONDecodeError:
            pass
        else:
            return {"data": orjson.Fragment(content)}
    return {"data_base64": b64encode(content).decode("ascii")}


def header_lines(
    headers: Sequence[tuple[str, str]],
    taken: frozenset[str] = frozenset(),
    forward: frozenset[str] | None = None,
) -> str:
    """``name: value`` lines of those headers that may go out; see ``kept_headers``."""
    return "".join([f"{name}: {value}\r\n" for name, value in kept_headers(headers, taken, forward)])


def kept_headers(
    headers: Sequence[tuple[str, str]],
    taken: frozenset[str] = frozenset(),
    forward: frozenset[str] | None = None,
) -> list[tuple[str, str]]:
    """The headers that may go out: not the framing, not the broker's own, none that is ``taken`` (lower case).
    ``forward``: of a publisher's the ``x-forwarded-`` ones that may; None: they are not a publisher's."""
    kept = []
    for name, value in headers:
        lowered = name.lower()
        if (
            lowered in _RESERVED
            or lowered in taken
            or lowered.startswith(_RESERVED_PREFIXES)
            or (forward is not None and lowered.startswith(HELD_BACK_PREFIX) and lowered not in forward)
            or not _TOKEN.fullmatch(name)
        ):
            continue
        kept.append((name, value if value.isascii() and value.isprintable() else clean(value)))
    return kept


def clean(value: str) -> str:
    """``value`` with a blank in place of each control character, so that it cannot end a header's line."""
    return _CONTROL.sub(" ", value).strip()
