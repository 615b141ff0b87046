"""A Wave2Wave ROME or a FiberZone AFM: one command line over SSH and telnet, and one arm behind it.

The published material is two drivers of somebody else with their captures, so much is left open; the options are:

    matrices=1|2              one matrix, or two that have no way from one to the other
    logical=AB|Q|P|XY         how E and W ports are named in common (ROME; see `cabinet`); all but AB have two matrices
    mode=OPER|TECH            what the prompt shows: NAME[OPER]#
    jam=announced|silent      is a jam reported unsolicited (Severe Failure), or only by the queue
    homing_hint=stuck|always  when the queue says Perform "homing run": when the arm is jammed, or at every move
    homing=prompt|holds       does `homing run` give the prompt back at once, or when it has ended
    validation=at_once|in_turn  is a request that cannot be refused before it is queued, or when its turn comes
    pending=shown|unknown     is there a command that shows the queue
    rows=port|place           is a row of `port show` (ROME) headed by E12[1AE12], or by 1AE12 with its name at the end
    paired=one|both|off       paired ports (AFM): does the removal of one direction of a two-way circuit leave the
                              other, or take it down as well; off: the board says that ports are not paired
    spares=no|yes             has each matrix (ROME) two E and four W places without a name
    colour=no|yes             is the prompt coloured
    sessions=many|one         does a connection of SSH take many shells and commands, or end with its first
    idle_s=600, homing_s=60   when an idle session is ended, how long a homing run takes

The time of one move is 40 s unless `--switch-time-ms` says otherwise. The account is admin, admin (assumption: none
has been published).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import cast

from sim.twins.families.rome.cabinet import Cabinet, Quirks, Scheme
from sim.twins.families.rome.syntax import CliStyle as Printing
from sim.twins.families.rome.syntax import Printer
from sim.twins.frontends.cli import CliFaults, CliFrontend, CliStyle, CommandError, Handler, Typed
from sim.twins.frontends.telnet import make_telnet_server
from sim.twins.switch.fault_list import Fault
from sim.twins.switch.robot import Kind, Robot
from sim.twins.switch.settings import TwinSettings
from sim.twins.switch.twin import Frontend, SwitchTwin
from sim.twins.wire.line import LineFaults

MOVE_S = 40.0
HOMING_S = 60.0
IDLE_S = 600.0

_GREETINGS = {
    "ROME": "Welcome to ROME CLI (SIMULATED)",
    "AFM": "\r\n\r\nWelcome to FiberZone AFM CLI (SIMULATED)\r\n\r\n",
}

_OPTIONS = (
    "matrices",
    "logical",
    "mode",
    "jam",
    "homing_hint",
    "homing",
    "validation",
    "pending",
    "rows",
    "spares",
    "colour",
    "sessions",
    "paired",
    "idle_s",
    "homing_s",
)

_ROME_ONLY = {"logical", "rows", "spares"}
_AFM_ONLY = {"paired"}


def rome(settings: TwinSettings) -> SwitchTwin:
    """Return a simulated ROME. Raises `SettingError`."""
    return _twin(settings.only(*(name for name in _OPTIONS if name not in _AFM_ONLY)), "ROME")


def afm(settings: TwinSettings) -> SwitchTwin:
    """Return a simulated AFM. Raises `SettingError`."""
    return _twin(settings.only(*(name for name in _OPTIONS if name not in _ROME_ONLY)), "AFM")


def _twin(settings: TwinSettings, manner: Printing) -> SwitchTwin:
    device = settings.patch_panel()
    robot = Robot(device, move_s=settings.move_s(MOVE_S), homing_s=settings.number("homing_s", HOMING_S))
    frontends: list[CliFrontend] = []

    def say(*lines: str) -> None:
        for frontend in frontends:
            frontend.announce(*lines)

    logical = "numbers" if manner == "AFM" else settings.choice("logical", "AB", "Q", "P", "XY")
    matrices = settings.choice("matrices", *("2" if logical in {"Q", "P", "XY"} else "12"))
    quirks = Quirks(
        matrices=int(matrices),
        logical=cast("Scheme", logical),
        removes_both_ways=settings.choice("paired", "one", "both", "off") == "both",
        announces_jam=settings.choice("jam", "announced", "silent") == "announced",
        validates_at_once=settings.choice("validation", "at_once", "in_turn") == "at_once",
    )
    cabinet = Cabinet(device, robot, quirks, say)
    cli_faults, table_faults = CliFaults(device.faults), TableFaults(device.faults)
    printer = Printer(
        manner,
        spares=settings.flag("spares"),
        by_place=settings.choice("rows", "port", "place") == "place",
        paired="Disabled" if settings.choice("paired", "one", "both", "off") == "off" else "Enabled",
        always_hints=settings.choice("homing_hint", "stuck", "always") == "always",
    )
    commands = Commands(
        cabinet,
        printer,
        table_faults,
        re.sub(r"\W", "", settings.name) or manner,
        holds_prompt=settings.choice("homing", "prompt", "holds") == "holds",
        tells_queue=settings.choice("pending", "shown", "unknown") == "shown",
    )
    account = settings.account("admin", "admin")
    appearance = CliStyle(
        f"{commands.name}[{settings.choice('mode', 'OPER', 'TECH')}]# ",
        user=account[0],
        greeting=_GREETINGS[manner],
        login="login: " if manner == "ROME" else "Login:",
        colour=settings.flag("colour"),
        unknown="Error: unknown command",
        rejected="username or password invalid",
        noise="%% LOG: temperature of the robot is 31 C",
    )
    ssh = _command_line(settings, commands, cli_faults, appearance)
    telnet = _command_line(settings, commands, cli_faults, replace(appearance, account=account))
    frontends += [ssh, telnet]
    scheme = manner.lower()
    return SwitchTwin(
        device,
        {
            "cli": Frontend(
                f"{scheme}+cli",
                ssh.serve,
                ssh.execute,
                wire="ssh",
                account=account,
                one_session=settings.one_session,
            ),
            "telnet": Frontend(f"{scheme}+telnet", make_telnet_server(telnet), wire="telnet"),
        },
        expire=lambda: sum(frontend.expire() for frontend in frontends),
        verbs=robot.verbs(),
        faults={**robot.faults(), **cli_faults.table(), **table_faults.table()},
    )


def _command_line(
    settings: TwinSettings, commands: Commands, faults: CliFaults, manner: CliStyle
) -> CliFrontend:
    return CliFrontend(
        commands.table(),
        manner,
        clock=settings.clock,
        faults=faults,
        idle_timeout_s=settings.number("idle_s", IDLE_S),
        name="telnet" if manner.account else "cli",
    )


def _shorten(word: str, least: str) -> str:
    """Return the pattern of a word that may be shortened to what the vendor's own client types, and no further.

    >>> _shorten("create", "cr")
    'cr(?:e(?:a(?:t(?:e)?)?)?)?'
    """
    rest = word.removeprefix(least)
    return least + "".join(f"(?:{letter}" for letter in rest) + ")?" * len(rest)


_CONNECTION, _CREATE, _DISCONNECT = (
    _shorten("connection", "con"),
    _shorten("create", "cr"),
    _shorten("disconnect", "di"),
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
            r"connection\s+set\s+command-execution\s+(?P<what>enable|disable)": self._make_order(
                self._execute
            ),
        }
        if printer.manner == "AFM":
            known[r"port\s+show\s+logic\s+table"] = lambda _: printer.logic_table(cabinet)
            known[r"port\s+show\s+logic"] = lambda _: printer.logic(cabinet)
        if self.tells_queue:
            known[r"connection\s+show\s+pending"] = lambda _: printer.queue(cabinet)
        return known

    def _make_order(self, do: Callable[[Typed], str]) -> Handler:
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
        return self._make_order(
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
