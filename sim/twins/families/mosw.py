"""A Viavi MAP-200 optical switch (mOSW): banks of 1xN switches with a monitor at each common port.

The option `close_reply` says what `:ROUTe:CLOSe? 1` answers, which no public text shows: the `channel`, the
`pair` of bank and channel, or the `triple` of bank, common port and channel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sim.models.light import DARK_FLOOR_DBM
from sim.twins.frontends.scpi import (
    ErrorQueue,
    Handler,
    Instrument,
    ScpiError,
    Style,
    parse_whole_numbers,
)
from sim.twins.switch.banks import BankDevice, WrongReply, bank_device
from sim.twins.switch.settings import TwinSettings
from sim.twins.switch.twin import Frontend, SwitchTwin

DEFAULT_SWITCH_TIME_S = 0.02
LOWEST_READING_DBM = -100.0
"""The end of the monitor's range (manual, page 91); what it reads in the dark is an assumption."""


def twin(settings: TwinSettings) -> SwitchTwin:
    """Return a simulated mOSW; `size` 2x16 is two switches 1x8. Raises `SettingError`."""
    reply = settings.only("close_reply").choice("close_reply", "channel", "pair", "triple")
    device = bank_device(settings, switch_time_s=DEFAULT_SWITCH_TIME_S)
    wrong = WrongReply(device)
    serial = settings.serial_number
    errors = ErrorQueue()
    commands = _Commands(device, wrong, reply, errors)
    table = {**commands.table(), "*IDN?": lambda *_: f"VIAVI,mOSW-C1,{serial},2.10"}
    instrument = Instrument(table, Style(answer_end="\n"), errors)
    options = {"banks": str(device.banks), "channels": str(device.channels)}
    frontends = {"scpi": Frontend("mosw+scpi", instrument.serve, options=options)}
    return SwitchTwin(device, frontends, faults=wrong.faults(), on_boot=errors.clear)


class _Commands:
    """The commands on a device."""

    def __init__(self, device: BankDevice, wrong: WrongReply, reply: str, errors: ErrorQueue) -> None:
        self._device = device
        self._wrong = wrong
        self._reply = reply
        self._errors = errors

    def table(self) -> Mapping[str, Handler]:
        """Return commands by header."""
        return {
            "ROUTe:CLOSe": self._close,
            "ROUTe:CLOSe?": self._closed,
            "ROUTe:MONitor?": self._monitor,
            "SYSTem:ERRor[:NEXT]?": lambda *_: self._errors.pop(),
            "*CLS": lambda *_: self._errors.clear(),
            "*OPC?": lambda *_: "1",
        }

    def _close(self, numbers: Sequence[int], texts: Sequence[str]) -> None:
        del numbers
        bank, common, channel = parse_whole_numbers(texts, 3)
        if common != 1:
            raise ScpiError(-222, "common port 1 is the only one")
        self._device.select(bank, channel)

    def _closed(self, numbers: Sequence[int], texts: Sequence[str]) -> str:
        del numbers
        (bank,) = parse_whole_numbers(texts, 1)
        channel = self._wrong.channel(bank)
        return {"pair": f"{bank}, {channel}", "triple": f"{bank},1,{channel}"}.get(self._reply, str(channel))

    def _monitor(self, numbers: Sequence[int], texts: Sequence[str]) -> str:
        del numbers
        (bank,) = parse_whole_numbers(texts, 1)
        self._device.output(bank, 1)
        dbm = self._device.power_dbm(bank)
        return f"0, {LOWEST_READING_DBM if dbm <= DARK_FLOOR_DBM else dbm:.3f}"
