"""A Wave2Wave ROME or a FiberZone AFM: one command line over SSH and telnet, and one arm behind it.

The published material is two drivers of somebody else with their captures, so much is left open; the options are:

    matrices=1|2              one matrix, or two that have no way from one to the other
    logical=AB|Q|P|XY         how E and W ports are named in common (ROME; see `logical`); all but AB have two matrices
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
from dataclasses import replace
from typing import cast

from sim.twins.families.rome.cabinet import Cabinet, Quirks
from sim.twins.families.rome.commands import Commands, TableFaults
from sim.twins.families.rome.logical import Scheme
from sim.twins.families.rome.syntax import Manner as Printing
from sim.twins.families.rome.syntax import Printer
from sim.twins.frontends.cli import CliFrontend, Manner
from sim.twins.frontends.cli_faults import CliFaults
from sim.twins.frontends.telnet import over_telnet
from sim.twins.switch.robot import Robot
from sim.twins.switch.settings import TwinSettings
from sim.twins.switch.twin import Frontend, SwitchTwin

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

    cabinet = Cabinet(device, robot, _quirks(settings, manner), say)
    cli_faults, table_faults = CliFaults(device.faults), TableFaults(device.faults)
    commands = _commands(settings, cabinet, manner, table_faults)
    account = settings.account("admin", "admin")
    ssh = _command_line(settings, commands, cli_faults, _manner(settings, commands.name, manner, account[0]))
    telnet = _command_line(settings, commands, cli_faults, replace(ssh.manner, account=account))
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
            "telnet": Frontend(f"{scheme}+telnet", over_telnet(telnet), wire="telnet"),
        },
        expire=lambda: sum(frontend.expire() for frontend in frontends),
        verbs=robot.verbs(),
        faults={**robot.faults(), **cli_faults.table(), **table_faults.table()},
    )


def _quirks(settings: TwinSettings, manner: Printing) -> Quirks:
    logical = "numbers" if manner == "AFM" else settings.choice("logical", "AB", "Q", "P", "XY")
    matrices = settings.choice("matrices", *("2" if logical in {"Q", "P", "XY"} else "12"))
    return Quirks(
        matrices=int(matrices),
        logical=cast("Scheme", logical),
        removes_both_ways=settings.choice("paired", "one", "both", "off") == "both",
        announces_jam=settings.choice("jam", "announced", "silent") == "announced",
        validates_at_once=settings.choice("validation", "at_once", "in_turn") == "at_once",
    )


def _commands(settings: TwinSettings, cabinet: Cabinet, manner: Printing, faults: TableFaults) -> Commands:
    printer = Printer(
        manner,
        spares=settings.flag("spares"),
        by_place=settings.choice("rows", "port", "place") == "place",
        paired="Disabled" if settings.choice("paired", "one", "both", "off") == "off" else "Enabled",
        always_hints=settings.choice("homing_hint", "stuck", "always") == "always",
    )
    return Commands(
        cabinet,
        printer,
        faults,
        re.sub(r"\W", "", settings.name) or manner,
        holds_prompt=settings.choice("homing", "prompt", "holds") == "holds",
        tells_queue=settings.choice("pending", "shown", "unknown") == "shown",
    )


def _manner(settings: TwinSettings, name: str, manner: Printing, user: str) -> Manner:
    return Manner(
        f"{name}[{settings.choice('mode', 'OPER', 'TECH')}]# ",
        user=user,
        greeting=_GREETINGS[manner],
        login="login: " if manner == "ROME" else "Login:",
        colour=settings.flag("colour"),
        unknown="Error: unknown command",
        rejected="username or password invalid",
        noise="%% LOG: temperature of the robot is 31 C",
    )


def _command_line(
    settings: TwinSettings, commands: Commands, faults: CliFaults, manner: Manner
) -> CliFrontend:
    return CliFrontend(
        commands.table(),
        manner,
        clock=settings.clock,
        faults=faults,
        idle_timeout_s=settings.number("idle_s", IDLE_S),
        name="telnet" if manner.account else "cli",
    )
