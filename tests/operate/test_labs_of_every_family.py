"""Simulated labs with switches of every family that answers on a network, and the lab files that come with us."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("pydantic")
skip_without("sqlalchemy")

from ocs_drivers import open_switch
from ocs_drivers.families import list_lab_schemes
from testbed.design.patching.wiring import make_wiring
from testbed.design.topology.circulants import find_topology
from testbed.lab.control import send_request
from testbed.lab.inventory import load_lab
from testbed.lab.simulated.lifecycle import start_lab
from testbed.operate.apply import apply_plan
from testbed.operate.journal import Journal
from testbed.operate.plan import plan_lab

pytestmark = [pytest.mark.process, pytest.mark.socket]

LABS = Path(__file__).resolve().parents[2] / "labs"
RING = make_wiring(find_topology(12, 2))
FULL = find_topology(12, 4)
ROBOTS = ("telescent", "rome", "afm")


def with_switch(lab, scheme):
    """Return a lab whose one switch is simulated in another family; a robot's minute is 20 ms, so it is asked often."""
    robot = scheme.startswith(ROBOTS)
    address = f"{scheme}://10.99.0.2:2222{'?poll_s=0.05' if robot else ''}"
    switch = replace(lab.switches[0], address=address)
    twin = lab.twins["ocs1"]
    if robot:  # an idle session ends after 600 s of the twin's time
        twin = replace(twin, switch_time_s=60.0, speed=3000.0, options={"idle_s": "540000"})
    return replace(lab, name=scheme.replace("+", "-"), switches=(switch,), twins={"ocs1": twin})


def true_circuits(up, switch):
    return {
        tuple(pair) for pair in send_request(up.control_addresses[switch], {"do": "truth"})["connections"]
    }


DAILY = {"calient+rest", "rome+telnet"}
"""One of each kind of wire; the others are patched in long tests."""


def applied(up, wiring, directory):
    """Patch a lab; return the circuits asked for of each switch."""
    with ExitStack() as stack:
        opened = {switch.name: stack.enter_context(open_switch(switch.address)) for switch in up.lab.switches}
        journal = stack.enter_context(Journal(directory / "journal.sqlite"))
        plan = plan_lab(up.lab, wiring, opened)
        apply_plan(up.lab, plan, opened, journal)
    return {part.switch: set(part.target.pairs) for part in plan.switches}, plan


@pytest.mark.parametrize(
    "scheme",
    [
        scheme if scheme in DAILY else pytest.param(scheme, marks=pytest.mark.long)
        for scheme in list_lab_schemes()
        if scheme != "polatis+scpi"
    ],
)
def test_a_lab_is_patched_through_a_switch_of_any_family(testbed12, tmp_path, scheme):
    with start_lab(with_switch(testbed12, scheme), hosts="model", may_move=True) as up:
        asked, _ = applied(up, RING, tmp_path)

        assert len(asked["ocs1"]) == 24
        assert true_circuits(up, "ocs1") == asked["ocs1"]


@pytest.mark.long
def test_the_lab_with_a_robotic_panel_moves_24_fibres(tmp_path):
    lab = load_lab(LABS / "testbed12-panel.yaml")
    with start_lab(lab, hosts="model", may_move=True) as up:
        asked, plan = applied(up, RING, tmp_path)

        assert true_circuits(up, "panel1") == asked["panel1"]
        (part,) = plan.switches
        assert len(part.steps) == 24
        assert sum(step.estimated_s for step in part.steps) == pytest.approx(24 * 60 / 600)


@pytest.mark.long
def test_the_lab_in_planes_connects_interface_i_on_switch_i(tmp_path):
    lab = load_lab(LABS / "testbed12-planes.yaml")
    assert [switch.input_count for switch in lab.switches] == [12] * 4
    with start_lab(lab, hosts="model", may_move=True) as up:
        asked, _ = applied(up, make_wiring(FULL, plane_count=4), tmp_path)

        assert [len(circuits) for circuits in asked.values()] == [12] * 4
        assert {name: true_circuits(up, name) for name in asked} == asked
    ends = {
        (index, fibre.switch)
        for host in lab.hosts
        for index, nic in enumerate(host.nics, 1)
        for fibre in (nic.transmit, nic.receive)
    }
    assert ends == {(index, f"ocs{index}") for index in range(1, 5)}
