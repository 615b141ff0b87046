"""QICK's own Pyro4 server with a twin in the place of the board, and a name server with it.

Both speak pickle and know no passwords: whoever reaches their ports can run anything here. So they are bound to the
loopback interface, and nothing else is offered.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

HOST = "127.0.0.1"
INTERFACE = "lo"
READY_S = 30.0
"""After which a server that has not registered its board is held to have failed."""
POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class Serving:
    """Place where a twin is served."""

    port: int
    """Of the name server."""
    name: str
    """Of the board, as the name server knows it."""

    @property
    def url(self) -> str:
        """The address for `lightning.connect`."""
        return f"qick://{HOST}:{self.port}/{self.name}"


def serve(address: str, *, port: int = 0, name: str = "myqick") -> Serving:
    """Serve a twin from threads of this process until it ends; `port` is the name server's, 0 any free one.

    QICK's server prints to standard output while it starts. Raises what `connect` does, `OSError` for a port that is
    taken, `ModuleNotFoundError` without Pyro4, and `RuntimeError` when the server does not come up.
    """
    from sim.twins.rfsoc.soc import SimulatedSoc

    served = SimulatedSoc(address)
    taken = _name_server(port)
    failures: list[BaseException] = []
    threading.Thread(target=_serve_board, args=(served, taken, name, failures), daemon=True).start()
    _wait_for(taken, name, failures)
    return Serving(taken, name)


def _name_server(port: int) -> int:
    import Pyro4
    import Pyro4.naming

    Pyro4.config.SERIALIZERS_ACCEPTED = {"pickle"}
    Pyro4.config.PICKLE_PROTOCOL_VERSION = 4
    _, daemon, _ = Pyro4.naming.startNS(host=HOST, port=port, enableBroadcast=False)
    threading.Thread(target=daemon.requestLoop, daemon=True).start()
    return int(daemon.locationStr.rpartition(":")[2])


def _serve_board(served: object, port: int, name: str, failures: list[BaseException]) -> None:
    from qick import pyro

    try:
        pyro.start_server(HOST, ns_port=port, proxy_name=name, soc_class=lambda: served, iface=INTERFACE)
    except Exception as error:  # noqa: BLE001 - reported by whoever waits
        failures.append(error)


def _wait_for(port: int, name: str, failures: list[BaseException]) -> None:
    import Pyro4

    Pyro4.config.SERIALIZER = "pickle"
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline and not failures:
        with Pyro4.locateNS(host=HOST, port=port) as names:
            if name in names.list():
                return
        time.sleep(POLL_S)
    raise RuntimeError(f"the server of {name} did not start within {READY_S:g} s") from next(
        iter(failures), None
    )
