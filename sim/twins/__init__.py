"""Simulated devices: processes that speak the real protocols.

| package or module | contents |
|---|---|
| `families` | switches and patch panels that `python -m sim.twins` can start |
| `rfsoc`, `board`, `hosts` | the QICK board with the photonic kit, the PYNQ board, servers in network namespaces |
| `frontends` | protocols that several families share: TL1, SCPI, command lines, HTTP |
| `switch` | state, motion, faults and power of a switch, independent of its protocols |
| `plant`, `fibre` | fibres between hosts and switches, and the light in them |
| `wire` | listeners, connections and their faults, transcripts, the control socket |
"""
