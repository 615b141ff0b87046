"""The fast simulator: statements generated from a datapath, compiled to machine code."""
