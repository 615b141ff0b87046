"""`testbed repair`: which fibres are lost, how traffic gets around them, and do it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli import options
from testbed.cli.output import finding_lines, print_json, print_lines, tell
from testbed.commands.documents import CHANGES, DONE, ERROR

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from testbed.lab.model import Lab
    from testbed.measure.results.store import RunStore
    from testbed.operate.choice import MeantDesign
    from testbed.operate.journal import Journal
    from testbed.operate.loss import Sight
    from testbed.operate.repair import LabRepair, Repaired, RoutesFor
    from testbed.operate.repair_record import RepairRecord
    from testbed.operate.session import Design, LabSession
    from testbed.operate.unfinished import Unfinished

REPAIR, REPAIR_BEGUN = "repair", "repair begun"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("repair")(repair)


@options.names_topology
def repair(
    lab_file: options.LabFile,
    named: options.Named,
    apply: Annotated[bool, typer.Option("--apply", help="Do it: routes at once, then the circuits.")] = False,
    hosts: options.HostsMode = "auto",
    really_move: options.ReallyMove = None,
    runs_dir: options.RunsDirectory = options.DEFAULT_RUNS,
    as_json: options.AsJson = False,
) -> int:
    """Look for lost fibres and say how to do without them. Exit code 2 when one is lost or work is unfinished."""
    from testbed.lab.simulated.lifecycle import hosts_of
    from testbed.operate.apply import check_permission
    from testbed.operate.choice import running_design
    from testbed.operate.session import open_lab

    meant = running_design(lab_file, named, runs_dir, before_repair=True)
    lab = meant.lab
    if apply:
        check_permission(lab, really_move)
    hosts_mode = hosts_of(lab, hosts)
    with (
        _journal(runs_dir, apply) as journal,
        open_lab(lab, journal, model_hosts=hosts_mode == "model", partial=not apply) as session,
    ):
        sight, planned, left = plan_repair(session, meant, runs_dir)
        if not as_json:
            off = finding_lines(asdict(finding) for finding in session.off_findings)
            print_lines(
                [meant.heading(), *meant.lines(), *off, *_lines(session, meant, sight, planned, left)]
            )
        repaired = None
        if planned and apply:
            repaired = _carry_out(session, meant, planned, hosts_mode, runs_dir, as_json=as_json)
    if as_json:
        found = {"findings": [asdict(finding) for finding in session.off_findings]}
        print_json(_document(meant, hosts_mode, sight, planned, repaired, left) | found)
    if repaired:
        return DONE if repaired.verified.ok else ERROR
    return CHANGES if planned or sight.unpatched or left or session.off else DONE


def _journal(runs_dir: Path, apply: bool) -> AbstractContextManager[Journal | None]:
    """Return the journal where something is to be changed: looking needs no right to write."""
    from testbed.operate.journal import journal_in

    return journal_in(runs_dir) if apply else nullcontext()


def plan_repair(
    session: LabSession, meant: MeantDesign, runs_dir: Path
) -> tuple[Sight, LabRepair | None, Sequence[Unfinished]]:
    """Return what is seen of the topology, how to repair it, and unfinished operations.

    There is no repair when no fibre is lost, or when not all answer: it leads traffic over every host and is a change
    of circuits on all switches.
    """
    from testbed.measure.results.store import RunStore
    from testbed.operate.repair import look_at, plan_lab_repair
    from testbed.operate.unfinished import unfinished_or_why_not

    design, sight = meant.design, look_at(session, meant.design)
    left = unfinished_or_why_not(runs_dir, session.lab)
    if session.off:
        return sight, None, left
    earlier = _earlier(RunStore(runs_dir), session.lab, design, sight)
    if not (earlier or sight.losses) or meant.stated.plan_text is None:
        return sight, plan_lab_repair(session.lab, design, sight, earlier), left
    planned = plan_lab_repair(session.lab, design, sight, earlier, *_of_plan(meant))
    return sight, planned, left


def _earlier(store: RunStore, lab: Lab, design: Design, sight: Sight) -> RepairRecord | None:
    """Return the repair of this topology that stands, if one does."""
    from testbed.operate.repair_record import RepairRecord

    records = (RepairRecord.from_json(lab, phase.data) for phase in store.phases_of(lab.name, REPAIR_BEGUN))
    return next((one for one in records if one and one.stands(lab, design.wiring, sight.seen)), None)


def _of_plan(meant: MeantDesign) -> tuple[NDArray[np.float64] | None, RoutesFor]:
    """Return what pairs of a plan send, and its routes on a topology."""
    # Imported here: it brings the models of workloads along, and most looks find nothing lost.
    from testbed.design.evaluation.job import routes_for, sent_by_pairs

    plan = meant.plan()
    assert plan is not None, "its text is stored"
    return sent_by_pairs(plan), lambda topology: routes_for(plan, topology)


def _document(
    meant: MeantDesign,
    hosts_mode: str,
    sight: Sight,
    planned: LabRepair | None,
    repaired: Repaired | None,
    left: Sequence[Unfinished],
) -> dict[str, object]:
    from testbed.operate.repair_report import losses_json, repair_json

    lab = meant.lab
    return (
        {"lab": lab.name, "simulated": lab.simulated, "hosts": hosts_mode}
        | meant.json()
        | {"repair_record": planned is not None and planned.is_repaired}
        | {"strange": list(planned.strange) if planned else []}
        | {"unfinished": [one.json() for one in left]}
        | {"unpatched": [lab.link_label(circuit.link) for circuit in sight.unpatched]}
        | (repair_json(lab, planned) if planned else {"lost": losses_json(lab, sight.losses)})
        | ({"repaired": asdict(repaired)} if repaired else {})
    )


def _lines(
    session: LabSession,
    meant: MeantDesign,
    sight: Sight,
    planned: LabRepair | None,
    left: Sequence[Unfinished],
) -> Iterator[str]:
    from testbed.operate.repair_report import describe_losses, describe_repair, describe_unpatched

    yield from (one.line() for one in left)
    if session.off:
        yield from describe_losses(meant.lab, sight.losses)
        yield f"links of {', '.join(session.off)} were not looked at"
        if sight.losses:
            yield "a repair is planned when the whole lab answers"
        else:
            yield "of the links that were looked at, no fibre is lost"
        return
    if planned is None:
        yield from map(meant.with_apply_command, describe_unpatched(meant.lab, meant.design, sight))
        yield "no fibre is lost"
        return
    yield from map(meant.with_apply_command, describe_repair(meant.lab, planned))
    if planned.is_repaired:
        yield meant.with_apply_command("this has been done: when the fibre is replaced, `testbed apply`")


def _carry_out(
    session: LabSession,
    meant: MeantDesign,
    planned: LabRepair,
    hosts_mode: str,
    runs_dir: Path,
    *,
    as_json: bool,
) -> Repaired:
    """Do it, with a run on record that says what was lost, what was done and how long it took."""
    from testbed.measure.results.store import RunStore
    from testbed.operate.engine.consent import interruptible
    from testbed.operate.intent import Stated
    from testbed.operate.repair import carry_out, check_in_force
    from testbed.operate.repair_report import repair_json

    check_in_force(planned)
    lab = session.lab
    with RunStore(runs_dir).begin(lab, lab.simulated, hosts_mode, seeds={}) as run:
        run.add_phase(REPAIR_BEGUN, planned.record.to_json(lab))
        note = (lambda _text: None) if as_json else (lambda text: print_lines([text]))
        before = meant.intent.epoch if meant.intent else None
        if before is None:  # the next look must know the topology that this is a repair of
            before = session.store_intent(meant.design, meant.stated, run.run_id)
        stated = Stated(f"repair of epoch {before}", meant.stated.plan_text, before)
        with interruptible(tell):
            repaired = carry_out(session, planned, note, stated=stated)
        run.add_phase(REPAIR, repair_json(lab, planned) | asdict(repaired))
    return repaired
