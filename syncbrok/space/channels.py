"""The channels that frontends write into, for messages, queues and subscribers. One can only put into them.

Each item carries its receipt: a future that the Space resolves once the item is durable (group commit), or refuses
with a ``ClientFault`` or ``BrokerFault``. A refused item has changed nothing. A receipt that nobody waits for any
more is resolved all the same.

Small publishes may be so many that a future each is too dear: ``put_shared`` takes a listener instead, which is told
of all that became durable together in one call.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from syncbrok.model import limits
from syncbrok.model.credentials import NONE
from syncbrok.model.facts import JobChanged
from syncbrok.model.jobs import Choice
from syncbrok.model.message import Message, QueueSettings, SubscriberSettings
from syncbrok.model.names import MessageId, QueueName, SubscriberId
from syncbrok.model.signature_settings import V1
from syncbrok.model.tokens import Token

_BARE: Final = Message(b"")[2:]
"""what a bare message has after its content and its type"""
_NOTHING: Final[Mapping[int, Message]] = {}
_new: Final[Callable[..., Any]] = tuple.__new__
"""makes a named tuple from its fields in order, in a third of the time"""

# -- messages ---------------------------------------------------------------------------------------------------------


class Publish(NamedTuple):
    """Messages for one queue as one unit: all of them are accepted or none (RULES 5). Receipt: ``Accepted``.

    They are columns, and one message is a unit of one. Most messages are bare: they have content and its type. What
    few have besides is told by position, so that bare ones cost nothing for it."""

    queue: QueueName
    content_type: str
    """of every message that is not in ``extras``"""
    contents: Sequence[bytes]
    size_bytes: int
    """of all contents, or a little more"""
    extras: Mapping[int, Message] = {}
    """by position: the whole of a message that has more than its content, or a type of its own"""
    keys: Sequence[str] = ()
    """idempotency keys of messages that are bare but for those, one for each, or none at all; then without extras"""
    only: SubscriberId | None = None
    """the one subscriber that they are for"""

    @classmethod
    def of(cls, queue: QueueName, messages: Sequence[Message], only: SubscriberId | None = None) -> "Publish":
        """One unit of these messages. Attributes that they share are stored once."""
        content_type = messages[0].content_type if messages else ""
        common = (content_type, *_BARE)
        contents = [message.content for message in messages]
        extras = {at: message for at, message in enumerate(messages) if message[1:] != common}
        return cls(queue, content_type, contents, sum(map(len, contents)), extras, (), only)

    @classmethod
    def one(cls, queue: QueueName, message: Message) -> "Publish":
        """As ``of`` one message, in a third of the time."""
        content = message[0]
        extras = _NOTHING if message[2:] == _BARE else {0: message}
        unit: Publish = _new(cls, (queue, message[1], (content,), len(content), extras, (), None))
        return unit

    @classmethod
    def bare(cls, queue: QueueName, content_type: str, content: bytes) -> "Publish":
        """One bare message, in half the time of ``one``."""
        unit: Publish = _new(cls, (queue, content_type, (content,), len(content), _NOTHING, (), None))
        return unit


class Accepted(NamedTuple):
    """The receipt of a publish: of one unit, or of several that became durable together. New messages have the
    sequences from ``first`` on. A message whose idempotency key was known has the id and the sequence of the first one
    with that key."""

    first: int
    id_bytes: bytes
    """16 bytes a message, in their order"""
    sync: str
    """``always`` or ``interval:<ms>``; of a cluster who has it (``model.journal.QUORUM``)"""
    known: Mapping[int, int] = {}
    """by position: the sequence of a message that is not new"""
    parents: Mapping[int, tuple[MessageId, ...]] = {}
    """by position: ids of the parents, where a message has any"""
    weaker: bool = False
    """``sync`` is less than the policy wants: it could not be reached in time"""

    @property
    def ids(self) -> tuple[MessageId, ...]:
        """One for each message."""
        ids = self.id_bytes
        return tuple([MessageId(ids[at : at + 16]) for at in range(0, len(ids), 16)])

    @property
    def sequences(self) -> tuple[int, ...]:
        """One for each message."""
        count, known = len(self.id_bytes) // 16, self.known
        if not known:
            return tuple(range(self.first, self.first + count))
        new = iter(range(self.first, self.first + count))
        return tuple([known[at] if at in known else next(new) for at in range(count)])

    @property
    def new(self) -> tuple[bool, ...]:
        """For each message True if it was accepted now, False if its idempotency key was known."""
        return tuple([at not in self.known for at in range(len(self.id_bytes) // 16)])


class Cancel(NamedTuple):
    """End the unfinished deliveries of a message as ``dropped``. Receipt: their number (int)."""

    id: MessageId
    by: str = ""


class CancelMessages(NamedTuple):
    """As ``Cancel``, of these messages of the queue (sequences), but for those that have ended; from the newest on, so
    that none dies of a parent that is cancelled with it. A crash may leave it half done. Receipt: ``Cancelled``."""

    queue: QueueName
    messages: tuple[int, ...]
    dry_run: bool = False
    by: str = ""


class Cancelled(NamedTuple):
    """How many messages were (``dry_run``: would be) cancelled, and how many deliveries that ended."""

    messages: int
    deliveries: int


class EraseMessage(NamedTuple):
    """Take the content of a message away, for good (RULES 32). Receipt: how many deliveries that dropped (int).
    ``Conflict`` where it has not ended, unless ``force``."""

    id: MessageId
    force: bool = False
    by: str = ""


class RetryMessage(NamedTuple):
    """Make the waiting attempts of a message now, at every subscriber or at one (RULES 26); with ``dry_run`` only count
    them. Receipt: at how many subscribers (int). Refused with ``SubscriberStopped`` where that one is paused or
    disabled."""

    id: MessageId
    subscriber: SubscriberId | None = None
    dry_run: bool = False


class Replay(NamedTuple):
    """Deliver again, in causal order (RULES 21). Give exactly one of ``id`` and ``queue``; ``queue`` means the dead
    letters of the queue. ``subscriber`` (an id) narrows it to one, descendants too. ``descendants``: also deliver again
    those that had been delivered. Receipt: ``ReplayPlan``."""

    id: MessageId | None = None
    queue: QueueName | None = None
    subscriber: SubscriberId | None = None
    descendants: bool = False
    dry_run: bool = False
    by: str = ""


class ReplayPlan(NamedTuple):
    """The effect of a replay, done or (``dry_run``) only planned: (id, subscriber ids) in the order of delivery, at
    most the first 1,000; ``messages`` and ``deliveries`` count all. ``number`` is 0 for a dry run."""

    number: int
    messages: int
    deliveries: int
    order: tuple[tuple[MessageId, tuple[SubscriberId, ...]], ...]
    skipped: int = 0
    """dead letters that stay, since their message has not ended at every subscriber yet"""
    left: int = 0
    """dead letters that stay, since the replay is narrowed to another subscriber"""
    erased: int = 0
    """messages asked for that stay as they are, since they were erased"""
    job: int = 0
    """number of the job that it is; 0 where nothing goes again"""


# -- jobs -------------------------------------------------------------------------------------------------------------


class Bound(NamedTuple):
    """A place in the log: a sequence, or a time (Unix microseconds) where that is not 0."""

    sequence: int = 0
    time_us: int = 0


BEGINNING: Final = Bound()
"""as the first place the beginning of the log, as the last its end"""


class Recover(NamedTuple):
    """Send a part of its past again to a subscriber, in causal and key order (RULES 34): from ``since`` to before
    ``until``, what ``choice`` says, dead letters of these ``reasons`` (none: of any). Receipt: ``Planned``."""

    queue: QueueName
    id: SubscriberId
    since: Bound = BEGINNING
    until: Bound = BEGINNING
    choice: Choice = Choice.DEAD
    reasons: tuple[str, ...] = ()
    dry_run: bool = False
    by: str = ""


class Seek(NamedTuple):
    """Let a subscriber go on from ``start``, None: from now on (RULES 34). Receipt: ``Planned``. ``dry_run``: only
    refuse it as it would be, without counting what it is about."""

    queue: QueueName
    id: SubscriberId
    start: Bound | None
    by: str = ""
    dry_run: bool = False


class ReplayMessages(NamedTuple):
    """Deliver these messages of a queue again, and what failed through them (RULES 21). Receipt: ``Planned``."""

    queue: QueueName
    sequences: tuple[int, ...]
    subscriber: SubscriberId | None = None
    descendants: bool = False
    dry_run: bool = False
    by: str = ""


class DropDeadLetters(NamedTuple):
    """Take dead letters away for good (RULES 34): of messages before ``before``, of these ``reasons``, at one
    subscriber or at all, of these messages (``sequences``) or of any. Receipt: ``Planned``."""

    queue: QueueName
    subscriber: SubscriberId | None = None
    before: Bound = BEGINNING
    reasons: tuple[str, ...] = ()
    sequences: tuple[int, ...] = ()
    dry_run: bool = False
    by: str = ""


class EraseMessages(NamedTuple):
    """Erase messages of a queue (RULES 32): these, those of a key, or all before ``before``; one of the three is given.
    ``Conflict`` where one has not ended, unless ``force``. Receipt: ``Planned``."""

    queue: QueueName
    sequences: tuple[int, ...] = ()
    key: str = ""
    before: Bound = BEGINNING
    force: bool = False
    dry_run: bool = False
    by: str = ""


class Planned(NamedTuple):
    """A job as it was asked for, None for a dry run; the number of messages or dead letters that it is about; and the
    first sequence at which it can begin, as far as the log is kept. ``waiting``: of what is to be erased, how many
    have not ended (of all before a place, no more than ``limits.cascade_slice`` are counted)."""

    job: JobChanged | None
    total: int
    first: int
    waiting: int | None = None


class CancelJob(NamedTuple):
    """Receipt: the job (``JobChanged``), which is over. ``UnknownJob``, and ``Conflict`` where it was over already."""

    number: int
    by: str = ""


# -- queues -----------------------------------------------------------------------------------------------------------


class FromFile(NamedTuple):
    """A file's entry as hashes: of all of it, and of each key that it names (RULES 18). ``hash`` is ``""`` for a few
    keys that an operator applies out of a file."""

    hash: str
    keys: Mapping[str, str]


FROM_FILE: Final = "file"
"""the ``by`` of an item out of a bootstrap file"""


class DeclareQueue(NamedTuple):
    """Receipt: ``Declared``. A queue that exists with other settings is a ``Conflict``, unless ``applied`` is given:
    of an entry of a file that has changed since it was last applied the keys that have changed are set (RULES 18)."""

    name: QueueName
    settings: QueueSettings
    applied: FromFile | None = None
    by: str = ""


class Declared(NamedTuple):
    """``what`` is ``created``, ``unchanged`` or ``changed``; ``id`` is the queue's name or the subscriber's id."""

    what: str
    id: str


class ChangeQueue(NamedTuple):
    """Receipt: ``Declared``. ``changes`` maps fields of ``QueueSettings`` to their parsed values."""

    name: QueueName
    changes: Mapping[str, Any]
    by: str = ""


class DeleteQueue(NamedTuple):
    """Receipt: how many deliveries were dropped (int). ``Conflict`` while anything waits in it or on it, unless
    ``force`` (RULES 16)."""

    name: QueueName
    force: bool = False
    by: str = ""


class PurgeQueue(NamedTuple):
    """Receipt: how many messages were (``dry_run``: would be) dropped (int)."""

    name: QueueName
    dry_run: bool = False
    by: str = ""


# -- subscribers ------------------------------------------------------------------------------------------------------


class Subscribe(NamedTuple):
    """Receipt: ``Declared``. Identity is the name, else the endpoint (RULES 18). Subscribing again alike is
    ``unchanged``; with other settings a ``Conflict``, unless ``applied`` is given with a hash (see ``DeclareQueue``).
    ``start`` is ``now``, ``beginning`` or a sequence as text; None is ``now`` for a new one, and whatever one that is
    there was made with. ``secret`` is ``whsec_...`` or None. ``comes_to_take``: nobody has declared it, it takes
    messages; so it changes nothing of one that is there, and there are at most so many of a queue that do not count:
    ``Overloaded``. ``credentials``: those of its settings, by name (see ``credentials`` of ``model``)."""

    queue: QueueName
    settings: SubscriberSettings
    secret: str | None = None
    start: str | None = None
    applied: FromFile | None = None
    comes_to_take: bool = False
    credentials: Mapping[str, str] = NONE
    by: str = ""


class ChangeSubscriber(NamedTuple):
    """Receipt: ``Declared``. ``changes`` maps fields of ``SubscriberSettings`` to their parsed values; a changed
    endpoint takes over the backlog at once; ``paused`` False also enables one that a 410 disabled. ``secret`` None
    leaves it as it is; ``without_secret`` takes it away, and deliveries are no longer signed. With ``applied`` secret
    and ``paused`` and what has ``credentials`` are out of a file, and each is set only where the file says something
    else than the last time. A credential that a changed setting has, and that is not given, stays as it is."""

    queue: QueueName
    id: SubscriberId
    changes: Mapping[str, Any]
    secret: str | None = None
    without_secret: bool = False
    applied: FromFile | None = None
    credentials: Mapping[str, str] = NONE
    by: str = ""


class RetrySubscriber(NamedTuple):
    """Try again now whatever waits for another attempt there (RULES 26); with ``dry_run`` only count it. Receipt: how
    many messages (int). ``SubscriberStopped`` where it is paused or disabled."""

    queue: QueueName
    id: SubscriberId
    dry_run: bool = False


class Unsubscribe(NamedTuple):
    """Receipt: how many pending deliveries were dropped (int)."""

    queue: QueueName
    id: SubscriberId
    by: str = ""


class RotateSecret(NamedTuple):
    """Sign with the new secret, and with the old one beside it for so long. ``secret`` None: one is made. Receipt: the
    new secret (str). With ``scheme`` ``v1a`` the key pair is another one; receipt: the new public key (str)."""

    queue: QueueName
    id: SubscriberId
    secret: str | None = None
    grace_s: float = limits.secret_grace_default_s
    scheme: str = V1
    by: str = ""


# -- tokens -----------------------------------------------------------------------------------------------------------


class CreateToken(NamedTuple):
    """Receipt: None, once it is on the disk and in force. ``Conflict`` where one has its name, ``BadSetting`` where
    nobody could create another then. ``operator_elsewhere``: a configured token may."""

    token: Token
    operator_elsewhere: bool = False
    by: str = ""


class RevokeToken(NamedTuple):
    """Receipt: None, once it is off the disk and opens nothing any more. ``UnknownToken``; ``Conflict`` where nobody
    could create tokens then, or anybody do everything, unless it ``may_be_open``."""

    name: str
    operator_elsewhere: bool = False
    may_be_open: bool = False
    by: str = ""


# -- the channels -----------------------------------------------------------------------------------------------------


class Channel(Protocol):
    """A channel one can only put into."""

    def put(self, item: Any) -> "asyncio.Future[Any]":
        """Hand ``item`` over; the future is its receipt. Raises ``Overloaded`` when the channel is full and
        ``Draining`` when it is closed; then nothing was handed over."""


class PublishListener(Protocol):
    """Completion callbacks for ``put_shared``. ``publishers[i]`` is who was named with ``units[i]``.

    One call tells of all units of this listener that one commit made durable. Calls come on the event loop, never from
    within ``put_shared``. Exceptions are logged and go no further."""

    def accepted(self, units: Sequence[Publish], publishers: Sequence[Any], receipt: Accepted) -> None:
        """``receipt`` has one position for each unit."""

    def refused(self, publishers: Sequence[Any], why: BaseException) -> None:
        """``why`` is what the future of any other item would raise."""


class MessageChannel(Channel, Protocol):
    """The channel of messages: units of one message may share their receipt."""

    def put_shared(self, unit: Publish, publisher: Any, listener: PublishListener) -> None:
        """Hand over a unit of one message. ``listener`` will be told of ``publisher``. Raises what ``put`` raises."""


class Channels(NamedTuple):
    """The channels, which every frontend gets."""

    messages: MessageChannel
    queues: Channel
    subscribers: Channel
