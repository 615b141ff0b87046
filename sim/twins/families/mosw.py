"""A simulated Viavi MAP-200 optical switch (mOSW): banks of 1xN switches with a power monitor at each common port.

No public document shows the answer to `:ROUTe:CLOSe? 1`. The option `close_reply` selects it:

    channel  the channel
    pair     bank and channel
    triple   bank, common port and channel
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
from sim.twins.switch.banks import BankDevice, WrongReply, make_bank_device
from sim.twins.switch.settings import TwinSettings
from sim.twins.switch.twin import Frontend, SwitchTwin

DEFAULT_SWITCH_TIME_S = 0.02
LOWEST_READING_DBM = -100.0
"""Power reading without light (assumption): the lower end of the monitor's range (manual, page 91)."""


def make_twin(settings: TwinSettings) -> SwitchTwin:
    """Return a simulated mOSW. Size 2x16 means two 1x8 switches. Raise `SettingError` for an invalid option or size."""
    close_reply = settings.check_options("close_reply").read_choice(
        "close_reply", "channel", "pair", "triple"
    )
    device = make_bank_device(settings, switch_time_s=DEFAULT_SWITCH_TIME_S)
    wrong_reply = WrongReply(device)
    serial = settings.serial_number
    errors = ErrorQueue()
    commands = _Commands(device, wrong_reply, close_reply, errors)
    handlers = {**commands.make_handlers(), "*IDN?": lambda *_: f"VIAVI,mOSW-C1,{serial},2.10"}
    instrument = Instrument(handlers, Style(answer_end="\n"), errors)
    options = {"banks": str(device.bank_count), "channels": str(device.channel_count)}
    frontends = {"scpi": Frontend("mosw+scpi", instrument.serve, options=options)}
    return SwitchTwin(device, frontends, faults=wrong_reply.list_faults(), on_boot=errors.clear)


class _Commands:
    """Commands of one device."""

    def __init__(
        self, device: BankDevice, wrong_reply: WrongReply, close_reply: str, errors: ErrorQueue
    ) -> None:
        self._device = device
        self._wrong_reply = wrong_reply
        self._close_reply = close_reply
        self._errors = errors

    def make_handlers(self) -> Mapping[str, Handler]:
        """Return the command handlers by header."""
        return {
            "ROUTe:CLOSe": self._close_channel,
            "ROUTe:CLOSe?": self._query_channel,
            "ROUTe:MONitor?": self._query_power,
            "SYSTem:ERRor[:NEXT]?": lambda *_: self._errors.pop(),
            "*CLS": lambda *_: self._errors.clear(),
            "*OPC?": lambda *_: "1",
        }

    def _close_channel(self, header_numbers: Sequence[int], parameters: Sequence[str]) -> None:
        del header_numbers
        bank, common_port, channel = parse_whole_numbers(parameters, 3)
        if common_port != 1:
            raise ScpiError(-222, "common port 1 is the only one")
        self._device.select_channel(bank, channel)

    def _query_channel(self, header_numbers: Sequence[int], parameters: Sequence[str]) -> str:
        del header_numbers
        (bank,) = parse_whole_numbers(parameters, 1)
        channel = self._wrong_reply.get_channel(bank)
        return {"pair": f"{bank}, {channel}", "triple": f"{bank},1,{channel}"}.get(
            self._close_reply, str(channel)
        )

    def _query_power(self, header_numbers: Sequence[int], parameters: Sequence[str]) -> str:
        del header_numbers
        (bank,) = parse_whole_numbers(parameters, 1)
        self._device.get_output(bank, 1)
        dbm = self._device.read_power_dbm(bank)
        return f"0, {LOWEST_READING_DBM if dbm <= DARK_FLOOR_DBM else dbm:.3f}"
