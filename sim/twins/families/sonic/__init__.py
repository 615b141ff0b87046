"""An optical switch that runs SONiC: its shell over SSH, with the commands that concern light.

Columns of tables, modes of `add` and the words for states are those of the public design document (revision 0.4). Our
assumptions: the wording of refusals, that a list is done whole or not at all, that blocked and broken ports are
refused, that tuning takes a tenth of a second (`--switch-time-ms`). The configuration survives a power cycle, as
published; `--boot-mode` has no say. A single command (`ssh HOST COMMAND`) ends with the exit status that bash and
SONiC's command lines give: 1 refused, 2 not understood, 127 unknown. Pipes, redirections and substitutions are not
simulated, and a line with one says so. Options:

    idle_s=0       seconds after which an idle shell is ended; 0 for never
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from sim.twins.families.sonic.commands import Commands
from sim.twins.families.sonic.configuration import Configuration
from sim.twins.frontends.cli import CliFaults, CliFrontend, CliStyle, CommandOutput, Execute
from sim.twins.switch.settings import TwinSettings
from sim.twins.switch.twin import Frontend, SwitchTwin

TUNING_S = 0.1

NOISE = "Nov 21 07:30:01.123456 sonic NOTICE swss#orchagent: :- doTask: simulated noise"

UNKNOWN_STATUS = 127
"""Exit status of bash for a command that does not exist."""

SUDO_STATUS = 1
"""Exit status of sudo for a command that does not exist."""

_SYNTAX_STATUS = 2
_NOT_SIMULATED = "simulated: no pipes, redirections, background jobs or substitutions"

_SINGLE = r"""'[^']*'|\\."""
_QUOTED = rf"""{_SINGLE}|"(?:\\.|[^"\\])*\""""
_PART = re.compile(rf"""(?P<command>(?:{_QUOTED}|(?!&&|\|\|)[^;])+)|(?P<joint>;|&&|\|\|)""")
_STATUS = re.compile(r"""(?P<literal>'[^']*'|\\.)|\$\?|\$\{\?\}""")
# Parts of bash that are not simulated are `found` outside quotes.
_BEYOND = re.compile(rf"""(?:{_QUOTED}|&&|\|\|)|(?P<found>[|<>&])""")
_SUBSTITUTION = re.compile(rf"""(?:{_SINGLE})|(?P<found>`|\$\()""")
_WORDS = {"true": 0, "false": 1}


def twin(settings: TwinSettings) -> SwitchTwin:
    """Return a simulated SONiC switch. Raises `SettingError`."""
    settings.only("idle_s")
    account = settings.account("admin", "YourPaSsWoRd")
    device = settings.device(switch_time_s=TUNING_S)
    device.set_boot_mode("AUTOSAVE")
    configuration = Configuration(device)
    faults = CliFaults(device.faults)
    cli = CliFrontend(
        Commands(configuration, settings.name).table(),
        CliStyle(
            f"{account[0]}@sonic:~{'#' if account[0] == 'root' else '$'} ",
            user=account[0],
            greeting="Linux sonic (SIMULATED)",
            unknown="command not found",
            unknown_status=UNKNOWN_STATUS,
            leave=frozenset({"logout"}),
            noise=NOISE,
        ),
        clock=settings.clock,
        faults=faults,
        idle_timeout_s=settings.number("idle_s", 0) or None,
        interpreter=interpret,
    )
    return SwitchTwin(
        device,
        {"cli": Frontend("sonic-ocs", cli.serve, cli.execute, wire="ssh", account=account)},
        expire=cli.expire,
        faults={**configuration.faults(), **faults.table()},
        on_boot=configuration.forget_ghosts,
    )


async def interpret(line: str, status: int, execute: Execute) -> CommandOutput:
    """Do the commands of a line in turn, as bash does; the exit status is that of the last one done."""
    if any(found["found"] for pattern in (_BEYOND, _SUBSTITUTION) for found in pattern.finditer(line)):
        return CommandOutput(_NOT_SIMULATED, _SYNTAX_STATUS)
    output: list[str] = []
    joint, leaves = ";", False
    for part in _PART.finditer(line):
        if part["joint"]:
            joint = part["joint"]
            continue
        command = part["command"].strip()
        if not command or (joint == "&&" and status) or (joint == "||" and not status):
            continue
        # the status of the command before, but within single quotes
        text = _STATUS.sub(lambda found, status=status: found["literal"] or str(status), command)
        printed = await _do(text, status, execute)
        output += printed.text.splitlines()
        status, leaves = printed.status, printed.leaves
        if leaves:
            break
    return CommandOutput("".join(f"{row}\n" for row in output), status, leaves)


async def _do(command: str, status: int, execute: Execute) -> CommandOutput:
    try:
        words = shlex.split(command)
    except ValueError:
        return CommandOutput("-bash: unexpected EOF while looking for matching quote", _SYNTAX_STATUS)
    if words[:1] == ["echo"]:
        return CommandOutput(" ".join(words[1:]) + "\n")
    if words[:1] == ["exit"]:
        return _exit(words[1:], status)
    if command in _WORDS:
        return CommandOutput("", _WORDS[command])
    printed = await execute(command)
    return _unknown(words or [command]) if printed.status == UNKNOWN_STATUS else printed


def _exit(arguments: Sequence[str], status: int) -> CommandOutput:
    """Return the end of the shell, with the status that is named or that of the command before."""
    if not arguments:
        return CommandOutput("", status, leaves=True)
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", arguments[0]):
        return CommandOutput(
            f"-bash: exit: {arguments[0]}: numeric argument required", _SYNTAX_STATUS, leaves=True
        )
    if len(arguments) > 1:
        return CommandOutput("-bash: exit: too many arguments", 1)
    return CommandOutput("", int(arguments[0]) % 256, leaves=True)


def _unknown(words: Sequence[str]) -> CommandOutput:
    if words[0] == "sudo" and len(words) > 1:
        return CommandOutput(f"sudo: {words[1]}: command not found", SUDO_STATUS)
    return CommandOutput(f"-bash: {words[0]}: command not found", UNKNOWN_STATUS)
