"""The command `ethtool -m` for a simulated NIC: its arguments, and its output.

On the host, a script sends the arguments to the control socket of the plant, and prints the reply.
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
    compute_diagnostics,
)
from sim.twins.plant import Plant
from sim.twins.wire.control import Reply, Request, Verb, VerbError

_NUMBER_OPTIONS = ("offset", "length", "page", "bank", "i2c")
_FLAG_OPTIONS = ("hex", "raw")
_USAGE_STATUS = 1
_NOT_SUPPORTED_STATUS = 95  # EOPNOTSUPP, as the kernel returns it
_QSFP_GBPS, _CMIS_GBPS, _SFP56_GBPS = 40.0, 200.0, 50.0


@dataclass(frozen=True, slots=True)
class EthtoolOutput:
    """Standard output, standard error and exit status of a command."""

    stdout: bytes
    stderr: str = ""
    status: int = 0


class UsageError(ValueError):
    """Arguments that `ethtool -m` does not accept."""


class Standard(Protocol):
    """Interface of a Python module that implements a standard of optical modules, such as `cmis`."""

    @property
    def LANE_COUNT(self) -> int:  # noqa: N802  a constant of the Python module
        """Number of lanes that carry light."""
        ...

    def make_memory(self, nic: str, measurements: Diagnostics) -> ModuleMemory:
        """Return the memory of the optical module in a NIC."""
        ...

    def describe(self, module: ModuleMemory) -> Iterator[str]:
        """Yield the lines that ethtool prints for an optical module."""
        ...


def select_standard(rate_gbps: float) -> Standard:
    """Return the Python module that implements the standard of optical modules for a rate.

    >>> [
    ...     select_standard(rate) is each
    ...     for rate, each in ((25, sff8472), (50, sff8472), (100, sff8636), (400, cmis))
    ... ]
    [True, True, True, True]
    """
    if rate_gbps < _QSFP_GBPS or rate_gbps == _SFP56_GBPS:
        return sff8472
    return sff8636 if rate_gbps < _CMIS_GBPS else cmis


def make_module(plant: Plant, nic: str, rate_gbps: float) -> ModuleMemory:
    """Return the memory of the optical module in a NIC, with current measurements. Raise `FibreError` if unknown."""
    standard = select_standard(rate_gbps)
    measurements = compute_diagnostics(
        standard.LANE_COUNT,
        plant.transmit_power_dbm,
        plant.read_transmit_dbm(nic),
        plant.read_receive_dbm(nic),
    )
    return standard.make_memory(nic, measurements)


def format_module(module: ModuleMemory, standard: Standard, words: Sequence[str]) -> EthtoolOutput:
    """Return the output of `ethtool -m NIC WORDS`."""
    try:
        arguments = parse_arguments(words)
    except UsageError as error:
        return EthtoolOutput(b"", f"ethtool: {error}\n", _USAGE_STATUS)
    is_hex, is_raw = arguments.get("hex", 0), arguments.get("raw", 0)
    number_by_option = {name: arguments[name] for name in _NUMBER_OPTIONS if arguments.get(name)}
    if is_hex and is_raw:
        return EthtoolOutput(b"", "Hex and raw dump cannot be specified together\n", _NOT_SUPPORTED_STATUS)
    if not number_by_option and not is_hex and not is_raw:
        return EthtoolOutput("".join(f"{line}\n" for line in standard.describe(module)).encode())
    try:
        offset, data = _select_bytes(module, number_by_option, is_complete=bool(is_hex or is_raw))
    except NoSuchPageError:
        return EthtoolOutput(b"", "netlink error: Invalid argument\n", _NOT_SUPPORTED_STATUS)
    return EthtoolOutput(data if is_raw else format_hex_dump(data, offset))


def _select_bytes(
    module: ModuleMemory, number_by_option: Mapping[str, int], *, is_complete: bool
) -> tuple[int, bytes]:
    """Return the offset of the first selected byte, and the selected bytes. Raise `NoSuchPageError`.

    The offset counts from the start of the complete dump if `is_complete`, and page, bank and address are not given.
    Otherwise it counts in the memory that is visible with the page.
    """
    offset = number_by_option.get("offset", 0)
    if is_complete and not number_by_option.keys() & {"page", "bank", "i2c"}:
        data = module.read_dump()
        length = number_by_option.get("length", len(data) - offset)
        if length < 1 or offset + length > len(data):
            raise NoSuchPageError
        return offset, data[offset : offset + length]
    page = number_by_option.get("page", 0)
    if page and not offset:
        offset = PAGE_BYTES
    address, bank = number_by_option.get("i2c", FIRST_ADDRESS), number_by_option.get("bank", 0)
    length = number_by_option.get("length", PAGE_BYTES)
    return offset, module.read(address=address, bank=bank, page=page, offset=offset, length=length)


def parse_arguments(words: Sequence[str]) -> dict[str, int]:
    """Return the arguments after the NIC, by name. Raise `UsageError` for an invalid argument.

    >>> parse_arguments(["hex", "on", "offset", "0x80", "length", "16"])
    {'hex': 1, 'offset': 128, 'length': 16}
    """
    arguments: dict[str, int] = {}
    for position in range(0, len(words), 2):
        name, value = words[position], words[position + 1] if position + 1 < len(words) else ""
        if name in _FLAG_OPTIONS and value in {"on", "off"}:
            arguments[name] = int(value == "on")
        elif name in _NUMBER_OPTIONS and (number := _parse_number(value)) is not None:
            arguments[name] = number
        else:
            raise UsageError(f"bad command line argument(s) at '{name} {value}'; see `ethtool -h`")
    return arguments


def _parse_number(text: str) -> int | None:
    try:
        return int(text, 0)
    except ValueError:
        return None


def format_hex_dump(data: bytes, offset: int) -> bytes:
    """Return a hexadecimal dump with 16 bytes on each line. `offset` is the address of the first byte."""
    lines = ["Offset\t\tValues", "------\t\t------"]
    lines += [
        f"0x{offset + position:04x}:\t\t{data[position : position + 16].hex(' ')} "
        for position in range(0, len(data), 16)
    ]
    return ("\n".join(lines) + "\n").encode()


def make_transceiver_verb(plant: Plant, rate_gbps: float) -> Mapping[str, Verb]:
    """Return the verb `ethtool` of the control socket. It executes `ethtool -m` for the hosts."""
    standard = select_standard(rate_gbps)

    def answer(request: Request) -> Reply:
        """Execute `ethtool -m` for `nic`. The field `words` has one argument on each line. Texts are in base64."""
        words = base64.b64decode(request.get_text("words")).decode(errors="replace").splitlines()
        try:
            module = make_module(plant, request.get_text("nic"), rate_gbps)
        except FibreError as error:
            raise VerbError(str(error)) from None
        output = format_module(module, standard, words)
        return {
            "status": output.status,
            "output": base64.b64encode(output.stdout).decode(),
            "error": base64.b64encode(output.stderr.encode()).decode(),
        }

    return {"ethtool": answer}


_SCRIPT_TEMPLATE = r"""#!/bin/bash
# Answer for the simulated modules of @NICS@; pass everything else to the ethtool of the machine.
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
echo "ethtool: not installed on this machine: apt-get install --no-install-recommends ethtool" >&2
exit 127
"""


def make_ethtool_script(host: str, nics: Sequence[str], address: str, port: int) -> str:
    """Return the `ethtool` script of a host. It connects to the plant's control socket at `address` and `port`."""
    values = {"NICS": shlex.join(nics), "HOST": shlex.quote(host), "ADDRESS": address, "PORT": str(port)}
    text = _SCRIPT_TEMPLATE
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text
