"""`testbed demo`: patch, verify, measure, patch again, try a board and report, in one command."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from testbed.commands.context import CommandContext
from testbed.commands.declare import Command, option
from testbed.commands.documents import EXIT_CHANGES, EXIT_DONE, Document, UnfinishedOperation
from testbed.commands.groups import DEADLINE_OPTION, RATE_OPTION, SIZES_OPTION, HostsCommand, MovingCommand
from testbed.commands.progress import narrate

if TYPE_CHECKING:
    from testbed.lab.model import Lab
    from testbed.measure.gain import RingGain
    from testbed.measure.inference import InferenceTrial
    from testbed.measure.job import JobResult, Narrator
    from testbed.measure.model import Timing
    from testbed.measure.results.records import Inference, Repatch

CPU_NOTE = ", limited by the hosts' CPU"


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Capacity of a machine to carry packets: see `testbed.lab.simulated.link_rate.Machine`."""

    processors: float
    free: float
    copy_mbps: float


@dataclass(frozen=True, kw_only=True)
class LinkRate:
    """The actual rate of the links, the rate in the lab file, and the rate that the machine can carry on every NIC."""

    rate_mbps: float
    asked_mbps: float
    carried_mbps: float
    machine: Machine


@dataclass(frozen=True, kw_only=True)
class InferenceLatency:
    """Quantiles of the latency of inference requests, as the host sees it, in microseconds."""

    min: float
    median: float
    p99: float
    max: float


@dataclass(frozen=True, kw_only=True)
class InferenceOutcome:
    """Requests of a host to a board: see `testbed.measure.results.records.Inference`. `picture` is a path."""

    model: str
    host: str
    board: str
    circuits: tuple[str, ...]
    requests: int
    answered: int
    wrong: int
    lost: int
    repeated: int
    refused: Mapping[str, int]
    latency_us: InferenceLatency | None
    cycles: int | None
    picture: str
    error: str


@dataclass(frozen=True, kw_only=True)
class DemoDocument(Document):
    """The demo's run, the bus bandwidth of one ring and of all, a board's answers, and the report."""

    run_id: str
    lab: str
    simulated: bool
    links: int
    verified: bool
    hosts: str
    rate_mbps: float
    represents_gbps: float
    link_rate: LinkRate | None
    busbw_mbps: dict[str, float]
    busbw_spread_mbps: dict[str, tuple[float, float]]
    ratio: float | None
    ratio_spread: tuple[float, float] | None
    ratio_limit: int | None
    cpu_limited: bool | None
    inference: InferenceOutcome | None
    report: str
    unfinished: tuple[UnfinishedOperation, ...]

    @property
    def exit_code(self) -> int:
        """2 if a board did not answer every request as expected."""
        inference = self.inference
        return (
            EXIT_CHANGES
            if inference and (inference.answered < inference.requests or inference.wrong)
            else EXIT_DONE
        )


