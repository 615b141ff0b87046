"""`testbed plan|apply|verify|path`: what should be patched, patch it, look whether it is so, follow one path."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lightbed.wording import counted
from testbed.cli import options
from testbed.cli.completion import lab_files
from testbed.cli.headings import about as _about
from testbed.cli.headings import heading as _heading
from testbed.cli.intervals import ConfirmWithin
from testbed.cli.output import finding_lines, print_answer, print_lines, tell
from testbed.commands.documents import CHANGES, DONE, ERROR

if TYPE_CHECKING:
    from testbed.lab.model import Lab
    from testbed.lab.simulated.lifecycle import HostsChoice
    from testbed.operate.choice import MeantDesign
    from testbed.operate.journal import Journal
    from testbed.operate.model import VerifyReport
    from testbed.operate.session import BringUpReport, LabSession


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("plan")(plan)
    app.command("apply")(apply)
    app.command("verify")(verify)
    app.command("path")(path)


@contextmanager
def session_of(
    lab: Lab,
    hosts: HostsChoice | None = None,
    *,
    journal_dir: Path | None = None,
    partial: bool = False,
) -> Iterator[LabSession]:
    """Provide the lab opened: its switches, and its hosts where `hosts` says which.

    With a journal it may be changed; a partial one goes on without what does not answer.
    """
    from testbed.lab.simulated.lifecycle import hosts_of
    from testbed.operate.session import open_lab

    modelled = hosts is None or hosts_of(lab, hosts) == "model"
    with ExitStack() as stack:
        journal = stack.enter_context(_journal_in(journal_dir)) if journal_dir else None
        yield stack.enter_context(open_lab(lab, journal, model_hosts=modelled, partial=partial))


def _journal_in(runs_dir: Path) -> Journal:
    from testbed.operate.journal import journal_in  # SQLAlchemy: only for what writes

    return journal_in(runs_dir)


@options.names_topology
def plan(
    lab_file: options.LabFile,
    named: options.Named,
    take_over: options.TakeOver = False,
    patches: Annotated[
        bool, typer.Option("--patch-list", help="Only the patch list; asks no device.")
    ] = False,
    out: options.ChangeOut = None,
    runs_dir: options.RunsDirectory = options.DEFAULT_RUNS,
    as_json: options.AsJson = False,
) -> int:
    """Say what would change on the switches. Exit code 2 when something would, or an operation is unfinished."""
    from testbed.cli.changes import PlannedChange
    from testbed.design.topology.circulants import as_json as topology_json
    from testbed.lab.inventory import load_lab
    from testbed.lab.simulated.lifecycle import find_running
    from testbed.operate.choice import meant_design
    from testbed.operate.plan import describe, plan_json

    lab = load_lab(lab_file)
    if patches:
        _show_patch_list(meant_design(lab, named, runs_dir), as_json=as_json)
        return DONE
    meant = meant_design(find_running(lab), named, runs_dir)
    with session_of(meant.lab) as session:
        planned = session.plan(meant.design, take_over=take_over)
    change = PlannedChange(meant, planned, runs_dir)
    document = {**_about(meant), **topology_json(meant.design.topology), **plan_json(meant.lab, planned)}
    document |= change.json()
    lines = [*_heading(meant), *describe(meant.lab, planned), *change.lines(), *meant.unfinished_lines()]
    if out:
        change.write(out, take_over=take_over)
    print_answer(document, [*lines, *change.to_apply()], as_json=as_json, output=out)
    return CHANGES if planned.has_changes or meant.left else DONE


def _show_patch_list(meant: MeantDesign, *, as_json: bool) -> None:
    from testbed.design.patching.wiring import patch_list

    rows, unfinished = patch_list(meant.design.wiring), [one.json() for one in meant.left]
    print_answer({"patch_list": rows, "unfinished": unfinished}, rows, as_json=as_json)
    for line in () if as_json else meant.unfinished_lines():
        tell(line)  # the list is for whoever patches


@options.names_topology
def apply(
    lab_file: options.LabFile,
    named: options.Named,
    take_over: options.TakeOver = False,
    change: options.ChangeFile = None,
    expect: options.ExpectRevision = None,
    hosts: options.HostsMode = "auto",
    really_move: options.ReallyMove = None,
    confirm_within: ConfirmWithin = None,
    runs_dir: options.RunsDirectory = options.DEFAULT_RUNS,
    as_json: options.AsJson = False,
) -> int:
    """Patch the topology, install the hosts' routes, and prove both. Without a name the stored topology is meant."""
    from testbed.cli.changes import AskedChange, shown_progress
    from testbed.cli.confirmation import Confirmed
    from testbed.operate.apply import check_permission
    from testbed.operate.choice import meant_design, what_apply_does
    from testbed.operate.engine.consent import interruptible

    asked = AskedChange.of(lab_file, named, runs_dir, change, expect, take_over=take_over)
    meant, lab, design = asked.meant, asked.meant.lab, asked.meant.design
    if not (lab.simulated or as_json or really_move == lab.name):
        _show_plan(meant, take_over=asked.take_over)
    check_permission(lab, really_move)
    notes: list[str] = []
    note = notes.append if as_json else lambda text: print_lines([text])
    for line in what_apply_does(meant, named, runs_dir):
        note(line)
    confirmed = Confirmed.of(lab, confirm_within, hosts, really_move, runs_dir)
    with interruptible(tell), session_of(lab, hosts, journal_dir=runs_dir) as session:
        planned = asked.plan(session)
        with shown_progress(session, planned, runs_dir):
            brought = session.carry_out(design, planned, note, stated=meant.stated, change=confirmed.change)
        confirmed.arm(session, brought, note)
    meant = meant_design(lab, options.Named(epoch=brought.epoch), runs_dir)
    document = _about(meant, hosts) | _applied(brought) | confirmed.json() | {"notes": notes}
    lines = [*_heading(meant, hosts), *meant.unfinished_lines()]
    lines += _finding_lines(document["findings"], ok=document["verified"])
    print_answer(document, lines, as_json=as_json)
    return DONE if brought.verified.ok else ERROR


