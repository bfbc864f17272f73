"""``syncbrok readers``."""

import click

from syncbrok.cli.confirming import confirm, destroys
from syncbrok.cli.exits import SEE_EXIT_CODES
from syncbrok.cli.remote.client import BrokerConnection, segment, speaks_to_broker
from syncbrok.cli.show import as_json, moment, print_json, print_json_list, print_table


@click.group(
    "readers",
    help=f"""Readers are programs that read the log over the network under a name, such as a stream of Spark. Each says
how far it has come; retention can wait for it.

\b
Examples:
  syncbrok readers list
  syncbrok readers hold warehouse
  syncbrok readers delete warehouse

{SEE_EXIT_CODES}
""",
)
def command() -> None:
    """See ``help``."""


@command.command("list")
@as_json
@speaks_to_broker
def list_(client: BrokerConnection, json_wanted: bool) -> None:
    """All readers: how far behind each is, when it spoke last, and whether retention waits for it.

    \b
    Example:
      syncbrok readers list
    """
    readers = client.ask("GET", "/v1/log/readers").json()["readers"]
    if json_wanted:
        print_json_list(iter(readers))
        return
    print_table(
        ("reader", "read through", "behind", "told", "holds retention"),
        ((one["name"], one["sequence"], one["lag"], moment(one["told_at"]), _holding(one)) for one in readers),
        "no readers: a stream of Spark is one with .option('reader', NAME)",
    )


def _holding(one: dict[str, bool]) -> str:
    if not one["hold"]:
        return "no"
    return "yes" if one["holding"] else "no more: silent for too long"


@command.command()
@click.argument("name")
@click.option("--off", is_flag=True, help="Retention waits for it no more.")
@as_json
@speaks_to_broker
def hold(client: BrokerConnection, name: str, off: bool, json_wanted: bool) -> None:
    """Let retention wait for the reader NAME, as long as it is heard of. One that is not known yet has read nothing.

    Needs the scope admin. The reader itself goes on with read.

    \b
    Examples:
      syncbrok readers hold warehouse
      syncbrok readers hold warehouse --off
    """
    told = client.ask("PUT", f"/v1/log/readers/{segment(name)}", {"hold": not off}).json()
    if json_wanted:
        print_json(told)
    else:
        waits = "waits for it no more" if off else f"keeps what is behind sequence {told['sequence']}"
        click.echo(f"{name}: retention {waits}")


@command.command()
@click.argument("name")
@destroys
@speaks_to_broker
def delete(client: BrokerConnection, name: str, yes: bool) -> None:
    """Forget the reader NAME: retention waits for it no more. On a terminal it asks first.

    \b
    Example:
      syncbrok readers delete warehouse
    """
    confirm(yes, lambda: f"forget the reader {name}, and let go what it has not read")
    client.ask("DELETE", f"/v1/log/readers/{segment(name)}")
    click.echo(f"{name} deleted")
