"""Strategy search: how a workload is spread over servers, and which topology it gets, found together.

| module | what for |
|---|---|
| `planner` | `optimise`: the whole search, from a workload to a strategy, a topology and reasons |
| `chains` | Metropolis chains with topology search in the loop; what ends them before their time |
| `worker_pool` | chains side by side: in processes, and on machines with Dask |
| `checkpoint` | where a search stands, in a file |
| `strategies` | the walk over strategies of a workload and the topologies made for them |
| `cost`, `recurrence` | what an iteration costs, in closed form |
| `edge_swap` | other links for the best, as long as the closed form gets shorter |
| `moves`, `simulator`, `annealing` | changes of groups of operators, links and microbatches, judged by simulation |
| `reasons` | why the plan is as it is, in sentences |
| `bound` | what no plan can beat |
| `finalists` | the best by simulation, and how many links to buy for pairs |

Importing this needs numpy alone; chains are compiled where numba is installed, and slower without it.
"""

from testbed.design.search.finalists import Ranked
from testbed.design.search.planner import Found, Predicted, Progress, optimise

__all__ = ["Found", "Predicted", "Progress", "Ranked", "optimise"]
