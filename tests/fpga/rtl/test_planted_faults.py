"""Each planted fault is found, by the rung that its entry names as the first one."""

import re
from pathlib import Path

import pytest

from fpga.hdl.cosimulation import find_first_mismatch

RUNGS = ("lint", "unit", "co-simulation")
MODULES, CYCLES = 20, 600
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "verification.md"


@pytest.fixture(scope="module")
def random_run(random_datapaths, simulate):
    """Return a datapath with a stimulus and what the simulator says: the last rung."""
    datapath = random_datapaths.random_datapath(7, MODULES)
    inputs = random_datapaths.constructive_stimulus(datapath, CYCLES, 1)
    return datapath, inputs, simulate(datapath, inputs)


@pytest.fixture(scope="module")
def rung_that_finds(icarus, lint, worked_tables, random_run):
    tables, table_rows = worked_tables.datapath(), worked_tables.inputs(worked_tables.datapath())
    datapath, inputs, expected = random_run

    def in_rtl(fault):
        if lint.lint(fault.design(tables)):
            return "lint"
        if worked_tables.wrong(tables, icarus.run(fault.design(tables), table_rows)):
            return "unit"
        outputs = icarus.run(fault.design(datapath), inputs)
        return "co-simulation" if find_first_mismatch(datapath, expected, outputs) else "none"

    def in_simulator(fault):
        if worked_tables.wrong(tables, fault.run(tables, table_rows)):
            return "unit"
        outputs = icarus.run(datapath, inputs)
        return (
            "co-simulation" if find_first_mismatch(datapath, fault.run(datapath, inputs), outputs) else "none"
        )

    return lambda fault: in_simulator(fault) if hasattr(fault, "run") else in_rtl(fault)


def test_every_fault_of_the_emitter_replaces_a_function_that_exists(planted_faults):
    faults = [fault for fault in planted_faults.FAULTS if hasattr(fault, "function")]
    assert faults
    assert [
        fault for fault in faults if not all(hasattr(each, fault.function) for each in fault.modules)
    ] == []


@pytest.mark.long
@pytest.mark.hdl
def test_a_fault_of_each_rung_is_found_by_it(planted_faults, rung_that_finds):
    first = {fault.found_by: fault for fault in reversed(planted_faults.FAULTS)}
    assert {name: rung_that_finds(fault) for name, fault in first.items()} == dict(
        zip(RUNGS, RUNGS, strict=True)
    )


@pytest.mark.hdl
@pytest.mark.long
def test_every_fault_is_found_by_the_rung_it_names(planted_faults, rung_that_finds):
    found = [(fault.name, rung_that_finds(fault)) for fault in planted_faults.FAULTS]
    assert found == [(fault.name, fault.found_by) for fault in planted_faults.FAULTS]


@pytest.mark.long
@pytest.mark.hdl
def test_without_a_fault_no_rung_finds_anything(rung_that_finds):
    from fpga.hdl import make_design

    class NoFault:
        design = staticmethod(make_design)

    assert rung_that_finds(NoFault) == "none"


def test_there_are_enough_faults_of_each_kind(planted_faults):
    assert len(planted_faults.RTL_FAULTS) >= 10
    assert len(planted_faults.EMITTER_FAULTS) >= 5
    assert len(planted_faults.SIMULATOR_FAULTS) >= 5
    assert {fault.found_by for fault in planted_faults.FAULTS} == set(RUNGS)


def test_the_page_on_verification_lists_every_fault(planted_faults):
    rows = re.findall(
        r"^\| (RTL|emitter|simulator) \| (.+?) \| (.+?) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert rows == planted_faults.table()
