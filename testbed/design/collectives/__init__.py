"""Collectives on a wiring: trees and hierarchies laid onto it, and the figures that it should reach.

| module | what lives there |
|---|---|
| `collective_list` | the table of collectives that are measured |
| `kind` | what a collective says of itself, and the ways of its data |
| `all_reduce` | AllReduce on rings |
| `exchange` | all to all, and any other pairs |
| `performance` | wired hosts for the flow simulator |
| `hierarchy`, `trees` | AllReduce by way of groups, and double binary trees |
"""
