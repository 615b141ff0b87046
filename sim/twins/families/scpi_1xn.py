"""Simulated 1xN switches of six makes: SCPI with a selectable header, and five dialects with other commands.

Options:

    make=NAME         scpi, leoni-eol, thorlabs-osw, dicon-module, jds-sb or santec-sx1
    header=HEADER     (scpi) header of the command that selects a channel; `#` is the number of the bank
    errors=yes|no     (scpi) whether there is an error queue
    identity=yes|no   (scpi) whether `*IDN?` is known
    end=lf|cr|crlf    line ending
    baud=N            rate of the serial line in bit/s
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sim.twins.frontends.scpi import ErrorQueue, Handler, Instrument, Style, parse_whole_numbers
from sim.twins.switch.banks import BankDevice, WrongReply, make_bank_device
from sim.twins.switch.settings import TwinSettings
from sim.twins.switch.twin import Frontend, SwitchTwin

DEFAULT_SWITCH_TIME_S = 0.02

_LINE_ENDS = {"lf": "\n", "cr": "\r", "crlf": "\r\n"}

Dialect = Callable[[TwinSettings, BankDevice, WrongReply], Mapping[str, Handler]]
"""Returns the command handlers of a dialect by header."""


@dataclass(frozen=True, slots=True)
class _Options:
    """Values of the options."""

    vendor: str
    header: str
    line_end: str
    baud: int
    has_errors: bool
    has_identity: bool


@dataclass(frozen=True, slots=True)
class _VendorProfile:
    """Commands of a make, its line ending, and the rate of its serial line in bit/s."""

    make_handlers: Callable[
        [_Options, TwinSettings, BankDevice, WrongReply, ErrorQueue], Mapping[str, Handler]
    ]
    line_end: str
    baud: int
    answer_end: str = ""  # if empty, answers end like commands


def make_twin(settings: TwinSettings) -> SwitchTwin:
    """Return a simulated unit. Size 2x16 means two 1x8 switches. Raise `SettingError` for invalid settings."""
    unit_options = _parse_options(settings)
    device = make_bank_device(settings, switch_time_s=DEFAULT_SWITCH_TIME_S)
    wrong_reply, errors = WrongReply(device), ErrorQueue()
    profile = _VENDOR_PROFILES[unit_options.vendor]
    handlers = profile.make_handlers(unit_options, settings, device, wrong_reply, errors)
    line_end = _LINE_ENDS[unit_options.line_end]
    answer_end = line_end if "end" in settings.options else profile.answer_end or line_end
    instrument = Instrument(handlers, Style(line_end[-1:].encode(), answer_end), errors)
    options = {
        "banks": str(device.bank_count),
        "channels": str(device.channel_count),
        **_make_address_options(unit_options),
    }
    scheme, serve = "scpi-1xn", instrument.serve
    frontends = {
        "scpi": Frontend(scheme, serve, options=options),
        "serial": Frontend(f"{scheme}+serial", serve, wire="serial", baud=unit_options.baud, options=options),
    }
    return SwitchTwin(device, frontends, faults=wrong_reply.list_faults(), on_boot=errors.clear)


def _parse_options(settings: TwinSettings) -> _Options:
    settings.check_options("make", "header", "end", "errors", "identity", "baud")
    vendor = settings.read_choice("make", *_VENDOR_PROFILES)
    default_header = "ROUTe#:CHANnel" if settings.input_count > 1 else "ROUTe:CHANnel"
    return _Options(
        vendor,
        settings.options.get("header", default_header).removeprefix(":"),
        settings.read_choice("end", _VENDOR_PROFILES[vendor].line_end, *_LINE_ENDS),
        int(settings.read_number("baud", _VENDOR_PROFILES[vendor].baud)),
        settings.read_choice("errors", "yes", "no") == "yes",
        settings.read_choice("identity", "yes", "no") == "yes",
    )


def _make_address_options(unit_options: _Options) -> dict[str, str]:
    """Return the query parameters of the address. They tell the driver the commands of this make."""
    options = (
        {}
        if unit_options.line_end == _VENDOR_PROFILES[unit_options.vendor].line_end
        else {"end": unit_options.line_end}
    )
    if unit_options.vendor != "scpi":
        return {**options, "preset": unit_options.vendor}
    header = unit_options.header.replace("#", "{bank}")
    options |= {"set": f":{header} {{channel}}", "query": f":{header}?"}
    options |= {"errors": ":SYSTem:ERRor?"} if unit_options.has_errors else {}
    return options | ({} if unit_options.has_identity else {"idn": ""})


def _make_scpi_table(
    unit_options: _Options,
    settings: TwinSettings,
    device: BankDevice,
    wrong_reply: WrongReply,
    errors: ErrorQueue,
) -> Mapping[str, Handler]:
    def select(header_numbers: Sequence[int], parameters: Sequence[str]) -> None:
        (channel,) = parse_whole_numbers(parameters, 1)
        device.select_channel(header_numbers[0] if header_numbers else 1, channel)

    serial = settings.serial_number
    table: dict[str, Handler] = {
        unit_options.header: select,
        f"{unit_options.header}?": lambda numbers, _: str(
            wrong_reply.get_channel(numbers[0] if numbers else 1)
        ),
    }
    if unit_options.has_errors:
        table["SYSTem:ERRor[:NEXT]?"] = lambda *_: errors.pop()
    if unit_options.has_identity:
        table["*IDN?"] = lambda *_: f"Simulated,1x{device.channel_count},{serial},1.0"
    return table


def make_leoni_table(
    settings: TwinSettings, device: BankDevice, wrong_reply: WrongReply
) -> Mapping[str, Handler]:
    """Return the commands of a Leoni EOL: `ch3` selects, `ch?` -> `2`, `firmware?` -> `ver3.27` (manual, page 8)."""
    del settings
    return {
        "ch#": lambda numbers, _: device.select_channel(1, numbers[0]),
        "ch?": lambda *_: str(wrong_reply.get_channel(1)),
        "firmware?": lambda *_: "ver3.27",
        "type?": lambda *_: f"eol 1x{device.channel_count}",
    }


def make_thorlabs_table(
    settings: TwinSettings, device: BankDevice, wrong_reply: WrongReply
) -> Mapping[str, Handler]:
    """Return the commands of a Thorlabs OSW: `S 2` selects, `S?` -> `2`."""
    del settings
    return {"S": _make_select_handler(device), "S?": lambda *_: str(wrong_reply.get_channel(1))}


def make_dicon_table(
    settings: TwinSettings, device: BankDevice, wrong_reply: WrongReply
) -> Mapping[str, Handler]:
    """Return the commands of a DiCon module: `I1 3` selects, `I1?`, `CF?` and `ID?` query, `PK` parks the mirror.

    A line feed precedes each answer. The second value of `CF?` is the number of channels. No document gives its first
    value or the text of `ID?`.
    """
    serial = settings.serial_number
    return {
        "I#": _make_select_handler(device, park_number=0),
        "I#?": lambda *_: f"\n{wrong_reply.get_channel(1)}",
        "CF?": lambda *_: f"\n1,{device.channel_count}",
        "ID?": lambda *_: f"\nDiCon MEMS 1x{device.channel_count} {serial}",
        "PK": lambda *_: device.park_bank(1),
    }


def make_jds_table(
    settings: TwinSettings, device: BankDevice, wrong_reply: WrongReply
) -> Mapping[str, Handler]:
    """Return the commands of a JDS SB: `CLOSE 3` selects, `CLOSE?`, `OPC?` and `IDN?` query, `RESET` opens."""
    serial = settings.serial_number
    return {
        "CLOSE": _make_select_handler(device, park_number=0),
        "CLOSE?": lambda *_: str(wrong_reply.get_channel(1)),
        "OPC?": lambda *_: "0" if device.is_moving(1) else "1",
        "IDN?": lambda *_: f"JDS FITEL SB 1x{device.channel_count} {serial}",
        "RESET": lambda *_: device.park_bank(1),
    }


def make_santec_table(
    settings: TwinSettings, device: BankDevice, wrong_reply: WrongReply
) -> Mapping[str, Handler]:
    """Return the commands of a Santec SX1. `CLOSe 3` selects a channel, and `CLOSe` alone selects the next."""
    serial = settings.serial_number

    def close(_: Sequence[int], parameters: Sequence[str]) -> None:
        next_channel = device.get_channel(1) % device.channel_count + 1
        device.select_channel(1, parse_whole_numbers(parameters, 1)[0] if parameters else next_channel)

    def select_module(_: Sequence[int], parameters: Sequence[str]) -> None:
        parse_whole_numbers(parameters, 1)  # there is only one module, so every number selects it

    return {
        "CLOSe": close,
        "CLOSe?": lambda *_: str(wrong_reply.get_channel(1)),
        "CFG:SWT:END?": lambda *_: str(device.channel_count),
        "STATus:OPERation:CONDition?": lambda *_: "1" if device.is_moving(1) else "0",
        "MODule:NUMber?": lambda *_: "1",
        "MODule:CATalog?": lambda *_: f'"SX 1Ax{device.channel_count}"',
        "MODule:SELect": select_module,
        "ROUTe#:HOMe": lambda *_: device.select_channel(1, 1),
        "*RST": lambda *_: device.select_channel(1, 1),
        "*TST?": lambda *_: "0",
        "*ESR?": lambda *_: "0",
        "*IDN?": lambda *_: f"Santec,SX1,{serial},1.0",
    }


def _make_select_handler(device: BankDevice, park_number: int | None = None) -> Handler:
    """Return the handler of a command that selects the channel in its parameter.

    The number `park_number` opens the switch.
    """

    def select(_: Sequence[int], parameters: Sequence[str]) -> None:
        (channel,) = parse_whole_numbers(parameters, 1)
        if channel == park_number:
            device.park_bank(1)
        else:
            device.select_channel(1, channel)

    return select


def _wrap_dialect(make_table: Dialect) -> Callable[..., Mapping[str, Handler]]:
    def make_handlers(
        unit_options: _Options,
        settings: TwinSettings,
        device: BankDevice,
        wrong_reply: WrongReply,
        errors: ErrorQueue,
    ) -> Mapping[str, Handler]:
        del unit_options, errors
        return make_table(settings, device, wrong_reply)

    return make_handlers


_VENDOR_PROFILES: Mapping[str, _VendorProfile] = {
    "scpi": _VendorProfile(_make_scpi_table, "lf", 9600),
    "leoni-eol": _VendorProfile(_wrap_dialect(make_leoni_table), "crlf", 57600),
    "thorlabs-osw": _VendorProfile(_wrap_dialect(make_thorlabs_table), "lf", 115200, "\r\n"),
    "dicon-module": _VendorProfile(_wrap_dialect(make_dicon_table), "cr", 115200, "\r\n"),
    "jds-sb": _VendorProfile(_wrap_dialect(make_jds_table), "lf", 9600),
    "santec-sx1": _VendorProfile(_wrap_dialect(make_santec_table), "lf", 9600),
}
