"""`testbed switch ADDRESS ...`: one switch, without a lab file.

    testbed switch polatis+tl1://10.0.0.7 read
    testbed switch calient+tl1://10.0.0.8 connect 1.1.1:1.1.2

Ports are numbers (inputs 1..N, outputs N+1..N+M) or the device's own names; `=NAME` is always a name.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ocs_drivers import CrossConnects, OpticalSwitch, Side, Status, open_switch
from ocs_drivers.errors import Conflict, Unsupported
from ocs_drivers.model import ApplyReport, PortInfo, Power, Snapshot
from ocs_drivers.transports.recording import recording
from testbed.cli.options import AsJson
from testbed.cli.output import CHANGES, DONE, describe_report, print_json, print_lines, print_table
from testbed.cli.switch_ports import PortNames, pairs_in_file
from testbed.errors import Interrupted, RefusedToMove


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


app = typer.Typer(
    help="One optical switch or patch panel by its address, without a lab file.", cls=_OptionsAnywhere
)

Yes = Annotated[bool, typer.Option("--yes", help="Move a real switch without asking.")]
Pairs = Annotated[list[str], typer.Argument(metavar="INPUT:OUTPUT...", help="By number or by name.")]


def register(root: typer.Typer) -> None:
    """Add the group."""
    root.add_typer(app, name="switch")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Arguments before the command: which switch, and how to talk to it."""

    address: str
    timeout_s: float
    record: Path | None


@app.callback()
def switch(
    context: typer.Context,
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="Such as polatis+scpi://10.0.0.7.")],
    timeout_s: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=0.1, help="For every answer.")
    ] = 5.0,
    record: Annotated[
        Path | None,
        typer.Option("--record", metavar="FILE", help="Keep what is said on the wire (new file)."),
    ] = None,
) -> None:
    """Choose the switch."""
    context.obj = Wanted(address, timeout_s, record)


@contextmanager
def _opened(context: typer.Context) -> Iterator[OpticalSwitch]:
    wanted: Wanted = context.obj
    with ExitStack() as stack:
        if wanted.record is not None:
            stack.enter_context(recording(wanted.record))
        yield stack.enter_context(open_switch(wanted.address, timeout_s=wanted.timeout_s))


def _is_simulated(switch: OpticalSwitch) -> bool:
    return switch.identity().serial.startswith("SIM")


def _about(switch: OpticalSwitch) -> dict[str, Any]:
    return {"address": switch.address, "simulated": _is_simulated(switch)}


def _heading(switch: OpticalSwitch) -> str:
    return f"{'SIMULATED ' if _is_simulated(switch) else ''}{switch.address}"


