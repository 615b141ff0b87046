"""Findings narrowed to one fibre in a lab of glass in memory: what is dark follows from ends, cuts and circuits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("pydantic")
skip_without("sqlalchemy")

from ocs_drivers.model import CrossConnects, Power
from testbed.design.model import Nic
from testbed.design.patching.wiring import make_wiring
from testbed.design.routing.routes import find_routes
from testbed.design.topology.circulants import find_topology
from testbed.lab.hosts.fleet import CommandResult
from testbed.operate import narrow as narrowing
from testbed.operate.design import Design
from testbed.operate.findings import FINDING_KINDS
from testbed.operate.journal import Journal
from testbed.operate.model import VerifyReport
from testbed.operate.narrow import narrow
from testbed.operate.plan import list_circuits
from testbed.operate.session import LabSession

TOPOLOGY = find_topology(4, 2)
RING = Design("ring", TOPOLOGY, make_wiring(TOPOLOGY), find_routes(make_wiring(TOPOLOGY)))
ONE_WAY = find_topology(4, 2, simplex=True)
SIMPLEX = Design("one-way", ONE_WAY, make_wiring(ONE_WAY), find_routes(make_wiring(ONE_WAY)))


class Glass:
    """Four hosts and one switch: fibres may stand at other ports, be cut, or have a dark laser."""

    def __init__(self, lab, switch, journal, design, *, monitors):
        self.lab, self.switch, self.design, self.hosts = lab, switch, design, lab.hosts
        self.nics = {
            lab.nic_label(Nic(h, k)): Nic(h, k)
            for h, host in enumerate(lab.hosts)
            for k in range(len(host.nics))
        }
        self.transmit = {nic: lab.get_nic(nic).transmit.port for nic in self.nics.values()}
        self.receive = {nic: lab.get_nic(nic).receive.port for nic in self.nics.values()}
        self.cut, self.dark_lasers, self.commands = set(), set(), []
        switch.capabilities = replace(switch.capabilities, power_monitor=monitors)
        switch.power = self.power
        switch.held = CrossConnects(
            {each.input_port: each.output_port for each in list_circuits(lab, design.wiring)}
        )
        self.session = LabSession(lab, {"ocs1": switch}, self, journal)

    def lit_inputs(self):
        dark = {nic for nic in self.transmit if f"{self.lab.nic_label(nic)}:transmit" in self.cut}
        return {port for nic, port in self.transmit.items() if nic not in dark | self.dark_lasers}

    def lit_outputs(self):
        return {out for port, out in self.switch.held.items() if port in self.lit_inputs()}

    def has_light(self, nic):
        is_cut = f"{self.lab.nic_label(nic)}:receive" in self.cut
        return not is_cut and self.receive[nic] in self.lit_outputs()

    def power(self, ports):
        lit = self.lit_inputs() | self.lit_outputs()
        return {port: Power(-1.0) if port in lit else Power(-60, below_floor=True) for port in ports}

    def run(self, commands, *, stdin=None, timeout_s=30.0):
        return {
            host: CommandResult(host, 0, self._said(host, command), "") for host, command in commands.items()
        }

    def _said(self, name, command):
        node = [host.name for host in self.hosts].index(name)
        nics = [Nic(node, k) for k in range(len(self.hosts[node].nics))]
        if "ethtool" in command:
            return "".join(self._module(nic) for nic in nics)
        return "\n".join(str(int(self.has_light(nic))) for nic in nics)

    def _module(self, nic):
        sent = "0.0000 mW / -inf dBm" if nic in self.dark_lasers else "1.0000 mW / 0.00 dBm"
        received = "0.6607 mW / -1.80 dBm" if self.has_light(nic) else "0.0000 mW / -inf dBm"
        return (
            f"=== {self.lab.get_nic(nic).name}\nLaser bias current : 45.000 mA\nLaser output power : {sent}\n"
            f"Receiver signal average optical power : {received}\n"
        )

    def swap(self, side, *names):
        """Move the fibres of NICs round: each stands where the next one's belongs."""
        ends = getattr(self, side)
        nics = [self.nics[name] for name in names]
        for nic, port in zip(nics, [ends[nic] for nic in (*nics[1:], nics[0])], strict=True):
            ends[nic] = port

    def narrowed(self, kind, subject):
        """Return the narrowed finding; the switch holds afterwards what it held before."""
        before, self.notes = self.switch.held, []
        report = VerifyReport(8, 0, (FINDING_KINDS[kind].report(subject, "as verify says it"),))
        (finding,) = narrow(self.session, self.design, report, self.notes.append).findings
        assert self.switch.held == before
        return finding


@pytest.fixture
def glass(testbed12, memory_switch, tmp_path, monkeypatch):
    monkeypatch.setattr(narrowing, "SETTLE_S", 0.0)
    with Journal(tmp_path / "journal.sqlite") as journal:

        def made(design=RING, *, nics=3, monitors=False):
            hosts = tuple(replace(host, nics=host.nics[:nics]) for host in testbed12.hosts[:4])
            return Glass(replace(testbed12, hosts=hosts), memory_switch(), journal, design, monitors=monitors)

        yield made


LINK, BACK = "a/nic1 -> b/nic1", "b/nic1 -> a/nic1"


