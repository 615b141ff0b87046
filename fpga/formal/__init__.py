"""Proofs by k-induction: of the hand-written blocks, and of every generated datapath against its model.

`checks/*_checks.sv` say what each block does, a second time and with other words, as assertions. `blocks` puts a
block and its checks side by side with free inputs. `specification` does so for a datapath: what the inputs of each
check are is taken from the model and the ports, never from the emitter. `sby` runs the proof, `prove` says what came
out.
"""

from fpga.formal.prove import Proof, prove
from fpga.formal.verdicts import Verdict

__all__ = ["Proof", "Verdict", "prove"]
