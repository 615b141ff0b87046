"""The instruments of a bench, by role and address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Literal, Self, overload

from lightning.errors import AddressError
from lightning.kit.instruments.laser import SantecLaser, TunableLaser
from lightning.kit.instruments.line import open_line
from lightning.kit.instruments.meter import PowerMeter, ThorlabsMeter
from lightning.kit.instruments.session import Session
from lightning.kit.instruments.supply import BiasSupply, KeysightSupply

Role = Literal["laser", "bias", "meter"]


@overload
def open_instrument(resource: str, role: Literal["laser"], *, timeout_s: float = 2.0) -> TunableLaser: ...
@overload
def open_instrument(resource: str, role: Literal["bias"], *, timeout_s: float = 2.0) -> BiasSupply: ...
@overload
def open_instrument(resource: str, role: Literal["meter"], *, timeout_s: float = 2.0) -> PowerMeter: ...
def open_instrument(
    resource: str, role: Role, *, timeout_s: float = 2.0
) -> TunableLaser | BiasSupply | PowerMeter:
    """Return the instrument at a VISA resource (`TCPIP::192.0.2.7::5025::SOCKET`, `USB0::...::INSTR`).

    The supported instruments are Santec's TSL series as "laser", Keysight's N6700 family as "bias", and Thorlabs' power
    meters as "meter". Raise `WrongInstrument` if its identity differs, `InstrumentGone` or `InstrumentSilent` if it
    does not answer, `AddressError` for an unknown role or an invalid resource, and `MissingLibrary` without PyVISA or
    its library for the resource's bus.
    """
    if role == "laser":
        return SantecLaser(_open_session(resource, "santec", timeout_s, terminator="\r\n"))
    if role == "bias":
        return KeysightSupply(_open_session(resource, "keysight", timeout_s))
    if role == "meter":
        return ThorlabsMeter(_open_session(resource, "thorlabs", timeout_s))
    raise AddressError(f"there is no instrument for {role!r}", hint='Ask for "laser", "bias" or "meter"')


def _open_session(resource: str, manufacturer: str, timeout_s: float, *, terminator: str = "\n") -> Session:
    session = Session(
        resource, (manufacturer,), timeout_s=timeout_s, connect=partial(open_line, terminator=terminator)
    )
    session.open()
    return session


@dataclass(frozen=True, slots=True)
class Instruments:
    """The instruments of a bench, None if missing. As a context manager it disconnects them on exit."""

    laser: TunableLaser | None = None
    bias: BiasSupply | None = None
    meter: PowerMeter | None = None

    def close(self) -> None:
        """Disconnect all."""
        for instrument in (self.laser, self.bias, self.meter):
            if instrument is not None:
                instrument.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_bench(resources: Mapping[str, str], *, timeout_s: float = 2.0) -> Instruments:
    """Open all instruments or none. `resources` maps roles to VISA resources, like the result of `soc.bench()`.

    Raise the errors of `open_instrument`.
    """
    instruments: dict[str, TunableLaser | BiasSupply | PowerMeter] = {}
    try:
        for role, resource in resources.items():
            instruments[role] = open_instrument(resource, role, timeout_s=timeout_s)  # type: ignore[call-overload]
    except Exception:
        for instrument in instruments.values():
            instrument.close()
        raise
    return Instruments(**instruments)  # type: ignore[arg-type]