def _show_plan(meant: MeantDesign, *, take_over: bool) -> None:
    """Print what would be done, to whoever is about to be refused."""
    from testbed.operate.plan import describe

    with session_of(meant.lab) as session:
        planned = session.plan(meant.design, take_over=take_over)
    print_lines([*_heading(meant), *describe(meant.lab, planned)])


def _applied(brought: BringUpReport) -> dict[str, Any]:
    return {
        "operation": brought.apply.operation,
        "changed": brought.plan.has_changes,
        "circuits": len(brought.plan.circuits),
        "outage_s": brought.apply.outage_s,
        "total_s": brought.apply.total_s,
        "journal_s": brought.apply.journal_s,
        "verified": brought.verified.ok,
        "findings": [asdict(finding) for finding in brought.verified.findings],
    }


@options.names_topology
def verify(
    lab_file: options.LabFile,
    named: options.Named,
    hosts: options.HostsMode = "auto",
    narrow: options.Narrow = False,
    really_move: options.ReallyMove = None,
    runs_dir: options.RunsDirectory = options.DEFAULT_RUNS,
    as_json: options.AsJson = False,
) -> int:
    """Compare circuits, light, fibres, kernels and packets with the plan. Exit code 2 when something differs."""
    from testbed.measure.plan_job_record import link_lines, links_since_job
    from testbed.operate.apply import check_permission
    from testbed.operate.choice import running_design
    from testbed.operate.model import LinkFinding
    from testbed.operate.narrow import narrow as narrowed
    from testbed.operate.part_checks import note_checks
    from testbed.operate.unfinished import unfinished_or_why_not
    from testbed.storage.owner import this_run

    meant = running_design(lab_file, named, runs_dir)
    notes: list[str] = []
    if narrow:
        check_permission(meant.lab, really_move)
    left = unfinished_or_why_not(runs_dir, meant.lab)
    own = tuple(one for one in left if one.lacks_proof and one.intent == meant.intent)  # this is its proof
    with session_of(meant.lab, hosts, journal_dir=runs_dir if narrow else None, partial=True) as session:
        report = session.prove(meant.design, tuple(one for one in left if one not in own))
        if narrow:
            report = narrowed(session, meant.design, report, notes.append)
        links = links_since_job(session, meant, runs_dir)
        has_hosts = session.fleet is not None
        is_whole_proof = has_hosts or hosts == "auto"
    if report.ok and own and is_whole_proof:
        meant, note = _complete(meant, report, runs_dir)
        notes.append(note)
    has_looked = has_hosts and all(finding.kind != "changing" for finding in report.findings)
    if this_run() and has_looked:  # a command that nobody shares writes nothing
        note_checks(runs_dir, meant.lab, meant.design.wiring, report)
    if meant.intent and meant.intent.lacks_proof:
        lacking = tuple(LinkFinding("unfinished", one.operation, one.detail, one.hint) for one in own)
        report = replace(report, findings=(*lacking, *report.findings))
    findings = meant.findings_json(report.findings)
    document = {**_about(meant, hosts), "ok": report.ok, "circuits": report.circuits}
    document |= {"links_heard": report.links_received, "findings": findings, "held": dict(report.held)}
    document |= {
        "pairs": report.pairs,
        "pairs_reached": report.pairs_reached,
        "loss_floor": report.loss_floor,
    }
    document |= {"links": [asdict(link) for link in links]}
    document |= {"notes": notes} if narrow or notes else {}
    looked_at = [
        _looked_at(report),
        *notes,
        *(f"since it ran as a job: {line}" for line in link_lines(links)),
    ]
    lines = [*_heading(meant, hosts), *looked_at, *_finding_lines(findings, ok=report.ok)]
    print_answer(document, lines, as_json=as_json)
    return DONE if report.ok else CHANGES


