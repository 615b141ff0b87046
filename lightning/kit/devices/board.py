"""Boards: `qick://HOST[:PORT][/NAME]` connects to QICK's Pyro4 server, `qick://local` runs on the board itself.

The server has no authentication and exchanges pickles. Anyone who reaches its port can run code on the board, and
anyone who answers in its place can run code here. An address without a host (`qick:///NAME`, `qick://:PORT`) therefore
means the loopback interface, and any other host causes a warning.
"""

from __future__ import annotations

import contextlib
import io
import ipaddress
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from lightning.errors import AddressError, DeviceGone
from lightning.kit.devices.deadline import COMPUTING_CALLS, SIMULATED_PATIENCE, Patience
from lightning.kit.devices.identity import format_board_name
from lightning.optional import require

DEFAULT_PORT = 8888
DEFAULT_NAME = "myqick"
LOOPBACK = "127.0.0.1"
CONNECT_TIMEOUT_S = 10.0
"""Timeout of the name server and of the board's first reply."""

_ADDRESS = re.compile(
    r"qick://(?P<host>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]*)(?::(?P<port>\d{1,5}))?(?:/(?P<name>[^/]*))?"
)
_PYRO_WARNING = (
    "warning: qick://{host} uses Pyro4, which has no authentication and runs whatever it receives: \
keep the board's port in an isolated network\n"
)


@dataclass(frozen=True, slots=True)
class BoardAddress:
    """Name server and name of a board's server."""

    host: str
    port: int
    name: str

    @property
    def is_loopback(self) -> bool:
        """True if the host is this machine."""
        if self.host == "localhost":
            return True
        with contextlib.suppress(ValueError):
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        return False


def parse_address(address: str) -> BoardAddress:
    """Return the parts of an address. Raise `AddressError` for an invalid address.

    >>> parse_address("qick://10.0.0.7/kit")
    BoardAddress(host='10.0.0.7', port=8888, name='kit')
    >>> parse_address("qick://:9000").host
    '127.0.0.1'
    """
    match = _ADDRESS.fullmatch(address)
    port = int(match["port"] or DEFAULT_PORT) if match else 0
    if match is None or not 0 < port < 65536:
        raise AddressError(
            f"{address!r} is not a valid address of a board",
            hint="Write it as qick://HOST:PORT/NAME or qick://local",
        )
    return BoardAddress(match["host"] or LOOPBACK, port, match["name"] or DEFAULT_NAME)


def connect(address: str) -> Any:
    """Return the board at this address, with deadlines.

    Raise `AddressError`, `MissingLibrary`, or `DeviceGone` if the board does not answer.
    """
    if address == "qick://local":
        return open_local()
    return open_remote(parse_address(address))


def open_local() -> Any:
    """Return the board that runs this code. Raise `DeviceGone` if this computer is not a board."""
    qick = require("qick", "to speak to a board")
    from lightning.kit.devices.guard import guard_soc

    if not hasattr(qick, "QickSoc"):
        raise DeviceGone(
            "this computer is not an RFSoC board (QICK has no QickSoc here)",
            device="qick://local",
            hint="Use qick://HOST from here, or sim://kit for the twin",
        )
    return guard_soc(qick.QickSoc())


def open_remote(address: BoardAddress, patience: Patience | None = None) -> Any:
    """Return a board in the network through QICK's own proxy, with a deadline for each call.

    Raise `MissingLibrary`, or `DeviceGone` if the board does not answer.
    """
    qick_pyro = require("qick.pyro", "to reach a board in the network")
    pyro4 = require("Pyro4", "to reach a board in the network")
    from lightning.kit.devices.guard import GuardedSoc

    if not address.is_loopback:
        sys.stderr.write(_PYRO_WARNING.format(host=address.host))
    error_types = (pyro4.errors.PyroError, OSError)
    try:
        with _use_timeout(pyro4, CONNECT_TIMEOUT_S), contextlib.redirect_stdout(io.StringIO()):
            soc, soccfg = qick_pyro.make_proxy(
                address.host.strip("[]"),
                ns_port=address.port,
                proxy_name=address.name,
                remote_traceback=False,
            )
    except error_types as error:
        raise DeviceGone(
            f"no board answers at {address.host}:{address.port} under the name {address.name!r} ({error})",
            device=f"qick://{address.host}:{address.port}/{address.name}",
            hint="Start QICK's nameserver and server on it, and check the name",
        ) from error
    device = _RemoteSoc(soc, soccfg)
    patience = patience or (SIMULATED_PATIENCE if device.simulated else Patience())
    device.limit_calls(patience)
    return GuardedSoc(
        device,
        identity=_choose_name(soc, soccfg, address),
        patience=patience,
        lost_errors=(pyro4.errors.CommunicationError,),
    )


class _RemoteSoc:
    """A Pyro4 proxy that keeps its configuration and limits the time of each call."""

    def __init__(self, proxy: Any, soccfg: Any) -> None:
        self._proxy = proxy
        self._soccfg = soccfg
        self._patience = Patience()
        self.simulated = "simulated" in proxy._pyroAttrs and bool(proxy.simulated)  # noqa: SLF001  as above

    def get_cfg(self) -> Any:
        """Return the configuration that was read on connecting."""
        return self._soccfg.get_cfg()

    def limit_calls(self, patience: Patience) -> None:
        """Set the time after which a call without an answer fails."""
        self._patience = patience
        self._proxy._pyroTimeout = patience.call_s  # noqa: SLF001  Pyro4's documented setting of a proxy

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._proxy, name)
        return self._add_timeout(name, attribute) if name in COMPUTING_CALLS else attribute

    def _add_timeout(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the call with its own timeout. A proxy has one timeout for all calls, so set and restore it."""

        def call_with_timeout(*args: Any, **kwargs: Any) -> Any:
            self._proxy._pyroTimeout = self._patience.get_call_limit_s(name)  # noqa: SLF001  as above
            try:
                return call(*args, **kwargs)
            finally:
                self._proxy._pyroTimeout = self._patience.call_s  # noqa: SLF001  as above

        return call_with_timeout


def _choose_name(soc: Any, soccfg: Any, address: BoardAddress) -> str:
    """Return the name of a device: a served twin's own name, or type, firmware and host of a board."""
    if "identity" in soc._pyroAttrs:  # noqa: SLF001  what the server offers
        return str(soc.identity)
    config = soccfg.get_cfg()
    return format_board_name(str(config.get("board", "")), str(config.get("fw_timestamp", "")), address.host)


@contextlib.contextmanager
def _use_timeout(pyro4: Any, timeout_s: float) -> Iterator[None]:
    earlier_timeout = pyro4.config.COMMTIMEOUT
    pyro4.config.COMMTIMEOUT = timeout_s
    try:
        yield
    finally:
        pyro4.config.COMMTIMEOUT = earlier_timeout
