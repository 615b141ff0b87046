"""Commands of `testbed switch ADDRESS` that change the switch. A real one is moved with consent only."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from lightbed.wording import counted
from ocs_drivers import CrossConnects, OpticalSwitch, Side, Status
from ocs_drivers.engine.reports import describe_pairs, ports_of
from ocs_drivers.errors import Conflict, PortBusy, Unsupported
from ocs_drivers.model import ApplyReport, Snapshot
from testbed.cli import completion
from testbed.cli.options import DEFAULT_RUNS, AsJson, RunsDirectory
from testbed.cli.output import describe_report, print_json, print_lines
from testbed.cli.switch_device import about, heading, is_simulated, opened, writing
from testbed.cli.switch_ports import PortNames, pairs_in_file
from testbed.commands.documents import CHANGES, DONE
from testbed.errors import RefusedToMove

Yes = Annotated[bool, typer.Option("--yes", help="Move a real switch without asking.")]
Pairs = Annotated[
    list[str],
    typer.Argument(metavar="INPUT:OUTPUT...", help="By number or by name.", autocompletion=completion.pairs),
]
TargetPairs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[INPUT:OUTPUT...]", help="By number or by name.", autocompletion=completion.pairs
    ),
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
Replace = Annotated[
    bool,
    typer.Option("--replace", help="Drop the circuits that these inputs have now; they are named first."),
]
Empty = Annotated[
    bool, typer.Option("--empty", help="Mean it when no pair is given: take down all circuits.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be done; exit code 2 when something would.")
]

_AFTER_ROBOT = (
    "Wait until it is done, and read again. A request that is never carried out is removed at the robot."
)
_AFTER_PROVISIONING = (
    "It is provisioned without being active: connect that very pair, which activates it, or take its input over "
    "with `apply INPUT:OUTPUT --scope INPUTS`, which deletes it."
)


def _check_consent(switch: OpticalSwitch, what: str, *, yes: bool) -> None:
    """Ask before a real switch is moved. Raises `RefusedToMove`."""
    if yes or is_simulated(switch):
        return
    if not sys.stdin.isatty():
        raise RefusedToMove(f"{switch.address} is a real switch: say --yes to {what}; nothing was sent")
    if not typer.confirm(f"{what} on the real switch {switch.address}?", err=True):
        raise RefusedToMove(f"{switch.address} was left as it is")


def connect(
    context: typer.Context,
    pairs: Pairs,
    replace: Replace = False,
    yes: Yes = False,
    runs_dir: RunsDirectory = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> int:
    """Connect these inputs to these outputs, and touch nothing else. An input's old circuit needs --replace."""
    with opened(context, is_bounded=False) as device:
        wanted = PortNames(device.ports()).pairs(pairs)
        seen = device.read()
        dropped = _dropped(wanted, seen, device, replace=replace)
        target, scope = CrossConnects(wanted), frozenset(wanted)
        device.plan(target, seen, scope)  # what cannot be is refused before anything is announced
        what = f"connect {counted(len(wanted), 'pair')}"
        if dropped:
            what += f" and drop {describe_pairs(dropped.items())}"
            will = f"will drop {describe_pairs(dropped.items())}"
            print(f"{heading(device)}: {will}", file=sys.stderr, flush=True)
        _check_consent(device, what, yes=yes)
        with writing(device, runs_dir, wanted, seen.connections):
            report = device.apply(target, scope=scope, expect=seen.connections)
        return _show(device, report, as_json=as_json, replaced=sorted(dropped.items()))


def _dropped(
    wanted: Mapping[int, int], seen: Snapshot, device: OpticalSwitch, *, replace: bool
) -> dict[int, int]:
    """Return the circuits that connecting drops. Raises `PortBusy` without `replace`, `Conflict` for queued work."""
    queued = [
        move.pair
        for move in seen.pending
        if move.pair and move.pair not in wanted.items() and set(move.pair) & set(ports_of(wanted.items()))
    ]
    if queued:
        raise Conflict(
            f"work on these ports waits in the device: {describe_pairs(queued)}; nothing was sent",
            expected={},
            found=seen.connections,
            device=device.address,
            ports=ports_of(queued),
            hint=_AFTER_ROBOT if device.capabilities.serial_robot else _AFTER_PROVISIONING,
        )
    dropped = {i: o for i, o in seen.connections.items() if i in wanted and wanted[i] != o}
    if dropped and not replace:
        raise PortBusy(
            f"this would drop {describe_pairs(dropped.items())}; nothing was sent",
            peer=next(iter(dropped.values())),
            device=device.address,
            ports=sorted(dropped),
            hint="Give --replace to drop what these inputs have now.",
        )
    return dropped


