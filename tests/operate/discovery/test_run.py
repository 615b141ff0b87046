"""A discovery on devices in memory: what others use is left alone, all is put back, crashes are made good."""

from __future__ import annotations

from dataclasses import replace

import pytest
from libraries import skip_without

skip_without("pydantic")
skip_without("sqlalchemy")

from ocs_drivers.model import Capabilities, CrossConnects, PortInfo, PortState, Power, Side
from testbed.errors import DriftError
from testbed.lab.hosts.probe import Frame, NicReport, ProbeReport
from testbed.lab.simulated.fibre_draw import draw_fibres, remove_fibres
from testbed.operate.discovery import run as run_module
from testbed.operate.discovery.devices import Devices
from testbed.operate.discovery.run import DiscoveryRecord, discover
from testbed.operate.journal import Journal


class Killed(BaseException):
    """The process is gone: nothing after it is done."""


class Laboratory(Devices):
    """Devices whose hosts are in memory: frames go where the drawn fibres and the switch's circuits lead them."""

    def __init__(self, truth, switch, journal, dead=()):
        super().__init__(remove_fibres(truth), {"ocs1": switch}, None, journal)
        self.truth, self.switch, self.dead = truth, switch, set(dead)
        self.down: set = set()
        self.kill_at = None
        self.probes = 0
        self.killed = False

    def find_down_interfaces(self):
        return frozenset(self.down)

    def set_interfaces(self, nics, *, is_up):
        self.down = self.down - set(nics) if is_up else self.down | set(nics)
        self._down_nics = self._down_nics - set(nics) if is_up else self._down_nics | set(nics)

    def restore(self, down):
        if self.killed:
            raise Killed
        super().restore(down)

    def probe(self):
        self.probes += 1
        if self.probes == self.kill_at:
            self.killed = True
            raise Killed
        sends, hears = {}, {}
        for host in self.truth.hosts:
            for nic in host.nics:
                name = (host.name, nic.name)
                if f"{host.name}/{nic.name}:transmit" not in self.dead and name not in self.down:
                    sends[nic.transmit.port] = name
                if f"{host.name}/{nic.name}:receive" not in self.dead and name not in self.down:
                    hears[nic.receive.port] = name
        self.switch.readings = {
            port: Power(-0.3 if port in sends else -60.0, below_floor=port not in sends)
            for port in range(1, 9)
        }
        lit = {hears[o]: sends[i] for i, o in self.switch.held.pairs if i in sends and o in hears}
        nics = {}
        for host in self.truth.hosts:
            for nic in host.nics:
                name = (host.name, nic.name)
                speaker = lit.get(name)
                frames = (Frame(*speaker, 7),) if speaker in lit else ()
                nics[name] = NicReport(name in lit, 3 if name in lit else 0, frames)
        return ProbeReport(7, nics)


@pytest.fixture
def journal(tmp_path):
    with Journal(tmp_path / "journal.sqlite") as journal:
        yield journal


@pytest.fixture
def switch(memory_switch):
    class Panel(memory_switch):
        def ports(self):
            return {
                number: PortInfo(number, Side.IN if number <= 8 else Side.OUT, PortState.ENABLED)
                for number in range(1, 17)
            }

    return Panel(capabilities=Capabilities(8, 8, atomic_whole=True, bulk_add=True, power_monitor=True))


@pytest.fixture
def truth(testbed12):
    """Three hosts of two NICs at an 8x8 switch, whose places a seed drew."""
    hosts = tuple(replace(host, nics=host.nics[:2]) for host in testbed12.hosts[:3])
    switches = (replace(testbed12.switches[0], input_count=8, output_count=8),)
    return draw_fibres(replace(testbed12, hosts=hosts, switches=switches), 5, crossed_count=1)


def found_ports(found):
    return {nic.nic: (nic.transmit.port, nic.receive.port) for nic in found.nic_results}


def true_ports(lab):
    return {
        (host.name, nic.name): (("ocs1", nic.transmit.port), ("ocs1", nic.receive.port))
        for host in lab.hosts
        for nic in host.nics
    }


def test_all_fibres_are_found_and_no_circuit_is_left(truth, switch, journal):
    devices = Laboratory(truth.lab, switch, journal)
    found = discover(devices, DiscoveryRecord(journal, "t"))
    assert found_ports(found) == true_ports(truth.lab)
    assert len(switch.held) == 0
    assert not devices.down
    assert (found.busy_circuits, found.busy_nics, found.resumed) == ((), (), False)


def test_circuits_and_nics_that_are_in_use_are_left_alone_and_named(truth, switch, journal):
    first, second = (nic for nic in truth.lab.hosts[0].nics)
    pair = (first.transmit.port, second.receive.port)
    switch.held = CrossConnects([pair])
    devices = Laboratory(truth.lab, switch, journal)
    touched = []
    switch.obey = lambda step: touched.append(pair in step.after.pairs) or step.after
    found = discover(devices, DiscoveryRecord(journal, "t"))
    assert touched
    assert all(touched)
    assert switch.held == CrossConnects([pair])
    assert found.busy_circuits == (f"ocs1:{pair[0]} -> {pair[1]}",)
    assert found.busy_nics == (("a", "nic2"),)
    assert ("a", "nic2") not in found_ports(found)


