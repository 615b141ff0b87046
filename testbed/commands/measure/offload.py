"""`testbed offload profile|explain`: measure an input pipeline, and decide which part to offload."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from testbed.commands.context import CommandContext
from testbed.commands.declare import REQUIRED, Command, argument, option
from testbed.commands.documents import OMIT_NONE, Document
from testbed.commands.progress import narrate

if TYPE_CHECKING:
    from testbed.offload.policy import Decision


@dataclass(frozen=True, kw_only=True)
class DecisionDocument(Document):
    """A decision: the candidate to offload (or None), its fraction of the data, its workers, and the reasons."""

    choice: str | None
    ratio: float
    workers: int
    reasons: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class CandidateRates:
    """A candidate: samples per second from workers, and the trainer's processor time per sample with it."""

    rthp: float
    ocycle: float


@dataclass(frozen=True, kw_only=True)
class ProfileDocument(Document):
    """A profile of a pipeline and its decision. Rates are in samples/s, processor times in seconds per sample."""

    gthp: float
    lthp: float
    pcycle: float
    candidates: dict[str, CandidateRates]
    measured_workers: int
    choice: str | None
    ratio: float
    workers: int
    reasons: tuple[str, ...]
    stall_before: float
    stall_after: float
    rate_after: float
    profiling_s: float
    profiling_share: float
    key: str
    jobs: tuple[str, ...]
    simulated: bool
    report: str | None = field(default=None, metadata=OMIT_NONE)

    def format_lines(self) -> Iterator[str]:
        """Yield the document for people."""
        suffix = "  SIMULATED: the step is a timed wait" if self.simulated else ""
        if self.choice is None:
            yield f"no offload: run all on the trainer{suffix}"
        else:
            yield f"run {self.choice} at ratio {self.ratio:.2f}; workers needed: {self.workers}{suffix}"
        yield from (f"  {reason}" for reason in self.reasons)
        yield (
            f"before: {self.lthp:,.0f} samples per second, the trainer waits {self.stall_before:.0%} of the time;"
            f" after: {self.rate_after:,.0f} samples per second, it waits {self.stall_after:.0%}"
        )
        yield f"profiling took {self.profiling_s:.1f} s, {self.profiling_share:.1%} of the training"


@dataclass(frozen=True, kw_only=True)
class OffloadProfile(Command[ProfileDocument]):
    """`testbed offload profile`."""

    needs = "nothing"
    role = None
    script: Annotated[
        str,
        argument(
            "Python file with `dataset` and `step`, or a workload: digits, images, speech, text.", "SCRIPT"
        ),
    ] = REQUIRED
    scheduler: Annotated[
        str | None, option("Dask scheduler to use, e.g. tcp://10.0.0.1:8786.", metavar="ADDRESS")
    ] = None
    lab: Annotated[
        Path | None,
        option(
            "Start workers on the hosts of a lab, on its management network.", metavar="LAB", is_local=True
        ),
    ] = None
    workers: Annotated[
        int | None,
        option("Number of workers to start: here, or on the first N hosts of --lab.", metavar="N", least=1),
    ] = None
    in_process: Annotated[
        bool, option("Run workers as threads of this process, to try a script.", "--in-process")
    ] = False
    config: Annotated[
        Path | None, option("Settings in YAML; see the documentation.", metavar="FILE", is_local=True)
    ] = None
    out: Annotated[
        Path | None,
        option("Folder for profile.json, report.html and rates.png.", metavar="DIR", is_local=True),
    ] = None

    def run(self, context: CommandContext) -> ProfileDocument:
        """Measure the pipeline and decide. Raises `OffloadError`."""
        from testbed.offload.configuration import Choice, read_configuration
        from testbed.offload.session import profile_script

        worker_choice = Choice(
            self.scheduler, self.lab, self.workers, in_process=self.in_process, runs=context.runs_dir
        )
        with narrate() as narrator:
            profile, is_simulated = profile_script(
                self.script, read_configuration(self.config), worker_choice, narrator
            )
        report_path = None
        if self.out is not None:
            from testbed.offload.report import write_report

            report_path = str(write_report(self.out, profile, self.script, is_simulated=is_simulated))
        metrics = profile.metrics
        document = ProfileDocument(
            gthp=metrics.gthp,
            lthp=metrics.lthp,
            pcycle=metrics.pcycle,
            candidates={
                name: CandidateRates(rthp=rates.rthp, ocycle=rates.ocycle)
                for name, rates in metrics.candidates.items()
            },
            measured_workers=metrics.workers,
            **asdict(_make_decision_document(profile.decision)),
            stall_before=profile.stall_before,
            stall_after=profile.stall_after,
            rate_after=profile.rate_after,
            profiling_s=profile.profiling_s,
            profiling_share=profile.profiling_share,
            key=profile.key,
            jobs=tuple(sorted(profile.jobs)),
            simulated=is_simulated,
            report=report_path,
        )
        context.say(*document.format_lines())
        return document


@dataclass(frozen=True, kw_only=True)
class OffloadExplain(Command[DecisionDocument]):
    """`testbed offload explain`."""

    needs = "nothing"
    role = None
    has_runs_dir = False
    file: Annotated[
        Path, argument("profile.json of `testbed offload profile`.", "PROFILE", is_local=True)
    ] = REQUIRED
    threshold: Annotated[
        float | None, option("Decide again with this minimum speed-up; default: 1.1.", least=1)
    ] = None

    def run(self, context: CommandContext) -> DecisionDocument:
        """Decide again from a stored profile. Raises `OffloadError`."""
        from testbed.offload.policy import MIN_SPEEDUP, decide
        from testbed.offload.store import read_profile

        threshold = MIN_SPEEDUP if self.threshold is None else self.threshold
        document = _make_decision_document(decide(read_profile(self.file).metrics, threshold))
        choice_text = (
            f"run {document.choice} at ratio {document.ratio:.2f}"
            if document.choice
            else "no offload: run all on the trainer"
        )
        context.say(choice_text, *(f"  {reason}" for reason in document.reasons))
        return document


def _make_decision_document(decision: Decision) -> DecisionDocument:
    return DecisionDocument(
        choice=decision.candidate,
        ratio=decision.ratio,
        workers=decision.workers,
        reasons=tuple(decision.reasons),
    )
