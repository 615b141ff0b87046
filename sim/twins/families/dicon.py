"""A simulated DiCon MXS-9100: banks of 1xN switches with SCPI over TCP and over a serial line. CR ends each line.

Options for behaviour that the manual leaves open:

    separate_lines=yes  answers to several queries of one line are sent on separate lines, instead of joined by `;`
    forgets_path=yes    the header path is reset at the end of a line
    identity=no         `*IDN?` is unknown
    baud=N              rate of the serial line in bit/s
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sim.twins.frontends.scpi import Handler, Instrument, Style, parse_whole_numbers
from sim.twins.switch.banks import BankDevice, WrongReply, make_bank_device
from sim.twins.switch.settings import TwinSettings
from sim.twins.switch.twin import Frontend, SwitchTwin

DEFAULT_SWITCH_TIME_S = 0.015
DEFAULT_BAUD = 9600


def make_twin(settings: TwinSettings) -> SwitchTwin:
    """Return a simulated DiCon. Size 2x16 means two 1x8 switches. Raise `SettingError` for invalid settings."""
    settings.check_options("separate_lines", "forgets_path", "identity", "baud")
    style = Style(
        line_end_bytes=b"\r",
        answer_end="\r",
        separator="\r" if settings.read_flag("separate_lines") else ";",
        remembers_path=not settings.read_flag("forgets_path"),
    )
    has_identity = settings.read_choice("identity", "yes", "no") == "yes"
    baud_rate = int(settings.read_number("baud", DEFAULT_BAUD))
    device = make_bank_device(settings, switch_time_s=DEFAULT_SWITCH_TIME_S)
    wrong_reply = WrongReply(device)
    handlers = _Commands(device, wrong_reply).make_handlers()
    if has_identity:
        serial = settings.serial_number
        handlers = {**handlers, "*IDN?": lambda *_: f"DiCon Fiberoptics Inc,MXS-9100,{serial},1.04"}
    instrument = Instrument(handlers, style)
    options = {"banks": str(device.bank_count), "channels": str(device.channel_count)}
    frontends = {
        "scpi": Frontend("dicon+scpi", instrument.serve, options=options),
        "serial": Frontend("dicon+serial", instrument.serve, wire="serial", baud=baud_rate, options=options),
    }
    return SwitchTwin(device, frontends, faults=wrong_reply.list_faults(), on_boot=instrument.errors.clear)


class _Commands:
    """Commands of the manual for one device."""

    def __init__(self, device: BankDevice, wrong_reply: WrongReply) -> None:
        self._device = device
        self._wrong_reply = wrong_reply

    def make_handlers(self) -> Mapping[str, Handler]:
        """Return the command handlers by header."""
        return {
            "ROUTe#:SCAN": self._select_channel,
            "ROUTe#:SCAN?": lambda numbers, _: str(self._wrong_reply.get_channel(numbers[0])),
            "ROUTe#:SCAN:NEXT": self._select_next_channel,
            "ROUTe#:OPEN:STATE?": lambda numbers, _: str(int(self._device.get_channel(numbers[0]) == 0)),
        }

    def _select_channel(self, header_numbers: Sequence[int], parameters: Sequence[str]) -> None:
        (channel,) = parse_whole_numbers(parameters, 1)
        self._device.select_channel(header_numbers[0], channel)

    def _select_next_channel(self, header_numbers: Sequence[int], parameters: Sequence[str]) -> None:
        """Move a bank to its next channel, or from its last channel to the first."""
        del parameters
        bank = header_numbers[0]
        self._device.select_channel(bank, self._device.get_channel(bank) % self._device.channel_count + 1)
