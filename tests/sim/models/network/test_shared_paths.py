"""Messages that share a path: every fabric gives them the same links as if each were routed alone."""

import numpy as np
import pytest

from sim.models.network.execution.circuits import CircuitSwitch
from sim.models.network.fabrics import (
    circulant,
    expander,
    fat_tree,
    ideal_switch,
    join_domains,
    rail_only,
    rail_optimized,
    share_hosts,
)

FABRICS = {
    "ideal": lambda: ideal_switch(16, 100),
    "fattree": lambda: fat_tree(16, 100),
    "oversub": lambda: fat_tree(16, 100, oversubscription=2),
    "circulant": lambda: circulant(16, (1, 15, 6, 10), 100),
    "expander": lambda: expander(16, 4, 100),
    "rail-only": lambda: rail_only(16, 4, 100, 900),
    "rail-optimized": lambda: rail_optimized(16, 4, 100, 900),
    "circuits": lambda: CircuitSwitch(16, 4, 100).fabric(),
    "domains": lambda: join_domains(fat_tree(16, 100), 4, 900),
    "shared hosts": lambda: share_hosts(circulant(8, (1, 7, 3, 5), 100), 2, 900),
}


@pytest.mark.parametrize("name", FABRICS)
def test_choices_repeat_after_the_number_that_the_router_states(name):
    fabric = FABRICS[name]()
    sources, targets, choices = (
        column.ravel() for column in np.meshgrid(np.arange(16), np.arange(16), np.arange(11), indexing="ij")
    )
    alone, reduced = (fabric.routes(sources, targets, c) for c in (choices, choices % fabric.choices))

    assert [column.tolist() for column in alone] == [column.tolist() for column in reduced]


def test_a_hashed_fat_tree_shares_no_paths():
    assert fat_tree(16, 100, balance="hash").choices is None
