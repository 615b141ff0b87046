"""Matchings of maximum weight: which pairs of nodes to link when every node has one free NIC.

`match_edges` is exact. `match_priced` is an approximation for dense demands among many nodes, with a proven bound.
`assign_edges` is the one-way form: every node sends on one link and receives on one link.
Importing this package needs only numpy. With numba the search is compiled; without, it is slower.
"""

from testbed.design.matching.exact import Matching, assign_edges, match_edges, match_priced

__all__ = ["Matching", "assign_edges", "match_edges", "match_priced"]
