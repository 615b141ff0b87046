"""A simulated Wave2Wave ROME or FiberZone AFM: a command line over SSH and telnet, and one arm that moves fibres.

The only published documents are two third-party drivers and their captures. Options select behaviour that these leave
open:

    matrices=1|2              number of matrices; no circuit joins two matrices
    logical=AB|Q|P|XY         scheme of logical port names (ROME; see `cabinet`); all except AB need two matrices
    mode=OPER|TECH            mode in the prompt: NAME[OPER]#
    jam=announced|silent      whether all sessions get a message about a jam (Severe Failure); the queue always shows it
    homing_hint=stuck|always  when the queue shows Perform "homing run": while the arm is jammed, or during every move
    homing=prompt|holds       whether the prompt returns at the start or at the end of `homing run`
    validation=at_once|in_turn  whether an impossible request is refused before it is queued, or in its turn
    pending=shown|unknown     whether the command that shows the queue exists
    rows=port|place           first column of `port show` (ROME): E12[1AE12], or 1AE12 with the name in the last column
    paired=one|both|off       paired ports (AFM): removing one direction of a two-way circuit removes one direction, or
                              both; off: like one, and the board says that ports are not paired
    spares=no|yes             whether each matrix (ROME) has two E and four W places without a name
    colour=no|yes             whether the prompt is coloured
    sessions=many|one         whether an SSH connection accepts many shells and commands, or ends with the first
    idle_s=600, homing_s=60   idle timeout of a session, and duration of a homing run, in seconds

A move takes 40 s unless `--switch-time-ms` is set. The account is admin, admin (an assumption, as none is published).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import cast

from sim.twins.families.rome.cabinet import Behaviour, Cabinet, NamingScheme
from sim.twins.families.rome.syntax import Printer, Product
from sim.twins.frontends.cli import CliFaults, CliFrontend, CliStyle, CommandError, Handler, TypedCommand
from sim.twins.frontends.telnet import make_telnet_server
from sim.twins.switch.fault_list import Fault
from sim.twins.switch.robot import JobKind, Robot
from sim.twins.switch.settings import TwinSettings
from sim.twins.switch.twin import Frontend, SwitchTwin
from sim.twins.wire.line import LineFaults

MOVE_TIME_S = 40.0
HOMING_TIME_S = 60.0
IDLE_TIMEOUT_S = 600.0

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

_ROME_ONLY_OPTIONS = {"logical", "rows", "spares"}
_AFM_ONLY_OPTIONS = {"paired"}


def make_rome_twin(settings: TwinSettings) -> SwitchTwin:
    """Return a simulated ROME. Raise `SettingError` for an invalid option."""
    return _make_twin(
        settings.check_options(*(name for name in _OPTIONS if name not in _AFM_ONLY_OPTIONS)), "ROME"
    )


def make_afm_twin(settings: TwinSettings) -> SwitchTwin:
    """Return a simulated AFM. Raise `SettingError` for an invalid option."""
    return _make_twin(
        settings.check_options(*(name for name in _OPTIONS if name not in _ROME_ONLY_OPTIONS)), "AFM"
    )


def _make_twin(settings: TwinSettings, product: Product) -> SwitchTwin:
    device = settings.make_patch_panel()
    robot = Robot(
        device,
        move_s=settings.get_switch_time_s(MOVE_TIME_S),
        homing_s=settings.read_number("homing_s", HOMING_TIME_S),
    )
    frontends: list[CliFrontend] = []

    def announce(*lines: str) -> None:
        for frontend in frontends:
            frontend.announce(*lines)

    logical_scheme = "numbers" if product == "AFM" else settings.read_choice("logical", "AB", "Q", "P", "XY")
    matrix_count = settings.read_choice("matrices", *("2" if logical_scheme in {"Q", "P", "XY"} else "12"))
    behaviour = Behaviour(
        matrix_count=int(matrix_count),
        logical_scheme=cast("NamingScheme", logical_scheme),
        removes_both_ways=settings.read_choice("paired", "one", "both", "off") == "both",
        announces_jam=settings.read_choice("jam", "announced", "silent") == "announced",
        validates_at_once=settings.read_choice("validation", "at_once", "in_turn") == "at_once",
    )
    cabinet = Cabinet(device, robot, behaviour, announce)
    cli_faults, table_faults = CliFaults(device.faults), TableFaults(device.faults)
    printer = Printer(
        product,
        shows_spares=settings.read_flag("spares"),
        shows_locations=settings.read_choice("rows", "port", "place") == "place",
        paired_state="Disabled"
        if settings.read_choice("paired", "one", "both", "off") == "off"
        else "Enabled",
        always_recommends_homing=settings.read_choice("homing_hint", "stuck", "always") == "always",
    )
    commands = Commands(
        cabinet,
        printer,
        table_faults,
        re.sub(r"\W", "", settings.name) or product,
        holds_prompt=settings.read_choice("homing", "prompt", "holds") == "holds",
        shows_queue=settings.read_choice("pending", "shown", "unknown") == "shown",
    )
    account = settings.get_account("admin", "admin")
    style = CliStyle(
        f"{commands.name}[{settings.read_choice('mode', 'OPER', 'TECH')}]# ",
        user=account[0],
        greeting=_GREETINGS[product],
        login_prompt="login: " if product == "ROME" else "Login:",
        has_colour=settings.read_flag("colour"),
        unknown_command_text="Error: unknown command",
        login_failure_text="username or password invalid",
        noise_line="%% LOG: temperature of the robot is 31 C",
    )
    ssh = _make_command_line(settings, commands, cli_faults, style)
    telnet = _make_command_line(settings, commands, cli_faults, replace(style, account=account))
    frontends += [ssh, telnet]
    address_scheme = product.lower()
    return SwitchTwin(
        device,
        {
            "cli": Frontend(
                f"{address_scheme}+cli",
                ssh.serve,
                ssh.execute,
                wire="ssh",
                account=account,
                is_single_session=settings.is_single_session,
            ),
            "telnet": Frontend(f"{address_scheme}+telnet", make_telnet_server(telnet), wire="telnet"),
        },
        expire_logins=lambda: sum(frontend.expire_sessions() for frontend in frontends),
        verbs=robot.make_verbs(),
        faults={**robot.list_faults(), **cli_faults.list_faults(), **table_faults.list_faults()},
    )


def _make_command_line(
    settings: TwinSettings, commands: Commands, faults: CliFaults, style: CliStyle
) -> CliFrontend:
    return CliFrontend(
        commands.make_handlers(),
        style,
        clock=settings.clock,
        faults=faults,
        idle_timeout_s=settings.read_number("idle_s", IDLE_TIMEOUT_S),
        name="telnet" if style.account else "cli",
    )


def _make_abbreviation_pattern(keyword: str, shortest: str) -> str:
    """Return a regular expression for `keyword` and its abbreviations, of which `shortest` is the shortest.

    >>> _make_abbreviation_pattern("create", "cr")
    'cr(?:e(?:a(?:t(?:e)?)?)?)?'
    """
    optional_part = keyword.removeprefix(shortest)
    return shortest + "".join(f"(?:{letter}" for letter in optional_part) + ")?" * len(optional_part)


_CONNECTION, _CREATE, _DISCONNECT = (
    _make_abbreviation_pattern("connection", "con"),
    _make_abbreviation_pattern("create", "cr"),
    _make_abbreviation_pattern("disconnect", "di"),
)


@dataclass(slots=True)
class TableFaults:
    """The fault `break_table`. As in a capture, a port table has two rows on one line, and one row on two lines."""

    line_faults: LineFaults
    broken_tables: int = 0

    def list_faults(self) -> Mapping[str, Fault]:
        """Return the fault by its name. The field `count` is the number of tables to break."""
        return {
            "break_table": Fault(
                lambda request: setattr(self, "broken_tables", request.get_integer("count", 1)),
                lambda _: setattr(self, "broken_tables", 0),
            )
        }

    def break_rows(self, table: str) -> str:
        """Return the table. While the fault is set, break its last rows."""
        if not self.broken_tables:
            return table
        self.broken_tables -= 1
        self.line_faults.fire_counts["break_table"] += 1
        *head, last = table.split("\n")
        words = last.split()
        return "\n".join([*head[:-2], f"{head[-2]}     {head[-1]}", " ".join(words[:3]), " ".join(words[3:])])


@dataclass(frozen=True, slots=True)
class Commands:
    """Commands of the cabinet `name`.

    With `holds_prompt`, the prompt returns only at the end of `homing run`. With `shows_queue`, the command that shows
    the queue exists.
    """

    cabinet: Cabinet
    printer: Printer
    faults: TableFaults
    name: str
    holds_prompt: bool
    shows_queue: bool

    def make_handlers(self) -> Mapping[str, Handler]:
        """Return the command handlers by regular expression."""
        cabinet, printer = self.cabinet, self.printer
        commands: dict[str, Handler] = {
            r"show\s+board": lambda _: printer.format_board(cabinet, self.name),
            r"port\s+show": lambda _: self.faults.break_rows(printer.format_ports(cabinet)),
            r"connection\s+show\s+connected|cc": lambda _: printer.format_circuits(cabinet),
            rf"{_CONNECTION}\s+{_CREATE}\s+(?P<one>\w+)\s+to?\s+(?P<other>\w+)": self._make_request_handler(
                "connect"
            ),
            rf"{_CONNECTION}\s+{_DISCONNECT}\s+(?P<one>\w+)\s+from\s+(?P<other>\w+)": self._make_request_handler(
                "disconnect"
            ),
            r"homing\s+run": self._home,
            r"connection\s+set\s+command-execution\s+(?P<what>enable|disable)": self._make_change_handler(
                self._set_execution
            ),
        }
        if printer.product == "AFM":
            commands[r"port\s+show\s+logic\s+table"] = lambda _: printer.format_logic_table(cabinet)
            commands[r"port\s+show\s+logic"] = lambda _: printer.format_logic(cabinet)
        if self.shows_queue:
            commands[r"connection\s+show\s+pending"] = lambda _: printer.format_queue(cabinet)
        return commands

    def _make_change_handler(self, execute: Callable[[TypedCommand], str]) -> Handler:
        """Return the handler of a change. The fault `drop_command` discards the change silently."""

        def handler(command: TypedCommand) -> str:
            if self.cabinet.device.faults.must_drop_command():
                return ""
            try:
                return execute(command)
            except CommandError as error:
                return str(error)

        return handler

    def _make_request_handler(self, kind: JobKind) -> Handler:
        return self._make_change_handler(
            lambda typed: self.cabinet.submit_request(
                kind, typed.match["one"], typed.match["other"], typed.user
            )
        )

    async def _home(self, command: TypedCommand) -> str:
        del command
        homing_task = self.cabinet.robot.start_homing()
        if self.holds_prompt:
            await homing_task
        return ""

    def _set_execution(self, command: TypedCommand) -> str:
        robot = self.cabinet.robot
        if command.match["what"] == "enable":
            robot.enable_jobs()
        else:
            robot.is_enabled = False
        return f"connection execution is {command.match['what']}d"
