"""Supplies of bias voltages."""

from __future__ import annotations

from typing import Protocol

from lightning.kit.instruments.session import Identity, Session


class BiasSupply(Protocol):
    """A supply of bias voltages. Output 1 is the first on its front panel. All methods raise `InstrumentError`."""

    @property
    def identity(self) -> Identity:
        """The instrument's answer to `*IDN?`."""
        ...

    @property
    def output_count(self) -> int:
        """The number of outputs."""
        ...

    @property
    def limit_v(self) -> float:
        """The highest voltage that this driver sends. The limit protects the modulators."""
        ...

    def set_voltage_v(self, output: int, voltage_v: float) -> None:
        """Set an output and check the setting. Raise `OutOfRange` for an invalid value, before anything is sent."""
        ...

    def read_voltage_v(self, output: int) -> float:
        """Return the voltage measured at an output."""
        ...

    def turn_on(self, output: int) -> None:
        """Connect an output."""
        ...

    def turn_off(self, output: int) -> None:
        """Disconnect an output, which then gives 0 V."""
        ...

    def is_on(self, output: int) -> bool:
        """Return whether an output is connected."""
        ...

    def close(self) -> None:
        """Disconnect; the outputs stay as they are."""
        ...


class KeysightSupply:
    """A supply of Keysight's N6700 family, whose commands take lists of channels (`VOLT 3.1,(@2)`).

    `limit_v` is the highest voltage that the driver sends; it protects the modulators. `tolerance_v` is the largest
    accepted difference between a measured voltage and its setpoint.
    """

    def __init__(self, session: Session, *, limit_v: float = 12.0, tolerance_v: float = 0.02) -> None:
        self._session = session
        self._limit_v = limit_v
        self._tolerance_v = tolerance_v
        self._output_count = 0

    @property
    def identity(self) -> Identity:
        """The instrument's answer to `*IDN?`."""
        return self._session.identity

    @property
    def output_count(self) -> int:
        """The number of outputs."""
        if not self._output_count:
            self._output_count = round(self._session.ask_number("SYST:CHAN?"))
        return self._output_count

    @property
    def limit_v(self) -> float:
        """The highest voltage that is sent."""
        return self._limit_v

    def set_voltage_v(self, output: int, voltage_v: float) -> None:
        """Set an output to 0 V or more, read the setpoint back, and measure the voltage if the output is on."""
        channel = self._format_channel(output)
        self._session.check_range("a bias voltage of", voltage_v, 0.0, self._limit_v)
        self._session.send_command(f"VOLT {voltage_v:.4f},{channel}")
        self._session.check_reading(
            f"output {output} in V", voltage_v, self._session.ask_number(f"VOLT? {channel}"), 0.001
        )
        if self.is_on(output):
            self._session.check_reading(
                f"output {output} in V", voltage_v, self.read_voltage_v(output), self._tolerance_v
            )

    def read_voltage_v(self, output: int) -> float:
        """Return the voltage measured at an output."""
        return self._session.ask_number(f"MEAS:VOLT? {self._format_channel(output)}")

    def turn_on(self, output: int) -> None:
        """Connect an output."""
        self._switch(output, is_on=True)

    def turn_off(self, output: int) -> None:
        """Disconnect an output."""
        self._switch(output, is_on=False)

    def is_on(self, output: int) -> bool:
        """Return whether an output is connected."""
        return self._session.ask_bool(f"OUTP? {self._format_channel(output)}")

    def close(self) -> None:
        """Disconnect; the outputs stay as they are."""
        self._session.close()

    def _switch(self, output: int, *, is_on: bool) -> None:
        self._session.send_command(f"OUTP {'ON' if is_on else 'OFF'},{self._format_channel(output)}")
        self._session.check_reading(
            f"the switch of output {output}", float(is_on), float(self.is_on(output)), 0.0
        )

    def _format_channel(self, output: int) -> str:
        self._session.check_range("an output of number", output, 1, self.output_count)
        return f"(@{output})"
