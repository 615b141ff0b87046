"""Evidence is of one time: a switch that changed meanwhile is read again; and of what answers."""

from __future__ import annotations

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("pydantic")

from ocs_drivers.model import CrossConnects
from testbed.errors import HostError
from testbed.operate.model import LabPlan
from testbed.operate.proof import evidence
from testbed.operate.proof.judge import judge_evidence, verify_lab
from testbed.operate.proof.reach_findings import count_pings


class Hosts:
    """A fleet that nothing is asked of: the tests say what its probes find."""

    def __init__(self, lab):
        self.hosts = lab.hosts


@pytest.fixture
def proof(worlds, memory_switch, monkeypatch):
    """Return a function that gathers evidence, while `meanwhile` changes the switch at each probe."""
    world = worlds()
    switch = memory_switch(held=CrossConnects(world.held["ocs1"]))
    plan = LabPlan(world.wiring, world.circuits, ())

    def gather(meanwhile, fleet=True):
        def probe(_fleet, _lab, _epoch, **_options):
            meanwhile(switch)
            return world.evidence().probe_report

        monkeypatch.setattr(evidence, "probe_links", probe)
        hosts = Hosts(world.lab) if fleet else None
        return evidence.gather_evidence(
            world.lab, plan, {"ocs1": switch}, hosts, epoch=7, unreachable_reasons={}
        )

    gather.world, gather.switch, gather.plan = world, switch, plan
    return gather


def test_a_switch_that_holds_still_is_read_before_and_after(proof):
    found = proof(lambda _: None)
    assert proof.switch.reads == 2
    assert found.changing == ()
    assert len(found.reading_by_switch["ocs1"].snapshot.connections) == 48


def test_a_switch_that_changed_meanwhile_is_read_again(proof):
    changes = [
        {1: 53},
        {1: 53},
    ]  # somebody removes 47 circuits under the first probe, and none under the second

    def meanwhile(switch):
        switch.held = CrossConnects(changes.pop(0))

    found = proof(meanwhile)
    assert changes == []
    assert found.changing == ()
    assert dict(found.reading_by_switch["ocs1"].snapshot.connections) == {1: 53}


def test_a_switch_that_never_holds_still_is_said_to_change(proof):
    states = iter(range(53, 60))
    found = proof(lambda switch: setattr(switch, "held", CrossConnects({1: next(states)})))
    assert found.changing == ("ocs1",)
    assert next(states) == 53 + evidence.MAX_ATTEMPTS


def test_a_switch_that_does_not_answer_is_one_finding_and_no_error(proof):
    proof.switch.unreachable = True
    found = proof(lambda _: None)
    assert found.reading_by_switch == {}
    assert "nobody answers" in found.unreachable_reasons["ocs1"]
    report = verify_lab(proof.world.lab, proof.plan, {"ocs1": proof.switch})
    assert [(finding.kind, finding.subject) for finding in report.findings] == [("switch_off", "ocs1")]


def test_without_hosts_a_switch_is_read_once(proof):
    proof(lambda _: None, fleet=False)
    assert proof.switch.reads == 1


class TestHostsThatCannotDoTheirPart:
    """A host without Python, one that is gone meanwhile: each is a finding of that host, and all else is judged."""

    @pytest.fixture
    def proof(self, worlds, memory_switch, monkeypatch):
        """Return a function that proves a healthy world in which hosts cannot do some parts."""
        world = worlds()
        switch = memory_switch(held=CrossConnects(world.held["ocs1"]))
        plan = LabPlan(world.wiring, world.circuits, ())
        everybody = {host.name for host in world.lab.hosts}

        def prove(**failing):
            def part(name, answer):
                def look(fleet, *_arguments, **options):
                    able = {host.name for host in options.get("hosts", fleet.hosts)}
                    if reasons := {host: f"no {name}" for host in failing.get(name, ()) if host in able}:
                        raise HostError("cannot", reasons=reasons)
                    return answer(everybody - able)

                return look

            def kernels(unable):
                return {host: kernel for host, kernel in world.kernels.items() if host not in unable}

            monkeypatch.setattr(evidence, "probe_links", part("probe", world._probe))
            monkeypatch.setattr(evidence, "read_kernels", part("kernel", kernels))
            monkeypatch.setattr(evidence, "read_receivers", part("receivers", world._received_powers))
            monkeypatch.setattr(evidence, "ping_sets", part("pings", world._pings))
            found = evidence.gather_evidence(
                world.lab,
                plan,
                {"ocs1": switch},
                Hosts(world.lab),
                epoch=7,
                unreachable_reasons={},
                ping_count_by_trip=count_pings([world.routes]),
            )
            return [
                (one.kind, one.subject, one.detail)
                for one in judge_evidence(world.lab, plan, world.routes, found)
            ]

        return prove

    def test_without_a_failure_there_is_no_finding(self, proof):
        assert proof() == []

    @pytest.mark.parametrize("name", ["probe", "kernel", "receivers", "pings"])
    def test_a_part_that_cannot_run_is_a_finding_of_that_host(self, proof, name):
        ((kind, host, detail),) = proof(**{name: {"e"}})
        assert (kind, host) == ("not_probed", "e")
        assert f"no {name}" in detail

    def test_several_hosts_and_parts_are_told_once_each(self, proof):
        told = proof(probe={"a", "e"}, kernel={"e"})
        assert [one[:2] for one in told] == [("not_probed", "a"), ("not_probed", "e")]
        assert "no probe" in told[1][2]
        assert "no kernel" in told[1][2]

    def test_a_host_that_can_do_no_part_is_off(self, proof):
        everything = dict.fromkeys(("probe", "kernel", "receivers", "pings"), "e")
        assert [one[:2] for one in proof(**everything)] == [("host_off", "e")]
