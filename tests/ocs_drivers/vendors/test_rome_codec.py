"""Output of ROME and AFM beyond the published captures: what cannot be, and what is passed over."""

from __future__ import annotations

import pytest

from ocs_drivers import CrossConnects
from ocs_drivers.errors import PortError, ProtocolDesync
from ocs_drivers.model import Identity, PendingMove, PortState, Step
from ocs_drivers.vendors.rome import codec
from ocs_drivers.vendors.rome.codec import AFM, ROME, Board, Queue, decode_board, decode_queue
from ocs_drivers.vendors.rome.port_table import Motion, PortTable, decode_ports
from ocs_drivers.vendors.rome.ports import Layout, check_one_matrix

pytestmark = pytest.mark.codec

QUEUE = [
    "Connection execution status: enabled",
    "Command in process:",
    "connect, ports: E3-W4, status: in process with payload",
    "======= =========",
    "Request Port1",
    "======= =========",
    "772     W1        E1        disconnect         CLI     admin",
]


def idle(name: str) -> str:
    return f"{name}[1A{name}] Unlocked Enabled Disconnected 0"


def table(*rows: str) -> PortTable:
    """Decode the table of a board with as many ports as are listed."""
    east = sum(row.startswith("E") for row in rows)
    return decode_ports(rows, ROME, Board(Identity("", "", "", ""), east, len(rows) - east))


def joined(one: str, other: str, state: str = "Connected") -> list[str]:
    return [
        f"{here}[1A{here}] Unlocked Enabled {state} 1 {there}[1A{there}]"
        for here, there in ((one, other), (other, one))
    ]


def test_commands_name_both_ports():
    assert codec.format_connect("E1", "W2") == "connection create E1 to W2"
    assert codec.format_disconnect("E1", "W2") == "connection disconnect E1 from W2"


def test_both_ends_of_a_circuit_say_the_same():
    assert table(*joined("E1", "W1")).find_connections(()) == CrossConnects({1: 2})
    with pytest.raises(ProtocolDesync, match="ports E1 and W1 report different circuits"):
        table(joined("E1", "W1")[0], idle("W1")).find_connections(())


def test_two_inputs_on_their_way_to_one_output_cannot_be():
    rows = [*joined("E1", "W1", "In process"), joined("E2", "W1", "In process")[0]]
    with pytest.raises(ProtocolDesync, match="the table of ports is inconsistent"):
        table(*rows).find_connections(())


def test_a_circuit_on_its_way_counts_unless_it_is_being_made():
    moving = table(*joined("E1", "W1", "In process"))
    assert moving.find_connections(()) == CrossConnects({1: 2})
    assert moving.find_connections([(1, 2)]) == CrossConnects()


def test_a_circuit_of_two_ports_of_one_side_cannot_be():
    with pytest.raises(ProtocolDesync, match="E1 is connected to E2"):
        table(*joined("E1", "E2")).find_connections(())


def test_a_connected_port_names_the_other():
    with pytest.raises(ProtocolDesync, match="is connected, but not to which port"):
        table("E1[1AE1] Unlocked Enabled Connected 1")


def test_a_port_is_named_once():
    with pytest.raises(ProtocolDesync, match="names a port twice"):
        table(idle("E1"), idle("E1"))


def test_states_that_make_a_port_unfit():
    board = Board(Identity("", "", "", ""), 3, 1)
    rows = ["E1 2 1 1 1 0", "E2 1 1 2 1 0", "E3 1 4 1 1 0", "W1 1 1 1 1 0"]
    found = decode_ports(rows, AFM, board)
    assert found.find_unfit_ports() == {1: PortState.LOCKED, 2: PortState.DISABLED, 3: PortState.FAILED}
    assert found.ports[2].motion is Motion.OTHER


def test_which_move_is_next():
    queue = decode_queue(QUEUE)
    layout = Layout(("E1", "E2", "E3"), ("W1", "W2", "W3", "W4"))
    assert queue.list_moves(layout) == (
        PendingMove("connect", (3, 7)),
        PendingMove("disconnect", (1, 4), "admin", "CLI", "772"),
    )
    assert Queue(waiting_requests=queue.waiting_requests).list_moves(layout) == queue.list_moves(layout)[1:]
    assert not queue.is_disabled
    assert decode_queue([line.replace("enabled", "disabled") for line in QUEUE]).is_disabled


@pytest.mark.parametrize(
    ("place", "line", "what"),
    [
        (0, "nothing", "robot is incomplete"),
        (2, "something else", "announces a command in process"),
        (3, "no rule", "robot is incomplete"),
        (6, "773     E1", "cannot be read"),
    ],
)
def test_a_queue_that_is_not_whole_is_no_queue(place, line, what):
    with pytest.raises(ProtocolDesync, match=what):
        decode_queue([*QUEUE[:place], line, *QUEUE[place + 1 :]])


