"""Everything that can go wrong between us and an optical switch, sorted by who must act.

    OcsError
    ├── AddressError              the address cannot be understood                      (user)
    ├── CredentialsError          the file of accounts cannot be used                   (user)
    ├── TransportError            the session itself failed                             (device)
    │   ├── ConnectError          nobody answers at the address
    │   │   └── AnotherDevice     somebody else answers than before
    │   ├── ConnectionLost        the device closed the line, or the line broke
    │   ├── Timeout               no answer by the deadline; the line has been closed
    │   └── ProtocolDesync        the device answered something that is not its protocol
    ├── AuthError                 (user)
    │   ├── LoginFailed           wrong name or password
    │   ├── SessionExpired        the login was lost and could not be renewed
    │   └── PermissionDenied      logged in, but not allowed to do this
    ├── DeviceError               the device refused the command; `.device_code` is its own word  (device)
    ├── PortError                 the request itself is wrong for these ports           (user)
    │   ├── UnknownPort           the device has no such port
    │   ├── WrongSide             an input was named where an output belongs, or the reverse
    │   ├── PortLocked            somebody reserved the port
    │   ├── PortDisabled          the port's shutter is closed
    │   ├── PortFailed            the device reports the port as broken
    │   └── PortBusy              the port carries another circuit; `.peer` is its other end
    ├── Conflict                  somebody else changed the switch; `.expected`, `.found`  (conflict)
    ├── SwitchHeld                another process is changing the switch; `.pid`        (conflict)
    ├── VerifyMismatch            read-back differs from the target; `.missing`, `.extra`   (device)
    ├── NoLight                   connected, but no light arrives                       (device)
    ├── RobotFault                the robot stopped and needs a person                  (device)
    ├── PartialApply              some pairs are done and some are not; `.report`       (unknown)
    └── Unsupported               this device cannot do that at all                     (user)

Each class has a stable `code` and says in `who` whose turn it is. A message also says what to do next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Self

from lightbed.errors import LightbedError
from lightbed.wording import list_some

if TYPE_CHECKING:
    from ocs_drivers.model import ApplyReport

CHARACTERS_SHOWN = 300


class OcsError(LightbedError, code="ocs.error", who="device"):
    """Root of all errors of `ocs_drivers`: `what` happened, at which device (no credentials), and what was sent."""

    report: ApplyReport | None = None
    """What became of every pair, when the error ended an `apply` that had begun to write."""

    def __init__(
        self,
        what: str,
        *,
        device: str = "",
        ports: Iterable[int] = (),
        sent: str = "",
        received: str = "",
        hint: str = "",
    ) -> None:
        self.what, self.device, self.ports = what, device, tuple(ports)
        self.sent, self.received, self.hint = sent, received, hint
        super().__init__(self._message())

    def locate(self, *, device: str, sent: str = "") -> Self:
        """Fill in where it happened and what had been sent, where nobody said so yet."""
        self.device = self.device or device
        self.sent = self.sent or sent
        self.args = (self._message(),)
        return self

    def _message(self) -> str:
        text = f"{self.device}: {self.what}" if self.device else self.what
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
    return text if len(text) <= CHARACTERS_SHOWN else f"{text[:CHARACTERS_SHOWN]}..."


class AddressError(OcsError, code="ocs.address", who="user"):
    """The address names no known driver or cannot be parsed."""


class CredentialsError(OcsError, code="ocs.credentials", who="user"):
    """The file of accounts is missing, readable by others, or not as it should be."""


class TransportError(OcsError, code="ocs.transport"):
    """The session with the device failed; what the device did is known only after a read."""


class ConnectError(TransportError, code="ocs.transport.connect"):
    """Nobody answers at the address."""


class AnotherDevice(ConnectError, code="ocs.transport.another"):
    """A different device answers at the address than when it was opened."""


class ConnectionLost(TransportError, code="ocs.transport.lost"):
    """The line was closed or broke in the middle."""


class Timeout(TransportError, code="ocs.transport.timeout"):
    """No answer by the deadline. The line has been closed, so that a late answer meets nobody."""


class ProtocolDesync(TransportError, code="ocs.transport.desync"):
    """A reply that is not of the device's protocol; the connection has been closed."""


class AuthError(OcsError, code="ocs.auth", who="user"):
    """The device does not accept who we say we are."""


class LoginFailed(AuthError, code="ocs.auth.login"):
    """Wrong user name or password."""


class SessionExpired(AuthError, code="ocs.auth.expired"):
    """The login was lost and could not be renewed."""


class PermissionDenied(AuthError, code="ocs.auth.permission"):
    """Logged in, but not allowed to do this."""


class DeviceError(OcsError, code="ocs.device"):
    """The device refused a command and said why; `device_code` is its own code."""

    def __init__(self, what: str, *, device_code: str = "", **where: object) -> None:
        self.device_code = device_code
        super().__init__(what, **where)  # type: ignore[arg-type]


class PortError(OcsError, code="ocs.port", who="user"):
    """The request cannot be right for these ports; nothing was sent."""


class UnknownPort(PortError, code="ocs.port.unknown"):
    """The device has no such port."""


class WrongSide(PortError, code="ocs.port.side"):
    """An input port where an output belongs, or the reverse."""


class PortLocked(PortError, code="ocs.port.locked"):
    """The port is reserved by somebody."""


class PortDisabled(PortError, code="ocs.port.disabled"):
    """The port's shutter is closed."""


class PortFailed(PortError, code="ocs.port.failed"):
    """The device reports the port as broken."""


class PortBusy(PortError, code="ocs.port.busy"):
    """The port carries another circuit, whose other end is `peer`."""

    def __init__(self, what: str, *, peer: int | None = None, **where: object) -> None:
        self.peer = peer
        super().__init__(what, **where)  # type: ignore[arg-type]


class Conflict(OcsError, code="ocs.conflict", who="conflict"):
    """The switch is not as expected: somebody else changed it. Nothing more was sent; `report` says what was."""

    def __init__(
        self, what: str, *, expected: Mapping[int, int], found: Mapping[int, int], **where: object
    ) -> None:
        self.expected, self.found = dict(expected), dict(found)
        super().__init__(what, **where)  # type: ignore[arg-type]


class SwitchHeld(OcsError, code="ocs.held", who="conflict"):
    """Another process is changing this switch now; `pid` is that process where it could be found out."""

    def __init__(self, what: str, *, pid: int | None = None, **where: object) -> None:
        self.pid = pid
        super().__init__(what, **where)  # type: ignore[arg-type]


class VerifyMismatch(OcsError, code="ocs.verify"):
    """Read-back differs from the target: pairs `missing` and pairs `extra`."""

    def __init__(
        self, what: str, *, missing: Mapping[int, int], extra: Mapping[int, int], **where: object
    ) -> None:
        self.missing, self.extra = dict(missing), dict(extra)
        super().__init__(what, **where)  # type: ignore[arg-type]


class NoLight(OcsError, code="ocs.no_light"):
    """Connected, but no light arrives."""


class RobotFault(OcsError, code="ocs.robot"):
    """The robot stopped; a person must look before it moves again."""


class PartialApply(OcsError, code="ocs.partial", who="unknown"):
    """Not everything was done; `report` says for every pair done, failed or unknown."""

    report: ApplyReport

    def __init__(self, what: str, *, report: ApplyReport, **where: object) -> None:
        self.report = report
        super().__init__(what, **where)  # type: ignore[arg-type]


class Unsupported(OcsError, code="ocs.unsupported", who="user"):
    """The device has no such function."""