@dataclass(frozen=True, kw_only=True)
class Demo(MovingCommand, HostsCommand, Command[DemoDocument]):
    """`testbed demo`."""

    role = None
    sizes: Annotated[str, SIZES_OPTION] = "1KiB:8MiB"
    rate_mbps: Annotated[float | None, RATE_OPTION] = None
    deadline_s: Annotated[float, DEADLINE_OPTION] = 240.0
    inference: Annotated[
        Path | None,
        option(
            "Also try the lab's first board: it runs MODEL, and a host sends it requests.",
            metavar="MODEL.lng",
            is_local=True,
            must_exist=True,
        ),
    ] = None
    requests: Annotated[
        int, option("Inference requests to the board.", metavar="N", least=1, most=1_000_000)
    ] = 100

    def run(self, context: CommandContext) -> DemoDocument:
        """Run the whole demo. Raises `LabFileError`, `RefusedToMove`, `VerifyFailed` and `CollectiveError`."""
        from testbed.lab.simulated.lifecycle import set_link_rate
        from testbed.measure.collectives.spec import parse_sizes
        from testbed.measure.job import run_job

        # The second job is small, so it is planned without compiling the simulator, which takes half a minute.
        os.environ.setdefault("NUMBA_DISABLE_JIT", "1")
        lab = set_link_rate(context.lab, self.rate_mbps)
        if self.inference:
            lab = self._choose_program(lab, self.inference)
        if not (lab.simulated or context.is_quiet or self.really_move == lab.name):
            _say_plan(context, lab)
        with narrate() as narrator:
            trial = self._prepare(lab, self.inference, narrator) if self.inference else None
            result = run_job(
                lab,
                hosts=self.hosts,
                sizes=parse_sizes(self.sizes),
                runs_dir=context.runs_dir,
                narrator=narrator,
                deadline_s=self.deadline_s,
                really_move=self.really_move,
                trial=trial,
            )
        prefix = "SIMULATED " if result.lab.simulated else ""
        model_note = ", hosts only modelled" if result.hosts_in_use == "model" else ""
        title = f"{prefix}AllReduce on {result.lab.name}{model_note}"
        context.say_table(title, _COLUMNS, [_make_cells(row) for row in result.timings])
        context.say(*_describe_result(result))
        return _make_document(result, context.say_unfinished_operations(lab))

    def _choose_program(self, lab: Lab, model: Path) -> Lab:
        """Return the lab whose board runs the model. Raises `InferenceError`, and `UsageError` for modelled hosts."""
        from testbed.errors import UsageError
        from testbed.measure.inference import make_lab_with_model

        if lab.simulated and self.hosts == "model":
            raise UsageError("--inference needs hosts that send packets: modelled hosts send none")
        return make_lab_with_model(lab, model)

    def _prepare(self, lab: Lab, model: Path, narrator: Narrator) -> InferenceTrial:
        """Make the requests. Check first that the lab may be changed, because the first picture takes a minute."""
        from testbed.measure.inference import prepare_trial
        from testbed.operate.apply import check_permission

        check_permission(lab, self.really_move)
        narrator.phase(f"Requests for {model.name}, and the path of one through the smartNIC")
        return prepare_trial(lab, model, self.requests, narrator.note)


def _say_plan(context: CommandContext, lab: Lab) -> None:
    """Print the changes that the demo would make on a real lab, before the demo is refused."""
    from testbed.operate.design import build_design
    from testbed.operate.plan import describe_plan
    from testbed.operate.session import open_lab

    with open_lab(lab, None, model_hosts=True) as session:
        context.say(*describe_plan(lab, session.plan(build_design(lab))))


def _make_document(result: JobResult, unfinished: tuple[UnfinishedOperation, ...]) -> DemoDocument:
    gain, link = result.ring_gain, result.lab.link
    rows = (gain.one_ring_timing, gain.many_rings_timing) if gain else ()
    return DemoDocument(
        run_id=result.run_id,
        lab=result.lab.name,
        simulated=result.lab.simulated,
        links=result.link_count,
        verified=result.is_verified,
        hosts=result.hosts_in_use,
        rate_mbps=link.rate_mbps,
        represents_gbps=link.represents_gbps,
        link_rate=_describe_link_rate(result),
        busbw_mbps={_make_timing_key(row): row.busbw_mbps for row in rows},
        busbw_spread_mbps={_make_timing_key(row): row.busbw_spread_mbps for row in rows},
        ratio=gain.bandwidth_ratio if gain else None,
        ratio_spread=gain.ratio_bounds if gain else None,
        ratio_limit=gain.many_rings_timing.rings if gain else None,
        cpu_limited=gain.is_cpu_limited if gain else None,
        inference=_describe_inference(result),
        report=str(result.report),
        unfinished=unfinished,
    )


def _describe_link_rate(result: JobResult) -> LinkRate | None:
    if (rate := result.link_rate) is None:
        return None
    machine = Machine(
        processors=rate.machine.processors, free=rate.machine.free, copy_mbps=rate.machine.copy_mbps
    )
    return LinkRate(
        rate_mbps=rate.rate_mbps,
        asked_mbps=rate.asked_mbps,
        carried_mbps=rate.carried_mbps,
        machine=machine,
    )


def _describe_inference(result: JobResult) -> InferenceOutcome | None:
    if (inference := result.inference) is None:
        return None
    latency = InferenceLatency(**asdict(inference.latency_us)) if inference.latency_us else None
    picture = str(result.directory / inference.picture) if inference.picture else ""
    return InferenceOutcome(**asdict(inference) | {"latency_us": latency, "picture": picture})


