"""The board of a simulated RFSoC: its blocks, its cores, its clock, its faults and its knobs."""
