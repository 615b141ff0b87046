"""`testbed switch ADDRESS ...`: one switch, without a lab file.

    testbed switch polatis+tl1://10.0.0.7 read
    testbed switch calient+tl1://10.0.0.8 connect 1.1.1:1.1.2

Ports are numbers (inputs 1..N, outputs N+1..N+M) or the device's own names; `=NAME` is always a name.
"""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ocs_drivers.engine.reports import describe_pairs
from ocs_drivers.families import FAMILIES
from ocs_drivers.model import PortInfo, Power
from testbed.cli import completion
from testbed.cli.options import AsJson
from testbed.cli.output import print_json, print_lines, print_table
from testbed.cli.switch_changes import apply, connect, disconnect, home, shutter
from testbed.cli.switch_device import LOOK_TIMEOUT_S, Wanted, about, heading, opened, seconds
from testbed.cli.switch_ports import PortNames
from testbed.commands.documents import DONE

_HELP = "One optical switch or patch panel by its address, without a lab file."

_EPILOG = f"""\b
Addresses: SCHEME://HOST[:PORT], of the schemes
{textwrap.fill(", ".join(FAMILIES), 76, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)}
  serial lines: polatis+serial:/dev/ttyUSB0; a panel: manual://FILE;
  sim+SCHEME://NAME starts a simulated switch for the command

\b
Accounts, from the environment or a file:
  LIGHTBED_OCS_USER, LIGHTBED_OCS_PASSWORD  user and password for one session
  LIGHTBED_OCS_CREDENTIALS                  a file of accounts
                      (default: ~/.config/lightbed/credentials.toml)

\b
Examples:
  testbed switch polatis+tl1://10.0.0.7 read
  testbed switch calient+tl1://10.0.0.8 connect 1.1.1:1.1.2 --yes
  testbed switch rome+cli://10.0.0.9 connect E3:W4 --replace --timeout 300
  testbed switch sim+polatis+scpi://spare apply 1:49 2:50 --dry-run
"""


class _OptionsAnywhere(TyperGroup):
    """Lets the options that say how to talk to the switch stand behind the command as well."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own = {name for option in self.params for name in option.opts if name.startswith("--")}
        front: list[str] = []
        rest: list[str] = []
        words = iter(args)
        for word in words:
            name, separator, _ = word.partition("=")
            if name in own - {"--help"}:
                front += [word] if separator else [word, *islice(words, 1)]
            else:
                rest.append(word)
        return super().parse_args(ctx, [*front, *rest])


def register(root: typer.Typer) -> None:
    """Add the group."""
    app = typer.Typer(help=_HELP, epilog=_EPILOG, cls=_OptionsAnywhere)
    app.callback()(switch)
    for command in (identity, ports, read, connect, disconnect, apply, power, shutter, home, watch):
        app.command()(command)
    root.add_typer(app, name="switch")


def switch(
    context: typer.Context,
    address: Annotated[
        str,
        typer.Argument(
            metavar="ADDRESS",
            help="Such as polatis+scpi://10.0.0.7.",
            autocompletion=completion.addresses,
        ),
    ],
    timeout_s: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            min=0.1,
            callback=seconds,
            help=f"For the whole command; default: {LOOK_TIMEOUT_S:g} to look, and as long as it takes to move.",
        ),
    ] = None,
    answer_s: Annotated[
        float,
        typer.Option(
            "--timeout-each", metavar="SECONDS", min=0.1, callback=seconds, help="For every single answer."
        ),
    ] = 5.0,
    record: Annotated[
        Path | None,
        typer.Option("--record", metavar="FILE", help="Keep what is said on the wire (new file)."),
    ] = None,
) -> None:
    """Choose the switch."""
    context.obj = Wanted(address, timeout_s, answer_s, record)


def identity(context: typer.Context, as_json: AsJson = False) -> int:
    """Show who answers, and what it can do."""
    with opened(context) as device:
        who, can = asdict(device.identity()), asdict(device.capabilities)
        if as_json:
            print_json({**about(device), "identity": who, "capabilities": can})
        else:
            rows = [(name, value) for name, value in {**who, **can}.items() if value not in (None, False)]
            print_table(heading(device), ("", ""), [(name.replace("_", " "), value) for name, value in rows])
    return DONE


def ports(context: typer.Context, as_json: AsJson = False) -> int:
    """List all ports: number, name, side, state."""
    with opened(context) as device:
        found = device.ports()
        if as_json:
            listed = [
                {**asdict(info), "side": info.side.value, "state": info.state.value}
                for info in found.values()
            ]
            print_json({**about(device), "ports": listed})
        else:
            columns = ("port", "name", "side", "state", "label", "moves")
            print_table(heading(device), columns, [_port_row(info) for info in found.values()])
    return DONE


def _port_row(info: PortInfo) -> tuple[object, ...]:
    moves = "" if info.moves is None else info.moves
    return (info.number, info.name, info.side.value, info.state.value, info.label, moves)


def read(context: typer.Context, as_json: AsJson = False) -> int:
    """Print what is connected now, and what a robot still has to do."""
    with opened(context) as device:
        seen, names = device.read(), PortNames(device.ports())
        if as_json:
            print_json(
                {**about(device), "connections": sorted(seen.connections.items()), "revision": seen.revision}
                | {"unfit": {port: state.value for port, state in seen.unfit.items()}}
                | {"pending": [asdict(move) for move in seen.pending]}
            )
            return DONE
        rows = [(i, names.name(i), o, names.name(o)) for i, o in seen.connections.items()]
        title = f"{heading(device)}: {len(rows)} connected, revision {seen.revision}"
        print_table(title, ("input", "name", "output", "name"), rows)
        print_lines(
            [
                f"pending: {move.kind} {describe_pairs([move.pair]) if move.pair else 'other ports'} "
                f"for {move.user or 'somebody'}"
                for move in seen.pending
            ]
        )
    return DONE


def power(
    context: typer.Context,
    named: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PORT]...", help="Default: all.", autocompletion=completion.ports),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Optical power at ports, in dBm."""
    with opened(context) as device:
        found = device.ports()
        names = PortNames(found)
        numbers = [names.number(text, None) for text in named] if named else list(found)
        readings = device.power(numbers)
        if as_json:
            told = {
                str(port): None if reading is None else asdict(reading) for port, reading in readings.items()
            }
            print_json({**about(device), "power": told})
        else:
            rows = [
                (port, names.name(port), found[port].side.value, _power_text(readings[port]))
                for port in numbers
            ]
            print_table(heading(device), ("port", "name", "side", "power dBm"), rows)
    return DONE


def _power_text(reading: Power | None) -> str:
    if reading is None:
        return "no monitor"
    return "dark" if reading.below_floor else f"{reading.dbm:.2f}"


def watch(
    context: typer.Context,
    every_s: Annotated[
        float, typer.Option("--every", metavar="SECONDS", min=0.05, max=86400, callback=seconds)
    ] = 1.0,
    for_s: Annotated[
        float | None,
        typer.Option("--for", metavar="SECONDS", callback=seconds, help="Default: until interrupted."),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Print every change of the configuration, and what the device says unasked."""
    from testbed.cli.switch_watch import sights  # its loop sleeps; nothing else here does

    with opened(context, is_bounded=False) as device:
        for sight in sights(device, every_s=every_s, for_s=for_s):
            if as_json:
                print_json({**about(device), **sight.document})
            else:
                print_lines([sight.text])
    return DONE
