"""`testbed token`: tokens of the service. Whoever can write the database can make them."""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from testbed.cli import options
from testbed.cli.intervals import parse_interval
from testbed.cli.output import print_answer
from testbed.commands.documents import DONE

if TYPE_CHECKING:
    from testbed.service.tokens import Token, TokenStore

RoleName = Literal["viewer", "operator", "developer", "admin"]
Expires = Annotated[
    float,
    typer.Option("--expires", metavar="TIME", parser=parse_interval, help="How long it is valid: 12h, 30d."),
]
Scopes = Annotated[
    list[str] | None,
    typer.Option(
        "--scope", metavar="SCOPE", help="Only this, e.g. runs:read (repeatable); all of the role without."
    ),
]
Labs = Annotated[
    list[str] | None, typer.Option("--lab", metavar="NAME", help="Only this lab (repeatable); all without.")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        help="Tokens of the service: who may do what, on which labs, until when.", no_args_is_help=True
    )
    group.command("create")(create)
    group.command("list")(list_tokens)
    group.command("revoke")(revoke)
    app.add_typer(group, name="token")


def create(
    role: Annotated[
        RoleName, typer.Option("--role", help="What it allows; each role may do what those before may.")
    ],
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="Who will use it; the audit log says so.")
    ] = "",
    expires: Expires = 30 * 86400.0,
    scope: Scopes = None,
    lab: Labs = None,
    runs_dir: options.RunsDirectory = options.DEFAULT_RUNS,
    as_json: options.AsJson = False,
) -> int:
    """Make a token and print it, once: only its hash is kept."""
    with _store(runs_dir) as store:
        token, text = store.create(
            name or getpass.getuser(),
            role,
            lifetime=timedelta(seconds=expires),
            scopes=scope or (),
            labs=lab or (),
        )
    lines = [text, f"{_line(token)}; it is shown this once: put it into LIGHTBED_TOKEN"]
    print_answer(token.json() | {"token": text}, lines, as_json=as_json)
    return DONE


def list_tokens(
    runs_dir: options.RunsDirectory = options.DEFAULT_RUNS, as_json: options.AsJson = False
) -> int:
    """List the tokens, without their secrets."""
    with _store(runs_dir) as store:
        found = store.list()
    lines = [_line(one) for one in found] or ["no tokens: `testbed token create` makes one"]
    print_answer({"tokens": [one.json() for one in found]}, lines, as_json=as_json)
    return DONE


def revoke(
    token: Annotated[str, typer.Argument(metavar="ID", help="Token, as `testbed token list` names it.")],
    runs_dir: options.RunsDirectory = options.DEFAULT_RUNS,
    as_json: options.AsJson = False,
) -> int:
    """End a token; the service refuses it a second later."""
    with _store(runs_dir) as store:
        found = store.revoke(token)
    print_answer(found.json(), [_line(found)], as_json=as_json)
    return DONE


@contextmanager
def _store(runs_dir: Path) -> Iterator[TokenStore]:
    from testbed.leases.fence import database_errors
    from testbed.service.tokens import TokenStore
    from testbed.storage.address import address_in
    from testbed.storage.database import Database

    database = Database(address_in(runs_dir))
    try:
        with database_errors(database):
            yield TokenStore(database)
    finally:
        database.close()


def _line(token: Token) -> str:
    limits = ", ".join([*token.scopes, *token.labs])
    until = f"revoked {token.revoked}" if token.revoked else f"until {token.expires}"
    return f"{token.id} {token.role} {token.name}, {until}{f', only {limits}' if limits else ''}"
