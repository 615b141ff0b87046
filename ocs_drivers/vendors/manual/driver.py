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
from ocs_drivers.transports.transport import make_connection_lost
from ocs_drivers.vendors.manual.panel_file import Panel, PanelFile
from ocs_drivers.vendors.manual.prompts import Operator

_T = TypeVar("_T")

Probe = Callable[[tuple[int, int]], bool | None]
"""Function that returns whether light or packets pass from an input to an output, or None if it cannot tell."""


class PanelSession:
    """Session with the person at the panel; implements `ocs_drivers.engine.driver.Session`."""

    def __init__(self, operator: Operator, *, device: str, timeout_s: float) -> None:
        self._operator = operator
        self._device = device
        self._timeout_s = timeout_s
        self._lock = threading.RLock()
        self._is_in_use = False

    def open(self) -> None:
        """Connect to the person."""
        self._operator.open(self._timeout_s)
        self._is_in_use = True

    def close(self) -> None:
        """Disconnect from the person."""
        self._is_in_use = False
        self._operator.close()

    def disconnect(self) -> None:
        """Drop the connection; the next question makes a new one."""
        self._operator.close()

    @property
    def is_in_use(self) -> bool:
        """True from `open` to `close`."""
        return self._is_in_use

    @property
    def event_count(self) -> int:
        """Always 0: a person sends no unsolicited messages."""
        return 0

    def events(self, since: int) -> tuple[Event, ...]:
        """Return an empty tuple: a person sends no unsolicited messages."""
        del since
        return ()

    @property
    def connection_count(self) -> int:
        """Always 0: no message can be missed between connections."""
        return 0

    def lock(self) -> AbstractContextManager[object]:
        """Return a re-entrant lock that excludes questions of other threads."""
        return self._lock

    def make_ready(self) -> None:
        """Ensure a connection to the person. Raise `ConnectionLost` after `close`."""
        if not self._is_in_use:
            raise make_connection_lost(self._device, "it is closed; open the switch first")
        if not self._operator.is_connected:
            self._operator.open(self._timeout_s)


class ManualPanel(SwitchDriver):
    """A panel, its file, and the person in front of it. Call `open` first.

    A pair is done if the person confirmed it and `probe`, if set, does not contradict. After a contradiction the
    next read asks where the cord goes. Without a probe, a wrong confirmation is not detected.
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
        self._question_count = 0

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
        """Return all ports, with their labels from the file."""
        panel = self._file.read()
        return {
            number: PortInfo(
                number,
                Side.IN if number <= panel.inputs else Side.OUT,
                PortState.ENABLED,
                panel.labels.get(number, ""),
                name=_format_port_number(panel, number),
            )
            for number in range(1, panel.inputs + panel.outputs + 1)
        }

    def _read(self) -> Snapshot:
        with self._session.lock():
            if not self._session.is_in_use:
                self._session.make_ready()  # raises
            panel = self._file.read()
            for port in sorted(panel.doubtful):
                panel = self._ask_cord_end(panel, port)
        return Snapshot(panel.patched, self._clock.now())

    def _retry(self, query: Callable[[], _T]) -> _T:
        """Run the query once, because a retry would ask the person again."""
        return query()

    def _ask_cord_end(self, panel: Panel, port: int) -> Panel:
        """Ask where the cord of a doubtful input goes, and write the answer to the file."""
        self._session.make_ready()
        question = (
            f"Where does the cord in input {_format_port(panel, port)} go? Answer with the output, or none."
        )
        answer = self._operator.ask(question, self._start_deadline()).lower()
        output_text = answer.removeprefix("output").strip()
        if answer not in {"none", "nowhere"} and not (
            output_text.isdecimal() and panel.inputs < int(output_text) <= panel.inputs + panel.outputs
        ):
            self._session.disconnect()
            raise ProtocolDesync(
                f"the answer is neither an output ({panel.inputs + 1} to {panel.inputs + panel.outputs}) nor none",
                device=self.address,
                sent=question,
                received=answer[:100],
            )
        settled_panel = panel.set_cord(port, int(output_text) if output_text.isdecimal() else None)
        self._file.write(settled_panel)
        return settled_panel

    def apply(
        self,
        target: CrossConnects,
        *,
        scope: Collection[int] | None = None,
        expect: CrossConnects | None = None,
        guard: Guard = allow_all,
        require_light: bool = False,
    ) -> ApplyReport:
        """Show the person a list of all moves, then apply as every driver does."""
        with self._write_lock:
            self.plan(target, target, scope)
            snapshot = self.read()
            if expect is not None and snapshot.connections != expect:  # before a person is sent to the panel
                raise transaction.make_conflict(expect, snapshot.connections, device=self.address)
            steps = self.plan(target, snapshot, scope)
            self._question_count = 0
            if steps:
                self._announce(steps)
            return super().apply(
                target,
                scope=scope,
                expect=expect,
                guard=guard,
                require_light=require_light,
            )

    def _announce(self, steps: Collection[Step]) -> None:
        panel = self._file.read()
        self._session.make_ready()
        count = f"{len(steps)} move{'s' if len(steps) > 1 else ''}"
        self._operator.show_lines(
            [
                f"panel {panel.name}: {count}. Answer each question with done, or with no and the reason.",
                *(f"   {_format_question(panel, step)}" for step in steps),
            ],
            self._start_deadline(),
        )

    def _perform(self, step: Step, guard: Guard) -> None:
        del guard  # a step is one question, before which the guard was called
        if step.kind == "replace":
            raise self._make_unsupported("the whole configuration at once")
        ((source, output),) = step.pairs.items()
        panel = self._file.read()
        self._question_count += 1
        question = f"{self._question_count}. {_format_question(panel, step)}"
        self._file.write(panel.mark_doubtful(source))
        answer = self._operator.ask(question, self._start_deadline())
        if answer.lower() not in {"done", "d", "y", "yes"}:
            raise self._make_not_done_error(
                step, question, f"the person at the panel answers: {answer or 'nothing'}"
            )
        if self._contradicts(step):
            raise self._make_not_done_error(
                step, question, "the person at the panel reports done, but the light disagrees"
            )
        self._file.write(panel.set_cord(source, output if step.kind == "add" else None))

    def _contradicts(self, step: Step) -> bool:
        """Return True if the probe contradicts the confirmation."""
        if self.probe is None:
            return False
        ((pair),) = step.pairs.items()
        does_light_pass = self.probe(pair)
        return does_light_pass is not None and does_light_pass != (step.kind == "add")

    def _make_not_done_error(self, step: Step, question: str, problem: str) -> DeviceError:
        return DeviceError(
            problem,
            device=self.address,
            ports=[port for pair in step.pairs.items() for port in pair],
            sent=question,
            hint="Check the panel: the next read asks where this cord goes.",
        )

    def _start_deadline(self) -> Deadline:
        return Deadline(self._patience_s, self._clock)


def _format_question(panel: Panel, step: Step) -> str:
    ((source, output),) = step.pairs.items()
    if step.kind == "remove":
        return f"Remove the cord from input {_format_port(panel, source)} to output {_format_port(panel, output)}."
    return f"Connect input {_format_port(panel, source)} to output {_format_port(panel, output)}."


def _format_port(panel: Panel, port: int) -> str:
    label = panel.labels.get(port, "")
    return f"{port} ({label})" if label else str(port)


def _format_port_number(panel: Panel, number: int) -> str:
    return f"in{number}" if number <= panel.inputs else f"out{number - panel.inputs}"
