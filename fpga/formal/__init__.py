"""Proofs by k-induction: of the hand-written blocks, and of generated datapaths against their model.

`checks/*_checks.sv` specify each block independently, as assertions. `blocks` instantiates a block next to its checks;
the prover chooses the inputs. `specification` does the same for a datapath; the inputs of each check come from the
model and the ports, never from the generator of the top. `sby` runs the proof, `prove` returns its result.
"""

from fpga.formal.prove import Proof, prove
from fpga.formal.verdicts import Verdict

__all__ = ["Proof", "Verdict", "prove"]
