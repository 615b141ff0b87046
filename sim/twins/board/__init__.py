"""A PYNQ board with a count-action datapath in its programmable logic, simulated.

`python -m sim.twins.board FILE` serves PYNQ.remote, to which stock `pynq` connects (`server`); `device` puts the
same board under stock `pynq` in one process. Both need pynq 4 in an environment of its own; the datapath is run
by the simulators of `fpga`, of which the plain one needs numpy alone.
"""
