"""What a request looks like on the wire, and what can never get into it."""

import base64
import json
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook as Verifier

from syncbrok import __version__
from syncbrok.delivery.handler import Confirmed, Delivery
from syncbrok.delivery.webhook.http_request import RequestForm, SharedTails, parse_target
from syncbrok.delivery.webhook.signing import Signer
from syncbrok.model.errors import BadSetting
from syncbrok.model.message import Format
from syncbrok.model.names import MessageId, id_text
from tests.support.delivery.endpoint import delivery, message, message_id, subscriber

ID = id_text(message_id(7))
NOW_S = "1700000123"


class Parsed:
    """A request as a strict receiver reads it: one line each, nothing after the body."""

    def __init__(self, data: bytes) -> None:
        stream = BytesIO(data)
        self.line = stream.readline().decode()
        self.pairs: list[tuple[str, str]] = []
        while (line := stream.readline()) != b"\r\n":
            assert line.endswith(b"\r\n"), line
            assert not any((byte < 32 and byte != 9) or byte == 127 for byte in line[:-2]), line
            name, colon, value = line[:-2].decode("utf-8", "surrogateescape").partition(": ")
            assert colon, line
            self.pairs.append((name, value))
        self.headers = {name.lower(): value for name, value in self.pairs}
        assert len(self.headers) == len(self.pairs), "a header twice"
        self.body = stream.read()
        assert len(self.body) == int(self.headers["content-length"])


def render(
    kind: Format = Format.RAW,
    of: Delivery | None = None,
    keys: tuple[bytes, ...] = (),
    url: str = "",
    **settings: object,
) -> Parsed:
    form = RequestForm(subscriber(url or "http://hooks.example:8080/in?x=1", kind, **settings), "orders")
    return Parsed(form.render(of or delivery(), NOW_S, keys))


def test_a_v1_request_says_what_the_contract_says() -> None:
    """INTERFACES, "What a v1 subscriber receives": these headers, this body, nothing else."""
    parents = (message_id(3), message_id(5))
    full = message(parents=parents, headers=(("traceparent", "00-ab-cd-01"), ("x-shop", "7")), content_type="text/x")
    asked = render(of=delivery(of=full, number=3, replay=2))
    assert asked.line == "POST /in?x=1 HTTP/1.1\r\n"
    assert asked.body == b"hello"
    assert asked.headers == {
        "host": "hooks.example:8080",
        "user-agent": f"syncbrok/{__version__}",
        "webhook-id": ID,
        "webhook-timestamp": NOW_S,
        "syncbrok-queue": "orders",
        "syncbrok-hops": "1",
        "syncbrok-sequence": "7",
        "syncbrok-attempt": "3",
        "syncbrok-parents": f"{id_text(parents[0])},{id_text(parents[1])}",
        "syncbrok-replay": "2",
        "traceparent": "00-ab-cd-01",
        "x-shop": "7",
        "content-type": "text/x",
        "content-length": "5",
    }


def test_what_does_not_apply_is_left_out() -> None:
    """No parents, no replay, no secret: no header for them; no content type: bytes."""
    asked = render(of=delivery(of=message(content_type="", content=b"")))
    assert not {"syncbrok-parents", "syncbrok-replay", "webhook-signature"} & set(asked.headers)
    assert (asked.headers["content-type"], asked.body) == ("application/octet-stream", b"")


@pytest.mark.parametrize("kind", list(Format))
def test_every_format_is_signed_over_the_bytes_it_sends(kind: Format) -> None:
    """Standard Webhooks 1.0: the signature covers the raw body, whatever the format made of it."""
    from datetime import UTC, datetime

    keys = (b"k" * 32, b"o" * 24)
    form = RequestForm(subscriber("http://h/", kind), "orders")
    of = delivery(of=message(content=b'{"a": 1}', content_type="application/json"))
    asked = Parsed(form.render(of, str(int(datetime.now(UTC).timestamp())), [Signer(key) for key in keys]))
    for key in keys:
        assert Verifier("whsec_" + base64.b64encode(key).decode()).verify(asked.body, asked.headers)


