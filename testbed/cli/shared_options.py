"""Options that come with others: `--database` stands where `--runs-dir` does, `--lease` where something is moved.

`--server` stands where a service can carry the command out.

What they choose is kept for the time of the command, so that no function has to pass it on.
"""

from __future__ import annotations

from typing import Any

import typer

_COMPANIONS = {"runs_dir": "database", "really_move": "lease", "yes": "lease"}
"""Parameter of a command -> the option that comes with it; a lab is moved by its name, a switch by `--yes`."""


def _choose_database(url: str) -> None:
    from testbed.storage.address import choose

    choose(url)


def _choose_lease(lease: str) -> None:
    from testbed.leases.choice import choose

    choose(lease)


def _choose_server(url: str) -> None:
    from testbed.cli.remote import choose

    choose(url)


def _options(
    database: str = typer.Option(
        "",
        "--database",
        metavar="URL",
        envvar="LIGHTBED_DATABASE",
        callback=_choose_database,
        expose_value=False,
        show_default=False,
        help="PostgreSQL server in place of the file in --runs-dir: postgresql+psycopg://USER@HOST/NAME.",
    ),
    lease: str = typer.Option(
        "",
        "--lease",
        metavar="ID",
        envvar="LIGHTBED_LEASE",
        callback=_choose_lease,
        expose_value=False,
        show_default=False,
        help="Lease under which to move it (see `testbed lease`).",
    ),
    server: str = typer.Option(
        "",
        "--server",
        metavar="URL",
        envvar="LIGHTBED_SERVER",
        callback=_choose_server,
        expose_value=False,
        show_default=False,
        help="Ask this service, with the token in LIGHTBED_TOKEN (see `testbed serve`).",
    ),
) -> None:
    pass


def add_shared_options(command: Any) -> None:
    """Add the options to a command, or to all commands of a group, behind the ones that they come with."""
    for each in (command, *getattr(command, "commands", {}).values()):
        there = {param.name for param in each.params}
        wanted = [option for param, option in _COMPANIONS.items() if param in there and option not in there]
        declared = getattr(each.callback, "declared", None)
        if declared is not None and declared.role is not None:
            wanted.append("server")
        if wanted:
            app = typer.Typer()
            app.command()(_options)
            made = {param.name: param for param in typer.main.get_command(app).params}
            each.params.extend(made[name] for name in wanted)
