"""The robot of a patch panel, with its job queue, its arm and its failures.

Clients of a robotic patch panel submit jobs. The arm executes them in order of submission and moves one fibre at a
time. A move takes minutes, and the arm may jam. The panel itself is a `SwitchDevice` with a switching time of zero
(`TwinSettings.make_patch_panel`).

    queued -> running -> done | failed       a move; the fibre is dark while the arm holds it
    queued -> skipped                        there is nothing to change
    queued -> failed                         the panel refuses the change
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Literal

from sim.twins.switch.device import SwitchDevice
from sim.twins.switch.fault_list import Fault
from sim.twins.switch.matrix import Connections, MatrixRefusal, Pair
from sim.twins.wire.control import Reply, Request, Verb, VerbError

JobKind = Literal["connect", "disconnect"]
JobState = Literal["queued", "running", "done", "failed", "skipped"]
Event = Literal["queued", "running", "done", "failed", "skipped", "jammed", "homing", "homed", "enabled"]

_MAX_JOBS = 1000


@dataclass(frozen=True, slots=True)
class Job:
    """Snapshot of a job of the robot. `why` is the reason for a failure; for other states it is empty."""

    number: int
    kind: JobKind
    pair: Pair
    user: str
    source: str
    state: JobState = "queued"
    why: str = ""


RobotListener = Callable[[Event, Job | None], None]


class Robot:
    """The arm of one panel. On the device's clock, a move takes `move_s` and a homing run takes `homing_s`.

    Use a robot from one event loop only. A power loss stops the arm and fails all jobs, but does not end a jam.
    """

    def __init__(self, device: SwitchDevice, *, move_s: float, homing_s: float = 60.0) -> None:
        self.device = device
        self.move_s = move_s
        self.homing_s = homing_s
        self.is_enabled = True
        self.is_jammed = False
        self.is_homing = False
        self._job_numbers = itertools.count(1)
        self._jobs: dict[int, Job] = {}  # in order of submission; old ones are removed
        self._waiting_numbers: deque[int] = deque()
        self._running_number: int | None = None
        self._gripped_inputs: set[int] = set()
        self._moves_before_jam: int | None = None
        self._worker: asyncio.Task[None] | None = None
        self._homing_run: asyncio.Task[None] | None = None
        self._idle_event = asyncio.Event()
        self._idle_event.set()
        self._listeners: list[RobotListener] = []
        device.call_at_power_loss(self._stop_at_power_loss)

    # -- queries

    @property
    def running_job(self) -> Job | None:
        """The current job, or None. While the arm is jammed, this is the stuck job."""
        return None if self._running_number is None else self._jobs[self._running_number]

    @property
    def queue(self) -> tuple[Job, ...]:
        """The current job, followed by the waiting jobs in order of execution."""
        queued_numbers = ([] if self._running_number is None else [self._running_number]) + list(
            self._waiting_numbers
        )
        return tuple(self._jobs[number] for number in queued_numbers)

    def find_job(self, number: int) -> Job:
        """Return a snapshot of a job. Raise `KeyError` if the job never existed or was removed.

        The robot keeps at least the latest 1000 jobs.
        """
        return self._jobs[number]

    def add_listener(self, listener: RobotListener) -> None:
        """Call `listener(event, job)` at every event. `job` is None for homing and enabling."""
        self._listeners.append(listener)

    async def wait_idle(self) -> None:
        """Wait until no job is running or queued."""
        await self._idle_event.wait()

    # -- commands

    def submit_job(self, kind: JobKind, pair: Pair, *, user: str, source: str) -> Job:
        """Append a job to the queue, and return the job. The robot checks the ports only when the job starts."""
        job = Job(next(self._job_numbers), kind, pair, user, source)
        self._jobs[job.number] = job
        self._waiting_numbers.append(job.number)
        queued_numbers = {job.number for job in self.queue}
        for number in list(self._jobs)[:-_MAX_JOBS]:  # bound the memory; jobs in the queue stay
            if number not in queued_numbers:
                del self._jobs[number]
        self._idle_event.clear()
        self._notify("queued", job)
        self._start_worker()
        return job

    def start_homing(self) -> asyncio.Task[None]:
        """Start a homing run, or join the active one, and return its task. No job starts until `enable_jobs` is called.

        The run waits for the current move. If the arm is jammed, the run frees the arm and fails the stuck job.
        """
        self.is_enabled = False
        if self._homing_run is None:
            self._homing_run = self.device.start_motion(self._run_homing())
        return self._homing_run

    def enable_jobs(self) -> None:
        """Resume the execution of jobs. A jammed arm stays jammed."""
        self.is_enabled = True
        self._notify("enabled", None)
        self._start_worker()

    def jam_after_moves(self, move_count: int | None) -> None:
        """Jam the arm in the middle of a move, after `move_count` further complete moves. None cancels the fault."""
        self._moves_before_jam = move_count

    # -- for the control socket

    def make_verbs(self) -> Mapping[str, Verb]:
        """Return the verbs of the control socket: `queue_job` submits a job for any user, `robot` returns the state."""
        return {
            "queue_job": self._queue_job,
            "robot": lambda _: {
                "queue": [asdict(job) for job in self.queue],
                "jammed": self.is_jammed,
                "homing": self.is_homing,
                "enabled": self.is_enabled,
            },
        }

    def list_faults(self) -> Mapping[str, Fault]:
        """Return the fault `jam` by its name. It jams the arm after `count` further moves."""
        return {
            "jam": Fault(
                lambda request: self.jam_after_moves(request.get_integer("count", 0)),
                lambda _: self._clear_jam(),
                "count",
            )
        }

    def _queue_job(self, request: Request) -> Reply:
        kind: JobKind = "disconnect" if request["kind"] == "disconnect" else "connect"
        if kind != request["kind"]:
            raise VerbError(f"field 'kind' must be connect or disconnect, not {request['kind']!r}")
        user = request.get_text("user") if "user" in request else "operator"
        source = request.get_text("source") if "source" in request else "GUI"
        return {"job": asdict(self.submit_job(kind, request.get_pair("pair"), user=user, source=source))}

    def _clear_jam(self) -> None:
        """Cancel a planned jam. Free a jammed arm, as a technician does by hand, and fail the stuck job."""
        self.jam_after_moves(None)
        self._free_arm("freed by hand")
        self._start_worker()

    # -- the arm

    def _start_worker(self) -> None:
        if self._may_move() and (self._worker is None or self._worker.done()):
            self._worker = self.device.start_motion(self._execute_jobs())

    def _may_move(self) -> bool:
        is_ready = self.is_enabled and not self.is_jammed and self._homing_run is None
        return is_ready and bool(self._waiting_numbers)

    async def _execute_jobs(self) -> None:
        while self._may_move():
            await self._perform_job(self._jobs[self._waiting_numbers.popleft()])
            if not self.queue:
                self._idle_event.set()

    async def _perform_job(self, job: Job) -> None:
        try:
            changed_pairs = self.device.matrix.connections.items() ^ self._compute_result(job).items()
        except MatrixRefusal as refusal:
            self._finish_job(job, "failed", str(refusal))
            return
        if not changed_pairs:
            self._finish_job(job, "skipped")
            return
        self._running_number = job.number
        self._notify("running", self._record_state(job, "running"))
        for source in {source for source, _ in changed_pairs}:
            self._gripped_inputs.add(source)
            self.device.unplug(source)
        await self._move_fibre(job)

    async def _move_fibre(self, job: Job) -> None:
        remaining_s = self.move_s
        if self._moves_before_jam == 0:
            remaining_s = self.move_s / 2
            await self.device.clock.sleep(self.move_s - remaining_s)
            if self._moves_before_jam == 0:  # the fault may have been cleared meanwhile
                self._moves_before_jam = None
                self.is_jammed = True
                self.device.faults.fire_counts["jam"] += 1
                self._notify("jammed", self._jobs[job.number])
                return
        elif self._moves_before_jam is not None:
            self._moves_before_jam -= 1
        await self.device.clock.sleep(remaining_s)
        await self._plug_fibre(job)

    async def _plug_fibre(self, job: Job) -> None:
        """Plug the fibre in at its new place, and finish the job: as done, or as failed if the panel refuses."""
        try:
            motion = self.device.change_connections(self._compute_result(job))
        except MatrixRefusal as refusal:  # the panel was changed meanwhile, by another command
            self._release_fibres()
            self._finish_job(job, "failed", str(refusal))
            return
        self._release_fibres()
        if motion:
            await motion
        self._finish_job(job, "done")

    def _compute_result(self, job: Job) -> Connections:
        """Return the connections after a job. Raise `MatrixRefusal` if the panel refuses the job."""
        (source, output), matrix = job.pair, self.device.matrix
        if job.kind == "connect":
            return matrix.plan_connections([source], [output])
        return matrix.plan_removal([source], [output])

    def _release_fibres(self) -> None:
        while self._gripped_inputs:
            self.device.plug_in(self._gripped_inputs.pop())

    # -- failures

    def _free_arm(self, reason: str) -> None:
        """Free a jammed arm: plug the fibre in at its old place, and fail the stuck job."""
        if not self.is_jammed:
            return
        self.is_jammed = False
        self._release_fibres()
        if (job := self.running_job) is not None:
            self._finish_job(job, "failed", reason)

    async def _run_homing(self) -> None:
        if self._worker is not None and not self._worker.done():
            await asyncio.wait({self._worker})
        self.is_homing = True
        self._notify("homing", None)
        await self.device.clock.sleep(self.homing_s)
        self._free_arm("the arm was jammed")
        self.is_homing = self.is_enabled = False
        self._homing_run = None  # before the event: a listener may call `enable_jobs` at once
        self._notify("homed", None)

    def _stop_at_power_loss(self) -> None:
        """Stop the arm, plug its fibres in at their old places, and fail all jobs."""
        self.is_homing, self.is_enabled = False, True
        self._worker = self._homing_run = None
        self._release_fibres()
        failed_jobs = self.queue
        self._waiting_numbers.clear()
        for job in failed_jobs:
            self._finish_job(job, "failed", "the power went")

    # -- job records

    def _record_state(self, job: Job, state: JobState, reason: str = "") -> Job:
        self._jobs[job.number] = replace(job, state=state, why=reason)
        return self._jobs[job.number]

    def _finish_job(self, job: Job, state: Literal["done", "failed", "skipped"], reason: str = "") -> None:
        if self._running_number == job.number:
            self._running_number = None
        self._notify(state, self._record_state(job, state, reason))
        if not self.queue:
            self._idle_event.set()

    def _notify(self, event: Event, job: Job | None) -> None:
        for listener in self._listeners:
            listener(event, job)
