"""SCPI commands and replies of Polatis switches. Pure; invalid replies raise `ProtocolDesync`.

Set commands have no reply: a refusal appears only in the device's error queue, so every write is followed by
`scpi.COMPLETION_QUERY` and checked by reading back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ocs_drivers.errors import ProtocolDesync
from ocs_drivers.model import CrossConnects, PortState

SIZE = ":oxc:swit:size?"
CONNECTIONS = ":oxc:swit:conn:stat?"
PORT_STATES = ":oxc:swit:port:stat?"
DISCONNECT_ALL = ":oxc:swit:disc:all"
BOOT_MODE = ":oxc:boot:mode?"

NOT_A_NUMBER = 9.91e37
"""Value with which SCPI-99 devices report that there is no reading ("not a number")."""


def format_channel_list(ports: Iterable[int]) -> str:
    """Format ports as an SCPI channel list.

    >>> format_channel_list([1, 2, 3]), format_channel_list([])
    ('(@1,2,3)', '(@)')
    """
    return f"(@{','.join(map(str, ports))})"


def _format_pair_lists(pairs: CrossConnects) -> str:
    return f"{format_channel_list(pairs)},{format_channel_list(pairs.values())}"


def format_replace(target: CrossConnects) -> str:
    """Return the command that sets the whole configuration to `target`.

    >>> format_replace(CrossConnects({1: 33, 2: 34})), format_replace(CrossConnects())
    (':oxc:swit:conn:only (@1,2),(@33,34)', ':oxc:swit:disc:all')
    """
    return f":oxc:swit:conn:only {_format_pair_lists(target)}" if target else DISCONNECT_ALL


def format_add(pairs: CrossConnects) -> str:
    """Return the command that adds these pairs.

    >>> format_add(CrossConnects({1: 17}))
    ':oxc:swit:conn:add (@1),(@17)'
    """
    return f":oxc:swit:conn:add {_format_pair_lists(pairs)}"


def format_remove(pairs: CrossConnects) -> str:
    """Return the command that removes these pairs. It names both ends of each pair, so it removes no other circuit.

    >>> format_remove(CrossConnects({1: 17}))
    ':oxc:swit:conn:sub (@1),(@17)'
    """
    return f":oxc:swit:conn:sub {_format_pair_lists(pairs)}"


def format_shutters(ports: Iterable[int], *, is_open: bool) -> str:
    """Return the command that enables or disables ports.

    >>> format_shutters([2, 4], is_open=False)
    ':oxc:swit:port:dis (@2,4)'
    """
    return f":oxc:swit:port:{'enab' if is_open else 'dis'} {format_channel_list(ports)}"


def format_power_query(ports: Iterable[int]) -> str:
    """Return the query for optical power at these ports.

    >>> format_power_query([193, 194])
    ':pmon:pow? (@193,194)'
    """
    return f":pmon:pow? {format_channel_list(ports)}"


_CONNECTIONS = re.compile(r"\(@([\d,\s]*)\)\s*,\s*\(@([\d,\s]*)\)")
_SIZE = re.compile(r"\(?\s*(\d{1,4})\s*,\s*(\d{1,4})\s*\)?")
_SIZE_IN_PRODUCT_CODE = re.compile(r"-(\d{1,4})x(\d{1,4})(?:-|$)")
_PARENTHESISED = re.compile(r"\((?!@)([^()]*)\)")


def parse_product_size(model: str) -> tuple[int, int] | None:
    """Return the numbers of inputs and outputs in a product code, or None.

    >>> parse_product_size("I-OST-24x24-LU1-DMHNS")
    (24, 24)
    """
    match = _SIZE_IN_PRODUCT_CODE.search(model)
    return (int(match[1]), int(match[2])) if match else None


def decode_size(reply: str) -> tuple[int, int]:
    """Decode inputs and outputs.

    >>> decode_size("16,16")
    (16, 16)
    """
    match = _SIZE.fullmatch(reply)
    inputs, outputs = map(int, match.groups()) if match else (0, 0)
    if not (inputs and outputs):
        raise _make_desync("not a matrix size like 16,16", reply)
    return inputs, outputs


def decode_connections(reply: str) -> CrossConnects:
    """Decode the whole configuration from the list of inputs and the list of outputs, which match by position.

    >>> decode_connections("(@3,1),(@49,50)"), decode_connections("(@),(@)")
    (CrossConnects({1: 50, 3: 49}), CrossConnects({}))
    """
    match = _CONNECTIONS.fullmatch(reply)
    if match is None:
        raise _make_desync("not two lists of ports like (@1,3),(@49,50)", reply)
    inputs, outputs = _parse_numbers(match[1], reply), _parse_numbers(match[2], reply)
    if len(inputs) != len(outputs):
        raise _make_desync(f"it lists {len(inputs)} inputs, but {len(outputs)} outputs", reply)
    try:
        return CrossConnects(zip(inputs, outputs, strict=True))
    except ValueError as error:
        raise _make_desync(f"the circuits are not one-to-one ({error})", reply) from error


def decode_peer(reply: str) -> int | None:
    """Return the port in quotes that a port is connected to, or None if it is unconnected.

    >>> decode_peer('"18"'), decode_peer('""')
    (18, None)
    """
    match = re.fullmatch(r'"\s*(\d{0,9})\s*"', reply)
    if match is None:
        raise _make_desync('not a port in quotes like "18"', reply)
    return int(match[1]) if match[1] else None


_BOOT_MODES = {
    "DARK": "DARK",
    "REST": "RESTORE",
    "RESTORE": "RESTORE",
    "AUT": "AUTOSAVE",
    "AUTOSAVE": "AUTOSAVE",
}


def decode_boot_mode(reply: str) -> str:
    """Return the boot mode, which sets the circuits after a power cycle: `DARK`, `RESTORE` or `AUTOSAVE`.

    `DARK` means no circuits, `RESTORE` the saved circuits, `AUTOSAVE` the last circuits.

    >>> decode_boot_mode("REST"), decode_boot_mode("AUTosave")
    ('RESTORE', 'AUTOSAVE')
    """
    mode = _BOOT_MODES.get(reply.strip('"').upper())
    if mode is None:
        raise _make_desync("not a boot mode (DARK, RESTORE or AUTOSAVE)", reply)
    return mode


_STATES = {"E": PortState.ENABLED, "D": PortState.DISABLED, "F": PortState.FAILED}


def decode_port_states(reply: str) -> tuple[PortState, ...]:
    """Decode port states, in the order of the query.

    >>> [state.value for state in decode_port_states("(D,E,F)")]
    ['disabled', 'enabled', 'failed']
    """
    letters = _parse_list(reply)
    unknown = sorted(set(letters) - set(_STATES))
    if unknown:
        raise _make_desync(f"port state {unknown[0][:40]!r} is not one of {', '.join(_STATES)}", reply)
    return tuple(_STATES[letter] for letter in letters)


def decode_powers(reply: str) -> tuple[float | None, ...]:
    """Decode powers in dBm, in the order of the query; None for the SCPI "not a number".

    >>> decode_powers("(-29.55,9.91E37)")
    (-29.55, None)
    """
    try:
        values = [float(item) for item in _parse_list(reply)]
    except ValueError as error:
        raise _make_desync("a value is not a power in dBm", reply) from error
    return tuple(value if abs(value) < NOT_A_NUMBER else None for value in values)


def _parse_numbers(text: str, reply: str) -> list[int]:
    if not text.strip():
        return []
    try:
        return [int(item) for item in text.split(",")]
    except ValueError as error:
        raise _make_desync("a list of ports has an entry that is not a number", reply) from error


def _parse_list(reply: str) -> list[str]:
    match = _PARENTHESISED.fullmatch(reply)
    if match is None:
        raise _make_desync("not a list in parentheses like (1,2)", reply)
    return [item.strip() for item in match[1].split(",")] if match[1].strip() else []


def _make_desync(problem: str, received: str) -> ProtocolDesync:
    return ProtocolDesync(
        f"the reply is not SCPI as Polatis speaks it: {problem}",
        received=received if len(received) <= 200 else f"{received[:200]}...",
        hint="Check that the address is a Polatis SCPI port and that nobody shares this connection.",
    )
