"""Commands of `testbed switch ADDRESS` that change the switch. They change a real switch only with consent."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from testbed.commands.context import CommandContext
from testbed.commands.declare import REQUIRED, Command, argument, input_file_option, option
from testbed.commands.devices.switch import Pair, SwitchCommand, SwitchDocument
from testbed.commands.documents import EXIT_CHANGES, EXIT_DONE, OMIT_NONE
from testbed.errors import RefusedToMove, UsageError

if TYPE_CHECKING:
    from ocs_drivers import CrossConnects, OpticalSwitch
    from ocs_drivers.errors import Conflict
    from ocs_drivers.model import ApplyReport, Snapshot

_PORT_HELP = "By number or by name."
_ROBOT_HINT = "Wait until it is done, and read again. If it is never executed, remove it at the robot."
_PROVISIONING_HINT = (
    "It is provisioned but not active: connect the same pair, which activates it, or use its input with "
    "`apply INPUT:OUTPUT --scope INPUTS`, which deletes it."
)


@dataclass(frozen=True, kw_only=True)
class SwitchChangeCommand(SwitchCommand):
    """Option of commands that change a switch: consent to move a real one."""

    has_runs_dir = True
    yes: Annotated[bool, option("Move a real switch without asking.", "--yes")] = False

    def check_consent(self, switch: OpticalSwitch, action: str, context: CommandContext) -> None:
        """Ask for consent to `action` on a real switch, unless `--yes` is given. Raises `RefusedToMove` if refused."""
        from testbed.commands.devices.session import is_simulated

        if self.yes or is_simulated(switch):
            return
        if not sys.stdin.isatty():
            raise RefusedToMove(
                f"{switch.address} is a real switch: pass --yes to {action}; nothing was sent"
            )
        if not context.confirm(f"{action} on the real switch {switch.address}?"):
            raise RefusedToMove(f"the change was declined, so {switch.address} was not changed")


@dataclass(frozen=True, kw_only=True)
class PairStatus:
    """Outcome of connecting or disconnecting one pair."""

    input: int
    output: int
    status: str


@dataclass(frozen=True, kw_only=True)
class ChangeDocument(SwitchDocument):
    """Outcome of every pair, and the revision after the change. `replaced` lists circuits that `connect` removed."""

    changed: bool
    pairs: tuple[PairStatus, ...]
    revision: str | None
    replaced: tuple[Pair, ...] | None = field(default=None, metadata=OMIT_NONE)


def _say_outcome(
    context: CommandContext,
    device: OpticalSwitch,
    report: ApplyReport,
    replaced: tuple[Pair, ...] | None = None,
) -> ChangeDocument:
    """Print and return the outcome of every pair. Drivers raise failures, so every pair is done or unchanged."""
    from lightbed.wording import format_count
    from ocs_drivers import Status
    from testbed.commands.devices.session import make_heading, make_switch_fields

    if report.changed:
        change_count = sum(status is Status.DONE for status in report.pairs.values())
        device_s = sum(outcome.device_s for outcome in report.outcomes)
        context.say(
            f"{make_heading(device)}: {format_count(change_count, 'change')} made and read back in {device_s:.2f} s"
        )
    else:
        context.say(f"{make_heading(device)}: nothing to do")
    return ChangeDocument(
        **make_switch_fields(device),
        changed=report.changed,
        pairs=tuple(
            PairStatus(input=source, output=output, status=status.value)
            for (source, output), status in sorted(report.pairs.items())
        ),
        revision=report.read_back.revision if report.read_back else None,
        replaced=replaced,
    )


@dataclass(frozen=True, kw_only=True)
class SwitchConnect(SwitchChangeCommand, Command[ChangeDocument]):
    """`testbed switch ADDRESS connect`."""

    pairs: Annotated[tuple[str, ...], argument(_PORT_HELP, "INPUT:OUTPUT...", complete="pairs")] = REQUIRED
    replace: Annotated[
        bool, option("Drop the circuits that these inputs have now; they are named first.", "--replace")
    ] = False

    def run(self, context: CommandContext) -> ChangeDocument:
        """Connect the pairs. Raises `PortBusy`, `Conflict`, `RefusedToMove` and other `OcsError`."""
        from lightbed.wording import format_count
        from ocs_drivers import CrossConnects
        from ocs_drivers.engine.reports import describe_pairs
        from testbed.commands.devices.ports import PortNames
        from testbed.commands.devices.session import change_under_lease, make_heading

        with self.open(is_bounded=False) as device:
            pairs = PortNames(device.ports()).parse_pairs(self.pairs)
            snapshot = device.read()
            dropped_circuits = _find_dropped_circuits(pairs, snapshot, device, replace=self.replace)
            target_circuits, scope = CrossConnects(pairs), frozenset(pairs)
            # The plan raises an error for impossible pairs before we ask for consent.
            device.plan(target_circuits, snapshot, scope)
            action = f"connect {format_count(len(pairs), 'pair')}"
            if dropped_circuits:
                action += f" and drop {describe_pairs(dropped_circuits.items())}"
                context.print_note(
                    f"{make_heading(device)}: will drop {describe_pairs(dropped_circuits.items())}"
                )
            self.check_consent(device, action, context)
            with change_under_lease(device, context.runs_dir, pairs, snapshot.connections):
                report = device.apply(target_circuits, scope=scope, expect=snapshot.connections)
            return _say_outcome(context, device, report, tuple(sorted(dropped_circuits.items())))


def _find_dropped_circuits(
    pairs: Mapping[int, int], snapshot: Snapshot, device: OpticalSwitch, *, replace: bool
) -> dict[int, int]:
    """Return the circuits that are dropped when these pairs are connected.

    Raises `PortBusy` if there are any and `replace` is false, and `Conflict` for queued moves of the same ports.
    """
    from ocs_drivers.engine.reports import describe_pairs, list_ports
    from ocs_drivers.errors import Conflict, PortBusy

    queued_pairs = [
        move.pair
        for move in snapshot.pending
        if move.pair and move.pair not in pairs.items() and set(move.pair) & set(list_ports(pairs.items()))
    ]
    if queued_pairs:
        raise Conflict(
            (
                f"requests for these ports are waiting in the device: {describe_pairs(queued_pairs)}; nothing was "
                "sent"
            ),
            expected={},
            actual=snapshot.connections,
            device=device.address,
            ports=list_ports(queued_pairs),
            hint=_ROBOT_HINT if device.capabilities.serial_robot else _PROVISIONING_HINT,
        )
    dropped_circuits = {
        source: output
        for source, output in snapshot.connections.items()
        if source in pairs and pairs[source] != output
    }
    if dropped_circuits and not replace:
        raise PortBusy(
            f"this would drop {describe_pairs(dropped_circuits.items())}; nothing was sent",
            peer=next(iter(dropped_circuits.values())),
            device=device.address,
            ports=sorted(dropped_circuits),
            hint="Pass --replace to drop the circuits that these inputs have now.",
        )
    return dropped_circuits


@dataclass(frozen=True, kw_only=True)
class SwitchDisconnect(SwitchChangeCommand, Command[ChangeDocument]):
    """`testbed switch ADDRESS disconnect`."""

    inputs: Annotated[tuple[str, ...], argument(_PORT_HELP, "INPUT...", complete="inputs")] = REQUIRED

    def run(self, context: CommandContext) -> ChangeDocument:
        """Disconnect the inputs. Raises `RefusedToMove` and `OcsError`."""
        from lightbed.wording import format_count
        from ocs_drivers import Side
        from testbed.commands.devices.ports import PortNames
        from testbed.commands.devices.session import change_under_lease

        with self.open(is_bounded=False) as device:
            port_names = PortNames(device.ports())
            inputs = [port_names.find_number(text, Side.IN) for text in self.inputs]
            self.check_consent(device, f"disconnect {format_count(len(inputs), 'input')}", context)
            connections = device.read().connections
            pairs = {source: connections[source] for source in inputs if source in connections}
            with change_under_lease(device, context.runs_dir, pairs, connections):
                report = device.disconnect(inputs)
            return _say_outcome(context, device, report)


@dataclass(frozen=True, kw_only=True)
class PlannedStep:
    """A command that an apply would send: its kind and its pairs."""

    kind: str
    pairs: tuple[Pair, ...]


@dataclass(frozen=True, kw_only=True)
class DryRunDocument(SwitchDocument):
    """Steps of an apply, and the time that the device is expected to need."""

    steps: tuple[PlannedStep, ...]
    estimated_s: float

    @property
    def exit_code(self) -> int:
        """2 if an apply would change something."""
        return EXIT_CHANGES if self.steps else EXIT_DONE


@dataclass(frozen=True, kw_only=True)
class SwitchApply(SwitchChangeCommand, Command["ChangeDocument | DryRunDocument"]):
    """`testbed switch ADDRESS apply`."""

    pairs: Annotated[tuple[str, ...], argument(_PORT_HELP, "[INPUT:OUTPUT...]", complete="pairs")] = ()
    file: Annotated[
        Path | None,
        input_file_option(
            "Pairs, one a line (# begins a comment).", "--file", most=1_000_000, must_exist=True
        ),
    ] = None
    scope: Annotated[
        str | None, option("Only these inputs, separated by commas; default: all.", metavar="INPUTS")
    ] = None
    expect: Annotated[
        str | None, option("Apply only if `read` still reports this revision.", metavar="REVISION")
    ] = None
    require_light: Annotated[bool, option("Fail when a connected output is dark.", "--require-light")] = False
    empty: Annotated[bool, option("Remove all circuits; needed when no pair is given.", "--empty")] = False
    dry_run: Annotated[
        bool, option("Show what would be done; exit code 2 if there is anything to do.", "--dry-run")
    ] = False

    def run(self, context: CommandContext) -> ChangeDocument | DryRunDocument:
        """Apply the pairs. Raises `UsageError`, `Conflict`, `RefusedToMove` and other `OcsError`."""
        from lightbed.wording import format_count
        from ocs_drivers import CrossConnects
        from testbed.commands.devices.ports import PortNames, read_pairs
        from testbed.commands.devices.session import change_under_lease

        pair_texts = [*(read_pairs(self.file) if self.file else ()), *self.pairs]
        self._check_pair_options(pair_texts)
        with self.open(is_bounded=self.dry_run) as device:
            port_names = PortNames(device.ports())
            target = CrossConnects(port_names.parse_pairs(pair_texts))
            scope = None if self.scope is None else port_names.parse_inputs(self.scope)
            snapshot = device.read()
            if self.expect is not None and snapshot.revision != self.expect:
                raise _make_conflict(self.expect, snapshot, device)
            if self.dry_run:
                return _say_steps(context, device, target, scope)
            self.check_consent(device, f"apply {format_count(len(target), 'pair')}", context)
            expected_circuits = snapshot.connections if self.expect is not None else None
            pairs = _find_changed_pairs(target, snapshot, scope)
            with change_under_lease(device, context.runs_dir, pairs, snapshot.connections):
                report = device.apply(
                    target, scope=scope, expect=expected_circuits, require_light=self.require_light
                )
            return _say_outcome(context, device, report)

    def _check_pair_options(self, texts: list[str]) -> None:
        """Raise `UsageError` for pairs together with `--empty`, and without any of pairs, `--empty` and `--dry-run`."""
        if texts and self.empty:
            raise UsageError("--empty removes all circuits: leave out the pairs, or leave out --empty")
        if not (texts or self.empty or self.dry_run):
            raise UsageError(
                "INPUT:OUTPUT: no pair is given, which would remove all circuits: pass --empty to do that"
            )


def _find_changed_pairs(target: CrossConnects, snapshot: Snapshot, scope: list[int] | None) -> dict[int, int]:
    """Return the circuits that an apply adds or removes. For a replaced circuit, return only the new one."""
    current_circuits = snapshot.connections
    pairs = {
        source: output for source, output in current_circuits.items() if scope is None or source in scope
    } | dict(target)
    return {
        source: output
        for source, output in pairs.items()
        if current_circuits.get(source) != target.get(source)
    }


def _make_conflict(expected_revision: str, snapshot: Snapshot, device: OpticalSwitch) -> Conflict:
    from ocs_drivers.errors import Conflict

    return Conflict(
        f"the switch holds revision {snapshot.revision}, not {expected_revision}; nothing was sent",
        expected={},  # a revision does not tell which pairs were expected
        actual=snapshot.connections,
        device=device.address,
        hint="Somebody else changed it: read again, then decide.",
    )


def _say_steps(
    context: CommandContext, device: OpticalSwitch, target: CrossConnects, scope: list[int] | None
) -> DryRunDocument:
    from testbed.commands.devices.session import make_switch_fields

    steps = device.plan(target, device.read(), scope)
    lines = [
        f"{step.kind}: {', '.join(f'{source}:{output}' for source, output in step.pairs.items())}"
        for step in steps
    ]
    context.say(*lines or ["nothing to do"])
    return DryRunDocument(
        **make_switch_fields(device),
        steps=tuple(PlannedStep(kind=step.kind, pairs=tuple(sorted(step.pairs.items()))) for step in steps),
        estimated_s=sum(step.estimated_s for step in steps),
    )


@dataclass(frozen=True, kw_only=True)
class ShutterDocument(SwitchDocument):
    """The state of shutters (`open` or `close`) and their ports."""

    shutter: str
    ports: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class SwitchShutter(SwitchChangeCommand, Command[ShutterDocument]):
    """`testbed switch ADDRESS shutter`."""

    what: Annotated[
        str, argument("State that the shutters take.", "open|close", complete="shutter_states")
    ] = REQUIRED
    named: Annotated[tuple[str, ...], argument("Ports whose shutters move.", "PORT...", complete="ports")] = (
        REQUIRED
    )

    def validate(self) -> None:
        """Raise `UsageError` for any word but `open` and `close`."""
        super().validate()
        if self.what not in {"open", "close"}:
            raise UsageError(f"{self.what!r} is not a state of a shutter: write open or close")

    def run(self, context: CommandContext) -> ShutterDocument:
        """Open or close the shutters. Raises `RefusedToMove` and `OcsError`."""
        from lightbed.wording import format_count
        from testbed.commands.devices.ports import PortNames
        from testbed.commands.devices.session import change_under_lease, make_heading, make_switch_fields

        with self.open(is_bounded=False) as device:
            port_names = PortNames(device.ports())
            ports = tuple(port_names.find_number(text, None) for text in self.named)
            self.check_consent(device, f"{self.what} {format_count(len(ports), 'shutter')}", context)
            with change_under_lease(device, context.runs_dir, ports=ports):
                device.shutter(list(ports), is_open=self.what == "open")
            context.say(f"{make_heading(device)}: {format_count(len(ports), 'port')}, shutters {self.what}")
            return ShutterDocument(**make_switch_fields(device), shutter=self.what, ports=ports)


@dataclass(frozen=True, kw_only=True)
class HomeDocument(SwitchDocument):
    """Outcome of a homing run: the robot is home."""

    homed: bool


@dataclass(frozen=True, kw_only=True)
class SwitchHome(SwitchChangeCommand, Command[HomeDocument]):
    """`testbed switch ADDRESS home`."""

    def run(self, context: CommandContext) -> HomeDocument:
        """Home the robot. Raises `Unsupported`, `RefusedToMove` and other `OcsError`."""
        from ocs_drivers.errors import Unsupported
        from testbed.commands.devices.session import change_under_lease, make_heading, make_switch_fields

        with self.open(is_bounded=False) as device:
            homing_run: Any = getattr(device, "homing_run", None)
            if homing_run is None:
                raise Unsupported(
                    "this device has no homing run",
                    device=device.address,
                    hint="Only ROME and AFM robots have one.",
                )
            self.check_consent(device, "home the robot", context)
            with change_under_lease(device, context.runs_dir, ports=device.ports()):
                homing_run()
            context.say(f"{make_heading(device)}: the robot is home and resumes its queue")
            return HomeDocument(**make_switch_fields(device), homed=True)
