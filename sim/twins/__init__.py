"""Simulated devices as processes on the wire.

| room | contents |
|---|---|
| `families` | one switch or panel a folder; `FAMILIES` is the list that `python -m sim.twins` takes |
| `rfsoc`, `board`, `hosts` | the QICK board with the photonic kit, the PYNQ board, servers in network namespaces |
| `frontends` | wire languages that several devices speak: TL1, SCPI, command lines, HTTP |
| `switch` | state, motion, faults and power of a switch, whatever it speaks |
| `plant`, `fibre` | fibres between hosts and switches, and the light that passes them |
| `wire` | listeners, lines, transcripts, faults of lines, the control socket |
"""
