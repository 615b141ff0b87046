"""A patch panel and a simulated person who moves its cords. Requests are lines of text over TCP.

A move takes 30 s by default. The person then answers `done`, or `no` and a reason if the move is impossible. With the
fault `mistake`, the person plugs a cord into the wrong output and still answers `done`. The answer to a question about
a cord is always correct, because it comes from the matrix.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sim.twins.switch.device import SwitchDevice
from sim.twins.switch.fault_list import Fault
from sim.twins.switch.matrix import MatrixRefusal
from sim.twins.switch.settings import TwinSettings
from sim.twins.switch.twin import Frontend, SwitchTwin
from sim.twins.wire.control import Request
from sim.twins.wire.line import Line

CORD_MOVE_TIME_S = 30.0
_PORT_PATTERN = r"(\d+)(?: \([^)]*\))?"
_REMOVE_PATTERN = re.compile(rf"\d+\. Remove the cord from input {_PORT_PATTERN} to output {_PORT_PATTERN}\.")
_CONNECT_PATTERN = re.compile(rf"\d+\. Connect input {_PORT_PATTERN} to output {_PORT_PATTERN}\.")
_QUESTION_PATTERN = re.compile(rf"Where does the cord in input {_PORT_PATTERN} go\?.*")
_NO_ANSWER = b""


def make_twin(settings: TwinSettings) -> SwitchTwin:
    """Return a simulated panel. `switch_time_s` is the duration of a move. Raise `SettingError` for any option."""
    settings.check_options()
    cord_move_time_s = CORD_MOVE_TIME_S if settings.switch_time_s is None else settings.switch_time_s
    device = settings.make_device(switch_time_s=0.0)
    device.switch_time_s = 0.0  # the device itself adds no delay to the person's move
    person = Person(device, cord_move_time_s=cord_move_time_s)
    frontend = Frontend(
        "manual",
        person.serve,
        file_name="panel.json",
        options={"size": f"{settings.input_count}x{settings.output_count}", "name": f"SIM{settings.name}"},
    )
    return SwitchTwin(device, {"operator": frontend}, faults=person.list_faults())


class Person:
    """The person at one panel, who serves all clients."""

    def __init__(self, device: SwitchDevice, *, cord_move_time_s: float) -> None:
        self._device = device
        self._matrix = device.matrix
        self._cord_move_time_s = cord_move_time_s
        self._remaining_mistakes = 0
        self._remaining_refusals = 0

    def list_faults(self) -> Mapping[str, Fault]:
        """Return the faults `mistake` (plugs into a wrong output) and `refuses` (answers `no`), by name."""
        return {
            "mistake": Fault(self._set_mistakes, lambda _: self._set_mistakes(None)),
            "refuses": Fault(self._set_refusals, lambda _: self._set_refusals(None)),
        }

    def _set_mistakes(self, request: Request | None) -> None:
        self._remaining_mistakes = request.get_integer("count", 1) if request else 0

    def _set_refusals(self, request: Request | None) -> None:
        self._remaining_refusals = request.get_integer("count", 1) if request else 0

    async def serve(self, client: Line) -> None:
        """Serve one client until it disconnects."""
        incomplete_line = b""
        while data := await client.read():
            *lines, incomplete_line = (incomplete_line + data).split(b"\n")
            for line in lines:
                await client.respond(lambda line=line: self._answer(line.decode("utf-8", "replace")))  # type: ignore[misc]

    async def _answer(self, text: str) -> bytes:
        removal_match, connection_match, query_match = (
            pattern.fullmatch(text) for pattern in (_REMOVE_PATTERN, _CONNECT_PATTERN, _QUESTION_PATTERN)
        )
        if query_match:
            output = self._matrix.connections.get(int(query_match[1]))
            return b"none\n" if output is None else f"{output}\n".encode()
        move_match = removal_match or connection_match
        if move_match is None:
            return _NO_ANSWER  # the driver also sends remarks and the list of all moves, which need no answer
        await self._device.clock.sleep(self._cord_move_time_s)
        try:
            self._move_cord(int(move_match[1]), int(move_match[2]), must_connect=connection_match is not None)
        except (MatrixRefusal, PersonRefusal) as refusal:
            return f"no {refusal}\n".encode()
        return b"done\n"

    def _move_cord(self, source: int, output: int, *, must_connect: bool) -> None:
        if self._remaining_refusals:
            self._remaining_refusals -= 1
            self._device.faults.fire_counts["refuses"] += 1
            raise PersonRefusal("I cannot reach it")
        if self._device.faults.must_drop_command():
            return
        if not must_connect:
            self._device.change_connections(self._matrix.plan_removal([source], [output]))
            return
        self._device.change_connections(
            self._matrix.plan_connections([source], [self._choose_output(output)])
        )

    def _choose_output(self, output: int) -> int:
        """Return `output`, or with the fault `mistake` the nearest other free output."""
        if not self._remaining_mistakes:
            return output
        used_outputs = set(self._matrix.connections.values()) | {output}
        free_outputs = [
            port
            for port in self._matrix.ports
            if port > self._matrix.input_count and port not in used_outputs
        ]
        if not free_outputs:
            return output
        self._remaining_mistakes -= 1
        self._device.faults.fire_counts["mistake"] += 1
        return min(free_outputs, key=lambda port: abs(port - output))


class PersonRefusal(Exception):
    """A request that the person refuses."""
