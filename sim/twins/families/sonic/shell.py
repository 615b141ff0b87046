"""Lines of the shell: commands joined by `;`, `&&` and `||`, `$?`, and the few words of bash that scripts need.

Pipes, files and variables are not there: such a line is an unknown command.
"""

from __future__ import annotations

import re
import shlex

from sim.twins.frontends.interpreter import Execute, Printed

UNKNOWN_STATUS = 127
"""Exit status of bash for a command that does not exist."""

_QUOTED = r"""'[^']*'|"(?:\\.|[^"\\])*"|\\."""
_PART = re.compile(rf"""(?P<command>(?:{_QUOTED}|(?!&&|\|\|)[^;])+)|(?P<joint>;|&&|\|\|)""")
_STATUS = re.compile(r"""(?P<literal>'[^']*'|\\.)|\$\?|\$\{\?\}""")
_WORDS = {"true": 0, "false": 1}


async def interpret(line: str, status: int, execute: Execute) -> Printed:
    """Do the commands of a line in turn, as bash does; the exit status is that of the last one done."""
    output: list[str] = []
    joint = ";"
    for part in _PART.finditer(line):
        if part["joint"]:
            joint = part["joint"]
            continue
        command = part["command"].strip()
        if not command or (joint == "&&" and status) or (joint == "||" and not status):
            continue
        printed = await _do(_expanded(command, status), execute)
        output += printed.text.splitlines()
        status = printed.status
    return Printed("".join(f"{row}\n" for row in output), status)


def _expanded(command: str, status: int) -> str:
    """Return a command with the exit status of the one before in place of `$?`; not within single quotes."""
    return _STATUS.sub(lambda found: found["literal"] or str(status), command)


async def _do(command: str, execute: Execute) -> Printed:
    try:
        words = shlex.split(command)
    except ValueError:
        return Printed("-bash: unexpected EOF while looking for matching quote", 2)
    if words[:1] == ["echo"]:
        return Printed(" ".join(words[1:]) + "\n")
    if command in _WORDS:
        return Printed("", _WORDS[command])
    printed = await execute(command)
    if printed.status == UNKNOWN_STATUS:
        return Printed(f"-bash: {words[0] if words else command}: command not found", UNKNOWN_STATUS)
    return printed
