"""Labs for proofs: one in memory, where all follows from what a test plants, and one of hosts that Linux has."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from functools import cache
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from types import SimpleNamespace

import pytest
from needs import needs

from ocs_drivers.model import CrossConnects, Power, Snapshot
from testbed.design.model import Nic
from testbed.design.patching.wiring import make_wiring
from testbed.design.routing.routes import find_routes
from testbed.design.topology.circulants import find_topology
from testbed.lab.control import send_request
from testbed.lab.hosts.forwarding import make_forwarding_path, plan_forwarding
from testbed.lab.hosts.kernel_state import Interface, KernelState, Neighbour, plan_state
from testbed.lab.hosts.probe import Frame, NicReport, ProbeReport
from testbed.lab.hosts.reachability import Reachability
from testbed.lab.hosts.receivers import PowerThresholds, ReceiverReading
from testbed.lab.model import make_shard
from testbed.lab.simulated.lifecycle import start_lab
from testbed.operate.design import Design
from testbed.operate.intent import Intent, TopologySource
from testbed.operate.journal import open_journal
from testbed.operate.light import SwitchReading
from testbed.operate.model import LabPlan
from testbed.operate.plan import list_circuits
from testbed.operate.proof.evidence import Evidence
from testbed.operate.proof.judge import judge_evidence
from testbed.operate.session import open_lab
from testbed.operate.unfinished import IncompleteOperation

PYTHON = str(Path(sys.executable).resolve())
_TOPOLOGY = find_topology(4, 2)
RING = Design("ring", _TOPOLOGY, make_wiring(_TOPOLOGY), find_routes(make_wiring(_TOPOLOGY)))
EPOCH, FLOOR_DBM, SENSITIVITY_DBM = 7, -60.0, -20.0
WINDOW = PowerThresholds(SENSITIVITY_DBM, -18.0, 1.0, 2.0)


def taken(routes, address):
    """Return the route that a kernel takes towards an address: that of the longest prefix, of equals the first."""
    destination = IPv4Address(address)
    fitting = [one for one in routes if destination in network(one.target)]
    return max(fitting, key=lambda one: network(one.target).prefixlen, default=None)


network = cache(IPv4Network)  # the same few hundred are asked for a million times


class World:
    """A lab as it physically is. Tests change its parts; `findings` proves it against its plan."""

    def __init__(self, lab, wiring, *, monitors=True, modules=True):
        self.lab, self.wiring, self.monitors, self.modules = lab, wiring, monitors, modules
        self.routes = find_routes(wiring)
        self.circuits = list_circuits(lab, wiring)
        self.held = {switch.name: {} for switch in lab.switches}
        for circuit in self.circuits:
            self.held[circuit.switch][circuit.input_port] = circuit.output_port
        self.nics = {
            f"{host.name}/{nic.name}": Nic(h, k)
            for h, host in enumerate(lab.hosts)
            for k, nic in enumerate(host.nics)
        }
        self.ends = {}
        for name, nic in self.nics.items():
            for side in ("transmit", "receive"):
                end = getattr(lab.get_nic(nic), side)
                self.ends[f"{name}:{side}"] = (end.switch, end.port)
        self.left = ()
        self.loss_db = {}
        self.dark_lasers, self.off, self.dropping = set(), {}, set()
        self.kernels = self.configured_for(wiring)

    def macs(self):
        return {
            host.name: {nic.name: f"02:00:00:00:{h:02x}:{k:02x}" for k, nic in enumerate(host.nics)}
            for h, host in enumerate(self.lab.hosts)
        }

    def configured_for(self, wiring):
        """Return the kernels after an apply of a wiring."""
        parts = plan_forwarding(self.lab, wiring, find_routes(wiring), self.macs())
        return {host.name: self._kernel(host, plan_state(parts[host.name])) for host in self.lab.hosts}

    def _kernel(self, host, planned):
        rate, macs = self.lab.link.rate_mbps, self.macs()[host.name]
        interfaces = {
            nic.name: Interface(
                macs[nic.name],
                True,
                True,
                planned.mtus.get(nic.name, self.lab.link.mtu),
                planned.addresses.get(nic.name, frozenset()),
                rate,
            )
            for nic in host.nics
        }
        addresses = planned.addresses.get("lo", frozenset()) | {"127.0.0.1/8"}
        interfaces["lo"] = Interface("00:00:00:00:00:00", True, True, 65536, addresses)
        return KernelState(
            interfaces,
            tuple(planned.routes.values()),
            {key: Neighbour(mac, True) for key, mac in planned.neighbours.items()},
            dict(planned.sysctls),
        )

    # What tests plant.

    def patch(self, wiring):
        """Make the switches hold the circuits of a wiring and no others."""
        self.held = {switch.name: {} for switch in self.lab.switches}
        for circuit in list_circuits(self.lab, wiring):
            self.held[circuit.switch][circuit.input_port] = circuit.output_port

    def install(self, host, planned):
        """Put a host into a planned state."""
        self.kernels[host] = self._kernel(self.lab.hosts["abcdefghijkl".index(host)], planned)

    def part_of(self, host, wiring):
        """Return what an apply of a wiring installs on a host."""
        return plan_forwarding(self.lab, wiring, find_routes(wiring), self.macs())[host]

    def leave_unfinished(self, *replaced, circuits_stood=False):
        """Let the apply of this world's topology be one that was killed; the epochs that it replaces newest first."""
        epochs = [self._epoch(1 + len(replaced), self.wiring, stood=False)]
        for number, wiring in enumerate(replaced):
            epochs.append(self._epoch(len(replaced) - number, wiring, stood=True))
        apply, *before = epochs
        one = IncompleteOperation("op", "killed", "again", apply, tuple(before), circuits_stood)
        self.left = (one,)

    def _epoch(self, number, wiring, *, stood):
        hosts = tuple(host.name for host in self.lab.hosts)
        moment = "2026-11-22T10:20:00.000000+00:00"
        return Intent(
            lab=self.lab.name,
            epoch=number,
            state="verified" if stood else "intended",
            operation=f"op{number}",
            owner="1 gone/0",
            lab_file=str(self.lab.path),
            revision=self.lab.revision,
            name="default",
            topology=None,
            wiring=wiring,
            hosts=hosts,
            nics={host.name: tuple(nic.name for nic in host.nics) for host in self.lab.hosts},
            topology_source=TopologySource(),
            intended_at=moment,
            applied_at=moment if stood else None,
            error="",
        )

    def change(self, host, **parts):
        self.kernels[host] = replace(self.kernels[host], **parts)

    def change_interface(self, label, **parts):
        host, name = label.split("/")
        interfaces = dict(self.kernels[host].interfaces)
        interfaces[name] = replace(interfaces[name], **parts)
        self.change(host, interfaces=interfaces)

    def lose(self, label, **parts):
        """Change an interface that loses its routes and neighbours by it, as the kernel does."""
        host, name = label.split("/")
        self.change_interface(label, **parts)
        kernel = self.kernels[host]
        self.change(
            host,
            routes=tuple(route for route in kernel.routes if route.device != name),
            neighbours={key: entry for key, entry in kernel.neighbours.items() if key[0] != name},
        )

    def swap(self, one, other):
        self.ends[one], self.ends[other] = self.ends[other], self.ends[one]

    def swap_cables(self, one, other):
        for side in ("transmit", "receive"):
            self.swap(f"{one}:{side}", f"{other}:{side}")

    # What follows.

    def sends_dbm(self, nic):
        name = self.label(nic)
        down = not self.kernels[self.lab.hosts[nic.node].name].interfaces[name.split("/")[1]].is_up
        if name in self.dark_lasers or self.lab.hosts[nic.node].name in self.off or down:
            return FLOOR_DBM
        end = self.lab.get_nic(nic).transmit
        return self.lab.link.transmit_power_dbm - end.loss_db - self.loss_db.get(f"{name}:transmit", 0.0)

    def label(self, nic):
        return f"{self.lab.hosts[nic.node].name}/{self.lab.get_nic(nic).name}"

    def at_input(self, switch, port):
        at = {self.ends[f"{name}:transmit"]: nic for name, nic in self.nics.items()}
        return at.get((switch, port))

    def input_dbm(self, switch, port):
        nic = self.at_input(switch, port)
        return self.sends_dbm(nic) if nic else FLOOR_DBM

    def output_dbm(self, switch, port):
        source = {out: port for port, out in self.held[switch].items()}.get(port)
        if source is None:
            return FLOOR_DBM, None
        power = self.input_dbm(switch, source) - self.lab.get_switch(switch).insertion_loss_db
        power -= self.loss_db.get((switch, source, port), 0.0)
        return max(power, FLOOR_DBM), self.at_input(switch, source)

    def received(self, nic):
        """Return power at a receiver, and whose light it is."""
        name = self.label(nic)
        power, source = self.output_dbm(*self.ends[f"{name}:receive"])
        return power - self.lab.get_nic(nic).receive.loss_db - self.loss_db.get(
            f"{name}:receive", 0.0
        ), source

    def has_carrier(self, nic):
        host, name = self.label(nic).split("/")
        is_up = self.kernels[host].interfaces[name].is_up and host not in self.off
        return is_up and self.received(nic)[0] >= SENSITIVITY_DBM

    def arrives_from(self, nic):
        """Return the NIC whose frames arrive at this one, if any do."""
        source = self.received(nic)[1]
        host, name = self.label(nic).split("/")
        is_open = not self.kernels[host].interfaces[name].has_ingress_hook
        is_there = is_open and self.has_carrier(nic) and source is not None and self.has_carrier(source)
        return source if is_there else None

    def packet_arrives(self, source, target, ends):
        """Return the number of links that a packet to the node address of a host takes; 0 where it is lost."""
        here, address = source, str(self.lab.hosts[target].address)
        for hops in range(1, 2 * len(self.lab.hosts)):
            kernel = self.kernels[self.lab.hosts[here].name]
            route = taken(kernel.routes, address)
            entry = route and kernel.neighbours.get((route.device, route.gateway or address))
            out = route and self.nics.get(f"{self.lab.hosts[here].name}/{route.device}")
            at = ends.get(out)
            if not entry or not at:
                return 0
            host = self.lab.hosts[at.node].name
            if (
                self.kernels[host].interfaces[self.lab.get_nic(at).name].mac != entry.mac
                or host in self.dropping
            ):
                return 0
            if f"{address}/32" in self.kernels[host].interfaces["lo"].addresses:
                return hops
            here = at.node
            settings = self.kernels[host].sysctls
            if "0" in (
                settings["net/ipv4/ip_forward"],
                settings[make_forwarding_path(self.lab.get_nic(at).name)],
            ):
                return 0
        return 0

    def evidence(self):
        off_hosts = {host.name for host in self.lab.hosts} & self.off.keys()
        switches = {name: self._reading(name) for name in self.held if name not in self.off}
        kernels = {host: kernel for host, kernel in self.kernels.items() if host not in off_hosts}
        return Evidence(
            switches,
            self.off,
            self._probe(off_hosts),
            kernels,
            self._received_powers(off_hosts),
            self._pings(off_hosts),
        )

    def _reading(self, name):
        snapshot = Snapshot(CrossConnects(self.held[name]), 0.0)
        if not self.monitors:
            return SwitchReading(snapshot, {})
        ports = {port for of, port in self.ends.values() if of == name}
        inputs = self.lab.get_switch(name).input_count
        power = {
            port: self.input_dbm(name, port) if port <= inputs else self.output_dbm(name, port)[0]
            for port in ports
        }
        readings = {port: Power(dbm, below_floor=dbm <= -50.0) for port, dbm in power.items()}
        return SwitchReading(snapshot, readings)

    def _probe(self, off_hosts):
        nics = {}
        for name, nic in self.nics.items():
            host, port = name.split("/")
            if host not in off_hosts:
                source = self.arrives_from(nic)
                frames = (Frame(*self.label(source).split("/"), EPOCH),) if source else ()
                nics[host, port] = NicReport(self.has_carrier(nic), 3, frames)
        return ProbeReport(EPOCH, nics)

    def _received_powers(self, off_hosts):
        return {
            tuple(name.split("/")): ReceiverReading((self.received(nic)[0],), thresholds=WINDOW)
            for name, nic in self.nics.items()
            if self.modules and name.split("/")[0] not in off_hosts
        }

    def _pings(self, off_hosts):
        names = tuple(host.name for host in self.lab.hosts if host.name not in off_hosts)
        ends = {source: nic for nic in self.nics.values() if (source := self.arrives_from(nic))}
        number = {host.name: node for node, host in enumerate(self.lab.hosts)}
        hops = {
            (a, b): self.packet_arrives(number[a], number[b], ends) for a in names for b in names if a != b
        }
        answered = frozenset(pair for pair, there in hops.items() if there and hops[pair[::-1]])
        return (
            Reachability(tuple(hops), answered, {pair[::-1]: hops[pair[::-1]] for pair in answered}, 0.0),
        )

    def findings(self):
        plan = LabPlan(self.wiring, self.circuits, ())
        return judge_evidence(self.lab, plan, self.routes, self.evidence(), self.left)

    def told(self):
        return sorted((finding.kind, finding.subject) for finding in self.findings())


