"""The commands `show` and `config` for optical cross-connects, their output, and their usage errors.

Usage errors have the texts and exit statuses of click 7, the release that SONiC's utilities require.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

from sim.twins.families.sonic.configuration import (
    AddMode,
    Configuration,
    InvalidPairs,
    Pair,
    describe_refusal,
    format_pair_name,
    format_port_name,
    format_table,
    parse_pairs,
)
from sim.twins.frontends.cli import CommandError, CommandOutput, Handler, TypedCommand
from sim.twins.switch.matrix import MatrixRefusal
from sim.twins.switch.settings import make_serial_number

VERSION = "SONiC.simulated.0-ocs"
_CONFIG_PATTERN = r"(?P<sudo>sudo )?config ocs "
_SHOW_PATTERN = r"(?:sudo )?show "
_SUCCESS = "cross-connect succeeded"

REFUSED_STATUS = 1
"""Exit status of SONiC's commands for a refused change."""
USAGE_STATUS = 2
"""Exit status of a usage error."""

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
"""Simulated subcommands, by command group."""

ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "config ocs cross-connect add": ("PAIRS", "[MODE]"),
    "config ocs cross-connect delete": ("PAIRS",),
    "config ocs port label": ("PORT", "[LABEL]"),
    "config ocs port state": ("PORT", "STATE"),
}
"""Arguments, by command. Optional arguments are in brackets."""


class Commands:
    """Command handlers of one switch. Changes need sudo unless the user is root."""

    def __init__(self, configuration: Configuration, name: str) -> None:
        self._configuration = configuration
        self._name = name
        self._matrix = configuration.device.matrix

    def make_handlers(self) -> Mapping[str, Handler]:
        """Return the command handlers by regular expression."""
        changes: Mapping[str, Callable[[TypedCommand], str | CommandOutput]] = {
            r"cross-connect add (?P<pairs>\S+)(?: (?P<mode>safe|update|overwrite))?": self._add_pairs,
            r"cross-connect delete (?P<pairs>\S+)": self._delete_pairs,
            r"port state (?P<port>\S+) (?P<state>normal|force_blocked)": self._set_port_state,
            r"port label (?P<port>\S+) +(?P<label>\S*)": self._set_label,
        }

        def unknown(command: TypedCommand) -> CommandOutput:
            return explain_usage_error(command.match["words"].split())

        return {
            **{
                _CONFIG_PATTERN + pattern: self._require_privilege(change)
                for pattern, change in changes.items()
            },
            _SHOW_PATTERN + r"ocs cross-connect config": lambda _: format_table(
                ["id", "a_side", "b_side"],
                [self._format_pair_row(pair) for pair in sorted(self._configuration.configured_pairs)],
            ),
            _SHOW_PATTERN + r"ocs cross-connect status": lambda _: self._list_circuits(),
            _SHOW_PATTERN + r"ocs port config": lambda _: self._list_ports(),
            _SHOW_PATTERN + r"ocs port status": lambda _: self._list_port_states(),
            _SHOW_PATTERN + r"version": lambda _: self._format_version(),
            r"(?P<sudo>sudo )?(?P<words>config(?: .*)?)": self._require_privilege(unknown),
            r"(?:sudo )?(?P<words>show(?: .*)?)": unknown,
        }

    def _require_privilege(self, make_change: Callable[[TypedCommand], str | CommandOutput]) -> Handler:
        def run(command: TypedCommand) -> str | CommandOutput:
            if not command.match["sudo"] and command.user != "root":
                return CommandOutput("Root privileges are required for this operation", REFUSED_STATUS)
            try:
                return make_change(command)
            except (InvalidPairs, CommandError) as error:
                return CommandOutput(str(error), REFUSED_STATUS)
            except MatrixRefusal as refusal:
                return CommandOutput(describe_refusal(refusal, self._matrix.input_count), REFUSED_STATUS)

        return run

    # -- changes

    def _parse_pairs(self, command: TypedCommand) -> list[Pair]:
        return parse_pairs(command.match["pairs"], self._matrix.input_count, self._matrix.output_count)

    def _add_pairs(self, command: TypedCommand) -> str:
        self._configuration.add(
            self._parse_pairs(command), cast("AddMode", command.match["mode"] or "update")
        )
        return f"add {_SUCCESS}"

    def _delete_pairs(self, command: TypedCommand) -> str:
        self._configuration.delete(self._parse_pairs(command))
        return f"delete {_SUCCESS}"

    def _parse_port(self, command: TypedCommand) -> int:
        names = {format_port_name(port, self._matrix.input_count): port for port in self._matrix.ports}
        name = command.match["port"].upper()
        if name not in names:
            raise InvalidPairs(f"Invalid port {name}")
        return names[name]

    def _set_port_state(self, command: TypedCommand) -> str:
        self._configuration.set_blocked(
            self._parse_port(command), blocked=command.match["state"] == "force_blocked"
        )
        return ""

    def _set_label(self, command: TypedCommand) -> str:
        self._configuration.device.labels[self._parse_port(command)] = command.match["label"]
        return ""

    # -- tables

    def _format_pair_row(self, pair: Pair) -> list[str]:
        input_count = self._matrix.input_count
        return [
            format_pair_name(pair, input_count),
            format_port_name(pair[0], input_count),
            format_port_name(pair[1], input_count),
        ]

    def _list_circuits(self) -> str:
        headings = ["id", "a_side", "b_side", "a_side_status", "b_side_status"]
        rows = [
            self._format_pair_row(pair) + [self._configuration.state(pair, port) for port in pair]
            for pair in sorted(self._configuration.hardware)
        ]
        return format_table(headings, rows)

    def _sort_ports(self) -> list[int]:
        """Return the ports in the device's order: 1A, 1B, 2A, 2B, ..."""
        input_count = self._matrix.input_count
        return sorted(
            self._matrix.ports,
            key=lambda port: (port - input_count * (port > input_count), port > input_count),
        )

    def _list_ports(self) -> str:
        device, input_count = self._configuration.device, self._matrix.input_count
        forced_ports = self._matrix.disabled_ports | self._matrix.locked_ports
        rows = [
            [
                format_port_name(port, input_count),
                device.labels.get(port, ""),
                "force_blocked" if port in forced_ports else "normal",
            ]
            for port in self._sort_ports()
        ]
        return format_table(["id", "label", "state"], rows)

    def _list_port_states(self) -> str:
        headings = ["id", "connector_type", "connector_pin", "target_simplex_port_id", "status"]
        return format_table(headings, [self._format_port_row(port) for port in self._sort_ports()])

    def _format_port_row(self, port: int) -> list[str]:
        matrix, input_count = self._matrix, self._matrix.input_count
        peer = matrix.find_peer(port)
        pin, target = ("2", "") if port <= input_count else ("1", "")
        state = "failed" if port in matrix.failed_ports else "blocked"
        if peer is not None:
            pair = (port, peer) if port <= input_count else (peer, port)
            target, state = format_port_name(peer, input_count), self._configuration.state(pair, port)
        return [format_port_name(port, input_count), "LC UPC", pin, target, state]

    def _format_version(self) -> str:
        serial = make_serial_number(self._name)
        return "\n".join(
            (
                f"SONiC Software Version: {VERSION}",
                "Platform: x86_64-kvm_x86_64-r0",
                f"HwSKU: OCS-V-{self._matrix.input_count}x{self._matrix.output_count}",
                "ASIC: ocs",
                f"Serial Number: {serial}",
            )
        )


