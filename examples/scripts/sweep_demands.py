"""Measure AllReduce on the topology of each of several demands: sweep_demands.py LAB."""

import sys

from testbed import open_lab

DEMANDS = (("12:64e6",), ("12:64e6", "4:64e6"), ("4:64e6",))

with open_lab(sys.argv[1], start=True) as lab, lab.lease(reason="sweep of demands"):
    for demand in DEMANDS:
        applied = lab.apply(demand=demand)
        rows = lab.nccl(sizes="1MiB:1MiB").results
        best = max(rows, key=lambda row: row.busbw_mbps)
        print(
            f"{' '.join(demand)}: epoch {applied.epoch}, {best.configuration}, {best.busbw_mbps:.0f} Mbit/s"
        )