def _complete(meant: MeantDesign, report: VerifyReport, runs_dir: Path) -> tuple[MeantDesign, str]:
    """Complete an epoch by a proof without findings; return it as it is now, and a line about it."""
    from testbed.errors import JournalError
    from testbed.operate.journal import journal_in
    from testbed.operate.session import record_proof
    from testbed.operate.unfinished import unfinished_or_why_not
    from testbed.operation_errors import OperationRunning

    intent = meant.intent
    assert intent is not None
    try:
        with journal_in(runs_dir) as journal:
            record_proof(journal, meant.lab, intent, report)
    except (JournalError, OperationRunning) as error:
        return meant, f"epoch {intent.epoch} cannot be marked as verified: {error}"
    left = unfinished_or_why_not(runs_dir, meant.lab)
    meant = replace(meant, intent=replace(intent, state="verified"), left=left)
    return meant, f"epoch {intent.epoch} is verified now"


def _looked_at(report: VerifyReport) -> str:
    heard = f", {counted(report.links_received, 'link')} heard by probe" if report.links_received else ""
    heard += f", {report.pairs_reached} of {report.pairs} pairs reached" if report.pairs else ""
    if report.loss_floor is not None:
        heard += f"; a loss of {report.loss_floor:.1%} on any link is found with 99 % confidence"
    return f"{counted(report.circuits, 'circuit')} looked at{heard}"


def _finding_lines(findings: list[dict[str, Any]], *, ok: bool) -> list[str]:
    return [*finding_lines(findings), *(["everything is as planned"] if ok else [])]


@options.names_topology
def path(
    context: typer.Context,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[LAB] A B",
            help="Lab file, if not given by --lab; host that sends; host that receives.",
            autocompletion=lab_files,
        ),
    ],
    lab_file: Annotated[
        Path,
        typer.Option(
            "--lab", metavar="LAB", help="Lab file.", envvar="LIGHTBED_LAB", autocompletion=lab_files
        ),
    ] = Path("labs/testbed12.yaml"),
    named: options.Named = options.NOTHING_NAMED,
    hosts: options.HostsMode = "auto",
    runs_dir: options.RunsDirectory = options.DEFAULT_RUNS,
    as_json: options.AsJson = False,
) -> int:
    """Follow a packet from host A to host B, by plan and by the kernels. Exit code 2 when these differ."""
    from testbed.lab.inventory import load_lab
    from testbed.lab.simulated.lifecycle import find_running
    from testbed.operate.choice import meant_design
    from testbed.operate.path import node_named

    lab_file, source, target = _ends(context, words, lab_file)
    lab = load_lab(lab_file)
    for name in (source, target):
        node_named(lab, name)  # told before any lab is looked for
    meant = meant_design(find_running(lab), named, runs_dir)
    return _follow(meant, source, target, hosts, as_json=as_json)


def _ends(context: typer.Context, words: list[str], lab_file: Path) -> tuple[Path, str, str]:
    """Return the lab file and the two hosts of `[LAB] A B`. Raises `typer.BadParameter`."""
    if len(words) not in (2, 3):
        raise typer.BadParameter("write `testbed path [LAB] A B`: a lab file, and two of its hosts")
    *labs, source, target = words
    given = context.get_parameter_source("lab_file")
    if labs and given is not None and given.name == "COMMANDLINE":
        raise typer.BadParameter(f"two lab files, {labs[0]} and --lab {lab_file}: leave one of them out")
    return Path(labs[0]) if labs else lab_file, source, target


def _follow(meant: MeantDesign, source: str, target: str, hosts: HostsChoice, *, as_json: bool) -> int:
    from testbed.operate.path import (
        describe_kernel_path,
        describe_path,
        follow_path,
        kernel_path,
        node_named,
    )

    design, ends = meant.design, (node_named(meant.lab, source), node_named(meant.lab, target))
    with session_of(meant.lab, hosts, partial=True) as session:
        hops, way = follow_path(session, design, *ends), kernel_path(session, design, *ends)
    document = {**_about(meant, hosts), "from": source, "to": target, "hops": [asdict(hop) for hop in hops]}
    document["kernel"] = asdict(way) if way else None
    document["findings"] = [asdict(finding) for finding in session.off_findings]
    lines = [*_heading(meant, hosts), *meant.unfinished_lines(), *finding_lines(document["findings"])]
    lines += [*describe_path(hops), *describe_kernel_path(way)]
    print_answer(document, lines, as_json=as_json)
    is_unknown = any(hop.patched is None for hop in hops)
    return CHANGES if is_unknown or (way and way.differs) else DONE
