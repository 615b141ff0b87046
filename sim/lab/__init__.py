"""A whole simulated lab as one process: `python -m sim.lab` reads a wiring document and starts the lab."""
