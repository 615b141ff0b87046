"""A simulated PYNQ board with a count-action datapath in its programmable logic.

Unmodified `pynq` can use the board in two ways. `python -m sim.twins.board FILE` serves PYNQ.remote (module `server`),
to which `pynq` connects. Module `device` provides the same board within one process. Both need pynq 4 in a separate
environment. The simulators of `fpga` run the datapath; the reference simulator needs only numpy.
"""
