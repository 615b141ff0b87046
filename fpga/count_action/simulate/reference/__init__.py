"""The reference simulator: a direct implementation of the rules R1 to R25 of `docs/reference/count-action.md`."""

from fpga.count_action.simulate.reference.simulator import Reference

__all__ = ["Reference"]