@pytest.mark.slow
@pytest.mark.parametrize("nics", [2, 3])
@pytest.mark.parametrize(
    ("cut", "said"),
    [
        (
            "a/nic1:transmit",
            "the transmit fibre at ocs1:1 (a/nic1), or its laser, is out: b/nic1 is lit by b/nic1",
        ),
        ("b/nic1:receive", "the receive fibre at ocs1:53 (b/nic1) is out: a/nic1 is lit by its own light"),
    ],
)
def test_a_dark_link_without_monitors_is_narrowed_by_light_led_back(glass, nics, cut, said):
    lab = glass(nics=nics)
    lab.cut.add(cut)
    assert lab.narrowed("no_carrier", LINK).detail == said
    assert lab.switch.writes <= 8, "free NICs are not tried where the ends of the link tell"


def test_a_dark_laser_is_told_as_the_transmit_side(glass):
    lab = glass()
    lab.dark_lasers.add(lab.nics["a/nic1"])
    assert "transmit fibre at ocs1:1 (a/nic1), or its laser" in lab.narrowed("no_carrier", LINK).detail


def test_light_of_a_free_nic_narrows_one_way_links_and_no_other_link_goes_dark(glass):
    lab = glass(SIMPLEX)
    link = SIMPLEX.wiring.links[0]
    lab.cut.add(f"{lab.lab.nic_label(link.source)}:transmit")
    lit, looked = {nic for nic in lab.nics.values() if lab.has_light(nic)}, []
    run = lab.run

    def watched(commands, **options):
        looked.append({nic for nic in lab.nics.values() if lab.has_light(nic)})
        return run(commands, **options)

    lab.run = watched
    found = lab.narrowed("no_carrier", lab.lab.link_label(link))
    assert "the transmit fibre at" in found.detail
    assert "/nic3" in found.detail
    assert len(looked) >= 1
    assert all(lit <= each for each in looked)


def test_one_way_links_without_a_free_nic_stay_as_verify_said_and_nothing_moves(glass):
    lab = glass(SIMPLEX, nics=2)
    link = SIMPLEX.wiring.links[0]
    lab.cut.add(f"{lab.lab.nic_label(link.source)}:transmit")
    assert lab.narrowed("no_carrier", lab.lab.link_label(link)).detail == "as verify says it"
    assert (lab.notes, lab.switch.writes) == ([], 0)


def test_with_monitors_the_light_at_the_output_tells_and_nothing_moves(glass):
    lab = glass(monitors=True)
    lab.cut.add("b/nic1:receive")
    found = lab.narrowed("no_carrier", LINK)
    assert found.detail == "the receive fibre at ocs1:53 (b/nic1) is out: light leaves the switch there"
    assert lab.switch.writes == 0


def test_the_module_tells_a_dark_laser_from_a_cut_fibre(glass):
    lab = glass(monitors=True)
    lab.cut.add("a/nic1:transmit")
    cut = lab.narrowed("no_light", LINK)
    assert cut.detail == "the transmit fibre at ocs1:1 (a/nic1) is out: its module sends 0.0 dBm, none enters"
    lab.dark_lasers.add(lab.nics["a/nic1"])
    dark = lab.narrowed("no_light", LINK)
    assert dark.detail == "the module of a/nic1 reports that its laser is dark, and no light enters ocs1:1"


@pytest.mark.slow
@pytest.mark.parametrize(("out", "other"), [("a/nic1", "b/nic1"), ("b/nic1", "a/nic1")])
def test_of_two_cables_the_one_that_is_out_is_named(glass, out, other):
    lab = glass()
    lab.cut |= {f"{out}:transmit", f"{out}:receive"}
    found = lab.narrowed("dark_cable", "a/nic1 and b/nic1")
    assert found.detail == f"the cable of {out} is out, or has no power: {other} is lit by its own light"


@pytest.mark.parametrize(
    ("side", "said"),
    [
        ("transmit", "the transmit fibre at ocs1:1 is not that of a/nic1: without the circuit of"),
        ("receive", "the receive fibre at ocs1:53 leads to a/nic1: without the circuit of"),
    ],
)
def test_of_three_fibres_moved_round_each_is_told_by_itself(glass, side, said):
    lab = glass()
    lab.swap(side, "a/nic1", "b/nic1", "d/nic1")
    found = lab.narrowed("swapped", LINK)
    assert found.detail.startswith(said)
    assert "--narrow" not in found.hint
    assert found.hint.startswith("swap the plugs that the detail names")


@pytest.mark.parametrize("side", ["transmit", "receive"])
def test_of_two_links_the_exchanged_ends_are_told(glass, side):
    lab = glass()
    lab.swap(side, "a/nic1" if side == "transmit" else "b/nic1", "c/nic1" if side == "transmit" else "d/nic1")
    other = next(
        lab.lab.link_label(link)
        for link in RING.wiring.links
        if lab.lab.nic_label(link[side == "receive"]) == ("c/nic1" if side == "transmit" else "d/nic1")
    )
    found = lab.narrowed("swapped", f"{LINK} and {other}")
    assert found.detail.startswith(f"the {side} fibres at ")
    assert "--narrow" not in found.hint


def test_a_finding_that_cannot_be_narrowed_says_no_more_to_narrow_it(glass):
    lab = glass()
    lab.cut |= {"a/nic1:transmit", "b/nic1:receive"}
    found = lab.narrowed("swapped", LINK)
    assert (found.detail, "--narrow" in found.hint) == ("as verify says it", False)


def test_what_else_is_found_stays_and_nothing_moves(glass):
    lab = glass()
    assert lab.narrowed("missing_route", "a").detail == "as verify says it"
    assert lab.narrowed("no_light", LINK).detail == "as verify says it"
    assert lab.switch.writes == 0
