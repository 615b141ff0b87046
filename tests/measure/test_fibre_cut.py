"""A fibre is cut under a looping AllReduce on hosts that are real to the kernel; no rank starts again."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from libraries import skip_without
from needs import needs

skip_without("asyncssh")
skip_without("pydantic")
skip_without("sqlalchemy")
skip_without("jsonschema")

from witnesses.fibre_cut import FIBRE_CUT, cut_and_repair, looping_allreduce

from testbed.design.model import Nic, RingOrder, Topology
from testbed.design.patching.wiring import make_wiring
from testbed.design.routing.routes import find_routes
from testbed.errors import CollectiveError
from testbed.lab.control import send_request
from testbed.lab.inventory import load_lab
from testbed.lab.simulated.lifecycle import start_lab
from testbed.measure.results.store import RunStore
from testbed.operate.design import Design, build_design
from testbed.operate.journal import Journal
from testbed.operate.repair import carry_out, observe_design, plan_lab_repair
from testbed.operate.session import LabSession, open_lab

ROOT = Path(__file__).parents[2]
HOST_PYTHON = ROOT / ".venv-host" / "bin" / "python"
RING = RingOrder(1, (0, 1, 2, 3))


def design(*, simplex):
    """Return a ring of four, and the NICs left joined for pairs: two apart, and one-way links also three apart."""
    steps = (1, 2, 3) if simplex else (1, 3, 2)
    edges = tuple(sorted((node, (node + step) % 4) for node in range(4) for step in steps))
    topology = Topology(4, 3, simplex, (1,), edges)
    wiring = make_wiring(topology)
    return Design("one-way" if simplex else "duplex", topology, wiring, find_routes(wiring))


@pytest.fixture(scope="module")
@needs("process", "socket")
def four(tmp_path_factory):
    """Provide four hosts of three NICs, with the interpreter that has torch."""
    directory = tmp_path_factory.mktemp("four")
    lab = load_lab(ROOT / "labs" / "testbed12.yaml")
    hosts = tuple(replace(host, nics=host.nics[:3], python=str(HOST_PYTHON)) for host in lab.hosts[:4])
    lab = replace(lab, name=f"cut-{os.getpid()}", hosts=hosts)
    with (
        start_lab(lab, hosts="kernel", may_move=True) as up,
        Journal(directory / "journal.sqlite") as journal,
        open_lab(up.lab, journal) as session,
    ):
        yield up, session


@pytest.mark.long
@pytest.mark.kernel
@pytest.mark.skipif(
    not HOST_PYTHON.exists(), reason="needs torch on the simulated hosts: `make install` makes .venv-host"
)
def test_the_ring_is_closed_over_a_borrowed_link_and_then_patched_again(four, tmp_path):
    """One launch lives through a cut of duplex links, a change to one-way links, and a cut of those."""
    up, session = four
    found = []

    def cut(standing, fibre):
        plant = up.control_addresses["plant"]
        times = cut_and_repair(
            session, standing, loop, partial(send_request, plant, {"do": "cut", "fibre": fibre})
        )
        send_request(plant, {"do": "uncut", "fibre": fibre})
        run.add_phase(FIBRE_CUT, times.to_json())
        found.append(times)

    duplex, one_way = design(simplex=False), design(simplex=True)
    session.bring_up(duplex)
    with (
        RunStore(tmp_path).begin_run(session.lab, True, "kernel", seeds={}) as run,
        looping_allreduce(session, duplex, (RING,), deadline_s=100) as loop,
    ):
        cut(duplex, "b/nic1:receive")
        assert session.bring_up(one_way).verify_report.ok
        cut(one_way, "a/nic1:transmit")
    for times in found:
        # Traffic may be back before the last host has answered.
        assert 0 < times.noticed_s < min(times.rerouted_s, times.back_s)
        assert 0 < times.outage_s < times.repatch_s
        assert times.repatch_stall_s >= times.outage_s
        assert times.rows >= 9, "three before, three between, three after; every sum was right"
        assert (times.findings, times.why) == (0, "the ring is closed by a link of its own again")
    stored = RunStore(tmp_path).load_run(run.run_id)
    assert stored.summary.status == "done"
    assert [phase.data["back_s"] for phase in stored.phases] == [times.back_s for times in found]


@pytest.mark.long
@pytest.mark.kernel
def test_hosts_prove_detours_and_a_second_loss_leaves_the_dead_receiver_alone(four):
    up, session = four
    plant, standing = up.control_addresses["plant"], design(simplex=False)
    rings = build_design(session.lab)  # no link to give up: the detour is all

    def repaired(fibre, design, earlier=None):
        send_request(plant, {"do": "cut", "fibre": fibre})
        planned = None
        while planned is None or planned.is_repaired:  # until carrier is down
            planned = plan_lab_repair(session.lab, design, observe_design(session, design), earlier)
        return planned, carry_out(session, planned).verified

    session.bring_up(rings)
    planned, verified = repaired("b/nic1:receive", rings)
    assert (planned.repatched_design, verified.links_received, verified.findings) == (None, 10, ())
    send_request(plant, {"do": "uncut", "fibre": "b/nic1:receive"})

    assert session.bring_up(standing).verify_report.ok
    once, verified = repaired("b/nic1:receive", standing)
    assert verified.ok
    assert plan_lab_repair(session.lab, standing, observe_design(session, standing)) is None, (
        "it shows no more"
    )
    again = plan_lab_repair(session.lab, standing, observe_design(session, standing), once.record)
    assert again.is_repaired
    twice, verified = repaired("d/nic1:transmit", standing, once.record)
    assert verified.ok
    assert Nic(1, 0) not in {nic for link in twice.repatched_design.wiring.links for nic in link}
    for fibre in ("b/nic1:receive", "d/nic1:transmit"):
        send_request(plant, {"do": "uncut", "fibre": fibre})


def test_no_allreduce_loops_on_models_of_hosts():
    session = LabSession(load_lab(ROOT / "labs" / "testbed12.yaml"), {}, None, None)
    with (
        pytest.raises(CollectiveError, match="only modelled"),
        looping_allreduce(session, design(simplex=False), (RING,)),
    ):
        pass
