"""`testbed plan`: the changes that an apply would make on the switches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from testbed.commands.about import HostsFields, describe_hosts, make_heading_lines
from testbed.commands.context import CommandContext
from testbed.commands.declare import option, output_file_option
from testbed.commands.design.topology import TopologyDocument
from testbed.commands.documents import (
    EXIT_CHANGES,
    EXIT_DONE,
    Document,
    UnfinishedOperation,
    describe_unfinished_operations,
)
from testbed.commands.groups import TAKE_OVER_OPTION, TopologyCommand
from testbed.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class PlannedCircuit:
    """A circuit and its planned change."""

    change: str
    input_port: int
    output_port: int
    link: str


@dataclass(frozen=True, kw_only=True)
class PlannedStep:
    """A step of a switch: its kind, its number of pairs, and the driver's estimate of its duration."""

    kind: str
    pairs: int
    estimated_s: float


@dataclass(frozen=True, kw_only=True)
class PlannedSwitch:
    """Changes of one switch. `revision` identifies its circuits at the time of the plan."""

    switch: str
    revision: str
    circuits: tuple[PlannedCircuit, ...]
    steps: tuple[PlannedStep, ...]


@dataclass(frozen=True, kw_only=True)
class TouchedElement:
    """A circuit, NIC or host that the plan affects, and why. `direct` is true if a step names it."""

    kind: str
    name: str
    touch: str
    reason: str
    direct: bool


@dataclass(frozen=True, kw_only=True)
class ExpectedSeconds:
    """Expected duration in seconds: median and 95th percentile, learned from `samples` earlier steps."""

    median_s: float
    p95_s: float
    samples: int


@dataclass(frozen=True, kw_only=True)
class SwitchDurations:
    """Expected durations of each step of a switch, and of all steps together."""

    steps: tuple[ExpectedSeconds, ...]
    total: ExpectedSeconds


@dataclass(frozen=True, kw_only=True)
class PlanDurations:
    """Expected durations of each switch, and of the whole plan. Switches work in parallel."""

    switches: dict[str, SwitchDurations]
    total: ExpectedSeconds


@dataclass(frozen=True, kw_only=True)
class PlanDocument(HostsFields, TopologyDocument):
    """Changes that an apply would make. `revision` identifies the lab's state before them."""

    has_changes: bool
    switches: tuple[PlannedSwitch, ...]
    revision: str
    elements: tuple[TouchedElement, ...]
    expected: PlanDurations

    @property
    def exit_code(self) -> int:
        """2 if something would change, or an operation is unfinished."""
        return EXIT_CHANGES if self.has_changes or self.unfinished else EXIT_DONE


@dataclass(frozen=True, kw_only=True)
class PatchList(Document):
    """Fibres to plug, one line each."""

    patch_list: tuple[str, ...]
    unfinished: tuple[UnfinishedOperation, ...]


@dataclass(frozen=True, kw_only=True)
class Plan(TopologyCommand):
    """`testbed plan`."""

    take_over: Annotated[bool, TAKE_OVER_OPTION] = False
    patches: Annotated[bool, option("Print only the patch list; reads no device.", "--patch-list")] = False
    out: Annotated[
        Path | None, output_file_option("change.json", "Write the change here, for `testbed apply --change`.")
    ] = None

    def validate(self) -> None:
        """Raise `UsageError` for `--out` together with `--patch-list`, which writes no change."""
        super().validate()
        if self.patches and self.out:
            raise UsageError("--patch-list plans no change: leave out --out")

    def run(self, context: CommandContext) -> PlanDocument | PatchList:
        """Read the switches and compare them with the topology. Raises the errors of `choose_design` and of drivers."""
        from testbed.design.topology.circulants import render_topology as topology_json
        from testbed.operate.choice import choose_design
        from testbed.operate.plan import describe_plan, make_plan_json
        from testbed.operate.planned_change import PlannedChange

        if self.patches:
            return self._list_patches(context)
        choice = choose_design(context.running_lab, self.named_topology, context.runs_dir)
        with context.open_session(choice.lab) as session:
            lab_plan = session.plan(choice.design, take_over=self.take_over)
        change = PlannedChange(choice, lab_plan, context.runs_dir)
        if self.out:
            change.write(self.out, take_over=self.take_over)
        context.say(*make_heading_lines(choice), *describe_plan(choice.lab, lab_plan), *change.format_lines())
        context.say(*choice.describe_unfinished(), *change.describe_next_command())
        document = change.json()
        return PlanDocument(
            **describe_hosts(choice),
            **topology_json(choice.design.topology),
            has_changes=lab_plan.has_changes,
            switches=tuple(
                PlannedSwitch(
                    switch=row["switch"],
                    revision=row["revision"],
                    circuits=tuple(PlannedCircuit(**circuit) for circuit in row["circuits"]),
                    steps=tuple(PlannedStep(**step) for step in row["steps"]),
                )
                for row in make_plan_json(choice.lab, lab_plan)["switches"]
            ),
            revision=document["revision"],
            elements=tuple(TouchedElement(**element) for element in document["elements"]),
            expected=PlanDurations(
                switches={
                    name: SwitchDurations(
                        steps=tuple(ExpectedSeconds(**step) for step in durations["steps"]),
                        total=ExpectedSeconds(**durations["total"]),
                    )
                    for name, durations in document["expected"]["switches"].items()
                },
                total=ExpectedSeconds(**document["expected"]["total"]),
            ),
        )

    def _list_patches(self, context: CommandContext) -> PatchList:
        from testbed.design.patching.wiring import list_patches
        from testbed.operate.choice import choose_design

        choice = choose_design(context.lab, self.named_topology, context.runs_dir)
        rows = list_patches(choice.design.wiring)
        context.say(*rows)
        unfinished = describe_unfinished_operations(choice.unfinished)
        if not context.is_quiet:
            for line in choice.describe_unfinished():
                context.print_note(line)  # on standard error: standard output holds only the patch list
        return PatchList(patch_list=tuple(rows), unfinished=unfinished)
