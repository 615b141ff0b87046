"""`ethtool -m` of a simulated NIC: its arguments, and what is printed of the module's memory.

The host's command sends its arguments over the control socket of the plant, and prints the reply.
"""

from __future__ import annotations

import base64
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sim.twins.fibre import FibreError
from sim.twins.hosts.transceivers import cmis, sff8472, sff8636
from sim.twins.hosts.transceivers.memory import (
    FIRST_ADDRESS,
    PAGE_BYTES,
    Diagnostics,
    ModuleMemory,
    NoSuchPageError,
    measure,
)
from sim.twins.plant import Plant
from sim.twins.wire.control import Reply, Request, Verb, VerbError

_NUMBERS = ("offset", "length", "page", "bank", "i2c")
_SWITCHES = ("hex", "raw")
_BAD_ARGUMENTS = 1
_FAILED = 95  # EOPNOTSUPP, as the kernel's own answers are
_QSFP_GBPS, _CMIS_GBPS, _SFP56_GBPS = 40.0, 200.0, 50.0


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """Output of a command, and its exit status."""

    output: bytes
    error: str = ""
    status: int = 0


class UsageError(ValueError):
    """Arguments that `ethtool -m` does not take."""


class Standard(Protocol):
    """A standard of modules, which a module of this package speaks."""

    @property
    def LANES(self) -> int:  # noqa: N802  a constant of the module
        """Lanes that carry light."""
        ...

    def memory(self, nic: str, found: Diagnostics) -> ModuleMemory:
        """Return the memory of the module in a NIC."""
        ...

    def describe(self, module: ModuleMemory) -> Iterator[str]:
        """Yield the lines that ethtool prints of it."""
        ...


def standard_of(rate_gbps: float) -> Standard:
    """Return the standard of modules at a rate, as the module that speaks it.

    >>> [
    ...     standard_of(rate) is each
    ...     for rate, each in ((25, sff8472), (50, sff8472), (100, sff8636), (400, cmis))
    ... ]
    [True, True, True, True]
    """
    if rate_gbps < _QSFP_GBPS or rate_gbps == _SFP56_GBPS:
        return sff8472
    return sff8636 if rate_gbps < _CMIS_GBPS else cmis


def module_in(plant: Plant, nic: str, rate_gbps: float) -> ModuleMemory:
    """Return the memory of the module in a NIC, as the light is now."""
    standard = standard_of(rate_gbps)
    found = measure(standard.LANES, plant.transmit_power_dbm, plant.transmit_dbm(nic), plant.receive_dbm(nic))
    return standard.memory(nic, found)


def print_module(module: ModuleMemory, standard: Standard, words: Sequence[str]) -> CommandOutput:
    """Return what `ethtool -m NIC WORDS` prints."""
    try:
        asked = parse(words)
    except UsageError as error:
        return CommandOutput(b"", f"ethtool: {error}\n", _BAD_ARGUMENTS)
    is_hex, is_raw = asked.get("hex", 0), asked.get("raw", 0)
    numbers = {name: asked[name] for name in _NUMBERS if asked.get(name)}
    if is_hex and is_raw:
        return CommandOutput(b"", "Hex and raw dump cannot be specified together\n", _FAILED)
    if not numbers and not is_hex and not is_raw:
        return CommandOutput("".join(f"{line}\n" for line in standard.describe(module)).encode())
    try:
        offset, data = _select(module, numbers, complete=bool(is_hex or is_raw))
    except NoSuchPageError:
        return CommandOutput(b"", "netlink error: Invalid argument\n", _FAILED)
    return CommandOutput(data if is_raw else hex_dump(data, offset))


def _select(module: ModuleMemory, numbers: Mapping[str, int], *, complete: bool) -> tuple[int, bytes]:
    """Return the bytes asked for and the offset of the first: of the complete dump where no page is named."""
    offset = numbers.get("offset", 0)
    if complete and not numbers.keys() & {"page", "bank", "i2c"}:
        data = module.complete()
        length = numbers.get("length", len(data) - offset)
        if length < 1 or offset + length > len(data):
            raise NoSuchPageError
        return offset, data[offset : offset + length]
    page = numbers.get("page", 0)
    if page and not offset:
        offset = PAGE_BYTES
    address, bank = numbers.get("i2c", FIRST_ADDRESS), numbers.get("bank", 0)
    length = numbers.get("length", PAGE_BYTES)
    return offset, module.read(address=address, bank=bank, page=page, offset=offset, length=length)