def explain_usage_error(words: Sequence[str]) -> CommandOutput:
    """Return the usage error for a `show` or `config` command that no pattern matches, or the help of a group.

    >>> print(explain_usage_error(["show", "light"]).text)
    Usage: show [OPTIONS] COMMAND [ARGS]...
    Try "show -h" for help.
    <BLANKLINE>
    Error: No such command "light".
    """
    path, remaining_words = words[0], list(words[1:])
    while path in GROUPS and remaining_words and remaining_words[0] in GROUPS[path]:
        path += f" {remaining_words.pop(0)}"
    if path in GROUPS:
        return (
            _format_error(path, f'No such command "{remaining_words[0]}".')
            if remaining_words
            else _format_help(path)
        )
    arguments = ARGUMENTS.get(path, ())
    required_arguments = [name for name in arguments if not name.startswith("[")]
    if len(remaining_words) < len(required_arguments):
        return _format_error(path, f'Missing argument "{required_arguments[len(remaining_words)]}".')
    if len(remaining_words) > len(arguments):
        extra_words = remaining_words[len(arguments) :]
        return _format_error(
            path,
            f"Got unexpected extra argument{'s' if len(extra_words) > 1 else ''} ({' '.join(extra_words)})",
        )
    return _format_error(path, f'Invalid value for "{arguments[-1].strip("[]")}": {remaining_words[-1]}')


def _format_usage(path: str) -> str:
    arguments = ("COMMAND [ARGS]...",) if path in GROUPS else ARGUMENTS.get(path, ())
    return " ".join(("Usage:", path, "[OPTIONS]", *arguments))


def _format_error(path: str, reason: str) -> CommandOutput:
    return CommandOutput(f'{_format_usage(path)}\nTry "{path} -h" for help.\n\nError: {reason}', USAGE_STATUS)


def _format_help(path: str) -> CommandOutput:
    """Return the help of a command group. Without a subcommand, click 7 prints this help with status 0."""
    return CommandOutput(
        "\n".join((_format_usage(path), "", "Commands:", *(f"  {name}" for name in GROUPS[path])))
    )
