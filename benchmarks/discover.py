"""Discovery of all fibres of the 12-host lab on kernel hosts, with five crossed pairs and three dead fibres.

Prints one JSON line: the numbers of fibres, of wrong, uncertain and dead fibres, of rounds and of circuit changes, and
the time in seconds. Needs root.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from ocs_drivers import open_switch
from testbed.lab.control import send_request
from testbed.lab.hosts.fleet import SshFleet
from testbed.lab.inventory import load_lab
from testbed.lab.simulated.fibre_draw import draw_fibres, remove_fibres
from testbed.lab.simulated.lifecycle import start_lab
from testbed.operate.discovery.devices import Devices
from testbed.operate.discovery.model import DiscoveryResult
from testbed.operate.discovery.run import DiscoveryRecord, discover
from testbed.operate.journal import Journal

LAB = Path(__file__).parents[1] / "labs" / "testbed12.yaml"


def main() -> int:
    """Run the discovery once, and print the line."""
    parser = argparse.ArgumentParser(description="Find all fibres of a simulated 12-host lab.")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    lab = load_lab(LAB)
    python = str(Path(sys.executable).resolve())
    lab = replace(lab, hosts=tuple(replace(host, python=python) for host in lab.hosts))
    drawn = draw_fibres(lab, options.seed, crossed_count=5, dead_count=3)
    with start_lab(drawn.lab, hosts="kernel", may_move=True) as up, tempfile.TemporaryDirectory() as folder:
        for fibre in drawn.dead_fibre_names:
            send_request(up.control_addresses["plant"], {"do": "cut", "fibre": fibre})
        truth = send_request(up.control_addresses["plant"], {"do": "fibres"})["fibres"]
        with (
            SshFleet(up.lab) as fleet,
            open_switch(up.lab.switches[0].address) as switch,
            Journal(Path(folder) / "journal.sqlite") as journal,
        ):
            begin = time.monotonic()
            devices = Devices(remove_fibres(up.lab), {"ocs1": switch}, fleet, journal, settle_s=0.2)
            discovered = discover(devices, DiscoveryRecord(journal, lab.name))
            seconds = time.monotonic() - begin
    print(json.dumps(_figures(discovered, truth) | {"seed": options.seed, "seconds": round(seconds, 2)}))
    return 0


def _figures(discovered: DiscoveryResult, truth: dict[str, dict[str, object]]) -> dict[str, int]:
    wrong = 0
    for nic in discovered.nic_results:
        for way, fibre in (("transmit", nic.transmit), ("receive", nic.receive)):
            true = truth[f"{'/'.join(nic.nic)}:{way}"]
            expected = None if true["cut"] else (true["switch"], true["port"])
            wrong += fibre.verdict != "uncertain" and fibre.port != expected
    counts = {verdict: len(discovered.list_fibres(verdict)) for verdict in ("found", "dead", "uncertain")}
    changes = {"rounds": discovered.round_count, "circuit_changes": discovered.circuit_changes}
    return {"fibres": 2 * len(discovered.nic_results), "wrong": wrong, **counts, **changes}


if __name__ == "__main__":
    sys.exit(main())