def test_the_original_format_is_the_original() -> None:
    """INTERFACES 2: this content type and exactly this body."""
    asked = render(Format.ORIGINAL, url="http://127.0.0.1:20000")
    assert asked.line == "POST / HTTP/1.1\r\n"
    assert asked.body == b'{"id": "%b", "content": "aGVsbG8="}' % ID.encode()
    assert asked.headers == {
        "host": "127.0.0.1:20000",
        "user-agent": f"syncbrok/{__version__}",
        "syncbrok-hops": "1",
        "content-type": "application/json",
        "content-length": str(len(asked.body)),
    }


def test_cloud_events_in_binary_mode() -> None:
    """CloudEvents 1.0: context in headers, the content as it is; the parent as causation."""
    asked = render(Format.CLOUDEVENTS, delivery(of=message(parents=(message_id(3), message_id(5)))))
    assert {name: value for name, value in asked.headers.items() if name.startswith("ce-")} == {
        "ce-specversion": "1.0",
        "ce-id": ID,
        "ce-source": "/queues/orders",
        "ce-type": "syncbrok.message",
        "ce-time": "2023-11-14T22:13:20.000000Z",
        "ce-causationid": id_text(message_id(3)),
        "ce-syncbrokparents": f"{id_text(message_id(3))},{id_text(message_id(5))}",
    }
    assert (asked.headers["content-type"], asked.headers["webhook-id"], asked.body) == ("text/plain", ID, b"hello")


def test_what_the_publisher_said_of_its_event_stands() -> None:
    """A CloudEvent that came in goes out as the same event."""
    own = (("ce-id", "A%20234"), ("ce-source", "/shop"), ("ce-type", "order.paid"), ("ce-tenant", "7"), ("x-a", "b"))
    asked = render(Format.CLOUDEVENTS, delivery(of=message(headers=own)))
    assert own == tuple((name, asked.headers[name]) for name, _ in own)
    event = json.loads(render(Format.CLOUDEVENTS_STRUCTURED, delivery(of=message(headers=own))).body)
    assert (event["id"], event["source"], event["type"], event["tenant"]) == ("A 234", "/shop", "order.paid", "7")


@pytest.mark.parametrize(
    ("content", "media", "member"),
    [
        (b'{"a": [1, 2]}', "application/json", {"data": {"a": [1, 2]}}),
        (b'{"a": 1}', "application/vnd.x+json; charset=utf-8", {"data": {"a": 1}}),
        (b"{broken", "application/json", {"data_base64": base64.b64encode(b"{broken").decode()}),
        (b"\x00\xff", "image/png", {"data_base64": "AP8="}),
        (b"", "text/plain", {}),
    ],
)
def test_cloud_events_in_structured_mode(content: bytes, media: str, member: dict[str, object]) -> None:
    """CloudEvents 1.0, JSON format: JSON stays JSON, everything else is base64, and nothing breaks the envelope."""
    asked = render(Format.CLOUDEVENTS_STRUCTURED, delivery(of=message(content=content, content_type=media)))
    event = json.loads(asked.body)
    assert asked.headers["content-type"].startswith("application/cloudevents+json")
    assert (event["specversion"], event["id"], event["datacontenttype"]) == ("1.0", ID, media)
    assert {name: event[name] for name in event if name.startswith("data") and name != "datacontenttype"} == member


def test_a_publisher_cannot_forge_what_the_broker_says() -> None:
    """Forwarded headers cannot frame the request, replace the broker's own words or the operator's headers."""
    forged = [
        ("Content-Length", "0"),
        ("transfer-encoding", "chunked"),
        ("Host", "internal"),
        ("Connection", "upgrade"),
        ("webhook-id", "other"),
        ("Webhook-Signature", "v1,forged"),
        ("syncbrok-queue", "other"),
        ("Syncbrok-Replay", "9"),
        ("User-Agent", "syncbrok/9"),
        ("Authorization", "Bearer theirs"),
        ("content-type", "text/forged"),
        ("bad name", "x"),
        ("", "x"),
        ("ok", "kept"),
    ]
    asked = render(of=delivery(of=message(headers=tuple(forged))), headers=(("Authorization", "Bearer ours"),))
    clean = render(headers=(("Authorization", "Bearer ours"),))
    assert asked.headers == clean.headers | {"ok": "kept"}
    assert asked.headers["authorization"] == "Bearer ours"


