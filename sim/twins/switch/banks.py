"""A device made of 1xN switches (banks): input b is the common port of bank b, which reaches only its own outputs."""

from __future__ import annotations

import asyncio

from sim.twins.switch.device import SwitchDevice, SwitchFaults
from sim.twins.switch.fault_list import Fault
from sim.twins.switch.matrix import Connections, Matrix, MatrixRefusal, Reason
from sim.twins.switch.settings import SettingError, TwinSettings
from sim.twins.wire.control import Request


class BankDevice(SwitchDevice):
    """State and motion of several banks, each with the same number of channels.

    At power-on every bank moves to channel 1, unless the boot mode restores another channel. This is an assumption,
    because no public document states the rest position. Channel 0 means an open bank. Two things open a bank: the
    verb `operator` of the control socket, and the park command of some models.
    """

    @property
    def bank_count(self) -> int:
        """Number of banks."""
        return self.matrix.input_count

    @property
    def channel_count(self) -> int:
        """Number of outputs of each bank."""
        return self.matrix.output_count // self.matrix.input_count

    def get_output(self, bank: int, channel: int) -> int:
        """Return the output port of a channel of a bank. Raise `MatrixRefusal` if one of them does not exist."""
        if not 1 <= bank <= self.bank_count:
            raise MatrixRefusal(Reason.NO_SUCH_PORT, bank)
        if not 1 <= channel <= self.channel_count:
            raise MatrixRefusal(Reason.NO_SUCH_PORT, channel)
        return self.bank_count + (bank - 1) * self.channel_count + channel

    def get_channel(self, bank: int) -> int:
        """Return the channel of a bank, or 0 if the bank is open. Raise `MatrixRefusal` if the bank does not exist."""
        first = self.get_output(bank, 1)
        return self.matrix.connections.get(bank, first - 1) - first + 1

    def select_channel(self, bank: int, channel: int) -> None:
        """Set a bank to a channel, unless the fault `drop_command` discards the command.

        Raise `MatrixRefusal` if the bank or channel does not exist, or the matrix refuses the connection.
        """
        connections = self.matrix.plan_connections([bank], [self.get_output(bank, channel)], "replace")
        if not self.faults.must_drop_command():
            self.change_connections(connections)

    def park_bank(self, bank: int) -> None:
        """Open a bank (channel 0), unless the fault `drop_command` discards the command."""
        connections = {source: output for source, output in self.matrix.connections.items() if source != bank}
        if not self.faults.must_drop_command():
            self.change_connections(connections)

    def change_connections(
        self, connections: Connections, *, is_full_configuration: bool = False
    ) -> asyncio.Task[None] | None:
        """Call the method of `SwitchDevice`. Raise `MatrixRefusal` if a bank would get an output of another bank."""
        for source, output in connections.items():
            if not self.get_output(source, 1) <= output <= self.get_output(source, self.channel_count):
                raise MatrixRefusal(Reason.WRONG_SIDE, output)
        return super().change_connections(connections, is_full_configuration=is_full_configuration)

    def boot(self) -> None:
        """Restore the connections that the boot mode keeps, and move every other bank to channel 1."""
        super().boot()
        self.close_open_banks()

    def close_open_banks(self) -> None:
        """Move every open bank to channel 1."""
        rest_connections = {bank: self.get_output(bank, 1) for bank in range(1, self.bank_count + 1)}
        self.change_connections(rest_connections | self.matrix.connections)


class WrongReply:
    """The fault `wrong_reply`: the device reports a channel that does not exist."""

    def __init__(self, device: BankDevice) -> None:
        self._device = device
        self._remaining_replies = 0

    def get_channel(self, bank: int) -> int:
        """Return the channel that the device reports for a bank. Raise `MatrixRefusal` if the bank does not exist."""
        channel = self._device.get_channel(bank)
        if not self._remaining_replies:
            return channel
        self._remaining_replies -= 1
        self._device.faults.fire_counts["wrong_reply"] += 1
        return self._device.channel_count + 1

    def list_faults(self) -> dict[str, Fault]:
        """Return the fault `wrong_reply` by its name. It makes the next `count` channel replies wrong."""
        return {"wrong_reply": Fault(self._set, self._clear, "count")}

    def _set(self, request: Request) -> None:
        self._remaining_replies = request.get_integer("count", 1)

    def _clear(self, request: Request) -> None:
        del request
        self._remaining_replies = 0


def make_bank_device(settings: TwinSettings, *, switch_time_s: float) -> BankDevice:
    """Return the device that the settings describe, with every bank at channel 1.

    Call this in a running event loop. Raise `SettingError` unless the outputs divide evenly among the inputs.
    """
    if settings.output_count % settings.input_count:
        raise SettingError(
            f"{settings.output_count} outputs cannot be divided among {settings.input_count} banks; size 2x16 is "
            "two 1x8 switches"
        )
    device = BankDevice(
        settings.name,
        Matrix(settings.input_count, settings.output_count),
        plant=settings.plant,
        clock=settings.clock,
        switch_time_s=settings.get_switch_time_s(switch_time_s),
        is_hitless=False,
        boot_mode=settings.boot_mode,
        faults=SwitchFaults(),
    )
    device.close_open_banks()
    return device
