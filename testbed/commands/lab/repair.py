"""`testbed repair`: plan how traffic avoids lost fibres and failed GPUs, and apply the plan."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from testbed.commands.about import HostsFields, describe_findings, describe_hosts
from testbed.commands.context import CommandContext
from testbed.commands.declare import option
from testbed.commands.documents import (
    EXIT_CHANGES,
    EXIT_DONE,
    EXIT_ERROR,
    OMIT_NONE,
    Finding,
    describe_unfinished_operations,
    yield_finding_lines,
)
from testbed.commands.groups import HostsCommand, MovingCommand, TopologyCommand

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from testbed.lab.model import Lab
    from testbed.measure.results.store import RunStore
    from testbed.operate.choice import DesignChoice
    from testbed.operate.design import Design
    from testbed.operate.failure_rules import Gpu
    from testbed.operate.light import LossObservation
    from testbed.operate.repair import ChooseRoutes, LabRepair, RepairRecord, RepairResult
    from testbed.operate.session import LabSession
    from testbed.operate.unfinished import IncompleteOperation

REPAIR_PHASE, REPAIR_BEGUN_PHASE = "repair", "repair begun"


@dataclass(frozen=True, kw_only=True)
class LostFibre:
    """A lost fibre of a NIC. `sure` is false if the fibre at the other end of the link may be lost instead.

    `fibre` is `transmit`, `receive`, or `gpu` if the GPU beside the NIC has failed.
    """

    nic: str
    fibre: str
    link: str
    sure: bool


@dataclass(frozen=True, kw_only=True)
class LinkDetour:
    """The path of a lost link's packets over other links. It is empty if no path exists."""

    link: str
    path: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Advice:
    """Advice about one failure in a lab whose hosts have several GPUs (see `testbed.operate.failure_rules`)."""

    rule: int
    subject: str
    gpus_lost: tuple[str, ...]
    action: str
    target: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Proof:
    """Outcome of the proof of a repair, with the checks of `testbed verify`."""

    ok: bool
    circuits: int
    links_received: int
    findings: tuple[Finding, ...]
    pairs: int
    pairs_reached: int
    loss_floor: float | None
    held: dict[str, tuple[tuple[int, int], ...]]


@dataclass(frozen=True, kw_only=True)
class RepairOutcome:
    """Durations of a repair in seconds, and its proof. A stage lasts until its routes are installed.

    `outage_s` is the switching time of the slowest switch. The duration of a stage that did not take place is 0.
    """

    reroute_s: float
    repatch_s: float
    outage_s: float
    verified: Proof


@dataclass(frozen=True, kw_only=True)
class RepairDocument(HostsFields):
    """Lost fibres, the planned repair, and with `--apply` its outcome.

    `repair_record` is true if a repair is in force. `strange` lists circuits that belong neither to the topology nor
    to a repair, `unpatched` the links whose circuits are missing or pass no light. `rules` say what to do about each
    failure if hosts of the lab have several GPUs.
    """

    repair_record: bool
    strange: tuple[str, ...]
    unpatched: tuple[str, ...]
    lost: tuple[LostFibre, ...]
    detours: tuple[LinkDetour, ...] | None = field(default=None, metadata=OMIT_NONE)
    remove: tuple[str, ...] | None = field(default=None, metadata=OMIT_NONE)
    make: tuple[str, ...] | None = field(default=None, metadata=OMIT_NONE)
    why: str | None = field(default=None, metadata=OMIT_NONE)
    rules: tuple[Advice, ...] | None = field(default=None, metadata=OMIT_NONE)
    repaired: RepairOutcome | None = field(default=None, metadata=OMIT_NONE)
    findings: tuple[Finding, ...]

    @property
    def exit_code(self) -> int:
        """1 if a repair is not proven, 2 if a repair is planned or something is lost, off or unfinished."""
        if self.repaired is not None:
            return EXIT_DONE if self.repaired.verified.ok else EXIT_ERROR
        is_repaired = self.why is None and not (
            self.unpatched or self.unfinished or self.findings or self.rules
        )
        return EXIT_DONE if is_repaired else EXIT_CHANGES


