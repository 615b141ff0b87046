"""`testbed schedule`: hosts and start times of jobs that share a lab, and predicted iteration times.

With `--run` the jobs also run on the hosts of the lab, under each policy in turn, and are measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from testbed.commands.context import CommandContext
from testbed.commands.declare import REQUIRED, Command, argument, option
from testbed.commands.documents import OMIT_NONE, Document, UnfinishedOperation
from testbed.commands.groups import MovingCommand
from testbed.commands.progress import narrate, note_compilation
from testbed.errors import WorkloadError

if TYPE_CHECKING:
    from testbed.design.sharing.cassini import schedule as cassini
    from testbed.design.sharing.jobs import Burst, LabLinks, SharedJob
    from testbed.lab.model import Lab
    from testbed.measure.sharing.policies import Policy


@dataclass(frozen=True, kw_only=True)
class SharedLink:
    """A link that several jobs use, and the score of their best shifts."""

    link: str
    jobs: tuple[str, ...]
    score: float
    score_clamped: float
    proven: bool
    approximate: bool


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A scored placement, and the reason if it was dropped."""

    score: float
    dropped: str | None


@dataclass(frozen=True, kw_only=True)
class JobPrediction:
    """Mean iteration time of a job alone, with fair sharing, and shifted. `slot_ms` is its period when shifted."""

    job: str
    solo_ms: float
    fair_ms: float
    shifted_ms: float
    slot_ms: float


@dataclass(frozen=True, kw_only=True)
class JobMeasurement:
    """Measured iterations of a job under a policy, and the mean that the model predicts for them."""

    job: str
    policy: str
    mean_ms: float
    p99_ms: float
    alignments: int
    retransmits: int
    predicted_ms: float
    computed_ms: float
    iterations_ms: tuple[float, ...]
    difference: float


@dataclass(frozen=True, kw_only=True)
class ScheduleDocument(Document):
    """Hosts, start and predictions of each job, and with `--run` measurements."""

    placement: Mapping[str, tuple[str, ...]]
    starts_ms: Mapping[str, float]
    links: tuple[SharedLink, ...]
    candidates: tuple[Candidate, ...]
    predicted: tuple[JobPrediction, ...]
    notes: tuple[str, ...]
    pictures: tuple[Path, ...]
    run_id: str | None = field(default=None, metadata=OMIT_NONE)
    measured: tuple[JobMeasurement, ...] | None = field(default=None, metadata=OMIT_NONE)
    unfinished: tuple[UnfinishedOperation, ...]


