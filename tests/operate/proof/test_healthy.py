"""A hundred healthy labs of many topologies, in memory: nothing is found."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from libraries import skip_without

skip_without("asyncssh")
skip_without("pydantic")


@pytest.mark.long
def test_a_hundred_healthy_labs_have_no_findings(worlds):
    """Readings of modules and monitors wander by less than a decibel, as real ones do."""
    seen = Counter()
    for seed in range(100):
        draw = random.Random(seed)
        options = {
            "simplex": draw.random() < 0.5,
            "degree": draw.choice((2, 4)),
            "monitors": draw.random() < 0.7,
            "modules": draw.random() < 0.7,
        }
        world = worlds(**options)
        for name in world.nics:
            for side in ("transmit", "receive"):
                world.loss_db[f"{name}:{side}"] = draw.uniform(-0.4, 0.4)
        assert world.told() == []
        seen[tuple(options.items())] += 1
    assert len(seen) >= 12
