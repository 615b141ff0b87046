"""The table of a Telescent in the types of the contract."""

from __future__ import annotations

import pytest

from ocs_drivers import CrossConnects
from ocs_drivers.errors import ProtocolDesync
from ocs_drivers.model import PendingMove, PortState
from ocs_drivers.vendors.telescent.codec import (
    Cell,
    CommandSet,
    Numbering,
    OutputTable,
    decode_cells,
    decode_input,
    decode_serial,
)

pytestmark = pytest.mark.codec

COMMANDS = CommandSet()


def table(*statuses: str) -> OutputTable:
    """Return a row of as many outputs, each with its own input."""
    return OutputTable(tuple(Cell(status, number) for number, status in enumerate(statuses)), COMMANDS)


def test_letters_are_states_of_outputs():
    seen = table("UU", "UL", "AL", "CU", "DU", "XX")
    assert list(seen.output_states.values()) == [
        PortState.ENABLED,
        PortState.LOCKED,
        PortState.ENABLED,
        PortState.ENABLED,
        PortState.ENABLED,
        PortState.FAILED,
    ]
    assert seen.find_unfit_ports(allow_locked=False) == {8: PortState.LOCKED, 12: PortState.FAILED}
    assert seen.find_unfit_ports(allow_locked=True) == {12: PortState.FAILED}


def test_what_is_to_be_cleared_is_still_there_and_what_is_to_be_made_not_yet():
    seen = table("AL", "CU", "DU")
    assert seen.connections == CrossConnects({1: 4, 3: 6})
    assert seen.pending_moves == (PendingMove("connect", (2, 5)), PendingMove("disconnect", (3, 6)))


@pytest.mark.parametrize("number", [0, 7])
def test_an_input_that_is_reported_twice_or_does_not_exist_makes_no_table(number):
    seen = OutputTable((Cell("AL", 0), Cell("AL", number)), COMMANDS)
    with pytest.raises(ProtocolDesync, match="the table is inconsistent"):
        assert seen.connections


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        (["nothing"], "no row"),
        (["R0#N AL0 UU1", "R1#N UU2"], "ends early"),
        (["R1#N AL0"], "row 0 of the table is missing"),
        (["R0#N"], "row 0 of the table is missing"),
        (["R0#N" + " UU1" * 13], "13 columns"),
    ],
)
def test_rows_that_make_no_table(lines, what):
    with pytest.raises(ProtocolDesync, match=what):
        decode_cells(lines, COMMANDS)


def test_an_allocated_input_has_an_output():
    with pytest.raises(ProtocolDesync, match="without an output"):
        decode_input(["STATE = ALLOCATED_AND_LOCKED", "OUTPUT = none"], COMMANDS)


def test_an_input_without_circuit_can_be_reserved():
    assert decode_input(["STATE = UNALLOCATED_AND_LOCKED"], COMMANDS).is_reserved
    assert not decode_input(["STATE = ALLOCATED_AND_LOCKED", "OUTPUT = 3"], COMMANDS).is_reserved


def test_fields_may_stand_anywhere_on_their_line():
    found = decode_input(["   STATE=ALLOCATED_AND_UNLOCKED  ", "OUTPUT   =  12"], COMMANDS)
    assert (found.state, found.output) == ("ALLOCATED_AND_UNLOCKED", 12)


def test_ports_are_counted_from_nought():
    numbering = Numbering(96)
    assert (numbering.get_name(1), numbering.get_name(97)) == ("0", "0")
    assert numbering.convert_to_device_pair((3, 97)) == (2, 0)
    assert COMMANDS.make_connect_commands(0, 5)[-1] == ("connect --force -in 0 -out 5", True)
    assert COMMANDS.make_disconnect_commands(0, 5)[-1] == ("unallocate --force -out 5", True)


def test_a_banner_says_that_a_device_is_simulated():
    assert decode_serial(["Network Topology Manager (SIMULATED)"]) == "SIMULATED"
    assert decode_serial(["Network Topology Manager"]) == ""
