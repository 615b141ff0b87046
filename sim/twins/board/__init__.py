"""A simulated PYNQ board with a count-action datapath in its programmable logic.

`python -m sim.twins.board FILE` serves PYNQ.remote, to which unmodified `pynq` connects (`server`). `device` provides
the same board to unmodified `pynq` within one process. Both need pynq 4 in a separate environment. The simulators of
`fpga` run the datapath; the reference simulator needs only numpy.
"""
