"""``syncbrok pipeline archive``."""

import json
import os
import socket
from pathlib import Path
from typing import Any

import click

from syncbrok.cli.cluster.settings import configured, default_config, with_extra
from syncbrok.cli.exits import SEE_EXIT_CODES, USAGE, CommandFailed
from syncbrok.cli.pipeline.session import SessionOptions, job_session, session_options
from syncbrok.cli.show import as_json, print_fields, print_table
from syncbrok.cluster.generation import has_followed
from syncbrok.config import load_config
from syncbrok.model.errors import BadSetting
from syncbrok.model.units import parse_duration_s
from syncbrok.pipeline.archive.job import ArchiveResult, archive
from syncbrok.pipeline.archive.retention_list import RetentionList


def _duration(_context: click.Context, _parameter: click.Parameter, given: str | None) -> float | None:
    try:
        return None if given is None else parse_duration_s(given)
    except BadSetting as wrong:
        raise CommandFailed(f"--keep-replaced: {wrong.detail}", USAGE) from None


@click.command(
    "archive",
    help=f"""Write the sealed segments of the log as Parquet, by queue and day, and note for retention what is archived.

Each row of the log gets into the archive once, however often this runs and wherever it is interrupted. What was written
is read back and compared with the log, by count and checksum, before it counts. The broker may run meanwhile; with
storage.archive: pipeline in its configuration it drops only what is archived.

Over the network (--log) everything is archived and nothing is noted: run it beside the broker where retention waits for
it (storage.archive: pipeline).

Beside a node of a cluster it asks the leader to note that for all nodes, and --config names the configuration of the
node. While it runs beside one node, the leader refuses it beside another.

\b
Examples:
  syncbrok pipeline archive --storage /var/lib/syncbrok --out /srv/archive
  syncbrok pipeline archive --out hdfs://name:8020/syncbrok --master yarn
  syncbrok pipeline archive --out /srv/archive --compact
  syncbrok pipeline archive --out /srv/archive --delta
  syncbrok pipeline archive --config /etc/syncbrok/broker.yml --storage /var/lib/syncbrok --out s3a://bucket/archive

{SEE_EXIT_CODES}
""",
)
@click.option("--compact", is_flag=True, help="Put small files of a queue and day together, after archiving.")
@click.option("--keep-replaced", metavar="DURATION", callback=_duration,
              help="How long compacted files stay for who reads them. Default: 1d; with Delta tables 7d.")  # fmt: skip
@click.option("--delta", is_flag=True,
              help="Make the archive three Delta tables too; later runs keep them without this.")  # fmt: skip
@as_json
@configured
@session_options
def command(
    options: SessionOptions,
    config_path: Path | None,
    *,
    compact: bool,
    delta: bool,
    keep_replaced: float | None,
    json_wanted: bool,
) -> None:
    """See ``help``."""
    if options.out is None:
        raise CommandFailed("where is the archive?", USAGE, "--out DIR, or a URL that Spark can write to")
    of_cluster = _leader_of(options.storage, config_path) if isinstance(options.storage, Path) else None
    with job_session(options, "archive") as job:
        done = archive(
            job.spark,
            options.storage,
            options.out,
            compact=compact,
            delta=delta,
            progress=job.step,
            keep_replaced_s=keep_replaced,
            of_cluster=of_cluster,
        )
    if not isinstance(options.storage, Path):
        click.echo("read over the network, so nothing of it is noted for retention", err=True)
    for gap in done.gaps:
        click.echo(
            f"sequences {gap.first} to {gap.last} are neither in the archive nor in the log: retention dropped them "
            "before they were archived. storage.archive: pipeline in broker.yml makes it wait",
            err=True,
        )
    if json_wanted:
        click.echo(json.dumps(_as_json(done), indent=2))
    else:
        _show(done)


def _leader_of(storage: Path, config_path: Path | None) -> RetentionList | None:
    """The leader to tell what is archived, where ``storage`` is a node's of a cluster; None where it is a single
    broker's."""
    if not has_followed(storage):
        return None
    path = config_path or default_config()
    config = None if path is None else load_config(path, os.environ, {})
    if config is None or (config.cluster is None and config_path is None and config.storage.path.resolve() != storage):
        what = f"{storage} is the directory of a node of a cluster, and {path or 'no configuration'} is not that node's"
        mend = "--config FILE names it: what is archived is noted by the leader, for all nodes"
        raise CommandFailed(what, USAGE, mend)
    cluster = config.cluster
    if cluster is None:
        return None  # it was one, and goes on alone
    from syncbrok.cli.serve.certificates import Certificates, read_certificates  # noqa: PLC0415  listeners take their time

    with with_extra():
        from syncbrok.cluster.leader_archive import LeaderArchive  # noqa: PLC0415  they need an extra
        from syncbrok.cluster.peer_signature import PeerSignature  # noqa: PLC0415
        from syncbrok.cluster.signed_requests import SignedRequests  # noqa: PLC0415
    signature = PeerSignature(cluster.key, cluster.space)
    signature.refresh()
    tls = Certificates(read_certificates(config)).as_client("http")
    job = f"{socket.gethostname()}:{storage}"  # one at a time there: the directory is locked
    return LeaderArchive(cluster.advertise, SignedRequests(signature, lambda: tls), job)


def _show(done: ArchiveResult) -> None:
    if done.segments:
        print_table(
            ("kind", "rows", "files", "bytes"),
            [(kind, one.rows, one.files, one.bytes) for kind, one in done.written.items()],
            "",
        )
        click.echo("")
    elif not done.through:
        click.echo(
            "nothing is sealed yet, so the archive is empty: a segment is sealed when it is full (storage.segment in "
            "broker.yml, 64MiB unless set otherwise). Readers of log and archive take everything from the log"
        )
    else:
        click.echo(f"nothing new: all that is sealed is archived, up to sequence {done.through}")
    compacted = done.compacted
    print_fields(
        [
            ("archive", done.out),
            ("segments", done.segments and f"{done.segments}, sequences {done.first} to {done.last}"),
            ("log", done.log_bytes and f"{done.log_bytes} bytes, {done.messages_per_s:,.0f} messages/s"),
            ("not sealed", done.waiting and f"{done.waiting} segment, archived when it is full"),
            ("noted", done.noted and f"{done.noted} segments that retention may drop when they are old enough"),
            (
                "compacted",
                compacted.files_before
                and f"{compacted.files_before} files, {compacted.bytes_before} bytes -> "
                f"{compacted.files_after} files, {compacted.bytes_after} bytes",
            ),
            ("erased", done.erased_files and f"{done.erased_files} files written anew, without what was erased"),
            (
                "Delta tables",
                ", ".join(f"{kind} at version {version}" for kind, version in done.tables.items()) or "none",
            ),
            ("removed", done.removed_files and f"{done.removed_files} files that were compacted before"),
            ("seconds", f"{done.seconds:.1f}"),
        ]
    )


def _as_json(done: ArchiveResult) -> dict[str, Any]:
    value = done._asdict()
    value["written"] = {kind: one._asdict() for kind, one in done.written.items()}
    value["gaps"] = [gap._asdict() for gap in done.gaps]
    value["compacted"] = done.compacted._asdict()
    return value
