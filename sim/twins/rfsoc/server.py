"""QICK's own Pyro4 server with a twin instead of the board, and its name server.

Both servers use pickle without passwords, so a client that reaches their ports can execute any code. Therefore they are
bound to the loopback interface, and no other interface can be selected.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

HOST = "127.0.0.1"
INTERFACE = "lo"
START_TIMEOUT_S = 30.0
"""Time limit for the server to register its board."""
POLL_INTERVAL_S = 0.02


@dataclass(frozen=True, slots=True)
class ServedTwin:
    """Address of a served twin."""

    port: int
    """Port of the name server."""
    name: str
    """Name of the board at the name server."""

    @property
    def url(self) -> str:
        """Address for `lightning.connect`."""
        return f"qick://{HOST}:{self.port}/{self.name}"


def serve(address: str, *, port: int = 0, name: str = "myqick") -> ServedTwin:
    """Serve a twin in daemon threads of this process. `port` is the port of the name server, or 0 for any free port.

    QICK's server prints to standard output while it starts. Raise the errors of `connect`, `OSError` if the port is in
    use, `ModuleNotFoundError` without Pyro4, and `RuntimeError` if the server does not start within `START_TIMEOUT_S`.
    """
    from sim.twins.rfsoc.soc import SimulatedSoc

    soc = SimulatedSoc(address)
    ns_port = _start_name_server(port)
    failures: list[BaseException] = []
    threading.Thread(target=_serve_board, args=(soc, ns_port, name, failures), daemon=True).start()
    _wait_for_server(ns_port, name, failures)
    return ServedTwin(ns_port, name)


def _start_name_server(port: int) -> int:
    import Pyro4
    import Pyro4.naming

    Pyro4.config.SERIALIZERS_ACCEPTED = {"pickle"}
    Pyro4.config.PICKLE_PROTOCOL_VERSION = 4
    _, daemon, _ = Pyro4.naming.startNS(host=HOST, port=port, enableBroadcast=False)
    threading.Thread(target=daemon.requestLoop, daemon=True).start()
    return int(daemon.locationStr.rpartition(":")[2])


def _serve_board(soc: object, port: int, name: str, failures: list[BaseException]) -> None:
    from qick import pyro

    try:
        pyro.start_server(HOST, ns_port=port, proxy_name=name, soc_class=lambda: soc, iface=INTERFACE)
    except Exception as error:  # noqa: BLE001 - `_wait_for_server` raises it
        failures.append(error)


def _wait_for_server(port: int, name: str, failures: list[BaseException]) -> None:
    import Pyro4

    Pyro4.config.SERIALIZER = "pickle"
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and not failures:
        with Pyro4.locateNS(host=HOST, port=port) as name_server:
            if name in name_server.list():
                return
        time.sleep(POLL_INTERVAL_S)
    raise RuntimeError(f"the server of {name} did not start within {START_TIMEOUT_S:g} s") from next(
        iter(failures), None
    )
