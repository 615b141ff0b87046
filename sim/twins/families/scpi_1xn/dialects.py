"""Commands of makes of 1xN switches, as public clients of each send them; the evidence page names the clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sim.twins.frontends.scpi_instrument import Handler, whole_numbers
from sim.twins.switch.banks import BankDevice, WrongReply
from sim.twins.switch.settings import TwinSettings

Dialect = Callable[[TwinSettings, BankDevice, WrongReply], Mapping[str, Handler]]
"""Gives the commands by header."""


def leoni(settings: TwinSettings, device: BankDevice, wrong: WrongReply) -> Mapping[str, Handler]:
    """Return `ch?` -> `2`, `ch3` silent, `firmware?` -> `ver3.27` (manual, page 8), and `type?` -> `eol 1x8`."""
    del settings
    return {
        "ch#": lambda numbers, _: device.select(1, numbers[0]),
        "ch?": lambda *_: str(wrong.channel(1)),
        "firmware?": lambda *_: "ver3.27",
        "type?": lambda *_: f"eol 1x{device.channels}",
    }


def thorlabs(settings: TwinSettings, device: BankDevice, wrong: WrongReply) -> Mapping[str, Handler]:
    """Return `S 2` silent, `S?` -> `2`."""
    del settings
    return {"S": _selecting(device), "S?": lambda *_: str(wrong.channel(1))}


def dicon_module(settings: TwinSettings, device: BankDevice, wrong: WrongReply) -> Mapping[str, Handler]:
    """Return `I1 3` silent, `I1?`, `CF?` with the number of channels second, `ID?`, and `PK`, which parks the mirror.

    Before each answer comes a line feed. What `CF?` says first, and the text of `ID?`, are choices.
    """
    serial = settings.serial_number
    return {
        "I#": _selecting(device, park=0),
        "I#?": lambda *_: f"\n{wrong.channel(1)}",
        "CF?": lambda *_: f"\n1,{device.channels}",
        "ID?": lambda *_: f"\nDiCon MEMS 1x{device.channels} {serial}",
        "PK": lambda *_: device.park(1),
    }


def jds(settings: TwinSettings, device: BankDevice, wrong: WrongReply) -> Mapping[str, Handler]:
    """Return `CLOSE 3` silent, `CLOSE?`, `OPC?` without a star, `IDN?`, and `RESET` to channel 0: none."""
    serial = settings.serial_number
    return {
        "CLOSE": _selecting(device, park=0),
        "CLOSE?": lambda *_: str(wrong.channel(1)),
        "OPC?": lambda *_: "0" if device.is_moving(1) else "1",
        "IDN?": lambda *_: f"JDS FITEL SB 1x{device.channels} {serial}",
        "RESET": lambda *_: device.park(1),
    }


def santec(settings: TwinSettings, device: BankDevice, wrong: WrongReply) -> Mapping[str, Handler]:
    """Return `CLOSe 3` silent, `CLOSe` to the next channel, `CLOSe?`, and the questions about its one module."""
    serial = settings.serial_number
    return {
        "CLOSe": lambda _, texts: _close_or_next(device, texts),
        "CLOSe?": lambda *_: str(wrong.channel(1)),
        "CFG:SWT:END?": lambda *_: str(device.channels),
        "STATus:OPERation:CONDition?": lambda *_: "1" if device.is_moving(1) else "0",
        "MODule:NUMber?": lambda *_: "1",
        "MODule:CATalog?": lambda *_: f'"SX 1Ax{device.channels}"',
        "MODule:SELect": lambda _, texts: _only_module(texts),
        "ROUTe#:HOMe": lambda *_: device.select(1, 1),
        "*RST": lambda *_: device.select(1, 1),
        "*TST?": lambda *_: "0",
        "*ESR?": lambda *_: "0",
        "*IDN?": lambda *_: f"Santec,SX1,{serial},1.0",
    }


def _selecting(device: BankDevice, park: int | None = None) -> Handler:
    """Return the handler of a command with the channel as its parameter; `park` is the number that means none."""

    def select(_: Sequence[int], texts: Sequence[str]) -> None:
        (channel,) = whole_numbers(texts, 1)
        if channel == park:
            device.park(1)
        else:
            device.select(1, channel)

    return select


def _close_or_next(device: BankDevice, texts: Sequence[str]) -> None:
    if texts:
        device.select(1, *whole_numbers(texts, 1))
    else:
        device.select(1, device.channel(1) % device.channels + 1)


def _only_module(texts: Sequence[str]) -> None:
    """Take any module for the one there is."""
    whole_numbers(texts, 1)
