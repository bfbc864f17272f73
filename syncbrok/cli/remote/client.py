"""The client's connection for commands, and the options that every command using it takes.

Whatever goes wrong becomes a ``CommandFailed`` that says what happened, where, and what to do about it.
"""

import functools
import http.client
import json
import signal
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from types import FrameType
from typing import Any, Final
from urllib.parse import urlencode

import click

from syncbrok.cli.exits import FAILED, NOT_FOUND, REFUSED, UNREACHABLE, USAGE, CommandFailed
from syncbrok.client import Answer, Connection, paths
from syncbrok.client.answers import slug_of
from syncbrok.client.connection import Broken, NoStream
from syncbrok.model import limits

_PAGE: Final = limits.list_limit_max
_TOO_LARGE: Final = 413
_INTERRUPT_AGAIN_S: Final = 0.2
_MENDS: Final = {
    "unauthorized": "give a token with --token or SYNCBROK_TOKEN",
    "unknown-queue": "syncbrok queues list shows those there are, syncbrok queues create makes one",
    "unknown-subscriber": "syncbrok subscribers list QUEUE shows those there are",
    "unknown-message": "use an id that a publish to this broker printed",
    "unknown-parent": "publish the parent first and give the id that printed",
    "draining": "try again when the broker has started",
    "no-leader": "try again in some seconds; if it stays, look at the nodes of the cluster",
    "no-quorum": "try again in some seconds; if it stays, look at the cluster's engine",
    "conflict": "",
}
"""advice for the command line by the slug of a problem; other problems show the broker's own advice"""