@dataclass(frozen=True, kw_only=True)
class Repair(MovingCommand, HostsCommand, TopologyCommand):
    """`testbed repair`."""

    apply: Annotated[bool, option("Apply the repair: first the routes, then the circuits.", "--apply")] = (
        False
    )
    gpus: Annotated[
        tuple[str, ...],
        option("A GPU that has failed, for instance a/gpu1 (repeatable).", "--gpu", metavar="HOST/GPU"),
    ] = ()

    def run(self, context: CommandContext) -> RepairDocument:
        """Find lost fibres, plan a repair, and with `--apply` apply it. Raises the errors of the devices."""
        from testbed.operate.apply import check_permission
        from testbed.operate.choice import choose_design
        from testbed.operate.failure_rules import parse_gpu
        from testbed.operate.repair import make_losses_json, make_repair_json

        choice = choose_design(
            context.running_lab, self.named_topology, context.runs_dir, ignores_repair=True
        )
        lab = choice.lab
        failed_gpus = {parse_gpu(lab, label) for label in self.gpus}
        if self.apply:
            check_permission(lab, self.really_move)
        with context.open_session(
            lab, self.hosts, writes_journal=self.apply, skip_unreachable=not self.apply
        ) as session:
            observation, lab_repair, unfinished = plan_repair(session, choice, context.runs_dir, failed_gpus)
            findings = describe_findings(session.unreachable_findings)
            advice = _make_advice(session, choice, observation, lab_repair, failed_gpus)
            context.say(choice.format_heading(), *choice.format_warnings(), *yield_finding_lines(findings))
            context.say(*_describe_repair(session, choice, observation, lab_repair, unfinished))
            context.say(
                *(f"rule {failure_advice.rule}: {failure_advice.text}" for failure_advice in advice or ())
            )
            repair_result = None
            if lab_repair and self.apply:
                repair_result = self._repair(context, session, choice, lab_repair)
        repair_json = make_repair_json(lab, lab_repair) if lab_repair else {}
        losses = lab_repair.record.losses if lab_repair else observation.losses
        hosts_fields = describe_hosts(choice, self.hosts)
        hosts_fields["unfinished"] = describe_unfinished_operations(unfinished)
        return RepairDocument(
            **hosts_fields,
            repair_record=lab_repair is not None and lab_repair.is_repaired,
            strange=tuple(lab_repair.unexpected_circuits) if lab_repair else (),
            unpatched=tuple(lab.link_label(circuit.link) for circuit in observation.unpatched_circuits),
            lost=tuple(LostFibre(**row) for row in make_losses_json(lab, losses)),
            detours=tuple(LinkDetour(**row) for row in repair_json["detours"]) if lab_repair else None,
            remove=repair_json.get("remove"),
            make=repair_json.get("make"),
            why=repair_json.get("why"),
            rules=advice,
            repaired=_make_outcome(repair_result) if repair_result else None,
            findings=findings,
        )

    def _repair(
        self, context: CommandContext, session: LabSession, choice: DesignChoice, lab_repair: LabRepair
    ) -> RepairResult:
        """Apply the repair, and store losses, changes and durations as a run."""
        from testbed.lab.simulated.lifecycle import find_hosts_in_use
        from testbed.measure.results.store import RunStore
        from testbed.operate.engine.consent import stop_on_interrupt
        from testbed.operate.intent import TopologySource
        from testbed.operate.repair import carry_out, check_in_force, make_repair_json

        check_in_force(lab_repair)
        lab = session.lab
        hosts = find_hosts_in_use(lab, self.hosts)
        with RunStore(context.runs_dir).begin_run(lab, lab.simulated, hosts, seeds={}) as run:
            run.add_phase(REPAIR_BEGUN_PHASE, lab_repair.record.to_json(lab))
            epoch = choice.intent.epoch if choice.intent else None
            if epoch is None:  # the next repair must know the topology that this one repairs
                epoch = session.store_intent(choice.design, choice.topology_source, run.run_id)
            topology_source = TopologySource(
                f"repair of epoch {epoch}", choice.topology_source.plan_text, epoch
            )
            with stop_on_interrupt(context.print_note):
                repair_result = carry_out(session, lab_repair, context.say, topology_source=topology_source)
            run.add_phase(REPAIR_PHASE, make_repair_json(lab, lab_repair) | repair_result.as_json())
        return repair_result


def _make_outcome(repair_result: RepairResult) -> RepairOutcome:
    report = repair_result.verified
    return RepairOutcome(
        reroute_s=repair_result.reroute_s,
        repatch_s=repair_result.repatch_s,
        outage_s=repair_result.outage_s,
        verified=Proof(
            ok=report.ok,
            circuits=report.circuits,
            links_received=report.links_received,
            findings=describe_findings(report.findings),
            pairs=report.pairs,
            pairs_reached=report.pairs_reached,
            loss_floor=report.loss_floor,
            held=dict(report.held),
        ),
    )


