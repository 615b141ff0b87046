"""A robot that moves fibres one at a time: its queue, its arm, and what can go wrong with it.

Clients of a robotic patch panel only ask; the arm serves whoever asked first, takes minutes, and may jam.
The panel itself is a `SwitchDevice` without switching time of its own (`TwinSettings.patch_panel`).

    queued -> running -> done | failed       a move; the fibre is dark while the arm has it
    queued -> skipped | failed               already so; or the panel refuses
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
from sim.twins.switch.matrix import Connections, Pair, Refused
from sim.twins.wire.control import Reply, Request, Verb, VerbError

Kind = Literal["connect", "disconnect"]
State = Literal["queued", "running", "done", "failed", "skipped"]
Event = Literal["queued", "running", "done", "failed", "skipped", "jammed", "homing", "homed", "enabled"]

_KEPT_JOBS = 1000


@dataclass(frozen=True, slots=True)
class Job:
    """Request to the robot at one moment. `why` tells why it failed."""

    number: int
    kind: Kind
    pair: Pair
    user: str
    source: str
    state: State = "queued"
    why: str = ""


Listener = Callable[[Event, Job | None], None]


class Robot:
    """One arm over one panel. A move takes `move_s` of the device's clock, a homing run `homing_s`.

    Belongs to one event loop. A power loss stops the arm and fails all jobs; a jam outlasts it.
    """

    def __init__(self, device: SwitchDevice, *, move_s: float, homing_s: float = 60.0) -> None:
        self.device = device
        self.move_s = move_s
        self.homing_s = homing_s
        self.enabled = True
        self.jammed = False
        self.homing = False
        self._numbers = itertools.count(1)
        self._jobs: dict[int, Job] = {}  # the latest, in order of submission
        self._waiting: deque[int] = deque()
        self._running: int | None = None
        self._held: set[int] = set()
        self._moves_before_jam: int | None = None
        self._worker: asyncio.Task[None] | None = None
        self._homing_run: asyncio.Task[None] | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._listeners: list[Listener] = []
        device.call_when_powerless(self._lose_power)

    # -- what may be asked

    @property
    def running(self) -> Job | None:
        """The job under way; the one that got stuck while the arm is jammed."""
        return None if self._running is None else self._jobs[self._running]

    @property
    def queue(self) -> tuple[Job, ...]:
        """The job under way and all that wait, in the order of their turns."""
        turns = ([] if self._running is None else [self._running]) + list(self._waiting)
        return tuple(self._jobs[number] for number in turns)

    def job(self, number: int) -> Job:
        """Return a job as it stands now. Raises `KeyError` when it never was, or ended long ago."""
        return self._jobs[number]

    def listen(self, listener: Listener) -> None:
        """Call `listener(event, job)` for all that happens; homing and enabling concern no job."""
        self._listeners.append(listener)

    async def wait_idle(self) -> None:
        """Return when nothing runs and nothing waits."""
        await self._idle.wait()

    # -- what may be commanded

    def submit(self, kind: Kind, pair: Pair, *, user: str, source: str) -> Job:
        """Put a job at the end of the queue; gives it as queued. Nothing is checked before its turn."""
        job = Job(next(self._numbers), kind, pair, user, source)
        self._jobs[job.number] = job
        self._waiting.append(job.number)
        turns = {job.number for job in self.queue}
        for number in list(self._jobs)[:-_KEPT_JOBS]:  # old ones are forgotten
            if number not in turns:
                del self._jobs[number]
        self._idle.clear()
        self._tell("queued", job)
        self._go()
        return job

    def home(self) -> asyncio.Task[None]:
        """Begin a homing run, after the move under way; it frees a jammed arm and fails its job.

        Execution is disabled from now on, until `enable`. A run that is under way already is given again.
        """
        self.enabled = False
        if self._homing_run is None:
            self._homing_run = self.device.start(self._home())
        return self._homing_run

    def enable(self) -> None:
        """Execute jobs again. A jammed arm does not move for that."""
        self.enabled = True
        self._tell("enabled", None)
        self._go()

    def jam_after(self, moves: int | None) -> None:
        """Jam the arm in the middle of a move, after `moves` more of them; None calls it off."""
        self._moves_before_jam = moves

    # -- for the control socket

    def verbs(self) -> Mapping[str, Verb]:
        """Return verbs of the control socket: another user's job, and how the robot is."""
        return {
            "queue_job": self._queue_job,
            "robot": lambda _: {
                "queue": [asdict(job) for job in self.queue],
                "jammed": self.jammed,
                "homing": self.homing,
                "enabled": self.enabled,
            },
        }

    def faults(self) -> Mapping[str, Fault]:
        """Return faults of the control socket: `jam`, after `count` more moves."""
        return {
            "jam": Fault(
                lambda request: self.jam_after(request.whole("count", 0)), lambda _: self._unjam(), "count"
            )
        }

    def _queue_job(self, request: Request) -> Reply:
        kind: Kind = "disconnect" if request["kind"] == "disconnect" else "connect"
        if kind != request["kind"]:
            raise VerbError(f"field 'kind' must be connect or disconnect, not {request['kind']!r}")
        user = request.text("user") if "user" in request else "operator"
        source = request.text("source") if "source" in request else "GUI"
        return {"job": asdict(self.submit(kind, request.pair("pair"), user=user, source=source))}

    def _unjam(self) -> None:
        """Clear the jam, or free the arm as a technician does by hand."""
        self.jam_after(None)
        self._free("freed by hand")
        self._go()

    # -- the arm

    def _go(self) -> None:
        if self._may_move() and (self._worker is None or self._worker.done()):
            self._worker = self.device.start(self._work())

    def _may_move(self) -> bool:
        free = self.enabled and not self.jammed and self._homing_run is None
        return free and bool(self._waiting)

    async def _work(self) -> None:
        while self._may_move():
            await self._perform(self._jobs[self._waiting.popleft()])
            if not self.queue:
                self._idle.set()

    async def _perform(self, job: Job) -> None:
        try:
            touched = self.device.matrix.connections.items() ^ self._after(job).items()
        except Refused as refusal:
            self._end(job, "failed", str(refusal))
            return
        if not touched:
            self._end(job, "skipped")
            return
        self._running = job.number
        self._tell("running", self._note(job, "running"))
        for source in {source for source, _ in touched}:
            self._held.add(source)
            self.device.hold(source)
        await self._move(job)

    async def _move(self, job: Job) -> None:
        rest_s = self.move_s
        if self._moves_before_jam == 0:
            rest_s = self.move_s / 2
            await self.device.clock.sleep(self.move_s - rest_s)
            if self._moves_before_jam == 0:  # nobody has called it off meanwhile
                self._moves_before_jam = None
                self.jammed = True
                self.device.faults.fired["jam"] += 1
                self._tell("jammed", self._jobs[job.number])
                return
        elif self._moves_before_jam is not None:
            self._moves_before_jam -= 1
        await self.device.clock.sleep(rest_s)
        await self._plug(job)

    async def _plug(self, job: Job) -> None:
        """Plug the fibre where it belongs, with its light."""
        try:
            settling = self.device.change(self._after(job))
        except Refused as refusal:  # somebody has changed the panel meanwhile
            self._let_go()
            self._end(job, "failed", str(refusal))
            return
        self._let_go()
        if settling:
            await settling
        self._end(job, "done")

    def _after(self, job: Job) -> Connections:
        """Return the connections when a job is done. Raises `Refused`."""
        (source, output), matrix = job.pair, self.device.matrix
        if job.kind == "connect":
            return matrix.add([source], [output])
        return matrix.without([source], [output])

    def _let_go(self) -> None:
        while self._held:
            self.device.release(self._held.pop())

    # -- breakdowns

    def _free(self, why: str) -> None:
        """Put the fibre back where it was; the job that got stuck has failed."""
        if not self.jammed:
            return
        self.jammed = False
        self._let_go()
        if (job := self.running) is not None:
            self._end(job, "failed", why)

    async def _home(self) -> None:
        if self._worker is not None and not self._worker.done():
            await asyncio.wait({self._worker})
        self.homing = True
        self._tell("homing", None)
        await self.device.clock.sleep(self.homing_s)
        self._free("the arm was jammed")
        self.homing = self.enabled = False
        self._homing_run = None  # before the news: who hears it may enable at once
        self._tell("homed", None)

    def _lose_power(self) -> None:
        """Stop the arm; what it held is plugged back by whoever comes first."""
        self.homing, self.enabled = False, True
        self._worker = self._homing_run = None
        self._let_go()
        lost = self.queue
        self._waiting.clear()
        for job in lost:
            self._end(job, "failed", "the power went")

    # -- books

    def _note(self, job: Job, state: State, why: str = "") -> Job:
        self._jobs[job.number] = replace(job, state=state, why=why)
        return self._jobs[job.number]

    def _end(self, job: Job, state: Literal["done", "failed", "skipped"], why: str = "") -> None:
        if self._running == job.number:
            self._running = None
        self._tell(state, self._note(job, state, why))
        if not self.queue:
            self._idle.set()

    def _tell(self, event: Event, job: Job | None) -> None:
        for listener in self._listeners:
            listener(event, job)
