"""The main job in a page of Python: a lab file, a topology, circuits, proof, one measurement.

python examples/patch_a_lab.py [LAB] [kernel|model]
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from testbed.lab.inventory import load_lab
from testbed.lab.simulated import start_lab
from testbed.measure.collectives import CollectiveSpec
from testbed.measure.current_topology import collect, node_configurations
from testbed.operate.design import design_for
from testbed.operate.journal import journal_in
from testbed.operate.session import open_lab

DEFAULT_LAB = Path(__file__).parent.parent / "labs" / "testbed12.yaml"


def main(lab_file: str | Path = DEFAULT_LAB, hosts: str = "auto") -> None:
    assert hosts in ("auto", "kernel", "model")
    with (
        TemporaryDirectory() as scratch,
        start_lab(load_lab(lab_file), hosts=hosts, move=True) as simulated,
        journal_in(scratch) as journal,
        open_lab(simulated.lab, journal, model_hosts=simulated.hosts == "model") as session,
    ):
        design = design_for(session.lab)
        brought = session.bring_up(design, print)
        print("verified" if brought.verified.ok else brought.verified.findings)

        spec = CollectiveSpec(
            "example", design.name, node_configurations(design, (1 << 20,)), hosts=simulated.hosts
        )
        result = collect(session, design, spec, deadline_s=60, on_progress=lambda *_progress: None)
        for row in result.timings:
            print(
                f"SIMULATED ({row.hosts}) {row.configuration}: {row.size_bytes >> 20} MiB in "
                f"{row.time_us / 1e3:.1f} ms, {row.busbw_mbps:.0f} of {row.limit_mbps:.0f} Mbit/s"
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
