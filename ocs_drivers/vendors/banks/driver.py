"""A driver that presents banks of 1xN switches as one switch.

Input b is the common port of bank b, and reaches only the channels of that bank. Every input is always connected, so
there is no disconnect. Selecting a channel is one command without a reply; one query per bank reads its channel.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

from ocs_drivers.address import Address
from ocs_drivers.contract import Guard
from ocs_drivers.engine import planning
from ocs_drivers.engine.driver import SwitchDriver
from ocs_drivers.errors import AddressError, DeviceError, OcsError, Timeout
from ocs_drivers.model import (
    Capabilities,
    CrossConnects,
    Identity,
    PortInfo,
    PortState,
    Power,
    Side,
    Snapshot,
    Step,
)
from ocs_drivers.protocols.scpi_session import Dialect, ScpiSession
from ocs_drivers.timing import SYSTEM_CLOCK, Clock
from ocs_drivers.transports.transport import Transport
from ocs_drivers.vendors.banks.codec import CommandSet, decode_channel, decode_open_state, decode_power

MAX_BANKS = 64
MAX_CHANNELS = 1024


class BankSwitch(SwitchDriver):
    """A device with `bank_count` switches of size 1 x `channel_count`, and the `command_set` of its make.

    Call `open` first.
    """

    _session: ScpiSession
    poll_s = 0.1
    connection_loss_recovery = "watch"

    def __init__(
        self,
        address: str,
        transport: Transport,
        command_set: CommandSet,
        *,
        bank_count: int,
        channel_count: int,
        timeout_s: float,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._command_set = command_set
        self._banks = range(1, bank_count + 1)
        self._channels = channel_count
        self._settling_end_s = 0.0
        self._session = ScpiSession(
            transport, device=address, timeout_s=timeout_s, clock=clock, dialect=self._make_dialect()
        )
        super().__init__(address, self._session, timeout_s=timeout_s, clock=clock)

    def _make_dialect(self) -> Dialect:
        """Return the dialect with the identity query of the make, or with a read of bank 1 if it has no such query."""
        command_set = self._command_set
        if command_set.identity:
            return Dialect(
                command_set.terminator,
                command_set.identity,
                command_set.decode_identity,
                command_set.error_query,
            )
        return Dialect(
            command_set.terminator,
            command_set.format_query(1),
            self._make_anonymous_identity,
            command_set.error_query,
        )

    def _make_anonymous_identity(self, reply: str) -> Identity:
        decode_channel(reply, 1, MAX_CHANNELS)
        return Identity(self._command_set.vendor, self._command_set.model, "", "")

    def _discover(self) -> tuple[Identity, Capabilities]:
        """Return identity and capabilities. Raise `AddressError` if a bank or channel contradicts the address."""
        if self._command_set.error_query:
            self._session.drain_errors("")
        for bank in self._banks:
            self._check_bank(bank)
        bank_count = len(self._banks)
        return self._session.identity, Capabilities(
            bank_count,
            bank_count * self._channels,
            bank_outputs=self._channels,
            disconnects=False,
            power_monitor=bool(self._command_set.power_query),
            max_ports_per_query=1,
            switch_time_s=self._command_set.switch_time_s,
        )

    def _check_bank(self, bank: int) -> None:
        try:
            channel = self._ask_channel(bank, MAX_CHANNELS)
        except Timeout as silence:
            silence.hint = f"If this device has no bank {bank}, say so in the address with ?banks=."
            raise silence.locate(device=self.address) from None
        except DeviceError as refusal:
            raise self._make_size_error(f"the device has no bank {bank} ({refusal.problem})") from refusal
        if channel is not None and channel > self._channels:
            raise self._make_size_error(
                f"bank {bank} is at channel {channel}, but has only {self._channels} channels"
            )

    def _make_size_error(self, problem: str) -> AddressError:
        return AddressError(problem, device=self.address, hint="Correct banks= and channels= in the address.")

    def _ask_channel(self, bank: int, channel_count: int) -> int | None:
        """Return the channel of a bank. Raise `DeviceError` if the device reports that there is no such bank."""
        query, decode = (
            self._command_set.format_query(bank),
            partial(decode_channel, bank=bank, channel_count=channel_count),
        )
        if not self._command_set.error_query:
            return self._session.ask(query, decode)
        answers, refusals = self._session.ask_with_errors(query, lambda reply: (decode(reply),))
        if answers is None:
            raise refusals[0]
        return answers[0]

    def ports(self) -> Mapping[int, PortInfo]:
        """Return all ports: common ports `b`, then channels `b.k`. These devices report no port states."""
        has_monitors = bool(self._command_set.power_query)
        infos = [
            PortInfo(bank, Side.IN, PortState.ENABLED, has_power_monitor=has_monitors, name=str(bank))
            for bank in self._banks
        ]
        infos += [
            PortInfo(self._output_port(bank, channel), Side.OUT, PortState.ENABLED, name=f"{bank}.{channel}")
            for bank in self._banks
            for channel in range(1, self._channels + 1)
        ]
        return {info.number: info for info in infos}

    def _output_port(self, bank: int, channel: int) -> int:
        return len(self._banks) + (bank - 1) * self._channels + channel

    def _read(self) -> Snapshot:
        with self._session.lock():
            channel_by_bank = {bank: self._read_channel(bank) for bank in self._banks}
        pairs = {
            bank: self._output_port(bank, channel) for bank, channel in channel_by_bank.items() if channel
        }
        return Snapshot(CrossConnects(pairs), self._clock.now())

    def _read_channel(self, bank: int) -> int | None:
        if self._command_set.open_state and self._session.ask(
            self._command_set.format_open_query(bank), decode_open_state
        ):
            return None
        return self._session.ask(
            self._command_set.format_query(bank),
            partial(decode_channel, bank=bank, channel_count=self._channels),
        )

    def _perform(self, step: Step, guard: Guard) -> None:
        if step.kind != "add":
            raise self._make_unsupported("disconnecting, or all banks at once", step.pairs)
        for number, command in enumerate(self._list_commands(step)):
            if number:
                guard()
            try:
                self._session.send_command(command)
            finally:  # even after a failure, because the command may have arrived
                self._settling_end_s = self._clock.now() + self.capabilities.switch_time_s[1]

    def _read_back(self, step: Step) -> tuple[Snapshot | None, OcsError | None]:
        """Return the configuration, and the first error in the error queue, if the make has a queue."""
        snapshot = self.read()
        if not self._command_set.error_query:
            return snapshot, None
        refusals = self._session.drain_errors("; ".join(self._list_commands(step)))
        if not refusals:
            return snapshot, None
        self._settling_end_s = self._clock.now()  # a refusal is reported at once, and nothing moves
        return snapshot, refusals[0]

    def _list_commands(self, step: Step) -> list[str]:
        return [
            self._command_set.format_select(bank, output - self._output_port(bank, 0))
            for bank, output in step.pairs.items()
        ]

    def _is_moving(self, step: Step, snapshot: Snapshot) -> bool:
        """Return True until the longest switching time of the make has passed since the last command."""
        return self._clock.now() < self._settling_end_s

    def power(self, ports: Collection[int]) -> dict[int, Power | None]:
        """Return the optical power in dBm at common ports, one query each; None at channels."""
        planning.check_ports_exist(ports, self.capabilities, device=self.address)
        readings: dict[int, Power | None] = dict.fromkeys(ports)
        for port in readings if self._command_set.power_query else ():
            if port in self._banks:
                readings[port] = self._session.ask_with_retry(
                    self._command_set.format_power_query(port), decode_power
                )
        return readings


def read_size(address: Address) -> tuple[int, int]:
    """Return the numbers of banks (default 1) and channels from the options of an address.

    Raises `AddressError` if `channels` is missing or a number is out of range.
    """
    if "channels" not in address.options:
        raise AddressError(
            "a 1xN switch does not report its size",
            device=str(address),
            hint="Give it in the address, as in ?banks=2&channels=8.",
        )
    return _parse_number(address, "banks", MAX_BANKS), _parse_number(address, "channels", MAX_CHANNELS)


def _parse_number(address: Address, option: str, maximum: int) -> int:
    text = address.options.get(option, "1")
    if not (text.isdecimal() and text.isascii() and 1 <= int(text) <= maximum):
        raise AddressError(
            f"{option}={text} is not a number in 1..{maximum}",
            device=str(address),
            hint="Write it like ?banks=2&channels=8.",
        )
    return int(text)


def check_banks_addressable(command_set: CommandSet, bank_count: int, address: Address) -> None:
    """Raise `AddressError` if there are several banks and the commands do not name the bank."""
    if bank_count > 1 and not command_set.names_banks:
        raise AddressError(
            f"{bank_count} banks, but {command_set.select_command!r} and {command_set.channel_query!r} do not name"
            " the bank",
            device=str(address),
            hint="Put {bank} into both commands.",
        )


def read_flag(address: Address, option: str, *, default: bool) -> bool:
    """Return an option of an address as a boolean. Raise `AddressError` unless it is 0 or 1."""
    text = address.options.get(option, str(int(default)))
    if text not in {"0", "1"}:
        raise AddressError(f"{option}={text} must be 0 or 1", device=str(address))
    return text == "1"
