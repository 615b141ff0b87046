"""Commands to banks of 1xN switches, and their answers. Pure; unexpected answers raise `ProtocolDesync`.

Makes differ in a few commands only. Each make has a `CommandSet` of templates with the fields `{bank}` and `{channel}`,
both counted from 1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from string import Formatter

from ocs_drivers.errors import ProtocolDesync
from ocs_drivers.model import Identity, Power
from ocs_drivers.protocols import scpi

DARK_FLOOR_DBM = -55.0
"""Highest power at which an output counts as dark; not confirmed on a unit."""

_NUMBERS = re.compile(r"[+-]?\d{1,9}(\s*,\s*[+-]?\d{1,9}){0,2}", re.ASCII)
_MONITOR = re.compile(r"\d{1,9}\s*,\s*([+-]?\d+(?:\.\d+)?)", re.ASCII)
_FIELDS = frozenset({"bank", "channel"})


@dataclass(frozen=True, slots=True)
class CommandSet:
    """The commands of one make of 1xN switch.

    `select_command` connects the common port of a bank to a channel, without a reply. `channel_query` reads the
    channel. A make may lack the other commands, which are then empty: `identity` (`vendor` and `model` replace it),
    `error_query` (the oldest entry of the error queue), `power_query` (the power at a common port), `open_state`
    (whether a bank is open, with no channel connected). `switch_time_s` is (typical, longest). Raises `ValueError` for
    commands that cannot be sent.

    >>> dicon = CommandSet("ROUT{bank}:SCAN {channel}", "ROUT{bank}:SCAN?")
    >>> dicon.format_select(6, 2), dicon.format_query(6)
    ('ROUT6:SCAN 2', 'ROUT6:SCAN?')
    """

    select_command: str
    channel_query: str
    identity: str = scpi.IDENTITY_QUERY
    error_query: str = ""
    power_query: str = ""
    open_state: str = ""
    terminator: bytes = b"\n"
    vendor: str = "unknown"
    model: str = "1xN switch"
    switch_time_s: tuple[float, float] = (0.02, 0.5)

    def __post_init__(self) -> None:
        for text in (self.select_command, self.channel_query, self.power_query, self.open_state):
            _check_template(text)
        if "channel" not in _find_fields(self.select_command):
            raise ValueError(f"{self.select_command!r} does not contain {{channel}}")

    @property
    def names_banks(self) -> bool:
        """True if the commands name the bank. A device with several banks needs this."""
        return "bank" in _find_fields(self.select_command) and "bank" in _find_fields(self.channel_query)

    def format_select(self, bank: int, channel: int) -> str:
        """Return the command that connects a bank's common port to a channel."""
        return self.select_command.format(bank=bank, channel=channel)

    def format_query(self, bank: int) -> str:
        """Return the query for the channel of a bank."""
        return self.channel_query.format(bank=bank)

    def format_power_query(self, bank: int) -> str:
        """Return the query for the power at a bank's common port."""
        return self.power_query.format(bank=bank)

    def format_open_query(self, bank: int) -> str:
        """Return the query for the state of a bank, open or not."""
        return self.open_state.format(bank=bank)

    def decode_identity(self, reply: str) -> Identity:
        """Decode the four fields of IEEE 488.2; any other text counts as the name of the firmware.

        >>> CommandSet("ch{channel}", "ch?", vendor="LEONI", model="EOL").decode_identity("ver3.27")
        Identity(vendor='LEONI', model='EOL', serial='', firmware='ver3.27')
        """
        if reply.count(",") == 3:
            return scpi.decode_identity(reply)
        if not reply or _NUMBERS.fullmatch(reply):
            raise _make_desync("not an identity, but empty or a number", reply)
        return Identity(self.vendor, self.model, "", reply)


def decode_channel(reply: str, bank: int, channel_count: int) -> int | None:
    """Return the channel that a bank is connected to, or None for channel 0, which means unconnected.

    A reply may hold the numbers of bank and common port before the channel; no public text shows the format.

    >>> decode_channel("2", 6, 8), decode_channel("6, 2", 6, 8), decode_channel("6,1,2", 6, 8)
    (2, 2, 2)
    >>> decode_channel("0", 6, 8) is None
    True
    """
    if _NUMBERS.fullmatch(reply) is None:
        raise _make_desync("not the number of a channel", reply)
    *bank_fields, channel = (int(field) for field in reply.split(","))
    if bank_fields and bank_fields not in ([bank], [bank, 1]):
        raise _make_desync(f"the answer is for another bank than {bank}", reply)
    if not 0 <= channel <= channel_count:
        raise _make_desync(f"bank {bank} has channels 1..{channel_count}, not {channel}", reply)
    return channel or None


def decode_open_state(reply: str) -> bool:
    """Return True if a bank is open, with no channel connected (an assumption about `OPEN:STATE?`).

    >>> decode_open_state("1"), decode_open_state("0")
    (True, False)
    """
    if reply not in {"0", "1"}:
        raise _make_desync("not 0 (connected) or 1 (open)", reply)
    return reply == "1"


def decode_power(reply: str) -> Power:
    """Decode a power in dBm; ignore the direction of the light before it.

    >>> decode_power("0, -8.000")
    Power(dbm=-8.0, below_floor=False)
    """
    match = _MONITOR.fullmatch(reply)
    if match is None:
        raise _make_desync("not a direction and a power in dBm like 0,-8.000", reply)
    dbm = float(match[1])
    return Power(dbm, below_floor=dbm <= DARK_FLOOR_DBM)


def _check_template(text: str) -> None:
    if not (text.isascii() and (text.isprintable() or not text)):
        raise ValueError(f"{text!r} is not printable ASCII")
    unknown = _find_fields(text) - _FIELDS
    if unknown:
        raise ValueError(f"{text!r} has a field other than {{bank}} and {{channel}}")


def _find_fields(template: str) -> set[str]:
    return {field for _, field, form, conversion in Formatter().parse(template) if field is not None}


def _make_desync(problem: str, received: str) -> ProtocolDesync:
    return ProtocolDesync(
        f"the reply is not that of a 1xN switch: {problem}",
        received=received[:200],
        hint="Check the address with its options, and that nobody shares this connection.",
    )
