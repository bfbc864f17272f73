"""``syncbrok log``: what can be done with a log without a broker. Nothing here changes one."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import click

from syncbrok.cli.exits import FAILED, LOG_CORRUPT, LOG_FAILED, NOT_FOUND, SEE_EXIT_CODES, CommandFailed
from syncbrok.cli.facts import KINDS, FactNames, concerns, narrowed
from syncbrok.cli.log_directory import find_log
from syncbrok.cli.progress import bytes_bar
from syncbrok.cli.show import as_json, print_json, printable
from syncbrok.log.format.records import Record
from syncbrok.log.offline import verify as checks
from syncbrok.log.offline.order import OrderChecker
from syncbrok.log.offline.salvage import salvage as salvaged
from syncbrok.log.segments.scan import UnreadableBytes, scan
from syncbrok.log.segments.segment import SEGMENT_HEADER_BYTES, read_sealed, segment_bases, segment_path
from syncbrok.model.errors import ClientFault
from syncbrok.model.facts import StoredMessage
from syncbrok.model.names import SEQUENCE_MAX, MessageId, id_text, parse_message_id, sequence_of
from syncbrok.model.units import many

_SHOWN_MAX: Final = 100


@click.group(
    "log",
    help=f"""A log, without a broker: check it, print it, save what a damaged one still holds.

\b
Examples:
  syncbrok log verify --storage /var/lib/syncbrok
  syncbrok log cat --message 0197f3c2-6a3b-8000-8000-00022b1c9d10
  syncbrok log salvage --storage storage/ --out recovered/

