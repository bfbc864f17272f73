"""Every error Syncbrok raises, in one tree of three branches.

``ClientFault``  what was asked cannot be done; nothing has changed; the asker can mend it.
``BrokerFault``  the broker cannot do it now; asking again later is right.
``Fatal``        the broker must stop: going on could lose or invent something.

Each class carries a stable ``slug``. Frontends translate it in one table of their own (an HTTP status, an error
frame); no frontend decides anything from the text. ``members`` says what to mend, for machines.
"""


class SyncbrokError(Exception):
    """The root of the tree. ``str()`` says what happened and what to do about it, in one sentence or two."""

    slug = "error"

    def __init__(self, detail: str, **members: object) -> None:
        super().__init__(detail)
        self.detail = detail
        self.members = members


class ClientFault(SyncbrokError):
    """The request is wrong; nothing has changed."""

    slug = "bad-request"


class Malformed(ClientFault):
    """It cannot be read: bad JSON, a bad header, an id that is not an id."""

    slug = "malformed"


class BadSetting(ClientFault):
    """A setting is unknown or has a value it cannot have."""

    slug = "bad-setting"


class BadName(ClientFault):
    """A queue, subscriber or header name breaks the rules for names."""

    slug = "bad-name"


class UnknownQueue(ClientFault):
    slug = "unknown-queue"


class UnknownSubscriber(ClientFault):
    slug = "unknown-subscriber"


class UnknownMessage(ClientFault):
    slug = "unknown-message"


class UnknownToken(ClientFault):
    slug = "unknown-token"


class UnknownJob(ClientFault):
    slug = "unknown-job"


class UnknownReader(ClientFault):
    slug = "unknown-reader"


class UnknownSegment(ClientFault):
    """A segment that this node does not hold, or that is not sealed."""

    slug = "unknown-segment"


class UnknownParent(ClientFault):
    """A parent that was never accepted (RULES 2)."""

    slug = "unknown-parent"


class Gone(ClientFault):
    """It existed; retention has dropped it (RULES 2)."""

    slug = "gone"


class Lost(Gone):
    """It was accepted; the log is damaged where it stood, or salvage left a gap there."""

    slug = "lost"


class PastRetention(Gone):
    """The ``retention`` of its queue is over (RULES 37)."""

    slug = "past-retention"


class ContentErased(Gone):
    """Its content was taken away for good: by an operator, or since its time was over."""

    slug = "erased"


class Conflict(ClientFault):
    """It exists already and differs, or it is still in use."""

    slug = "conflict"


class IdempotencyConflict(Conflict):
    """The idempotency key was used before for something else (RULES 4)."""

    slug = "idempotency-conflict"


class Loop(Conflict):
    """It has been delivered and published again so often that it must be going round."""

    slug = "loop"


class SubscriberStopped(Conflict):
    """It is paused or disabled: nothing is tried there (RULES 14)."""

    slug = "subscriber-stopped"


class FirstLost(Conflict):
    """The idempotency key was used before, by a message that the disk has damaged. So the broker cannot tell whether
    this message is that one again (RULES 4)."""

    slug = "first-lost"


class TooLarge(ClientFault):
    slug = "too-large"


class Unauthorized(ClientFault):
    slug = "unauthorized"


class WrongToken(Unauthorized):
    """A token was given, and it is none, or none any more: somebody may be trying which ones there are."""


class Forbidden(ClientFault):
    slug = "forbidden"


class BrokerFault(SyncbrokError):
    """The broker cannot do it now."""

    slug = "unavailable"


class Overloaded(BrokerFault):
    """A bounded queue inside the broker is full; try again after ``retry_after_s``."""

    slug = "overloaded"


class BacklogFull(BrokerFault):
    """A queue has as much that has not ended as its ``max_backlog`` lets stand there; nothing of it was kept."""

    slug = "backlog-full"


class Crowded(BrokerFault):
    """No room for one more connection; it is closed before anything of it is read."""

    slug = "crowded"


class Draining(BrokerFault):
    """The broker is stopping or has not finished starting."""

    slug = "draining"


class NoLeader(BrokerFault):
    """The broker follows, and knows nobody who leads or cannot reach who does."""

    slug = "no-leader"


class NoQuorum(BrokerFault):
    """The broker has led, and cannot tell now whether it still does: what it knows may be old."""

    slug = "no-quorum"


class LogFull(BrokerFault):
    """No room on the disk for the log; nothing of the batch was kept."""

    slug = "log-full"


class NoDescriptors(LogFull):
    """No descriptor to open a file of the log with; nothing of the batch was kept, and the disk is as it was."""

    slug = "no-descriptors"


class LogUnreadable(BrokerFault):
    """The disk reads nothing of the log now: what is asked cannot be told. Nothing is known to be lost."""

    slug = "log-unreadable"


class LogUnavailable(BrokerFault):
    """The log has failed; the broker is stopping. Whether the message was kept is unknown: repeat with its key."""

    slug = "log-failed"


class Fatal(SyncbrokError):
    """The broker must stop. ``exit_code`` is what the process ends with."""

    slug = "fatal"
    exit_code = 1


class BadConfig(Fatal):
    """A configuration file or variable is wrong; the text names file, line and key."""

    slug = "bad-config"
    exit_code = 2


class LogFailed(Fatal):
    """A write or fsync of the log failed in a way that must not be retried."""

    slug = "log-failed"
    exit_code = 74


class LogLocked(Fatal):
    """Another process has the log open."""

    slug = "log-locked"
    exit_code = 75


class LogDiverged(Fatal):
    """The bytes of another copy of the log do not go on where this one ends, or are of another log. Nothing of it
    was written."""

    slug = "log-diverged"
    exit_code = 65


class LogCorrupt(Fatal):
    """The log is damaged in a place that cannot be a torn tail; the text names file, offset and sequences."""

    slug = "log-corrupt"
    exit_code = 65
