"""Lines of the shell: commands joined by `;`, `&&` and `||`, `$?`, `exit`, and the few words of bash that scripts need.

Pipes, redirections, background jobs and substitutions are not simulated: a line with one is refused as a whole.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from sim.twins.frontends.interpreter import Execute, Printed

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
_BEYOND = re.compile(rf"""(?:{_QUOTED}|&&|\|\|)|(?P<found>[|<>&])""")
_SUBSTITUTION = re.compile(rf"""(?:{_SINGLE})|(?P<found>`|\$\()""")
_WORDS = {"true": 0, "false": 1}


async def interpret(line: str, status: int, execute: Execute) -> Printed:
    """Do the commands of a line in turn, as bash does; the exit status is that of the last one done."""
    if _needs_more(line):
        return Printed(_NOT_SIMULATED, _SYNTAX_STATUS)
    output: list[str] = []
    joint, leaves = ";", False
    for part in _PART.finditer(line):
        if part["joint"]:
            joint = part["joint"]
            continue
        command = part["command"].strip()
        if not command or (joint == "&&" and status) or (joint == "||" and not status):
            continue
        printed = await _do(_expanded(command, status), status, execute)
        output += printed.text.splitlines()
        status, leaves = printed.status, printed.leaves
        if leaves:
            break
    return Printed("".join(f"{row}\n" for row in output), status, leaves)


def _needs_more(line: str) -> bool:
    """Return True if a line needs a part of bash that is not simulated."""
    return any(found["found"] for pattern in (_BEYOND, _SUBSTITUTION) for found in pattern.finditer(line))


def _expanded(command: str, status: int) -> str:
    """Return a command with the exit status of the one before in place of `$?`; not within single quotes."""
    return _STATUS.sub(lambda found: found["literal"] or str(status), command)


async def _do(command: str, status: int, execute: Execute) -> Printed:
    try:
        words = shlex.split(command)
    except ValueError:
        return Printed("-bash: unexpected EOF while looking for matching quote", _SYNTAX_STATUS)
    if words[:1] == ["echo"]:
        return Printed(" ".join(words[1:]) + "\n")
    if words[:1] == ["exit"]:
        return _exit(words[1:], status)
    if command in _WORDS:
        return Printed("", _WORDS[command])
    printed = await execute(command)
    if printed.status == UNKNOWN_STATUS:
        return _unknown(words or [command])
    return printed


def _exit(arguments: Sequence[str], status: int) -> Printed:
    """Return the end of the shell, with the status that is named or that of the command before."""
    if not arguments:
        return Printed("", status, leaves=True)
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", arguments[0]):
        return Printed(f"-bash: exit: {arguments[0]}: numeric argument required", _SYNTAX_STATUS, leaves=True)
    if len(arguments) > 1:
        return Printed("-bash: exit: too many arguments", 1)
    return Printed("", int(arguments[0]) % 256, leaves=True)


def _unknown(words: Sequence[str]) -> Printed:
    if words[0] == "sudo" and len(words) > 1:
        return Printed(f"sudo: {words[1]}: command not found", SUDO_STATUS)
    return Printed(f"-bash: {words[0]}: command not found", UNKNOWN_STATUS)
