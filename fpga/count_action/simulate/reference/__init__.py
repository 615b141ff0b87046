"""The reference simulator: plain Python, straight from the rules R1 to R21 of `docs/reference/count-action.md`."""

from fpga.count_action.simulate.reference.simulator import Reference

__all__ = ["Reference"]