def test_interfaces_that_were_down_are_down_again(truth, switch, journal):
    devices = Laboratory(truth.lab, switch, journal)
    devices.down = {("b", "nic1")}
    found = discover(devices, DiscoveryRecord(journal, "t"))
    assert found_ports(found) == true_ports(truth.lab)
    assert devices.down == {("b", "nic1")}


def test_dead_fibres_are_named(truth, switch, journal):
    dead = ("a/nic1:receive", "c/nic2:transmit")
    found = discover(Laboratory(truth.lab, switch, journal, dead), DiscoveryRecord(journal, "t"))
    assert found.list_fibres("dead") == dead
    assert found.list_fibres("uncertain") == ()


def test_somebody_who_patches_meanwhile_ends_it_and_keeps_the_circuit(truth, switch, journal):
    devices = Laboratory(truth.lab, switch, journal)
    probe = devices.probe

    def intrude():
        report = probe()
        if devices.probes == 3:
            (source, target), *_ = sorted(switch.held.pairs)
            others = {i: o for i, o in switch.held.items() if i != source and o != 16}
            switch.held = CrossConnects({**others, source: 16 if target != 16 else 15})
        return report

    devices.probe = intrude
    with pytest.raises(DriftError, match="somebody else removed ocs1:"):
        discover(devices, DiscoveryRecord(journal, "t"))
    assert len(switch.held) == 1


@pytest.mark.long
def test_a_kill_at_any_probe_is_made_good_by_the_next_discovery(truth, switch, tmp_path, monkeypatch):
    """The next one removes the circuits of the killed one, takes over what it saw, and finds the same."""
    foreign = CrossConnects({8: 16}) if 8 not in _used(truth) and 16 not in _used(truth) else CrossConnects()
    kill_at, resumed = 1, 0
    while True:
        with Journal(tmp_path / f"{kill_at}.sqlite") as journal:
            switch.held = foreign
            first = Laboratory(truth.lab, switch, journal)
            first.kill_at = kill_at
            try:
                discover(first, DiscoveryRecord(journal, "t"))
            except Killed:
                pass
            else:
                break
            monkeypatch.setattr(run_module, "is_running", lambda _owner: False)
            second = Laboratory(truth.lab, switch, journal)
            second.down = set(first.down)
            found = discover(second, DiscoveryRecord(journal, "t"))
            assert found_ports(found) == true_ports(truth.lab)
            assert switch.held == foreign
            assert second.down == set()  # as before the first
            assert DiscoveryRecord(journal, "t").find_unfinished() == ()
            resumed += found.resumed
            assert first.probes + second.probes <= first.probes + 1 + found.round_count
        kill_at += 1
    assert kill_at >= 5
    assert resumed >= kill_at - 3


def test_a_killed_one_is_concluded_by_the_next_also_if_that_ends_with_an_error(
    truth, switch, journal, monkeypatch
):
    """A NIC that is set down after all was put back was not set down by the killed one: it stays so."""
    first = Laboratory(truth.lab, switch, journal)
    first.kill_at = 4
    with pytest.raises(Killed):
        discover(first, DiscoveryRecord(journal, "t"))
    monkeypatch.setattr(run_module, "is_running", lambda _owner: False)
    second = Laboratory(truth.lab, switch, journal)
    second.down = set(first.down)

    def fail():
        raise DriftError("a switch is off")

    second.probe = fail
    with pytest.raises(DriftError):
        discover(second, DiscoveryRecord(journal, "t"))
    assert (second.down, len(switch.held)) == (set(), 0)
    third = Laboratory(truth.lab, switch, journal)
    third.down = {("b", "nic1")}
    found = discover(third, DiscoveryRecord(journal, "t"))
    assert found_ports(found) == true_ports(truth.lab)
    assert third.down == {("b", "nic1")}


@pytest.mark.slow
@pytest.mark.parametrize("kill_at", [3, 4, 5])
def test_what_somebody_patched_after_a_kill_is_left_alone(truth, switch, journal, monkeypatch, kill_at):
    """One circuit of the last round again, made by another: a discovery has all of a round, or none."""
    first = Laboratory(truth.lab, switch, journal)
    first.kill_at = kill_at
    with pytest.raises(Killed):
        discover(first, DiscoveryRecord(journal, "t"))
    assert len(switch.held) > 1
    theirs = CrossConnects([min(switch.held.items())])
    switch.held = theirs
    monkeypatch.setattr(run_module, "is_running", lambda _owner: False)
    second = Laboratory(truth.lab, switch, journal)
    second.down = set(first.down)

    found = discover(second, DiscoveryRecord(journal, "t"))

    assert switch.held == theirs
    ((source, target),) = theirs.items()
    assert found.busy_circuits == (f"ocs1:{source} -> {target}",)
    assert "somebody has patched since" in found.notes[0]


def _used(truth):
    return {end.port for host in truth.lab.hosts for nic in host.nics for end in (nic.transmit, nic.receive)}


def test_every_circuit_is_in_the_record_before_the_switch_moves(truth, switch, journal):
    written = DiscoveryRecord(journal, "t")
    seen = []

    def obey(step):
        with journal.open_transaction() as connection:
            text = connection.exec_driver_sql("select circuits from discoveries").scalar_one()
        seen.append(all(f'["ocs1", {i}], ["ocs1", {o}]' in text for i, o in step.after.pairs))
        return step.after

    switch.obey = obey
    discover(Laboratory(truth.lab, switch, journal), written)
    assert len(seen) >= 2
    assert all(seen)
