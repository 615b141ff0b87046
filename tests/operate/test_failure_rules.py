"""Rules for failed GPUs, hosts, switches and links of hosts with several GPUs: as functions, and by the command."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ocs_drivers.model import CrossConnects, Snapshot
from testbed.cli.app import run_app
from testbed.design.model import Nic
from testbed.design.patching.wiring import make_wiring
from testbed.design.plans.file import Plan, WorkloadChoice, write_plan
from testbed.design.routing.routes import find_routes
from testbed.design.topology.circulants import find_topology
from testbed.design.workloads.sharding import Strategy, make_data_sharding
from testbed.errors import LabFileError, TopologyError
from testbed.lab.inventory import parse_lab, render_lab
from testbed.operate.design import Design
from testbed.operate.failure_rules import Gpu, advise_on_failures, find_lost_nics, parse_gpu
from testbed.operate.journal import Journal
from testbed.operate.light import Loss, SwitchReading, find_held_circuits, judge_losses
from testbed.operate.plan import list_circuits
from testbed.operate.repair import RepairRecord, add_failed_gpus, plan_lab_repair
from testbed.operate.session import LabSession

BARE = {"ocs1": Snapshot(CrossConnects({}), 0.0)}
"""A switch without circuits."""


def with_gpus(lab, gpus):
    """Return the lab whose hosts have so many GPUs, the NICs divided among them as the lab file does."""
    text = render_lab(replace(lab, hosts=tuple(replace(host, gpus=gpus) for host in lab.hosts)))
    lines = (line for line in text.splitlines() if "gpu: " not in line)
    return parse_lab("\n".join(lines), lab.path)


def make_design(hosts, degree):
    topology = find_topology(hosts, degree)
    wiring = make_wiring(topology)
    return Design(f"degree {degree}", topology, wiring, find_routes(wiring))


def observe(lab, design, failed, links=None):
    """Return the observation of a lab where every fibre is whole and these GPUs have failed."""
    wiring = design.wiring if links is None else replace(design.wiring, degree=4, links=links)
    pairs = {one.input_port: one.output_port for one in list_circuits(lab, wiring)}
    reading = SwitchReading(Snapshot(CrossConnects(pairs), 0.0), {})
    held = find_held_circuits(lab, {"ocs1": reading.snapshot})
    return add_failed_gpus(lab, design, judge_losses(held, held, {"ocs1": reading}, {}), failed)


@pytest.mark.parametrize("gpus", [1, 2, 4])
def test_only_idle_gpus_of_the_same_host_take_over_and_no_other_link_moves(testbed12, gpus):
    lab, rules = with_gpus(testbed12, gpus), set()

    @settings(deadline=None, max_examples=30)
    @given(
        st.integers(2, 4),
        st.sets(st.tuples(st.integers(0, 11), st.integers(0, 3)), min_size=1, max_size=2),
    )
    def hold(degree, failed):
        rules.update(check_takeover(lab, make_design(12, degree), gpus, failed))

    hold()
    assert rules == (set() if gpus == 1 else {3, 4})


def check_takeover(lab, design, gpus, failed):
    """Check the repair of failed GPUs, given as pairs of node and number; return the rules that apply."""
    failed = {Gpu(node, number % gpus) for node, number in failed}
    observation = observe(lab, design, failed)
    dead, linked = find_lost_nics(lab, failed), {nic for link in design.wiring.links for nic in link}
    assert len(dead) == len(failed) * 4 // gpus
    try:
        planned = plan_lab_repair(lab, design, observation)
    except TopologyError:
        assert gpus == 1 or len({gpu.node for gpu in failed}) < len(failed), "a host lost all of its NICs"
        return set()
    if not dead & linked:
        assert planned is None
        assert list(advise_on_failures(lab, design.wiring, failed, snapshots=observation.snapshots)) == []
        return set()
    links = planned.repair.repatched.links
    advice = list(
        advise_on_failures(lab, design.wiring, failed, links=links, snapshots=observation.snapshots)
    )
    in_rails = {
        gpu
        for gpu in failed
        if linked & {Nic(gpu.node, i) for i in lab.hosts[gpu.node].find_nics_beside(gpu.number)}
    }
    assert {one.subject for one in advice} == {f"{lab.hosts[g.node].name}/gpu{g.number}" for g in in_rails}
    kept = {link for link in design.wiring.links if not dead.intersection(link)}
    assert kept <= set(links)
    for one in advice:
        if one.rule == 3:
            spare, subject = parse_gpu(lab, one.target), parse_gpu(lab, one.subject)
            assert spare.node == subject.node
            assert spare not in failed
            ends = {Nic(spare.node, index) for index in lab.hosts[spare.node].find_nics_beside(spare.number)}
            assert not ends & linked
            assert ends & {nic for link in links for nic in link}
        else:
            assert (one.rule, one.action) == (4, "migrate")
    return {one.rule for one in advice}


def test_the_idle_gpu_joins_the_rail_and_the_record_remembers_it(testbed12):
    lab, design, failed = with_gpus(testbed12, 4), make_design(12, 3), {Gpu(0, 1)}
    planned = plan_lab_repair(lab, design, observe(lab, design, failed))
    links = planned.repair.repatched.links
    ends = {link: nic.index for link in planned.repair.new_links for nic in link if nic.node == 0}
    assert set(ends.values()) == {3}
    assert planned.repair.removed_links == ()
    assert Nic(0, 1) not in {nic for link in links for nic in link}
    (advice,) = advise_on_failures(lab, design.wiring, failed, links=links, snapshots=BARE)
    assert (advice.rule, advice.action, advice.target) == (3, "move", "a/gpu3")
    assert advice.text == "a/gpu1 has failed. a/gpu3 is idle and joins the rail, with circuits at a/nic4"

    record = RepairRecord.from_json(lab, json.loads(json.dumps(planned.record.to_json(lab))))
    again = plan_lab_repair(lab, design, observe(lab, design, (), links), record)
    assert again.is_repaired


@pytest.mark.parametrize(
    ("gpus", "action", "target", "words"),
    [
        (8, "migrate", "l", "move the work of a (8 GPUs) to l, which is idle"),
        (16, "add_switch", "", "16 GPUs are too many to move: add an optical switch"),
    ],
)
def test_the_work_of_a_full_host_moves_if_the_host_is_small(testbed12, gpus, action, target, words):
    lab, design = with_gpus(testbed12, gpus), make_design(11, 4)
    (advice,) = advise_on_failures(lab, design.wiring, {Gpu(0, 0)}, snapshots=BARE, links=())
    assert (advice.rule, advice.action, advice.target) == (4, action, target)
    assert words in advice.text


def test_a_host_with_a_circuit_of_somebody_else_is_not_idle(testbed12):
    lab, design = with_gpus(testbed12, 4), make_design(11, 4)
    port = lab.hosts[11].nics[0].transmit.port
    seen = {"ocs1": Snapshot(CrossConnects({port: 90}), 0.0)}
    (advice,) = advise_on_failures(lab, design.wiring, {Gpu(0, 0)}, snapshots=seen, links=())
    assert (advice.target, "none is now" in advice.text) == ("", True)


def test_a_host_and_a_switch_that_are_off(testbed12):
    lab, design = with_gpus(testbed12, 2), make_design(11, 4)
    switch, host = advise_on_failures(lab, design.wiring, (), unreachable_hosts={"b", "ocs1"}, snapshots={})
    assert (switch.rule, switch.subject, switch.action, len(switch.gpus_lost)) == (1, "ocs1", "wait", 24)
    assert (host.rule, host.gpus_lost, host.target) == (2, ("b/gpu0", "b/gpu1"), ""), (
        "no switch says that l is idle"
    )
    (host,) = advise_on_failures(lab, design.wiring, (), unreachable_hosts={"b"}, snapshots=BARE)
    assert (host.rule, host.target) == (2, "l")


def test_each_idle_host_takes_the_work_of_one_other(testbed12):
    lab, design = with_gpus(testbed12, 4), make_design(10, 4)
    advice = list(
        advise_on_failures(
            lab, design.wiring, {Gpu(0, 0), Gpu(0, 1), Gpu(1, 0), Gpu(2, 3)}, snapshots=BARE, links=()
        )
    )
    assert [one.target for one in advice] == ["k", "k", "l", ""], "both GPUs of a move with their host"
    small = replace(lab, hosts=tuple(replace(h, gpus=1) if h.name == "k" else h for h in lab.hosts))
    (one,) = advise_on_failures(small, design.wiring, {Gpu(0, 0)}, snapshots=BARE, links=())
    assert one.target == "l", "k has too few GPUs"
    advice = advise_on_failures(
        lab, design.wiring, {Gpu(0, 0)}, unreachable_hosts={"k"}, snapshots=BARE, links=()
    )
    assert [each.target for each in advice if each.rule == 4] == ["l"], "k is off"


def test_with_a_device_off_an_idle_gpu_still_counts(testbed12):
    lab, design = with_gpus(testbed12, 4), make_design(12, 3)
    one, _ = sorted(
        advise_on_failures(lab, design.wiring, {Gpu(0, 0)}, unreachable_hosts={"b"}, snapshots=BARE),
        key=lambda each: -each.rule,
    )
    assert (one.rule, one.target) == (3, "a/gpu3")


def test_a_lost_fibre_cuts_a_gpu_off_only_with_its_last_nic(testbed12):
    lab, design = with_gpus(testbed12, 2), make_design(12, 4)
    link = design.wiring.link_by_transmitter[Nic(0, 0)]
    first, second = Loss(Nic(0, 0), "receive", link), Loss(Nic(0, 1), "transmit", link)
    (one,) = advise_on_failures(lab, design.wiring, (), losses=[first], snapshots=BARE)
    assert one.gpus_lost == ()
    assert "a/gpu0 has one rail link fewer" in one.text
    both = list(advise_on_failures(lab, design.wiring, (), losses=[first, second], snapshots=BARE))
    assert [each.gpus_lost for each in both] == [("a/gpu0",), ("a/gpu0",)]


def test_gpus_that_share_a_nic_keep_it(testbed12):
    lab = with_gpus(testbed12, 8)
    assert lab.hosts[0].find_nics_beside(3) == (1,)
    assert find_lost_nics(lab, {Gpu(0, 2)}) == set()
    assert find_lost_nics(lab, {Gpu(0, 2), Gpu(0, 3)}) == {Nic(0, 1)}


@pytest.mark.parametrize("label", ["a/gpu4", "a/1", "z/gpu0", "gpu1", "a/gpu-1", "a/gpu²"])
def test_a_gpu_that_the_lab_does_not_have_is_refused(testbed12, label):
    with pytest.raises(TopologyError, match="the lab has no GPU"):
        parse_gpu(with_gpus(testbed12, 4), label)


def test_a_lab_file_names_the_gpus_of_its_nics(testbed12):
    text = render_lab(with_gpus(testbed12, 4))
    assert [nic.gpu for nic in parse_lab(text, testbed12.path).hosts[0].nics] == [0, 1, 2, 3]
    with pytest.raises(
        LabFileError, match=r"a/nic4 is beside GPU 3, but the host has 3 GPUs; number them from 0"
    ):
        parse_lab(text.replace("gpus: 4", "gpus: 3", 1), testbed12.path)
    uneven = "\n".join(line for line in text.splitlines() if "gpu: " not in line).replace(
        "gpus: 4", "gpus: 3", 1
    )
    with pytest.raises(LabFileError, match=r"the 4 NICs of 'a' cannot be divided evenly among 3 GPUs"):
        parse_lab(uneven, testbed12.path)


def test_the_command_puts_an_idle_gpu_into_the_rail(modelled, switches, tmp_path, capsys):
    lab, design = with_gpus(modelled.lab, 4), make_design(12, 3)
    with Journal(tmp_path / "journal.sqlite") as journal:
        LabSession(lab, switches, None, journal).bring_up(design)
    lab_file, plan_file = tmp_path / "lab.yaml", tmp_path / "plan.json"
    lab_file.write_text(render_lab(lab))
    strategy = Strategy((make_data_sharding(range(12)),), 1)
    plan = Plan(WorkloadChoice("pairs"), design.topology, 25.0, ("sum",), strategy, {"iteration_ms": 1.0})
    write_plan(plan, plan_file)
    command = ["repair", str(lab_file), "--plan", str(plan_file), "--runs-dir", str(tmp_path / "runs")]

    assert run_app([*command, "--gpu", "c/gpu0", "--json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert [row["fibre"] for row in document["lost"]] == ["gpu"]
    (rule,) = document["rules"]
    assert (rule["rule"], rule["target"]) == (3, "c/gpu3")
    assert all("c/nic4" in label for label in document["make"])

    assert run_app([*command, "--gpu", "c/gpu0", "--apply"]) == 0
    assert "rule 3: c/gpu0 has failed. c/gpu3 is idle" in capsys.readouterr().out
    held = {one.link for one in find_held_circuits(lab, {"ocs1": switches["ocs1"].read()})}
    assert Nic(2, 0) not in {nic for link in held for nic in link}
    assert Nic(2, 3) in {nic for link in held for nic in link}

    assert run_app([*command, "--json"]) == 2
    again = json.loads(capsys.readouterr().out)
    assert (again["repair_record"], again["rules"][0]["target"]) == (True, "c/gpu3")
