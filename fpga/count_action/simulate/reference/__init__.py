"""The reference simulator: a direct implementation of the rules R1 to R26 of `docs/reference/count-action.md`."""

from fpga.count_action.simulate.reference.simulator import ReferenceSimulator

__all__ = ["ReferenceSimulator"]
