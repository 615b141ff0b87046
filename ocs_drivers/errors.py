"""Errors of optical switches, sorted by who must act.

    OcsError
    ├── AddressError              (user)
    ├── CredentialsError          (user)
    ├── TransportError            (device)
    │   ├── ConnectError
    │   │   └── AnotherDevice
    │   ├── ConnectionLost
    │   ├── Timeout
    │   └── ProtocolDesync
    ├── AuthError                 (user)
    │   ├── LoginFailed
    │   ├── SessionExpired
    │   └── PermissionDenied
    ├── DeviceError               (device)
    ├── PortError                 (user)
    │   ├── UnknownPort
    │   ├── WrongSide
    │   ├── PortLocked
    │   ├── PortDisabled
    │   ├── PortFailed
    │   └── PortBusy
    ├── Conflict                  (conflict)
    ├── SwitchHeld                (conflict)
    ├── VerifyMismatch            (device)
    ├── NoLight                   (device)
    ├── RobotFault                (device)
    ├── PartialApply              (unknown)
    └── Unsupported               (user)

Each class has a stable `code`, and `who` names who must act. Messages end with a hint: what to do next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Self

from lightbed.errors import LightbedError
from lightbed.wording import list_some

if TYPE_CHECKING:
    from ocs_drivers.model import ApplyReport

MAX_SHOWN_CHARACTERS = 300


class OcsError(LightbedError, code="ocs.error", who="device"):
    """Root of all errors of `ocs_drivers`. `device` is an address without credentials; `sent` is the last command."""

    report: ApplyReport | None = None
    """Status of every pair, if the error ended an `apply` that had begun to write."""

    def __init__(
        self,
        problem: str,
        *,
        device: str = "",
        ports: Iterable[int] = (),
        sent: str = "",
        received: str = "",
        hint: str = "",
    ) -> None:
        self.problem, self.device, self.ports = problem, device, tuple(ports)
        self.sent, self.received, self.hint = sent, received, hint
        super().__init__(self._format_message())

    def locate(self, *, device: str, sent: str = "") -> Self:
        """Set the device and the text sent, unless already set; return the error."""
        self.device = self.device or device
        self.sent = self.sent or sent
        self.args = (self._format_message(),)
        return self

    def _format_message(self) -> str:
        text = f"{self.device}: {self.problem}" if self.device else self.problem
        if self.ports:
            text += f" [port{'s' if len(self.ports) > 1 else ''} {list_some(self.ports)}]"
        if self.sent:
            text += f"; sent {_shorten(self.sent)!r}"
        if self.received:
            text += f"; received {_shorten(self.received)!r}"
        if self.hint:
            text += f". {self.hint}"
        return text


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[:MAX_SHOWN_CHARACTERS]}..."


class AddressError(OcsError, code="ocs.address", who="user"):
    """The address cannot be parsed, or no driver supports its scheme."""


class CredentialsError(OcsError, code="ocs.credentials", who="user"):
    """The credentials file is missing, readable by other users, or malformed."""


class TransportError(OcsError, code="ocs.transport"):
    """The session failed; only a read can tell what the device did."""


class ConnectError(TransportError, code="ocs.transport.connect"):
    """No device answers at the address."""


class AnotherDevice(ConnectError, code="ocs.transport.another"):
    """Another device answers at the address since the switch was opened."""


class ConnectionLost(TransportError, code="ocs.transport.lost"):
    """The connection was closed or broke."""


class Timeout(TransportError, code="ocs.transport.timeout"):
    """No answer arrived by the deadline; the connection was closed, so a late answer cannot be mistaken for another."""


class ProtocolDesync(TransportError, code="ocs.transport.desync"):
    """The answer does not follow the device's protocol; the connection was closed."""


class AuthError(OcsError, code="ocs.auth", who="user"):
    """The device does not accept the account."""


class LoginFailed(AuthError, code="ocs.auth.login"):
    """The user name or the password is wrong."""


class SessionExpired(AuthError, code="ocs.auth.expired"):
    """The login expired and could not be renewed."""


class PermissionDenied(AuthError, code="ocs.auth.permission"):
    """The account lacks permission."""


class DeviceError(OcsError, code="ocs.device"):
    """The device refused a command; `device_code` is its own code."""

    def __init__(self, problem: str, *, device_code: str = "", **details: object) -> None:
        self.device_code = device_code
        super().__init__(problem, **details)  # type: ignore[arg-type]


class PortError(OcsError, code="ocs.port", who="user"):
    """The request is wrong for these ports; nothing was sent."""


class UnknownPort(PortError, code="ocs.port.unknown"):
    """The device has no such port."""


class WrongSide(PortError, code="ocs.port.side"):
    """An input is named where an output belongs, or the reverse."""


class PortLocked(PortError, code="ocs.port.locked"):
    """Another user has reserved the port."""


class PortDisabled(PortError, code="ocs.port.disabled"):
    """The shutter of the port is closed."""


class PortFailed(PortError, code="ocs.port.failed"):
    """The device reports the port as broken."""


class PortBusy(PortError, code="ocs.port.busy"):
    """The port carries another circuit; `peer` is the other end."""

    def __init__(self, problem: str, *, peer: int | None = None, **details: object) -> None:
        self.peer = peer
        super().__init__(problem, **details)  # type: ignore[arg-type]


class Conflict(OcsError, code="ocs.conflict", who="conflict"):
    """Somebody else changed the switch; nothing more was sent. See `expected`, `actual` and `report`."""

    def __init__(
        self, problem: str, *, expected: Mapping[int, int], actual: Mapping[int, int], **details: object
    ) -> None:
        self.expected, self.actual = dict(expected), dict(actual)
        super().__init__(problem, **details)  # type: ignore[arg-type]


class SwitchHeld(OcsError, code="ocs.held", who="conflict"):
    """Another process is changing the switch; `pid` is its id, if known."""

    def __init__(self, problem: str, *, pid: int | None = None, **details: object) -> None:
        self.pid = pid
        super().__init__(problem, **details)  # type: ignore[arg-type]


class VerifyMismatch(OcsError, code="ocs.verify"):
    """The device reported no error, but its circuits differ from the target: see `missing` and `extra`."""

    def __init__(
        self, problem: str, *, missing: Mapping[int, int], extra: Mapping[int, int], **details: object
    ) -> None:
        self.missing, self.extra = dict(missing), dict(extra)
        super().__init__(problem, **details)  # type: ignore[arg-type]


class NoLight(OcsError, code="ocs.no_light"):
    """The circuit is connected, but no light arrives."""


class RobotFault(OcsError, code="ocs.robot"):
    """The robot stopped; a person must inspect it before it moves again."""


class PartialApply(OcsError, code="ocs.partial", who="unknown"):
    """Not everything was done; `report` says for every pair whether it is done, failed or unknown."""

    report: ApplyReport

    def __init__(self, problem: str, *, report: ApplyReport, **details: object) -> None:
        self.report = report
        super().__init__(problem, **details)  # type: ignore[arg-type]


class Unsupported(OcsError, code="ocs.unsupported", who="user"):
    """The device does not support this function."""
