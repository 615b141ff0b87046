"""Circuits within a region: ports are kept, and the greedy choice is near the best in the mean."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.design.circuits.regions import allocate_greedily, exchange_seconds, find_best_circuits


@pytest.mark.slow
def test_greedy_is_near_the_best_of_all():
    random = np.random.default_rng(1)
    ratios = []
    for _ in range(80):
        traffic = random.gamma(0.5, size=(4, 4))
        np.fill_diagonal(traffic, 0)
        greedy, best = allocate_greedily(traffic, 3), find_best_circuits(traffic, 3, 1.0, 1.0)
        assert (greedy == greedy.T).all()
        assert greedy.sum(axis=1).max() <= 3
        ratios.append(exchange_seconds(traffic, greedy, 1.0, 1.0) / exchange_seconds(traffic, best, 1.0, 1.0))
    assert min(ratios) >= 1
    assert np.mean(ratios) <= 1.10
