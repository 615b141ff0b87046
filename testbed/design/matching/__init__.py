"""Heaviest matchings: the pairs of nodes to link when every node has one free NIC.

`match_edges` is exact. `match_priced` is the approximation for dense demands among many nodes, with a proven bound.
`assign_edges` is the one-way form: every node sends on one link and receives on one.
Importing this package needs only numpy. The search is compiled if numba is installed, and slower otherwise.
"""

from testbed.design.matching.exact import Matching, assign_edges, match_edges, match_priced

__all__ = ["Matching", "assign_edges", "match_edges", "match_priced"]
