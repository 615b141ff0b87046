"""Answers of SONiC's command lines `show` and `config` to what they do not understand. Pure.

Both are made with click, whose texts and statuses these are (release 7, which SONiC's utilities name).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sim.twins.frontends.interpreter import Printed

USAGE_STATUS = 2
"""Exit status of what cannot be understood."""

GROUPS: Mapping[str, tuple[str, ...]] = {
    "show": ("ocs", "version"),
    "show ocs": ("cross-connect", "port"),
    "show ocs cross-connect": ("config", "status"),
    "show ocs port": ("config", "status"),
    "config": ("ocs",),
    "config ocs": ("cross-connect", "port"),
    "config ocs cross-connect": ("add", "delete"),
    "config ocs port": ("label", "state"),
}
"""Commands that have commands, and those that are simulated."""

ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "config ocs cross-connect add": ("PAIRS", "[MODE]"),
    "config ocs cross-connect delete": ("PAIRS",),
    "config ocs port label": ("PORT", "[LABEL]"),
    "config ocs port state": ("PORT", "STATE"),
}
"""Arguments of commands that take any."""


def misunderstood(words: Sequence[str]) -> Printed:
    """Return the answer to words that begin with `show` or `config` and are not a command.

    >>> print(misunderstood(["show", "light"]).text)
    Usage: show [OPTIONS] COMMAND [ARGS]...
    Try "show -h" for help.
    <BLANKLINE>
    Error: No such command "light".
    """
    path, rest = words[0], list(words[1:])
    while path in GROUPS and rest and rest[0] in GROUPS[path]:
        path += f" {rest.pop(0)}"
    if path in GROUPS:
        return _error(path, f'No such command "{rest[0]}".') if rest else _help(path)
    arguments = ARGUMENTS.get(path, ())
    required = [name for name in arguments if not name.startswith("[")]
    if len(rest) < len(required):
        return _error(path, f'Missing argument "{required[len(rest)]}".')
    if len(rest) > len(arguments):
        extra = rest[len(arguments) :]
        return _error(
            path, f"Got unexpected extra argument{'s' if len(extra) > 1 else ''} ({' '.join(extra)})"
        )
    return _error(path, f'Invalid value for "{arguments[-1].strip("[]")}": {rest[-1]}')


def _usage(path: str) -> str:
    takes = ("COMMAND [ARGS]...",) if path in GROUPS else ARGUMENTS.get(path, ())
    return " ".join(("Usage:", path, "[OPTIONS]", *takes))


def _error(path: str, why: str) -> Printed:
    return Printed(f'{_usage(path)}\nTry "{path} -h" for help.\n\nError: {why}', USAGE_STATUS)


def _help(path: str) -> Printed:
    """Return the help of a command that has commands: click 7 prints it when none is named, and that is no error."""
    return Printed("\n".join((_usage(path), "", "Commands:", *(f"  {name}" for name in GROUPS[path]))))