@contextmanager
def until_interrupted() -> Iterator[None]:
    """Run the block until it ends or somebody presses Ctrl-C, which is how it is stopped and no error.

    The interrupt is raised again every fifth of a second until the block has ended: Python drops one that comes while a
    destructor runs, and the command would go on waiting (7 of 100 did, when it came right after a message)."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        signal.setitimer(signal.ITIMER_REAL, _INTERRUPT_AGAIN_S)
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background: it is not to hear of it
        yield
        return
    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGALRM)}
    with suppress(KeyboardInterrupt):  # one that comes while the signals are put back
        try:
            with suppress(KeyboardInterrupt):
                yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in before.items():
                signal.signal(number, handler)


class Response(Answer):
    """An answer with status 2xx."""

    __slots__ = ()

    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except ValueError:
            what = "the answer is not JSON; is there a broker, or something else?"
            raise CommandFailed(what, mend=f"it began with {self.body[:60]!r}") from None


class BrokerConnection:
    """Speaks to the broker at ``url``, or to a cluster at several, separated by commas. One connection, opened at the
    first request. ``ca`` and ``cert`` are PEM files: whose certificates are trusted, besides those that this system
    trusts, and its own with its private key."""

    def __init__(self, url: str, token: str | None = None, ca: str | None = None, cert: str | None = None) -> None:
        if token and not (token.isascii() and token.isprintable()):
            raise CommandFailed("--token or SYNCBROK_TOKEN: expected printable ASCII on one line", USAGE)
        try:
            urls = [one if "://" in one else f"http://{one}" for one in paths.split_urls(url)]
            self._connection = Connection(urls, token, tls=_tls(ca, cert))
        except ValueError:
            wrong = f"--url: expected a URL such as http://127.0.0.1:10000, found {url!r}"
            raise CommandFailed(wrong, USAGE) from None
        self.url = url
        self._urls = urls
        self._as = (token, ca, cert)

    def close(self) -> None:
        self._connection.close()

    @property
    def is_of_cluster(self) -> bool:
        """Whether there are several addresses: what may be sent twice is sent to the next one where one is silent."""
        return len(self._urls) > 1

    def each(self) -> "list[BrokerConnection]":
        """One for each of the URLs, where there are several: they do not go on to another node. To be closed."""
        return [BrokerConnection(one, *self._as) for one in self._urls] if self.is_of_cluster else []

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, object] | None = None,
        wait_s: float = 0.0,
        again: bool | None = None,
    ) -> Response:
        """The answer, where it is one of 2xx. ``wait_s`` is how long the broker may think about it, ``again`` as in
        ``Connection.request``."""
        sent = dict(headers or {})
        if isinstance(body, Mapping):
            sent["Content-Type"] = "application/json"
            body = _as_json(body)
        try:
            target = _target(path, query)
            answer = self._connection.request(method, target, body, sent, wait_s=wait_s, again=again)
        except Broken as error:
            raise self._unreachable(error) from error
        if not 200 <= answer.status < 300:
            raise refusal(answer)
        return Response(*answer)

    def pages(
        self, path: str, member: str, limit: int = 0, query: Mapping[str, object] | None = None
    ) -> Iterator[dict[str, Any]]:
        """The items of a list, page by page, at most ``limit`` of them (0: all)."""
        after = (query or {}).get("after")
        left = limit or -1
        while left:
            size = _PAGE if left < 0 else min(left, _PAGE)
            page = self.ask("GET", path, query={**(query or {}), "after": after, "limit": size}).json()
            for item in page[member]:
                left -= 1
                yield item
                if not left:
                    return
            after = page["next"]
            if after is None:
                return

    def lines(self, path: str, query: Mapping[str, object]) -> Iterator[bytes]:
        """The lines of an answer that goes on, until the broker ends it."""
        try:
            yield from self._connection.lines(_target(path, query))
        except NoStream as refused:
            raise refusal(refused.answer) from None
        except Broken as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> CommandFailed:
        if isinstance(error, ssl.SSLError):
            why = f"no TLS connection to {self.url}: {error.reason or error}"
            mend = (
                "is it http:// instead? --ca or SYNCBROK_CA names the authority of a certificate that is not known here"
            )
            return CommandFailed(why, UNREACHABLE, mend)
        if isinstance(error, TimeoutError):
            why = f"the broker at {self.url} does not answer"
        elif isinstance(error, http.client.HTTPException | ConnectionResetError):
            why = f"what answers at {self.url} broke off or does not speak HTTP ({type(error).__name__})"
        else:
            why = f"no broker at {self.url}: {getattr(error, 'strerror', None) or error}"
        return CommandFailed(why, UNREACHABLE, "start one (syncbrok serve), or say where it is: --url or SYNCBROK_URL")


class AskedTooMuch(CommandFailed):
    """A request had more lines or bytes than this broker takes in one; nothing of it was done."""


def refusal(answer: Answer) -> CommandFailed:
    """The error of a command whose request was answered with a problem."""
    nothing = {"mend": "it gives no reason: is there a broker at --url (SYNCBROK_URL), or something else?"}
    problem = answer.problem or nothing
    told = str(problem.get("detail") or problem.get("title") or f"the broker answered {answer.status}")
    differs = problem.get("differs")
    if isinstance(differs, list) and differs:
        told += f" (differs: {', '.join(map(str, differs))})"
    mend = _MENDS.get(slug_of(problem), problem.get("mend"))
    too_much = answer.status == _TOO_LARGE and "line" not in problem  # not one line of a batch alone
    error = AskedTooMuch if too_much else CommandFailed
    return error(told, exit_code_of(answer.status), str(mend or ""))


def exit_code_of(status: int) -> int:
    """404 and 410 are 3; what the asker can mend is 4; what may work later is 1."""
    if status in (404, 410):
        return NOT_FOUND
    return REFUSED if 400 <= status < 500 and status not in (408, 429) else FAILED


def segment(text: str) -> str:
    """``text`` as one segment of a path. An empty one would be another path."""
    if not text:
        raise CommandFailed("the name of a queue or subscriber, or an id, is empty", USAGE)
    try:
        return paths.segment(text)
    except UnicodeEncodeError:
        raise CommandFailed(f"{text!r} is not UTF-8, as names and ids are", USAGE) from None


def _as_json(body: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise CommandFailed("a name or setting is not UTF-8", USAGE) from None


def _target(path: str, query: Mapping[str, object] | None) -> str:
    given = {name: value for name, value in (query or {}).items() if value is not None}
    try:
        return f"{path}?{urlencode(given)}" if given else path
    except UnicodeEncodeError:
        raise CommandFailed("what is to be looked for is not UTF-8", USAGE) from None


def speaks_to_broker(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command ``--url`` and ``--token``, and a ``BrokerConnection`` as its first argument."""

    @click.option("--url", envvar="SYNCBROK_URL", default="http://127.0.0.1:10000", metavar="URL[,URL...]",
                  help="The broker, or a cluster's nodes; SYNCBROK_URL. Default: http://127.0.0.1:10000.")  # fmt: skip
    @click.option("--token", envvar="SYNCBROK_TOKEN", metavar="TOKEN",
                  help="Where the broker asks for one; better in SYNCBROK_TOKEN: flags are seen in ps.")  # fmt: skip
    @click.option("--ca", envvar="SYNCBROK_CA", metavar="FILE",
                  help="Certificates (PEM) to trust besides those that this system trusts; SYNCBROK_CA.")  # fmt: skip
    @click.option("--cert", envvar="SYNCBROK_CERT", metavar="FILE",
                  help="Its own certificate and key (PEM), where the broker asks for one; SYNCBROK_CERT.")  # fmt: skip
    @functools.wraps(command)
    def called(*arguments: Any, url: str, token: str | None, ca: str | None, cert: str | None, **named: Any) -> None:
        with closing(BrokerConnection(url, token, ca, cert)) as client:
            command(client, *arguments, **named)

    return called


def _tls(ca: str | None, cert: str | None) -> ssl.SSLContext | None:
    """None where neither is given."""
    if ca is None and cert is None:
        return None
    context = ssl.create_default_context()
    for option, file, read in (("--ca", ca, context.load_verify_locations), ("--cert", cert, context.load_cert_chain)):
        try:
            if file is not None:
                read(file)
        except (OSError, ssl.SSLError) as error:  # an SSLError is an OSError too, without a name of a file
            why = error.strerror if error.filename or not isinstance(error, ssl.SSLError) else "there is none in it"
            raise CommandFailed(f"{option} {file}: {why}", USAGE, "a file in PEM; --cert has the key too") from None
    return context