{SEE_EXIT_CODES}
""",
)
def command() -> None:
    """See ``help``."""


def _storage(called: Callable[..., None]) -> Callable[..., None]:
    return click.option("--storage", type=click.Path(path_type=Path), metavar="DIR", callback=find_log,
                        help="Directory of the log; by default the configured one, storage/.")(called)  # fmt: skip


def _message_id(_context: click.Context, _parameter: click.Parameter, given: str | None) -> MessageId | None:
    try:
        return None if given is None else parse_message_id(given)
    except ClientFault as wrong:
        raise click.BadParameter(wrong.detail) from None


@command.command()
@_storage
@as_json
def verify(storage: Path, json_wanted: bool) -> None:
    """Check every checksum of a log, and that it keeps the promised order: no attempt of a child before its parents
    were complete. Works beside a running broker. Ends with 65 where the log is damaged, with 1 where the order is
    broken.

    \b
    Examples:
      syncbrok log verify
      syncbrok log verify --storage backup/ --json
    """
    order = OrderChecker()
    facts = 0

    def fact(one: Record) -> None:
        nonlocal facts
        facts += 1
        order.apply(one)

    findings: list[checks.Finding] = []
    with bytes_bar("checking") as progress:
        for met in checks.verify(storage, fact, order.apply):
            if isinstance(met, checks.Finding):
                findings.append(met)
            else:
                progress(met.done_bytes, met.total_bytes)
    damaged = [one for one in findings if not one.harmless]
    if json_wanted:
        print_json(
            {
                "storage": str(storage),
                "records": facts,
                "findings": [one._asdict() for one in findings],
                "violations": [one._asdict() for one in order.violations],
            }
        )
    else:
        for one in findings[:_SHOWN_MAX]:
            place = f"{one.file} at {one.offset}" + (f", sequence {one.sequence}" if one.sequence else "")
            click.echo(f"{place}: {printable(one.what)}{' (harmless)' if one.harmless else ''}")
        for violation in order.violations[:_SHOWN_MAX]:
            click.echo(f"sequence {violation.sequence}, {violation.rule}: {printable(violation.what)}")
        breaches = many(len(order.violations), "breach of order", "breaches of order")
        click.echo(f"{many(facts, 'record')}, {many(len(damaged), 'damaged place')}, {breaches}")
    if damaged:
        mend = f"syncbrok log salvage --storage {storage} --out NEW saves what can be read"
        raise CommandFailed(f"the log in {storage} is damaged", LOG_CORRUPT, mend)
    if order.violations:
        raise CommandFailed(f"the log in {storage} does not keep the promised order", FAILED, "please report this")


@command.command()
@_storage
@click.option("--after", type=click.IntRange(0), default=0, metavar="SEQUENCE", help="Only records after this one.")
@click.option("--limit", type=click.IntRange(0), default=0, metavar="N", help="At most so many; 0 for all.")
@click.option("--kind", "kinds", multiple=True, type=click.Choice(KINDS), metavar="KIND",
              help=f"Only of this kind: {', '.join(KINDS)}. Repeatable.")  # fmt: skip
@click.option("--message", "id_", metavar="ID", callback=_message_id, help="Only what concerns this message.")
@click.option("--content", is_flag=True, help="With the content of messages.")
@as_json
def cat(storage: Path, id_: MessageId | None, json_wanted: bool, **wanted: Any) -> None:
    """Print the records of a log in order; with --json an object a line. Records that cannot be read are left out,
    and the command then ends with 65.

    \b
    Examples:
      syncbrok log cat --after 12000 --limit 20
      syncbrok log cat --kind published --content --json | jq -r .content
    """
    message = None if id_ is None else sequence_of(id_)
    names, left, damages, heard_of = FactNames(), wanted["limit"] or -1, 0, message is None
    for met in _records(storage, content=wanted["content"]):
        if isinstance(met, UnreadableBytes):
            damages += 1
            continue
        shown = names.shown(met if message is None else narrowed(met, message))
        if message is not None and not concerns(met, message):
            continue
        if isinstance(met, StoredMessage) and id_ and met.id != id_:
            break  # an id that was never given out, though its number is another message's
        heard_of = True
        if met.sequence <= wanted["after"] or (wanted["kinds"] and shown["kind"] not in wanted["kinds"]):
            continue
        click.echo(json.dumps(shown, ensure_ascii=False) if json_wanted else _line(shown))
        left -= 1
        if not left:
            return
    if damages:
        raise CommandFailed(f"{damages} places cannot be read", LOG_CORRUPT, "syncbrok log verify names them")
    if not heard_of:
        mend = "it was never accepted here, or retention has dropped it"
        raise CommandFailed(f"the log in {storage} has no record of message {id_text(id_ or b'')}", NOT_FOUND, mend)


@command.command()
@_storage
@click.option("--out", type=click.Path(path_type=Path), required=True, metavar="DIR", help="New directory for it.")
@as_json
def salvage(storage: Path, out: Path, json_wanted: bool) -> None:
    """Write what a damaged log still holds into a new one. The old one is only read; in the new one a gap record
    stands in the place of what was lost. Then: syncbrok serve --storage NEW.

    \b
    Example:
      syncbrok log salvage --storage storage/ --out recovered/
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.UsageError(f"--out: cannot make the directory {out}: {error.strerror}") from None
    try:
        with bytes_bar("saving") as progress:
            report = salvaged(storage, out, progress)
    except OSError as error:
        mend = f"{out} holds no log now: remove it, mend that, and begin again"
        raise CommandFailed(f"saving did not come to its end: {error}", LOG_FAILED, mend) from error
    if json_wanted:
        lost = [one._asdict() for one in report.lost]
        print_json(
            {
                "out": str(out),
                "segments": report.segments,
                "records": report.records,
                "bytes": report.bytes,
                "last": report.last,
                "lost_records": report.lost_records,
                "lost": lost,
                "notes": report.notes,
            }
        )
        return
    for note in report.notes[:_SHOWN_MAX]:
        click.echo(printable(note))
    for one in report.lost[:_SHOWN_MAX]:
        click.echo(f"lost: sequences {one.first} to {one.last} ({one.file} at {one.offset}: {printable(one.why)})")
    saved = f"{many(report.records, 'record')} in {many(report.segments, 'segment')}"
    click.echo(f"{saved} saved in {out}; {report.lost_records} lost")


def _records(storage: Path, *, content: bool) -> Iterator[Record | UnreadableBytes]:
    bases = segment_bases(storage)
    for base, following in zip(bases, [*bases[1:], SEQUENCE_MAX], strict=True):
        try:
            # Read, not mapped: a broker that seals it meanwhile cuts it, and to touch a page that is gone ends us.
            view = memoryview(read_sealed(segment_path(storage, base)))
        except FileNotFoundError:
            continue  # retention took it meanwhile
        for met in scan(view, SEGMENT_HEADER_BYTES, last=base - 1, below=following, content=content):
            yield met if isinstance(met, UnreadableBytes) else met.record.fact


def _line(shown: dict[str, Any]) -> str:
    rest = {name: value for name, value in shown.items() if name not in ("sequence", "time", "kind")}
    fields = " ".join(
        f"{name}={value if isinstance(value, int | str) and value != '' else json.dumps(value, ensure_ascii=False)}"
        for name, value in rest.items()
        if value not in (None, "", [], {})
    )
    return printable(f"{shown['sequence']:>8} {shown['time']} {shown['kind']} {fields}")
