"""Results and prices that MixNet's project page publishes."""

from __future__ import annotations

from testbed.design.reproductions.mixnet.model import DESIGNS

_ROWS = """
Mixtral 8x22B 100 1.3743 1.4542 1.3606 2.6965
Mixtral 8x22B 200 1.1940 1.2006 1.1627 1.9760
Mixtral 8x22B 400 1.0817 1.1138 1.0957 1.5752
Mixtral 8x22B 800 1.0242 1.0126 1.0000 1.2669
Mixtral 8x7B 100 1.2098 1.2488 1.1890 2.2732
Mixtral 8x7B 200 1.0787 1.0976 1.0572 1.6250
Mixtral 8x7B 400 1.0302 1.0309 1.0131 1.2684
Mixtral 8x7B 800 1.0003 1.0013 1.0000 1.1430
Llama-MoE 100 3.9324 5.0099 5.3138 9.5306
Llama-MoE 200 2.1881 2.7266 2.9322 5.7370
Llama-MoE 400 1.3462 1.5992 1.6754 3.9805
Llama-MoE 800 1.0000 1.1917 1.1241 2.3034
Qwen-MoE 100 5.0942 6.1737 6.1104 7.7749
Qwen-MoE 200 2.7300 3.2049 3.2378 4.5524
Qwen-MoE 400 1.5632 1.7644 1.8302 2.8019
Qwen-MoE 800 1.0000 1.0535 1.1548 1.7887
"""


def _parse_times(text: str) -> dict[tuple[str, int, str], float]:
    times = {}
    for line in text.strip().splitlines():
        *name, gbps, fat_tree, mixnet, rails, topoopt = line.split()
        for design, time in zip(DESIGNS, (fat_tree, mixnet, rails, topoopt), strict=True):
            times[" ".join(name), int(gbps), design] = float(time)
    return times


PUBLISHED_TIMES = _parse_times(_ROWS)
"""Iteration times by model, rate in Gbit/s and design, relative to the shortest time of the model."""
