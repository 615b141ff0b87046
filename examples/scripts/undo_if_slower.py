"""Apply a topology, and roll back if AllReduce is slower than before: undo_if_slower.py LAB."""

import sys

from testbed import Lab, open_lab


def measure(lab: Lab) -> float:
    """Return the best bus bandwidth of AllReduce of 1 MiB, in Mbit/s."""
    return max(row.busbw_mbps for row in lab.nccl(sizes="1MiB:1MiB").results)


with open_lab(sys.argv[1], start=True) as lab, lab.lease(reason="trial of one-way links"):
    if not lab.epochs():
        lab.apply()
    before = measure(lab)
    lab.apply(simplex=True)
    after = measure(lab)
    print(f"{before:.0f} Mbit/s before, {after:.0f} after")
    if after < before:
        print(f"back to epoch {lab.rollback().to_epoch}")
