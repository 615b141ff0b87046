"""The worked tables of the semantics, on the generated RTL and on the simulator."""

import pytest


@pytest.mark.hdl
def test_icarus_shows_every_table_of_the_semantics(icarus, worked_tables):
    datapath = worked_tables.datapath()
    assert worked_tables.wrong(datapath, icarus.run(datapath, worked_tables.inputs(datapath))) == []


@pytest.mark.timeout(600)
def test_verilator_shows_them_too(verilated_top, daily_tops, worked_tables):
    datapath, rtl = verilated_top(*next(iter(daily_tops.items())))
    rtl.reset()
    assert worked_tables.wrong(datapath, rtl.run(worked_tables.inputs(datapath))) == []


def test_the_fast_simulator_shows_them_too(simulate, worked_tables):
    datapath = worked_tables.datapath()
    assert worked_tables.wrong(datapath, simulate(datapath, worked_tables.inputs(datapath))) == []


def test_every_rule_has_a_table(worked_tables):
    rules = {
        word.strip(",:") for table in worked_tables.TABLES for word in table.rule.split() if word[0] == "R"
    }
    assert rules == {f"R{number}" for number in range(1, 13)}
