"""SCPI interface of a Polatis switch: parsing and execution of command lines.

A command that sets a value sends no answer; its errors go to the error queue. All clients share this queue, because in
SCPI-99 an instrument has one queue. The answer to `*OPC?` is sent as soon as nothing moves. A line ends with LF or
CR LF, and `;` separates its commands (SCPI-99 volume 1, chapter 6).
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence

from sim.twins.frontends.scpi import ErrorQueue, MessageUnit, ScpiError, compile_header, make_error
from sim.twins.switch.device import BOOT_MODES, SwitchDevice
from sim.twins.switch.matrix import MatrixRefusal

MAX_POWER_PORTS = 256
_OPERATION_COMPLETE, _COMMAND_ERROR, _EXECUTION_ERROR = 1, 32, 16
_ERROR_AVAILABLE = 4

Handler = Callable[[Sequence[str]], str | Awaitable[str] | None]
MAX_LINE_BYTES = 1 << 16

_PORT_LIST = re.compile(r"\(@([^()]*)\)")
_PORT_RANGE = re.compile(r"\s*(\d{1,9})\s*(?::\s*(\d{1,9})\s*)?")
_MAX_LIST_PORTS = 4096


class ScpiFrontend:
    """The SCPI interface of one device. All clients share its state and error queue.

    With `has_separate_lines`, the answers to several queries of one line are sent on separate lines; otherwise `;`
    joins them. The behaviour of the real device is not confirmed.
    """

    def __init__(
        self,
        device: SwitchDevice,
        *,
        identity: str,
        get_network_text: Callable[[], str],
        has_separate_lines: bool = False,
    ) -> None:
        self.errors = ErrorQueue()
        self._device = device
        self._matrix = device.matrix
        self._identity = identity
        self._get_network_text = get_network_text
        self._separator = "\r\n" if has_separate_lines else ";"
        self._event_status = 0
        self._commands = {compile_header(name): handler for name, handler in self._make_table().items()}

    async def execute(self, line: str) -> bytes:
        """Execute one line, and return its encoded answer. The answer is empty if no command of the line has one."""
        parent_path = ""
        replies: list[str] = []
        for command in split_units(line):
            handler, parent_path = self._find_handler(command, parent_path)
            reply = await self._run_handler(handler, command)
            if reply is not None:
                replies.append(reply)
        return (self._separator.join(replies) + "\r\n").encode() if replies else b""

    def report(self, error: ScpiError) -> None:
        """Append an error to the queue, and set the matching bit of the event status register."""
        self.errors.push(error)
        self._event_status |= _COMMAND_ERROR if error.number > -200 else _EXECUTION_ERROR

    def _make_table(self) -> dict[str, Handler]:
        common_commands: dict[str, Handler] = {
            "*IDN?": lambda _: self._identity,
            "*CLS": lambda _: self._clear_status(),
            "*RST": lambda _: self._execute_unless_dropped(self._reset_device),
            "*OPC?": lambda _: self._wait_for_completion(),
            "*OPC": lambda _: self._device.call_when_idle(self._set_operation_complete),
            "*ESR?": lambda _: self._read_and_clear_event_status(),
            "*STB?": lambda _: str(_ERROR_AVAILABLE if self.errors else 0),
            "SYSTem:ERRor[:NEXT]?": lambda _: self.errors.pop(),
            "SYSTem:ERRor:ALL?": lambda _: self.errors.pop_all(),
            "SYSTem:COMMunicate:NETWork:ADDRess?": lambda _: self._get_network_text(),
        }
        return common_commands | self._make_switch_table()

    def _make_switch_table(self) -> dict[str, Handler]:
        return {
            "OXC:SWITch:SIZE?": lambda _: f"{self._matrix.input_count},{self._matrix.output_count}",
            "OXC:SWITch:CONNect:ADD": self._connect,
            "OXC:SWITch:CONNect:ONLY": self._connect_exclusively,
            "OXC:SWITch:CONNect:SUB": self._disconnect,
            "OXC:SWITch:CONNect:STATe?": lambda _: self._format_connections(),
            "OXC:SWITch:CONNect:PORT?": self._query_peer,
            "OXC:SWITch:DISConnect:ALL": lambda _: self._execute_unless_dropped(self._reset_device),
            "OXC:SWITch:PORT:ENABle": lambda texts: self._set_shutters(texts, is_disabled=False),
            "OXC:SWITch:PORT:DISable": lambda texts: self._set_shutters(texts, is_disabled=True),
            "OXC:SWITch:PORT:STATe?": self._query_port_states,
            "OXC:BOOT:MODE?": lambda _: self._device.boot_mode,
            "OXC:BOOT:MODE": self._set_boot_mode,
            "PMONitor:POWer?": self._query_power,
        }

    def _find_handler(self, command: MessageUnit, parent_path: str) -> tuple[Handler | None, str]:
        """Return the handler of a command (None if unknown), and the path for the next relative header.

        A header without a leading colon is first looked up below the path of the previous command, as SCPI defines. It
        is then looked up from the root, because users write it so.
        """
        header = command.header
        absolute_header = header.removeprefix(":")
        candidates = (
            [absolute_header]
            if header.startswith((":", "*"))
            else [parent_path + absolute_header, absolute_header]
        )
        for candidate in candidates:
            for pattern, handler in self._commands.items():
                if pattern.fullmatch(candidate):
                    return handler, parent_path if header.startswith("*") else candidate.rpartition(":")[
                        0
                    ] + ":"
        return None, parent_path

    async def _run_handler(self, handler: Handler | None, command: MessageUnit) -> str | None:
        try:
            if handler is None:
                raise ScpiError(-113, command.header[:40])
            reply = handler(command.parameters)
            return reply if reply is None or isinstance(reply, str) else await reply
        except MatrixRefusal as refusal:
            self.report(make_error(refusal))
        except ScpiError as error:
            self.report(error)
        return None

    # -- common commands

    def _clear_status(self) -> None:
        self.errors.clear()
        self._event_status = 0

    async def _wait_for_completion(self) -> str:
        await self._device.wait_idle()
        return "1"

    def _set_operation_complete(self) -> None:
        self._event_status |= _OPERATION_COMPLETE

    def _read_and_clear_event_status(self) -> str:
        status, self._event_status = self._event_status, 0
        return str(status)

    # -- cross-connects

    def _execute_unless_dropped(self, execute_change: Callable[[], object]) -> None:
        """Execute a set command, unless the fault `drop_command` discards it."""
        if not self._device.faults.must_drop_command():
            execute_change()

    def _reset_device(self) -> None:
        self._device.change_connections(self._matrix.plan_full_removal(), is_full_configuration=True)

    def _connect(self, parameters: Sequence[str]) -> None:
        inputs, outputs = _parse_two_port_lists(parameters)
        self._execute_unless_dropped(
            lambda: self._device.change_connections(self._matrix.plan_connections(inputs, outputs))
        )

    def _connect_exclusively(self, parameters: Sequence[str]) -> None:
        inputs, outputs = _parse_two_port_lists(parameters)
        self._execute_unless_dropped(
            lambda: self._device.change_connections(
                self._matrix.plan_exact_connections(inputs, outputs), is_full_configuration=True
            )
        )

    def _disconnect(self, parameters: Sequence[str]) -> None:
        inputs, outputs = _parse_two_port_lists(parameters)
        self._execute_unless_dropped(
            lambda: self._device.change_connections(self._matrix.plan_removal(inputs, outputs))
        )

    def _format_connections(self) -> str:
        connections = self._matrix.connections
        return f"{format_ports(connections)},{format_ports(connections.values())}"

    def _query_peer(self, parameters: Sequence[str]) -> str:
        text = _get_single_parameter(parameters)
        ports = [int(text)] if text.isdecimal() else parse_port_list(text)
        if len(ports) != 1:
            raise ScpiError(-224, text[:40])
        peer = self._matrix.find_peer(ports[0])
        return f'"{"" if peer is None else peer}"'

    # -- ports

    def _set_shutters(self, parameters: Sequence[str], *, is_disabled: bool) -> None:
        ports = self._parse_ports(_get_single_parameter(parameters))
        self._execute_unless_dropped(lambda: self._device.set_disabled(set(ports), is_disabled=is_disabled))

    def _query_port_states(self, parameters: Sequence[str]) -> str:
        ports = self._parse_ports(_get_single_parameter(parameters)) if parameters else self._matrix.ports
        return format_values([self._matrix.get_state(port) for port in ports])

    def _query_power(self, parameters: Sequence[str]) -> str:
        ports = self._parse_ports(_get_single_parameter(parameters))
        if len(ports) > MAX_POWER_PORTS:
            raise ScpiError(-223, f"at most {MAX_POWER_PORTS} ports")
        return format_values([f"{self._device.read_power_dbm(port):.2f}" for port in ports])

    def _parse_ports(self, text: str) -> list[int]:
        ports = parse_port_list(text)
        for port in ports:
            self._matrix.check_port(port)
        return ports

    def _set_boot_mode(self, parameters: Sequence[str]) -> None:
        mode_text = _get_single_parameter(parameters)
        for mode, header in zip(BOOT_MODES, ("DARK", "RESTore", "AUTosave"), strict=True):
            if compile_header(header).fullmatch(mode_text):
                self._execute_unless_dropped(lambda: self._device.set_boot_mode(mode))  # noqa: B023 - called at once
                return
        raise ScpiError(-224, mode_text[:40])


def _get_single_parameter(parameters: Sequence[str]) -> str:
    (text,) = _check_parameter_count(parameters, 1)
    return text


def _parse_two_port_lists(parameters: Sequence[str]) -> tuple[list[int], list[int]]:
    first, second = _check_parameter_count(parameters, 2)
    return parse_port_list(first), parse_port_list(second)


def _check_parameter_count(parameters: Sequence[str], count: int) -> Sequence[str]:
    if len(parameters) < count:
        raise ScpiError(-109)
    if len(parameters) > count:
        raise ScpiError(-108, parameters[count][:40])
    return parameters


class LineReader:
    """Splits a byte stream into lines. The stream arrives in chunks of any size."""

    def __init__(self) -> None:
        self._incomplete_line = b""

    def feed(self, data: bytes) -> list[str]:
        """Return the lines that `data` completes, without their endings.

        If the unfinished line exceeds `MAX_LINE_BYTES`, drop the line and raise `ScpiError` (-363).
        """
        *lines, self._incomplete_line = (self._incomplete_line + data).split(b"\n")
        if len(self._incomplete_line) > MAX_LINE_BYTES:
            self._incomplete_line = b""
            raise ScpiError(-363)
        return [line.removesuffix(b"\r").decode("latin-1") for line in lines]


def split_units(line: str) -> list[MessageUnit]:
    """Split a line into its commands.

    >>> [(unit.header, unit.parameters) for unit in split_units(":oxc:swit:conn:only (@1,2),(@49,50);*OPC?")]
    [(':oxc:swit:conn:only', ('(@1,2)', '(@49,50)')), ('*OPC?', ())]
    """
    return [_parse_unit(text.strip()) for text in _split_at_top_level(line, ";") if text.strip()]


def _parse_unit(text: str) -> MessageUnit:
    header, _, rest = text.partition(" ") if " " in text else text.partition("\t")
    return MessageUnit(
        header, tuple(part.strip() for part in _split_at_top_level(rest, ",")) if rest.strip() else ()
    )


def _split_at_top_level(text: str, separator: str) -> list[str]:
    """Split a text at each separator outside parentheses and quotes."""
    parts, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in "()":
            depth += 1 if character == "(" else -1
        elif character == separator and depth <= 0:
            parts.append("")
            continue
        parts[-1] += character
    return parts


def parse_port_list(text: str) -> list[int]:
    """Return the ports of a channel list.

    >>> parse_port_list("(@1,2,5:7)"), parse_port_list("(@)")
    ([1, 2, 5, 6, 7], [])

    Raise `ScpiError`: -102 if it is not a list, -223 if it has too many ports.
    """
    match = _PORT_LIST.fullmatch(text)
    if not match:
        raise ScpiError(-102, text[:40])
    ports = [port for item in match[1].split(",") if match[1].strip() for port in _parse_range(item)]
    if len(ports) > _MAX_LIST_PORTS:
        raise ScpiError(-223)
    return ports


def _parse_range(item: str) -> Iterable[int]:
    match = _PORT_RANGE.fullmatch(item)
    if not match:
        raise ScpiError(-102, item[:40])
    first, last = int(match[1]), int(match[2] or match[1])
    return range(first, min(last, first + _MAX_LIST_PORTS) + 1)


def format_ports(ports: Iterable[int]) -> str:
    """Return a channel list in the device's format.

    >>> format_ports([1, 2]), format_ports([])
    ('(@1,2)', '(@)')
    """
    return f"(@{','.join(map(str, ports))})"


def format_values(values: Sequence[str]) -> str:
    """Return values in parentheses, as in answers with port states or power readings.

    >>> format_values(["D", "E"])
    '(D,E)'
    """
    return f"({','.join(values)})"
