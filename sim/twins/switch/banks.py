"""A bank of 1xN switches as a device: common port b is input b and reaches its own block of outputs only."""

from __future__ import annotations

import asyncio

from sim.twins.switch.device import SwitchDevice, SwitchFaults
from sim.twins.switch.fault_list import Fault
from sim.twins.switch.matrix import Connections, Matrix, Reason, Refused
from sim.twins.switch.settings import SettingError, TwinSettings
from sim.twins.wire.control import Request


class BankDevice(SwitchDevice):
    """State and motion of banks that all have as many channels.

    After power on every bank goes to channel 1, unless the boot mode remembers another (an assumption: no
    public text says where they rest). Only another operator, and makes that park, leave one open, at channel 0.
    """

    @property
    def banks(self) -> int:
        """Number of banks."""
        return self.matrix.inputs

    @property
    def channels(self) -> int:
        """Number of outputs of each."""
        return self.matrix.outputs // self.matrix.inputs

    def output(self, bank: int, channel: int) -> int:
        """Return the output port of a channel. Raises `Refused` when there is no such bank or channel."""
        if not 1 <= bank <= self.banks:
            raise Refused(Reason.NO_SUCH_PORT, bank)
        if not 1 <= channel <= self.channels:
            raise Refused(Reason.NO_SUCH_PORT, channel)
        return self.banks + (bank - 1) * self.channels + channel

    def channel(self, bank: int) -> int:
        """Return the position of a bank, 0 when it is open. Raises `Refused` when there is no such bank."""
        first = self.output(bank, 1)
        return self.matrix.connections.get(bank, first - 1) - first + 1

    def select(self, bank: int, channel: int) -> None:
        """Send a bank to a channel, unless a fault swallows the command. Raises `Refused`."""
        after = self.matrix.add([bank], [self.output(bank, channel)], "replace")
        if not self.faults.take_dropped_command():
            self.change(after)

    def park(self, bank: int) -> None:
        """Leave a bank at no channel, unless a fault swallows the command. Raises `Refused`."""
        after = {source: output for source, output in self.matrix.connections.items() if source != bank}
        if not self.faults.take_dropped_command():
            self.change(after)

    def change(self, after: Connections, *, whole: bool = False) -> asyncio.Task[None] | None:
        """Return the same as any switch, but no bank reaches the channels of another. Raises `Refused`."""
        for source, output in after.items():
            if not self.output(source, 1) <= output <= self.output(source, self.channels):
                raise Refused(Reason.WRONG_SIDE, output)
        return super().change(after, whole=whole)

    def boot(self) -> None:
        """Come back with what the boot mode keeps, the other banks at channel 1."""
        super().boot()
        self.rest()

    def rest(self) -> None:
        """Send every bank that stands nowhere to channel 1."""
        resting = {bank: self.output(bank, 1) for bank in range(1, self.banks + 1)}
        self.change(resting | self.matrix.connections)


class WrongReply:
    """A fault that such a device can have: it answers with a channel that it does not have."""

    def __init__(self, device: BankDevice) -> None:
        self._device = device
        self._left = 0

    def channel(self, bank: int) -> int:
        """Return the position of a bank that the device reports. Raises `Refused` when there is no such bank."""
        channel = self._device.channel(bank)
        if not self._left:
            return channel
        self._left -= 1
        self._device.faults.fired["wrong_reply"] += 1
        return self._device.channels + 1

    def faults(self) -> dict[str, Fault]:
        """Return faults for the fault board: `wrong_reply`, for the next `count` questions."""
        return {"wrong_reply": Fault(self._set, self._clear, "count")}

    def _set(self, request: Request) -> None:
        self._left = request.whole("count", 1)

    def _clear(self, request: Request) -> None:
        del request
        self._left = 0


def bank_device(settings: TwinSettings, *, switch_time_s: float) -> BankDevice:
    """Return the device that the settings describe, every bank at channel 1; to be called in a running event loop.

    Raises `SettingError` unless the outputs are shared out evenly among the inputs.
    """
    if settings.outputs % settings.inputs:
        raise SettingError(
            f"{settings.outputs} outputs cannot be divided among {settings.inputs} banks; size 2x16 is "
            "two 1x8 switches"
        )
    device = BankDevice(
        settings.name,
        Matrix(settings.inputs, settings.outputs),
        plant=settings.plant,
        clock=settings.clock,
        switch_time_s=settings.move_s(switch_time_s),
        hitless=False,
        boot_mode=settings.boot_mode,
        faults=SwitchFaults(),
    )
    device.rest()
    return device