def disconnect(
    context: typer.Context,
    inputs: Annotated[
        list[str],
        typer.Argument(metavar="INPUT...", help="By number or by name.", autocompletion=completion.inputs),
    ],
    yes: Yes = False,
    runs_dir: RunsDirectory = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> int:
    """Take down whatever circuits these inputs have, and touch nothing else."""
    with opened(context, is_bounded=False) as device:
        names = PortNames(device.ports())
        named = [names.number(text, Side.IN) for text in inputs]
        _check_consent(device, f"disconnect {counted(len(named), 'input')}", yes=yes)
        held = device.read().connections
        with writing(device, runs_dir, {i: held[i] for i in named if i in held}, held):
            report = device.disconnect(named)
        return _show(device, report, as_json=as_json)


def apply(
    context: typer.Context,
    pairs: TargetPairs = None,
    file: PairsFile = None,
    scope: Scope = None,
    expect: Expect = None,
    require_light: RequireLight = False,
    empty: Empty = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    runs_dir: RunsDirectory = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> int:
    """Make the switch hold these pairs and, within the scope, no others."""
    written = [*(pairs_in_file(file) if file else ()), *(pairs or ())]
    _check_meant(written, empty=empty, dry_run=dry_run)
    with opened(context, is_bounded=dry_run) as device:
        names = PortNames(device.ports())
        target = CrossConnects(names.pairs(written))
        within = None if scope is None else names.inputs(scope)
        seen = device.read()
        if expect is not None and seen.revision != expect:
            raise _changed_since(expect, seen, device)
        if dry_run:
            return _show_plan(device, target, within, as_json=as_json)
        _check_consent(device, f"apply {counted(len(target), 'pair')}", yes=yes)
        expected = seen.connections if expect is not None else None
        with writing(device, runs_dir, _in_question(target, seen, within), seen.connections):
            report = device.apply(target, scope=within, expect=expected, require_light=require_light)
        return _show(device, report, as_json=as_json)


def _check_meant(written: list[str], *, empty: bool, dry_run: bool) -> None:
    """Raise `BadParameter` for nothing that was not meant, and for something where nothing was."""
    if written and empty:
        raise typer.BadParameter("no pair may stand beside it", param_hint="--empty")
    if not written and not empty and not dry_run:
        raise typer.BadParameter(
            "no pair is given, so that all circuits would be taken down: say --empty to mean that",
            param_hint="INPUT:OUTPUT",
        )


def _in_question(target: CrossConnects, seen: Snapshot, scope: list[int] | None) -> dict[int, int]:
    """Return the circuits that an apply makes and removes: a removed one under its input only if none is made."""
    removed = {i: o for i, o in seen.connections.items() if scope is None or i in scope}
    return {i: o for i, o in (removed | dict(target)).items() if seen.connections.get(i) != target.get(i)}


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


def _show(
    device: OpticalSwitch,
    report: ApplyReport,
    *,
    as_json: bool,
    replaced: list[tuple[int, int]] | None = None,
) -> int:
    """Say what became of every pair; the driver raises for whatever is not done."""
    done = [pair for pair, status in report.pairs.items() if status is Status.DONE]
    if as_json:
        more = {} if replaced is None else {"replaced": replaced}
        print_json({**about(device), "changed": report.changed, **describe_report(report), **more})
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
    what: Annotated[str, typer.Argument(metavar="open|close", autocompletion=lambda: ["open", "close"])],
    named: Annotated[list[str], typer.Argument(metavar="PORT...", autocompletion=completion.ports)],
    yes: Yes = False,
    runs_dir: RunsDirectory = DEFAULT_RUNS,
    as_json: AsJson = False,
) -> int:
    """Open or close the shutters of these ports; circuits stay."""
    if what not in {"open", "close"}:
        raise typer.BadParameter("say open or close", param_hint="open|close")
    with opened(context, is_bounded=False) as device:
        names = PortNames(device.ports())
        numbers = [names.number(text, None) for text in named]
        _check_consent(device, f"{what} {counted(len(numbers), 'shutter')}", yes=yes)
        with writing(device, runs_dir, ports=numbers):
            device.shutter(numbers, is_open=what == "open")
        if as_json:
            print_json({**about(device), "shutter": what, "ports": numbers})
        else:
            print_lines([f"{heading(device)}: {counted(len(numbers), 'port')}, shutters {what}"])
    return DONE


def home(
    context: typer.Context, yes: Yes = False, runs_dir: RunsDirectory = DEFAULT_RUNS, as_json: AsJson = False
) -> int:
    """Have a robot that stands find its home, and let it go on; look at it first."""
    with opened(context, is_bounded=False) as device:
        homing_run = getattr(device, "homing_run", None)
        if homing_run is None:
            raise Unsupported(
                "this device has no homing run",
                device=device.address,
                hint="Only ROME and AFM robots have one.",
            )
        _check_consent(device, "home the robot", yes=yes)
        with writing(device, runs_dir, ports=device.ports()):
            homing_run()
        if as_json:
            print_json({**about(device), "homed": True})
        else:
            print_lines([f"{heading(device)}: the robot is home and goes on"])
    return DONE
