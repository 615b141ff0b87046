"""A patch panel that a person patches, one cord at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from typing import TypeVar

from ocs_drivers.contract import Guard, allow_all
from ocs_drivers.engine import transaction
from ocs_drivers.engine.driver import SwitchDriver
from ocs_drivers.errors import DeviceError, ProtocolDesync
from ocs_drivers.model import (
    ApplyReport,
    Capabilities,
    CrossConnects,
    Event,
    Identity,
    PortInfo,
    PortState,
    Side,
    Snapshot,
    Step,
)
from ocs_drivers.timing import SYSTEM_CLOCK, Clock, Deadline
from ocs_drivers.transports.transport import make_lost
from ocs_drivers.vendors.manual.panel_file import Panel, PanelFile
from ocs_drivers.vendors.manual.prompts import Operator

_T = TypeVar("_T")

Probe = Callable[[tuple[int, int]], bool | None]
"""Probe that reports whether light or packets pass from an input to an output; None when it cannot."""


class PanelSession:
    """The session with the person at the panel, as `ocs_drivers.engine.driver.Session`."""

    def __init__(self, operator: Operator, *, device: str, timeout_s: float) -> None:
        self._operator = operator
        self._device = device
        self._timeout_s = timeout_s
        self._lock = threading.RLock()
        self._in_use = False

    def open(self) -> None:
        """Find the person."""
        self._operator.open(self._timeout_s)
        self._in_use = True

    def close(self) -> None:
        """Dismiss the person."""
        self._in_use = False
        self._operator.close()

    def disconnect(self) -> None:
        """Break off, for the next question to begin again."""
        self._operator.close()

    @property
    def in_use(self) -> bool:
        """True from `open` to `close`."""
        return self._in_use

    @property
    def event_count(self) -> int:
        """Always 0: a person is asked."""
        return 0

    def events(self, since: int) -> tuple[Event, ...]:
        """Return nothing: a person is asked."""
        del since
        return ()

    @property
    def connections(self) -> int:
        """Always 0: cords stay as they are while nobody is there."""
        return 0

    def lock(self) -> AbstractContextManager[object]:
        """Return a re-entrant lock that holds off other threads' questions."""
        return self._lock

    def ready(self) -> None:
        """Make sure that somebody is there."""
        if not self._in_use:
            raise make_lost(self._device, "it is closed; open the switch first")
        if not self._operator.is_there:
            self._operator.open(self._timeout_s)


