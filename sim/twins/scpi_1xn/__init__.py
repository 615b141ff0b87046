"""1xN switches of the makes that differ in a word: SCPI with a header to choose, LEONI EOL, Thorlabs OSW.

Options: `make` is `scpi`, `leoni-eol` or `thorlabs-osw`; of SCPI `header` is the one that selects
(`ROUTe#:CHANnel`, where `#` is the number of the bank), `end` ends lines (`lf`, `cr`, `crlf`), `errors=no` has no
error queue, `identity=no` no `*IDN?`. `baud` is that of the serial line.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

from sim.twins.polatis.scpi_errors import ErrorQueue
from sim.twins.scpi_1xn.banks import BankDevice, WrongReply, bank_device
from sim.twins.scpi_1xn.instrument import Handler, Instrument, Style, whole_numbers
from sim.twins.switch.settings import TwinSettings
from sim.twins.switch.twin import Front, SwitchTwin

DEFAULT_SWITCH_TIME_S = 0.02

_BAUD_OF = {"scpi": 9600, "leoni-eol": 57600, "thorlabs-osw": 115200}
_ENDS = {"lf": "\n", "cr": "\r", "crlf": "\r\n"}


def twin(settings: TwinSettings) -> SwitchTwin:
    """A simulated bank; `size` 2x16 is two switches 1x8, which SCPI only can tell apart. Raises `SettingError`."""
    settings.only("make", "header", "end", "errors", "identity", "baud")
    make = settings.choice("make", *_BAUD_OF)
    device = bank_device(settings, switch_time_s=DEFAULT_SWITCH_TIME_S)
    wrong, errors = WrongReply(device), ErrorQueue()
    tables = {"scpi": _scpi, "leoni-eol": _leoni, "thorlabs-osw": _thorlabs}
    default_end = {"scpi": "lf", "leoni-eol": "crlf", "thorlabs-osw": "lf"}[make]
    end = _ENDS[settings.choice("end", default_end, *_ENDS)]
    instrument = Instrument(
        tables[make](settings, device, wrong, errors), Style(end[-1:].encode(), end), errors
    )
    baud = int(settings.number("baud", _BAUD_OF[make]))
    options = _address_options(settings, device, make)
    fronts = {
        "scpi": Front("scpi-1xn", instrument.converse, options=options),
        "serial": Front("scpi-1xn+serial", instrument.converse, wire="serial", baud=baud, options=options),
    }
    return SwitchTwin(device, fronts, faults=wrong.faults(), on_boot=errors.clear)


def _address_options(settings: TwinSettings, device: BankDevice, make: str) -> dict[str, str]:
    """What an address must say of this device, in the words of whoever drives it."""
    options = {"banks": str(device.banks), "channels": str(device.channels)}
    if make != "scpi":
        return {**options, "preset": make}
    header = _header(settings).replace("#", "{bank}")
    options |= {"set": f":{header} {{channel}}", "query": f":{header}?"}
    options |= {"errors": ":SYSTem:ERRor?"} if settings.choice("errors", "yes", "no") == "yes" else {}
    options |= {} if settings.choice("identity", "yes", "no") == "yes" else {"idn": ""}
    return options | ({"end": settings.options["end"]} if "end" in settings.options else {})


def _header(settings: TwinSettings) -> str:
    default = "ROUTe#:CHANnel" if settings.inputs > 1 else "ROUTe:CHANnel"
    return settings.options.get("header", default).removeprefix(":")


def _serial(settings: TwinSettings) -> str:
    return f"SIM{zlib.crc32(settings.name.encode()) % 1_000_000:06d}"


def _scpi(
    settings: TwinSettings, device: BankDevice, wrong: WrongReply, errors: ErrorQueue
) -> Mapping[str, Handler]:
    def select(numbers: Sequence[int], texts: Sequence[str]) -> None:
        (channel,) = whole_numbers(texts, 1)
        device.select(numbers[0] if numbers else 1, channel)

    header = _header(settings)
    table: dict[str, Handler] = {
        header: select,
        f"{header}?": lambda numbers, _: str(wrong.channel(numbers[0] if numbers else 1)),
    }
    if settings.choice("errors", "yes", "no") == "yes":
        table["SYSTem:ERRor[:NEXT]?"] = lambda *_: errors.pop()
    if settings.choice("identity", "yes", "no") == "yes":
        identity = f"Simulated,1x{device.channels},{_serial(settings)},1.0"
        table["*IDN?"] = lambda *_: identity
    return table


def _leoni(
    settings: TwinSettings, device: BankDevice, wrong: WrongReply, errors: ErrorQueue
) -> Mapping[str, Handler]:
    """`ch?` -> `2`, `ch3` silent, `firmware?` -> `ver3.27` (manual, page 8)."""
    del settings, errors
    return {
        "ch#": lambda numbers, _: device.select(1, numbers[0]),
        "ch?": lambda *_: str(wrong.channel(1)),
        "firmware?": lambda *_: "ver3.27",
    }


def _thorlabs(
    settings: TwinSettings, device: BankDevice, wrong: WrongReply, errors: ErrorQueue
) -> Mapping[str, Handler]:
    """`S 2` silent, `S?` -> `2` (assumptions)."""
    del settings, errors
    return {
        "S": lambda _, texts: device.select(1, *whole_numbers(texts, 1)),
        "S?": lambda *_: str(wrong.channel(1)),
    }
