"""Collectives on a wiring: their trees, and the performance to expect.

| module | contents |
|---|---|
| `collective_list` | the table of collectives that are measured |
| `kind` | the description of a collective, and the paths of its data |
| `all_reduce` | AllReduce on rings |
| `exchange` | all-to-all, and any other pairs |
| `performance` | wired hosts for the flow simulator |
| `trees` | double binary trees |
"""