@dataclass(frozen=True, kw_only=True)
class Schedule(MovingCommand, Command[ScheduleDocument]):
    """`testbed schedule`."""

    needs = "nothing"
    role = None
    jobs_file: Annotated[Path, argument("File of jobs (YAML).", "JOBS", is_local=True)] = REQUIRED
    lab_file: Annotated[
        Path,
        option(
            "Lab file; the lab need not run.", "--lab", metavar="LAB", complete="lab_files", is_local=True
        ),
    ] = REQUIRED
    host_scheduler: Annotated[
        str, option("Host scheduler that proposes hosts: themis, pollux or an entry point.", metavar="NAME")
    ] = "themis"
    candidates: Annotated[
        int, option("Score at most this many placements.", metavar="N", least=1, most=100)
    ] = 10
    jobs_per_host: Annotated[int, option("Jobs per host; 0: as few as fit.", metavar="N", least=0)] = 0
    spread: Annotated[bool, option("Give jobs on the same two hosts different circuits.", "--spread")] = False
    quantum_ms: Annotated[float, option("Round times to multiples of this.", metavar="MS", least=0.001)] = 1.0
    bins: Annotated[int, option("Divide circles into N bins; the paper uses 72.", metavar="N", least=0)] = 0
    most_ticks: Annotated[int, option("Maximum ticks of a circle.", metavar="N", least=1)] = 100_000
    time_limit_s: Annotated[
        float,
        option("Time limit for the search on one link.", "--time-limit", metavar="SECONDS", least=0.001),
    ] = 2.0
    out: Annotated[
        Path | None, option("Draw circles and time line in this folder.", metavar="DIR", is_local=True)
    ] = None
    picture: Annotated[Literal["svg", "png"], option("Format of plots.")] = "svg"
    is_run: Annotated[bool, option("Run the jobs on the hosts of the lab, and measure them.", "--run")] = (
        False
    )
    policies: Annotated[
        tuple[str, ...],
        option(
            "With --run (repeatable): fair, weights, shifts, mltcp; default fair, then shifts.",
            "--policy",
            metavar="NAME",
        ),
    ] = ()
    iterations: Annotated[
        int, option("With --run: iterations of each job.", metavar="N", least=1, most=10_000)
    ] = 100
    transport: Annotated[
        Literal["tcp", "udp"],
        option("With --run: TCP of the kernel, or our transport over UDP; mltcp needs UDP."),
    ] = "tcp"
    control: Annotated[Literal["reno", "cubic"], option("With --run: congestion control.")] = "reno"
    weights: Annotated[
        tuple[str, ...],
        option(
            "With --policy weights (repeatable); default: 3 for the first job.", "--weight", metavar="JOB=W"
        ),
    ] = ()
    slope: Annotated[
        float, option("Slope of the function by which MLTCP weighs the bytes sent.", least=0)
    ] = 1.75
    intercept: Annotated[float, option("Intercept of the same function.", least=0.001)] = 0.25
    most_alignments: Annotated[
        int, option("With --run: how often a job may wait for a later slot.", metavar="N", least=0)
    ] = 100
    stagger_ms: Annotated[
        float,
        option(
            "With --run: time between starts without shifts; default: 0, or 1 % of the period with mltcp.",
            metavar="MS",
        ),
    ] = -1.0
    queue: Annotated[
        int, option("With --run: queue of a link; default: 16, or 50 with HTB.", metavar="PACKETS", least=0)
    ] = 0

    def run(self, context: CommandContext) -> ScheduleDocument:
        """Schedule the jobs. Raises `WorkloadError`, and with `--run` errors of measuring."""
        from testbed.design.sharing import placement
        from testbed.design.sharing.cassini.circle import Rounding
        from testbed.design.sharing.cassini.schedule import Scheduler
        from testbed.lab.inventory import load_bare_lab
        from testbed.lab.jobs_file import JobContext, read_jobs

        lab = load_bare_lab(self.lab_file)
        note_compilation("contention")
        lab_links = _read_links(lab, spread=self.spread)
        job_context = JobContext(lab_links.rate_gbps, partial(_load_phases, context.runs_dir), lab_links.nics)
        jobs = read_jobs(self.jobs_file, job_context)
        checkpoint_job_names = [job.name for job in jobs if job.storage]
        if self.is_run and checkpoint_job_names:
            raise WorkloadError(
                f"job {checkpoint_job_names[0]!r} writes checkpoints, which are predicted but do not run on hosts: "
                "leave out --run"
            )
        rounding = Rounding(self.quantum_ms, self.bins, self.most_ticks)
        scheduler = Scheduler(jobs, lab_links, rounding, self.time_limit_s, 8 * self.time_limit_s)
        request = placement.PlacementRequest(jobs, lab_links, self.candidates, self.jobs_per_host)
        schedule = scheduler.schedule(placement.find_candidates(self.host_scheduler, request))
        pictures = self._draw(scheduler, schedule)
        run_id, measurements = (
            self._measure(jobs, schedule, context.runs_dir) if self.is_run else (None, None)
        )
        _say_schedule(context, schedule)
        context.say(*map(str, pictures))
        _say_measurements(context, measurements or ())
        return ScheduleDocument(
            placement=schedule.placement,
            starts_ms=schedule.starts_ms,
            links=tuple(
                SharedLink(
                    link=shared_link.link,
                    jobs=shared_link.jobs,
                    score=shared_link.score,
                    score_clamped=shared_link.clamped_score,
                    proven=shared_link.is_proven,
                    approximate=shared_link.is_approximate,
                )
                for shared_link in schedule.links
            ),
            candidates=tuple(
                Candidate(score=candidate.score, dropped=candidate.dropped or None)
                for candidate in schedule.candidates
            ),
            predicted=tuple(JobPrediction(**asdict(prediction)) for prediction in schedule.predicted),
            notes=schedule.notes,
            pictures=pictures,
            run_id=run_id,
            measured=measurements,
            unfinished=context.say_unfinished_operations(lab),
        )

    def _draw(self, scheduler: cassini.Scheduler, schedule: cassini.Schedule) -> tuple[Path, ...]:
        if self.out is None:
            return ()
        from testbed.design.sharing.pictures import draw_schedule  # Matplotlib

        return tuple(draw_schedule(scheduler, schedule, self.out, self.picture))

    def _measure(
        self, jobs: Sequence[SharedJob], schedule: cassini.Schedule, runs_dir: Path
    ) -> tuple[str, tuple[JobMeasurement, ...]]:
        """Run the schedule on the hosts of the lab. Return the id of the run and its rows."""
        from testbed.measure.sharing.host_run import HostRun, run_on_hosts
        from testbed.measure.sharing.policies import Conditions, convert_cassini_schedule

        conditions = Conditions(
            iterations=self.iterations,
            transport=self.transport,
            control=self.control,
            weights=_parse_weights(self.weights, jobs),
            slope=self.slope,
            intercept=self.intercept,
            most_alignments=self.most_alignments,
            stagger_ms=self.stagger_ms,
            queue=self.queue,
        )
        policies, shifted_schedule = _parse_policies(self.policies), convert_cassini_schedule(schedule)
        host_run = HostRun(jobs, schedule.placement, shifted_schedule, policies, conditions, self.spread)
        with narrate() as narrator:
            run_id, rows = run_on_hosts(self.lab_file, host_run, runs_dir, self.really_move, narrator.note)
        return run_id, tuple(JobMeasurement(**asdict(row), difference=row.prediction_error) for row in rows)


