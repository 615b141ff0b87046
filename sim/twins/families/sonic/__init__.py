"""A simulated optical switch that runs SONiC: a shell over SSH with the commands for optical cross-connects.

Table columns, modes of `add` and names of states are those of the public design document (revision 0.4). Assumptions:

- the wording of refusals
- a list is executed completely or not at all
- blocked and failed ports are refused
- tuning takes 0.1 s (`--switch-time-ms`)

As published, the configuration survives a power cycle, so `--boot-mode` has no effect. A single command (`ssh HOST
COMMAND`) ends with the exit status of bash and SONiC's commands: 1 refused, 2 usage error, 127 unknown. Pipes,
redirections and substitutions are not simulated; a line that contains any of these prints an error. Options:

    idle_s=0       idle timeout of a shell in seconds; 0 for none
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

TUNING_TIME_S = 0.1

NOISE_LINE = "Nov 21 07:30:01.123456 sonic NOTICE swss#orchagent: :- doTask: simulated noise"

UNKNOWN_COMMAND_STATUS = 127
"""Exit status of bash for a command that does not exist."""

SUDO_UNKNOWN_COMMAND_STATUS = 1
"""Exit status of sudo for a command that does not exist."""

_SYNTAX_ERROR_STATUS = 2
_NOT_SIMULATED_TEXT = "simulated: no pipes, redirections, background jobs or substitutions"

_SINGLE_QUOTED_PATTERN = r"""'[^']*'|\\."""
_QUOTED_PATTERN = rf"""{_SINGLE_QUOTED_PATTERN}|"(?:\\.|[^"\\])*\""""
_COMMAND_OR_OPERATOR_PATTERN = re.compile(
    rf"""(?P<command>(?:{_QUOTED_PATTERN}|(?!&&|\|\|)[^;])+)|(?P<operator>;|&&|\|\|)"""
)
_STATUS_PATTERN = re.compile(r"""(?P<literal>'[^']*'|\\.)|\$\?|\$\{\?\}""")
# The group `token` matches bash syntax that is not simulated. The other branches skip quoted text and valid operators.
_UNSUPPORTED_PATTERN = re.compile(rf"""(?:{_QUOTED_PATTERN}|&&|\|\|)|(?P<token>[|<>&])""")
_SUBSTITUTION_PATTERN = re.compile(rf"""(?:{_SINGLE_QUOTED_PATTERN})|(?P<token>`|\$\()""")
_BUILTIN_STATUSES = {"true": 0, "false": 1}


def make_twin(settings: TwinSettings) -> SwitchTwin:
    """Return a simulated SONiC switch. Raise `SettingError` for an invalid option."""
    settings.check_options("idle_s")
    account = settings.get_account("admin", "YourPaSsWoRd")
    device = settings.make_device(switch_time_s=TUNING_TIME_S)
    device.set_boot_mode("AUTOSAVE")
    configuration = Configuration(device)
    faults = CliFaults(device.faults)
    cli = CliFrontend(
        Commands(configuration, settings.name).make_handlers(),
        CliStyle(
            f"{account[0]}@sonic:~{'#' if account[0] == 'root' else '$'} ",
            user=account[0],
            greeting="Linux sonic (SIMULATED)",
            unknown_command_text="command not found",
            unknown_command_status=UNKNOWN_COMMAND_STATUS,
            exit_commands=frozenset({"logout"}),
            noise_line=NOISE_LINE,
        ),
        clock=settings.clock,
        faults=faults,
        idle_timeout_s=settings.read_number("idle_s", 0) or None,
        interpreter=interpret,
    )
    return SwitchTwin(
        device,
        {"cli": Frontend("sonic-ocs", cli.serve, cli.execute, wire="ssh", account=account)},
        expire_logins=cli.expire_sessions,
        faults={**configuration.list_faults(), **faults.list_faults()},
        on_boot=configuration.restore_configuration,
    )


async def interpret(line: str, status: int, execute: Execute) -> CommandOutput:
    """Execute the commands of a line as bash does, with `;`, `&&` and `||`. The status is that of the last command."""
    if any(
        match["token"]
        for pattern in (_UNSUPPORTED_PATTERN, _SUBSTITUTION_PATTERN)
        for match in pattern.finditer(line)
    ):
        return CommandOutput(_NOT_SIMULATED_TEXT, _SYNTAX_ERROR_STATUS)
    output: list[str] = []
    operator, ends_session = ";", False
    for part in _COMMAND_OR_OPERATOR_PATTERN.finditer(line):
        if part["operator"]:
            operator = part["operator"]
            continue
        command = part["command"].strip()
        if not command or (operator == "&&" and status) or (operator == "||" and not status):
            continue
        # `$?` expands to the status of the previous command, except in single quotes.
        text = _STATUS_PATTERN.sub(lambda match, status=status: match["literal"] or str(status), command)
        result = await _run_command(text, status, execute)
        output += result.text.splitlines()
        status, ends_session = result.status, result.ends_session
        if ends_session:
            break
    return CommandOutput("".join(f"{row}\n" for row in output), status, ends_session)


async def _run_command(command: str, status: int, execute: Execute) -> CommandOutput:
    try:
        words = shlex.split(command)
    except ValueError:
        return CommandOutput("-bash: unexpected EOF while looking for matching quote", _SYNTAX_ERROR_STATUS)
    if words[:1] == ["echo"]:
        return CommandOutput(" ".join(words[1:]) + "\n")
    if words[:1] == ["exit"]:
        return _exit_shell(words[1:], status)
    if command in _BUILTIN_STATUSES:
        return CommandOutput("", _BUILTIN_STATUSES[command])
    result = await execute(command)
    return _report_unknown_command(words or [command]) if result.status == UNKNOWN_COMMAND_STATUS else result


def _exit_shell(arguments: Sequence[str], status: int) -> CommandOutput:
    """Return the result of `exit`. The exit status of the shell is the argument, or else the previous status."""
    if not arguments:
        return CommandOutput("", status, ends_session=True)
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", arguments[0]):
        return CommandOutput(
            f"-bash: exit: {arguments[0]}: numeric argument required", _SYNTAX_ERROR_STATUS, ends_session=True
        )
    if len(arguments) > 1:
        return CommandOutput("-bash: exit: too many arguments", 1)
    return CommandOutput("", int(arguments[0]) % 256, ends_session=True)


def _report_unknown_command(words: Sequence[str]) -> CommandOutput:
    if words[0] == "sudo" and len(words) > 1:
        return CommandOutput(f"sudo: {words[1]}: command not found", SUDO_UNKNOWN_COMMAND_STATUS)
    return CommandOutput(f"-bash: {words[0]}: command not found", UNKNOWN_COMMAND_STATUS)
