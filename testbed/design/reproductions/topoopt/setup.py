"""Sizes, rates and seeds of all figures. We fixed them before the first comparison and have not tuned them.

| setting | value | source |
|---|---|---|
| servers, degrees, rates | 128; 4 and 8; 10 to 200 Gbit/s | released scripts of figures 11 and 17 |
| batches of the all-to-all | 64 to 2048 per device | released scripts of figures 12 to 15 |
| shared cluster | 432 servers, 16 per job, 5 to 27 jobs, d = 8, 100 Gbit/s | released scripts of figure 16 |
| models of the shared cluster | DLRM 35 %, BERT 30 %, CANDLE 25 %, VGG 10 % | text of the paper |
| reconfiguration | 10 us to 100 ms | released scripts of figure 17 |
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    """Size of the reproduction. `steps` and `finalists` belong to the strategy search."""

    nodes: int
    degrees: tuple[int, ...]
    rates_gbps: tuple[float, ...]
    cluster_sizes: tuple[int, ...]
    batches: tuple[int, ...]
    shared_nodes: int
    job_nodes: int
    jobs: tuple[int, ...]
    iterations: int
    seeds: int
    delays_s: tuple[float, ...]
    steps: int
    finalists: int
    seed: int = 0


PAPER = Scale(
    nodes=128,
    degrees=(4, 8),
    rates_gbps=(10, 25, 40, 100, 200),
    cluster_sizes=(128, 432, 1024, 2000),
    batches=(64, 128, 256, 512, 1024, 2048),
    shared_nodes=432,
    job_nodes=16,
    jobs=(5, 10, 15, 20, 27),
    iterations=4,
    seeds=5,
    delays_s=(10e-6, 50e-6, 200e-6, 1e-3, 10e-3, 100e-3),
    steps=200,
    finalists=2,
)
"""The paper's scale, except for the steps of a search (the paper: 4,000) and the iterations (not in the paper)."""

QUICK = Scale(
    nodes=16,
    degrees=(4,),
    rates_gbps=(25, 100),
    cluster_sizes=(128, 432),
    batches=(64, 512),
    shared_nodes=108,
    job_nodes=12,
    jobs=(3, 9),
    iterations=2,
    seeds=1,
    delays_s=(10e-6, 10e-3),
    steps=50,
    finalists=2,
)
"""Small scale that takes a minute and only tests that everything runs. Its results differ from the paper's scale."""