@pytest.fixture(scope="session")
def worlds(testbed12):
    """Return a function that makes a healthy world of twelve hosts, or of those that are named."""

    def make(hosts="abcdefghijkl", *, simplex=False, degree=4, **options):
        wiring = make_wiring(find_topology(len(hosts), degree, simplex=simplex))
        return World(make_shard(testbed12, hosts), wiring, **options)

    make.other_wiring = SimpleNamespace(pairs=make_wiring(find_topology(12, 2)))
    return make


@pytest.fixture(scope="module")
@needs("process", "socket")
def bench(testbed12, tmp_path_factory):
    """Provide a lab of four hosts that stays up, one session with it, and what plants faults."""
    hosts = tuple(replace(host, nics=host.nics[:3], python=PYTHON) for host in testbed12.hosts[:4])
    lab = replace(testbed12, name=f"proof-{os.getpid()}", hosts=hosts)
    runs = tmp_path_factory.mktemp("runs")
    with (
        start_lab(lab, hosts="kernel", may_move=True) as up,
        open_journal(runs) as journal,
        open_lab(up.lab, journal) as session,
    ):

        def on(host, command):
            (done,) = session.fleet.run({host: command}).values()
            assert done.exit_status == 0, done.stderr
            return done.stdout

        def ask(of, do, **details):
            return send_request(up.control_addresses[of], {"do": do, **details})

        def told(design=RING):
            return sorted((finding.kind, finding.subject) for finding in session.prove(design).findings)

        assert session.bring_up(RING).verify_report.findings == ()
        circuits = session.switches["ocs1"].read().connections
        yield SimpleNamespace(
            lab=up.lab, session=session, runs=runs, on=on, ask=ask, told=told, circuits=circuits, design=RING
        )