class ManualPanel(SwitchDriver):
    """A panel, its file, and whoever stands in front of it; `open` before use.

    A pair counts as done when the person said so and `probe`, where it is given, does not say otherwise: then
    the person is asked where the cord really goes. Without a probe a wrong word is believed.
    """

    _session: PanelSession
    probe: Probe | None = None

    def __init__(
        self,
        address: str,
        file: PanelFile,
        operator: Operator,
        *,
        timeout_s: float,
        patience_s: float,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._session = PanelSession(operator, device=address, timeout_s=timeout_s)
        super().__init__(address, self._session, timeout_s=timeout_s, clock=clock)
        self._file = file
        self._operator = operator
        self._patience_s = patience_s
        self._asked = 0

    def _discover(self) -> tuple[Identity, Capabilities]:
        panel = self._file.read()
        return Identity("manual", "patch panel", panel.name, ""), Capabilities(
            panel.inputs,
            panel.outputs,
            serial_robot=True,
            reads_back=False,
            switch_time_s=(30.0, self._patience_s),
        )

    def ports(self) -> Mapping[int, PortInfo]:
        """Return all ports, with the labels that the file has for them."""
        panel = self._file.read()
        return {
            number: PortInfo(
                number,
                Side.IN if number <= panel.inputs else Side.OUT,
                PortState.ENABLED,
                panel.labels.get(number, ""),
                name=_name(panel, number),
            )
            for number in range(1, panel.inputs + panel.outputs + 1)
        }

    def _read(self) -> Snapshot:
        with self._session.lock():
            if not self._session.in_use:
                self._session.ready()  # says so
            panel = self._file.read()
            for port in sorted(panel.doubtful):
                panel = self._trace(panel, port)
        return Snapshot(panel.patched, self._clock.now())

    def _retry(self, ask: Callable[[], _T]) -> _T:
        """Ask once: a person is not asked the same thing three times."""
        return ask()

    def _trace(self, panel: Panel, port: int) -> Panel:
        """Ask where the cord of a doubtful input goes, and note it."""
        self._session.ready()
        question = f"Where does the cord in input {_label(panel, port)} go? Answer with the output, or none."
        answer = self._operator.ask(question, self._deadline()).lower()
        number = answer.removeprefix("output").strip()
        if answer not in {"none", "nowhere"} and not (
            number.isdecimal() and panel.inputs < int(number) <= panel.inputs + panel.outputs
        ):
            self._session.disconnect()
            raise ProtocolDesync("not an output", device=self.address, sent=question, received=answer[:100])
        settled = panel.settle(port, int(number) if number.isdecimal() else None)
        self._file.write(settled)
        return settled

    def apply(
        self,
        target: CrossConnects,
        *,
        scope: Collection[int] | None = None,
        expect: CrossConnects | None = None,
        guard: Guard = allow_all,
        require_light: bool = False,
    ) -> ApplyReport:
        """Apply as every driver, with the list of work announced first."""
        with self._writing:
            self.plan(target, target, scope)
            seen = self.read()
            if expect is not None and seen.connections != expect:  # before a person is sent to the panel
                raise transaction.conflict(expect, seen.connections, device=self.address)
            steps = self.plan(target, seen, scope)
            self._asked = 0
            if steps:
                self._announce(steps)
            return super().apply(target, scope=scope, expect=expect, guard=guard, require_light=require_light)

    def _announce(self, steps: Collection[Step]) -> None:
        panel = self._file.read()
        self._session.ready()
        count = f"{len(steps)} move{'s' if len(steps) > 1 else ''}"
        self._operator.tell(
            [
                f"panel {panel.name}: {count}. Answer each question with done, or with no and the reason.",
                *(f"   {_question(panel, step)}" for step in steps),
            ],
            self._deadline(),
        )

    def _perform(self, step: Step, guard: Guard) -> None:
        del guard  # asked before the one question of a step
        if step.kind == "replace":
            raise self._make_unsupported("the whole configuration at once")
        ((source, output),) = step.pairs.items()
        panel = self._file.read()
        self._asked += 1
        question = f"{self._asked}. {_question(panel, step)}"
        self._file.write(panel.doubting(source))
        answer = self._operator.ask(question, self._deadline())
        if answer.lower() not in {"done", "d", "y", "yes"}:
            raise self._not_done(step, question, f"the person at the panel answers: {answer or 'nothing'}")
        if self._contradicts(step):
            raise self._not_done(
                step, question, "the person at the panel reports done, but the light disagrees"
            )
        self._file.write(panel.settle(source, output if step.kind == "add" else None))

    def _contradicts(self, step: Step) -> bool:
        """Return True if the probe says that what was confirmed is not so."""
        if self.probe is None:
            return False
        ((pair),) = step.pairs.items()
        passes = self.probe(pair)
        return passes is not None and passes != (step.kind == "add")

    def _not_done(self, step: Step, question: str, why: str) -> DeviceError:
        return DeviceError(
            why,
            device=self.address,
            ports=[port for pair in step.pairs.items() for port in pair],
            sent=question,
            hint="Check the panel: the next read asks where this cord goes.",
        )

    def _deadline(self) -> Deadline:
        return Deadline(self._patience_s, self._clock)


def _question(panel: Panel, step: Step) -> str:
    ((source, output),) = step.pairs.items()
    if step.kind == "remove":
        return f"Remove the cord from input {_label(panel, source)} to output {_label(panel, output)}."
    return f"Connect input {_label(panel, source)} to output {_label(panel, output)}."


def _label(panel: Panel, port: int) -> str:
    label = panel.labels.get(port, "")
    return f"{port} ({label})" if label else str(port)


def _name(panel: Panel, number: int) -> str:
    return f"in{number}" if number <= panel.inputs else f"out{number - panel.inputs}"
