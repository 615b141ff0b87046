"""TopoOpt (NSDI 2023), figures 10 to 17, computed with our planner and our network model.

| figure | module | contents |
|---|---|---|
| 10 | `interconnect_cost` | cost of interconnects |
| 11 | `dedicated_cluster` | iteration time of six models on 128 servers |
| 12 | `all_to_all` | iteration time of DLRM as its all-to-all grows |
| 13 | `bandwidth_tax` | bytes on links divided by bytes sent |
| 14 | `path_lengths` | hops between servers |
| 15 | `link_traffic` | how evenly links are loaded |
| 16 | `shared_cluster` | many jobs on 432 servers |
| 17 | `circuit_delay` | circuits reconfigured within an iteration |

`setup` contains sizes, rates and seeds; all other numbers come from the catalogue of workloads and the models.
"""

from __future__ import annotations

from importlib import import_module

from testbed.design.reproductions.figure import Figure
from testbed.design.reproductions.topoopt.setup import Scale

MODULES = {
    10: "interconnect_cost",
    11: "dedicated_cluster",
    12: "all_to_all",
    13: "bandwidth_tax",
    14: "path_lengths",
    15: "link_traffic",
    16: "shared_cluster",
    17: "circuit_delay",
}


def load_figure(number: int) -> Figure[Scale]:
    """Return a figure by its number in the paper. Raises `ValueError` if we do not reproduce it."""
    if number not in MODULES:
        raise ValueError(
            f"figure {number} of TopoOpt is not reproduced: choose from {', '.join(map(str, MODULES))}"
        )
    reproduced: Figure[Scale] = import_module(f"{__name__}.{MODULES[number]}").FIGURE
    return reproduced
