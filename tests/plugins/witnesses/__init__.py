"""Second witnesses: what tests and benchmarks hold the product against, and what they alone run.

| module | what it is |
|---|---|
| `exhaustive`, `instances` | all strategies on all topologies, where they can be enumerated; named problems for it |
| `fibre_cut` | a fibre that is cut under a looping AllReduce, and repaired |
| `mac_hardware`, `preamble` | RTL of the photonic multiply-accumulate on a simulator; its detector, written again |
| `lint` | linters over SystemVerilog |
"""