def parse(words: Sequence[str]) -> dict[str, int]:
    """Return arguments after the NIC by name. Raises `UsageError`.

    >>> parse(["hex", "on", "offset", "0x80", "length", "16"])
    {'hex': 1, 'offset': 128, 'length': 16}
    """
    found: dict[str, int] = {}
    for at in range(0, len(words), 2):
        name, value = words[at], words[at + 1] if at + 1 < len(words) else ""
        if name in _SWITCHES and value in {"on", "off"}:
            found[name] = int(value == "on")
        elif name in _NUMBERS and (number := _number(value)) is not None:
            found[name] = number
        else:
            raise UsageError(f"bad command line argument(s) at '{name} {value}'; see `ethtool -h`")
    return found


def _number(text: str) -> int | None:
    try:
        return int(text, 0)
    except ValueError:
        return None


def hex_dump(data: bytes, offset: int) -> bytes:
    """Return bytes as a table of 16 a line."""
    lines = ["Offset\t\tValues", "------\t\t------"]
    lines += [f"0x{offset + at:04x}:\t\t{data[at : at + 16].hex(' ')} " for at in range(0, len(data), 16)]
    return ("\n".join(lines) + "\n").encode()


def transceiver_verb(plant: Plant, rate_gbps: float) -> Mapping[str, Verb]:
    """Return the verb of the control socket that answers the hosts' `ethtool -m`."""
    standard = standard_of(rate_gbps)

    def answer(request: Request) -> Reply:
        """Take the NIC's label and the words after its name in base64, one a line; return what to print, likewise."""
        words = base64.b64decode(request.text("words")).decode(errors="replace").splitlines()
        try:
            module = module_in(plant, request.text("nic"), rate_gbps)
        except FibreError as error:
            raise VerbError(str(error)) from None
        printed = print_module(module, standard, words)
        return {
            "status": printed.status,
            "output": base64.b64encode(printed.output).decode(),
            "error": base64.b64encode(printed.error.encode()).decode(),
        }

    return {"ethtool": answer}


_SCRIPT = r"""#!/bin/bash
# The modules of @NICS@ are the simulation's; all else goes to the ethtool of the machine.
field() { [[ $reply =~ \"$1\":\ \"?([A-Za-z0-9+/=]*) ]] && printf %s "${BASH_REMATCH[1]}"; }
case ${1-} in
-m | --dump-module-eeprom | --module-info)
  for nic in @NICS@; do
    [ "${2-}" = "$nic" ] || continue
    words=$( (($# > 2)) && printf '%s\n' "${@:3}" | base64 -w0)
    if ! { exec 3<>/dev/tcp/@ADDRESS@/@PORT@; } 2>/dev/null; then
      echo "ethtool: the simulation of this lab does not answer at @ADDRESS@:@PORT@" >&2
      exit 1
    fi
    printf '{"do": "ethtool", "nic": "%s/%s", "words": "%s"}\n' @HOST@ "$nic" "$words" >&3
    IFS= read -r reply <&3
    field output | base64 -d
    field error | base64 -d >&2
    exit "$(field status)"
  done
  ;;
esac
for real in /usr/sbin/ethtool /sbin/ethtool /usr/bin/ethtool; do
  [ -x $real ] && exec $real "$@"
done
echo "ethtool: the machine has none: apt-get install --no-install-recommends ethtool" >&2
exit 127
"""


def ethtool_script(host: str, nics: Sequence[str], address: str, port: int) -> str:
    """Return the command of a host; the plant's control socket is at `address` and `port`."""
    values = {"NICS": shlex.join(nics), "HOST": shlex.quote(host), "ADDRESS": address, "PORT": str(port)}
    text = _SCRIPT
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text
