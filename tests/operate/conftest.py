"""Fixtures of the tests of `testbed.operate`: a scripted switch in memory, and the 12-host lab with modelled hosts."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from needs import needs

from ocs_drivers import open_switch
from ocs_drivers.contract import allow_all
from ocs_drivers.engine import planning
from ocs_drivers.engine.transaction import judge_step
from ocs_drivers.errors import ConnectError
from ocs_drivers.model import Capabilities, CrossConnects, Power, Snapshot

TESTBED12 = Path(__file__).parents[2] / "labs" / "testbed12.yaml"


@dataclass
class MemorySwitch:
    """A switch below the contract. `obey` decides which pairs of a command are really carried out."""

    address: str = "memory://ocs1"
    capabilities: Capabilities = field(
        default_factory=lambda: Capabilities(48, 48, atomic_whole=True, bulk_add=True, power_monitor=True)
    )
    held: CrossConnects = field(default_factory=CrossConnects)
    obey: object = None
    blind_after: bool = False
    unreachable: bool = False
    reads: int = 0
    writes: int = 0
    readings: dict = field(default_factory=dict)

    def read(self):
        self.reads += 1
        if self.unreachable:
            raise ConnectError("nobody answers", device=self.address)
        return Snapshot(self.held, time.monotonic())

    def plan(self, target, seen, scope=None):
        return planning.plan(target, seen, capabilities=self.capabilities, scope=scope, device=self.address)

    def execute(self, step, guard=allow_all):
        if self.unreachable:
            raise ConnectError("nobody answers", device=self.address)
        guard()
        self.writes += 1
        self.held = self.obey(step) if self.obey else step.after
        seen = None if self.blind_after else Snapshot(self.held, time.monotonic())
        return judge_step(step, seen, device_s=0.02)

    def power(self, ports):
        return {port: self.readings.get(port, Power(-1.0)) for port in ports}


@pytest.fixture(scope="session")
def memory_switch():
    return MemorySwitch


@pytest.fixture(scope="session")
def testbed12():
    from testbed.lab.inventory import load_lab

    return load_lab(TESTBED12)


@pytest.fixture(scope="session", autouse=True)
def _own_state(tmp_path_factory):
    """Provide keys made in tests stay out of the home of whoever runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
@needs("process")
def modelled(testbed12):
    """Provide the 12-host lab as processes on the loopback network: a real twin on real sockets, no hosts."""
    from testbed.lab.simulated.lifecycle import start_lab

    with start_lab(testbed12, hosts="model") as lab:
        yield lab


@pytest.fixture
def ask_twin(modelled):
    """Ask the twin's control socket; every fault is cleared afterwards."""
    from testbed.lab.control import send_request

    def ask(do, of="ocs1", **details):
        return send_request(modelled.control_addresses[of], {"do": do, **details})

    yield ask
    ask("clear_fault", fault="all")


@pytest.fixture
@needs("socket")
def switches(modelled):
    """Provide every switch of the modelled lab, open and dark."""
    with open_switch(modelled.lab.switches[0].address) as switch:
        switch.apply(CrossConnects())
        yield {"ocs1": switch}


@pytest.fixture(scope="session")
def ring_and_pairs():
    """Return a function that makes a design for twelve hosts: rings on two NICs, pairs three and six apart on two."""
    from testbed.design.patching.wiring import make_wiring
    from testbed.design.routing.routes import find_routes
    from testbed.design.topology.circulants import find_topology
    from testbed.operate.design import Design

    def make(*, simplex=False):
        rings = find_topology(12, 2, simplex=simplex)
        pairs = [(node, (node + step) % 12) for step in (3, 6) for node in range(12)]
        if not simplex:  # the first half of each six joins the second
            pairs = [
                (one, other)
                for one, other in pairs
                if one < other and one % (2 * (other - one)) < other - one
            ]
            pairs += [(other, one) for one, other in pairs]
        topology = replace(rings, degree=4, edges=tuple(sorted((*rings.edges, *pairs))))
        wiring = make_wiring(topology)
        assert len(wiring.links) == 48
        return Design("rings and pairs", topology, wiring, find_routes(wiring))

    return make
