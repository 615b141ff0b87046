"""Time from a fibre cut under a looping AllReduce until traffic resumes and until new circuits: medians over many cuts.

The lab has four hosts with three NICs in network namespaces: ring links on two NICs, links for pairs on the third. One
launch of the AllReduce survives all cuts of transmit and receive fibres, first of duplex links, then of one-way links.
Every element of every sum is checked. `rows` counts its result rows of three AllReduces each. Needs root.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "plugins"))
from witnesses.fibre_cut import FibreCut, cut_and_repair, looping_allreduce

from testbed.design.model import RingOrder, Topology
from testbed.design.patching.wiring import make_wiring
from testbed.design.routing.routes import find_routes
from testbed.lab.control import send_request
from testbed.lab.inventory import load_lab
from testbed.lab.model import Lab
from testbed.lab.simulated.lifecycle import start_lab
from testbed.operate.design import Design
from testbed.operate.journal import Journal
from testbed.operate.session import LabSession, open_lab

LAB = Path(__file__).parents[1] / "labs" / "testbed12.yaml"
RING = RingOrder(1, (0, 1, 2, 3))
DEADLINE_S = 400.0


def four_hosts() -> Lab:
    lab = load_lab(LAB)
    hosts = tuple(replace(host, nics=host.nics[:3]) for host in lab.hosts[:4])
    return replace(lab, name=f"repair-{os.getpid()}", hosts=hosts)


def design(*, simplex: bool) -> Design:
    """Return a ring of four hosts with links for pairs: to the host 2 further, and for one-way links also 3 further."""
    steps = (1, 2, 3) if simplex else (1, 3, 2)
    edges = tuple(sorted((node, (node + step) % 4) for node in range(4) for step in steps))
    topology = Topology(4, 3, simplex, (1,), edges)
    wiring = make_wiring(topology)
    return Design("one-way" if simplex else "duplex", topology, wiring, find_routes(wiring))


def fibres_of_ring(session: LabSession, current: Design) -> Iterator[str]:
    """Yield the transmit and the receive fibre of every link of the ring."""
    for link in current.wiring.links:
        if (link.target.node - link.source.node) % 4 == RING.stride:
            yield f"{session.lab.nic_label(link.source)}:transmit"
            yield f"{session.lab.nic_label(link.target)}:receive"


def cuts(session: LabSession, plant: str) -> Iterator[tuple[str, FibreCut]]:
    """Cut every fibre of the ring in turn; restore the lab before each cut."""
    designs = (design(simplex=False), design(simplex=True))
    session.bring_up(designs[0])
    with looping_allreduce(session, designs[0], (RING,), deadline_s=DEADLINE_S) as loop:
        for current in designs:
            for fibre in fibres_of_ring(session, current):
                session.bring_up(current)
                cut = partial(send_request, plant, {"do": "cut", "fibre": fibre})
                yield current.name, cut_and_repair(session, current, loop, cut)
                send_request(plant, {"do": "uncut", "fibre": fibre})


def figures(cut_times: list[FibreCut]) -> dict[str, float]:
    names = ("noticed_s", "rerouted_s", "back_s", "repatch_s", "repatch_stall_s", "outage_s", "usual_s")
    values = {name.removesuffix("_s"): [1e3 * getattr(times, name) for times in cut_times] for name in names}
    medians = {f"{name}_ms_median": round(statistics.median(all_), 1) for name, all_ in values.items()}
    return medians | {"back_ms_worst": round(max(values["back"]), 1)}


def main() -> None:
    begin, load = time.monotonic(), os.getloadavg()[0]
    with (
        start_lab(four_hosts(), hosts="kernel", may_move=True) as up,
        tempfile.TemporaryDirectory() as scratch,
        Journal(Path(scratch) / "journal.sqlite") as journal,
        open_lab(up.lab, journal) as session,
    ):
        results = list(cuts(session, up.control_addresses["plant"]))
    line = {
        "benchmark": "repair",
        "simulated": True,
        "hosts": "kernel",
        "nodes": 4,
        "cuts": len(results),
        "rows": sum(times.rows for _, times in results),
        "findings": sum(times.findings for _, times in results),
    }
    for name in ("duplex", "one-way"):
        line[name] = figures([times for kind, times in results if kind == name])
    line |= {"processors": os.cpu_count(), "load_before": round(load, 2)}
    print(json.dumps(line | {"seconds": round(time.monotonic() - begin, 1)}))


if __name__ == "__main__":
    main()
