"""``syncbrok tokens``."""

import click

from syncbrok.cli.confirming import confirm, destroys
from syncbrok.cli.exits import SEE_EXIT_CODES, USAGE, CommandFailed
from syncbrok.cli.remote.client import BrokerConnection, segment, speaks_to_broker
from syncbrok.cli.show import as_json, moment, print_json, print_json_list, print_table


@click.group(
    "tokens",
    help=f"""Tokens say who may do what. Once there is one, every request needs one.

\b
Examples:
  syncbrok tokens create operator --scope admin --scope read
  syncbrok tokens create shop --scope publish --queue 'shop.*' --expires 90d
  syncbrok tokens list
  syncbrok tokens revoke shop

{SEE_EXIT_CODES}
""",
)
def command() -> None:
    """See ``help``."""


@command.command()
@click.argument("name")
@click.option("--scope", "scopes", multiple=True, required=True, metavar="SCOPE[:QUEUE]",
              help="publish, consume, read or admin; with :QUEUE there only. Repeatable.")  # fmt: skip
@click.option("--queue", "queues", multiple=True, metavar="QUEUE",
              help="For this queue only; a * at the end stands for anything. Repeatable.")  # fmt: skip
@click.option("--expires", metavar="DURATION", help="After how long, such as 90d; never by default.")
@as_json
@speaks_to_broker
def create(
    client: BrokerConnection,
    name: str,
    scopes: tuple[str, ...],
    queues: tuple[str, ...],
    expires: str | None,
    json_wanted: bool,
) -> None:
    """Create the token NAME and print it. It is shown this once: the broker keeps its hash.

    The first token needs --scope admin without queues, or nobody could create another.

    \b
    Examples:
      syncbrok tokens create operator --scope admin --scope read
      syncbrok tokens create shop --scope publish --queue 'shop.*' --expires 90d
      syncbrok tokens create clerk --scope 'read:*' --scope 'publish:shop.orders'
    """
    body: dict[str, object] = {"name": name, "scopes": _scopes(scopes, queues)}
    if expires is not None:
        body["expires"] = expires
    answer = client.ask("POST", "/v1/tokens", body, again=False).json()
    if json_wanted:
        print_json(answer)
    else:
        click.echo(answer["token"])


def _scopes(scopes: tuple[str, ...], queues: tuple[str, ...]) -> dict[str, list[str]]:
    """Where it has each scope."""
    found: dict[str, list[str]] = {}
    for one in scopes:
        scope, colon, queue = one.partition(":")
        if colon and queues:
            raise CommandFailed("--queue is for all scopes; where one says :QUEUE let each say it", USAGE)
        found.setdefault(scope, []).extend([queue] if colon else queues or ["*"])
    return found


@command.command("list")
@as_json
@speaks_to_broker
def list_(client: BrokerConnection, json_wanted: bool) -> None:
    """All tokens: what each may do, where, and until when. What they are nobody knows any more.

    \b
    Example:
      syncbrok tokens list
    """
    tokens = client.ask("GET", "/v1/tokens").json()["tokens"]
    if json_wanted:
        print_json_list(iter(tokens))
        return
    print_table(
        ("token", "may", "created", "expires"),
        (
            (
                one["name"],
                ", ".join(_may(scope, queues) for scope, queues in one["scopes"].items()),
                "configured" if one["configured"] else moment(one["created_at"]),
                "has expired" if one["expired"] else moment(one["expires_at"]) or "never",
            )
            for one in tokens
        ),
        "no tokens: whoever can connect may do everything; syncbrok tokens create NAME --scope admin makes the first",
    )


def _may(scope: str, queues: list[str]) -> str:
    return scope if queues == ["*"] else f"{scope} in {' '.join(queues)}"


@command.command()
@click.argument("name")
@destroys
@speaks_to_broker
def revoke(client: BrokerConnection, name: str, yes: bool) -> None:
    """Take the token NAME away: it opens nothing any more, and what is under way with it ends. On a terminal it asks
    first.

    \b
    Example:
      syncbrok tokens revoke shop
    """
    confirm(yes, lambda: f"revoke the token {name}")
    client.ask("DELETE", f"/v1/tokens/{segment(name)}")
    click.echo(f"{name} revoked")
