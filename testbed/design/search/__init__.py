"""Joint search for the strategy of a workload and the topology of its servers.

| module | purpose |
|---|---|
| `planner` | `optimise`: the whole search, from a workload to a strategy, a topology and reasons |
| `chains` | Metropolis chains with topology search in the loop, and how they end early |
| `worker_pool` | parallel chains: in processes, or on machines with Dask |
| `checkpoint` | the state of a search, in a file |
| `strategies` | the objective of the chains: strategies of a workload, and topologies for them |
| `cost`, `recurrence` | the cost of an iteration in closed form |
| `edge_swap` | edge swaps that improve the best topologies in closed form |
| `moves`, `simulator`, `annealing` | changes of groups of operators, links and microbatches, judged by simulation |
| `reasons` | sentences that explain the plan |
| `bound` | the lower bound on the time of every plan |
| `finalists` | the best strategies by simulation, and how many links to buy for pairs |

Importing this package needs only numpy. With numba the chains are compiled; without, they are slower.
"""

from testbed.design.search.finalists import RankedStrategy
from testbed.design.search.planner import Progress, SearchResult, StrategyPrediction, optimise

__all__ = ["Progress", "RankedStrategy", "SearchResult", "StrategyPrediction", "optimise"]