def _load_phases(runs_dir: Path, run_id: str, job: str) -> tuple[float, tuple[Burst, ...]]:
    from testbed.measure.results.store import RunStore
    from testbed.measure.sharing.host_run import read_measured_bursts

    return read_measured_bursts(RunStore(runs_dir), run_id, job)


def _read_links(lab: Lab, *, spread: bool) -> LabLinks:
    from testbed.design.sharing.jobs import LabLinks

    nic_count = min(len(host.nics) for host in lab.hosts)
    host_names = tuple(host.name for host in lab.hosts)
    return LabLinks(host_names, lab.link.represents_gbps, nic_count, spread)


def _parse_policies(names: Sequence[str]) -> list[Policy]:
    """Return the policies with these names, or the default policies. Raises `WorkloadError` for an unknown name."""
    from testbed.measure.sharing.policies import POLICIES

    policies = [policy for name in names or ("fair", "shifts") for policy in POLICIES if policy == name]
    if len(policies) < len(names):
        raise WorkloadError(f"--policy {' '.join(names)}: choose from {', '.join(POLICIES)}")
    return policies


def _parse_weights(texts: Sequence[str], jobs: Sequence[SharedJob]) -> Mapping[str, float]:
    """Parse texts such as `x=3` as weights of jobs. Raises `WorkloadError` for another form or an unknown job."""
    weight_by_job = {}
    for text in texts:
        name, _, value = text.partition("=")
        try:
            weight_by_job[name] = float(value)
        except ValueError:
            weight_by_job[name] = 0.0
        if name not in {job.name for job in jobs} or not weight_by_job[name] > 0:
            names_text = ", ".join(job.name for job in jobs)
            raise WorkloadError(f"--weight {text!r} is not JOB=W with W above 0; jobs are {names_text}")
    return weight_by_job


def _say_schedule(context: CommandContext, schedule: cassini.Schedule) -> None:
    dropped_count = sum(bool(candidate.dropped) for candidate in schedule.candidates)
    context.say(
        f"{len(schedule.candidates)} candidate placements, {dropped_count} with a loop", *schedule.notes
    )
    link_rows = [
        (
            shared_link.link,
            ", ".join(shared_link.jobs),
            f"{shared_link.score:.4f}",
            "yes" if shared_link.is_proven else "not proven",
        )
        for shared_link in schedule.links
    ]
    context.say_table("Shared links", ("link", "jobs", "score", "proven"), link_rows)
    job_rows = [
        (
            prediction.job,
            " ".join(schedule.placement[prediction.job]),
            schedule.starts_ms[prediction.job],
            prediction.solo_ms,
            prediction.fair_ms,
            prediction.shifted_ms,
        )
        for prediction in schedule.predicted
    ]
    columns = ("job", "hosts", "start (ms)", "alone (ms)", "fair (ms)", "shifted (ms)")
    context.say_table("Iteration times, predicted", columns, job_rows)


def _say_measurements(context: CommandContext, rows: Sequence[JobMeasurement]) -> None:
    """Print the measurements as a table, if there are any."""
    if not rows:
        return
    columns = ("job", "policy", "mean (ms)", "predicted (ms)", "p99 (ms)", "alignments", "retransmits")
    cell_rows = [
        (
            row.job,
            row.policy,
            f"{row.mean_ms:.1f}",
            f"{row.predicted_ms:.1f} ({row.difference:+.1%})",
            f"{row.p99_ms:.1f}",
            row.alignments,
            row.retransmits,
        )
        for row in rows
    ]
    context.say_table("Iteration times, measured on hosts", columns, cell_rows)
