"""The frame behind the command line: what is locked, and what its arm is asked to do.

A port has a number from 0, an input and an output; here ports are the simulator's own (inputs 1..N, outputs
N+1..2N), and `sides` translates. A finished circuit is locked at both ends; `unlock` opens them, and they are
locked again when the next circuit on them is finished, be it the one that is there: the public driver connects without
a look at what is there, and waits for a circuit that is allocated and locked. A port without a circuit is locked only
when somebody reserved it (the fault `lock_port`).
"""

from __future__ import annotations

from sim.twins.frontends.cli import CommandError
from sim.twins.switch.device import Change, SwitchDevice
from sim.twins.switch.matrix import Pair, Refused
from sim.twins.switch.robot import Event, Job, Robot


class Frame:
    """One frame with one arm.

    `simplex_unlock`: one direction of a port may be unallocated by itself. `unallocates_queued`: a circuit that the
    arm has yet to make may be unallocated, which the arm then does after it.
    """

    def __init__(
        self, device: SwitchDevice, robot: Robot, *, simplex_unlock: bool, unallocates_queued: bool = False
    ) -> None:
        self.device = device
        self.robot = robot
        self.unlocked: set[int] = set()
        self._simplex_unlock = simplex_unlock
        self._unallocates_queued = unallocates_queued
        device.listen(self._lock_again)
        robot.listen(self._lock_unmoved)

    @property
    def size(self) -> int:
        """Number of ports."""
        return self.device.matrix.inputs

    def source(self, number: int) -> int:
        """Return the input of port `number`. Raises `CommandError` when there is no such port."""
        if number >= self.size:
            raise CommandError(f"port {number} does not exist; ports are 0 to {self.size - 1}")
        return number + 1

    def output(self, number: int) -> int:
        """Return the output of port `number`. Raises `CommandError`."""
        return self.source(number) + self.size

    def sides(self, number: int) -> tuple[int, int]:
        """Input and output of port `number`. Raises `CommandError`."""
        return self.source(number), self.output(number)

    def number(self, port: int) -> int:
        """Return the number of the port that an input or output belongs to."""
        return (port - 1) % self.size

    def is_locked(self, port: int) -> bool:
        """Return True if an input or output is locked now."""
        if self.device.matrix.peer(port) is None:
            return port in self.device.matrix.locked
        return port not in self.unlocked

    def job_for(self, output: int) -> Job | None:
        """Return the job that waits for the arm at an output."""
        return next((job for job in self.robot.queue if job.pair[1] == output), None)

    # -- what may be commanded

    def unlock(self, *ports: int) -> None:
        """Open the locks of inputs or outputs, whoever closed them."""
        self.device.matrix.locked.difference_update(ports)
        self.unlocked.update(ports)

    def connect(self, pair: Pair, user: str) -> None:
        """Have the arm make a circuit. Raises `CommandError` when it would not."""
        self._check_arm()
        for port in pair:
            if self.is_locked(port):
                raise CommandError(f"port {self.number(port)} is locked")
        try:
            self.device.matrix.added([pair[0]], [pair[1]])
        except Refused as refusal:
            raise CommandError(f"{refusal.reason.name}: port {self.number(refusal.port)}") from None
        self.robot.submit("connect", pair, user=user, source="CLI")

    def unallocate(self, port: int, user: str) -> None:
        """Have the arm take down the circuit of an input or output, if it has one. Raises `CommandError`."""
        pair = self._circuit(port)
        if pair is None:
            return
        self._check_arm()
        needed = (port,) if self._simplex_unlock else self.sides(self.number(port))
        if not self.unlocked.issuperset(needed):
            raise CommandError(f"port {self.number(port)} is not unlocked")
        self.robot.submit("disconnect", pair, user=user, source="CLI")

    def _circuit(self, port: int) -> Pair | None:
        """Return the circuit that a port has when the arm has done what was asked; None when it has none by then.

        Raises `CommandError` for one that the arm has yet to make.
        """
        asked = [job for job in self.robot.queue if port in job.pair]
        if not asked:
            peer = self.device.matrix.peer(port)
            return None if peer is None else (min(port, peer), max(port, peer))
        if asked[-1].kind == "disconnect":
            return None
        if not self._unallocates_queued:
            raise CommandError(f"port {self.number(port)} has a connect in the queue of the robot")
        return asked[-1].pair

    def _check_arm(self) -> None:
        if self.robot.jammed or not self.robot.enabled:
            raise CommandError("robot fault: homing required before the next move")

    def _lock_again(self, change: Change) -> None:
        for pair in (*change.removed, *change.made):
            self.unlocked.difference_update(pair)

    def _lock_unmoved(self, event: Event, job: Job | None) -> None:
        """Lock a circuit that the arm was to make and found there."""
        if event == "skipped" and job is not None and job.kind == "connect":
            self.unlocked.difference_update(job.pair)
