"""Measure AllReduce over two-way and over one-way links: compare_topologies.py LAB."""

import sys

from testbed import open_lab

with open_lab(sys.argv[1], start=True) as lab, lab.lease(reason="comparison of topologies"):
    for name, options in (("two-way", {"method": "geometric"}), ("one-way", {"simplex": True})):
        lab.apply(**options)
        for row in lab.nccl(sizes="1MiB:4MiB").results:
            print(f"{name}: {row.configuration}, {row.size_bytes >> 20} MiB, {row.busbw_mbps:.0f} Mbit/s")