def test_logical_ports_make_two_circuits_and_groups_none_that_can_be_known():
    layout = Layout(
        ("E1", "E2"),
        ("W1", "W2"),
        ports_by_logical_name={"A1": ("E1", "W1"), "A2": ("E2", "W2"), "A3": ("E2",)},
    )
    assert layout.get_pairs("A1", "A2") == ((1, 4), (2, 3))
    assert layout.get_pairs("W2", "E1") == ((1, 4),)
    assert layout.get_pairs("A1", "A3") == layout.get_pairs("A1", "A9") == ()


def test_ports_of_two_matrices_are_distinguished_where_the_device_reports_them():
    layout = Layout(("E1", "E2"), ("W1", "W2"), matrix_by_port={"E1": "A", "W1": "A", "W2": "B"})
    assert layout.is_one_matrix((1, 3))
    assert not layout.is_one_matrix((1, 4))
    assert layout.is_one_matrix((2, 4))  # of E2 nothing is told


def test_a_failure_is_ours_by_its_ports_and_its_command():
    line = "08-05-2019 09:32 OPERATION VALIDATION FAILED:E6-W4 requestType=connect"
    assert codec.find_failure([line], [("W4", "E6")], "connect") == line
    assert codec.find_failure([line], [("E6", "W4")], "disconnect") is None
    assert codec.find_failure([line], [("E6", "W5")], "connect") is None


def test_a_board_without_a_serial_number_has_an_empty_one():
    lines = ["ROME TYPE 128 X", "Male/West 1..8", "Female/East 1..9", "AUTHENTICATION  local"]
    assert decode_board(lines, ROME) == Board(Identity("Wave2Wave", "ROME type 128 X", "", ""), 9, 8)


def layout(scheme: str) -> Layout:
    """Return the names of a ROME of two matrices of 128 ports, as public captures of each kind have them."""
    ports = [(side, number) for side in "EW" for number in range(1, 257)]
    logical: dict[str, tuple[str, ...]] = {}
    for side, number in ports:
        within, in_a = (number - 1) % 128 + 1, number <= 128
        name = {
            "AB": f"{'A' if in_a else 'B'}{number}",
            "Q": f"Q{(within + 1) // 2}",
            "P": f"P{within}",
            "XY": f"{'Y' if (side == 'E') == in_a else 'X'}{within}",
        }[scheme]
        logical[name] = (*logical.get(name, ()), f"{side}{number}")
    matrix = {f"{side}{number}": "A" if number <= 128 else "B" for side, number in ports}
    east, west = (tuple(f"{side}{n}" for n in range(1, 257)) for side in "EW")
    return Layout(east, west, matrix, logical)


@pytest.mark.parametrize(
    ("scheme", "names", "circuits"),
    [
        ("AB", ("A3", "A4"), ["E3-W4", "E4-W3"]),
        ("AB", ("B129", "B256"), ["E129-W256", "E256-W129"]),
        (
            "Q",
            ("Q3", "Q4"),
            ["E5-W8", "E6-W7", "E133-W136", "E134-W135", "E7-W6", "E8-W5", "E135-W134", "E136-W133"],
        ),
        ("P", ("P3", "P4"), ["E3-W4", "E131-W132", "E4-W3", "E132-W131"]),
        ("XY", ("Y13", "X14"), ["E13-W14", "E142-W141"]),
        ("XY", ("X1", "X2"), []),
        ("AB", ("A1", "B129"), []),
        ("Q", ("Q1", "Q65"), []),
    ],
)
def test_the_circuits_of_logical_ports_are_those_of_the_captures(scheme, names, circuits):
    ports = layout(scheme)
    assert ["-".join(ports.get_names(pair)) for pair in ports.get_pairs(*names)] == circuits


def test_the_request_of_somebody_else_for_cables_is_every_move_that_it_makes():
    queue = decode_queue(
        [
            "Connection execution status: enabled",
            "Command in process:",
            "connect, ports: Q1-Q2, status: in process with payload",
            "======= =========",
            "Request Port1",
            "======= =========",
        ]
    )
    moves = [move.pair for move in queue.list_moves(layout("Q"))]
    assert moves[:2] == [(1, 256 + 4), (2, 256 + 3)]
    assert len(set(moves)) == 8


def test_a_failure_is_known_in_small_letters_too():
    line = "08-05-2019 09:32 OPERATION VALIDATION FAILED:e6-w4 requestType=connect"
    assert codec.find_failure([line], [("E6", "W4")], "connect") == line


def test_a_new_circuit_between_two_matrices_is_refused():
    layout = Layout(("E1", "E2"), ("W1", "W2"), matrix_by_port={"E1": "A", "W1": "A", "E2": "B", "W2": "B"})
    empty, pairs = CrossConnects({}), CrossConnects({1: 4})
    check_one_matrix([Step("remove", pairs, pairs, empty)], layout, device="rome")
    check_one_matrix(
        [Step("add", CrossConnects({1: 3}), empty, CrossConnects({1: 3}))], layout, device="rome"
    )
    with pytest.raises(PortError, match="rome: E1 and W2 belong to different matrices"):
        check_one_matrix([Step("add", pairs, empty, pairs)], layout, device="rome")
