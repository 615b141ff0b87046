"""`testbed repair`: which fibres are lost, how traffic gets around them, and do it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lightbed.errors import with_former_keys
from testbed.cli import options
from testbed.cli.output import CHANGES, DONE, ERROR, print_json, print_lines

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from testbed.lab.model import Lab
    from testbed.measure.results.store import RunStore
    from testbed.operate.loss import Sight
    from testbed.operate.repair import LabRepair, Repaired
    from testbed.operate.repair_record import RepairRecord
    from testbed.operate.session import Design, LabSession

REPAIR, REPAIR_BEGUN = "repair", "repair begun"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("repair")(repair)


def repair(
    lab_file: options.LabFile,
    simplex: options.Simplex = False,
    method: options.Method = "geometric",
    demand: options.Groups = None,
    plan_file: options.PlanFile = None,
    apply: Annotated[bool, typer.Option("--apply", help="Do it: routes at once, then the circuits.")] = False,
    hosts: options.HostsMode = "auto",
    really_move: options.ReallyMove = None,
    runs_dir: options.RunsDirectory = options.DEFAULT_RUNS,
    as_json: options.AsJson = False,
) -> int:
    """Look for lost fibres and say how to repair the topology without them. Exit code 2 when something is lost."""
    from testbed.cli.designs import running_lab_and_design
    from testbed.lab.simulated.lifecycle import hosts_of
    from testbed.operate.apply import check_permission
    from testbed.operate.journal import journal_in
    from testbed.operate.session import open_lab

    lab, design = running_lab_and_design(lab_file, plan_file, simplex=simplex, method=method, demand=demand)
    if apply:
        check_permission(lab, really_move)
    hosts_mode = hosts_of(lab, hosts)
    with (
        journal_in(runs_dir) as journal,
        open_lab(lab, journal, model_hosts=hosts_mode == "model") as session,
    ):
        sight, planned = _plan_repair(session, design, runs_dir, plan_file)
        if not as_json:
            print_lines(list(_lines(lab, design, sight, planned)))
        repaired = None
        if planned and apply:
            repaired = _carry_out(session, planned, hosts_mode, runs_dir, as_json=as_json)
    if as_json:
        print_json(_document(lab, hosts_mode, sight, planned, repaired))
    if repaired is None:
        return CHANGES if planned or sight.unpatched else DONE
    return DONE if repaired.verified.ok else ERROR


def _plan_repair(
    session: LabSession, design: Design, runs_dir: Path, plan_file: Path | None
) -> tuple[Sight, LabRepair | None]:
    """Return what is seen of the topology, and how to repair it; None when no fibre is lost."""
    from testbed.measure.results.store import RunStore
    from testbed.operate.repair import look_at, plan_lab_repair

    sight = look_at(session, design)
    earlier = _earlier(RunStore(runs_dir), session.lab, design, sight)
    sent = _sent_by_pairs(plan_file) if plan_file and (earlier or sight.losses) else None
    return sight, plan_lab_repair(session.lab, design, sight, earlier, sent)


def _earlier(store: RunStore, lab: Lab, design: Design, sight: Sight) -> RepairRecord | None:
    """Return the repair of this topology that stands, if one does."""
    from testbed.operate.repair_record import RepairRecord

    records = (RepairRecord.from_json(lab, phase.data) for phase in store.phases_of(lab.name, REPAIR_BEGUN))
    return next((one for one in records if one and one.stands(lab, design.wiring, sight.seen)), None)


def _sent_by_pairs(plan_file: Path) -> NDArray[np.float64] | None:
    # Imported here: it brings the models of workloads along, and most looks find nothing lost.
    from testbed.design.evaluation.job import sent_by_pairs
    from testbed.design.plans.file import read_plan

    return sent_by_pairs(read_plan(plan_file))


def _document(
    lab: Lab, hosts_mode: str, sight: Sight, planned: LabRepair | None, repaired: Repaired | None
) -> dict[str, object]:
    from testbed.operate.repair_report import repair_json

    return with_former_keys(
        {"lab": lab.name, "simulated": lab.simulated, "hosts": hosts_mode}
        | {"repair_record": planned is not None and planned.is_repaired}
        | {"strange": list(planned.strange) if planned else []}
        | {"unpatched": [lab.link_label(circuit.link) for circuit in sight.unpatched]}
        | (repair_json(lab, planned) if planned else {"lost": []})
        | ({"repaired": with_former_keys(asdict(repaired))} if repaired else {})
    )


def _lines(lab: Lab, design: Design, sight: Sight, planned: LabRepair | None) -> Iterator[str]:
    from testbed.operate.repair_report import describe_repair, describe_unpatched

    if planned is None:
        yield from describe_unpatched(lab, design, sight)
        yield "no fibre is lost"
        return
    yield from describe_repair(lab, planned)
    if planned.is_repaired:
        yield "this has been done: when the fibre is replaced, `testbed apply`"


def _carry_out(
    session: LabSession, planned: LabRepair, hosts_mode: str, runs_dir: Path, *, as_json: bool
) -> Repaired:
    """Do it, with a run on record that says what was lost, what was done and how long it took."""
    from testbed.measure.results.store import RunStore
    from testbed.operate.repair import carry_out, check_in_force
    from testbed.operate.repair_report import repair_json

    check_in_force(planned)
    lab = session.lab
    with RunStore(runs_dir).begin(lab, lab.simulated, hosts_mode, seeds={}) as run:
        run.add_phase(REPAIR_BEGUN, planned.record.to_json(lab))
        repaired = carry_out(session, planned, lambda text: None if as_json else print_lines([text]))
        run.add_phase(REPAIR, repair_json(lab, planned) | asdict(repaired))
    return repaired
