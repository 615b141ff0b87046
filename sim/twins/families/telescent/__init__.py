"""A Telescent robotic patch panel: a command line over SSH, and one arm behind it.

The published material is one driver of somebody else, so much is left open; the options are:

    motion=hidden|shown          does the table show what the arm still has to do (letters C and D), or only
                                 what is plugged
    simplex_unlock=fails|works   is a port refused by `unallocate` of which one direction only was unlocked
    unallocate_queued=reject|after is `unallocate` refused while the connect is queued, or done after it
    when_occupied=reject|replace does `connect --force` refuse a port in use
    errors=frame|exception       refusals in a frame of `====`, or on one line with `Exception`
    colour=yes|no                are prompt and table coloured
    sessions=many|one            does a connection take many shells and commands, or end with its first
    idle_s=180, homing_s=60      when an idle session is ended, how long a homing run takes

The time of one move is 60 s unless `--switch-time-ms` says otherwise; `--speed 1000` makes that 60 ms of ours.
The account is admin, admin (assumption: none has been published).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sim.twins.families.telescent.commands import Commands
from sim.twins.families.telescent.frame import Frame
from sim.twins.families.telescent.syntax import Printer
from sim.twins.frontends.cli import CliFrontend, Manner
from sim.twins.frontends.cli_faults import CliFaults
from sim.twins.switch.robot import Robot
from sim.twins.switch.settings import SettingError, TwinSettings
from sim.twins.switch.twin import Frontend, SwitchTwin
from sim.twins.wire.control import Reply, Request, Verb

MOVE_S = 60.0
HOMING_S = 60.0
IDLE_S = 180.0

_OPTIONS = (
    "motion",
    "simplex_unlock",
    "unallocate_queued",
    "when_occupied",
    "errors",
    "colour",
    "sessions",
    "idle_s",
    "homing_s",
)


def twin(settings: TwinSettings) -> SwitchTwin:
    """Return a simulated Telescent. Raises `SettingError`; a frame has as many inputs as outputs."""
    settings.only(*_OPTIONS)
    if settings.inputs != settings.outputs:
        raise SettingError(
            f"every port of this frame has an input and an output; size it {settings.inputs}x{settings.inputs}"
        )
    device = settings.patch_panel()
    if settings.choice("when_occupied", "reject", "replace") == "replace":
        device.matrix.when_occupied = "replace"
    robot = Robot(device, move_s=settings.move_s(MOVE_S), homing_s=settings.number("homing_s", HOMING_S))
    frame = Frame(
        device,
        robot,
        simplex_unlock=settings.choice("simplex_unlock", "fails", "works") == "works",
        unallocates_queued=settings.choice("unallocate_queued", "reject", "after") == "after",
    )
    faults = CliFaults(device.faults)
    cli = _command_line(settings, frame, faults)
    frontend = Frontend(
        "telescent+cli",
        cli.serve,
        cli.execute,
        wire="ssh",
        one_session=settings.one_session,
        account=(cli.manner.user, settings.password or "admin"),
    )
    return SwitchTwin(
        device,
        {"cli": frontend},
        expire=cli.expire,
        verbs={**robot.verbs(), **_verbs(robot)},
        faults={**robot.faults(), **faults.table()},
        on_boot=frame.unlocked.clear,
    )


def _command_line(settings: TwinSettings, frame: Frame, faults: CliFaults) -> CliFrontend:
    colour = settings.choice("colour", "yes", "no") == "yes"
    printer = Printer(
        colour=colour,
        shows_motion=settings.choice("motion", "hidden", "shown") == "shown",
        frames_errors=settings.choice("errors", "frame", "exception") == "frame",
    )
    user = settings.user or "admin"
    host = re.sub(r"[^0-9a-zA-Z]", "", settings.name) or "ntm"
    manner = Manner(
        f"{user}@{host}> ",
        user=user,
        greeting="Network Topology Manager (SIMULATED)",
        colour=colour,
        unknown=printer.error("unknown command"),
    )
    return CliFrontend(
        Commands(frame, printer).table(),
        manner,
        clock=settings.clock,
        faults=faults,
        idle_timeout_s=settings.number("idle_s", IDLE_S),
    )


def _verbs(robot: Robot) -> Mapping[str, Verb]:
    """Return the verbs of a technician at the robot: the published driver has no command for them."""

    def home(_: Request) -> Reply:
        robot.home()
        return {"homing": True}

    def enable(_: Request) -> Reply:
        robot.enable()
        return {"enabled": robot.enabled}

    return {"home_robot": home, "enable_robot": enable}
