"""Commands of `testbed switch ADDRESS` that change the switch. A real one is moved with consent only."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from ocs_drivers import CrossConnects, OpticalSwitch, Side, Status
from ocs_drivers.errors import Conflict, Unsupported
from ocs_drivers.model import ApplyReport, Snapshot
from testbed.cli.options import AsJson
from testbed.cli.output import CHANGES, DONE, counted, describe_report, print_json, print_lines
from testbed.cli.switch_device import about, heading, is_simulated, opened
from testbed.cli.switch_ports import PortNames, pairs_in_file
from testbed.errors import Interrupted, RefusedToMove

Yes = Annotated[bool, typer.Option("--yes", help="Move a real switch without asking.")]
Pairs = Annotated[list[str], typer.Argument(metavar="INPUT:OUTPUT...", help="By number or by name.")]
TargetPairs = Annotated[
    list[str] | None, typer.Argument(metavar="[INPUT:OUTPUT...]", help="By number or by name.")
]
PairsFile = Annotated[
    Path | None,
    typer.Option(
        "--file",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        readable=True,
        help="Pairs, one a line (# begins a comment).",
    ),
]
Scope = Annotated[
    str | None,
    typer.Option("--scope", metavar="INPUTS", help="Only these inputs, comma between; default: all."),
]
Expect = Annotated[
    str | None, typer.Option("--expect", metavar="REVISION", help="Only if `read` still says this.")
]
RequireLight = Annotated[bool, typer.Option("--require-light", help="Fail when a connected output is dark.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be done; exit code 2 when something would.")
]


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


def _check_consent(switch: OpticalSwitch, what: str, *, yes: bool) -> None:
    """Ask before a real switch is moved. Raises `RefusedToMove`."""
    if yes or is_simulated(switch):
        return
    if not sys.stdin.isatty():
        raise RefusedToMove(f"{switch.address} is a real switch: say --yes to {what}; nothing was sent")
    if not typer.confirm(f"{what} on the real switch {switch.address}?", err=True):
        raise RefusedToMove(f"{switch.address} was left as it is")


def connect(context: typer.Context, pairs: Pairs, yes: Yes = False, as_json: AsJson = False) -> int:
    """Connect these inputs to these outputs, and touch nothing else."""
    with opened(context) as device:
        wanted = PortNames(device.ports()).pairs(pairs)
        _check_consent(device, f"connect {len(wanted)} pairs", yes=yes)
        with _moving(device):
            report = device.connect(wanted)
        return _show(device, report, as_json=as_json)


def disconnect(
    context: typer.Context,
    inputs: Annotated[list[str], typer.Argument(metavar="INPUT...", help="By number or by name.")],
    yes: Yes = False,
    as_json: AsJson = False,
) -> int:
    """Take down whatever circuits these inputs have, and touch nothing else."""
    with opened(context) as device:
        names = PortNames(device.ports())
        named = [names.number(text, Side.IN) for text in inputs]
        _check_consent(device, f"disconnect {len(named)} inputs", yes=yes)
        with _moving(device):
            report = device.disconnect(named)
        return _show(device, report, as_json=as_json)


def apply(
    context: typer.Context,
    pairs: TargetPairs = None,
    file: PairsFile = None,
    scope: Scope = None,
    expect: Expect = None,
    require_light: RequireLight = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> int:
    """Make the switch hold these pairs and, within the scope, no others."""
    with opened(context) as device:
        names = PortNames(device.ports())
        target = CrossConnects(names.pairs([*(pairs_in_file(file) if file else ()), *(pairs or ())]))
        within = [names.number(text, Side.IN) for text in scope.split(",")] if scope else None
        seen = device.read()
        if expect is not None and seen.revision != expect:
            raise _changed_since(expect, seen, device)
        if dry_run:
            return _show_plan(device, target, within, as_json=as_json)
        _check_consent(device, f"apply {len(target)} pairs", yes=yes)
        expected = seen.connections if expect is not None else None
        with _moving(device):
            report = device.apply(target, scope=within, expect=expected, require_light=require_light)
        return _show(device, report, as_json=as_json)


def _changed_since(expect: str, seen: Snapshot, device: OpticalSwitch) -> Conflict:
    return Conflict(
        f"the switch holds revision {seen.revision}, not {expect}; nothing was sent",
        expected={},  # a revision tells no pairs
        found=seen.connections,
        device=device.address,
        hint="Somebody else changed it: read again, then decide.",
    )


def _show_plan(
    device: OpticalSwitch, target: CrossConnects, scope: list[int] | None, *, as_json: bool
) -> int:
    steps = device.plan(target, device.read(), scope)
    if as_json:
        listed = [{"kind": step.kind, "pairs": sorted(step.pairs.items())} for step in steps]
        print_json({**about(device), "steps": listed, "estimated_s": sum(s.estimated_s for s in steps)})
    else:
        print_lines(
            [f"{step.kind}: {', '.join(f'{i}:{o}' for i, o in step.pairs.items())}" for step in steps]
            or ["nothing to do"]
        )
    return CHANGES if steps else DONE


def _show(device: OpticalSwitch, report: ApplyReport, *, as_json: bool) -> int:
    """Say what became of every pair; the driver raises for whatever is not done."""
    done = [pair for pair, status in report.pairs.items() if status is Status.DONE]
    if as_json:
        print_json({**about(device), "changed": report.changed, **describe_report(report)})
    elif report.changed:
        seconds = sum(outcome.device_s for outcome in report.outcomes)
        print_lines(
            [f"{heading(device)}: {counted(len(done), 'change')} made and read back in {seconds:.2f} s"]
        )
    else:
        print_lines([f"{heading(device)}: nothing to do"])
    return DONE


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
    with opened(context) as device:
        names = PortNames(device.ports())
        numbers = [names.number(text, None) for text in named]
        _check_consent(device, f"{what} {len(numbers)} shutters", yes=yes)
        device.shutter(numbers, is_open=what == "open")
        if as_json:
            print_json({**about(device), "shutter": what, "ports": numbers})
        else:
            print_lines([f"{heading(device)}: {len(numbers)} ports, shutters {what}"])
    return DONE


def home(context: typer.Context, yes: Yes = False, as_json: AsJson = False) -> int:
    """Have a robot that stands find its home, and let it go on; look at it first."""
    with opened(context) as device:
        homing_run = getattr(device, "homing_run", None)
        if homing_run is None:
            raise Unsupported(
                "this device has no homing run",
                device=device.address,
                hint="Only ROME and AFM robots have one.",
            )
        _check_consent(device, "home the robot", yes=yes)
        with _moving(device):
            homing_run()
        if as_json:
            print_json({**about(device), "homed": True})
        else:
            print_lines([f"{heading(device)}: the robot is home and goes on"])
    return DONE
