"""`testbed nccl`: measure collectives on a lab whose circuits stand, or read what nccl-tests printed elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from testbed.cli import options
from testbed.cli.completion import lab_files
from testbed.cli.output import print_json, print_lines, print_table
from testbed.cli.sizes import Sizes, parse_sizes
from testbed.commands.documents import DONE, ERROR
from testbed.commands.progress import narrate
from testbed.errors import ResultsError

if TYPE_CHECKING:
    from testbed.lab.model import Lab
    from testbed.measure.current_topology import NcclTestsResult
    from testbed.measure.model import CollectiveResult
    from testbed.measure.nccl.table import NcclTable
    from testbed.measure.results.run import Run
    from testbed.operate.choice import MeantDesign
    from testbed.operate.session import Design, LabSession

MeasuredLab = Annotated[
    Path | None, typer.Argument(metavar="[LAB]", help="Lab file to measure.", autocompletion=lab_files)
]
ImportFile = Annotated[
    Path | None, typer.Option("--import", metavar="FILE", help="Read nccl-tests output, text or JSON.")
]
Interfaces = Annotated[
    str,
    typer.Option("--nccl-interfaces", metavar="NAMES", help="Verbs devices for NCCL, e.g. qedr0,qedr1."),
]
Program = Annotated[
    Literal["auto", "gloo", "nccl", "nccl-tests"],
    typer.Option(
        "--with",
        help="Our program on CPUs (gloo) or GPUs (nccl; auto: where all hosts have one), or real nccl-tests.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("nccl")(nccl)


@options.names_topology
def nccl(
    lab_file: MeasuredLab = None,
    import_file: ImportFile = None,
    program: Program = "auto",
    interfaces: Interfaces = "",
    named: options.Named = options.NOTHING_NAMED,
    hosts: options.HostsMode = "auto",
    sizes: Sizes = "1KiB:8MiB",
    deadline_s: options.Deadline = 60.0,
    runs_dir: options.RunsDirectory = options.DEFAULT_RUNS,
    as_json: options.AsJson = False,
) -> int:
    """Measure AllReduce on a lab whose circuits stand, or import results of nccl-tests."""
    from testbed.lab.simulated.lifecycle import hosts_of
    from testbed.measure.current_topology import measure_current
    from testbed.measure.nccl.reading import import_nccl
    from testbed.operate.choice import running_design

    if import_file is not None and lab_file is None:
        return _show_table(import_nccl(import_file), as_json=as_json)
    if lab_file is None or import_file is not None:
        raise ResultsError("give either a lab file to measure, or --import FILE with results of nccl-tests")
    steps = parse_sizes(sizes)
    meant = running_design(lab_file, named, runs_dir)
    lab, design, mode = meant.lab, meant.design, hosts_of(meant.lab, hosts)
    with _measuring(lab, mode, runs_dir) as (session, run), narrate() as narrator:
        if program == "nccl-tests":
            tested = _run_nccl_tests(session, design, run, interfaces, steps, deadline_s)
            return _show_tests(meant, tested, as_json=as_json)
        result = measure_current(
            session, design, run, steps, deadline_s, hosts=mode, backend=program, on_progress=narrator.tick
        )
    return _show_result(meant, mode, run.run_id, result, as_json=as_json)


@contextmanager
def _measuring(lab: Lab, mode: str, runs_dir: Path) -> Iterator[tuple[LabSession, Run]]:
    """Provide the lab opened, and the run on whose record goes what is measured on it."""
    from testbed.measure.results.store import RunStore
    from testbed.operate.journal import journal_in
    from testbed.operate.session import open_lab

    with (
        journal_in(runs_dir) as journal,
        open_lab(lab, journal, model_hosts=mode == "model") as session,
        RunStore(runs_dir).begin(lab, lab.simulated, mode, seeds={}) as run,
    ):
        yield session, run


def _run_nccl_tests(
    session: LabSession,
    design: Design,
    run: Run,
    interfaces: str,
    sizes: tuple[int, ...],
    deadline_s: float,
) -> NcclTestsResult:
    from testbed.measure.current_topology import measure_nccl_tests
    from testbed.measure.nccl.launch import NcclSettings, NcclTest

    own = (nic.name for nic in session.lab.hosts[0].nics)
    names = tuple(interfaces.split(",") if interfaces else own)
    settings = NcclSettings("IB" if interfaces else "Socket", names, channels=len(names))
    test = NcclTest(smallest_bytes=sizes[0], largest_bytes=sizes[-1], timeout_s=round(deadline_s))
    return measure_nccl_tests(session, design, run, settings, test)


def _show_table(table: NcclTable, *, as_json: bool) -> int:
    from testbed.measure.nccl.table import table_json, table_text

    document: dict[str, Any] = table_json(table)
    if as_json:
        print_json(document)
        return DONE
    names, rows = table_text(table)
    print_table("Results of nccl-tests", names, rows)
    print_lines([f"problem: {problem}" for problem in table.problems])
    return DONE


def _show_tests(meant: MeantDesign, tested: NcclTestsResult, *, as_json: bool) -> int:
    from testbed.measure.nccl.table import table_json

    if as_json:
        rings = [asdict(finding) for finding in tested.rings]
        print_json(table_json(tested.table) | {"ring_findings": rings} | meant.json())
    else:
        print_lines([meant.heading(), *meant.lines(), *meant.unfinished_lines()])
        _show_table(tested.table, as_json=False)
        print_lines([f"{finding.kind}: {finding.detail}" for finding in tested.rings])
    return ERROR if tested.rings else DONE


def _show_result(
    meant: MeantDesign, mode: str, run_id: str, result: CollectiveResult, *, as_json: bool
) -> int:
    lab = meant.lab
    if as_json:
        rows = [asdict(row) for row in result.timings]
        about = {"run_id": run_id, "lab": lab.name, "simulated": lab.simulated, "hosts": mode}
        print_json(about | meant.json() | {"results": rows})
        return DONE
    columns = ["configuration", "size (B)", "time (us)", "busbw (Mbit/s)", "link limit", "limited by"]
    shown = []
    for row in result.timings:
        limited_by = "host CPU" if row.cpu_limited else ""
        what = (row.configuration, row.size_bytes)
        shown.append((*what, row.time_us, row.busbw_mbps, row.limit_mbps, limited_by))
    mark = "SIMULATED " if lab.simulated else ""
    print_lines([meant.heading(), *meant.lines(), *meant.unfinished_lines()])
    print_table(f"{mark}AllReduce on {lab.name}, hosts: {mode}", columns, shown)
    return DONE
