"""Every hand-written block that is proven, and every fault that its checks have to notice."""

import re

import pytest

from fpga.formal.blocks import BLOCK_PROOFS, CHECKS_FOLDER, RTL, collect_proof_sources
from fpga.formal.properties import PROPERTIES

IN_TOPS = {"count_action_ready", "count_action_choice", "count_action_claim"}
"""Checks of no block by itself: their faults are in tops, as WIRING_MUTANTS and CHOICE_MUTANTS."""
STATUS = "count_action_level.keeps_nothing"
"""No block has the status of a level count: its fault is in a top, as one of CHOICE_MUTANTS."""
SMALL = ("count_action_beat", "count_action_flag", "count_action_store")
"""Blocks that are proven every day, in seconds; `make test-long` proves them all."""
PIPELINES = {each.block for each in BLOCK_PROOFS if each.depth > 3}
"""Blocks whose proofs need more cycles than those of the others."""
WIDE = ("packet_request", "packet_answer")
"""Blocks with thousands of registers: they have no cover statements, whose search would take them 24 cycles on."""


@pytest.fixture(scope="module")
def proof_of(prover):
    return lambda proven: prover.run(
        collect_proof_sources(proven), "proof", depth=max(each.depth for each in proven), budget_s=3000
    )


@pytest.fixture(scope="module")
def missed_of(prover):
    """Return a function that gives the mutants that no assertion about them notices."""

    def missed(mutants, planted):
        sources = mutants.sources(planted)
        # A buffer is full after four cycles, and the second beat of an answer leaves in the eighth.
        depth = max(
            8 if any(mutant.block in WIDE for mutant in planted) else 6,
            *(mutant.proven.depth for mutant in planted),
        )
        # The other assertions about a mutant cost time and say nothing.
        names = {
            block: re.findall(r"(\w+): assert", (CHECKS_FOLDER / f"{block}_checks.sv").read_text())
            for block in WIDE
        }
        others = [
            f"b{place}.checks.{name}"
            for place, mutant in enumerate(planted)
            for name in names.get(mutant.block, ())
            if name != mutant.assertion
        ]
        outcome = prover.run(
            sources,
            "proof",
            include_cover=False,
            depth=depth,
            budget_s=3000,
            is_bounded=True,
            excluded_assertions=others,
        )
        failed = {failure.name for failure in outcome.failures}
        return [
            f"{mutant.block}.{mutant.assertion}: {mutant.new}"
            for place, mutant in enumerate(planted)
            if f"b{place}.checks.{mutant.assertion}" not in failed
        ]

    return missed


def assert_proven(proof, reached):
    assert proof.failures == ()
    assert proof.undecided_assertions == ()
    assert proof.is_proven
    assert proof.unreached_covers == ()
    assert {name.rpartition(".")[2] for name in proof.reached_covers} == reached


def test_small_blocks_are_proven(proof_of):
    assert_proven(proof_of([each for each in BLOCK_PROOFS if each.block in SMALL]), {"stall"})


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_blocks_are_proven_and_fires_stalls_and_commits_are_reached(proof_of):
    proven = [each for each in BLOCK_PROOFS if each.block not in (*PIPELINES, *WIDE)]
    assert_proven(proof_of(proven), {"fire", "stall", "commit"})


@pytest.mark.long
@pytest.mark.parametrize(
    "proven", [each for each in BLOCK_PROOFS if each.block in PIPELINES], ids=lambda each: each.title
)
def test_a_pipeline_is_proven(proof_of, proven):
    assert_proven(proof_of([proven]), set())


@pytest.mark.long
@pytest.mark.parametrize("block", WIDE)
def test_a_wide_block_is_proven(prover, block):
    proven = [each for each in BLOCK_PROOFS if each.block == block]
    assert_proven(
        prover.run(collect_proof_sources(proven), "proof", include_cover=False, depth=3, budget_s=3000), set()
    )


def test_every_parameter_in_the_ports_of_a_block_has_a_value_in_its_proof():
    """Its wrapper declares wires of the same ranges. Proofs that take long would fail only in `make test-long`."""
    for proven in BLOCK_PROOFS:
        header = (RTL / f"{proven.block}.sv").read_text().partition(");")[0].partition(") (")[2]
        parameters = {
            name for bits in re.findall(r"\[([^\]]*)\]", header) for name in re.findall(r"[A-Z]\w*", bits)
        }
        assert parameters <= set(proven.parameters), proven.block


def test_what_a_mutant_replaces_stands_once_in_its_block(mutants):
    assert all(mutant.text("mutant") for mutant in mutants.MUTANTS)


def test_every_file_of_checks_is_used():
    blocks = {each.block for each in BLOCK_PROOFS} | IN_TOPS
    assert {path.stem for path in CHECKS_FOLDER.glob("*.sv")} == {f"{block}_checks" for block in blocks}


@pytest.mark.long
@pytest.mark.parametrize("block", sorted({proven.block for proven in BLOCK_PROOFS} - {*WIDE}))
def test_every_mutant_fails_at_the_assertion_that_is_about_it(missed_of, mutants, block):
    assert missed_of(mutants, [mutant for mutant in mutants.MUTANTS if mutant.block == block]) == []


@pytest.mark.long
@pytest.mark.parametrize("block", WIDE)
def test_mutants_of_a_wide_block_fail_at_the_assertion_that_is_about_them(missed_of, mutants, block):
    assert missed_of(mutants, [mutant for mutant in mutants.MUTANTS if mutant.block == block]) == []


def test_every_assertion_about_a_module_has_a_mutant(mutants):
    planted = {f"{mutant.block}.{mutant.assertion}" for mutant in mutants.MUTANTS}
    said = {each for fact in PROPERTIES for each in fact.assertions if each.partition(".")[0] not in IN_TOPS}
    assert said - {"count_action_beat.overwrites", STATUS} <= planted