def _make_timing_key(timing: Timing) -> str:
    return timing.configuration.replace(" ", "_")


def _describe_ring_gain(gain: RingGain) -> str:
    """Describe the gain of all rings over one, or say that the hosts' CPU limits the measurement."""
    from testbed.measure.units import format_size

    all_rings_timing, one_ring_timing = gain.many_rings_timing, gain.one_ring_timing
    size_text = format_size(all_rings_timing.size_bytes)
    comparison_text = f"{all_rings_timing.configuration} over {one_ring_timing.configuration} at {size_text}"
    min_ratio, max_ratio = gain.ratio_bounds
    if gain.is_cpu_limited:
        return (
            f"{comparison_text}: limited by the hosts' CPU (measured {gain.bandwidth_ratio:.2f}x, of links that allow "
            f"{all_rings_timing.rings}x); "
            "leave the machine to the demo, or lower the links' rate with --rate-mbps"
        )
    return (
        f"{comparison_text}: {gain.bandwidth_ratio:.2f}x ({min_ratio:.2f} to {max_ratio:.2f} by quartiles; the links "
        f"allow {all_rings_timing.rings}x)"
    )


def _describe_limit(row: Timing) -> str:
    if row.cpu_limited:
        return "host CPU"
    return "link" if row.busbw_mbps > 0.9 * row.limit_mbps else "latency"


_COLUMNS = (
    "topology",
    "configuration",
    "size (B)",
    "time (us)",
    "quartiles (us)",
    "busbw (Mbit/s)",
    "link limit",
    "bound by",
)


def _make_cells(row: Timing) -> tuple[object, ...]:
    quartiles_text = f"{row.low_us:.0f} to {row.high_us:.0f}"
    labels = (row.topology, row.configuration, row.size_bytes)
    return *labels, row.time_us, quartiles_text, row.busbw_mbps, row.limit_mbps, _describe_limit(row)


def _describe_result(result: JobResult) -> Iterator[str]:
    link = result.lab.link
    if result.lab.simulated:
        yield f"scale: {link.rate_mbps:g} Mbit/s stands for {link.represents_gbps:g} Gb/s ({link.scale:g}x)"
    if result.link_rate and result.link_rate.is_lowered:
        yield result.link_rate.describe()
    if result.ring_gain:
        yield _describe_ring_gain(result.ring_gain)
    if result.repatch:
        yield from _describe_repatch(result.repatch)
    if result.inference:
        yield from _describe_inference_result(result.inference)
    yield f"report: {result.report}"
    yield f"next: open it, then `testbed runs`, `testbed report {result.run_id}`, `testbed sim up LAB`"


def _describe_repatch(repatch: Repatch) -> Iterator[str]:
    yield f"re-patch: {repatch.reason}"
    stall_text = f", TCP stalled {repatch.stall_s * 1e3:.0f} ms" if repatch.stall_s is not None else ""
    yield f"  dark for {repatch.outage_s * 1e3:.0f} ms{stall_text}"
    for comparison in repatch.comparisons:
        note = CPU_NOTE if comparison.cpu_limited else ""
        yield (
            f"  {comparison.label}: {comparison.before:.4g} -> {comparison.after:.4g} {comparison.unit} "
            f"({comparison.gain:.2f}x{note})"
        )


def _describe_inference_result(inference: Inference) -> Iterator[str]:
    failure_texts = [
        *([f"{inference.wrong} wrong"] if inference.wrong else []),
        *(
            [f"{inference.lost} lost{f' ({inference.error})' if inference.error else ''}"]
            if inference.lost
            else []
        ),
        *(f"{count} refused as {name}" for name, count in inference.refused.items()),
    ]
    outcome = ", ".join(failure_texts) or "all as expected"
    yield (
        f"inference: {inference.answered} of {inference.requests} requests answered over "
        f"{inference.circuits[0]}: {outcome}"
    )
    if inference.latency_us:
        latency = inference.latency_us
        yield (
            f"  latency {latency.median:,.0f} us (median), {latency.p99:,.0f} us (p99); {inference.cycles:,} "
            "cycles of the "
            "board"
        )
