"""The command table: what is typed, and what the cabinet does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sim.twins.families.rome.cabinet import Cabinet
from sim.twins.families.rome.syntax import Printer
from sim.twins.frontends.cli import CommandError, Handler, Typed
from sim.twins.switch.fault_list import Fault
from sim.twins.switch.robot import Kind
from sim.twins.wire.line_faults import LineFaults


def _shortened(word: str, least: str) -> str:
    """Return the pattern of a word that may be shortened to what the vendor's own client types, and no further.

    >>> _shortened("create", "cr")
    'cr(?:e(?:a(?:t(?:e)?)?)?)?'
    """
    rest = word.removeprefix(least)
    return least + "".join(f"(?:{letter}" for letter in rest) + ")?" * len(rest)


_CONNECTION, _CREATE, _DISCONNECT = (
    _shortened("connection", "con"),
    _shortened("create", "cr"),
    _shortened("disconnect", "di"),
)


@dataclass(slots=True)
class TableFaults:
    """The next so many tables of ports come with two rows on one line and one row on two, as a capture has it."""

    device: LineFaults
    broken_tables: int = 0

    def table(self) -> Mapping[str, Fault]:
        """Return the fault by its name, for `SwitchTwin`."""
        return {
            "break_table": Fault(
                lambda request: setattr(self, "broken_tables", request.whole("count", 1)),
                lambda _: setattr(self, "broken_tables", 0),
            )
        }

    def spoil(self, table: str) -> str:
        """Return the table as it really comes."""
        if not self.broken_tables:
            return table
        self.broken_tables -= 1
        self.device.fired["break_table"] += 1
        *head, last = table.split("\n")
        words = last.split()
        return "\n".join([*head[:-2], f"{head[-2]}     {head[-1]}", " ".join(words[:3]), " ".join(words[3:])])


@dataclass(frozen=True, slots=True)
class Commands:
    """The commands on one cabinet of that name.

    `holds_prompt`: does `homing run` give the prompt back only when it has ended. `tells_queue`: is there a command
    that shows the queue.
    """

    cabinet: Cabinet
    printer: Printer
    faults: TableFaults
    name: str
    holds_prompt: bool
    tells_queue: bool

    def table(self) -> Mapping[str, Handler]:
        """Return commands by their pattern."""
        cabinet, printer = self.cabinet, self.printer
        known: dict[str, Handler] = {
            r"show\s+board": lambda _: printer.board(cabinet, self.name),
            r"port\s+show": lambda _: self.faults.spoil(printer.ports(cabinet)),
            r"connection\s+show\s+connected|cc": lambda _: printer.circuits(cabinet),
            rf"{_CONNECTION}\s+{_CREATE}\s+(?P<one>\w+)\s+to?\s+(?P<other>\w+)": self._asking("connect"),
            rf"{_CONNECTION}\s+{_DISCONNECT}\s+(?P<one>\w+)\s+from\s+(?P<other>\w+)": self._asking(
                "disconnect"
            ),
            r"homing\s+run": self._home,
            r"connection\s+set\s+command-execution\s+(?P<what>enable|disable)": self._told(self._execute),
        }
        if printer.manner == "AFM":
            known[r"port\s+show\s+logic\s+table"] = lambda _: printer.logic_table(cabinet)
            known[r"port\s+show\s+logic"] = lambda _: printer.logic(cabinet)
        if self.tells_queue:
            known[r"connection\s+show\s+pending"] = lambda _: printer.queue(cabinet)
        return known

    def _told(self, do: Callable[[Typed], str]) -> Handler:
        """Return the handler of an order, which a fault may swallow without a word."""

        def handler(typed: Typed) -> str:
            if self.cabinet.device.faults.take_dropped_command():
                return ""
            try:
                return do(typed)
            except CommandError as error:
                return str(error)

        return handler

    def _asking(self, kind: Kind) -> Handler:
        return self._told(
            lambda typed: self.cabinet.request(kind, typed.match["one"], typed.match["other"], typed.user)
        )

    async def _home(self, typed: Typed) -> str:
        del typed
        run = self.cabinet.robot.home()
        if self.holds_prompt:
            await run
        return ""

    def _execute(self, typed: Typed) -> str:
        robot = self.cabinet.robot
        if typed.match["what"] == "enable":
            robot.enable()
        else:
            robot.enabled = False
        return f"connection execution is {typed.match['what']}d"
