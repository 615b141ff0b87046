"""Telescent robotic patch panels, over their command line on SSH.

Based on one public driver only and not tested on a real unit yet; the commands of current firmware are not
published. Options of an address, for a device that is different or slower:

    force=1              use ports that somebody else has locked
    move_s, longest_s    seconds of one move, typically and at most (60 and 1800)
    poll_s               seconds between two reads of a robot that is moving (5)
    idle_s               seconds after which the device silently drops an idle connection (180)
    echo=0               for a device that does not echo commands
    prompt, table, input_state, unlock, connect, unallocate, robot_fault, making, clearing
                         other commands; see `ocs_drivers.vendors.telescent.codec.CommandSet`
    key, known_hosts     files of SSH
"""

from __future__ import annotations

import re
from dataclasses import fields

from ocs_drivers.address import DEFAULT_TIMEOUT_S, Address
from ocs_drivers.credentials import Credentials, find_credentials
from ocs_drivers.errors import AddressError
from ocs_drivers.transports.lines import make_ssh_line
from ocs_drivers.vendors.telescent.codec import CommandSet
from ocs_drivers.vendors.telescent.driver import IDLE_LIMIT_S, MOVE_TIME_S, POLL_S, Options, TelescentCli

__all__ = ["CommandSet", "Options", "TelescentCli", "cli_switch"]

CLI_PORT = 9871

DEFAULT_ACCOUNT = Credentials("admin", "admin")
"""An assumption, because no factory account is published. Give credentials or a key."""

_COMMANDS = tuple(field.name for field in fields(CommandSet))
_OPTIONS = ("force", "move_s", "longest_s", "poll_s", "idle_s", "echo")


def cli_switch(
    address: Address, *, timeout_s: float = DEFAULT_TIMEOUT_S, credentials: Credentials | None = None
) -> TelescentCli:
    """Return an unopened Telescent over SSH. Raise `AddressError` for an invalid option."""
    address = address.check_options(*_OPTIONS, *_COMMANDS, "key", "known_hosts").with_port(CLI_PORT)
    account = find_credentials(str(address), credentials or address.credentials, factory=DEFAULT_ACCOUNT)
    command_set, options = read_commands(address), read_options(address)
    transport = make_ssh_line(address, CLI_PORT, account)
    return TelescentCli(str(address), transport, timeout_s=timeout_s, commands=command_set, options=options)


def read_commands(address: Address) -> CommandSet:
    """Return the published commands, overridden by the options of an address. Raise `AddressError`."""
    command_set = CommandSet(**{name: address.options[name] for name in _COMMANDS if name in address.options})
    for pattern in (command_set.prompt, command_set.robot_fault):
        try:
            re.compile(pattern)
        except re.error as error:
            raise AddressError(
                f"{pattern!r} is not a valid regular expression: {error}", device=str(address)
            ) from None
    if (
        not command_set.making
        or not command_set.clearing
        or not (command_set.making + command_set.clearing).isalpha()
    ):
        raise AddressError(
            "the options `making` and `clearing` must consist of letters, "
            f"not {command_set.making!r} and {command_set.clearing!r}",
            device=str(address),
        )
    return command_set


def read_options(address: Address) -> Options:
    """Return the timeouts and flags from the options of an address. Raise `AddressError`."""
    typical_s = address.read_seconds("move_s", MOVE_TIME_S[0])
    return Options(
        (typical_s, max(typical_s, address.read_seconds("longest_s", MOVE_TIME_S[1]))),
        poll_s=address.read_seconds("poll_s", POLL_S),
        idle_limit_s=address.read_seconds("idle_s", IDLE_LIMIT_S),
        allow_locked=_parse_flag(address, "force", default=False),
        has_echo=_parse_flag(address, "echo", default=True),
    )


def _parse_flag(address: Address, option: str, *, default: bool) -> bool:
    text = address.options.get(option, str(int(default)))
    if text not in {"0", "1"}:
        raise AddressError(f"option {option} must be 0 or 1, not {text!r}", device=str(address))
    return text == "1"
