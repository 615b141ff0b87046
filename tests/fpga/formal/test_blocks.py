"""Every hand-written block that is proven, and every fault that its checks have to notice."""

import pytest

from fpga.formal.blocks import CHECKS, PROVEN, proof_sources
from fpga.formal.properties import PROPERTIES

IN_TOPS = {"count_action_ready", "count_action_choice", "count_action_claim"}
"""Checks of no block by itself: their faults are in tops, as WIRING_MUTANTS and CHOICE_MUTANTS."""


@pytest.fixture(scope="module")
def proof(prover):
    return prover.run(proof_sources(PROVEN), "proof", depth=3)


@pytest.fixture(scope="module")
def failed(prover, mutants):
    outcome = prover.run(
        mutants.sources(), "proof", cover=False, depth=6
    )  # a buffer is full after four cycles
    return {failure.name for failure in outcome.failures}


def test_the_blocks_are_proven(proof):
    assert proof.failures == ()
    assert proof.open == ()
    assert proof.proven


def test_fires_stalls_and_commits_are_reached(proof):
    assert proof.unreached == ()
    assert {name.rpartition(".")[2] for name in proof.reached} == {"fire", "stall", "commit"}


def test_every_file_of_checks_is_used():
    blocks = {each.block for each in PROVEN} | IN_TOPS
    assert {path.stem for path in CHECKS.glob("*.sv")} == {f"{block}_checks" for block in blocks}


def test_every_mutant_fails_at_the_assertion_that_is_about_it(failed, mutants):
    missed = [
        f"{mutant.block}.{mutant.assertion}: {mutant.new}"
        for place, mutant in enumerate(mutants.MUTANTS)
        if f"b{place}.checks.{mutant.assertion}" not in failed
    ]
    assert missed == []


def test_every_assertion_about_a_module_has_a_mutant(mutants):
    planted = {f"{mutant.block}.{mutant.assertion}" for mutant in mutants.MUTANTS}
    said = {each for fact in PROPERTIES for each in fact.assertions if each.partition(".")[0] not in IN_TOPS}
    assert said - {"count_action_beat.overwrites"} <= planted
