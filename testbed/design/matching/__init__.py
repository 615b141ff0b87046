"""Heaviest matchings: which pairs of nodes get a link when every node has one NIC to give.

`match_edges` is exact. `match_priced` is the approximation for dense demands among many nodes, and proves how
good it is. `assign_edges` is the one-way form: every node sends on one link and receives on one.
Importing this needs numpy alone; the search is compiled where numba is installed, and slower without it.
"""

from testbed.design.matching.exact import Matching, assign_edges, match_edges, match_priced

__all__ = ["Matching", "assign_edges", "match_edges", "match_priced"]
