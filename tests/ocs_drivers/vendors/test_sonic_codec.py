"""The codec of SONiC-OCS: published tables and commands."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ocs_drivers.errors import (
    DeviceError,
    PermissionDenied,
    ProtocolDesync,
)
from ocs_drivers.model import PortState
from ocs_drivers.vendors.sonic import codec
from ocs_drivers.vendors.sonic.codec import MAX_LIST_LENGTH, PortNames

pytestmark = pytest.mark.codec

NAMES = PortNames(64)

# -- what is published


CONFIG = """\
id       a_side    b_side
-------  --------  --------
1A-1B    1A        1B
2A-5B    2A        5B
12A-32B  12A       32B"""

STATUS = """\
id       a_side    b_side    a_side_status    b_side_status
-------  --------  --------  ---------------  ---------------
1A-1B    1A        1B        tuned            tuned
2A-5B    2A        5B        tuned            tuning
12A-32B  12A       32B       failed           blocked"""

PORT_CONFIG = """\
id    label     state
----  --------  -------
1A    Label_1A  force_blocked
1B              normal
2A              normal
2B              normal"""

PORT_STATUS = """\
id    connector_type    connector_pin    target_simplex_port_id    status
----  ----------------  ---------------  ------------------------  --------
1A    LC UPC            2                1B                        blocked
1B    LC UPC            1                                          failed"""


def lines(text: str) -> tuple[str, ...]:
    return tuple(text.splitlines())


def test_published_config_table():
    assert codec.parse_configured_pairs(lines(CONFIG), NAMES) == {(1, 65), (2, 69), (12, 96)}


def test_published_status_table():
    hardware = codec.parse_hardware_states(lines(STATUS), NAMES)
    assert hardware == {
        (1, 65): ("tuned", "tuned"),
        (2, 69): ("tuned", "tuning"),
        (12, 96): ("failed", "blocked"),
    }
    seen = codec.CrossConnectTables(frozenset({(1, 65), (2, 69), (7, 70)}), hardware)
    assert (seen.tuned_circuits, seen.failed_circuits, seen.ghost_circuits, seen.unrealised_circuits) == (
        {(1, 65)},
        {(12, 96)},
        {(12, 96)},
        {(7, 70)},
    )


def test_published_port_tables():
    names = PortNames(2)
    assert codec.count_ports(lines(PORT_CONFIG)) == (2, 2)
    assert codec.decode_port_config(lines(PORT_CONFIG), names) == {
        1: ("Label_1A", PortState.DISABLED),
        2: ("", PortState.ENABLED),
        3: ("", PortState.ENABLED),
        4: ("", PortState.ENABLED),
    }
    assert codec.parse_broken_ports(lines(PORT_STATUS), names) == {3}


@pytest.mark.parametrize(
    ("pairs", "published"),
    [
        ([(1, 66)], "1A-2B"),
        ([(1, 65), (2, 69), (12, 96)], "1A-1B,2A-5B,12A-32B"),
        ([(source, source + 74) for source in range(1, 11)], "1A..10A-11B..20B"),
        ([(10, 75), (12, 76), (13, 77), (14, 78)], "10A-11B,12A..14A-12B..14B"),
    ],
)
def test_published_lists(pairs, published):
    assert list(NAMES.format_pair_lists(pairs)) == [published]


@pytest.mark.parametrize("answer", ["cross-connect succeeded", "add cross-connect succeeded."])
def test_success(answer):
    codec.check_success((answer,))


@pytest.mark.parametrize("answer", ["Invalid cross-connect 1-1", "Error: port out of range", ""])
def test_anything_else_is_a_refusal(answer):
    with pytest.raises(DeviceError, match="refused"):
        codec.check_success(tuple(answer.splitlines()))


def test_no_root_no_change():
    with pytest.raises(PermissionDenied, match="sudo"):
        codec.check_success(("Root privileges are required for this operation",))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "id  a_side",
        CONFIG.replace("2A-5B ", "2A-6B "),
        CONFIG.replace("12A-32B  12A       32B", "12A-32B  12"),
        CONFIG.replace("1A-1B    1A        1B", "1B-1A    1B        1A"),
        CONFIG + "\n-bash: fork: retry: no child processes",
        CONFIG.replace("-------  ", ""),
    ],
    ids=["nothing", "no table", "another id", "cut", "from B to A", "noise", "odd dashes"],
)
def test_what_is_no_table_is_a_desync(text):
    with pytest.raises(ProtocolDesync):
        codec.parse_configured_pairs(lines(text), NAMES)


@pytest.mark.parametrize(
    ("decode", "text"),
    [
        (codec.parse_hardware_states, STATUS.replace("tuning", "asleep")),
        (codec.parse_broken_ports, PORT_STATUS.replace("1B ", "0B ")),
        (codec.decode_port_config, PORT_CONFIG.replace("normal", "asleep")),
        (lambda lines, names: codec.decode_identity(lines), "Linux sonic 6.1"),
    ],
)
def test_states_that_nobody_knows_are_a_desync(decode, text):
    with pytest.raises(ProtocolDesync):
        decode(lines(text), NAMES)


def test_a_port_that_is_left_out_is_a_desync():
    with pytest.raises(ProtocolDesync, match="ports are missing"):
        codec.count_ports(lines(PORT_CONFIG.replace("1B              normal\n", "")))


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=60), max_size=8))
def test_any_lines_are_a_table_or_a_desync(rows):
    for text in (rows, [*lines(STATUS)[:2], *rows]):
        try:
            codec.parse_hardware_states(tuple(text), NAMES)
        except ProtocolDesync:
            continue


def spelled_out(text: str) -> list[tuple[int, int]]:
    """Return the pairs of a list, the long way."""
    pairs = []
    for item in text.split(","):
        sides = [side.split("..") for side in item.split("-")]
        ends = [[int(name[:-1]) for name in side] for side in sides]
        pairs += zip(*(range(end[0], end[-1] + 1) for end in ends), strict=True)
    return [(source, sink + 64) for source, sink in pairs]


@given(st.permutations(range(65, 129)), st.integers(0, 64), st.booleans())
def test_lists_name_exactly_the_pairs(outputs, count, in_order):
    pairs = list(zip(range(1, count + 1), sorted(outputs) if in_order else outputs, strict=False))
    commands = list(NAMES.format_pair_lists(pairs))
    assert list(itertools.chain.from_iterable(map(spelled_out, commands))) == pairs
    assert all(len(command) <= MAX_LIST_LENGTH for command in commands)


@given(st.integers(1, 128))
def test_names_lead_back(port):
    assert NAMES.parse_port(NAMES.name_port(port)) == port


def test_a_thousand_pairs_fit_into_short_commands():
    names = PortNames(1024)
    pairs = [(source, 1024 + 1 + (source * 389) % 1024) for source in range(1, 1025)]
    assert max(map(len, names.format_pair_lists(pairs))) <= MAX_LIST_LENGTH
    assert len(list(names.format_pair_lists((source, source + 1024) for source in range(1, 1025)))) == 1


def test_a_version_that_was_cut_off_is_a_desync():
    whole = ["SONiC Software Version: SONiC.ocs.1", "HwSKU: OCS", "Serial Number: 7"]
    assert codec.decode_identity(whole).serial == "7"
    with pytest.raises(ProtocolDesync, match="before the serial number"):
        codec.decode_identity(whole[:2])
