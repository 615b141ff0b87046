"""Collectives on a wiring: their trees and their expected performance.

| module | contents |
|---|---|
| `collective_list` | the table of measured collectives |
| `kind` | the description of a collective, and the paths of its data |
| `all_reduce` | AllReduce on rings |
| `exchange` | exchanges between pairs, such as all-to-all |
| `performance` | the wired hosts as a fabric of the flow simulator |
| `trees` | double binary trees |
"""