def plan_repair(
    session: LabSession, choice: DesignChoice, runs_dir: Path, failed_gpus: Collection[Gpu] = ()
) -> tuple[LossObservation, LabRepair | None, Sequence[IncompleteOperation]]:
    """Return the losses (observed, or caused by failed GPUs), a plan that repairs them, and unfinished operations.

    The plan is None if nothing is lost or if a device does not answer, because a repair routes traffic over every host
    and may change circuits on every switch.
    """
    from testbed.measure.results.store import RunStore
    from testbed.operate.repair import add_failed_gpus, observe_design, plan_lab_repair
    from testbed.operate.unfinished import find_unfinished_or_error

    design = choice.design
    observation = add_failed_gpus(session.lab, design, observe_design(session, design), failed_gpus)
    unfinished = find_unfinished_or_error(runs_dir, session.lab)
    if session.unreachable:
        return observation, None, unfinished
    earlier_repair = _find_earlier_repair(RunStore(runs_dir), session.lab, design, observation)
    if not (earlier_repair or observation.losses) or choice.topology_source.plan_text is None:
        return observation, plan_lab_repair(session.lab, design, observation, earlier_repair), unfinished
    lab_repair = plan_lab_repair(
        session.lab, design, observation, earlier_repair, *_load_plan_traffic(choice)
    )
    return observation, lab_repair, unfinished


def _make_advice(
    session: LabSession,
    choice: DesignChoice,
    observation: LossObservation,
    lab_repair: LabRepair | None,
    failed_gpus: Collection[Gpu],
) -> tuple[Advice, ...] | None:
    """Return what to do about each failure, or None if no host of the lab has several GPUs."""
    from testbed.operate.failure_rules import advise_on_failures, has_multi_gpu_hosts, list_failed_gpus

    if not has_multi_gpu_hosts(session.lab):
        return None
    if lab_repair:  # an earlier repair may have recorded more
        failed_gpus = {*failed_gpus, *list_failed_gpus(session.lab, lab_repair.record.losses)}
    advice = advise_on_failures(
        session.lab,
        choice.design.wiring,
        failed_gpus,
        losses=lab_repair.record.losses if lab_repair else observation.losses,
        unreachable_hosts=session.unreachable,
        links=lab_repair.repair.repatched.links if lab_repair else None if session.unreachable else (),
        snapshots=observation.snapshots,
    )
    return tuple(Advice(**asdict(item)) for item in advice)


def _find_earlier_repair(
    store: RunStore, lab: Lab, design: Design, observation: LossObservation
) -> RepairRecord | None:
    """Return the repair of this topology that is in force, or None."""
    from testbed.operate.repair import RepairRecord

    records = (
        RepairRecord.from_json(lab, phase.data) for phase in store.list_phases(lab.name, REPAIR_BEGUN_PHASE)
    )
    return next(
        (
            record
            for record in records
            if record and record.is_in_force(lab, design.wiring, observation.snapshots)
        ),
        None,
    )


def _load_plan_traffic(choice: DesignChoice) -> tuple[NDArray[np.float64] | None, ChooseRoutes]:
    """Return the bytes between pairs of nodes, and a function that returns the plan's routes on a topology."""
    # Imported late, because it imports the models of workloads and most checks find nothing lost.
    from testbed.design.evaluation.job import find_routes_for, sum_bytes_by_pair

    plan = choice.plan()
    assert plan is not None, "its text is stored"
    return sum_bytes_by_pair(plan), lambda topology: find_routes_for(plan, topology)


def _describe_repair(
    session: LabSession,
    choice: DesignChoice,
    observation: LossObservation,
    lab_repair: LabRepair | None,
    unfinished: Sequence[IncompleteOperation],
) -> Iterator[str]:
    from testbed.operate.repair import describe_losses, describe_repair, describe_unpatched_circuits

    yield from (operation.format_line() for operation in unfinished)
    if session.unreachable:
        yield from describe_losses(choice.lab, observation.losses)
        yield f"links of {', '.join(session.unreachable)} were not checked"
        if observation.losses:
            yield "a repair is planned when the whole lab answers"
        else:
            yield "no fibre of the checked links is lost"
        return
    if lab_repair is None:
        yield from map(
            choice.append_apply_command, describe_unpatched_circuits(choice.lab, choice.design, observation)
        )
        yield "no fibre is lost"
        return
    yield from map(choice.append_apply_command, describe_repair(choice.lab, lab_repair))
    if lab_repair.is_repaired:
        yield choice.append_apply_command(
            "this repair is in force: after replacing the fibre, run `testbed apply`"
        )