def test_an_operator_may_name_another_agent_but_not_the_framing() -> None:
    """Fixed headers are the operator's word; the length and the host are the request's."""
    asked = render(headers=(("User-Agent", "shop"), ("Content-Length", "1"), ("X-Tenant", "7")))
    assert (asked.headers["user-agent"], asked.headers["x-tenant"], asked.headers["content-length"]) == (
        "shop",
        "7",
        "5",
    )


@given(
    name=st.text(max_size=12),
    value=st.text(alphabet=st.characters(), max_size=40),
    media=st.text(alphabet=st.characters(), max_size=40),
    kind=st.sampled_from(list(Format)),
)
def test_no_text_of_a_message_breaks_out_of_its_header(name: str, value: str, media: str, kind: Format) -> None:
    """No line end, no control character, no second header: ``Parsed`` refuses each of them."""
    injected = (("x-a", value), (name, "v"), ("x-b", f"1\r\nx-injected: {value}"), ("ce-type", value))
    asked = render(kind, delivery(of=message(headers=injected, content_type=media, content=b"{}")))
    assert "x-injected" not in asked.headers


@given(
    media=st.text(max_size=20),
    content=st.binary(max_size=300),
    number=st.integers(1, 3),
    url=st.sampled_from(["http://hooks.example/", "http://hooks.example/50%25?x=%d%b"]),
    headers=st.lists(st.tuples(st.sampled_from(["x-own", "x-%b"]), st.text(max_size=9)), max_size=1),
    own=st.sampled_from([(), (("x-shop", "100 % \udcff"),)]),
    signed=st.booleans(),
    parents=st.lists(st.integers(1, 6).map(message_id), max_size=3),
)
def test_the_short_way_makes_the_same_request(
    media: str,
    content: bytes,
    number: int,
    url: str,
    headers: list[tuple[str, str]],
    own: tuple[tuple[str, str], ...],
    signed: bool,
    parents: list[MessageId],
) -> None:
    """What a subscriber receives does not tell how it was put together."""
    form = RequestForm(subscriber(url, headers=own), "50%d")
    signers = [Signer(bytes(24))] if signed else []
    for sequence in (7, 8):
        own_parts = {"content_type": media, "headers": tuple(headers), "parents": tuple(parents)}
        one = delivery(of=message(sequence, content, **own_parts), number=number)
        for timestamp_s in (NOW_S, "1700000124"):
            assert form.render(one, timestamp_s, signers) == form.in_full(one, timestamp_s, signers)


def test_subscribers_that_share_what_follows_their_own_lines() -> None:
    """The part made once for all who get a message is made anew for another message, second, attempt or type, also
    after one that could not be made; and nobody's own lines get into another's request."""
    tails = SharedTails()
    forms = [
        RequestForm(subscriber(f"http://h/{number}", headers=(("X-Who", str(number)),)), f"queue{number}", tails)
        for number in range(3)
    ]
    first, second = message(7, b"one"), message(8, b"two", parents=(message_id(5),))
    large = message(9, bytes(1 << 20))
    untyped = message(7, None)  # type: ignore[arg-type]
    for of, number, timestamp_s in (
        (first, 1, NOW_S),
        (second, 1, NOW_S),
        (first, 2, NOW_S),
        (first, 2, "1700000124"),
        (untyped, 3, "1700000124"),
        (first, 3, "1700000124"),
        (first._replace(content_type="a/b"), 3, "1700000124"),
        (large, 3, "1700000124"),
        (first, 1, NOW_S),
    ):
        one = delivery(of=of, number=number)
        for form in forms:
            if of is untyped:
                with pytest.raises(TypeError):
                    form.render(one, timestamp_s, ())
            else:
                assert form.render(one, timestamp_s, ()) == form.in_full(one, timestamp_s, ())


