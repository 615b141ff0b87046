"""`testbed nccl`: measure AllReduce over the current circuits of a lab, or import results of nccl-tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from testbed.commands.about import EpochFields, HostsFields, describe_epoch, describe_hosts
from testbed.commands.context import CommandContext
from testbed.commands.declare import Command, option
from testbed.commands.documents import EXIT_DONE, EXIT_ERROR, OMIT_NONE, Document, make_key_metadata
from testbed.commands.groups import DEADLINE_OPTION, SIZES_OPTION, HostsCommand, TopologyCommand
from testbed.commands.progress import narrate
from testbed.errors import ResultsError
from testbed.measure.model import Timing

if TYPE_CHECKING:
    from testbed.lab.simulated.lifecycle import HostsInUse
    from testbed.measure.nccl.table import NcclTable
    from testbed.measure.results.run import Run
    from testbed.operate.choice import DesignChoice
    from testbed.operate.session import LabSession


@dataclass(frozen=True, kw_only=True)
class NcclDevice:
    """A device of nccl-tests: which rank runs where."""

    rank: int
    group: int | None
    pid: int
    hostname: str
    device: int
    device_hex: str
    device_info: str


@dataclass(frozen=True, kw_only=True)
class NcclConfig:
    """The devices of nccl-tests."""

    devices: tuple[NcclDevice, ...]


@dataclass(frozen=True, kw_only=True)
class NcclTiming:
    """One half of a row, out-of-place or in-place: microseconds, and 10^9 bytes a second."""

    time: float | None
    alg_bw: float | None
    bus_bw: float | None
    nwrong: int | None
    max_error: float | None = field(default=None, metadata=OMIT_NONE)
    copy_bw: float | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True, kw_only=True)
class NcclCpuTiming(NcclTiming):
    """A timing whose times are processor times."""

    time: float | None = field(metadata=make_key_metadata("cpu_time"))


@dataclass(frozen=True, kw_only=True)
class IterationSpread:
    """Spread of single iterations: minimum, maximum, 99th percentile, and standard deviation over mean."""

    min_us: float | None
    max_us: float | None
    p99_us: float | None
    cv_pct: float | None


@dataclass(frozen=True, kw_only=True)
class NcclSize:
    """A message size of nccl-tests."""

    size: int
    count: int
    type: str
    redop: str | None
    root: int | None
    out_of_place: NcclTiming | None
    out_of_place_per_iter: IterationSpread | None = field(default=None, metadata=OMIT_NONE)
    in_place: NcclTiming | None
    in_place_per_iter: IterationSpread | None = field(default=None, metadata=OMIT_NONE)
    timestamp: str | None
    actual_iterations: int | None


@dataclass(frozen=True, kw_only=True)
class OutOfBounds:
    """Number of wrong values, and whether nccl-tests accepts this number."""

    count: int | None
    okay: bool | None


@dataclass(frozen=True, kw_only=True)
class AverageBandwidth:
    """Average bus bandwidth, and whether it is as expected."""

    bandwidth: float | None
    okay: bool | Literal["unchecked"]


@dataclass(frozen=True, kw_only=True)
class NcclTestsDocument(Document):
    """Results in the JSON format of nccl-tests, and whether they are `complete` and have `failed`."""

    version: int
    source: str
    nccl_tests_version: str | None
    nccl_version: str | None
    collective: str | None
    ranks: int | None
    config: NcclConfig
    results: tuple[NcclSize, ...]
    out_of_bounds: OutOfBounds
    average_bus_bandwidth: AverageBandwidth
    json_path: str | None
    complete: bool
    failed: bool
    problems: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class RingFinding:
    """A ring of NCCL that is not as planned. `order` lists its nodes."""

    kind: str
    order: tuple[int, ...]
    detail: str


@dataclass(frozen=True, kw_only=True)
class RingKeys:
    """The rings of NCCL that are not as planned."""

    ring_findings: tuple[RingFinding, ...]


@dataclass(frozen=True, kw_only=True)
class NcclTestsOfLab(EpochFields, RingKeys, NcclTestsDocument):
    """Results of nccl-tests on a lab."""

    @property
    def exit_code(self) -> int:
        """1 if a ring is not as planned."""
        return EXIT_ERROR if self.ring_findings else EXIT_DONE


@dataclass(frozen=True, kw_only=True)
class MeasurementDocument(HostsFields):
    """AllReduce on a lab, on one ring and on all."""

    run_id: str
    results: tuple[Timing, ...]


@dataclass(frozen=True, kw_only=True)
class Measure(
    HostsCommand, TopologyCommand, Command[MeasurementDocument | NcclTestsOfLab | NcclTestsDocument]
):
    """`testbed nccl`."""

    needs = "lab unless local"
    lab_help = "Lab file to measure."
    lane = "moving"
    import_file: Annotated[
        Path | None,
        option("Read nccl-tests output, text or JSON.", "--import", metavar="FILE", is_local=True),
    ] = None
    program: Annotated[
        Literal["auto", "gloo", "nccl", "nccl-tests"],
        option(
            (
                "Our program on CPUs (gloo) or GPUs (nccl), auto (nccl if all hosts have GPUs), or the real "
                "nccl-tests."
            ),
            "--with",
        ),
    ] = "auto"
    interfaces: Annotated[
        str, option("Verbs devices for NCCL, e.g. qedr0,qedr1.", "--nccl-interfaces", metavar="NAMES")
    ] = ""
    sizes: Annotated[str, SIZES_OPTION] = "1KiB:8MiB"
    deadline_s: Annotated[float, DEADLINE_OPTION] = 60.0

    def run(self, context: CommandContext) -> MeasurementDocument | NcclTestsOfLab | NcclTestsDocument:
        """Measure, or import results. Raises `ResultsError`, `CollectiveError`, and the errors of opening a lab."""
        from testbed.lab.simulated.lifecycle import find_hosts_in_use
        from testbed.measure.collectives.spec import parse_sizes
        from testbed.measure.nccl.launch import import_nccl
        from testbed.operate.choice import choose_design

        if self.import_file is not None and context.lab_file is None:
            table = import_nccl(self.import_file)
            _say_table(context, table)
            return NcclTestsDocument(**_make_table_keys(table))
        if context.lab_file is None or self.import_file is not None:
            raise ResultsError(
                "give either a lab file to measure, or --import FILE with results of nccl-tests"
            )
        sizes = parse_sizes(self.sizes)
        choice = choose_design(context.running_lab, self.named_topology, context.runs_dir)
        host_mode = find_hosts_in_use(choice.lab, self.hosts)
        if self.program == "nccl-tests":
            return self._measure_nccl_tests(context, choice, host_mode, sizes)
        return self._measure(context, choice, host_mode, sizes)

    def _measure(
        self, context: CommandContext, choice: DesignChoice, host_mode: HostsInUse, sizes: tuple[int, ...]
    ) -> MeasurementDocument:
        """Measure with our own program."""
        from testbed.measure.current_topology import measure_current_topology

        assert self.program != "nccl-tests", "`_measure_nccl_tests` measures with nccl-tests"
        with self._open(context, choice, host_mode) as (session, run), narrate() as narrator:
            result = measure_current_topology(
                session,
                choice.design,
                run,
                sizes,
                self.deadline_s,
                hosts=host_mode,
                backend=self.program,
                on_progress=narrator.tick,
            )
        columns = ("configuration", "size (B)", "time (us)", "busbw (Mbit/s)", "link limit", "limited by")
        rows = [
            (
                row.configuration,
                row.size_bytes,
                row.time_us,
                row.busbw_mbps,
                row.limit_mbps,
                "host CPU" if row.cpu_limited else "",
            )
            for row in result.timings
        ]
        prefix = "SIMULATED " if choice.lab.simulated else ""
        context.say(choice.format_heading(), *choice.format_warnings(), *choice.describe_unfinished())
        context.say_table(f"{prefix}AllReduce on {choice.lab.name}, hosts: {host_mode}", columns, rows)
        return MeasurementDocument(
            run_id=run.run_id,
            **describe_hosts(choice, self.hosts),
            results=tuple(result.timings),
        )

    def _measure_nccl_tests(
        self, context: CommandContext, choice: DesignChoice, host_mode: HostsInUse, sizes: tuple[int, ...]
    ) -> NcclTestsOfLab:
        """Measure with nccl-tests."""
        from testbed.measure.current_topology import measure_nccl_tests
        from testbed.measure.nccl.launch import NcclSettings, NcclTest

        nics = (nic.name for nic in choice.lab.hosts[0].nics)
        interface_names = tuple(self.interfaces.split(",") if self.interfaces else nics)
        settings = NcclSettings(
            "IB" if self.interfaces else "Socket", interface_names, channels=len(interface_names)
        )
        test = NcclTest(smallest_bytes=sizes[0], largest_bytes=sizes[-1], timeout_s=round(self.deadline_s))
        with self._open(context, choice, host_mode) as (session, run):
            result = measure_nccl_tests(session, choice.design, run, settings, test)
        context.say(choice.format_heading(), *choice.format_warnings(), *choice.describe_unfinished())
        _say_table(context, result.table)
        context.say(*(f"{finding.kind}: {finding.detail}" for finding in result.ring_findings))
        rings = tuple(RingFinding(**asdict(finding)) for finding in result.ring_findings)
        return NcclTestsOfLab(**_make_table_keys(result.table), ring_findings=rings, **describe_epoch(choice))

    @contextmanager
    def _open(
        self, context: CommandContext, choice: DesignChoice, host_mode: HostsInUse
    ) -> Iterator[tuple[LabSession, Run]]:
        """Open the lab, and begin the run that stores its measurements."""
        from testbed.measure.results.store import RunStore

        lab = choice.lab
        with (
            context.open_session(lab, self.hosts, writes_journal=True) as session,
            RunStore(context.runs_dir).begin_run(lab, lab.simulated, host_mode, seeds={}) as run,
        ):
            yield session, run


def _make_table_keys(table: NcclTable) -> dict[str, Any]:
    """Return the fields of `NcclTestsDocument`."""
    from testbed.measure.nccl.table import make_table_document

    fields: dict[str, Any] = make_table_document(table)
    devices = tuple(NcclDevice(**device) for device in fields["config"]["devices"])
    return fields | {
        "config": NcclConfig(devices=devices),
        "results": tuple(_make_size(row) for row in fields["results"]),
        "out_of_bounds": OutOfBounds(**fields["out_of_bounds"]),
        "average_bus_bandwidth": AverageBandwidth(**fields["average_bus_bandwidth"]),
        "problems": table.problems,
    }


def _make_size(row: dict[str, Any]) -> NcclSize:
    timings: dict[str, Any] = {}
    for name in ("out_of_place", "in_place"):
        if row[name] is not None:
            timings[name] = _make_timing(row[name])
        if f"{name}_per_iter" in row:
            timings[f"{name}_per_iter"] = IterationSpread(**row[f"{name}_per_iter"])
    return NcclSize(**{**row, **timings})


def _make_timing(fields: dict[str, Any]) -> NcclTiming:
    if "cpu_time" in fields:
        return NcclCpuTiming(
            time=fields["cpu_time"], **{name: value for name, value in fields.items() if name != "cpu_time"}
        )
    return NcclTiming(**fields)


def _say_table(context: CommandContext, table: NcclTable) -> None:
    from testbed.measure.nccl.table import format_table

    context.say_table("Results of nccl-tests", *format_table(table))
    context.say(*(f"problem: {problem}" for problem in table.problems))
