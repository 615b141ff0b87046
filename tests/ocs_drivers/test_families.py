"""One table of families; one plan, every family: what is read back is the same in normalised indices."""

from __future__ import annotations

import pytest
from schemes import BANKS, SCHEMES

from ocs_drivers import CrossConnects, known_schemes
from ocs_drivers.families import FAMILIES, find_driver_factory, list_lab_schemes

SIZE, CIRCUITS = 24, 24
PLAN = tuple((n, (5 * n + 3) % SIZE) for n in range(CIRCUITS))
"""Pairs of indices from 0: a permutation, for 5 and 24 have no common factor."""


def test_every_scheme_of_the_table_is_known():
    assert set(FAMILIES) <= set(known_schemes())


@pytest.mark.parametrize("scheme", FAMILIES)
def test_every_scheme_of_the_table_leads_to_a_factory(scheme):
    assert callable(find_driver_factory(scheme))


def test_simulated_labs_may_have_every_matrix_that_answers_on_a_network():
    others = {scheme for scheme in FAMILIES if scheme.endswith("+serial")} | BANKS | {"manual"}
    assert set(list_lab_schemes()) == FAMILIES.keys() - others


@pytest.mark.slow
@pytest.mark.parametrize("scheme", sorted(SCHEMES.keys() - BANKS))
def test_the_same_plan_reads_the_same_on_every_family(scheme, world, open_in_memory):
    for library in ("pyvisa_py", "asyncssh", "h11"):
        pytest.importorskip(library)
    family, front = SCHEMES[scheme]
    made = world(family, size=(SIZE, SIZE))
    switch = open_in_memory(made, scheme, front)

    report = switch.apply(CrossConnects({i + 1: o + SIZE + 1 for i, o in PLAN}))

    assert report.complete
    held = switch.read().connections
    assert tuple((source - 1, output - SIZE - 1) for source, output in held.items()) == PLAN
    assert made.truth() == dict(held)
    switch.close()


@pytest.mark.slow
def test_a_plan_of_24_robot_minutes_takes_no_time_of_ours(world, open_in_memory):
    pytest.importorskip("asyncssh")
    made = world("telescent", size=(SIZE, SIZE))
    switch = open_in_memory(made, "telescent+cli", "cli")
    switch.apply(CrossConnects({i + 1: o + SIZE + 1 for i, o in PLAN}))
    assert made.clock.now() >= 24 * 60
