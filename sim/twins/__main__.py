"""`python -m sim.twins FAMILY`: see `sim.twins.process`."""

from sim.twins.process import main

main()
