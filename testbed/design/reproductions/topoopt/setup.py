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
    """Size of the reproduction. `step_count` and `finalist_count` belong to the strategy search."""

    node_count: int
    degrees: tuple[int, ...]
    rates_gbps: tuple[float, ...]
    cluster_sizes: tuple[int, ...]
    batch_sizes: tuple[int, ...]
    shared_node_count: int
    job_node_count: int
    job_counts: tuple[int, ...]
    iteration_count: int
    seed_count: int
    delays_s: tuple[float, ...]
    step_count: int
    finalist_count: int
    seed: int = 0


PAPER = Scale(
    node_count=128,
    degrees=(4, 8),
    rates_gbps=(10, 25, 40, 100, 200),
    cluster_sizes=(128, 432, 1024, 2000),
    batch_sizes=(64, 128, 256, 512, 1024, 2048),
    shared_node_count=432,
    job_node_count=16,
    job_counts=(5, 10, 15, 20, 27),
    iteration_count=4,
    seed_count=5,
    delays_s=(10e-6, 50e-6, 200e-6, 1e-3, 10e-3, 100e-3),
    step_count=200,
    finalist_count=2,
)
"""The paper's scale, except for the steps of a search (the paper: 4,000) and the iterations (not in the paper)."""

QUICK = Scale(
    node_count=16,
    degrees=(4,),
    rates_gbps=(25, 100),
    cluster_sizes=(128, 432),
    batch_sizes=(64, 512),
    shared_node_count=108,
    job_node_count=12,
    job_counts=(3, 9),
    iteration_count=2,
    seed_count=1,
    delays_s=(10e-6, 10e-3),
    step_count=50,
    finalist_count=2,
)
"""Small scale that takes a minute and only tests that everything runs. Its results differ from the paper's scale."""