@pytest.mark.parametrize("kind", list(Format))
@pytest.mark.parametrize("is_ready", [False, True])
def test_an_attempt_says_what_is_known_as_it_goes_out(kind: Format, is_ready: bool) -> None:
    """RULES 24: what had been delivered before, of this attempt and not of when its request was prepared; nothing where
    there is nothing to say, and never in the original format."""
    form = RequestForm(subscriber("http://h/", kind), "orders")
    said = []
    for confirmed in (Confirmed(0, 0), Confirmed(3, 5), Confirmed(3, 5), Confirmed(0, 6), Confirmed(6, 0)):
        if is_ready:
            form.make_ready(delivery(7), NOW_S, ())
        headers = Parsed(form.render(delivery(7, confirmed=confirmed), NOW_S, ())).headers
        said.append((headers.get("syncbrok-previous"), headers.get("syncbrok-complete-through")))
    told = [(None, None), ("3", "5"), ("3", "5"), (None, "6"), ("6", None)]
    assert said == ([(None, None)] * 5 if kind is Format.ORIGINAL else told)


def test_a_request_made_ahead_is_sent_for_what_it_was_made_only() -> None:
    """DESIGN 1: each attempt is signed and dated when it is made; another message, second, number or key makes anew."""
    signers = (Signer(bytes(24)),)
    for of, timestamp_s, signed_by in (
        (delivery(7), NOW_S, signers),
        (delivery(8), NOW_S, signers),
        (delivery(7, number=2), NOW_S, signers),
        (delivery(7, replay=1), NOW_S, signers),
        (delivery(7), "1700000124", signers),
        (delivery(7), NOW_S, (Signer(b"another key of 24 bytes.."),)),
        (delivery(7), NOW_S, ()),
    ):
        form = RequestForm(subscriber("http://h/"), "orders")
        form.make_ready(delivery(7), NOW_S, signers)
        made = form.in_full(of, timestamp_s, signed_by)
        assert form.render(of, timestamp_s, signed_by) == made
        assert form.render(of, timestamp_s, signed_by) == made


def test_bytes_that_are_not_text_go_out_as_they_came() -> None:
    """A header that was not UTF-8 is carried, not rewritten."""
    raw = b"caf\xe9".decode("utf-8", "surrogateescape")
    form = RequestForm(subscriber("http://h/"), "orders")
    assert b"\r\nx-a: caf\xe9\r\n" in form.render(delivery(of=message(headers=(("x-a", raw),))), NOW_S, ())


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("http://h", (False, "h", 80, "h", "/")),
        ("https://h?a=b", (True, "h", 443, "h", "/?a=b")),
        ("http://[::1]:81/x;y=%20z", (False, "::1", 81, "[::1]:81", "/x;y=%20z")),
        ("https://Shop.Example:8443/a//b", (True, "shop.example", 8443, "Shop.Example:8443", "/a//b")),
    ],
)
def test_where_an_endpoint_leads(url: str, where: tuple[object, ...]) -> None:
    """The parts of a URL, each where it belongs."""
    assert parse_target(url) == where


@pytest.mark.parametrize("url", ["", "h", "ftp://h/", "http://u:p@h/", "http://h/#x", "http://h/\r\nX: y", "http:///x"])
def test_what_is_no_endpoint_is_refused(url: str) -> None:
    """A URL from an old log is judged as a new one."""
    with pytest.raises(BadSetting):
        parse_target(url)


@pytest.mark.parametrize("kind", [Format.RAW, Format.CLOUDEVENTS, Format.CLOUDEVENTS_STRUCTURED])
def test_who_a_publisher_says_it_is_goes_to_those_who_ask(kind: Format) -> None:
    """INTERFACES 3: what says who somebody is goes out where the subscriber's ``forward`` names it,
    whatever its case; an operator's own header of that name goes out all the same."""
    said = (
        ("Authorization", "Bearer theirs"),
        ("cookie", "a=b"),
        ("Forwarded", "for=1.2.3.4"),
        ("X-Forwarded-For", "1.2.3.4"),
        ("X-Forwarded-Host", "h"),
        ("X-Shop", "7"),
    )
    names = {name.lower() for name, _ in said}
    sent = delivery(of=message(headers=said))
    assert names & render(kind, sent).headers.keys() == {"x-shop"}
    some = render(kind, sent, forward=("authorization", "x-forwarded-for"))
    assert names & some.headers.keys() == {"x-shop", "authorization", "x-forwarded-for"}
    assert some.headers["x-forwarded-for"] == "1.2.3.4"
    own = render(kind, sent, headers=(("x-forwarded-host", "ours"), ("cookie", "ours")))
    assert (own.headers["x-forwarded-host"], own.headers["cookie"]) == ("ours", "ours")