@contextmanager
def _moving(switch: OpticalSwitch) -> Iterator[None]:
    """Say that an interrupted wait does not stop the device."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(
            f"{switch.address}: interrupted; what was sent may still be carried out. "
            f"See what it holds: testbed switch {switch.address} read"
        ) from None


def _require_consent(switch: OpticalSwitch, what: str, *, yes: bool) -> None:
    """Ask before a real switch is moved. Raises `RefusedToMove`."""
    if yes or _is_simulated(switch):
        return
    if not sys.stdin.isatty():
        raise RefusedToMove(f"{switch.address} is a real switch: say --yes to {what}; nothing was sent")
    if not typer.confirm(f"{what} on the real switch {switch.address}?", err=True):
        raise RefusedToMove(f"{switch.address} was left as it is")


@app.command()
def identity(context: typer.Context, as_json: AsJson = False) -> int:
    """Show who answers, and what it can do."""
    with _opened(context) as device:
        who, can = asdict(device.identity()), asdict(device.capabilities)
        if as_json:
            print_json({**_about(device), "identity": who, "capabilities": can})
        else:
            rows = [(name, value) for name, value in {**who, **can}.items() if value not in (None, False)]
            print_table(_heading(device), ("", ""), [(name.replace("_", " "), value) for name, value in rows])
    return DONE


@app.command()
def ports(context: typer.Context, as_json: AsJson = False) -> int:
    """List all ports: number, name, side, state."""
    with _opened(context) as device:
        found = device.ports()
        if as_json:
            listed = [
                {**asdict(info), "side": info.side.value, "state": info.state.value}
                for info in found.values()
            ]
            print_json({**_about(device), "ports": listed})
        else:
            columns = ("port", "name", "side", "state", "label", "moves")
            print_table(_heading(device), columns, [_port_row(info) for info in found.values()])
    return DONE


def _port_row(info: PortInfo) -> tuple[object, ...]:
    moves = "" if info.moves is None else info.moves
    return (info.number, info.name, info.side.value, info.state.value, info.label, moves)


@app.command()
def read(context: typer.Context, as_json: AsJson = False) -> int:
    """Print what is connected now, and what a robot still has to do."""
    with _opened(context) as device:
        seen, names = device.read(), PortNames(device.ports())
        if as_json:
            print_json(
                {**_about(device), "connections": sorted(seen.connections.items()), "revision": seen.revision}
                | {"unfit": {port: state.value for port, state in seen.unfit.items()}}
                | {"pending": [asdict(move) for move in seen.pending]}
            )
            return DONE
        rows = [(i, names.name(i), o, names.name(o)) for i, o in seen.connections.items()]
        title = f"{_heading(device)}: {len(rows)} connected, revision {seen.revision}"
        print_table(title, ("input", "name", "output", "name"), rows)
        print_lines(
            [f"pending: {move.kind} {move.pair} for {move.user or 'somebody'}" for move in seen.pending]
        )
    return DONE


@app.command()
def connect(context: typer.Context, pairs: Pairs, yes: Yes = False, as_json: AsJson = False) -> int:
    """Connect these inputs to these outputs, and touch nothing else."""
    with _opened(context) as device:
        wanted = PortNames(device.ports()).pairs(pairs)
        _require_consent(device, f"connect {len(wanted)} pairs", yes=yes)
        with _moving(device):
            report = device.connect(wanted)
        return _tell(device, report, as_json=as_json)


@app.command()
def disconnect(
    context: typer.Context,
    inputs: Annotated[list[str], typer.Argument(metavar="INPUT...", help="By number or by name.")],
    yes: Yes = False,
    as_json: AsJson = False,
) -> int:
    """Take down whatever circuits these inputs have, and touch nothing else."""
    with _opened(context) as device:
        names = PortNames(device.ports())
        named = [names.number(text, Side.IN) for text in inputs]
        _require_consent(device, f"disconnect {len(named)} inputs", yes=yes)
        with _moving(device):
            report = device.disconnect(named)
        return _tell(device, report, as_json=as_json)


@app.command()
def apply(
    context: typer.Context,
    pairs: Annotated[
        list[str] | None, typer.Argument(metavar="[INPUT:OUTPUT...]", help="By number or by name.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            readable=True,
            help="Pairs, one a line (# begins a comment).",
        ),
    ] = None,
    scope: Annotated[
        str | None,
        typer.Option("--scope", metavar="INPUTS", help="Only these inputs, comma between; default: all."),
    ] = None,
    expect: Annotated[
        str | None, typer.Option("--expect", metavar="REVISION", help="Only if `read` still says this.")
    ] = None,
    require_light: Annotated[
        bool, typer.Option("--require-light", help="Fail when a connected output is dark.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done; exit code 2 when something would.")
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> int:
    """Make the switch hold these pairs and, within the scope, no others."""
    with _opened(context) as device:
        names = PortNames(device.ports())
        target = CrossConnects(names.pairs([*(pairs_in_file(file) if file else ()), *(pairs or ())]))
        within = [names.number(text, Side.IN) for text in scope.split(",")] if scope else None
        seen = device.read()
        if expect is not None and seen.revision != expect:
            raise _changed_since(expect, seen, device)
        if dry_run:
            return _tell_plan(device, target, within, as_json=as_json)
        _require_consent(device, f"apply {len(target)} pairs", yes=yes)
        expected = seen.connections if expect is not None else None
        with _moving(device):
            report = device.apply(target, scope=within, expect=expected, require_light=require_light)
        return _tell(device, report, as_json=as_json)


def _changed_since(expect: str, seen: Snapshot, device: OpticalSwitch) -> Conflict:
    return Conflict(
        f"the switch holds revision {seen.revision}, not {expect}; nothing was sent",
        expected={},  # a revision tells no pairs
        found=seen.connections,
        device=device.address,
        hint="Somebody else changed it: read again, then decide.",
    )


def _tell_plan(
    device: OpticalSwitch, target: CrossConnects, scope: list[int] | None, *, as_json: bool
) -> int:
    steps = device.plan(target, device.read(), scope)
    if as_json:
        listed = [{"kind": step.kind, "pairs": sorted(step.pairs.items())} for step in steps]
        print_json({**_about(device), "steps": listed, "estimated_s": sum(s.estimated_s for s in steps)})
    else:
        print_lines(
            [f"{step.kind}: {', '.join(f'{i}:{o}' for i, o in step.pairs.items())}" for step in steps]
            or ["nothing to do"]
        )
    return CHANGES if steps else DONE


def _tell(device: OpticalSwitch, report: ApplyReport, *, as_json: bool) -> int:
    """Say what became of every pair; the driver raises for whatever is not done."""
    done = [pair for pair, status in report.pairs.items() if status is Status.DONE]
    if as_json:
        print_json({**_about(device), "changed": report.changed, **describe_report(report)})
    elif report.changed:
        seconds = sum(outcome.device_s for outcome in report.outcomes)
        changes = f"{len(done)} change{'' if len(done) == 1 else 's'}"
        print_lines([f"{_heading(device)}: {changes} made and read back in {seconds:.2f} s"])
    else:
        print_lines([f"{_heading(device)}: nothing to do"])
    return DONE


@app.command()
def power(
    context: typer.Context,
    named: Annotated[list[str] | None, typer.Argument(metavar="[PORT]...", help="Default: all.")] = None,
    as_json: AsJson = False,
) -> int:
    """Optical power at ports, in dBm."""
    with _opened(context) as device:
        found = device.ports()
        names = PortNames(found)
        numbers = [names.number(text, None) for text in named] if named else list(found)
        readings = device.power(numbers)
        if as_json:
            told = {
                str(port): None if reading is None else asdict(reading) for port, reading in readings.items()
            }
            print_json({**_about(device), "power": told})
        else:
            rows = [
                (port, names.name(port), found[port].side.value, _power_text(readings[port]))
                for port in numbers
            ]
            print_table(_heading(device), ("port", "name", "side", "power dBm"), rows)
    return DONE


def _power_text(reading: Power | None) -> str:
    if reading is None:
        return "no monitor"
    return "dark" if reading.below_floor else f"{reading.dbm:.2f}"


@app.command()
def shutter(
    context: typer.Context,
    what: Annotated[str, typer.Argument(metavar="open|close")],
    named: Annotated[list[str], typer.Argument(metavar="PORT...")],
    yes: Yes = False,
    as_json: AsJson = False,
) -> int:
    """Let light pass these ports, or not; circuits stay."""
    if what not in {"open", "close"}:
        raise typer.BadParameter("say open or close", param_hint="open|close")
    with _opened(context) as device:
        names = PortNames(device.ports())
        numbers = [names.number(text, None) for text in named]
        _require_consent(device, f"{what} {len(numbers)} shutters", yes=yes)
        device.shutter(numbers, is_open=what == "open")
        if as_json:
            print_json({**_about(device), "shutter": what, "ports": numbers})
        else:
            print_lines([f"{_heading(device)}: {len(numbers)} ports, shutters {what}"])
    return DONE


@app.command()
def home(context: typer.Context, yes: Yes = False, as_json: AsJson = False) -> int:
    """Have a robot that stands find its home, and let it go on; look at it first."""
    with _opened(context) as device:
        homing_run = getattr(device, "homing_run", None)
        if homing_run is None:
            raise Unsupported(
                "this device has no homing run",
                device=device.address,
                hint="Only ROME and AFM robots have one.",
            )
        _require_consent(device, "home the robot", yes=yes)
        with _moving(device):
            homing_run()
        if as_json:
            print_json({**_about(device), "homed": True})
        else:
            print_lines([f"{_heading(device)}: the robot is home and goes on"])
    return DONE


@app.command()
def watch(
    context: typer.Context,
    every_s: Annotated[float, typer.Option("--every", metavar="SECONDS", min=0.05)] = 1.0,
    for_s: Annotated[
        float | None, typer.Option("--for", metavar="SECONDS", help="Default: until interrupted.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Print every change of the configuration, and what the device says unasked."""
    from testbed.cli.switch_watch import sights  # its loop sleeps; nothing else here does

    with _opened(context) as device:
        for sight in sights(device, every_s=every_s, for_s=for_s):
            if as_json:
                print_json({**_about(device), **sight.document})
            else:
                print_lines([sight.text])
    return DONE