HEALED = """
ip link set gone down && ip link set gone name nic1
umount $(command -v nft); nft delete table ip x; nft delete table netdev x
tc qdisc del dev nic1 clsact; tc qdisc replace dev nic1 root tbf rate RATEkbit burst 128kb latency 50ms
tc class change dev nic2 parent 2: classid 2:2 htb rate 32gbit prio 1 quantum 65536
ip link del br9; ip addr del 10.100.4.100/32 dev lo; umount PYTHON
ip link set nic1 up; ip link set nic2 up; ip rule del prio 99; ip route flush table 99
"""
"""What takes every fault away that tests plant on host c; most of it is not there, and says so."""


@pytest.fixture
def ring(bench):
    """Provide the lab with the ring in force; what a test has planted is taken away afterwards."""
    yield bench
    rate_kbit = str(round(bench.lab.link.rate_mbps * 1000))
    heal = HEALED.replace("RATE", rate_kbit).replace("PYTHON", PYTHON).strip().replace("\n", "; ")
    bench.on("c", f"({heal}) 2>/dev/null; true")
    for name, loss_db in bench.ask("plant", "truth")["faults"]["extra_loss_db"].items():
        assert loss_db
        bench.ask("plant", "loss", fibre=name, loss_db=0)
    bench.ask("plant", "unswap")
    bench.ask("plant", "laser", nic="a/nic1", on=True)
    bench.ask("ocs1", "clear_fault", fault="all")
    if bench.session.switches["ocs1"].read().connections != bench.circuits:
        bench.session.bring_up(RING)
    else:  # without another proof
        bench.session.install_routes(RING)
